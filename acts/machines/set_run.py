"""A run over a set: the machine of a ``Plan`` whose instances are the rows of a file.

It holds no rows. An activity surveys the file, then Batches walk its pages, a few at a time. Each reads its page
itself; its result says how many instances completed, how many failed, and which. So neither what this run holds nor the
history of each of its runs grows with the set.

Each Batch is started with its share of ``maxParallel``, and keeps it for its part of the tree. After
``batches_per_run`` Batches the run lets all end and continues as new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError, DecisionRefused
from acts.language.wire import (
    APPROVE,
    BUDGET_SPENT,
    CANCELLED,
    EDIT,
    PAUSE,
    PROVIDE,
    REJECT,
    RESUME,
)
from acts.machines.approval_effects import Note
from acts.machines.batch_limits import batches_at_once, batches_per_run
from acts.machines.events import (
    Begin,
    CancelRequested,
    ChildEnded,
    PauseRequested,
    Provided,
    ResumeRequested,
    SetActivityEnded,
    StartsHeld,
    StartsReleased,
)
from acts.machines.file_waits import FileWaits
from acts.machines.lost_batches import (
    CLOSE,
    LostBatch,
    close_page,
    find_lost,
    is_stopping,
    note_of,
    reports_of,
)
from acts.machines.page_input import page_input
from acts.machines.plan_run import asks_for_plan
from acts.machines.queue_watch import foreign_queues
from acts.machines.run_commands import Finish, SignalChildren, StartBatch
from acts.machines.run_machine import RunMachine
from acts.machines.set_opening import RESULTS, SURVEY, create_results, survey_set
from acts.machines.set_progress import SetProgress
from acts.tree.set_records import FileWait, SetPage

if TYPE_CHECKING:
    from collections.abc import Callable

    from acts.language.config import Config
    from acts.machines.approval_effects import Decided
    from acts.machines.budget import BudgetRefused, Granted
    from acts.machines.events import Event
    from acts.machines.set_setup import SetSetup
    from acts.tree.decisions import Decision
    from acts.tree.set_records import SetState
    from acts.tree.signal_records import TreeSignal


class SetRun(RunMachine):
    """``running`` are the pages of the Batches in flight, by the Batch's name, with those of lost Batches that are
    not closed yet. ``provided`` are messages as JSON. ``has_results``: its results file is there.
    """

    def __init__(self, own: str, setup: SetSetup, *, is_cron: bool = False) -> None:
        super().__init__(own, setup.position, lease=setup.lease)
        self.setup = setup
        self.price = setup.capabilities.price
        self.progress = SetProgress()
        self.is_approved = not asks_for_plan(setup.prepared)
        self.failure: CallError | None = None
        self.running: dict[str, SetPage] = {}
        self._lost: dict[str, LostBatch] = {}
        self.provided, self.has_results = list(setup.provided), False
        self._activity: str | None = None
        self._is_paused = self._is_held = False
        self._started, self._most = 0, batches_per_run(self.config.results, is_cron=is_cron)
        self._waits = FileWaits()
        self.notes += [p.text() for p in setup.prepared.warnings if p.code == "limitLowered"]

    # -- the run ------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The settings of the Request."""
        return self.setup.prepared.request.config

    @property
    def in_flight(self) -> int:
        """The Batches, the pages that are being closed, and the activity before them."""
        return len(self.running) + (self._activity is not None)

    @property
    def is_paused(self) -> bool:
        """True while no Batch starts."""
        return self._is_paused

    @property
    def can_continue_as_new(self) -> bool:
        """True when nothing is in flight."""
        return not self.in_flight

    @property
    def wants_new_run(self) -> bool:
        """True between Batches, after enough of them."""
        return self._started >= self._most and self.can_continue_as_new

    @property
    def phase(self) -> str:
        """``awaiting`` while the plan waits for a person, or all that runs does."""
        if self.finished is not None:
            return self.finished
        if self.is_cancelling:
            return "cancelled"
        if self._is_paused:
            return "paused"
        return "running" if self.is_approved else "awaiting"

    @property
    def foreign_queues(self) -> tuple[str, ...]:
        """The task queues of the plan's Tools."""
        return foreign_queues(node.tool for node in self.setup.prepared.nodes)

    @property
    def all_notes(self) -> list[str]:
        """Remarks, and which file is waited for."""
        return [*super().all_notes, *self._waits.notes()]

    def react(self, event: Event, now: str) -> list[Any]:
        """The effects of an event."""
        handler = _HANDLERS.get(type(event))
        return [] if handler is None else handler(self, event, now)

    def _begin(self, _event: Begin, now: str) -> list[Any]:
        if not self.is_approved:
            return list(self.approvals.open("plan", 1, self.config.approve, now))
        return self._open() if self.progress.survey is None else self._fill()

    def _open(self) -> list[Any]:
        """Survey the set; Batches follow."""
        self._activity = SURVEY
        return [survey_set(self)]

    def address(self) -> dict[str, Any]:
        """Whom an activity tells that it waits for a file."""
        return {"root": self.position.ancestors[0] if self.position.ancestors else self.own,
                "token": self.position.token}  # fmt: skip

    def _activity_ended(self, event: SetActivityEnded, _now: str) -> list[Any]:
        self._waits.forget(self.own)
        if event.key.startswith(CLOSE):
            return self._page_closed(event)
        self._activity = None
        if event.error is not None:
            return self._end_early(event.error)
        self.has_results = event.key == RESULTS
        if event.key == SURVEY:
            self.progress.begin(event.value)
            if self.config.results is not None:
                self._activity = RESULTS
                return [create_results(self, self.config.results)]
        return self._fill()

    # -- Batches --------------------------------------------------------------------------------

    @property
    def _batches(self) -> int:
        """How many Batches may be in flight."""
        return batches_at_once(self.permits.limit)

    def _fill(self) -> list[Any]:
        """Start as many Batches as may run now; the end when there are no more."""
        out: list[Any] = []
        while self._may_start():
            command = self._next_batch()
            if command is None:
                break
            out.append(command)
        return out + self._finish_if_done()

    def _may_start(self) -> bool:
        is_idle = self._is_paused or self._is_held or self.is_cancelling or self._activity is not None
        if is_idle or not self.progress.has_pages or self._started >= self._most:
            return False
        return len(self.running) < self._batches

    def _next_batch(self) -> StartBatch | None:
        page = self.progress.page
        if self._stops_for_calls(page):
            return None
        name, share = f"batch-{self.progress.cursor.page + 1}", max(1, self.permits.limit // self._batches)
        if not self.permits.reserve(name, share):
            return None
        self.running[name] = page
        self.progress.take_page()
        self._started += 1
        label = f"rows {page.row:,} to {page.row + page.rows - 1:,}"
        return StartBatch(name, label, page_input(self, name, page, share))

    def _stops_for_calls(self, page: SetPage) -> bool:
        """Count the Calls of a page; True where the budget does not allow so many."""
        calls = self.progress.rows_to_run(page) * len(self.setup.prepared.nodes)
        refusal = self.budget.calls_refusal(calls) if self.budget.limits_calls else None
        if refusal is None:
            self.budget.count_calls(calls)
            return False
        self.progress.stop(CallError(BUDGET_SPENT, refusal))
        return True

    def _batch_ended(self, event: ChildEnded, _now: str) -> list[Any]:
        page, report = self.running.get(event.key), event.report or {}
        if page is None:
            return []
        self._waits.forget_batch(event.key)
        if report.get("spent"):
            self.progress.stop(CallError(BUDGET_SPENT, str(report["spent"])))
        lost = find_lost(self, event, page)
        if lost is not None:
            self._lost[event.key] = lost
            return [close_page(self, lost), *self._fill()]
        del self.running[event.key]
        if "completed" in report:
            self.progress.add(report)
        if event.error is not None and is_stopping(event):
            self.progress.stop(event.error)
        return self._fill()

    def _page_closed(self, event: SetActivityEnded) -> list[Any]:
        """Count the rows of a lost Batch. What was cancelled with this run is done again: no line is written twice."""
        name, error = event.key.removeprefix(CLOSE), event.error
        lost = self._lost[name]
        if error is not None and error.code == CANCELLED:
            return [close_page(self, lost)]
        del self._lost[name], self.running[name]
        for report in reports_of(self, lost, None if error is not None else event.value):
            self.progress.add(report)
        if error is not None:
            self.progress.stop(error)
        elif lost.line is not None:
            self.note(note_of(self, lost))
        return self._fill()

    def _finish_if_done(self) -> list[Any]:
        progress = self.progress
        if self.in_flight or progress.survey is None or (progress.has_pages and not self.is_cancelling):
            return []
        self.finished = "cancelled" if self.is_cancelling else progress.status
        return [Finish(self.finished)]

    def _end_early(self, error: CallError) -> list[Any]:
        if self.is_cancelling:
            self.finished = "cancelled"
        else:
            self.failure, self.finished = error, "failed"
        return [Finish(self.finished)]

    # -- what comes from outside -----------------------------------------------------------------

    def _pause(self, _event: PauseRequested, _now: str) -> list[Any]:
        self._is_paused = True
        return [SignalChildren(PAUSE)]

    def _resume(self, _event: ResumeRequested, _now: str) -> list[Any]:
        self._is_paused = False
        return [SignalChildren(RESUME), *(self._fill() if self.progress.survey is not None else [])]

    def _hold(self, _event: StartsHeld, _now: str) -> list[Any]:
        self._is_held = True
        return []

    def _release(self, _event: StartsReleased, _now: str) -> list[Any]:
        """Go on; where the state did not fit another run, in this one."""
        self._is_held = False
        if self.wants_new_run:
            self._started = 0
        return self._fill() if self.progress.survey is not None else []

    def _cancel(self, _event: CancelRequested, _now: str) -> list[Any]:
        self.is_cancelling = True
        if self.progress.survey is not None:
            self.note(f"cancelled: {self.progress.text()}")
        if self.in_flight:
            return list(self.approvals.close_all())
        self.finished = "cancelled"
        return [*self.approvals.close_all(), Finish(self.finished)]

    def _provide(self, event: Provided, _now: str) -> list[Any]:
        """A Message joins the global data of the Batches: of those that run, and of those to come."""
        message = event.message
        if message.instance is not None:
            text = "a message for one row of a set is sent to the run that walks it"
            return [Note(f"a message was refused: {text}, {self.own}/batch-…/…")]
        self.provided.append(message.raw)
        return [SignalChildren(PROVIDE, message.raw, has_payload=True)]

    def on_record(self, record: TreeSignal, now: str) -> list[Any]:
        """A file is waited for, or is so no more."""
        if isinstance(record, FileWait):
            self._waits.record(record)
        return super().on_record(record, now)

    def on_history_full(self, error: CallError, now: str) -> list[Any]:
        """No more Batches; those that run end."""
        self.progress.stop(error)
        return [*self.approvals.close_all(), *self._finish_if_done()]

    # -- decisions ---------------------------------------------------------------------------------

    def check_decision(self, decision: Decision) -> None:
        """Raise DecisionRefused for an edit: the rows that ran would have had another plan."""
        if decision.decision == EDIT:
            raise DecisionRefused("the plan of a set cannot be edited: reject it, and start another run")

    def on_decided(self, effect: Decided, _now: str) -> list[Any]:
        """The plan begins, or ends without having begun."""
        if effect.decision.decision == APPROVE:
            self.is_approved = True
            return self._open()
        self.finished = "rejected" if effect.decision.decision == REJECT else "failed"
        return [Finish(self.finished)]

    def on_granted(self, effect: Granted, _now: str) -> list[Any]:
        """It makes no requests itself."""
        return list(self.budget.settle(effect.key, None))

    def on_refused(self, effect: BudgetRefused, now: str) -> list[Any]:
        """It makes no requests itself."""
        return []

    # -- carrying over ---------------------------------------------------------------------------

    def snapshot_fields(self) -> dict[str, Any]:
        """The fields of ``SetState`` that a set fills."""
        return {
            "request": self.setup.raw, "position": self.position, "capabilities": self.setup.capabilities,
            **self.progress.snapshot(), "provided": tuple(self.provided), "usage": self.usage.to_json(),
            "notes": tuple(self.notes), "isApproved": self.is_approved, "isPaused": self._is_paused,
            "resumed": self.setup.resumed,
        }  # fmt: skip

    def restore(self, state: SetState) -> None:
        """Take over what the run before carried over."""
        self.restore_common(state.approvals, state.budget)
        self.progress.restore(state)
        self.usage.add(state.usage)
        self.notes[:] = state.notes
        self.provided, self._is_paused = list(state.provided), state.isPaused
        self.is_approved = state.isApproved
        self.has_results = state.survey is not None and self.config.results is not None


_HANDLERS: Final[dict[type, Callable[[SetRun, Any, str], list[Any]]]] = {
    Begin: SetRun._begin,  # noqa: SLF001 - the table of this class
    SetActivityEnded: SetRun._activity_ended,  # noqa: SLF001
    ChildEnded: SetRun._batch_ended,  # noqa: SLF001
    Provided: SetRun._provide,  # noqa: SLF001
    PauseRequested: SetRun._pause,  # noqa: SLF001
    ResumeRequested: SetRun._resume,  # noqa: SLF001
    StartsHeld: SetRun._hold,  # noqa: SLF001
    StartsReleased: SetRun._release,  # noqa: SLF001
    CancelRequested: SetRun._cancel,  # noqa: SLF001
}
