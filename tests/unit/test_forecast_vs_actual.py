"""Forecast and actual side by side, and what the estimates are made of."""

from __future__ import annotations

from typing import Any

from acts.simulation.forecast_vs_actual import (
    actual_figures,
    compare,
    compare_known,
    expected_ranges,
    sum_tables,
)
from acts.simulation.simulate import simulate
from tests.unit.test_simulate import WEATHER, call, request

ACTUAL = {"calls": 3, "requests": 1, "tokens": 500, "cost": 0.01, "actions": 4}


def test_each_figure_stands_beside_what_was_expected_of_it() -> None:
    forecast = simulate(request(WEATHER, model="scripted:x"))
    table = compare(expected_ranges(forecast), ACTUAL)
    assert list(table) == ["calls", "requests", "tokens", "cost", "actions"]
    assert table["calls"] == {"expected": {"min": 3, "max": 3}, "actual": 3}
    assert table["requests"] == {"expected": {"min": 1, "max": 1}, "actual": 1}
    assert table["actions"] == {"expected": {"min": 5, "max": 7}, "actual": 4}
    assert table["cost"] == {"expected": None, "actual": 0.01}
    assert compare(expected_ranges(forecast), {})["actions"] == {"expected": forecast["actions"], "actual": None}
    assert "cost" not in compare_known(expected_ranges(forecast), ACTUAL)  # nobody knows the price
    assert compare_known(expected_ranges(forecast), {"calls": 2}) == {
        "calls": {"expected": {"min": 3, "max": 3}, "actual": 2}
    }


def test_what_a_run_came_to_is_told_by_its_result() -> None:
    states = ("completed", "detached", "failed", "skipped", "rejected", "cancelled", "pending")
    result: dict[str, Any] = {
        "calls": [{"state": s} for s in states],
        "usage": {"requests": 2, "inputTokens": 30, "outputTokens": 4, "cost": 0.5},
    }
    assert actual_figures(result, 7) == {"calls": 3, "requests": 2, "tokens": 34, "cost": 0.5, "actions": 7}
    two = {"a": {"calls": [{"state": "completed"}]}, "b": {"calls": []}}
    assert actual_figures({**result, "instances": two})["calls"] == 4
    for cut in ({"omitted": {}, "calls": []}, {"instances": {"a": "completed"}}, {"instances": {"a": {}}}):
        assert actual_figures({**result, **cut})["calls"] is None


def test_the_plans_of_an_agent_are_added_up_as_far_as_all_of_them_tell() -> None:
    one = {
        "calls": {"expected": {"min": 1, "max": 2}, "actual": 1},
        "cost": {"expected": {"min": 0, "max": 1}, "actual": 0.1},
    }
    other = {"calls": {"expected": {"min": 3, "max": 3}, "actual": 4}}
    assert sum_tables(one, other) == {"calls": {"expected": {"min": 4, "max": 5}, "actual": 5}}


def test_the_calls_of_all_combinations_count_and_of_all_instances() -> None:
    plan = [call("do", 1, "†state.a || †state.b"), call("do", "†state.b", "†state.c")]
    people = [{"type": "state", "_instance": f"person {i}", "state": {"name": "x"}} for i in range(3)]
    assert expected_ranges(simulate(request(plan)))["calls"] == {"min": 1, "max": 2}
    assert expected_ranges(simulate(request(plan, *people)))["calls"] == {"min": 3, "max": 6}
    many = [call("do", 1, f"†state.a{i} || †state.b{i}") for i in range(9)]
    assert expected_ranges(simulate(request(many)))["calls"] == {"min": 0, "max": 9}


def test_what_waits_for_somebody_to_provide_it_may_run() -> None:
    plan = [call("do", 1, "†state.a"), call("think", "†input.name", "†state.b"), call("do", "†state.b", "†state.c")]
    expected = expected_ranges(simulate(request(plan, model="scripted:x", missing="wait")))
    assert (expected["calls"], expected["requests"]) == ({"min": 1, "max": 3}, {"min": 0, "max": 1})
    # the run's start and the first Call; all three, beside the message that is provided
    assert expected["actions"] == {"min": 3, "max": 10}


def test_tokens_are_those_of_the_requests_that_an_outcome_leads_to() -> None:
    plan = [call("do", 1, "†state.a || †state.b"), call("think", "†state.b", "†state.c")]
    result = simulate(request(plan, {"role": "user", "content": "x" * 4000}, model="scripted:x"))
    assert result["tokens"]["min"] == 0
    assert 1000 < result["tokens"]["max"] < 2000
    assert simulate(request([call("do", 1, "†state.a")]))["tokens"] == {"min": 0, "max": 0}


def test_what_may_change_something_outside_is_named() -> None:
    plan = [call("do", 1, "†state.a"), call("think", 1, "†state.b"), call("do", 1), call("ask", 1, "†state.c"),
            call("think", 1, "†state.d", _output="x")]  # fmt: skip
    assert simulate(request(plan, model="scripted:x"))["outside"] == ["1:do", "3:do", "4:ask"]
