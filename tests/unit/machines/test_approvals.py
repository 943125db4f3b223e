"""Approvals case by case: one run, a root with runs below it, and what the network may do between them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from acts.language.config import Approve
from acts.language.wire import INVALID_REQUEST
from acts.machines.approvals import RESEND_SECONDS, PendingReports
from acts.machines.commands import StartTimer
from acts.machines.events import RecordReceived
from acts.tree.decisions import PendingApproval
from acts.tree.records import TreePosition
from acts.tree.signal_records import PendingChanged
from acts.tree.wire_format import RecordError
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


@pytest.mark.parametrize("on_timeout", ["approve", "reject", "fail"])
def test_after_its_deadline_a_wait_is_decided_as_the_settings_say(on_timeout: str) -> None:
    tree = Tree()
    machine = run(tree, ROOT, [PAY], **UNTIL, onTimeout=on_timeout)
    assert tree.fire_next_timer()
    tell(tree, "approve", by="late")
    tree.settle()
    assert taken(machine) == [("1:pay", on_timeout, "onTimeout")]
    assert [(r["call"], r["decision"], r["by"]) for r in machine.approvals.records] == taken(machine)
    assert (machine.approvals.expired is not None) is (on_timeout == "fail")
    assert pending(machine) == []
    assert not tree.fire_next_timer()


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
    commands = new.approvals.open(
        "call", 1, Approve(**UNTIL).all_rules[-1], tree.clock, call="1:pay", about={"like": "pay"}
    )
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


def test_a_refused_decision_leaves_everything_waiting_and_whoever_asked_gets_the_problems(tree: Tree) -> None:
    before = pending(machine_of(tree, ROOT))
    for at in (ROOT, MIDDLE, LEAF):
        tell(tree, "edit", at, update=f"u{at}", call="1:pay", **BAD)
        tree.settle()
        assert pending(machine_of(tree, ROOT)) == before
        assert pending(machine_of(tree, LEAF)) == before
    assert [(a.id, a.problem.type) for a in tree.answers if a.problem] == [
        ("ur", INVALID_REQUEST), ("ur/m", INVALID_REQUEST), ("ur/m/x", INVALID_REQUEST)
    ]  # fmt: skip
    assert all(a.problem and a.problem.details[0]["code"] == "unknownTool" for a in tree.answers)
    assert machine_of(tree, ROOT).approvals.refuse_updates("it is over") == []  # each has its one answer
    tell(tree, "edit", MIDDLE, call="1:pay", **BAD)
    tree.settle()
    assert "no such tool" in notes(machine_of(tree, MIDDLE))


def test_an_approval_that_follows_an_edit_on_its_way_is_not_about_what_the_edit_made() -> None:
    tree = Tree()
    run(tree)
    leaf = run(tree, MIDDLE, [PLAN])
    tell(tree, "edit", plan=[{}], by="a")
    tell(tree, "approve", by="b")
    tree.settle()
    assert taken(leaf) == [(None, "edit", "a")]


def test_a_root_keeps_a_decision_that_comes_before_its_run_waits_and_remembers_it_for_like_calls() -> None:
    tree = Tree()
    run(tree)
    tell(tree, "approve", call="1:pay", by="a")
    tree.settle()
    leaf = run(tree, MIDDLE, [PAY], [PAY], [PAY])
    tell(tree, "approve", call="1:pay", by="b", remember={})
    tree.settle()
    assert taken(leaf) == [("1:pay", "approve", by) for by in ("a", "b", "b")]


def test_of_long_changes_the_root_hears_which_parts_changed() -> None:
    changes = [{"part": "n", "from": "x" * 600, "to": "y"}]
    wait = PendingApproval(workflow_id=MIDDLE, what="plan", version=1, since="", changes=changes)
    reported = PendingReports(MIDDLE, TreePosition(ancestors=(ROOT,))).as_reported(wait)
    assert reported.about["changes"] == [{"part": "n"}]


def test_after_a_report_of_all_that_waits_the_root_knows_nothing_else() -> None:
    reports = PendingReports(MIDDLE, TreePosition(ancestors=(ROOT,)))
    reports.next_report([PendingApproval(workflow_id=MIDDLE, what="plan", version=1, since="")])
    reports.confirm()
    reports.restart()
    reports.next_report([])
    reports.confirm()
    assert reports.to_json() == []


def test_a_report_that_is_lost_is_sent_again_until_it_arrives() -> None:
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
    assert delays == [*RESEND_SECONDS, RESEND_SECONDS[-1]]
    assert pending(root) == [(MIDDLE, "1:pay", 1)]


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
        {"workflowId": LEAF, "ancestors": (ROOT, MIDDLE), "closed": ((LEAF, 1),)},
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
    with contextlib.suppress(RecordError):
        root.handle(RecordReceived(PendingChanged.from_json(report)), tree.clock)
    assert pending(root) == before
