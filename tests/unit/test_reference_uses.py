"""Expressions inside JSON values: where they are, and the value with each replaced by what it yields."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.references import Path, ReferenceUse, parse_marked, resolve_references, scan, scan_marked
from acts.language.values import ABSENT
from tests import oracle

A, B = Path("a"), Path("b")


def resolve(value: Any, values: dict[Path, Any]) -> tuple[Any, list[ReferenceUse]]:
    uses = [ReferenceUse.of(at, text, parse_marked(text)) for at, text in scan_marked(value)]
    return resolve_references(value, uses, values.__getitem__)


def test_expressions_are_found_at_any_depth_and_keys_are_left_alone() -> None:
    value = {"a": ["†a", {"†key": "†b"}], "c": "††c", "n": 1}
    assert list(scan(value)) == [(("a", 0), "†a"), (("a", 1, "†key"), "†b")]
    assert list(scan_marked(value, "x"))[-1] == (("x", "c"), "††c")
    assert any(scan(value))
    assert not any(scan({"†a": ["††a", 1]}))


def test_expressions_resolve_at_any_depth_and_escapes_lose_a_mark() -> None:
    value = {"a": ["†a", {"†key": "†b || †a"}], "c": "††c", "n": 1, "same": {"x": [1]}}
    before = copy.deepcopy(value)
    values = {A: "†b", B: {"x": "††"}}
    result, missing = resolve(value, values)
    assert result == {"a": ["†b", {"†key": {"x": "††"}}], "c": "†c", "n": 1, "same": {"x": [1]}}
    assert missing == []
    assert value == before
    assert result["same"] is value["same"]  # what holds no expression is not copied


def test_what_is_absent_is_returned_and_the_rest_still_resolves() -> None:
    value = {"x": "†a", "y": "†b", "z": ["†a && †b"]}
    values = {A: ABSENT, B: 2}
    result, missing = resolve(value, values)
    assert result == {**value, "y": 2}
    assert [(use.at, use.text, use.paths) for use in missing] == [
        (("x",), "†a", (A,)),
        (("z", 0), "†a && †b", (A, B)),
    ]


leaves = st.sampled_from(
    ["†a", "†b", "†a || †b", "†a && †b", "††a", "†††", "text", 1, None, "†{a}, †{a || †b}!", "5† ††{a}", "††x†{b}"]
)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "†a", "0"]), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(trees, st.sampled_from([0, None, ABSENT, {"x": "†b"}]), st.sampled_from([1, None, ABSENT, ["††"]]))
def test_two_resolvers_agree(value: Any, a: Any, b: Any) -> None:
    values = {A: a, B: b}
    result, missing = resolve(value, values)

    def read(where: tuple[str, ...]) -> Any:
        part = values[Path(where[0], where[1:])]
        return oracle.ABSENT if part is ABSENT else part

    try:
        expected = oracle.resolve(value, read)
    except KeyError:
        assert missing
        return
    assert (result, missing) == (expected, [])
