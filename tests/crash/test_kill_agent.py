"""``kill -9`` of the worker between and during the requests of an agent: what was answered is not asked again."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.crash.model import model
from tests.crash.test_kill import OPTIONS, world_in
from tests.support import assert_eventually
from tests.workflow.foreign import call, ended, tool

Json = Any
TICKS = 6
GATED = 2  # the Call of this tick does not end before its gate is open


def answer(tick: int) -> Json:
    """Each tick adds one; the last says what it came to."""
    if tick == TICKS:
        return {"calls": [], "output": {"sum": f"†state.n{TICKS - 1}"}}
    return {
        "calls": [
            call(
                "gated" if tick == GATED else "add_one",
                f"†state.n{tick}",
                value=f"†state.n{tick - 1}" if tick > 1 else "†input.zero",
            )
        ],
        "output": None,
    }


def agent_request(**config: Json) -> dict[str, Json]:
    tools = [tool(name, activity=name, options=OPTIONS) for name in ("add_one", "gated")]
    return {"config": {"model": "openai:any", **config}, "context": [{"type": "input", "zero": 0}, *tools]}


def streamed_answer(tick: int) -> Json:
    """The first answer has three Calls and breaks off after one; the second makes what is left."""
    calls = [call("add_one", f"†state.n{n}", value=f"†state.n{n - 1}" if n > 1 else "†input.zero") for n in (1, 2, 3)]
    return {"calls": calls if tick == 1 else calls[1:], "output": {"sum": "†state.n3"}}


@pytest.mark.long
async def test_a_call_that_started_while_the_model_wrote_is_not_made_again(tmp_path: Path) -> None:
    async with model(streamed_answer) as asked:
        asked.cut[1] = json.dumps(streamed_answer(1)["calls"][0])
        with world_in(tmp_path) as world:
            world.programs["engine"].env |= {"OPENAI_BASE_URL": asked.url, "ACTS_OPENAI_API": "chat"}
            world.start("engine")
            client = await Client.connect(world.server.address)
            handle = await client.start_workflow(
                "Agent", agent_request(), id=f"{world.queue}/agent", task_queue=world.queue
            )

            async def first_call_runs() -> bool:
                return world.begun() >= 1

            await assert_eventually(first_call_runs, within=timedelta(seconds=180))
            world.kill("engine")  # in the middle of the answer, and of the call
            world.start("engine")
            result = await ended(handle, within=60)
            assert result["output"] == {"sum": 3}
            assert (result["ticks"], dict(asked.asked)) == (2, {1: 1, 2: 1})
            assert [e["code"] for e in result["errors"]] == ["modelInterrupted"]
            (done,) = world.rows("SELECT count(*), count(DISTINCT id) FROM done")
            assert done == (3, 3)
