"""The ids of child runs: readable while they fit, unique always."""

from __future__ import annotations

import pytest

from acts.tree.child_ids import MAX_ID_BYTES, call_child_id, instance_child_id, plan_child_id, short_id


def test_the_id_of_a_child_is_below_its_parents() -> None:
    assert plan_child_id("run", 2) == "run/plan-2"
    assert call_child_id("run/plan-2", "1:shorten") == "run/plan-2/1:shorten"
    assert instance_child_id("run", "c1") == "run/c1"


@pytest.mark.parametrize("character", ["x", "é", "長", "😀"])
def test_an_id_that_is_too_long_ends_in_a_hash(character: str) -> None:
    ids = [short_id(f"run/{character * 900}{end}") for end in "ab"]
    assert ids[0] != ids[1]
    for id_ in ids:
        assert len(id_.encode()) <= MAX_ID_BYTES
        assert id_.startswith(f"run/{character}")
    assert short_id(ids[0]) == ids[0]


def test_an_id_at_the_limit_is_not_changed() -> None:
    assert short_id("x" * MAX_ID_BYTES) == "x" * MAX_ID_BYTES
