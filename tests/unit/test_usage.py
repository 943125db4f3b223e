"""What a run spent, and what its budget leaves."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.config import Usage

Json = Any


def spent(**sums: Json) -> Usage:
    made = Usage()
    made.add(sums)
    return made


def test_sums_add_up_and_what_is_written_can_be_read_again() -> None:
    made = spent(requests=1, inputTokens=10, outputTokens=5, cachedTokens=4, reasoningTokens=2, cost=0.1)
    made.add(made.to_json())
    assert made.to_json() == {
        "requests": 2, "inputTokens": 20, "outputTokens": 10, "cachedTokens": 8, "reasoningTokens": 4, "cost": 0.2,
    }  # fmt: skip


def test_a_whole_number_of_dollars_is_written_without_a_point() -> None:
    assert str(spent(cost=2.0).to_json()["cost"]) == "2"
    assert str(Usage().to_json()["cost"]) == "0"


def test_one_unknown_price_makes_the_whole_cost_unknown() -> None:
    made = spent(cost=0.5)
    made.add({"requests": 1, "cost": None})
    made.add({"requests": 1, "cost": 0.5})
    assert (made.cost, made.requests, made.to_json()["cost"]) == (None, 2, None)
    again = Usage()
    again.add(made.to_json())
    assert again.cost is None


@pytest.mark.parametrize("given", [None, [], "usage", 5, {}, {"requests": "many"}, {"requests": None}])
def test_what_is_no_sum_counts_as_nothing(given: Json) -> None:
    made = Usage()
    made.add(given)
    assert made == Usage()
