"""Forecast and actual side by side, and what the estimates are made of."""

from __future__ import annotations

from typing import Any

import pytest

from acts.forecast import compare, off_by
from acts.simulate import simulate
from tests.unit.test_simulate import WEATHER, call, request

ACTUAL = {"calls": 3, "requests": 1, "tokens": 500, "events": 20, "bytes": 9000}


def test_each_figure_stands_beside_what_was_expected_of_it() -> None:
    forecast = simulate(request(WEATHER, model="scripted:x"))
    table = compare(forecast, ACTUAL)
    assert list(table) == ["calls", "requests", "tokens", "events", "bytes"]
    assert table["calls"] == {"expected": {"min": 3, "max": 3}, "actual": 3}
    assert table["requests"] == {"expected": {"min": 1, "max": 1}, "actual": 1}
    assert table["bytes"] == {"expected": forecast["bytes"], "actual": 9000}
    assert compare(forecast, {})["events"] == {"expected": forecast["events"], "actual": None}


def test_the_calls_of_all_combinations_count_and_of_all_instances() -> None:
    plan = [call("do", 1, "†state.a || †state.b"), call("do", "†state.b", "†state.c")]
    people = [{"type": "state", "_instance": f"person {i}", "state": {"name": "x"}} for i in range(3)]
    assert compare(simulate(request(plan)), {})["calls"]["expected"] == {"min": 1, "max": 2}
    assert compare(simulate(request(plan, *people)), {})["calls"]["expected"] == {"min": 3, "max": 6}
    many = [call("do", 1, f"†state.a{i} || †state.b{i}") for i in range(9)]
    assert compare(simulate(request(many)), {})["calls"]["expected"] == {"min": 0, "max": 9}


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
    found = off_by({"expected": expected, "actual": actual})
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


def test_a_decision_about_the_whole_plan_is_in_the_forecast_of_events() -> None:
    plan = [call("do", 1, "†state.a")]
    eager, lazy, sure = (
        simulate(request(plan, mode=mode, **config))["events"]["min"]
        for mode, config in (("eager", {}), ("lazy", {}), ("lazy", {"approve": {"plan": False}}))
    )
    assert (lazy - eager, sure) == (5, eager)
