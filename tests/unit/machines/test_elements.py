"""A Call with ``_each``: walked, collected into one result, shown on pages and in the approval of a person."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts.language.errors import CallError
from acts.language.messages import read_request
from acts.machines.call_state import call_items
from acts.machines.commands import CountElements, StartCall
from acts.machines.events import Begin, CallEnded
from acts.machines.plan_run import PlanRun, PlanSetup
from acts.machines.walk import Walk
from acts.plan.calls import MAX_ELEMENTS
from acts.plan.validate import validate_parsed, validate_request
from acts.tree.records import Capabilities, ContextRef, TreePosition
from acts.views.run_views import PlanView
from acts.views.text import describe_call
from tests.cases import call, fails, row, state
from tests.property.drive import NOW, Drive, begin, identify

ORDERS = state(orders=[{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 3}])
REFUND = call("refund", "†state.refunds", _each="†state.orders", id="†item.id", note="Order †{item.n} at †{index}")


def refunds(**more: Any) -> Drive:
    return begin(REFUND | more, call("after", "†state.after", x="†state.refunds"), context=[ORDERS])


def test_each_element_is_a_start_of_its_own_with_its_own_parameters() -> None:
    drive = refunds()
    assert drive.running == ["1:refund[0]", "1:refund[1]", "1:refund[2]"]
    assert drive.started["1:refund[1]"] == ({"id": "b", "note": "Order 2 at 1"}, [])
    starts = [c for c in drive.commands if isinstance(c, StartCall)]
    assert [c.call["_id"] for c in starts] == [f"run/1:refund[{i}]" for i in range(3)]
    assert all(set(c.call) == {"_tool", "_outputPath", "id", "note", "_id"} for c in starts)


# what is at †state.x, the code that the Call fails with, words of the message
NO_LISTS = [
    (5, "WrongKind", "_each needs a list; †state.x is a number"),
    ("abc", "WrongKind", "is a string"),
    (None, "WrongKind", "is null"),
    ({"0": 1}, "WrongKind", "is an object"),
    ([0] * (MAX_ELEMENTS + 1), "LimitExceeded", "10,001 elements; at most 10,000"),
]


@pytest.mark.parametrize(("value", "code", "words"), NO_LISTS, ids=lambda x: str(x)[:20])
def test_what_is_no_list_fails_the_call(value: Any, code: str, words: str) -> None:
    drive = begin(call("e", "†state.e", _each="†state.x"), context=[state(x=value)])
    assert drive.state("1:e") == "failed"
    assert (drive.walk.calls[0].error or {})["code"] == code
    assert words in (drive.walk.calls[0].error or {})["message"]


def test_a_group_of_what_is_no_list_names_the_list() -> None:
    drive = begin(call("e", "†state.e", _each={"of": "†state.x", "size": 2}), context=[state(x=5)])
    assert (drive.walk.calls[0].error or {})["message"] == "_each needs a list; †state.x is a number"


def test_an_element_without_a_parameter_fails_alone() -> None:
    drive = begin(call("e", "†state.e", _each=[{"x": 1}, {}, {"x": 3}], x="†item.x"), results={"e": "r"})
    assert drive.running == ["1:e[0]", "1:e[2]"]
    drive.finish_all()
    details = (drive.walk.calls[0].error or {})["details"]
    message = "there is no value at †item.x"
    assert details == {"errors": [{"index": 1, "code": "UnresolvedReference", "message": message}],
                       "results": ["r", None, "r"]}  # fmt: skip


def test_a_cancelled_walk_starts_no_more_elements_and_ends_with_those_that_run() -> None:
    drive = begin(call("e", "†state.e", _each=list(range(9))), config={"maxParallel": 3})
    assert drive.walk.startable == 6
    drive.finish("1:e[0]")
    drive.perform(drive.walk.cancel(NOW))
    assert drive.running == ["1:e[1]", "1:e[2]", "1:e[3]"]
    drive.finish("1:e[1]")
    cancelled = CallError("cancelled", "stopped")
    for id_ in ("1:e[2]", "1:e[3]"):
        drive.perform(drive.walk.failed(id_, cancelled, NOW))
    assert drive.state("1:e") == "cancelled"
    assert drive.final_statuses == ["cancelled"]
    assert call_items(drive.walk.calls)[0]["elements"] == {"total": 9, "completed": 2, "failed": 0, "running": 0}


def test_a_budget_is_asked_before_a_call_is_made_for_all_elements() -> None:
    request = row("", [call("e", "†state.e", _each=[1, 2, 3]), call("f", "†state.f", _each=[1])])["request"]
    walk = Walk(validate_request(request), identify)
    walk.counts_elements = True
    first, second = walk.begin(NOW)
    assert isinstance(first, CountElements)
    assert (first.node.id, first.more) == ("1:e", 2)
    assert isinstance(second, StartCall)  # one element is the Call itself
    assert [c.node.id for c in walk.allow_elements(walk.nodes[0].key, NOW) if isinstance(c, StartCall)] == [
        f"1:e[{i}]" for i in range(3)
    ]
    walk = Walk(validate_request(request), identify)
    walk.counts_elements = True
    walk.begin(NOW)
    walk.allow_elements(walk.nodes[0].key, NOW, CallError("BudgetExceeded", "no more calls"))
    assert walk.calls[0].error == {"code": "BudgetExceeded", "message": "no more calls"}


def test_a_walk_goes_on_in_the_middle_of_its_elements() -> None:
    drive = begin(call("e", "†state.e", _each=list(range(7)), x="†item"), config={"maxParallel": 2})
    drive.results = {f"1:e[{i}]": fails() if i == 2 else {"n": i} for i in range(7)}
    drive.perform(drive.walk.advance(NOW, draining=True))
    drive.finish_all()
    snapshot = drive.walk.snapshot()
    elements = {"total": 7, "started": 2, "results": [{"n": 0}, {"n": 1}]}
    assert json.loads(json.dumps(snapshot.to_json()))["calls"] == {"0": {"stage": "collecting", "elements": elements}}
    drive.carry_over()
    drive.perform(drive.walk.advance(NOW, draining=True))
    drive.finish_all()
    drive.carry_over()
    drive.finish_all()
    details = (drive.walk.calls[0].error or {})["details"]
    assert [e["index"] for e in details["errors"]] == [2]
    assert details["results"] == [{"n": 0}, {"n": 1}, None, *({"n": i} for i in range(3, 7))]
    assert {p["x"] for p, _ in drive.started.values()} == set(range(7))


def test_elements_that_were_postponed_start_again_and_first_in_the_next_run_too() -> None:
    drive = begin(call("e", "†state.e", _each=[0, 1, 2, 3], x="†item"), config={"maxParallel": 3}, results={"e": "r"})
    drive.perform(drive.walk.advance(NOW, draining=True))
    for index in (2, 1):
        id_ = f"1:e[{index}]"
        drive.running.remove(id_)
        del drive.started[id_]
        drive.perform(drive.walk.postponed(id_, NOW))
    assert drive.walk.startable == 0
    drive.perform(drive.walk.advance(NOW, draining=False))
    assert drive.running == ["1:e[0]", "1:e[1]", "1:e[2]"]
    drive.perform(drive.walk.advance(NOW, draining=True))
    drive.running.remove("1:e[1]")
    del drive.started["1:e[1]"]
    drive.perform(drive.walk.postponed("1:e[1]", NOW))
    drive.finish_all()
    elements = {"total": 4, "started": 3, "results": ["r", None, "r"], "postponed": [1]}
    assert json.loads(json.dumps(drive.walk.snapshot().to_json()))["calls"]["0"]["elements"] == elements
    drive.carry_over()
    assert drive.running == ["1:e[1]", "1:e[3]"]
    drive.finish_all()
    assert drive.walk.context.log.state() == {"e": ["r"] * 4}


LISTED = state(orders=[{"id": "a"}, {"id": "b"}, {"id": "c"}], open=False)
LISTED_REFUND = call("refund", "†state.refunds", _each="†state.orders", order="†item.id")
CLOSE = call("close", "†state.closed", _when="†state.open == true", of="†state.refunds")


def plan_run(*calls: Any, context: Any = LISTED, **config: Any) -> PlanRun:
    messages = context if isinstance(context, list) else [context]
    raw = {**row("one", list(calls), context=messages)["request"], "config": config}

    prepared = validate_parsed(read_request(raw), {}, {})
    source = ContextRef(workflowId="r", runId="run", messageCount=2)
    setup = PlanSetup(raw, prepared, Capabilities(), TreePosition(), source)
    return PlanRun("r", setup, lambda node: f"key of {node.id}")


def waiting(*calls: Any, **more: Any) -> PlanRun:
    run = plan_run(*calls, approve={"calls": ["refund"]}, **more)
    run.handle(Begin(), NOW)
    run.flush(NOW)
    return run


def test_the_page_and_the_status_count_elements_and_say_why_a_call_was_skipped() -> None:
    run = plan_run(LISTED_REFUND, CLOSE)
    run.handle(Begin(), NOW)
    run.handle(CallEnded("1:refund[1]", "B"), NOW)
    assert "`1:refund` (1 of 3 elements done, 2 running)" in PlanView(run).page()
    refund, _ = PlanView(run).status()["calls"]
    assert refund["elements"] == {"total": 3, "completed": 1, "failed": 0, "running": 2}
    assert describe_call(refund) == "1 of 3 elements done, 2 running"
    for index in (0, 2):
        run.handle(CallEnded(f"1:refund[{index}]", "x"), NOW)
    _, close = PlanView(run).status()["calls"]
    assert describe_call(close) == "_when does not hold: †state.open == true"
    assert "`2:close`: `_when does not hold: †state.open == true`" in PlanView(run).page()


def test_the_worker_of_an_attempt_is_not_blamed_for_the_failure_of_the_one_before() -> None:
    running = {"attempt": 2, "lastFailure": "[busy] not yet", "worker": "7@b"}
    assert describe_call(running) == "attempt 2, at 7@b, after: [busy] not yet"
    waiting = {**running, "nextTry": "2026-01-31T12:00:00Z", "worker": "7@a"}
    assert describe_call(waiting) == "attempt 2, next try at 12:00:00 UTC, after: [busy] not yet, at 7@a"


def test_one_approval_for_all_elements_says_how_many_and_shows_the_list() -> None:
    run = waiting(LISTED_REFUND)
    (wait,) = run.approvals.pending
    assert (wait.call, wait.about) == (
        "1:refund",
        {"elements": 3, "activity": "row.refund", "like": wait.about["like"]},
    )
    page = PlanView(run).page()
    assert "`1:refund` for each of 3 elements of `r`" in page
    assert '"_each"' in page
    shown = PlanView(run).subjects(10_000)["waits"][0]["subject"]
    assert shown["with"]["_each"] == LISTED["state"]["orders"]
    assert shown["with"]["order"] == "†item.id"
