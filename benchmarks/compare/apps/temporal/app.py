import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import activities as do
    import shop

OPTIONS = {"start_to_close_timeout": timedelta(seconds=10)}


# task: refund
@workflow.defn
class Refund:
    @workflow.run
    async def run(self, id: str) -> str:
        order = await workflow.execute_activity(do.look_up, id, **OPTIONS)
        decision = await workflow.execute_activity(do.decide, order, **OPTIONS)
        payment = await workflow.execute_activity(do.pay, args=[id, decision["cents"]], **OPTIONS)
        await workflow.execute_activity(do.notify, args=[id, f"Paid: {payment['receipt']}"], **OPTIONS)
        return payment["receipt"]


# task: approval
@workflow.defn
class Approval:
    def __init__(self) -> None:
        self.order: dict | None = None
        self.approved_by: str | None = None

    @workflow.run
    async def run(self, id: str) -> str:
        self.order = await workflow.execute_activity(do.look_up, id, **OPTIONS)
        await workflow.wait_condition(lambda: self.approved_by is not None)
        payment = await workflow.execute_activity(do.pay, args=[id, self.order["cents"]], **OPTIONS)
        await workflow.execute_activity(do.notify, args=[id, f"Paid: {payment['receipt']}"], **OPTIONS)
        return payment["receipt"]

    @workflow.query
    def waiting(self) -> dict | None:
        return self.order if self.approved_by is None else None

    @workflow.signal
    def approve(self, by: str) -> None:
        self.approved_by = by


# task: fan_out
@workflow.defn
class FanOut:
    @workflow.run
    async def run(self, order: str) -> int:
        calls = [workflow.execute_activity(do.work, args=[order, number], **OPTIONS) for number in range(500)]
        return len(await asyncio.gather(*calls))


# task: agent
@workflow.defn
class PageReader:
    @workflow.run
    async def run(self, order: str) -> str:
        messages: list[dict] = [{"role": "user", "content": "Read the pages 1 to 20."}]
        while True:
            message = await workflow.execute_activity(do.ask_model, messages, **OPTIONS)
            messages.append(message)
            if not message.get("tool_calls"):
                return message["content"]
            for call in message["tool_calls"]:
                text = await workflow.execute_activity(do.read_page, call["function"]["arguments"], **OPTIONS)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})


# task: wiring
WORKFLOWS = {"refund": Refund, "approval": Approval, "fan_out": FanOut, "agent": PageReader}
ACTIVITIES = [do.look_up, do.decide, do.pay, do.notify, do.work, do.ask_model, do.read_page]


async def main():
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])

    async def run(task, order):
        return await client.execute_workflow(WORKFLOWS[task].run, order, id=order, task_queue="shop")

    async def resume(task, order):
        return await client.get_workflow_handle(order).result()

    # task: approval
    async def waiting(order):
        return await client.get_workflow_handle(order).query(Approval.waiting)

    async def approve(order):
        await client.get_workflow_handle(order).signal(Approval.approve, "ada")

    # task: wiring
    workflows = list(WORKFLOWS.values())
    with ThreadPoolExecutor(100) as threads:
        async with Worker(
            client, task_queue="shop", workflows=workflows, activities=ACTIVITIES, activity_executor=threads
        ):
            await shop.serve(run, waiting, approve, resume)


if __name__ == "__main__":
    asyncio.run(main())
