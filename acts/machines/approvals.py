"""Approvals: what waits for a person, which decision fits, until when, and who decided what.

Theory of operation. Every run has one ``Approvals``. What waits in a run is opened and closed by the
run; the machine reports the changes to the root of the tree in one hop. So the root knows all pending
approvals of the tree and is the one place that matches a decision with what it is for. The root sends
the decision straight to the run that waits. That run alone judges whether it can be carried out, and
answers the root.

    person ──decide──▶ root ──ForwardedDecision──▶ the run that waits
                        ▲                                │ DecisionAnswer
                        └────────────────────────────────┘

A decision that reaches another run goes to the root first, with the *scope* of that run; the root
passes the answer on to it. The root keeps each decision that it forwards until the answer arrives, the
delivery fails, or the run that waits has ended. So every update is answered exactly once.

A decision by signal that comes before its wait is kept, at the root for the whole tree; one by update is
refused then. When the wait opens, the decisions kept for it are judged in the order in which they came:
the first that can be carried out holds, the others are refused. A decision about something that has waited before
is late, not early: it was sent twice, or lost a race. Keeping it would approve what waits next, which nobody has seen.
Nor has anybody seen what opened in the same workflow task (until ``flush``): a decision that could be about
something before it is not about that.

Laws: no clock (``now`` comes with each event, as an ISO date in UTC), no I/O, and what a decision does
is the run's business: it applies each ``Decided`` before it hands in the next event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError, DecisionRefused, InvalidRequest, PlanError, truncate
from acts.language.strict_json import json_size
from acts.language.wire import (
    APPROVE,
    DECISION,
    DECISION_ANSWER,
    INVALID_REQUEST,
    PENDING_CHANGED,
    REFUSED,
    REJECT,
)
from acts.machines.commands import AnswerUpdate, ApprovalEffect, CancelTimer, Decided, Note, SendRecord, StartTimer
from acts.machines.waits import PendingReports, TreeWaits
from acts.tree.decisions import (
    SIGN,
    Decision,
    PendingApproval,
    check_signature,
    check_version,
    is_for,
    make_challenge,
    read_decision,
)
from acts.tree.records import TreePosition
from acts.tree.signal_records import DecisionAnswer, ForwardedDecision, PendingChanged
from acts.tree.wire_format import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from acts.language.config import Approve
    from acts.language.values import Json

# What a wait is about, as JSON; computed only where it is signed
Subject = Callable[[], "Json"]

MAX_RECORDS: Final = 1_000
# Decisions that are kept at a time, and the bytes of their JSON: a flood of signals must not keep the state of a run
# from fitting into the next
MAX_EARLY: Final = 100
MAX_EARLY_BYTES: Final = 512 * 1024
RESEND_TIMER: Final = "report pending approvals again"
# ``by`` of a decision that a deadline made
ENGINE: Final = "onTimeout"
EXPIRED: Final = "nobody decided in time"
# The key of the message that reports what waits
_REPORT: Final = "pending"

_Place = tuple[str, str | None, str | None]  # what, call, instance


@dataclass(frozen=True, slots=True)
class ReceivedDecision:
    """A decision and where it came from.

    ``scope`` limits it to one run and those below. ``reply_to`` is the run that owes the person an answer
    (None: this run), ``id`` how that run names the decision: empty for a signal, which expects no answer.
    """

    decision: Decision
    scope: str | None = None
    reply_to: str | None = None
    id: str = ""


class Approvals:
    """``check`` raises for a decision that the run cannot carry out now; what it returns travels in ``Decided``."""

    def __init__(self, own: str, position: TreePosition, check: Callable[[Decision], Any]) -> None:
        self.own, self.position = own, position
        self.records: list[dict[str, Any]] = []
        self.expired: str | None = None
        self.waits = TreeWaits(own)
        self.reports = PendingReports(own, position)
        self._check = check
        self._timers: dict[str, tuple[_Place, str]] = {}  # of each deadline: what it is for, and what it decides
        # When something began to wait that has not opened yet, or not again, and whether people saw it wait
        self._since: dict[_Place, tuple[str, bool]] = {}
        self._early: list[tuple[ReceivedDecision, int]] = []  # with the bytes of its JSON
        self._open_updates: dict[str, None] = {}
        self._forwards: dict[str, tuple[ReceivedDecision, PendingApproval]] = {}
        self._forward_count = 0

    # -- what waits ------------------------------------------------------------------------

    def open(
        self, what: str, version: int, settings: Approve, now: str, *, call: str | None = None,
        instance: str | None = None, about: Mapping[str, Any] | None = None, subject: Subject | None = None,
    ) -> list[ApprovalEffect]:  # fmt: skip
        """Wait for a decision; one that came early may settle it at once. ``subject`` is what it is about."""
        place = (what, call, instance)
        old = self.waits.get_own(*place)
        since, is_carried = self._since.pop(place, (now, False)) if old is None else (old.since, True)
        wait = PendingApproval(
            workflow_id=self.own, what=what, call=call, instance=instance, version=version, since=since,
            deadline=None if old is None else old.deadline, **about or {},
        )  # fmt: skip
        if old is not None:  # an edit changed it: what it is about, too
            self.reports.mark_edited(wait)
            self._put(wait, subject)
            return []
        out: list[ApprovalEffect] = []
        if settings.timeout is not None:
            ends = datetime.fromisoformat(since) + timedelta(seconds=settings.timeout)
            # A clock that was set back since must not prolong the wait beyond its timeout from now
            left = min(settings.timeout, max(0.001, (ends - datetime.fromisoformat(now)).total_seconds()))
            wait = wait.model_copy(update={"deadline": iso(ends)})
            self._timers[_timer_name(wait)] = (place, settings.onTimeout)
            out.append(StartTimer(_timer_name(wait), left, f"decision about {call or 'the plan'}"))
        wait = self._put(wait, subject)
        if not is_carried:
            self.waits.hide_until_seen(wait)
        return out + self._judge_early(wait, now)

    def close(self, what: str, call: str | None, instance: str | None) -> list[ApprovalEffect]:
        """This does not wait any more."""
        wait = self.waits.get_own(what, call, instance)
        if wait is None:
            return []
        self.waits.close(wait.key)
        self.reports.has_changes = True
        name = _timer_name(wait)
        return [] if self._timers.pop(name, None) is None else [CancelTimer(name)]

    def close_all(self) -> list[ApprovalEffect]:
        """Nothing waits any more."""
        return [effect for wait in self.waits.own for effect in self.close(wait.what, wait.call, wait.instance)]

    def raise_version(self, version: int, plan: Subject | None = None) -> None:
        """Another version waits now, and where the plan waits, ``plan`` is it; its deadline stays."""
        for wait in self.waits.own:
            self.reports.mark_edited(wait)
            self._put(wait.model_copy(update={"version": version}), plan if wait.what == "plan" else None)

    def inherit_deadline(self, wait: PendingApproval, calls: Iterable[str]) -> None:
        """The time for a decision runs on for the Call that an edit put in the place of this one."""
        prefix = f"{str(wait.call).partition(':')[0]}:"
        for call in calls:
            if call.startswith(prefix):
                self._since |= {(what, call, wait.instance): (wait.since, False) for what in ("call", "scopes")}

    def _put(self, wait: PendingApproval, subject: Subject | None) -> PendingApproval:
        """This waits from now on, with what an approver signs; ``subject`` None: what it is about has not changed."""
        if self.position.approvers:
            old = self.waits.get_own(wait.what, wait.call, wait.instance)
            content = digest(subject()) if subject is not None else old and old.about[SIGN]["subject"]
            sign = {"challenge": make_challenge(self.position.identity, wait), "subject": content}
            wait = wait.model_copy(update={SIGN: sign})
        self.waits.put(wait)
        self.reports.has_changes = True
        return wait

    @property
    def own_pending(self) -> list[PendingApproval]:
        """What waits in this very run."""
        return self.waits.own

    @property
    def pending(self) -> list[PendingApproval]:
        """What waits here and, at the root, in all runs below it."""
        return self.waits.all

    # -- decisions ---------------------------------------------------------------------------

    def judge(self, raw: Any) -> None:
        """Raise what would refuse an update now; nothing changes.

        Raises:
            PlanError: it cannot be taken, and why.
        """
        decision = read_decision(raw)
        wait = self.waits.match(decision, None) if self.position.is_root else None
        if wait is not None and wait.workflow_id == self.own:
            self._judge(wait, decision)

    def decide(self, raw: Any, word: str | None, now: str, *, update: str | None = None) -> list[ApprovalEffect]:
        """A person decides, by the signal ``word`` or by the update of this id. The root finds what is meant."""
        if update is not None:
            self._open_updates[update] = None
        try:
            decision = read_decision(raw, word)
            if not self.position.is_root:
                return [self._send(self.position.ancestors[0], update or "", decision, scope=self.own)]
            return self._route(ReceivedDecision(decision, id=update or ""), now)
        except (PlanError, CallError) as error:
            problem = problem_of(error)
            if update is not None:
                return self._answer_update(update, problem)
            return [_refusal_note(f"signal {word}", problem.message)]

    def _route(self, item: ReceivedDecision, now: str) -> list[ApprovalEffect]:
        """Bring a decision to the one wait that it matches; a signal that comes too early is kept.

        Raises:
            PlanError: it matches none or several, or cannot be carried out.
        """
        if not item.id and self._is_early(item) and self._keep(item):
            return []
        wait = self.waits.match(item.decision, item.scope)
        if wait.workflow_id != self.own:
            return [self._forward(wait, item)]
        if self.waits.is_unseen(wait) and self.waits.has_waited(item.decision, item.scope):
            raise DecisionRefused(f"{wait} began to wait after the decision was made, and nobody has seen it")
        return [*self._take(wait, item.decision, now), *self._answer(item, None)]

    def _judge(self, wait: PendingApproval, decision: Decision, *, of_engine: bool = False) -> tuple[Any, Any]:
        """Hold a decision against the wait of this run that it is about: the only place that lets one pass.

        Returns what the record says of its signature, and what the check of the run returns.

        Raises:
            PlanError: the run cannot carry it out, or it is not signed as it has to be.
        """
        check_version(wait, decision)
        approvers = () if of_engine else self.position.approvers
        signed = {"signed": check_signature(approvers, wait, decision)} if approvers else {}
        return signed, self._check(decision)

    def _take(
        self, wait: PendingApproval, decision: Decision, now: str, *, of_engine: bool = False
    ) -> list[ApprovalEffect]:
        """Take a decision about a wait of this run. Raises as ``_judge``."""
        signed, token = self._judge(wait, decision, of_engine=of_engine)
        if len(self.records) < MAX_RECORDS:
            self.records.append({**decision.record(wait, now), **signed})
        self.waits.remember(wait)  # what comes after an edit is not about what it made
        out = self.close(wait.what, wait.call, wait.instance) if decision.closes else []
        return [*out, Decided(wait, decision, token)]

    def on_timer(self, name: str, now: str) -> list[ApprovalEffect]:
        """A timer of this machine has fired."""
        if name == RESEND_TIMER:
            self.reports.has_changes = True
            return []
        place, word = self._timers.pop(name, (None, ""))
        wait = None if place is None else self.waits.get_own(*place)
        if wait is None:
            return []
        reason = EXPIRED
        if word == "fail":
            self.expired = f"{EXPIRED}: {wait}"
            out = self.close(wait.what, wait.call, wait.instance)
            return [*out, Decided(wait, Decision(decision=word, by=ENGINE, reason=reason))]
        if word == APPROVE and self.position.approvers:  # a deadline never approves in the place of an approver
            word, reason = REJECT, f"{EXPIRED}, and only a signed decision approves"
        try:
            return self._take(wait, Decision(decision=word, by=ENGINE, reason=reason), now, of_engine=True)
        except (PlanError, CallError) as error:
            return [_refusal_note(f"decision {word}", str(error))]

    # -- decisions that come early ---------------------------------------------------------------

    def _is_early(self, item: ReceivedDecision) -> bool:
        """True when a decision fits nothing that waits now or has waited before."""
        decision, scope = item.decision, item.scope
        is_open = any(is_for(wait, decision) for wait in self.waits.narrow(decision, scope))
        return not is_open and not self.waits.has_waited(decision, scope)

    def _keep(self, item: ReceivedDecision) -> bool:
        """Keep a decision for its wait; False when there is no room for another one."""
        if len(self._early) == MAX_EARLY:
            return False
        size = json_size(item.decision.to_json())
        if size + sum(bytes_ for _, bytes_ in self._early) > MAX_EARLY_BYTES:
            return False
        self._early.append((item, size))
        return True

    def _judge_early(self, wait: PendingApproval, now: str, *, is_edited: bool = False) -> list[ApprovalEffect]:
        """Judge the decisions that came before this wait: of those that fit it, the first that is accepted holds."""
        early, self._early = self._early, []
        out: list[ApprovalEffect] = []
        is_decided = False
        for item, size in early:
            if not is_for(wait, item.decision) or not self.waits.is_in_scope(wait.workflow_id, item.scope):
                self._early.append((item, size))
                continue
            try:
                if is_edited:
                    raise DecisionRefused(f"{wait} was edited before anybody could see it")
                check_version(wait, item.decision)
                if wait.workflow_id != self.own:
                    out.append(self._forward(wait, item))  # it judges each in turn
                    continue
                if is_decided:
                    raise DecisionRefused(f"another decision about {wait} came before this one")
                out += [*self._take(wait, item.decision, now), *self._answer(item, None)]
                is_decided = True
            except (PlanError, CallError) as error:
                out += self._answer(item, problem_of(error))
        return out

    # -- between the runs of a tree --------------------------------------------------------------

    def _send(
        self, to: str, id_: str, decision: Decision, *, scope: str | None = None, target: PendingApproval | None = None
    ) -> SendRecord:
        """The message that brings a decision to the root, or from there to the run that waits."""
        if target is not None and decision.version is None:
            # What the root knows: an edit on its way must not be approved unseen
            decision = decision.model_copy(update={"version": target.version})
        record = ForwardedDecision(id=id_, replyTo=self.own, decision=decision, scope=scope, target=target)
        return SendRecord(to, DECISION, record, key=f"decision/{id_}")

    def _forward(self, wait: PendingApproval, item: ReceivedDecision) -> SendRecord:
        self._forward_count += 1
        id_ = str(self._forward_count)
        self._forwards[id_] = (item, wait)
        return self._send(wait.workflow_id, id_, item.decision, target=wait)

    def on_forwarded(self, record: ForwardedDecision, now: str) -> list[ApprovalEffect]:
        """At the root: a run below was told a decision. At the run that waits: the root sends one."""
        item = ReceivedDecision(record.decision, record.scope, record.replyTo, record.id)
        try:
            if record.target is None:
                return self._route(item, now)
            wait = self._target(record.target)
            out = self._take(wait, item.decision, now)
        except (PlanError, CallError) as error:
            return self._answer(item, problem_of(error))
        if item.decision.closes:
            self.reports.drop(wait)  # the answer says it
        return [*out, *self._answer(item, None)]

    def _target(self, target: PendingApproval) -> PendingApproval:
        """The wait of this run that the root means."""
        likely = self.waits.narrow(Decision(decision=APPROVE, call=target.call))
        wait = next((w for w in likely if self.reports.as_reported(w).key == target.key), None)
        if wait is None:
            self.reports.restart()  # the root does not know what waits here: it, or this run, was reset
            raise DecisionRefused(f"{target} does not wait any more")
        return wait

    def on_answer(self, answer: DecisionAnswer) -> list[ApprovalEffect]:
        """At the root: the run that waits has judged a decision. At a run in between: the root passes that on."""
        return self._end_forward(answer.id, None if answer.type is None else answer)

    def undeliverable(self, id_: str) -> list[ApprovalEffect]:
        """A decision did not reach its run: that has just ended, and nothing waits there any more."""
        return self._end_forward(id_, _refusal("the run that waited has just ended: nothing is left to decide there"))

    def _end_forward(self, id_: str, problem: DecisionAnswer | None) -> list[ApprovalEffect]:
        """Answer the decision that was forwarded under this id: the root's, or that of an update of this run."""
        if id_ not in self._forwards:
            note = [_refusal_note("forwarded decision", problem.message)] if problem is not None and not id_ else []
            return [*note, *self._answer_update(id_, problem)]
        item, wait = self._forwards.pop(id_)
        if problem is None and item.decision.closes:
            self.waits.close(wait.key)
        return self._answer(item, problem)

    def on_pending_changed(self, record: PendingChanged, now: str) -> list[ApprovalEffect]:
        """At the root: a run below reports what waits there."""
        try:
            self.waits.apply_report(record)
        except ValueError as error:
            return [Note(f"a report of pending approvals was ignored: {error}")]
        effects = (self._judge_early(wait, now, is_edited=wait.key in record.edited) for wait in record.opened)
        return [effect for own in effects for effect in own]

    def forget(self, workflow_id: str) -> list[ApprovalEffect]:
        """A run below has ended, and with it whatever runs below that."""
        self.waits.forget(workflow_id)
        problem = _refusal("the run that waited ended before it could judge the decision")
        lost = [i for i, (_, wait) in self._forwards.items() if workflow_id in self.waits.path(wait.workflow_id)]
        return [effect for id_ in lost for effect in self._answer(self._forwards.pop(id_)[0], problem)]

    # -- answers ------------------------------------------------------------------------------------

    def _answer(self, item: ReceivedDecision, problem: DecisionAnswer | None) -> list[ApprovalEffect]:
        """Answer the update, or the run, that a decision came from; ``problem`` None: it was carried out."""
        if item.reply_to is not None and item.reply_to != self.own:
            if not item.id and problem is None:
                return []
            answer = (problem or DecisionAnswer(id="")).model_copy(update={"id": item.id})
            return [SendRecord(item.reply_to, DECISION_ANSWER, answer)]
        if item.id:
            return self._answer_update(item.id, problem)
        return [] if problem is None else [_refusal_note(f"decision {item.decision.decision}", problem.message)]

    def _answer_update(self, id_: str, problem: DecisionAnswer | None) -> list[ApprovalEffect]:
        """Answer an update; nothing for one that has its answer."""
        if id_ not in self._open_updates:
            return []
        del self._open_updates[id_]
        return [AnswerUpdate(id_, problem)]

    def refuse_updates(self, text: str) -> list[ApprovalEffect]:
        """The run ends before the runs that judge these decisions have answered."""
        return [effect for id_ in list(self._open_updates) for effect in self._answer_update(id_, _refusal(text))]

    # -- reports to the root ------------------------------------------------------------------------

    def flush(self) -> list[ApprovalEffect]:
        """At the end of a task: one report of what has changed since the last; the next when this one has arrived."""
        self.waits.end_task()
        record = self.reports.next_report(self.waits.own)
        return [] if record is None else [SendRecord(self.position.ancestors[0], PENDING_CHANGED, record, key=_REPORT)]

    def report_lost(self, reason: str) -> list[ApprovalEffect]:
        """A report did not arrive: the root is gone, or took too many signals."""
        note = Note(f"the root {self.position.ancestors[0]} could not be told what waits here: {reason}")
        return [note, StartTimer(RESEND_TIMER, self.reports.take_back(), RESEND_TIMER)]

    # -- carrying over --------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """What the next run must know; the waits are opened again by the run."""
        since = {place: when for place, (when, _) in self._since.items()}
        since |= {(w.what, w.call, w.instance): w.since for w in self.waits.own}
        return {
            "records": self.records, "since": [[*place, when] for place, when in since.items()],
            "reported": self.reports.snapshot(), "past": self.waits.snapshot(),
            "early": [[item.decision.to_json(), item.scope, item.reply_to] for item, _ in self._early],
        }  # fmt: skip

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over a snapshot; ``open`` follows for each wait."""
        self.records = list(data["records"])
        self._since = {(what, call, instance): (since, True) for what, call, instance, since in data["since"]}
        for decision, scope, reply_to in data["early"]:
            self._keep(ReceivedDecision(read_decision(decision), scope, reply_to))
        self.reports.restore(data["reported"])
        self.waits.restore(data["past"])


def _timer_name(wait: PendingApproval) -> str:
    """One timer of one wait: a timer that fires beside the decision is none of what waits next."""
    return f"{(wait.what, wait.call, wait.instance)} {wait.deadline}"


def problem_of(error: PlanError | CallError) -> DecisionAnswer:
    """An error as the answer to a decision."""
    if isinstance(error, InvalidRequest):
        return DecisionAnswer(id="", type=INVALID_REQUEST, message=str(error), details=error.to_json())
    text = error.message if isinstance(error, CallError) else str(error)
    refused = isinstance(error, (DecisionRefused, CallError))
    return DecisionAnswer(id="", type=REFUSED if refused else type(error).__name__, message=text)


def _refusal(text: str) -> DecisionAnswer:
    return problem_of(DecisionRefused(text))


def _refusal_note(name: str, reason: str) -> Note:
    """The note about a refusal that no answer carries; ``name`` is the signal or decision."""
    return Note(f"the {name} was refused: {truncate(reason, 200)}")


def iso(moment: datetime) -> str:
    """A date as all records have it: UTC, milliseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
