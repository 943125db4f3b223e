"""The Temporal server of a command: which one it is, how to connect, what its errors mean.

The address comes from Temporal's environment or profile, else from the dev server of the state folder, else it is
127.0.0.1:7233.

Laws of this file:
- every wait is bounded; a server that does not answer is exit code 3, with the addresses that were tried;
- an error of the server becomes a ``CommandError`` here: no command reads gRPC codes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from acts.cli.console import (
    EXIT_NO_SERVER,
    EXIT_WRONG_INPUT,
    CommandError,
    clean,
    command_error,
    print_err,
)
from acts.cli.dev.temporal_server import DEFAULT_STATE, HOST, find_dev_server
from acts.language.wire import TASK_QUEUE

if TYPE_CHECKING:
    from temporalio.client import Client, Interceptor
    from temporalio.runtime import Runtime
    from temporalio.service import RPCError

T = TypeVar("T")

# What the SDK says of a reference that it cannot follow
_STORAGE_NEEDED: Final = "TMPRL1105"

DEFAULT_ADDRESS: Final = f"{HOST}:7233"
CONNECT_SECONDS: Final = 5.0  # a server on this machine needs 0.02 s, one across an ocean 0.5 s
RPC: Final = timedelta(seconds=10)  # one request, with the retries of the SDK
STATE_VARIABLE: Final = "ACTS_STATE"
START_WORKER: Final = "start a worker: `acts dev`, or `python -m acts.worker`"


@dataclass(frozen=True)
class ServerTarget:
    """A server to connect to; ``source`` says where its address is from."""

    config: dict[str, Any]
    source: str
    ui_url: str | None = None

    @property
    def address(self) -> str:
        """``host:port``"""
        return str(self.config["target_host"])


def state_folder() -> Path:
    """The folder of the dev server: ``ACTS_STATE``, else ``.acts`` in the working directory."""
    return Path(os.environ.get(STATE_VARIABLE) or DEFAULT_STATE)


def task_queue() -> str:
    """The task queue of the worker."""
    return os.environ.get("ACTS_TASK_QUEUE") or TASK_QUEUE


def find_target() -> ServerTarget:
    """The server to connect to; it need not run.

    Raises:
        CommandError: Temporal's configuration is invalid.
    """
    from temporalio.envconfig import ClientConfig

    try:
        config: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
    except (RuntimeError, OSError) as error:  # ConfigError, or a file that cannot be read
        hint = "check the TEMPORAL_* variables"
        raise command_error(f"Temporal's configuration is invalid: {error}", hint=hint) from None
    if "target_host" in config:
        is_variable = bool(os.environ.get("TEMPORAL_ADDRESS"))
        return ServerTarget(config, "TEMPORAL_ADDRESS" if is_variable else "the profile of Temporal's configuration")
    folder = state_folder()
    dev = find_dev_server(folder)
    if dev is not None:
        return ServerTarget({**config, "target_host": dev.address}, f"the dev server of {folder}", dev.ui_url)
    source = f"the default: TEMPORAL_ADDRESS is not set, and no dev server runs in {folder}"
    return ServerTarget({**config, "target_host": DEFAULT_ADDRESS}, source)


async def connect(target: ServerTarget | None = None) -> Client:
    """A client of the server.

    Raises:
        CommandError: it does not answer (exit code 3).
    """
    from temporalio.client import Client

    from acts.payloads.codec import CodecError
    from acts.payloads.converter import client_converter

    target = target or find_target()
    try:
        converter = client_converter()
    except CodecError as error:
        raise _codec_error(error) from None
    try:
        client = Client.connect(
            **target.config, data_converter=converter, runtime=silent_runtime(), interceptors=_interceptors()
        )
        return await asyncio.wait_for(client, CONNECT_SECONDS)
    except TimeoutError:
        raise _no_server(target, f"no answer within {CONNECT_SECONDS:g} s") from None
    except (RuntimeError, ValueError) as error:
        raise _no_server(target, clean(str(error).removeprefix("Failed client connect: "), 200)) from None


@cache
def _interceptors() -> Sequence[Interceptor]:
    """What writes spans, where the environment asks for traces."""
    if not any(name.startswith("OTEL_EXPORTER_OTLP") for name in os.environ):
        return ()
    from acts.telemetry.tracing import TelemetryError, client_interceptors

    try:
        return client_interceptors()
    except TelemetryError as error:
        print_err(f"traces are off: {clean(str(error))}")
        return ()


@cache
def silent_runtime() -> Runtime:
    """The SDK without its log lines: the commands report what matters of them."""
    from temporalio.runtime import Runtime, TelemetryConfig

    return Runtime(telemetry=TelemetryConfig(logging=None))


def _no_server(target: ServerTarget, cause: str) -> CommandError:
    head = f"no Temporal server answers at {clean(target.address, 100)} ({clean(target.source, 200)}): {cause}"
    hint = "start a server and a worker with `acts dev`, or set TEMPORAL_ADDRESS"
    return command_error(head, hint=hint, code=EXIT_NO_SERVER)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; an error of the server, or of the external storage, becomes a ``CommandError``."""
    from acts.payloads.stores import StorageError

    hint = "ACTS_STORAGE must be here what the worker has"
    try:
        return asyncio.run(for_run("", work))
    except StorageError as error:
        raise command_error(clean(error), hint=hint) from None
    except RuntimeError as error:
        if _STORAGE_NEEDED not in str(error):
            raise
        raise command_error("a value of this run is in external storage, which is not set here", hint=hint) from None


async def for_run(run: str, request: Awaitable[T]) -> T:
    """The answer to a request about one run (or about none: "").

    Raises:
        CommandError: instead of the server's error, a missing run being named, and of an answer that needs a key.
    """
    from temporalio.service import RPCError

    from acts.payloads.codec import CodecError

    try:
        return await request
    except RPCError as error:
        raise explain_rpc_error(error, run) from None
    except CodecError as error:
        raise _codec_error(error) from None


def _codec_error(error: Exception) -> CommandError:
    """Payloads that this program cannot encrypt or decrypt."""
    return command_error(clean(str(error), 500), hint="docs/encryption.md says where keys come from")


def explain_rpc_error(error: RPCError, run: str = "") -> CommandError:
    """What an error of the server means, and what to do about it."""
    from temporalio.service import RPCStatusCode as Code

    text = clean(error.message, 300)
    if error.status == Code.NOT_FOUND and run and "namespace" not in text.lower():
        if "completed" in text:
            return ended_error(run)
        return command_error(f'there is no run "{clean(run, 200)}"', hint="`acts list --all` lists the ids of runs")
    hints = {
        Code.UNAVAILABLE: "check that the server still runs; runs that were started continue on it",
        Code.DEADLINE_EXCEEDED: "check that the server still runs; runs that were started continue on it",
        Code.UNAUTHENTICATED: "check TEMPORAL_API_KEY and the TLS settings",
        Code.PERMISSION_DENIED: "check TEMPORAL_API_KEY and the TLS settings",
        Code.NOT_FOUND: "check TEMPORAL_NAMESPACE",
    }
    head, hint = f"the server refused the request: {text} ({error.status.name})", hints.get(error.status, "")
    return command_error(head, hint=hint, code=EXIT_NO_SERVER if hint else EXIT_WRONG_INPUT)


def ended_error(run: str) -> CommandError:
    """The run has ended, so it accepts nothing any more."""
    return command_error(f'the run "{clean(run, 200)}" has ended', hint=f"`acts show {clean(run, 200)}` shows how")


async def has_pollers(client: Client, queue: str, *, is_for_activities: bool = False) -> bool:
    """False if no worker has polled this queue lately; True if the server cannot tell."""
    from temporalio.api.enums.v1 import TaskQueueType
    from temporalio.api.taskqueue.v1 import TaskQueue
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
    from temporalio.service import RPCError

    type_ = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY if is_for_activities else TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=type_
    )
    try:
        return bool((await client.workflow_service.describe_task_queue(request, timeout=RPC)).pollers)
    except RPCError:
        return True
