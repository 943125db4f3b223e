"""Functions with type hints as Tools: in the engine's worker, beside it with the plugin, and in a worker without it."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

import acts
from acts.cli.dev.temporal_server import DevServer
from tests.workflow import typed
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, call, came_to

CALLS = [
    call("payBack", "†state.refund", order="A-1", cents=500),
    call("payBack", "†state.later", order="A-2", cents=1, due="2027-02-03"),
    call("payBack", "†state.no", order="expired", cents=7, _errorPath="†state.failure"),
    call("sayWho", "†state.who"),
    call("countWrong", "†state.count", text="many", _errorPath="†state.wrong"),
]
USER = {"type": "state", "state": {"user": "Ada"}}


async def check_plan(user: Foreign, tools: list[Any]) -> None:
    context = [*({"type": "tool", "tool": tool} for tool in tools), USER, {"type": "plan", "plan": CALLS}]
    result = await came_to(await user.start({"context": context}))
    state = result["state"]
    assert state["refund"].pop("key") != state["later"].pop("key")
    assert state["refund"] == {"attempt": 1, "due": "2026-01-31", "status": "booked"}
    assert state["later"]["due"] == "2027-02-03"
    assert state["failure"] == {"code": "declined", "message": "the card has expired", "details": {"cents": 7}}
    assert state["who"] == "Ada"
    assert state["wrong"]["code"] == "badResult"
    assert state["wrong"]["message"].endswith("the call ran, and its effect may have happened")


async def test_a_worker_of_the_engine_serves_typed_tools(server: DevServer, plain_client: Client) -> None:
    async with engine_on(server, f"typed-{uuid.uuid4().hex[:8]}", modules=[typed.__name__]) as queue:
        await check_plan(Foreign(plain_client, queue, "nobody"), ["payBack", "sayWho", "countWrong"])


@pytest.mark.parametrize("has_plugin", [True, False])
async def test_so_does_a_worker_of_ones_own(has_plugin: bool, foreign: Foreign) -> None:  # noqa: FBT001 - two kinds of workers
    queue, listed = foreign.queue, acts.activities(typed)
    with ThreadPoolExecutor(4) as executor:
        worker = Worker(
            foreign.client, task_queue=queue, activities=listed, activity_executor=executor,
            plugins=[acts.Plugin()] if has_plugin else [],
        )  # fmt: skip
        async with worker:
            if has_plugin:
                return await check_plan(Foreign(foreign.client, queue, queue), ["payBack", "sayWho", "countWrong"])
            # Any client can ask for the Tools, and hand them to a run that is served elsewhere
            answer = await foreign.client.execute_activity(
                "acts.tools", {}, id=queue, task_queue=queue, result_type=dict,
                start_to_close_timeout=timedelta(seconds=60),
            )  # fmt: skip
            assert sorted(answer["tools"]) == ["countWrong", "payBack", "sayWho", "sumUp"]
            tools = [answer["tools"][name] for name in ("payBack", "sayWho", "countWrong")]
            for tool in tools:
                own = tool["properties"].setdefault("_options", {"const": {}})
                own["const"]["taskQueue"] = queue
            return await check_plan(foreign, tools)
