"""The plan as a state machine: events in, commands out, plain data in between.

Laws of this file: events enter a walk by its methods alone (a Call completed, a message was provided,
pause …), and each returns the commands for a shell to perform (start this Call, ask a human, the plan has
finished). Time comes with the events. What a walk does depends on its plan and its events, on nothing else.

Theory of operation. ``call_state`` has the stages of a Call and the table of events that move it. Serial
equivalence rests on two waits, both for prefixes of writer chains (see ``graph``, ``writer_progress``):

* a Call *starts* when every writer before it that overlaps one of its reads has settled;
* a result *takes effect* at once, unless a write before it could still decide whether it can be applied
  at all (``push`` onto what may become an object): then it waits for that write. A Call that reads the
  result waits for that write anyway. A result that cannot be applied is a failure of its Call.

When the waits of a Call end, ``readiness`` decides what becomes of it. What is ready starts in plan order, as far as
``may_start`` allows; what may not start holds back those behind it. An element of a Call with ``_each`` settles as a
Call does, and the last one to settle reports its Call. ``load`` is the one way to begin a walk, to continue it in
another run (``snapshot``, ``restore``) and to change its plan.
"""

from __future__ import annotations

import heapq
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from acts.language.admission import Work
from acts.language.errors import CallError, DecisionRefused, EngineError
from acts.language.messages import Data, parse_message
from acts.language.wire import APPROVAL_TIMEOUT, CANCELLED, REJECTED
from acts.machines.call_state import (
    NOT_STARTED,
    SETTLED,
    CallState,
    CallStates,
    Elements,
    status_from_states,
    status_of,
)
from acts.machines.commands import AskHuman, Command, CountElements, Finish, StartCall
from acts.machines.past import PastCalls, read_calls
from acts.machines.readiness import Readiness
from acts.machines.walk_context import WalkContext
from acts.machines.writer_progress import WaitingCalls, WriterProgress
from acts.plan.calls import UNIT, ElementReading, read_elements
from acts.plan.context_log import place_result, refuse_defects
from acts.plan.graph import WriterIndex, paths_read
from acts.tree.records import CallRecord, WalkState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from acts.language.references import Path
    from acts.language.values import Json
    from acts.machines.readiness import Assessment
    from acts.plan.calls import PlannedCall
    from acts.plan.context_log import Writes
    from acts.plan.validate import ValidatedPlan
    from acts.tree.past_run import PastCall

# How a batch child settles, by the status of its instances together
_EVENT_OF_STATUS: Final = {
    "completed": "written", "partial": "written", "failed": "failed", "rejected": "all_rejected",
    "cancelled": "cancelled",
}  # fmt: skip
_NOTHING: Final = CallRecord()


class Walk:
    """One plan, being walked. Feed it events; perform the commands that they return.

    ``identify`` gives a Call the ``_id`` it is started with: stable, and different for every Call and element of
    every run. ``may_start`` is called for the next Call or element that could start; False holds it and those behind
    it until ``start_more`` (without one, ``maxParallel`` of the plan is the limit). ``nodes`` are the planned Calls
    and ``calls`` their states, by rank; ``by_key`` has the states of Calls and of elements that have started.
    ``counts_elements`` makes the walk ask before a Call is made for all elements of a list.

    ``assume`` makes it a dry run, in which results may be ``UNKNOWN``, no human is asked, and a Call with ``_each``
    is started once for all of its elements: it says whether the condition of a Call (by rank) holds where that
    cannot be known. ``past`` is what an earlier run had done, if this one resumes it.
    """

    def __init__(
        self, prepared: ValidatedPlan, identify: Callable[[PlannedCall], str],
        may_start: Callable[[PlannedCall], bool] | None = None, assume: Callable[[int], bool] | None = None,
    ) -> None:  # fmt: skip
        self.identify = identify
        self.may_start = may_start
        self._assume = assume
        self.paused = self.draining = self.cancelling = self.growing = self.exhausted = self.counts_elements = False
        self.past: PastCalls | None = None
        self.load(prepared, (), {})

    def load(self, prepared: ValidatedPlan, provided: Sequence[Data], states: Mapping[int, CallState]) -> None:
        """Take a plan, the messages provided so far, and the states of the Calls that have one. ``begin`` follows."""
        self.prepared = prepared
        self.nodes = prepared.nodes
        self._states = CallStates(self.nodes, states)
        self.calls, self.by_key = self._states.by_rank, self._states.by_key
        if self.past is not None:
            self.past.align(self.nodes)
        self.work = Work()
        self._progress = WriterProgress(prepared.graph, self.calls)
        self.context = WalkContext(prepared, self.calls, provided)
        self._readiness = Readiness(prepared, self.context, self._progress, self.work, self._assume)
        self._waiting = WaitingCalls(call for call in self.calls if call.stage == "awaiting_input")
        self._ready: list[int] = []  # a heap of ranks: of Calls, and of those whose elements are ready
        self._ready_elements: dict[int, Elements] = {}
        self._out: list[Command] = []
        self._settled: deque[tuple[CallState, str]] = deque()
        self._releases_waiters = self._has_finished = False

    # -- events ----------------------------------------------------------------

    def begin(self, now: str) -> list[Command]:
        """Start walking, after ``load`` or ``restore`` too."""
        for call in self.calls:
            if call.stage == "applying" and not self._progress.is_waiting(call.rank):
                self._write_when_possible(call)
        for call in self.calls:
            if call.stage == "pending" and not self._progress.is_waiting(call.rank):
                self._assess(call, now)
            elif call.stage == "collecting":
                self._add_ready(call)
        return self._commands(now)

    def completed(self, key: str, value: Json, now: str, chosen: int | None = None) -> list[Command]:
        """A running Call or element returned ``value``, or was started durably if it is fire-and-forget.

        ``chosen`` is the outcome that a model chose. A batch child returns the report of each instance, by id.
        """
        call = self.by_key.get(key)
        is_detached = call is not None and call.node.is_detached
        call = self._states.move_key(key, "detached" if is_detached else "reported")
        if call is not None and is_detached:
            self._release(call, now)
        elif call is not None and call.node.kind == UNIT:
            self._apply_child_report(call, value, now)
        elif call is not None and call.parent is not None:
            self._take_element_result(call, value, now)
        elif call is not None:
            self._apply_result(call, value, now, chosen)
        return self._commands(now)

    def failed(self, key: str, error: CallError, now: str) -> list[Command]:
        """A running Call or element failed; its retries are spent."""
        call = self._states.move_key(key, "reported")
        if call is not None and self.cancelling and error.code == CANCELLED:
            self._settle(call, "cancelled", now)
        elif call is not None:
            self._apply_failure(call, error, now)
        return self._commands(now)

    def postponed(self, key: str, now: str) -> list[Command]:
        """The shell has not started a Call or element, for want of room: it is ready again."""
        call = self._states.move_key(key, "postponed")
        if call is not None:
            if call.parent is not None:
                call.parent.own_elements.postpone(call.node.element or 0)
                del self.by_key[key]  # it is resolved and checked anew
            self._add_ready(call.parent or call)
        return self._commands(now)

    def allow_elements(self, key: str, now: str, refusal: CallError | None = None) -> list[Command]:
        """A Call may be made for all elements of its list, or not: the answer to ``CountElements``."""
        call = self.by_key[key]
        if refusal is None and call.stage == "collecting":
            self._add_ready(call)
        elif refusal is not None and self._states.move(call, "collected"):
            self._apply_failure(call, refusal, now)
        return self._commands(now)

    def decide(self, key: str, decision: str, reason: str, now: str) -> list[Command]:
        """The decision about an awaiting Call: ``approve``, ``reject``, or ``fail`` (none came in time)."""
        event = {"approve": "approved", "fail": "decision_overdue"}.get(decision, "rejected")
        call = self._states.move_key(key, event)
        if call is None:
            return self._commands(now)
        if event == "approved":
            call.approved = True
            if call.rank in self.prepared.literal_outputs:
                self._states.move(call, "literal_used")
                self._apply_literal_output(call, now)
            else:
                self._add_ready(call)
        elif event == "decision_overdue":
            self._apply_failure(call, CallError(APPROVAL_TIMEOUT, reason), now)
        else:
            call.error = {"code": REJECTED, "message": reason}
            self._release(call, now)
        return self._commands(now)

    def provide(self, message: Data, now: str) -> list[Command]:
        """A message arrived from outside. It precedes the plan; Calls that have started keep what they read.

        Raises:
            InvalidRequest: the message cannot be folded into the context.
        """
        self.context.provide(message, self.work)
        for rank in self._waiting.take_readers(message):
            call = self.calls[rank]
            if call.stage == "awaiting_input" and self._states.move(call, "input_provided"):
                self._assess(call, now)
        return self._commands(now)

    def pause(self) -> list[Command]:
        """Start nothing more until ``resume``; what runs continues."""
        self.paused = True
        return []

    def resume(self, now: str) -> list[Command]:
        """Start Calls again."""
        self.paused = False
        return self._commands(now)

    def start_more(self, now: str) -> list[Command]:
        """Start what ``may_start`` held back."""
        return self._commands(now) if self._ready else []

    def drain(self, now: str, *, on: bool) -> list[Command]:
        """Hold back new Calls (before a snapshot), or stop holding them back."""
        self.draining = on
        return self._commands(now)

    # -- an early end -----------------------------------------------------------

    def cancel(self, now: str) -> list[Command]:
        """Start nothing more. The shell cancels what runs, and reports how it ended."""
        self.cancelling = True
        self._cancel_unstarted(None, now)
        self._clear_ready()
        for call in self.calls:
            if call.stage == "collecting":
                self._report_elements(call, now)
        return self._commands(now)

    def drop_unstarted(self, error: dict[str, Any], now: str) -> list[Command]:
        """The plan ends with what has started: the rest is cancelled, with this error."""
        self.growing = False
        self._cancel_unstarted(error, now)
        return self._commands(now)

    def _cancel_unstarted(self, error: dict[str, Any] | None, now: str) -> None:
        """Cancel what has not started. Nothing that waits for it starts by that."""
        unstarted = [call for call in self.calls if call.stage in NOT_STARTED]
        for call in unstarted:
            call.error = error
            self._states.move(call, "cancelled")
        self._clear_ready(but_elements=True)
        for call in unstarted:
            self._release(call, now)

    def exhaust(self, error: CallError, now: str) -> list[Command]:
        """End here, because nothing more can be recorded: what has begun, or could begin, fails with this error.

        A result that waits for earlier writes is written, since those settle before it.
        """
        self.exhausted, self.growing = True, False
        self._clear_ready()
        for call in self.calls:
            if call.stage == "pending":
                self._settle(call, "skipped", now)
            elif call.stage not in (*SETTLED, "applying"):
                if call.stage == "collecting":
                    for index in call.own_elements.running:
                        self._states.move_key(call.node.element_node(index).key, "exhausted")
                    call.own_elements.exhaust()
                call.error = error.to_json()
                self._settle(call, "exhausted", now)
        return self._commands(now)

    # -- another plan, another run -----------------------------------------------

    def change_plan(self, prepared: ValidatedPlan, now: str, *, edited: bool = True) -> list[Command]:
        """Walk another plan: what has started stays as it is. Ranks are those of the new plan from then on.

        Each new Call of an ``edited`` plan needs an approval; one that has grown is no edit. Calls that await a
        decision as before are asked about again.

        Raises:
            DecisionRefused: it changes a Call that has started, or what one has read.
        """
        same = match_calls(self.calls, prepared)
        states = {rank: CallState(node, rank, edited=edited) for rank, node in enumerate(prepared.nodes)}
        states |= {rank: self.calls[old].keep_for(prepared.nodes[rank], rank) for rank, old in same.items()}
        self.load(prepared, self.context.provided, states)
        return self.begin(now)

    def resume_from(self, past: PastCalls) -> None:
        """Take over what an earlier run had done. ``begin`` follows."""
        self.past = past
        past.align(self.nodes)

    def read_calls(self, prompt: str, member: str | None = None) -> tuple[PastCall, ...]:
        """The Calls that have a result, or may have been started, for a run that resumes this one; see ``past``."""
        own = [call for call in self.calls if call.rank not in self.prepared.literal_outputs]
        return read_calls(own, self.context, self.identify, prompt, member)

    def snapshot(self) -> WalkState:
        """The walk as it continues in the next run of its workflow.

        Raises:
            EngineError: a Call runs.
        """
        if not self.quiet:
            raise EngineError("a snapshot is taken when nothing runs")
        records = {call.rank: record for call in self.calls if (record := call.to_record()) != _NOTHING}
        provided = tuple(message.raw for message in self.context.provided)
        return WalkState(calls=records, provided=provided, isPaused=self.paused, isGrowing=self.growing)

    def restore(self, state: WalkState) -> None:
        """Load the snapshot of a walk of the same plan. Call ``begin`` afterwards."""
        self.paused, self.growing = state.isPaused, state.isGrowing
        provided = [message for message in map(parse_message, state.provided) if isinstance(message, Data)]
        calls = {rank: CallState.from_record(self.nodes[rank], rank, own) for rank, own in state.calls.items()}
        self.load(self.prepared, provided, calls)

    # -- what becomes of a Call ----------------------------------------------------

    def _assess(self, call: CallState, now: str) -> None:
        """Every Call that a pending one depends on has settled: check it and move it."""
        if self.cancelling:
            self._settle(call, "cancelled", now)
            return
        if call.rank in self.prepared.undecided:
            return  # until the plan is complete
        assessment = self._readiness.assess(call)
        if assessment.event == "skipped" or self.exhausted:
            call.reason = assessment.reason
            self._settle(call, "skipped", now)
        elif not self._take_over(call, assessment, now):
            self._move_on(call, assessment, now)

    def _move_on(self, call: CallState, assessment: Assessment, now: str) -> None:
        """Move a Call as its assessment says."""
        self._states.move(call, assessment.event)
        call.resolved, call.missing = assessment.call, assessment.missing
        if call.resolved is not None:
            call.resolved["_id"] = self.identify(call.node)
        if assessment.reading is not None:
            call.elements = Elements(len(assessment.reading.items), len(self.context.provided), assessment.reading)
            self._take_over_elements(call, assessment)
        match assessment.event:
            case "became_ready":
                self._add_ready(call)
            case "approval_needed":
                self._out.append(AskHuman(call.node, call.resolved or {}, assessment.subject or "call"))
            case "input_missing":
                self._waiting.add(call)
            case "literal_used":
                self._apply_literal_output(call, now)
            case "nothing_to_start":
                self._apply_result(call, [], now)
        if assessment.error is not None:
            self._apply_failure(call, assessment.error, now)

    def _take_over(self, call: CallState, assessment: Assessment, now: str) -> bool:
        """Take over what a Call did in an earlier run; False when it has to run."""
        if self.past is None or assessment.call is None:
            return False
        if call.node.kind == UNIT:
            report = self.past.find_report(call.node)
            if report is not None:
                self._states.move(call, "taken_over")
                self._apply_child_report(call, report, now)
            return report is not None
        past = self._find_past(call, assessment)
        if past is None or past.state == "open" or (past.state == "detached" and not call.node.is_detached):
            return False
        if past.state == "completed":
            return self._take_over_result(call, past, self.past, now)
        self.past.taken[call.node.key] = past.id
        self._settle(call, "detached_before", now)
        return True

    def _find_past(self, call: CallState, assessment: Assessment) -> PastCall | None:
        if self.past is None or assessment.call is None:
            return None
        context = partial(self.context.scoped_messages, call.rank)
        return self.past.find_call(call.node, assessment.call, assessment.reading, context)

    def _take_over_result(self, call: CallState, past: PastCall, run: PastCalls, now: str) -> bool:
        outcomes = call.node.outcomes
        paths = outcomes[past.outcome] if past.outcome < len(outcomes) else ()
        writes = tuple(zip(paths, past.written, strict=False))
        try:
            if past.error is None:
                self._readiness.check_writes(call.node, writes)
        except CallError:  # the Tool takes other results now: by its old ``_id`` it may find that it has run
            run.keep_id(call.node, past)
            return False
        self._states.move(call, "taken_over")
        run.taken[call.node.key] = past.id
        call.error = past.error
        self._apply(call, past.outcome, writes, now)
        return True

    def _take_over_elements(self, call: CallState, assessment: Assessment) -> None:
        """Keep the results that elements of an unchanged Call had in an earlier run: the others start."""
        past = self._find_past(call, assessment)
        if past is None or self.past is None or past.state != "open" or call.elements is None:
            return
        results, again = list(past.results), list(past.open)
        for index in sorted(set(range(len(results))) - set(past.open)):
            try:
                if not call.node.is_detached:
                    self._readiness.require_result(call.node, results[index])
                self.past.taken[call.node.element_node(index).key] = past.id
            except CallError:  # the Tool takes other results now
                results[index] = None
                again.append(index)
        call.elements.take_over(results, sorted(again))

    def _settle(self, call: CallState, event: str, now: str, value: Json = None) -> None:
        """Move a Call or an element to a final stage, and on with what waited for it."""
        if not self._states.move(call, event):
            raise EngineError(f"call {call.node.key} is {call.stage}: it cannot be {event}")
        self._release(call, now, value)

    def _release(self, call: CallState, now: str, value: Json = None) -> None:
        """A Call has settled: assess or write what waited for it. The last element to settle reports its Call."""
        if call.parent is not None:
            call.parent.own_elements.settle(call.node.element or 0, call.stage, value, call.error)
            self._report_elements(call.parent, now)
            return
        call.resolved = None
        self._settled.append((call, now))
        if self._releases_waiters:
            return  # the loop below, further up the stack, takes it
        self._releases_waiters = True
        while self._settled:
            settled, date = self._settled.popleft()
            for rank in self._progress.release_waiters(settled.rank):
                waiter = self.calls[rank]
                if waiter.stage == "pending":
                    self._assess(waiter, date)
                elif waiter.stage == "applying":
                    self._write_when_possible(waiter)
        self._releases_waiters = False

    # -- how an outcome takes effect -------------------------------------------------

    def _apply_result(self, call: CallState, value: Json, now: str, chosen: int | None = None) -> None:
        """Place and check a result, then write it; ``chosen`` is the outcome that came with it."""
        try:
            outcome, writes = place_result(call.node, value, chosen)
            self._readiness.check_writes(call.node, writes)
        except CallError as error:
            self._apply_failure(call, error, now)
            return
        self._apply(call, outcome, writes, now)

    def _apply_literal_output(self, call: CallState, now: str) -> None:
        """Take the ``_output`` that the plan holds for a latent Call as its result."""
        if call.node.outcomes:
            self._apply_result(call, call.node.literal_output, now)
        else:
            self._settle(call, "written", now)

    def _apply_child_report(self, call: CallState, report: dict[str, Any], now: str) -> None:
        """Take what the instances of a batch child wrote."""
        call.value = report
        self.context.apply_child_report(report)
        status = status_of("completed", [item["status"] for item in report.values()])
        self._settle(call, _EVENT_OF_STATUS[status], now)

    def _apply_failure(self, call: CallState, error: CallError, now: str) -> None:
        """Write a failure to the error outcome, or end the Call or element where it has none, or fails again."""
        node = call.node
        if call.parent is not None:
            call.error = {"code": error.code, "message": error.message}
            self._settle(call, "failed", now)
            return
        is_first = call.error is None
        if is_first:
            call.error = error.to_json()
        if node.error is None or not is_first:
            call.values = ()
            self._settle(call, "failed", now)
            return
        self._apply(call, node.error, tuple((path, call.error) for path in node.outcomes[node.error]), now)

    def _apply(self, call: CallState, outcome: int, writes: Writes, now: str) -> None:
        call.resolved, call.outcome, call.values, call.date = None, outcome, tuple(v for _, v in writes), now
        self._write_when_possible(call)

    def _write_when_possible(self, call: CallState) -> None:
        """Write the result of a Call, unless it must wait for an earlier write."""
        node, rank, writes = call.node, call.rank, tuple(call.writes)
        self._await_earlier_writes(node, rank, writes)
        if self._progress.is_waiting(rank):
            return
        view = self.context.log.view_of(node.instance)
        for path, value in writes:
            conflict = view.find_conflict(path, node.method, value, rank)
            if conflict:
                self._apply_failure(call, conflict, call.date)
                return
        for path, value in writes:
            view.write(path, node.method, value, rank)
        self._settle(call, "written", call.date)

    def _await_earlier_writes(self, node: PlannedCall, rank: int, writes: Writes) -> None:
        """Register waits for the earlier writes that can still decide whether a result may be written.

        They are the writes above its paths and, except for ``set``, at them. Once those have settled, methods
        other than ``set`` wait for the writes below too, unless the value there takes a merge in any case.
        """
        writers, progress, is_set = self.prepared.graph.writers, self._progress, node.method == "set"
        for path, _ in writes:
            progress.await_earlier_writers(rank, writers.above(path, node.instance, itself=not is_set))
        if is_set or progress.is_waiting(rank):
            return
        for path, value in writes:
            merges = node.method in ("merge", "assign") and isinstance(value, dict)
            if not (merges and self._takes_merge(node, rank, path)):
                progress.await_earlier_writers(rank, writers.at_or_below(path, node.instance))

    def _takes_merge(self, node: PlannedCall, rank: int, path: Path) -> bool:
        """True when the value at ``path``, as far as its writers have settled, can be merged into."""
        return self.context.log.view_of(node.instance).type_at(path, rank) in ("object", "nothing", "null")

    # -- what is ready -----------------------------------------------------------------

    def _commands(self, now: str) -> list[Command]:
        """What the shell is to do: ask humans, start Calls in plan order, end the plan."""
        self._start_ready(now)
        out, self._out = self._out, []
        if not self._states.unsettled and not self._has_finished and not self.growing:
            self._has_finished = True
            out.append(Finish(self.status))
        return out

    def _add_ready(self, call: CallState) -> None:
        """A Call is ready, or the next of its elements."""
        elements = call.elements if self._is_spread(call) else None
        if elements is None:
            heapq.heappush(self._ready, call.rank)
        elif elements.unstarted and call.rank not in self._ready_elements:
            self._ready_elements[call.rank] = elements
            heapq.heappush(self._ready, call.rank)

    def _take_first(self) -> None:
        self._ready_elements.pop(heapq.heappop(self._ready), None)

    def _clear_ready(self, *, but_elements: bool = False) -> None:
        """No Call starts any more; ``but_elements``: those of a Call that has started do."""
        rest = [rank for rank in sorted(self._ready) if but_elements and self.calls[rank].stage == "collecting"]
        self._ready_elements = {rank: own for rank, own in self._ready_elements.items() if rank in rest}
        self._ready = rest

    def _start_ready(self, now: str) -> None:
        """Start what may start now."""
        while self._ready and not self.holds_starts:
            call = self.calls[self._ready[0]]
            if call.stage == "collecting":
                node = self._find_next_element(call, now)
                if node is not None and not self._has_room(node):
                    break
                self._take_first()
                if node is not None:
                    self._start_next_element(call)
                self._add_ready(call)
            elif self._is_spread(call):
                self._take_first()
                self._spread(call, now)
            elif self._has_room(call.node):
                self._take_first()
                self._start(call)
            else:
                break

    def _has_room(self, node: PlannedCall) -> bool:
        """True when a Call or element may start beside those that run: it has its place then."""
        return self.running < self.prepared.max_parallel if self.may_start is None else self.may_start(node)

    def _is_spread(self, call: CallState) -> bool:
        """True for a Call that is started element by element."""
        return call.node.is_each and self._assume is None

    def _start(self, call: CallState) -> None:
        self._states.move(call, "started")
        # A dry run starts nothing, and keeps all
        context = self.context.scoped_messages(call.rank) if self._assume is None else []
        self._out.append(StartCall(call.node, call.resolved or {}, context))

    # -- elements ------------------------------------------------------------------------

    def _spread(self, call: CallState, now: str) -> None:
        """A Call starts element by element from now on, if the budget need not be asked first."""
        self._states.move(call, "spread")
        call.resolved = None
        more = call.own_elements.unstarted - 1
        if self.counts_elements and more > 0:
            self._out.append(CountElements(call.node, more))
        else:
            self._add_ready(call)
            self._report_elements(call, now)

    def _find_next_element(self, call: CallState, now: str) -> PlannedCall | None:
        """The element of a Call that starts next; None when none does. Those that cannot start have failed then."""
        elements = call.own_elements
        while elements.next is None and elements.unstarted and call.stage == "collecting":
            node = call.node.element_node(elements.next_index)
            try:
                resolved = (elements.reading or self._read_again(call)).resolve(elements.next_index)
                self._readiness.require_parameters(node, resolved)
            except CallError as error:
                elements.start()
                own = self._states.add_element(call, node, "pending")
                self._states.move(own, "start_failed")
                self._apply_failure(own, error, now)
            else:
                elements.next = node, {**resolved, "_id": self.identify(node)}
        return None if elements.next is None else elements.next[0]

    def _start_next_element(self, call: CallState) -> None:
        elements = call.own_elements
        if elements.next is None or elements.reading is None:
            raise EngineError(f"no element of call {call.node.id} is ready")
        (node, resolved), elements.next = elements.next, None
        elements.start()
        self._states.move(self._states.add_element(call, node, "ready"), "started")
        self._out.append(StartCall(node, resolved, elements.reading.context))

    def _read_again(self, call: CallState) -> ElementReading:
        """Read what the elements are made of as it was when the first started, in a run that goes on with them."""
        elements = call.own_elements
        context = self.context.as_of(elements.provided)
        scoped = context.scoped_messages(call.rank)
        elements.reading, _ = read_elements(call.node, context.reader(call.rank), scoped, self.work)
        return elements.reading

    def _take_element_result(self, call: CallState, value: Json, now: str) -> None:
        """Take the result of an element that has reported."""
        try:
            if call.parent is not None:
                refuse_defects(call.parent.node, value, levels=1)
            self._readiness.require_result(call.node, value)
        except CallError as error:
            self._apply_failure(call, error, now)
            return
        self._settle(call, "written", now, value)

    def _report_elements(self, call: CallState, now: str) -> None:
        """Report a Call whose elements have all settled, or of which no more will start."""
        elements = call.own_elements
        if elements.running or (elements.unstarted and not self.cancelling) or call.stage != "collecting":
            return
        if call.node.is_detached and not elements.errors and not elements.unstarted:
            self._settle(call, "all_detached", now)
        else:
            self._states.move(call, "collected")
            if elements.unstarted or elements.cancelled:
                self._settle(call, "cancelled", now)
            elif elements.errors:
                self._apply_failure(call, elements.failure(), now)
            else:
                self._apply_result(call, elements.results, now)
        if call.stage != "cancelled":  # a run that resumes this one reads the results of its elements
            elements.release()

    # -- what can be seen of a walk ---------------------------------------------------------

    @property
    def running(self) -> int:
        """How many Calls and elements run."""
        return self._states.running

    @property
    def quiet(self) -> bool:
        """True when no Call runs: the moment for a snapshot."""
        return self._states.running == 0

    @property
    def holds_starts(self) -> bool:
        """True while nothing starts."""
        return self.paused or self.draining

    @property
    def startable(self) -> int:
        """How many Calls and elements are ready and could start now."""
        if self.holds_starts:
            return 0
        return len(self._ready) + sum(own.unstarted - 1 for own in self._ready_elements.values())

    @property
    def counts(self) -> dict[str, int]:
        """How many Calls are in each state."""
        return self._states.counts()

    @property
    def status(self) -> str:
        """How the plan ends, or would end now."""
        states: dict[str | None, list[str]] = {None: []}
        for call in self.calls:
            for id_ in call.node.members or (call.node.instance,):
                report = (call.value or {}).get(id_, {})
                states.setdefault(id_, []).append(report.get("status", call.state))
        shared, *parts = map(status_from_states, states.values())
        status = status_of(shared, parts)
        is_cancelled = self.cancelling and (status == "completed" or self.counts["cancelled"])
        return "cancelled" if is_cancelled else status

    def find(self, call: str | None, instance: str | None = None) -> CallState | None:
        """The Call of an id or a key and, where several have the id, an instance."""
        own = self.by_key.get(str(call))
        if own is None and instance is not None:
            own = self.by_key.get(f"{instance}/{call}")
        return own if own is not None and own.parent is None else None


# -- another plan in place of this one ------------------------------------------------------------------------


def match_calls(calls: Sequence[CallState], prepared: ValidatedPlan) -> dict[int, int]:
    """The Calls that a new plan leaves as they are: their rank in it, and in the walk with these ``calls``.

    What has started stays as it is.

    Raises:
        DecisionRefused: the new plan alters a Call that has started, or what one has read or writes onto.
    """
    old = {_listing(call.node): call for call in calls}
    same: dict[int, int] = {}
    new_writes = WriterIndex()
    problem = ""
    for rank, node in enumerate(prepared.nodes):
        call = old.get(_listing(node))
        if call is None or (call.node.planned, call.node.instance) != (node.planned, node.instance):
            new_writes.add(node, rank)
            continue
        same[rank] = call.rank
        touched = (*node.writes, *paths_read(node))
        if call.has_started and any(new_writes.has_writer(path, node.instance) for path in touched):
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
