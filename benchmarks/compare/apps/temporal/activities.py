import json

import shop
from openai import OpenAI
from pydantic import BaseModel
from temporalio import activity

# task: refund, agent
model = OpenAI(max_retries=0)


# task: refund
class Decision(BaseModel):
    cents: int
    reason: str


@activity.defn
def decide(order: dict) -> dict:
    answer = model.chat.completions.parse(
        model="any",
        messages=[
            {"role": "system", "content": "Decide how much of the order to refund."},
            {"role": "user", "content": json.dumps(order)},
        ],
        response_format=Decision,
    )
    return answer.choices[0].message.parsed.model_dump()


# task: agent
TOOL = {
    "name": "read_page",
    "description": "Reads a page.",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
}


@activity.defn
def ask_model(messages: list[dict]) -> dict:
    answer = model.chat.completions.create(
        model="any", messages=messages, tools=[{"type": "function", "function": TOOL}]
    )
    return answer.choices[0].message.model_dump(exclude_none=True)


@activity.defn
def read_page(arguments: str) -> str:
    return shop.read_page(json.loads(arguments)["number"])
