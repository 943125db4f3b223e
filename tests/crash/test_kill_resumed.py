"""``kill -9`` of the worker while a run resumes another: no effect of either is applied twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.crash.test_kill import OPTIONS, killed, more_has_begun, world_in
from tests.workflow.foreign import call, came_to, ended, tool

Json = Any
CALLS = 20
MENDED = 13


def request(thirteenth: dict[str, Json], **config: Json) -> dict[str, Json]:
    """A chain whose 13th Call is the one that is mended."""
    tools = [tool(name, activity=name, options=OPTIONS) for name in ("add_one", "report")]
    chain = [call("add_one", f"†state.n{n}", value=f"†state.n{n - 1}" if n > 1 else 0) for n in range(1, CALLS + 1)]
    chain[MENDED - 1] = call("report", f"†state.n{MENDED}", after=f"†state.n{MENDED - 1}", **thirteenth)
    return {"config": config, "context": [*tools, {"type": "plan", "plan": chain}]}


@pytest.mark.long
async def test_a_run_that_resumes_another_survives_kill_9(tmp_path: Path) -> None:
    with world_in(tmp_path) as world:
        world.start("engine")
        client = await Client.connect(world.server.address)

        async def start(name: str, raw: Json) -> Any:
            return await client.start_workflow("Plan", raw, id=f"{world.queue}/{name}", task_queue=world.queue)

        failed = await came_to(await start("first", request({"fail": "no funds"})))
        assert failed["errors"][0]["call"] == f"{MENDED}:report"
        resume = {"workflowId": f"{world.queue}/first"}
        second = await start("second", request({"result": MENDED}, resume=resume))
        before = world.begun()
        client = await killed(world, "engine")  # most likely while it reads the first run
        await more_has_begun(world, before)
        client = await killed(world, "engine")
        result = await ended(client.get_workflow_handle(second.id))
        assert result["state"] == {f"n{n}": n for n in range(1, CALLS + 1)}
        assert result["resumedFrom"]["calls"] == [f"{n}:add_one" for n in range(1, MENDED)]
        rows = world.rows("SELECT call, count(*) FROM done GROUP BY call")
        assert dict(rows) == {f"{n}:{'report' if n == MENDED else 'add_one'}": 1 for n in range(1, CALLS + 1)}
        (again,) = world.rows("SELECT count(DISTINCT id) FROM begun WHERE call = ?", f"{MENDED}:report")
        assert again == (1,), "the effect of the call that failed had been applied"
