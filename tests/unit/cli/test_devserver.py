"""The local server: one per folder, on this machine only, never left behind, never lost."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from acts.cli.dev.temporal_server import DevServer, DevServerError, dev_server, find_dev_server
from tests.support import assert_eventually

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.server
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, or relies on prctl")


@workflow.defn
class Greet:
    @workflow.run
    async def run(self, name: str) -> str:
        return f"hello {name}"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state") / "not yet there"


@pytest.fixture(scope="module")
def running(state: Path) -> Iterator[DevServer]:
    with dev_server(state=state, ui=False) as server:
        yield server


def test_a_second_server_on_the_folder_is_refused_with_who_holds_it(running: DevServer, state: Path) -> None:
    holder = rf"{re.escape(str(state))} .*process {os.getpid()}"
    with pytest.raises(DevServerError, match=holder), dev_server(state=state):
        pass


def test_a_server_left_behind_by_a_killed_process_is_named(running: DevServer, state: Path) -> None:
    lock = state / "lock"
    honest = lock.read_text()
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    lock.write_text(f"{dead.pid}\n")
    try:
        with pytest.raises(DevServerError, match=f"kill {running.pid}"), dev_server(state=state):
            pass
    finally:
        lock.write_text(honest)


async def test_a_finished_workflow_is_still_there_after_a_restart(tmp_path: Path, task_queue: str) -> None:
    with dev_server(state=tmp_path, ui=False) as first:
        client = await Client.connect(first.address)
        async with Worker(
            client, task_queue=task_queue, workflows=[Greet], workflow_runner=UnsandboxedWorkflowRunner()
        ):
            await client.execute_workflow(Greet.run, "you", id="kept", task_queue=task_queue)
    with dev_server(state=tmp_path, ui=False) as second:
        client = await Client.connect(second.address)
        handle = client.get_workflow_handle_for(Greet.run, "kept")
        assert await handle.result() == "hello you"
        assert (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED

        async def is_listed() -> bool:
            return [found.id async for found in client.list_workflows("WorkflowType='Greet'")] == ["kept"]

        await assert_eventually(is_listed, why="the list of runs follows them by a moment")


def test_the_server_and_all_it_announced_are_gone_after_the_block(tmp_path: Path) -> None:
    with dev_server(state=tmp_path, ui=False) as server:
        pass
    assert not _answers(server)
    assert not _alive(server.pid)
    assert find_dev_server(tmp_path) is None
    assert not (tmp_path / "dev.json").exists()


@linux_only
async def test_the_server_dies_with_a_parent_that_is_killed_and_the_folder_is_free_again(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from acts.cli.dev.temporal_server import dev_server\n"
        "with dev_server(state=Path(sys.argv[1]), ui=False): print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        server = find_dev_server(tmp_path)
        assert server is not None
        parent.kill()

    async def gone() -> bool:
        return find_dev_server(tmp_path) is None and not _answers(server)

    await assert_eventually(gone)
    with dev_server(state=tmp_path, ui=False) as again:
        assert _answers(again)


@linux_only
def test_every_port_is_open_to_this_machine_only() -> None:
    with dev_server() as server:
        open_files = set()
        for entry in Path(f"/proc/{server.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # the server has closed it meanwhile
                open_files.add(str(entry.readlink()))
        addresses = {
            columns[1].split(":")[0]
            for table in ("tcp", "tcp6")
            for columns in (line.split() for line in Path(f"/proc/net/{table}").read_text("ascii").splitlines()[1:])
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in open_files  # 0A: listening
        }
    assert addresses == {"0100007F"}  # 127.0.0.1, as the kernel writes it


def test_without_a_program_the_error_says_where_it_looked_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DevServerError, match=rf"{re.escape(str(tmp_path))}.*make setup"), dev_server():
        pass


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(DevServerError, match=f"127.0.0.1:{port}"), dev_server(ui_port=port):
            pass


def test_the_settings_of_another_temporal_do_not_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "example.invalid:7233")
    monkeypatch.setenv("TEMPORAL_API_KEY", "of another server")
    with dev_server(ui=False) as server:
        assert _answers(server)


def _answers(server: DevServer) -> bool:
    host, port = server.address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
