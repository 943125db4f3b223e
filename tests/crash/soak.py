"""Seeded kills and resets for a given time: ``python -m tests.crash.soak --seconds 60 --seed 1``.

Plans, agents, trees of delegates, batches and waiting runs go on while workers and the server are killed with
``kill -9`` and runs are reset. At the end nothing may be lost, no ``_id`` may have two effects, no logical Call two
``_id``s, no run may hang, and each result must be what the serial oracle says, or what is known of its kind. It prints
a summary, and exits with 1 when something is not so.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RPCError

from acts.worker.plugin import build_replayer
from tests.crash.resets import keys_of, reset, reset_points, runs_of, type_of
from tests.crash.soak_runs import KINDS, Answers, Scenario, http_port, write_files
from tests.crash.test_kill import Program, World
from tests.property.drive import plain

Json = Any
T = TypeVar("T")
WIDTH = 8  # runs under way at a time: two cores are busy with them
PAUSE_SECONDS = (0.05, 1.0)  # between two attacks
WEIGHTS = {"engine": 5, "engine-2": 5, "foreign": 2, "server": 2, "everything": 1, "reset": 6}
# For the last runs to end; they need 20, a workflow task that died with its worker 15 more, and what is gone with
# another run of its parent is missed after 25, or 85
END_SECONDS = 120
START_TRIES = 20  # of a program, a second or two each; the server is never away for so long
CALL_SECONDS = 8.0  # for one request to the server, which may be down
POLL_SECONDS = 0.05
OPEN = (WorkflowExecutionStatus.RUNNING,)
WAITING = ("batch", "waiting")  # kinds of runs that wait for a person


@dataclass
class Summary:
    attacks: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    recoveries: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    calls: int = 0
    effects: int = 0
    attempts: int = 0

    @property
    def kills(self) -> int:
        return sum(n for name, n in self.attacks.items() if name != "reset")

    def text(self) -> str:
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(self.kinds.items()))
        attacks = ", ".join(f"{n} {name}" for name, n in sorted(self.attacks.items()))
        slowest = f"{max(self.recoveries):.1f} s" if self.recoveries else "none"
        return (
            f"{self.kills} kills and {self.attacks['reset']} resets ({attacks})\n"
            f"{self.kinds.total()} runs ({kinds})\n"
            f"{self.calls} calls, {self.attempts} attempts, {self.effects} effects\n"
            f"slowest recovery, until the next call begins: {slowest}\n"
            + ("\n".join(f"PROBLEM: {p}" for p in self.problems) or "nothing lost, doubled or stuck")
        )


class Soak:
    """One soak; ``random`` decides everything that is decided here."""

    def __init__(self, world: World, seed: int, kinds: list[str] | None) -> None:
        self._kinds = [kind for kind in KINDS if kinds is None or kind.__name__ in kinds]
        self.world, self.random, self.summary = world, Random(seed), Summary()
        self.runs: dict[str, Scenario] = {}
        self.open: set[str] = set()
        self.client: Client
        self._runtime = Runtime(telemetry=TelemetryConfig(logging=None))  # the core tells of every kill
        self.is_over = False
        self._killed_at: list[float] = []
        self._down: set[str] = set()
        self._starting: list[asyncio.Task[None]] = []

    # -- the server, which may be away -----------------------------------------------

    async def connect(self) -> Client:
        return await Client.connect(self.world.server.address, runtime=self._runtime)

    async def patiently(self, what: Callable[[], Awaitable[T]]) -> T:
        """The answer of a server that may be down for a moment."""
        while True:
            try:
                return await asyncio.wait_for(what(), CALL_SECONDS)
            except (RPCError, RuntimeError, TimeoutError) as error:
                if (isinstance(error, RPCError) and "not found" in str(error)) or self._is_cancelled():
                    raise
                await asyncio.sleep(POLL_SECONDS)

    @staticmethod
    def _is_cancelled() -> bool:
        """The SDK makes an RPCError of a cancellation that comes during a request."""
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    # -- runs --------------------------------------------------------------------------

    async def feed(self) -> None:
        """Keep so many runs under way."""
        while not self.is_over:
            for id_ in sorted(self.open):
                about = self.client.get_workflow_handle(id_)
                if (await self.patiently(about.describe)).status not in OPEN:
                    self.open.discard(id_)
            while len(self.open) < WIDTH and not self.is_over:
                await self.start()
            await asyncio.sleep(POLL_SECONDS)

    async def start(self) -> None:
        kind = self.random.choice(self._kinds)
        chosen = await asyncio.to_thread(kind, self.random, self.world.queue)  # to draw plans takes seconds
        id_ = f"{self.world.queue}/{len(self.runs)}-{chosen.kind}"

        async def begin() -> None:
            with contextlib.suppress(Exception):
                await self.client.start_workflow(chosen.workflow, chosen.request, id=id_, task_queue=self.world.queue)
            await self.client.get_workflow_handle(id_).describe()

        while True:
            try:
                await self.patiently(begin)
                break
            except RPCError:  # not started yet
                await asyncio.sleep(POLL_SECONDS)
        self.runs[id_] = chosen
        self.open.add(id_)
        self.summary.kinds[chosen.kind] += 1

    async def decide(self) -> None:
        """Approve whatever waits, by signal or update, here or in the run that waits."""
        while not self._is_cancelled():
            for id_ in sorted(self.open):
                if self.runs[id_].kind in WAITING:
                    with contextlib.suppress(Exception):
                        await asyncio.wait_for(self._approve(id_), CALL_SECONDS)
            await asyncio.sleep(4 * POLL_SECONDS)

    async def _approve(self, id_: str) -> None:
        root = self.client.get_workflow_handle(id_)
        for wait in await root.query("pending"):
            chosen = {k: wait[k] for k in ("call", "instance", "workflowId") if k in wait}
            if self.random.random() < 0.5:
                await root.signal("approve", chosen)
            else:
                await root.execute_update("decide", {"decision": "approve", **chosen})

    # -- attacks -------------------------------------------------------------------------

    async def attack(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await asyncio.sleep(self.random.uniform(*PAUSE_SECONDS))
            (name,) = self.random.choices(list(WEIGHTS), WEIGHTS.values())
            victims = ["server", *self.world.programs] if name == "everything" else [name]
            if name == "reset":
                await self.reset_something()
            elif not self._down.intersection(victims):
                self.summary.attacks[name] += 1
                await self.kill(victims)
        await asyncio.gather(*self._starting)

    async def kill(self, victims: list[str]) -> None:
        """Kill at once; a program takes some seconds to come back, and others may die meanwhile."""
        self._killed_at.append(time.monotonic())
        self.world.kill(*victims)
        if "server" in victims:
            await asyncio.to_thread(self.world.start, "server")
            self.client = await self.connect()
        for name in victims:
            if name != "server":
                self._down.add(name)
                self._starting.append(asyncio.create_task(self._start_again(name)))

    async def _start_again(self, name: str) -> None:
        """As a supervisor does: a program that finds no server ends, and is started until it stays."""
        for tries in range(START_TRIES):
            try:
                await asyncio.to_thread(self.world.start, name)
                break
            except AssertionError:
                if tries == START_TRIES - 1:
                    raise
        self._down.discard(name)

    async def reset_something(self) -> None:
        """Reset a run at any of its points: a root, be it over or not, or a run below one that is not over.

        Below some kinds, only an open run: nobody decides what a run waits for whose root is over, and a
        fire-and-forget Call does not notice that a reset of an earlier run has ended the latest.
        """
        with contextlib.suppress(RPCError, RuntimeError, TimeoutError, IndexError):
            root = self.random.choice(sorted(self.runs)[-3 * WIDTH :])
            found = [r async for r in runs_of(self.client, root) if r.id == root or r.id.startswith(f"{root}/")]
            is_open = any(r.id == root and r.status in OPEN for r in found)
            may_be_over = self.runs[root].kind not in (*WAITING, "background", "plan")
            fit = sorted(
                (r.id, r.run_id) for r in found if r.id == root or (is_open and (may_be_over or r.status in OPEN))
            )
            id_, run_id = self.random.choice(fit)
            points = await reset_points(self.client.get_workflow_handle(id_, run_id=run_id))
            self.open.add(root)
            await asyncio.wait_for(reset(self.client, id_, self.random.choice(points), run_id), CALL_SECONDS)
            self.summary.attacks["reset"] += 1

    async def watch(self) -> None:
        """How long it takes from a kill until a call begins."""
        before = self.world.begun()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            now = self.world.begun()
            if now > before:
                self.summary.recoveries += [time.monotonic() - at for at in self._killed_at]
                self._killed_at.clear()
            before = now

    # -- the whole ------------------------------------------------------------------------

    async def run(self, seconds: float) -> Summary:
        self.client = await self.connect()
        await self.start()  # plans are drawn before the first attack
        helpers = [asyncio.create_task(t) for t in (self.feed(), self.decide(), self.watch())]
        await self.attack(seconds)
        self.is_over = True
        await helpers[0]
        helpers[2].cancel()
        try:
            await asyncio.wait_for(self.all_end(), END_SECONDS)
        except TimeoutError:
            await self.name_what_hangs()
        helpers[1].cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        await self.check_runs()
        await self.check_replays()
        self.check_ledger()
        return self.summary

    async def all_end(self) -> None:
        while [r async for r in runs_of(self.client, self.world.queue) if r.status in OPEN]:
            self.open = set(self.runs)
            await asyncio.sleep(10 * POLL_SECONDS)

    async def name_what_hangs(self) -> None:
        async for run in runs_of(self.client, self.world.queue):
            if run.status in OPEN:
                handle = self.client.get_workflow_handle(run.id, run_id=run.run_id)
                events = [event async for event in handle.fetch_history_events()]
                last, failure = [type_of(event) for event in events[-6:]], failure_of(events)
                self.summary.problems.append(f"{run.id} ({run.run_id}) hangs; its last events: {last}{failure}")

    async def write_histories(self, folder: Path) -> None:
        """The histories of every tree that a problem names, as JSON that ``acts replay`` and the Web UI read, and the
        logs of all programs.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for log in self.world.folder.glob("*.log"):
            shutil.copy(log, folder)
        wrong = {root for root in self.runs for problem in self.summary.problems if re.search(rf"{root}\b", problem)}
        for root in sorted(wrong):
            async for run in runs_of(self.client, root):
                handle = self.client.get_workflow_handle(run.id, run_id=run.run_id)
                name = f"{run.id.partition('/')[2].replace('/', '_')}.{run.start_time:%H%M%S.%f}.{run.run_id}.json"
                (folder / name).write_text((await handle.fetch_history()).to_json(), "utf-8")

    async def check_replays(self) -> None:
        """Each history must replay, also those that no kill made a worker replay."""
        replayer = build_replayer()
        async for run in runs_of(self.client, self.world.queue):
            history = await self.client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
            if is_reset_at_first_task(history.events):
                continue  # the replayer gives it the run id of the first run, as if it had not been reset
            result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
            if result.replay_failure is not None:
                failure = str(result.replay_failure)[:500]
                self.summary.problems.append(f"{run.id} ({run.run_id}) does not replay: {failure}")

    async def check_runs(self) -> None:
        for id_, chosen in self.runs.items():
            result = await self._result(id_)
            problem = chosen.differs(result) if isinstance(result, dict) else result
            if problem is not None:
                self.summary.problems.append(f"{id_}: {problem}")

    async def _result(self, id_: str) -> Json:
        """The result of a run, be it that of its failure; a text when it has none."""
        try:
            return await asyncio.wait_for(self.client.get_workflow_handle(id_).result(), CALL_SECONDS)
        except WorkflowFailureError as failed:
            cause = failed.cause
            is_of_plan = isinstance(cause, ApplicationError) and cause.type == "PlanFailed"
            return cause.details[0] if is_of_plan else f"it failed: {cause!r}"
        except TimeoutError:
            return "it has no result"

    def check_ledger(self) -> None:
        world, problems = self.world, self.summary.problems
        keys = keys_of(world, world.queue)
        self.summary.calls = len(keys)
        self.summary.attempts = world.begun()
        done = {id_ for (id_,) in world.rows("SELECT id FROM done")}
        self.summary.effects = len(done)
        requests = sum(chosen.requests for chosen in self.runs.values())
        if len(Answers.keys) != requests:
            problems.append(f"{len(Answers.keys)} requests were made by http, not {requests}")
        owners: dict[str, list[Json]] = {}
        for name, ids in keys.items():
            if len(ids) > 1:
                problems.append(f"{name} was begun under {len(ids)} keys")
            for id_ in ids:
                owners.setdefault(id_, []).append(name)
        problems += [f"{names} have one key, {id_}" for id_, names in owners.items() if len(names) > 1]
        problems += [f"{owners[id_]} has no effect" for id_ in owners.keys() - done]
        counts = Counter("/".join(run.split("/")[:2]) for run, _ in keys)
        for id_, chosen in self.runs.items():
            if counts[id_] != chosen.calls:
                problems.append(f"{id_}: {counts[id_]} calls, not {chosen.calls}")
            rows = world.rows("SELECT result FROM done WHERE run = ? ORDER BY rowid", f"{id_}/undo")
            done = tuple(json.dumps(plain(json.loads(what)), sort_keys=True) for (what,) in rows)
            if done != chosen.undone:
                problems.append(f"{id_}: {done} are undone, not {chosen.undone}")


def failure_of(events: list[Any]) -> str:
    """Why the last workflow task that failed did so; a reset fails one, too."""
    for event in reversed(events):
        if type_of(event) == "WORKFLOW_TASK_FAILED":
            failed = event.workflow_task_failed_event_attributes
            cause = WorkflowTaskFailedCause.Name(failed.cause)
            return f"; the last failure of a task: {cause}: {failed.failure.message[:300]}"
    return ""


def is_reset_at_first_task(events: Sequence[Any]) -> bool:
    """True for a run that was reset before it had decided anything."""
    for event in events:
        if type_of(event) == "WORKFLOW_TASK_COMPLETED":
            return False
        if type_of(event) == "WORKFLOW_TASK_FAILED" and event.workflow_task_failed_event_attributes.base_run_id:
            return True
    return False


def two_engines(world: World) -> None:
    """A second worker of the engine: one goes on while the other is dead."""
    env = world.programs["engine"].env
    world.programs["engine-2"] = Program([sys.executable, "-m", "acts.worker"], env, world.folder / "engine-2.log")
    world.programs["engine-2"].env = env


async def soak(folder: Path, seconds: float, seed: int, kinds: list[str] | None, histories: Path | None) -> Summary:
    world = World(folder, is_patient=True)
    answering = ThreadingHTTPServer(("127.0.0.1", http_port()), Answers)
    threading.Thread(target=answering.serve_forever, daemon=True).start()
    try:
        world.programs["engine"].env |= write_files(folder)
        two_engines(world)
        world.start(*world.programs)
        soaking = Soak(world, seed, kinds)
        summary = await soaking.run(seconds)
        if summary.problems and histories is not None:
            await soaking.write_histories(histories)
        return summary
    finally:
        world.close()
        answering.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill workers and the server, and reset runs, for a time.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=[kind.__name__ for kind in KINDS], help="only these")
    parser.add_argument("--histories", type=Path, help="a folder for the histories of wrong runs, and logs")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # the SDK tells of every kill
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        summary = asyncio.run(soak(Path(folder), given.seconds, given.seed, given.kinds, given.histories))
    sys.stdout.write(f"seed {given.seed}, {time.monotonic() - begun:.0f} s\n{summary.text()}\n")
    return 1 if summary.problems else 0


if __name__ == "__main__":
    sys.exit(main())
