"""A run that ends before it has begun finds the token of its tree in whatever it was started with."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from acts.tree.records import AgentState, Capabilities, DelegateInput, InstanceInput, PlanInput, PlanState, TreePosition
from acts.tree.wire_format import VersionedRecord
from acts.workflows.payloads import NOTHING, encode, encode_record, encode_state, find_token, raw

REQUEST = {"config": {"model": None}, "context": [{"type": "plan", "plan": []}]}
MARK = "of the tree"
AT = TreePosition(ancestors=("r",), token=MARK)
INPUT = PlanInput(request=REQUEST, position=AT)
BEGUN: dict[str, Any] = {"request": REQUEST, "capabilities": Capabilities(), "approvals": {}, "budget": {}}


def state(record: VersionedRecord) -> RawValue:
    value = encode_state(record)
    assert value is not None
    return value


STARTS = {
    "a plan": encode_record(INPUT),
    "an instance": encode_record(InstanceInput(request=REQUEST, position=AT, instances=("a",))),
    "a delegate": encode_record(DelegateInput(delegate="d", input={}, context=(), config={}, position=AT)),
    "a plan that continues as new": state(PlanState(**BEGUN, walk={}, input=INPUT.to_json())),
    "an agent that continues as new": state(AgentState(**BEGUN, position=AT)),
}


@pytest.mark.parametrize("start", STARTS)
def test_the_token_is_found_in_each_record(start: str) -> None:
    assert find_token(STARTS[start]) == MARK


NO_STARTS = {
    "nothing": NOTHING,
    "a Request": encode(REQUEST),
    "a list": encode([{"position": {"token": "x"}}]),
    "a place without a token": encode({"position": {}}),
    "a place that is none": encode({"position": "x"}),
    "a token that is none": encode({"position": {"token": 1}}),
    "no JSON": raw(b"{"),
    "deep JSON": raw(b"[" * 100_000),
    "not compressed": RawValue(Payload(metadata={"encoding": b"binary/plain"}, data=b"x")),
}


@pytest.mark.parametrize("start", NO_STARTS)
def test_whatever_a_stranger_starts_a_run_with_has_no_token(start: str) -> None:
    assert find_token(NO_STARTS[start]) is None
