"""What a run starts and has in flight: Activities of Tools, requests to models, children. Each ends with one event.

* Retries, timeouts and task queues of a Tool's Activity come from its ``_options`` only. The activity id is the Call's
  key, so that replay detects a changed start order, and people find the Call in the Web UI.
* *A slice* is what one workflow task starts. The server keeps the events of a run in a cache of 512 KiB by default,
  and reads them anew from its database for whatever does not fit, once or twice for every Call that was scheduled
  with them. A fan-out of 2,000 in one task costs twenty times as much per Call as one in slices. A task ends when the
  workflow waits for something that is not there. What brings the next one is the first result of the slice, or a timer
  of a millisecond: without it, slow Calls would hold back those behind them.
* An Activity that a worker took but does not have is *missed* (``run_missed``): another worker of the queue may
  have it. A worker that lacks a secret or the key of the payloads counts as one, too. While workers of several
  versions poll one queue, as in every rolling deploy, any of them may take any Call. A miss is no attempt of the Tool:
  the Activity is scheduled again, with the attempts that are left, until a worker that has it takes it. Where none
  comes, the Call fails with ``NotServed`` and names the workers that took it.
* Local Activities of one workflow task may return so many bytes (``TaskRoom``): each outcome is a marker in the message
  that ends the task, of at most 4 MiB. ``ResultRooms`` in ``acts/worker/interceptors.py`` is the other side.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from temporalio import exceptions, workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, is_cancelled_exception

from acts.language import wire
from acts.language.config import Options
from acts.language.errors import CallError, heading, truncate
from acts.language.strict_json import read_json, unpack
from acts.machines import commands, events
from acts.machines.lifetime import ExpectedResults, HistorySize, Lifetime
from acts.machines.run_machine import RunMachine
from acts.plan.calls import PlannedCall
from acts.telemetry.failures import find_place
from acts.tree.identity import short_id
from acts.tree.records import Accounting
from acts.workflows import payloads
from acts.workflows.children import Children, Handle, cause_of
from acts.workflows.engine_calls import OPTIONS, QUEUES_LABEL, model_request, start_engine_activity
from acts.workflows.payloads import TaskRoom, decode, encode, encode_record, payload_bytes, recorded_bytes

Task = asyncio.Task[Any]
MaybeEvent = events.Event | None
StartCommand = (
    commands.StartCall | commands.AskOutput | commands.AskSolution | commands.StartBackground | commands.StartChild
)
# What a command and its event take beside their payloads: ids, types, a label, timeouts, a retry policy
COMMAND_BYTES: Final = 384
# Large arguments of Activities that are in memory at a time, beside one that is larger: a quarter of a small worker
MAX_HELD_BYTES: Final = 256 * 1024 * 1024
# A quarter of the server's cache of events, which holds what is started and what has just ended, of all runs
MAX_SLICE_BYTES: Final = 128 * 1024

# A longer wait before another attempt of a local Activity is a timer, so that its workflow task can end
MAX_LOCAL_WAIT: Final = timedelta(milliseconds=100)
# Larger details of a failure are dropped: results and prompts contain them
MAX_DETAILS_BYTES: Final = 64 * 1024

# What the SDK says of an Activity whose arguments cannot be decoded, or read from external storage
_UNDECODED: Final = "Failed decoding arguments"

_TIMEOUT_TEXT: Final = {
    TimeoutType.SCHEDULE_TO_START: "no worker took it from task queue {queue!r} within {wait:g} s (queueTimeout)",
    TimeoutType.HEARTBEAT: "it sent no heartbeat for {heartbeat:g} s",
    TimeoutType.START_TO_CLOSE: "an attempt took longer than {timeout:g} s",
}

_TERMINATED_TEXT: Final = (
    "its own run was terminated, by a person or by the server; what of it had run is in the history of that run, and "
    "acts retry runs it again once the root has ended"
)


def activity_options(options: Options, attempts: int | None = None) -> dict[str, Any]:
    """Keyword arguments of ``start_activity``, with so many attempts or (None) as the Tool says.

    Only the time of an attempt is limited by default. How long a Call waits for a worker depends on what
    else is in the queue: that is no failure of the Call. A result too large to record is never retried.
    """
    retry, queue, beat = options.retry, options.queueTimeout, options.heartbeat
    return {
        "start_to_close_timeout": timedelta(seconds=options.timeout), "task_queue": options.taskQueue,
        "schedule_to_start_timeout": None if queue is None else timedelta(seconds=queue),
        "heartbeat_timeout": None if beat is None else timedelta(seconds=beat),
        "retry_policy": RetryPolicy(
            initial_interval=timedelta(seconds=retry.initialInterval), backoff_coefficient=retry.backoff,
            maximum_attempts=retry.maxAttempts if attempts is None else attempts,
            non_retryable_error_types=[*retry.nonRetryable, wire.SDK_PAYLOADS_TOO_LARGE],
        ),
    }  # fmt: skip


def call_error(error: BaseException, options: Options) -> CallError:
    """The error of a Call whose Activity or child workflow failed."""
    cause = cause_of(error)
    if is_cancelled_exception(error) or is_cancelled_exception(cause):
        return CallError(wire.CANCELLED, "the call was cancelled")
    if isinstance(cause, exceptions.TerminatedError):
        return CallError(type(cause).__name__, _TERMINATED_TEXT)
    if isinstance(cause, exceptions.TimeoutError):
        text = _TIMEOUT_TEXT.get(cause.type or TimeoutType.START_TO_CLOSE, "it took too long")
        figures = {
            "queue": options.taskQueue or workflow.info().task_queue, "wait": options.queueTimeout or 0,
            "timeout": options.timeout, "heartbeat": options.heartbeat or 0,
        }  # fmt: skip
        return CallError(wire.TIMEOUT, text.format(**figures))
    if isinstance(cause, ApplicationError):
        # The SDK says that an argument could not be decoded, and only its cause says why: content that is not stored
        more = f": {cause.__cause__}" if cause.message == _UNDECODED and cause.__cause__ is not None else ""
        # One that is not to be retried was raised on purpose
        place = None if cause.non_retryable or cause.failure is None else find_place(cause.failure.stack_trace)
        return CallError(
            cause.type or "ApplicationError", truncate(cause.message + more, 10_000), _details(cause), place
        )
    if isinstance(cause, CallError):
        return cause
    message = cause.message if isinstance(cause, exceptions.FailureError) else str(cause)
    return CallError(type(cause).__name__, truncate(message, 10_000))


def _details(error: ApplicationError) -> Any:
    """The details of a failure, or None unless they are JSON of at most MAX_DETAILS_BYTES."""
    try:
        details = list(error.details)
        if not details or payload_bytes(encode(details)) > MAX_DETAILS_BYTES:
            return None
    except Exception:  # noqa: BLE001 - undecodable details of a foreign SDK must not fail the plan
        return None
    return details[0] if len(details) == 1 else details


# How long a Call waits for a worker that has its Activity, unless ``queueTimeout`` says otherwise: as long as the last
# workers of a rolling deploy take to start
NOT_SERVED_SECONDS: Final = 60.0
# Between two tries. One costs eleven events; there are 10 in the first 8 s, so that of two equally many versions the
# right one is missed in a thousandth of the cases, and 20 in a minute
FIRST_PAUSE_SECONDS: Final = 0.1
PAUSE_FACTOR: Final = 1.5
LONGEST_PAUSE_SECONDS: Final = 5.0
# What the SDKs for Python and TypeScript, Go, and Java say of an activity that they do not have
_NOT_REGISTERED: Final = re.compile(
    r"is not registered on this worker|unable to find activityType|is not registered with a worker", re.IGNORECASE
)
_HINT: Final = "start a worker that has it and reset the run to before this call, or use a tool that the workers have"

# The worker that walks the plan would take the next attempt itself, eagerly: it does not have the Activity
must_go_through_queue: ContextVar[bool] = ContextVar("must_go_through_queue", default=False)


@dataclass(frozen=True, slots=True)
class Miss:
    """A worker did not have the Activity. ``attempt`` numbers the attempt, from 1; those before it were real."""

    reason: str
    attempt: int


def miss_of(error: BaseException | None, options: Options) -> Miss | None:
    """The miss that a failure of an activity is, or None."""
    cause = error.__cause__ if isinstance(error, ActivityError) else error  # a local one has no such envelope
    if not isinstance(cause, ApplicationError):
        return None
    if cause.type == wire.NOT_SERVED and len(cause.details) == 1 and isinstance(cause.details[0], dict):
        detail = cause.details[0].get("miss")
        if isinstance(detail, dict):
            return Miss(cause.message, detail["attempt"])
    origin = cause.__cause__
    if isinstance(origin, ApplicationError) and origin.type == wire.UNKNOWN_KEY:  # its payloads could not be decrypted
        return Miss(origin.message, options.retry.maxAttempts)
    if _NOT_REGISTERED.search(cause.message):  # it had all its attempts, and what they came to is not known
        return Miss(cause.message, options.retry.maxAttempts)
    return None


async def run_missed(
    start: Callable[[int], Task], options: Options, show: Callable[[str | None], None], miss: Miss
) -> Any:
    """The result of an Activity that was missed, from a worker that has it; CallError where none has.

    ``start`` schedules it with so many attempts; ``show`` takes the note, or None.
    """
    began, left, pause = workflow.now(), options.retry.maxAttempts, 0.0
    limit = NOT_SERVED_SECONDS if options.queueTimeout is None else options.queueTimeout
    reasons: dict[str, None] = {}
    try:
        while True:
            left = max(1, left - miss.attempt + 1)
            reasons[miss.reason] = None
            text = truncate("; ".join(reasons), 1_000)
            if (workflow.now() - began).total_seconds() >= limit:
                raise CallError(wire.NOT_SERVED, f"no worker that has its activity took it: {text}; {_HINT}")
            if pause:
                show(f"workers that do not have its activity took a call, and it waits for others: {text}")
                await workflow.sleep(timedelta(seconds=pause), summary="wait for a worker that has the activity")
            pause = min(PAUSE_FACTOR * pause, LONGEST_PAUSE_SECONDS) or FIRST_PAUSE_SECONDS
            token = must_go_through_queue.set(True)
            try:
                handle = start(left)
            finally:
                must_go_through_queue.reset(token)
            try:
                return await handle
            except ActivityError as error:
                if (again := miss_of(error, options)) is None:
                    raise
                miss = again
    finally:
        show(None)


@dataclass(slots=True)
class Start:
    """What is ready to be sent, and the events that its end becomes; None where it is started again.

    ``source`` is what its result is expected to be like, ``size`` what it adds to its workflow task, in bytes: a local
    one nothing before it ends. ``held`` are the bytes of large arguments, in memory until the result is there.
    """

    key: str
    source: str
    size: int
    send: Callable[[], Task]
    completed: Callable[[Any], events.Event]
    failed: Callable[[BaseException], MaybeEvent]
    held: int = 0
    is_local: bool = False


class TasksInFlight:
    """What one run starts: the queue of starts for a workflow task, and the tasks in flight, by their keys.

    ``emit`` takes the event of each that ends, ``defer`` the command of a local Activity whose outcome an ordinary one
    is to return. Where the history has no room, the line stops; the driver hands what is left back to a machine that
    can start it in the next run. Where memory has none, it waits for the results of Activities that hold it.
    """

    def __init__(
        self, run: RunMachine, children: Children, lifetime: Lifetime, room: TaskRoom,
        emit: Callable[[events.Event], None], defer: Callable[[commands.StartCall], None],
    ) -> None:  # fmt: skip
        self.in_flight: dict[str, tuple[Start, Task]] = {}
        self.waiting: deque[StartCommand] = deque()
        self.is_out_of_room = self.waits_for_results = False
        self._run, self._children, self._lifetime, self._room = run, children, lifetime, room
        self._emit, self._defer = emit, defer
        self._head: Start | None = None
        self.task = -1  # the last one that has started something
        self._expected, self._held_bytes = ExpectedResults(), 0
        self._deferred: set[str] = set()
        # By name of a Tool, what is the same for each Call: its schema, the bytes of that, and its options
        self._tools: dict[str, tuple[RawValue, int, dict[str, Any]]] = {}
        empty = encode([])
        self._context: tuple[list[dict[str, Any]], RawValue, int] = [], empty, payload_bytes(empty)

    # -- the line ---------------------------------------------------------------------------------

    def add(self, command: StartCommand) -> None:
        """Start this in its turn. A signal for a child that waits here reaches it once it is there."""
        if isinstance(command, commands.StartChild):
            self._children.expect(command.type, command.name)
        self.waiting.append(command)

    def send(self, history: HistorySize) -> None:
        """Start what this workflow task and the history have room for."""
        self.task, self.waits_for_results = history.events, False
        while self.waiting:
            start = self._head = self._head or self._prepare(self.waiting[0])
            if start is not None:
                is_full = self._held_bytes + start.held > MAX_HELD_BYTES
                self.waits_for_results = is_full and min(self._held_bytes, start.held) > 0
                if self.waits_for_results or not self._fits_task(start):
                    return
                if not self._fits_history(start, history):
                    self.is_out_of_room = True
                    return
                self._room.starts += start.size
                self._launch(start)
            self.waiting.popleft()
            self._head = None

    def take_all(self) -> list[StartCommand]:
        """Empty the line: nothing of it has started."""
        waiting = list(self.waiting)
        for command in waiting:
            if isinstance(command, commands.StartChild):
                self._children.forget(command.type, command.name)
        self.waiting.clear()
        self._head, self.is_out_of_room = None, False
        return waiting

    def _fits_task(self, start: Start) -> bool:
        """True when this task can carry it: a slice, or one of any size, beside the outcomes of local activities."""
        room = self._room
        commands_bytes = room.count_commands()
        if start.is_local:
            return room.starts <= MAX_SLICE_BYTES
        is_slice = room.starts == 0 or room.starts + start.size <= MAX_SLICE_BYTES
        is_alone = room.local + room.signals == 0
        return is_slice and (is_alone or room.local + commands_bytes + start.size <= payloads.MAX_TASK_BYTES)

    def _fits_history(self, start: Start, history: HistorySize) -> bool:
        # Its share of the budget would be lost with a delegate in the background
        command = self.waiting[0]
        is_lost = isinstance(command, commands.StartBackground) and command.input.delegate is not None
        if not self._run.takes_back_starts or is_lost:
            return True
        expected = self._expected
        new_bytes = self._room.starts + start.size + expected.total + expected.of(start.source)
        return self._lifetime.has_room(history, new_bytes, expected.in_flight)

    # -- in flight ----------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel each once: a second request would be another command."""
        for _, task in list(self.in_flight.values()):
            if not task.cancelling():
                task.cancel()

    def _launch(self, start: Start) -> None:
        task = start.send()
        self.in_flight[start.key] = start, task
        self._held_bytes += start.held
        if start.is_local:
            self._room.local_running += 1
        else:
            self._expected.started(start.source)
        task.add_done_callback(partial(self._ended, start))

    def _ended(self, start: Start, task: Task) -> None:
        is_failure = task.cancelled() or task.exception() is not None  # in any case: else asyncio logs it as lost
        if self.in_flight.get(start.key, (None, None))[1] is not task:  # nobody waits for it any more
            return
        del self.in_flight[start.key]
        self._held_bytes -= start.held
        payload = None if is_failure else getattr(task.result(), "payload", None)
        size = None if payload is None else recorded_bytes(payload.ByteSize())
        if start.is_local:
            self._room.local_running -= 1
            self._room.local_bytes += (size or 0) + payloads.MARKER_BYTES
        else:
            self._expected.ended(start.source, size)
            self._room.begin_task()
        try:
            event: MaybeEvent = start.completed(task.result())
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
            event = start.failed(error)
        if event is not None:
            self._emit(event)

    def _prepare(self, command: StartCommand) -> Start | None:
        """What this command sends; None for one that cannot be sent: its failure is emitted."""
        try:
            match command:
                case commands.StartCall():
                    return self._activity(command)
                case commands.StartChild():
                    return self._child(command)
                case commands.StartBackground(node=node):
                    arg = encode_record(command.input)
                    run = partial(self._children.start_background, node.key, arg, node.label)
                    return Start(
                        node.key, node.tool.name, _command_bytes(arg), lambda: asyncio.create_task(run()),
                        lambda _: events.CallDetached(node.key), partial(_call_failed, node),
                    )  # fmt: skip
                case commands.AskOutput(node=node):
                    return self._request(command, node.key, node.tool.name, node.label)
                case commands.AskSolution(tick=tick):
                    return self._request(command, f"tick-{tick}", wire.PLAN, f"tick {tick}")
        except CallError as error:
            if isinstance(command, commands.AskSolution):
                raise  # it has no parameters that could be too large
            if isinstance(command, commands.StartChild):
                self._children.forget(command.type, command.name)
                self._emit(events.ChildEnded(command.key, None, error, is_unstarted=True))
            else:
                self._emit(events.CallEnded(command.node.key, error=error))
            return None

    # -- Activities of Tools ---------------------------------------------------------------------

    def _activity(self, command: commands.StartCall) -> Start:
        """An Activity with three arguments: Call, Tool, scopes; CallError where they are too large to record."""
        node = command.node
        tool = node.tool
        if tool.name not in self._tools:
            schema = encode(tool.schema)
            self._tools[tool.name] = schema, payload_bytes(schema), activity_options(tool.options)
        schema, schema_bytes, _ = self._tools[tool.name]
        own, context, context_bytes = self._context
        if command.context is not own and (command.context or own):  # all elements of a Call have the same
            context = encode(command.context)
            context_bytes = payload_bytes(context)
            self._context = command.context, context, context_bytes
        call = encode(command.call)
        args, total = [call, schema, context], payload_bytes(call) + schema_bytes + context_bytes
        size = total
        if total >= wire.STORED_ABOVE_BYTES:
            if total > payloads.max_payload_bytes():
                limit = f"at most {payloads.max_payload_bytes():,} can be recorded: {payloads.too_large_hint()}"
                text = f"its parameters, tool and scopes are {total:,} bytes; {limit}"
                raise CallError(wire.RESULT_TOO_LARGE, text)
            size = sum(recorded_bytes(payload_bytes(arg)) for arg in args)
        completed = partial(_call_completed, node.key)
        if tool.options.local and node.key not in self._deferred and self._room.takes_local:
            run, failed = partial(self._start_local, node, args), partial(self._local_failed, command, args)
            return Start(node.key, tool.name, 0, run, completed, failed, is_local=True)
        self._deferred.discard(node.key)
        send, failed = partial(self._start_activity, node, args), partial(self._activity_failed, node, args)
        size, held = size + COMMAND_BYTES, total if size < total else 0
        return Start(node.key, tool.name, size, send, completed, failed, held)

    def _start_activity(self, node: PlannedCall, args: list[RawValue], attempts: int | None = None) -> Task:
        """Schedule the Call's Activity, with so many attempts or (None) as its Tool says."""
        tool = node.tool
        options = self._tools[tool.name][2] if attempts is None else activity_options(tool.options, attempts)
        return workflow.start_activity(
            str(tool.activity), args=args, result_type=RawValue, activity_id=short_id(node.key),
            summary=heading(node.label), **options,
        )  # fmt: skip

    def _start_local(self, node: PlannedCall, args: list[RawValue]) -> Task:
        options = self._tools[node.tool.name][2]
        return workflow.start_local_activity(
            str(node.tool.activity), args=args, result_type=RawValue, activity_id=short_id(node.key),
            summary=heading(node.label), start_to_close_timeout=options["start_to_close_timeout"],
            retry_policy=options["retry_policy"], local_retry_threshold=MAX_LOCAL_WAIT,
        )  # fmt: skip

    def _local_failed(self, command: commands.StartCall, args: list[RawValue], error: BaseException) -> MaybeEvent:
        cause = cause_of(error)
        if not isinstance(cause, ApplicationError) or cause.type != wire.LOCAL_DEFERRED:
            return self._activity_failed(command.node, args, error)
        self._deferred.add(command.node.key)
        self._defer(command)
        return None

    def _activity_failed(self, node: PlannedCall, args: list[RawValue], error: BaseException) -> MaybeEvent:
        """How the Call failed; None where it stays in flight until a worker that has its Activity takes it."""
        miss = miss_of(error, node.tool.options)
        if miss is None:
            return _call_failed(node, error)
        show = partial(self._run.queue_watch.record_miss, node.key)
        run = partial(run_missed, partial(self._start_activity, node, args), node.tool.options, show, miss)
        completed, failed = partial(_call_completed, node.key), partial(self._activity_failed, node, args)
        self._launch(Start(node.key, node.tool.name, 0, lambda: asyncio.create_task(run()), completed, failed))
        return None

    # -- the engine's own Activities ---------------------------------------------------------------

    def _request(self, command: commands.AskOutput | commands.AskSolution, key: str, source: str, label: str) -> Start:
        """A request to a model, for a tick or for a latent Call."""
        request = model_request(self._run, command)
        is_tick = isinstance(command, commands.AskSolution)

        def completed(result: RawValue) -> events.Event:
            answer = decode(result)
            for note in answer.get("notes") or ():
                self._run.note(note, once=True)
            if is_tick:
                return events.ModelEnded(answer)
            return events.CallEnded(key, answer["output"], answer["path"], answer["usage"])

        def failed(error: BaseException) -> events.Event:
            failure, detail = call_error(error, OPTIONS), _first_detail(error)
            cost = detail.get("usage") if isinstance(detail, dict) else None
            usage = cost if isinstance(cost, dict) else None
            if is_tick:
                return events.ModelEnded(error=failure, usage=usage)
            # The details of a model's failure are what it cost
            return events.CallEnded(key, error=CallError(failure.code, failure.message), usage=usage)

        send = partial(start_engine_activity, wire.MODEL, request, label, key)
        return Start(key, source, _command_bytes(request), send, completed, failed)

    def check_queues(self, command: commands.CheckQueues) -> None:
        """Ask the server which task queues have workers; this waits for no room."""
        send = partial(start_engine_activity, wire.QUEUES, {"queues": list(command.queues)}, QUEUES_LABEL)
        self._launch(Start(
            wire.QUEUES, "", 0, send, lambda answer: events.QueuesChecked(decode(answer)),
            lambda _: events.QueuesChecked({}),  # then nothing is known, and nothing is shown
        ))  # fmt: skip

    def run_engine_activity(self, command: commands.StartEngineActivity) -> None:
        """Start an Activity of the engine; this waits for no room."""
        key, activity = command.key, command.activity

        def failed(error: BaseException) -> events.Event:
            return events.CallEnded(key, error=call_error(error, OPTIONS))

        send = partial(start_engine_activity, activity, command.argument, command.label)
        try:
            self._launch(Start(key, activity, 0, send, lambda a: events.CallEnded(key, decode(a)), failed))
        except CallError as error:
            self._emit(failed(error))

    def _child(self, command: commands.StartChild) -> Start:
        type_, name, key = command.type, command.name, command.key
        arg = encode_record(command.input)
        options = OPTIONS if command.node is None else command.node.tool.options
        is_limited = type_ == wire.DELEGATE and "timeout" in options.model_fields_set
        seconds = options.timeout if is_limited else None

        def started(child: Handle, is_of_before_reset: bool) -> None:  # noqa: FBT001
            self._emit(events.ChildStarted(key, child.id, is_of_before_reset, child.first_execution_run_id or ""))

        def send() -> Task:
            self._children.expect(type_, name)
            return asyncio.create_task(self._children.run(type_, name, arg, command.label, started, seconds))

        def ended(report: Any, error: CallError | None = None) -> events.Event:
            """``report`` has what the child's work adds to the run above."""
            data = report.get("accounting") if isinstance(report, dict) else None
            accounting = None if data is None else Accounting.from_json(data)
            return events.ChildEnded(key, report, error, accounting=accounting)

        def failed(error: BaseException) -> events.Event:
            """What a child that failed says of itself is its failure's first detail."""
            detail = _first_detail(error)
            report = read_json(unpack(detail)) if isinstance(detail, bytes) else detail
            return ended(report if isinstance(report, dict) else None, call_error(error, options))

        return Start(key, type_, _command_bytes(arg), send, lambda result: ended(payloads.decode_own(result)), failed)

    def restart_child(self, key: str) -> None:
        """Start a child again whose result does not come; what waited for that waits in vain."""
        start, _ = self.in_flight.pop(key, (None, None))
        if start is None:
            return
        if self._run.is_cancelling or self._run.finished is not None:
            self._emit(events.ChildEnded(key, None, CallError(wire.CANCELLED, "the call was cancelled")))
        else:
            self._expected.ended(start.source, None)
            self._launch(start)


def _first_detail(error: BaseException) -> Any:
    cause = cause_of(error)
    return cause.details[0] if isinstance(cause, ApplicationError) and cause.details else None


def _command_bytes(arg: RawValue) -> int:
    """What a command with this argument adds to history."""
    return recorded_bytes(payload_bytes(arg)) + COMMAND_BYTES


def _call_completed(key: str, value: RawValue | None) -> events.Event:
    return events.CallEnded(key, None if value is None else decode(value))


def _call_failed(node: PlannedCall, error: BaseException) -> events.Event:
    return events.CallEnded(node.key, error=call_error(error, node.tool.options))
