"""Calls with ``_each`` and ``_when`` on pages, in drawings and tables, and in the approval that a person decides."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.errors import CallError
from acts.language.request_reader import read_request
from acts.machines.call_report import MAX_RESULTS_SHOWN
from acts.machines.events import Begin, CallCompleted, CallFailed, DecisionReceived
from acts.machines.plan_run import PlanRun
from acts.machines.plan_setup import PlanSetup
from acts.machines.tick_results import TickResults
from acts.plan.validate import validate_parsed
from acts.tree.records import Capabilities, ContextRef, TreePosition
from acts.views.mermaid import mermaid
from acts.views.plan_drawing import draw_waves
from acts.views.run_views import PlanView
from acts.views.state_marks import element_counts_text
from cli.render.pending_view import approval_lines, parameter_lines
from cli.render.tables import describe_call
from cli.render.terminal_plan import render_plan
from tests.cases import call, row, state
from tests.property.drive import NOW, begin

ORDERS = state(orders=[{"id": "a"}, {"id": "b"}, {"id": "c"}], open=False)
REFUND = call("refund", "†state.refunds", _each="†state.orders", order="†item.id")
CLOSE = call("close", "†state.closed", _when="†state.open == true", of="†state.refunds")


def plan_run(*calls: Any, context: Any = ORDERS, **config: Any) -> PlanRun:
    raw = {**row("one", list(calls), context=[context])["request"], "config": config}
    prepared = validate_parsed(read_request(raw), {}, {})
    source = ContextRef(workflowId="r", runId="run", messageCount=2)
    setup = PlanSetup(raw, prepared, Capabilities(), TreePosition(), source)
    return PlanRun("r", setup, lambda node: f"key of {node.id}", lambda _: None)


def waiting(*calls: Any, **more: Any) -> PlanRun:
    run = plan_run(*calls, approve={"calls": ["refund"]}, **more)
    run.handle(Begin(), NOW)
    run.flush(NOW)
    return run


# -- drawings ------------------------------------------------------------------------------------------


def test_a_drawing_shows_the_list_and_the_condition_of_a_call() -> None:
    prepared = begin(REFUND, CLOSE, context=[ORDERS]).prepared
    first, second = (wave["first"][0] for wave in draw_waves(prepared)["waves"])
    assert (first["each"], second["when"]) == ("†state.orders", "†state.open == true")
    text = render_plan(draw_waves(prepared), 200)
    assert "1:refund each †state.orders → †state.refunds" in text
    assert "2:close when †state.open == true → †state.closed" in text
    flowchart = mermaid(prepared)
    assert 'c1["1:refund<br/>each †state.orders<br/>→ †state.refunds"]' in flowchart
    assert 'c2["2:close<br/>when †state.open #61;#61; true<br/>→ †state.closed"]' in flowchart


def test_a_drawing_counts_the_values_of_a_literal_list() -> None:
    prepared = begin(call("refund", "†state.r", _each=["a", "b"], order="†item")).prepared
    assert draw_waves(prepared)["waves"][0]["first"][0]["each"] == "of 2 values"


# -- what runs -----------------------------------------------------------------------------------------


def test_the_page_and_the_status_count_elements_and_say_why_a_call_was_skipped() -> None:
    run = plan_run(REFUND, CLOSE)
    run.handle(Begin(), NOW)
    run.handle(CallCompleted("1:refund[1]", "B"), NOW)
    assert "`1:refund` (1 of 3 elements done, 2 running)" in PlanView(run).page()
    refund, _ = PlanView(run).status()["calls"]
    assert refund["elements"] == {"total": 3, "completed": 1, "failed": 0, "running": 2}
    assert describe_call(refund) == "1 of 3 elements done, 2 running"
    for index in (0, 2):
        run.handle(CallCompleted(f"1:refund[{index}]", "x"), NOW)
    _, close = PlanView(run).status()["calls"]
    assert describe_call(close) == "_when does not hold: †state.open == true"
    assert "`2:close` was skipped: `_when does not hold: †state.open == true`" in PlanView(run).page()


def test_elements_that_no_worker_has_taken_are_not_counted_as_calls() -> None:
    run = plan_run(REFUND, CLOSE)
    run.handle(Begin(), NOW)
    run.queue_watch.waiting_calls.update(f"1:refund[{i}]" for i in range(3))
    assert "**running** — 1 running, 1 pending" in PlanView(run).page()


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"total": 10_000, "completed": 3, "failed": 1, "running": 0}, "3 of 10,000 elements done, 1 failed"),
        (None, ""),
        ({"total": "all"}, ""),
    ],
)
def test_counts_as_text(counts: Any, text: str) -> None:
    assert element_counts_text(counts) == text


def test_an_agents_errors_have_the_results_of_all_elements_and_its_calls_and_model_the_first_failures() -> None:
    count = MAX_RESULTS_SHOWN + 1
    run = plan_run(call("refund", "†state.refunds", _each=list(range(count)), order="†item"))
    run.handle(Begin(), NOW)
    run.handle(CallFailed("1:refund[0]", CallError("Declined", "no")), NOW)
    for index in range(1, count):
        run.handle(CallCompleted(f"1:refund[{index}]", index), NOW)
    ticks = TickResults()
    ticks.begin(run.walk.nodes, 1)
    (shown,) = ticks.record(PlanView(run).part_result(0), 1)
    assert shown["error"]["details"] == {"errors": [{"index": 0, "code": "Declined", "message": "no"}]}
    assert ticks.calls[0]["error"] == shown["error"]
    assert ticks.errors[0]["details"]["results"] == [None, *range(1, count)]


# -- the approval --------------------------------------------------------------------------------------


def test_one_approval_for_all_elements_says_how_many_and_shows_the_list() -> None:
    run = waiting(REFUND)
    (wait,) = run.approvals.pending
    assert (wait.call, wait.about) == ("1:refund", {"elements": 3})
    page = PlanView(run).page()
    assert "`1:refund` for each of 3 elements of `r`" in page
    assert '"_each"' in page
    (shown,) = PlanView(run).pending_parameters(10_000)["calls"]
    assert shown["with"]["_each"] == ORDERS["state"]["orders"]
    assert shown["with"]["order"] == "†item.id"


def test_a_long_list_is_shown_by_its_length() -> None:
    run = waiting(REFUND, context=state(orders=[{"id": f"order {i}"} for i in range(1000)]))
    assert '"_each": "… (1,000 elements, 2' in PlanView(run).page()


def test_the_terminal_shows_the_count_and_the_list() -> None:
    run = waiting(REFUND)
    (shown,) = PlanView(run).pending_parameters(10_000)["calls"]
    (wait,) = run.approvals.pending
    wait.about.update({"with": shown["with"]})  # type: ignore[attr-defined]
    assert "1:refund of r for each of 3 elements (version 1)" in approval_lines("r", [wait])[0]
    assert parameter_lines(wait, 100) == ['order  "†item.id"', '_each  [{"id": "a"}, {"id": "b"}, {"id": "c"}]']


def test_one_decision_starts_all_elements_and_a_rejection_none() -> None:
    run = waiting(REFUND)
    started = run.handle(DecisionReceived({"call": "1:refund"}, "approve"), NOW)
    keys = [c.node.id for c in started if hasattr(c, "node")]
    assert keys == ["1:refund[0]", "1:refund[1]", "1:refund[2]"]
    run = waiting(REFUND)
    run.handle(DecisionReceived({"call": "1:refund", "reason": "no"}, "reject"), NOW)
    (item,) = PlanView(run).status()["calls"]
    assert (item["state"], run.finished) == ("rejected", "rejected")
    assert item["error"] == CallError("rejected", "no").to_json()
