"""Billable actions: the range of a plan, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from acts.plan.validate import validate_request
from acts.simulation.simulate import simulate, simulate_prepared
from tests.unit.test_simulate import call, request

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


def test_what_is_missing_is_provided_at_once_or_one_by_one() -> None:
    plan = [call("do", "†data.x", "†state.a"), call("do", "†data.y", "†state.b")]
    assert actions(plan, missing="wait") == (1, 5 + 2 * WAIT)


def test_the_children_of_instances_are_counted_with_all_they_do() -> None:
    plan = [call("do", 1, "†state.a"), call("do", "†state.a", "†state.b")]
    assert actions(plan, *people(10)) == (1 + 10 * (2 + 2),) * 2
    many = 1 + 3 * 2 + 10 * 2
    assert actions(plan, *people(10), instancesPerChild=4) == (many, many)
    assert simulate(request(plan, *people(10), instancesPerChild=4))["runs"] == 3
