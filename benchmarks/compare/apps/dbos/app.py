import asyncio
import json
import os

import shop
from dbos import DBOS, SetWorkflowID
from openai import OpenAI
from pydantic import BaseModel

DBOS(config={"name": "shop", "system_database_url": os.environ["DATABASE_URL"]})
# task: refund, agent
model = OpenAI(max_retries=0)


# task: refund, approval
@DBOS.step()
def look_up(order: str) -> dict:
    return shop.look_up(order)


@DBOS.step()
def pay(order: str, cents: int) -> dict:
    return shop.pay(order, cents, key=DBOS.workflow_id)


@DBOS.step()
def notify(order: str, text: str) -> dict:
    return shop.notify(order, text)


# task: refund
class Decision(BaseModel):
    cents: int
    reason: str


@DBOS.step()
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


@DBOS.workflow()
def refund(id: str) -> str:
    order = look_up(id)
    decision = decide(order)
    payment = pay(id, decision["cents"])
    notify(id, f"Paid: {payment['receipt']}")
    return payment["receipt"]


# task: approval
@DBOS.workflow()
def approval(id: str) -> str:
    order = look_up(id)
    DBOS.set_event("waiting", order)
    DBOS.recv("approved", timeout_seconds=30 * 86_400)
    DBOS.set_event("waiting", None)
    payment = pay(id, order["cents"])
    notify(id, f"Paid: {payment['receipt']}")
    return payment["receipt"]


# task: fan_out
@DBOS.step()
def work(order: str, number: int) -> dict:
    return shop.work(order, number)


@DBOS.workflow()
def fan_out(order: str) -> int:
    handles = [DBOS.enqueue_workflow("work", work, order, number) for number in range(500)]
    return len([handle.get_result() for handle in handles])


# task: agent
TOOL = {
    "name": "read_page",
    "description": "Reads a page.",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
}


@DBOS.step()
def ask_model(messages: list[dict]) -> dict:
    answer = model.chat.completions.create(
        model="any", messages=messages, tools=[{"type": "function", "function": TOOL}]
    )
    return answer.choices[0].message.model_dump(exclude_none=True)


@DBOS.step()
def read_page(arguments: str) -> str:
    return shop.read_page(json.loads(arguments)["number"])


@DBOS.workflow()
def agent(order: str) -> str:
    messages: list[dict] = [{"role": "user", "content": "Read the pages 1 to 20."}]
    while True:
        message = ask_model(messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            text = read_page(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})


# task: wiring
WORKFLOWS = {"refund": refund, "approval": approval, "fan_out": fan_out, "agent": agent}


def run(task, order):
    with SetWorkflowID(order):
        return WORKFLOWS[task](order)


def resume(task, order):
    return DBOS.retrieve_workflow(order).get_result()


# task: approval
def waiting(order):
    return DBOS.get_event(order, "waiting", timeout_seconds=0)


def approve(order):
    DBOS.send(order, "ada", "approved")


# task: wiring
if __name__ == "__main__":
    DBOS.launch()
    # task: fan_out
    DBOS.register_queue("work")
    # task: wiring
    asyncio.run(shop.serve(run, waiting, approve, resume))
