"""JSON values: parts that are replaced. What is replaced by what is in ``test_reference_uses``."""

from __future__ import annotations

from acts.language.values import replace_parts


def test_ten_thousand_parts_of_one_list_cost_what_their_number_says() -> None:
    value = list(range(10_000))
    assert replace_parts(value, [((i,), -i) for i in value]) == [-i for i in value]
