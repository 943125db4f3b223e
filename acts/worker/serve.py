"""The worker process (``acts worker``): serves one task queue with the engine and its hardening, and stops gracefully.

Beyond a plain worker of the SDK with the plugin it adds slots and turns of workflow tasks, watches over tasks, Tools
and memory, a watchdog, health, and a stop that loses no workflow task. Settings are in ``settings.py``.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import FixedSizeSlotSupplier, Worker, WorkerTuner

from acts.activities.registry import Registry, activity_name, from_environment
from acts.activities.secret_interceptor import check_tools
from acts.client.client_errors import ClientError, describe_server, explain_rpc_error
from acts.client.server import RPC, find_target
from acts.language.errors import SettingsError, clean, format_choices
from acts.payloads.codec import is_encrypting
from acts.payloads.converter import activity_converter
from acts.telemetry import metrics
from acts.telemetry.failures import connection_problem
from acts.telemetry.logs import LogGuard, announce, configure_logs
from acts.telemetry.observation import AWAY, Observation
from acts.worker.event_server import EventServer
from acts.worker.interceptors import limited_queue
from acts.worker.plugin import Plugin, engine_converter, replace_private
from acts.worker.settings import LogSettings, Settings
from acts.worker.slots import ActivitySlots, TaskSlots, TaskThreads, WatchedRunner
from acts.worker.tool_runs import ToolLoops, new_event_loop
from acts.worker.watch import MemoryWatch, WorkflowWatch, keep_looking, measure_memory
from acts.worker.watchdog import TaskBoard, read_record, watchdog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from temporalio.runtime import Runtime


# Names the file that the start is reported to, instead of a line in the log: for ``acts dev``
START_REPORT: Final = "ACTS_START_REPORT"
MIN_STOP_SECONDS: Final = 2.0  # a stop without patience still gives calls back, and lets the server know of it
# Threads of workflow tasks: slots bound how many work at once, and those left behind by stuck tasks come on top
TASK_THREADS: Final = 100
LOCAL_ACTIVITIES: Final = 100  # at once: the SDK's own default
# Polls for workflow tasks at once. With the SDK's five, a hundred tasks that are accepted at once come one by one. One
# poll is for runs outside the cache, as by default: the server spreads them over the parts of a task queue, and lists
# only what polls the first part. Of a worker that joined with four, it knew nothing for fifty seconds
TASK_POLLS: Final = 20
CACHED_WORKFLOWS: Final = 500  # workflows in the cache, half of the SDK's number
# New objects after which the garbage collector looks for cycles; the default is 700
OBJECTS_PER_COLLECTION: Final = 10_000


class Watches:
    """What looks after a worker while it runs."""

    def __init__(self, memory_bytes: int = 0, logs: LogGuard | None = None) -> None:
        self.board = TaskBoard()
        self.tasks, self.memory = WorkflowWatch(self.board), MemoryWatch(memory_bytes)
        self.tools, self.logs = ToolLoops(), logs or LogGuard()
        self.looks = [self.tasks.look, self.tools.look, self.memory.look, self.sample]
        self._totals: dict[metrics.Metric, int] = {}

    def sample(self) -> None:
        """Record what the watches have seen so far."""
        if not metrics.is_on():
            return
        totals = {
            metrics.STUCK_TASKS: self.tasks.count, metrics.SLOW_TASKS: self.tasks.slow_count,
            metrics.BLOCKED_LOOPS: self.tools.blocked_count, metrics.EVICTIONS: self.memory.evictions,
            metrics.INTERPRETER_SECONDS: int(time.process_time()),
        }  # fmt: skip
        for metric, total in totals.items():
            metrics.record(metric, total - self._totals.get(metric, 0))
        self._totals = totals
        metrics.record(metrics.LOST_THREADS, self.tasks.lost_threads)
        metrics.record(metrics.MEMORY, measure_memory())
        metrics.record(metrics.CACHED_RUNS, len(self.memory.runs))

    @contextmanager
    def run(self, watchdog_seconds: float, purpose: str) -> Iterator[None]:
        """A block in which this process watches its threads, and another one watches this process."""
        with watchdog(watchdog_seconds, purpose, self.board) as record:
            self.tasks.count_earlier(read_record(record))
            with keep_looking(self.looks), self.logs.watch():
                yield


# Between two attempts to reach a server that is away at the start
RETRY_SECONDS: Final = 1.0
# In what the SDK's core says of an attempt to connect: the server is there, and will not have this client
_NO_WAITING: Final = ("ertificate", "Unauthenticated", "PermissionDenied", "InvalidArgument")

QUERY: Final = "acts_last_poll"
DRAIN_SECONDS: Final = 1.0  # it takes 5 to 100 ms. What has not arrived by then must not delay the stop
# A query for a run that has become busy waits for the run's next task; then another run is asked
ROUND_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 0.003


class DrainingWorker(Worker):
    """A worker that uses up its sticky polls before it stops: the SDK drops the workflow tasks that they bring later.

    When the SDK's core (1.35) stops, it drops what the server gives to polls that are still out, and such a task waits
    for its timeout, 10 s by default: a stop under load drops one on average, with any setting of the server.

    So first, no new polls begin. Tasks of a busy worker use up the polls of the sticky queue (of the runs in its
    cache); for the rest, it asks an idle run there a query that no run knows, which leaves no trace in the history. A
    poll of the task queue itself cannot be used up this way: another worker may take what is put there.

    ``slots`` counts the polls of this worker, ``memory`` knows the runs in its cache.
    """

    def __init__(self, *args: Any, slots: TaskSlots, memory: MemoryWatch, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._slots, self._memory = slots, memory

    async def shutdown(self) -> None:
        self._slots.close()
        if self.is_running:
            await self._drain()
        await super().shutdown()

    async def _drain(self) -> None:
        queries: list[asyncio.Task[Any]] = []
        next_round = start = time.monotonic()
        while self._slots.sticky_polls and self._memory.runs and (now := time.monotonic()) - start < DRAIN_SECONDS:
            if now >= next_round:
                next_round += ROUND_SECONDS
                for idle in self._memory.find_idle()[:1]:
                    handle = self.client.get_workflow_handle(idle.workflow_id, run_id=idle.run_id)
                    for _ in range(self._slots.sticky_polls):
                        query = handle.query(QUERY, rpc_timeout=timedelta(seconds=DRAIN_SECONDS))
                        queries.append(asyncio.create_task(query))
            await asyncio.sleep(LOOK_SECONDS)
        for waiting_query in queries:
            waiting_query.cancel()
        await asyncio.gather(*queries, return_exceptions=True)


async def connect(runtime: Runtime | None = None) -> Client:
    """A client for the server that commands in this folder use, too."""
    target = find_target()
    return await Client.connect(target.address, **target.config, data_converter=engine_converter(), runtime=runtime)


async def wait_for_server(runtime: Runtime | None, stop: threading.Event, form: str) -> Client | None:
    """A client of the namespace, once the server answers; None: a stop was requested before.

    One line says that the server is away. Raises ClientError for what no waiting mends: keys, certificates, a namespace
    that is not there.
    """
    metrics.record(metrics.SERVER_REACHABLE, 0)
    is_announced = False
    while not stop.is_set():
        try:
            client = await connect(runtime)
            request = DescribeNamespaceRequest(namespace=client.namespace)
            await client.workflow_service.describe_namespace(request, timeout=RPC)
        except RPCError as error:
            if error.status not in AWAY:
                raise explain_rpc_error(error, describe_server(client)) from None
            problem = error.message
        except (RuntimeError, ValueError) as error:
            problem = clean(connection_problem(error), 300)
            if isinstance(error, ValueError) or any(word in str(error) for word in _NO_WAITING):
                hint = "check TEMPORAL_ADDRESS, TEMPORAL_API_KEY and the TLS settings"
                raise ClientError(f"the server at {find_target().address} is not reached: {problem}", hint) from None
        else:
            return client
        if not is_announced:
            target, is_announced = find_target(), True
            text = f"no Temporal server answers at {target.address} ({target.source}): {problem}"
            announce(f"acts worker: {text}; waiting for it", form, logging.WARNING)
        await asyncio.to_thread(stop.wait, RETRY_SECONDS)
    return None


def build(
    client: Client, settings: Settings, registry: Registry, executor: ThreadPoolExecutor,
    watches: Watches | None = None, observation: Observation | None = None,
) -> Worker:  # fmt: skip
    """One worker that serves our workflows and the registry's Activities; ``docs/sizing.md`` has its numbers."""
    watches, observation = watches or Watches(int(settings.worker_memory) << 20), observation or Observation()
    calls = ActivitySlots(settings.max_activities, watches.memory)
    watches.looks.append(lambda: metrics.record(metrics.FREE_SLOTS, calls.free))
    plugin = Plugin(
        settings=settings, registry=registry, observe=observation.observe_call, tracing=observation.tracing,
        announce=watches.logs.announce, deadlock_seconds=None,  # the watch takes the place of the SDK's detector
        run_tools=lambda own: partial(watches.tools.run, frozenset(own)),
    )  # fmt: skip
    plugin.allows_eager_start = calls.allows_eager_start
    slots = TaskSlots(watches.memory)
    threads = TaskThreads(slots, TASK_THREADS)
    watches.looks.append(threads.turns.advance)
    has_storage = client.data_converter.external_storage is not None
    runner = WatchedRunner(watches.tasks, watches.memory, slots, has_storage=has_storage)
    worker = DrainingWorker(
        client,
        slots=slots,
        memory=watches.memory,
        task_queue=settings.task_queue,
        plugins=[plugin],
        deployment_config=settings.deployment_config,
        activity_executor=executor,
        workflow_runner=runner,
        unsandboxed_workflow_runner=runner,
        workflow_task_executor=threads,
        tuner=WorkerTuner.create_composite(
            workflow_supplier=slots,
            activity_supplier=calls,
            local_activity_supplier=FixedSizeSlotSupplier(LOCAL_ACTIVITIES),
            nexus_supplier=FixedSizeSlotSupplier(1),
        ),
        max_concurrent_workflow_task_polls=TASK_POLLS,
        nonsticky_to_sticky_poll_ratio=1 / TASK_POLLS,
        max_cached_workflows=CACHED_WORKFLOWS,
        max_eager_activity_reservations_per_workflow_task=settings.max_activities,
        # After a crash, tasks wait this long for the dead worker before another takes them
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        # Cancellation reaches an Activity with a heartbeat: within a second, not 48
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
        # The rest is for reporting the Activities that are cut off
        graceful_shutdown_timeout=timedelta(seconds=max(settings.shutdown_seconds / 2, settings.shutdown_seconds - 2)),
    )
    # Activities and workflow tasks can wait for a storage for different times
    replace_private(worker, "_activity_worker", "_data_converter", activity_converter)
    watches.memory.on_change.append(plugin.forget_outcomes)
    watches.memory.evict = worker._bridge_worker.request_workflow_eviction  # noqa: SLF001 - no public way
    return worker


def build_limited(worker: Worker, settings: Settings) -> list[Worker]:
    """A worker of its own for each Activity of ``ACTS_TOOL_LIMITS``: what is beyond the limit waits at the server.

    With 0 it waits for a worker with another number.
    """
    config: Any = worker.config(active_config=True)
    limited = []
    for name, count in settings.limits.items():
        if count:
            one = Worker(
                worker.client, task_queue=limited_queue(settings.task_queue, name), max_concurrent_activities=count,
                activities=[function for function in config["activities"] if activity_name(function) == name],
                **{key: config[key] for key in (
                    "interceptors", "activity_executor", "deployment_config", "identity", "graceful_shutdown_timeout",
                    "max_heartbeat_throttle_interval", "default_heartbeat_throttle_interval",
                    "disable_payload_error_limit",
                )},
            )  # fmt: skip
            replace_private(one, "_activity_worker", "_data_converter", activity_converter)
            limited.append(one)
    return limited


async def serve(settings: Settings, registry: Registry, stop: threading.Event) -> None:
    """Serve until ``stop`` is set, then give running Activities time to finish."""
    watches = Watches(int(settings.worker_memory) << 20, LogGuard(hides_failures=is_encrypting()))
    observation = Observation.start(settings.metrics, settings.health, {*registry.tools, *registry.names})
    observation.count_lost, observation.threads = lambda: watches.tasks.lost_threads, TASK_THREADS
    executor = ThreadPoolExecutor(max_workers=settings.max_activities, thread_name_prefix="activity")
    async with observation.run():
        client = await wait_for_server(observation.runtime, stop, settings.log)
        if client is None:
            return
        with watches.run(settings.watchdog_seconds, f"{client.namespace}/{settings.task_queue}"):
            async with AsyncExitStack() as running:
                worker = build(client, settings, registry, executor, watches, observation)
                for one in (worker, *build_limited(worker, settings)):
                    await running.enter_async_context(one)
                identity = worker.config(active_config=True)["identity"] or client.identity
                events = EventServer(client, settings.events_token)
                observation.serve_events = events.answer
                async with observation.serving(client, settings.task_queue, identity), events.serving():
                    report_start(client, settings, registry)
                    await asyncio.to_thread(stop.wait)
        executor.shutdown(wait=False, cancel_futures=True)
        watches.tools.close()


def report_start(client: Client, settings: Settings, registry: Registry) -> None:
    """Say that the worker is ready: in the log, or in a file for ``acts dev``, with the files that it watches."""
    report = os.environ.get(START_REPORT)
    if report:
        files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
        content = {
            "taskQueue": settings.task_queue, "activities": registry.names, "tools": sorted(registry.tools),
            "modules": {name: file for name, file in files.items() if file},
        }  # fmt: skip
        Path(report).write_text(json.dumps(content), "utf-8")
        return
    line = (
        f"acts worker: task queue {settings.task_queue!r}, namespace {client.namespace!r} at "
        f"{client.service_client.config.target_host}; activities: {format_choices(registry.names)}; "
        f"tools: {len(registry.tools)}"
    )
    if registry.servers.configs:
        line += f"; MCP servers: {format_choices(registry.servers.configs)}"
    if settings.deployment:
        line += f"; version {settings.build_id} of deployment {settings.deployment!r}"
    announce(line, settings.log)


def freeze_imports() -> None:
    """Take what the imports left (some 70,000 objects) out of every garbage collection to come, and collect less often.

    With the default, after 700 new objects, a third of the time to read a plan of 20,000 Calls went into that.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_PER_COLLECTION)


def run_until_signal(settings: Settings, registry: Registry) -> None:
    """Serve in a thread of its own: the main thread is left to signals, which nothing delays."""
    stop, limit = threading.Event(), max(settings.shutdown_seconds, MIN_STOP_SECONDS)

    def give_up() -> None:
        text = f"acts worker: it has not stopped within {limit:g} s, as when the server does not answer, and is ended; "
        announce(f"{text}calls that still ran begin again when their heartbeat is missed", settings.log, logging.ERROR)
        os._exit(1)

    def request_stop(_number: int, _frame: object) -> None:
        if not stop.is_set():
            threading.Timer(limit, give_up).start()
            # It cannot while C code holds the interpreter lock: this ends the process then, with all stacks
            faulthandler.dump_traceback_later(limit + 1, exit=True)
            stop.set()

    def run() -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(serve(settings, registry, stop))

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, request_stop)
    ThreadPoolExecutor(1, "worker").submit(run).result()


def main() -> int:
    """Run the worker. Exit codes: 0 after a stop, 1 after one that took too long, 2: settings, 3: no server."""
    logs = LogSettings.model_construct()
    try:
        logs = LogSettings.from_environment()
        configure_logs(logs.log_level, logs.log)
        settings, registry = Settings.from_environment(), from_environment()
        settings.check_limits(registry.names)
        for line in check_tools(registry.tools, settings.secrets):
            announce(f"acts worker: warning: {line}; calls of it wait until it is there", logs.log, logging.WARNING)
        for line in registry.warnings:
            announce(f"acts worker: warning: {line}", logs.log, logging.WARNING)
        freeze_imports()
        run_until_signal(settings, registry)
    except SettingsError as error:
        announce(f"acts worker: {error}", logs.log, logging.ERROR)
        return 2
    except ClientError as error:
        announce(f"acts worker: {error}", logs.log, logging.ERROR)
        return 3 if error.is_unavailable else 2
    return 0
