"""The base of all runs: what every run of a tree does alike, whatever it walks.

A run is a machine: ``handle`` takes one event and returns the commands that follow. It holds the
machines that it is made of (approvals, budget, permits, and a walk or a loop), and applies their effects until
only commands for the driver are left. A record of another run counts only with the token of the tree; what it means is
decided by the machine that takes it. A message that this run sends is named by the key that its machine gave it
(``SendRecord.key``), whose first part says what it is: so that machine learns whether it arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from acts.language.config import Config, Usage
from acts.language.errors import CallError, DecisionRefused, PlanError, format_choices, truncate
from acts.language.messages import Data, Instruction, parse_message
from acts.language.tools import Tool
from acts.language.values import Json
from acts.language.wire import (
    APPROVE,
    EDIT,
    INTERRUPT,
    LIMIT_EXCEEDED,
    LOAD_DELEGATE,
    NOT_LOADED,
    PAUSE,
    PLAN,
    PROVIDE,
    RESUME,
    UNDO,
)
from acts.machines import commands, events
from acts.machines.approvals import Approvals, problem_of
from acts.machines.budget import BudgetMachine
from acts.machines.permits import PERMITS, Permits
from acts.plan.calls import PlannedCall
from acts.tree import child_requests
from acts.tree import signal_records as signals
from acts.tree.decisions import Decision, PendingApproval
from acts.tree.identity import child_id, part_identity
from acts.tree.past_run import UndoStep
from acts.tree.records import Capabilities, PermitLease, PlanInput, TreePosition
from acts.tree.wire_format import VersionedRecord

# Notes that a run keeps, and characters of each
MAX_NOTES: Final = 20
MAX_NOTE: Final = 300
# Runs that are kept, and those of them that are shown
_MAX_RUNS: Final = 100
_MAX_SHOWN: Final = 3
QUEUE_TIMER: Final = "ask which task queues have workers"
# Lines about Calls that workers without their Activity took; more of them would hide the other notes
_MAX_LINES: Final = 3
# Most runs are over by then, and cost no second check
FIRST_SECONDS: Final = 30.0
# A run that waits for weeks for a worker asks 24 times a day: 200 events, where a history may have 51,200
LAST_SECONDS: Final = 3600.0
RESYNC_TIMER: Final = "look after the runs below again after a reset"
# A run that is cancelled ends within a second; while its worker is away, within minutes. The last one is repeated: of a
# child that runs for long, too, the server may not report the end to a run that was reset
RESYNC_SECONDS: Final = (2.0, 20.0, 60.0, 300.0, 3_600.0, 86_400.0)
# A result that is on its way arrives within milliseconds, of a busy server within a second
GRACE_SECONDS: Final = 3.0
# The key of the message to the root that a run below has ended; what is behind it names the child to start again
ENDED: Final = "ended"
GONE: Final = "start again what is gone: "
# The key of the activity that loads a definition, before its name
_PIN: Final = "pin/"
NO_CAPABILITIES: Final = Capabilities()
_GUARDED: Final = "a person has approved what this run works with: it takes no message"
_RESERVED: Final = "something waits here for a signed decision: decide first, then send it again"
# What a run that is over still handles: other runs, and people, wait for an answer
_AFTER_THE_END: Final = (
    events.DecisionReceived, events.Provided, events.RecordReceived, events.RecordEnded, events.RunReset
)  # fmt: skip


def add_note(notes: list[str], text: str) -> None:
    notes.append(truncate(text, MAX_NOTE))
    del notes[:-MAX_NOTES]


class QueueWatch:
    """Which task queues of a run's Tools have no worker: shown to people, never failed, and asked again until it heals.

    A misspelt queue, or one whose workers are down, makes Calls wait forever without an error, since a backlog is
    no failure. So a run asks the server about the queues of its Tools other than its own: once when it starts, then
    while something is in flight, after ``FIRST_SECONDS`` and twice as long each time. Nothing is asked per Call.

    The children of a batch and the plan of a tick do not ask: the run that looked up their Tools does.
    """

    def __init__(self) -> None:
        self.queues: tuple[str, ...] = ()
        self._unserved: tuple[str, ...] = ()  # had no worker when the server was last asked
        self._queue_of: dict[str, str] = {}
        self._misses: dict[str, str] = {}
        self._seconds = FIRST_SECONDS
        self._last_check = ""
        self._has_timer = False

    @property
    def waiting_calls(self) -> set[str]:
        """The keys of Calls in a queue without a worker, and of those that workers without their Activity took."""
        return {key for key, queue in self._queue_of.items() if queue in self._unserved} | self._misses.keys()

    def begin(self) -> list[Any]:
        return [commands.CheckQueues(self.queues)] if self.queues and not self._last_check else []

    def record_check(self, has_workers: Mapping[str, bool], now: str) -> None:
        """The server's answer; a queue that it leaves out stays as it was."""
        before = self._unserved
        self._unserved = tuple(q for q in self.queues if not has_workers.get(q, q not in before))
        self._last_check = now
        if self._unserved != before:
            self._seconds = FIRST_SECONDS

    def record_start(self, key: str, queue: str | None) -> None:
        if queue is not None and queue in self.queues:
            self._queue_of[key] = queue

    def record_miss(self, key: str, note: str | None) -> None:
        """Workers without its Activity took a Call, and it waits for others; None: it does so no longer."""
        self._misses.pop(key, None)
        if note is not None:
            self._misses[key] = note

    def record_end(self, key: str) -> None:
        self._queue_of.pop(key, None)
        self._misses.pop(key, None)

    def flush(self, *, is_busy: bool) -> list[Any]:
        """While something is in flight, another check is due some time."""
        if not self.queues or self._has_timer or not is_busy:
            return []
        self._has_timer = True
        seconds, self._seconds = self._seconds, min(2 * self._seconds, LAST_SECONDS)
        return [commands.StartTimer(QUEUE_TIMER, seconds, QUEUE_TIMER)]

    def on_timer(self, *, is_busy: bool) -> list[Any]:
        """The time is up: ask, unless nothing is in flight that could wait."""
        self._has_timer = False
        return [commands.CheckQueues(self.queues)] if is_busy else []

    @property
    def notes(self) -> list[str]:
        """Lines for ``status`` and the page, while a queue has no worker, or none that has an Activity."""
        lines = list(dict.fromkeys(self._misses.values()))[:_MAX_LINES]
        if self._unserved:
            names = format_choices(f'"{queue}"' for queue in self._unserved)
            what = "the task queue" if len(self._unserved) == 1 else "the task queues"
            text = f"no worker polls {what} {names}: calls wait there until one does"
            lines.append(f"{text} (last asked at {self._last_check})")
        return lines


class ModelWaits:
    """Which runs wait for a model: this one, and at a root those below it, by their workflow ids.

    A hint for ``status`` and the page in the Web UI: nothing depends on it.
    """

    def __init__(self) -> None:
        self._by_run: dict[str, signals.ModelWait] = {}

    def record(self, wait: signals.ModelWait) -> None:
        self._by_run.pop(wait.workflowId, None)
        if wait.seconds > 0 and len(self._by_run) < _MAX_RUNS:
            self._by_run[wait.workflowId] = wait

    def record_end(self, event: events.Event, own: str) -> None:
        is_call = isinstance(event, events.CallEnded) and event.usage is not None
        if isinstance(event, events.ModelEnded) or is_call:
            self._by_run.pop(own, None)
        elif isinstance(event, events.ChildEnded):
            self._by_run = {run: wait for run, wait in self._by_run.items() if run == own or event.key not in run}

    def notes(self, own: str) -> list[str]:
        """A line for each wait, like ``waiting for the model: overloaded, next try in 40 s (12:40:07 UTC)``."""
        notes = []
        for run, wait in self._by_run.items():
            who = "" if run == own else f"{run.removeprefix(own + '/')}: "
            when = f"next try in {round(wait.seconds)} s ({wait.nextTry[11:19]} UTC), " if wait.nextTry else ""
            text = f"{who}waiting for the model: {wait.reason}, {when}{wait.model}"
            notes.append(truncate(text, MAX_NOTE))
        more = [f"{len(notes) - _MAX_SHOWN} more runs wait for the model"] if len(notes) > _MAX_SHOWN else []
        return [*notes[:_MAX_SHOWN], *more]


class ResetRecovery:
    """What a run does after it was reset: the runs below it may know more than it does, or may be gone.

    A reset gives a run the history up to a point, and of what came later only the signals to the run that the reset
    started from. If that was not the latest run, what the runs below said to the latest is lost, and the server has
    cancelled some of them: their results do not come again.

    So a run that was reset asks each run below it to say again what waits there and what it needs (``Resync``), and
    each passes that on. A child that cannot be reached has ended: after ``GRACE_SECONDS``, in which its result may
    still come, it is started again, and its Calls have the same ``_id``s. A run that is about to end still takes the
    message, and a child may be started late; so it is sent again after some time.

    It also says so to its parent, with the first run of its chain (``ChildReset``). A parent that has started another
    run of that workflow id since waits in vain, since the server has ended that one without a word: it starts the child
    again.

    ``children`` are those that run now: workflow ids by key, as the run keeps them.
    """

    def __init__(
        self, approvals: Approvals, budget: BudgetMachine, permits: Permits, children: dict[str, str]
    ) -> None:  # fmt: skip
        self._approvals, self._budget, self._permits, self._children = approvals, budget, permits, children
        self._former: dict[str, str] = {}  # the children from before the reset
        self.first_runs: dict[str, str] = {}  # of each child, by key
        self._early_resets: set[str] = set()  # workflow ids
        self._to_parent: list[commands.SendRecord] = []  # that this run was reset
        self._round = 0

    def on_child_started(self, event: events.ChildStarted, *, is_ending: bool) -> list[Any]:
        """A child has started. It may have ended before the server answered so: then it is asked.

        It was to start before a reset of this run, or an earlier run of its id was reset.
        """
        self.first_runs[event.key] = event.run_id
        is_in_doubt = event.is_of_before_reset or event.workflow_id in self._early_resets
        self._early_resets.discard(event.workflow_id)
        if not is_in_doubt or is_ending:
            return []
        self._former[event.key] = event.workflow_id
        self._round = 1
        timer = commands.StartTimer(RESYNC_TIMER, RESYNC_SECONDS[0], RESYNC_TIMER)
        ask = commands.SendRecord(event.workflow_id, signals.Resync(), key=f"resync/{event.key}")
        return [ask, commands.CancelTimer(RESYNC_TIMER), timer]

    def on_run_ended(self, record: signals.RunEnded) -> list[Any]:
        return self.forget_run(record.workflowId)

    def forget_run(self, workflow_id: str, key: str | None = None) -> list[Any]:
        """A run below ended without a last word: the root frees what it held. Then the child of ``key`` starts again.

        Not before, else the root forgets what the next run of this id has reported.
        """
        position = self._approvals.position
        if not position.is_root:
            message = commands.SendRecord(position.ancestors[0], signals.RunEnded(workflowId=workflow_id))
            return [message if key is None else replace(message, key=f"{ENDED}/{key}")]
        again = [] if key is None else [commands.RestartChild(key)]
        return [*self._approvals.forget(workflow_id), *self._budget.release(workflow_id), *again]

    def _replace_child(self, key: str) -> list[Any]:
        """A child is gone, and what it held with it."""
        workflow_id = self._children.pop(key)
        return [*self._permits.child_gone(workflow_id), *self.forget_run(workflow_id, key)]

    def on_child_reset(self, record: signals.ChildReset) -> list[Any]:
        """A run below was reset. If this run waits for another one of its id, that is gone."""
        keys = [key for key, id_ in self._children.items() if id_ == record.workflowId]
        if not keys:
            self._early_resets.add(record.workflowId)  # of one that is just being started, or of none
        replaced_keys = [key for key in keys if self.first_runs[key] != record.firstRunId]
        return [effect for key in replaced_keys for effect in self._replace_child(key)]

    def on_reset(self, first_run_id: str, *, is_ending: bool = False) -> list[Any]:
        """This run was reset. Also one that ``is_ending`` says so to its parent, which may wait for another run."""
        position, own = self._approvals.position, self._approvals.own
        record = signals.ChildReset(workflowId=own, firstRunId=first_run_id)
        self._to_parent = [] if position.parent is None else [commands.SendRecord(position.parent, record)]
        if is_ending:
            return self._to_parent
        self._permits.count_anew(self._children)
        self._former, self._round = dict(self._children), 0
        return [*self._to_parent, *self._say_again(), *self._ask()]

    def on_resync(self, _: signals.Resync) -> list[Any]:
        below = (commands.SendRecord(id_, signals.Resync()) for id_ in self._children.values())
        return [*self._say_again(), *self._to_parent, *below]

    def on_lost(self, key: str) -> list[Any]:
        return [commands.StartTimer(GONE + key, GRACE_SECONDS, GONE + key)] if self._is_kept(key) else []

    def on_timer(self, name: str) -> list[Any]:
        """A timer of this machine has fired: ``RESYNC_TIMER``, or one that begins with ``GONE``."""
        if name == RESYNC_TIMER:
            return self._ask()
        key = name.removeprefix(GONE)
        if not self._is_kept(key):
            return []
        del self._former[key]
        return self._replace_child(key)

    def _is_kept(self, key: str) -> bool:
        return key in self._former and self._former[key] == self._children.get(key)

    def _say_again(self) -> list[Any]:
        """What the root and the keeper of permits may not know of this run."""
        self._approvals.reports.restart()
        self._permits.ask_again()
        return self._budget.ask_again()

    def _ask(self) -> list[Any]:
        self._former = {key: id_ for key, id_ in self._former.items() if self._is_kept(key)}
        out: list[Any] = [
            commands.SendRecord(id_, signals.Resync(), key=f"resync/{key}") for key, id_ in self._former.items()
        ]
        if out:
            seconds = RESYNC_SECONDS[min(self._round, len(RESYNC_SECONDS) - 1)]
            out.append(commands.StartTimer(RESYNC_TIMER, seconds, RESYNC_TIMER))
            self._round += 1
        return out


class RunMachine:
    """``own`` is the run's workflow id. Subclasses handle the events of their own kind in ``react``.

    They set ``config``, the settings of the run's Request. While ``is_paused`` (by a person) or ``is_held`` (before
    the run continues as new) nothing starts.
    """

    config: Config
    raw: Mapping[str, Any] = {}
    known_tools: Mapping[str, Tool] = {}
    watched_tools: Iterable[Tool] = ()
    """The Tools that the run looked up itself, to be asked about their task queues; else the run above asks."""
    takes_words = False  # a planner of its own is shown them
    asks_about_messages = False
    """True for a run that asks people about a message that comes after they approved what it works with."""
    takes_back_starts = False
    """True for a run that can continue as new with starts that were postponed."""

    def __init__(
        self, own: str, position: TreePosition, lease: PermitLease | None = None,
        capabilities: Capabilities = NO_CAPABILITIES,
    ) -> None:  # fmt: skip
        if position.pins:
            capabilities = capabilities.model_copy(update={"pins": {**position.pins, **capabilities.pins}})
        self.own, self.position, self.capabilities = own, position, capabilities
        self.price = capabilities.price  # US dollars per token of the model's input and output
        self._unpinned: set[str] = set()  # delegates whose definitions are being loaded, to be pinned
        self.approvals = Approvals(own, position, self.check_decision)
        self.budget = BudgetMachine(own, position)
        self.usage = Usage()
        self.notes: list[str] = []
        self.queue_watch = QueueWatch()
        self.model_waits = ModelWaits()
        self.permits = Permits(own, position, lease)
        self.children: dict[str, str] = {}
        self.recovery = ResetRecovery(self.approvals, self.budget, self.permits, self.children)
        self.cancelled_reports: dict[str, dict[str, Any]] = {}  # by workflow id: what cancelled children had done
        self.finished: str | None = None
        self.failure: CallError | None = None
        self.is_cancelling = self.is_paused = self.is_held = False
        self.has_not_begun, self.is_continued = True, False
        self.undo_asked = False  # by a person
        self.has_room = True  # False: the history is full
        self.ends_with: str | None = None  # the status with which the run ends when it has undone what is to be undone
        self.undone: dict[str, Any] | None = None
        self._held_answers: list[commands.Granted | commands.BudgetRefused] = []  # while the run is paused
        self._takers: dict[type[signals.TreeSignal], Callable[[Any], Iterable[Any] | None]] = {
            signals.BudgetRequest: self.budget.serve,
            signals.BudgetReport: self.budget.serve,
            signals.BudgetGrant: self.budget.on_grant,
            signals.PermitRequest: self.permits.on_request,
            signals.PermitGrant: self.permits.on_grant,
            signals.PermitReturn: self.permits.on_return,
            signals.ModelWait: self.model_waits.record,
            signals.Resync: self.recovery.on_resync,
            signals.RunEnded: self.recovery.on_run_ended,
        }

    # -- for subclasses ---------------------------------------------------------------------

    @property
    def phase(self) -> str:
        """``planning``, ``awaiting``, ``running``, ``paused``, or how the run ended."""
        if self.is_undoing and not self.is_cancelling:
            return "awaiting" if self.approvals.waits.count_runs_below(self.children.values()) else "running"
        return self.finished or ("cancelled" if self.is_cancelling else self.live_phase)

    @property
    def live_phase(self) -> str:
        return "running"

    @property
    def can_continue_as_new(self) -> bool:
        """True at a moment at which the run's state is all there is."""
        return False

    @property
    def in_flight(self) -> int:
        """How many activities, children and requests the run waits for."""
        raise NotImplementedError

    @property
    def wants_new_run(self) -> bool:
        """True at a moment at which the run should continue as new, however short its history is."""
        return False

    @property
    def waiting_starts(self) -> int:
        """How many Calls and requests could start with another permit."""
        return 0 if self.is_paused else len(self.permits.waiting)

    def react(self, event: events.Event, now: str) -> list[Any]:
        raise NotImplementedError

    def check_decision(self, decision: Decision, wait: PendingApproval) -> Any:
        """Raise PlanError for a decision that cannot be carried out now; what is returned comes with ``Decided``."""

    def subject_of(self, wait: PendingApproval) -> Json:
        """What waits here, as JSON: its digest is the ``subject`` of the wait."""
        raise NotImplementedError

    def on_decided(self, effect: commands.Decided, now: str) -> list[Any]:
        return []

    def on_void(self, now: str) -> list[Any]:
        """This run was reset, and what approvers have signed is void: what has not started is asked about again."""
        return []

    def on_pinned(self, now: str) -> list[Any]:
        """The definitions that people are asked about are known: ask."""
        return []

    def on_granted(self, effect: commands.Granted, now: str) -> list[Any]:
        return []

    def on_refused(self, effect: commands.BudgetRefused, now: str) -> list[Any]:
        return []

    def on_child_started(self, event: events.ChildStarted) -> list[Any]:
        return []

    def on_record(self, record: signals.TreeSignal, now: str) -> list[Any]:
        return []

    def on_history_full(self, error: CallError, now: str) -> list[Any]:
        """End with what there is: nothing more can be recorded."""
        raise NotImplementedError

    def start_held_calls(self, now: str) -> list[Any]:
        return []

    def child_of_instance(self, instance: str) -> str:
        return instance

    def snapshot(self) -> VersionedRecord:
        """What the next run goes on from; only of a run that can continue as new."""
        raise NotImplementedError

    # -- events -----------------------------------------------------------------------------

    def handle(self, event: events.Event, now: str) -> list[commands.RunCommand]:
        if self.finished is not None and not isinstance(event, _AFTER_THE_END):
            return []
        self.permits.record_end(event)
        self.model_waits.record_end(event, self.own)
        if isinstance(event, events.CallEnded) and event.key.startswith(_PIN):
            effects = self._pin_loaded(event, now)
        elif isinstance(event, events.CallEnded):
            self.queue_watch.record_end(event.key)
            effects = self.react(event, now)
        else:
            effects = self._handle(event, now)
        match event:
            case events.Begin():
                self.has_not_begun = False
                effects += self.queue_watch.begin()
            case events.CancelRequested():
                effects += self.approvals.refuse_updates("the run was cancelled before the decision was judged")
                effects, self._held_answers = [*effects, *self._held_answers], []
                for end in self.permits.void_waiting():
                    effects += self._handle(end, now)
        out = self._apply(effects, now)
        if self.finished is None and not (self.is_cancelling or self.is_paused or self.has_not_begun):
            # What has its grant of the budget already comes first
            out += [*self.permits.admit_waiting(), *self._apply(self.start_held_calls(now), now)]
        return out

    def _handle(self, event: events.Event, now: str) -> list[Any]:  # noqa: C901, PLR0911, PLR0912 - a row for each event
        """The effects of an event, of one that all runs take alike or of one of their own."""
        match event:
            case events.DecisionReceived(raw, word, update):
                return self.approvals.decide(raw, word, now, update=update)
            case events.TimerFired(name):
                return self._timer_fired(name, now)
            case events.HistoryFull(reason):
                self.has_room = False
                if self.ends_with is not None:
                    return self.finish(self.ends_with)
                return self.on_history_full(CallError(LIMIT_EXCEEDED, reason), now)
            case events.ChildStarted(key, workflow_id):
                self.children[key] = workflow_id
                requests = self.recovery.on_child_started(event, is_ending=self.is_cancelling)
                return [*requests, *self.on_child_started(event)]
            case events.ChildEnded():
                return self._child_ended(event, now)
            case events.QueuesChecked(has_workers):
                self.queue_watch.record_check(has_workers, now)
                return []
            case events.RunReset(first_run_id, lineage):
                is_ending = self.is_cancelling or self.finished is not None
                voided = self.on_void(now) if self.approvals.void(lineage) and not is_ending else []
                return [*voided, *self.recovery.on_reset(first_run_id, is_ending=is_ending)]
            case events.Provided():
                return self._take_message(event, now)
            case events.PauseChanged(is_paused, is_told=False) if self._is_reserved:
                return [commands.Note(f"{PAUSE if is_paused else RESUME} was refused: {_RESERVED}")]
            case events.RecordReceived(record):
                return self._record_received(record, now)
            case events.RecordEnded(key, failure):
                return self._record_ended(key, failure)
            case events.PauseChanged(is_paused):
                return [*self._pause(is_paused=is_paused), *self.react(event, now)]
            case events.HoldChanged(is_held):
                self.is_held = is_held
        return self.react(event, now)

    @property
    def _is_reserved(self) -> bool:
        """True while something waits that only approvers decide about."""
        return bool(self.position.approvers and self.approvals.waits.open.by_key)

    def check_provided(self, message: Data | Instruction) -> None:
        """Raise what refuses a message now; nothing changes. Raises InvalidRequest, DecisionRefused: the run cannot
        take it, and why.
        """
        if isinstance(message, Instruction) and not self.takes_words:
            raise DecisionRefused("words are for an agent, and this run has no planner: provide data, input or state")
        if self._is_reserved:
            raise DecisionRefused(_RESERVED)
        if self.position.isGuarded and not self.asks_about_messages:
            raise DecisionRefused(_GUARDED)

    def _take_message(self, event: events.Provided, now: str) -> list[Any]:
        problem, out = None, list[Any]()
        try:
            if self.finished is not None:
                raise DecisionRefused("the run has ended, and takes no message")
            if not event.is_told:
                self.check_provided(event.message)
            out = self.react(event, now)
        except (PlanError, CallError) as error:
            problem = problem_of(error)
        if event.update is not None:
            return [*out, commands.AnswerUpdate(event.update, problem)]
        return out if problem is None else [*out, commands.Note(f"a message was refused: {problem.message}")]

    def _pause(self, *, is_paused: bool) -> list[Any]:
        """Nothing starts from now on, or starts may go on; a person's word is for the children, too."""
        self.is_paused = is_paused
        answers: list[Any] = []
        if not is_paused:
            answers, self._held_answers = self._held_answers, []
        return [commands.SignalChildren(PAUSE if is_paused else RESUME, is_told=True), *answers]

    def flush(self, now: str) -> list[commands.RunCommand]:
        """What other runs should hear of after this task: reports of approvals and of the budget, and permits."""
        effects = [*self.approvals.flush(), *self.budget.flush()]
        if self.finished is None and not self.is_cancelling:
            effects += self.queue_watch.flush(is_busy=self.in_flight > 0)
            effects += self.permits.flush(self.waiting_starts)
        return self._apply(effects, now)

    def flush_at_end(self, now: str) -> list[commands.RunCommand]:
        """At the end: what waited here is closed. What requests cost stands in the result; a cancelled run has none."""
        return self.flush(now) if self.is_cancelling else self._apply(self.approvals.flush(), now)

    def report_cancelled(self, report: dict[str, Any]) -> commands.SendRecord:
        record = signals.CancelledReport(workflowId=self.own, report=report)
        return self._signed(commands.SendRecord(self.position.ancestors[-1], record))

    def _apply(self, effects: Iterable[Any], now: str) -> list[commands.RunCommand]:
        """Apply the effects that are for this run; the rest are commands."""
        out: list[commands.RunCommand] = []
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            match effect:
                case commands.Decided():
                    own = self.on_decided(effect, now)
                case commands.Granted() | commands.BudgetRefused():
                    own = self._budget_answered(effect, now)
                case commands.Note(text):
                    self.note(text)
                    continue
                case _:
                    signed = self._signed(effect) if isinstance(effect, commands.SendRecord) else effect
                    command = self.permits.admit(signed)
                    out += [] if command is None else [command]
                    continue
            queue.extendleft(reversed(own))
        return out

    def _signed(self, effect: commands.SendRecord) -> commands.SendRecord:
        """A message with the token of the tree, which its receiver asks for."""
        return replace(effect, record=effect.record.model_copy(update={"token": self.position.token}))

    def finish(self, status: str) -> list[Any]:
        """The run has ended with this status, and nothing waits any more. First a child undoes what is to be undone."""
        closed = self.approvals.close_all()
        may_undo = self.has_room and not self.is_cancelling and self.ends_with is None
        steps = self.steps_due(status) if may_undo else []
        if steps:
            self.ends_with = status
            paused = [commands.SignalChildren(PAUSE, is_told=True)] if self.is_paused else []
            return [*closed, self._start_undo(steps), *paused]
        self.finished = status
        return [*closed, commands.Finish(status)]

    # -- undoing ----------------------------------------------------------------------------------------

    def undo_steps(self) -> list[UndoStep]:
        """What undoes what has completed, in the order in which it is undone."""
        return []

    def steps_due(self, status: str) -> list[UndoStep]:
        """What is undone before the run ends with this status."""
        return []

    def undo_request(self, steps: Iterable[UndoStep]) -> dict[str, Any]:
        return child_requests.undo_request(self.own, steps, self.known_tools, self.raw.get("config") or {})

    def _start_undo(self, steps: list[UndoStep]) -> commands.StartChild:
        """A child undoes, one Call after another; people are asked about its Calls by the rules of this run."""
        self.note(f"undoing {len(steps):,} calls: {child_id(self.own, UNDO)}")
        config, identity = self.raw.get("config") or {}, part_identity(self.position.identity, UNDO)
        own = PlanInput(
            request=self.undo_request(steps), position=self.position.child(self.own, identity=identity), part=True,
            undoes=True,
            capabilities=self.capabilities.model_copy(update={"tools": {}}),
            approve=child_requests.with_answers(config, self.known_tools),
        )  # fmt: skip
        return commands.StartChild(PLAN, UNDO, f"undo {len(steps):,} calls", own)

    def _undo_ended(self, event: events.ChildEnded, workflow_id: str | None) -> list[Any]:
        """``undone`` says what came of it. Where the run was cancelled meanwhile, what is left stays as it is."""
        report, id_ = event.report or {}, workflow_id or child_id(self.own, UNDO)
        self.approvals.records += [{**record, "below": UNDO} for record in report.get("decisions") or ()]
        errors = list(report.get("errors") or ())
        if event.error is not None:
            errors.append({"call": None, "code": event.error.code, "message": event.error.message})
        calls = [call["state"] for call in report.get("calls") or ()]
        status = report.get("status", "cancelled" if self.is_cancelling else "failed")
        self.undone = {"workflowId": id_, "status": status, "calls": calls.count("completed"), "errors": errors}
        self.note(self.undone_text)
        return [] if self.is_cancelling or self.ends_with is None else self.finish(self.ends_with)

    @property
    def is_undoing(self) -> bool:
        return self.ends_with is not None and self.finished is None

    @property
    def undone_text(self) -> str:
        """What was undone, in a line; "" of a run that undid nothing."""
        if self.undone is None:
            return ""
        count, errors, id_ = self.undone["calls"], len(self.undone["errors"]), self.undone["workflowId"]
        return f"undone: {count:,} calls" + (f", and {errors:,} not" if errors else "") + f" ({id_})"

    def note(self, text: str, *, once: bool = False) -> None:
        if not once or truncate(text, MAX_NOTE) not in self.notes:
            add_note(self.notes, text)

    # -- definitions that people approve ------------------------------------------------------------

    def load_pins(self, nodes: Iterable[PlannedCall], *, anew: bool = False) -> list[commands.StartEngineActivity]:
        """Load the definitions of these Calls that no digest pins yet, or all ``anew``; until then nobody approves."""
        names = dict.fromkeys(node.delegate for node in nodes if node.delegate and node.delegate not in NOT_LOADED)
        pins = {} if anew else self.capabilities.pins
        missing = [name for name in names if name not in pins and name not in self._unpinned]
        self._unpinned.update(missing)
        return [
            commands.StartEngineActivity(
                f"{_PIN}{name}", LOAD_DELEGATE, {"delegate": name, "uses": True}, f"load {name}"
            )
            for name in missing
        ]

    def _pin_loaded(self, event: events.CallEnded, now: str) -> list[Any]:
        """A Call of a definition that could not be loaded fails: no content has the digest of nothing."""
        name = event.key.removeprefix(_PIN)
        if event.error is not None:
            self.note(f"the delegate {name} cannot be loaded: {event.error.message}")
        loaded, capabilities = event.value if event.error is None else {"sha256": ""}, self.capabilities
        changes = {
            "pins": {**capabilities.pins, name: loaded["sha256"]},
            "uses": {**capabilities.uses, name: loaded.get("uses", {})},
        }
        self.capabilities = capabilities.model_copy(update=changes)
        self._unpinned.discard(name)
        return [] if self._unpinned or self.is_cancelling else self.on_pinned(now)

    def check_open(self, decision: Decision) -> None:
        """Raise DecisionRefused for the approval of what is not known yet, and for an edit in no name where some rule
        wants another person to approve: an edit may come as one about any wait of the run.
        """
        is_nameless = decision.decision == EDIT and not (decision.by or "").strip()
        if is_nameless and any(rule.selfApproval is False for rule in self.config.approve.all_rules):
            raise DecisionRefused('no name is given, and whoever edits does not approve here (selfApproval): say "by"')
        if self._unpinned and decision.decision == APPROVE:
            text = (
                f"the definition of {format_choices(sorted(self._unpinned))} is being loaded: look again, then decide"
            )
            raise DecisionRefused(text)

    # -- what all runs do alike ---------------------------------------------------------------

    @property
    def all_notes(self) -> list[str]:
        return [*self.notes, *self.queue_watch.notes, *self.model_waits.notes(self.own)]

    def _timer_fired(self, name: str, now: str) -> list[Any]:
        if name == RESYNC_TIMER or name.startswith(GONE):
            return self.recovery.on_timer(name)
        if name == QUEUE_TIMER:
            return self.queue_watch.on_timer(is_busy=self.in_flight > 0)
        return self.approvals.on_timer(name, now)

    def _child_ended(self, event: events.ChildEnded, now: str) -> list[Any]:
        """Take what a child says beside its result, then its result."""
        workflow_id = self.children.pop(event.key, None)
        self.recovery.first_runs.pop(event.key, None)
        out: list[Any] = [] if event.accounting is None else self.budget.take(event.accounting.settled)
        out += self.permits.child_ended(event.key, workflow_id, event.accounting, is_ending=self.is_cancelling)
        if workflow_id is not None and event.report is None and workflow_id in self.cancelled_reports:
            event = replace(event, report=self.cancelled_reports.pop(workflow_id))
        self.usage.add((event.report or {}).get("usage"))
        if workflow_id is not None and event.accounting is None and not self.is_cancelling:
            out += self.recovery.forget_run(workflow_id)
        elif workflow_id is not None and self.position.is_root:
            out += self.approvals.forget(workflow_id)
        return [*out, *(self._undo_ended(event, workflow_id) if event.key == UNDO else self.react(event, now))]

    def _budget_answered(self, effect: commands.Granted | commands.BudgetRefused, now: str) -> list[Any]:
        """What the budget allows starts, and what it refuses fails; a grant goes back when the run is over.

        A paused run holds both: a delegate may start in spite of a refusal.
        """
        if self.finished is not None or self.is_cancelling:
            return self.budget.settle(effect.key, None) if isinstance(effect, commands.Granted) else []
        if self.is_paused:
            self._held_answers.append(effect)
            return []
        return self.on_granted(effect, now) if isinstance(effect, commands.Granted) else self.on_refused(effect, now)

    # -- messages between runs --------------------------------------------------------------------

    def _record_received(self, record: signals.TreeSignal, now: str) -> list[Any]:  # noqa: PLR0911 - a row for each
        """Another run of the tree sent a record. It counts only with the token of the tree."""
        if record.token != self.position.token:
            return [commands.Note(f"a {type(record).__name__} was ignored: it does not come from a run of this tree")]
        if (take := self._takers.get(type(record))) is not None:
            return list(take(record) or ())
        match record:
            case signals.PendingChanged(ancestors=ancestors, workflowId=id_):
                # The word that the child on the way has started may come later
                top, below = (*ancestors, id_, "")[:2]
                is_child = below in self.children.values() or below.startswith(f"{self.own}/")
                is_below = self.position.is_root and top == self.own and is_child
                return self.approvals.on_pending_changed(record, now) if is_below else []
            case signals.Told(word=word, message=message):
                return self._receive(word, message, now)
            case signals.ForwardedDecision():
                return self.approvals.on_forwarded(record, now)
            case signals.DecisionAnswer():
                return self.approvals.on_answer(record, now)
            case signals.ChildReset():
                return [] if self.finished else self.recovery.on_child_reset(record)
            case signals.Superseded(runId=run_id):
                is_ours = record.is_about(self.position.parent, self.position.startedAt)
                return [commands.Stop(run_id)] if is_ours else []
            case signals.CancelledReport(workflowId=id_, report=report):
                self.cancelled_reports[id_] = report
                return []
        return self.on_record(record, now)

    def _receive(self, word: str, message: Any, now: str) -> list[Any]:
        if word == INTERRUPT:
            return self.react(events.Interrupted(str(message)), now)
        if word != PROVIDE:
            return self._handle(events.PauseChanged(word == PAUSE, is_told=True), now)
        data = parse_message(message)
        return self._handle(events.Provided(data, is_told=True), now) if isinstance(data, Data) else []

    def _record_ended(self, key: str, failure: str | None) -> list[Any]:
        """A record that this run sent has arrived, or is lost: the machine that sent it learns of it by its key.

        When this run is over, only the loss of what it holds for others matters.
        """
        kind, _, rest = key.partition("/")
        if kind == ENDED:
            return [commands.RestartChild(rest)]
        if kind == "report":
            self.budget.is_reporting = False
        elif failure is None and kind == "pending":
            self.approvals.reports.confirm()
        if failure is None:
            return []
        if key.startswith(PERMITS):
            self.permits.on_lost(key)
        match kind:
            case "decision":
                return self.approvals.undeliverable(rest)
            case "resync":
                return self.recovery.on_lost(rest)
            case "grant":
                return self.budget.release(rest)
            case "pending":
                return self.approvals.report_lost(failure, is_over=self.finished is not None)
            case "budget" if self.finished is None:
                return self.budget.root_is_gone(int(rest))
        return []

    def common_snapshot(self) -> dict[str, Any]:
        lease = self.permits.lease_of_next_run()
        return {"approvals": self.approvals.snapshot(), "budget": self.budget.snapshot(), "lease": lease}

    def restore_common(self, approvals: Mapping[str, Any], budget: Mapping[str, Any]) -> None:
        self.is_continued = True
        self.approvals.restore(approvals)
        self.budget.restore(budget)
