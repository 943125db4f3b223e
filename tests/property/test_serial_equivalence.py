"""Serial equivalence: whatever finishes first, the result is that of one Call after another in plan order."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import event, given, reject
from hypothesis import strategies as st

from acts.language.errors import CallError, InvalidRequest
from acts.machines.call_state import SETTLED
from acts.machines.commands import Command
from acts.machines.walk import Walk
from acts.plan.context_log import Log
from acts.plan.validate import validate, validate_request
from tests import oracle
from tests.property.drive import (
    NOW,
    Drive,
    assert_equal_to_the_serial_run,
    assert_nothing_waits_needlessly,
    data_message,
    expected_views,
    many,
    plain,
    views,
)
from tests.strategies import MOST_CALLS, Case, cases, orders, plans, tool


def begin(case: Case, **config: Any) -> tuple[Drive, oracle.Outcome]:
    """A walk that has begun, and its expected outcome; invalid cases are put aside."""
    request = {**case.request, "config": {**case.request["config"], **config}}
    try:
        prepared = validate_request(request)
    except InvalidRequest:
        reject()
    return Drive(prepared, case.results), oracle.run(request, case.results)


@many(40)
@given(cases())
def test_a_plan_is_refused_exactly_when_no_order_or_no_source_exists(case: Case) -> None:
    # other problems, e.g. an _output under a branching path, are not about order
    found = [p for p in validate(case.request) if p.code in ("cycle", "unknownReference")]
    fatal = [p for p in found if p.fatal]
    assert all(p.pointer.endswith("/_when") or "nothing in the context" in p.message for p in found if not p.fatal)
    try:
        lacking = oracle.unsatisfied(case.request)
    except oracle.Cycle:
        assert any(p.code == "cycle" for p in fatal)
        return
    assert all(p.fatal and p.code == "unknownReference" for p in fatal)
    assert {p.call for p in fatal} == set(lacking)


@many(80)
@given(plans, orders())
def test_any_order_of_completion_gives_the_serial_result(case: Case, order: list[int]) -> None:
    drive, expected = begin(case)
    drive.finish_all(order)
    event(f"states: {sorted(set(expected.states.values()))}")
    assert drive.open == 0
    assert len(drive.final_statuses) == 1
    assert_equal_to_the_serial_run(drive, expected)


@many(200)
@given(cases(shipped=True), orders(), st.booleans())
def test_plans_with_all_of_the_language_give_the_serial_result_and_undo_the_same(
    case: Case,
    order: list[int],
    carries_over: bool,  # noqa: FBT001
) -> None:
    drive, expected = begin(case)
    while drive.is_busy:
        drive.finish_next(order)
        if carries_over and not drive.running:
            drive.carry_over()
    assert drive.open == 0
    assert_equal_to_the_serial_run(drive, expected)
    assert [(step.call, plain(step.parameters["what"])) for step in drive.walk.undo_steps()] == expected.undo


@many(40)
@given(plans, orders())
def test_nothing_waits_needlessly(case: Case, order: list[int]) -> None:
    drive, expected = begin(case)
    while drive.running:
        assert_nothing_waits_needlessly(drive, expected)
        drive.finish_next(order)
    assert drive.open == 0


@many(40)
@given(plans, orders(), st.integers(1, 3))
def test_at_most_max_parallel_run_at_once(case: Case, order: list[int], most: int) -> None:
    drive, expected = begin(case, maxParallel=most)
    drive.finish_all(order)
    assert drive.most_running <= most
    assert_equal_to_the_serial_run(drive, expected)


@many(40)
@given(plans, orders(), st.lists(st.sampled_from(["pause", "resume", "drain", "go", "carry", "report"])))
def test_pausing_and_carrying_over_at_any_time_change_nothing(case: Case, order: list[int], script: list[str]) -> None:
    drive, expected = begin(case)
    for step in script:
        match step:
            case "pause":
                drive.perform(drive.walk.advance(NOW, paused=True))
            case "resume":
                drive.perform(drive.walk.advance(NOW, paused=False))
            case "drain":
                drive.perform(drive.walk.advance(NOW, draining=True))
            case "go":
                drive.perform(drive.walk.advance(NOW, draining=False))
            case "carry" if not drive.walk.running:
                drive.carry_over()
            case "report" if drive.running:
                drive.finish_next(order)
    drive.perform(drive.walk.advance(NOW, paused=False, draining=False))
    drive.finish_all(order)
    assert_equal_to_the_serial_run(drive, expected)


@many(40)
@given(plans, orders(), st.permutations(range(MOST_CALLS)), st.booleans())
def test_approvals_in_any_order_change_nothing(
    case: Case,
    order: list[int],
    decisions: list[int],
    carries_over: bool,  # noqa: FBT001
) -> None:
    drive, expected = begin(case, approve={"calls": True})
    while drive.running or any(drive.state(id_) == "awaiting" for id_ in drive.questions):
        awaiting = [id_ for id_ in drive.questions if drive.state(id_) == "awaiting"]
        for id_ in sorted(awaiting, key=lambda id_: decisions.index(drive.node(id_).index))[:1]:
            drive.perform(drive.walk.decide(id_, "approve", "", NOW))
        if carries_over and not drive.walk.running:
            drive.carry_over()
        if drive.running:
            drive.finish_next(order)
    assert_equal_to_the_serial_run(drive, expected)


@many(40)
@given(plans, orders(), st.integers(0, MOST_CALLS), st.booleans())
def test_a_walk_that_is_cancelled_at_any_time_ends(
    case: Case,
    order: list[int],
    done: int,
    stops: bool,  # noqa: FBT001
) -> None:
    drive, _ = begin(case)
    for _ in range(done):
        if drive.running:
            drive.finish_next(order)
    before = dict(drive.observe()["states"])
    started = set(drive.started)
    drive.perform(drive.walk.cancel(NOW))
    while drive.running:
        if stops:
            id_ = drive.running.pop()
            drive.perform(drive.walk.failed(id_, CallError("cancelled", "stopped"), NOW))
        else:
            drive.finish_next(order)
    assert drive.open == 0
    assert len(drive.final_statuses) == 1
    assert set(drive.started) == started
    after = drive.observe()["states"]
    for id_, state in before.items():
        if state in SETTLED:
            assert after[id_] == state
        elif id_ not in started:
            # a result that came with the plan, or an error that was about to be written, may still take effect
            assert after[id_] == "cancelled" or state == "running"
    if "cancelled" in after.values():
        assert drive.final_statuses == ["cancelled"]


STRAY: dict[str, Callable[[Walk, str], list[Command]]] = {
    "completed": lambda walk, key: walk.completed(key, {"stray": 1}, NOW),
    "failed": lambda walk, key: walk.failed(key, CallError("Stray", "again"), NOW),
    "approve": lambda walk, key: walk.decide(key, "approve", "", NOW),
    "reject": lambda walk, key: walk.decide(key, "reject", "no", NOW),
}


@many(40)
@given(plans, orders(), st.sampled_from(sorted(STRAY)))
def test_reports_for_calls_that_do_not_run_change_nothing(case: Case, order: list[int], stray: str) -> None:
    drive, expected = begin(case)
    while True:
        before = copy.deepcopy(drive.observe())
        for node in drive.walk.nodes:
            if node.id not in drive.running:
                assert STRAY[stray](drive.walk, node.key) == []
        assert drive.observe() == before
        if not drive.running:
            break
        drive.finish_next(order)
    assert_equal_to_the_serial_run(drive, expected)


@many(40)
@given(plans, orders())
def test_folding_the_result_onto_the_context_gives_the_same_view(case: Case, order: list[int]) -> None:
    drive, expected = begin(case)
    drive.finish_all(order)
    data = [m for m in case.request["context"] if m["type"] in oracle.DATA_LIKE]
    again = [*data, *drive.walk.context.appended()]
    log = Log([data_message(m) for m in again])
    assert log.problems == []
    assert plain(views(log, drive.prepared)) == expected_views(drive.prepared, expected)
    refolded = oracle.Outcome(entries=oracle.read_messages(again))
    assert plain(expected_views(drive.prepared, refolded)) == expected_views(drive.prepared, expected)


@many(40)
@given(plans, orders())
def test_nothing_that_was_read_is_changed_afterwards(case: Case, order: list[int]) -> None:
    """Values are shared, never changed in place: neither the Request's nor a Call's parameters."""
    request, results = copy.deepcopy(case.request), copy.deepcopy(case.results)
    drive, _ = begin(case)
    drive.finish_all(order)
    assert case.request == request
    assert case.results == results


@pytest.mark.parametrize("seed", range(20))
def test_a_hundred_calls_over_few_paths(seed: int) -> None:
    """Longer than hypothesis likes its examples: collisions far apart in the plan."""
    random = Random(seed)  # noqa: S311 - a plan, not a secret
    plan, results = [], {}
    for position in range(100):
        where = f"†state.{random.choice('abc')}" + f".{random.choice('ab')}" * random.randrange(2)
        method = random.choice(["set", "merge", "push", "assign", "concat"])
        read = random.choice(["†state", "†state.a || †data.z", "†state.b.a || †data.z", "†state.c || †data.z"])
        call: dict[str, Any] = {"_tool": "act", "_outputPath": where, "_outputMethod": method}
        if random.random() < 0.5:
            call["x"] = read
        if random.random() < 0.2:
            call["_errorPath"] = "†data.error"
        plan.append(call)
        fit = {"merge": {"a": position}, "assign": {"b": [position]}, "concat": [position]}
        results[f"{position + 1}:act"] = fit.get(method, position) if random.random() < 0.9 else {"c": {"b": position}}
    context = [{"type": "tool", "tool": tool("act")}, {"type": "data", "z": 0}, {"type": "state", "a": [0]}]
    request = {"context": [*context, {"type": "plan", "plan": plan}]}
    drive = Drive(request, results)
    drive.finish_all(random.sample(range(100), 100))
    assert_equal_to_the_serial_run(drive, oracle.run(request, results))
