"""``kill -9`` in the middle of batches: each instance comes to what it does in a calm run, and nothing happens twice.

A batch of 30 instances of a plan of five Calls. By the last digit of its number an instance fails (3), waits for a
person (7) or runs through. Once with a child for each instance, once with five instances in each child.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client

from tests.crash.test_kill import OPTIONS, World, history, killed, more_has_begun, world_in
from tests.support import assert_eventually
from tests.workflow.foreign import Handle, call, ended, tool

Json = Any
SIZE = 30
PER_CHILD = (1, 5)
PATIENCE = timedelta(seconds=60)
END_SECONDS = 90  # it needs ten
FAILING = [f"i{n}" for n in range(SIZE) if n % 10 == 3]
WAITING = [f"i{n}" for n in range(SIZE) if n % 10 == 7]
REJECTED = WAITING[2]
PLAN = [
    call("add_one", "†state.more", value="†state.n"),
    call("weigh", "†state.small || †state.large", value="†state.n"),
    call("add_one", "†state.paid", value="†state.small"),
    call("sign", "†state.signed", value="†state.large"),
    call("total", "†state.end", values=["†state.more", "†state.paid || †state.signed"]),
]


def batch(world: World, per_child: int) -> dict[str, Json]:
    """``sign`` waits for a person; ``weigh`` and ``total`` are served by the foreign worker."""
    foreign = {**OPTIONS, "taskQueue": f"{world.queue}-foreign"}
    tools = [
        tool("add_one", activity="add_one", options=OPTIONS), tool("weigh", activity="weigh", options=foreign),
        tool("sign", activity="add_one", options=OPTIONS), tool("total", activity="total", options=foreign),
    ]  # fmt: skip
    data = [{"type": "state", "state": {"n": n}, "_instance": f"i{n}"} for n in range(SIZE)]
    config = {"approve": {"calls": ["sign"]}, "instancesPerChild": per_child}
    return {"config": config, "context": [*tools, *data, {"type": "plan", "plan": PLAN}]}


async def begin(client: Client, world: World, name: str, per_child: int) -> Handle:
    id_ = f"{world.queue}/{name}"
    return await client.start_workflow("Plan", batch(world, per_child), id=id_, task_queue=world.queue)


async def waits_at(root: Handle, instances: list[str]) -> None:
    async def found() -> bool:
        return sorted(w["instance"] for w in await root.query("pending")) == sorted(instances)

    await assert_eventually(found, within=PATIENCE, why=f"{instances} wait")


async def decide(root: Handle, instances: list[str]) -> None:
    """By signal: nobody has to be there to hear it."""
    for id_ in instances:
        if id_ == REJECTED:
            await root.signal("reject", {"call": "4:sign", "instance": id_, "by": "Bob", "reason": "too much"})
        else:
            await root.signal("approve", {"call": "4:sign", "instance": id_, "by": "Ada"})


# -- what must be true afterwards ----------------------------------------------------


def expected(n: int) -> tuple[str, Json]:
    id_, small = f"i{n}", {"n": n, "more": n + 1}
    if id_ in FAILING:
        return "failed", small
    if id_ == REJECTED:
        return "rejected", {**small, "large": n}
    if id_ in WAITING:
        return "completed", {**small, "large": n, "signed": n + 1, "end": 2 * n + 2}
    return "completed", {**small, "small": n, "paid": n + 1, "end": 2 * n + 2}


def undated(result: Json) -> Json:
    """A result without what is of one run: when it was, and in which child."""
    if isinstance(result, list):
        return [undated(r) for r in result]
    if not isinstance(result, dict):
        return result
    return {k: undated(v) for k, v in result.items() if k not in ("_date", "date", "decisions", "workflowId")}


def decisions(result: Json) -> list[tuple[str, ...]]:
    return sorted((d["instance"], d["call"], d["decision"], d["by"]) for d in result["decisions"])


def effects_of(world: World, root: str) -> Counter[tuple[str, int]]:
    """How many effects a batch had, by what was called and with which result."""
    rows = world.rows("SELECT call, result FROM done WHERE run LIKE ?", f"{root}/%")
    return Counter((call_.rpartition("/")[2], result) for call_, result in rows)


async def each_call_ran_once(client: Client, world: World, root: str, children: int) -> None:
    runs = {r.id async for r in client.list_workflows(f"WorkflowId STARTS_WITH '{root}/'")}
    assert len(runs) == children
    for id_ in sorted(runs):
        _, scheduled, completed = await history(client, id_)
        assert set(scheduled.values()) <= {1}, f"{id_}: a call was scheduled again"
        last = dict(world.rows("SELECT call, max(attempt) FROM begun WHERE run = ? GROUP BY call", id_))
        assert {c: last[c] for c in completed} == completed, f"{id_}: a completed call was run again"
    keys = "SELECT count(DISTINCT run || call), count(DISTINCT id) FROM begun WHERE run LIKE ?"
    (found,) = world.rows(keys, f"{root}/%")
    assert found[0] == found[1] == effects_of(world, root).total(), "a call has two keys, or its effect is missing"


async def nothing_is_lost_or_doubled(client: Client, world: World, root: str, result: Json, calm: Json) -> None:
    assert undated(result) == undated(calm)
    assert decisions(result) == decisions(calm)
    assert effects_of(world, root) == effects_of(world, f"{world.queue}/calm")


def is_as_expected(result: Json) -> None:
    instances = {i: (r["status"], r["state"]) for i, r in result["instances"].items()}
    assert instances == {f"i{n}": expected(n) for n in range(SIZE)}
    assert result["status"] == "partial"
    assert {(e["instance"], e["code"]) for e in result["errors"]} == {
        *((i, "declined") for i in FAILING), (REJECTED, "rejected")
    }  # fmt: skip


async def test_batches_survive_kill_9_of_everything(tmp_path: Path) -> None:
    with world_in(tmp_path) as world:
        world.start("engine", "foreign")
        client = await Client.connect(world.server.address)
        handle = await begin(client, world, "calm", 1)
        await waits_at(handle, WAITING)
        await decide(handle, WAITING)
        calm = await ended(handle, within=END_SECONDS)
        is_as_expected(calm)

        roots = [(await begin(client, world, f"by-{n}", n)).id for n in PER_CHILD]
        for victims in (["engine"], ["engine", "foreign"]):
            await more_has_begun(world)
            client = await killed(world, *victims)
        for root in roots:
            await waits_at(client.get_workflow_handle(root), WAITING)
        world.kill("engine")  # what people say now, nobody hears
        for root in roots:
            await decide(client.get_workflow_handle(root), WAITING[:3])
        world.kill("server")
        world.start("server")
        client = await Client.connect(world.server.address)
        for root in roots:
            await decide(client.get_workflow_handle(root), WAITING[3:])
        world.start("engine")
        await more_has_begun(world)
        client = await killed(world, "server", "engine", "foreign")

        for root, per_child in zip(roots, PER_CHILD, strict=True):
            result = await ended(client.get_workflow_handle(root), within=END_SECONDS)
            await nothing_is_lost_or_doubled(client, world, root, result, calm)
            await each_call_ran_once(client, world, root, SIZE // per_child)
        assert len(world.rows("SELECT DISTINCT pid FROM begun")) > 4
