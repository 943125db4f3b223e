"""The simulation of conditions, of calls that are made once per element, and of outcomes that are subsets."""

from __future__ import annotations

from typing import Any

import pytest

from acts.plan.validate import validate_request
from acts.simulation.simulate import simulate
from acts.views.approval_page import page, simulate_for_page
from tests.unit.test_simulate import STRING, TOOLS, call, combinations, problems, request, tool

STATE = {"type": "state", "state": {"list": [{"id": "a", "n": 1}, {"id": "b", "n": 2}], "score": 3, "empty": []}}
MODEL = {"model": "scripted:x"}


def run(*plan: dict[str, Any], **config: Any) -> dict[str, Any]:
    return simulate(request(list(plan), STATE, **{**MODEL, **config}))


# -- conditions ------------------------------------------------------------------------


def test_a_condition_that_cannot_be_known_is_explored_both_ways() -> None:
    result = run(
        call("do", 1, "†state.ok"),
        call("do", 1, "†state.a", _when="†state.ok == 5"),
        call("do", "†state.a", "†state.b"),
    )
    assert [(c["conditions"], c["run"], c["skipped"]) for c in combinations(result)] == [
        ({"2:do": True}, ["1:do", "2:do", "3:do"], []),
        ({"2:do": False}, ["1:do"], ["2:do", "3:do"]),
    ]
    assert result["calls"][1]["when"] == "†state.ok == 5"


def test_a_condition_that_is_known_is_not() -> None:
    result = run(call("do", 1, "†state.a", _when="†state.score > 2"), call("do", 1, "†state.b", _when="!†state.score"))
    (only,) = combinations(result)
    assert (only["run"], only["skipped"], "conditions" in only) == (["1:do"], ["2:do"], False)


def test_conditions_and_outcomes_are_combined() -> None:
    result = run(
        call("do", 1, "†state.a || †state.error", _when="†state.x"), call("do", 1, "†state.x"), call("do", "†state.a")
    )
    assert [(c["conditions"]["1:do"], c["choices"]) for c in combinations(result)] == [
        (True, {"1:do": "†state.a"}),
        (False, {}),
        (True, {"1:do": "†state.error"}),
    ]


def test_a_request_under_a_condition_may_not_be_made() -> None:
    result = run(call("do", 1, "†state.ok"), call("think", 1, "†state.a", _when="†state.ok"))
    assert result["requests"] == {"min": 0, "max": 1}


def test_a_condition_that_is_never_true_is_a_warning() -> None:
    result = run(call("do", 1, "†state.a", _when="†state.score > 5"))
    assert [p["code"] for p in result["problems"]] == ["unreachable"]
    needs_both = [
        call("think", 1, "†state.a || †state.b"),
        call("do", "†state.a", "†state.c", _when="†state.b"),
    ]
    assert [p["message"] for p in problems(run(*needs_both), "unreachable")] == [
        "no combination of outcomes lets this call run"
    ]


# -- how often ---------------------------------------------------------------------------

SHORT = {"type": "array", "items": STRING, "minItems": 2, "maxItems": 7}
ORDER = {"type": "object", "properties": {"id": STRING}, "required": ["id"], "additionalProperties": False}
TOOLS_WITH_LISTS = {
    **TOOLS,
    "getShort": tool(_output=SHORT),
    "getOrders": tool(_output={"type": "array", "items": ORDER}),
}


def with_lists(*plan: dict[str, Any]) -> dict[str, Any]:
    raw = request(list(plan), STATE, **MODEL)
    raw["context"][0]["tool"] = TOOLS_WITH_LISTS
    return raw


@pytest.mark.parametrize(
    ("writers", "each", "low", "high"),
    [
        ([], "†state.list", 2, 2),
        ([], [1, 2, 3], 3, 3),
        ([], ["†state.score", 1], 2, 2),
        ([call("getShort", to="†state.short")], "†state.short", 2, 7),
        ([call("getOrders", to="†state.orders")], "†state.orders", 0, 10_000),
        ([call("getShort", to="†state.list", _outputMethod="concat")], "†state.list", 0, 10_000),
    ],
    ids=str,
)
def test_requests_are_counted_per_element(writers: list[dict[str, Any]], each: Any, low: int, high: int) -> None:
    result = simulate(with_lists(*writers, call("think", "†item", "†state.out", _each=each)))
    assert result["requests"] == {"min": low, "max": high}
    assert result["calls"][-1]["elements"] == {"min": low, "max": high}
    assert (result["tokens"]["min"] == 0) == (low == 0)
    assert result["tokens"]["max"] > 0


def test_actions_and_delegates_are_counted_per_element() -> None:
    once, thrice = run(call("do", 1, "†state.a")), run(call("do", "†item", "†state.a", _each=[1, 2, 3]))
    assert thrice["actions"]["min"] - once["actions"]["min"] == 2
    assert run(call("ask", "†item", "†state.a", _each=[1, 2, 3]))["delegates"] == {"min": 3, "max": 3}


def test_nothing_is_made_of_an_empty_list() -> None:
    result = run(call("think", "†item", "†state.a", _each="†state.empty"), call("do", "†state.a", "†state.b"))
    assert result["requests"] == {"min": 0, "max": 0}
    assert combinations(result)[0]["run"] == ["1:think", "2:do"]


def test_a_result_per_element_is_read_by_later_calls() -> None:
    plan = [
        call("getText", to="†state.texts", _each="†state.list"),
        call("number", "†state.texts[0]", "†state.n"),
        call("text", "†state.texts[1]", "†state.t"),
        call("text", "†state.texts", "†state.u"),
    ]
    assert [(p["call"], p["code"]) for p in problems(run(*plan), "cannotFit")] == [
        ("2:number", "cannotFit"),
        ("4:text", "cannotFit"),
    ]


# -- types -----------------------------------------------------------------------------------


TEXT, ORDERS, PERSON = (
    call("getText", to="†state.s"),
    call("getOrders", to="†state.o"),
    call("getPerson", to="†state.p"),
)
TYPED: list[tuple[list[dict[str, Any]], list[tuple[str, str, str]]]] = [
    ([TEXT, call("do", 1, "†state.a", _each="†state.s")], [("cannotFit", "list", "string")]),
    ([ORDERS, call("number", "†item.id", "†state.a", _each="†state.o")], [("mayNotFit", "number", "string")]),
    ([ORDERS, call("text", "†item.id", "†state.a", _each="†state.o")], []),
    ([ORDERS, call("do", "†item.nope", "†state.a", _each="†state.o")], [("mayNotFit", "a value", "nothing")]),
    ([call("number", "†item.id", "†state.a", _each="†state.list")], [("mayNotFit", "number", '"a"')]),
    ([call("text", "†index", "†state.a", _each="†state.list")], [("mayNotFit", "string", "number")]),
    ([call("text", "†{index}: †{item.id}", "†state.a", _each="†state.list")], []),
    ([PERSON, call("text", "Dear †{state.p.nope}", "†state.a")], [("cannotFit", "a value", "nothing")]),
    ([TEXT, call("do", 1, "†state.a", _when="†state.s > 5")], []),
]


@pytest.mark.parametrize(("plan", "found"), TYPED, ids=str)
def test_types_are_followed_into_elements_and_texts(
    plan: list[dict[str, Any]], found: list[tuple[str, str, str]]
) -> None:
    result = simulate(with_lists(*plan))
    listed = problems(result, "cannotFit", "mayNotFit")
    assert [(p["code"], p["expected"]) for p in listed] == [(code, expected) for code, expected, _ in found]
    assert all(what in p["found"] for p, (_, _, what) in zip(listed, found, strict=True))


# -- outcomes that are subsets ------------------------------------------------------------------


def test_an_outcome_that_is_a_subset_of_another_can_be_chosen_and_so_can_the_whole() -> None:
    plan = [
        call("do", 1, "†state.a || †state.b || †state.a && †state.b"),
        call("do", "†state.a && †state.b", "†state.c"),
    ]
    result = run(*plan)
    assert [c["choices"]["1:do"] for c in combinations(result)] == ["†state.a", "†state.b", "†state.a && †state.b"]
    assert [c["run"] for c in combinations(result)][-1] == ["1:do", "2:do"]
    assert problems(result, "unreachableOutcome") == []


def test_a_list_takes_the_first_alternative_and_no_other_but_that_for_failures() -> None:
    result = run(call("do", 1, "†state.a || †state.b || †state.error", _each="†state.list"))
    assert [c["choices"]["1:do"] for c in combinations(result)] == ["†state.a", "†state.error"]
    (problem,) = problems(result, "unreachableOutcome")
    assert "†state.b: that of a call with _each is one list" in problem["message"]


# -- the page that a person approves ---------------------------------------------------------------


def test_the_page_says_how_often_and_under_which_condition() -> None:
    raw = with_lists(
        call("getShort", to="†state.short"),
        call("do", "†item", "†state.a", _each="†state.short"),
        call("do", "†item", "†state.b", _each="†state.list", _when="†state.score > 2"),
    )
    prepared = validate_request(raw)
    text = page(prepared, simulate_for_page(prepared))
    assert "(for each of 2 to 7 elements)" in text
    assert "(for each of 2 elements)" in text
    assert "(when `†state.score \\> 2`)" in text or "(when `†state.score > 2`)" in text
