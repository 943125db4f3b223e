"""What a worker counts beside the SDK's own metrics, and the runtime that serves it.

Laws of this file: the site's list is made of its table. A name beyond the bound of a label counts as
``other``, and no label has an id of a run. Recording costs a microsecond, and one comparison while metrics are off;
workflow code may record, where it is not replayed. There is one runtime per process, made before the first client.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from temporalio import runtime as sdk

from acts.language.errors import SettingsError
from acts.telemetry.logs import CORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from temporalio.common import MetricMeter

# How many values of a label are counted one by one beside the Tools that the worker registers: inline Tools that others
# serve, models, and codes of failures, of which a script may state any
MAX_OTHERS: Final = {"tool": 100, "model": 50, "outcome": 50, "reason": 50}
METRICS: Final[dict[str, Metric]] = {}


@dataclass(frozen=True, slots=True)
class Metric:
    """``kind`` is counter, histogram or gauge. A histogram's ``buckets`` are its upper bounds, in its unit."""

    kind: str
    name: str
    labels: str
    text: str
    buckets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        METRICS[self.name] = self


# From a local look-up to a Tool that runs for hours; a model's answer, and the longest pause that a provider asks for
_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0)
# A person: a minute, a lunch, a night, a weekend, a holiday
_LONG_SECONDS: Final = (1.0, 10.0, 60.0, 300.0, 1_800.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 1_209_600.0)
_SHARES: Final = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
_counter, _gauge, _histogram = (partial(Metric, kind) for kind in ("counter", "gauge", "histogram"))

RUNS = _counter("acts_runs_total", "type phase", "roots of trees that ended, by how")
RUN_SECONDS = _histogram("acts_run_seconds", "type", "from the start of a root to its end", _LONG_SECONDS)
CALLS = _counter("acts_calls_total", "tool outcome", "Calls that were started and have ended")
CALL_SECONDS = _histogram(
    "acts_call_seconds", "tool", "a Call's start to its outcome, with queue and retries", _SECONDS
)
QUEUE_SECONDS = _histogram("acts_call_queue_seconds", "tool", "how long an attempt waited in its task queue", _SECONDS)
APPROVALS_OPENED = _counter("acts_approvals_opened_total", "what", "decisions that a run began to wait for")
APPROVALS_CLOSED = _counter("acts_approvals_closed_total", "what", "decisions that are no longer waited for")
APPROVAL_SECONDS = _histogram("acts_approval_wait_seconds", "what", "how long they were waited for", _LONG_SECONDS)
RUNS_WAITING = _gauge("acts_runs_waiting", "", "roots that wait for a decision now, as the server lists them")
OLDEST_WAIT = _gauge("acts_oldest_wait_seconds", "", "age of the oldest pending decision among them")
BUDGET_LOW = _counter("acts_budget_low_total", "limit", "trees that have used four fifths of a budget")
BUDGET_SPENT = _counter("acts_budget_spent_total", "limit", "trees that have used all of a budget")
DAY_COST = _counter("acts_day_cost_reached_total", "limit share", "values that reached a share of ACTS_DAY_COST")
BUDGET_LEFT = _histogram("acts_budget_left_ratio", "limit", "part of a budget that a tree left unused", _SHARES)
MODEL_REQUESTS = _counter("acts_model_requests_total", "model outcome", "requests; `ok` or the code of the failure")
MODEL_SECONDS = _histogram("acts_model_request_seconds", "model", "from a request to the end of its answer", _SECONDS)
MODEL_TOKENS = _counter("acts_model_tokens_total", "model kind", "tokens: input, output; of these cached, reasoning")
MODEL_COST = _counter("acts_model_cost_microdollars_total", "model", "list price, in millionths of a US dollar")
MODEL_WAITS = _counter("acts_model_waits_total", "model reason", "pauses before another attempt")
MODEL_WAIT_SECONDS = _histogram("acts_model_wait_seconds", "model", "length of these pauses", _SECONDS)
MODEL_IN_FLIGHT = _gauge("acts_model_requests_in_flight", "model", "requests that this worker has in flight")
ATTEMPTS_FAILED = _counter("acts_attempts_failed_total", "tool", "failed attempts of Calls; most are repeated")
SERVER_REACHABLE = _gauge("acts_server_reachable", "", "1 while the server answers this worker and can work, else 0")
POLLERS = _gauge("acts_queue_pollers", "kind", "workers that have polled the task queue within two minutes")
BACKLOG = _gauge("acts_backlog_tasks", "kind", "tasks that wait in the task queue for a worker: workflow, activity")
BACKLOG_AGE = _gauge("acts_backlog_age_seconds", "kind", "how long the oldest of them has waited")
RUNS_FAILING = _gauge("acts_runs_failing_tasks", "", "open runs whose workflow tasks fail again and again")
RUNS_UNSERVED = _gauge("acts_runs_unserved", "", "open runs of the queue whose deployment version no worker serves")
WORKER_START = _gauge("acts_worker_start_time_seconds", "", "when the process began, in seconds since 1970")
STUCK_TASKS = _counter("acts_worker_stuck_tasks_total", "", "workflow tasks that were stopped because they did not end")
SLOW_TASKS = _counter("acts_worker_slow_tasks_total", "", "workflow tasks that took more than half of their timeout")
LOST_THREADS = _gauge("acts_worker_lost_threads", "", "threads that stuck workflow tasks have taken for good")
BLOCKED_LOOPS = _counter("acts_worker_blocked_tool_loops_total", "", "times that an `async def` Tool blocked its loop")
MEMORY = _gauge("acts_worker_memory_bytes", "", "resident memory of the process")
CACHED_RUNS = _gauge("acts_worker_cached_runs", "", "runs in the cache")
EVICTIONS = _counter("acts_worker_memory_evictions_total", "", "runs evicted to save memory; each costs a replay")
FREE_SLOTS = _gauge("acts_worker_free_slots", "", "Calls from the task queue that could begin now")
INTERPRETER_SECONDS = _counter("acts_worker_cpu_seconds_total", "", "CPU time of the process")


class Meters:
    """Records into the meter of the process. Thread-safe."""

    def __init__(self, meter: MetricMeter, tools: Iterable[str] = ()) -> None:
        # The counters of the SDK count integers
        create: dict[str, tuple[Any, str]] = {
            "counter": (meter.create_counter, "add"), "histogram": (meter.create_histogram_float, "record"),
            "gauge": (meter.create_gauge_float, "set"),
        }  # fmt: skip
        self._kinds = create
        self._instruments = {name: create[m.kind][0](name, m.text) for name, m in METRICS.items()}
        self._series: dict[tuple[str, ...], Callable[[float], None]] = {}
        self._tools, self._lock = frozenset(tools), threading.Lock()
        self._others: dict[str, set[str]] = {label: set() for label in MAX_OTHERS}
        # From the first scrape on: a rate does not see an event that makes its series
        for metric in METRICS.values():
            if metric.kind == "counter" and not metric.labels:
                self.record(metric, 0)
        for limit in ("requests", "tokens", "cost"):
            self.record(BUDGET_LOW, 0, limit=limit)
            self.record(BUDGET_SPENT, 0, limit=limit)
        self.record(WORKER_START, time.time())
        for type_, phase in product(("Plan", "Agent"), ("completed", "partial", "rejected", "failed", "cancelled")):
            self.record(RUNS, 0, type=type_, phase=phase)
        for tool in sorted(tools):
            self.record(ATTEMPTS_FAILED, 0, tool=tool)
        for tool, outcome in product(sorted(tools), ("completed", "failed")):
            self.record(CALLS, 0, tool=tool, outcome=outcome)

    def record(self, metric: Metric, value: float = 1, **labels: str) -> None:
        labels = {label: self.bound(label, text) for label, text in labels.items()}
        key = (metric.name, *labels.values())
        if key not in self._series:
            instrument = self._instruments[metric.name]
            instrument = instrument.with_additional_attributes(labels) if labels else instrument
            self._series[key] = getattr(instrument, self._kinds[metric.kind][1])
        self._series[key](value)

    def bound(self, label: str, value: str) -> str:
        """The value that is counted: that of a label beyond its bound is ``other``."""
        others = self._others.get(label)
        if others is None or value in others or (label == "tool" and value in self._tools):
            return value
        with self._lock:
            if len(others) >= MAX_OTHERS[label]:
                return "other"
            others.add(value)
        return value


_current: Meters | None = None


def start(meter: MetricMeter | None, tools: Iterable[str] = ()) -> None:
    global _current  # noqa: PLW0603 - one process has one endpoint
    _current = None if meter is None else Meters(meter, tools)


def is_on() -> bool:
    return _current is not None


def record(metric: Metric, value: float = 1, **labels: str) -> None:
    """Add to a counter, add to a histogram or set a gauge; nothing while metrics are off."""
    if _current is not None:
        _current.record(metric, value, **labels)


def create_runtime(address: str = "", tools: Iterable[str] = ()) -> sdk.Runtime:
    """The runtime of a worker, whose metrics are served at ``address`` (host:port; "": none are counted).

    ``tools`` are the names by which Calls are counted. Raises SettingsError: nothing can listen there.
    """
    forwarding = sdk.LogForwardingConfig(
        logging.getLogger(CORE), append_target_to_name=False, prepend_target_on_message=False,
        append_log_fields_to_message=False,
    )  # fmt: skip
    filter_ = sdk.TelemetryFilter(core_level="WARN", other_level="ERROR")
    # Names as the SDK's own documentation has them, without further suffixes; ours end in their unit
    prometheus = sdk.PrometheusConfig(
        bind_address=address, durations_as_seconds=True,
        histogram_bucket_overrides={m.name: m.buckets for m in METRICS.values() if m.buckets},
    )  # fmt: skip
    telemetry = sdk.TelemetryConfig(
        logging=sdk.LoggingConfig(filter=filter_, forwarding=forwarding), metrics=prometheus if address else None,
        attach_service_name=False,
    )  # fmt: skip
    try:
        runtime = sdk.Runtime(telemetry=telemetry)
    except ValueError as error:
        raise SettingsError(f"ACTS_METRICS is {address}; nothing can listen there: {error}") from None
    start(runtime.metric_meter if address else None, tools)
    return runtime
