"""Observes a worker: the Activities that it runs, the runs that wait for people, logs, traces, metrics, health.

Laws of this file: without settings it costs nothing. Nothing of a Call's parameters or result is kept; the engine's own
look-ups get no span.

Health is two HTTP answers from a server in threads of its own, so that it answers while the event loop does not:
``/live`` (start it again?) is 200 while that loop comes back and threads for workflow tasks are left; a server that is
away makes no worker dead. ``/ready`` is 200 while the server has seen the worker poll, and no stop was requested.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import TaskQueueType, WorkerVersioningMode
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    DescribeWorkflowExecutionRequest,
)
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from acts.language.errors import SettingsError
from acts.language.wire import LOAD_DELEGATE, MODEL
from acts.telemetry import metrics
from acts.telemetry.logs import current_call, identify
from acts.telemetry.tracing import INSTANCE, ROOT, Tracing, read_header, start_tracing

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.runtime import Runtime
    from temporalio.worker import ExecuteActivityInput

    Proceed = Callable[[ExecuteActivityInput], Awaitable[Any]]

logger = logging.getLogger(__name__)

# The loop comes back in milliseconds; Tools run beside it. Above the pause of a large garbage collection
LOOP_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0  # of the server


@contextmanager
def serve_health(address: str, worker: Observation) -> Iterator[int]:
    """A block in which the health of ``worker`` is served at host:port; yields the port. Raises SettingsError."""
    host, _, port = address.rpartition(":")

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # readers of events that come at once
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        server = Server((host.strip("[]"), int(port)), partial(_Handler, worker))
    except OSError as error:
        raise SettingsError(f"ACTS_HEALTH is {address}; nothing can listen there: {error.strerror}") from None
    with server:
        threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    timeout = 5  # of a client that sends nothing, in seconds

    def __init__(self, worker: Observation, *args: Any) -> None:
        self._checks = {"/live": worker.live_problem, "/ready": worker.ready_problem}
        self._serve_events = worker.serve_events
        super().__init__(*args)

    def handle(self) -> None:
        with suppress(ConnectionError):  # a client has hung up
            super().handle()

    def do_GET(self) -> None:
        if self._serve_events is not None and self.path.startswith("/runs/"):
            self._serve_events(self)
            return
        check = self._checks.get(self.path.partition("?")[0])
        problem = "there are /live, /ready and /runs/ID/events" if check is None else check()
        content = {"ok": True} if problem is None else {"ok": False, "problem": problem}
        data = json.dumps(content).encode() + b"\n"
        self.send_response(404 if check is None else 200 if problem is None else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Probes are not logged."""


# An idle poll lasts a minute, and is then repeated: without one for two minutes, one was missed
MAX_POLL_SECONDS: Final = 120.0
# The server ends an idle poll after a minute, and the worker begins another; it lists who is gone for five
FRESH_POLL_SECONDS: Final = 75.0
# A run, or its workflow task, may wait for an answer: a slow server must not hold it up
RPC_TIMEOUT: Final = timedelta(seconds=2)


@dataclass
class Observation:
    """What observes one worker. ``runtime`` None: the SDK's default. ``address`` "": health is not served.

    ``count_lost`` counts threads that stuck tasks have taken, of ``threads``; ``loop`` is the worker's, once it runs;
    ``is_polling`` asks the server whether it sees that.
    """

    runtime: Runtime | None = None
    tracing: Tracing | None = None
    address: str = ""
    count_lost: Callable[[], int] = lambda: 0
    threads: int = 0
    loop: asyncio.AbstractEventLoop | None = None
    is_polling: Callable[[], Coroutine[Any, Any, bool]] | None = None
    is_stopping: bool = False
    serve_events: Callable[[BaseHTTPRequestHandler], None] | None = None  # at ``/runs/``, in a thread of each reader

    @classmethod
    def start(cls, metrics_address: str, health_address: str, tools: Iterable[str]) -> Observation:
        """Begin to observe; ``tools`` are the names by which Calls are counted. Raises SettingsError."""
        tracing = None
        try:
            tracing = start_tracing("acts-worker")
        except SettingsError as error:
            # The variables are not ours: one that is set for all programs of a machine must not stop a worker
            logger.warning("traces are off: %s", error)
        return cls(metrics.create_runtime(metrics_address, tools), tracing, health_address)

    async def observe_call(self, call: ExecuteActivityInput, proceed: Proceed) -> Any:
        """A step around Activities: the ids of a Call for its log lines, its metrics, and its span."""
        info = activity.info()
        ids = identify(info, call.args)
        tool = ids.get("tool")
        # Never reset: the SDK logs a failure in the same context, after this
        current_call.set(ids)
        wait = info.started_time - info.current_attempt_scheduled_time
        # A local Activity waits for no worker
        queue_seconds = 0.0 if info.is_local else max(0.0, wait.total_seconds())
        if tool is not None:
            metrics.record(metrics.QUEUE_SECONDS, queue_seconds, tool=tool)
        span: AbstractContextManager[Any] = nullcontext()
        if self.tracing is not None and (tool is not None or info.activity_type == LOAD_DELEGATE):
            carrier = read_header(call.headers)
            attributes = {
                "acts.call.id": ids.get("call"), "acts.tool": tool, "acts.activity": info.activity_type,
                "acts.run": info.workflow_id, "acts.run.id": info.workflow_run_id,
                "acts.root": carrier.get(ROOT) or info.workflow_id,
                "acts.instance": carrier.get(INSTANCE) or ids.get("instance"), "acts.attempt": info.attempt,
                "acts.queue.seconds": round(queue_seconds, 3),
            }  # fmt: skip
            span = self.tracing.span(tool or info.activity_type, attributes=attributes, carrier=carrier)
        began = time.monotonic()
        with span:
            if tool is not None:
                logger.debug("the attempt begins")
            try:
                result = await proceed(call)
            except Exception:
                if tool is not None and info.activity_type != MODEL:  # that a model is out is no fault of a Tool
                    metrics.record(metrics.ATTEMPTS_FAILED, tool=tool)
                raise
            if tool is not None:
                logger.debug("the attempt succeeded after %.3f s", time.monotonic() - began)
            return result

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """A block in which health is served, from before there is a connection."""
        self.loop = asyncio.get_running_loop()
        with serve_health(self.address, self) if self.address else nullcontext():
            try:
                yield
            finally:
                if self.tracing is not None:
                    await asyncio.to_thread(self.tracing.stop)

    @asynccontextmanager
    async def serving(self, client: Client, task_queue: str, identity: str) -> AsyncIterator[None]:
        self.is_polling = lambda: has_polled(client, task_queue, identity)
        watch = asyncio.create_task(watch_server(client, task_queue)) if metrics.is_on() else None
        try:
            yield
        finally:
            self.is_stopping = True
            if watch is not None:
                watch.cancel()

    def live_problem(self) -> str | None:
        """Why this process should be started again, or None."""
        lost = self.count_lost()
        if self.threads and lost >= self.threads:
            return f"stuck workflow tasks have taken all {lost} threads"
        if self.loop is None:
            return None
        beat = threading.Event()
        try:
            self.loop.call_soon_threadsafe(beat.set)
        except RuntimeError:
            return "the event loop has ended"
        return None if beat.wait(LOOP_SECONDS) else f"the event loop did not come back within {LOOP_SECONDS:g} s"

    def ready_problem(self) -> str | None:
        """Why this process does no work now, or None."""
        if self.is_stopping:
            return "a stop was requested"
        if self.loop is None or self.is_polling is None:
            return "the worker has not started yet"
        try:
            if asyncio.run_coroutine_threadsafe(self.is_polling(), self.loop).result(ANSWER_SECONDS):
                return None
        except FutureTimeout:
            return f"the server does not answer within {ANSWER_SECONDS:g} s"
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker cannot work
            text = error.message if isinstance(error, RPCError) else type(error).__name__
            return f"the server does not answer: {text}"
        return "the server knows of no poll of this worker within two minutes; one that has just come back forgot them"


async def require_histories(client: Client, limit: timedelta = RPC_TIMEOUT) -> None:
    """Raises RPCError where the server cannot work, as with a full database, while it knows who polls and lists runs.

    After a failed write a shard refuses reads, too: each time another one is asked, for a run that is not there.
    """
    execution = WorkflowExecution(workflow_id=f"acts-probe-{secrets.token_hex(6)}")
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
    try:
        await client.workflow_service.describe_workflow_execution(request, timeout=limit)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise


async def has_polled(client: Client, task_queue: str, identity: str) -> bool:
    """True when the server has seen a poll of this queue in the last two minutes, by who ends in this identity.

    Raises RPCError: the server does not say, or cannot work.
    """
    await require_histories(client)
    # One kind is enough: a worker whose slots for Activities are all in use polls for workflow tasks only
    for kind in KINDS.values():
        pollers = await read_pollers(client, task_queue, kind)
        if any(poll_age(p) < MAX_POLL_SECONDS for p in pollers if p.identity.endswith(identity)):
            return True
    return False


async def read_pollers(
    client: Client, queue: str, kind: TaskQueueType.ValueType = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
) -> Sequence[PollerInfo]:
    """Who polls a task queue, for activities by default. Raises RPCError: the server does not say."""
    return (await describe_queue(client, queue, kind)).pollers


async def describe_queue(
    client: Client, queue: str, kind: TaskQueueType.ValueType, *, has_stats: bool = False,
    limit: timedelta = RPC_TIMEOUT,
) -> DescribeTaskQueueResponse:  # fmt: skip
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind, report_stats=has_stats
    )
    return await client.workflow_service.describe_task_queue(request, timeout=limit)


def poll_age(poller: PollerInfo) -> float:
    """Seconds since the poll began; never below 0, whatever the server's clock says."""
    return max(0.0, time.time() - poller.last_access_time.ToMilliseconds() / 1000)


def poller_deployment(poller: PollerInfo) -> tuple[str, str]:
    """The name and the build id of a worker's deployment version; two empty strings for an unversioned one."""
    options = poller.deployment_options
    is_versioned = options.worker_versioning_mode == WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
    return (options.deployment_name, options.build_id) if is_versioned else ("", "")


async def read_versions(client: Client, queue: str, limit: timedelta = RPC_TIMEOUT) -> tuple[set[str], str]:
    """The deployment versions whose workers poll a queue, and its current version or "", as NAME:BUILD.

    Raises RPCError: the server does not say.
    """
    answer = await describe_queue(client, queue, KINDS["workflow"], limit=limit)
    polling = {":".join(poller_deployment(p)) for p in answer.pollers if poll_age(p) < FRESH_POLL_SECONDS} - {":"}
    current = answer.versioning_info.current_deployment_version
    return polling, f"{current.deployment_name}:{current.build_id}" if current.build_id else ""


def unserved_query(queue: str, polling: Iterable[str], current: str) -> str:
    """A visibility query: the open runs of a queue that wait for a deployment version whose workers do not poll.

    A run is pinned to the version of its first task; one without it, and each new one, goes to the current version.
    """
    served = ", ".join(f"'{version}'" for version in sorted(polling))
    parts = [f"{BEHAVIOR} = 'Pinned'" + (f" AND {VERSION.name} NOT IN ({served})" if served else "")]
    parts += [f"{VERSION.name} IS NULL"] if current and current not in polling else []
    name = queue.replace("\\", "\\\\").replace("'", "\\'")
    return f"ExecutionStatus = 'Running' AND TaskQueue = '{name}' AND ({' OR '.join(parts)})"


# == what the server says, as metrics =================================================================
# `acts doctor` says the same, once. The server alone is asked, never a run: one whose workers are gone answers nothing
ROUND_SECONDS: Final = 15.0  # as often as Prometheus comes
COUNT_ROUNDS: Final = 2  # runs are counted half as often: each count is work for the database
KINDS: Final = {
    "workflow": TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, "activity": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
}  # fmt: skip
WAITING_RUNS: Final = "ActsWaiting > 0 AND ExecutionStatus = 'Running'"
FAILING_RUNS: Final = "ExecutionStatus = 'Running' AND TemporalReportedProblems IS NOT NULL"
# The server's own; runs of unversioned workers do not have them
BEHAVIOR: Final = "TemporalWorkflowVersioningBehavior"
VERSION: Final = SearchAttributeKey.for_keyword("TemporalWorkerDeploymentVersion")
SINCE: Final = SearchAttributeKey.for_datetime("ActsWaitingSince")
MAX_LISTED: Final = 1_000
# Runs that have waited for longer are looked for first, in case that more wait than are listed
AGES: Final = (timedelta(days=7), timedelta(days=1), timedelta(hours=1), timedelta())
AWAY: Final = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
UNABLE: Final = (RPCStatusCode.UNKNOWN, RPCStatusCode.INTERNAL)  # "something went wrong, please retry"


async def watch_server(client: Client, queue: str) -> None:
    """Record what the server says of this queue, and of all runs, for as long as the worker serves."""
    for number in count():
        await record_queue(client, queue)
        if number % COUNT_ROUNDS == 0:
            await record_runs(client, queue)
        await asyncio.sleep(ROUND_SECONDS)


async def record_queue(client: Client, queue: str) -> None:
    """Record whether the server answers, who polls the queue, and how many tasks wait in it."""
    try:
        for kind, number in KINDS.items():
            answer = await describe_queue(client, queue, number, has_stats=True)
            polling = sum(poll_age(poller) < MAX_POLL_SECONDS for poller in answer.pollers)
            metrics.record(metrics.POLLERS, polling, kind=kind)
            metrics.record(metrics.BACKLOG, answer.stats.approximate_backlog_count, kind=kind)
            metrics.record(metrics.BACKLOG_AGE, answer.stats.approximate_backlog_age.ToSeconds(), kind=kind)
        await require_histories(client)
        metrics.record(metrics.SERVER_REACHABLE, 1)
    except RPCError as error:
        metrics.record(metrics.SERVER_REACHABLE, error.status not in (*AWAY, *UNABLE))


async def record_runs(client: Client, queue: str) -> None:
    """Record how many runs wait for a decision, for how long at most, and how many cannot go on."""
    with suppress(RPCError):  # a server without worker deployments
        unserved = unserved_query(queue, *await read_versions(client, queue))
        metrics.record(metrics.RUNS_UNSERVED, (await client.count_workflows(unserved, rpc_timeout=RPC_TIMEOUT)).count)
    with suppress(RPCError):  # a server before 1.29 knows no such runs
        metrics.record(
            metrics.RUNS_FAILING, (await client.count_workflows(FAILING_RUNS, rpc_timeout=RPC_TIMEOUT)).count
        )
    with suppress(RPCError):  # a namespace without the search attributes; the next round sees the rest
        metrics.record(
            metrics.RUNS_WAITING, (await client.count_workflows(WAITING_RUNS, rpc_timeout=RPC_TIMEOUT)).count
        )
        metrics.record(metrics.OLDEST_WAIT, await measure_oldest_wait(client))


async def measure_oldest_wait(client: Client) -> float:
    """For how many seconds the run that has waited longest has waited, as the server lists it; 0: none waits."""
    now = datetime.now(UTC)
    for age in AGES:
        query = f"{WAITING_RUNS} AND {SINCE.name} <= '{(now - age).isoformat()}'"
        runs = client.list_workflows(query, limit=MAX_LISTED, rpc_timeout=RPC_TIMEOUT)
        dates = [date async for run in runs if (date := run.typed_search_attributes.get(SINCE)) is not None]
        if dates:
            return max(0.0, (now - min(dates)).total_seconds())
    return 0.0
