"""Plans with the tools of the SDK's reference servers, through a worker that is killed in mid-call.

`make mcp-servers` installs them, into the folder that ``TEST_MCP_SERVERS`` names; without it the tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from acts.cli.dev.temporal_server import DevServer
from tests.crash.test_kill import Program
from tests.support import assert_eventually
from tests.workflow.foreign import Handle, call, came_to

FOLDER = Path(os.environ.get("TEST_MCP_SERVERS") or ".mcp-servers").absolute()
pytestmark = pytest.mark.skipif(not (FOLDER / "venv").exists(), reason="`make mcp-servers` installs the servers")


def configuration(data: Path) -> dict[str, Any]:
    """Every server, as other clients have it; only what is between ``acts`` is ours."""
    node, python = FOLDER / "node_modules" / ".bin", FOLDER / "venv" / "bin"
    # A killed worker is noticed after this long: more than the rhythm of 3 s, less than the usual 15 s
    quick = {"options": {"heartbeat": "5s"}}
    return {
        "time": {"command": str(python / "mcp-server-time"), "args": ["--local-timezone", "UTC"]},
        "git": {"command": str(python / "mcp-server-git"), "args": ["--repository", str(data / "repo")]},
        "everything": {"command": str(node / "mcp-server-everything"), "acts": quick},
        "fs": {"command": str(node / "mcp-server-filesystem"), "args": [str(data)]},
        "memory": {
            "command": str(node / "mcp-server-memory"), "env": {"MEMORY_FILE_PATH": str(data / "memory.jsonl")},
        },
    }  # fmt: skip


@pytest.fixture
def worker(server: DevServer, tmp_path: Path) -> Iterator[Program]:
    subprocess.run(["git", "init", "-q", str(tmp_path / "repo")], check=True)  # noqa: S607 - any git
    (tmp_path / "repo" / "new.txt").write_text("new")
    (tmp_path / "notes.txt").write_text("some notes")
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": configuration(tmp_path)}))
    environment = {
        "TEMPORAL_ADDRESS": server.address, "ACTS_TASK_QUEUE": f"reference-{uuid.uuid4().hex[:8]}",
        "ACTS_MCP": str(tmp_path / "mcp.json"),
    }  # fmt: skip
    program = Program([sys.executable, "-m", "acts.worker"], environment, tmp_path / "worker.log")
    program.start()
    yield program
    program.kill()


async def start(client: Client, worker: Program, *calls: dict[str, Any]) -> Handle:
    tools = [{"type": "tool", "tool": name} for name in dict.fromkeys(c["_tool"] for c in calls)]
    request = {"context": [*tools, {"type": "plan", "plan": list(calls)}]}
    return await client.start_workflow(
        "Plan", request, id=f"ref-{uuid.uuid4().hex}", task_queue=worker.env["ACTS_TASK_QUEUE"]
    )


async def test_a_plan_over_all_of_them_survives_a_killed_worker(
    client: Client, worker: Program, tmp_path: Path
) -> None:
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote notes"]}
    handle = await start(
        client, worker,
        call("time.convert_time", "†state.time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"),
        call("git.git_status", "†state.git", repo_path=str(tmp_path / "repo")),
        call("fs.read_text_file", "†state.notes", path=str(tmp_path / "notes.txt")),
        call("memory.create_entities", "†state.created", entities=[entity]),
        call("everything.get-tiny-image", "†state.image"),
        call("everything.get-structured-content", "†state.weather", location="Chicago"),
        call("everything.trigger-long-running-operation", "†state.long", duration=4, steps=4),
        call("memory.read_graph", "†state.graph", _when="†state.created && †state.long"),
        call("fs.write_file", "†state.written", path=str(tmp_path / "out.txt"), content="†{state.notes.content}!"),
        call("fs.read_text_file", "†state.missing || †state.error", path="/etc/passwd"),
    )  # fmt: skip

    async def is_running() -> bool:
        waiting = (await handle.describe()).raw_description.pending_activities
        return [(a.activity_id, bool(a.heartbeat_details.payloads)) for a in waiting] == [
            ("7:everything.trigger-long-running-operation", True)
        ]

    await assert_eventually(is_running, why="only the long call runs, and its progress is known")
    worker.kill()
    assert not (tmp_path / "out.txt").exists(), "a destructive tool waits for a person"
    worker.start()
    await handle.execute_update("decide", {"decision": "approve", "call": "9:fs.write_file"})
    result = await came_to(handle, within=90)
    state = result["state"]
    assert result["status"] == "completed", result["errors"]
    assert "21:00" in state["time"]["target"]["datetime"]
    assert "new.txt" in state["git"]
    assert state["notes"] == {"content": "some notes"}
    assert any(block["type"] == "image" and block["mimeType"] == "image/png" for block in state["image"])
    assert set(state["weather"]) == {"temperature", "conditions", "humidity"}
    assert state["graph"]["entities"][0]["name"] == "Ada"
    assert len((tmp_path / "memory.jsonl").read_text().splitlines()) == 1, "what had completed is not called again"
    assert (tmp_path / "out.txt").read_text() == "some notes!"
    assert state["error"]["code"] == "McpToolError"
    assert "outside" in state["error"]["message"]
    assert "completed" in state["long"].lower()
