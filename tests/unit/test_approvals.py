"""Approvals case by case: one run, a root with runs below it, and what the network may do between them."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.config import Approve
from acts.language.wire import INVALID_REQUEST, REFUSED
from acts.machines.approval_effects import AnswerUpdate, Note, StartTimer
from acts.machines.approvals import MAX_RECORDS
from acts.machines.early_decisions import MAX_EARLY
from acts.machines.events import (
    CancelRequested,
    DecisionReceived,
    RecordDelivered,
    RecordLost,
    RecordReceived,
    StartsReleased,
)
from acts.machines.pending_reports import MAX_CHANGES, RESEND_SECONDS
from acts.tree.records import TreePosition
from acts.tree.signal_records import ForwardedDecision, PendingChanged
from tests.property.simulated_tree import Tree
from tests.property.waiting_run import PLAN, WaitingRun, What

Json = Any
ROOT, MIDDLE, LEAF = "r", "r/m", "r/m/x"
PAY, SEND = ("call", "1:pay"), ("call", "2:send")
UNTIL = {"timeout": 10}
BAD, OTHER = {"with": {"_tool": "bad"}}, {"with": {"_tool": "other"}}


def run(tree: Tree, own: str = ROOT, *stages: list[What], instance: str | None = None, **approve: Json) -> WaitingRun:
    """Start a run that waits; its parent is found by its id."""
    above = tuple(own[:i] for i, letter in enumerate(own) if letter == "/")
    machine = WaitingRun(own, TreePosition(ancestors=above, instance=instance), [*stages], Approve(**approve))
    tree.start(machine, above[-1] if above else None, own)
    tree.settle()
    return machine


def tell(tree: Tree, word: str, at: str = ROOT, *, update: str | None = None, **raw: Json) -> None:
    """A person decides by signal, or by the update of this id; nothing happens yet."""
    raw = {**raw, "reason": "no"} if word == "reject" else raw
    raw = {**raw, "decision": word} if update else raw
    assert tree.tell(at, raw, None if update else word, update) is None


def taken(machine: WaitingRun) -> list[tuple[str | None, str, str | None]]:
    return [(t.place[2], t.decision, t.by) for t in machine.log]


def pending(machine: WaitingRun) -> list[tuple[str, str | None, int]]:
    return [(w.workflow_id, w.call, w.version) for w in machine.approvals.pending]


def notes(machine: WaitingRun) -> str:
    return "; ".join(machine.notes)


# -- one run -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decisions", "expected"),
    [
        ([("approve", {}), ("reject", {})], [("approve", 1)]),
        ([("reject", {}), ("approve", {})], [("reject", 1)]),
        ([("edit", {"plan": [{}]}), ("approve", {})], [("edit", 1), ("approve", 2)]),
        ([("edit", {"plan": [{}]}), ("approve", {"version": 1})], [("edit", 1)]),
        ([("edit", {"plan": [{}]}), ("approve", {"version": 2})], [("edit", 1), ("approve", 2)]),
        ([("edit", {"plan": [{}]}), ("edit", {"plan": [{}], "version": 1})], [("edit", 1)]),
        ([("approve", {"version": 2}), ("reject", {"version": 1})], [("reject", 1)]),
        ([("approve", {}), ("edit", {"plan": [{}]})], [("approve", 1)]),
    ],
)
def test_decisions_in_one_task_are_taken_in_order(
    decisions: list[tuple[str, Json]], expected: list[tuple[str, int]]
) -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PLAN])
    for word, raw in decisions:
        tell(tree, word, **raw)
    tree.settle()
    assert [(t.decision, t.version) for t in machine.log] == expected
    assert len(machine.notes) == len(decisions) - len(expected)


@pytest.mark.parametrize(
    ("early", "expected", "note"),
    [
        ([("approve", {"by": "a"})], [("approve", "a")], ""),
        ([("approve", {"by": "a"}), ("approve", {"by": "b"})], [("approve", "a")], "another decision"),
        ([("reject", {"by": "a"}), ("approve", {"by": "b"})], [("reject", "a")], "another decision"),
        ([("edit", {"plan": [{}], "by": "a"}), ("approve", {"by": "b"})], [("edit", "a")], "another decision"),
        ([("edit", {"call": "x", **BAD, "by": "a"}), ("approve", {"by": "b"})], [("approve", "b")], "no such tool"),
        ([("approve", {"version": 7})], [], "version 7 is not what waits"),
        ([("approve", {"call": "1:pay"})], [], ""),  # for something else
        ([("approve", {"workflowId": "r/elsewhere"})], [], ""),
    ],
)
def test_decisions_that_come_before_their_wait_are_judged_when_it_opens(
    early: list[tuple[str, Json]], expected: list[tuple[str, str]], note: str
) -> None:
    tree = Tree()
    machine = WaitingRun(ROOT, TreePosition(), [[PLAN], [PLAN]], Approve())
    tree.start(machine)
    begin = tree.runs[ROOT].inbox.popleft()
    for word, raw in early:
        tell(tree, word, **raw)
    tree.runs[ROOT].inbox.append(begin)
    tree.settle()
    assert [(t.decision, t.by) for t in machine.log] == expected
    assert note in notes(machine)
    assert len(pending(machine)) == 1  # of two proposals, nothing that came early decides the second


def test_a_decision_that_comes_with_the_start_is_about_what_opens_then() -> None:
    tree = Tree()
    machine = WaitingRun(ROOT, TreePosition(), [[PLAN], [PLAN]], Approve())
    tree.start(machine)
    tell(tree, "approve", by="early")
    tell(tree, "approve", by="twice")
    tree.settle()
    assert [(t.decision, t.by) for t in machine.log] == [("approve", "early")]


def test_only_so_many_early_decisions_are_kept() -> None:
    tree = Tree()
    machine = run(tree)
    for number in range(MAX_EARLY + 3):
        tell(tree, "approve", call=f"{number}:nope")
    tree.settle()
    assert len(machine.approvals.snapshot()["early"]) == MAX_EARLY
    assert notes(machine).count("nothing that waits is matched") == 3


@pytest.mark.parametrize("at", ["update", "signal"])
def test_an_early_update_is_refused_and_an_early_signal_kept(at: str) -> None:
    tree = Tree()
    machine = run(tree)
    word, update = (None, "u") if at == "update" else ("approve", None)
    refusal = tree.tell(ROOT, {"decision": "approve"}, word, update)
    tree.settle()
    assert (refusal is not None) is (at == "update")
    assert len(machine.approvals.snapshot()["early"]) == (at == "signal")


def test_a_decision_that_several_waits_match_is_refused() -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PAY, SEND])
    tell(tree, "approve")
    tree.settle()
    assert (taken(machine), len(pending(machine))) == ([], 2)
    assert "2 waits are matched" in notes(machine)


def test_a_decision_that_is_sent_twice_decides_once() -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PLAN], [PLAN])
    for _ in range(2):
        tell(tree, "approve", by="a")
    tree.settle()
    assert taken(machine) == [(None, "approve", "a")]
    assert "nobody has seen it" in notes(machine)


def test_a_decision_may_name_what_its_own_task_opens() -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PLAN], [PAY])
    tell(tree, "approve")
    tell(tree, "approve", call="1:pay")
    tree.settle()
    assert [t.decision for t in machine.log] == ["approve", "approve"]


def test_an_edit_of_one_call_is_late_once_its_plan_has_been_decided() -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PLAN], [PLAN])
    tell(tree, "approve")
    tree.settle()
    tree.runs[ROOT].machine = machine
    machine.left.clear()  # nothing waits between two ticks
    machine.approvals.close_all()
    tell(tree, "edit", call="1:pay", **OTHER)
    tree.settle()
    assert "nothing that waits is matched" in notes(machine)


# -- deadlines -----------------------------------------------------------------------------------


@pytest.mark.parametrize("on_timeout", ["approve", "reject", "fail"])
def test_after_its_deadline_a_wait_is_decided_as_the_settings_say(on_timeout: str) -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PAY], **UNTIL, onTimeout=on_timeout)
    assert tree.fire_next_timer()
    tell(tree, "approve", by="late")
    tree.settle()
    assert taken(machine) == [("1:pay", on_timeout, "onTimeout")]
    assert (machine.approvals.expired is not None) is (on_timeout == "fail")
    assert pending(machine) == []
    assert not tree.fire_next_timer()


def test_a_decision_in_time_stops_the_clock() -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PAY], **UNTIL)
    tell(tree, "approve", by="a")
    tree.settle()
    assert not tree.fire_next_timer()
    assert taken(machine) == [("1:pay", "approve", "a")]


def test_a_decision_and_the_deadline_in_one_task_are_taken_in_order() -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PAY], **UNTIL)
    tell(tree, "approve", by="a")
    tree.fire_next_timer()
    tree.settle()
    assert taken(machine) == [("1:pay", "approve", "a")]


def test_an_edit_does_not_prolong_a_deadline() -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PAY], **UNTIL)
    tree.now = 4_000
    tell(tree, "edit", call="1:pay", **OTHER)
    tree.settle()
    (wait,) = machine.approvals.pending
    assert (wait.call, wait.version) == ("1:other2", 2)
    assert wait.deadline == "2026-01-01T00:00:10.000Z"
    assert list(tree.runs[ROOT].timers.values()) == [10_000]


def test_a_deadline_counts_on_after_continue_as_new() -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PAY], **UNTIL)
    (before,) = machine.approvals.pending
    tree.now = 4_000
    new = machine.renewed()
    commands = new.approvals.open("call", 1, Approve(**UNTIL), tree.clock, call="1:pay")
    assert [c.seconds for c in commands if isinstance(c, StartTimer)] == [6.0]
    assert new.approvals.pending == [before]


HOUR, DAY = 3_600_000, 86_400_000  # milliseconds


@pytest.mark.parametrize("jump", [-HOUR, -20, HOUR, 365 * DAY])
def test_a_clock_that_jumps_changes_no_decision(jump: int) -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PAY, SEND], **UNTIL)
    tree.now += jump
    tell(tree, "approve", call="1:pay", by="a")
    tree.settle()
    tree.now -= jump
    tell(tree, "reject", call="2:send", by="b")
    tree.settle()
    assert taken(machine) == [("1:pay", "approve", "a"), ("2:send", "reject", "b")]
    assert not tree.fire_next_timer()


@pytest.mark.parametrize(("jump", "left"), [(-HOUR, 10.0), (-20, 10.0), (9_999, 0.001), (HOUR, 0.001)])
def test_a_clock_that_jumps_before_continue_as_new_never_prolongs_a_wait(jump: int, left: float) -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PAY], **UNTIL)
    tree.now += jump
    new = machine.renewed()
    commands = new.approvals.open("call", 1, Approve(**UNTIL), tree.clock, call="1:pay")
    assert [c.seconds for c in commands if isinstance(c, StartTimer)] == [left]


def test_what_waited_in_the_run_before_can_be_decided_in_the_first_task_of_the_next() -> None:
    machine = WaitingRun(ROOT, TreePosition(), [], Approve())
    now = "2026-01-01T00:00:00.000Z"
    machine.approvals.open("call", 1, machine.approve, now, call="1:pay")
    machine.approvals.flush()
    again = machine.renewed()
    again.approvals.open("call", 1, machine.approve, now, call="1:pay")
    again.approvals.decide({}, "approve", now)
    assert again.approvals.pending == []
    again.approvals.open("call", 1, machine.approve, now, call="1:pay")  # it waits once more, and nobody has seen that
    again.approvals.decide({}, "approve", now)
    assert [w.call for w in again.approvals.pending] == ["1:pay"]


def test_a_call_that_an_edit_moved_and_that_has_not_opened_yet_keeps_its_deadline_in_the_next_run() -> None:
    machine = WaitingRun(ROOT, TreePosition(), [], Approve(**UNTIL))
    now = "2026-01-01T00:00:00.000Z"
    machine.approvals.open("call", 1, machine.approve, now, call="1:pay")
    (wait,) = machine.approvals.pending
    machine.approvals.close_call("1:pay", None)
    machine.approvals.inherit_deadline(wait, ["1:send", "2:pay"])
    again = machine.renewed()
    for run_ in (machine, again):
        run_.approvals.open("call", 2, machine.approve, "2026-01-01T00:00:05.000Z", call="1:send")
        assert [w.deadline for w in run_.approvals.pending] == ["2026-01-01T00:00:10.000Z"]


def test_waits_whose_names_have_slashes_have_clocks_of_their_own() -> None:
    machine = WaitingRun(ROOT, TreePosition(), [], Approve(**UNTIL))
    now = "2026-01-01T00:00:00.000Z"
    names = [("1:a", "b/c"), ("1:a/b", "c")]
    started = [machine.approvals.open("call", 1, machine.approve, now, call=c, instance=i) for c, i in names]
    assert len({command.name for (command,) in started}) == 2  # type: ignore[union-attr]


# -- a root and the runs below it ----------------------------------------------------------------


@pytest.fixture
def tree() -> Tree:
    """A root, a run in between, and a leaf that works for an instance and waits for two Calls, one after another."""
    tree = Tree()
    run(tree)
    run(tree, MIDDLE)
    run(tree, LEAF, [PAY], [SEND], instance="Ann")
    return tree


def machine_of(tree: Tree, id_: str) -> WaitingRun:
    machine = tree.runs[id_].machine
    assert isinstance(machine, WaitingRun)
    return machine


@pytest.mark.parametrize("at", [ROOT, MIDDLE, LEAF])
@pytest.mark.parametrize("named", [{}, {"call": "1:pay"}, {"workflowId": LEAF}, {"instance": "Ann"}])
def test_a_decision_reaches_the_run_that_waits_from_any_run_above(tree: Tree, at: str, named: Json) -> None:
    tell(tree, "approve", at, update="u", by="a", **named)
    tree.settle()
    assert taken(machine_of(tree, LEAF)) == [("1:pay", "approve", "a")]
    assert tree.answers == [AnswerUpdate("u")]
    assert pending(machine_of(tree, ROOT)) == [(LEAF, "2:send", 1)]


def test_what_the_root_does_not_know_cannot_be_decided_there_and_is_told_at_once(tree: Tree) -> None:
    assert "nothing that waits" in str(tree.tell(ROOT, {"decision": "approve", "call": "9:x"}, None, "u"))


@pytest.mark.parametrize("at", [ROOT, MIDDLE, LEAF])
@pytest.mark.parametrize(("version", "says"), [({}, "left out"), ({"version": None}, "null")])
def test_an_approval_is_about_the_version_that_the_root_has_shown(
    tree: Tree, at: str, version: Json, says: str
) -> None:
    """An edit is on its way to the leaf, or was told there; nobody at the root has seen it."""
    tell(tree, "edit", LEAF, call="1:pay", with_={})
    tree.runs[LEAF].inbox.pop()
    tell(tree, "edit", LEAF, call="1:pay", **{"with": {"_tool": "pay"}})
    tell(tree, "approve", at, by="unseen", **version)
    if at == LEAF:
        tree.runs[LEAF].inbox.rotate()  # at the leaf itself the approval comes first, or it is one of the edit
    else:
        tree.work(at)
        if at == MIDDLE:
            tree.arrive((MIDDLE, ROOT))
            tree.work(ROOT)
        tree.work(LEAF)
    tree.settle()
    leaf = machine_of(tree, LEAF)
    if at == LEAF:
        assert taken(leaf)[0] == ("1:pay", "approve", "unseen")
    else:
        assert [t.decision for t in leaf.log] == ["edit"]
        assert pending(machine_of(tree, ROOT)) == [(LEAF, "1:pay", 2)]
        assert "version 1 is not what waits" in notes(machine_of(tree, at))


def test_a_refused_decision_leaves_everything_waiting_and_whoever_asked_gets_the_problems(tree: Tree) -> None:
    before = pending(machine_of(tree, ROOT))
    for at in (ROOT, MIDDLE, LEAF):
        if at != LEAF:
            tell(tree, "edit", at, update=f"u{at}", call="1:pay", **BAD)
        else:
            assert "no such tool" in str(tree.tell(at, {"decision": "edit", "call": "1:pay", **BAD}, None, "u"))
        tree.settle()
        assert pending(machine_of(tree, ROOT)) == before
        assert pending(machine_of(tree, LEAF)) == before
    assert [(a.id, a.problem.type) for a in tree.answers if a.problem] == [
        ("ur", INVALID_REQUEST), ("ur/m", INVALID_REQUEST)
    ]  # fmt: skip
    assert all(a.problem and a.problem.details[0]["code"] == "unknownTool" for a in tree.answers)
    tell(tree, "edit", MIDDLE, call="1:pay", **BAD)
    tree.settle()
    assert "no such tool" in notes(machine_of(tree, MIDDLE))


def test_while_a_decision_is_on_its_way_nobody_decides_the_same_again(tree: Tree) -> None:
    tell(tree, "approve", update="first")
    tree.work(ROOT)
    assert pending(machine_of(tree, ROOT)) == []
    assert "nothing that waits" in str(tree.tell(ROOT, {"decision": "approve"}, None, "second"))
    tree.settle()
    assert tree.answers == [AnswerUpdate("first")]


def test_an_edit_that_makes_another_call_of_one_closes_the_wait_at_the_root_too(tree: Tree) -> None:
    tell(tree, "edit", update="u", call="1:pay", **OTHER)
    tree.settle()
    assert pending(machine_of(tree, ROOT)) == [(LEAF, "1:other2", 2)]


def test_an_edited_call_is_shown_with_what_it_is_about_now() -> None:
    machine = WaitingRun(LEAF, TreePosition(ancestors=(ROOT,)), [], Approve())
    now = "2026-01-01T00:00:00.000Z"
    for version, amount in ((1, 5), (2, 5_000)):
        machine.approvals.open("call", version, machine.approve, now, call="1:pay", about={"parameters": amount})
        (report,) = machine.flush(now)
        assert report.record.opened[-1]["parameters"] == amount  # type: ignore[union-attr]
        machine.handle(RecordDelivered("pending"), now)


def test_a_wait_that_was_edited_before_its_first_report_is_told_in_both_versions(tree: Tree) -> None:
    """Somebody approved early, whatever it would be: not what another person made of it."""
    tell(tree, "approve", ROOT, call="3:x", by="early")
    tree.settle()
    other = WaitingRun("r/o", TreePosition(ancestors=(ROOT,)), [[("call", "3:x")]], Approve())
    tree.start(other, ROOT, "r/o")
    tell(tree, "edit", "r/o", call="3:x", **{"with": {"_tool": "pay"}})
    tree.settle()
    assert taken(other) == [("3:x", "edit", None)]
    assert (("r/o", "3:x", 2)) in pending(machine_of(tree, ROOT))


def test_a_late_decision_within_the_scope_of_a_run_is_not_kept_for_what_waits_there_next(tree: Tree) -> None:
    machine_of(tree, LEAF).stages.append([PLAN])
    for _ in range(2):
        tell(tree, "approve", MIDDLE, call="1:pay")
    tree.settle()
    tell(tree, "approve", MIDDLE, call="1:pay")
    tree.settle()
    leaf = machine_of(tree, LEAF)
    assert [t.place[2] for t in leaf.log] == ["1:pay"]
    assert machine_of(tree, ROOT).approvals.snapshot()["early"] == []
    assert "nothing that waits" in notes(machine_of(tree, MIDDLE))


def test_a_late_decision_that_names_a_run_and_its_instance_is_late() -> None:
    """A run within an instance may not know that it is: its id means it, whatever instance is named beside."""
    tree = Tree()
    run(tree)
    leaf = run(tree, MIDDLE, [PLAN], [PLAN])
    for _ in range(2):
        tell(tree, "approve", ROOT, workflowId=MIDDLE, instance="Ann")
        tree.settle()
    assert len(leaf.log) == 2  # the second proposal waited when the second approval came
    tell(tree, "approve", ROOT, workflowId=MIDDLE, instance="Ann")
    tree.settle()
    assert machine_of(tree, ROOT).approvals.snapshot()["early"] == []


def test_a_decision_told_to_a_run_that_waits_for_nothing_is_kept_for_the_runs_below_it() -> None:
    tree = Tree()
    run(tree)
    run(tree, MIDDLE)
    tell(tree, "approve", MIDDLE, by="early")
    tree.settle()
    elsewhere = run(tree, "r/other", [PAY])
    leaf = run(tree, LEAF, [PAY])
    assert taken(leaf) == [("1:pay", "approve", "early")]
    assert taken(elsewhere) == []


def test_a_decision_for_this_very_run_is_kept_here() -> None:
    tree = Tree()
    run(tree)
    middle = run(tree, MIDDLE)
    tell(tree, "approve", MIDDLE, workflowId=MIDDLE)
    tree.settle()
    assert len(middle.approvals.snapshot()["early"]) == 1


# -- runs that end meanwhile -----------------------------------------------------------------------


def forwarded(tree: Tree, at: str = ROOT) -> None:
    """Somebody approves at a run above by update; the root has sent it to the leaf."""
    tell(tree, "approve", at, update="u", call="1:pay")
    tree.work(at)
    if at != ROOT:
        tree.arrive((at, ROOT))
        tree.work(ROOT)


@pytest.mark.parametrize("at", [ROOT, MIDDLE])
@pytest.mark.parametrize("has_arrived", [False, True])
def test_a_run_that_dies_before_it_judges_leaves_nobody_without_an_answer(
    tree: Tree,
    at: str,
    has_arrived: bool,  # noqa: FBT001 - a case
) -> None:
    forwarded(tree, at)
    if has_arrived:
        tree.arrive((ROOT, LEAF))
    tree.kill(LEAF)
    tree.settle()
    ((id_, problem),) = [(a.id, a.problem) for a in tree.answers]
    assert (id_, problem and problem.type) == ("u", REFUSED)
    assert pending(machine_of(tree, ROOT)) == []


@pytest.mark.parametrize("at", [ROOT, MIDDLE])
def test_a_decision_that_is_not_delivered_can_be_sent_again(tree: Tree, at: str) -> None:
    forwarded(tree, at)
    tree.arrive((ROOT, LEAF), fails=True)
    tree.settle()
    assert [a.problem and a.problem.type for a in tree.answers] == [REFUSED]
    assert pending(machine_of(tree, ROOT)) == [(LEAF, "1:pay", 1)]
    tell(tree, "approve", update="again", call="1:pay")
    tree.settle()
    assert tree.answers[1:] == [AnswerUpdate("again")]


def test_a_run_that_is_over_still_answers(tree: Tree) -> None:
    leaf = machine_of(tree, LEAF)
    leaf.stages, leaf.may_end = [[PAY]], True
    forwarded(tree)
    tree.arrive((ROOT, LEAF))
    tree.runs[LEAF].inbox.appendleft(DecisionReceived({"by": "faster"}, "approve"))
    tree.settle()
    assert taken(leaf) == [("1:pay", "approve", "faster")]
    assert [a.problem and a.problem.type for a in tree.answers] == [REFUSED]
    assert LEAF not in tree.runs


def test_a_run_that_is_over_still_takes_the_answer_that_it_owes(tree: Tree) -> None:
    leaf, middle = machine_of(tree, LEAF), machine_of(tree, MIDDLE)
    leaf.stages, leaf.may_end, middle.may_end = [[PAY]], True, True
    forwarded(tree, MIDDLE)
    tree.settle()
    assert tree.answers == [AnswerUpdate("u")]
    assert list(tree.runs) == [ROOT]


def test_a_run_that_is_over_says_that_a_decision_did_not_arrive(tree: Tree) -> None:
    middle = machine_of(tree, MIDDLE)
    tell(tree, "approve", MIDDLE, update="u")
    tree.work(MIDDLE)
    middle.finished = "completed"
    (answer,) = middle.handle(RecordLost("decision/u"), tree.clock)
    assert isinstance(answer, AnswerUpdate)
    assert answer.problem is not None


@pytest.mark.parametrize("at", [ROOT, MIDDLE])
def test_a_run_that_is_cancelled_refuses_what_it_still_owes_an_answer(tree: Tree, at: str) -> None:
    """The root may be gone: an update that waits for ever would keep the run from ending."""
    forwarded(tree, at)
    tree.runs[at].inbox.append(CancelRequested())
    tree.work(at)
    assert [(a.id, a.problem and a.problem.type) for a in tree.answers] == [("u", REFUSED)]
    tree.settle()
    assert len(tree.answers) == 1


def test_what_waited_in_a_run_that_said_nothing_at_its_end_waits_no_more(tree: Tree) -> None:
    tree.kill(MIDDLE)
    tree.settle()
    assert pending(machine_of(tree, ROOT)) == []


# -- reports ---------------------------------------------------------------------------------------


def test_a_report_that_is_lost_is_sent_again_later_and_then_with_the_next_change() -> None:
    tree = Tree()
    root, leaf = run(tree), None
    leaf = WaitingRun(MIDDLE, TreePosition(ancestors=(ROOT,)), [[PAY], [SEND]], Approve())
    tree.start(leaf, ROOT, MIDDLE)
    delays = []
    for _ in range(len(RESEND_SECONDS) + 1):
        tree.work(MIDDLE)
        tree.arrive((MIDDLE, ROOT), fails=True)
        tree.acknowledge((MIDDLE, ROOT))
        tree.work(MIDDLE)
        before = tree.now
        if tree.fire_next_timer():
            delays.append((tree.now - before) / 1000)
    tree.settle()
    assert delays == list(RESEND_SECONDS)
    assert pending(root) == []
    tell(tree, "approve", MIDDLE)
    tree.settle()
    assert pending(root) == [(MIDDLE, "2:send", 1)]


def test_more_changes_than_one_report_holds_are_reported_in_several() -> None:
    tree = Tree()
    root = run(tree)
    run(tree, MIDDLE, [("call", f"{n}:pay") for n in range(2 * MAX_CHANGES + 1)])
    assert len(pending(root)) == 2 * MAX_CHANGES + 1


def test_what_a_forwarded_decision_closed_needs_no_report(tree: Tree) -> None:
    machine_of(tree, LEAF).stages = [[PAY]]
    tell(tree, "approve", call="1:pay")
    sent = []
    while steps := list(tree.busy()):
        sent += [type(m.record).__name__ for line in tree.lines.values() for m in line if not m.arrived]
        steps[0]()
    assert "PendingChanged" not in sent
    assert pending(machine_of(tree, ROOT)) == []


@pytest.mark.parametrize(
    "report",
    [
        {"workflowId": LEAF, "ancestors": (ROOT, MIDDLE), "opened": ({},)},
        {"workflowId": LEAF, "ancestors": (ROOT, MIDDLE), "opened": ({"workflowId": LEAF, "what": "plan"},)},
        {"workflowId": LEAF, "ancestors": (ROOT, MIDDLE),
         "opened": ({"workflowId": LEAF, "what": "plan", "version": "1", "since": ""},)},
        {"workflowId": LEAF, "ancestors": (ROOT, MIDDLE),
         "opened": ({"workflowId": LEAF, "what": ["plan"], "version": 1, "since": ""},)},
        {"workflowId": LEAF, "ancestors": (ROOT, MIDDLE),
         "opened": ({"workflowId": LEAF, "what": "plan", "version": 1, "since": "", "inner": {}},)},
        {"workflowId": LEAF, "ancestors": (ROOT, MIDDLE),
         "opened": ({"workflowId": MIDDLE, "what": "plan", "version": 1, "since": ""},)},
        {"workflowId": LEAF, "ancestors": (ROOT, MIDDLE), "closed": ({"call": 1},)},
        {"workflowId": ROOT, "ancestors": (ROOT,),
         "opened": ({"workflowId": ROOT, "what": "plan", "version": 1, "since": ""},)},
        {"workflowId": LEAF, "ancestors": ("another root",),
         "opened": ({"workflowId": LEAF, "what": "plan", "version": 1, "since": ""},)},
        {"workflowId": "r/x", "ancestors": (),
         "opened": ({"workflowId": "r/x", "what": "plan", "version": 1, "since": ""},)},
    ],
)  # fmt: skip
def test_a_report_that_no_run_below_sent_changes_nothing(tree: Tree, report: Json) -> None:
    root = machine_of(tree, ROOT)
    before = pending(root)
    root.handle(RecordReceived(PendingChanged(**report)), tree.clock)
    assert pending(root) == before


@pytest.mark.parametrize(
    "target", [{}, {"what": "plan"}, {"workflowId": LEAF, "what": "plan", "version": [], "since": ""}]
)
def test_a_forwarded_decision_about_nothing_is_refused(tree: Tree, target: Json) -> None:
    record = ForwardedDecision(id="1", replyTo=ROOT, decision={"decision": "approve"}, target=target)
    tree.runs[LEAF].inbox.append(RecordReceived(record))
    tree.settle()
    assert taken(machine_of(tree, LEAF)) == []


def test_the_record_of_decisions_does_not_grow_without_end() -> None:
    machine = WaitingRun(ROOT, TreePosition(), [], Approve())
    now = "2026-01-01T00:00:00.000Z"
    machine.left = [("call", f"{n}:pay") for n in range(MAX_RECORDS + 5)]
    for what, call in list(machine.left):
        machine.openings[what, call].append(1)
        machine.approvals.open(what, 1, machine.approve, now, call=call)
        machine.handle(DecisionReceived({"call": call}, "approve"), now)
    assert len(machine.approvals.records) == MAX_RECORDS
    assert machine.left == []


def test_a_signal_that_says_nothing_is_noted() -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PLAN])
    assert machine.handle(DecisionReceived({"decision": "reject"}, "approve"), tree.clock) == []
    assert "the signal approve was refused" in notes(machine)
    assert Note("x").text == "x"
    assert machine.handle(StartsReleased(), tree.clock) == []
