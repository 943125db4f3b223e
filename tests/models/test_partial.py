"""Calls are told at their closing brace, whatever the pieces, and whatever comes after."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.providers.streamed_calls import StreamedCalls

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.just("calls"), inner, max_size=3)
    ),
    max_leaves=8,
)
calls = st.lists(st.dictionaries(st.sampled_from(["_tool", "calls", "x", "ä"]), values, max_size=3), max_size=4)


def told(pieces: list[str]) -> list[tuple[int, Any]]:
    out: list[tuple[int, Any]] = []
    partial = StreamedCalls(lambda index, call: out.append((index, call)))
    for piece in pieces:
        partial.feed(piece)
    return out


@given(calls=calls, output=values, size=st.integers(1, 9), ascii_=st.booleans(), first=st.booleans())
def test_all_calls_are_told_as_json_would_read_them(
    calls: list[Any], output: Any, size: int, *, ascii_: bool, first: bool
) -> None:
    whole = {"calls": calls, "output": output} if first else {"output": output, "calls": calls}
    text = json.dumps(whole, ensure_ascii=ascii_)
    found = told([text[i : i + size] for i in range(0, len(text), size)])
    assert json.dumps(found) == json.dumps(list(enumerate(json.loads(text)["calls"])))


def test_a_call_is_told_with_its_closing_brace_and_not_before() -> None:
    text = '{"calls": [{"a": 1}, {"b": {"c": "}"}}]'
    counts = [len(told([text[:i]])) for i in range(len(text) + 1)]
    assert counts.index(1) == text.index("}") + 1
    assert counts.index(2) == len(text) - 1


def test_numbers_are_those_of_json() -> None:
    text = '{"calls": [{"a": 1.0, "b": 12345678901234567890123, "c": 1e2, "d": 0.1}]}'
    assert repr(told([text])[0][1]) == repr(json.loads(text)["calls"][0])


@given(text=st.text(max_size=40) | st.text(alphabet='{}[]",:calls 1e\\u', max_size=40), size=st.integers(1, 5))
def test_garbage_raises_nothing(text: str, size: int) -> None:
    told([text[i : i + size] for i in range(0, len(text), size)])


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"calls": [{"a": 1}]}\n```',
        '{"calls": [{"a": 1}]} and so on {',
        '{"calls": [{"a": 1}, {"b": tru',
        '{"calls": [{"a": 1}], "output": nonsense',
    ],
)
def test_what_was_complete_before_the_garbage_is_told(text: str) -> None:
    assert told([text]) == [(0, {"a": 1})]


def test_a_lone_surrogate_or_deep_nesting_only_ends_the_reports() -> None:
    assert told(['{"calls": [{"a": 1}, {"b": "\ud800"}']) in ([], [(0, {"a": 1})])
    told(['{"calls": [' + "[" * 100_000])


def test_an_error_of_the_one_who_is_told_is_passed_on() -> None:
    def broken(_: int, __: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        StreamedCalls(broken).feed('{"calls": [{}]}')
