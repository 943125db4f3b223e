"""Continue-as-new below another run: what it has to say to the runs above is not lost with the run that said it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from acts.cli.dev.temporal_server import DevServer
from tests.support import assert_eventually
from tests.workflow.conftest import engine_on, renewing_server
from tests.workflow.foreign import Foreign, Handle, call, ended, of_type, pending, run_chain, tool

Json = Any
REQUESTS = 8  # with three requests to a run, the last of each run but one would be lost
THINK = tool("think", activity="", _output={"type": "object"})
CHAIN = [call("think", f"†state.x{i}", after=f"†state.x{i - 1}" if i > 1 else "") for i in range(1, REQUESTS + 1)]
# All but the last answer are refused at once, so that the next request follows without a pause
TALKS = [{"when": {"tick": i}, "solution": {"calls": [{"_tool": "nothing"}]}} for i in range(1, REQUESTS)]
BELOW: dict[str, tuple[Json, list[Json]]] = {
    "an agent": (
        {"context": [{"type": "system", "message": "You talk."}]},
        [*TALKS, {"when": {"tick": REQUESTS}, "solution": {"output": "done"}}],
    ),
    "a plan": (
        {"context": [THINK, {"type": "plan", "run": True, "plan": CHAIN}]},
        [{"when": {"tool": "think"}, "text": '{"deep": true}'}],
    ),
    "an agent that waits": (
        {"context": [THINK, {"type": "plan", "mode": "lazy", "plan": []}]},
        [
            {"when": {"tick": 1}, "solution": {"calls": [call("think", "†state.x")], "output": "†state.x"}},
            {"when": {"tool": "think"}, "text": '{"deep": true}'},
        ],
    ),
}


@pytest.fixture(scope="module")
def hasty() -> Iterator[DevServer]:
    with renewing_server(15) as running:  # within every request
        yield running


@pytest.fixture
async def user(
    hasty: DevServer, task_queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Foreign]:
    """Somebody with definitions and scripts in ``tmp_path``."""
    monkeypatch.setenv("ACTS_SCRIPTS", str(tmp_path))
    for name, (definition, answers) in BELOW.items():
        file = name.replace(" ", "-")
        (tmp_path / f"{file}.json").write_text(json.dumps(definition), "utf-8")
        (tmp_path / f"script-{file}.json").write_text(json.dumps({"answers": answers}), "utf-8")
    client = await Client.connect(hasty.address, namespace=hasty.namespace)
    async with engine_on(hasty, f"engine-{task_queue}", tmp_path) as engine:
        yield Foreign(client, engine, task_queue)


async def start(user: Foreign, below: str) -> Handle:
    name = below.replace(" ", "-")
    context = [tool("below", activity="", _delegate={"const": name})]
    config = {"model": f"scripted:script-{name}", "budget": {"tokens": 1_000_000}}
    return await user.start(user.request(call("below", "†state.x"), context=context, **config))


async def renewed(user: Foreign, id_: str) -> None:
    async def several() -> bool:
        return len(await run_chain(user.client, id_)) > 1

    await assert_eventually(several)


@pytest.mark.long
async def test_the_keeper_of_the_budget_is_told_of_every_request(user: Foreign) -> None:
    handle = await start(user, "a plan")
    result = await ended(handle)
    assert result["usage"]["requests"] == REQUESTS
    await renewed(user, f"{handle.id}/1:below/plan")
    signals = await of_type(handle, "WORKFLOW_EXECUTION_SIGNALED")
    records = [json.loads(s.input.payloads[0].data) for s in signals if s.signal_name.startswith("budget")]
    below = [item for record in records for item in record.get("settled", ())]
    ended_ = await of_type(handle, "CHILD_WORKFLOW_EXECUTION_COMPLETED")
    reports = [json.loads(e.result.payloads[0].data) for e in ended_]
    below += [item for report in reports for item in report["accounting"].get("settled", ())]
    used = {item["id"]: item["usage"] for item in below if item.get("usage")}
    assert sum(usage["inputTokens"] for usage in used.values()) == result["usage"]["inputTokens"]
    assert len(used) == REQUESTS


async def test_a_wait_is_known_at_the_root(user: Foreign) -> None:
    handle = await start(user, "an agent that waits")
    (wait,) = await pending(handle)
    assert wait["workflowId"] == f"{handle.id}/1:below"
    await renewed(user, wait["workflowId"])
    await handle.execute_update("decide", {"decision": "approve"})
    assert (await ended(handle))["state"] == {"x": {"deep": True}}
