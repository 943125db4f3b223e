"""Twice as much takes twice the work: Python's calls are counted, not the time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from acts.language.config import Approve
from acts.machines.approvals import MAX_EARLY, TreeWaits
from acts.machines.commands import StartTimer
from acts.machines.past import PastCalls
from acts.tree.decisions import PendingApproval
from acts.tree.past_run import PastCall, PastInstance, PastRun, PastState, planned_digest
from acts.tree.records import TreePosition
from acts.tree.signal_records import PendingChanged
from tests.cases import call, own
from tests.property.drive import begin, data_message
from tests.property.waiting_run import WaitingRun

if TYPE_CHECKING:
    from collections.abc import Callable

NOW, LATER = "2026-01-01T00:00:00.000Z", "2026-01-01T01:00:00.000Z"


def count_calls(work: Callable[[], Any]) -> int:
    """How many functions ``work`` calls, those in C and comprehensions included."""
    count = [0]

    def on_event(_frame: object, event: str, _argument: object) -> None:
        count[0] += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count[0]


def waiting_run(calls: int, **approve: Any) -> tuple[WaitingRun, list[str]]:
    """A run in which so many Calls wait, and the names of their timers."""
    run = WaitingRun("r", TreePosition(), [], Approve(**approve))
    effects = [
        effect
        for i in range(calls)
        for effect in run.approvals.open("call", 1, Approve(**approve).all_rules[-1], NOW, call=f"{i}:pay")
    ]
    run.approvals.flush()
    return run, [effect.name for effect in effects if isinstance(effect, StartTimer)]


def decide_each(calls: int) -> Callable[[], Any]:
    run, _ = waiting_run(calls)
    return lambda: [run.approvals.decide({"call": f"{i}:pay"}, "approve", NOW) for i in range(calls)]


def decide_all_at_once(calls: int) -> Callable[[], Any]:
    run, _ = waiting_run(calls)
    return lambda: [run.approvals.decide({}, "approve", NOW) for _ in range(calls)]


def decide_what_does_not_wait(calls: int) -> Callable[[], Any]:
    run, _ = waiting_run(calls)
    return lambda: [run.approvals.decide({"call": f"{i}:none"}, "approve", NOW) for i in range(calls)]


def let_time_pass(calls: int) -> Callable[[], Any]:
    run, timers = waiting_run(calls, timeout="1m")
    assert len(timers) == calls
    return lambda: [run.approvals.on_timer(name, LATER) for name in reversed(timers)]


def decide_below(runs: int) -> Callable[[], Any]:
    run = WaitingRun("r", TreePosition(), [], Approve())
    ids = [f"r/{i}" for i in range(runs)]
    for id_ in ids:
        wait = PendingApproval(workflow_id=id_, what="call", version=1, since=NOW, call="1:pay", instance=id_)
        run.approvals.on_pending_changed(PendingChanged(workflowId=id_, ancestors=("r",), opened=(wait,)), NOW)
    run.approvals.flush()
    return lambda: [run.approvals.decide({"call": "1:pay", "instance": id_}, "approve", NOW) for id_ in ids]


def count_children(runs: int) -> Callable[[], Any]:
    below, ids = TreeWaits("r"), [f"r/{i}" for i in range(runs)]
    for id_ in ids:
        wait = PendingApproval(workflow_id=id_, what="plan", version=1, since=NOW)
        below.apply_report(PendingChanged(workflowId=id_, ancestors=("r",), opened=(wait,)))
    return lambda: below.count_runs_below(ids) == runs or pytest.fail("all of them wait")


def provide_to_waiting_calls(calls: int) -> Callable[[], Any]:
    drive = begin(*[call(f"c{i}", x=f"†input.x{i}", y="†input.y") for i in range(calls)], config={"missing": "wait"})
    return lambda: [
        drive.walk.provide(data_message({"type": "input", "input": {f"x{i}": 1}}), NOW) for i in range(calls)
    ]


def provide_beside_what_was_written(calls: int) -> Callable[[], Any]:
    plan = [call(f"c{i}", f"†state.c{i}") for i in range(calls)]
    drive = begin(*plan, call("w", x="†input.x"), config={"missing": "wait", "maxParallel": 2000})
    while drive.running:
        drive.finish(drive.running[0])
    return lambda: [
        drive.walk.provide(data_message({"type": "state", "state": {f"x{i}": 1}}), NOW) for i in range(calls)
    ]


class WatchedCall(PastCall):
    """A record, each look at which is a call of a function."""

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)


def find_calls_of_the_earlier_run(calls: int) -> Callable[[], Any]:
    """Half of the Calls are at their places; the others, equal to them, have no place in the earlier plan."""
    prepared = begin(*[call("c", x=1)] * calls).walk.prepared
    planned = planned_digest(prepared.nodes[0])
    past = [
        WatchedCall(call=node.id, state="completed", id=str(i), planned=planned if i < calls // 2 else "another")
        for i, node in enumerate(prepared.nodes)
    ]
    run = PastRun(workflowId="old", runId="r", calls=tuple(past))
    return lambda: PastCalls(PastState(source={}, past=(run,)), "-").align(prepared.nodes)


def report_what_was_taken_over(instances: int) -> Callable[[], Any]:
    names = [f"i{i}" for i in range(instances)]
    drive = begin(*[call("c", _instance=name) for name in names], context=[own(name, id=1) for name in names])
    found = [PastInstance(id=name, status="completed", digest="") for name in names]
    run = PastRun(workflowId="old", runId="r", instances=tuple(found))
    past = PastCalls(PastState(source={}, past=(run,)), "-")
    past.taken = {node.key: "id" for node in drive.walk.nodes}
    assert len(past.report(drive.walk.calls, names)["instances"]) == instances
    return lambda: past.report(drive.walk.calls, names)


PREPARATIONS = (
    decide_each, decide_all_at_once, decide_what_does_not_wait, let_time_pass, decide_below, count_children,
    provide_to_waiting_calls, provide_beside_what_was_written, find_calls_of_the_earlier_run,
    report_what_was_taken_over,
)  # fmt: skip


@pytest.mark.parametrize("prepare", PREPARATIONS)
def test_twice_as_much_takes_twice_the_work(prepare: Callable[[int], Callable[[], Any]]) -> None:
    size = 3 * MAX_EARLY
    assert count_calls(prepare(2 * size)) < 2.5 * count_calls(prepare(size))
