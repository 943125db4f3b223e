import json

import shop
from openai import OpenAI
from prefect import flow, task, unmapped
from prefect.cache_policies import INPUTS, TASK_SOURCE
from prefect.flow_runs import suspend_flow_run
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import BaseModel

STEP = {"cache_policy": INPUTS + TASK_SOURCE, "persist_result": True}
# task: refund, agent
model = OpenAI(max_retries=0)


# task: refund, approval
@task(**STEP)
def look_up(order: str) -> dict:
    return shop.look_up(order)


@task(**STEP)
def pay(order: str, cents: int) -> dict:
    return shop.pay(order, cents, key=f"refund-{order}")


@task(**STEP)
def notify(order: str, text: str) -> dict:
    return shop.notify(order, text)


# task: refund
class Decision(BaseModel):
    cents: int
    reason: str


@task(**STEP)
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


@flow
def refund(id: str) -> str:
    order = look_up(id)
    decision = decide(order)
    payment = pay(id, decision["cents"])
    notify(id, f"Paid: {payment['receipt']}")
    return payment["receipt"]


# task: approval
@flow(flow_run_name="{id}")
def approval(id: str) -> str:
    order = look_up(id)
    suspend_flow_run(timeout=30 * 86_400, key="approved")
    payment = pay(id, order["cents"])
    notify(id, f"Paid: {payment['receipt']}")
    return payment["receipt"]


# task: fan_out
@task(**STEP)
def work(order: str, number: int) -> dict:
    return shop.work(order, number)


@flow(task_runner=ThreadPoolTaskRunner(max_workers=100))
def fan_out(order: str) -> int:
    return len(work.map(unmapped(order), range(500)).result())


# task: agent
TOOL = {
    "name": "read_page",
    "description": "Reads a page.",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
}


@task(**STEP)
def ask_model(order: str, messages: list[dict]) -> dict:
    answer = model.chat.completions.create(
        model="any", messages=messages, tools=[{"type": "function", "function": TOOL}]
    )
    return answer.choices[0].message.model_dump(exclude_none=True)


@task(**STEP)
def read_page(order: str, arguments: str) -> str:
    return shop.read_page(json.loads(arguments)["number"])


@flow
def agent(order: str) -> str:
    messages: list[dict] = [{"role": "user", "content": "Read the pages 1 to 20."}]
    while True:
        message = ask_model(order, messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            text = read_page(order, call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})


# task: approval
if __name__ == "__main__":
    approval.serve(name="shop")
