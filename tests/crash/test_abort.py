"""A worker that dies inside a call: no result is lost, no effect is booked twice."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from acts.cli.dev.temporal_server import DevServer, dev_server

ROOT = Path(__file__).parents[2]


def tool(activity: str, timeout: str) -> dict[str, Any]:
    retry = {"maxAttempts": 20, "initialInterval": "100ms", "backoff": 1}
    meta: dict[str, Any] = {
        "_activity": {"const": activity}, "_outputPath": {"type": "string"},
        "_options": {"const": {"timeout": timeout, "retry": retry}},
    }  # fmt: skip
    parameters = {"name": {"type": "string"}, "amounts": {"type": "array", "items": {"type": "integer"}}}
    return {"type": "object", "properties": meta | parameters}


# A call of ``gate`` that died with its worker is missed after 2 s; no other is attempted twice on a busy machine
TOOLS = {"add": tool("ledger.add", "60s"), "gate": tool("ledger.gate", "2s")}


def add(name: str, *reads: str, tool: str = "add") -> dict[str, Any]:
    return {"_tool": tool, "name": name, "amounts": list(reads), "_outputPath": f"†state.{name}"}


@contextmanager
def engine(server: DevServer, ledger: Path, queue: str) -> Iterator[subprocess.Popen[str]]:
    """``python -m acts.worker`` as somebody starts it; killed without mercy at the end."""
    environment = {
        **os.environ, "TEMPORAL_ADDRESS": server.address, "ACTS_TASK_QUEUE": queue, "TEST_LEDGER": str(ledger),
        "ACTS_ACTIVITIES": "tests.crash.ledger",
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "acts.worker"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert any("ledger.add" in line for line in process.stdout)
        yield process
    finally:
        process.kill()
        process.communicate()


def check_books(ledger: Path, calls: int) -> None:
    db = sqlite3.connect(ledger)
    names = [row[0] for row in db.execute("select call from effects order by call")]
    ids = db.execute("select count(distinct id) from attempts").fetchone()[0]
    db.close()
    assert len(names) == len(set(names)) == calls, "each call has exactly one effect"
    assert ids == calls, "every attempt of a call carries the same _id"


@pytest.mark.long
async def test_a_worker_that_dies_inside_a_call_repeats_that_call_only(tmp_path: Path) -> None:
    ledger, queue = tmp_path / "ledger.db", "crash-inside"
    calls = [add("a"), add("b", "†state.a", tool="gate"), add("c", "†state.b")]
    plan = {"context": [{"type": "tool", "tool": TOOLS}, {"type": "plan", "plan": calls}]}
    with dev_server(ui=False) as server:
        client = await Client.connect(server.address)
        handle = await client.start_workflow("Plan", plan, id="inside", task_queue=queue)
        with engine(server, ledger, queue) as process:
            await asyncio.to_thread(process.wait, 60)
        ledger.with_suffix(".open").touch()
        with engine(server, ledger, queue):
            result = await handle.result()
    assert result["state"] == {"a": 1, "b": 2, "c": 3}
    db = sqlite3.connect(ledger)
    attempts = dict(db.execute("select call, count(*) from attempts group by call").fetchall())
    db.close()
    assert attempts.pop("b") >= 2
    assert attempts == {"a": 1, "c": 1}
    check_books(ledger, 3)
