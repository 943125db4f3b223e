"""A tool that blocks and a workflow task that does not end stop no other run, and no stop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

from acts.cli.dev.temporal_server import DevServer, dev_server
from tests.support import assert_eventually

Json = Any
ROOT = Path(__file__).parents[2]
SHUTDOWN_SECONDS = 4
WATCHDOG_SECONDS = 4
# A tenth of what the blocking tools sleep: nobody waited for them. A lost workflow task alone takes 15 s
SOON = 60.0


class Victim:
    """A worker process, its queue and its log."""

    def __init__(self, server: DevServer, folder: Path, **environment: str) -> None:
        self.queue = f"stuck-{uuid.uuid4().hex[:8]}"
        self.log = folder / "worker.log"
        self.environment = {
            **os.environ, "TEMPORAL_ADDRESS": server.address, "ACTS_TASK_QUEUE": self.queue, "PYTHONUNBUFFERED": "1",
            "ACTS_ACTIVITIES": "tests.crash.blockers", "ACTS_SHUTDOWN_SECONDS": str(SHUTDOWN_SECONDS),
            "ACTS_WATCHDOG_SECONDS": str(WATCHDOG_SECONDS), "TMPDIR": str(folder), **environment,
        }  # fmt: skip
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "acts.worker"], cwd=ROOT, env=self.environment, stdout=log, stderr=log
            )

    async def end(self) -> int:
        """The exit code, negative for a signal."""
        # Beside the limit itself: the process is scheduled on a busy machine
        return await asyncio.to_thread(self.process.wait, max(SHUTDOWN_SECONDS, WATCHDOG_SECONDS) + SOON)

    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    async def logs(self, *words: str) -> None:
        async def written() -> bool:
            return all(word in self.text() for word in words)

        await assert_eventually(written, within=timedelta(seconds=SOON), why=f"the log has {words}")


@pytest.fixture
def victim(server: DevServer, tmp_path: Path) -> Iterator[Victim]:
    found = Victim(server, tmp_path)
    yield found
    found.process.kill()
    found.process.wait()


async def start(client: Client, victim: Victim, *calls: tuple[str, str], **options: Any) -> WorkflowHandle[Any, Any]:
    plan = [{"_tool": tool, "value": value, "_outputPath": f"†state.s{i}"} for i, (tool, value) in enumerate(calls)]
    tools = [{"type": "tool", "tool": name} for name in dict.fromkeys(tool for tool, _ in calls)]
    request = {"context": [*tools, {"type": "plan", "plan": plan}]}
    id_ = f"{victim.queue}/{uuid.uuid4().hex[:6]}"
    return await client.start_workflow("Plan", request, id=id_, task_queue=victim.queue, **options)


async def neighbour_completes(client: Client, victim: Victim) -> None:
    handle = await start(client, victim, ("echo", "a"), ("echo", "b"))
    assert (await asyncio.wait_for(handle.result(), SOON))["state"] == {"s0": "a", "s1": "b"}


@pytest.mark.long
async def test_a_tool_that_blocks_stops_no_other_run_and_no_stop(server: DevServer, victim: Victim) -> None:
    client = await Client.connect(server.address)
    await neighbour_completes(client, victim)
    await start(client, victim, ("block_loop", "x"))
    await start(client, victim, ("hang", "x"))
    await victim.logs("tool block_loop of run", "tests/crash/blockers.py", "in block_loop")
    await neighbour_completes(client, victim)
    over = await start(client, victim, ("wait", "x"))
    await victim.logs("it waits")
    await over.terminate()
    await victim.logs("Cancelled: the call was cut off: its run has ended", "tool=wait")
    victim.process.send_signal(signal.SIGTERM)
    assert await victim.end() == 0
    assert victim.text().count("WorkerStopped: the worker is stopping") == 2
    assert "most recent call first" not in victim.text()  # no stacks of threads


@pytest.mark.long
async def test_a_stop_that_the_server_holds_up_ends_in_time_with_one_line(tmp_path: Path) -> None:
    with dev_server(ui=False) as server:
        victim = Victim(server, tmp_path)
        await victim.logs("acts worker: task queue")
        os.kill(server.pid, signal.SIGSTOP)
        victim.process.send_signal(signal.SIGTERM)
        code = await victim.end()
        os.kill(server.pid, signal.SIGCONT)
    assert code == 1
    assert "it has not stopped within 4 s" in victim.text()
    assert "most recent call first" not in victim.text()


@pytest.mark.long
async def test_a_workflow_task_that_does_not_end_fails_its_run_alone(server: DevServer, victim: Victim) -> None:
    client = await Client.connect(server.address)
    handle = await start(client, victim, ("echo", "spin"), task_timeout=timedelta(seconds=1))
    await victim.logs("a workflow task is stuck", "blockers.py", "in spin_or_sleep", handle.id)
    await neighbour_completes(client, victim)
    with pytest.raises(WorkflowFailureError) as failure:
        await asyncio.wait_for(handle.result(), 2 * SOON)
    cause = failure.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == "TaskStuck"
    assert "blockers.py" in cause.message
    await neighbour_completes(client, victim)
    victim.process.send_signal(signal.SIGTERM)
    await victim.end()


@pytest.mark.long
async def test_c_code_that_keeps_the_interpreter_lock_ends_the_process(server: DevServer, victim: Victim) -> None:
    client = await Client.connect(server.address)
    await start(client, victim, ("hold_lock", "x"))
    assert await victim.end() == -signal.SIGKILL
    text = victim.text()
    assert "no Python code has run in it for" in text
    assert "blockers.py" in text
    assert "in hold_lock" in text


@pytest.mark.long
async def test_a_run_that_has_ended_two_workers_fails(server: DevServer, victim: Victim) -> None:
    client = await Client.connect(server.address)
    handle = await start(client, victim, ("echo", "hold"), task_timeout=timedelta(seconds=1))
    for _ in range(2):
        assert await victim.end() == -signal.SIGKILL
        victim.start()
    with pytest.raises(WorkflowFailureError) as failure:
        await asyncio.wait_for(handle.result(), 2 * SOON)
    assert isinstance(failure.value.cause, ApplicationError)
    assert failure.value.cause.type == "TaskStuck"
    assert "interpreter lock" in failure.value.cause.message
    assert f"Plan {handle.id!r}, run {handle.result_run_id}" in victim.text()
    await neighbour_completes(client, victim)
