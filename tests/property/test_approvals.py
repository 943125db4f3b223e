"""Decisions race through a tree of runs: each wait is decided at most once, by somebody who could have seen it.

And every update is answered exactly once, the root shows what waits, and continue-as-new changes nothing of it.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from acts.language.config import Approve, Rule
from acts.language.wire import INVALID_REQUEST
from acts.machines.approvals import ENGINE, RESEND_TIMER
from acts.machines.commands import StartTimer
from acts.machines.events import Begin, CancelRequested, DecisionReceived, Event, HoldChanged, RecordReceived
from acts.machines.run_machine import RunMachine
from acts.tree.decisions import PendingApproval
from acts.tree.records import TreePosition
from acts.tree.signal_records import ForwardedDecision, PendingChanged
from tests.property.simulated_tree import ROOT, SETTINGS, Races, Tree
from tests.property.waiting_run import PLAN, Place, Taken, WaitingRun, What

Json = Any
TIMEOUT_SECONDS = 10


def means(raw: Json, word: str, place: Place, ancestors: tuple[str, ...], scope: str | None) -> bool:
    """True when a decision, told to the run ``scope``, may be about this."""
    workflow_id, what, call, instance = place
    if scope is not None and scope != workflow_id and scope not in ancestors:
        return False
    if raw.get("workflowId") not in (None, workflow_id):
        return False
    names_run = raw.get("workflowId") == workflow_id and instance is None
    if not names_run and raw.get("instance") not in (None, instance):
        return False
    if word == "edit" and "plan" in raw and instance is not None:
        return False  # a whole new plan is for whatever waits in its run, but for no instance
    return (word == "edit" and what == "plan") or raw.get("call") in (None, call)


@dataclass
class Routing:
    """What the run that matched a decision knew then: what waits, what of it since this task, what ever waited."""

    raw: Json
    word: str
    visible: dict[Place, int]
    unseen: set[Place]
    ever: set[Place]


class WatchedTree(Tree):
    """A tree in which each run has a twin that never continues as new, and each decision is watched."""

    def __init__(self) -> None:
        super().__init__()
        self.twins: dict[str, WaitingRun] = {}
        self.ancestors: dict[str, tuple[str, ...]] = {}
        self.known: dict[str, set[Place]] = defaultdict(set)
        self.shown: dict[Place, int] = {}
        self.routings: dict[str, Routing] = {}
        self.closed: dict[tuple[Place, int], Taken] = {}
        self.taken: dict[str, list[Taken]] = defaultdict(list)
        self.partial: set[str] = set()  # approvals that others have to add theirs to
        self.remembered: dict[str, int] = defaultdict(int)  # approvals of like Calls, by who has said so

    def machine(self, id_: str) -> WaitingRun:
        machine = self.runs[id_].machine
        assert isinstance(machine, WaitingRun)
        return machine

    def start(self, machine: RunMachine, parent: str | None = None, key: str = "") -> None:
        super().start(machine, parent, key)
        self.ancestors[machine.own] = machine.position.ancestors
        twin = copy.deepcopy(machine)
        twin.approvals._check = twin.check_decision
        assert isinstance(twin, WaitingRun)
        self.twins[machine.own] = twin

    def handle(self, id_: str, event: Event) -> None:
        machine = self.machine(id_)
        self._note_routing(id_, event)
        before = len(machine.log)
        commands = machine.handle(event, self.clock)
        assert commands == self.twins[id_].handle(event, self.clock), "a run that continued as new goes another way"
        self.perform(id_, commands)
        self._note_known(id_, event)
        self.partial |= {record["by"] for record in machine.approvals.records if "left" in record}
        for taken in machine.log[before:]:
            self._check_taken(taken)

    def flush(self, id_: str, *, at_end: bool) -> None:
        machines = (self.machine(id_), self.twins[id_])
        commands, others = ([*(m.flush_at_end if at_end else m.flush)(self.clock)] for m in machines)
        assert commands == others, "a run that continued as new reports something else"
        self.perform(id_, commands)
        for what, versions in self.machine(id_).openings.items():
            self.known[id_].add(self.machine(id_).place(what))
            self.shown[self.machine(id_).place(what)] = len(versions)

    def renew(self, id_: str) -> None:
        """Continue as new: the timers end with the run, and are there again."""
        run, timers = self.runs[id_], self.runs[id_].timers
        run.machine, run.timers = self.machine(id_).renewed(), {}
        commands = run.machine.handle(Begin(), self.clock)
        assert all(isinstance(command, StartTimer) for command in commands), commands
        self.perform(id_, commands)
        assert run.timers == {name: max(at, self.now + 1) for name, at in timers.items()}
        assert self.machine(id_).openings == self.twins[id_].openings
        self.work(id_)

    # -- who could have seen what -------------------------------------------------------------------

    def _note_routing(self, id_: str, event: Event) -> None:
        scope: str | None = None
        if isinstance(event, DecisionReceived):
            raw, word = event.raw, event.word or event.raw["decision"]
        elif isinstance(event, RecordReceived) and isinstance(event.record, ForwardedDecision):
            if event.record.target is not None:
                return  # the root has matched it
            raw, word, scope = event.record.decision.to_json(), event.record.decision.decision, event.record.scope
        else:
            return
        pending = self.machine(id_).approvals.pending
        visible = {(w.workflow_id, w.what, w.call, w.instance): w.version for w in pending}
        fits = lambda place: means(raw, word, place, self.ancestors[place[0]], scope)  # noqa: E731
        unseen = {p for p in visible if p[0] == id_ and self.shown.get(p, 0) < len(self._openings(p))}
        self.routings[raw["by"]] = Routing(
            raw, word, {p: v for p, v in visible.items() if fits(p)}, unseen, {p for p in self.known[id_] if fits(p)}
        )

    def _openings(self, place: Place) -> list[int]:
        return self.machine(place[0]).openings[place[1], place[2]]

    def _note_known(self, id_: str, event: Event) -> None:
        if isinstance(event, RecordReceived) and isinstance(event.record, PendingChanged):
            for raw in event.record.opened:
                self.known[id_].add((raw.workflow_id, raw.what, raw.call, raw.instance))

    def _check_taken(self, taken: Taken) -> None:
        if taken.decision != "edit":
            key = (taken.place, taken.opening)
            assert key not in self.closed, f"decided twice: {self.closed[key]} and {taken}"
            self.closed[key] = taken
            self.known[taken.place[0]].add(taken.place)
        if taken.by == ENGINE or taken.by is None:
            return
        if taken.decision == "approve":
            needed = self.machine(taken.place[0]).approve.plan_rule.of
            assert len(set(taken.approvers)) == needed, f"{taken.approvers} have approved, and {needed} have to"
        if taken.remembered is not None:
            self.remembered[taken.by] += 1
            raw = self.routings[taken.by].raw
            assert self.remembered[taken.by] <= raw["remember"]["count"], f"{taken}: {raw} allows no more"
            return
        self.taken[taken.by].append(taken)
        assert len(self.taken[taken.by]) == 1, f"one decision, taken twice: {self.taken[taken.by]}"
        routing = self.routings[taken.by]
        assert _tool_of(routing.raw) != "bad"
        said = routing.raw.get("version")
        assert said in (None, taken.version), f"about version {said}, taken for {taken.version}"
        if "plan" in routing.raw and taken.place in routing.visible:
            assert routing.visible[taken.place] == taken.version
        elif routing.visible:
            assert routing.visible == {taken.place: taken.version}, f"{taken} was matched with {routing.visible}"
        if not routing.visible or taken.place in routing.unseen:
            assert not routing.ever, f"{taken} came after {routing.ever} had waited, and was kept for what came next"
            assert taken.version == taken.opened_version, f"{taken} came before what was edited"


def _tool_of(raw: Json) -> str | None:
    return (raw.get("with") or {}).get("_tool")


MIDDLE, ANN, BOB, LEAF = "r/m", "r/m/a", "r/m/b", "r/z"
POSITIONS = {
    ROOT: TreePosition(),
    MIDDLE: TreePosition(ancestors=(ROOT,)),
    ANN: TreePosition(ancestors=(ROOT, MIDDLE), instance="Ann"),
    BOB: TreePosition(ancestors=(ROOT, MIDDLE), instance="Bob"),
    LEAF: TreePosition(ancestors=(ROOT,)),
}
PARENTS = {MIDDLE: ROOT, ANN: MIDDLE, BOB: MIDDLE, LEAF: ROOT}
STAGES: list[list[list[What]]] = [
    [],
    [[PLAN]],
    [[PLAN], [PLAN]],
    [[("call", "1:pay")]],
    [[("call", "1:pay")], [("call", "2:pay")]],
    [[("call", "1:pay"), ("scopes", "2:look")]],
    [[PLAN], [("call", "1:pay"), ("call", "2:pay")]],
]
rules = st.builds(Rule, plan=st.just(True), of=st.sampled_from([1, 1, 2]))
approves = st.builds(
    Approve, timeout=st.sampled_from([None, TIMEOUT_SECONDS]), onTimeout=st.sampled_from(["reject", "approve", "fail"]),
    rules=st.tuples(rules),
)  # fmt: skip


WORDS = st.sampled_from(["approve", "approve", "reject", "edit", "edit"])


class DecisionRaces(Races):
    """People decide at any run while messages are on their way, runs start, end, die, and continue as new."""

    def __init__(self) -> None:
        super().__init__(WatchedTree())
        self.people = 0
        self.losses = 0
        self.harmed: set[str] = set()  # runs that were killed or cancelled: what they did last may be unknown
        self.refused: dict[str, Json] = {}

    @initialize(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        self.plans = {
            id_: (data.draw(st.sampled_from(STAGES)), data.draw(approves), data.draw(st.booleans()))
            for id_ in POSITIONS
        }
        self._start(ROOT)

    def _start(self, id_: str) -> None:
        stages, approve, may_end = self.plans.pop(id_)
        machine = WaitingRun(id_, POSITIONS[id_], stages, approve)
        machine.may_end = may_end and id_ in (ANN, BOB, LEAF)
        self.tree.start(machine, PARENTS.get(id_), id_)

    def _alive(self, *ids: str) -> list[str]:
        return [id_ for id_ in ids or POSITIONS if id_ in self.tree.runs]

    @precondition(lambda self: any(PARENTS.get(i) in self.tree.runs for i in self.plans))
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        ready = [i for i in self.plans if PARENTS.get(i) in self._idle()]
        if ready:
            self._start(data.draw(st.sampled_from(ready)))

    def _idle(self) -> list[str]:
        return [i for i in self._alive() if i not in self.harmed and not self.tree.machine(i).finished]

    @precondition(lambda self: self._waiting())
    @rule(data=st.data(), word=WORDS, is_update=st.booleans(), says_version=st.booleans())
    def decide(self, data: st.DataObject, word: str, is_update: bool, says_version: bool) -> None:  # noqa: FBT001
        """Somebody decides about something that waits, at its run or above, naming it more or less exactly."""
        wait = data.draw(st.sampled_from(self._waiting()))
        names = {"call": wait.call, "workflowId": wait.workflow_id, "instance": wait.instance}
        said = data.draw(st.sets(st.sampled_from(sorted(names))))
        path = (*POSITIONS[wait.workflow_id].ancestors, wait.workflow_id)
        target = data.draw(st.sampled_from([i for i in path if i in self.tree.runs]))
        version = wait.version if says_version else None
        self._tell(data, target, word, {k: names[k] for k in sorted(said)}, version, is_update=is_update)

    @rule(data=st.data(), word=WORDS, is_update=st.booleans(), version=st.sampled_from([None, None, None, 1, 2]))
    def decide_blindly(self, data: st.DataObject, word: str, is_update: bool, version: int | None) -> None:  # noqa: FBT001
        """Somebody decides about something that may wait, has waited, or will never wait."""
        if not self._alive():
            return
        names = {
            "call": data.draw(st.sampled_from([None, None, "1:pay", "2:pay"])),
            "workflowId": data.draw(st.sampled_from([None, None, None, *POSITIONS])),
            "instance": data.draw(st.sampled_from([None, None, None, "Ann", "Bob"])),
        }
        target = data.draw(st.sampled_from(self._alive()))
        self._tell(data, target, word, names, version, is_update=is_update)

    def _tell(
        self, data: st.DataObject, target: str, word: str, names: Json, version: int | None, *, is_update: bool
    ) -> None:
        self.people += 1
        by = f"p{self.people}"
        raw: Json = {"by": by, "version": version, **{k: v for k, v in names.items() if v is not None}}
        if word == "reject":
            raw["reason"] = "no"
        if word == "approve" and data.draw(st.booleans()):
            raw["remember"] = {"count": data.draw(st.integers(1, 2))}
        if word == "edit":
            changed = {"_tool": data.draw(st.sampled_from(["pay", "pay", "other", "other", "bad"]))}
            raw |= {"with": changed} if "call" in raw else {"plan": [changed]}
        if is_update:
            raw["decision"] = word
        refusal = self.tree.tell(target, raw, None if is_update else word, by if is_update else None)
        if refusal is not None:
            self.refused[by] = refusal

    @rule(data=st.data(), name=st.sampled_from(["1", "2"]))
    def revoke(self, data: st.DataObject, name: str) -> None:
        if self._alive():
            self.people += 1
            by = f"p{self.people}"
            target = data.draw(st.sampled_from(self._alive()))
            refusal = self.tree.tell(target, {"decision": "revoke", "remembered": name, "by": by}, None, by)
            if refusal is not None:
                self.refused[by] = refusal

    def _waiting(self) -> list[PendingApproval]:
        return [wait for i in self._alive() for wait in self.tree.machine(i).approvals.waits.own]

    @precondition(lambda self: self.tree.lines)
    @rule(data=st.data(), fails=st.integers(0, 9))
    def arrive(self, data: st.DataObject, fails: int) -> None:
        line = data.draw(st.sampled_from(list(self.tree.lines)))
        message = self.tree.lines[line][0]
        may_fail = message.key == "pending" or (message.key.startswith("decision/") and line[0] == ROOT)
        # The last report of a run that is over is not sent again: the root forgets that run when it ends
        may_fail = may_fail and not (line[0] in self.tree.runs and self.tree.machine(line[0]).finished)
        is_lost = fails == 0 and may_fail and self.losses < 3 and not message.arrived
        self.losses += is_lost
        self.tree.arrive(line, fails=is_lost)

    @rule()
    def wait_for_a_timer(self) -> None:
        self.tree.fire_next_timer()

    @rule(data=st.data())
    def continue_as_new(self, data: st.DataObject) -> None:
        quiet = [i for i in self._idle() if self.tree.is_quiet(i) and not self.tree.machine(i).has_not_begun]
        # The next run counts what it forwards from 1, and reports at once what was lost: the twin does neither
        quiet = [i for i in quiet if i != ROOT or not self.tree.machine(ROOT).approvals._forward_count]
        quiet = [i for i in quiet if RESEND_TIMER not in self.tree.runs[i].timers]
        if quiet:
            self.tree.renew(data.draw(st.sampled_from(quiet)))

    @rule(victim=st.sampled_from([ANN, BOB, LEAF, MIDDLE]), one_in=st.integers(0, 5))
    def kill(self, victim: str, one_in: int) -> None:
        if victim in self.tree.runs and one_in == 0:
            self._harm(victim)
            self.tree.kill(victim)

    @rule(victim=st.sampled_from([ANN, BOB, LEAF, MIDDLE]), one_in=st.integers(0, 5))
    def cancel(self, victim: str, one_in: int) -> None:
        if victim in self.tree.runs and one_in == 0:
            self._harm(victim)
            for id_ in self._alive():
                if id_ == victim or victim in self.tree.ancestors[id_]:
                    self.tree.runs[id_].inbox.append(CancelRequested())

    def _harm(self, victim: str) -> None:
        self.harmed |= {i for i in POSITIONS if i == victim or victim in POSITIONS[i].ancestors}

    @rule()
    def come_to_rest(self) -> None:
        self.tree.settle()
        self._check_pending()

    def _check_pending(self) -> None:
        """The root shows what waits, all of it, and nothing else."""
        if ROOT not in self.tree.runs or any(RESEND_TIMER in run.timers for run in self.tree.runs.values()):
            return
        waiting = {
            (*self.tree.machine(i).place((w.what, w.call)), w.version)
            for i in self._alive() for w in self.tree.machine(i).approvals.waits.own
        }  # fmt: skip
        shown = [
            (w.workflow_id, w.what, w.call, w.instance, w.version) for w in self.tree.machine(ROOT).approvals.pending
        ]
        assert sorted(map(str, shown)) == sorted(map(str, waiting))

    def teardown(self) -> None:
        if ROOT not in self.tree.runs:
            return
        self._rest_with_timers()
        self._check_pending()
        self._decide_the_rest()
        for id_ in reversed(self._alive()):
            if id_ in self.tree.runs:
                self.tree.machine(id_).may_end = self.tree.twins[id_].may_end = True
                self.tree.runs[id_].inbox.append(HoldChanged(False))
                self.tree.settle()
        self._rest_with_timers()
        assert not self.tree.runs, "a run never ends"
        self._check_answers()

    def _rest_with_timers(self) -> None:
        self.tree.settle()
        while self.tree.fire_next_timer():
            self.tree.settle()

    def _decide_the_rest(self) -> None:
        """Whatever waits can be decided at the root, by its name."""
        for _ in range(100):
            pending = self.tree.machine(ROOT).approvals.pending
            if not pending:
                return
            self.people += 1
            wait, by = pending[0], f"p{self.people}"
            raw = {"decision": "approve", "by": by, "workflowId": wait.workflow_id, "version": wait.version}
            raw |= {"call": wait.call} if wait.call is not None else {}
            others = [w for w in pending if w.workflow_id == wait.workflow_id]
            refusal = self.tree.tell(ROOT, raw, None, by)
            if wait.about.get("of", 1) - len(wait.about.get("approvals", ())) > 1:
                self._rest_with_timers()
                continue
            if wait.call is None and len(others) > 1:
                continue
            assert refusal is None
            self._rest_with_timers()
            assert self.tree.taken[by] or self.losses, f"nobody took the decision about {wait}"
        raise AssertionError("what waits cannot be decided")

    def _check_answers(self) -> None:
        answers = {answer.id: answer for answer in self.tree.answers}
        assert len(answers) == len(self.tree.answers)
        assert set(answers) == set(self.tree.asked) - self.tree.abandoned
        for by, answer in answers.items():
            if answer.problem is None:
                is_partial = by in self.tree.partial or self.tree.routings[by].word == "revoke"
                assert self.tree.taken[by] or is_partial, f"{by} was told that it was taken"
            elif not self.harmed:
                assert not self.tree.taken[by], f"{by} was refused, and taken: {answer.problem}"
            is_bad = _tool_of(self.tree.routings[by].raw) == "bad"
            if answer.problem is not None and answer.problem.type == INVALID_REQUEST:
                assert is_bad
                assert answer.problem.details
        for by in self.refused:
            assert not self.tree.taken[by]


TestDecisionRaces = DecisionRaces.TestCase
TestDecisionRaces.settings = SETTINGS
