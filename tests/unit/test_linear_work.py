"""Twice as much takes twice the work: Python's calls are counted, not the time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from acts.language.config import Approve
from acts.machines.approval_effects import StartTimer
from acts.machines.early_decisions import MAX_EARLY
from acts.machines.pending_below import PendingBelow
from acts.tree.decisions import PendingApproval
from acts.tree.records import TreePosition
from acts.tree.signal_records import PendingChanged
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
        for effect in run.approvals.open("call", 1, Approve(**approve), NOW, call=f"{i}:pay")
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
        wait = PendingApproval(id_, "call", 1, NOW, call="1:pay", instance=id_)
        run.approvals.on_pending_changed(
            PendingChanged(workflowId=id_, ancestors=("r",), opened=(wait.to_json(),)), NOW
        )
    run.approvals.flush()
    return lambda: [run.approvals.decide({"call": "1:pay", "instance": id_}, "approve", NOW) for id_ in ids]


def count_children(runs: int) -> Callable[[], Any]:
    below, ids = PendingBelow("r"), [f"r/{i}" for i in range(runs)]
    for id_ in ids:
        wait = PendingApproval(id_, "plan", 1, NOW)
        below.apply_report(PendingChanged(workflowId=id_, ancestors=("r",), opened=(wait.to_json(),)))
    return lambda: below.count_waiting(ids) == runs or pytest.fail("all of them wait")


@pytest.mark.parametrize(
    "prepare",
    [decide_each, decide_all_at_once, decide_what_does_not_wait, let_time_pass, decide_below, count_children],
)
def test_twice_as_much_takes_twice_the_work(prepare: Callable[[int], Callable[[], Any]]) -> None:
    size = 3 * MAX_EARLY
    assert count_calls(prepare(2 * size)) < 2.5 * count_calls(prepare(size))
