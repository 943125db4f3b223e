"""The plan as a state machine: events in, commands out, plain data in between.

Laws of this file: events enter a walk by its methods alone (a Call completed, a message was provided,
pause …), and each returns the commands for a shell to perform (start this Call, ask a human, the plan has
finished). Time comes with the events. What a walk does depends on its plan and its events, on nothing else.

Theory of operation. ``call_state`` has the stages of a Call and the table of events that move it. Serial
equivalence rests on two waits, both for prefixes of writer chains (see ``graph``, ``walk_context``):

* a Call *starts* when every writer before it that overlaps one of its reads has settled;
* a result *takes effect* at once, unless a write before it could still decide whether it can be applied
  at all (``push`` onto what may become an object): then it waits for that write. A Call that reads the
  result waits for that write anyway. A result that cannot be applied is a failure of its Call.

When the waits of a Call end, ``_check`` says what becomes of it. What is ready starts in plan order, as far as
``may_start`` allows; what may not start holds back those behind it. An element of a Call with ``_each`` settles as a
Call does, and the last one to settle reports its Call. ``load`` is the one way to begin a walk, to continue it in
another run (``snapshot``, ``restore``) and to change its plan.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from acts.language import wire
from acts.language.admission import Work
from acts.language.config import MAX_SECONDS, Rule, parse_seconds
from acts.language.errors import CallError, DecisionRefused, EngineError, ExpressionError, TooComplex, truncate
from acts.language.messages import Data, parse_message
from acts.language.references import (
    ELEMENT_KINDS,
    Expression,
    Path,
    ReferenceUse,
    holds,
    parse_condition,
    resolve_references,
)
from acts.language.schemas import Checker
from acts.language.tools import META
from acts.language.values import ABSENT, UNKNOWN, Json, get, is_equal, pointer
from acts.machines import call_state
from acts.machines.call_state import NOT_STARTED, SETTLED, CallState, Elements
from acts.machines.commands import AskHuman, Command, CountElements, EndEarly, Finish, StartCall
from acts.machines.past import PastCalls, read_calls
from acts.machines.walk_context import WalkContext, WriterProgress
from acts.plan.calls import UNIT, ElementReading, PlannedCall, find_rule, read_elements
from acts.plan.context_log import END, View, Writes, place_result, refuse_defects, split_write
from acts.plan.graph import ChainFold, WriterIndex, paths_read
from acts.plan.validate import ValidatedPlan
from acts.tree.past_run import PastCall, UndoStep
from acts.tree.records import CallRecord, WalkState
from acts.tree.subjects import find_changes, keep, show

# Defects of one value that an error names; more of them say nothing new
MAX_DEFECTS_SHOWN: Final = 5
# Elements of one Call that people are asked at a time: each is a wait, and may have timers
MAX_ASKED: Final = 100
# Characters of a condition, or of paths, in the reason why a Call was skipped
MAX_REASON: Final = 200
_NOTHING: Final = CallRecord()


class Walk:
    """One plan, being walked. Feed it events; perform the commands that they return.

    ``identify`` gives a Call the ``_id`` it is started with: stable, and different for every Call and element of
    every run. ``may_start`` is called for the next Call or element that could start; False holds it and those behind
    it until the next ``advance`` (without one, ``maxParallel`` of the plan is the limit). ``nodes`` are the planned
    Calls and ``calls`` their states, by rank; ``by_key`` has the states of Calls and of elements that have started.
    ``running`` is how many Calls and elements run. ``counts_elements`` makes the walk ask before a Call is made for all
    elements of a list.

    ``until`` is a condition on the context: as soon as it holds, nothing more starts.

    ``postpones`` makes it leave what a workflow task has no time for to ``go_on_later``.

    ``assume`` makes it a dry run, in which results may be ``UNKNOWN``, no human is asked, and a Call with ``_each``
    is started once for all of its elements: it says whether the condition of a Call (by rank) holds where that
    cannot be known. ``past`` is what an earlier run had done, if this one resumes it.
    """

    def __init__(
        self, prepared: ValidatedPlan, identify: Callable[[PlannedCall], str],
        may_start: Callable[[PlannedCall], bool] | None = None, assume: Callable[[int], bool] | None = None,
        past: PastCalls | None = None,
    ) -> None:  # fmt: skip
        self.identify, self._assume, self.past = identify, assume, past
        # What a human is asked about: the subject of a Call with its references resolved, and what its scopes show
        self.describe: Callable[[PlannedCall, dict[str, Any], list[dict[str, Any]]], dict[str, Json]] = lambda *_: {}
        self.may_start = may_start or (lambda _: self.running < self.prepared.max_parallel)
        self.is_held = self.has_begun = False  # held: by its run, until a person has approved the plan
        self.paused = self.draining = self.cancelling = self.growing = self.exhausted = self.counts_elements = False
        self.postpones = False
        self.until: Expression | None = None
        self.is_reached = False  # what ``until`` says has come true: the plan ends
        self.load(prepared, (), {})

    def load(self, prepared: ValidatedPlan, provided: Sequence[Data], states: Mapping[int, CallState]) -> None:
        """Take a plan, the messages provided so far, and the states of the Calls that have one. ``begin`` follows."""
        self.prepared, self.nodes = prepared, prepared.nodes
        self.calls = [states.get(rank) or CallState(node, rank) for rank, node in enumerate(self.nodes)]
        self.by_key = {call.node.key: call for call in self.calls}
        self._unsettled = sum(call.stage not in SETTLED for call in self.calls)
        self.running = sum(call.stage == "running" for call in self.calls)
        for call in self.calls:
            for index in call.elements.running if call.elements is not None else ():
                stage = "awaiting" if call.node.kind == "person" else "running"
                self._add_element(call, call.node.element_node(index), stage)
        if self.past is not None:
            self.past.align(self.nodes)
        self.work = Work()
        self._progress = WriterProgress(prepared.graph, self.calls)
        self.context = WalkContext(prepared, self.calls, provided)
        self._readers: dict[tuple[str, ...], list[int]] = {}  # that wait for data, by kind and first name of a path
        self._ready: list[int] = []  # a heap of ranks: of Calls, and of those whose elements are ready
        self._ready_elements: dict[int, Elements] = {}
        # When Calls of the Tool ``wait`` end, the earliest first, with their ranks
        self._sleeping = [(date_of(call.until), call.rank) for call in self.calls if call.stage == "sleeping"]
        heapq.heapify(self._sleeping)
        self._later: list[int] = []  # ranks of Calls that are assessed in a later workflow task
        self._out: list[Command] = []
        self._settled: deque[tuple[CallState, str]] = deque()
        self._has_finished = self._is_end_sent = False
        self._has_changed = True  # the context, since ``until`` was read

    def _add_element(self, parent: CallState, node: PlannedCall, stage: str) -> CallState:
        call = self.by_key[node.key] = CallState(node, parent.rank, parent, stage)
        self.running += stage == "running"
        return call

    def _move(self, call: CallState, stage: str) -> None:
        if stage not in call_state.NEXT_STAGES.get(call.stage, ()):
            raise EngineError(f"call {call.node.key} is {call.stage}: it cannot be {stage}")
        self.running += (stage == "running") - (call.stage == "running")
        self._unsettled -= call.parent is None and stage in SETTLED
        call.stage = stage

    def _find(self, key: str, stage: str) -> CallState | None:
        """The Call or element of a key, if it is in this stage: else what is said of it comes too late."""
        call = self.by_key.get(key)
        return call if call is not None and call.stage == stage else None

    # -- events ----------------------------------------------------------------

    def begin(self, now: str) -> list[Command]:
        self.has_begun = True
        for call in self.calls:
            if call.stage == "collecting":
                self._ask_again_for_elements(call, now)
                self._add_ready(call)
            elif call.stage == "awaiting_input":
                self._await_input(call)
            elif not self._progress.is_waiting(call.rank):
                self._go_on(call, now)
        return self.advance(now)

    def approve(self, now: str) -> list[Command]:
        """A person has approved the plan as it is: what an edit put into it needs no approval of its own."""
        self.is_held = False
        for call in self.calls:
            if call.edited and not call.has_started:
                call.edited = False
                if call.stage == "awaiting":
                    self._move(call, "pending")
        return self.begin(now)

    def completed(self, key: str, value: Json, now: str, chosen: int | None = None) -> list[Command]:
        """A running Call or element returned ``value``, or was started durably if it is fire-and-forget.

        ``chosen`` is the outcome that a model chose. A batch child returns the report of each instance, by id.
        """
        call = self._find(key, "running")
        if call is not None and call.node.is_detached:
            self._settle(call, "detached", now)
        elif call is not None and call.node.kind == UNIT:
            self._apply_child_report(call, value, now)
        elif call is not None:
            self._apply_result(call, value, now, chosen)
        return self.advance(now)

    def failed(self, key: str, error: CallError, now: str) -> list[Command]:
        call = self._find(key, "running")
        if call is not None and self.cancelling and error.code == wire.CANCELLED:
            self._settle(call, "cancelled", now)
        elif call is not None:
            self._apply_failure(call, error, now)
        return self.advance(now)

    def postponed(self, key: str, now: str) -> list[Command]:
        """The shell has not started a Call or element, for want of room: it is ready again."""
        if call := self._find(key, "running"):
            self._move(call, "ready")
            if call.parent is not None:
                call.parent.own_elements.postpone(call.node.element or 0)
                del self.by_key[key]  # it is resolved and checked anew
            self._add_ready(call.parent or call)
        return self.advance(now)

    def call_off(self, key: str, now: str) -> list[Command]:
        """A Call or element has done nothing: what was approved has changed. It starts when that is approved, too."""
        call = self.by_key.get(key)
        if call is not None and call.parent is not None and call.parent.approved is not None:
            call.parent.own_elements.is_held = True
        return self.postponed(key, now)

    @property
    def next_wake(self) -> datetime | None:
        """When the next Call that waits for a time ends."""
        while self._sleeping and self.calls[self._sleeping[0][1]].stage != "sleeping":
            heapq.heappop(self._sleeping)
        return self._sleeping[0][0] if self._sleeping else None

    def wake(self, now: str) -> list[Command]:
        """The Calls whose time has come are completed: each yields the date that it waited for."""
        date = date_of(now)
        while (due := self.next_wake) is not None and due <= date:
            call = self.calls[heapq.heappop(self._sleeping)[1]]
            self._apply_result(call, call.until, now)
        return self.advance(now)

    def _sleep(self, call: CallState, now: str) -> None:
        """A Call of the Tool ``wait`` starts: its end is fixed now."""
        try:
            due = find_end(call.resolved or {}, date_of(now))
        except ValueError as error:
            self._apply_failure(call, CallError(wire.SCHEMA_MISMATCH, str(error)), now)
            return
        self._move(call, "sleeping")
        call.until = due.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        heapq.heappush(self._sleeping, (date_of(call.until), call.rank))

    def allow_elements(self, key: str, now: str, refusal: CallError | None = None) -> list[Command]:
        """A Call may be made for all elements of its list, or not: the answer to ``CountElements``."""
        if (call := self._find(key, "collecting")) and refusal is None:
            self._add_ready(call)
        elif call is not None and refusal is not None:
            self._apply_failure(call, refusal, now)
        return self.advance(now)

    def decide(self, key: str, decision: str, reason: str, now: str, output: Json = None) -> list[Command]:
        """The decision about an awaiting Call: ``approve``, ``answer``, ``reject``, or ``fail`` (none came in time)."""
        call, rest = self._find(key, "awaiting"), self._find(key, "collecting")
        if rest is not None and rest.is_asked_about:
            self._decide_rest(rest, decision, reason, now)
        elif call is not None and decision == "approve":
            call.approved = call.asked
            if call.rank in self.prepared.literal_outputs:
                self._apply_result(call, call.node.literal_output, now)
            else:
                self._move(call, "ready")
                self._add_ready(call)
        elif call is not None and decision == wire.ANSWER:
            self._apply_result(call, output, now)
        elif call is not None and decision == "fail":
            self._apply_failure(call, CallError(wire.APPROVAL_TIMEOUT, reason), now)
        elif call is not None:
            call.error = {"code": wire.REJECTED, "message": reason}
            self._settle(call, "rejected", now)
        return self.advance(now)

    def _decide_rest(self, call: CallState, decision: str, reason: str, now: str) -> None:
        """The decision about the elements that have not started: they do, or have failed."""
        if decision == "approve":
            call.own_elements.is_held = False
            call.approved = call.asked
            self._add_ready(call)
            return
        self._refuse_rest(call, CallError(wire.APPROVAL_TIMEOUT if decision == "fail" else wire.REJECTED, reason), now)

    def _refuse_rest(self, call: CallState, error: CallError, now: str) -> None:
        call.own_elements.is_held = False
        call.own_elements.refuse({"code": error.code, "message": error.message})
        self._report_elements(call, now)

    def provide(self, message: Data, now: str) -> list[Command]:
        """A message arrived from outside. It precedes the plan; Calls that have started keep what they read. Raises
        InvalidRequest: the message cannot be folded into the context.
        """
        self.context.provide(message, self.work)
        self._has_changed = True
        names = tuple(message.payload) if isinstance(message.payload, dict) else ()
        if message.path is not None:
            names = message.path.names[:1]
        roots = [(message.kind,), *((message.kind, name) for name in names)]
        if not names:
            roots = [root for root in self._readers if root[0] == message.kind]
        for rank in sorted({rank for root in roots for rank in self._readers.pop(root, ())}):
            call = self.calls[rank]
            if call.stage == "awaiting_input":
                self._move(call, "pending")
                self._go_on(call, now)
        for call in self.calls:
            kinds = (path.kind for path in paths_read(call.node)) if call.stage == "awaiting" else ()
            if message.kind in kinds and message.instance in (None, call.node.instance):
                self._move(call, "pending")  # what it waits for may be another subject now
                self._go_on(call, now)
        return self.advance(now)

    def ask_again(self, keys: Iterable[str], now: str) -> list[Command]:
        """What answers these Calls is known only now, and nobody has seen what they waited for."""
        for call in map(self.by_key.__getitem__, (key for key in keys if key in self.by_key)):
            if call.stage == "awaiting":
                call.asked = None
                self._move(call, "pending")
                self._assess(call, now)
        return self.advance(now)

    @property
    def has_rest(self) -> bool:
        """True where this workflow task has no time for what could go on."""
        return self.postpones and self.work.is_spent and bool(self._later or self._ready)

    def go_on_later(self, now: str) -> list[Command]:
        later, self._later = self._later, []
        for rank in later:
            self._go_on(self.calls[rank], now)
        return self.advance(now)

    def void_approvals(self) -> None:
        """What has not started is asked about again, as soon as it could start: elements of a Call, too."""
        for call in self.calls:
            if call.stage == "collecting" and call.approved is not None:
                call.own_elements.is_held = call.own_elements.unstarted > 0
            elif not call.has_started:
                call.approved = None

    def _await_input(self, call: CallState) -> None:
        for path in (path for use in call.node.reads for path in use.paths):
            self._readers.setdefault((path.kind, *path.names[:1]), []).append(call.rank)

    def advance(self, now: str, *, paused: bool | None = None, draining: bool | None = None) -> list[Command]:
        """What the shell is to do now: ask humans, start Calls in plan order, end the plan.

        While it is ``paused`` (by a person) or ``draining`` (before a snapshot) nothing starts; what runs continues.
        """
        self.paused = self.paused if paused is None else paused
        self.draining = self.draining if draining is None else draining
        self._check_until()
        self._start_ready(now)
        out, self._out = self._out, []
        if self.is_reached and self._unsettled and not self._is_end_sent:
            self._is_end_sent = True
            out.append(EndEarly())
        if not self._unsettled and not self._has_finished and not self.growing:
            self._has_finished = True
            out.append(Finish(self.status))
        return out

    def _check_until(self) -> None:
        if self.until is None or self.is_reached or self.cancelling or not self._has_changed:
            return
        self._has_changed = False
        with suppress(TooComplex):  # it may hold later
            self.is_reached = holds(self.until, lambda path: self.context.log.read(path, END)) is True

    def cancel(self, now: str, error: dict[str, Any] | None = None) -> list[Command]:
        """Start nothing more. The shell cancels what runs, and reports how it ended.

        With an ``error`` the plan ends with what has started, and the rest is cancelled with this error.
        """
        if error is None:
            self.cancelling = True
        else:
            self.growing = False
        unstarted = [call for call in self.calls if call.stage in (*NOT_STARTED, "sleeping")]
        for call in unstarted:
            call.error = error
            self._move(call, "cancelled")
        self._ready = sorted(rank for rank in self._ready if self.calls[rank].stage == "collecting")
        self._ready_elements = {rank: own for rank, own in self._ready_elements.items() if rank in self._ready}
        for call in unstarted:
            self._release(call, now)
        for call in self.calls if self.cancelling else ():
            if call.stage == "collecting":
                for index in list(call.own_elements.running) if call.node.kind == "person" else ():
                    self._settle(self.by_key[call.node.element_node(index).key], "cancelled", now)
                self._report_elements(call, now)
        return self.advance(now)

    def exhaust(self, error: CallError, now: str) -> list[Command]:
        """End here, because nothing more can be recorded: what has begun, or could begin, fails with this error.

        A result that waits for earlier writes is written, since those settle before it.
        """
        self.exhausted, self.growing = True, False
        for call in self.calls:
            if call.stage == "pending":
                self._settle(call, "skipped", now)
            elif call.stage not in (*SETTLED, "applying"):
                if call.stage == "collecting":
                    elements = call.own_elements
                    for index in elements.running:
                        self._move(self.by_key[call.node.element_node(index).key], "failed")
                    elements.failed += len(elements.running)
                    elements.running.clear()
                    elements.release()
                call.error = error.to_json()
                self._settle(call, "failed", now)
        return self.advance(now)

    # -- another plan, another run -----------------------------------------------

    def change_plan(self, prepared: ValidatedPlan, now: str, *, edited: bool = True) -> list[Command]:
        """Walk another plan: what has started stays as it is. Ranks are those of the new plan from then on.

        Each new Call of an ``edited`` plan needs an approval; one that has grown is no edit. Calls that await a
        decision as before are asked about again. Raises DecisionRefused: it changes a Call that has started, or what
        one has read.
        """
        same = match_calls(self.calls, prepared)
        states = {rank: CallState(node, rank, edited=edited) for rank, node in enumerate(prepared.nodes)}
        for rank, old in same.items():
            call, node = self.calls[old], prepared.nodes[rank]
            if call.has_started:
                states[rank] = replace(call, node=node, rank=rank)
            else:  # it is assessed anew; what people decided about it remains
                own = {name: getattr(call, name) for name in ("approved", "asked", "rule", "edited")}
                states[rank] = CallState(node, rank, **own)
        self.load(prepared, self.context.provided, states)
        return self.begin(now)

    def read_calls(self, prompt: str, member: str | None = None) -> tuple[PastCall, ...]:
        """The Calls that have a result, or may have been started, for a run that resumes this one; see ``past``."""
        own = [call for call in self.calls if call.rank not in self.prepared.literal_outputs]
        return read_calls(own, self.context, self.identify, prompt, member)

    def snapshot(self) -> WalkState:
        """The walk as it continues in the next run of its workflow. Raises EngineError: a Call runs."""
        if self.running:
            raise EngineError("a snapshot is taken when nothing runs")
        records = {call.rank: record for call in self.calls if (record := call.to_record()) != _NOTHING}
        provided = tuple(message.raw for message in self.context.provided)
        return WalkState(calls=records, provided=provided, isPaused=self.paused, isGrowing=self.growing)

    def restore(self, state: WalkState) -> None:
        self.paused, self.growing, self.has_begun = state.isPaused, state.isGrowing, bool(state.calls)
        provided = [message for message in map(parse_message, state.provided) if isinstance(message, Data)]
        calls = {rank: CallState.from_record(self.nodes[rank], rank, own) for rank, own in state.calls.items()}
        self.load(self.prepared, provided, calls)

    # -- what becomes of a Call ----------------------------------------------------

    def _assess(self, call: CallState, now: str) -> None:
        """Every Call that a pending one depends on has settled: check it and move it."""
        if self.cancelling or self.exhausted:
            self._settle(call, "cancelled" if self.cancelling else "skipped", now)
            return
        if call.rank in self.prepared.undecided:
            return  # until the plan is complete
        self.work.begin_call()
        try:
            stage = self._check(call)
        except (CallError, TooComplex) as error:
            failure = error if isinstance(error, CallError) else CallError(wire.TOO_COMPLEX, str(error))
            self._apply_failure(call, failure, now)
            return
        if call.resolved is not None:
            self._admit(call, call.resolved, now)
        elif stage == "skipped":
            self._settle(call, stage, now)
        elif stage == "awaiting_input":
            self._move(call, stage)
            self._await_input(call)
        else:
            own = call.elements
            self._apply_result(call, call.node.literal_output if own is None else [None] * own.total, now)

    def _admit(self, call: CallState, resolved: dict[str, Any], now: str) -> None:
        """Take over what an earlier run did; else let a human confirm the Call, or let it start."""
        if self.past is not None and self._take_over(call, self.past, resolved, now):
            return
        resolved["_id"] = self.identify(call.node)
        if self._asks_about(call, resolved, now):
            return
        if call.rank in self.prepared.literal_outputs:
            self._apply_result(call, call.node.literal_output, now)
        else:
            self._move(call, "ready")
            self._add_ready(call)

    def _asks_about(self, call: CallState, resolved: dict[str, Any], now: str) -> bool:
        """Ask a human about a Call, unless it may start as it is now; what was approved is its subject. One that nobody
        may decide about fails.
        """
        if self._assume is not None or call.node.members:
            return False  # the Calls of a batch child are confirmed in the run that walks them
        try:
            rule = self._find_rule(call, resolved)
        except CallError as error:
            self._apply_failure(call, error, now)
            return True
        if rule is None or (rule[0] == "answer" and call.node.is_each):
            return False
        subject = self.subject_of(call, resolved)
        subject_parts, before = keep(subject), call.approved if call.approved is not None else call.asked
        if call.approved is not None and is_equal(subject_parts, call.approved):
            return False
        call.asked, call.approved, call.rule = subject_parts, None, rule[1]
        self._move(call, "awaiting")
        changes = tuple(find_changes(before or subject_parts, subject_parts))
        self._out.append(AskHuman(call.node, resolved, rule[0], subject, changes, rule[1]))
        return True

    def _find_rule(self, call: CallState, resolved: dict[str, Any] | None = None) -> tuple[str, Rule] | None:
        """What a human is asked about a Call, and by which rule. Without what it resolves to: what may be asked."""
        approve = self.prepared.request.config.approve
        fits = (lambda _: True) if resolved is None else self.fitting(call, resolved)
        edited = ("call", approve.all_rules[-1]) if call.edited else None
        return find_rule(call.node, approve, fits) or edited

    def fitting(self, call: CallState, resolved: dict[str, Any]) -> Callable[[str], bool | None]:
        """Tells whether a condition on ``†call`` holds of a Call, or of each of its elements; None: of some of them, or
        nobody can tell. The next condition is about those of which the ones before may not hold.

        Nothing changes, the work of this task neither: validators ask, too.
        """
        left: list[dict[str, Any]] | None = None

        def fits(condition: str) -> bool | None:
            nonlocal left
            work = Work(incomparable=UNKNOWN)
            try:
                left = self._calls_of(call, resolved) if left is None else left
                tree = parse_condition(condition)
                results = [holds(tree, partial(_read_call, one), work) for one in left]
            except (CallError, TooComplex, ExpressionError):
                return None
            left = [one for one, result in zip(left, results, strict=True) if result is not True]
            return not left or (None if len(left) < len(results) or UNKNOWN in results else False)

        return fits

    def _calls_of(self, call: CallState, resolved: dict[str, Any]) -> list[dict[str, Any]]:
        """A Call, or those of its elements that are to be made. Raises CallError, TooComplex."""
        if call.elements is None:
            return [resolved]
        reading = replace(self._read_elements(call), work=Work())
        return [reading.resolve(index) for index in range(len(reading.items)) if index not in reading.skipped]

    def check_answer(self, call: CallState, output: Json) -> None:
        """Raise DecisionRefused for an answer that does not fit the form of a Call; nothing changes."""
        check = call.node.tool.output_check
        try:
            refuse_defects(call.node, output, levels=1)
            defects = [] if check is None else check.defects(output, Work().steps)[:MAX_DEFECTS_SHOWN]
        except (CallError, TooComplex) as error:
            raise DecisionRefused(f"the answer cannot be taken: {error}") from error
        if defects:
            text = "; ".join(f"{pointer(*at)}: {why}" if at else why for at, why in defects)
            raise DecisionRefused(f"the answer does not fit the form of {call.node.id}, which goes on waiting: {text}")

    def subject_of(self, call: CallState, resolved: dict[str, Any]) -> dict[str, Json]:
        if call.parent is not None:
            return self.describe(call.node, resolved, self._read_elements(call.parent).context)
        reading = None if call.elements is None else self._read_elements(call)
        if reading is None:
            about = self.describe(call.node, resolved, self.context.scoped_messages(call.rank))
            if call.rank in self.prepared.literal_outputs:  # the plan itself answers
                about |= {"answeredBy": {"plan": True}, "output": show(call.node.literal_output)}
            return about
        values = {str(path): show(value) for path, value in reading.values.items() if value is not ABSENT}
        about = {"values": values} if values else {}
        if call.stage == "collecting":
            resolved, elements = {**reading.call, "_each": reading.items}, call.own_elements
            about["left"] = [*sorted(elements.postponed), f"{elements.started} to {elements.total - 1}"]
        if reading.skipped:
            about["skipped"] = sorted(reading.skipped)
        return {**self.describe(call.node, resolved, reading.context), **about}

    def _ask_about_rest(self, call: CallState, now: str) -> None:
        elements = call.own_elements
        try:
            reading = self._read_elements(call)
            every = (*sorted(elements.postponed), *range(elements.started, elements.total))
            left = [index for index in every if index not in reading.skipped]
            resolved = {**reading.call, "_each": [reading.items[index] for index in left]}
            found_rule = self._find_rule(call, resolved)
        except CallError as error:
            self._refuse_rest(call, error, now)
            return
        what, rule = found_rule or ("call", self.prepared.request.config.approve.all_rules[-1])
        subject_parts, before = keep(subject := self.subject_of(call, resolved)), call.approved or call.asked
        call.asked, call.approved, call.rule = subject_parts, None, rule
        changes = tuple(find_changes(before or subject_parts, subject_parts))
        self._out.append(AskHuman(call.node, resolved, what, subject, changes, rule))

    def _ask_for_element(self, element: CallState, start: StartCall) -> None:
        """A person answers an element: nothing starts."""
        element.resolved = start.call
        what, rule = self._find_rule(element) or ("answer", Rule())
        subject = self.subject_of(element, start.call)
        self._out.append(AskHuman(element.node, start.call, what, subject, rule=rule))

    def _ask_again_for_elements(self, call: CallState, now: str) -> None:
        """Another run, or another plan, goes on with what people were asked."""
        for index in list(call.own_elements.running) if call.node.kind == "person" else ():
            element = self.by_key[call.node.element_node(index).key]
            try:
                reading = self._read_elements(call)
                resolved = {**reading.resolve(index), "_id": self.identify(element.node)}
            except CallError as error:
                self._apply_failure(element, error, now)
            else:
                self._ask_for_element(element, StartCall(element.node, resolved, reading.context))

    def _check(self, call: CallState) -> str:
        """Resolve and check a Call, its condition first; returns its next stage. Raises CallError, TooComplex: it
        cannot start.
        """
        node, rank, read = call.node, call.rank, self.context.reader(call.rank)
        call.missing = ()
        if node.condition is not None and not node.condition.is_of_element:
            is_met = holds(node.condition.tree, read, self.work)
            if is_met is UNKNOWN and self._assume is not None:
                is_met = self._assume(rank)
            if not is_met:
                call.reason = f"_when does not hold: {truncate(node.condition.text, MAX_REASON)}"
                return "skipped"
        if node.kind == "latent" and not node.outcomes:  # a thought, which writes nothing
            if rank in self.prepared.literal_outputs:
                return "applying"
            call.reason = "a latent call without _outputPath is never run"
            return "skipped"
        if not node.is_each:
            own, missing = node.resolve(read, self.work)
            if missing:
                return self._check_missing(call, missing)
            self._require_parameters(node, own)
            call.resolved = own
            return "ready"
        reading, missing = read_elements(node, read, self.context.scoped_messages(rank), self.work)
        if not missing:
            partly = reading.find_partly_missing()
            waits = self.prepared.request.config.missing == "wait"
            missing = partly if partly and (waits or self._find_withholder(rank, partly) is not None) else []
        if missing:
            return self._check_missing(call, missing)
        call.elements = Elements(len(reading.items), len(self.context.provided), reading)
        if len(reading.skipped) == len(reading.items):  # none, or none for which the condition holds
            call.elements.started = len(reading.items)
            return "applying"
        call.resolved = {**reading.call, "_each": reading.items}  # each element is checked when it starts
        return "ready"

    def _check_missing(self, call: CallState, missing: Sequence[ReferenceUse]) -> str:
        context = self.context.reader(call.rank)

        def read(path: Path) -> Json:
            return UNKNOWN if call.node.is_each and path.kind in ELEMENT_KINDS else context(path)

        texts = tuple(dict.fromkeys(text for use in missing for text in use.absent_texts(read)))
        if (withholder := self._find_withholder(call.rank, missing)) is not None:
            is_consequence = withholder.stage == "skipped" and withholder.cause is not None
            call.cause = withholder.cause if is_consequence else withholder.node.id
            call.reason = f"there is no value at {truncate(', '.join(texts), MAX_REASON)}"
            return "skipped"
        if self.prepared.request.config.missing == "wait":
            call.missing = texts
            return "awaiting_input"
        raise CallError(wire.UNRESOLVED, f"there is no value at {', '.join(texts)}")

    def _find_withholder(self, rank: int, missing: Iterable[ReferenceUse]) -> CallState | None:
        """A dependency that was skipped, failed, or took another outcome than the one with what is missing."""
        return self._progress.find_withholder(rank, [path for use in missing for path in use.paths])

    def _require_parameters(self, node: PlannedCall, call: Mapping[str, Json]) -> None:
        parameters = {k: v for k, v in call.items() if k not in META}
        subject = f'parameters of "{node.tool.name}"'
        self._require(node.tool.parameters, parameters, subject, subject, wire.SCHEMA_MISMATCH)

    def _require_writes(self, node: PlannedCall, writes: Writes) -> None:
        """Check what a result writes against the Tool's ``_output`` and the schemas of the context. Raises CallError:
        ``badResult``, with the defects of the first value that has any, or ``tooComplex``.
        """
        if not node.is_each:  # elements are checked one by one
            for value in {id(value): value for _, value in writes}.values():
                self._require_result(node, value)
        schemas = self.prepared.kind_schemas
        for path, value in writes if schemas and node.method == "set" else ():
            if (check := schemas.check_at(path)) is not None:
                text = f"the schema of {path.kind} does not allow this at {path}"
                self._require(check, value, f"the value for {path}", text)

    def _require_result(self, node: PlannedCall, value: Json) -> None:
        if node.tool.output_check is not None:
            subject = f'the result of "{node.tool.name}"'
            self._require(node.tool.output_check, value, subject, f"{subject} breaks its _output")

    def _require(self, check: Checker, value: Json, subject: str, violation: str, code: str = wire.BAD_RESULT) -> None:
        """Raise CallError for a value that does not fit; in a dry run what is unknown does."""
        find = check.defects if self._assume is None else partial(check.open_defects, is_planned=False)
        try:
            defects = find(value, self.work.steps)[:MAX_DEFECTS_SHOWN]
        except TooComplex as error:
            if self._assume is not None:
                return  # the walk itself checks it
            raise CallError(wire.TOO_COMPLEX, f"{subject}: {error}") from error
        if defects:
            root, more = "", "; the call ran, and its effect may have happened"
            if code == wire.SCHEMA_MISMATCH:
                root, more = "the parameters", ""
            places = ((pointer(*at) if at else root, why) for at, why in defects)
            text = "; ".join(f"{place}: {why}" if place else why for place, why in places)
            raise CallError(code, f"{violation}: {text}{more}")

    def _take_over(self, call: CallState, run: PastCalls, resolved: dict[str, Any], now: str) -> bool:
        """Take over what a Call did in an earlier run; False when it has to run."""
        node = call.node
        if node.kind == UNIT:
            if (report := run.find_report(node)) is not None:
                self._apply_child_report(call, report, now)
            return report is not None
        reading = None if call.elements is None else call.elements.reading
        past = run.find_call(node, resolved, reading, partial(self.context.scoped_messages, call.rank))
        if past is None:
            return False
        if past.state == "open":
            if call.elements is not None:
                self._take_over_elements(call, call.elements, past, run)
            return False
        if past.state == "detached":
            run.taken[node.key], call.elements = past.id, None
            self._settle(call, "detached", now)
            return True
        paths = node.outcomes[past.outcome] if past.outcome < len(node.outcomes) else ()
        writes = tuple(zip(paths, past.written, strict=False))
        try:
            if past.error is None:
                self._require_writes(node, writes)
        except CallError:  # the Tool takes other results now: by its old ``_id`` it may find that it has run
            run.ids[node.key] = past.id
            return False
        run.taken[node.key] = past.id
        call.error, call.elements, call.undo = past.error, None, dict(past.undo)
        self._apply(call, past.outcome, writes, now)
        return True

    def _take_over_elements(self, call: CallState, elements: Elements, past: PastCall, run: PastCalls) -> None:
        """Keep the results that elements of an unchanged Call had in an earlier run: the others start."""
        results, again = list(past.results), list(past.open)
        for index in sorted(set(range(len(results))) - set(past.open)):
            try:
                if not call.node.is_detached:
                    self._require_result(call.node, results[index])
                run.taken[call.node.element_node(index).key] = past.id
            except CallError:  # the Tool takes other results now
                results[index] = None
                again.append(index)
        elements.results, elements.started, elements.postponed = results, len(results), sorted(again)
        call.undo = {index: step for index, step in past.undo.items() if index not in again}

    # -- how Calls settle --------------------------------------------------------------

    def _settle(self, call: CallState, stage: str, now: str, value: Json = None) -> None:
        self._move(call, stage)
        self._release(call, now, value)

    def _release(self, call: CallState, now: str, value: Json = None) -> None:
        """A Call has settled: assess or write what waited for it. The last element to settle reports its Call."""
        if call.parent is not None:
            call.parent.own_elements.settle(call, value)
            if call.node.kind == "person" and call.parent.stage == "collecting":
                self._add_ready(call.parent)
            self._report_elements(call.parent, now)
            return
        call.resolved = call.approved = call.asked = None
        self._settled.append((call, now))
        if len(self._settled) > 1:
            return  # the loop below, further up the stack, takes it
        while self._settled:
            settled, date = self._settled[0]
            for rank in self._progress.release_waiters(settled.rank):
                self._go_on(self.calls[rank], date)
            self._settled.popleft()

    def _go_on(self, call: CallState, now: str) -> None:
        if call.stage == "pending" and self.postpones and self.work.is_spent:
            self._later.append(call.rank)
        elif call.stage == "pending":
            self._assess(call, now)
        elif call.stage == "applying":
            self._write_when_possible(call)

    def _apply_result(self, call: CallState, value: Json, now: str, chosen: int | None = None) -> None:
        """Place and check a result, then write it; ``chosen`` is the outcome that came with it."""
        self.work.begin_call()
        try:
            if call.parent is not None:
                refuse_defects(call.parent.node, value, levels=1)
                self._require_result(call.node, value)
            else:
                outcome, writes = place_result(call.node, value, chosen)
                self._require_writes(call.node, writes)
        except CallError as error:
            self._apply_failure(call, error, now)
            return
        self._prepare_undo(call, value)
        if call.parent is not None:
            self._move(call, "applying")
            self._settle(call, "completed", now, value)
        else:
            self._apply(call, outcome, writes, now)

    def _prepare_undo(self, call: CallState, result: Json) -> None:
        """Note what undoes a Call, or an element, while its parameters and its result are at hand."""
        node, template = call.node, call.node.tool.undo
        if template is None or node.is_each or self._assume is not None:
            return
        step = UndoStep(call=node.id, id=self.identify(node), instance=node.instance, tool=template["_tool"])
        try:
            own = node.call if call.resolved is None else call.resolved
            if call.parent is not None:
                own = self._read_elements(call.parent).resolve(node.element or 0)
            values = {"result": result, "call": {key: value for key, value in own.items() if key not in META}}

            def read(path: Path) -> Json:
                return get(values[path.kind], path.names)

            parameters = {key: value for key, value in template.items() if key != "_tool"}
            resolved, missing = resolve_references(parameters, node.tool.undo_uses, read, self.work)
            problem = ", ".join(text for use in missing for text in use.absent_texts(read))
            change = {"problem": f"there is no value at {problem}"} if missing else {"parameters": resolved}
        except (CallError, TooComplex) as error:
            change = {"problem": str(error)}
        self._note_undo(call, (step.model_copy(update=change),))

    def _note_undo(self, call: CallState, steps: tuple[UndoStep, ...]) -> None:
        (call.parent or call).undo[call.node.element or 0] = steps

    def inner_plan_ended(self, key: str, steps: Sequence[Json]) -> None:
        """What undoes the Calls of a plan that a Call, or an element, had walked; the end of that follows."""
        if (call := self._find(key, "running")) is None or not steps:
            return
        node, undo_steps = call.node, map(UndoStep.model_validate, steps)
        own = [s.model_copy(update={"call": f"{node.id}/{s.call}", "instance": node.instance}) for s in undo_steps]
        self._note_undo(call, tuple(own))

    def undo_steps(self) -> list[UndoStep]:
        """What undoes the Calls that have completed, in reverse plan order.

        A Call that failed may have elements, or an inner plan with Calls, that completed. What an instance has
        completed, its child has reported.
        """
        out: list[UndoStep] = []
        for call in reversed(self.calls):
            is_partly = call.node.is_each or call.node.walks_plan
            for index in sorted(call.undo, reverse=True):
                out += call.undo[index] if is_partly or (call.stage == "completed" and call.error is None) else ()
            for report in reversed((call.value or {}).values()):
                out += map(UndoStep.model_validate, report.get("undo", ()))
        return out

    def _apply_child_report(self, call: CallState, report: dict[str, Any], now: str) -> None:
        self._move(call, "applying")
        call.value = report
        self.context.apply_child_report(report)
        status = call_state.status_of("completed", [item["status"] for item in report.values()])
        self._settle(call, "completed" if status == "partial" else status, now)

    def _apply_failure(self, call: CallState, error: CallError, now: str) -> None:
        """Write a failure to the error outcome, or end the Call or element where it has none, or fails again."""
        self._move(call, "applying")
        node = call.node
        if call.parent is not None:
            call.error = {"code": error.code, "message": error.message}
            self._settle(call, "failed", now)
            return
        is_first = call.error is None
        if is_first:
            call.error, call.place = error.to_json(), error.place
        if node.error is None or not is_first:
            call.values = ()
            self._settle(call, "failed", now)
            return
        self._apply(call, node.error, tuple((path, call.error) for path in node.outcomes[node.error]), now)

    def _apply(self, call: CallState, outcome: int, writes: Writes, now: str) -> None:
        self._move(call, "applying")
        call.resolved, call.outcome, call.values, call.date = None, outcome, tuple(v for _, v in writes), now
        self._write_when_possible(call)

    def _write_when_possible(self, call: CallState) -> None:
        node, rank, writes = call.node, call.rank, tuple(call.writes)
        view = self.context.log.view_of(node.instance)
        self._await_earlier_writes(call, writes, view)
        if self._progress.is_waiting(rank):
            return
        for path, value in writes:
            conflict = view.find_conflict(path, node.method, value, rank)
            if conflict:
                self._apply_failure(call, conflict, call.date)
                return
        for path, value in writes:
            view.write(path, node.method, value, rank)
        self._has_changed = True
        self._settle(call, "completed", call.date)

    def _await_earlier_writes(self, call: CallState, writes: Writes, view: View) -> None:
        """Register waits for the earlier writes that can still decide whether a result may be written.

        They are the writes above its paths and, except for ``set``, at them. Once those have settled, methods
        other than ``set`` wait for the writes below too. Where the value there takes a merge in any case, only
        the objects inside the merged one wait, for what may stand where they go.
        """
        node, rank, writers, progress = call.node, call.rank, self.prepared.graph.writers, self._progress
        is_set = node.method == "set"
        for path, _ in writes:
            progress.await_earlier_writers(rank, writers.above(path, node.instance, itself=not is_set))
            progress.await_writers(rank, writers.hiding(path, node.instance, rank))
        if is_set or progress.is_waiting(rank):
            return
        for path, value in writes:
            places = [path.names]
            merges = node.method in ("merge", "assign") and isinstance(value, dict)
            if merges and view.type_at(path, rank) in ("object", "nothing", "null"):
                effects = split_write(path.names, node.method, value)
                places = [names for names, operation, _ in effects if operation == "ensure"]
            for names in places:
                progress.await_earlier_writers(rank, writers.overlapping(Path(path.kind, names), node.instance))

    # -- what is ready -----------------------------------------------------------------

    def _add_ready(self, call: CallState) -> None:
        elements = call.elements if self._is_spread(call) else None
        if elements is None:
            heapq.heappush(self._ready, call.rank)
        elif elements.unstarted and call.rank not in self._ready_elements:
            self._ready_elements[call.rank] = elements
            heapq.heappush(self._ready, call.rank)

    def _start_ready(self, now: str) -> None:
        while self._ready and not self.holds_starts and not (self.postpones and self.work.is_spent):
            call = self.calls[self._ready[0]]
            if call.stage == "collecting" and call.is_asked_about:
                self._take_first()
                self._ask_about_rest(call, now)
                continue
            if call.stage == "ready" and self._asks_about(call, call.resolved or {}, now):
                self._take_first()  # what its scopes show has changed, or the approval is void
                continue
            if call.stage == "ready" and self._is_spread(call):
                self._move(call, "collecting")
                call.resolved = None
                if self.counts_elements and (more := call.own_elements.left - 1) > 0:
                    self._take_first()
                    self._out.append(CountElements(call.node, more))
                continue
            is_asked = call.node.kind == "person" and self._is_spread(call)
            if is_asked and len(call.own_elements.running) >= MAX_ASKED:
                self._take_first()
                continue
            start = self._prepare_element(call, now) if call.stage == "collecting" else None
            node = call.node if start is None else start.node
            needs_permit = not (is_asked or node.is_wait) and (start is not None or call.stage == "ready")
            if needs_permit and not self.may_start(node):
                break
            self._take_first()
            if call.stage == "ready":
                self._start_call(call, now)
            elif start is not None:
                call.own_elements.start()
                element = self._add_element(call, node, "awaiting" if is_asked else "running")
                if is_asked:
                    self._ask_for_element(element, start)
                else:
                    self._out.append(start)
                self._add_ready(call)
            else:
                self._report_elements(call, now)

    def _start_call(self, call: CallState, now: str) -> None:
        if call.node.is_wait and self._assume is None:
            self._sleep(call, now)
            return
        self._move(call, "running")
        # A dry run starts nothing, and keeps all
        context = self.context.scoped_messages(call.rank) if self._assume is None else []
        self._out.append(StartCall(call.node, call.resolved or {}, context))

    def _take_first(self) -> None:
        self._ready_elements.pop(heapq.heappop(self._ready), None)

    def _is_spread(self, call: CallState) -> bool:
        return call.node.is_each and self._assume is None

    def _prepare_element(self, call: CallState, now: str) -> StartCall | None:
        """The element of a Call that starts next; None when none does. Those that cannot start have failed then."""
        elements = call.own_elements
        while elements.next is None and elements.unstarted:
            node = call.node.element_node(elements.next_index)
            self.work.begin_call()
            try:
                reading = self._read_elements(call)
                if elements.next_index in reading.skipped:
                    elements.skip()
                    continue
                resolved = reading.resolve(elements.next_index)
                self._require_parameters(node, resolved)
            except CallError as error:
                elements.start()
                self._apply_failure(self._add_element(call, node, "pending"), error, now)
            else:
                elements.next = StartCall(node, {**resolved, "_id": self.identify(node)}, reading.context)
        return elements.next

    def _read_elements(self, call: CallState) -> ElementReading:
        """What all elements of a Call share: as it was when the first started, in a run that goes on with them, too.
        Raises CallError.
        """
        elements = call.own_elements
        if elements.reading is None:
            context, provided = self.context, self.context.provided
            if elements.provided < len(provided):
                context = WalkContext(self.prepared, self.calls, provided[: elements.provided])
            scoped = context.scoped_messages(call.rank)
            elements.reading, _ = read_elements(call.node, context.reader(call.rank), scoped, self.work)
        return elements.reading

    def _report_elements(self, call: CallState, now: str) -> None:
        """Report a Call whose elements have all settled, or of which no more will start."""
        elements = call.own_elements
        if elements.running or (elements.unstarted and not self.cancelling) or call.stage != "collecting":
            return
        if call.node.is_detached and not elements.errors and not elements.unstarted:
            self._settle(call, "detached", now)
        elif elements.unstarted or elements.cancelled:
            self._settle(call, "cancelled", now)
        elif elements.errors:
            self._apply_failure(call, elements.failure(), now)
        else:
            self._apply_result(call, elements.results, now)
        if call.stage != "cancelled":  # a run that resumes this one reads the results of its elements
            elements.release()

    # -- what can be seen of a walk ---------------------------------------------------------

    @property
    def holds_starts(self) -> bool:
        """True while nothing starts, or nothing ever will."""
        return self.paused or self.is_held or self.draining or self.cancelling or self.exhausted or self.is_reached

    @property
    def startable(self) -> int:
        """How many Calls and elements are ready and could start now."""
        if self.holds_starts:
            return 0
        return len(self._ready) + sum(own.unstarted - 1 for own in self._ready_elements.values())

    @property
    def counts(self) -> Counter[str]:
        return Counter(call.state for call in self.calls)

    @property
    def status(self) -> str:
        states: dict[str | None, list[str]] = {None: []}
        for call in self.calls:
            for id_ in call.node.members or (call.node.instance,):
                report = (call.value or {}).get(id_, {})
                states.setdefault(id_, []).append(report.get("status", call.state))
        shared, *parts = map(call_state.status_from_states, states.values())
        status = call_state.status_of(shared, parts)
        if (status, shared) == ("failed", "completed") and set(self.prepared.request.instances()) - states.keys():
            status = "partial"  # an instance without Calls has not failed
        if self.is_reached:
            return "completed"
        is_cancelled = self.cancelling and (status == "completed" or self.counts["cancelled"])
        return "cancelled" if is_cancelled else status

    def find(self, call: str | None, instance: str | None = None) -> CallState | None:
        """The Call of an id or a key and, where several have the id, an instance."""
        own = self.by_key.get(str(call)) or self.by_key.get(f"{instance}/{call}")
        return own if own is not None and (own.parent is None or own.stage == "awaiting") else None


def date_of(text: Json) -> datetime:
    """The moment of an ISO date with a zone; raises ValueError."""
    date = datetime.fromisoformat(str(text))
    if date.tzinfo is None:
        raise ValueError(f"{text} has no zone; 2026-12-01T09:00:00Z has one")
    return date.astimezone(UTC)


def find_end(call: Mapping[str, Json], now: datetime) -> datetime:
    """When a Call of the Tool ``wait`` that starts now ends; raises ValueError."""
    if "until" not in call:
        return now + timedelta(seconds=parse_seconds(call.get("for")))
    due = date_of(call["until"])
    if (due - now).total_seconds() > MAX_SECONDS:
        raise ValueError(f"{call['until']} is more than ten years away")
    return max(due, now)


def _read_call(call: dict[str, Any], path: Path) -> Json:
    return get(call, path.names) if path.kind == "call" else ABSENT


def match_calls(calls: Sequence[CallState], prepared: ValidatedPlan) -> dict[int, int]:
    """The Calls that a new plan leaves as they are: their rank in it, and in the walk with these ``calls``.

    What has started stays as it is. Raises DecisionRefused: the new plan alters a Call that has started, or what one
    has read or writes onto.
    """
    old = {_listing(call.node): call for call in calls}
    same: dict[int, int] = {}
    new_writes, problem = WriterIndex(), ""
    is_new = ChainFold(False, lambda is_new_call, rank: is_new_call or rank not in same)
    for rank, node in enumerate(prepared.nodes):
        call = old.get(_listing(node))
        if call is None or call.node.instance != node.instance or not is_equal(call.node.planned, node.planned):
            new_writes.add(node, rank)
            continue
        same[rank] = call.rank
        touched = (*node.writes, *paths_read(node)) if call.has_started else ()
        hiding = (wait for path in touched for wait in prepared.graph.writers.hiding(path, node.instance, rank))
        if any(new_writes.overlapping(path, node.instance) for path in touched) or any(is_new.at(*w) for w in hiding):
            problem = problem or f"{node.id} has started: the edit would change what it reads, or writes onto"
    same_ranks = set(same.values())
    started = [rank for rank in same.values() if calls[rank].has_started]
    for call in calls:
        if call.has_started and call.rank not in same_ranks:
            raise DecisionRefused(f"{call.node.id} has started and cannot be changed")
    if started != sorted(started):
        raise DecisionRefused("the edit would change the order of calls that have started")
    if problem:
        raise DecisionRefused(problem)
    return same


def _listing(node: PlannedCall) -> Any:
    """What makes a Call the same in two plans: where it is listed; of a batch child, its name."""
    return node.key if node.members else (node.index, node.name)
