"""Decisions as they are read and matched with what waits: a table of cases, and nothing of Temporal."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.config import Approve
from acts.language.errors import DecisionRefused
from acts.plan.calls import find_rule
from acts.plan.validate import validate_request
from acts.tree.decisions import MAX_TEXT_LENGTH, Decision, PendingApproval, match_decision, read_decision

Json = Any
SINCE = "2026-01-01T00:00:00.000Z"


def wait(what: str, version: int, run: str = "run", **names: str) -> PendingApproval:
    return PendingApproval(workflow_id=run, what=what, version=version, since=SINCE, **names)


PLAN = wait("plan", 1)
PAY = wait("call", 3, call="2:pay")
SCOPES = wait("scopes", 3, call="4:look")
BELOW = wait("call", 1, "run/plan-1", call="2:pay")
ANN, BOB = (wait("call", 1, f"run/{i}", call="1:pay", instance=i) for i in ("Ann", "Bob"))
CALL = {"_tool": "pay"}


@pytest.mark.parametrize(
    ("raw", "word", "expected"),
    [
        ({"decision": "approve"}, None, Decision(decision="approve")),
        (None, "approve", Decision(decision="approve")),
        ({}, "approve", Decision(decision="approve")),
        ({"decision": "reject", "reason": "no"}, None, Decision(decision="reject", reason="no")),
        ({"note": "no"}, "reject", Decision(decision="reject", reason="no")),
        ({"reason": "one", "note": "other"}, "approve", Decision(decision="approve", reason="one")),
        (
            {"call": "2:pay", "by": "Ada", "version": 0},
            "approve",
            Decision(decision="approve", call="2:pay", by="Ada", version=0),
        ),
        (
            {"workflowId": "run", "instance": "Ann", "version": -1},
            "approve",
            Decision(decision="approve", instance="Ann", workflow_id="run", version=-1),
        ),
        ({"call": None, "plan": None, "with": None, "version": None}, "approve", Decision(decision="approve")),
        ({"plan": [CALL]}, "edit", Decision(decision="edit", calls=[CALL])),
        ({"plan": []}, "edit", Decision(decision="edit", calls=[])),
        ({"plan": {"type": "plan", "plan": [CALL]}}, "edit", Decision(decision="edit", calls=[CALL])),
        ({"call": "2:pay", "with": CALL}, "edit", Decision(decision="edit", call="2:pay", call_with=CALL)),
        ({"by": "x" * MAX_TEXT_LENGTH}, "approve", Decision(decision="approve", by="x" * MAX_TEXT_LENGTH)),
    ],
)
def test_a_decision_is_read(raw: Json, word: str | None, expected: Decision) -> None:
    found = read_decision(raw, word)
    assert found == expected
    assert read_decision(found.to_json()) == found


@pytest.mark.parametrize(
    ("raw", "word", "words"),
    [
        (None, None, "an object, not null"),
        (None, "reject", "an object, not null"),
        ([{"decision": "approve"}], None, "an object, not list"),
        ({}, None, "allowed: approve, reject, edit"),
        ({"plan": [CALL], "call": "2:pay"}, "edit", "has either"),
        ({"decision": "Approve"}, None, "allowed: approve, reject, edit"),
        ({"decision": "fail"}, None, "allowed: approve, reject, edit"),
        ({"decision": "x" * 10_000}, None, "allowed: approve, reject, edit"),
        ({"decision": "reject", "reason": "too dear"}, "approve", "allowed: approve"),
        ({"Call": "2:pay"}, "approve", "Call: Extra inputs are not permitted"),
        ({"call": 2}, "approve", "call: Input should be a valid string"),
        ({"workflowId": ["run"]}, "approve", "workflowId: Input should be a valid string"),
        ({"by": "x" * (MAX_TEXT_LENGTH + 1)}, "approve", f"at most {MAX_TEXT_LENGTH}"),
        ({"reason": "x" * (MAX_TEXT_LENGTH + 1)}, "reject", f"at most {MAX_TEXT_LENGTH}"),
        ({"note": 1}, "approve", "reason: Input should be a valid string"),
        ({"reason": ""}, "reject", "reason"),
        ({"version": 1.5}, "approve", "version: Input should be a valid integer"),
        ({"version": True}, "approve", "version: Input should be a valid integer"),
        ({"plan": []}, "approve", "belong to the decision edit"),
        ({"with": {}}, "approve", "belong to the decision edit"),
        ({}, "edit", 'either "plan"'),
        ({"plan": [], "call": "2:pay", "with": {}}, "edit", 'either "plan"'),
        ({"plan": {"plan": "2:pay"}}, "edit", "plan: Input should be a valid list"),
        ({"with": CALL, "call": ""}, "edit", "names it"),
        ({"with": [CALL], "call": "2:pay"}, "edit", "with: Input should be a valid dictionary"),
    ],
)
def test_what_is_no_decision_is_refused_and_says_why(raw: Json, word: str | None, words: str) -> None:
    with pytest.raises(DecisionRefused) as refused:
        read_decision(raw, word)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize(
    ("waits", "raw", "words"),
    [
        ([], {"decision": "approve"}, "nothing that waits"),
        ([PLAN], {"decision": "approve", "call": "1:pay"}, "nothing that waits"),
        ([PLAN], {"decision": "approve", "instance": "Ann"}, "nothing that waits"),
        ([PLAN], {"decision": "approve", "workflowId": "RUN"}, "nothing that waits"),
        ([PLAN], {"decision": "approve", "version": 2}, "version 2 is not what waits"),
        ([ANN], {"decision": "edit", "plan": []}, "nothing that waits"),
        ([PAY], {"decision": "approve", "subject": "0" * 16}, "the subject 0000"),
        ([PAY], {"decision": "approve", "call": "2:pay", "version": 1}, "version 1 is not what waits"),
        ([PAY], {"decision": "approve", "call": "2:PAY"}, "nothing that waits"),
        ([PAY, SCOPES], {"decision": "approve"}, "2 waits are matched"),
        ([PAY, BELOW], {"decision": "approve", "call": "2:pay"}, "2 waits are matched"),
        ([ANN, BOB], {"decision": "approve", "call": "1:pay"}, "2 waits are matched"),
        ([ANN, BOB], {"decision": "approve", "instance": "Cleo"}, "nothing that waits"),
        ([PLAN, ANN], {"decision": "approve"}, "2 waits are matched"),
    ],
)
def test_a_decision_that_matches_none_or_several_is_refused(
    waits: list[PendingApproval], raw: Json, words: str
) -> None:
    with pytest.raises(DecisionRefused) as refused:
        match_decision(waits, read_decision(raw))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("approve", "properties", "call", "expected"),
    [
        ({}, {}, {}, None),
        ({"calls": True}, {}, {}, "call"),
        ({"calls": ["pay"]}, {}, {}, "call"),
        ({"calls": ["Pay", "2:pay", "other"]}, {}, {}, None),
        ({"calls": []}, {}, {}, None),
        ({}, {"_approval": {"const": True}}, {}, "call"),
        ({}, {"_approval": {"const": False}}, {}, None),
        ({"scopes": True}, {}, {}, None),
        ({"scopes": True}, {"_scopes": {"type": "array"}}, {"_scopes": ["input"]}, "scopes"),
        ({"scopes": True}, {"_scopes": {"type": "array"}}, {"_scopes": []}, None),
        ({"scopes": True}, {"_scopes": {"const": ["input"]}}, {}, None),
        ({"scopes": True, "calls": True}, {"_scopes": {"type": "array"}}, {"_scopes": ["input"]}, "call"),
        ({"scopes": False}, {"_scopes": {"type": "array"}}, {"_scopes": ["input"]}, None),
    ],
)
def test_what_of_a_call_is_asked_about(
    approve: dict[str, Json], properties: dict[str, Json], call: dict[str, Json], expected: str | None
) -> None:
    meta = {"_tool": {"const": "pay"}, "_activity": {"const": "pay"}, "_outputPath": {"type": "string"}}
    tool = {"type": "tool", "tool": {"type": "object", "properties": {**meta, **properties}}}
    plan = {"type": "plan", "plan": [{"_tool": "pay", "_outputPath": "†state.a", **call}]}
    found = validate_request({"config": {}, "context": [tool, {"type": "input", "x": 1}, plan]})
    assert (find_rule(found.nodes[0], Approve.model_validate(approve)) or (None,))[0] == expected
