"""Rules for decisions, people as tools, and approvals that hold for like Calls: the machine of a run, by tables."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from acts.activities.shipped_tools import PLAN as WALKS
from acts.language.errors import InvalidRequest
from acts.language.messages import Data, parse_message
from acts.machines import events
from acts.plan.validate import approve_problems, validate_request
from acts.tree.child_requests import delegate_request
from acts.tree.decisions import Decision, PendingApproval, make_statement, read_approvers, read_decision, who_problems
from acts.tree.records import DelegateInput, TreePosition
from acts.tree.signal_records import ForwardedDecision
from acts.tree.wire_format import digest
from tests.property.test_approved_subjects import KEYS, ROOT, World
from tests.workflow.foreign import call, own, tool

Json = Any
PAY = tool("pay", activity="pay", n={"type": "number"})
FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
PUBLIC = {name: base64.b64encode(key.public_key().public_bytes_raw()).decode() for name, key in KEYS.items()}
APPROVERS = read_approvers({"ada": {"keys": PUBLIC["ada"], "groups": ["finance"]}, "eve": PUBLIC["eve"]})


def ask(**person: Json) -> Json:
    message = tool("ask", activity=None)
    message["tool"]["properties"] |= {"_output": FORM, "_person": person}
    return message


def start(*plan: Json, tools: Json = (PAY,), approvers: Json = (), **approve: Json) -> World:
    context = [*tools, {"type": "plan", "plan": list(plan)}]
    position = TreePosition(identity="run", token="t", approvers=approvers)  # noqa: S106
    world = World({"config": {"approve": approve}, "context": context}, position)
    world.runs[ROOT] = world.root()
    world.send(ROOT, events.Begin())
    return world


def decide(world: World, word: str = "approve", **raw: Json) -> str:
    """What refuses a decision; "" if it is carried out."""
    name = f"u{len(world.answers)}"
    world.send(ROOT, events.DecisionReceived(raw, word, name))
    problem = world.answers[name]
    return "" if problem is None else problem.message


def sign(world: World, who: str, wait: PendingApproval | None = None, **raw: Json) -> Json:
    wait = wait or world.runs[ROOT].approvals.pending[0]
    raw = {"version": wait.version, "subject": wait.subject, "by": who, **raw}
    value = KEYS[who].sign(make_statement(wait, read_decision({"decision": "approve", **raw}), "t"))
    return {**raw, "signature": {"time": "t", "value": base64.b64encode(value).decode()}}


def states(world: World) -> list[str]:
    return [c.state for c in world.runs[ROOT].walk.calls]


def waits(world: World) -> dict[str | None, Json]:
    return {w.call: w.about for w in world.runs[ROOT].approvals.pending}


BIG = {"calls": ["pay"], "when": "†call.n > 1000", "of": 2}
SMALL = {
    "calls": ["pay"],
    "when": "†call.n <= 1000",
    "who": ["support", "finance"],
    "timeout": 9,
    "onTimeout": "approve",
}
LOOSE = tool("pay", activity="pay", n={})


@pytest.mark.parametrize(
    ("approve", "planned", "asks"),
    [
        ({"rules": [BIG]}, call("pay", "†state.a", n=1000), None),
        ({"rules": [BIG]}, call("pay", "†state.a", n=1001), 2),
        ({"rules": [BIG]}, call("pay", "†state.a", _each=[1, 1001], n="†item"), 2),  # of one of its elements
        ({"rules": [BIG]}, call("pay", "†state.a", _each=[1, 2], n="†item"), None),
        ({"rules": [BIG], "calls": ["pay"]}, call("pay", "†state.a", n=1), 1),  # the short forms are the last rule
        ({"rules": [{"calls": ["pay"]}, BIG]}, call("pay", "†state.a", n=1001), 1),  # the first that fits holds
        ({"rules": [{**BIG, "when": '†call._tool == "pay" && †call.n'}]}, call("pay", "†state.a", n=0), 2),
    ],
)  # fmt: skip
def test_the_first_rule_that_fits_a_call_holds(approve: Json, planned: Json, asks: int | None) -> None:
    found = waits(start(planned, **approve)).get("1:pay")
    assert (None if found is None else found.get("of") or 1) == asks


@pytest.mark.parametrize("n", ["5000", None, True, [5000], {"cents": 5000}, ...])
def test_where_nobody_can_tell_whether_a_rule_holds_people_are_asked_by_all_that_may(n: Json) -> None:
    planned = call("pay", "†state.a", **({} if n is ... else {"n": n}))
    assert waits(start(planned, tools=[LOOSE], rules=[BIG]))["1:pay"]["of"] == 2
    rules = [{**SMALL, "who": "support"}, {"calls": ["pay"], "who": "finance"}]
    world = start(planned, tools=[LOOSE], rules=rules)
    error = world.runs[ROOT].walk.calls[0].error
    assert (states(world), error and error["code"]) == (["failed"], "RulesDiffer"), "nobody decides by both"


def test_a_delegate_is_asked_about_however_a_model_spells_it() -> None:
    chooses = tool("ask", activity=None, _delegate={"type": "string"})
    world = start(call("ask", "†state.a", _delegate="review.json"), tools=[chooses], calls=["review"])
    world.send(ROOT, events.CallEnded("pin/review.json", {"sha256": "0"}))
    assert states(world) == ["awaiting"]


def test_a_small_element_does_not_carry_a_large_one_past_its_rule() -> None:
    rules = [SMALL, {**BIG, "who": "finance", "selfApproval": False}]
    world = start(call("pay", "†state.a", _each=[1, 100_000], n="†item"), rules=rules)
    asked = waits(world)["1:pay"]
    assert (asked["of"], asked["who"]) == (2, ["finance"])
    (timer,) = world.runs[ROOT].approvals._timers
    assert "whoever has edited" in decide(world), "selfApproval of the one rule holds"
    world.send(ROOT, events.TimerFired(timer))
    assert states(world) == ["rejected"], "the deadline of the other one approves nothing"


def test_an_edit_in_no_name_by_way_of_another_wait_makes_nobody_a_second_person() -> None:
    rules = [{"calls": ["pay"], "selfApproval": False}, {"calls": ["mail"]}]
    plan = [call("pay", "†state.a", n=1), call("mail", "†state.b")]
    world = start(*plan, tools=[PAY, tool("mail", activity="mail")], rules=rules)
    mail = next(w.subject for w in world.runs[ROOT].approvals.pending if w.call == "2:mail")
    edited = [call("pay", "†state.a", n=2), plan[1]]
    assert "no name is given" in decide(world, "edit", subject=mail, plan=edited, by=" ")
    assert decide(world, "edit", subject=mail, plan=edited, by="Bob") == ""
    assert "whoever has edited" in decide(world, call="1:pay", by=" bob ")
    assert "no name is given" in decide(world, call="1:pay", by=" ")


def test_what_changes_an_approved_plan_is_decided_by_its_rule_in_runs_below_too() -> None:
    plan = [call("pay", "†state.a", n="†state.n"), call("pay", "†state.b", n="†state.a")]
    rule = {"plan": True, "who": "finance", "of": 2}
    world = start(*plan, tools=[PAY, own("A", n=1), own("B", n=2)], rules=[rule])
    assert [decide(world, by=name) for name in ("Ada", "Bob")] == ["", ""]
    message = parse_message({"type": "state", "state": {"n": 9}})
    assert isinstance(message, Data)
    world.send(f"{ROOT}/A", events.Provided(message))
    (wait,) = world.runs[ROOT].approvals.pending
    assert (wait.what, wait.about["of"], wait.about["who"]) == ("message", 2, ["finance"])


def test_several_people_approve_the_same_subject_and_one_rejects() -> None:
    world = start(call("pay", "†state.a", n=1001), rules=[BIG], selfApproval=False)
    assert "whoever has edited" in decide(world)
    assert decide(world, by="Ada") == ""
    assert "already" in decide(world, by=" ada ")
    world.renew()
    assert (states(world), waits(world)["1:pay"]["approvals"]) == (["awaiting"], ["Ada"])
    assert decide(world, "edit", by="Bob", call="1:pay", **{"with": call("pay", "†state.a", n=1002)}) == ""
    assert "approvals" not in waits(world)["1:pay"], "nobody has approved what it is now"
    assert "whoever has edited" in decide(world, by="Bob")
    assert [decide(world, by=name) for name in ("Ada", "Cy")] == ["", ""]
    assert states(world) == ["running"]
    assert [r.get("left") for r in world.runs[ROOT].approvals.records] == [1, None, 1, None]
    world = start(call("pay", "†state.a", n=1001), rules=[BIG])
    assert [decide(world, by="Ada"), decide(world, "reject", reason="no", by="Bob")] == ["", ""]
    assert states(world) == ["rejected"]


def test_an_edit_takes_back_the_approvals_of_a_plan_and_others_approve_it() -> None:
    world = start(call("pay", "†state.a", n=1), rules=[{"plan": True, "of": 2}])
    assert decide(world, by="Ada") == ""
    assert decide(world, "edit", plan=[call("pay", "†state.a", n=2)], by="Bob") == ""
    assert "approvals" not in waits(world)[None]
    assert [decide(world, by=name) for name in ("Bob", "Cy")] == ["", ""]
    assert states(world) == ["running"]


def test_after_a_time_others_decide_too_then_the_deadline() -> None:
    rule = {"calls": ["pay"], "who": "ops", "timeout": 20, "escalate": [{"after": 10, "who": "heads"}]}
    world = start(call("pay", "†state.a", n=1), rules=[rule])
    approvals = world.runs[ROOT].approvals
    deadline, escalation = approvals._timers
    world.send(ROOT, events.TimerFired(escalation))
    assert waits(world)["1:pay"]["who"] == ["ops", "heads"]
    assert world.runs[ROOT].notes == ["nobody has decided about 1:pay of r yet: heads, ops may, now"]
    world.send(ROOT, events.TimerFired(deadline))
    assert states(world) == ["rejected"]


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"calls": ["pai"]}, 'no tool and no activity is called "pai"'),
        ({"calls": ["pay"], "when": "†call.m > 1"}, 'no tool of this rule has "m", so the rule would never ask'),
        ({"calls": ["pay"], "when": "†state.n > 1"}, "a rule sees nothing but the call"),
        ({"calls": ["pay"], "when": "call.n >"}, "expected a path like"),
        ({"plan": True, "when": "†call.n > 1"}, "when is a condition on a Call"),
        ({"calls": ["pay"], "whom": ["ada"]}, 'unknown setting "whom"; known: calls, plan'),
        ({"calls": ["pay"], "of": 0}, "greater than or equal to 1"),
    ],
)
def test_a_rule_that_could_never_ask_is_an_error(rule: Json, says: str) -> None:
    request = {"config": {"approve": {"rules": [rule]}}, "context": [PAY, {"type": "plan", "plan": [call("pay", n=1)]}]}
    try:
        prepared = validate_request(request)
        found = "; ".join(problem.message for problem in approve_problems(prepared.request, prepared.tools))
    except InvalidRequest as error:
        found = str(error)
    assert says in found


def test_a_definition_adds_rules_and_eases_none() -> None:
    own = {"rules": [{"calls": ["pay"], "onTimeout": "approve", "timeout": 1, "selfApproval": True}], "timeout": 1}
    given = DelegateInput.model_construct(
        config={"approve": {"rules": [BIG], "selfApproval": False}}, context=(), input={}
    )
    merged = delegate_request(given, {"config": {"approve": own}})["config"]["approve"]
    assert merged == {"selfApproval": False, "rules": [{**r, "selfApproval": False} for r in (BIG, {"calls": ["pay"]})]}


def test_with_approvers_a_rule_names_them_and_their_groups() -> None:
    world = start(call("pay", "†state.a", n=1), approvers=APPROVERS, rules=[{"calls": ["pay"], "who": "finance"}])
    assert '"eve" does not decide about 1:pay of r: it is for finance' in decide(world, **sign(world, "eve"))
    assert decide(world, **sign(world, "ada")) == ""
    request = validate_request({"config": {"approve": {"rules": [{"plan": True, "who": ["finanse"]}]}}, "context": [
        ask(escalate=[{"after": "1d", "who": "heads"}]), {"type": "plan", "plan": []}]})  # fmt: skip
    found = who_problems(request.request.config.approve, request.tools.values(), APPROVERS)
    assert [p.message.split(",")[0] for p in found] == [
        'a rule of config.approve names "finanse"', '_person of "ask" names "heads"'
    ]  # fmt: skip
    assert who_problems(request.request.config.approve, request.tools.values(), ()) == []


def test_who_may_not_decide_about_a_call_takes_it_from_no_plan_by_way_of_another_wait() -> None:
    plan = [call("ask", "†state.ok"), call("pay", "†state.a", n=1)]
    world = start(*plan, tools=[ask(who="finance"), PAY], approvers=APPROVERS, calls=["pay"])
    (wait,) = (w for w in world.runs[ROOT].approvals.pending if w.call == "2:pay")
    edit = [call("pay", "†state.ok", n=2), plan[1]]
    assert decide(world, "edit", **sign(world, "eve", wait, decision="edit", plan=edit)) == ""
    (wait,) = (w for w in world.runs[ROOT].approvals.pending if w.what == "plan")
    assert '"eve" does not decide about the plan' in decide(world, **sign(world, "eve", wait))
    world.renew()
    assert waits(world)[None]["who"] == ["finance"]
    assert decide(world, **sign(world, "ada", wait)) == ""


def test_an_approval_that_came_early_is_not_about_what_somebody_made_of_the_call_since() -> None:
    mail = tool("mail", activity="mail")
    plan = [call("echo", "†state.n"), call("pay", "†state.a", n=1, after="†state.n"), call("mail", "†state.b")]
    tools = [tool("echo", activity="echo"), LOOSE, mail]
    world = start(*plan, tools=tools, calls=["pay", "mail"])
    world.send(ROOT, events.DecisionReceived({"call": "2:pay", "by": "Ada"}, "approve"))
    edited = [plan[0], {**plan[1], "n": 9_999}, plan[2]]
    assert decide(world, "edit", plan=edited, by="Eve") == ""
    held = next(w.subject for w in world.runs[ROOT].approvals.pending if w.what == "plan")
    assert decide(world, subject=held, by="Eve") == ""
    world.send(ROOT, events.CallEnded("1:echo", 5))
    assert states(world)[1] == "awaiting"


def test_a_deadline_approves_what_has_waited_for_all_of_its_time() -> None:
    state = {"type": "state", "state": {"n": 1}}
    rule = {"calls": ["pay"], "timeout": 10, "onTimeout": "approve"}
    world = start(call("pay", "†state.a", n="†state.n"), tools=[PAY, state], rules=[rule])
    (before,) = world.runs[ROOT].approvals._timers
    message = parse_message({"type": "state", "state": {"n": 99_999}})
    assert isinstance(message, Data)
    late = "2026-01-01T00:00:09.000Z"
    made = world.runs[ROOT].handle(events.Provided(message), late)
    world.send(ROOT, events.TimerFired(before))
    (wait,) = world.runs[ROOT].approvals.pending
    assert (states(world), wait.deadline) == (["awaiting"], "2026-01-01T00:00:19.000Z")
    assert [type(command).__name__ for command in made if "Timer" in type(command).__name__] == [
        "CancelTimer",
        "StartTimer",
    ]


def test_who_decides_about_calls_alone_has_no_plan_undone() -> None:
    approvers = read_approvers({"eve": {"keys": PUBLIC["eve"], "plans": False}})
    world = start(call("pay", "†state.a", n=1), approvers=approvers, calls=["pay"])
    signed = sign(world, "eve", decision="undo")
    assert "may not decide about whole plans" in decide(world, "undo", **signed)


PLAN = [call("pay", "†state.a", n=1), call("pay", "†state.b", n=2), call("pay", "†state.c", n=300)]


@pytest.mark.parametrize(
    ("remember", "later", "running"),
    [
        ({}, {}, [1, 1, 1]),
        ({"count": 1}, {}, [1, 1, 0]),
        ({"when": "†call.n < 100"}, {}, [1, 1, 0]),
        ({"until": "2026-01-01T00:00:00Z"}, {}, [1, 0, 0]),  # now
        ({}, {"rules": [{"calls": ["pay"], "when": "†call.n > 100", "who": "finance"}]}, [1, 1, 0]),
    ],
)
def test_an_approval_holds_for_like_calls_within_its_limits(remember: Json, later: Json, running: list[int]) -> None:
    world = start(*PLAN, **{"calls": ["pay"], **later})
    assert decide(world, call="1:pay", by="Ada", remember=remember) == ""
    assert [int(state == "running") for state in states(world)] == running
    records = world.runs[ROOT].approvals.records[1:]
    assert all((r["by"], r["remembered"]) == ("Ada", "1") for r in records)


def test_what_is_remembered_survives_and_is_revoked_and_never_holds_for_an_edit() -> None:
    late = [call("pay", "†state.d", n="†state.a"), call("pay", "†state.e", n="†state.d")]
    world = start(call("pay", "†state.a", n=1), *late, calls=["pay"])
    assert decide(world, by="Ada", remember={"count": 9}) == ""
    world.send(ROOT, events.CallEnded("1:pay", 7))
    world.send(ROOT, events.CallEnded("2:pay", 8))
    world.send(ROOT, events.PauseChanged(is_paused=True))
    assert world.runs[ROOT].approvals.remembered["1"]["count"] == 7
    assert 'nothing is remembered as "2"; known: 1' in decide(world, "revoke", remembered="2")
    assert decide(world, "revoke", remembered="1", by="Bob") == ""
    assert world.runs[ROOT].approvals.remembered == {}
    world = start(*PLAN[:1], call("pay", "†state.d", n="†state.a"), calls=["pay"])
    assert decide(world, by="Ada", remember={}, call="1:pay") == ""
    world.send(ROOT, events.CallEnded("1:pay", 7))
    assert states(world) == ["completed", "running"]


def test_a_call_that_something_else_answers_is_not_like_one_of_the_same_names() -> None:
    chooses = tool("pay", activity="pay", n={"type": "number"}, _delegate={"type": "string"})
    world = start(PLAN[0], {**PLAN[1], "_delegate": "pay"}, PLAN[2], tools=[chooses], calls=["pay"])
    world.send(ROOT, events.CallEnded("pin/pay", {"sha256": "0"}))
    assert decide(world, call="1:pay", by="Ada", remember={}) == ""
    assert states(world) == ["running", "awaiting", "running"]


def test_a_plan_of_other_calls_is_not_like_one_that_a_person_approved() -> None:
    plans = [[call("pay", "†state.output", n=n)] for n in (1, 2, 1)]
    walks = [call("plan", f"†state.{name}", plan=plan) for name, plan in zip("abc", plans, strict=True)]
    world = start(*walks, tools=[PAY, {"type": "tool", "tool": WALKS}], calls=["plan"])
    assert decide(world, call="1:plan", by="Ada", remember={}) == ""
    assert states(world) == ["running", "awaiting", "running"]


def test_what_no_condition_can_tell_is_not_like_what_a_person_approved() -> None:
    world = start(*PLAN[:1], call("pay", "†state.b", n="300"), tools=[LOOSE], calls=["pay"])
    assert decide(world, call="1:pay", by="Ada", remember={"when": "!(†call.n > 100)"}) == ""
    assert states(world) == ["running", "awaiting"]


def test_no_record_of_another_run_approves_in_the_name_of_an_approver() -> None:
    world = start(*PLAN[:1], approvers=APPROVERS, calls=["pay"])
    (wait,) = world.runs[ROOT].approvals.pending
    forged = Decision(decision="approve", call="1:pay", by="ada", remembered="1", version=1, subject=wait.subject)
    record = ForwardedDecision(id="1", replyTo="r/x", decision=forged, target=wait, token="t")  # noqa: S106
    world.send(ROOT, events.RecordReceived(record))
    assert states(world) == ["awaiting"]
    assert "remembered is for the engine" in decide(world, remembered="1", by="ada")
    world.send(ROOT, events.RecordReceived(record.model_copy(update={"target": None})))
    assert states(world) == ["awaiting"]


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"_person": {}, "_output": FORM}, ""),
        ({"_person": {"const": {"who": ["ada"]}}, "_output": FORM}, ""),
        ({"_person": {}}, "_output is the form that a person answers"),
        ({"_person": {}, "_output": FORM, "_activity": "pay"}, "nothing else answers or asks"),
        ({"_person": {}, "_output": FORM, "_approval": True}, "nothing else answers or asks"),
        ({"_person": {"whom": "ada"}, "_output": FORM}, 'unknown setting "whom"'),
        ({"_person": {"onTimeout": "approve"}, "_output": FORM}, "reject"),
    ],
)
def test_a_tool_that_a_person_answers_has_a_form_and_nothing_else_behind_it(properties: Json, says: str) -> None:
    named = {"type": "tool", "tool": {"ask": {"type": "object", "properties": properties}}}
    request = {"context": [named, {"type": "plan", "plan": [{"_tool": "ask"}]}]}
    if not says:
        assert validate_request(request).nodes[0].kind == "person"
        return
    with pytest.raises(InvalidRequest, match=says) as caught:
        validate_request(request)
    assert "noModel" not in str(caught.value)  # a model would not answer it either


def test_people_answer_elements_one_by_one_across_continue_as_new() -> None:
    world = start(call("ask", "†state.a", _each=["x", "y", "z"], q="†item"), tools=[ask(who="finance")])
    run = world.runs[ROOT]
    assert (states(world), run.phase, run.can_continue_as_new) == (["awaiting"], "awaiting", True)
    assert "its rule asks for names" in decide(world, "answer", call="1:ask[1]", output={"ok": True})
    assert "goes on waiting: /ok" in decide(world, "answer", call="1:ask[1]", output={"ok": 1}, by="Ada")
    assert decide(world, "answer", call="1:ask[1]", output={"ok": True}, by="Ada") == ""
    world.renew()
    approvals = world.runs[ROOT].approvals
    assert [w.call for w in approvals.waits.own] == ["1:ask[0]", "1:ask[2]"]
    assert all(digest(world.runs[ROOT].subject_of(w)) == w.subject for w in approvals.waits.own)
    assert json.dumps(approvals.waits.own[0].about["form"]) == json.dumps(FORM)
    assert decide(world, "answer", call="1:ask[0]", output={"ok": True}, by="Ada") == ""
    assert decide(world, "reject", call="1:ask[2]", reason="no", by="Ada") == ""
    error = world.runs[ROOT].walk.calls[0].error
    assert error is not None
    assert error["details"]["errors"] == [{"index": 2, "code": "rejected", "message": "no"}]
    world = start(call("ask", "†state.a", _each=["x"] * 101, q="†item"), tools=[ask()])
    assert len(waits(world)) == 100
    decide(world, "answer", call="1:ask[7]", output={"ok": True})
    assert len(waits(world)) == 100, "the next one is asked when one has answered"
    world.send(ROOT, events.CancelRequested())
    assert (states(world), waits(world)) == (["cancelled"], {})


@pytest.mark.parametrize("by", ["…", "onTimeout"])
def test_a_signal_in_a_name_that_is_nobodys_decides_nothing(by: str) -> None:
    world = start(*PLAN[:1], calls=["pay"])
    world.send(ROOT, events.DecisionReceived({"by": by}, "approve"))
    assert (states(world), len(world.runs[ROOT].notes)) == (["awaiting"], 1)
