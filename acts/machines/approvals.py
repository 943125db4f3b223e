"""Approvals: which decisions are pending, which decision fits, until when, and who decided what.

Theory of operation. Every run has one ``Approvals``. What waits in a run is opened and closed by the
run; the machine reports the changes to the root of the tree in one hop. So the root knows all pending
approvals of the tree and is the one place that matches a decision with what it is for. The root sends
the decision straight to the run that waits, which alone judges whether it can be carried out, and answers.

    person ──decide──▶ root ──ForwardedDecision──▶ the run that waits
                        ▲                                │ DecisionAnswer
                        └────────────────────────────────┘

A decision that reaches another run goes to the root first, with the *scope* of that run; the root
passes the answer on to it. The root keeps each decision that it forwards until the answer arrives, the
delivery fails, or the run that waits has ended. So every update is answered exactly once.

A decision by signal that comes before its wait is kept, at the root for the whole tree; one by update is
refused then. When the wait opens, the decisions kept for it are judged in the order in which they came:
the first that can be carried out holds, the others are refused. A decision about something that has waited before
is late, not early: it was sent twice, or lost a race. Keeping it would approve the next wait, which nobody has seen.
Nor has anybody seen what opened in the same workflow task (until ``flush``): a decision that could be about
something before it is not about that.

``rules`` say how many approve, and who (``config.approve``). Approvals count for the subject that they were about. A
person may say that like Calls are approved, too (``remember``): the root then sends this approval for each that begins
to wait, in the name of that person and as one more decision, so the run that waits judges it like any other.

Laws: no clock (``now`` comes with each event, as an ISO date in UTC), no I/O, and what a decision does
is the run's business: it applies each ``Decided`` before it hands in the next event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final

from acts.language import wire
from acts.language.config import Escalation, Rule
from acts.language.errors import CallError, DecisionRefused, InvalidRequest, PlanError, format_choices, truncate
from acts.language.strict_json import json_size
from acts.language.values import Json
from acts.machines.commands import AnswerUpdate, CancelTimer, Decided, Note, SendRecord, StartTimer
from acts.tree import decisions
from acts.tree.decisions import (
    APPROVALS,
    CONTENT,
    ENGINE,
    ESCALATED,
    FORM,
    LIKE,
    OF,
    SIGN,
    WHO,
    Decision,
    PendingApproval,
    Remember,
    WaitKey,
    is_for,
    read_decision,
)
from acts.tree.records import TreePosition
from acts.tree.signal_records import DecisionAnswer, ForwardedDecision, PendingChanged
from acts.tree.wire_format import digest

_Group = dict[WaitKey, PendingApproval]

# Decisions on record beyond which a run takes no edits; approvals and rejections are always recorded
MAX_RECORDS: Final = 1_000
# Decisions that are kept at a time, and the bytes of their JSON: a flood of signals must not keep the state of a run
# from fitting into the next
MAX_EARLY: Final = 100
MAX_EARLY_BYTES: Final = 512 * 1024
# Bytes of what is decided, and of what has changed of a wait, in a report
MAX_SUBJECT_BYTES: Final = 800
MAX_CHANGES_BYTES: Final = 600
# Approvals of like Calls that a tree keeps: each wait is compared with each
MAX_REMEMBERED: Final = 20
# Changes in one report: some hundred bytes each; at most 6 kB, of ids and texts at the limit of their length
MAX_CHANGES: Final = 200
# Changes of a plan or a Call that its wait names, the last ones
MAX_EDITS_SHOWN: Final = 20
RESEND_TIMER: Final = "report pending approvals again"
# Seconds after which a report that did not reach the root is sent again; the last for each further time
RESEND_SECONDS: Final = (5.0, 60.0, 600.0)
# What a timer does that decides nothing
_ESCALATE: Final = "escalate"
# Where a decision comes from, beside ``ENGINE``: a deadline
_PERSON: Final = "person"
_REMEMBERED: Final = "remembered"
EXPIRED: Final = "nobody decided in time"


# -- what waits in a tree ----------------------------------------------------------------------------


class WaitIndex:
    """Pending approvals by key, in the order in which they were added, and by run, Call and instance.

    Ten thousand decisions about ten thousand Calls may come in one workflow task, so a decision is compared only with
    what has the names that it gives.
    """

    def __init__(self) -> None:
        self.by_key: _Group = {}
        self.by_run: dict[str, _Group] = {}
        self._by_call: dict[str | None, _Group] = {}
        self._by_instance: dict[str | None, _Group] = {}

    def put(self, wait: PendingApproval) -> None:
        """Add a wait, or replace the one of the same key."""
        self.by_key[wait.key] = wait
        for groups, name in self._groups_of(wait):
            groups.setdefault(name, {})[wait.key] = wait

    def pop(self, key: WaitKey) -> PendingApproval | None:
        wait = self.by_key.pop(key, None)
        for groups, name in () if wait is None else self._groups_of(wait):
            del groups[name][key]
            if not groups[name]:
                del groups[name]
        return wait

    def _groups_of(self, wait: PendingApproval) -> tuple[tuple[dict[Any, _Group], str | None], ...]:
        return (self.by_run, wait.workflow_id), (self._by_call, wait.call), (self._by_instance, wait.instance)

    def narrow(self, decision: Decision) -> Iterable[PendingApproval]:
        """The waits that a decision may be about: all that match it are among them."""
        choices: list[list[_Group]] = [[self.by_key]]
        if decision.workflow_id is not None:
            choices.append([self.by_run.get(decision.workflow_id, {})])
        elif decision.instance is not None:  # beside the id of a run, the instance need not be that of the wait
            choices.append([self._by_instance.get(decision.instance, {})])
        if decision.call is not None:
            plans = [self._by_call.get(None, {})] if decision.decision == wire.EDIT else []  # of one Call of a plan
            choices.append([self._by_call.get(decision.call, {}), *plans])
        best = min(choices, key=lambda groups: sum(map(len, groups)))
        return chain.from_iterable(group.values() for group in best)


class TreeWaits:
    """What waits in the run ``own`` and, at the root, in all runs below it (``open``); what has waited (``past``).

    ``unseen`` are those that opened in this workflow task.
    """

    def __init__(self, own: str) -> None:
        self._own = own
        self.open, self.past = WaitIndex(), WaitIndex()
        self.unseen: dict[WaitKey, None] = {}
        self._ancestors: dict[str, tuple[str, ...]] = {}  # of the runs below

    @property
    def own(self) -> list[PendingApproval]:
        return list(self.open.by_run.get(self._own, {}).values())

    def narrow(self, decision: Decision, scope: str | None = None) -> Iterator[PendingApproval]:
        """What waits at and below the run ``scope`` (None: this one), as far as a decision may be about it."""
        return (wait for wait in self.open.narrow(decision) if self.is_in_scope(wait.workflow_id, scope))

    def match(self, decision: Decision, scope: str | None) -> PendingApproval:
        """The one that a decision is about. Raises as ``match_decision``."""
        in_scope = (wait for wait in self.open.by_key.values() if self.is_in_scope(wait.workflow_id, scope))
        return decisions.match_decision(self.narrow(decision, scope), decision, in_scope)

    def is_in_scope(self, workflow_id: str, scope: str | None) -> bool:
        """True for a run at or below the run ``scope``."""
        return scope in (None, self._own, workflow_id) or scope in self.path(workflow_id)

    def path(self, workflow_id: str) -> tuple[str, ...]:
        """The runs above one that waits, and itself."""
        return (*self._ancestors.get(workflow_id, ()), workflow_id)

    def count_runs_below(self, children: Iterable[str]) -> int:
        """In how many of these children, or below them, something waits."""
        busy = {above for run in self.open.by_run if run != self._own for above in self.path(run)}
        return sum(child in busy for child in children)

    def close(self, key: WaitKey) -> None:
        wait = self.open.pop(key)
        if wait is not None:
            self.past.put(wait)

    def apply_report(self, record: PendingChanged) -> None:
        """Take a report of a run below. Raises ValueError: it is about other runs."""
        if {*(wait.workflow_id for wait in record.opened), *(key[0] for key in record.closed)} - {record.workflowId}:
            raise ValueError("a run reports its own waits")
        self._ancestors[record.workflowId] = record.ancestors
        for key in [*(self.open.by_run.get(record.workflowId, ()) if record.isComplete else ()), *record.closed]:
            self.close(key)
        for wait in record.opened:
            self.open.put(wait)
            self.past.put(wait)

    def forget(self, workflow_id: str) -> None:
        """A run has ended, and with it all runs below."""
        lost = [keys for run, keys in self.open.by_run.items() if workflow_id in self.path(run)]
        for key in list(chain.from_iterable(lost)):
            self.close(key)

    def has_waited(self, decision: Decision, scope: str | None) -> bool:
        """True when a decision may be about something that has waited before."""
        target = decision.model_copy(update={"calls": None})  # a plan has its Calls
        past = self.past.narrow(decision)
        return any(is_for(wait, target) and self.is_in_scope(wait.workflow_id, scope) for wait in past)

    def end_task(self) -> None:
        """From now on people see what has opened."""
        for wait in map(self.open.by_key.get, self.unseen):
            if wait is not None:
                self.past.put(wait)
        self.unseen.clear()

    def snapshot(self) -> list[list[Any]]:
        """What has waited: key, version and subject of each, and the runs above it."""
        return [
            [list(key), list(self._ancestors.get(key[0], ())), wait.version, wait.subject]
            for key, wait in self.past.by_key.items()
        ]

    def restore(self, data: Iterable[Iterable[Any]]) -> None:
        for (workflow_id, what, call, instance, inner), ancestors, version, subject in data:
            names = {"call": call, "instance": instance, "inner": inner, "version": version, "subject": subject}
            self.past.put(PendingApproval(workflow_id=workflow_id, what=what, since="", **names))
            if ancestors:
                self._ancestors[workflow_id] = tuple(ancestors)


class PendingReports:
    """What the root knows of the waits of a run below it. Set ``has_changes`` to ask for a report.

    A report names what opened and what closed since the last. One report is on its way at a time. One that does
    not arrive changes nothing, so the next holds its changes too. What closed because of a decision that the root
    forwarded is not reported: the answer to that decision says so. A report names what was edited before the root
    heard of it: a decision that came early was about something else.
    """

    def __init__(self, own: str, position: TreePosition) -> None:
        self.has_changes = False
        self._own, self._position = own, position
        self._arrived: _Group = {}
        self._edited: dict[WaitKey, None] = {}
        self._on_the_way: PendingChanged | None = None
        self._is_complete = False
        self.resends = 0

    def as_reported(self, wait: PendingApproval) -> PendingApproval:
        """A wait as the root sees it: the instance is the one that this run works for there; long changes are cut, and
        a long form is left out.
        """
        approval, changes = wait.inside(self._position.instance), wait.about.get("changes", ())
        if FORM in approval.about and json_size(approval.about[FORM]) > MAX_SUBJECT_BYTES:
            approval = PendingApproval.model_validate({k: v for k, v in approval.to_json().items() if k != FORM})
        if json_size(changes) <= MAX_CHANGES_BYTES:
            return approval
        short = [{k: v for k, v in c.items() if k not in ("from", "to")} for c in changes[:5]]
        return approval.model_copy(update={"changes": short})

    def mark_edited(self, wait: PendingApproval) -> None:
        """A wait is another one now."""
        key = self.as_reported(wait).key
        if key not in self._arrived:
            self._edited[key] = None

    def drop(self, wait: PendingApproval) -> None:
        """The root learns by another message that this does not wait any more."""
        key = self.as_reported(wait).key
        self._arrived.pop(key, None)
        if self._on_the_way is not None:
            left = tuple(wait for wait in self._on_the_way.opened if wait.key != key)
            self._on_the_way = self._on_the_way.model_copy(update={"opened": left})

    def restart(self) -> None:
        """The root may know something else than it was sent: the next report says all that waits."""
        self._is_complete = self.has_changes = True

    def next_report(self, waits: Iterable[PendingApproval]) -> PendingChanged | None:
        """The report on what has changed, given what waits now; None while one is on its way or nothing has."""
        if self._position.is_root or self._on_the_way is not None:
            return None
        current = {w.key: w for w in map(self.as_reported, waits)}
        before = {} if self._is_complete else self._arrived
        self._edited = {key: None for key in self._edited if key in current and key not in self._arrived}
        opened = tuple([w for key, w in current.items() if before.get(key) != w][:MAX_CHANGES])
        closed = tuple([key for key in before if key not in current][:MAX_CHANGES])
        if not (opened or closed or self._is_complete):
            self.has_changes = False
            return None
        self._on_the_way = PendingChanged(
            workflowId=self._own, ancestors=self._position.ancestors, opened=opened, closed=closed,
            isComplete=self._is_complete, edited=tuple(w.key for w in opened if w.key in self._edited),
        )  # fmt: skip
        self._is_complete = False
        return self._on_the_way

    def confirm(self) -> None:
        report, self._on_the_way, self.resends = self._on_the_way, None, 0
        if report is not None:
            arrived = {} if report.isComplete else {k: w for k, w in self._arrived.items() if k not in report.closed}
            self._arrived = arrived | {wait.key: wait for wait in report.opened}

    def take_back(self) -> float:
        """The report on its way did not arrive: the seconds after which to send it again."""
        report, self._on_the_way, self.has_changes = self._on_the_way, None, False
        self._is_complete |= report is not None and report.isComplete
        self.resends += 1
        return RESEND_SECONDS[min(self.resends, len(RESEND_SECONDS)) - 1]

    def restore(self, data: Iterable[Mapping[str, Any]]) -> None:
        """Take over what ``to_json`` gave of what the root knew; the first report says what differs from it."""
        self._arrived = {wait.key: wait for wait in map(PendingApproval.model_validate, data)}
        self.has_changes = True

    def to_json(self) -> list[dict[str, Any]]:
        """What the root knows, while no report is on its way."""
        return [wait.to_json() for wait in self._arrived.values()]


# -- decisions about it ------------------------------------------------------------------------------


class Approvals:
    """``check`` raises for a decision that the run cannot carry out now; what it returns travels in ``Decided``."""

    def __init__(
        self, own: str, position: TreePosition, check: Callable[[Decision, PendingApproval], Any]
    ) -> None:  # fmt: skip
        self.own, self.position = own, position
        self.records: list[dict[str, Any]] = []
        self.expired: str | None = None
        self.reset: str | None = None  # which reset of this run was the last
        self.is_dated = False  # the namespace has ``ActsWaitingSince``, as the engine has asked when the run began
        self._rules: dict[WaitKey, Rule] = {}
        self._escalated: dict[WaitKey, int] = {}  # so many steps of its rule
        # Who has approved where others must, too, and the subject that it was about
        self._approved: dict[WaitKey, tuple[str | None, list[str]]] = {}
        self.remembered: dict[str, dict[str, Any]] = {}  # at the root: approvals that hold for like Calls
        self._unlike: set[tuple[str, WaitKey, int]] = set()  # they were refused for these
        self.waits = TreeWaits(own)
        self.reports = PendingReports(own, position)
        self._check = check
        self._timers: dict[str, tuple[WaitKey, str]] = {}  # of each deadline: what it is for, and what it decides
        # When something began to wait that has not opened yet, or not again, and whether people saw it wait
        self._since: dict[WaitKey, tuple[str, bool]] = {}
        # An update has an id, the name that ``replyTo`` gave it; a signal has none, and expects no answer
        self._early: list[tuple[ForwardedDecision, int]] = []  # with the bytes of its JSON
        self._open_updates: dict[str, None] = {}
        self._forwards: dict[str, tuple[ForwardedDecision, PendingApproval]] = {}
        self._forward_count = 0

    def open(
        self, what: str, version: int, rule: Rule, now: str, *, call: str | None = None,
        instance: str | None = None, about: Mapping[str, Any] | None = None, subject: Json = None,
    ) -> list[Any]:  # fmt: skip
        """Wait for a decision; one that came early, or is remembered, may settle it at once.

        ``subject`` is what it is about.
        """
        key = (self.own, what, call, instance, None)
        old, text = self.waits.open.by_key.get(key), self._show(subject)
        out: list[Any] = []
        # Others decide now, until another time; or so far nobody's silence is about this
        is_unheard = old is not None and rule.onTimeout == wire.APPROVE and old.subject != text["subject"]
        if old is not None and (is_unheard or self._rules[key] != rule):
            out += self.close(old)
            self._since[key], old = (now if is_unheard else old.since, True), None
        self._rules[key] = rule
        since, is_carried = self._since.pop(key, (now, False)) if old is None else (old.since, True)
        wait = PendingApproval(
            workflow_id=self.own, what=what, call=call, instance=instance, version=version, since=since,
            deadline=None if old is None else old.deadline, **text, **about or {},
        )  # fmt: skip
        if old is not None:  # what it is about has changed
            wait = self._put(wait)
            return self._approve_as_remembered(wait, now)
        for name, ends, seconds, word in _times(wait, rule):
            # A clock that was set back since must not prolong the wait beyond its timeout from now
            left = min(seconds, (ends - datetime.fromisoformat(now)).total_seconds())
            if word == _ESCALATE and left <= 0:
                self._escalated[key] = self._escalated.get(key, 0) + 1
                continue
            if word != _ESCALATE:
                wait = wait.model_copy(update={"deadline": iso(ends)})
            self._timers[name] = (key, word)
            summary = "more people decide about" if word == _ESCALATE else "decision about"
            out.append(StartTimer(name, max(0.001, left), f"{summary} {call or 'the plan'}"))
        wait = self._put(wait)
        if not is_carried:  # nobody can have seen it before the task ends
            self.waits.unseen[key] = None
        early = self._judge_early(wait, now)
        return [*out, *early, *([] if early else self._approve_as_remembered(wait, now))]

    def close(self, wait: PendingApproval) -> list[Any]:
        self.waits.close(wait.key)
        self.reports.has_changes = True
        self._approved.pop(wait.key, None)
        self._escalated.pop(wait.key, None)
        rule = self._rules.pop(wait.key, None)
        names = () if rule is None else [name for name, *_ in _times(wait, rule)]
        return [CancelTimer(name) for name in names if self._timers.pop(name, None) is not None]

    def close_all(self) -> list[Any]:
        return [effect for wait in self.waits.own for effect in self.close(wait)]

    def raise_version(self, version: int, plan: Json = None) -> None:
        """Another version waits now, and where the plan waits, its subject is ``plan`` now; its deadline stays."""
        for wait in self.waits.own:
            fields = wait.to_json() | {"version": max(version, wait.version)}
            if wait.what == "plan":
                fields = {k: v for k, v in fields.items() if k != CONTENT} | self._show(plan)
            self._put(PendingApproval.model_validate(fields))

    def _show(self, subject: Json) -> dict[str, Any]:
        """What is decided, by its digest; to the root also as it is, where it is small."""
        is_small = not self.position.is_root and subject is not None and json_size(subject) <= MAX_SUBJECT_BYTES
        return {"subject": digest(subject), **({CONTENT: subject} if is_small else {})}

    def void(self, lineage: str) -> bool:
        """This run was reset: what approvers have signed before is void. False where nobody has to sign."""
        self.reset = lineage
        if self.position.approvers:
            self._approved.clear()
            self.remembered.clear()
        for wait in self.waits.own if self.position.approvers else ():
            self._put(wait)
        return bool(self.position.approvers)

    def record_changes(self, changes: list[dict[str, Any]]) -> None:
        """What the edit that was decided last has changed; everybody who is asked next sees it."""
        self.records[-1]["changes"] = changes

    def inherit_deadline(self, wait: PendingApproval, calls: Iterable[str]) -> None:
        """The time for a decision runs on for the Call that an edit put in the place of this one."""
        prefix = f"{str(wait.call).partition(':')[0]}:"
        for call in calls:
            if call.startswith(prefix):
                keys = ((self.own, what, call, wait.instance, None) for what in ("call", "scopes", "answer"))
                self._since |= dict.fromkeys(keys, (wait.since, False))

    def _put(self, wait: PendingApproval) -> PendingApproval:
        """This waits from now on, with the edits that made it what it is and what an approver signs.

        Where it is about something else than people saw before, its version rises.
        """
        if wait.key in self.waits.open.by_key:
            self.reports.mark_edited(wait)
        more: dict[str, Any] = {}
        if changes := [*self._edits_of(wait), *(c for c in wait.about.get("changes", ()) if "part" in c)]:
            more["changes"] = changes[-MAX_EDITS_SHOWN:]
        before = self.waits.open.by_key.get(wait.key) or self.waits.past.by_key.get(wait.key)
        if before is not None and before.subject not in (None, wait.subject):
            more["version"] = max(wait.version, before.version + 1)
        more |= self._rule_of(wait)
        if self.position.approvers:
            challenge = decisions.make_challenge(self.position.identity, self.reset, wait)
            more[SIGN] = {"challenge": challenge}
        wait = wait.model_copy(update=more)
        if None in more.values():  # what it says no more
            wait = PendingApproval.model_validate(wait.to_json())
        self.waits.open.put(wait)
        self.reports.has_changes = True
        return wait

    def _rule_of(self, wait: PendingApproval) -> dict[str, Any]:
        """``{who?, of?, approvals?, escalated?}``: who decides by now, and who has, about this subject."""
        rule, steps = self._rules.get(wait.key, Rule()), self._escalated.get(wait.key, 0)
        who = list(dict.fromkeys([*rule.who, *(name for step in _steps(rule)[:steps] for name in step.who)]))
        if wait.key in self._approved and self._approved[wait.key][0] != wait.subject:
            del self._approved[wait.key]
        names = self._approved.get(wait.key, (None, []))[1]
        about = {
            WHO: who if rule.who else None, OF: rule.of if rule.of > 1 else None, APPROVALS: list(names) or None,
            ESCALATED: steps or None,
        }  # fmt: skip
        return {key: value for key, value in about.items() if value is not None or key in wait.about}

    def _edits_of(self, wait: PendingApproval) -> Iterator[dict[str, Any]]:
        """``{call, from?, to?, by?, date}``: how people have changed the plan that waits, or this Call of it. What
        changed a plan that was then approved or rejected is no part of the next one.
        """
        position = None if wait.call is None else wait.call.partition(":")[0]
        closed = (r.get("what") == "plan" and r.get("decision") != wire.EDIT and "left" not in r for r in self.records)
        first = max((at for at, is_end in enumerate(closed, 1) if is_end), default=0)
        for record in self.records[first if wait.call is None else 0 :]:
            who: dict[str, Any] = {key: record[key] for key in ("by", "date") if key in record}
            for change in record.get("changes", ()):
                if position is None or str(change["call"]) == position:
                    yield {**change, **who}

    @property
    def pending(self) -> list[PendingApproval]:
        """What waits here and, at the root, in all runs below it."""
        below = (wait for wait in self.waits.open.by_key.values() if wait.workflow_id != self.own)
        return [*self.waits.own, *below]

    def judge(self, raw: Any, word: str | None = None) -> None:
        """Raise what would refuse an update now; nothing changes. Raises PlanError: it cannot be taken, and why."""
        decision = read_decision(raw, word)
        if decision.decision == wire.REVOKE and self.position.is_root:
            self._find_remembered(decision)
            return
        wait = self.waits.match(decision, None) if self.position.is_root else None
        if wait is not None and wait.workflow_id == self.own:
            self._judge(wait, decision)

    def decide(self, raw: Any, word: str | None, now: str, *, update: str | None = None) -> list[Any]:
        """A person decides, by the signal ``word`` or by the update of this id. The root finds what is meant."""
        if update is not None:
            self._open_updates[update] = None
        try:
            decision = read_decision(raw, word)
            item = ForwardedDecision(id=update or "", replyTo=self.own, decision=decision, scope=self.own)
            if self.position.is_root:
                return self._route(item, now)
            return [SendRecord(self.position.ancestors[0], item, key=f"decision/{item.id}")]
        except (PlanError, CallError) as error:
            problem = problem_of(error)
            if update is not None:
                return self._answer_update(update, problem)
            return [_refusal_note(f"signal {word}", problem.message)]

    def _route(self, item: ForwardedDecision, now: str) -> list[Any]:
        """Bring a decision to the one wait that it matches; a signal that comes too early is kept. Raises PlanError: it
        matches none or several, or cannot be carried out.
        """
        decision, scope = item.decision, item.scope
        if decision.decision == wire.REVOKE:
            return [*self._revoke(decision, now), *self._answer(item, None)]
        is_open = item.id or any(is_for(wait, decision) for wait in self.waits.narrow(decision, scope))
        if not is_open and not self.waits.has_waited(decision, scope) and self._keep(item):
            return []
        wait = self.waits.match(decision, scope)
        if wait.workflow_id != self.own:
            return [self._forward(wait, item)]
        if wait.key in self.waits.unseen and self.waits.has_waited(decision, scope):
            raise DecisionRefused(f"{wait} began to wait after the decision was made, and nobody has seen it")
        return [*self._take(wait, decision, now), *self._answer(item, None), *self._remember(wait, decision, now)]

    def _judge(self, wait: PendingApproval, decision: Decision, source: str = _PERSON) -> tuple[Any, Any]:
        """Hold a decision against the wait of this run that it is about: the only place that lets one pass.

        Only what comes from a person has a signature; a record of another run counts as that.

        Returns what the record says of its signature, and what the check of the run returns. Raises PlanError: the run
        cannot carry it out, or it is not signed as it has to be.
        """
        decisions.check_version(wait, decision)
        if decision.decision == wire.EDIT and len(self.records) >= MAX_RECORDS:
            raise DecisionRefused(f"this run has {len(self.records):,} decisions on record, and takes no more edits")
        if source != ENGINE:
            self._check_person(wait, decision)
        approvers = self.position.approvers if source == _PERSON else ()
        signed = {"signed": decisions.check_signature(approvers, wait, decision)} if approvers else {}
        return signed, self._check(decision, wait)

    def _check_person(self, wait: PendingApproval, decision: Decision) -> None:
        """Raise DecisionRefused where the rule of a wait wants somebody else, or a name."""
        rule, by = self._rules.get(wait.key, Rule()), (decision.by or "").strip()
        confirms = decision.decision in (wire.APPROVE, wire.ANSWER)
        if decision.decision not in (wire.REJECT, wire.UNDO) and rule.selfApproval is False:
            editors = (str(record.get("by")) for record in self.records if record["decision"] == wire.EDIT)
            if not by or (confirms and any(_is_same(by, name) for name in editors)):
                who = by or "no name is given, and"
                raise DecisionRefused(f"{who}: whoever has edited {wait} does not approve it (selfApproval)")
        if confirms and (rule.of > 1 or rule.who) and not by:
            raise DecisionRefused(f'"by" says who decides about {wait}: its rule asks for names')
        if confirms and any(_is_same(by, name) for name in wait.about.get(APPROVALS, ())):
            raise DecisionRefused(f"{by} has approved {wait} already, and {rule.of} different people have to")
        if decision.remember is None:
            return
        if wait.what != "call" or rule.of > 1:
            raise DecisionRefused("remember is for calls that one approval is enough for")
        if self.position.approvers and not self.position.is_root:
            raise DecisionRefused("with approvers only the root remembers: what a run passes on carries no signature")

    def _take(self, wait: PendingApproval, decision: Decision, now: str, source: str = _PERSON) -> list[Any]:
        """Take a decision about a wait of this run. Raises as ``_judge``."""
        signed, token = self._judge(wait, decision, source)
        names = [*wait.about.get(APPROVALS, ()), str(decision.by)]
        left = 0 if source == ENGINE or decision.decision != wire.APPROVE else wait.about.get(OF, 1) - len(names)
        self.records.append({**decision.record(wait, now), **signed, **({"left": left} if left > 0 else {})})
        self.waits.past.put(wait)  # what comes after an edit is not about what it made
        if left > 0:
            self._approved[wait.key] = wait.subject, names
            self._put(wait)
            return []
        return [*(self.close(wait) if decision.closes else ()), Decided(wait, decision, token)]

    def on_timer(self, name: str, now: str) -> list[Any]:
        if name == RESEND_TIMER:
            self.reports.has_changes = True
        key, word = self._timers.pop(name, (None, ""))
        wait = None if key is None else self.waits.open.by_key.get(key)
        if wait is None:
            return []
        reason = EXPIRED
        if word == _ESCALATE:
            self._escalated[wait.key] = self._escalated.get(wait.key, 0) + 1
            who = self._put(wait).about.get(WHO, ())
            return [Note(f"nobody has decided about {wait} yet: {format_choices(who)} may, now")]
        if word == "fail":
            self.expired = f"{EXPIRED}: {wait}"
        if word == wire.APPROVE and (self.position.approvers or self._rules[wait.key].selfApproval is False):
            word, reason = wire.REJECT, f"{EXPIRED}, and only a person approves here, no deadline"
        try:
            return self._take(wait, Decision(decision=word, by=ENGINE, reason=reason), now, ENGINE)
        except (PlanError, CallError) as error:
            return [_refusal_note(f"decision {word}", str(error))]

    def _keep(self, item: ForwardedDecision) -> bool:
        """Keep a decision for its wait; False when there is no room for another one."""
        if len(self._early) == MAX_EARLY:
            return False
        size = json_size(item.decision.to_json())
        if size + sum(bytes_ for _, bytes_ in self._early) > MAX_EARLY_BYTES:
            return False
        self._early.append((item, size))
        return True

    def _judge_early(self, wait: PendingApproval, now: str, *, is_edited: bool = False) -> list[Any]:
        """Judge the decisions that came before this wait: of those that fit it, the first that is accepted holds."""
        early, self._early = self._early, []
        is_edited |= any("call" in change for change in wait.about.get("changes", ()))
        out: list[Any] = []
        is_decided = False
        for item, size in early:
            if not is_for(wait, item.decision) or not self.waits.is_in_scope(wait.workflow_id, item.scope):
                self._early.append((item, size))
                continue
            try:
                if is_edited:
                    raise DecisionRefused(f"{wait} was edited before anybody could see it")
                decisions.check_version(wait, item.decision)
                if wait.workflow_id != self.own:
                    out.append(self._forward(wait, item))  # it judges each in turn
                    continue
                wait = self.waits.open.by_key.get(wait.key, wait)
                if is_decided:
                    raise DecisionRefused(f"another decision about {wait} came before this one")
                out += [*self._take(wait, item.decision, now), *self._answer(item, None)]
                out += self._remember(wait, item.decision, now)
                is_decided = item.decision.decision == wire.EDIT or wait.key not in self.waits.open.by_key
            except (PlanError, CallError) as error:
                out += self._answer(item, problem_of(error))
        return out

    def _forward(self, wait: PendingApproval, item: ForwardedDecision) -> SendRecord:
        self._forward_count += 1
        id_, decision = str(self._forward_count), item.decision
        self._forwards[id_] = (item, wait)
        if not self.position.approvers:  # what the root knows: an edit on its way must not be approved unseen
            version = wait.version if decision.version is None else decision.version
            decision = decision.model_copy(update={"version": version, "subject": decision.subject or wait.subject})
        record = ForwardedDecision(id=id_, replyTo=self.own, decision=decision, target=wait)
        return SendRecord(wait.workflow_id, record, key=f"decision/{id_}")

    def on_forwarded(self, item: ForwardedDecision, now: str) -> list[Any]:
        """At the root: a run below was told a decision. At the run that waits: the root sends one."""
        try:
            if item.target is None:
                return self._route(item, now)
            likely = self.waits.narrow(Decision(decision=wire.APPROVE, call=item.target.call))
            wait = next((w for w in likely if self.reports.as_reported(w).key == item.target.key), None)
            if wait is None:
                self.reports.restart()  # the root does not know what waits here: it, or this run, was reset
                raise DecisionRefused(f"{item.target} does not wait any more")
            out = self._take(wait, item.decision, now)
        except (PlanError, CallError) as error:
            return self._answer(item, problem_of(error))
        is_open = wait.key in self.waits.open.by_key
        if not is_open:
            self.reports.drop(wait)  # the answer says it
        if not item.decision.closes or not is_open:
            return [*out, *self._answer(item, None)]
        return [*out, SendRecord(item.replyTo, DecisionAnswer(id=item.id, isOpen=True))]

    def on_answer(self, answer: DecisionAnswer, now: str = "") -> list[Any]:
        """At the root: the run that waits has judged a decision. At a run in between: the root passes that on."""
        problem = None if answer.type is None else answer
        if answer.id not in self._forwards:
            is_of_signal = problem is not None and not answer.id
            note = [_refusal_note("forwarded decision", answer.message)] if is_of_signal else []
            return [*note, *self._answer_update(answer.id, problem)]
        item, wait = self._forwards.pop(answer.id)
        if problem is None and item.decision.closes and not answer.isOpen:
            self.waits.close(wait.key)
        if problem is not None and item.decision.remembered in self.remembered:
            self._count(item.decision.remembered, 1)
            self._unlike.add((item.decision.remembered, wait.key, wait.version))
        like = self._remember(wait, item.decision, now) if problem is None else []
        return [*self._answer(item, problem), *like]

    def undeliverable(self, id_: str) -> list[Any]:
        """A decision did not reach its run: that has just ended, and nothing waits there any more."""
        return self.on_answer(_refusal("the run that waited has just ended: nothing is left to decide there", id_))

    def on_pending_changed(self, record: PendingChanged, now: str) -> list[Any]:
        """At the root: a run below reports what waits there."""
        try:
            self.waits.apply_report(record)
        except ValueError as error:
            return [Note(f"a report of pending approvals was ignored: {error}")]
        effects: list[Any] = []
        for wait in record.opened:
            early = self._judge_early(wait, now, is_edited=wait.key in record.edited)
            effects += early or self._approve_as_remembered(wait, now)
        return effects

    # -- approvals that hold for like Calls --------------------------------------------------------

    def _remember(self, wait: PendingApproval, decision: Decision, now: str) -> list[Any]:
        """A decision about this wait was carried out: where it says so, like Calls are approved from now on."""
        if decision.remember is None or decision.remembered is not None:
            return []
        if len(self.remembered) >= MAX_REMEMBERED:
            return [Note(f"{MAX_REMEMBERED} approvals of like calls are remembered, and no more: revoke one")]
        ids = [record["remembered"] for record in self.records if record["decision"] == wire.REVOKE]
        id_ = str(max(map(int, (*ids, *self.remembered)), default=0) + 1)
        entry = {"call": wait.call, LIKE: wait.about.get(LIKE), "version": wait.version, "by": decision.by, "date": now}
        self.remembered[id_] = entry | decision.remember.model_dump(exclude_none=True)
        return [effect for other in self.pending for effect in self._approve_as_remembered(other, now)]

    def _approve_as_remembered(self, wait: PendingApproval, now: str) -> list[Any]:
        """Approve a wait that is like one of which a person has said so. Whoever waits there judges it."""
        is_own = wait.workflow_id == self.own
        if wait.what != "call" or not (self.remembered and self.position.is_root) or (
            self.position.approvers and not is_own
        ):  # fmt: skip
            return []
        for id_, rule in self.remembered.items():
            is_over = rule.get("count") == 0 or ("until" in rule and _is_past(rule["until"], now))
            if is_over or rule[LIKE] != wait.about.get(LIKE, "") or (id_, wait.key, wait.version) in self._unlike:
                continue
            limits = Remember.model_validate({key: rule[key] for key in ("when", "until") if key in rule})
            decision = Decision(
                decision=wire.APPROVE, call=wait.call, instance=wait.instance, by=rule["by"], remember=limits,
                remembered=id_, reason=f"like {rule['call']}, as {rule['by'] or 'somebody'} said at {rule['date']}",
            )  # fmt: skip
            self._count(id_, -1)
            if not is_own:
                return [self._forward(wait, ForwardedDecision(id="", replyTo=self.own, decision=decision))]
            try:
                return self._take(wait, decision, now, _REMEMBERED)
            except (PlanError, CallError):  # a person decides
                self._count(id_, 1)
        return []

    def _count(self, id_: str, more: int) -> None:
        if "count" in self.remembered[id_]:
            self.remembered[id_]["count"] += more

    def _find_remembered(self, decision: Decision) -> str:
        id_ = str(decision.remembered)
        if id_ not in self.remembered:
            raise DecisionRefused(f'nothing is remembered as "{id_}"; known: {format_choices(self.remembered)}')
        return id_

    def _revoke(self, decision: Decision, now: str) -> list[Any]:
        """From now on people decide about such Calls again. Raises DecisionRefused: nothing is remembered so."""
        id_ = self._find_remembered(decision)
        rule = self.remembered.pop(id_)
        record = {
            "what": "call", "call": rule["call"], "decision": wire.REVOKE, "remembered": id_,
            "version": rule["version"], "by": decision.by, "reason": decision.reason, "date": now,
        }  # fmt: skip
        self.records.append({key: value for key, value in record.items() if value is not None})
        return []

    def forget(self, workflow_id: str) -> list[Any]:
        """A run below has ended, and with it whatever runs below that."""
        self.waits.forget(workflow_id)
        problem = _refusal("the run that waited ended before it could judge the decision")
        lost = [i for i, (_, wait) in self._forwards.items() if workflow_id in self.waits.path(wait.workflow_id)]
        return [effect for id_ in lost for effect in self._answer(self._forwards.pop(id_)[0], problem)]

    def _answer(self, item: ForwardedDecision, problem: DecisionAnswer | None) -> list[Any]:
        """Answer the update, or the run, that a decision came from; ``problem`` None: it was carried out."""
        if item.replyTo != self.own:
            answer = (problem or DecisionAnswer(id="")).model_copy(update={"id": item.id})
            return [SendRecord(item.replyTo, answer)] if item.id or problem is not None else []
        if item.id:
            return self._answer_update(item.id, problem)
        return [] if problem is None else [_refusal_note(f"decision {item.decision.decision}", problem.message)]

    def _answer_update(self, id_: str, problem: DecisionAnswer | None) -> list[Any]:
        """Answer an update; nothing for one that has its answer."""
        is_open = id_ in self._open_updates
        self._open_updates.pop(id_, None)
        return [AnswerUpdate(id_, problem)] if is_open else []

    def refuse_updates(self, text: str) -> list[Any]:
        """The run ends before the runs that judge these decisions have answered."""
        return [effect for id_ in list(self._open_updates) for effect in self._answer_update(id_, _refusal(text))]

    def flush(self) -> list[Any]:
        """At the end of a task: one report of what has changed since the last; the next when this one has arrived."""
        self.waits.end_task()
        if not self.reports.has_changes or (report := self.reports.next_report(self.waits.own)) is None:
            return []
        return [SendRecord(self.position.ancestors[0], report, key="pending")]

    def report_lost(self, reason: str, *, is_over: bool) -> list[Any]:
        """A report did not arrive: the root is gone, or took too many signals. No timer outlives a run that is over."""
        seconds = self.reports.take_back()
        if is_over:
            self.reports.has_changes = self.reports.resends <= len(RESEND_SECONDS)
            return []
        note = Note(f"the root {self.position.ancestors[0]} could not be told what waits here: {reason}")
        return [note, StartTimer(RESEND_TIMER, seconds, RESEND_TIMER)]

    def snapshot(self) -> dict[str, Any]:
        """What the next run must know; the waits are opened again by the run."""
        since = {key: when for key, (when, _) in self._since.items()} | {w.key: w.since for w in self.waits.own}
        return {
            "records": self.records, "since": [[list(key), when] for key, when in since.items()],
            "reported": self.reports.to_json(), "past": self.waits.snapshot(),
            "early": [item.to_json() for item, _ in self._early], "reset": self.reset, "dated": self.is_dated,
            **({"approved": [[list(key), *own] for key, own in self._approved.items()]} if self._approved else {}),
            **({"remembered": self.remembered} if self.remembered else {}),
        }  # fmt: skip

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over a snapshot; ``open`` follows for each wait."""
        self.records, self.reset, self.is_dated = list(data["records"]), data["reset"], data.get("dated", False)
        for (own, what, call, instance, inner), since in data["since"]:
            self._since[own, what, call, instance, inner] = (since, True)
        for item in data["early"]:
            self._keep(ForwardedDecision.from_json(item))
        self.remembered = dict(data.get("remembered", {}))
        for (own, what, call, instance, inner), subject, names in data.get("approved", ()):
            self._approved[own, what, call, instance, inner] = subject, list(names)
        self.reports.restore(data["reported"])
        self.waits.restore(data["past"])


def _steps(rule: Rule) -> list[Escalation]:
    return sorted(rule.escalate, key=lambda step: step.after)


def _times(wait: PendingApproval, rule: Rule) -> list[tuple[str, datetime, float, str]]:
    """The timers of one wait: name, when it fires, seconds from the beginning of the wait, and what it decides.

    A timer that fires beside the decision does not belong to the next wait.
    """
    times: list[tuple[float, str]] = [(step.after, _ESCALATE) for step in _steps(rule)]
    if rule.timeout is not None:
        times = [(rule.timeout, rule.onTimeout or wire.REJECT), *times]
    since = datetime.fromisoformat(wait.since)
    ends = [since + timedelta(seconds=seconds) for seconds, _ in times]
    places = [f" {at}" if word == _ESCALATE else "" for at, (_, word) in enumerate(times)]
    names = [f"{wait.key[1:4]} {iso(end)}{place}" for end, place in zip(ends, places, strict=True)]
    return [(name, end, *time) for name, end, time in zip(names, ends, times, strict=True)]


def _is_same(one: str, other: str) -> bool:
    return one.strip().casefold() == other.strip().casefold()


def _is_past(until: str, now: str) -> bool:
    return datetime.fromisoformat(until) <= datetime.fromisoformat(now)


def problem_of(error: PlanError | CallError, id_: str = "") -> DecisionAnswer:
    """An error as the answer to the decision of this id."""
    if isinstance(error, InvalidRequest):
        return DecisionAnswer(id=id_, type=wire.INVALID_REQUEST, message=str(error), details=error.to_json())
    text = error.message if isinstance(error, CallError) else str(error)
    refused = isinstance(error, (DecisionRefused, CallError))
    return DecisionAnswer(id=id_, type=wire.REFUSED if refused else type(error).__name__, message=text)


def _refusal(text: str, id_: str = "") -> DecisionAnswer:
    return problem_of(DecisionRefused(text), id_)


def _refusal_note(name: str, reason: str) -> Note:
    """The note about a refusal that no answer carries; ``name`` is the signal or decision."""
    return Note(f"the {name} was refused: {truncate(reason, 200)}")


def iso(moment: datetime) -> str:
    """A date as all records have it: UTC, milliseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
