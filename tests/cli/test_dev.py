"""``acts dev`` and ``acts demo``: everything starts, and no process remains, however it ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from acts.cli.dev.temporal_server import find_dev_server
from acts.cli.text.preflight import EXAMPLES
from tests.cli.conftest import ROOT, clean_environment, run_acts
from tests.support import assert_eventually

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")

STOP_SECONDS = 60  # the server needs 1.5, the worker less; a machine under full load many times that

STUBBORN = """
import time
from temporalio import activity

@activity.defn(name="stubborn")
def stubborn(call, tool, context):
    open(call["mark"], "w").close()
    time.sleep(3600)
"""
STUBBORN_PLAN = """
context:
  - type: tool
    tool: {stubborn: {_activity: stubborn, _outputPath: †state.x, properties: {mark: {type: string}}}}
  - {type: plan, plan: [{_tool: stubborn, mark: †input.mark}]}
"""


@dataclass
class Dev:
    """``acts dev`` as a process, with its output until it was ready."""

    process: subprocess.Popen[str]
    printed: str
    state: Path

    def __getitem__(self, label: str) -> str:
        match = re.search(rf"^  {label} +(.*)$", self.printed, re.MULTILINE)
        assert match is not None, self.printed
        return match.group(1)

    @property
    def processes(self) -> list[int]:
        """Its own process, the worker and the server."""
        everybody = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        return [self.process.pid, *(pid for pid in everybody if (stat(pid) or ["", "0"])[1] == str(self.process.pid))]

    @property
    def server(self) -> int:
        match = find_dev_server(self.state)
        assert match is not None
        return match.pid

    @property
    def worker(self) -> int:
        (match,) = set(self.processes) - {self.process.pid, self.server}
        return match

    def wait(self) -> tuple[int, str]:
        """The exit code, and the output since it was ready."""
        rest, _ = self.process.communicate(timeout=STOP_SECONDS)
        return self.process.returncode, rest


Start = Callable[..., Dev]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start ``acts dev`` with the state in the test's folder; a process that remains at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def call(*arguments: str, cwd: Path = ROOT, **environment: str) -> Dev:
        state = tmp_path / "state"
        process = subprocess.Popen(
            [sys.executable, "-m", "acts.cli", "dev", "--state", str(state), *arguments],
            cwd=cwd,
            env=clean_environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        printed = ""
        while not printed.rpartition("\n  try ")[1]:
            line = process.stdout.readline()
            assert line, printed
            printed += line
        return Dev(process, printed, state)

    yield call
    for process in started:
        with suppress(ProcessLookupError):
            process.kill()
        process.communicate()


def stat(pid: int) -> list[str] | None:
    """State, parent, … of a process, as Linux lists them; None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def is_alive(pid: int) -> bool:
    match = stat(pid)
    return match is not None and match[0] != "Z"


async def wait_until_ended(pids: list[int]) -> None:
    async def look() -> bool:
        return not any(is_alive(pid) for pid in pids)

    await assert_eventually(look, why=f"none of {pids} lives")


@pytest.mark.long
async def test_a_plan_runs_on_the_dev_server_and_ctrl_c_stops_everything(start: Start, tmp_path: Path) -> None:
    with socket.socket() as other:
        with suppress(OSError):  # another program uses it, which has the same effect
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", 7233))
            other.listen()
        dev = start()
    assert not dev["server"].startswith("127.0.0.1:7233,")
    assert "port 7233 is used" in dev["note"]
    processes = dev.processes
    assert len(processes) == 3
    assert "askWeather" in dev["worker"]
    address = urlsplit(dev["Web UI"])
    with closing(http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)) as connection:
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
    done = run_acts("run", str(EXAMPLES / "weather" / "plan.yaml"), cwd=tmp_path, ACTS_STATE=str(dev.state))
    assert done.returncode == 0, done.stderr
    assert str(dev.state / "examples" / "weather") in done.stdout

    dev.process.send_signal(signal.SIGINT)
    code, last = dev.wait()
    assert (code, last) == (0, f"stopped; the state is in {dev.state}\n")
    await wait_until_ended(processes)
    assert find_dev_server(dev.state) is None
    after = run_acts("show", "x", cwd=tmp_path, ACTS_STATE=str(dev.state))
    assert after.returncode in (2, 3)  # another server may run on 7233


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
async def test_no_process_remains_however_it_is_stopped(start: Start, number: signal.Signals) -> None:
    dev = start("--no-ui")
    processes = dev.processes
    dev.process.send_signal(number)
    code, _ = dev.wait()
    assert code == (-number if number == signal.SIGKILL else 0)
    await wait_until_ended(processes)


@pytest.mark.long
async def test_an_activity_that_does_not_end_does_not_block_the_stop(start: Start, tmp_path: Path) -> None:
    (tmp_path / "stubborn_tools.py").write_text(STUBBORN)
    (tmp_path / "stubborn.yaml").write_text(STUBBORN_PLAN)
    dev = start("--no-ui", "--activities", "stubborn_tools", cwd=tmp_path)
    processes = dev.processes
    mark = tmp_path / "mark"
    detached = run_acts(
        "run", "stubborn.yaml", "--detach", "-i", f"mark={mark}", cwd=tmp_path, ACTS_STATE=str(dev.state)
    )
    assert detached.returncode == 0, detached.stderr

    async def runs() -> bool:
        return mark.exists()

    await assert_eventually(runs, why="the activity runs")
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.stdout is not None
    assert any("running Activities have up to 3 s" in line for line in dev.process.stdout)
    dev.process.send_signal(signal.SIGINT)
    assert dev.wait()[0] == 0
    await wait_until_ended(processes)


@pytest.mark.long
async def test_if_the_server_ends_the_worker_is_stopped(start: Start) -> None:
    dev = start("--no-ui")
    processes = dev.processes
    os.kill(dev.server, signal.SIGKILL)
    ended, last = dev.wait()
    assert ended == 3
    assert "the server has ended by itself" in last
    assert "most recent call first" not in last  # stacks of threads
    await wait_until_ended(processes)


@pytest.mark.long
async def test_a_worker_that_dies_or_whose_tools_change_starts_again(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    assert run_acts("init", "mine", cwd=tmp_path).returncode == 0
    dev = start("--no-ui", cwd=folder)
    assert dev.process.stdout is not None
    state = {"ACTS_STATE": str(dev.state)}

    def read_until(*texts: str) -> str:
        printed = ""
        while not all(text in printed for text in texts):
            assert dev.process.stdout is not None
            line = dev.process.stdout.readline()
            assert line, printed
            printed += line
        return printed

    os.kill(dev.worker, signal.SIGKILL)
    read_until("the worker was ended by SIGKILL and starts again in 1 s", "the worker is ready: ")
    done = run_acts("run", "plan.yaml", "--json", cwd=folder, **state)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"]["mail"]["to"] == "ann@example.com"

    module = folder / "order_tools.py"
    code = module.read_text("utf-8")
    module.write_text(code + "\nraise ValueError('half of a change')\n", "utf-8")
    printed = read_until("starts again when a file changes")
    assert "order_tools.py changed" in printed
    assert "half of a change" in printed
    assert "Traceback" not in printed
    module.write_text(code.replace("MAX_AMOUNT = 100 ", "MAX_AMOUNT = 10 "), "utf-8")
    read_until("order_tools.py changed", "the worker is ready: ")
    done = run_acts("run", "plan.yaml", "--json", cwd=folder, **state)
    assert json.loads(done.stdout)["state"]["error"]["message"] == "the card of ann@example.com has 10 dollars"

    (folder / "acts.toml").write_text('[environment]\nACTS_ACTIVITIES = "order_tools,examples.weather.activities"\n')
    assert "askWeather" in read_until("acts.toml changed", "the worker is ready: ")

    processes = dev.processes
    dev.process.send_signal(signal.SIGINT)
    code_, rest = dev.wait()
    assert code_ == 0, rest
    assert "\x1b[" not in printed + rest
    await wait_until_ended(processes)


@pytest.mark.long
def test_the_demo_runs_its_plans_and_leaves_no_files(tmp_path: Path) -> None:
    done = run_acts("demo", cwd=tmp_path, ACTS_ACTIVITIES="ignored.by.the.demo", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("✓ completed") == 4
    agent = done.stdout[done.stdout.index("4. An agent") :]
    for words in ("1:checkBillingHistory  completed", "2 ticks", '"confirmationId": "refund_1"'):
        assert words in agent
    assert "the server and the worker are stopped" in done.stdout
    assert list(tmp_path.iterdir()) == []
