"""Resets, retries and crons: one logical Call has one ``_id``, whatever run makes it, and no effect happens twice."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import RetryPolicy
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from acts.worker.plugin import WORKFLOWS
from tests.crash.resets import (
    each_call_has_one_key_and_one_effect,
    keys_of,
    last_point_before,
    reset,
    reset_points,
    runs_of,
)
from tests.crash.test_kill import OPTIONS, World, request, steps, world_in
from tests.support import assert_eventually
from tests.workflow.foreign import Handle, call, ended, tool

Json = Any
SOON = timedelta(seconds=120)
ADD = tool("add_one", activity="add_one", options=OPTIONS)
GATED = tool("gated", activity="gated", options=OPTIONS)


def walked(*calls: Json, context: list[Json]) -> Json:
    return {"context": [*context, {"type": "plan", "run": True, "plan": list(calls)}]}


def delegating(name: str, delegate: str) -> Json:
    return tool(name, activity="", _delegate={"const": delegate})


DEFINITIONS = {
    "inner": walked(
        call("add_one", "†state.x", value="†input.n"), call("gated", "†state.output", value="†state.x"),
        context=[ADD, GATED],
    ),
    "outer": walked(
        call("inner", "†state.a", n="†input.n"), call("inner", "†state.b", n="†state.a"),
        call("add_one", "†state.output", value="†state.b"), context=[ADD, delegating("inner", "inner")],
    ),
}  # fmt: skip
ANSWERS = [
    {"when": {"tick": 1}, "solution": {"calls": [
        call("add_one", "†state.a", value="†input.zero"), call("inner", "†state.b", n="†state.a")]}},
    {"when": {"tick": 2}, "solution": {"calls": [call("add_one", "†state.c", value="†state.b")]}},
    {"when": {"tick": 3}, "solution": {"output": "†state.c"}},
]  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One server and one worker for all tests here."""
    with world_in(tmp_path_factory.mktemp("reset")) as made:
        for kind, files in (("delegates", DEFINITIONS), ("scripts", {"agent": {"answers": ANSWERS}})):
            folder = made.folder / kind
            folder.mkdir()
            for name, content in files.items():
                (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")
            made.programs["engine"].env[f"ACTS_{kind.upper()}"] = str(folder)
        made.start("engine")
        yield made


@pytest.fixture
def gate(world: World) -> Iterator[Path]:
    """The file that lets the Activity ``gated`` return; it is not there when a test begins."""
    path = Path(f"{world.effects}.open")
    path.unlink(missing_ok=True)
    yield path
    path.touch()


@pytest.fixture
async def client(world: World) -> Client:
    return await Client.connect(world.server.address)


STATE = {"type": "state", "state": {"n": 0}}
KINDS: dict[str, tuple[str, Json, int]] = {  # workflow, Request, effects
    "plan": ("Plan", {"context": [ADD, {"type": "input", "zero": 0}, {"type": "plan", "plan": steps(4)}]}, 4),
    "delegates": ("Plan", {"context": [
        ADD, delegating("outer", "outer"),
        {"type": "plan", "plan": [call("outer", "†state.a", n=0), call("add_one", "†state.b", value="†state.a")]},
    ]}, 6),
    "agent": ("Agent", {"config": {"model": "scripted:agent"}, "context": [
        ADD, delegating("inner", "inner"), {"type": "input", "zero": 0}]}, 4),
    "batch": ("Plan", {"config": {"instancesPerChild": 2}, "context": [
        ADD, delegating("inner", "inner"), *({**STATE, "_instance": i} for i in "abc"),
        {"type": "plan", "plan": [
            call("add_one", "†state.x", value="†state.n"), call("inner", "†state.y", n="†state.x")]},
    ]}, 9),
    "background": ("Plan", {"context": [
        ADD, delegating("inner", "inner"), {"type": "input", "zero": 0},
        {"type": "plan", "plan": [*steps(1), call("add_one", value="†state.n1"), call("inner", n="†state.n1")]},
    ]}, 4),
}  # fmt: skip


async def start(client: Client, world: World, kind: str, name: str, **more: Json) -> Handle:
    workflow, raw, _ = KINDS[kind]
    return await client.start_workflow(workflow, raw, id=f"{world.queue}/{name}", task_queue=world.queue, **more)


def undated(result: Json) -> Json:
    return json.loads(re.sub(r'"(_date|date)": "[^"]*"', r'"\1": ""', json.dumps(result)))


async def all_is_over(client: Client, prefix: str) -> None:
    """No run of these is open: nothing hangs, and what was left behind has ended."""

    async def over() -> bool:
        found = [r async for r in runs_of(client, prefix)]
        return bool(found) and all(r.status != WorkflowExecutionStatus.RUNNING for r in found)

    await assert_eventually(over, within=SOON, why="every run has ended")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_that_is_reset_at_any_point_ends_alike_and_every_call_keeps_its_id(
    world: World, client: Client, gate: Path, kind: str
) -> None:
    gate.touch()
    handle = await start(client, world, kind, f"any-{kind}")
    calm = await ended(handle)
    await all_is_over(client, handle.id)
    count = KINDS[kind][2]
    each_call_has_one_key_and_one_effect(world, handle.id, count)
    first = handle.first_execution_run_id
    points = await reset_points(client.get_workflow_handle(handle.id, run_id=first))
    for point in points:
        again = await reset(client, handle.id, point, first)
        assert undated(await ended(again)) == undated(calm)
    await all_is_over(client, handle.id)
    each_call_has_one_key_and_one_effect(world, handle.id, count)
    assert len(points) > 2


BELOW = {
    "delegates": ("/1:outer", "/1:outer/plan", "/1:outer/plan/1:inner"),
    "agent": ("/plan-1", "/plan-1/2:inner"),
    "batch": ("/a", "/a/a/2:inner"),
    "background": ("/3:inner", "/3:inner/delegate", "/2:add_one"),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", BELOW)
async def test_a_run_below_another_that_is_reset_gives_its_calls_the_same_ids(
    world: World, client: Client, gate: Path, kind: str
) -> None:
    gate.touch()
    handle = await start(client, world, kind, f"below-{kind}")
    await ended(handle)
    await all_is_over(client, handle.id)
    for name in BELOW[kind]:
        child = client.get_workflow_handle(handle.id + name)
        run_id = (await child.describe()).run_id
        for point in (await reset_points(child))[:2]:
            again = await reset(client, child.id, point, run_id)
            await asyncio.wait_for(again.result(), 180)
    await all_is_over(client, handle.id)
    each_call_has_one_key_and_one_effect(world, handle.id, KINDS[kind][2])


async def gated_calls_begin(world: World, prefix: str, times: int) -> None:
    async def begun() -> bool:
        query = "SELECT count(*) FROM begun WHERE run LIKE ? AND call LIKE '%:gated' AND attempt = 1"
        return bool(world.rows(query, f"{prefix}%")[0][0] >= times)

    await assert_eventually(begun, within=SOON, why=f"{times} gated calls begin")


FLIGHT = {"delegates": 1, "agent": 1, "batch": 3, "background": 1}  # gated Calls in flight at a time


@pytest.mark.long
@pytest.mark.parametrize("kind", FLIGHT)
async def test_a_reset_takes_over_from_the_runs_below_that_it_leaves_behind(
    world: World, client: Client, gate: Path, kind: str
) -> None:
    handle = await start(client, world, kind, f"flight-{kind}")
    await gated_calls_begin(world, handle.id, FLIGHT[kind])
    point = await last_point_before(handle, "START_CHILD_WORKFLOW_EXECUTION_INITIATED")
    again = await reset(client, handle.id, point)
    await gated_calls_begin(world, handle.id, 2 * FLIGHT[kind])
    gate.touch()
    assert (await ended(again, within=60))["status"] == "completed"
    await all_is_over(client, handle.id)
    each_call_has_one_key_and_one_effect(world, handle.id, KINDS[kind][2])
    runs = [r async for r in runs_of(client, handle.id)]
    assert not [r.id for r in runs if "~" in r.id], "the run that was left behind made way"


async def reset_four_times(world: World, client: Client, kind: str) -> Handle:
    """Three times from a run that is not the latest."""
    handle = await start(client, world, kind, f"again-{kind}")
    await gated_calls_begin(world, handle.id, FLIGHT[kind])
    first = handle.first_execution_run_id
    points = await reset_points(handle)
    before = await last_point_before(handle, "START_CHILD_WORKFLOW_EXECUTION_INITIATED")
    await reset(client, handle.id, points[-1], first)  # waits for the runs below
    await reset(client, handle.id, points[-1], first)  # waits for the same
    await reset(client, handle.id, before, first)  # supersedes them, and starts others
    await gated_calls_begin(world, handle.id, 2 * FLIGHT[kind])
    again = await reset(client, handle.id, points[-1], first)  # waits for the first, which are over
    await gated_calls_begin(world, handle.id, 3 * FLIGHT[kind])  # the others were cancelled with the run before
    return again


@pytest.mark.long
async def test_a_reset_from_a_run_that_was_reset_before_starts_again_what_went_with_the_later_run(
    world: World, client: Client, gate: Path
) -> None:
    """All kinds at once: each waits some seconds for a result that does not come."""
    kinds = [kind for kind in FLIGHT if kind != "background"]
    runs = await asyncio.gather(*(reset_four_times(world, client, kind) for kind in kinds))
    gate.touch()
    for kind, again in zip(kinds, runs, strict=True):
        assert (await ended(again, within=60))["status"] == "completed"
        await all_is_over(client, again.id)
        each_call_has_one_key_and_one_effect(world, again.id, KINDS[kind][2])


async def reset_an_earlier_run(world: World, client: Client, below: str, point: int) -> Handle:
    """Of a run below the root, which the latest run of its id has taken over from."""
    handle = await start(client, world, "delegates", f"earlier{below.count('/')}{point}")
    await gated_calls_begin(world, handle.id, 1)
    child = client.get_workflow_handle(handle.id + below)
    earlier = client.get_workflow_handle(child.id, run_id=(await child.describe()).run_id)
    again = await reset(client, handle.id, await last_point_before(handle, "START_CHILD_WORKFLOW_EXECUTION_INITIATED"))
    await gated_calls_begin(world, handle.id, 2)
    points = await reset_points(earlier)
    await reset(client, child.id, points[point], earlier.run_id)
    await gated_calls_begin(world, handle.id, 3)
    return again


@pytest.mark.long
async def test_a_reset_of_an_earlier_run_below_another_does_not_leave_that_one_waiting(
    world: World, client: Client, gate: Path
) -> None:
    """The server ends the latest run of the id without a word to the run above, which waits for it."""
    cases = [(below, point) for below in ("/1:outer", "/1:outer/plan") for point in (0, 1, -2, -1)]
    runs = await asyncio.gather(*(reset_an_earlier_run(world, client, *case) for case in cases))
    gate.touch()
    for again in runs:
        assert (await ended(again))["status"] == "completed"
        await all_is_over(client, again.id)
        each_call_has_one_key_and_one_effect(world, again.id, KINDS["delegates"][2])


async def is_pending(handle: Handle, call: str | None) -> bool:
    return any(wait.get("call") == call for wait in await handle.query("pending"))


async def is_approved(handle: Handle, call: str | None) -> bool:
    """Approve it when it waits. True when it has been approved, or the run is over."""
    status = await handle.query("status")
    if status["phase"] == "completed":
        return True
    if await is_pending(handle, call):
        await handle.signal("approve", {} if call is None else {"call": call})
    decided = [(d["decision"], d.get("call")) for d in status.get("decisions", ())]
    return ("approve", call) in decided


async def test_the_signals_and_updates_that_a_reset_repeats_are_replayed_as_they_were_handled(
    world: World, client: Client
) -> None:
    config = {"approve": {"plan": True, "calls": ["add_one"]}}
    raw = {"config": config, "context": [ADD, {"type": "input", "zero": 0}, {"type": "plan", "plan": steps(4)}]}
    handle = await client.start_workflow(
        "Plan", raw, id=f"{world.queue}/repeats-{uuid.uuid4().hex[:6]}", task_queue=world.queue
    )
    for number in range(5):
        decision = {} if number == 0 else {"call": f"{number}:add_one"}
        await assert_eventually(partial(is_pending, handle, decision.get("call")), within=SOON, why="it waits")
        if number % 2:
            await handle.signal("approve", decision)
        else:
            await handle.execute_update("decide", {"decision": "approve", **decision})
    await ended(handle)
    again = await reset(client, handle.id, (await reset_points(handle))[0], handle.first_execution_run_id)
    latest = client.get_workflow_handle(handle.id)  # the run that the reset made may go on in a new one
    for number in range(5):
        decision = {} if number == 0 else {"call": f"{number}:add_one"}
        await assert_eventually(partial(is_approved, latest, decision.get("call")), within=SOON, why="it is approved")
    await ended(latest)
    replayer = Replayer(workflows=WORKFLOWS, workflow_runner=UnsandboxedWorkflowRunner())
    await replayer.replay_workflow(await again.fetch_history())


async def test_of_a_signal_and_an_update_that_a_reset_repeats_the_signal_comes_first(
    world: World, client: Client
) -> None:
    """The server repeats both in one workflow task: the update before the signal, as they came. A replay of that task
    has the signal first, so the run must handle it first, though it then rejects what was approved."""
    raw = {"config": {"approve": {"calls": ["add_one"]}}, "context": KINDS["plan"][1]["context"]}
    handle = await client.start_workflow(
        "Plan", raw, id=f"{world.queue}/contradicts-{uuid.uuid4().hex[:6]}", task_queue=world.queue
    )
    first, second = "1:add_one", "2:add_one"
    await assert_eventually(partial(is_pending, handle, first), within=SOON, why="it waits")
    await handle.execute_update("decide", {"decision": "approve", "call": first})
    await assert_eventually(partial(is_pending, handle, second), within=SOON, why="the next one waits")
    await handle.signal("reject", {"call": first, "reason": "too late"})
    await handle.query("status")
    again = await reset(client, handle.id, (await reset_points(handle))[0])
    await assert_eventually(partial(is_rejected, again, first), within=SOON, why="the signal counts")
    await asyncio.wait_for(asyncio.gather(again.result(), return_exceptions=True), 180)
    replayer = Replayer(workflows=WORKFLOWS, workflow_runner=UnsandboxedWorkflowRunner())
    await replayer.replay_workflow(await again.fetch_history())


async def is_rejected(handle: Handle, call_id: str) -> bool:
    return any(c["id"] == call_id and c["state"] == "rejected" for c in (await handle.query("status"))["calls"])


@pytest.mark.long
async def test_a_run_that_goes_on_in_a_new_run_keeps_its_ids_when_either_is_reset(world: World, client: Client) -> None:
    id_ = f"{world.queue}/long"
    await ended(await client.start_workflow("Plan", request(world, *steps(25)), id=id_, task_queue=world.queue))
    runs = [r async for r in runs_of(client, id_)]
    assert len(runs) > 1, "it goes on in a new run"
    for run in runs:
        points = await reset_points(client.get_workflow_handle(id_, run_id=run.run_id))
        again = await reset(client, id_, points[len(points) // 2], run.run_id)
        assert (await ended(client.get_workflow_handle(id_)))["state"]["n25"] == 25
        await asyncio.wait_for(again.result(), 180)
    each_call_has_one_key_and_one_effect(world, id_, 25)


@pytest.mark.long
async def test_the_attempts_of_a_retry_policy_share_their_ids(world: World, client: Client, gate: Path) -> None:
    policy = RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=20)
    handle = await start(client, world, "delegates", "retried", retry_policy=policy, run_timeout=timedelta(seconds=2))
    await gated_calls_begin(world, handle.id, 2)
    gate.touch()
    assert (await ended(client.get_workflow_handle(handle.id), within=60))["status"] == "completed"
    await all_is_over(client, handle.id)
    each_call_has_one_key_and_one_effect(world, handle.id, 6)


async def rounds_of(client: Client, id_: str, count: int) -> list[str]:
    """The run ids of a cron, when so many of its runs have completed."""

    async def completed() -> list[str]:
        runs = [r async for r in client.list_workflows(f"WorkflowId = '{id_}'")]
        going = WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.TERMINATED
        over = [r for r in runs if r.status not in going]
        return [r.run_id for r in sorted(over, key=lambda r: r.start_time)] if len(over) >= count else []

    found: list[str] = await assert_eventually(completed, within=SOON, why=f"{count} rounds")
    return found


@pytest.mark.long
async def test_each_round_of_a_cron_has_ids_of_its_own_which_a_reset_keeps(world: World, client: Client) -> None:
    handle = await start(client, world, "plan", "cron", cron_schedule="@every 1s")
    rounds = await rounds_of(client, handle.id, 3)
    await client.get_workflow_handle(handle.id).terminate()
    ids = keys_of(world, handle.id)
    assert {len(found) for found in ids.values()} >= {3}, "every round begins each of its calls under a key of its own"
    before = {id_ for found in ids.values() for id_ in found}
    assert len(before) == sum(map(len, ids.values()))
    points = await reset_points(client.get_workflow_handle(handle.id, run_id=rounds[1]))
    await reset(client, handle.id, points[0], rounds[1])
    await rounds_of(client, handle.id, len(rounds) + 1)
    await client.get_workflow_handle(handle.id).terminate()
    repeated = world.rows(
        "SELECT id, count(DISTINCT attempt || pid), count(*) FROM begun WHERE run = ? GROUP BY id", handle.id
    )
    again = [row for row in repeated if row[-1] > 1]
    assert len(again) == 4, f"the four calls of the second round ran again, by their ids: {again}"


async def test_a_cron_with_a_retry_policy_is_refused(world: World, client: Client) -> None:
    handle = await start(client, world, "plan", "cron-retried", cron_schedule="@every 1s", retry_policy=RetryPolicy())
    (run_id, *_) = await rounds_of(client, handle.id, 1)
    *_, last = (await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()).events
    await client.get_workflow_handle(handle.id).terminate()
    assert "acts schedule create" in str(last)
