"""Decisions as they are read and matched with what waits: a table of cases, and nothing of Temporal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts.language.config import Approve
from acts.language.errors import DecisionRefused
from acts.plan.planned_call import approval_needed
from acts.plan.validate import validate_request
from acts.tree.decisions import MAX_TEXT_LENGTH, Decision, PendingApproval, match_decision, read_decision

Json = Any
SINCE = "2026-01-01T00:00:00.000Z"
PLAN = PendingApproval("run", "plan", 1, SINCE)
PAY = PendingApproval("run", "call", 3, SINCE, call="2:pay")
SCOPES = PendingApproval("run", "scopes", 3, SINCE, call="4:look")
BELOW = PendingApproval("run/plan-1", "call", 1, SINCE, call="2:pay")
ANN, BOB = (PendingApproval(f"run/{i}", "call", 1, SINCE, call="1:pay", instance=i) for i in ("Ann", "Bob"))
CALL = {"_tool": "pay"}


# -- reading -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "word", "expected"),
    [
        ({"decision": "approve"}, None, Decision("approve")),
        (None, "approve", Decision("approve")),
        ({}, "approve", Decision("approve")),
        ({"decision": "reject", "reason": "no"}, None, Decision("reject", reason="no")),
        ({"note": "no"}, "reject", Decision("reject", reason="no")),
        ({"reason": "one", "note": "other"}, "approve", Decision("approve", reason="one")),
        ({"call": "2:pay", "by": "Ada", "version": 0}, "approve", Decision("approve", "2:pay", by="Ada", version=0)),
        (
            {"workflowId": "run", "instance": "Ann", "version": -1},
            "approve",
            Decision("approve", instance="Ann", workflow_id="run", version=-1),
        ),
        ({"call": None, "plan": None, "with": None, "version": None}, "approve", Decision("approve")),
        ({"plan": [CALL]}, "edit", Decision("edit", calls=(CALL,))),
        ({"plan": []}, "edit", Decision("edit", calls=())),
        ({"plan": {"type": "plan", "plan": [CALL]}}, "edit", Decision("edit", calls=(CALL,))),
        ({"plan": [CALL], "call": "2:pay"}, "edit", Decision("edit", "2:pay", calls=(CALL,))),
        ({"call": "2:pay", "with": CALL}, "edit", Decision("edit", "2:pay", call_with=CALL)),
        ({"by": "x" * MAX_TEXT_LENGTH}, "approve", Decision("approve", by="x" * MAX_TEXT_LENGTH)),
    ],
)
def test_a_decision_is_read(raw: Json, word: str | None, expected: Decision) -> None:
    found = read_decision(raw, word)
    assert found.raw == (raw or {})
    names = ("decision", "call", "instance", "workflow_id", "version", "by", "reason", "calls", "call_with")
    assert [getattr(found, n) for n in names] == [getattr(expected, n) for n in names]


@pytest.mark.parametrize(
    ("raw", "word", "words"),
    [
        (None, None, "an object, not null"),
        (None, "reject", "an object, not null"),
        (None, "edit", "an object, not null"),
        ("approve", None, "an object, not string"),
        ([{"decision": "approve"}], None, "an object, not list"),
        (True, "approve", "an object, not boolean"),
        ({}, None, "allowed: approve, reject, edit"),
        ({"decision": None}, None, "allowed: approve, reject, edit"),
        ({"decision": "Approve"}, None, "allowed: approve, reject, edit"),
        ({"decision": "fail"}, None, "allowed: approve, reject, edit"),
        ({"decision": ["approve"]}, None, "allowed: approve, reject, edit"),
        ({"decision": {"a": 1}}, None, "allowed: approve, reject, edit"),
        ({"decision": "x" * 10_000}, None, "allowed: approve, reject, edit"),
        ({"Call": "2:pay"}, "approve", "unknown key Call"),
        ({"": 1}, "approve", "unknown key"),
        ({"call": 2}, "approve", '"call" is a string'),
        ({"call": True}, "approve", '"call" is a string'),
        ({"instance": 0}, "approve", '"instance" is a string'),
        ({"workflowId": ["run"]}, "approve", '"workflowId" is a string'),
        ({"by": {"name": "Ada"}}, "approve", '"by" is a string'),
        ({"by": "x" * (MAX_TEXT_LENGTH + 1)}, "approve", f"at most {MAX_TEXT_LENGTH}"),
        ({"reason": "x" * (MAX_TEXT_LENGTH + 1)}, "reject", f"at most {MAX_TEXT_LENGTH}"),
        ({"reason": 1}, "reject", '"reason" is a string'),
        ({"note": False}, "approve", '"note" is a string'),
        ({"reason": ""}, "reject", "reason"),
        ({"version": 1.5}, "approve", '"version" is a number'),
        ({"version": True}, "approve", '"version" is a number'),
        ({"version": [1]}, "approve", '"version" is a number'),
        ({"plan": []}, "approve", "belong to the decision edit"),
        ({"with": {}}, "approve", "belong to the decision edit"),
        ({"with": False, "reason": "no"}, "reject", "belong to the decision edit"),
        ({}, "edit", 'either "plan"'),
        ({"plan": [], "call": "2:pay", "with": {}}, "edit", 'either "plan"'),
        ({"plan": "2:pay"}, "edit", '"plan" is a list of Calls, not string'),
        ({"plan": {"plan": "2:pay"}}, "edit", '"plan" is a list of Calls, not object'),
        ({"plan": 0}, "edit", '"plan" is a list of Calls, not number'),
        ({"with": CALL}, "edit", "names it"),
        ({"with": CALL, "call": ""}, "edit", "names it"),
        ({"with": [CALL], "call": "2:pay"}, "edit", '"with" is a Call, not list'),
        ({"with": "pay", "call": "2:pay"}, "edit", '"with" is a Call, not string'),
    ],
)
def test_what_is_no_decision_is_refused_and_says_why(raw: Json, word: str | None, words: str) -> None:
    with pytest.raises(DecisionRefused) as refused:
        read_decision(raw, word)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 1_000


def test_a_signal_that_says_another_decision_than_its_name_is_refused() -> None:
    with pytest.raises(DecisionRefused):
        read_decision({"decision": "reject", "reason": "too dear"}, "approve")


# -- matching ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waits", "raw", "expected"),
    [
        ([PLAN], {"decision": "approve"}, PLAN),
        ([PLAN], {"decision": "approve", "version": 1}, PLAN),
        ([PLAN], {"decision": "approve", "workflowId": "run"}, PLAN),
        ([PLAN], {"decision": "edit", "call": "7:any", "with": CALL}, PLAN),
        ([PLAN], {"decision": "edit", "plan": []}, PLAN),
        ([PAY], {"decision": "approve"}, PAY),
        ([PAY, SCOPES], {"decision": "approve", "call": "2:pay"}, PAY),
        ([PAY, SCOPES], {"decision": "reject", "reason": "no", "call": "4:look", "version": 3}, SCOPES),
        ([PAY, SCOPES], {"decision": "edit", "call": "4:look", "with": CALL}, SCOPES),
        ([PAY, SCOPES], {"decision": "edit", "call": "4:look", "plan": []}, SCOPES),
        ([PAY, BELOW], {"decision": "approve", "workflowId": "run/plan-1"}, BELOW),
        ([PAY, BELOW], {"decision": "approve", "workflowId": "run", "call": "2:pay"}, PAY),
        ([ANN, BOB], {"decision": "approve", "instance": "Bob"}, BOB),
        ([ANN, BOB], {"decision": "approve", "workflowId": "run/Ann"}, ANN),
        ([PLAN, ANN], {"decision": "approve", "call": "1:pay"}, ANN),
        ([PLAN, ANN], {"decision": "edit", "plan": []}, PLAN),
    ],
)
def test_a_decision_reaches_the_one_wait_that_it_matches(
    waits: list[PendingApproval], raw: Json, expected: PendingApproval
) -> None:
    assert match_decision(waits, read_decision(raw)) == expected


@pytest.mark.parametrize(
    ("waits", "raw", "words"),
    [
        ([], {"decision": "approve"}, "nothing that waits"),
        ([PLAN], {"decision": "approve", "call": "1:pay"}, "nothing that waits"),
        ([PLAN], {"decision": "reject", "reason": "no", "call": "1:pay"}, "nothing that waits"),
        ([PLAN], {"decision": "approve", "instance": "Ann"}, "nothing that waits"),
        ([PLAN], {"decision": "approve", "workflowId": "RUN"}, "nothing that waits"),
        ([PLAN], {"decision": "approve", "workflowId": ""}, "nothing that waits"),
        ([PLAN], {"decision": "approve", "version": 2}, "version 2 is not what waits"),
        ([PLAN], {"decision": "approve", "version": 0}, "version 0 is not what waits"),
        ([PAY], {"decision": "edit", "plan": []}, "nothing that waits"),
        ([PAY], {"decision": "approve", "call": "2:pay", "version": 1}, "version 1 is not what waits"),
        ([PAY], {"decision": "approve", "call": "2:PAY"}, "nothing that waits"),
        ([PAY, SCOPES], {"decision": "approve"}, "2 waits are matched"),
        ([PAY, BELOW], {"decision": "approve", "call": "2:pay"}, "2 waits are matched"),
        ([PAY, BELOW], {"decision": "approve", "call": "2:pay", "version": 1}, "2 waits are matched"),
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


def test_a_refusal_stays_short_however_many_wait() -> None:
    waits = [PendingApproval("run", "call", 1, SINCE, call=f"{i}:pay") for i in range(5_000)]
    for raw in ({"decision": "approve"}, {"decision": "approve", "call": "x" * MAX_TEXT_LENGTH}):
        with pytest.raises(DecisionRefused) as refused:
            match_decision(waits, read_decision(raw))
        assert len(str(refused.value)) < 5_000


@pytest.mark.parametrize(
    "wait", [PLAN, PAY, SCOPES, BELOW, ANN, PendingApproval("r", "plan", 9, SINCE, deadline=SINCE)]
)
def test_a_wait_is_what_its_json_says(wait: PendingApproval) -> None:
    assert PendingApproval.from_json(json.loads(json.dumps(wait.to_json()))) == wait


# -- what is asked about --------------------------------------------------------------


@pytest.mark.parametrize(
    ("approve", "properties", "call", "expected"),
    [
        ({}, {}, {}, None),
        ({"calls": True}, {}, {}, "call"),
        ({"calls": ["pay"]}, {}, {}, "call"),
        ({"calls": ["Pay", "2:pay", "other"]}, {}, {}, None),
        ({"calls": []}, {}, {}, None),
        ({}, {"_approval": {"const": True}}, {}, "call"),
        ({}, {"_approval": {"type": "boolean"}}, {"_approval": True}, "call"),
        ({}, {"_approval": {"type": "boolean"}}, {"_approval": False}, None),
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
    assert approval_needed(found.nodes[0], Approve.model_validate(approve)) == expected
