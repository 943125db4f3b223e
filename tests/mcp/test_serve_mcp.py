"""``acts mcp``, as the SDK's client has it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from acts.cli.dev.temporal_server import DevServer
from tests.mcp.conftest import Engine

ROOT = Path(__file__).parents[2]
CALLS = [
    {"_tool": "h.add", "a": 1, "b": 2, "_outputPath": "†state.first"},
    {"_tool": "h.add", "a": "†state.first.sum", "b": 10, "_outputPath": "†state.second"},
]


def request(*calls: dict[str, Any]) -> dict[str, Any]:
    tools = [{"type": "tool", "tool": name} for name in dict.fromkeys(c["_tool"] for c in calls)]
    return {"context": [*tools, {"type": "plan", "plan": list(calls)}]}


class Acts:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> Any:
        result = await self.client.call_tool(tool, arguments)
        text = result.content[0].text  # type: ignore[union-attr]
        assert not result.is_error, text
        return json.loads(text)

    async def error(self, tool: str, **arguments: Any) -> str:
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error
        return str(result.content[0].text)  # type: ignore[union-attr]


@asynccontextmanager
async def serving(*options: str, **environment: str) -> AsyncIterator[Acts]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "ACTS_"))} | environment
    command = StdioServerParameters(command=sys.executable, args=["-m", "acts.cli", "mcp", *options], env=env, cwd=ROOT)
    async with Client(command) as client:
        yield Acts(client)


def of(engine: Engine, server: DevServer) -> dict[str, str]:
    address = {"TEMPORAL_ADDRESS": server.address, "TEMPORAL_NAMESPACE": server.namespace}
    return {**address, "ACTS_TASK_QUEUE": engine.queue, "ACTS_MCP": str(engine.hostile.folder / "mcp.json")}


@pytest.mark.long
async def test_a_plan_is_written_tried_and_followed(engine: Engine, server: DevServer) -> None:
    async with serving(**of(engine, server)) as acts:
        listed = (await acts.client.list_tools()).tools
        assert [tool.name for tool in listed] == ["validate", "simulate", "run", "status", "pending", "why"]
        assert {t.name for t in listed if t.annotations and not t.annotations.read_only_hint} == {"run"}
        assert await acts.call("validate", request=request(*CALLS)) == {"valid": True, "runsAs": "Plan", "problems": []}
        simulation = await acts.call("simulate", request=request(*CALLS))
        assert simulation["waves"] == [["1:h.add"], ["2:h.add"]]
        assert simulation["calls"][0]["hints"] == ["read-only"]
        done = await acts.call("run", request=request(*CALLS))
        assert done["status"] == "completed"
        assert done["result"]["state"]["second"] == {"sum": 13}
        assert await acts.call("status", id=done["id"]) == done
        origin = await acts.call("why", id=done["id"], path="state.second.sum")
        assert origin["value"] == 13


@pytest.mark.long
async def test_errors_are_answers_that_teach(engine: Engine, server: DevServer) -> None:
    wrong = request({"_tool": "h.add", "a": "one", "b": "†state.nothing", "_outputPath": "†state.x"})
    async with serving(**of(engine, server)) as acts:
        for tool in ("validate", "simulate", "run"):
            answer = await acts.call(tool, request=wrong)
            assert not answer["valid"]
            assert len(answer["problems"]) == 2
        assert "there is no run" in await acts.error("status", id="none")
        assert "request" in await acts.error("run")


async def test_nobody_decides_unless_that_is_allowed(engine: Engine, server: DevServer) -> None:
    plan = request({"_tool": "h.wipe", "_outputPath": "†state.x"})
    async with serving(**of(engine, server)) as acts:
        run = await acts.call("run", request=plan, wait=0)
        assert run["status"] == "running"
        waits: list[Any] = []
        while not waits:
            waits = (await acts.call("pending", id=run["id"]))["waits"]
        assert "approve" not in [tool.name for tool in (await acts.client.list_tools()).tools]
        assert (await acts.call("pending", id=run["id"]))["waits"] == waits
    async with serving("--allow-decisions", **of(engine, server)) as acts:
        subject = waits[0]["subject"]
        assert "needs a reason" in await acts.error("approve", id=run["id"], subject=subject, decision="reject")
        assert "subject" in await acts.error("approve", id=run["id"], call=waits[0]["call"])
        assert "subject" in await acts.error("approve", id=run["id"], subject="0" * 64)
        decided = await acts.call("approve", id=run["id"], subject=subject)
        assert decided["decision"] == "approve"
        done = await engine.client.get_workflow_handle(run["id"]).result()
        assert done["state"]["x"] == "done wipe"
        assert done["decisions"][0]["by"].endswith("(acts mcp)")
