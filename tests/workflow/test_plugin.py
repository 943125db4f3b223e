"""The engine beside a worker that somebody already has, and beside modules that have the names of its rooms."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

import acts
from acts.cli.dev.temporal_server import DevServer
from tests.workflow.foreign import Foreign, call, ended, failure, tool

Json = Any
ROOT = Path(__file__).parents[2]


@activity.defn
async def double(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    return 2 * call["n"]


@activity.defn
def large(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    return "x" * call["n"]


@activity.defn
async def nothing() -> str:
    """Of the own workflow: a local activity without arguments, whose result is above what ours may return at once."""
    return "y" * 1_500_000


@workflow.defn
class OwnWorkflow:
    @workflow.run
    async def run(self, fails: bool) -> int:  # noqa: FBT001 - an argument of a workflow
        if fails:
            raise ApplicationError("as ever", type="Own", non_retryable=True)
        text = await workflow.execute_local_activity(nothing, start_to_close_timeout=timedelta(seconds=10))
        return len(text)


DOUBLE = {
    "type": "object",
    "properties": {"_tool": {"const": "double"}, "_activity": {"const": "double"}, "_outputPath": {}, "n": True},
}


async def test_a_worker_with_the_plugin_runs_plans_and_its_own_workflows(server: DevServer) -> None:
    client = await Client.connect(server.address, namespace=server.namespace)
    user = Foreign(client, f"plugin-{uuid.uuid4().hex[:8]}", "nobody")
    with ThreadPoolExecutor(4) as executor:
        worker = Worker(
            client, task_queue=user.engine, workflows=[OwnWorkflow], activities=[double, large, nothing],
            activity_executor=executor, plugins=[acts.Plugin({"double": DOUBLE})],
        )  # fmt: skip
        async with worker:
            named = {"type": "tool", "tool": "double"}
            local = tool("double", activity="double", options={"local": True}, n=True)
            local["tool"]["properties"]["_tool"] = {"const": "quick"}
            plan = [call("double", "†state.a", n=1), call("quick", "†state.b", n="†state.a")]
            request = {"context": [named, local, {"type": "plan", "plan": plan}]}
            assert (await ended(await user.start(request)))["state"] == {"a": 2, "b": 4}

            big = tool("large", activity="large", n=True)
            result = await user.run(call("large", "†state.x", n=3_000_000, _errorPath="†state.e"), context=[big])
            assert result["state"]["e"]["code"] == "PayloadTooLarge"

            error = await failure(await user.start({"context": [{"type": "tool", "tool": "unknown"}]}))
            assert error.type == "InvalidRequest"

            own: dict[str, Any] = {"task_queue": user.engine}
            size = await client.execute_workflow(OwnWorkflow.run, False, id=f"{user.engine}-own", **own)
            assert size == 1_500_000
            handle = await client.start_workflow(OwnWorkflow.run, True, id=f"{user.engine}-fails", **own)
            assert (await failure(handle)).type == "Own"


MODULE = """
from temporalio import activity

@activity.defn
def greet(call, tool, context):
    return f"Hello, {call['name']}!"

PROPERTIES = {
    "_tool": {"const": "greet"}, "_activity": {"const": "greet"}, "_outputPath": {}, "name": {"type": "string"},
}
TOOLS = {"greet": {"type": "object", "properties": PROPERTIES}}
"""
FOREIGN = "raise ImportError('the engine has imported a module of the user')"


@pytest.mark.parametrize("path", ["activities.py", "activities/__init__.py"])
async def test_a_users_modules_may_have_the_names_of_the_rooms(path: str, server: DevServer, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(MODULE, "utf-8")
    for name in ("workflows", "worker", "cli", "sets", "delegates", "tests", "plan"):
        (tmp_path / f"{name}.py").write_text(FOREIGN, "utf-8")
    client = await Client.connect(server.address, namespace=server.namespace)
    user = Foreign(client, f"folder-{uuid.uuid4().hex[:8]}", "nobody")
    variables = {
        "ACTS_ACTIVITIES": "activities", "ACTS_TASK_QUEUE": user.engine, "TEMPORAL_ADDRESS": server.address,
        "TEMPORAL_NAMESPACE": server.namespace, "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "acts.worker", cwd=tmp_path, env={**os.environ, **variables}
    )
    try:
        greeting = call("greet", "†state.text", name="Ada")
        request = {"context": [{"type": "tool", "tool": "greet"}, {"type": "plan", "plan": [greeting]}]}
        assert (await ended(await user.start(request)))["state"] == {"text": "Hello, Ada!"}
    finally:
        worker.terminate()
        await worker.wait()
