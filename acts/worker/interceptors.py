"""All that stands between the SDK and what a worker runs: one chain for Activities, one for workflows.

Around an Activity, from the outside: what observes it, what makes room for its result, and the steps of the worker:
versions, secrets, and where Tools run. Around a workflow: its span and the headers that carry it on, what is counted
and logged when it ends, and the answer to the Web UI, which asks each run for its signals, its queries and its page.
The page is drawn by that query: drawn at the end of each workflow task, it took a tenth of the time of a replay.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from temporalio import activity, workflow
from temporalio import worker as sdk
from temporalio.api.failure.v1 import Failure
from temporalio.common import Priority, RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, CancelledError, FailureError
from temporalio.service import RPCError

from acts.activities.engine_activities import miss
from acts.activities.secret_interceptor import mask_details
from acts.language import wire
from acts.language.config import Config
from acts.machines.lifetime import END_BYTES, UNSEEN_RESULT_BYTES
from acts.telemetry import metrics
from acts.telemetry.failures import EngineFailureConverter, text_of
from acts.telemetry.tracing import HEADER, ROOT, RunSpans, Tracing, add_header, read_header
from acts.tree.identity import fairness_key
from acts.worker.kept_outcomes import Kept, KeptOutcomes, Outcome
from acts.worker.slots import FEW_CALLS
from acts.workflows.driver import used_shares
from acts.workflows.engine_calls import ENGINE_ACTIVITIES
from acts.workflows.handlers import CURRENT_TOOLS, RunWorkflow, describe_interactions
from acts.workflows.in_flight import must_go_through_queue
from acts.workflows.payloads import HAS_STORAGE, MARKER_BYTES, MAX_LOCAL_BYTES

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from temporalio.activity import Info
    from temporalio.api.common.v1 import Payload
    from temporalio.client import Client

    from acts.machines.run_machine import RunMachine

logger = logging.getLogger(__name__)

Proceed = Callable[[sdk.ExecuteActivityInput], Awaitable[Any]]
Step = Callable[[sdk.ExecuteActivityInput, Proceed], Awaitable[Any]]

# What other workflows of the worker call is none of the engine's business
ENGINE_WORKFLOWS: Final = frozenset((wire.PLAN, wire.AGENT, wire.DELEGATE, wire.INSTANCE, wire.BATCH, wire.BACKGROUND))
# The query by which the Web UI asks a run for its handlers and its page; the answer is a ``WorkflowMetadata``
_METADATA: Final = "__temporal_workflow_metadata"
_CONTINUED: Final = "continuedAsNew"
MANY_PRIORITY: Final = 4  # of instances: the server's default is 3, and 1 comes first


class EngineInterceptor(sdk.Interceptor):
    """Both chains of one worker. ``client`` tells how large a history is; None: nobody asks.

    ``steps`` stand around each Activity, the outermost first; ``tracing`` takes the spans of runs.
    """

    def __init__(
        self, client: Client | None = None, *, observe: Step | None = None, steps: Sequence[Step] = (),
        tracing: Tracing | None = None,
    ) -> None:  # fmt: skip
        self.rooms, self._turns = ResultRooms(client), ReportTurns()
        self.tracing = tracing
        self.shows_page = True
        self.allows_eager_start: Callable[..., bool] = lambda **_: True
        self.limited: Container[str] = ()  # Activities with a queue of their own
        self.current_tools: tuple[Mapping[str, Any], Sequence[str]] = {}, ()
        self._steps: tuple[Step, ...] = (*(() if observe is None else (observe,)), self.rooms.make, *steps)

    def intercept_activity(self, next: sdk.ActivityInboundInterceptor) -> sdk.ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        return _Activities(next, self._steps, self._turns)

    def workflow_interceptor_class(
        self,
        input: sdk.WorkflowInterceptorClassInput,  # noqa: A002 - the SDK's name
    ) -> type[sdk.WorkflowInboundInterceptor]:
        engine = self
        input.unsafe_extern_functions[HAS_STORAGE] = lambda: engine.rooms.has_storage
        input.unsafe_extern_functions[CURRENT_TOOLS] = lambda: engine.current_tools

        class Inbound(_Inbound):
            def init(self, outbound: sdk.WorkflowOutboundInterceptor) -> None:
                self.shows_page = engine.shows_page
                self.spans = None if engine.tracing is None else RunSpans(engine.tracing)
                super().init(_Outbound(outbound, engine, self.spans))

        return Inbound


# -- Activities --------------------------------------------------------------------------------


# Outcomes that a worker reports at a time: a server on two cores is busy with them
REPORTS: Final = 16
# One that takes longer, since server or storage is away, holds nobody back
REPORT_SECONDS: Final = 1.0


class ReportTurns:
    """Where many Activities end at once: a turn for each to report its outcome, for one run after another.

    Two thousand Calls of a set that end together keep worker and server busy for seconds. What another run does
    meanwhile would wait for the last of them.
    """

    def __init__(self, count: int = REPORTS) -> None:
        self._free = count
        self._waiting: OrderedDict[str | None, deque[asyncio.Future[None]]] = OrderedDict()

    async def wait(self, run: str | None) -> None:
        """Wait for a turn, which ends with the present task. A cancellation comes too late: the work is done."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if self._free:
            self._free -= 1
        else:
            turn = loop.create_future()
            self._waiting.setdefault(run, deque()).append(turn)
            with suppress(asyncio.CancelledError):
                await turn
            if turn.cancelled():
                return
        end = loop.create_future()
        end.add_done_callback(self._pass_on)
        loop.call_later(REPORT_SECONDS, _set_done, end)
        if task is not None:
            task.add_done_callback(partial(_set_done, end))

    def _pass_on(self, _: object) -> None:
        while self._waiting:
            run, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[run] = turns  # behind the others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def _set_done(future: asyncio.Future[None], _: object = None) -> None:
    if not future.done():
        future.set_result(None)


class _Activities(sdk.ActivityInboundInterceptor):
    def __init__(self, next: sdk.ActivityInboundInterceptor, steps: Sequence[Step], turns: ReportTurns) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._steps, self._turns = steps, turns

    def init(self, outbound: sdk.ActivityOutboundInterceptor) -> None:
        self._heartbeats = _Heartbeats(outbound)
        super().init(self._heartbeats)

    async def execute_activity(self, input: sdk.ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        self._heartbeats.repeat()
        try:
            return await self._proceed(input)
        except (asyncio.CancelledError, CancelledError):
            if is_worker_stopping():
                raise _worker_stops() from None
            details = activity.cancellation_details()
            if details is None or not (details.not_found or details.timed_out):
                raise
            # The server takes no report any more: this is for the log
            why = "its time is over" if details.timed_out else "its run has ended, or waits for it no more"
            raise ApplicationError(f"the call was cut off: {why}", type="Cancelled") from None

    async def _proceed(self, call: sdk.ExecuteActivityInput, place: int = 0) -> Any:
        if place < len(self._steps):
            return await self._steps[place](call, partial(self._proceed, place=place + 1))
        info = activity.info()
        try:
            if is_async(call.fn):
                return await self.next.execute_activity(call)
            call.fn = partial(_end_as_exception, call.fn)
            return await _leave_thread(self.next.execute_activity(call))
        finally:
            if not info.is_local:
                await self._turns.wait(info.priority.fairness_key or info.workflow_id)


# What ends an interpreter, a task or a generator: it would end a loop, or pass by what masks secrets
ENDS: Final = (SystemExit, KeyboardInterrupt, GeneratorExit)


def _end_as_exception(function: Callable[..., Any], *args: Any) -> Any:
    """Run a function. A future refuses StopIteration, so the call would wait until its timeout."""
    try:
        return function(*args)
    except StopIteration as error:
        raise RuntimeError("the tool raised StopIteration: next() found nothing; give it a default") from error
    except ENDS as error:
        raise ApplicationError(text_of(error), type=type(error).__name__) from error


# After a cancellation, for the Tool's own cleanup; the worker's time to stop has two seconds left for the reports
CLEANUP_SECONDS: Final = 0.5
WORKER_STOPPED: Final = "WorkerStopped"  # a code of a Call only where its Tool allows one attempt
STOP_RETRY: Final = timedelta(milliseconds=100)  # the worker that stops polls no more


def is_worker_stopping() -> bool:
    """True for an Activity that is cancelled since its worker's time to finish is over."""
    details = activity.cancellation_details()
    return details is not None and details.worker_shutdown


def _worker_stops() -> ApplicationError:
    """Not the Tool's fault: of several attempts, none is lost. Where it may have one only, it has had it."""
    info = activity.info()
    attempts = info.retry_policy.maximum_attempts if info.retry_policy is not None else 0
    text = "the worker is stopping, and the call did not end in the time that it had for this"
    if 1 < attempts <= info.attempt and info.activity_type not in ENGINE_ACTIVITIES:
        return miss(text)
    return ApplicationError(text, type=WORKER_STOPPED, next_retry_delay=STOP_RETRY)


async def _leave_thread(work: Awaitable[Any]) -> Any:
    """The result of a function in a thread, which cannot be stopped: a worker that stops leaves it behind."""
    event: Any = activity._Context.current().cancelled_event  # noqa: SLF001 - no public way
    event.async_event = event.async_event or asyncio.Event()  # that of a thread has none
    task, cancelled = asyncio.ensure_future(work), asyncio.ensure_future(event.async_event.wait())
    try:
        await asyncio.wait((task, cancelled), return_when=asyncio.FIRST_COMPLETED)
        if is_worker_stopping():
            await asyncio.wait((task,), timeout=CLEANUP_SECONDS)
            if not task.done():
                task.add_done_callback(lambda late: late.cancelled() or late.exception())
                raise asyncio.CancelledError
        return await task
    finally:
        cancelled.cancel()


def is_async(function: Callable[..., Any]) -> bool:
    """True for a coroutine function; an Activity may be an object with an async ``__call__``."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


class _Heartbeats(sdk.ActivityOutboundInterceptor):
    """Heartbeats without secrets; they go through the worker's loop, whichever thread sends them.

    The worker sends them for each Activity that has a time for them, with the details that it sent last: whatever its
    author did, a worker that is killed is missed soon. They go on until the result is reported, which may have to wait
    for its storage.
    """

    def __init__(self, next: sdk.ActivityOutboundInterceptor) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._details: Sequence[Any] = ()
        self._timer: asyncio.TimerHandle
        self._sdk: Any = next
        while hasattr(self._sdk, "next"):
            self._sdk = self._sdk.next

    def repeat(self) -> None:
        """Send heartbeats in the worker's loop until the SDK's task of this Activity ends, which reports it."""
        info, task = activity.info(), asyncio.current_task()
        if info.heartbeat_timeout and not info.is_local and task is not None:
            self._details = info.heartbeat_details  # of the attempt before: this one may end before it has any
            self._wait(info.heartbeat_timeout.total_seconds() / BEATS_IN_TIMEOUT)
            task.add_done_callback(lambda _: self._timer.cancel())

    def _wait(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._repeat, seconds)

    def _repeat(self, seconds: float) -> None:
        running = self._sdk._worker._running_activities.get(self.info().task_token)  # noqa: SLF001 - no public way
        if running is not None:  # the SDK takes none while ``done`` says that only the report is left
            is_done, running.done = running.done, False
            super().heartbeat(*self._details)
            running.done = is_done
        self._wait(seconds)

    def heartbeat(self, *details: Any) -> None:
        self._details = masked = mask_details(details)
        if threading.get_ident() == self._thread:
            super().heartbeat(*masked)
        else:
            self._loop.call_soon_threadsafe(super().heartbeat, *masked)


BEATS_IN_TIMEOUT: Final = 3  # one may be late, and one be lost
MAX_HISTORY_BYTES: Final = END_BYTES - 1_000_000  # a result that fits leaves the run below its own end
TRUST_SECONDS: Final = 1.0  # a size is trusted for so long, as long as the history is less than half full
# Runs whose bytes are counted; one is forgotten when so many others have returned something since
MAX_RUNS: Final = 10_000


@dataclass(slots=True)
class _Run:
    """``task_bytes`` are what the local Activities of its workflow ``task`` have returned.

    ``history_bytes`` are those that the server knew at ``asked_at``, with the large results returned since.
    """

    task: int = -1
    task_bytes: int = 0
    history_bytes: int = 0
    asked_at: float = float("-inf")


class ResultRooms:
    """Whether a run has room for what an Activity returns: in its workflow task, or in its history. Thread-safe.

    Each outcome of a local Activity is a marker in the message that ends the task, and the server terminates a run
    whose message is above 4 MiB. One that does not fit fails with ``LOCAL_DEFERRED``, and the run starts an ordinary
    Activity with the same id, which returns the outcome, or runs again where that is lost.

    The worker that has a large result asks how large the history is: by the time the run learns that sixty Calls have
    returned 1.5 MB each, the server has terminated it. Several worker processes may overshoot by what they have in
    hand; below the server's limit are 7 MB for that.
    """

    def __init__(self, client: Client | None = None) -> None:
        self._client = client
        # Large values travel as references
        self.has_storage = client is not None and client.data_converter.external_storage is not None
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self.outcomes = KeptOutcomes()

    async def make(self, call: sdk.ExecuteActivityInput, proceed: Proceed) -> Any:
        """A step: return what there is room for, encoded once; the SDK passes a ``RawValue`` on as it is."""
        info = activity.info()
        run_id = info.workflow_run_id
        if run_id is None or info.workflow_type not in ENGINE_WORKFLOWS:
            return await proceed(call)
        if info.is_local:
            outcome, size, _ = await _perform(call, proceed)
            self.require(run_id, info.activity_id, outcome, size)
        else:
            outcome = await self._outcome_of(info, partial(_perform, call, proceed))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _outcome_of(self, info: Info, perform: Callable[[], Awaitable[_Performed]]) -> Outcome:
        run_id, id_ = str(info.workflow_run_id), info.activity_id
        earlier = self.outcomes.take(run_id, id_, info.attempt, info.scheduled_time)
        if earlier is not None and earlier.attempt:
            logger.warning(
                "attempt %d returns what attempt %d came to %.0f s ago: the server did not get its report",
                info.attempt, earlier.attempt, time.monotonic() - earlier.ended,
            )  # fmt: skip
            return earlier.outcome
        await self.outcomes.hold(info)
        outcome, size, is_final = (earlier.outcome, earlier.size, True) if earlier is not None else await perform()
        if not isinstance(outcome, Exception) and size > UNSEEN_RESULT_BYTES and self._client is not None:
            try:
                await self._require_history(self._client, info, size)
            except ApplicationError as refusal:
                outcome, size = refusal, 0
        if is_final:
            light = _without_frames(outcome) if isinstance(outcome, Exception) else outcome
            self.outcomes.keep(run_id, id_, Kept(light, size, info.attempt, info.scheduled_time, str(info.workflow_id)))
        return outcome

    def begin_task(self, run_id: str, task: int) -> None:
        """The run starts a local Activity in this workflow task (any number that tells tasks apart)."""
        with self._lock:
            run = self._find(run_id)
            if run.task != task:
                run.task, run.task_bytes = task, 0

    def require(self, run_id: str, activity_id: str, outcome: Outcome, size: int) -> None:
        """Count an outcome of so many bytes, or keep it and raise ``LOCAL_DEFERRED``."""
        with self._lock:
            run = self._find(run_id)
            if run.task_bytes + size + MARKER_BYTES <= MAX_LOCAL_BYTES:
                run.task_bytes += size + MARKER_BYTES
                return
        self.outcomes.keep(run_id, activity_id, Kept(outcome, size))
        raise ApplicationError(
            f"the outcome has {size:,} bytes: an ordinary activity returns it",
            type=wire.LOCAL_DEFERRED, non_retryable=True, category=ApplicationErrorCategory.BENIGN,
        )  # fmt: skip

    async def _require_history(self, client: Client, info: Info, size: int) -> None:
        limit = wire.MAX_STORED_BYTES if self.has_storage else wire.MAX_PAYLOAD_BYTES
        if size > limit:
            raise self._refusal(size, f"at most {limit:,} are recorded")
        if self.has_storage and size >= wire.STORED_ABOVE_BYTES:
            return  # history has a reference
        with self._lock:
            run = self._find(str(info.workflow_run_id))
        is_fresh = time.monotonic() - run.asked_at < TRUST_SECONDS
        if not is_fresh or run.history_bytes + size > MAX_HISTORY_BYTES // 2:
            handle = client.get_workflow_handle(str(info.workflow_id), run_id=info.workflow_run_id)
            with suppress(RPCError):  # the result is worth more than the check
                described = await handle.describe()
                now = described.raw_description.workflow_execution_info.history_size_bytes
                run.history_bytes = max(run.history_bytes, now)  # others have reserved during the wait
            run.asked_at = time.monotonic()
        if run.history_bytes + size > MAX_HISTORY_BYTES:
            text = f"the history of the run has {run.history_bytes:,} of at most {MAX_HISTORY_BYTES:,}"
            raise self._refusal(size, text)
        run.history_bytes += size

    def _find(self, run_id: str) -> _Run:
        run = self._runs.setdefault(run_id, _Run())
        self._runs.move_to_end(run_id)
        if len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        return run

    def _refusal(self, size: int, why: str) -> ApplicationError:
        hint = "keep large data outside and return a reference to it"
        hint = hint if self.has_storage else f"set ACTS_STORAGE for the worker and its clients, or {hint}"
        text = f"the result has {size:,} bytes; {why}: {hint}"
        return ApplicationError(text, type=wire.RESULT_TOO_LARGE, non_retryable=True)


# An outcome, its bytes, and whether no attempt is to follow it
_Performed = tuple[Outcome, int, bool]


async def _perform(call: sdk.ExecuteActivityInput, proceed: Proceed) -> _Performed:
    converter = activity.payload_converter()
    try:
        result = await proceed(call)
        payload = None if result is None else converter.to_payload(result)
    except Exception as error:  # noqa: BLE001 - it is raised again, here or by the ordinary Activity
        failure, policy = Failure(), activity.info().retry_policy
        EngineFailureConverter().to_failure(error, converter, failure)
        final = (policy and policy.non_retryable_error_types) or ()
        about = failure.application_failure_info
        # A miss is followed by another Activity of the same id
        is_final = (about.non_retryable or about.type in final) and about.type != wire.NOT_SERVED
        return error, failure.ByteSize(), is_final
    return (None, 0, True) if payload is None else (RawValue(payload), payload.ByteSize(), True)


def _without_frames(error: Exception) -> Exception:
    """The same failure, without what the Tool had in its variables."""
    converter, failure, engine = activity.payload_converter(), Failure(), EngineFailureConverter()
    engine.to_failure(error, converter, failure)
    copy = engine.from_failure(failure, converter)
    return copy if isinstance(copy, Exception) else error


# -- workflows --------------------------------------------------------------------------------------


class _Inbound(sdk.WorkflowInboundInterceptor):
    spans: RunSpans | None = None
    shows_page = True

    async def execute_workflow(self, input: sdk.ExecuteWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
        try:
            result = await super().execute_workflow(input)
        except workflow.ContinueAsNewError:
            self._end(_CONTINUED)
            raise
        except ApplicationError as error:
            self._end("failed", error)
            raise
        except (FailureError, asyncio.CancelledError):
            self._end("cancelled")
            raise
        machine = _machine()
        self._end("completed" if machine is None or machine.finished is None else machine.finished)
        return result

    async def handle_query(self, input: sdk.HandleQueryInput) -> Any:  # noqa: A002 - the SDK's name
        answer = await super().handle_query(input)
        type_, run = workflow.info().workflow_type, workflow.instance()
        if input.query == _METADATA and type_ in ENGINE_WORKFLOWS:
            describe_interactions(answer, takes_signals=type_ != wire.BACKGROUND)
            if not self.shows_page:
                answer.current_details = ""
            elif isinstance(run, RunWorkflow) and (page := run.page()) is not None:
                answer.current_details = page
        return answer

    def _end(self, phase: str, error: ApplicationError | None = None) -> None:
        """The run ends now, unless it is replayed; an eviction counts as a replay."""
        if not workflow.in_workflow() or workflow.unsafe.is_replaying():
            return
        info = workflow.info()
        if info.workflow_type not in ENGINE_WORKFLOWS:
            return
        if self.spans is not None and self.spans.own.trace_flags.sampled:
            root, instance = _place()
            attributes = {"acts.root": root, "acts.phase": phase}
            self.spans.emit(attributes | ({} if instance is None else {"acts.instance": instance}), error)
        if phase != _CONTINUED and info.parent is None:
            _record_end(phase)
            level = logging.WARNING if phase == "failed" else logging.INFO
            type_ = f": {error.type}" if error is not None and error.type else ""
            workflow.logger.log(level, "%s ended: %s%s", info.workflow_type, phase, type_)


class _Outbound(sdk.WorkflowOutboundInterceptor):
    def __init__(self, next: sdk.WorkflowOutboundInterceptor, engine: EngineInterceptor, spans: Any) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._rooms, self._allows_eager_start, self._spans = engine.rooms, engine.allows_eager_start, spans
        self._limited = engine.limited

    def start_activity(self, input: sdk.StartActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002 - the SDK's name
        # No command of a history: a replay may say otherwise
        if must_go_through_queue.get() or not self._allows_eager_start(has_few=_has_few_calls()):
            input.disable_eager_execution = True
        input.priority = _priority() if input.priority == Priority.default else input.priority
        if input.task_queue is None and input.activity in self._limited:
            input.task_queue = limited_queue(workflow.info().task_queue, input.activity)
        input.headers = self._below(input.headers)
        return super().start_activity(input)

    def start_local_activity(self, input: sdk.StartLocalActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002 - the SDK's name
        info = workflow.info()
        self._rooms.begin_task(info.run_id, info.get_current_history_length())
        input.headers = self._below(input.headers)
        return super().start_local_activity(input)

    async def start_child_workflow(self, input: sdk.StartChildWorkflowInput) -> workflow.ChildWorkflowHandle[Any, Any]:  # noqa: A002 - the SDK's name
        input.priority = _priority(input.workflow) if input.priority == Priority.default else input.priority
        input.headers = self._below(input.headers)
        return await super().start_child_workflow(input)

    def continue_as_new(self, input: sdk.ContinueAsNewInput) -> NoReturn:  # noqa: A002 - the SDK's name
        if self._spans is not None and HEADER in workflow.info().headers:  # beside its span
            input.headers = add_header(input.headers, self._spans.carrier)
        super().continue_as_new(input)

    def _below(self, headers: Mapping[str, Payload]) -> Mapping[str, Payload]:
        return headers if self._spans is None else self._spans.add_to(headers, *_place())


def _machine() -> RunMachine | None:
    run = workflow.instance()
    return run.machine if isinstance(run, RunWorkflow) else None


def limited_queue(queue: str, activity_name: str) -> str:
    """Where Calls of an Activity of ``ACTS_TOOL_LIMITS`` wait: beside ``queue``, so that they hold up no others."""
    return f"{queue}/{activity_name}"


def _has_few_calls() -> bool:
    """Whether a run is none of many alike, and has few Calls in flight."""
    machine = _machine()
    is_alike = workflow.info().workflow_type == wire.INSTANCE or (machine and machine.position.instance) is not None
    return not is_alike and (machine is None or machine.in_flight <= FEW_CALLS)


def _priority(child: str = "") -> Priority:
    """What a start says beside what it has from its run: a root says what its Request wants.

    Instances, of which there are many alike, come after everything else, unless the Request or its sender says more.
    """
    machine, own = _machine(), workflow.info().priority
    is_root = machine is not None and machine.position.is_root
    config = machine.config if machine is not None and is_root else Config()
    key = config.priority
    if key is None and own.priority_key is None and child in (wire.INSTANCE, wire.BATCH):
        key = MANY_PRIORITY
    if not is_root or (config.fairness is None and own.fairness_key):
        return Priority(priority_key=key)
    return Priority(priority_key=key, fairness_key=fairness_key(config, workflow.info().workflow_id))


def _place() -> tuple[str, str | None]:
    """The workflow id of the root of a run's tree, and the instance that it works for."""
    own, machine = workflow.info().workflow_id, _machine()
    if machine is None:
        return read_header(workflow.info().headers).get(ROOT, own), None
    position = machine.position
    return (position.ancestors[0] if position.ancestors else own), position.instance


def _record_end(phase: str) -> None:
    info, machine = workflow.info(), _machine()
    metrics.record(metrics.RUNS, type=info.workflow_type, phase=phase)
    began = info.workflow_start_time
    if machine is not None and machine.position.startedAt:  # that of the first run, where it continued as new
        began = datetime.fromisoformat(machine.position.startedAt)
    metrics.record(metrics.RUN_SECONDS, max(0.0, workflow.time() - began.timestamp()), type=info.workflow_type)
    if machine is not None:
        for limit, share in used_shares(machine).items():
            metrics.record(metrics.BUDGET_LEFT, max(0.0, 1.0 - share), limit=limit)
