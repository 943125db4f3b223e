"""Calls with ``_each`` and ``_when`` on pages, in drawings and tables, and in the approval that a person decides."""

from __future__ import annotations

from typing import Any

from acts.language.messages import read_request
from acts.machines.events import Begin, CallEnded
from acts.machines.plan_run import PlanRun, PlanSetup
from acts.plan.validate import validate_parsed
from acts.tree.records import Capabilities, ContextRef, TreePosition
from acts.views.drawing import draw_mermaid, draw_text
from acts.views.run_views import PlanView
from acts.views.text import describe_call
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
    return PlanRun("r", setup, lambda node: f"key of {node.id}")


def waiting(*calls: Any, **more: Any) -> PlanRun:
    run = plan_run(*calls, approve={"calls": ["refund"]}, **more)
    run.handle(Begin(), NOW)
    run.flush(NOW)
    return run


# -- drawings ------------------------------------------------------------------------------------------


def test_a_drawing_shows_the_list_and_the_condition_of_a_call() -> None:
    prepared = begin(REFUND, CLOSE, context=[ORDERS]).prepared
    text = draw_text(prepared)
    assert "1:refund each †state.orders → †state.refunds" in text
    assert "2:close when †state.open == true → †state.closed" in text
    flowchart = draw_mermaid(prepared)
    assert 'c1["1:refund<br/>each †state.orders<br/>→ †state.refunds"]' in flowchart
    assert 'c2["2:close<br/>when †state.open #61;#61; true<br/>→ †state.closed"]' in flowchart


# -- what runs -----------------------------------------------------------------------------------------


def test_the_page_and_the_status_count_elements_and_say_why_a_call_was_skipped() -> None:
    run = plan_run(REFUND, CLOSE)
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
