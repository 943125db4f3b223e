"""Around each Activity of a worker: the ids of its Call for log lines, and its span.

Laws of this file: nothing of a Call's parameters or result is kept; the engine's own look-ups get no span.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from acts.language.wire import LOAD_DELEGATE
from telemetry import metrics
from telemetry.call_identity import CallIdentity, current_call, identify
from telemetry.trace_context import INSTANCE, ROOT, read_header

if TYPE_CHECKING:
    from collections.abc import Mapping

    from telemetry.tracing import Tracing

logger = logging.getLogger(__name__)


class CallObserver(Interceptor):
    """Observes the Activities of a worker; ``tracing`` None: it writes no spans."""

    def __init__(self, tracing: Tracing | None = None) -> None:
        self._tracing = tracing

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Observe each Activity, from outside of all other interceptors."""
        return _Inbound(next, self._tracing)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, tracing: Tracing | None) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._tracing = tracing

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        info = activity.info()
        identity = identify(info, input.args)
        # Never reset: the SDK logs a failure in the same context, after this
        current_call.set(identity)
        if identity.tool is not None and (meters := metrics.meters()) is not None:
            meters.record(metrics.QUEUE_SECONDS, queue_seconds(info), tool=identity.tool)
        if self._tracing is None or (identity.tool is None and info.activity_type != LOAD_DELEGATE):
            return await self._execute(input, identity)
        carrier = read_header(input.headers)
        attributes = span_attributes(info, identity, carrier)
        with self._tracing.span(identity.tool or info.activity_type, attributes=attributes, carrier=carrier):
            return await self._execute(input, identity)

    async def _execute(self, input: ExecuteActivityInput, identity: CallIdentity) -> Any:  # noqa: A002 - the SDK's name
        if identity.tool is None or not logger.isEnabledFor(logging.DEBUG):
            return await super().execute_activity(input)
        began = time.monotonic()
        logger.debug("the attempt begins")
        result = await super().execute_activity(input)
        logger.debug("the attempt succeeded after %.3f s", time.monotonic() - began)
        return result


def span_attributes(info: activity.Info, identity: CallIdentity, carrier: Mapping[str, str]) -> dict[str, Any]:
    """What the span of a Call says: ids, names, and the seconds that it waited in its task queue."""
    known = {
        "acts.call.id": identity.call, "acts.tool": identity.tool, "acts.activity": identity.activity,
        "acts.run": identity.run, "acts.run.id": identity.run_id, "acts.root": carrier.get(ROOT) or identity.run,
        "acts.instance": carrier.get(INSTANCE) or identity.instance,
    }  # fmt: skip
    out: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    out["acts.attempt"] = info.attempt
    out["acts.queue.seconds"] = round(queue_seconds(info), 3)
    return out


def queue_seconds(info: activity.Info) -> float:
    """How long this attempt waited for a worker; a local Activity waits for none."""
    wait = info.started_time - info.current_attempt_scheduled_time
    return 0.0 if info.is_local else max(0.0, wait.total_seconds())
