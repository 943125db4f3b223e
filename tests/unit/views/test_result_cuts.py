"""What is cut out of a result that is too large: what is large, and nothing that is small."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acts.language.strict_json import json_size
from acts.views.results import MAX_CUTS, MAX_ERRORS, cut_result

Json = Any
LIMIT = 4_000


def result(**parts: Json) -> dict[str, Json]:
    return {"status": "completed", "state": {}, "calls": [], "context": [], "errors": [], "usage": {}, **parts}


def message(text: str) -> dict[str, Json]:
    return {"type": "state", "state": {"x": text}, "_outputPath": "†state.x"}


def size_of(cut: dict[str, Json]) -> int:
    return json_size({key: value for key, value in cut.items() if key != "omitted"})


def test_a_large_value_goes_and_the_calls_stay() -> None:
    calls = [{"id": "1:a", "tool": "a", "state": "completed", "outputPath": "†state.report"}]
    small = message("y")
    whole = result(
        state={"report": "x" * 9_000, "n": 1, "in": {"big": "z" * 9_000, "small": 2}}, calls=calls,
        context=[message("x" * 9_000), small],
    )  # fmt: skip
    cut = cut_result(whole, first_message=3, limit=LIMIT)
    assert cut["calls"] == calls
    assert cut["state"] == {"n": 1}
    assert cut["context"] == [small]
    assert set(cut["omitted"]["bytes"]) == {"state", "context"}
    by_place = {item["at"]: item for item in cut["omitted"]["cut"]}
    assert by_place["/state/report"]["argument"] == {"path": "†state.report"}
    assert by_place["/state/in"]["argument"] == {"path": "†state.in"}
    assert by_place["/context/0"]["argument"] == {"offset": 3, "limit": 1}
    assert by_place["/state/report"]["bytes"] >= 9_000
    assert by_place["/context/0"]["query"] == "context"


def test_of_very_many_calls_and_errors_the_first_stay() -> None:
    calls = [{"id": f"{i:04}:a"} for i in range(1_000)]
    errors = [{"call": f"{i:04}:a", "code": "c", "message": "m"} for i in range(1_000)]
    cut = cut_result(result(calls=calls, errors=errors), limit=LIMIT)
    assert cut["calls"] == calls[: len(cut["calls"])]
    assert cut["errors"] == errors[: len(cut["errors"])]
    assert 0 < len(cut["errors"]) < MAX_ERRORS
    assert cut["calls"]
    assert len(cut["omitted"]["cut"]) == MAX_CUTS
    assert cut["omitted"]["more"] > 0


def test_a_large_batch_keeps_the_status_of_each_instance() -> None:
    instances = {f"i{n}": {"status": "completed", "state": {"x": "y" * 100}, "calls": []} for n in range(20)}
    own = {**message("x"), "_instance": "i1"}
    cut = cut_result(result(instances=instances, context=[own, message("y")]), batch_limit=1_000)
    assert cut["instances"] == {f"i{n}": {"status": "completed"} for n in range(20)}
    assert cut["context"] == [message("y")]
    assert set(cut["omitted"]["bytes"]) == {"instances", "context"}
    assert "own run" in cut["omitted"]["how"]


VALUES = st.integers(0, 3_000).map("x".__mul__)
STATES = st.dictionaries(
    st.text(max_size=5), VALUES | st.dictionaries(st.text(max_size=3), VALUES, max_size=4), max_size=6
)


@pytest.mark.parametrize("part", ["state", "output"])
@given(data=STATES, messages=st.lists(VALUES.map(message), max_size=6))
@example(data={"a": {"b": "x" * 62}, "c": "x" * 3_840}, messages=[])  # one byte too many, which is that of the braces
def test_what_is_left_fits_is_unchanged_and_is_smaller_than_what_went(
    part: str, data: dict[str, Json], messages: list[Json]
) -> None:
    whole = result(**{part: data, "context": messages})
    cut = cut_result(whole, limit=LIMIT)
    assert size_of(cut) <= LIMIT
    assert list(cut[part]) == [key for key in data if key in cut[part]]
    for key, value in cut[part].items():
        if isinstance(value, str):
            assert value == data[key]
            lost = [v for k, v in data.items() if k not in cut[part] and isinstance(v, str)]
            assert all(len(value) + len(key.encode()) <= len(v) + 40 for v in lost)
    sizes = [json_size(m) for m in cut["context"]]
    assert all(m in messages for m in cut["context"])
    gone = [json_size(m) for m in messages if m not in cut["context"]]
    assert not gone or not sizes or max(sizes) <= min(gone)
    lost_bytes = json_size(whole) - size_of(cut)
    reported = sum(cut.get("omitted", {"bytes": {}})["bytes"].values())
    assert abs(lost_bytes - reported) <= 8 * (len(data) * 5 + len(messages) + 1)
