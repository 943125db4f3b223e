"""The one driver: what Temporal brings becomes events of one inbox, and the machine's commands are performed in order.

Activities, children, signals, updates and timers fill the inbox. The driver hands the events to the machine and
performs the commands that come back. It decides nothing but when the history is long enough (``Lifetime``), and how
much one workflow task starts (``TasksInFlight``).

A reset hands the new run the signals and updates of the old one again, mixed; a replay of that task has the signals
first. So updates always come after the signals of their workflow task. The SDK joins a task that commanded nothing with
the one after it, where that was reset; a replay does not. So the beginning of a run that goes on is a batch of its own.

Determinism: workflows run without the SDK's sandbox, whose time ``python -m benchmarks settings`` measures. By rule
there is no clock, randomness, I/O, thread, or iteration over sets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Final

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from acts.language.errors import CallError, truncate
from acts.language.wire import CANCELLED, ENGINE_ERROR, INSTANCE, PLAN, SEARCH_ATTRIBUTES, TIMEOUT
from acts.machines import commands, events
from acts.machines.approvals import MAX_CHANGES, iso
from acts.machines.lifetime import DRAIN_TIMER, HistorySize, Lifetime
from acts.machines.run_machine import RunMachine
from acts.plan.calls import UNIT
from acts.telemetry import metrics
from acts.tree import search_attributes as names
from acts.tree.decisions import PendingApproval, WaitKey
from acts.tree.signal_records import DecisionAnswer, ForwardedDecision, Told
from acts.views.run_events import WAIT_FACTS, WAITS_MEMO
from acts.views.run_views import RunView
from acts.workflows.children import ROOT, TAGS, Children, Lifeline, Outbox
from acts.workflows.engine_calls import ask_or_none
from acts.workflows.in_flight import TasksInFlight
from acts.workflows.payloads import TaskRoom, encode, encode_record, encode_state

# Any time will do: the server rounds it up to its own step, which is 1 ms in ours and a second by default
SLICE_PAUSE: Final = timedelta(milliseconds=1)
# What a run has to know before it begins
BEFORE_THE_BEGIN: Final = (events.RunReset, events.PauseChanged, events.Provided)
# What people and other programs can bring about by themselves
FROM_OUTSIDE: Final = (*BEFORE_THE_BEGIN[1:], events.DecisionReceived, events.RecordReceived)


class Driver:
    """One run. ``inbox`` is filled by the handlers too; ``answer`` takes the outcome of an update, by its id."""

    def __init__(
        self, run: RunMachine, view: RunView, inbox: deque[events.Event],
        answer: Callable[[commands.AnswerUpdate], None], lifeline: Lifeline,
    ) -> None:  # fmt: skip
        self.run, self.inbox, self.lifeline = run, inbox, lifeline
        self._answer, self.index = answer, RunIndex(run, view)
        room, self._info = TaskRoom(), workflow.info()
        self.outbox = Outbox(room)
        self.children = Children(self.outbox, run.note, lifeline)
        self.lifetime = Lifetime(is_cron=self._info.cron_schedule is not None)
        self._room, self._size = room, self._history()
        self.tasks = TasksInFlight(run, self.children, self.lifetime, room, inbox.append, self._start_again)
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._slice_timer: asyncio.Task[None] | None = None
        self._unjudged: list[events.Event] = []  # signed decisions: see ``_judges_later``
        self._returned: set[int] = set()  # the ids of those that wait in the inbox again

    # -- the loop --------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Run to the end; raises CancelledError when the run was cancelled, after everything has ended.

        A run may be started paused. Decisions wait until the waits are open.
        """
        self._note_reset()
        early = [event for event in self.inbox if isinstance(event, BEFORE_THE_BEGIN)]
        others = [event for event in self.inbox if event not in early]
        self.inbox.clear()
        self.inbox.extend((*early, events.Begin()))
        if self.run.is_continued:
            self._empty_inbox(self.run.flush)
            self.index.update()
        self.inbox.extend(others)
        try:
            await self._loop()
        except asyncio.CancelledError:
            await self._cancel()
            raise
        await self._end()

    async def _loop(self) -> None:
        run, tasks = self.run, self.tasks
        while run.finished is None and not (run.is_cancelling and not tasks.in_flight and not self.inbox):
            await workflow.wait_condition(self._has_work)
            self._size = self._history()
            self._note_reset()
            is_held = not run.is_cancelling and self.lifetime.should_hold(self._size, run.in_flight, len(self.inbox))
            if is_held:
                self.inbox.appendleft(events.HoldChanged(True))
            self._empty_inbox(run.flush)
            # What is on its way would be lost with the run that sent it
            while is_held and run.can_continue_as_new and not tasks.in_flight and not self.outbox.is_empty:
                await workflow.wait_condition(lambda: self.outbox.is_empty)
                self._empty_inbox(run.flush)
            if not self.inbox and run.finished is None:  # what was on its way may have taken tasks
                self._renew(self._history() if is_held else self._size)
            if is_held:
                self._handle(events.HoldChanged(False), _now())
            self.index.update()

    def _note_reset(self) -> None:
        if self.lifeline.noted_lineage != self.lifeline.lineage:
            self.lifeline.noted_lineage = self.lifeline.lineage
            self.inbox.append(events.RunReset(self._info.first_execution_run_id, str(self.lifeline.lineage)))

    def _has_work(self) -> bool:
        if self.inbox or self.lifeline.noted_lineage != self.lifeline.lineage:
            return True
        is_quiet = self._is_quiet()
        if not self.tasks.waiting and not is_quiet:
            return False
        history = self._history()
        has_new_task = bool(self.tasks.waiting) and history.events != self.tasks.task  # which has started nothing
        return has_new_task or (is_quiet and self._is_due(history))

    def _empty_inbox(self, flush: Callable[[str], list[commands.RunCommand]]) -> None:
        now = _now()
        while self.inbox:
            event = self.inbox.popleft()
            if not self._judges_later(event):
                self._handle(event, now)
        self._perform_all(flush(now))

    def _judges_later(self, event: events.Event) -> bool:
        """Judge signed decisions in a task of their own.

        A reset repeats those that came after its point, in a task in which the run need not know of the reset yet.
        """
        run, record = self.run, event.record if isinstance(event, events.RecordReceived) else None
        is_decision = isinstance(event, events.DecisionReceived) or isinstance(record, ForwardedDecision)
        if not (run.position.approvers and is_decision) or run.finished is not None or run.is_cancelling:
            return False
        if id(event) in self._returned:
            self._returned.discard(id(event))
            return False
        self._unjudged.append(event)
        if len(self._unjudged) == 1:
            sleep = workflow.sleep(SLICE_PAUSE, summary="judge signed decisions")
            asyncio.create_task(sleep).add_done_callback(self._judge)
        return True

    def _judge(self, _: asyncio.Task[None]) -> None:
        late, self._unjudged = self._unjudged, []
        self._returned |= set(map(id, late))
        self._note_reset()  # first: what was signed before it is void
        self.inbox.extend(late)

    def _handle(self, event: events.Event, now: str) -> None:
        """Perform what the machine makes of an event. One from outside, whatever it holds, does not fail the run."""
        if isinstance(event, events.TimerFired):
            self._timers.pop(event.name, None)
            if event.name == DRAIN_TIMER:
                self.lifetime.end_drain()
                event = events.HoldChanged(False)
        self.index.record_event(event)
        try:
            effects = self.run.handle(event, now)
        except Exception as error:
            if not isinstance(event, FROM_OUTSIDE):
                raise
            workflow.logger.exception("an event from outside could not be handled")
            text = f"it could not be handled: {type(error).__name__}: {truncate(str(error), 100)}"
            self.run.note(f"{type(event).__name__} was ignored: {text}")
            update = event.update if isinstance(event, (events.DecisionReceived, events.Provided)) else None
            answer = DecisionAnswer(id=update or "", type=ENGINE_ERROR, message=text)
            effects = [] if update is None else [commands.AnswerUpdate(update, answer)]
        self._perform_all(effects)
        if isinstance(event, events.CancelRequested):
            self._call_off()  # what has been started since: a run may be cancelled before it begins

    def _perform_all(self, effects: list[commands.RunCommand]) -> None:
        for command in effects:
            self._perform(command)
        self._send_starts()

    def _perform(self, command: commands.RunCommand) -> None:  # noqa: C901 - a row for each command
        """Perform a command; the loop sees by itself that the machine has finished."""
        match command:
            case (
                commands.StartCall() | commands.StartChild() | commands.AskOutput() | commands.AskSolution()
                | commands.StartBackground()
            ):  # fmt: skip
                self.index.record_start(command)
                self.tasks.add(command)
                self._send_starts()  # at once: commands reach the server in the machine's order, as replay expects
            case commands.StartTimer(name=name):
                sleep = workflow.sleep(timedelta(seconds=command.seconds), summary=command.summary)
                timer = self._timers[name] = asyncio.create_task(sleep)
                timer.add_done_callback(partial(self._timer_ended, name))
            case commands.CancelTimer(name=name):
                if name in self._timers:
                    self._timers.pop(name).cancel()
            case commands.SignalChildren():
                self._signal_children(command)
            case commands.SendRecord():
                self._send_record(command)
            case commands.AnswerUpdate():
                self._answer(command)
            case commands.CheckQueues():
                self.tasks.check_queues(command)
            case commands.StartEngineActivity():
                self.tasks.run_engine_activity(command)
            case commands.RestartChild():
                self.tasks.restart_child(command.key)
            case commands.EndEarly():
                self.inbox.appendleft(events.CancelRequested())
            case commands.Stop():
                self.lifeline.supersede(command.run_id)

    async def _end(self) -> None:
        """Nothing is left undone: handlers have answered, and what is on its way to other runs has arrived."""
        while True:
            self._note_reset()
            self._empty_inbox(self.run.flush_at_end)
            self.index.update()
            if self._nothing_left():
                break
            await workflow.wait_condition(lambda: bool(self.inbox) or self._nothing_left())

    def _nothing_left(self) -> bool:
        return workflow.all_handlers_finished() and self.outbox.is_empty and not self.inbox

    async def send_and_wait(self, command: commands.SendRecord) -> None:
        """Send the last word of a run that ends; one that is too large, or for a run that is gone, is dropped."""
        self._send_record(command)
        await self._end()

    async def _cancel(self) -> None:
        """Reach everything in flight, and wait until each has said how it ended."""
        self.inbox.append(events.CancelRequested())
        self._call_off()
        await self._loop()
        await self._end()

    def _call_off(self) -> None:
        error = CallError(CANCELLED, "the call was cancelled before it was started")
        for command in self.tasks.take_all():
            if not isinstance(command, commands.StartChild | commands.AskSolution):
                self.inbox.append(events.CallEnded(command.node.key, error=error))
            elif isinstance(command, commands.StartChild) and command.type != PLAN:
                self.inbox.append(events.ChildEnded(command.key, None, error))
        self.tasks.cancel()

    # -- starts ----------------------------------------------------------------------------------------

    def _start_again(self, command: commands.StartCall) -> None:
        """A local activity has done its work, and an ordinary one is to return how it ended."""
        self._size = self._history()
        self.tasks.add(command)
        self._send_starts()

    def _send_starts(self) -> None:
        """Start what there is room for; what there is none for goes back, or waits for the next workflow task."""
        tasks = self.tasks
        if not tasks.waiting or self.run.is_cancelling or self.run.finished is not None:
            return
        tasks.send(self._size)
        if tasks.is_out_of_room:
            self._hold_starts()
        elif tasks.waiting and not tasks.waits_for_results and (self._slice_timer is None or self._slice_timer.done()):
            sleep = workflow.sleep(SLICE_PAUSE, summary="the next workflow task starts more calls")
            self._slice_timer = asyncio.create_task(sleep)
            self._slice_timer.add_done_callback(self._room.begin_task)

    def _hold_starts(self) -> None:
        """Start nothing more until the hold ends; starts that wait for a workflow task go back to the machine."""
        self.inbox.append(events.HoldChanged(True))
        if self.run.takes_back_starts:
            for command in self.tasks.take_all():
                if not isinstance(command, commands.AskSolution):  # of a run that takes nothing back
                    key = command.key if isinstance(command, commands.StartChild) else command.node.key
                    self.inbox.append(events.StartPostponed(key))

    # -- continue-as-new ----------------------------------------------------------------------------------

    def _history(self) -> HistorySize:
        info = self._info
        return HistorySize(
            info.get_current_history_length(), info.get_current_history_size(), info.is_continue_as_new_suggested(),
            self.lifeline.signals,
        )  # fmt: skip

    def _is_quiet(self) -> bool:
        is_quiet = self.run.can_continue_as_new and not self.run.is_cancelling and not self.tasks.in_flight
        is_quiet = is_quiet and not self._unjudged
        return is_quiet and self.outbox.is_empty and workflow.all_handlers_finished()

    def _is_due(self, history: HistorySize) -> bool:
        return self.run.wants_new_run or self.lifetime.is_due(history)

    def _renew(self, history: HistorySize) -> None:
        """Continue as new when it is time and nothing is in flight; else make such a moment, or end."""
        if self.run.is_cancelling:
            return
        is_due, is_full = self._is_due(history), self.lifetime.must_end(history)
        if is_due and self._is_quiet():
            state = encode_state(self.run.snapshot())
            if state is not None:
                workflow.continue_as_new(state)
            if self.lifetime.stay(history) and not is_full:
                self.inbox.append(events.HoldChanged(False))
                return
            is_full = True
        if is_full:
            self._handle(events.HistoryFull(history.full_text()), _now())
        elif is_due and (seconds := self.lifetime.drain_seconds(history)) is not None:
            self._hold_starts()
            if seconds:
                self._perform_all([commands.StartTimer(DRAIN_TIMER, seconds, DRAIN_TIMER)])

    # -- timers and signals -------------------------------------------------------------------------------

    def _timer_ended(self, name: str, timer: asyncio.Task[None]) -> None:
        if self._timers.get(name) is timer and not timer.cancelled():
            self.inbox.append(events.TimerFired(name))

    def _signal_children(self, command: commands.SignalChildren) -> None:
        """Signal all children, all instances, or the child that walks one; note a payload that is too large."""
        signal, payload = command.signal, command.payload
        try:
            if command.is_told:
                record = Told(token=self.run.position.token, word=signal, message=payload)
                signal, args = record.signal_name(), [encode_record(record)]
            else:
                args = [] if payload is None else [encode(payload)]
        except CallError as error:
            self.run.note(f"{command.signal} was not passed on: {error.message}")
            return
        type_ = INSTANCE if command.instances_only else None
        is_for_one = command.instance is not None and command.instances_only
        name = self.run.child_of_instance(str(command.instance)) if is_for_one else None
        self.children.signal(signal, *args, type_=type_, name=name)

    def _send_record(self, command: commands.SendRecord) -> None:
        """Send a record to a run of the tree; ``RecordEnded`` follows."""

        def outcome(error: BaseException | None) -> None:
            self.inbox.append(events.RecordEnded(command.key, None if error is None else truncate(str(error), 200)))

        try:
            payload = encode_record(command.record)
        except CallError as error:
            self.inbox.append(events.RecordEnded(command.key, error.message))
            return
        target = workflow.get_external_workflow_handle(command.workflow_id)
        self.outbox.send(target, command.record.signal_name(), (payload,), outcome)


def _now() -> str:
    return _date_at(workflow.time_ns())


@lru_cache(maxsize=16)  # all events of a workflow task have its time
def _date_at(nanoseconds: int) -> str:
    return iso(datetime.fromtimestamp(nanoseconds / 1e9, UTC))


# From this part on a budget is nearly spent, or spent: what counts it once for each run
BUDGET_SHARES: Final = {metrics.BUDGET_LOW: 0.8, metrics.BUDGET_SPENT: 1.0}
_CALLS: Final = (commands.StartCall, commands.AskOutput, commands.StartChild, commands.StartBackground)
_ENDS: Final = (events.CallEnded, events.CallDetached, events.ChildEnded)
_OUTCOMES: Final = {CANCELLED: "cancelled", TIMEOUT: "timeout"}
PHASE: Final = SearchAttributeKey.for_keyword(names.PHASE)
WAITING: Final = SearchAttributeKey.for_int(names.WAITING)
SINCE: Final = SearchAttributeKey.for_datetime(names.WAITING_SINCE)
_KEYS: Final[dict[str, SearchAttributeKey[Any]]] = {
    names.PHASE: PHASE, names.WAITING: WAITING, names.TOOLS: SearchAttributeKey.for_keyword_list(names.TOOLS),
    names.MODEL: SearchAttributeKey.for_keyword(names.MODEL), names.COST: SearchAttributeKey.for_float(names.COST),
    names.ROOT: ROOT, names.TAGS: TAGS,
}  # fmt: skip


def used_shares(run: RunMachine) -> dict[str, float]:
    """What a tree has used of its own budget, by limit; empty below its root, and where nothing limits it."""
    return {} if run.budget.ledger is None else run.budget.ledger.used_shares(run.own)


class RunIndex:
    """What can be seen of one run. While metrics are off, counting costs one comparison.

    Its counts never become a command. It records nothing while history is replayed, but keeps what it needs to
    measure what ends after it. A root that has ``ActsRoot`` writes the search attributes, one event for each change of
    its phase: it gives that to itself when the namespace has them, a child gets it, and continue-as-new keeps it.
    What waits in a root itself is in its memo, as it opens and closes. Of those below it there are signals.
    """

    def __init__(self, run: RunMachine, view: RunView) -> None:
        self._run, self._view = run, view
        self._is_counted = metrics.is_on()
        self._started: dict[str, tuple[str, float]] = {}  # by a Call's key: its Tool, and when it was started
        self._waits: dict[tuple[str, str | None, str | None], PendingApproval] = {}
        self._low: set[tuple[str, str]] = set()
        self._recorded: dict[WaitKey, tuple[int, str | None]] = {}  # versions and subjects
        attributes = workflow.info().typed_search_attributes
        self._is_indexed = run.position.is_root and attributes.get(ROOT) is not None
        self._last = attributes.get(PHASE), bool(attributes.get(WAITING))

    async def begin(self) -> None:
        """Ask the server, once, whether the namespace has the attributes."""
        if not (self._is_indexed or self._run.is_continued) and self._run.position.is_root:
            label = "whether the namespace has our search attributes"
            level = int(await ask_or_none(SEARCH_ATTRIBUTES, None, label) or 0)
            self._is_indexed, self._run.approvals.is_dated = level > 0, level == names.ALL_ATTRIBUTES

    def record_start(self, command: object) -> None:
        node = command.node if self._is_counted and isinstance(command, _CALLS) else None
        if node is not None and node.kind != UNIT:
            self._started[node.key] = node.tool.name, workflow.time()

    def record_event(self, event: events.Event) -> None:
        if not self._is_counted or not isinstance(event, _ENDS):
            return
        started = self._started.pop(event.key, None)
        if started is None or workflow.unsafe.is_replaying():
            return
        outcome = "detached" if isinstance(event, events.CallDetached) else "completed"
        if not isinstance(event, events.CallDetached) and event.error is not None:
            outcome = _OUTCOMES.get(event.error.code, "failed")
        tool, began = started
        metrics.record(metrics.CALLS, tool=tool, outcome=outcome)
        metrics.record(metrics.CALL_SECONDS, max(0.0, workflow.time() - began), tool=tool)

    def update(self) -> None:
        """Write the attributes if the phase, or whether anything waits, has changed; count what else has."""
        if self._is_counted:
            if self._waits or self._run.approvals.waits.own:
                self._update_waits()
            for limit, share in used_shares(self._run).items():
                for metric, least in BUDGET_SHARES.items():
                    if share >= least and (metric.name, limit) not in self._low:
                        self._low.add((metric.name, limit))
                        if not workflow.unsafe.is_replaying():
                            metrics.record(metric, limit=limit)
                            text = "the budget of this run is nearly spent: %.0f %% of %s"
                            workflow.logger.warning(text, 100 * share, limit)
        if self._run.position.is_root and (self._recorded or self._run.approvals.waits.own):
            self._record_waits()
        if not self._is_indexed:
            return
        current = self._run.phase, bool(self._run.approvals.waits.open.by_key)
        if current == self._last:
            return
        self._last = current
        info = workflow.info()
        held = info.typed_search_attributes
        values = {names.ROOT: held.get(ROOT) or info.workflow_id, **self._view.search_values()}
        since = values.pop(names.WAITING_SINCE)
        changes = [_KEYS[k].value_set(v) for k, v in values.items() if v is not None and held.get(_KEYS[k]) != v]
        if self._run.approvals.is_dated and held.get(SINCE) != since:
            changes.append(SINCE.value_unset() if since is None else SINCE.value_set(since))
        workflow.upsert_search_attributes(changes)

    def _record_waits(self) -> None:
        waits = {wait.key: wait for wait in self._run.approvals.waits.own}
        now = {key: (wait.version, wait.subject) for key, wait in waits.items()}
        if now == self._recorded:
            return
        before, self._recorded = self._recorded, now
        info = workflow.info()
        began = info.workflow_start_time.timestamp() if info.continued_run_id else 0.0
        new = [w for key, w in waits.items() if before.get(key) != now[key]]
        # What the run before this one had opened already is in its history
        opened = [w for w in new if w.key in before or datetime.fromisoformat(w.since).timestamp() >= began]
        closed = [list(key) for key in before if key not in waits]
        if opened or closed:
            facts = [{k: v for k, v in w.to_json().items() if k in WAIT_FACTS} for w in opened[:MAX_CHANGES]]
            record = {"opened": facts, "closed": closed[:MAX_CHANGES], "waiting": len(waits)}
            workflow.upsert_memo({WAITS_MEMO: record})

    def _update_waits(self) -> None:
        before, self._waits = self._waits, {(w.what, w.call, w.instance): w for w in self._run.approvals.waits.own}
        if workflow.unsafe.is_replaying():
            return
        began, now = workflow.info().workflow_start_time.timestamp(), workflow.time()
        for key, wait in self._waits.items():
            # One that the run before this one had opened already was counted there
            if key not in before and datetime.fromisoformat(wait.since).timestamp() >= began:
                metrics.record(metrics.APPROVALS_OPENED, what=wait.what)
        for key, wait in before.items():
            if key not in self._waits:
                seconds = now - datetime.fromisoformat(wait.since).timestamp()
                metrics.record(metrics.APPROVALS_CLOSED, what=wait.what)
                metrics.record(metrics.APPROVAL_SECONDS, max(0.0, seconds), what=wait.what)
