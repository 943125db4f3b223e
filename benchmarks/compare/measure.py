"""One alternative, measured: its servers, its processes, the tasks, and kill -9 in the middle."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from acts.cli.dev.temporal_server import spawn
from benchmarks.compare import servers
from benchmarks.compare.servers import Served, cpu_seconds
from benchmarks.tables import print_progress

Json = Any

APPS: Final = Path(__file__).parent / "apps"
ROOT: Final = APPS.parents[2]
VENVS: Final = ROOT / ".compare"
RUN_SECONDS: Final = 180.0
ALONE_SECONDS: Final = 30.0
"""How long a task may take after a restart to go on by itself; timeouts of calls are 10 s, heartbeats of acts 15 s."""
HOLD_SECONDS: Final = 2.0
"""For how long the payment service keeps its answer, after it has paid, in the runs that are killed then."""
DONE: Final = {
    "refund": {"look_up": 1, "pay": 1, "notify": 1},
    "approval": {"look_up": 1, "pay": 1, "notify": 1},
    "fan_out": {"work": 500},
    "agent": {"read_page": 20},
}
RUNS: Final = {"refund": 7, "fan_out": 2, "agent": 3}
"""Measured per round, after one of each that warms up."""


@dataclass(frozen=True)
class Alternative:
    """``worker``: arguments of a second Python process."""

    name: str
    title: str
    server: Callable[[Path, Path], AbstractContextManager[Served]]
    worker: tuple[str, ...] = ()

    @property
    def venv(self) -> Path:
        """Its environment: the project's own for acts."""
        return Path(sys.prefix) if self.name == "acts" else VENVS / self.name


ALTERNATIVES: Final = (
    Alternative("acts", "acts", servers.temporal, ("-m", "acts.worker")),
    Alternative("temporal", "Temporal, by hand", servers.temporal),
    Alternative("pydantic_ai", "pydantic-ai on Temporal", servers.temporal),
    Alternative("openai_agents", "OpenAI Agents on Temporal", servers.temporal),
    Alternative("langgraph", "LangGraph", servers.postgres),
    Alternative("dbos", "DBOS", servers.postgres),
    Alternative("prefect", "Prefect", servers.prefect, ("flows.py",)),
)


class App:
    """The processes of an alternative. Commands go to the one that runs ``app.py``."""

    def __init__(self, alternative: Alternative, environment: Mapping[str, str], log: Path) -> None:
        self._alternative, self._environment, self._log = alternative, environment, log
        self._processes: list[subprocess.Popen[bytes]] = []
        self._answers: dict[int, queue.Queue[Json]] = {}
        self._count = 0

    @property
    def pids(self) -> tuple[int, ...]:
        """Of all its processes."""
        return tuple(process.pid for process in self._processes)

    def start(self) -> None:
        """Until it takes commands."""
        folder = APPS / self._alternative.name
        python = self._alternative.venv / "bin" / "python"
        with self._log.open("ab") as log:
            for arguments in filter(None, (self._alternative.worker, ("app.py",))):
                self._processes.append(subprocess.Popen([python, *arguments], cwd=folder, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE if arguments == ("app.py",) else log, stderr=log, start_new_session=True))  # noqa: S603  # fmt: skip
        ready = self._answers[0] = queue.Queue()
        threading.Thread(target=self._listen, args=(self._processes[-1],), daemon=True).start()
        if ready.get(timeout=60) is None:
            raise SystemExit(
                f"{self._alternative.name} does not start:\n{self._log.read_text('utf-8', 'replace')[-3000:]}"
            )

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        for line in process.stdout or ():
            if line.startswith(b"@"):
                answer = {"number": 0} if line == b"@ready\n" else json.loads(line[1:])
                self._answers[answer["number"]].put(answer)
        self._answers[0].put(None)

    def tell(self, command: str, *arguments: str) -> queue.Queue[Json]:
        """Where the answer will be."""
        self._count += 1
        answer = self._answers[self._count] = queue.Queue()
        pipe = self._processes[-1].stdin
        assert pipe is not None  # noqa: S101 - started with a pipe
        pipe.write(json.dumps([self._count, command, arguments]).encode() + b"\n")
        pipe.flush()
        return answer

    def ask(self, command: str, *arguments: str) -> Json:
        """The result, or the end of the measurement with its error."""
        answered = self.tell(command, *arguments)
        try:
            answer = answered.get(timeout=RUN_SECONDS)
        except queue.Empty:
            answer = {
                "error": f"no answer within {RUN_SECONDS:.0f} s; {self._log.read_text('utf-8', 'replace')[-3000:]}"
            }
        if "error" in answer:
            raise SystemExit(f"{self._alternative.name}: {command} {arguments}: {answer['error']}")
        return answer["result"]

    def kill(self) -> None:
        """``kill -9`` of all that it has started, at once."""
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self._processes.clear()


@dataclass
class Bench:
    """One alternative on servers of its own."""

    alternative: Alternative
    app: App
    world: str
    served: Served
    round: int
    rows: list[Json] = field(default_factory=list)
    count: int = 0

    def get(self, path: str, body: Json = None) -> Json:
        """The answer of the shop."""
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"{self.world}{path}", data, timeout=10) as answer:  # noqa: S310 - our own
            return json.load(answer)

    def begin(self, task: str) -> str:
        """The order of a new run."""
        self.count += 1
        order = f"{task}-{self.count}"
        self.get("/begin", {"run": order})
        return order

    def calls(self, order: str) -> Json:
        """What the ledger has of it."""
        return self.get(f"/calls?run={order}")

    def until(self, is_true: Callable[[], Any], seconds: float = RUN_SECONDS) -> Any:
        """The first true value; None when the time is up."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if value := is_true():
                return value
            time.sleep(0.005)
        return None

    def run(self, task: str) -> float:
        """Seconds of one run, whose effects are checked."""
        order = self.begin(task)
        start = time.perf_counter()
        self.app.ask("run", task, order)
        seconds = time.perf_counter() - start
        self.require(task, self.calls(order)["effects"])
        return seconds

    def require(self, task: str, effects: Json) -> None:
        """The measurement is worth nothing if the task was not done."""
        if effects != DONE[task]:
            raise SystemExit(f"{self.alternative.name}: {task} had the effects {effects}, not {DONE[task]}")

    def note(self, task: str, **figures: Json) -> None:
        """Keep a measurement."""
        self.rows.append({"alternative": self.alternative.name, "round": self.round, "task": task, **figures})
        print_progress(json.dumps(self.rows[-1]))

    def measure(self, task: str, runs: int) -> None:
        """Latency of each run; per run: CPU, bytes, requests and tokens."""

        def counters() -> list[float]:
            usage = self.get("/usage")
            used = [usage.get(name, 0) for name in ("requests", "input", "output")]
            return [cpu_seconds(*self.app.pids), cpu_seconds(*self.served.pids), self.served.stored(), *used]

        before = counters()
        seconds = [round(self.run(task), 4) for _ in range(runs)]
        time.sleep(1)  # what is written down after the answer
        figures = zip(("cpu", "server_cpu", "stored", "requests", "input", "output"), before, counters(), strict=True)
        self.note(task, seconds=seconds, **{name: round((new - old) / runs, 3) for name, old, new in figures})

    def measure_approval(self) -> None:
        """Wait for a person, die, come back, be approved."""
        order = self.begin("approval")
        self.app.tell("run", "approval", order)
        self.until(lambda: self.calls(order)["attempts"].get("look_up"))
        shown = self.until(lambda: self.app.ask("waiting", order))
        self.app.kill()
        self.app.start()
        survives = bool(self.until(lambda: self.app.ask("waiting", order), ALONE_SECONDS))
        start = time.perf_counter()
        self.app.ask("approve", order)
        self.until(lambda: self.calls(order)["effects"].get("notify"))
        seconds = round(time.perf_counter() - start, 4)
        self.app.ask("resume", "approval", order)
        calls = self.calls(order)
        self.note("approval", seconds=[seconds], survives=survives, shown=json.dumps(shown)[:400], **calls)

    def measure_crash(self, task: str, is_time: Callable[[Json], bool], is_done: Callable[[Json], bool]) -> None:
        """``kill -9`` as soon as it is time; whether it goes on by itself after a restart, and what the ledger says."""
        order = self.begin(task)
        self.app.tell("run", task, order)
        self.until(lambda: is_time(self.calls(order)["attempts"]))
        self.app.kill()
        time.sleep(0.2)
        at_kill = self.calls(order)["attempts"]
        self.get("/hold", {})
        start = time.perf_counter()
        self.app.start()
        alone = self.until(lambda: is_done(self.calls(order)["effects"]), ALONE_SECONDS)
        seconds = time.perf_counter() - start if alone else None
        self.app.ask("resume", task, order)
        seconds = round(seconds if seconds is not None else time.perf_counter() - start - ALONE_SECONDS, 2)
        self.note(f"{task}_crash", goes_on=bool(alone), seconds=seconds, at_kill=at_kill, **self.calls(order))

    def measure_all(self, runs: Mapping[str, int]) -> None:
        """All tasks, in this order, after one of each to warm up."""
        for task in runs:
            self.run(task)
        for task, number in runs.items():
            self.measure(task, number)
        self.measure_approval()
        self.get("/hold", {"pay": HOLD_SECONDS})
        self.measure_crash("refund", lambda made: "pay" in made, lambda effects: "notify" in effects)
        half, whole = DONE["fan_out"]["work"] // 2, DONE["fan_out"]["work"]
        self.measure_crash("fan_out", lambda made: made.get("work", 0) >= half, lambda effects: effects.get("work") == whole)  # fmt: skip


@contextmanager
def bench(alternative: Alternative, round_: int) -> Iterator[Bench]:
    """Its servers with empty databases, its processes, and the shop; the whole is gone at the end."""
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="acts-compare-", ignore_cleanup_errors=True))
        )
        served = stack.enter_context(alternative.server(folder, alternative.venv))
        with (folder / "world.txt").open("wb") as output:
            arguments = ["-m", "benchmarks.compare.services", folder / "ledger.sqlite"]
            world = spawn([sys.executable, *arguments], output, {**os.environ, "PYTHONPATH": str(ROOT)})
        stack.callback(world.kill)
        while not (address := (folder / "world.txt").read_text("utf-8").strip()):
            time.sleep(0.02)
        environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("ACTS_", "TEMPORAL_", "PREFECT_"))
            },
            "PYTHONPATH": str(APPS),
            "SHOP_URL": address,
            "OPENAI_BASE_URL": f"{address}/v1",
            "OPENAI_API_KEY": "none",
            **served.environment,
        }
        if alternative.name == "acts":
            environment |= {"ACTS_ACTIVITIES": "tools", "ACTS_PLANS": ".", "PYTHONPATH": f"{APPS}:{APPS / 'acts'}"}
        app = App(alternative, environment, folder / "app.log")
        app.start()
        stack.callback(app.kill)
        yield Bench(alternative, app, address, served, round_)
