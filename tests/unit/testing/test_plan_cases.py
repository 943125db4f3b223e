"""Tests of one's own plans: what cases may say, what a rehearsal does with it, and what it reports."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.errors import InvalidRequest
from acts.plan.validate import validate_request
from acts.testing.rehearsal import AWAITING, Rehearsal, Script, find_mismatches, read_case_file, rehearse

Json = Any


def tool(name: str, **more: Json) -> Json:
    schema = {"type": "object", "properties": {"_tool": {"const": name}, "_activity": {"const": name}, "x": {}, **more}}
    schema["properties"] |= {k: {} for k in ("_outputPath", "_errorPath") if k not in more}
    return {"type": "tool", "tool": schema}


def request(*plan: Json, context: Json = (), config: Json = None, **tools: Json) -> Json:
    names = dict.fromkeys(call["_tool"] for call in plan)
    messages = [tool(name, **tools.get(name, {})) for name in names]
    messages += [{"type": "input", "input": {"ok": True, "n": 3, "list": [1, 2]}}, *context]
    return {"config": config or {}, "context": [*messages, {"type": "plan", "plan": list(plan)}]}


BRANCHING = request(
    {"_tool": "charge", "x": "†input.n", "_outputPath": "†state.receipt || †state.error"},
    {"_tool": "mail", "x": "†state.receipt", "_when": "†input.ok", "_outputPath": "†state.mailed"},
)
ELEMENTS = request({"_tool": "send", "_each": "†input.list", "x": "†item", "_outputPath": "†state.sent"})
APPROVED = request(
    {"_tool": "pay", "x": 1, "_outputPath": "†state.paid"}, config={"approve": {"calls": ["pay"], "timeout": "1h"}}
)
LATENT = {"_activity": {"const": ""}, "_output": {}}
CHOOSING = request(
    {"_tool": "judge", "x": 1, "_outputPath": "†state.good || †state.bad"},
    config={"model": "scripted:none"}, judge=LATENT,
)  # fmt: skip
PEOPLE = [{"type": "data", "data": {"name": n}, "_instance": n} for n in ("ann", "bob")]
INSTANCES = request({"_tool": "grade", "x": "†data.name", "_outputPath": "†state.grade"}, context=PEOPLE)
WAITING = request({"_tool": "go", "x": "†data.late", "_outputPath": "†state.done"}, config={"missing": "wait"})


def run(plan: Json, **script: Json) -> Rehearsal:
    results = script.pop("results", {})
    return rehearse(validate_request(plan), Script(results, **script))


def differences(plan: Json, **case: Json) -> list[str]:
    only = read_case_file({"cases": [case]}).cases[0]
    plan = {**plan, "context": [*plan["context"], *only.messages]}
    script = Script(only.results, only.decisions, only.provide, only.expect.status == AWAITING)
    return [m.text for m in find_mismatches(only, rehearse(validate_request(plan), script))]


PASSING: dict[str, tuple[Json, Json]] = {
    "a failure takes the error path": (
        BRANCHING,
        {
            "results": {"charge": {"$error": {"code": "Declined", "details": {"why": "limit"}}}},
            "expect": {"state": {"error": {"details": {"why": "limit"}}}, "states": {"2:mail": "skipped"}},
        },
    ),
    "a Message chooses its outcome": (
        BRANCHING,
        {
            "results": {"charge": {"type": "state", "state": {"error": "no"}}},
            "expect": {"exactState": {"error": "no"}, "calls": [{"call": "1:charge", "with": {"x": 3}}]},
        },
    ),
    "a failure without a path": (
        BRANCHING,
        {
            "results": {"charge": 1, "2:mail": {"$error": "Bounced"}},
            "expect": {"status": "failed", "errors": [{"call": "2:mail", "code": "Bounced"}]},
        },
    ),
    "results in sequence, by element": (
        ELEMENTS,
        {"results": {"send": {"$sequence": ["a", "b"]}}, "expect": {"state": {"sent": ["a", "b"]}}},
    ),
    "the elements of a call one by one": (
        ELEMENTS,
        {"results": {"send": 1}, "expect": {"calls": ["1:send[0]", {"call": "1:send[1]", "with": {"x": 2}}]}},
    ),
    "a value that looks like a form": (
        BRANCHING,
        {"results": {"charge": {"$value": {"$error": 1}}, "mail": 1}, "expect": {"state": {"receipt": {"$error": 1}}}},
    ),
    "a call is rejected": (
        APPROVED,
        {
            "decisions": [{"decision": "reject", "call": "1:pay", "reason": "no"}],
            "expect": {"status": "rejected", "calls": [], "states": {"1:pay": "rejected"}},
        },
    ),
    "a call is edited, then approved": (
        APPROVED,
        {
            "decisions": [
                {"decision": "edit", "call": "1:pay", "with": {"_tool": "pay", "x": 2, "_outputPath": "†state.paid"}},
                {"decision": "approve", "call": "1:pay"},
            ],
            "results": {"pay": "two"},
            "expect": {"state": {"paid": "two"}, "calls": [{"call": "1:pay", "with": {"x": 2}}]},
        },
    ),
    "a plan for instances is rejected": (
        {**INSTANCES, "config": {"approve": {"plan": True}}},
        {
            "decisions": [{"decision": "reject", "reason": "no"}],
            "expect": {"status": "rejected", "instances": {"ann": {"status": "rejected"}}},
        },
    ),
    "nobody decides in time": (APPROVED, {"expect": {"status": "rejected"}}),
    "it still waits": (APPROVED, {"expect": {"status": "awaiting", "calls": []}}),
    "a model chooses": (
        CHOOSING,
        {"results": {"judge": {"$path": "†state.bad", "$value": 0}}, "expect": {"exactState": {"bad": 0}}},
    ),
    "an instance of its own": (
        INSTANCES,
        {
            "results": {"grade": 1, "bob/grade": {"$error": "Absent"}},
            "expect": {"status": "partial", "instances": {"ann": {"state": {"grade": 1}}, "bob": {"status": "failed"}}},
        },
    ),
    "an instance without calls": (
        request({"_tool": "grade", "x": 1, "_instance": "bob", "_outputPath": "†state.grade"}, context=PEOPLE),
        {"results": {"grade": {"$error": "Absent"}}, "expect": {"status": "partial", "instances": {"ann": {}}}},
    ),
    "a message that comes late": (
        WAITING,
        {
            "provide": [{"type": "data", "data": {"late": 5}}],
            "results": {"go": 1},
            "expect": {"calls": [{"call": "1:go", "with": {"x": 5}}]},
        },
    ),
}

PAID = {"charge": 1, "mail": 1}
FAILING: dict[str, tuple[Json, Json, str]] = {
    "no result": (BRANCHING, {"results": {"mail": 1}}, "1:charge has no canned result; it is called with {'x': 3}"),
    "a misspelt tool": (BRANCHING, {"results": {"chrge": 1}}, '"chrge" (did you mean "charge"?)'),
    "a short sequence": (ELEMENTS, {"results": {"send": {"$sequence": [1]}}}, "1:send[1] needs one more"),
    "no such outcome": (CHOOSING, {"results": {"judge": {"$path": "†state.x"}}}, "can choose †state.good, †state.bad"),
    "an unknown form": (BRANCHING, {"results": {"charge": {"$fail": 1}, "mail": 1}}, "['$fail'] are no keys"),
    "another status": (
        BRANCHING, {"results": {"charge": 1, "mail": {"$error": "Bounced"}}},
        "the status is failed, not completed; 2:mail: [Bounced]",
    ),
    "another state": (BRANCHING, {"results": PAID, "expect": {"state": {"mailed": 2}}}, "the state"),
    "another order": (
        BRANCHING, {"results": PAID, "expect": {"calls": ["2:mail", "1:charge"]}}, "other calls ran"
    ),
    "other parameters": (
        BRANCHING,
        {"results": PAID, "expect": {"calls": [{"call": "1:charge", "with": {"x": 4}}, "2:mail"]}},
        "1:charge is called with other parameters",
    ),
    "a decision too many": (
        APPROVED,
        {"decisions": [{"decision": "approve"}, {"decision": "approve"}], "results": {"pay": 1}},
        "was not needed: the run had ended",
    ),
    "another state of a call": (
        BRANCHING, {"results": PAID, "expect": {"states": {"2:mail": "skipped"}}}, "2:mail is completed"
    ),
    "no such instance": (INSTANCES, {"results": {"grade": 1}, "expect": {"instances": {"cat": {}}}}, "no instance cat"),
}  # fmt: skip


@pytest.mark.parametrize("name", PASSING)
def test_a_case_passes(name: str) -> None:
    plan, case = PASSING[name]
    assert differences(plan, **case) == []


@pytest.mark.parametrize("name", FAILING)
def test_a_case_fails_and_says_why(name: str) -> None:
    plan, case, text = FAILING[name]
    assert any(text in line for line in differences(plan, **case)), differences(plan, **case)


def test_a_function_is_a_canned_result() -> None:
    class LimitReached(Exception):
        """As an ApplicationError, it has a message."""

    def charge(call: Json) -> Json:
        if call["x"] > 2:
            raise LimitReached(f"{call['x']} is too much")
        return call["x"]

    state = run(BRANCHING, results={"charge": charge}).result["state"]
    assert state == {"error": {"code": "LimitReached", "message": "3 is too much"}}


def test_a_test_file_is_read_completely_before_it_is_refused() -> None:
    raw = {
        "plans": "a.yaml",
        "cases": [{"name": "a", "inputs": 1, "expect": {"status": "done", "calls": [{"cal": "1:a"}]}}],
    }
    with pytest.raises(InvalidRequest) as refused:
        read_case_file(raw)
    assert {(p.pointer, p.hint) for p in refused.value.problems if p.hint and "mean" in p.hint} == {
        ("/plans", 'did you mean "plan"?'),
        ("/cases/0/inputs", 'did you mean "input"?'),
        ("/cases/0/expect/calls/0/cal", 'did you mean "call"?'),
    }
    assert "/cases/0/expect/status" in {p.pointer for p in refused.value.problems}
