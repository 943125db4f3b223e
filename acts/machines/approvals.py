"""Approvals: what waits for a person, which decision fits, until when, and who decided what.

Theory of operation. Every run has one ``Approvals``. What waits in a run is opened and closed by the
run; the machine reports the changes to the root of the tree in one hop. So the root knows all pending
approvals of the tree and is the one place that matches a decision with what it is for. The root sends
the decision straight to the run that waits. That run alone judges whether it can be carried out, and
answers the root.

    person ──decide──▶ root ──ForwardedDecision──▶ the run that waits
                        ▲                                │ DecisionAnswer
                        └────────────────────────────────┘

A decision that reaches a run in between goes to the root first, with the *scope* of that run; the root
passes the answer on to it. The root keeps each decision that it forwards until the answer arrives, the
delivery fails, or the run that waits has ended. So every update is answered exactly once.

A decision by signal that comes before its wait is kept, at the root for the whole tree; one by update is
refused then. When the wait opens, the decisions kept for it are judged in the order in which they came:
the first that can be carried out holds, the others are refused. None is left for what waits next, because
nobody has seen that. Nor has anybody seen what opened in the same workflow task (until ``flush``): a decision
that could be about something before it is not about that.

Laws: no clock (``now`` comes with each event, as an ISO date in UTC), no I/O, and what a decision does
is the run's business: it applies each ``Decided`` before it hands in the next event.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError, DecisionRefused, PlanError
from acts.language.wire import APPROVE, PENDING_CHANGED, REJECT
from acts.machines.approval_effects import ApprovalEffect, CancelTimer, Decided, Note, StartTimer
from acts.machines.approval_keys import Key, key_of_timer, text_key, timer_name
from acts.machines.budget import SendRecord
from acts.machines.decision_answers import DecisionAnswers, problem_of, refusal, refusal_note
from acts.machines.decision_index import DecisionIndex
from acts.machines.early_decisions import EarlyDecisions, ReceivedDecision
from acts.machines.pending_below import PendingBelow
from acts.machines.pending_reports import PendingReports, reported_key
from acts.machines.signed_decisions import SignedDecisions, Subject
from acts.machines.wait_search import WaitSearch
from acts.tree.decisions import Decision, PendingApproval, check_version, read_decision
from acts.tree.records import TreePosition
from acts.tree.signal_records import DecisionAnswer, ForwardedDecision, PendingChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from acts.language.config import Approve

MAX_RECORDS: Final = 1_000
RESEND_TIMER: Final = "report pending approvals again"
# ``by`` of a decision that a deadline made
ENGINE: Final = "onTimeout"
# The key of the message that reports what waits
_REPORT: Final = "pending"


class Approvals:
    """``check`` raises for a decision that the run cannot carry out now; what it returns travels in ``Decided``."""

    def __init__(self, own: str, position: TreePosition, check: Callable[[Decision], Any]) -> None:
        self.own, self.position = own, position
        self.records: list[dict[str, Any]] = []
        self.expired: str | None = None
        self._check = check
        self._signing = SignedDecisions(position)
        self._waits = DecisionIndex[Key, PendingApproval]()
        self._settings: dict[Key, Approve] = {}
        self._since: dict[str, str] = {}  # when something began to wait that has not opened yet, or not again
        self._carried: set[str] = set()  # what people saw wait in the run before continue-as-new
        self.answers = DecisionAnswers(own)
        self._early = EarlyDecisions(own)
        self.below = PendingBelow(own)
        self._search = WaitSearch(own, self._waits, self.below)
        self.reports = PendingReports(own, position)

    # -- what waits ------------------------------------------------------------------------

    def open(
        self, what: str, version: int, settings: Approve, now: str, *, call: str | None = None,
        instance: str | None = None, about: Mapping[str, Any] | None = None, subject: Subject | None = None,
    ) -> list[ApprovalEffect]:  # fmt: skip
        """Wait for a decision; one that came early may settle it at once. ``subject`` is what it is about."""
        key = (what, call, instance)
        if (old := self._waits.get(key)) is not None:  # an edit changed it: what it is about, too
            self._put(key, self._signing.prepare(replace(old, version=version, about=about or {}), subject))
            self.reports.has_changes = True
            return []
        since = self._since.pop(text_key(key), None) or now
        deadline, out = None, list[ApprovalEffect]()
        if settings.timeout is not None:
            ends = datetime.fromisoformat(since) + timedelta(seconds=settings.timeout)
            # A clock that was set back since must not prolong the wait beyond its timeout from now
            left = min(settings.timeout, max(0.001, (ends - datetime.fromisoformat(now)).total_seconds()))
            deadline = iso(ends)
            out.append(StartTimer(timer_name(key, deadline), left, f"decision about {call or 'the plan'}"))
        self._settings[key] = settings
        wait = PendingApproval(self.own, what, version, since, call, instance, deadline, about or {})
        wait = self._put(key, self._signing.prepare(wait, subject))
        if text_key(key) in self._carried:
            self._carried.discard(text_key(key))
        else:
            self._early.add_unseen(wait)
        self.reports.add(wait)
        return out + self._judge_early(wait, now)

    def close(self, what: str, call: str | None, instance: str | None) -> list[ApprovalEffect]:
        """This does not wait any more."""
        key = (what, call, instance)
        settings = self._settings.pop(key, None)
        wait = self._waits.pop(key)
        if wait is None:
            return []
        self._early.remember(wait)
        self.reports.has_changes = True
        return [CancelTimer(timer_name(key, wait.deadline))] if settings is not None and wait.deadline else []

    def close_call(self, call: str, instance: str | None) -> list[ApprovalEffect]:
        """A Call does not wait any more, whatever settled it."""
        return [effect for what in ("call", "scopes") for effect in self.close(what, call, instance)]

    def close_all(self) -> list[ApprovalEffect]:
        """Nothing waits any more."""
        return [effect for key, _ in list(self._waits.items()) for effect in self.close(*key)]

    def _put(self, key: Key, wait: PendingApproval) -> PendingApproval:
        self._waits.put(key, wait, wait.workflow_id, wait.call, wait.instance)
        return wait

    def raise_version(self, version: int, plan: Subject | None = None) -> None:
        """Another version waits now, and where the plan waits, ``plan`` is it; its deadline stays."""
        for key, wait in list(self._waits.items()):
            raised = replace(wait, version=version)
            self._put(key, self._signing.prepare(raised, plan) if wait.what == "plan" else raised)
        self.reports.has_changes = True

    def inherit_deadline(self, wait: PendingApproval, calls: Iterable[str]) -> None:
        """The time for a decision runs on for the Call that an edit put in the place of this one."""
        place = f"{str(wait.call).partition(':')[0]}:"
        for call in calls:
            if call.startswith(place):
                self._since |= {text_key((what, call, wait.instance)): wait.since for what in ("call", "scopes")}

    @property
    def own_pending(self) -> list[PendingApproval]:
        """What waits in this very run."""
        return list(self._waits.values())

    @property
    def pending(self) -> list[PendingApproval]:
        """What waits here and, at the root, in all runs below it."""
        return [*self._waits.values(), *self.below.visible()]

    # -- decisions ---------------------------------------------------------------------------

    def judge(self, raw: Any, *, has_children: bool) -> None:
        """Raise what would refuse an update now; nothing changes.

        Raises:
            PlanError: it cannot be taken, and why.
        """
        decision = read_decision(raw)
        if self._goes_to_root(decision, has_children=has_children):
            return
        wait = self._search.match(decision, None)
        if wait.workflow_id == self.own:
            self._signing.check(wait, decision)
            self._check(decision)

    def decide(
        self, raw: Any, word: str | None, now: str, *, update: str | None = None, has_children: bool = False
    ) -> list[ApprovalEffect]:
        """A person decides, by the signal ``word`` or by the update of this id."""
        if update is not None:
            self.answers.add_update(update)
        try:
            decision = read_decision(raw, word)
            item = ReceivedDecision(decision, id=update or "")
            if self._goes_to_root(decision, has_children=has_children) or self._may_be_for_later_child(item):
                return [item.to_root(self.own, self.position.ancestors[0])]
            return self._route(item, now)
        except (PlanError, CallError) as error:
            problem = problem_of(error)
            if update is not None:
                return self.answers.answer_update(update, problem)
            return [refusal_note(f"signal {word}", problem.message)]

    def _goes_to_root(self, decision: Decision, *, has_children: bool) -> bool:
        """True where only the root knows which of several waits may be meant."""
        if self.position.is_root or decision.workflow_id == self.own:
            return False
        return has_children or decision.workflow_id is not None

    def _may_be_for_later_child(self, item: ReceivedDecision) -> bool:
        """True for a signal that comes before anything waits here: the root keeps it, also for runs below this one."""
        if self.position.is_root or item.id or item.decision.workflow_id is not None:
            return False
        return self._early.is_early(item, self._waits.narrow(item.decision))

    def _route(self, item: ReceivedDecision, now: str) -> list[ApprovalEffect]:
        """Bring a decision to the one wait that it matches; a signal that comes too early is kept.

        Raises:
            PlanError: it matches none or several, or cannot be carried out.
        """
        likely = self._search.narrow(item.decision, item.scope)
        if not item.id and self._early.is_early(item, likely) and self._early.keep(item):
            return []
        wait = self._search.match(item.decision, item.scope)
        if wait.workflow_id != self.own:
            return [self._forward(wait, item)]
        if self._early.is_unseen(wait) and not self._early.is_early(item, ()):
            raise DecisionRefused(f"{wait} began to wait after the decision was made, and nobody has seen it")
        return [*self._take(wait, item.decision, now), *self.answers.answer(item, None)]

    def _take(
        self, wait: PendingApproval, decision: Decision, now: str, *, of_engine: bool = False
    ) -> list[ApprovalEffect]:
        """Take a decision about a wait of this run.

        Raises:
            PlanError: the run cannot carry it out, or it is not signed as it has to be.
        """
        signed = {} if of_engine else self._signing.check(wait, decision)
        token = self._check(decision)
        if len(self.records) < MAX_RECORDS:
            self.records.append({**decision.record(wait, now), **signed})
        self._early.remember(wait)  # what comes after an edit is not about what it made
        out = self.close(wait.what, wait.call, wait.instance) if _closes(decision) else []
        return [*out, Decided(wait, decision, token)]

    def on_timer(self, name: str, now: str) -> list[ApprovalEffect]:
        """A timer of this machine has fired."""
        if name == RESEND_TIMER:
            self.reports.has_changes = True
            return []
        key = key_of_timer(name)
        wait = None if key is None else self._waits.get(key)
        if key is None or wait is None or timer_name(key, wait.deadline) != name:
            return []
        on_timeout, reason = self._signing.at_deadline(self._settings[key].onTimeout)
        if on_timeout == "fail":
            self.expired = f"{reason}: {wait}"
            self._settings.pop(key)
            return [*self.close(*key), Decided(wait, Decision("fail", by=ENGINE, reason=reason))]
        try:
            return self._take(wait, Decision(on_timeout, by=ENGINE, reason=reason), now, of_engine=True)
        except (PlanError, CallError) as error:
            return [refusal_note(f"decision {on_timeout}", str(error))]

    def _judge_early(self, wait: PendingApproval, now: str) -> list[ApprovalEffect]:
        """Judge the decisions that came before this wait: of those that fit it, the first that is accepted holds."""
        is_own = wait.workflow_id == self.own
        out: list[ApprovalEffect] = []
        is_decided = False
        for item in self._early.take(wait, () if is_own else self.below.ancestors(wait.workflow_id)):
            try:
                if is_decided:
                    raise DecisionRefused(f"another decision about {wait} came before this one")
                check_version(wait, item.decision)
                if is_own:
                    out += [*self._take(wait, item.decision, now), *self.answers.answer(item, None)]
                    is_decided = True
                else:
                    out.append(self._forward(wait, item))  # the run that waits judges each in turn
            except (PlanError, CallError) as error:
                out += self.answers.answer(item, problem_of(error))
        return out

    # -- between the runs of a tree --------------------------------------------------------------

    def _forward(self, wait: PendingApproval, item: ReceivedDecision) -> SendRecord:
        return item.to_waiting_run(self.own, wait, self.below.add_forward(item, wait, closes=_closes(item.decision)))

    def on_forwarded(self, record: ForwardedDecision, now: str) -> list[ApprovalEffect]:
        """At the root: a run below was told a decision. At the run that waits: the root sends one."""
        item = ReceivedDecision(Decision(""), record.scope, record.replyTo, record.id)
        try:
            item = replace(item, decision=read_decision(record.decision))
            if record.target is None:
                return self._route(item, now)
            wait = self._target(record.target)
            check_version(wait, item.decision)
            out = self._take(wait, item.decision, now)
        except (PlanError, CallError) as error:
            return self.answers.answer(item, problem_of(error))
        if _closes(item.decision):
            self.reports.drop(wait)  # the answer says it
        return [*out, *self.answers.answer(item, None)]

    def _target(self, raw: Mapping[str, Any]) -> PendingApproval:
        """The wait of this run that the root means."""
        try:
            target = PendingApproval.from_json(raw)
        except (KeyError, TypeError, ValueError):
            raise DecisionRefused("the decision does not say what it is about") from None
        key = reported_key(target)
        same = Decision("", call=target.call)
        likely = self._waits.values() if target.call is None else self._waits.narrow(same)
        wait = next((w for w in likely if reported_key(self.reports.as_reported(w)) == key), None)
        if wait is None:
            self.reports.restart()  # the root does not know what waits here: it, or this run, was reset
            raise DecisionRefused(f"{target} does not wait any more")
        return wait

    def on_answer(self, answer: DecisionAnswer) -> list[ApprovalEffect]:
        """At the root: the run that waits has judged a decision. At a run in between: the root passes that on."""
        return self._end_forward(answer.id, None if answer.type is None else answer)

    def undeliverable(self, id_: str) -> list[ApprovalEffect]:
        """A decision did not reach its run: that has just ended, and nothing waits there any more."""
        return self._end_forward(id_, refusal("the run that waited has just ended: nothing is left to decide there"))

    def _end_forward(self, id_: str, problem: DecisionAnswer | None) -> list[ApprovalEffect]:
        """Answer the decision that was forwarded under this id: the root's, or that of an update of this run."""
        item = self.below.take_forward(id_, is_accepted=problem is None)
        return [*self.answers.answer(item or ReceivedDecision(Decision("that was forwarded"), id=id_), problem)]

    def on_pending_changed(self, record: PendingChanged, now: str) -> list[ApprovalEffect]:
        """At the root: a run below reports what waits there."""
        try:
            opened = self.below.apply_report(record)
        except (KeyError, TypeError, ValueError):
            return [Note("a report of pending approvals could not be read")]
        for wait in opened:
            self._early.remember(wait, record.ancestors)
        return [effect for wait in opened for effect in self._judge_early(wait, now)]

    def forget(self, workflow_id: str) -> list[ApprovalEffect]:
        """A run below has ended, and with it whatever runs below that."""
        problem = refusal("the run that waited ended before it could judge the decision")
        return [effect for item in self.below.forget(workflow_id) for effect in self.answers.answer(item, problem)]

    # -- reports to the root ------------------------------------------------------------------------

    def flush(self) -> list[ApprovalEffect]:
        """At the end of a task: one report of what has changed since the last; the next when this one has arrived."""
        self._early.end_task()
        record = self.reports.next_report(self._waits.values())
        return [] if record is None else [SendRecord(self.position.ancestors[0], PENDING_CHANGED, record, key=_REPORT)]

    # -- carrying over --------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """What the next run must know; the waits are opened again by the run."""
        return {
            "records": self.records, "since": self._since | {text_key(k): w.since for k, w in self._waits.items()},
            "reported": self.reports.snapshot(), **self._early.snapshot(),
        }  # fmt: skip

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over a snapshot; ``open`` follows for each wait."""
        self.records = list(data["records"])
        self._since = dict(data["since"])
        self._carried = set(data["since"])
        self.reports.restore(data["reported"])
        self._early.restore(data)


def _closes(decision: Decision) -> bool:
    return decision.decision in (APPROVE, REJECT)


def iso(moment: datetime) -> str:
    """A date as all records have it: UTC, milliseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
