"""The simulation of conditions, of calls that are made once per element, and of outcomes that are subsets."""

from __future__ import annotations

from typing import Any

import pytest

from acts.simulation.simulate import simulate
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


def test_a_condition_that_is_never_true_is_a_warning() -> None:
    result = run(call("do", 1, "†state.a", _when="†state.score > 5"))
    assert [p["code"] for p in result["problems"]] == ["unreachable"]
    needs_both = [
        call("think", 1, "†state.a || †state.b"),
        call("do", "†state.a", "†state.c", _when="†state.b"),
    ]
    assert [p["message"] for p in problems(run(*needs_both), "unreachable")] == [
        "this call is skipped whatever the outcomes are"
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
        ([call("getShort", to="†state.short")], "†state.short", 0, 10_000),
        ([call("getOrders", to="†state.orders")], "†state.orders", 0, 10_000),
        ([call("getShort", to="†state.list", _outputMethod="concat")], "†state.list", 0, 10_000),
    ],
    ids=str,
)
def test_requests_are_counted_per_element(writers: list[dict[str, Any]], each: Any, low: int, high: int) -> None:
    result = simulate(with_lists(*writers, call("think", "†item", "†state.out", _each=each)))
    assert result["requests"] == {"min": low, "max": high}
    assert result["calls"][-1]["elements"] == {"min": low, "max": high}


# -- types -----------------------------------------------------------------------------------


TEXT, ORDERS, PERSON = (
    call("getText", to="†state.s"),
    call("getOrders", to="†state.o"),
    call("getPerson", to="†state.p"),
)
TYPED: list[tuple[list[dict[str, Any]], list[tuple[str, str, str]]]] = [
    ([TEXT, call("do", 1, "†state.a", _each="†state.s")], [("cannotFit", "list", "string")]),
    ([ORDERS, call("text", "†item.id", "†state.a", _each="†state.o")], []),
    ([call("text", "†{index}: †{item.id}", "†state.a", _each="†state.list")], []),
    ([PERSON, call("text", "Dear †{state.p.nope}", "†state.a")], [("cannotFit", "a value", "nothing")]),
    ([TEXT, call("do", 1, "†state.a", _when="†state.s > 5")], []),
]


@pytest.mark.parametrize(("plan", "found"), TYPED, ids=str)
def test_types_of_lists_and_texts_are_followed(plan: list[dict[str, Any]], found: list[tuple[str, str, str]]) -> None:
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
