"""Approvals: what waits for a person, which decision fits, until when, and who decided what.

Theory of operation. Every run has one ``Approvals``. What waits in a run is opened and closed by the
run; the machine reports the changes to the root of the tree in one hop. So the root knows all pending
approvals of the tree and is the one place that matches a decision with what it is for. The root sends
the decision straight to the run that waits. That run alone judges whether it can be carried out, and
answers whoever was told by the person.

    person ──decide──▶ root ──ForwardedDecision──▶ the run that waits
                        ▲                                │ DecisionAnswer
                        └────────────────────────────────┘

A decision that reaches a run in between goes to the root first, with the *scope* of that run. A
decision by signal that comes before its wait is kept at the root; one by update is refused then.

Laws: no clock (``now`` comes with each event, as an ISO date in UTC), no I/O, and what a decision does
is the run's business: it applies each ``Decided`` before it hands in the next event.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError, DecisionRefused, InvalidRequest, PlanError, truncate
from acts.language.wire import DECISION, DECISION_ANSWER, INVALID_REQUEST, PENDING_CHANGED, REFUSED
from acts.machines.budget import SendRecord
from acts.tree.decisions import (
    APPROVE,
    INNER,
    REJECT,
    Decision,
    PendingApproval,
    check_version,
    match_decision,
    read_decision,
)
from acts.tree.records import DecisionAnswer, ForwardedDecision, PendingChanged, RecordError, TreePosition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from acts.language.config import Approve

# Decisions that came before their wait; a flood of them must not grow without end
MAX_EARLY: Final = 100
MAX_RECORDS: Final = 1_000
# Changes in one report: some hundred bytes each
MAX_CHANGES: Final = 1_000
# A report that did not reach the root is sent again after so many seconds, then with the next change
RESEND_SECONDS: Final = (5.0, 60.0, 600.0)
RESEND_TIMER: Final = "report pending approvals again"
# ``by`` of a decision that a deadline made
ENGINE: Final = "onTimeout"

Key = tuple[str, str | None, str | None]  # what, call, instance


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision was taken; the run applies it at once. ``token`` is what its check returned."""

    wait: PendingApproval
    decision: Decision
    token: Any = None


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Wake the run after so many seconds, with the timer's name."""

    name: str
    seconds: float
    summary: str


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Stop a timer."""

    name: str


@dataclass(frozen=True, slots=True)
class AnswerUpdate:
    """Answer the update of this id: None, or the problem that refuses it."""

    id: str
    problem: DecisionAnswer | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A remark for ``status`` and the page."""

    text: str


ApprovalEffect = Decided | StartTimer | CancelTimer | AnswerUpdate | Note | SendRecord


@dataclass(frozen=True, slots=True)
class _Early:
    """A decision by signal that waits for what it is about; ``scope`` limits it to one run and those below."""

    decision: Decision
    scope: str | None = None
    reply_to: str | None = None
    id: str = ""


@dataclass(slots=True)
class _Below:
    """What waits in one run below the root."""

    ancestors: tuple[str, ...]
    waits: dict[Key, PendingApproval] = field(default_factory=dict)
    decided: dict[Key, None] = field(default_factory=dict)  # sent to the run, which has not confirmed it yet


def problem_of(error: PlanError | CallError) -> DecisionAnswer:
    """An error as the answer to a decision."""
    if isinstance(error, InvalidRequest):
        return DecisionAnswer(id="", type=INVALID_REQUEST, message=str(error), details=error.to_json())
    text = error.message if isinstance(error, CallError) else str(error)
    refused = isinstance(error, (DecisionRefused, CallError))
    return DecisionAnswer(id="", type=REFUSED if refused else type(error).__name__, message=text)


class Approvals:
    """``check`` raises for a decision that the run cannot carry out now; what it returns travels in ``Decided``."""

    def __init__(self, own: str, position: TreePosition, check: Callable[[Decision], Any]) -> None:
        self.own, self.position = own, position
        self.records: list[dict[str, Any]] = []
        self.expired: str | None = None
        self._check = check
        self._waits: dict[Key, PendingApproval] = {}
        self._settings: dict[Key, Approve] = {}
        self._below: dict[str, _Below] = {}
        self._early: list[_Early] = []
        self._since: dict[str, str] = {}
        self._seen: dict[tuple[str, str | None, str | None], int] = {}
        self._sent: dict[Key, PendingApproval] = {}
        self._arrived: dict[Key, PendingApproval] = {}
        self._hidden: dict[Key, None] = {}  # decided at the root, which hides them until they are reported again
        self._on_the_way: tuple[list[PendingApproval], list[PendingApproval]] | None = None
        self._changed = False
        self._resends = 0

    # -- what waits ------------------------------------------------------------------------

    def open(
        self, what: str, version: int, settings: Approve, now: str, *, call: str | None = None,
        instance: str | None = None, about: Mapping[str, Any] | None = None,
    ) -> list[ApprovalEffect]:  # fmt: skip
        """Wait for a decision; one that came early may settle it at once."""
        key = (what, call, instance)
        self._changed = True
        if key in self._waits:
            self._waits[key] = replace(self._waits[key], version=version)
            return []
        self._remember(self.own, call, instance, version)
        since = self._since.pop(_text_key(key), None) or now
        deadline, out = None, list[ApprovalEffect]()
        if settings.timeout is not None:
            ends = datetime.fromisoformat(since) + timedelta(seconds=settings.timeout)
            left = max(0.001, (ends - datetime.fromisoformat(now)).total_seconds())
            deadline = iso(ends)
            out.append(StartTimer(_text_key(key), left, f"decision about {call or 'the plan'}"))
        self._settings[key] = settings
        self._waits[key] = PendingApproval(self.own, what, version, since, call, instance, deadline, about or {})
        return out + self._apply_early(self._waits[key], now)

    def close(self, what: str, call: str | None, instance: str | None) -> list[ApprovalEffect]:
        """This does not wait any more."""
        key = (what, call, instance)
        settings = self._settings.pop(key, None)
        if self._waits.pop(key, None) is None:
            return []
        self._changed = True
        return [CancelTimer(_text_key(key))] if settings is not None and settings.timeout is not None else []

    def close_call(self, call: str, instance: str | None) -> list[ApprovalEffect]:
        """A Call does not wait any more, whatever settled it."""
        return [effect for what in ("call", "scopes") for effect in self.close(what, call, instance)]

    def close_all(self) -> list[ApprovalEffect]:
        """Nothing waits any more."""
        return [effect for key in list(self._waits) for effect in self.close(*key)]

    def raise_version(self, version: int) -> None:
        """Another version waits now; its deadline stays."""
        for key, wait in list(self._waits.items()):
            self._waits[key] = replace(wait, version=version)
            self._remember(wait.workflow_id, wait.call, wait.instance, version)
        self._changed = True

    def inherit_deadline(self, wait: PendingApproval, calls: Iterable[str]) -> None:
        """The time for a decision runs on for the Call that an edit put in the place of this one."""
        place = f"{str(wait.call).partition(':')[0]}:"
        for call in calls:
            if call.startswith(place):
                self._since |= {_text_key((what, call, wait.instance)): wait.since for what in ("call", "scopes")}

    @property
    def own_pending(self) -> list[PendingApproval]:
        """What waits in this very run."""
        return list(self._waits.values())

    @property
    def pending(self) -> list[PendingApproval]:
        """What waits here and, at the root, in all runs below it."""
        return [*self._waits.values(), *(wait for _, wait in self._pending_below())]

    @property
    def runs_waiting_below(self) -> int:
        """In how many of the runs below something waits."""
        return sum(len(below.waits) > len(below.decided) for below in self._below.values())

    def children_waiting(self, children: Iterable[str]) -> int:
        """In how many of these children, or below them, something waits."""
        waiting = [(*b.ancestors, id_) for id_, b in self._below.items() if len(b.waits) > len(b.decided)]
        return sum(any(child in path for path in waiting) for child in children)

    def _pending_below(self) -> list[tuple[_Below, PendingApproval]]:
        return [(b, w) for b in self._below.values() for key, w in b.waits.items() if key not in b.decided]

    def _remember(self, workflow_id: str, call: str | None, instance: str | None, version: int) -> None:
        """A decision that comes after this has waited is late, not early."""
        key = (workflow_id, call, instance)
        self._seen[key] = max(version, self._seen.get(key, 0))

    # -- decisions ---------------------------------------------------------------------------

    def judge(self, raw: Any, *, has_children: bool) -> None:
        """Raise what would refuse an update now; nothing changes.

        Raises:
            PlanError: it cannot be taken, and why.
        """
        decision = read_decision(raw)
        if self._goes_to_root(decision, has_children=has_children):
            return
        wait = match_decision(self.pending, decision)
        if wait.workflow_id == self.own:
            self._check(decision)

    def decide(
        self, raw: Any, word: str | None, now: str, *, update: str | None = None, has_children: bool = False
    ) -> list[ApprovalEffect]:
        """A person decides, by the signal ``word`` or by the update of this id."""
        try:
            decision = read_decision(raw, word)
            if self._goes_to_root(decision, has_children=has_children):
                return [self._send_to_root(decision, update)]
            return self._route(_Early(decision, id=update or ""), now, may_wait=update is None)
        except (PlanError, CallError) as error:
            return [self._refuse(error, word, update)]

    def _goes_to_root(self, decision: Decision, *, has_children: bool) -> bool:
        """True where only the root knows which of several waits may be meant."""
        if self.position.is_root or decision.workflow_id == self.own:
            return False
        return has_children or decision.workflow_id is not None

    def _send_to_root(self, decision: Decision, update: str | None) -> SendRecord:
        raw = {**decision.raw, "decision": decision.decision}
        record = ForwardedDecision(id=update or "", replyTo=self.own, decision=raw, scope=self.own)
        return SendRecord(self.position.ancestors[0], DECISION, record, key=f"decision/{update or ''}")

    @staticmethod
    def _refuse(error: PlanError | CallError, word: str | None, update: str | None) -> ApprovalEffect:
        if update is not None:
            return AnswerUpdate(update, problem_of(error))
        text = error.message if isinstance(error, CallError) else str(error)
        return Note(f"the signal {word} was refused: {truncate(text, 200)}")

    def _route(self, item: _Early, now: str, *, may_wait: bool) -> list[ApprovalEffect]:
        """Bring a decision to the one wait that it matches.

        Raises:
            PlanError: it matches none or several, or cannot be carried out.
        """
        decision = item.decision
        waits = self._in_scope(item.scope)
        if may_wait and self._is_early(decision, waits, item.scope) and len(self._early) < MAX_EARLY:
            self._early.append(item)
            return []
        wait = match_decision(waits, decision)
        if wait.workflow_id == self.own:
            return [*self._take(wait, decision, now), *self._answer(item, None)]
        return [self._forward(wait, item)]

    def _in_scope(self, scope: str | None) -> list[PendingApproval]:
        if scope is None or scope == self.own:
            return self.pending
        return [w for b, w in self._pending_below() if scope == w.workflow_id or scope in b.ancestors]

    def _is_early(self, decision: Decision, waits: Sequence[PendingApproval], scope: str | None) -> bool:
        """True when it can only be for a wait that is still to come.

        A decision about something that has waited already (sent twice, or too late) must not approve
        the next thing that waits: nobody has seen that.
        """
        anything = replace(decision, version=None)
        if any(_fits(wait, anything) for wait in waits):
            return False
        wanted = (decision.workflow_id or (scope if scope != self.own else None), decision.call, decision.instance)
        return not any(all(w is None or w == k for w, k in zip(wanted, seen, strict=True)) for seen in self._seen)

    def _take(self, wait: PendingApproval, decision: Decision, now: str) -> list[ApprovalEffect]:
        """Take a decision about a wait of this run.

        Raises:
            PlanError: the run cannot carry it out.
        """
        token = self._check(decision)
        if len(self.records) < MAX_RECORDS:
            self.records.append(decision.record(wait, now))
        closed = decision.decision in (APPROVE, REJECT)
        out = self.close(wait.what, wait.call, wait.instance) if closed else []
        return [*out, Decided(wait, decision, token)]

    def on_timer(self, name: str, now: str) -> list[ApprovalEffect]:
        """A timer of this machine has fired."""
        if name == RESEND_TIMER:
            self._changed = True
            return []
        key = next((key for key in self._waits if _text_key(key) == name), None)
        if key is None:
            return []
        wait, on_timeout = self._waits[key], self._settings[key].onTimeout
        reason = "nobody decided in time"
        if on_timeout == "fail":
            self.expired = f"{reason}: {wait}"
            self._settings.pop(key)
            return [*self.close(*key), Decided(wait, Decision("fail", by=ENGINE, reason=reason))]
        try:
            return self._take(wait, Decision(on_timeout, by=ENGINE, reason=reason), now)
        except (PlanError, CallError) as error:
            return [Note(f"the decision {on_timeout} was refused: {truncate(str(error), 200)}")]

    def _apply_early(self, wait: PendingApproval, now: str) -> list[ApprovalEffect]:
        """The decision that came before this wait, if there is one."""
        ancestors = self._below[wait.workflow_id].ancestors if wait.workflow_id in self._below else ()
        for item in self._early:
            in_scope = item.scope in (None, self.own, wait.workflow_id) or item.scope in ancestors
            if not in_scope or not _fits(wait, item.decision):
                continue
            self._early.remove(item)
            if wait.workflow_id != self.own:
                return [self._forward(wait, item)]
            try:
                return [*self._take(wait, item.decision, now), *self._answer(item, None)]
            except (PlanError, CallError) as error:
                return self._answer(item, problem_of(error))
        return []

    # -- between the runs of a tree --------------------------------------------------------------

    def _forward(self, wait: PendingApproval, item: _Early) -> SendRecord:
        """Send a decision to the run that waits."""
        if item.decision.decision in (APPROVE, REJECT):
            below = self._below[wait.workflow_id]
            below.decided[_key(wait)] = None
        # It is about what the root knows to wait: an edit on its way must not be approved unseen
        decision = {"version": wait.version, **item.decision.raw, "decision": item.decision.decision}
        record = ForwardedDecision(
            id=item.id, replyTo=item.reply_to or self.own, target=wait.to_json(), decision=decision
        )
        return SendRecord(wait.workflow_id, DECISION, record, key=f"decision/{item.id}")

    def on_forwarded(self, record: ForwardedDecision, now: str) -> list[ApprovalEffect]:
        """At the root: a run below was told a decision. At the run that waits: the root sends one."""
        try:
            decision = read_decision(record.decision)
        except DecisionRefused as error:
            return self._answer(_Early(Decision(""), None, record.replyTo, record.id), problem_of(error))
        item = _Early(decision, record.scope, record.replyTo, record.id)
        try:
            if record.target is None:
                return self._route(item, now, may_wait=not record.id)
            wait = self._target(record.target)
            check_version(wait, decision)
            return [*self._take(wait, decision, now), *self._answer(item, None)]
        except (PlanError, CallError) as error:
            return self._answer(item, problem_of(error))

    def _target(self, raw: Mapping[str, Any]) -> PendingApproval:
        """The wait of this run that the root means."""
        target = PendingApproval.from_json(raw)
        wait = next((w for w in self._waits.values() if _key(self._as_reported(w)) == _key(target)), None)
        if wait is None:
            raise DecisionRefused(f"{target} does not wait any more")
        self._hidden[_key(target)] = None
        self._changed = True
        return wait

    def _answer(self, item: _Early, problem: DecisionAnswer | None) -> list[ApprovalEffect]:
        """Tell the run that owes the person an answer."""
        if item.reply_to is not None and item.reply_to != self.own:
            answer = (problem or DecisionAnswer(id="")).model_copy(update={"id": item.id})
            return [SendRecord(item.reply_to, DECISION_ANSWER, answer)]
        if item.id:
            return [AnswerUpdate(item.id, problem)]
        if problem is not None:
            text = f"the decision {item.decision.decision} was refused: {truncate(problem.message, 200)}"
            return [Note(text)]
        return []

    def on_answer(self, answer: DecisionAnswer) -> list[ApprovalEffect]:
        """The run that waits has judged a decision."""
        problem = answer if answer.type is not None else None
        return self._answer(_Early(Decision("that was forwarded"), id=answer.id), problem)

    def undeliverable(self, key: str) -> list[ApprovalEffect]:
        """A decision did not reach its run: that has just ended, and nothing waits there any more."""
        problem = problem_of(DecisionRefused("the run that waited has just ended: nothing is left to decide there"))
        return self._answer(_Early(Decision("that was forwarded"), id=key.removeprefix("decision/")), problem)

    def on_pending_changed(self, record: PendingChanged, now: str) -> list[ApprovalEffect]:
        """At the root: a run below reports what waits there."""
        try:
            opened = [PendingApproval.from_json(item) for item in record.opened]
            closed = [PendingApproval.from_json({"version": 0, "since": "", **item}) for item in record.closed]
        except (KeyError, TypeError, AttributeError, RecordError):
            return [Note("a report of pending approvals could not be read")]
        below = self._below.setdefault(record.workflowId, _Below(record.ancestors))
        for wait in closed:
            below.waits.pop(_key(wait), None)
            below.decided.pop(_key(wait), None)
        out: list[ApprovalEffect] = []
        for wait in opened:
            below.waits[_key(wait)] = wait
            below.decided.pop(_key(wait), None)
            self._remember(wait.workflow_id, wait.call, wait.instance, wait.version)
            out += self._apply_early(wait, now)
        if not below.waits:
            del self._below[record.workflowId]
        return out

    def forget(self, workflow_id: str) -> None:
        """A run below has ended, and with it whatever runs below that."""
        for id_, below in list(self._below.items()):
            if workflow_id == id_ or workflow_id in below.ancestors:
                del self._below[id_]

    # -- reports to the root ------------------------------------------------------------------------

    def flush(self) -> list[ApprovalEffect]:
        """One report of what has changed since the last; the next when this one has arrived."""
        if self.position.is_root or self._on_the_way is not None or not self._changed:
            return []
        current = {_key(w): w for w in map(self._as_reported, self._waits.values())}
        opened = [w for key, w in current.items() if self._sent.get(key) != w or key in self._hidden][:MAX_CHANGES]
        closed = [w for key, w in self._sent.items() if key not in current][:MAX_CHANGES]
        if not (opened or closed):
            self._changed = False
            return []
        self._on_the_way = (opened, closed)
        self._hidden.clear()
        for wait in closed:
            del self._sent[_key(wait)]
        self._sent |= {_key(w): w for w in opened}
        keys = ("workflowId", "what", "call", "instance", INNER)
        record = PendingChanged(
            workflowId=self.own, ancestors=self.position.ancestors, opened=tuple(w.to_json() for w in opened),
            closed=tuple({k: v for k, v in w.to_json().items() if k in keys} for w in closed),
        )  # fmt: skip
        return [SendRecord(self.position.ancestors[0], PENDING_CHANGED, record, key="pending")]

    def _as_reported(self, wait: PendingApproval) -> PendingApproval:
        """A wait as the root sees it: the instance is the one that this run works for there."""
        return wait.inside(self.position.instance)

    def report_delivered(self) -> None:
        """The last report has arrived."""
        opened, closed = self._on_the_way or ([], [])
        for wait in closed:
            self._arrived.pop(_key(wait), None)
        self._arrived |= {_key(w): w for w in opened}
        self._on_the_way, self._resends = None, 0

    def report_lost(self, reason: str) -> list[ApprovalEffect]:
        """The last report did not arrive: the root is gone, or took too many signals."""
        opened, closed = self._on_the_way or ([], [])
        for wait in opened:
            self._sent.pop(_key(wait), None)
        self._sent |= {_key(w): w for w in closed}
        self._on_the_way, self._changed = None, False
        root = self.position.ancestors[0]
        out: list[ApprovalEffect] = [Note(f"the root {root} could not be told what waits here: {reason}")]
        if self._resends < len(RESEND_SECONDS):
            out.append(StartTimer(RESEND_TIMER, RESEND_SECONDS[self._resends], RESEND_TIMER))
            self._resends += 1
        return out

    # -- carrying over --------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """What the next run must know; the waits are opened again by the run."""
        return {
            "records": self.records,
            "early": [
                {"decision": {**e.decision.raw, "decision": e.decision.decision}, "scope": e.scope} for e in self._early
            ],
            "since": {_text_key(key): wait.since for key, wait in self._waits.items()},
            "reported": [wait.to_json() for wait in self._arrived.values()],
            "seen": [[*key, version] for key, version in self._seen.items()],
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over a snapshot; ``open`` follows for each wait."""
        self.records = list(data["records"])
        self._early = [_Early(read_decision(item["decision"]), item["scope"]) for item in data["early"]]
        self._since = dict(data["since"])
        self._arrived = {_key(w): w for w in map(PendingApproval.from_json, data["reported"])}
        self._sent = dict(self._arrived)
        self._changed = True
        for workflow_id, call, instance, version in data["seen"]:
            self._remember(workflow_id, call, instance, version)


def _fits(wait: PendingApproval, decision: Decision) -> bool:
    try:
        match_decision([wait], decision)
    except DecisionRefused:
        return False
    return True


def _key(wait: PendingApproval) -> Any:
    """What tells a wait from the others of its run, as the root sees them."""
    return (wait.what, wait.call, wait.instance, wait.about.get(INNER))


def _text_key(key: Key) -> str:
    return "/".join(str(part) for part in key)


def iso(moment: datetime) -> str:
    """A date as all records have it: UTC, milliseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
