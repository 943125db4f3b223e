"""What expressions may take: texts, comparisons and repeated values are counted, and stop with a readable error."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts.language import evaluation_work, shared_sizes
from acts.language.errors import ExpressionError, TooComplex
from acts.language.evaluation_work import UNMEASURED_BYTES, EvaluationWork
from acts.language.expression_parser import has_expression, parse, parse_condition
from acts.language.reference_uses import parse_marked, resolve
from acts.language.references import alternatives, count_alternatives, evaluate, holds
from acts.language.shared_sizes import SharedSizes
from acts.language.strict_json import json_size
from acts.language.values import UNKNOWN, UNKNOWN_TEXT, Json
from tests.strategies import values

LARGE = {f"k{i}": [i] for i in range(10_000)}
COPY = {**LARGE}


def read(path: Any) -> Json:
    return {"large": LARGE, "copy": COPY, "text": "x" * 100_000, "one": 1}[path.kind]


@pytest.mark.parametrize("template", ["†{large}" * 1_000, "†{text}" * 1_000, "a" * 3_000_000 + "†{one}"])
def test_a_text_has_at_most_the_characters_of_a_payload(template: str) -> None:
    with pytest.raises(TooComplex, match="longer than the 2,097,152 characters"):
        evaluate(parse_marked(template), read)  # type: ignore[arg-type]


def test_the_texts_of_a_walk_share_a_limit_and_short_ones_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation_work, "MAX_TEXTS", 1_000_000)
    work, short, long = EvaluationWork(), parse_marked("no †{one}"), parse_marked("†{text}")
    for _ in range(10_000):
        assert evaluate(short, read, work) == "no 1"  # type: ignore[arg-type]
    for _ in range(10):
        evaluate(long, read, work)  # type: ignore[arg-type]
    with pytest.raises(TooComplex, match="texts of the templates"):
        evaluate(long, read, work)  # type: ignore[arg-type]


def test_a_value_may_be_in_a_call_once_however_large_and_not_a_thousand_times() -> None:
    assert resolve(["†large", "†copy"], read, []) == [LARGE, LARGE]
    with pytest.raises(TooComplex, match="repeats the values"):
        resolve(["†large"] * 1_000, read, [])


def test_lists_that_every_call_makes_longer_are_measured_up_to_a_limit_in_each_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond it, a value that is there twice is always allowed, and one that is there often never."""
    monkeypatch.setattr(evaluation_work, "MAX_MEASURED_BYTES", 100_000)
    work, lists = EvaluationWork(), [[0] * length for length in range(2_000)]
    measured: list[int] = []
    monkeypatch.setattr(evaluation_work, "json_size", lambda value: measured.append(len(value)) or json_size(value))
    for each in lists:
        assert work.add_repeated(0, each) in (json_size(each), UNMEASURED_BYTES)
    assert 100_000 < sum(map(json_size, map(lists.__getitem__, measured))) < 105_000
    twice = work.add_repeated(0, lists[-1])
    with pytest.raises(TooComplex, match="repeats the values"):
        work.add_repeated(work.add_repeated(twice, lists[-1]), lists[-1])
    work.begin_task()
    assert work.add_repeated(0, lists[-1]) == json_size(lists[-1])


def test_a_pair_of_values_is_compared_once_and_pairs_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation_work, "MAX_COMPARED_PARTS", 70_000)
    work, condition = EvaluationWork(), parse_condition("†large == †copy")
    assert all(holds(condition, read, work) for _ in range(100))
    with pytest.raises(TooComplex, match="comparing the values"):
        holds(parse_condition("†new == †large"), lambda p: {**LARGE} if p.kind == "new" else read(p), work)


def test_nothing_is_counted_once_the_limit_of_comparisons_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation_work, "MAX_COMPARED_PARTS", 10_000)
    counted: list[int] = []
    count_parts = evaluation_work.count_parts
    monkeypatch.setattr(evaluation_work, "count_parts", lambda value: counted.append(len(value)) or count_parts(value))
    work, condition = EvaluationWork(), parse_condition("†a == †b")
    for length in range(1, 1_000):
        with suppress(TooComplex):
            holds(condition, lambda _, length=length: [0] * length, work)
    assert 5_000 < sum(counted) < 11_000


@pytest.mark.parametrize("text", ["†a == [1]", "[1] != †a", "†a < 2", "!(†a == †a)"])
def test_what_is_not_known_is_compared_with_nothing(text: str) -> None:
    assert holds(parse_condition(text), lambda _: {"b": [UNKNOWN]}) is UNKNOWN


@pytest.mark.parametrize(
    "text", ["†a", "†a || †b", "†a && †b", "(†a || †b) && (†c || †d && †e) && †a", "†a && (†b && †a)"]
)
def test_alternatives_are_counted_without_building_them(text: str) -> None:
    count, listed = count_alternatives(parse(text))
    built = alternatives(parse(text))
    assert count == len(built)
    assert listed >= sum(map(len, built))


def test_too_many_alternatives_are_refused_before_they_are_built() -> None:
    doubling = " && ".join(f"(†a{i} || †b{i})" for i in range(60))
    with pytest.raises(ExpressionError, match="more than 64 alternatives"):
        count_alternatives(parse(doubling))


@given(st.text(alphabet="†{}a ", max_size=12))
def test_an_expression_in_a_text_is_seen_without_parsing_it(text: str) -> None:
    try:
        is_template = "†{" in text and not isinstance(parse_marked(text), str)
    except ExpressionError:
        is_template = True
    assert has_expression(text) is is_template


@given(values, st.integers(0, 3))
def test_a_shared_size_is_that_of_the_json(value: Json, times: int) -> None:
    shared = {"a": {"b": value}, "c": [value] * times, "d": {str(i): value for i in range(times)}}
    assert SharedSizes().size(shared) == json_size(shared)
    assert SharedSizes().size_of_list([shared, value] * times) == json_size([shared, value] * times)


def test_a_long_text_in_many_objects_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Json] = []
    monkeypatch.setattr(shared_sizes, "json_size", lambda value: measured.append(value) or json_size(value))
    states = {f"i{number}": {"page": "é" * 1_000, "number": number} for number in range(100)}
    text = states["i0"]["page"]
    shared = {key: {**state, "page": text} for key, state in states.items()}
    assert SharedSizes().size(shared) == json_size(shared)
    assert measured.count(text) == 1


def test_one_value_in_a_million_places_is_measured_at_once() -> None:
    value: Json = LARGE
    for _ in range(40):
        value = {"a": value, "b": value}
    assert SharedSizes().size(value) > 2**40


def test_of_what_a_dry_run_does_not_know_no_text_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    work, tried = EvaluationWork(), list[Json]()
    write = json.dumps
    monkeypatch.setattr(
        evaluation_work.json, "dumps", lambda value, **more: tried.append(value) or write(value, **more)
    )
    growing = [{**{f"k{i}": UNKNOWN for i in range(n)}, "known": [1]} for n in range(1, 300)]
    assert all(work.write_text(value) is UNKNOWN_TEXT for value in growing)
    assert tried == []
    late = [*range(50_000), UNKNOWN]
    assert [work.write_text(late) for _ in range(100)] == [UNKNOWN_TEXT] * 100
    assert len(tried) == 1
    assert work.texts.spent > len(late)
