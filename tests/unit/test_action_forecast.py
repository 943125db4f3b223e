"""Billable actions: the range of a plan, case by case, and the count of a run."""

from __future__ import annotations

from typing import Any

import pytest

from acts.plan.validate import validate_request
from acts.simulation.billable_actions import ACTIONS, ActionCount
from acts.simulation.simulate import simulate, simulate_prepared
from tests.unit.test_simulate import call, request, tool

LOCAL = {"type": "tool", "tool": {"quick": {**tool(x={}), "properties": {
    **tool(x={})["properties"], "_options": {"const": {"local": True}}}}}}  # fmt: skip
REGISTERED = {"type": "tool", "tool": "Tool.greet"}
GREET = {"greet": {"type": "object", "properties": {"_outputPath": {"type": "string"}}}}
ONE = [call("do", 1, "†state.a")]


def people(count: int) -> list[dict[str, Any]]:
    return [{"type": "state", "_instance": f"person {i}", "state": {"name": "x"}} for i in range(count)]


FOUND = (1, 3)
"""What a root takes to be found: a local activity, which it shares, and two changes of its phase."""
WAIT = 2
"""Changes of the phase of a root for each wait."""


def actions(plan: Any, *context: Any, child: bool = False, mode: str = "eager", **config: Any) -> tuple[int, int]:
    """The range, without what every root takes to be found."""
    low, high = all_actions(plan, *context, child=child, mode=mode, **config)
    return (low, high) if child else (low - FOUND[0], high - FOUND[1])


def all_actions(plan: Any, *context: Any, child: bool = False, mode: str = "eager", **config: Any) -> tuple[int, int]:
    prepared = validate_request(request(plan, *context, model="scripted:x", mode=mode, **config))
    bounds = simulate_prepared(prepared, child=child)["actions"]
    return bounds["min"], bounds["max"]


def unforeseen(plan: Any, *context: Any, child: bool = False, **config: Any) -> list[str]:
    prepared = validate_request(request(plan, *context, model="scripted:x", **config))
    names: list[str] = simulate_prepared(prepared, child=child)["unforeseen"]
    return names


# -- the range -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "bounds"),
    [
        ([], (1, 1)),  # the start of the run
        (ONE, (2, 2)),
        ([call("think", 1, "†state.a")], (2, 2)),
        ([call("think", 1, "†state.a", _output="x")], (1, 1)),  # answered already
        ([call("ask", 1, "†state.a")], (3, 3)),  # at least: a child's start takes two
        ([call("do", 1)], (4, 4)),  # in the background: a child, and its activity
        ([call("ask", 1)], (5, 5)),
        ([call("do", 1, "†state.a || †state.b"), call("think", "†state.b", "†state.c")], (2, 3)),
        ([call("do", 1, "†state.a", _errorPath="†state.e"), call("do", "†state.e", "†state.c")], (2, 3)),
    ],
)
def test_a_call_takes_an_action_for_each_start(plan: Any, bounds: Any) -> None:
    assert actions(plan) == bounds


def test_a_child_takes_one_more_action_to_start_and_looks_nothing_up() -> None:
    assert actions(ONE, child=True) == (3, 3)


def test_local_activities_share_an_action_within_a_workflow_task() -> None:
    plan = [call("quick", 1, f"†state.a{i}") for i in range(5)]
    assert all_actions(plan, LOCAL) == (2, 1 + 6 + 2), "with the one that asks for search attributes"
    assert all_actions([*plan, *ONE], LOCAL) == (3, 2 + 6 + 2)


def test_what_the_worker_serves_is_looked_up_by_a_local_activity() -> None:
    raw = {"context": [REGISTERED, {"type": "plan", "plan": [call("greet", to="†state.a")]}]}
    assert simulate(raw, GREET, ["greet"])["actions"] == {"min": 3, "max": 2 + 2 + 2}


def test_the_queues_of_tools_are_checked_at_the_start_and_perhaps_later() -> None:
    meta = {**tool(x={})["properties"], "_options": {"const": {"taskQueue": "far"}}}
    far = {"type": "tool", "tool": {"far": {**tool(x={}), "properties": meta}}}
    assert actions([call("far", 1, "†state.a")], far) == (2, 2 + 2)


def test_a_definition_that_is_loaded_upfront_takes_an_activity() -> None:
    assert actions([call("ask", 1, "†state.a")], resolve="upfront") == (4, 4)


@pytest.mark.parametrize(
    ("config", "more"),
    [
        ({"approve": {"plan": True}}, (1, 1)),
        ({"approve": {"calls": True}}, (1, 1)),
        # the timer alone decides, or somebody does before
        ({"approve": {"calls": True, "timeout": "1h"}}, (1, 2)),
        ({"approve": {"plan": True, "calls": True, "timeout": "1h"}}, (2, 4)),
        ({"mode": "lazy"}, (1, 1)),
        ({"mode": "lazy", "approve": {"plan": False}}, (0, 0)),
    ],
)
def test_a_decision_takes_an_action_and_a_deadline_another(config: Any, more: Any) -> None:
    assert actions(ONE, **config) == (2 + more[0], 2 + more[1] + WAIT * more[0])


def test_an_agent_waits_for_the_approval_of_its_plan_and_the_plan_for_those_of_its_calls() -> None:
    assert actions(ONE, child=True, mode="lazy") == (3, 3)
    assert actions(ONE, child=True, approve={"calls": True}) == (4, 4)


def test_what_is_missing_is_provided_at_once_or_one_by_one() -> None:
    plan = [call("do", "†data.x", "†state.a"), call("do", "†data.y", "†state.b")]
    assert actions(plan, missing="wait") == (1, 5 + 2 * WAIT)


def test_the_children_of_instances_are_counted_with_all_they_do() -> None:
    plan = [call("do", 1, "†state.a"), call("do", "†state.a", "†state.b")]
    assert actions(plan, *people(10)) == (1 + 10 * (2 + 2),) * 2
    many = 1 + 3 * 2 + 10 * 2
    assert actions(plan, *people(10), instancesPerChild=4) == (many, many + 3), "each may wait for idle permits once"
    assert simulate(request(plan, *people(10), instancesPerChild=4))["runs"] == 3


def test_local_activities_share_an_action_only_within_one_child() -> None:
    plan = [call("quick", 1, f"†state.a{i}") for i in range(3)]
    assert actions(plan, LOCAL, *people(4)) == (1 + 4 * (2 + 1), 1 + 4 * (2 + 3))
    assert actions(plan, LOCAL, *people(4), instancesPerChild=3) == (1 + 2 * (2 + 1), 1 + 2 * 2 + 4 * 3 + 1)


def test_calls_that_name_an_instance_are_those_of_its_child() -> None:
    plan = [call("do", 1, "†state.a", _instance=f"person {i % 2}") for i in range(4)] + [call("do", 1, "†state.g")]
    assert actions(plan, *people(3)) == (1 + 1 + 2 * 2 + 4,) * 2


def test_a_long_run_may_continue_as_new() -> None:
    plan = [call("do", 1, f"†state.a{i}") for i in range(1500)]
    assert actions(plan) == (1501, 1503)


@pytest.mark.parametrize(
    ("plan", "context", "config", "child"),
    [
        ([call("ask", 1, "†state.a")], [], {}, False),
        (ONE, people(2), {"approve": {"calls": True}}, False),
        ([call("think", 1, "†state.a")], people(2), {"budget": {"requests": 5}}, False),
        ([call("think", 1, "†state.a")], [], {"budget": {"tokens": 500}}, True),
        (ONE, [], {"budget": {"calls": 5}}, True),
    ],
)
def test_what_other_runs_do_or_send_is_unforeseen(plan: Any, context: Any, config: Any, *, child: bool) -> None:
    assert "actions" in unforeseen(plan, *context, child=child, **config)


@pytest.mark.parametrize(
    ("plan", "context", "config", "child"),
    [
        (ONE, people(2), {"budget": {"requests": 5}}, False),  # nobody asks a model
        ([call("think", 1, "†state.a")], [], {"budget": {"requests": 5}}, False),  # a root keeps its own budget
        (ONE, [], {"approve": {"calls": True}}, True),
    ],
)
def test_what_a_run_does_by_itself_is_foreseen(plan: Any, context: Any, config: Any, *, child: bool) -> None:
    assert unforeseen(plan, *context, child=child, **config) == []


# -- the count -----------------------------------------------------------------


def test_a_run_counts_what_it_does_and_what_its_children_report() -> None:
    count = ActionCount()
    count.record("workflow")
    count.record("activity", 3)
    child = ActionCount()
    child.record("childWorkflow")
    child.record("timer")
    count.add(child.to_json())
    count.add(None)  # a child that reported nothing was started all the same
    assert count.total == 1 + 3 + (2 + 1) + 2
    assert count.to_json() == {"workflow": 1, "activity": 3, "childWorkflow": 2, "timer": 1}


def test_a_run_that_continues_as_new_goes_on_counting() -> None:
    before, after = ActionCount(), ActionCount()
    before.record("workflow")
    after.add(before.to_json())
    after.record("continueAsNew")
    assert after.total == 2


def test_local_activities_that_end_in_one_task_count_once() -> None:
    count = ActionCount()
    for task in (3, 3, 3, 9, 9, 12):
        count.record_local_activity(task)
    assert count.total == 3


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match="known: workflow"):
        ActionCount().record("query")
    assert "query" not in ACTIONS
