"""``kill -9`` all over a tree of delegates: its result is that of a calm run, and nothing is done, asked or paid twice.

The tree: an agent, its plan, 3 branches (walked as they stand), under each 3 twigs (agents), under each a leaf (walked)
and a judge (anonymous, latent): 30 delegates, three deep, with 44 effects and 29 requests to the model, under one
budget that the root has.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from tests.crash.model import Model, model
from tests.crash.test_kill import OPTIONS, World, history, more_has_begun, world_in
from tests.support import assert_eventually
from tests.workflow.foreign import Handle, call, ended, tool

Json = Any
WIDTH = range(1, 4)
REQUESTS, EFFECTS = 2 + 9 * 3, 2 + 3 * 2 + 9 * 2 + 9 * 2
SHORT = 20  # of the requests that a tree without a planner above it would make, which are 27
PATIENCE = timedelta(seconds=60)
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


# -- the tree ------------------------------------------------------------------------


def delegating(name: str, delegate: str, **more: Json) -> dict[str, Json]:
    return tool(name, activity="", _delegate={"const": delegate}, **more)


def definitions(world: World) -> dict[str, Json]:
    add = tool("add_one", activity="add_one", options=OPTIONS)
    total = tool("total", activity="total", options={**OPTIONS, "taskQueue": f"{world.queue}-foreign"})
    given = {"n": "†state.m", "name": "†input.name"}
    twigs = [call("twig", f"†state.t{i}", **given, which=i, _errorPath=f"†state.refused.t{i}") for i in WIDTH]
    return {
        "branch": {"context": [add, total, delegating("twig", "twig"), {"type": "plan", "run": True, "plan": [
            call("add_one", "†state.m", value="†input.n"), *twigs,
            call("total", "†state.output", values=[f"†state.t{i}" for i in WIDTH]),
        ]}]},
        "twig": {"context": [
            {"type": "system", "message": "You are a twig."}, add, total, delegating("leaf", "leaf"),
            delegating("judge", "anonymous", _output=NUMBER),
        ]},
        "leaf": {"context": [add, {"type": "plan", "run": True, "plan": [
            call("add_one", "†state.x", value="†input.n"), call("add_one", "†state.output", value="†state.x"),
        ]}]},
    }  # fmt: skip


def branches(name: str, n: Json) -> list[dict[str, Json]]:
    return [call("branch", f"†state.b{i}", n=n, name=f"{name} {i}") for i in WIDTH]


def answer(key: str) -> Json:
    """What the model says: to a planner by its tick, to a judge a number of its own."""
    name, _, what = key.rpartition("/")
    if what == "judge":
        return {"n": int(name[-3]) * 10 + int(name[-1])}
    if what == "2":
        return {"calls": [], "output": "†state.end"}
    if " " in name:
        given = {"name": "†input.name", "which": "†input.which"}
        plan = [
            call("add_one", "†state.a", value="†input.n"), call("leaf", "†state.leaf", n="†state.a"),
            call("judge", "†state.judged", **given), call("total", "†state.end", values=["†state.leaf", "†state.judged.n"]),
        ]  # fmt: skip
    else:
        plan = [
            call("add_one", "†state.start", value="†input.zero"), *branches(name, "†state.start"),
            call("total", "†state.end", values=[f"†state.b{i}" for i in WIDTH]),
        ]  # fmt: skip
    return {"calls": plan, "output": None}


def key_of(text: str) -> str:
    """``<tree> <branch>.<twig>/<tick or judge>``, or ``<tree>/<tick>`` of its root."""
    name, which = re.search(r'"name":"([^"]+)"', text), re.search(r'"which":(\d)', text)
    tick = re.findall(r"Tick (\d+):", text)
    assert name is not None
    return f"{name[1]}{'.' + which[1] if which and ' ' in name[1] else ''}/{tick[-1] if tick else 'judge'}"


async def plant(client: Client, world: World, name: str) -> Handle:
    """A tree with an agent at its root, whose budget is what it needs and not one request more."""
    own = definitions(world)["branch"]["context"][:2]
    context = [*own, delegating("branch", "branch"), {"type": "input", "zero": 0, "name": name}]
    request = {"config": {"model": "openai:any", "budget": {"requests": REQUESTS}}, "context": context}
    return await client.start_workflow("Agent", request, id=f"{world.queue}/{name}", task_queue=world.queue)


async def plant_short(client: Client, world: World) -> Handle:
    """A tree without a planner above it, whose budget is not enough for all of it."""
    plan = {"type": "plan", "plan": branches("short", 1)}
    config = {"model": "openai:any", "budget": {"requests": SHORT}}
    request = {"config": config, "context": [delegating("branch", "branch"), plan]}
    return await client.start_workflow("Plan", request, id=f"{world.queue}/short", task_queue=world.queue)


# -- what must be true afterwards ----------------------------------------------------


def undated(result: Json, name: str) -> Json:
    """A result without what is of one run: when it was, and the name of the tree."""
    return json.loads(re.sub(r'"_date": "[^"]*"', '"_date": ""', json.dumps(result)).replace(f'"{name} ', '"tree '))


async def members(client: Client, root: str) -> list[str]:
    """The runs of a tree, by what their ids say below its root."""

    async def found() -> list[str]:
        listed = [r.id async for r in client.list_workflows(f"WorkflowId STARTS_WITH '{root}'")]
        return sorted(dict.fromkeys(id_.removeprefix(root) for id_ in listed))

    return await found()


def effects_of(world: World, root: str) -> list[tuple[str, str, int]]:
    rows = world.rows("SELECT run, call, result FROM done WHERE run LIKE ? ORDER BY run, call", f"{root}/%")
    return [(run.removeprefix(root), call_, result) for run, call_, result in rows]


def asked_of(asked: Counter[str], name: str) -> Counter[str]:
    return Counter({key.removeprefix(name): count for key, count in asked.items() if key.startswith((f"{name} ", f"{name}/"))})


async def each_was_done_once(client: Client, world: World, root: str) -> int:
    """Every Call of the tree was scheduled once and not run again once it had ended; how many attempts were lost."""
    lost = 0
    for id_ in await members(client, root):
        _, scheduled, completed = await history(client, root + id_)
        assert set(scheduled.values()) <= {1}, f"{id_}: something was scheduled again"
        last = dict(world.rows("SELECT call, max(attempt) FROM begun WHERE run = ? GROUP BY call", root + id_))
        assert {c: completed.get(c) for c in last} == last, f"{id_}: a completed call was run again"
        lost += sum(attempt - 1 for attempt in completed.values())
    keys = world.rows("SELECT run, call, count(DISTINCT id) FROM begun WHERE run LIKE ? GROUP BY run, call", f"{root}/%")
    assert all(count == 1 for *_, count in keys), "a call ran under two keys"
    return lost


async def test_a_tree_survives_kill_9_of_everything(tmp_path: Path) -> None:
    import time
    t0 = time.monotonic()
    def log(*a): print(f"{time.monotonic()-t0:6.1f}", *a, flush=True)
    async with model(answer, key_of) as asked:
        with world_in(tmp_path) as world:
            (tmp_path / "delegates").mkdir()
            for name, definition in definitions(world).items():
                (tmp_path / "delegates" / f"{name}.json").write_text(json.dumps(definition), "utf-8")
            world.programs["engine"].env |= {
                "OPENAI_BASE_URL": asked.url, "ACTS_OPENAI_API": "chat", "ACTS_DELEGATES": str(tmp_path / "delegates"),
            }  # fmt: skip
            world.start("engine", "foreign")
            client = await Client.connect(world.server.address)
            log("up")
            calm = await ended(await plant(client, world, "calm"), within=60)
            log("calm", calm["usage"], calm["output"], len(await members(client, f"{world.queue}/calm")), len(effects_of(world, f"{world.queue}/calm")))
            log(asked.asked)
            handle = await plant(client, world, "tree")
            asked.held = held = {"tree 1.1/judge", *(f"tree 2.{i}/1" for i in WIDTH)}

            async def held_back() -> bool:
                return {key for key, count in asked.holding.items() if count} == held

            await assert_eventually(held_back, within=PATIENCE, why="requests of several depths are in flight")
            log("held", world.begun())
            world.kill("engine")
            asked.held = set()
            world.start("engine")
            log("restarted")
            short = await plant_short(client, world)
            await more_has_begun(world)
            log("more", world.begun())
            world.kill("engine", "foreign")
            world.start("engine", "foreign")
            log("restarted")
            await more_has_begun(world)
            log("more", world.begun())
            world.kill("server", "engine")
            world.start("server", "engine")
            log("restarted")
            client = await Client.connect(world.server.address)
            result = await ended(client.get_workflow_handle(handle.id), within=150)
            log("tree", result["usage"])
            r2 = await ended(client.get_workflow_handle(short.id), within=60)
            log("short", r2["usage"], r2["state"])
            log({k: v for k, v in asked.asked.items() if v > 1})
            log(undated(result, "tree") == undated(calm, "calm"))
            for n in ("calm", "tree", "short"):
                root = f"{world.queue}/{n}"
                log(n, len(await members(client, root)), len(effects_of(world, root)), await each_was_done_once(client, world, root), sum(asked_of(asked.asked, n).values()), len(asked_of(asked.asked, n)), sum(asked_of(asked.answered, n).values()))
            # slow activities
            for n in ("tree", "short"):
                root = f"{world.queue}/{n}"
                for id_ in await members(client, root):
                    h = client.get_workflow_handle(root + id_)
                    prev = None
                    async for e in h.fetch_history_events():
                        t = e.event_time.ToDatetime()
                        if prev and (t - prev[0]).total_seconds() > 6:
                            log(n, id_, round((t - prev[0]).total_seconds(), 1), EventType.Name(prev[1])[11:], "->", EventType.Name(e.event_type)[11:])
                        prev = (t, e.event_type)
