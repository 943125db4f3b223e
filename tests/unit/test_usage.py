"""What a run spent, and what its budget leaves."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.config import Budget
from acts.language.usage import Usage

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


def test_ten_cents_in_cents_are_ten_cents() -> None:
    made = Usage()
    for _ in range(10):
        made.add({"cost": 0.01})
    assert made.to_json()["cost"] == 0.1


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


@pytest.mark.parametrize(
    ("budget", "sums", "flying", "words"),
    [
        ({}, {"requests": 10**6, "cost": 10**6}, 10, None),
        ({"requests": 2}, {"requests": 1}, 0, None),
        ({"requests": 2}, {"requests": 1}, 1, "2 requests"),
        ({"requests": 2}, {"requests": 2}, 0, "2 requests"),
        ({"requests": 0}, {}, 0, "0 requests"),
        ({"tokens": 100}, {"inputTokens": 60, "outputTokens": 39}, 5, None),
        ({"tokens": 100}, {"inputTokens": 60, "outputTokens": 40}, 0, "100 tokens"),
        ({"tokens": 100}, {"cachedTokens": 500, "reasoningTokens": 500}, 0, None),  # they are part of the others
        ({"cost": 0.5}, {"cost": 0.499}, 0, None),
        ({"cost": 0.5}, {"cost": 0.5}, 0, "0.5 US dollars"),
        ({"cost": 0}, {}, 0, "0 US dollars"),
        ({"requests": 9, "tokens": 10, "cost": 1}, {"requests": 1, "inputTokens": 50}, 0, "10 tokens"),
        ({"calls": 0, "depth": 0}, {"requests": 1}, 0, None),  # others look after these
    ],
)
def test_a_budget_is_exhausted_at_its_limit_and_not_before(
    budget: dict[str, Json], sums: dict[str, Json], flying: int, words: str | None
) -> None:
    found = spent(**sums).exhausted(Budget.model_validate(budget), flying=flying)
    assert found == (None if words is None else f"the budget of {words} is spent")


@pytest.mark.parametrize("limit", [1_000_000, 1_234_567])
def test_a_large_limit_is_told_in_full(limit: int) -> None:
    found = spent(inputTokens=2 * limit).exhausted(Budget(tokens=limit)) or ""
    assert str(limit) in found.replace(",", "")


def test_what_is_left_names_only_what_is_limited() -> None:
    made = spent(requests=3, inputTokens=10, outputTokens=10, cost=None)
    assert made.left(Budget()) == {}
    assert made.left(Budget(requests=2, tokens=50, cost=1.0), flying=1) == {"requests": -2, "tokens": 30, "cost": 1.0}
