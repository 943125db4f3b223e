import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import PollerBehaviorAutoscaling, Worker

with workflow.unsafe.imports_passed_through():
    import shop

OPTIONS = {"start_to_close_timeout": timedelta(seconds=10)}


# task: refund, approval
@activity.defn
def look_up(order: str) -> dict:
    return shop.look_up(order)


@activity.defn
def pay(order: str, cents: int) -> dict:
    info = activity.info()
    return shop.pay(order, cents, key=f"{info.workflow_run_id}-{info.activity_id}")


@activity.defn
def notify(order: str, text: str) -> dict:
    return shop.notify(order, text)


# task: approval
@workflow.defn
class Approval:
    def __init__(self) -> None:
        self.order: dict | None = None
        self.approved_by: str | None = None

    @workflow.run
    async def run(self, id: str) -> str:
        self.order = await workflow.execute_activity(look_up, id, **OPTIONS)
        await workflow.wait_condition(lambda: self.approved_by is not None)
        payment = await workflow.execute_activity(pay, args=[id, self.order["cents"]], **OPTIONS)
        await workflow.execute_activity(notify, args=[id, f"Paid: {payment['receipt']}"], **OPTIONS)
        return payment["receipt"]

    @workflow.query
    def waiting(self) -> dict | None:
        return self.order if self.approved_by is None else None

    @workflow.signal
    def approve(self, by: str) -> None:
        self.approved_by = by


# task: fan_out
@activity.defn
def work(order: str, number: int) -> dict:
    return shop.work(order, number)


@workflow.defn
class FanOut:
    @workflow.run
    async def run(self, order: str) -> int:
        calls = [workflow.execute_activity(work, args=[order, number], **OPTIONS) for number in range(500)]
        return len(await asyncio.gather(*calls))


# task: wiring
async def main(refund, agent, activities=(), plugins=()):
    workflows = {"refund": refund, "approval": Approval, "fan_out": FanOut, "agent": agent}
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"], plugins=plugins)

    async def run(task, order):
        return await client.execute_workflow(workflows[task].run, order, id=order, task_queue="shop")

    async def resume(task, order):
        return await client.get_workflow_handle(order).result()

    # task: approval
    async def waiting(order):
        return await client.get_workflow_handle(order).query(Approval.waiting)

    async def approve(order):
        await client.get_workflow_handle(order).signal(Approval.approve, "ada")

    # task: wiring
    with ThreadPoolExecutor(100) as threads:
        async with Worker(
            client,
            task_queue="shop",
            workflows=list(workflows.values()),
            activities=[look_up, pay, notify, work, *activities],
            activity_executor=threads,
            activity_task_poller_behavior=PollerBehaviorAutoscaling(),
        ):
            await shop.serve(run, waiting, approve, resume)
