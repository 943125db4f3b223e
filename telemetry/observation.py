"""All that observes a worker, held together for ``worker.py``: logs, traces, metrics, health.

Laws of this file: it starts and stops the others and decides nothing; without settings it costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

from telemetry import metrics
from telemetry.call_observer import CallObserver
from telemetry.health import Health, HealthServer
from telemetry.sdk_runtime import create_runtime
from telemetry.telemetry_settings import TelemetryError, TelemetrySettings
from telemetry.tracing import Tracing, start_tracing
from telemetry.waiting_runs import WaitingRuns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from temporalio.client import Client
    from temporalio.runtime import Runtime

logger = logging.getLogger(__name__)

SERVICE: Final = "acts-worker"
# An idle poll lasts a minute, and is then repeated: without one for two minutes, one was missed
MAX_POLL_SECONDS: Final = 120.0
_KINDS: Final = (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)


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
            tracing = start_tracing(SERVICE)
        except TelemetryError as error:
            # The variables are not ours: one that is set for all programs of a machine must not stop a worker
            logger.warning("traces are off: %s", error)
            tracing = None
        return cls(settings, create_runtime(settings, tools), tracing, health)

    @property
    def calls(self) -> CallObserver:
        """The interceptor of Activities."""
        return CallObserver(self.tracing)

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

        async def is_polling() -> bool:
            return await has_polled(client, task_queue, identity)

        self.health.serve(is_polling)
        waiting = None if metrics.meters() is None else asyncio.create_task(WaitingRuns(client).run())
        try:
            yield
        finally:
            self.health.stop()
            if waiting is not None:
                waiting.cancel()


async def has_polled(client: Client, task_queue: str, identity: str) -> bool:
    """True when the server has seen a poll of this queue by the worker of this identity, in the last two minutes.

    One kind of poll is enough: a worker whose slots for Activities are all in use polls for workflow tasks only.
    """
    for kind in _KINDS:
        request = DescribeTaskQueueRequest(
            namespace=client.namespace, task_queue=TaskQueue(name=task_queue), task_queue_type=kind
        )
        answer = await client.workflow_service.describe_task_queue(request)
        ages = (time.time() - p.last_access_time.ToDatetime(tzinfo=UTC).timestamp()
                for p in answer.pollers if p.identity == identity)  # fmt: skip
        if any(age < MAX_POLL_SECONDS for age in ages):
            return True
    return False
