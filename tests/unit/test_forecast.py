"""Forecast and actual side by side, and what the estimates are made of."""

from __future__ import annotations

from typing import Any

import pytest

from acts.plan.validate import validate_request
from acts.simulation.forecast_vs_actual import (
    actual_figures,
    compare,
    compare_known,
    expected_ranges,
    relative_error,
    sum_tables,
)
from acts.simulation.simulate import simulate, simulate_prepared
from tests.unit.test_simulate import WEATHER, call, request

ACTUAL = {"calls": 3, "requests": 1, "tokens": 500, "cost": 0.01, "events": 20, "bytes": 9000}


def test_each_figure_stands_beside_what_was_expected_of_it() -> None:
    forecast = simulate(request(WEATHER, model="scripted:x"))
    table = compare(expected_ranges(forecast), ACTUAL)
    assert list(table) == ["calls", "requests", "tokens", "cost", "events", "bytes"]
    assert table["calls"] == {"expected": {"min": 3, "max": 3}, "actual": 3}
    assert table["requests"] == {"expected": {"min": 1, "max": 1}, "actual": 1}
    assert table["bytes"] == {"expected": forecast["bytes"], "actual": 9000}
    assert table["cost"] == {"expected": None, "actual": 0.01}
    assert compare(expected_ranges(forecast), {})["events"] == {"expected": forecast["events"], "actual": None}
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
    assert actual_figures(result) == {"calls": 3, "requests": 2, "tokens": 34, "cost": 0.5}
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
    found = expected_ranges(simulate(request(plan, model="scripted:x", missing="wait")))
    assert (found["calls"], found["requests"]) == ({"min": 1, "max": 3}, {"min": 0, "max": 1})
    assert found["events"]["min"] + 12 <= found["events"]["max"]


@pytest.mark.parametrize(
    ("low", "high", "actual", "off"),
    [
        (8, 10, 9, 0.0),
        (8, 10, 12.5, 0.2),
        (8, 10, 6.4, -0.25),
        (0, 0, 0, 0.0),
        (None, None, 1, None),
        (1, 2, None, None),
    ],
)
def test_how_far_off_a_forecast_is(low: Any, high: Any, actual: Any, off: Any) -> None:
    expected = None if low is None else {"min": low, "max": high}
    found = relative_error({"expected": expected, "actual": actual})
    assert found == (off if off is None else pytest.approx(off))


def test_larger_data_makes_a_larger_history() -> None:
    plan = [call("do", "†input.text", "†state.a"), call("do", "†state.a", "†state.b")]
    small, large = (
        simulate(request(plan, {"type": "input", "input": {"text": "x" * n}}))["bytes"]["min"] for n in (10, 10_010)
    )
    assert large - small == 2 * 10_000  # in the Request, and in the Call that reads it


def test_what_a_call_wrote_weighs_in_those_that_read_it() -> None:
    wide = [call("getPerson", to=f"†state.people.p{i}") for i in range(20)]
    alone = simulate(request([*wide, call("do", 1, "†state.all")]))["bytes"]["min"]
    reading = simulate(request([*wide, call("do", "†state.people", "†state.all")]))["bytes"]["min"]
    assert reading - alone > 20 * len('"p1":{"name":"sample"}')


def test_a_result_is_weighed_up_to_the_size_that_it_is_trimmed_to() -> None:
    plan = [call("do", 1, "†state.a")]
    big = simulate(request(plan, {"type": "state", "state": {"text": "x" * 1_900_000}}))["bytes"]["min"]
    assert 1_900_000 + 1_572_864 < big < 1_900_000 + 1_600_000


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


def events(plan: Any, mode: str = "eager", **config: Any) -> tuple[int, int]:
    found = simulate(request(plan, mode=mode, **config))["events"]
    return found["min"], found["max"]


def test_a_decision_costs_four_events_by_signal_and_five_by_update_and_a_deadline_two_more() -> None:
    plan = [call("do", 1, "†state.a")]
    (own, _), sure = events(plan), events(plan, "lazy", approve={"plan": False})
    assert sure == (own, own)
    for mode, config in (("lazy", {}), ("eager", {"plan": True}), ("eager", {"calls": True})):
        assert events(plan, mode, approve=config) == (own + 4, own + 5)
        # a timer that fires is a decision, of two events and a task; an update beside a timer is of four and a task
        assert events(plan, mode, approve={**config, "timeout": "1h"}) == (own + 5, own + 7)


def test_decisions_about_calls_side_by_side_may_come_at_once_or_one_by_one() -> None:
    plan = [call("do", 1, f"†state.a{i}") for i in range(4)]
    (low, _), (least, most) = events(plan), events(plan, approve={"calls": True})
    one_by_one = 5 + 4 * (3 + 3) + 4 * 5  # the run; four activities, each with a task of its own; four updates
    assert (least, most) == (low + 4 + 3, one_by_one)


def test_the_run_of_an_agents_plan_reports_what_waits_and_is_approved_as_a_whole_above() -> None:
    plan = [call("do", 1, "†state.a"), call("do", 2, "†state.b")]
    for mode in ("eager", "lazy"):
        asked, free = (
            simulate_prepared(validate_request(request(plan, mode=mode, **config)), handed=900)["events"]
            for config in ({"approve": {"calls": True}}, {})
        )
        assert free["max"] == events(plan)[1]
        # at least: both signals in one task, a report that two wait and one that none does; at most: two
        # updates, and four reports, each of which comes back in a task of its own
        assert (asked["min"] - free["min"], asked["max"] - free["max"]) == (2 + 3 + 4, 2 * 5 + 4 * 5)


def test_what_an_agent_hands_over_weighs_instead_of_the_request() -> None:
    prepared = validate_request(request([call("do", 1, "†state.a")], {"type": "state", "state": {"text": "x" * 5000}}))
    small, large = (simulate_prepared(prepared, handed=n)["bytes"]["min"] for n in (1_000, 11_000))
    assert large - small == 10_000
    assert small < 5_000 < simulate_prepared(prepared)["bytes"]["min"]
