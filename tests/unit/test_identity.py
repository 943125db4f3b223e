"""Where an ``_id`` comes from: stable under everything that repeats a run, different for all that is another Call."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts.tree.identity import MAX_ID_BYTES, call_identity, child_id, part_identity, root_identity, short_id, tree_token

ROOT = root_identity("run", "6d1f")
names = st.text(st.sampled_from("ab/%2F:1~"), max_size=8)
calls = st.builds("{}:{}".format, st.integers(1, 3), st.text(st.sampled_from("ab/%:1"), min_size=1, max_size=6))


@given(st.lists(st.tuples(st.none() | names.filter(bool), calls), min_size=2, max_size=2, unique=True))
def test_two_calls_of_a_run_have_two_ids_whatever_their_instances_and_tools_are_called(
    pair: list[tuple[str | None, str]],
) -> None:
    one, other = (call_identity(ROOT, *who) for who in pair)
    assert one != other


def test_the_ids_of_different_runs_and_parts_differ() -> None:
    identities = [
        ROOT, root_identity("run", "6d20"), root_identity("other", "6d1f"),
        part_identity(ROOT, "plan-1"), part_identity(ROOT, "plan-2"),
        part_identity(part_identity(ROOT, "plan-1"), "plan-1"), call_identity(ROOT, None, "1:pay"),
        call_identity(call_identity(ROOT, None, "1:pay"), None, "1:pay"), call_identity(ROOT, "Ann", "1:pay"),
    ]  # fmt: skip
    for one, other in combinations(identities, 2):
        assert call_identity(one, None, "1:pay") != call_identity(other, None, "1:pay")


def test_an_id_does_not_change_between_versions() -> None:
    """A run that is reset after an update must give its Calls the ids that they had."""
    assert call_identity(ROOT, None, "1:pay") == "a0f63599-1a0d-590d-8dfa-2dc2566d5949"
    assert call_identity(part_identity(ROOT, "plan-1"), "Ann", "2:refund") == "4b31a3d9-5dd3-56f8-95a3-092814df193e"


def test_the_token_needs_the_request_and_the_identity() -> None:
    token = tree_token(ROOT, b"{}")
    assert len(token) == 32
    assert token == tree_token(ROOT, b"{}")
    assert token not in (tree_token(ROOT, b"{ }"), tree_token(ROOT + "x", b"{}"), tree_token(ROOT, b""))


@pytest.mark.parametrize("character", ["x", "é", "長", "😀"])
def test_an_id_that_is_too_long_ends_in_a_hash(character: str) -> None:
    ids = [short_id(f"run/{character * 900}{end}") for end in "ab"]
    assert ids[0] != ids[1]
    for id_ in ids:
        assert len(id_.encode()) <= MAX_ID_BYTES
        assert id_.startswith(f"run/{character}")
    assert short_id(ids[0]) == ids[0]


def test_the_id_of_a_child_is_below_its_parents_and_not_changed_at_the_limit() -> None:
    assert child_id("run", "1:shorten") == "run/1:shorten"
    assert short_id("x" * MAX_ID_BYTES) == "x" * MAX_ID_BYTES
