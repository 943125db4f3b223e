"""The worker process: reads settings from the environment, serves one task queue, stops gracefully.

    TEMPORAL_*             where the server is (Temporal's standard environment configuration)
    ACTS_TASK_QUEUE        the queue to serve (acts)
    ACTS_ACTIVITIES        Python modules with Activities and TOOLS, comma separated
    ACTS_TOOLS             folders with *.json Tools, separated like PATH
    ACTS_SCRIPTS           folders with the scripts of ``scripted:`` models
    ACTS_DELEGATES         folders with the definitions of delegates (docs/delegates.md)
    ACTS_DELEGATE_HOSTS    hosts that definitions may be fetched from: host or host:port, comma separated
    ACTS_DELEGATE_PRIVATE_HOSTS  host:port where the address need not be public
    ANTHROPIC_*, OPENAI_*  keys and addresses of model providers (docs/models.md)
    ACTS_OPENAI_API        the API to use with OpenAI or a compatible server (docs/models.md)
    ACTS_MAX_ACTIVITIES    how many Activities run at once (500)
    ACTS_SHUTDOWN_SECONDS  how long running Activities may continue after a stop (20)

Run it as ``python -m worker``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfig
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.ask_model import ask_model
from activities.load_delegate import Loader
from activities.providers.http_clients import close_clients
from activities.registry import Registry, RegistryError, from_environment
from acts.language.errors import format_choices
from acts.language.wire import TASK_QUEUE
from delegates.sources import DelegateSources, DelegateSourcesError
from delegates.sources import from_environment as delegates_from_environment
from workflows.agent import AgentWorkflow
from workflows.background import BackgroundWorkflow
from workflows.delegate import DelegateWorkflow
from workflows.instance import InstanceWorkflow
from workflows.plan import PlanWorkflow
from workflows.runtime.failure_converter import LenientFailureConverter
from workflows.runtime.interceptors import SanitizingInterceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

WORKFLOWS: list[type] = [PlanWorkflow, BackgroundWorkflow, AgentWorkflow, DelegateWorkflow, InstanceWorkflow]


class SettingsError(Exception):
    """A setting of the environment has no usable value."""


@dataclass(frozen=True)
class Settings:
    """The worker's settings, read from the environment."""

    task_queue: str = TASK_QUEUE
    max_activities: int = 500
    """Slots for Activities, and how many a workflow may start eagerly in one task: with
    the SDK's 100 and 3, a fan-out of 500 takes twice as long."""
    shutdown_seconds: float = 20.0
    delegates: DelegateSources = field(default_factory=delegates_from_environment)
    """The folders and hosts that definitions are loaded from."""

    @classmethod
    def from_environment(cls) -> Settings:
        """Raises SettingsError, naming the variable, what it holds and what is allowed."""
        try:
            delegates = delegates_from_environment()
        except DelegateSourcesError as error:
            raise SettingsError(str(error)) from error
        return cls(
            task_queue=os.environ.get("ACTS_TASK_QUEUE") or TASK_QUEUE,
            max_activities=int(_number("ACTS_MAX_ACTIVITIES", 500, 1, 10_000)),
            shutdown_seconds=_number("ACTS_SHUTDOWN_SECONDS", 20.0, 0, 3600),
            delegates=delegates,
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
    converter = dataclasses.replace(DataConverter.default, failure_converter_class=LenientFailureConverter)
    return await Client.connect(**config, data_converter=converter)


def build(client: Client, settings: Settings, registry: Registry, executor: ThreadPoolExecutor) -> Worker:
    """One worker that serves our workflows and the registry's Activities.

    Each number has its reason in ``docs/performance.md``.
    """
    return Worker(
        client,
        task_queue=settings.task_queue,
        workflows=WORKFLOWS,
        activities=[registry.lookup(), ask_model, Loader(settings.delegates).activity(), *registry.activities],
        activity_executor=executor,
        interceptors=[SanitizingInterceptor(client)],
        # One generic, reviewed workflow needs no sandbox; it would cost half of the CPU
        workflow_runner=UnsandboxedWorkflowRunner(),
        # No deadlock detector: reading a plan of 10,000 calls takes a second, and on a
        # busy machine more than the 2 s after which it would fail the task, for ever
        debug_mode=True,
        max_concurrent_activities=settings.max_activities,
        max_eager_activity_reservations_per_workflow_task=settings.max_activities,
        # After a crash, tasks wait this long for the dead worker before another takes them
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        # Cancellation reaches an Activity with a heartbeat: within a second, not 48
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=settings.shutdown_seconds),
    )


async def serve(
    settings: Settings, registry: Registry, *, ready: Callable[[str], None], stop: asyncio.Event | None = None
) -> None:
    """Serve until ``stop`` is set, then give running Activities time to finish."""
    client = await connect()
    stop = stop or asyncio.Event()
    with ThreadPoolExecutor(max_workers=settings.max_activities, thread_name_prefix="activity") as executor:
        async with build(client, settings, registry, executor):
            ready(start_line(client, settings, registry))
            await stop.wait()
    await close_clients()


def start_line(client: Client, settings: Settings, registry: Registry) -> str:
    """One line that names the queue, the server and the Activities of this worker."""
    names = format_choices(registry.names)
    return (
        f"acts worker: task queue {settings.task_queue!r}, namespace {client.namespace!r} at "
        f"{client.service_client.config.target_host}; activities: {names}; tools: {len(registry.tools)}"
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


async def _main(settings: Settings, registry: Registry) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, registry, ready=_print_line, stop=stop)


def main() -> int:
    """Run the worker. Exit codes: 0 after a stop, 2 for invalid settings, 3 without a server."""
    try:
        settings, registry = Settings.from_environment(), from_environment()
    except (SettingsError, RegistryError) as error:
        _print_line(f"acts worker: {error}")
        return 2
    try:
        _runner()(_main(settings, registry))
    except RuntimeError as error:
        if "connect" not in str(error).lower():
            raise
        _print_line(
            f"acts worker: no Temporal server answers: {error}\nset TEMPORAL_ADDRESS, or start one with: acts dev"
        )
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
