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

import heapq
from collections import deque
from typing import TYPE_CHECKING, Any

from acts.language.errors import CallError, DecisionRefused, EngineError
from acts.language.references import conjunction
from acts.language.wire import APPROVAL_TIMEOUT, CANCELLED, REJECTED
from acts.machines import replanning, snapshot
from acts.machines.call_outcomes import (
    apply_child_report,
    apply_failure,
    apply_literal_output,
    apply_result,
    write_when_possible,
)
from acts.machines.call_state import NOT_STARTED, SETTLED, CallState, CallStates
from acts.machines.commands import AskHuman, Command, PlanFinished, StartCall
from acts.machines.instance_results import status_of_plan
from acts.machines.readiness import assess_call, scoped_messages
from acts.machines.walk_context import WalkContext
from acts.machines.writer_progress import WriterProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from acts.language.messages import Data
    from acts.language.references import Expression, Path
    from acts.language.values import Json
    from acts.plan.context_log import Log
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan


class Walk:
    """One plan, being walked. Feed it events; perform the commands that they return.

    ``identify`` gives a Call the ``_id`` it is started with: stable, and different for every Call of every
    run. ``dry`` makes it a dry run, in which results may be ``UNKNOWN`` and no human is asked. ``may_start`` is
    called for the next Call that could start; False holds it and those behind it until ``start_more`` (without
    one, ``maxParallel`` of the plan is the limit). ``nodes`` are the planned Calls and ``calls`` their states, by
    rank; ``ranks`` has the rank of each key.
    """

    def __init__(
        self, prepared: ValidatedPlan, identify: Callable[[PlannedCall], str],
        may_start: Callable[[PlannedCall], bool] | None = None, *, dry: bool = False,
    ) -> None:  # fmt: skip
        self.identify = identify
        self.may_start = may_start
        self.dry = dry
        self.paused = self.draining = self.cancelling = self.growing = self.exhausted = False
        self.load(prepared, (), {})

    def load(self, prepared: ValidatedPlan, provided: Sequence[Data], states: Mapping[int, CallState]) -> None:
        """Take a plan, the messages provided so far, and the states of the Calls that have one. ``begin`` follows."""
        self.prepared = prepared
        self.nodes = prepared.nodes
        self.ranks = {node.key: rank for rank, node in enumerate(self.nodes)}
        self.schemas = prepared.kind_schemas
        self._states = CallStates(self.nodes, states)
        self.calls = self._states.by_rank
        self.ignored = self._states.ignored
        self.progress = WriterProgress(prepared.graph, self.calls)
        self.context = WalkContext(prepared, self.calls, provided)
        self._startable: list[int] = []
        self._questions: list[AskHuman] = []
        self._settled: deque[tuple[int, str]] = deque()
        self._releases_waiters = False
        self._has_finished = False

    # -- events ----------------------------------------------------------------

    def begin(self, now: str) -> list[Command]:
        """Start walking, after ``load`` or ``restore`` too."""
        for rank, call in enumerate(self.calls):
            if call.stage == "applying" and not self.progress.is_waiting(rank):
                write_when_possible(self, rank)
        for rank, call in enumerate(self.calls):
            if call.stage == "pending" and not self.progress.is_waiting(rank):
                self._assess(rank, now)
        return self._commands()

    def completed(self, rank: int, value: Json, now: str, chosen: int | None = None) -> list[Command]:
        """A running Call returned ``value``; ``chosen`` is the outcome that a model chose for it."""
        if self._states.move(rank, "reported"):
            apply_result(self, rank, value, now, chosen)
        return self._commands()

    def failed(self, rank: int, error: CallError, now: str) -> list[Command]:
        """A running Call failed; its retries are spent."""
        if self._states.move(rank, "reported"):
            if self.cancelling and error.code == CANCELLED:
                self.settle(rank, "cancelled", now)
            else:
                apply_failure(self, rank, error, now)
        return self._commands()

    def child_ended(self, rank: int, value: dict[str, Any], now: str) -> list[Command]:
        """A batch child ended; ``value`` is the report of each of its instances, by id."""
        if self._states.move(rank, "reported"):
            apply_child_report(self, rank, value, now)
        return self._commands()

    def postponed(self, rank: int) -> list[Command]:
        """The shell has not started a Call, for want of room: it is ready again."""
        if self._states.move(rank, "postponed"):
            heapq.heappush(self._startable, rank)
        return self._commands()

    def detached(self, rank: int, now: str) -> list[Command]:
        """A fire-and-forget Call has been started durably."""
        if self._states.move(rank, "detached"):
            self._release_waiters(rank, now)
        return self._commands()

    def decide(self, rank: int, decision: str, reason: str, now: str) -> list[Command]:
        """The decision about an awaiting Call: ``approve``, ``reject``, or ``fail`` (none came in time)."""
        if decision == "approve":
            if self._states.move(rank, "approved"):
                self.calls[rank].approved = True
                if rank in self.prepared.literal_outputs:
                    self._states.move(rank, "literal_used")
                    apply_literal_output(self, rank, now)
                else:
                    heapq.heappush(self._startable, rank)
        elif decision == "fail":
            if self._states.move(rank, "decision_overdue"):
                apply_failure(self, rank, CallError(APPROVAL_TIMEOUT, reason), now)
        elif self._states.move(rank, "rejected"):
            self.calls[rank].error = {"code": REJECTED, "message": reason}
            self._release_waiters(rank, now)
        return self._commands()

    def provide(self, message: Data, now: str) -> list[Command]:
        """A message arrived from outside. It precedes the plan; Calls that have started keep what they read.

        Raises:
            InvalidRequest: the message cannot be folded into the context.
        """
        self.context.provide(message)
        for rank, call in enumerate(self.calls):
            if call.stage == "awaiting_input" and self._states.move(rank, "input_provided"):
                self._assess(rank, now)
        return self._commands()

    def pause(self) -> list[Command]:
        """Start nothing more until ``resume``; what runs continues."""
        self.paused = True
        return []

    def resume(self) -> list[Command]:
        """Start Calls again."""
        self.paused = False
        return self._commands()

    def start_more(self) -> list[Command]:
        """Start what ``may_start`` held back."""
        return self._commands() if self._startable else []

    def drain(self, *, on: bool) -> list[Command]:
        """Hold back new Calls (before a snapshot), or stop holding them back."""
        self.draining = on
        return self._commands()

    def expect_calls(self, *, on: bool) -> list[Command]:
        """While on, the plan does not finish: Calls are still to be added."""
        self.growing = on
        return self._commands()

    def drop_unstarted(self, error: dict[str, Any], now: str) -> list[Command]:
        """The plan ends with what has started: the rest is cancelled, with this error."""
        self.growing = False
        for rank, call in enumerate(self.calls):
            if call.stage in NOT_STARTED:
                call.error = dict(error)
                self._states.move(rank, "cancelled")
        self._startable.clear()
        for rank, call in enumerate(self.calls):
            if call.stage == "cancelled" and call.error == error:
                self._release_waiters(rank, now)
        return self._commands()

    def cancel(self, now: str) -> list[Command]:
        """Start nothing more. The shell cancels what runs, and reports how it ended."""
        self.cancelling = True
        self._startable.clear()
        for rank, call in enumerate(self.calls):
            if call.stage in NOT_STARTED:
                self.settle(rank, "cancelled", now)
        return self._commands()

    def exhaust(self, error: CallError, now: str) -> list[Command]:
        """End here, because nothing more can be recorded: what has begun, or could begin, fails with this error.

        A result that waits for earlier writes is written, since those settle before it.
        """
        self.exhausted, self.growing = True, False
        self._startable.clear()
        for rank, call in enumerate(self.calls):
            if call.stage == "pending":
                self.settle(rank, "skipped", now)
            elif call.stage not in (*SETTLED, "applying"):
                call.error = error.to_json()
                self.settle(rank, "exhausted", now)
        return self._commands()

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
            self.settle(rank, "skipped", now)
            return
        self._states.move(rank, assessment.event)
        call.resolved, call.missing = assessment.call, assessment.missing
        if assessment.event == "literal_used":
            apply_literal_output(self, rank, now)
        elif assessment.error is not None:
            apply_failure(self, rank, assessment.error, now)
        elif call.stage == "ready":
            heapq.heappush(self._startable, rank)
        elif assessment.call is not None:
            self._questions.append(AskHuman(rank, self.nodes[rank], assessment.call, assessment.subject))

    def settle(self, rank: int, event: str, now: str) -> None:
        """Move a Call to a final stage, and on with what waited for it."""
        if not self._states.move(rank, event):
            raise EngineError(self.ignored[-1])
        self._release_waiters(rank, now)

    def _release_waiters(self, rank: int, now: str) -> None:
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

    def _commands(self) -> list[Command]:
        """What the shell is to do: ask humans, start Calls in plan order, end the plan."""
        out: list[Command] = list(self._questions)
        self._questions.clear()
        while self.startable and self._has_room(self.nodes[self._startable[0]]):
            rank = heapq.heappop(self._startable)
            self._states.move(rank, "started")
            out.append(StartCall(rank, self.nodes[rank], self.calls[rank].resolved or {}, scoped_messages(self, rank)))
        if not self._states.unsettled and not self._has_finished and not self.growing:
            self._has_finished = True
            out.append(PlanFinished(self.status))
        return out

    def _has_room(self, node: PlannedCall) -> bool:
        return self.running < self.prepared.max_parallel if self.may_start is None else self.may_start(node)

    # -- what can be seen ------------------------------------------------------

    @property
    def running(self) -> int:
        """How many Calls run."""
        return self._states.running

    @property
    def startable(self) -> int:
        """How many Calls are ready and could start now."""
        return 0 if self.paused or self.draining else len(self._startable)

    @property
    def open(self) -> int:
        """How many Calls have not settled."""
        return self._states.unsettled

    @property
    def counts(self) -> dict[str, int]:
        """How many Calls are in each state."""
        return self._states.counts()

    @property
    def quiet(self) -> bool:
        """True when no Call runs: the moment for a snapshot."""
        return self.running == 0

    @property
    def status(self) -> str:
        """How the plan ends, or would end now."""
        return status_of_plan(self)

    def find(self, call: str | None, instance: str | None) -> int | None:
        """The rank of a Call by its id and, where several have it, its instance."""
        rank = self.ranks.get(str(call))
        return rank if rank is not None or instance is None else self.ranks.get(f"{instance}/{call}")

    def awaits(self, call: str | None, instance: str | None = None) -> int | None:
        """The rank of a Call that awaits a decision or input, or None."""
        rank = self.find(call, instance)
        return rank if rank is not None and self.calls[rank].state == "awaiting" else None

    @property
    def log(self) -> Log:
        """The context: what precedes the plan, and what its Calls wrote."""
        return self.context.log

    @property
    def provided(self) -> list[dict[str, Any]]:
        """The messages that were provided, as JSON."""
        return [message.raw for message in self.context.provided]

    def provided_data(self) -> list[Data]:
        """The messages that were provided."""
        return self.context.provided

    def appended(self) -> list[dict[str, Any]]:
        """The messages that came after the Request's: provided ones, then outputs in plan order."""
        return self.context.appended()

    def path_written(self, rank: int) -> str | None:
        """The paths that a Call wrote, as one expression, or None."""
        return conjunction(path for path, _, _ in self.calls[rank].written) or None

    def read(self, rank: int, path: Path) -> Json:
        """The value at ``path`` as a Call sees it: as of its place in plan order."""
        return self.context.reader(rank)(path)

    def value(self, tree: Expression, instance: str | None = None) -> Json:
        """The value of an expression after everything that has been written."""
        return self.context.value(tree, instance)

    def state(self, instance: str | None = None) -> Json:
        """The view of the state kind: ``{}`` when there is none."""
        return self.context.state(instance)
