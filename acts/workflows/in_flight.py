"""What a run has in flight: Activities of Tools, requests to models, children. Each ends with one event.

``driver.py`` decides when something is sent: ``TasksInFlight.prepare`` gives it a ``Start`` whose size is known.

* Retries, timeouts and task queues of a Tool's Activity come from its ``_options`` only. The activity id is the Call's
  key, so that replay detects a changed start order, and people find the Call in the Web UI.
* An Activity that a worker took but does not have is *missed* (``MissedActivity``): another worker of the queue may
  have it. A worker that lacks a secret or the key of the payloads counts as one, too. While workers of several
  versions poll one queue, as in every rolling deploy, any of them may take any Call. A miss is no attempt of the Tool:
  the Activity is scheduled again, with the attempts that are left, until a worker that has it takes it. Where none
  comes, the Call fails with ``NotServed`` and names the workers that took it.
* Local Activities of one workflow task may return so many bytes (``LocalLane``): each outcome is a marker in the
  message that ends the task, and the server terminates a run whose message is above 4 MiB. The lane decides by what
  history has, so every replay decides alike; ``ResultRooms`` in ``acts/worker/interceptors.py`` is the other side of
  the limit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    TerminatedError,
    TimeoutType,
    is_cancelled_exception,
)
from temporalio.exceptions import (
    TimeoutError as ActivityTimeout,
)

from acts.language import wire
from acts.language.errors import CallError, truncate
from acts.machines import commands, events
from acts.machines.lifetime import ExpectedResults
from acts.tree.identity import short_id
from acts.tree.records import Accounting
from acts.workflows.children import Children, failure_detail
from acts.workflows.engine_calls import (
    OPTIONS,
    QUEUES_LABEL,
    output_request,
    solution_request,
    start_engine_activity,
    usage_of,
)
from acts.workflows.payloads import (
    decode,
    decode_result,
    encode,
    encode_record,
    max_payload_bytes,
    payload_bytes,
    recorded_bytes,
    too_large_hint,
)

if TYPE_CHECKING:
    from acts.language.config import Options
    from acts.language.tools import Tool
    from acts.machines.commands import CheckQueues, StartSetActivity
    from acts.machines.run_machine import RunMachine
    from acts.plan.calls import PlannedCall
    from acts.tree.wire_format import VersionedRecord

    Task = asyncio.Task[Any]
    ChildHandle = workflow.ChildWorkflowHandle[Any, Any]

StartCommand = (
    commands.StartCall | commands.AskOutput | commands.AskSolution | commands.StartBackground | commands.StartChild
)
# What a command and its event take beside their payloads: ids, types, a label, timeouts, a retry policy
COMMAND_BYTES: Final = 384


@dataclass(frozen=True, slots=True)
class Start:
    """What is ready to be sent. ``size`` is what it adds to the message of its workflow task, in bytes.

    ``source`` is what its result is expected to be like. A local one adds nothing before it ends. ``held`` are the
    bytes of large arguments, which stay in memory until the result is there.
    """

    source: str
    size: int
    send: Callable[[], None]
    is_local: bool = False
    held: int = 0


def command_bytes(arg: RawValue) -> int:
    """What a command with this argument adds to history."""
    return recorded_bytes(payload_bytes(arg)) + COMMAND_BYTES


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


class ActivityCalls:
    """Starts the Activities of one run."""

    def __init__(self) -> None:
        self._tools: dict[str, tuple[RawValue, int]] = {}  # by name: what is the same for each Call, with its size
        self._options: dict[str, dict[str, Any]] = {}
        empty = encode([])
        self._context: tuple[list[dict[str, Any]], RawValue, int] = [], empty, payload_bytes(empty)

    def arguments(self, command: commands.StartCall) -> tuple[list[RawValue], int, int]:
        """The three arguments of an Activity (Call, Tool, scopes), their bytes, and those that history has of them.

        Raises:
            CallError: they are too large to record.
        """
        tool = command.node.tool
        if tool.name not in self._tools:
            schema = encode(tool.schema)
            self._tools[tool.name] = schema, payload_bytes(schema)
        schema, schema_bytes = self._tools[tool.name]
        own, context, context_bytes = self._context
        if command.context is not own and (command.context or own):  # all elements of a Call have the same
            context = encode(command.context)
            context_bytes = payload_bytes(context)
            self._context = command.context, context, context_bytes
        call = encode(command.call)
        args, total = [call, schema, context], payload_bytes(call) + schema_bytes + context_bytes
        if total < wire.STORED_ABOVE_BYTES:
            return args, total, total
        if total > max_payload_bytes():
            limit = f"at most {max_payload_bytes():,} can be recorded"
            text = f"its parameters, tool and scopes are {total:,} bytes; {limit}: {too_large_hint()}"
            raise CallError(wire.RESULT_TOO_LARGE, text)
        return args, total, sum(recorded_bytes(payload_bytes(arg)) for arg in args)

    def start(
        self, node: PlannedCall, args: list[RawValue], attempts: int | None = None
    ) -> workflow.ActivityHandle[Any]:
        """Schedule the Call's Activity, with so many attempts or (None) as its Tool says."""
        tool = node.tool
        options = self._options_of(tool)
        if attempts is not None:
            options = {**options, "retry_policy": replace(options["retry_policy"], maximum_attempts=attempts)}
        return workflow.start_activity(
            str(tool.activity), args=args, result_type=RawValue, activity_id=short_id(node.key), summary=node.label,
            **options,
        )  # fmt: skip

    def start_local(self, node: PlannedCall, args: list[RawValue]) -> workflow.ActivityHandle[Any]:
        """Run the Call's Activity in this workflow task."""
        tool = node.tool
        return workflow.start_local_activity(
            str(tool.activity), args=args, result_type=RawValue, activity_id=short_id(node.key),
            summary=node.label, start_to_close_timeout=timedelta(seconds=tool.options.timeout),
            retry_policy=self._options_of(tool)["retry_policy"], local_retry_threshold=MAX_LOCAL_WAIT,
        )  # fmt: skip

    def _options_of(self, tool: Tool) -> dict[str, Any]:
        options = self._options.get(tool.name)
        if options is None:
            options = self._options[tool.name] = activity_options(tool.options, retry_policy(tool.options))
        return options


def activity_options(options: Options, policy: RetryPolicy) -> dict[str, Any]:
    """Keyword arguments of ``start_activity``.

    Only the time of an attempt is limited by default. How long a Call waits for a worker depends on what
    else is in the queue: that is no failure of the Call.
    """
    out: dict[str, Any] = {"start_to_close_timeout": timedelta(seconds=options.timeout), "retry_policy": policy}
    if options.queueTimeout is not None:
        out["schedule_to_start_timeout"] = timedelta(seconds=options.queueTimeout)
    if options.taskQueue is not None:
        out["task_queue"] = options.taskQueue
    if options.heartbeat is not None:
        out["heartbeat_timeout"] = timedelta(seconds=options.heartbeat)
    return out


def retry_policy(options: Options) -> RetryPolicy:
    """The Tool's retry policy; a result too large to record is never retried."""
    retry = options.retry
    return RetryPolicy(
        initial_interval=timedelta(seconds=retry.initialInterval),
        backoff_coefficient=retry.backoff,
        maximum_attempts=retry.maxAttempts,
        non_retryable_error_types=[*retry.nonRetryable, wire.SDK_PAYLOADS_TOO_LARGE],
    )


def call_error(error: BaseException, options: Options) -> CallError:
    """The error of a Call whose Activity or child workflow failed."""
    cause: BaseException = error
    while isinstance(cause, (ActivityError, ChildWorkflowError)) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, CancelledError):
        return CallError(wire.CANCELLED, "the call was cancelled")
    if isinstance(cause, TerminatedError):
        return CallError(type(cause).__name__, _TERMINATED_TEXT)
    if isinstance(cause, ActivityTimeout):
        text = _TIMEOUT_TEXT.get(cause.type or TimeoutType.START_TO_CLOSE, "it took too long")
        figures = {
            "queue": options.taskQueue or workflow.info().task_queue, "wait": options.queueTimeout or 0,
            "timeout": options.timeout, "heartbeat": options.heartbeat or 0,
        }  # fmt: skip
        return CallError(wire.TIMEOUT, text.format(**figures))
    if isinstance(cause, ApplicationError):
        # The SDK says that an argument could not be decoded, and only its cause says why: content that is not stored
        more = f": {cause.__cause__}" if cause.message == _UNDECODED and cause.__cause__ is not None else ""
        return CallError(cause.type or "ApplicationError", truncate(cause.message + more, 10_000), _details(cause))
    if isinstance(cause, CallError):
        return cause
    message = cause.message if isinstance(cause, FailureError) else str(cause)
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


@dataclass
class MissedActivity:
    """One Activity that was missed. ``start`` schedules it with so many attempts; ``show`` takes the note, or None."""

    start: Callable[[int], workflow.ActivityHandle[Any]]
    options: Options
    show: Callable[[str | None], None]

    async def run(self, miss: Miss) -> Any:
        """The Activity's result, from a worker that has it.

        Raises:
            ActivityError: it failed there. CallError: no worker has it.
        """
        began, left, pause = workflow.now(), self.options.retry.maxAttempts, 0.0
        limit = NOT_SERVED_SECONDS if self.options.queueTimeout is None else self.options.queueTimeout
        reasons: dict[str, None] = {}
        try:
            while True:
                left = max(1, left - miss.attempt + 1)
                reasons[miss.reason] = None
                text = truncate("; ".join(reasons), 1_000)
                if (workflow.now() - began).total_seconds() >= limit:
                    raise CallError(wire.NOT_SERVED, f"no worker that has its activity took it: {text}; {_HINT}")
                if pause:
                    self.show(f"workers that do not have its activity took a call, and it waits for others: {text}")
                    await workflow.sleep(timedelta(seconds=pause), summary="wait for a worker that has the activity")
                pause = min(PAUSE_FACTOR * pause, LONGEST_PAUSE_SECONDS) or FIRST_PAUSE_SECONDS
                try:
                    return await self._start(left)
                except ActivityError as error:
                    again = miss_of(error, self.options)
                    if again is None:
                        raise
                    miss = again
        finally:
            self.show(None)

    def _start(self, attempts: int) -> workflow.ActivityHandle[Any]:
        token = must_go_through_queue.set(True)
        try:
            return self.start(attempts)
        finally:
            must_go_through_queue.reset(token)


# Outcomes of one workflow task, in bytes. A task that begins may inherit as much from the one before it (what was
# returned after that had been sent), so twice this much, and MAX_SLICE_BYTES of commands, stay below 4 MiB
MAX_LOCAL_BYTES: Final = 1024 * 1024
# A marker without its result: ids, names and times
MARKER_BYTES: Final = 512
# What a running local activity is expected to add, so that at most 1,024 run at a time
EXPECTED_BYTES: Final = 2 * MARKER_BYTES


class LocalLane:
    """The local activities of one run: how many run, and how many bytes history has of them since a task began."""

    def __init__(self) -> None:
        self._running = 0
        self._recorded = 0

    @property
    def bytes(self) -> int:
        """What the message of this workflow task must have room for."""
        return self._recorded + self._running * EXPECTED_BYTES

    def has_room(self) -> bool:
        """True when one more may run locally; else it runs as an ordinary activity, whose result ends the task."""
        return self.bytes + EXPECTED_BYTES <= MAX_LOCAL_BYTES

    def start(self) -> None:
        """One has started."""
        self._running += 1

    def end(self, size: int) -> None:
        """One has ended with an outcome of so many bytes."""
        self._running -= 1
        self._recorded += size + MARKER_BYTES

    def begin_task(self) -> None:
        """Something came that only a new workflow task brings: what was recorded has been sent."""
        self._recorded = 0


# -- what is in flight ------------------------------------------------------------------------------


class TasksInFlight:
    """The tasks of one run, by their keys in ``in_flight``; ``emit`` takes the event of each that ends.

    Nothing here decides what an outcome means: an error becomes the event that says so. ``defer`` takes the command of
    a local Activity whose outcome an ordinary one is to return.
    """

    def __init__(
        self, run: RunMachine, children: Children, emit: Callable[[events.Event], None],
        defer: Callable[[commands.StartCall], None],
    ) -> None:  # fmt: skip
        self.in_flight: dict[str, Task] = {}
        self.expected = ExpectedResults()
        self.local = LocalLane()
        self.held_bytes = 0
        self._held: dict[str, int] = {}  # by key: the bytes of large arguments in memory
        self._run, self._children, self._emit, self._defer = run, children, emit, defer
        self._activities = ActivityCalls()
        self._deferred: set[str] = set()
        self._sends: dict[str, Callable[[], None]] = {}  # by key: how each child is started again

    def cancel(self) -> None:
        """Cancel everything; each ends with an event."""
        for task in list(self.in_flight.values()):
            task.cancel()

    def prepare(self, command: StartCommand) -> Start | None:
        """What this command sends; None for one that cannot be sent: its failure is emitted."""
        try:
            return self._prepare(command)
        except CallError as error:
            self._emit(self._unsent(command, error))
            return None

    def _prepare(self, command: StartCommand) -> Start:
        match command:
            case commands.StartCall():
                return self._activity(command)
            case commands.AskOutput():
                request = output_request(self._run, command)
                send = partial(self._ask_output, command.node, request)
                return Start(command.node.tool.name, command_bytes(request), send)
            case commands.AskSolution():
                request = solution_request(self._run, command)
                return Start(wire.PLAN, command_bytes(request), partial(self._ask_solution, command, request))
            case commands.StartBackground():
                arg = encode_record(command.input)
                send = partial(self._start_background, command.node, arg)
                return Start(command.node.tool.name, command_bytes(arg), send)
            case commands.StartChild():
                return self._child(command)

    def _unsent(self, command: StartCommand, error: CallError) -> events.Event:
        match command:
            case commands.AskSolution():
                raise error  # it has no parameters that could be too large
            case commands.StartCall() | commands.AskOutput() | commands.StartBackground():
                return events.CallEnded(command.node.key, error=error)
        self._children.forget(command.type, command.name)
        return events.ChildEnded(command.key, None, error, is_unstarted=True)

    def watch(self, key: str, task: Task, to_event: Callable[[Task], events.Event | None], source: str) -> None:
        """Keep a task in flight until it ends: then emit its event, if any. Only a new workflow task brings its end."""

        def ended(task: Task) -> None:
            if self.in_flight.get(key) is not task:  # nobody waits for it any more
                _ = task.cancelled() or task.exception()  # else asyncio logs a failure as lost
                return
            self.in_flight.pop(key)
            self.held_bytes -= self._held.pop(key, 0)
            self.expected.ended(source, _result_bytes(task))
            self.local.begin_task()
            event = to_event(task)
            if event is not None:
                self._emit(event)

        self.in_flight[key] = task
        self.expected.started(source)
        task.add_done_callback(ended)

    # -- Activities of Tools ---------------------------------------------------------------------

    def _activity(self, command: commands.StartCall) -> Start:
        node = command.node
        args, total, size = self._activities.arguments(command)
        if node.tool.options.local and node.key not in self._deferred and self.local.has_room():
            return Start(node.tool.name, 0, partial(self._start_local, command, args), is_local=True)
        self._deferred.discard(node.key)
        held = total if size < total else 0
        send = partial(self._start_activity, node, args, held)
        return Start(node.tool.name, size + COMMAND_BYTES, send, held=held)

    def _start_activity(self, node: PlannedCall, args: list[RawValue], held: int) -> None:
        task = self._activities.start(node, args)
        if held:
            self._held[node.key] = held
            self.held_bytes += held
        self.watch(node.key, task, partial(self._activity_ended, node, args), node.tool.name)

    def _start_local(self, command: commands.StartCall, args: list[RawValue]) -> None:
        task = self._activities.start_local(command.node, args)
        self.local.start()
        self.in_flight[command.node.key] = task
        task.add_done_callback(partial(self._local_ended, command, args))

    def _local_ended(self, command: commands.StartCall, args: list[RawValue], task: Task) -> None:
        node = command.node
        self.in_flight.pop(node.key, None)
        self.local.end(_result_bytes(task) or 0)
        if _is_deferred(task):
            self._deferred.add(node.key)
            self._defer(command)
        elif (event := self._activity_ended(node, args, task)) is not None:
            self._emit(event)

    def _activity_ended(self, node: PlannedCall, args: list[RawValue], task: Task) -> events.Event | None:
        try:
            value = task.result()
            return events.CallEnded(node.key, None if value is None else decode(value))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
            miss = miss_of(error, node.tool.options)
            if miss is not None:
                self._run_elsewhere(node, args, miss)
                return None
            return events.CallEnded(node.key, error=call_error(error, node.tool.options))

    def _run_elsewhere(self, node: PlannedCall, args: list[RawValue], miss: Miss) -> None:
        """The Call stays in flight until a worker that has its Activity takes it."""
        show = partial(self._run.queue_watch.record_miss, node.key)
        missed = MissedActivity(partial(self._activities.start, node, args), node.tool.options, show)
        task = asyncio.create_task(missed.run(miss))
        self.watch(node.key, task, partial(self._activity_ended, node, args), node.tool.name)

    # -- the engine's own Activities ---------------------------------------------------------------

    def _ask_output(self, node: PlannedCall, request: RawValue) -> None:
        task = start_engine_activity(wire.MODEL, request, node.label, node.key)
        self.watch(node.key, task, partial(self._output_ended, node.key), node.tool.name)

    def _output_ended(self, key: str, task: Task) -> events.Event:
        try:
            answer = self._read_answer(task)
            return events.CallEnded(key, answer["output"], answer["path"], answer["usage"])
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
            failure = call_error(error, OPTIONS)
            # The details of a model's failure are what it cost
            return events.CallEnded(key, error=CallError(failure.code, failure.message), usage=usage_of(error))

    def _ask_solution(self, command: commands.AskSolution, request: RawValue) -> None:
        name = f"tick-{command.tick}"
        task = start_engine_activity(wire.MODEL, request, f"tick {command.tick}", name)
        self.watch(name, task, self._solution_ended, wire.PLAN)

    def _solution_ended(self, task: Task) -> events.Event:
        try:
            return events.ModelEnded(self._read_answer(task))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the machine decides
            return events.ModelEnded(error=call_error(error, OPTIONS), usage=usage_of(error))

    def _read_answer(self, task: Task) -> Any:
        """What a model's Activity returned; its notes go to the run."""
        answer = decode(task.result())
        for note in answer.get("notes") or ():
            self._run.note(note)
        return answer

    def check_queues(self, command: CheckQueues) -> None:
        """Ask the server which task queues have workers; this waits for no room."""
        task = start_engine_activity(wire.QUEUES, {"queues": list(command.queues)}, QUEUES_LABEL)
        self.watch(wire.QUEUES, task, _queues_checked, "")

    def start_set_activity(self, command: StartSetActivity) -> None:
        """Start an Activity of a set; this waits for no room."""
        try:
            task = start_engine_activity(command.activity, command.argument, command.label)
        except CallError as error:
            self._emit(events.SetActivityEnded(command.key, error=error))
            return
        self.watch(command.key, task, partial(_set_activity_ended, command.key), command.activity)

    # -- children ----------------------------------------------------------------------------------

    def _child(self, command: commands.StartChild) -> Start:
        type_, name, key = command.type, command.name, command.key
        record: VersionedRecord = command.input
        arg = encode_record(record)
        options = OPTIONS if command.node is None else command.node.tool.options
        is_limited = type_ == wire.DELEGATE and "timeout" in options.model_fields_set
        seconds = options.timeout if is_limited else None

        def send() -> None:
            started = partial(self._child_started, key)
            run = asyncio.create_task(self._children.run(type_, name, arg, command.label, started, seconds))
            self._sends[key] = partial(self._send_again, type_, name, send)
            self.watch(key, run, partial(self._child_ended, key, options), type_)

        return Start(type_, command_bytes(arg), send)

    def restart_child(self, key: str) -> None:
        """Start a child again whose result does not come; what waited for that waits in vain."""
        send_again = self._sends.get(key)
        if send_again is None or self.in_flight.pop(key, None) is None:
            return
        if self._run.is_cancelling or self._run.finished is not None:
            self._emit(events.ChildEnded(key, None, CallError(wire.CANCELLED, "the call was cancelled")))
        else:
            send_again()

    def _send_again(self, type_: str, name: str, send: Callable[[], None]) -> None:
        self.expected.ended(type_, None)
        self._children.expect(type_, name)
        send()

    def _child_started(self, key: str, child: ChildHandle, is_of_before_reset: bool) -> None:  # noqa: FBT001
        self._emit(events.ChildStarted(key, child.id, is_of_before_reset, child.first_execution_run_id or ""))

    def _child_ended(self, key: str, options: Options, task: Task) -> events.Event:
        self._sends.pop(key, None)
        try:
            report = decode_result(task.result())
            return events.ChildEnded(key, report, accounting=_accounting_of(report))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
            if isinstance(error, asyncio.CancelledError) or is_cancelled_exception(error):
                return events.ChildEnded(key, None, CallError(wire.CANCELLED, "the call was cancelled"))
            detail = failure_detail(error)
            report = detail if isinstance(detail, dict) else None
            return events.ChildEnded(key, report, call_error(error, options), accounting=_accounting_of(report))

    def _start_background(self, node: PlannedCall, arg: RawValue) -> None:
        task = asyncio.create_task(self._children.start_background(node.key, arg, node.label))
        self.watch(node.key, task, partial(_background_started, node), "")


def _queues_checked(task: Task) -> events.Event:
    try:
        return events.QueuesChecked(task.result())
    except (Exception, asyncio.CancelledError):  # noqa: BLE001 - then nothing is known, and nothing is shown
        return events.QueuesChecked({})


def _set_activity_ended(key: str, task: Task) -> events.Event:
    try:
        return events.SetActivityEnded(key, decode(task.result()))
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
        return events.SetActivityEnded(key, error=call_error(error, OPTIONS))


def _background_started(node: PlannedCall, task: Task) -> events.Event:
    try:
        task.result()
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
        return events.CallEnded(node.key, error=call_error(error, node.tool.options))
    return events.CallDetached(node.key)


def _accounting_of(report: Any) -> Accounting | None:
    """What a child's work adds to the run above."""
    data = report.get("accounting") if isinstance(report, dict) else None
    return None if data is None else Accounting.from_json(data)


def _result_bytes(task: Task) -> int | None:
    """What history has of the payload that a task returned; None for one that failed, or returned none."""
    if task.cancelled() or task.exception() is not None:
        return None
    payload = getattr(task.result(), "payload", None)
    return None if payload is None else recorded_bytes(payload.ByteSize())


def _is_deferred(task: Task) -> bool:
    error = None if task.cancelled() else task.exception()
    cause = error.__cause__ if isinstance(error, ActivityError) else error
    return isinstance(cause, ApplicationError) and cause.type == wire.LOCAL_DEFERRED
