"""What expressions may take: texts, comparisons and repeated values are counted, and stop with a readable error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts.language.admission import LIMITS, TASK, TEXTS, Limit, Meter, Work, measure_json
from acts.language.errors import ExpressionError, TooComplex
from acts.language.references import (
    ReferenceUse,
    alternatives,
    evaluate,
    holds,
    parse,
    parse_condition,
    parse_marked,
    resolve_references,
    scan_marked,
)
from acts.language.strict_json import SharedSizes, json_size
from acts.language.values import UNKNOWN, UNKNOWN_TEXT, Json
from tests.strategies import values

LARGE = {f"k{i}": [i] for i in range(10_000)}
COPY = {**LARGE}


def read(path: Any) -> Json:
    return {"large": LARGE, "copy": COPY, "text": "x" * 100_000, "one": 1}[path.kind]


def resolve(value: Json) -> Json:
    uses = [ReferenceUse.of(at, text, parse_marked(text)) for at, text in scan_marked(value)]
    return resolve_references(value, uses, read)[0]


def allow(monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    monkeypatch.setitem(LIMITS, name, Limit(LIMITS[name].subject, most, LIMITS[name].advice))


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_that_is_met_names_what_takes_the_steps_and_what_to_do(name: str) -> None:
    meter = Meter(name)
    meter.spend(LIMITS[name].most)
    with pytest.raises(TooComplex, match=f"{LIMITS[name].most:,} steps allowed; {LIMITS[name].advice}"):
        meter.spend(1)


@pytest.mark.parametrize("template", ["†{large}" * 1_000, "†{text}" * 1_000, "a" * 3_000_000 + "†{one}"])
def test_a_text_has_at_most_the_characters_of_a_payload(template: str) -> None:
    with pytest.raises(TooComplex, match="longer than the 2,097,152 characters"):
        evaluate(parse_marked(template), read)


def test_the_texts_of_a_walk_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, TEXTS, 1_000_000)
    work, short, long = Work(), parse_marked("no †{one}"), parse_marked("†{text}")
    for _ in range(10_000):
        assert evaluate(short, read, work) == "no 1"
    for _ in range(9):
        evaluate(long, read, work)
    work.begin_task()
    with pytest.raises(TooComplex, match="texts of the templates"):
        evaluate(long, read, work)


def test_a_value_may_be_in_a_call_once_however_large_and_not_a_thousand_times() -> None:
    assert resolve(["†large", "†copy"]) == [LARGE, LARGE]
    with pytest.raises(TooComplex, match="repeats the values"):
        resolve(["†large"] * 1_000)


def test_comparisons_of_a_workflow_task_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, TASK, 20 * measure_json(LARGE)[0] // 20)
    work, condition = Work(), parse_condition("†large == †copy")
    assert holds(condition, read, work)
    with pytest.raises(TooComplex, match="evaluating the values of one call or message"):
        all(holds(condition, read, work) for _ in range(100))
    work.begin_task()
    assert holds(condition, read, work)


def test_what_each_element_of_a_list_has_is_counted_by_how_deep_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, TASK, 500)
    element: Json = 1
    for _ in range(40):
        element = {"a": element}
    rows = [element] * 100
    assert evaluate(parse("†rows[*].a.a"), lambda _: rows) == [element["a"]["a"]] * 100
    with pytest.raises(TooComplex):
        evaluate(parse("†rows[*]" + ".a" * 40), lambda _: rows)


@pytest.mark.parametrize("text", ["†a == [1]", "[1] != †a", "†a < 2", "!(†a == †a)"])
def test_what_is_not_known_is_compared_with_nothing(text: str) -> None:
    assert holds(parse_condition(text), lambda _: {"b": [UNKNOWN]}) is UNKNOWN


def test_a_text_with_an_unknown_part_is_unknown() -> None:
    assert Work().write_text({"known": [1], "b": [UNKNOWN]}) is UNKNOWN_TEXT
    assert Work().write_text({"b": 1, "a": "é"}) == '{"a":"é","b":1}'


def test_too_many_alternatives_are_refused_before_they_are_built() -> None:
    doubling = " && ".join(f"(†a{i} || †b{i})" for i in range(60))
    with pytest.raises(ExpressionError, match="more than 64 alternatives"):
        alternatives(parse(doubling))


@given(values, st.integers(0, 3))
def test_a_shared_size_is_that_of_the_json(value: Json, times: int) -> None:
    shared = {"a": {"b": value}, "c": [value] * times, "d": {str(i): value for i in range(times)}}
    assert SharedSizes().size(shared) == json_size(shared)
    assert SharedSizes().size_of_list([shared, value] * times) == json_size([shared, value] * times)


def test_one_value_in_a_million_places_is_measured_at_once() -> None:
    value: Json = LARGE
    for _ in range(40):
        value = {"a": value, "b": value}
    assert SharedSizes().size(value) > 2**40
