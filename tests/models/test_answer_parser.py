"""Calls are reported at their closing brace while an answer streams; the answer is that of json.loads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts.activities.models.adapters import CallReader, find_json

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 2**63, 2**63 - 1)  # the parser takes no more
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.just("calls"), inner, max_size=3)
    ),
    max_leaves=8,
)
calls = st.lists(st.dictionaries(st.sampled_from(["_tool", "calls", "x", "ä"]), values, max_size=3), max_size=4)


def reports_of(text: str, size: int) -> list[tuple[int, Any]]:
    reports: list[tuple[int, Any]] = []
    reader = CallReader(lambda index, call: reports.append((index, call)), schema=True)
    for start in range(0, len(text), size):
        reader.feed(text[start : start + size])
    return reports


@given(calls=calls, output=values, size=st.integers(1, 9), ascii_=st.booleans(), first=st.booleans())
def test_the_calls_that_are_reported_are_those_of_json(
    calls: list[Any], output: Any, size: int, *, ascii_: bool, first: bool
) -> None:
    solution = {"calls": calls, "output": output} if first else {"output": output, "calls": calls}
    text = json.dumps(solution, ensure_ascii=ascii_)
    assert json.dumps(reports_of(text, size)) == json.dumps(list(enumerate(calls)))
    assert json.dumps(find_json(text)) == json.dumps(solution)


def test_a_call_is_reported_with_its_closing_brace_and_not_before() -> None:
    text = '{"calls": [{"a": 1}, {"b": {"c": "}"}}]}'
    counts = [len(reports_of(text[:i], 1)) for i in range(len(text) + 1)]
    assert counts.index(1) == text.index("}") + 1
    assert counts.index(2) == len(text) - len("]}")


@given(text=st.text(max_size=40) | st.text(alphabet='{}[]",:calls 1e\\u', max_size=40), size=st.integers(1, 5))
def test_no_text_raises(text: str, size: int) -> None:
    reports_of(text, size)


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
    assert reports_of(text, 100) == [(0, {"a": 1})]


@pytest.mark.parametrize("frame", ["```json\n{}\n```", "Here it is:\n```\n{}\n```\nDone.", "<think>a {{b}}</think>{}"])
def test_json_is_found_in_a_fence_between_sentences_and_after_thoughts(frame: str) -> None:
    assert find_json(frame.replace("{}", '{"calls": [1]}')) == {"calls": [1]}


@pytest.mark.parametrize("text", ["", "no JSON", '{"a": 1', "[" * 100_000, '{"a": ' * 100_000, "NaN"])
def test_a_text_without_json_says_why(text: str) -> None:
    reports_of(text, 1_000)
    with pytest.raises(ValueError, match=r"it is empty|nested deeper|line 1|not a JSON number"):
        find_json(text)


def test_an_error_of_the_receiver_is_passed_on() -> None:
    def fail(_: int, __: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        CallReader(fail, schema=True).feed('{"calls": [{}]}')
