"""Observes a worker: the Activities that it runs, the runs that wait for people, logs, traces, metrics, health.

Laws of this file: it starts and stops the others and decides nothing; without settings it costs nothing. Nothing of a
Call's parameters or result is kept; the engine's own look-ups get no span.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.service import RPCError

from acts.language.wire import LOAD_DELEGATE, PENDING
from acts.telemetry import metrics
from acts.telemetry.health import Health, HealthServer
from acts.telemetry.logs import CallIdentity, current_call, identify
from acts.telemetry.metrics import create_runtime
from acts.telemetry.telemetry_settings import TelemetryError, TelemetrySettings
from acts.telemetry.tracing import INSTANCE, ROOT, Tracing, read_header, start_tracing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from temporalio.client import Client
    from temporalio.runtime import Runtime
    from temporalio.worker import ExecuteActivityInput

    Proceed = Callable[[ExecuteActivityInput], Awaitable[Any]]

logger = logging.getLogger(__name__)

# An idle poll lasts a minute, and is then repeated: without one for two minutes, one was missed
MAX_POLL_SECONDS: Final = 120.0
_KINDS: Final = (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
# Between two looks at the runs that wait
ROUND_SECONDS: Final = 60.0
QUERY: Final = "ActsWaiting > 0 AND ExecutionStatus = 'Running'"
# A query makes some worker load the run; the oldest runs are asked
MAX_ASKED: Final = 20
MAX_LISTED: Final = 1_000
_QUERY_SECONDS: Final = 5


@dataclass
class Observation:
    """What observes one worker. ``runtime`` None: the SDK's default."""

    settings: TelemetrySettings = field(default_factory=TelemetrySettings)
    runtime: Runtime | None = None
    tracing: Tracing | None = None
    health: Health = field(default_factory=Health)

    @classmethod
    def start(cls, settings: TelemetrySettings, tools: Iterable[str], health: Health) -> Observation:
        """Begin to observe; ``tools`` are the names by which Calls are counted.

        Raises:
            TelemetryError: the endpoint of the metrics cannot be opened.
        """
        try:
            tracing = start_tracing("acts-worker")
        except TelemetryError as error:
            # The variables are not ours: one that is set for all programs of a machine must not stop a worker
            logger.warning("traces are off: %s", error)
            tracing = None
        return cls(settings, create_runtime(settings, tools), tracing, health)

    async def observe_call(self, call: ExecuteActivityInput, proceed: Proceed) -> Any:
        """A step around Activities: the ids of a Call for its log lines, its metrics, and its span."""
        info = activity.info()
        identity = identify(info, call.args)
        # Never reset: the SDK logs a failure in the same context, after this
        current_call.set(identity)
        if identity.tool is not None and (meters := metrics.meters()) is not None:
            meters.record(metrics.QUEUE_SECONDS, queue_seconds(info), tool=identity.tool)
        if self.tracing is None or (identity.tool is None and info.activity_type != LOAD_DELEGATE):
            return await _proceed(call, proceed, identity)
        carrier = read_header(call.headers)
        attributes = span_attributes(info, identity, carrier)
        with self.tracing.span(identity.tool or info.activity_type, attributes=attributes, carrier=carrier):
            return await _proceed(call, proceed, identity)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """A block in which health is served, from before there is a connection."""
        self.health.begin(asyncio.get_running_loop())
        with contextlib.ExitStack() as stack:
            if self.settings.health is not None:
                stack.enter_context(HealthServer(self.settings.health, self.health))
            try:
                yield
            finally:
                if self.tracing is not None:
                    await asyncio.to_thread(self.tracing.stop)

    @asynccontextmanager
    async def serving(self, client: Client, task_queue: str, identity: str) -> AsyncIterator[None]:
        """A block in which the worker runs."""
        self.health.serve(lambda: has_polled(client, task_queue, identity))
        waiting = None if metrics.meters() is None else asyncio.create_task(_count_waiting_runs(client))
        try:
            yield
        finally:
            self.health.stop()
            if waiting is not None:
                waiting.cancel()


async def _proceed(call: ExecuteActivityInput, proceed: Proceed, identity: CallIdentity) -> Any:
    if identity.tool is None:
        return await proceed(call)
    began = time.monotonic()
    logger.debug("the attempt begins")
    result = await proceed(call)
    logger.debug("the attempt succeeded after %.3f s", time.monotonic() - began)
    return result


def span_attributes(info: activity.Info, identity: CallIdentity, carrier: Mapping[str, str]) -> dict[str, Any]:
    """What the span of a Call says: ids, names, and the seconds that it waited in its task queue."""
    values = {
        "acts.call.id": identity.call, "acts.tool": identity.tool, "acts.activity": identity.activity,
        "acts.run": identity.run, "acts.run.id": identity.run_id, "acts.root": carrier.get(ROOT) or identity.run,
        "acts.instance": carrier.get(INSTANCE) or identity.instance, "acts.attempt": info.attempt,
        "acts.queue.seconds": round(queue_seconds(info), 3),
    }  # fmt: skip
    return {name: value for name, value in values.items() if value is not None}


def queue_seconds(info: activity.Info) -> float:
    """How long this attempt waited for a worker; a local Activity waits for none."""
    wait = info.started_time - info.current_attempt_scheduled_time
    return 0.0 if info.is_local else max(0.0, wait.total_seconds())


async def _count_waiting_runs(client: Client) -> None:
    while True:
        try:
            await record_waiting_runs(client)
        except RPCError as error:
            logger.debug("the runs that wait cannot be listed: %s", error.message)
        await asyncio.sleep(ROUND_SECONDS)


async def record_waiting_runs(client: Client) -> None:
    """Count the roots that wait for a decision, and record the age of the oldest one among those that answer."""
    meters = metrics.meters()
    if meters is None:
        return
    count = (await client.count_workflows(QUERY)).count
    runs = [(run.id, run.run_id) async for run in client.list_workflows(QUERY, limit=MAX_LISTED)] if count else []
    # Side by side: runs whose workers are gone answer none, and each would hold up the round
    answers = await asyncio.gather(*[_ask(client, *run) for run in runs[-MAX_ASKED:]])
    meters.set(metrics.RUNS_WAITING, count)
    meters.set(metrics.OLDEST_WAIT, max(answers, default=0.0))


async def _ask(client: Client, id_: str, run_id: str) -> float:
    """For how many seconds the oldest decision of a run has been waited for; 0: it does not say."""
    handle = client.get_workflow_handle(id_, run_id=run_id)
    try:
        waits: Any = await handle.query(PENDING, rpc_timeout=timedelta(seconds=_QUERY_SECONDS))
        dates = [datetime.fromisoformat(wait["since"]) for wait in waits]
    except Exception as error:  # noqa: BLE001 - a run that does not answer, or ended: the next round sees
        logger.debug("run %s does not say since when it waits: %s", id_, type(error).__name__)
        return 0.0
    return max((time.time() - date.astimezone(UTC).timestamp() for date in dates), default=0.0)


async def has_polled(client: Client, task_queue: str, identity: str) -> bool:
    """True when the server has seen a poll of this queue by the worker of this identity, in the last two minutes.

    One kind of poll is enough: a worker whose slots for Activities are all in use polls for workflow tasks only.
    """
    for kind in _KINDS:
        request = DescribeTaskQueueRequest(
            namespace=client.namespace, task_queue=TaskQueue(name=task_queue), task_queue_type=kind
        )
        answer = await client.workflow_service.describe_task_queue(request)
        polls = [poller.last_access_time.seconds for poller in answer.pollers if poller.identity == identity]
        if time.time() - max(polls, default=0) < MAX_POLL_SECONDS:
            return True
    return False
