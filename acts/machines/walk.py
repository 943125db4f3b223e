"""The plan as a state machine: events in, commands out, plain data in between.

Laws of this file: events enter a walk by its methods alone (a Call completed, a message was provided,
pause …), and each returns the commands for a shell to perform (start this Call, ask a human, the plan has
finished). Time comes with the events. What a walk does depends on its plan and its events, on nothing else.

Theory of operation. ``call_state`` has the stages of a Call and the table of events that move it. Serial
equivalence rests on two waits, both for prefixes of writer chains (see ``graph``, ``writer_progress``):

* a Call *starts* when every writer before it that overlaps one of its reads has settled;
* a result *takes effect* at once, unless a write before it could still decide whether it can be applied
  at all (``push`` onto what may become an object): then it waits for that write. A Call that reads the
  result waits for that write anyway.

When the waits of a Call end, ``readiness`` decides what becomes of it, and ``call_outcomes`` writes its
result. ``load`` is the one way to begin a walk, to continue it in another run (``snapshot``) and to change
its plan (``replanning``).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from acts.language.errors import CallError, DecisionRefused, EngineError
from acts.language.evaluation_work import EvaluationWork
from acts.language.wire import APPROVAL_TIMEOUT, CANCELLED, REJECTED
from acts.machines import early_end, elements, replanning, snapshot
from acts.machines.call_outcomes import (
    apply_child_report,
    apply_failure,
    apply_literal_output,
    apply_result,
    write_when_possible,
)
from acts.machines.call_state import CallState, CallStates
from acts.machines.commands import AskHuman, Command, PlanFinished
from acts.machines.elements import Elements
from acts.machines.readiness import assess_call
from acts.machines.ready_calls import ReadyCalls
from acts.machines.waiting_calls import WaitingCalls
from acts.machines.walk_context import WalkContext
from acts.machines.walk_view import WalkView
from acts.machines.writer_progress import WriterProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from acts.language.messages import Data
    from acts.language.values import Json
    from acts.machines.past_calls import PastCalls
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan


class Walk(WalkView):
    """One plan, being walked. Feed it events; perform the commands that they return.

    ``identify`` gives a Call the ``_id`` it is started with: stable, and different for every Call and element of
    every run. ``may_start`` is called for the next Call or element that could start; False holds it and those behind
    it until ``start_more`` (without one, ``maxParallel`` of the plan is the limit). ``nodes`` are the planned Calls
    and ``calls`` their states, by rank; ``rows`` has the row of each key: the rank of a Call, or a number beyond the
    ranks for an element. ``counts_elements`` makes the walk ask before a Call is made for all elements of a list.

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
        self.dry = assume is not None
        self.assume = assume or _refuse_to_assume
        self.paused = self.draining = self.cancelling = self.growing = self.exhausted = self.counts_elements = False
        self.past: PastCalls | None = None
        self.load(prepared, (), {})

    def load(self, prepared: ValidatedPlan, provided: Sequence[Data], states: Mapping[int, CallState]) -> None:
        """Take a plan, the messages provided so far, and the states of the Calls that have one. ``begin`` follows."""
        self.prepared = prepared
        self.nodes = prepared.nodes
        self.schemas = prepared.kind_schemas
        self.states = CallStates(self.nodes, states)
        self.calls, self.rows = self.states.by_rank, self.states.row_of_key
        self.ignored = self.states.ignored
        if self.past is not None:
            self.past.align(self.nodes)
        self.progress = WriterProgress(prepared.graph, self.calls)
        self.context = WalkContext(prepared, self.calls, provided)
        self.work = EvaluationWork()
        for rank, call in enumerate(self.calls):
            for index in call.elements.running if call.elements is not None else ():
                self.states.add_element(rank, self.nodes[rank].element_node(index), "running")
        self.ready = ReadyCalls(self)
        self.waiting = WaitingCalls((r, self.nodes[r]) for r, c in enumerate(self.calls) if c.stage == "awaiting_input")
        self._questions: list[AskHuman] = []
        self._settled: deque[tuple[int, str]] = deque()
        self._releases_waiters = self._has_finished = False

    # -- events ----------------------------------------------------------------

    def begin(self, now: str) -> list[Command]:
        """Start walking, after ``load`` or ``restore`` too."""
        for rank, call in enumerate(self.calls):
            if call.stage == "applying" and not self.progress.is_waiting(rank):
                write_when_possible(self, rank)
        for rank, call in enumerate(self.calls):
            if call.stage == "pending" and not self.progress.is_waiting(rank):
                self._assess(rank, now)
            elif call.stage == "collecting":
                self.ready.add(rank)
        return self._commands(now)

    def completed(self, row: int, value: Json, now: str, chosen: int | None = None) -> list[Command]:
        """A running Call or element returned ``value``; ``chosen`` is the outcome that a model chose for it."""
        if self.states.move(row, "reported"):
            if row < len(self.nodes):
                apply_result(self, row, value, now, chosen)
            else:
                elements.record_result(self, row, value, now)
        return self._commands(now)

    def failed(self, row: int, error: CallError, now: str) -> list[Command]:
        """A running Call or element failed; its retries are spent."""
        if self.states.move(row, "reported"):
            if row >= len(self.nodes):
                elements.record_failure(self, row, error, now)
            elif self.cancelling and error.code == CANCELLED:
                self.settle(row, "cancelled", now)
            else:
                apply_failure(self, row, error, now)
        return self._commands(now)

    def child_ended(self, rank: int, value: dict[str, Any], now: str) -> list[Command]:
        """A batch child ended; ``value`` is the report of each of its instances, by id."""
        if self.states.move(rank, "reported"):
            apply_child_report(self, rank, value, now)
        return self._commands(now)

    def postponed(self, row: int, now: str) -> list[Command]:
        """The shell has not started a Call or element, for want of room: it is ready again."""
        if self.states.move(row, "postponed"):
            if row >= len(self.nodes):
                elements.postpone(self, row)
            self.ready.add(self.states.rank(row))
        return self._commands(now)

    def detached(self, row: int, now: str) -> list[Command]:
        """A fire-and-forget Call or element has been started durably."""
        if self.states.move(row, "detached"):
            if row < len(self.nodes):
                self.release_waiters(row, now)
            else:
                elements.record_end(self, row, now)
        return self._commands(now)

    def allow_elements(self, rank: int, now: str, refusal: CallError | None = None) -> list[Command]:
        """A Call may be made for all elements of its list, or not: the answer to ``CountElements``."""
        if refusal is None and self.calls[rank].stage == "collecting":
            self.ready.add(rank)
        elif refusal is not None and self.states.move(rank, "collected"):
            apply_failure(self, rank, refusal, now)
        return self._commands(now)

    def decide(self, rank: int, decision: str, reason: str, now: str) -> list[Command]:
        """The decision about an awaiting Call: ``approve``, ``reject``, or ``fail`` (none came in time)."""
        if decision == "approve":
            if self.states.move(rank, "approved"):
                self.calls[rank].approved = True
                if rank in self.prepared.literal_outputs:
                    self.states.move(rank, "literal_used")
                    apply_literal_output(self, rank, now)
                else:
                    self.ready.add(rank)
        elif decision == "fail":
            if self.states.move(rank, "decision_overdue"):
                apply_failure(self, rank, CallError(APPROVAL_TIMEOUT, reason), now)
        elif self.states.move(rank, "rejected"):
            self.calls[rank].error = {"code": REJECTED, "message": reason}
            self.release_waiters(rank, now)
        return self._commands(now)

    def provide(self, message: Data, now: str) -> list[Command]:
        """A message arrived from outside. It precedes the plan; Calls that have started keep what they read.

        Raises:
            InvalidRequest: the message cannot be folded into the context.
        """
        self.context.provide(message, self.work)
        for rank in self.waiting.take_readers(message):
            if self.calls[rank].stage == "awaiting_input" and self.states.move(rank, "input_provided"):
                self._assess(rank, now)
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
        return self._commands(now) if self.ready.count else []

    def drain(self, now: str, *, on: bool) -> list[Command]:
        """Hold back new Calls (before a snapshot), or stop holding them back."""
        self.draining = on
        return self._commands(now)

    def drop_unstarted(self, error: dict[str, Any], now: str) -> list[Command]:
        """The plan ends with what has started: the rest is cancelled, with this error."""
        self.growing = False
        early_end.drop_unstarted(self, error, now)
        return self._commands(now)

    def cancel(self, now: str) -> list[Command]:
        """Start nothing more. The shell cancels what runs, and reports how it ended."""
        self.cancelling = True
        early_end.cancel_unstarted(self, now)
        return self._commands(now)

    def exhaust(self, error: CallError, now: str) -> list[Command]:
        """End here, because nothing more can be recorded: what has begun, or could begin, fails with this error.

        A result that waits for earlier writes is written, since those settle before it.
        """
        self.exhausted, self.growing = True, False
        early_end.exhaust(self, error, now)
        return self._commands(now)

    # -- another plan, another run -----------------------------------------------

    def add_calls(self, prepared: ValidatedPlan, now: str) -> list[Command]:
        """Walk a plan that has more Calls than this one, and is otherwise the same.

        Raises:
            DecisionRefused: it differs in more than that, or a new Call would change what a started one reads.
        """
        same = replanning.match_calls(self, prepared)
        if len(same) < len(self.nodes):
            raise DecisionRefused("calls can be added only to a plan that is otherwise unchanged")
        replanning.load_new_plan(self, prepared, same, edited=False)
        return self.begin(now)

    def changed_plan(self, prepared: ValidatedPlan, now: str) -> tuple[Walk, list[Command]]:
        """Walk an edited plan: what has started stays as it is, and each new Call needs an approval.

        Ranks are those of the new plan from then on. Calls that await a decision as before are asked about again.

        Raises:
            DecisionRefused: the edit touches a Call that has started, or what one has read.
        """
        replanning.load_new_plan(self, prepared, self.check_change(prepared), edited=True)
        return self, self.begin(now)

    def check_change(self, prepared: ValidatedPlan) -> dict[int, int]:
        """The Calls that an edited plan leaves as they are: their rank in it, and here. Raises as ``changed_plan``."""
        return replanning.match_calls(self, prepared)

    def anew(self, prepared: ValidatedPlan) -> Walk:
        """A walk of another plan that has not begun; what was provided is kept."""
        return replanning.walk_anew(self, prepared)

    def resume_from(self, past: PastCalls) -> None:
        """Take over what an earlier run had done. ``begin`` follows."""
        self.past = past
        past.align(self.nodes)

    def snapshot(self) -> dict[str, Any]:
        """The walk as JSON, while nothing runs: see ``take_snapshot``."""
        return snapshot.take_snapshot(self)

    def restore(self, data: Mapping[str, Any], parse: Callable[[Json], Data]) -> None:
        """Load a snapshot of the same plan. Call ``begin`` afterwards."""
        snapshot.restore_snapshot(self, data, parse)

    # -- starting and settling ---------------------------------------------------

    def _assess(self, rank: int, now: str) -> None:
        """Every Call that a pending one depends on has settled: check it and move it."""
        if self.cancelling:
            self.settle(rank, "cancelled", now)
            return
        if rank in self.prepared.undecided:
            return  # until the plan is complete
        call, assessment = self.calls[rank], assess_call(self, rank)
        if assessment.event == "skipped" or self.exhausted:
            call.reason = assessment.reason
            self.settle(rank, "skipped", now)
            return
        if assessment.call is not None and self.past is not None and self.past.take_call(self, rank, assessment, now):
            return
        self.states.move(rank, assessment.event)
        call.resolved, call.missing = assessment.call, assessment.missing
        if assessment.reading is not None:
            call.elements = Elements(len(assessment.reading.items), len(self.provided_data()), assessment.reading)
        if assessment.event == "input_missing":
            self.waiting.add(rank, self.nodes[rank])
        if assessment.event == "literal_used":
            apply_literal_output(self, rank, now)
        elif assessment.event == "nothing_to_start":
            apply_result(self, rank, [], now)
        elif assessment.error is not None:
            apply_failure(self, rank, assessment.error, now)
        elif call.stage == "ready":
            self.ready.add(rank)
        elif assessment.call is not None:
            self._questions.append(AskHuman(rank, self.nodes[rank], assessment.call, assessment.subject))

    def settle(self, rank: int, event: str, now: str) -> None:
        """Move a Call to a final stage, and on with what waited for it."""
        if not self.states.move(rank, event):
            raise EngineError(self.ignored[-1])
        self.release_waiters(rank, now)

    def release_waiters(self, rank: int, now: str) -> None:
        """A Call has settled: assess or write every Call whose last wait ends by it."""
        self.calls[rank].resolved = None
        self._settled.append((rank, now))
        if self._releases_waiters:
            return  # the loop below, further up the stack, takes it
        self._releases_waiters = True
        while self._settled:
            settled, date = self._settled.popleft()
            for waiter in self.progress.release_waiters(settled):
                if self.calls[waiter].stage == "pending":
                    self._assess(waiter, date)
                elif self.calls[waiter].stage == "applying":
                    write_when_possible(self, waiter)
        self._releases_waiters = False

    def _commands(self, now: str) -> list[Command]:
        """What the shell is to do: ask humans, start Calls in plan order, end the plan."""
        out = [*self._take_questions(), *self.ready.start(now), *self._take_questions()]
        if not self.states.unsettled and not self._has_finished and not self.growing:
            self._has_finished = True
            out.append(PlanFinished(self.status))
        return out

    def _take_questions(self) -> list[Command]:
        questions: list[Command] = list(self._questions)
        self._questions.clear()
        return questions

    def has_room(self, node: PlannedCall) -> bool:
        """True when a Call or element may start beside those that run: it has its place then."""
        return self.running < self.prepared.max_parallel if self.may_start is None else self.may_start(node)


def _refuse_to_assume(rank: int) -> bool:
    raise EngineError(f"the condition of call {rank} is not known, in a walk that is no dry run")
