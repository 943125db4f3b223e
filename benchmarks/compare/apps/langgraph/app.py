import asyncio
import json
import os

import shop
from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool
from pydantic import BaseModel

OPTIONS = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
pool = ConnectionPool(os.environ["DATABASE_URL"], max_size=20, kwargs=OPTIONS)
checkpointer = PostgresSaver(pool)
checkpointer.setup()


# task: refund, approval
@task
def look_up(order: str) -> dict:
    return shop.look_up(order)


@task
def pay(order: str, cents: int) -> dict:
    return shop.pay(order, cents, key=f"refund-{order}")


@task
def notify(order: str, text: str) -> dict:
    return shop.notify(order, text)


# task: refund
class Decision(BaseModel):
    cents: int
    reason: str


decider = init_chat_model("openai:any").with_structured_output(Decision)


@task
def decide(order: dict) -> dict:
    told = [("system", "Decide how much of the order to refund."), ("user", json.dumps(order))]
    return decider.invoke(told).model_dump()


@entrypoint(checkpointer=checkpointer)
def refund(id: str) -> str:
    order = look_up(id).result()
    decision = decide(order).result()
    payment = pay(id, decision["cents"]).result()
    notify(id, f"Paid: {payment['receipt']}").result()
    return payment["receipt"]


# task: approval
@entrypoint(checkpointer=checkpointer)
def approval(id: str) -> str:
    order = look_up(id).result()
    interrupt(order)
    payment = pay(id, order["cents"]).result()
    notify(id, f"Paid: {payment['receipt']}").result()
    return payment["receipt"]


# task: fan_out
@task
def work(order: str, number: int) -> dict:
    return shop.work(order, number)


@entrypoint(checkpointer=checkpointer)
def fan_out(order: str) -> int:
    futures = [work(order, number) for number in range(500)]
    return len([future.result() for future in futures])


# task: agent
def read_page(number: int) -> str:
    """Reads a page."""
    return shop.read_page(number)


agent = create_agent("openai:any", tools=[read_page], checkpointer=checkpointer)

# task: wiring
GRAPHS = {"refund": refund, "approval": approval, "fan_out": fan_out, "agent": agent}


def config(order):
    return {"configurable": {"thread_id": order}, "max_concurrency": 100, "recursion_limit": 100}


def run(task, order):
    told = {"messages": [("user", "Read the pages 1 to 20.")]} if task == "agent" else order
    return GRAPHS[task].invoke(told, config(order), durability="sync")


def resume(task, order):
    return GRAPHS[task].invoke(None, config(order), durability="sync")


# task: approval
def waiting(order):
    return [found.value for found in approval.get_state(config(order)).interrupts]


def approve(order):
    return approval.invoke(Command(resume="ada"), config(order), durability="sync")


# task: wiring
asyncio.run(shop.serve(run, waiting, approve, resume))
