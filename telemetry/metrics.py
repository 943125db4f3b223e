"""What the worker counts beside the SDK's own metrics: one table, and one way to record.

Laws of this file:
- every metric stands in ``METRICS`` with its unit; docs/observability.md lists the same rows;
- labels are few and bounded: a name beyond the bound counts as ``other``, and no label has an id of a run;
- recording costs a microsecond, and one comparison while metrics are off;
- it knows no event loop and no run: workflow code may record, where it is not replayed (``run_meters.py``).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from temporalio.common import MetricMeter

OTHER: Final = "other"
# Names beyond those that the worker registers: inline Tools that workers in other languages serve
MAX_FOREIGN_TOOLS: Final = 100
MAX_MODELS: Final = 50
# Codes of failures: ours are fewer, but a script may state any
MAX_CODES: Final = 50
# The values of labels that are known beforehand
LIMITS: Final = ("requests", "tokens", "cost")
TYPES: Final = ("Plan", "Agent")
PHASES: Final = ("completed", "partial", "rejected", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Metric:
    """``kind`` is counter, histogram or gauge. A histogram's ``buckets`` are its upper bounds, in its unit."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str
    buckets: tuple[float, ...] = ()


# From a local look-up to a Tool that runs for hours
_CALL_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0)
# A model's answer, and its longest
_MODEL_SECONDS: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 600.0)
# A pause between two attempts: a minute by ourselves, an hour if the provider asks for it
_PAUSE_SECONDS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 3_600.0)
# A person: a minute, a lunch, a night, a weekend, a holiday
_PERSON_SECONDS: Final = (10.0, 60.0, 300.0, 1_800.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 1_209_600.0)
_RUN_SECONDS: Final = (1.0, 10.0, 60.0, 600.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0)
_SHARES: Final = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)

RUNS: Final = "acts_runs_total"
RUN_SECONDS: Final = "acts_run_seconds"
CALLS: Final = "acts_calls_total"
CALL_SECONDS: Final = "acts_call_seconds"
QUEUE_SECONDS: Final = "acts_call_queue_seconds"
APPROVALS_OPENED: Final = "acts_approvals_opened_total"
APPROVALS_CLOSED: Final = "acts_approvals_closed_total"
APPROVAL_SECONDS: Final = "acts_approval_wait_seconds"
RUNS_WAITING: Final = "acts_runs_waiting"
OLDEST_WAIT: Final = "acts_oldest_wait_seconds"
BUDGET_LOW: Final = "acts_budget_low_total"
BUDGET_LEFT: Final = "acts_budget_left_ratio"
MODEL_REQUESTS: Final = "acts_model_requests_total"
MODEL_SECONDS: Final = "acts_model_request_seconds"
MODEL_TOKENS: Final = "acts_model_tokens_total"
MODEL_COST: Final = "acts_model_cost_microdollars_total"
MODEL_WAITS: Final = "acts_model_waits_total"
MODEL_WAIT_SECONDS: Final = "acts_model_wait_seconds"
MODEL_LIMIT: Final = "acts_model_request_limit"
MODEL_IN_FLIGHT: Final = "acts_model_requests_in_flight"
STUCK_TASKS: Final = "acts_worker_stuck_tasks_total"
SLOW_TASKS: Final = "acts_worker_slow_tasks_total"
LOST_THREADS: Final = "acts_worker_lost_threads"
BLOCKED_LOOPS: Final = "acts_worker_blocked_tool_loops_total"
MEMORY: Final = "acts_worker_memory_bytes"
CACHED_RUNS: Final = "acts_worker_cached_runs"
EVICTIONS: Final = "acts_worker_memory_evictions_total"
INTERPRETER_SECONDS: Final = "acts_worker_cpu_seconds_total"

METRICS: Final = {
    metric.name: metric
    for metric in (
        Metric(RUNS, "counter", ("type", "phase"), "roots of trees that ended, by how"),
        Metric(RUN_SECONDS, "histogram", ("type",), "from the start of a root to its end", _RUN_SECONDS),
        Metric(CALLS, "counter", ("tool", "outcome"), "Calls that were started and have ended"),
        Metric(CALL_SECONDS, "histogram", ("tool",), "from a Call's start to its outcome, with queue and retries",
               _CALL_SECONDS),
        Metric(QUEUE_SECONDS, "histogram", ("tool",), "how long an attempt waited in its task queue for this worker",
               _CALL_SECONDS),
        Metric(APPROVALS_OPENED, "counter", ("what",), "decisions that a run began to wait for"),
        Metric(APPROVALS_CLOSED, "counter", ("what",), "decisions that are no longer waited for"),
        Metric(APPROVAL_SECONDS, "histogram", ("what",), "how long they were waited for", _PERSON_SECONDS),
        Metric(RUNS_WAITING, "gauge", (), "roots that wait for a decision now, as the server lists them"),
        Metric(OLDEST_WAIT, "gauge", (), "age of the oldest pending decision among them"),
        Metric(BUDGET_LOW, "counter", ("limit",), "trees that have used nine tenths of a budget"),
        Metric(BUDGET_LEFT, "histogram", ("limit",), "part of a budget that a tree left unused", _SHARES),
        Metric(MODEL_REQUESTS, "counter", ("model", "outcome"), "requests to models; `ok` or the code of the failure"),
        Metric(MODEL_SECONDS, "histogram", ("model",), "from a request to the end of its answer", _MODEL_SECONDS),
        Metric(MODEL_TOKENS, "counter", ("model", "kind"), "tokens: input, output; of these cached, reasoning"),
        Metric(MODEL_COST, "counter", ("model",), "list price of the requests, in millionths of a US dollar"),
        Metric(MODEL_WAITS, "counter", ("model", "reason"), "pauses before another attempt"),
        Metric(MODEL_WAIT_SECONDS, "histogram", ("model",), "length of these pauses", _PAUSE_SECONDS),
        Metric(MODEL_LIMIT, "gauge", ("model",), "requests that this worker may have in flight; 1000: not limited"),
        Metric(MODEL_IN_FLIGHT, "gauge", ("model",), "requests that it has"),
        Metric(STUCK_TASKS, "counter", (), "workflow tasks that were stopped because they did not end"),
        Metric(SLOW_TASKS, "counter", (), "workflow tasks that took more than half of their timeout"),
        Metric(LOST_THREADS, "gauge", (), "threads that stuck workflow tasks have taken for good"),
        Metric(BLOCKED_LOOPS, "counter", (), "times that an `async def` Tool blocked its event loop"),
        Metric(MEMORY, "gauge", (), "resident memory of the process"),
        Metric(CACHED_RUNS, "gauge", (), "runs in the cache"),
        Metric(EVICTIONS, "counter", (), "runs that were evicted to save memory; each costs a replay"),
        Metric(INTERPRETER_SECONDS, "counter", (), "CPU time of the process"),
    )
}  # fmt: skip


def buckets() -> dict[str, tuple[float, ...]]:
    """The upper bounds of our histograms, by name."""
    return {metric.name: metric.buckets for metric in METRICS.values() if metric.buckets}


class Names:
    """The values of a label that are counted one by one: those registered, and the first few others."""

    def __init__(self, registered: Iterable[str], max_others: int) -> None:
        self._names = set(registered)
        self._max = len(self._names) + max_others
        self._lock = threading.Lock()

    def bound(self, name: str) -> str:
        """The name, or ``other``."""
        if name in self._names:
            return name
        with self._lock:
            if len(self._names) < self._max:
                self._names.add(name)
                return name
        return OTHER


class Meters:
    """Records into the meter of the process. Thread-safe."""

    def __init__(self, meter: MetricMeter, tools: Iterable[str] = ()) -> None:
        self._instruments: dict[str, Any] = {name: _create(meter, metric) for name, metric in METRICS.items()}
        self._bound: dict[tuple[str, ...], Any] = {}
        registered = sorted(tools)
        self._names = {
            "tool": Names(registered, MAX_FOREIGN_TOOLS), "model": Names((), MAX_MODELS),
            "outcome": Names((), MAX_CODES), "reason": Names((), MAX_CODES),
        }  # fmt: skip
        self._before: dict[str, float] = {}
        self._announce(registered)

    def _announce(self, tools: Iterable[str]) -> None:
        """Show the counters from the first scrape on: a rate does not see an event that makes its series."""
        for metric in METRICS.values():
            if metric.kind == "counter" and not metric.labels:
                self.add(metric.name, 0)
        for limit in LIMITS:
            self.add(BUDGET_LOW, 0, limit=limit)
        for type_, phase in product(TYPES, PHASES):
            self.add(RUNS, 0, type=type_, phase=phase)
        for tool, outcome in product(tools, ("completed", "failed")):
            self.add(CALLS, 0, tool=tool, outcome=outcome)

    def add(self, name: str, value: int = 1, **labels: str) -> None:
        """Add to a counter."""
        self._at(name, labels).add(value)

    def record(self, name: str, value: float, **labels: str) -> None:
        """Record a value in a histogram."""
        self._at(name, labels).record(value)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._at(name, labels).set(value)

    def raise_to(self, name: str, total: float) -> None:
        """Add to a counter what ``total``, which only grows, has grown since the last time."""
        grown = int(total - self._before.get(name, 0.0))
        if grown > 0:
            self._before[name] = self._before.get(name, 0.0) + grown
            self.add(name, grown)

    def _at(self, name: str, labels: dict[str, str]) -> Any:
        for label, names in self._names.items():
            if label in labels:
                labels[label] = names.bound(labels[label])
        key = (name, *labels.values())
        instrument = self._bound.get(key)
        if instrument is None:
            instrument = self._instruments[name]
            instrument = self._bound[key] = instrument.with_additional_attributes(labels) if labels else instrument
        return instrument


def _create(meter: MetricMeter, metric: Metric) -> Any:
    # The counters of the SDK count integers
    kinds = {
        "counter": meter.create_counter, "histogram": meter.create_histogram_float, "gauge": meter.create_gauge_float,
    }  # fmt: skip
    return kinds[metric.kind](metric.name, metric.text)


_current: Meters | None = None


def start(meter: MetricMeter | None, tools: Iterable[str] = ()) -> None:
    """Record into this meter from now on; None: nothing is recorded."""
    global _current  # noqa: PLW0603 - one process has one endpoint
    _current = None if meter is None else Meters(meter, tools)


def meters() -> Meters | None:
    """The meters of this process; None while metrics are off."""
    return _current
