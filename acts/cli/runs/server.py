"""The Temporal server of a command: which one it is, how to connect, what its errors mean.

The address comes from Temporal's environment or profile, else from the dev server of the state folder, else it is
127.0.0.1:7233. Every wait is bounded; a server that does not answer is exit code 3, with the address that was tried.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acts.cli.console import EXIT_NO_SERVER, clean, codec_error, command_error, print_err
from acts.cli.dev.temporal_server import DEFAULT_STATE, HOST, find_dev_server
from acts.language.errors import SettingsError
from acts.language.wire import TASK_QUEUE

if TYPE_CHECKING:
    from temporalio.client import Client, Interceptor
    from temporalio.runtime import Runtime

CONNECT_SECONDS: Final = 5.0  # a server on this machine needs 0.02 s, one across an ocean 0.5 s
RPC: Final = timedelta(seconds=10)  # one request, with the retries of the SDK
STATE_VARIABLE: Final = "ACTS_STATE"
START_WORKER: Final = "start a worker: `acts dev`, or `python -m acts.worker`"


class ServerTarget(NamedTuple):
    """A server to connect to, at ``host:port``; ``source`` says where this address is from."""

    address: str
    source: str
    config: dict[str, Any]
    ui_url: str | None = None


def task_queue() -> str:
    return os.environ.get("ACTS_TASK_QUEUE") or TASK_QUEUE


def find_target() -> ServerTarget:
    from temporalio.envconfig import ClientConfig

    try:
        config: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
    except (RuntimeError, OSError) as error:  # ConfigError, or a file that cannot be read
        hint = "check the TEMPORAL_* variables"
        raise command_error(f"Temporal's configuration is invalid: {error}", hint=hint) from None
    if address := config.pop("target_host", None):
        is_variable = bool(os.environ.get("TEMPORAL_ADDRESS"))
        source = "TEMPORAL_ADDRESS" if is_variable else "the profile of Temporal's configuration"
        return ServerTarget(address, source, config)
    folder = Path(os.environ.get(STATE_VARIABLE) or DEFAULT_STATE)
    if (dev := find_dev_server(folder)) is not None:
        return ServerTarget(dev.address, f"the dev server of {folder}", config, dev.ui_url)
    source = f"the default: TEMPORAL_ADDRESS is not set, and no dev server runs in {folder}"
    return ServerTarget(f"{HOST}:7233", source, config)


async def connect(target: ServerTarget | None = None) -> Client:
    """A client of the server; exit code 3 if it does not answer."""
    from temporalio.client import Client

    from acts.payloads.codec import CodecError
    from acts.payloads.converter import client_converter

    target = target or find_target()
    try:
        converter = client_converter()
    except CodecError as error:
        raise codec_error(error) from None
    try:
        options = {**target.config, "data_converter": converter, "interceptors": _interceptors()}
        client = Client.connect(target.address, runtime=silent_runtime(), **options)
        return await asyncio.wait_for(client, CONNECT_SECONDS)
    except TimeoutError:
        cause = f"no answer within {CONNECT_SECONDS:g} s"
    except (RuntimeError, ValueError) as error:
        from acts.telemetry.failures import connection_problem

        cause = clean(connection_problem(error), 200)
    head = f"no Temporal server answers at {clean(target.address, 100)} ({clean(target.source, 200)}): {cause}"
    hint = "start a server and a worker with `acts dev`, or set TEMPORAL_ADDRESS"
    raise command_error(head, hint=hint, code=EXIT_NO_SERVER)


@cache
def _interceptors() -> Sequence[Interceptor]:
    """What writes spans, where the environment asks for traces."""
    if not any(name.startswith("OTEL_EXPORTER_OTLP") for name in os.environ):
        return ()
    from acts.telemetry.tracing import ClientSpans, start_tracing

    # Each failed attempt to reach the collector would be a line among those of the command
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    try:
        tracing = start_tracing("acts-cli")
    except SettingsError as error:
        print_err(f"traces are off: {clean(str(error))}")
        return ()
    return () if tracing is None else (ClientSpans(tracing),)


@cache
def silent_runtime() -> Runtime:
    """The SDK without its log lines: the commands report what matters of them."""
    from temporalio.runtime import Runtime, TelemetryConfig

    return Runtime(telemetry=TelemetryConfig(logging=None))


async def has_pollers(client: Client, queue: str, *, is_for_activities: bool = False) -> bool:
    """False if no worker has polled this queue lately; True if the server cannot tell."""
    from temporalio.service import RPCError

    try:
        return bool((await describe_queue(client, queue, is_for_activities=is_for_activities)).pollers)
    except RPCError:
        return True


async def describe_queue(client: Client, queue: str, *, is_for_activities: bool, **more: Any) -> Any:
    from temporalio.api.enums.v1 import TaskQueueType
    from temporalio.api.taskqueue.v1 import TaskQueue
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

    type_ = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY if is_for_activities else TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=type_, **more
    )
    return await client.workflow_service.describe_task_queue(request, timeout=RPC)
