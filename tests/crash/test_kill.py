"""``kill -9`` of workers and of the server in the middle of plans: every result arrives, and nothing happens twice."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import IO, Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from acts.cli.dev.temporal_server import DevServer, dev_server
from tests.crash import effects
from tests.support import assert_eventually, free_port
from tests.workflow.foreign import call, came_to, run_chain, tool

Json = Any
ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("TEST_SEED", "1"))
KILLS = 4
# A plan that is started in the round of each kill: however fast the others are, there is something to kill
ROUNDS = [f"round {n}" for n in range(KILLS)]
# Short enough to learn of a dead worker at once, patient enough to wait for the next one
RETRY = {"maxAttempts": 50, "initialInterval": "20ms", "backoff": 1}
OPTIONS = {"timeout": "30s", "heartbeat": "400ms", "retry": RETRY}
RENEW = ("--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=60")
# A workflow task that a worker took with it is missed after this, not after 15 s
SOON = ("--dynamic-config-value", 'history.defaultWorkflowTaskTimeout="3s"')


class Program:
    """A process that is started again and again, and killed without a word."""

    def __init__(self, command: list[str], env: dict[str, str], log: Path) -> None:
        self._command, self._log = command, log
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "ACTS_"))} | env
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self.env, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), self._log.read_text()[-2000:]
        # A pipe that nobody empties stops the program: the SDK's core writes its warnings there
        threading.Thread(target=self._keep, args=(self._process.stdout,), daemon=True).start()

    def _keep(self, written: IO[str]) -> None:
        with written, self._log.open("a") as log:
            shutil.copyfileobj(written, log)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """End it as an orchestrator does."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class World:
    """A server on disk, a worker of the engine with the tools, and a foreign one with the same tools."""

    def __init__(self, folder: Path, *, is_patient: bool = False) -> None:
        """``is_patient``: what a dead process took with it is missed as late as it is for users."""
        self._settings = RENEW if is_patient else (*RENEW, *SOON)  # of the server
        self.folder, self.effects = folder, folder / "effects.db"
        effects.connect(str(self.effects)).close()
        self.queue = f"crash-{uuid.uuid4().hex[:8]}"
        self._serving = ExitStack()
        self.server = self._start_server(free_port())  # it comes back at the same
        settings = {"TEMPORAL_ADDRESS": self.server.address, "EFFECTS": str(self.effects)}
        engine = settings | {"ACTS_TASK_QUEUE": self.queue, "ACTS_ACTIVITIES": "tests.crash.effects"}
        if not is_patient:
            engine["ACTS_ACTIVITIES"] += ",tests.crash.short_heartbeats"
        foreign = [sys.executable, "-m", "tests.crash.effects", self.server.address, f"{self.queue}-foreign"]
        self.programs = {
            "engine": Program([sys.executable, "-m", "acts.worker"], engine, folder / "engine.log"),
            "foreign": Program(foreign, settings, folder / "foreign.log"),
        }

    def _start_server(self, port: int) -> DevServer:
        found = dev_server(state=self.folder / "state", port=port, ui=False, extra_args=self._settings)
        return self._serving.enter_context(found)

    def start(self, *names: str) -> None:
        for name in names:
            if name == "server":
                self._serving.close()
                self.server = self._start_server(int(self.server.address.rpartition(":")[2]))
        for name in names:
            if name in self.programs:
                self.programs[name].start()

    def kill(self, *names: str) -> None:
        for name in names:
            if name == "server":
                os.kill(self.server.pid, signal.SIGKILL)
            else:
                self.programs[name].kill()

    def close(self) -> None:
        self.kill(*self.programs)
        self._serving.close()

    def rows(self, query: str, *values: Json) -> list[tuple[Json, ...]]:
        with closing(sqlite3.connect(f"{self.effects.as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(query, values).fetchall()

    def begun(self) -> int:
        return int(self.rows("SELECT count(*) FROM begun")[0][0])


@contextmanager
def world_in(folder: Path) -> Iterator[World]:
    world = World(folder)
    try:
        yield world
    finally:
        world.close()


def request(world: World, *calls: dict[str, Json], context: tuple[Json, ...] = (), **config: Json) -> dict[str, Json]:
    """Every other tool is served by the foreign worker, one runs inside the engine's workflow tasks."""
    options: dict[str, dict[str, Json]] = {
        "add_one": OPTIONS,
        "total": {**OPTIONS, "taskQueue": f"{world.queue}-foreign"},
        "decline": {**OPTIONS, "taskQueue": f"{world.queue}-foreign"},
        "local": {"local": True, "timeout": "10s", "retry": RETRY},
    }
    activities = {"local": "add_one"}
    tools = [tool(name, activity=activities.get(name, name), options=o) for name, o in options.items()]
    plan = {"type": "plan", "plan": list(calls)}
    return {"config": config, "context": [*tools, {"type": "input", "zero": 0}, *context, plan]}


def steps(count: int, name: str = "add_one") -> list[dict[str, Json]]:
    first = call(name, "†state.n1", value="†input.zero")
    return [first, *[call(name, f"†state.n{i}", value=f"†state.n{i - 1}") for i in range(2, count + 1)]]


PLANS: dict[str, Callable[[World], dict[str, Json]]] = {
    "chain": lambda w: request(w, *steps(25)),
    "local": lambda w: request(w, *steps(6, "local")),
    "join": lambda w: request(
        w, *[call("add_one", f"†state.n{i}", value=i) for i in range(12)],
        call("total", "†state.sum", values=[f"†state.n{i}" for i in range(12)]),
        call("add_one", "†state.more", value="†state.sum"), maxParallel=4,
    ),
    "declined": lambda w: request(
        w, *steps(3), call("decline", "†state.money", _errorPath="†state.problem", after="†state.n3"),
        call("total", "†state.goods", values=["†state.money"]),
        call("add_one", "†state.told", value="†state.n3", why="†state.problem.code"),
    ),
    "fire and forget": lambda w: request(w, *steps(4), call("add_one", value="†state.n4")),
    "elements": lambda w: request(
        w, call("add_one", "†state.many", _each=list(range(40)), value="†item"),
        call("decline", "†state.money", _errorPath="†state.problem", _each=["a", "b"], after="†state.many"),
        call("total", "†state.sum", values="†state.many", _when='†state.problem.code == "eachFailed"'), maxParallel=5,
    ),
    "provide": lambda w: request(
        w, *steps(3), call("total", "†state.sum", values=["†state.n3", "†data.x"]), missing="wait"
    ),
    "pause": lambda w: request(w, *steps(6)),
    **{name: lambda w: request(w, *steps(6)) for name in ROUNDS},
}  # fmt: skip
EACH_DECLINED = {
    "code": "eachFailed",
    "message": "2 of 2 elements failed: [0] declined: no funds; [1] declined: no funds",
    "details": {
        "errors": [{"index": i, "code": "declined", "message": "no funds"} for i in range(2)], "results": [None, None],
    },
}  # fmt: skip
ENDS: dict[str, dict[str, Json]] = {
    "chain": {f"n{i}": i for i in range(1, 26)},
    "local": {f"n{i}": i for i in range(1, 7)},
    "join": {**{f"n{i}": i + 1 for i in range(12)}, "sum": 78, "more": 79},
    "declined": {"n1": 1, "n2": 2, "n3": 3, "problem": {"code": "declined", "message": "no funds"}, "told": 4},
    "fire and forget": {f"n{i}": i for i in range(1, 5)},
    "elements": {"many": list(range(1, 41)), "sum": 820, "problem": EACH_DECLINED},
    "provide": {"n1": 1, "n2": 2, "n3": 3, "sum": 103},
    **{name: {f"n{i}": i for i in range(1, 7)} for name in ("pause", *ROUNDS)},
}


async def start(client: Client, world: World, *names: str) -> None:
    for name in names:
        await client.start_workflow("Plan", PLANS[name](world), id=f"{world.queue}/{name}", task_queue=world.queue)


async def signals(client: Client, world: World, kills: int) -> None:
    """What people send while half of everything is down."""
    provide, pause = (client.get_workflow_handle(f"{world.queue}/{name}") for name in ("provide", "pause"))
    match kills:
        case 1:
            await pause.signal("pause")
        case 2:
            await provide.signal("provide", {"type": "data", "data": {"x": 100}})
        case 3:
            await pause.signal("resume")


async def killed(world: World, *victims: str) -> Client:
    """All of these die and come back; a client of what is there then."""
    world.kill(*victims)
    if "server" in victims:
        world.start("server")
    world.start(*[v for v in victims if v != "server"])
    return await Client.connect(world.server.address)


async def more_has_begun(world: World, before: int) -> None:
    """Four Calls have begun since there were so many."""

    async def more() -> bool:
        return world.begun() >= before + 4

    await assert_eventually(more, within=timedelta(seconds=180), why="more calls begin")


async def history(client: Client, id_: str) -> tuple[int, dict[str, int], dict[str, int]]:
    """How many runs an id has; how often each activity was scheduled, and the attempt that completed it."""
    scheduled: dict[str, int] = {}
    completed: dict[str, int] = {}
    runs = await run_chain(client, id_)
    for run in runs:
        names: dict[int, str] = {}
        attempts: dict[int, int] = {}
        async for event in run.fetch_history_events():
            match event.event_type:
                case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                    name = event.activity_task_scheduled_event_attributes.activity_id
                    names[event.event_id] = name
                    scheduled[name] = scheduled.get(name, 0) + 1
                case EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                    begun = event.activity_task_started_event_attributes
                    attempts[begun.scheduled_event_id] = begun.attempt
                case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                    number = event.activity_task_completed_event_attributes.scheduled_event_id
                    completed[names[number]] = attempts[number]
    return len(runs), scheduled, completed


async def nothing_happened_twice(client: Client, world: World) -> None:
    keys = world.rows("SELECT run, call, count(DISTINCT id) FROM begun GROUP BY run, call")
    assert all(count == 1 for *_, count in keys), "a call ran under two keys"
    (done,) = world.rows("SELECT count(*), count(DISTINCT run || call) FROM done")
    assert done[0] == done[1] == len(keys)
    for name in PLANS:
        id_ = f"{world.queue}/{name}"
        runs, scheduled, completed = await history(client, id_)
        assert runs > 1 or name not in ("chain", "elements"), "no new run in the middle of it"
        assert set(scheduled.values()) <= {1}, f"{name}: a call was scheduled again"
        last: dict[str, int] = dict(world.rows("SELECT call, max(attempt) FROM begun WHERE run = ? GROUP BY call", id_))
        assert not {c for c in completed if last[c] > completed[c]}, f"{name}: a completed call was run again"


async def all_results_arrive(client: Client, world: World) -> None:
    for name, expected in ENDS.items():
        result = await came_to(client.get_workflow_handle(f"{world.queue}/{name}"))
        assert (name, result["status"], result["state"]) == (name, "completed", expected)
    background = client.get_workflow_handle(f"{world.queue}/fire and forget/5:add_one")
    await asyncio.wait_for(background.result(), 180)


TARGETS = (["engine"], ["server", "engine"], ["foreign"], ["server", "engine", "foreign"])


@pytest.mark.long
async def test_plans_survive_kill_9(tmp_path: Path) -> None:
    random = Random(SEED)  # noqa: S311
    with world_in(tmp_path) as world:
        world.start("engine", "foreign")
        client = await Client.connect(world.server.address)
        await start(client, world, *(name for name in PLANS if name not in ROUNDS))
        for kills, name in enumerate(ROUNDS):
            before = world.begun()
            await start(client, world, name)
            await more_has_begun(world, before)
            victims = random.choice(TARGETS)
            world.kill(*victims)
            if "server" in victims:
                world.start("server")
                client = await Client.connect(world.server.address)
            await signals(client, world, kills)
            world.start(*[v for v in victims if v != "server"])
        await all_results_arrive(client, world)
        await nothing_happened_twice(client, world)
        assert len(world.rows("SELECT DISTINCT pid FROM begun")) > 2


@pytest.mark.long
async def test_a_plain_tool_whose_worker_is_killed_runs_again_long_before_its_timeout(tmp_path: Path) -> None:
    with world_in(tmp_path) as world:
        world.start("engine")
        client = await Client.connect(world.server.address)
        patient = tool("plain", activity="plain", options={"timeout": "24h"})
        plan = {"type": "plan", "plan": [call("plain", "†state.attempts", _each=[1, 2, 3, 4])]}
        id_ = f"plain-{uuid.uuid4().hex[:8]}"
        handle = await client.start_workflow("Plan", {"context": [patient, plan]}, id=id_, task_queue=world.queue)
        await more_has_begun(world, 0)
        world.kill("engine")
        world.start("engine")
        assert (await came_to(handle, within=60))["state"]["attempts"] == [2] * 4
