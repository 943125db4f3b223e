"""Hand-written workflows for each shape: the baseline for the engine.

Plain Temporal code without a plan, a schema or a context: results are variables. Each call runs
the same activity as the engine's, with its inputs only.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy

from benchmarks import orders
from benchmarks.activities import STEP

_TIMEOUT: Final = timedelta(minutes=5)

Json = dict[str, Any]


class _Steps:
    """The calls of one run: activities, or local ones where the request says ``local``."""

    def __init__(self, request: Json) -> None:
        self._start = workflow.start_local_activity if request.get("local") else workflow.start_activity

    async def call(self, inputs: list[Json], seconds: float = 0.0) -> Json:
        """The result of one call."""
        call: Json = {"inputs": inputs, "seconds": seconds} if seconds else {"inputs": inputs}
        result: Json = await self._start(STEP, call, start_to_close_timeout=_TIMEOUT, result_type=dict)
        return result


@workflow.defn
class Chain:
    """One call after another."""

    @workflow.run
    async def run(self, request: Json) -> Json:
        """The last result."""
        steps = _Steps(request)
        last = await steps.call([])
        for _ in request["reads"][1:]:
            last = await steps.call([last])
        return last


@workflow.defn
class FanOut:
    """All calls at once, and one that reads them all."""

    @workflow.run
    async def run(self, request: Json) -> Json:
        """The last result."""
        steps = _Steps(request)
        results = await asyncio.gather(*[steps.call([]) for _ in request["reads"][:-1]])
        return await steps.call(list(results))


@workflow.defn
class Elements:
    """A call for each item of a list, all at once, and one that reads them all."""

    @workflow.run
    async def run(self, request: Json) -> Json:
        """The last result."""
        steps = _Steps(request)
        results = await asyncio.gather(*[steps.call([item]) for item in request["items"]])
        return await steps.call(list(results))


@workflow.defn
class Graph:
    """Any graph: a task per call, which awaits the tasks that it reads."""

    @workflow.run
    async def run(self, request: Json) -> Json:
        """The result of the deepest call."""
        tasks: list[asyncio.Task[Json]] = []
        steps = _Steps(request)

        async def call(reads: list[int], seconds: float) -> Json:
            return await steps.call([await tasks[r] for r in reads], seconds)

        latencies = request["seconds"] or [0.0] * len(request["reads"])
        for reads, seconds in zip(request["reads"], latencies, strict=True):
            tasks.append(asyncio.create_task(call(reads, seconds)))
        results = await asyncio.gather(*tasks)
        return max(results, key=lambda result: result["depth"])


class _Order:
    """The five calls of an order, each with the engine's arguments: the call, the tool, the context."""

    def __init__(self, order: Json, id_: str) -> None:
        self.state: Json = {"order": order}
        self._id = id_

    async def call(self, number: int, tool: str, **parameters: Any) -> None:
        """Run a call; its result becomes part of the state."""
        key = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{workflow.info().workflow_id}/{self._id}/{number}:{tool}"))
        call = {"_tool": tool, "_outputPath": f"†state.{tool}", **parameters, "_id": key}
        self.state[tool] = await workflow.execute_activity(
            f"orders.{tool}", args=[call, orders.TOOLS[tool], []], activity_id=f"{number}:{tool}", result_type=dict,
            summary=f"{tool} → †state.{tool} [{self._id}]", start_to_close_timeout=_TIMEOUT,
            schedule_to_start_timeout=_TIMEOUT,
            retry_policy=RetryPolicy(maximum_attempts=3, non_retryable_error_types=["PayloadsTooLarge"]),
        )  # fmt: skip

    async def run(self) -> Json:
        """Two calls in parallel, and three in a chain; returns the state."""
        state, order = self.state, self.state["order"]

        async def find_price() -> None:
            await self.call(1, "customer", id=order["customer"])
            await self.call(3, "price", items=order["items"], tier=state["customer"]["tier"])

        await asyncio.gather(find_price(), self.call(2, "stock", items=order["items"]))
        await self.call(4, "decide", price=state["price"], stock=state["stock"])
        await self.call(5, "notify", customer=state["customer"], decision=state["decide"])
        return state


@workflow.defn
class Order:
    """One order."""

    @workflow.run
    async def run(self, request: Json) -> Json:
        """Its state."""
        return await _Order(request["order"], request["id"]).run()


@workflow.defn
class Orders:
    """A child for each order, ``parallel`` of them at once (all, by default)."""

    @workflow.run
    async def run(self, request: Json) -> Json:
        """The state of each."""
        gate = asyncio.Semaphore(request["parallel"]) if request.get("parallel") else None

        async def run_order(id_: str, order: Json) -> Json:
            async with AsyncExitStack() as stack:
                if gate is not None:
                    await stack.enter_async_context(gate)
                state: Json = await workflow.execute_child_workflow(
                    "Order", {"id": id_, "order": order}, id=f"{workflow.info().workflow_id}/{id_}", result_type=dict,
                    static_summary=f"instance {id_}",
                    parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
                )  # fmt: skip
                return state

        states = await asyncio.gather(*[run_order(id_, order) for id_, order in request["orders"].items()])
        return dict(zip(request["orders"], states, strict=True))


WORKFLOWS: Final[list[type]] = [Chain, FanOut, Elements, Graph, Order, Orders]
