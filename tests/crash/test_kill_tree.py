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

import pytest
from temporalio.client import Client

from tests.crash.model import Model, model
from tests.crash.test_kill import OPTIONS, World, history, killed, more_has_begun, world_in
from tests.support import assert_eventually
from tests.workflow.foreign import Handle, call, ended, of_type, run_chain, tool, tree_of

Json = Any
WIDTH = range(1, 4)
DELEGATES = 3 + 9 + 9 + 9
REQUESTS, EFFECTS = 2 + 9 * 3, 2 + 3 * 2 + 9 * 2 + 9 * 2
OUTPUT = 243  # 3 branches of 21 + 30 i
BUDGET_SIGNALS = ("budgetRequest", "budgetReport")
SHORT = 20  # of the requests that the branches would make, which are 27
PATIENCE = timedelta(seconds=180)
END_SECONDS = 120  # it needs 20: a request that a worker took with it is missed after 15 s, and asked again 2 s later
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


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
            call("judge", "†state.judged", **given),
            call("total", "†state.end", values=["†state.leaf", "†state.judged.n"]),
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
    """A tree without a planner above it, whose budget is not enough for all of it.

    Its last branch comes after the others: between them its root, which keeps the budget, hands over to a new run.
    """
    *first, last = branches("short", 1)
    plan = {"type": "plan", "plan": [*first, {**last, "after": [c["_outputPath"] for c in first]}]}
    config = {"model": "openai:any", "budget": {"requests": SHORT}}
    request = {"config": config, "context": [delegating("branch", "branch"), plan]}
    return await client.start_workflow("Plan", request, id=f"{world.queue}/short", task_queue=world.queue)


def undated(result: Json, name: str) -> Json:
    """A result without what is of one run: when it was, and the name of the tree."""
    return json.loads(re.sub(r'"_date": "[^"]*"', '"_date": ""', json.dumps(result)).replace(f'"{name} ', '"tree '))


async def members(client: Client, root: str) -> set[str]:
    """The runs of a tree, by what their ids say below its root."""
    return {id_.removeprefix(root) for id_ in await tree_of(client, root)}


def effects_of(world: World, root: str) -> list[tuple[str, str, int]]:
    rows = world.rows("SELECT run, call, result FROM done WHERE run LIKE ? ORDER BY run, call", f"{root}/%")
    return [(run.removeprefix(root), call_, result) for run, call_, result in rows]


def asked_of(asked: Model, name: str) -> Counter[str]:
    """How often each request of a tree was asked."""
    return Counter({k.removeprefix(name): n for k, n in asked.asked.items() if k.startswith((f"{name} ", f"{name}/"))})


async def each_was_done_once(client: Client, world: World, root: str) -> int:
    """Every Call, load and request was scheduled once, and not run again once it had ended; the requests lost."""
    lost = 0
    for id_ in sorted(await members(client, root)):
        _, scheduled, completed = await history(client, root + id_)
        assert set(scheduled.values()) <= {1}, f"{id_}: something was scheduled again"
        last = dict(world.rows("SELECT call, max(attempt) FROM begun WHERE run = ? GROUP BY call", root + id_))
        assert not {c for c in last if last[c] > completed.get(c, 0)}, f"{id_}: a completed call was run again"
        lost += sum(n - 1 for name, n in completed.items() if name.startswith("tick-") or name.endswith(":judge"))
    (found,) = world.rows(
        "SELECT count(DISTINCT run || call), count(DISTINCT id) FROM begun WHERE run LIKE ?", f"{root}/%"
    )
    assert found[0] == found[1] == len(effects_of(world, root)), "a call ran under two keys, or its effect is missing"
    return lost


async def settled_requests(client: Client, root: str) -> list[list[tuple[str, str]]]:
    """The requests whose usage the runs below reported to the root, as (workflow id, id): a list for each of its runs.

    A report is a signal of its own, or travels along with the next request to the budget. A run that gives back
    what it was granted reports no usage: that is left out.
    """
    out = []
    for handle in await run_chain(client, root):
        signals = [s for s in await of_type(handle, "WORKFLOW_EXECUTION_SIGNALED") if s.signal_name in BUDGET_SIGNALS]
        records = [record for s in signals for record in await client.data_converter.decode(s.input.payloads)]
        settled = [(r["workflowId"], item) for r in records for item in r.get("settled", ())]
        out.append([(id_, item["id"]) for id_, item in settled if item.get("usage")])
    return out


async def nothing_is_lost_or_doubled(client: Client, world: World, asked: Model, result: Json, calm: Json) -> None:
    root, of_calm = f"{world.queue}/tree", f"{world.queue}/calm"
    assert undated(result, "tree") == undated(calm, "calm")
    assert (result["output"], result["usage"]["requests"]) == (OUTPUT, REQUESTS)
    found = await members(client, root)
    assert found == await members(client, of_calm)
    assert len([id_ for id_ in found if re.search(r":(branch|twig|leaf|judge)$", id_)]) == DELEGATES
    assert effects_of(world, root) == effects_of(world, of_calm)
    assert len(effects_of(world, root)) == EFFECTS
    lost, requests = await each_was_done_once(client, world, root), asked_of(asked, "tree")
    assert len(requests) == REQUESTS
    assert lost >= requests.total() - REQUESTS, "a request was asked again though no worker had taken it with it"
    reported = Counter(item for items in await settled_requests(client, root) for item in items)
    assert len(reported) == reported.total() == REQUESTS - 2  # the root asks for the other two itself


async def the_budget_was_kept(client: Client, world: World, asked: Model, result: Json) -> None:
    """What was lost at a kill is the only thing that was asked beyond the budget."""
    root = f"{world.queue}/short"
    cut_short = [b for b in result["state"].values() if isinstance(b, dict)]  # the others came to a number
    refused = [r["code"] for b in cut_short for r in b.get("refused", {}).values()]
    assert set(refused) == {"LimitExceeded"}
    assert result["usage"]["requests"] == SHORT
    lost, requests = await each_was_done_once(client, world, root), asked_of(asked, "short")
    assert len(requests) == SHORT
    assert requests.total() <= SHORT + lost
    reported = await settled_requests(client, root)
    assert len({item for items in reported for item in items}) == sum(map(len, reported)) == SHORT
    assert len([items for items in reported if items]) > 1, "the budget is carried over to a new run"


def furnish(world: World, asked: Model) -> None:
    """The engine finds the definitions, and the model."""
    folder = world.folder / "delegates"
    folder.mkdir()
    for name, definition in definitions(world).items():
        (folder / f"{name}.json").write_text(json.dumps(definition), "utf-8")
    settings = {"OPENAI_BASE_URL": asked.url, "ACTS_OPENAI_API": "chat", "ACTS_DELEGATES": str(folder)}
    world.programs["engine"].env |= settings


@pytest.mark.long
async def test_a_tree_and_its_budget_survive_kill_9_of_everything(tmp_path: Path) -> None:
    async with model(answer, key_of) as asked:
        with world_in(tmp_path) as world:
            furnish(world, asked)
            world.start("engine", "foreign")
            client = await Client.connect(world.server.address)
            calm = await ended(await plant(client, world, "calm"), within=60)

            asked.held = held = {"tree 1.1/judge", *(f"tree 2.{i}/1" for i in WIDTH)}
            tree = await plant(client, world, "tree")

            async def held_back() -> bool:
                return {key for key, count in asked.holding.items() if count} == held

            await assert_eventually(held_back, within=PATIENCE, why="requests at two depths are in flight")
            world.kill("engine")
            asked.held = set()
            world.start("engine")
            before = world.begun()
            short = await plant_short(client, world)
            await more_has_begun(world, before)
            before = world.begun()
            client = await killed(world, "engine", "foreign")
            await more_has_begun(world, before)
            client = await killed(world, "server", "engine")

            result = await ended(client.get_workflow_handle(tree.id), within=END_SECONDS)
            cut_off = await ended(client.get_workflow_handle(short.id), within=END_SECONDS)
            await nothing_is_lost_or_doubled(client, world, asked, result, calm)
            await the_budget_was_kept(client, world, asked, cut_off)
            assert all(asked.asked[key] > 1 for key in held), "what was in flight at the kill is asked again"
            assert len(world.rows("SELECT DISTINCT pid FROM begun")) > 3
