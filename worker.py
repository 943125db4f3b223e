"""The worker process: reads settings from the environment, serves one task queue, stops gracefully.

    TEMPORAL_*             where the server is (Temporal's standard environment configuration)
    ACTS_TASK_QUEUE        the queue to serve (acts)
    ACTS_ACTIVITIES        Python modules with Activities and TOOLS, comma separated
    ACTS_TOOLS             folders with *.json Tools, separated like PATH
    ACTS_MCP               a file with MCP servers, whose tools are Tools (docs/mcp.md)
    ACTS_SCRIPTS           folders with the scripts of ``scripted:`` models
    ACTS_DELEGATES         folders with the definitions of delegates (docs/delegates.md)
    ACTS_DELEGATE_HOSTS    hosts that definitions may be fetched from: host or host:port, comma separated
    ACTS_DELEGATE_PRIVATE_HOSTS  host:port where the address need not be public
    ACTS_DATA, ACTS_RESULTS  folders with sets of instances, and for their results (docs/sets.md)
    ACTS_DATA_HOSTS        hosts that sets may be fetched from, like ACTS_DELEGATE_HOSTS; ACTS_DATA_PRIVATE_HOSTS too
    ANTHROPIC_*, OPENAI_*  keys and addresses of model providers (docs/models.md)
    ACTS_MODELS            a file with model endpoints: ``NAME/MODEL`` (docs/models.md)
    ACTS_KEEP_PROMPTS      a folder for requests to models and their answers (docs/models.md)
    ACTS_OPENAI_API        the API to use with OpenAI or a compatible server (docs/models.md)
    ACTS_MAX_ACTIVITIES    how many Activities run at once (500)
    ACTS_ACTIVITY_PROCESSES  processes for plain ``def`` Activities (0: threads of the worker)
    ACTS_WORKER_MEMORY     MB that the process may take before it gives up cached workflows (the container's limit)
    ACTS_SHUTDOWN_SECONDS  from a stop until the process ends, whatever still runs (20)
    ACTS_WATCHDOG_SECONDS  how long no Python code may run before the process is ended (20; 0: for ever)

Run it as ``python -m worker``.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.worker import FixedSizeSlotSupplier, Worker, WorkerTuner

from activities.ask_model import ask_model
from activities.first_attempt import first_attempt
from activities.kept_prompts import check_folder
from activities.load_delegate import Loader
from activities.namespace_check import check_search_attributes
from activities.providers.endpoints import EndpointsError
from activities.providers.endpoints import check_environment as check_endpoints
from activities.providers.http_clients import close_clients
from activities.registry import Registry, RegistryError, activity_name, from_environment
from activities.set_work import SetActivities
from activities.task_queues import check_queues
from activities.worker_versions import VersionInterceptor, WorkerVersions, missing_activity
from acts.language.errors import format_choices
from acts.language.wire import TASK_QUEUE
from connection.converter import worker_converter
from delegates.sources import DelegateSources, DelegateSourcesError
from delegates.sources import from_environment as delegates_from_environment
from sets.set_download import downloader
from sets.set_sources import SetSources, SetSourcesError
from sets.set_sources import from_environment as sets_from_environment
from worker_runtime.memory_watch import MemoryWatch, read_container_limit
from worker_runtime.process_watch import limit_stop
from worker_runtime.sdk_internals import find_eviction, lift_deadlock_timeout
from worker_runtime.task_slots import TaskSlots
from worker_runtime.tool_loop import ToolLoopInterceptor
from worker_runtime.watched_runner import WatchedRunner
from worker_runtime.watches import Watches
from worker_runtime.workflow_watch import TaskThreads
from workflows.agent import AgentWorkflow
from workflows.background import BackgroundWorkflow
from workflows.batch import BatchWorkflow
from workflows.delegate import DelegateWorkflow
from workflows.instance import InstanceWorkflow
from workflows.plan import PlanWorkflow
from workflows.runtime.failure_converter import LenientFailureConverter
from workflows.runtime.interceptors import SanitizingInterceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

# A stop without patience still lets the server know of it
MIN_STOP_SECONDS: Final = 1.0
# Threads of workflow tasks: slots bound how many work at once, and those left behind by stuck tasks come on top
TASK_THREADS: Final = 100
# Local Activities at once: the SDK's own default
LOCAL_ACTIVITIES: Final = 100
# Workflows in the cache, half of the SDK's number, which is the only bound it knows. One that waits takes about 85 kB,
# one in mid-plan with thousands of Calls some tens of megabytes; a run that was evicted costs a replay
CACHED_WORKFLOWS: Final = 500
# New objects after which the garbage collector looks for cycles; the default is 700
OBJECTS_PER_COLLECTION: Final = 10_000

WORKFLOWS: list[type] = [
    PlanWorkflow, BackgroundWorkflow, AgentWorkflow, DelegateWorkflow, InstanceWorkflow, BatchWorkflow
]  # fmt: skip


class SettingsError(Exception):
    """A setting of the environment has no usable value."""


@dataclass(frozen=True)
class Settings:
    """The worker's settings, read from the environment."""

    task_queue: str = TASK_QUEUE
    max_activities: int = 500
    """Slots for Activities, and how many a workflow may start eagerly in one task: with
    the SDK's 100 and 3, a fan-out of 500 takes twice as long."""
    activity_processes: int = 0
    """Processes for plain ``def`` Activities; 0: they run in threads."""
    memory_bytes: int = 0
    """What the process may take; above four fifths of it, it gives up cached workflows. 0: no limit."""
    shutdown_seconds: float = 20.0
    """From a stop to the end of the process, whatever still runs."""
    watchdog_seconds: float = 20.0
    """C code that holds the interpreter lock for so long is not coming back: the server has given up its workflow
    tasks after 10 s. As long as a stop may take by default, so that a stop during it is no later. 0: no watchdog."""
    delegates: DelegateSources = field(default_factory=delegates_from_environment)
    """The folders and hosts that definitions are loaded from."""
    sets: SetSources = field(default_factory=sets_from_environment)
    """The folders and hosts that sets are read from, and the folders for results."""

    @property
    def grace_seconds(self) -> float:
        """How long Activities may continue after a stop; the rest is for reporting those that are cut off."""
        return self.shutdown_seconds - min(2.0, self.shutdown_seconds / 4)

    @classmethod
    def from_environment(cls) -> Settings:
        """Raises SettingsError, naming the variable, what it holds and what is allowed."""
        try:
            delegates, sets = delegates_from_environment(), sets_from_environment()
            check_endpoints()
            check_folder()
        except (DelegateSourcesError, SetSourcesError, EndpointsError) as error:
            raise SettingsError(str(error)) from error
        except OSError as error:
            raise SettingsError(f"ACTS_KEEP_PROMPTS names no folder that can be written: {error}") from error
        return cls(
            task_queue=os.environ.get("ACTS_TASK_QUEUE") or TASK_QUEUE,
            max_activities=int(_number("ACTS_MAX_ACTIVITIES", 500, 1, 10_000)),
            activity_processes=int(_number("ACTS_ACTIVITY_PROCESSES", 0, 0, 256)),
            memory_bytes=int(_number("ACTS_WORKER_MEMORY", read_container_limit() >> 20, 0, 1e6)) << 20,
            shutdown_seconds=_number("ACTS_SHUTDOWN_SECONDS", 20.0, 0, 3600),
            watchdog_seconds=_number("ACTS_WATCHDOG_SECONDS", 20.0, 0, 3600),
            delegates=delegates,
            sets=sets,
        )


def _number(name: str, default: float, low: float, high: float) -> float:
    text = os.environ.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise SettingsError(f"{name} is {text!r}; it is a number from {low:g} to {high:g}")
    return value


async def connect() -> Client:
    """A client for the server that the environment (or its profile) names."""
    config = ClientConfig.load_client_connect_config()
    config.setdefault("target_host", "127.0.0.1:7233")
    return await Client.connect(**config, data_converter=worker_converter(LenientFailureConverter))


def build(
    client: Client, settings: Settings, registry: Registry, executor: ThreadPoolExecutor, watches: Watches | None = None
) -> Worker:
    """One worker that serves our workflows and the registry's Activities.

    Each number has its reason in ``docs/performance.md``.
    """
    watches = watches or Watches()
    # They do not block, so they run in the worker's own loop; Tools run beside it
    versions, loader = WorkerVersions(registry), Loader(settings.delegates)
    own: list[Callable[..., Any]] = [
        registry.lookup(versions.others_may_know), versions.look_up_everywhere(),
        ask_model, check_queues, check_search_attributes, first_attempt, loader.activity(),
    ]  # fmt: skip
    own += [*registry.server_activities, *SetActivities(settings.sets, downloader(settings.sets.hosts)).all()]
    wrap = watches.start_processes(settings.activity_processes)
    slots = TaskSlots(watches.tasks.count_waiting)
    watches.tasks.on_wait = slots.wake_all
    worker = Worker(
        client,
        task_queue=settings.task_queue,
        workflows=WORKFLOWS,
        identity=versions.identity,
        activities=[*own, *registry.activities, missing_activity],
        activity_executor=executor,
        interceptors=[
            SanitizingInterceptor(client),
            VersionInterceptor(versions),
            ToolLoopInterceptor(watches.tools, map(activity_name, own), wrap),
        ],
        # One generic, reviewed workflow needs no sandbox; it would cost half of the CPU
        workflow_runner=WatchedRunner(watches.tasks, watches.memory),
        workflow_task_executor=TaskThreads(watches.tasks, TASK_THREADS),
        tuner=WorkerTuner.create_composite(
            workflow_supplier=slots,
            activity_supplier=FixedSizeSlotSupplier(settings.max_activities),
            local_activity_supplier=FixedSizeSlotSupplier(LOCAL_ACTIVITIES),
            nexus_supplier=FixedSizeSlotSupplier(1),
        ),
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
    watches.memory.evict = find_eviction(worker)
    return worker


async def serve(
    settings: Settings, registry: Registry, *, ready: Callable[[str], None], stop: asyncio.Event | None = None
) -> None:
    """Serve until ``stop`` is set, then give running Activities time to finish."""
    client = await connect()
    stop = stop or asyncio.Event()
    watches = Watches(memory=MemoryWatch(settings.memory_bytes))
    executor = ThreadPoolExecutor(max_workers=settings.max_activities, thread_name_prefix="activity")
    registry.servers.start()
    with watches.run(settings.watchdog_seconds, f"{client.namespace}/{settings.task_queue}"):
        async with build(client, settings, registry, executor, watches):
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
    return (
        f"acts worker: task queue {settings.task_queue!r}, namespace {client.namespace!r} at "
        f"{client.service_client.config.target_host}; activities: {names}; tools: {len(registry.tools)}{servers}"
    )


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


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
        await serve(self._settings, self._registry, ready=_print_line, stop=self._stop)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        limit_stop(max(self._settings.shutdown_seconds, MIN_STOP_SECONDS))
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)


def main() -> int:
    """Run the worker. Exit codes: 0 after a stop, 2 for invalid settings, 3 without a server."""
    try:
        settings, registry = Settings.from_environment(), from_environment()
    except (SettingsError, RegistryError) as error:
        _print_line(f"acts worker: {error}")
        return 2
    freeze_imports()
    try:
        LoopThread(settings, registry).run()
    except RuntimeError as error:
        if "connect" not in str(error).lower():
            raise
        _print_line(
            f"acts worker: no Temporal server answers: {error}\nset TEMPORAL_ADDRESS, or start one with: acts dev"
        )
        return 3
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of Tools cannot be stopped, and must not delay the end
