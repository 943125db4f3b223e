"""The worker process: serves one task queue, stops gracefully. Run it as ``python -m worker``.

What it reads from the environment is in ``worker_settings.py``.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.worker import FixedSizeSlotSupplier, Replayer, UnsandboxedWorkflowRunner, Worker, WorkerTuner

from activities.approver_file import look_up_approvers
from activities.ask_model import ask_model
from activities.first_attempt import first_attempt
from activities.load_delegate import Loader
from activities.namespace_check import check_search_attributes
from activities.providers.http_clients import close_clients
from activities.read_past_run import PastRuns
from activities.registry import Registry, RegistryError, activity_name, from_environment
from activities.secret_interceptor import SecretInterceptor
from activities.secret_source import SecretSettingsError, check_tools
from activities.set_work import SetActivities
from activities.task_queues import check_queues
from activities.tool_list import tool_list
from activities.worker_versions import VersionInterceptor, WorkerVersions, missing_activity
from acts.language.errors import format_choices
from connection.codec_keys import is_encrypting
from connection.content_store import StorageError
from connection.converter import worker_converter
from connection.storage import activity_converter
from sets.set_download import downloader
from telemetry.health import Health
from telemetry.logs import add_redactor, announce, configure_logs
from telemetry.observation import Observation
from telemetry.telemetry_settings import TelemetryError, TelemetrySettings
from worker_runtime.deployment import deployment_config
from worker_runtime.draining_worker import DrainingWorker
from worker_runtime.log_guard import LogGuard
from worker_runtime.memory_watch import MemoryWatch
from worker_runtime.payload_visits import leave_out_visits
from worker_runtime.process_watch import limit_stop
from worker_runtime.replays import replay
from worker_runtime.sdk_internals import find_eviction, lift_deadlock_timeout, replace_activity_converter
from worker_runtime.task_slots import TaskSlots
from worker_runtime.task_threads import TaskThreads
from worker_runtime.tool_loop import ToolLoopInterceptor
from worker_runtime.watched_runner import WatchedRunner
from worker_runtime.watches import Watches
from worker_settings import Settings, SettingsError
from workflows.agent import AgentWorkflow
from workflows.background import BackgroundWorkflow
from workflows.batch import BatchWorkflow
from workflows.delegate import DelegateWorkflow
from workflows.instance import InstanceWorkflow
from workflows.plan import PlanWorkflow
from workflows.runtime.failure_converter import LenientFailureConverter
from workflows.runtime.interceptors import SanitizingInterceptor
from workflows.runtime.local_arguments import LocalArgumentsInterceptor
from workflows.runtime.replayed_facts import facts_of
from workflows.runtime.run_observer import RunObserver
from workflows.runtime.worker_notes import WORKER_NOTES, BlockedTool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from temporalio.client import WorkflowHistory
    from temporalio.runtime import Runtime

    from activities.read_past_run import ReadHistory

# A stop without patience still lets the server know of it
MIN_STOP_SECONDS: Final = 1.0
# Threads of workflow tasks: slots bound how many work at once, and those left behind by stuck tasks come on top
TASK_THREADS: Final = 100
# Local Activities at once: the SDK's own default
LOCAL_ACTIVITIES: Final = 100
# Polls for workflow tasks at once. With the SDK's five, a hundred tasks that are accepted at once come one by one: each
# poll takes a way to the server and back. One of them is for runs outside the cache, as by default: the server spreads
# these polls over the parts of a task queue together with those for Activities, and it lists only what polls the first
# part. Of a worker that joined with four of them, it knew nothing for fifty seconds
TASK_POLLS: Final = 20
# Workflows in the cache, half of the SDK's number, which is the only bound it knows. One that waits takes about 85 kB,
# one in mid-plan with thousands of Calls some tens of megabytes; a run that was evicted costs a replay
CACHED_WORKFLOWS: Final = 500
# New objects after which the garbage collector looks for cycles; the default is 700
OBJECTS_PER_COLLECTION: Final = 10_000

WORKFLOWS: list[type] = [
    PlanWorkflow, BackgroundWorkflow, AgentWorkflow, DelegateWorkflow, InstanceWorkflow, BatchWorkflow
]  # fmt: skip


async def connect(runtime: Runtime | None = None) -> Client:
    """A client for the server that the environment (or its profile) names."""
    config = ClientConfig.load_client_connect_config()
    config.setdefault("target_host", "127.0.0.1:7233")
    converter = worker_converter(LenientFailureConverter)
    return await Client.connect(**config, data_converter=converter, runtime=runtime)


def build(
    client: Client, settings: Settings, registry: Registry, executor: ThreadPoolExecutor,
    watches: Watches | None = None, observation: Observation | None = None,
) -> Worker:  # fmt: skip
    """One worker that serves our workflows and the registry's Activities.

    Each number has its reason in ``docs/performance.md``.
    """
    watches, observation = watches or Watches(), observation or Observation()
    versions = WorkerVersions(registry, settings.deployment)
    own = own_activities(client, settings, registry, versions)
    wrap = watches.start_processes(settings.activity_processes)
    slots = TaskSlots(watches.tasks.count_waiting)
    watches.tasks.on_wait = slots.wake_all
    has_storage = client.data_converter.external_storage is not None
    worker = DrainingWorker(
        client,
        slots=slots,
        memory=watches.memory,
        task_queue=settings.task_queue,
        workflows=WORKFLOWS,
        identity=versions.identity,
        deployment_config=deployment_config(settings.deployment),
        activities=[*own, *registry.activities, missing_activity],
        activity_executor=executor,
        interceptors=[
            LocalArgumentsInterceptor(map(activity_name, own)),
            RunObserver(observation.tracing),
            observation.calls,
            SanitizingInterceptor(client),
            VersionInterceptor(versions),
            SecretInterceptor(registry, settings.secrets, watches.logs.announce),
            ToolLoopInterceptor(watches.tools, map(activity_name, own), wrap),
        ],
        # One generic, reviewed workflow needs no sandbox; it would cost half of the CPU
        workflow_runner=WatchedRunner(watches.tasks, watches.memory, slots, has_storage=has_storage),
        workflow_task_executor=TaskThreads(watches.tasks, slots, TASK_THREADS),
        tuner=slot_tuner(settings, slots),
        max_concurrent_workflow_task_polls=TASK_POLLS,
        nonsticky_to_sticky_poll_ratio=1 / TASK_POLLS,
        max_cached_workflows=CACHED_WORKFLOWS,
        # The SDK would fail, for ever, each task in which it has to refuse an update of more than 2 MB: it sends
        # the whole update back. The server drops such an update alone. All else that we send is measured before
        disable_payload_error_limit=True,
        max_eager_activity_reservations_per_workflow_task=settings.max_activities,
        # After a crash, tasks wait this long for the dead worker before another takes them
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        # Cancellation reaches an Activity with a heartbeat: within a second, not 48
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=settings.grace_seconds),
    )
    # In place of the SDK's detector: it fails each task of two seconds, and the server begins it again, for ever
    lift_deadlock_timeout(worker)
    leave_out_visits()
    replace_activity_converter(worker, activity_converter)
    watches.memory.evict = find_eviction(worker)
    return worker


def own_activities(
    client: Client, settings: Settings, registry: Registry, versions: WorkerVersions
) -> list[Callable[..., Any]]:
    """The engine's own Activities. They do not block, so they run in the worker's own loop; Tools run beside it."""
    past_runs = PastRuns(past_run_reader(client))
    sets = SetActivities(settings.sets, downloader(settings.sets.hosts), past_runs.rows)
    return [
        registry.lookup(versions.others_may_know), versions.look_up_everywhere(),
        tool_list(registry, versions), ask_model, check_queues, look_up_approvers, check_search_attributes,
        first_attempt, Loader(settings.delegates).activity(), past_runs.activity(),
        *registry.server_activities, *sets.all(),
    ]  # fmt: skip


def slot_tuner(settings: Settings, slots: TaskSlots) -> WorkerTuner:
    """How many tasks of each kind the worker accepts."""
    return WorkerTuner.create_composite(
        workflow_supplier=slots,
        activity_supplier=FixedSizeSlotSupplier(settings.max_activities),
        local_activity_supplier=FixedSizeSlotSupplier(LOCAL_ACTIVITIES),
        nexus_supplier=FixedSizeSlotSupplier(1),
    )


def build_replayer(runtime: Runtime | None = None) -> Replayer:
    """What replays histories as a worker of this checkout does; without the SDK's deadlock detector, as ``build``."""
    return Replayer(
        workflows=WORKFLOWS,
        data_converter=worker_converter(LenientFailureConverter),
        interceptors=[SanitizingInterceptor()],
        workflow_runner=UnsandboxedWorkflowRunner(),
        debug_mode=True,
        runtime=runtime,
    )


def past_run_reader(client: Client) -> ReadHistory:
    """Replays histories with the workflows of this worker, and reads what the runs had done."""
    converter = client.data_converter

    async def read(history: WorkflowHistory, run_id: str, children: Mapping[str, str]) -> Any:
        facts = partial(
            facts_of, workflow_id=history.workflow_id, run_id=run_id, events=len(history.events), children=children
        )
        result = await replay(history, WORKFLOWS, converter, facts)
        return result.failure or result.answer

    return read


async def serve(
    settings: Settings, registry: Registry, *, ready: Callable[[str], None], stop: asyncio.Event | None = None
) -> None:
    """Serve until ``stop`` is set, then give running Activities time to finish."""
    stop = stop or asyncio.Event()
    logs = LogGuard(hides_failures=is_encrypting(), without_traceback=(StorageError,))
    add_redactor(logs.mask_line)
    watches = Watches(memory=MemoryWatch(settings.memory_bytes), logs=logs)
    WORKER_NOTES.find_blocked_tools = lambda: [
        BlockedTool(call.tool, call.run, seconds) for call, seconds in watches.tools.blocked_calls()
    ]
    health = Health(lambda: watches.tasks.lost_threads, TASK_THREADS)
    observation = Observation.start(settings.telemetry, {*registry.tools, *registry.names}, health)
    async with observation.run():
        await _serve(settings, registry, observation, watches, ready, stop)


async def _serve(
    settings: Settings, registry: Registry, observation: Observation, watches: Watches,
    ready: Callable[[str], None], stop: asyncio.Event,
) -> None:  # fmt: skip
    client = await connect(observation.runtime)
    executor = ThreadPoolExecutor(max_workers=settings.max_activities, thread_name_prefix="activity")
    registry.servers.start()
    with watches.run(settings.watchdog_seconds, f"{client.namespace}/{settings.task_queue}"):
        async with build(client, settings, registry, executor, watches, observation) as worker:
            identity = worker.config(active_config=True)["identity"] or client.identity
            async with observation.serving(client, settings.task_queue, identity):
                ready(start_line(client, settings, registry))
                await stop.wait()
    executor.shutdown(wait=False, cancel_futures=True)
    watches.close()
    await registry.servers.stop()
    await close_clients()


def start_line(client: Client, settings: Settings, registry: Registry) -> str:
    """One line that names the queue, the server and the Activities of this worker."""
    names = format_choices(registry.names)
    servers = f"; MCP servers: {format_choices(registry.servers.configs)}" if registry.servers.configs else ""
    version = settings.deployment
    pinned = f"; version {version.build_id} of deployment {version.deployment_name!r}" if version else ""
    return (
        f"acts worker: task queue {settings.task_queue!r}, namespace {client.namespace!r} at "
        f"{client.service_client.config.target_host}; activities: {names}; tools: {len(registry.tools)}"
        f"{servers}{pinned}"
    )


def _runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    """The event loop runner: uvloop if it is installed, which saves about 5 % of the wall time."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def freeze_imports() -> None:
    """Take what the imports left (some 70,000 objects) out of every garbage collection to come, and collect less often.

    By default the collector looks for cycles after 700 new objects; a plan of 20,000 Calls is a million, and a third
    of the time to read it went into that.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_PER_COLLECTION)


class LoopThread:
    """The worker's event loop, in a thread of its own: the main thread is left to signals, which nothing delays."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings, self._registry = settings, registry
        self._outcome: Future[None] = Future()
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    def run(self) -> None:
        """Serve until a signal; raises what the worker raises. Call it from the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        self._thread.start()
        self._outcome.result()

    def _run(self) -> None:
        try:
            _runner()(self._serve())
        except BaseException as error:  # noqa: BLE001 - the main thread raises it again
            self._outcome.set_exception(error)
        else:
            self._outcome.set_result(None)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if self._is_stopping:
            self._stop.set()
        await serve(self._settings, self._registry, ready=self._announce, stop=self._stop)

    def _announce(self, line: str) -> None:
        announce(line, self._settings.telemetry)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        limit_stop(max(self._settings.shutdown_seconds, MIN_STOP_SECONDS))
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)


def main() -> int:
    """Run the worker. Exit codes: 0 after a stop, 2 for invalid settings, 3 without a server."""
    telemetry = TelemetrySettings()
    try:
        telemetry = TelemetrySettings.from_environment()
        configure_logs(telemetry)
        settings, registry = Settings.from_environment(), from_environment()
        for line in check_tools(registry.tools, settings.secrets):
            announce(f"acts worker: warning: {line}; calls of it wait until it is there", telemetry, logging.WARNING)
        freeze_imports()
        LoopThread(settings, registry).run()
    except (SettingsError, RegistryError, SecretSettingsError, TelemetryError) as error:
        announce(f"acts worker: {error}", telemetry, logging.ERROR)
        return 2
    except RuntimeError as error:
        if "connect" not in str(error).lower():
            raise
        hint = "set TEMPORAL_ADDRESS, or start one with: acts dev"
        announce(f"acts worker: no Temporal server answers: {error}\n{hint}", telemetry, logging.ERROR)
        return 3
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of Tools cannot be stopped, and must not delay the end
