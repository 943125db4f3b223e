"""What a person would write for each shape: the floor that the engine is measured against.

Plain Temporal code without a plan, a schema or a context: results are kept in variables and
passed on. Each call goes to the same activity as the engine's, with its inputs alone.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow

from benchmarks.activities import STEP

_TIMEOUT: Final = timedelta(minutes=5)

Json = dict[str, Any]


async def _step(inputs: list[Json], seconds: float = 0.0) -> Json:
    call: Json = {"inputs": inputs, "seconds": seconds} if seconds else {"inputs": inputs}
    done: Json = await workflow.execute_activity(STEP, call, start_to_close_timeout=_TIMEOUT, result_type=dict)
    return done


@workflow.defn
class Chain:
    """One call after the other."""

    @workflow.run
    async def run(self, given: Json) -> Json:
        """The last result."""
        last = await _step([])
        for _ in given["reads"][1:]:
            last = await _step([last])
        return last


@workflow.defn
class FanOut:
    """All calls at once, and one that reads them all."""

    @workflow.run
    async def run(self, given: Json) -> Json:
        """The last result."""
        found = await asyncio.gather(*[_step([]) for _ in given["reads"][:-1]])
        return await _step(list(found))


@workflow.defn
class Graph:
    """Any graph: a task per call, which awaits the tasks of the calls that it reads."""

    @workflow.run
    async def run(self, given: Json) -> Json:
        """The result of the deepest call."""
        tasks: list[asyncio.Task[Json]] = []

        async def call(reads: list[int], seconds: float) -> Json:
            return await _step([await tasks[r] for r in reads], seconds)

        latencies = given["seconds"] or [0.0] * len(given["reads"])
        for reads, seconds in zip(given["reads"], latencies, strict=True):
            tasks.append(asyncio.create_task(call(reads, seconds)))
        found = await asyncio.gather(*tasks)
        return max(found, key=lambda result: result["depth"])


WORKFLOWS: Final[list[type]] = [Chain, FanOut, Graph]
