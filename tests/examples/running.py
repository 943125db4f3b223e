"""What the tests of the examples share: the files, what the examples have written, and a worker that serves them."""

from __future__ import annotations

import asyncio
import importlib
import os
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

import examples
from acts.cli.dev.temporal_server import DevServer
from acts.cli.text.source import parse
from acts.language.wire import PLAN

ROOT = Path(__file__).parents[2]

RESULT_SECONDS = 180  # a run needs less than one; a laptop under full load may take many times that
STOP_SECONDS = 30


def load(plan: str) -> dict[str, Any]:
    """The Request in a plan file, as the CLI reads it."""
    found = parse((ROOT / plan).read_text("utf-8"), "YAML")
    assert isinstance(found, dict)
    return found


def registered() -> dict[str, Any]:
    """The Tools that a worker with all examples registers."""
    tools: dict[str, Any] = {}
    for name in examples.MODULES:
        tools.update(getattr(importlib.import_module(name), "TOOLS", {}))
    return tools


def rows(state: Path, example: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """What an example's database holds; opened for reading, so that a look at it cannot create it."""
    path = state / "examples" / example / f"{example}.db"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query, values).fetchall()


def files(state: Path, example: str) -> list[str]:
    """The names of the texts that an example has written, drafts among them if any were left."""
    return sorted(p.name for p in (state / "examples" / example).iterdir() if not p.name.endswith(".db"))


@dataclass(frozen=True)
class ActsWorker:
    """The project's worker in a process of its own."""

    process: subprocess.Popen[str]
    queue: str
    state: Path


@contextmanager
def started(command: list[str], log: Path, folder: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that has said its first line; it is stopped, and waited for, at the end."""
    settings = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "ACTS_"))}
    with (
        log.open("a", encoding="utf-8") as errors,
        subprocess.Popen(
            command, cwd=folder, env=settings | env, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8"
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), f"{command} ended: {log.read_text('utf-8')}"
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def acts_worker(server: DevServer, queue: str, folder: Path) -> Iterator[ActsWorker]:
    """``python -m acts.worker`` with all examples, started in an empty folder where nothing may appear."""
    state, cwd = folder / "state", folder / "empty"
    cwd.mkdir(exist_ok=True)
    env = {
        "TEMPORAL_ADDRESS": server.address,
        "TEMPORAL_NAMESPACE": server.namespace,
        "ACTS_TASK_QUEUE": queue,
        "ACTS_ACTIVITIES": ",".join(examples.MODULES),
        "ACTS_DELEGATES": os.pathsep.join(examples.DELEGATES),
        "ACTS_STATE": str(state),
        "PYTHONPATH": str(ROOT),
    }
    with started([sys.executable, "-m", "acts.worker"], folder / "worker.log", cwd, env) as process:
        yield ActsWorker(process, queue, state)
    assert list(cwd.iterdir()) == []


Handle = WorkflowHandle[Any, Any]


async def start(client: Client, worker: ActsWorker, request: dict[str, Any], workflow: str = PLAN) -> Handle:
    return await client.start_workflow(workflow, request, id=f"example-{uuid.uuid4()}", task_queue=worker.queue)


async def finished(handle: Handle) -> dict[str, Any]:
    found = await asyncio.wait_for(handle.result(), RESULT_SECONDS)
    assert isinstance(found, dict)
    return found


def states(result: dict[str, Any]) -> dict[str, str]:
    return {call["id"]: call["state"] for call in result["calls"]}


@dataclass(frozen=True)
class Started:
    """An Activity as history has it. ``decision`` is the same for all that one workflow task scheduled."""

    call: dict[str, Any]
    queue: str
    decision: int
    identity: str


async def activities_of(client: Client, handle: Handle) -> dict[str, Started]:
    """What was really started, by the id of the Call."""
    events = (await handle.fetch_history()).events
    identities = {
        e.activity_task_started_event_attributes.scheduled_event_id: e.activity_task_started_event_attributes.identity
        for e in events
        if e.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
    }
    out = {}
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            what = event.activity_task_scheduled_event_attributes
            (call, *_) = await client.data_converter.decode(what.input.payloads)
            decision, identity = what.workflow_task_completed_event_id, identities.get(event.event_id, "")
            out[what.activity_id] = Started(call, what.task_queue.name, decision, identity)
    return out


def below(client: Client, handle: Handle, *path: str) -> Handle:
    return client.get_workflow_handle("/".join((handle.id, *path)))


async def children(client: Client, handle: Handle) -> dict[str, str]:
    """The children of a run: their ids below its own, and their types."""
    found: dict[str, str] = {}
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
            what = event.start_child_workflow_execution_initiated_event_attributes
            found[what.workflow_id.removeprefix(f"{handle.id}/")] = what.workflow_type.name
    return found


async def held(handle: Handle) -> str:
    """All that the history of a run holds, as text to be searched."""
    events = [event async for event in handle.fetch_history_events()]
    return "".join(event.SerializeToString().decode("utf-8", "replace") for event in events)
