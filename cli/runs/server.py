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

from acts.language.wire import TASK_QUEUE
from cli.command_errors import EXIT_NO_SERVER, CommandError, MessageBlock, command_error
from cli.console import clean, print_err
from cli.dev.temporal_server import DEFAULT_STATE, HOST, find_dev_server

if TYPE_CHECKING:
    from temporalio.client import Client, Interceptor
    from temporalio.runtime import Runtime
    from temporalio.service import RPCError

T = TypeVar("T")

# What the SDK reports of a connection that failed -> the cause
_CAUSES: Final = {
    "Connection refused": "connection refused: nothing listens there",
    "dns error": "the host name is unknown",
    "Network is unreachable": "the network is unreachable",
    "mapped from HTTP status": "something answers, but it is not a Temporal server",
    "InvalidContentType": "something answers, but without TLS",
    "Request unauthorized": "the server does not accept these credentials",
}

# What the SDK says of a reference that it cannot follow
_STORAGE_NEEDED: Final = "TMPRL1105"

DEFAULT_ADDRESS: Final = f"{HOST}:7233"
CONNECT_SECONDS: Final = 5.0  # a server on this machine needs 0.02 s, one across an ocean 0.5 s
RPC: Final = timedelta(seconds=10)  # one request, with the retries of the SDK
STATE_VARIABLE: Final = "ACTS_STATE"
START_WORKER: Final = "start a worker: `acts dev`, or `python -m worker`"


@dataclass(frozen=True)
class ServerTarget:
    """A server to connect to. ``attempts`` are the sources of its address, with what each one holds."""

    config: dict[str, Any]
    attempts: tuple[tuple[str, str], ...]
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
    except RuntimeError as error:  # ConfigError
        hint = "check the TEMPORAL_* variables"
        raise command_error(f"Temporal's configuration is invalid: {error}", hint=hint) from None
    except OSError as error:
        raise command_error(f"a file of Temporal's configuration cannot be read: {error}") from None
    if "target_host" in config:
        where = "TEMPORAL_ADDRESS" if os.environ.get("TEMPORAL_ADDRESS") else "the profile of Temporal's configuration"
        return ServerTarget(config, ((where, str(config["target_host"])),))
    folder = state_folder()
    dev = find_dev_server(folder)
    if dev is not None:
        attempts = ((f"the dev server of {folder}", dev.address),)
        return ServerTarget({**config, "target_host": dev.address}, attempts, dev.ui_url)
    missing = (("TEMPORAL_ADDRESS", "not set"), (str(folder), "no dev server runs there"))
    return ServerTarget({**config, "target_host": DEFAULT_ADDRESS}, (*missing, ("the default", DEFAULT_ADDRESS)))


async def connect(target: ServerTarget | None = None) -> Client:
    """A client of the server.

    Raises:
        CommandError: it does not answer (exit code 3).
    """
    from temporalio.client import Client

    from connection.codec_keys import CodecError
    from connection.converter import client_converter

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
        raise _no_server(target, _connection_cause(str(error))) from None


@cache
def _interceptors() -> Sequence[Interceptor]:
    """What writes spans, where the environment asks for traces."""
    if not any(name.startswith("OTEL_EXPORTER_OTLP") for name in os.environ):
        return ()
    from telemetry.client_spans import client_interceptors
    from telemetry.telemetry_settings import TelemetryError

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


def _connection_cause(error: str) -> str:
    for part, cause in _CAUSES.items():
        if part in error:
            return cause
    return clean(error.removeprefix("Failed client connect: "), 200)


def _no_server(target: ServerTarget, cause: str) -> CommandError:
    hint = ("hint", "start a server and a worker with `acts dev`, or set TEMPORAL_ADDRESS")
    head = f"no Temporal server answers at {clean(target.address, 100)}"
    return CommandError(MessageBlock(head, "", [*target.attempts, ("answer", cause), hint]), code=EXIT_NO_SERVER)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; an error of the server, or of the external storage, becomes a ``CommandError``."""
    from connection.content_store import StorageError

    try:
        return asyncio.run(for_run("", work))
    except StorageError as error:
        raise command_error(clean(error), hint=_storage_hint(error)) from None
    except RuntimeError as error:
        if _STORAGE_NEEDED not in str(error):
            raise
        hint = "set ACTS_STORAGE to what the worker has"
        raise command_error("a value of this run is in external storage, which is not set here", hint=hint) from None


def _storage_hint(error: Exception) -> str:
    from connection.content_store import StorageRefused, StorageUnavailable

    if isinstance(error, StorageRefused):
        return ""  # it says itself what to change
    if isinstance(error, StorageUnavailable):
        return "nothing is lost: runs wait for it, and so can you"
    return "ACTS_STORAGE must be here what the worker has"


async def for_run(run: str, request: Awaitable[T]) -> T:
    """The answer to a request about one run (or about none: "").

    Raises:
        CommandError: instead of the server's error, a missing run being named, and of an answer that needs a key.
    """
    from temporalio.service import RPCError

    from connection.codec_keys import CodecError

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
    if error.status in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
        hint = "check that it still runs; runs that were started continue on it"
        return command_error(f"the connection to the server was lost: {text}", hint=hint, code=EXIT_NO_SERVER)
    if error.status in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED):
        hint = "check TEMPORAL_API_KEY and the TLS settings"
        return command_error(f"the server denies access: {text}", hint=hint, code=EXIT_NO_SERVER)
    if error.status == Code.NOT_FOUND and "namespace" in text.lower():
        head, hint = f"the server has no such namespace: {text}", "check TEMPORAL_NAMESPACE"
        return command_error(head, hint=hint, code=EXIT_NO_SERVER)
    if error.status == Code.NOT_FOUND and run:
        if "completed" in text:
            return ended_error(run)
        return command_error(f'there is no run "{clean(run, 200)}"', hint="the Web UI lists the ids of all runs")
    return command_error(f"the server refused the request: {text} ({error.status.name})")


def ended_error(run: str) -> CommandError:
    """The run has ended, so it accepts nothing any more."""
    return command_error(f'the run "{clean(run, 200)}" has ended', hint=f"`acts show {clean(run, 200)}` shows how")


async def has_pollers(client: Client, queue: str) -> bool:
    """False if no worker has polled this queue for workflow tasks lately; True if the server cannot tell."""
    from temporalio.service import RPCError

    try:
        return bool(await read_pollers(client, queue))
    except RPCError:
        return True


async def read_pollers(client: Client, queue: str, *, is_for_activities: bool = False) -> list[str]:
    """The identities of the workers that have polled this queue lately.

    Raises:
        RPCError: the server does not say.
    """
    from temporalio.api.enums.v1 import TaskQueueType
    from temporalio.api.taskqueue.v1 import TaskQueue
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

    type_ = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY if is_for_activities else TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=type_
    )
    answer = await client.workflow_service.describe_task_queue(request, timeout=RPC)
    return [poller.identity for poller in answer.pollers]
