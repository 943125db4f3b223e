"""JSON values: parts that are replaced, and what makes a value unfit to be stored."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.values import Place, replace_parts

REPLACED: list[tuple[Any, list[tuple[Place, Any]], Any]] = [
    (1, [], 1),
    (1, [((), 2)], 2),
    ({"a": 1, "b": 2}, [(("a",), 3)], {"a": 3, "b": 2}),
    ([1, [2, 3], 4], [((1, 0), "x"), ((2,), "y")], [1, ["x", 3], "y"]),
    ({"a": {"b": [1, 2]}}, [(("a", "b", 0), [5]), (("a", "b", 1), {})], {"a": {"b": [[5], {}]}}),
]


@pytest.mark.parametrize(("value", "replacements", "result"), REPLACED, ids=str)
def test_parts_are_replaced(value: Any, replacements: list[tuple[Place, Any]], result: Any) -> None:
    assert replace_parts(value, replacements) == result


def test_only_containers_on_the_way_to_a_part_are_copied() -> None:
    shared = {"k": [1]}
    value = {"a": [shared, shared], "b": shared}
    result = replace_parts(value, [(("a", 0, "k", 0), 2), (("a", 0, "k", 0), 3)])
    assert value == {"a": [{"k": [1]}, {"k": [1]}], "b": {"k": [1]}}
    assert result == {"a": [{"k": [3]}, {"k": [1]}], "b": {"k": [1]}}
    assert result["b"] is shared
    assert result["a"][1] is shared


def test_ten_thousand_parts_of_one_list_cost_what_their_number_says() -> None:
    value = list(range(10_000))
    assert replace_parts(value, [((i,), -i) for i in value]) == [-i for i in value]
