"""The SDK's runtime of this process: its own log lines go to Python's logging, its metrics to an endpoint.

Laws of this file: one runtime per process, made before the first client; without ``ACTS_METRICS`` it counts nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

from telemetry import metrics
from telemetry.logs import CORE
from telemetry.telemetry_settings import METRICS, TelemetryError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from telemetry.telemetry_settings import TelemetrySettings


def create_runtime(settings: TelemetrySettings, tools: Iterable[str] = ()) -> Runtime:
    """The runtime of a worker; ``tools`` are the names by which Calls are counted.

    Raises:
        TelemetryError: the endpoint of the metrics cannot be opened.
    """
    forwarding = LogForwardingConfig(
        logging.getLogger(CORE), append_target_to_name=False, prepend_target_on_message=False,
        append_log_fields_to_message=False,
    )  # fmt: skip
    logs = LoggingConfig(filter=TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding=forwarding)
    prometheus: Any = None
    if settings.metrics is not None:
        # Names as the SDK's own documentation has them, without further suffixes; ours end in their unit
        prometheus = PrometheusConfig(
            bind_address=str(settings.metrics), durations_as_seconds=True,
            histogram_bucket_overrides=metrics.buckets(),
        )  # fmt: skip
    try:
        runtime = Runtime(telemetry=TelemetryConfig(logging=logs, metrics=prometheus, attach_service_name=False))
    except ValueError as error:
        raise TelemetryError(f"{METRICS} is {settings.metrics}; nothing can listen there: {error}") from None
    metrics.start(runtime.metric_meter if prometheus is not None else None, tools)
    return runtime
