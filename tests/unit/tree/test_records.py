"""Every record that crosses from one run to another: what is written is read again, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from acts.language.config import Budget
from acts.tree.records import (
    DEFAULT_DEPTH,
    BackgroundInput,
    BudgetAccount,
    CallRecord,
    DelegateInput,
    TreePosition,
    WalkState,
)
from acts.tree.signal_records import BudgetGrant
from acts.tree.wire_format import WIRE_VERSION, Record, RecordError

Json = Any
POSITION = TreePosition(ancestors=("r",), accounts=(BudgetAccount(id="r", limits=Budget(cost=1.5)),), maxParallel=7)
DELEGATE = DelegateInput(delegate="d", input={"x": None}, context=(), config={}, position=POSITION)
VALUE = {"a": "\ud800", "b": [1, {"c": None, "d": 1.0}]}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (POSITION, {"ancestors": ["r"], "accounts": [{"id": "r", "limits": {"cost": 1.5}}], "maxParallel": 7}),
        (BudgetGrant(id=1), {"v": WIRE_VERSION, "id": 1}),
        (
            WalkState(calls={1: CallRecord(stage="completed", value=VALUE, date="now")}),
            {"calls": {"1": {"stage": "completed", "value": VALUE, "date": "now"}}},
        ),
        (
            BackgroundInput(label="x", delegate=DELEGATE),
            {"v": WIRE_VERSION, "label": "x", "delegate": {
                "delegate": "d", "input": {"x": None}, "context": [], "config": {},
                "position": {
                    "ancestors": ["r"], "accounts": [{"id": "r", "limits": {"cost": 1.5}}], "maxParallel": 7,
                },
            }},
        ),
    ],
)  # fmt: skip
def test_a_record_is_written_without_its_defaults_and_read_again(record: Record, expected: Json) -> None:
    data = json.loads(json.dumps(record.to_json()))
    assert data == expected
    assert type(record).from_json(data) == record


def test_a_record_is_frozen_and_has_no_other_fields() -> None:
    record = BudgetGrant(id=1)
    with pytest.raises(ValidationError):
        record.v = 2
    with pytest.raises(RecordError, match="not a BudgetGrant: surprise: "):
        BudgetGrant.from_json({**record.to_json(), "surprise": 1})


def test_a_later_version_is_refused_by_name() -> None:
    later = {"id": 1, "v": WIRE_VERSION + 1, "somethingNew": True}
    with pytest.raises(RecordError, match=rf"not a BudgetGrant: .* version {WIRE_VERSION + 1} .* update it"):
        BudgetGrant.from_json(later)


@pytest.mark.parametrize(
    ("class_", "data", "says"),
    [
        (BudgetGrant, None, "not a BudgetGrant: "),
        (BudgetGrant, {}, "not a BudgetGrant: id: Field required"),
        (BudgetGrant, {"id": "x"}, "not a BudgetGrant: id: "),
        (BudgetGrant, {"id": 1, "granted": [{"id": 5}]}, "not a BudgetGrant: granted.0.id: "),
        (BudgetGrant, {"id": 1, "v": "new"}, "not a BudgetGrant: v: "),
        (BudgetAccount, {"id": "r", "limits": {"requests": -1}}, "not a BudgetAccount: limits.requests: "),
        (BudgetAccount, {"id": "r", "limits": {"reqests": 1}}, "not a BudgetAccount: limits.reqests: "),
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused_and_its_field_named(class_: type[Record], data: Json, says: str) -> None:
    with pytest.raises(RecordError) as refused:
        class_.from_json(data)
    assert says in str(refused.value)


def test_a_child_stands_below_its_parent_and_a_delegate_one_level_deeper() -> None:
    root = TreePosition()
    assert (root.is_root, root.depth, root.maxDepth) == (True, 0, DEFAULT_DEPTH)
    plan = root.child("r")
    assert (plan.ancestors, plan.depth, plan.instance) == (("r",), 0, None)
    room = plan.delegate("r/plan-1", "Ann")
    assert (room.ancestors, room.depth, room.instance) == (("r", "r/plan-1"), 1, "Ann")
    assert room.child("r/plan-1/2:send", "Bob").instance == "Ann"  # that of the root's plan


@pytest.mark.parametrize(
    ("depth", "budget", "expected"),
    [(0, None, DEFAULT_DEPTH), (0, 3, 3), (0, 20, 20), (2, 3, 5), (2, 100, DEFAULT_DEPTH), (2, 0, 2)],
)
def test_a_budget_of_depth_counts_from_where_it_is_set_and_never_exceeds_one_above(
    depth: int, budget: int | None, expected: int
) -> None:
    position = TreePosition(ancestors=("r",) * depth, depth=depth)
    assert position.with_budget("r/x", Budget(depth=budget)).maxDepth == expected


def test_a_child_has_the_token_of_its_tree_and_an_identity_where_its_work_is_its_own() -> None:
    root = TreePosition(identity="i", token="t")  # noqa: S106
    part, delegate = root.child("r", "Ann"), root.delegate("r", "Ann", "its call")
    assert (part.identity, part.token) == ("i", "t")
    assert (delegate.identity, delegate.token) == ("its call", "t")
