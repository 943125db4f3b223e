import asyncio

import flows
import shop
from prefect import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.deployments import run_deployment
from prefect.flow_runs import resume_flow_run, wait_for_flow_run

# task: wiring
FLOWS = {"refund": flows.refund, "fan_out": flows.fan_out, "agent": flows.agent}


# task: approval
async def find(order):
    async with get_client() as client:
        named = FlowRunFilter(name=FlowRunFilterName(any_=[order]))
        return (await client.read_flow_runs(flow_run_filter=named))[0]


async def waiting(order):
    found = await find(order)
    return found.parameters if found.state.is_paused() else None


async def approve(order):
    await resume_flow_run((await find(order)).id)


# task: wiring
async def run(task, order):
    if task == "approval":
        return await run_deployment("approval/shop", parameters={"id": order}, flow_run_name=order, timeout=0)
    return await asyncio.to_thread(FLOWS[task], order)


async def resume(task, order):
    if task == "approval":
        return (await wait_for_flow_run((await find(order)).id)).state
    return await asyncio.to_thread(FLOWS[task], order)


asyncio.run(shop.serve(run, waiting, approve, resume))
