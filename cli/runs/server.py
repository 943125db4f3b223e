"""Which Temporal server a command talks to, and how long it waits for it.

Looked for in this order: what Temporal's environment or profile names, the dev server
of the state folder, 127.0.0.1:7233.

Laws of this file:
- every wait is bounded; a server that does not answer ends as exit code 3, in one block
  that says what was tried;
- what a server refuses becomes a Refusal here, so that no command knows gRPC codes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from acts.language.wire import TASK_QUEUE
from cli.command_errors import NO_SERVER, CommandError, MessageBlock, refuse
from cli.console import clean
from cli.dev.temporal_server import DEFAULT_STATE, HOST, find_dev_server

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHandle
    from temporalio.runtime import Runtime
    from temporalio.service import RPCError

T = TypeVar("T")

_CAUSES: Final = {
    "Connection refused": "connection refused: nothing listens there",
    "dns error": "nobody knows a host of this name",
    "Network is unreachable": "the network cannot be reached",
    "mapped from HTTP status": "something answers, but it is no Temporal server",
    "InvalidContentType": "something answers, but without TLS",
    "Request unauthorized": "the server does not accept our credentials",
}

DEFAULT_ADDRESS: Final = f"{HOST}:7233"
CONNECT_SECONDS: Final = 5.0  # a server on this machine needs 0.02 s, one across an ocean 0.5 s
RPC: Final = timedelta(seconds=10)  # one request; the SDK tries again within it
STATE_VARIABLE: Final = "ACTS_STATE"


@dataclass(frozen=True)
class Target:
    """A server to talk to. ``found`` says where its address came from; ``tried`` what was looked at."""

    config: dict[str, Any]
    found: str
    tried: tuple[tuple[str, str], ...]
    ui_url: str | None = None

    @property
    def address(self) -> str:
        """``host:port``"""
        return str(self.config["target_host"])


def state_folder() -> Path:
    """The folder of the dev server: ``ACTS_STATE``, else ``.acts`` here."""
    return Path(os.environ.get(STATE_VARIABLE) or DEFAULT_STATE)


def task_queue() -> str:
    """The queue that our worker serves."""
    return os.environ.get("ACTS_TASK_QUEUE") or TASK_QUEUE


def find() -> Target:
    """The server to talk to; nobody has been asked yet whether it is there.

    Raises:
        Refusal: Temporal's configuration cannot be read.
    """
    from temporalio.envconfig import ClientConfig

    try:
        config: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
    except RuntimeError as error:  # ConfigError
        raise refuse(
            f"Temporal's configuration cannot be used: {error}", hint="look at the TEMPORAL_* variables"
        ) from None
    except OSError as error:
        raise refuse(f"a file of Temporal's configuration cannot be read: {error}") from None
    if "target_host" in config:
        where = "TEMPORAL_ADDRESS" if os.environ.get("TEMPORAL_ADDRESS") else "the profile of Temporal's configuration"
        return Target(config, where, ((where, str(config["target_host"])),))
    folder = state_folder()
    dev = find_dev_server(folder)
    if dev is not None:
        found = f"the dev server of {folder}"
        return Target({**config, "target_host": dev.address}, found, ((found, dev.address),), dev.ui_url)
    tried = (
        ("TEMPORAL_ADDRESS", "not set"),
        (str(folder), "no dev server runs there"),
        ("the default", DEFAULT_ADDRESS),
    )
    return Target({**config, "target_host": DEFAULT_ADDRESS}, "the default address", tried)


async def connect(target: Target | None = None) -> Client:
    """A client of the server.

    Raises:
        Refusal: it does not answer (exit code 3).
    """
    from temporalio.client import Client
    from temporalio.contrib.pydantic import pydantic_data_converter

    target = target or find()
    try:
        # pydantic's converter, because the SDK's own sorts the keys of what people wrote
        client = Client.connect(**target.config, data_converter=pydantic_data_converter, runtime=_quiet())
        return await asyncio.wait_for(client, CONNECT_SECONDS)
    except TimeoutError:
        raise _nobody(target, f"no answer within {CONNECT_SECONDS:g} s") from None
    except (RuntimeError, ValueError) as error:
        raise _nobody(target, _why(str(error))) from None


@cache
def _quiet() -> Runtime:
    """The SDK without its own log lines: what matters of them, a command says in its own words."""
    from temporalio.runtime import Runtime, TelemetryConfig

    return Runtime(telemetry=TelemetryConfig(logging=None))


def _why(error: str) -> str:
    """The cause inside of what the SDK says of a connection that failed."""
    for part, words in _CAUSES.items():
        if part in error:
            return words
    return clean(error.removeprefix("Failed client connect: "), 200)


def go(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; what the server says against it becomes a Refusal."""
    from temporalio.service import RPCError

    async def bounded() -> T:
        try:
            return await work
        except RPCError as error:
            raise refused(error) from None

    return asyncio.run(bounded())


def refused(error: RPCError, run: str = "") -> CommandError:
    """What a server's refusal means to a person."""
    from temporalio.service import RPCStatusCode as Code

    text = clean(error.message, 300)
    if error.status in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
        return refuse(
            f"the server was lost: {text}", code=NO_SERVER, hint="is it still running? what was started goes on there"
        )
    if error.status in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED):
        return refuse(
            f"the server refuses us: {text}", code=NO_SERVER, hint="look at TEMPORAL_API_KEY and the TLS settings"
        )
    if error.status == Code.NOT_FOUND and "namespace" in text.lower():
        return refuse(f"the server has no such namespace: {text}", hint="look at TEMPORAL_NAMESPACE", code=NO_SERVER)
    if error.status == Code.NOT_FOUND and run:
        head = (
            f'the run "{clean(run, 200)}" has ended' if "completed" in text else f'there is no run "{clean(run, 200)}"'
        )
        return refuse(
            head,
            hint=f"`acts show {clean(run, 200)}` tells how"
            if "completed" in text
            else "run ids are listed in the Web UI",
        )
    return refuse(f"the server refused this: {text} ({error.status.name})")


def over(run: str) -> CommandError:
    """Nothing more can be done with a run."""
    return refuse(f'the run "{clean(run, 200)}" has ended', hint=f"`acts show {clean(run, 200)}` tells how")


async def about(run: str, request: Awaitable[T]) -> T:
    """A request about one run; when there is no such run, the Refusal says so.

    Raises:
        Refusal: instead of the server's error.
    """
    from temporalio.service import RPCError

    try:
        return await request
    except RPCError as error:
        raise refused(error, run) from None


async def served(client: Client, queue: str) -> bool:
    """False when nobody has polled this queue for workflows lately, as far as the server tells."""
    from temporalio.api.enums.v1 import TaskQueueType
    from temporalio.api.taskqueue.v1 import TaskQueue
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
    from temporalio.service import RPCError

    question = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        answer = await client.workflow_service.describe_task_queue(question, timeout=RPC)
    except RPCError:
        return True  # it was only asked so as to warn
    return bool(answer.pollers)


def handle(client: Client, run: str, run_id: str | None = None) -> WorkflowHandle[Any, Any]:
    """The handle of a run.

    Raises:
        Refusal: the id cannot be one.
    """
    if not run or "\0" in run:
        raise refuse("a run has an id that is not empty", hint="`acts run` prints it")
    return client.get_workflow_handle(run, run_id=run_id)


def _nobody(target: Target, why: str) -> CommandError:
    facts = [
        *target.tried,
        ("answer", why),
        ("hint", "start a server and a worker with `acts dev`, or set TEMPORAL_ADDRESS"),
    ]
    return CommandError(
        MessageBlock(f"no Temporal server answers at {clean(target.address, 100)}", "", facts), code=NO_SERVER
    )
