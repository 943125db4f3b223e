"""Answers are parsed as they stream: Calls are reported at their closing brace; the value is that of json.loads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.providers.answer_parser import AnswerParser

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.just("calls"), inner, max_size=3)
    ),
    max_leaves=8,
)
calls = st.lists(st.dictionaries(st.sampled_from(["_tool", "calls", "x", "ä"]), values, max_size=3), max_size=4)


def parse(pieces: list[str]) -> tuple[AnswerParser, list[tuple[int, Any]]]:
    reports: list[tuple[int, Any]] = []
    parser = AnswerParser(lambda index, call: reports.append((index, call)))
    for piece in pieces:
        parser.feed(piece)
    return parser, reports


def split(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


@given(calls=calls, output=values, size=st.integers(1, 9), ascii_=st.booleans(), first=st.booleans())
def test_calls_and_value_are_those_of_json(
    calls: list[Any], output: Any, size: int, *, ascii_: bool, first: bool
) -> None:
    solution = {"calls": calls, "output": output} if first else {"output": output, "calls": calls}
    text = json.dumps(solution, ensure_ascii=ascii_)
    parser, reports = parse(split(text, size))
    expected = json.loads(text)
    assert json.dumps(reports) == json.dumps(list(enumerate(expected["calls"])))
    assert json.dumps(parser.value()) == json.dumps(expected)
    assert parser.text == text


def test_a_call_is_reported_with_its_closing_brace_and_not_before() -> None:
    text = '{"calls": [{"a": 1}, {"b": {"c": "}"}}]}'
    counts = [len(parse([text[:i]])[1]) for i in range(len(text) + 1)]
    assert counts.index(1) == text.index("}") + 1
    assert counts.index(2) == len(text) - len("]}")


def test_numbers_are_those_of_json() -> None:
    text = '{"calls": [{"a": 1.0, "b": 12345678901234567890123, "c": 1e2, "d": 0.1}]}'
    parser, reports = parse([text])
    assert repr(reports[0][1]) == repr(json.loads(text)["calls"][0])
    assert repr(parser.value()) == repr(json.loads(text))


@given(text=st.text(max_size=40) | st.text(alphabet='{}[]",:calls 1e\\u', max_size=40), size=st.integers(1, 5))
def test_any_text_has_the_value_of_json_or_none(text: str, size: int) -> None:
    parser, _ = parse(split(text, size))
    try:
        expected = json.loads(text, parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return
    try:
        assert json.dumps(parser.value()) == json.dumps(expected)
    except ValueError as error:
        assert "is not a JSON number" in str(error)  # noqa: PT017 - 1e999


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"calls": [{"a": 1}]}\n```',
        '{"calls": [{"a": 1}]} and so on {',
        '{"calls": [{"a": 1}, {"b": tru',
        '{"calls": [{"a": 1}], "output": nonsense',
    ],
)
def test_calls_before_the_garbage_are_reported(text: str) -> None:
    assert parse([text])[1] == [(0, {"a": 1})]


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize(
    "text", ['{"a": "\\ud800"}', '{"a": "\\ud83d\\ude00"}', '{"a": "\\udc00"}', '{"\\uD800": 1}', '{"a": "\ud800"}']
)
def test_surrogates_are_those_of_json(text: str, size: int) -> None:
    """ijson reads a high surrogate without its other half as a question mark."""
    parser, _ = parse(split(text, size))
    assert ascii(parser.value()) == ascii(json.loads(text))


@pytest.mark.parametrize("text", ["", "no JSON", '{"a": 1', "[" * 100_000, '{"a": ' * 100_000, "NaN"])
def test_a_text_without_json_says_why(text: str) -> None:
    parser, _ = parse([text])
    with pytest.raises(ValueError, match=r"it is empty|too deep|line 1|not a JSON number"):
        parser.value()


def test_deep_nesting_ends_the_reports() -> None:
    assert parse(['{"calls": [' + "[" * 100_000])[1] == []


def test_an_error_of_the_receiver_is_passed_on() -> None:
    def fail(_: int, __: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        AnswerParser(fail).feed('{"calls": [{}]}')
