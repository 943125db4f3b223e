"""The Temporal server of a client: which one it is, how to connect, what its errors mean.

The address comes from Temporal's environment or profile. Else it is that of the dev server of this folder, or of the
nearest folder above it in which `acts dev` has ever run: that folder is *marked*, and where its server is down, no
other one is taken in its place. Only where nothing is configured and nothing is marked, it is 127.0.0.1:7233.

Every wait is bounded; a server that does not answer is named with its address and where that is from.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from acts.client.client_errors import ClientError, codec_error
from acts.language.errors import SettingsError, clean, shell
from acts.language.wire import TASK_QUEUE

if TYPE_CHECKING:
    from temporalio.client import Client, Interceptor
    from temporalio.runtime import Runtime

logger = logging.getLogger(__name__)
CONNECT_SECONDS: Final = 5.0  # a server on this machine needs 0.02 s, one across an ocean 0.5 s
# Without it, one program in seven that makes one request was aborted at its end; the thread needs microseconds
EXIT_SECONDS: Final = 0.05
RPC: Final = timedelta(seconds=10)  # one request, with the retries of the SDK
STATE_VARIABLE: Final = "ACTS_STATE"
DEFAULT_STATE: Final = Path(".acts")
HOST: Final = "127.0.0.1"
NAMESPACE: Final = "default"
START_WORKER: Final = "start a worker: `acts worker`, with the settings of this shell"


@dataclass(frozen=True)
class DevServer:
    """A running server; ``address`` is ``host:port`` of its gRPC frontend, ``pid`` its own."""

    address: str
    ui_url: str | None
    pid: int
    log: Path
    namespace: str = NAMESPACE


def find_dev_server(state: Path) -> DevServer | None:
    """The server that runs on a state folder now."""
    try:
        with (state / "lock").open("rb") as file:
            if try_lock(file, fcntl.LOCK_SH):
                return None  # nobody holds it: dev.json, if present, is from a killed process
        info = json.loads((state / "dev.json").read_text("utf-8"))
        return DevServer(info["address"], info["ui"], info["pid"], state / "server.log")
    except (OSError, ValueError, KeyError, TypeError):
        return None


def try_lock(file: IO[Any], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def marked_state() -> Path | None:
    """The state folder that ACTS_STATE names, or that `acts dev` has left here or in the nearest folder above.

    What others have put into a folder above, such as /tmp, counts for nothing: it would choose the server.
    """
    if folder := os.environ.get(STATE_VARIABLE):
        return Path(folder)
    here = Path.cwd()
    for place in (here, *here.parents):
        with suppress(OSError):
            mark = (place / DEFAULT_STATE / "lock").stat()  # never deleted, once a server has run
            if place == here or mark.st_uid == os.getuid():
                return place / DEFAULT_STATE
    return None


class ServerTarget(NamedTuple):
    """A server to connect to, at ``host:port``; ``source`` says where this address is from, ``hint`` what to do where
    nothing answers there.
    """

    address: str
    source: str
    config: dict[str, Any]
    ui_url: str | None = None
    hint: str = "start it, or name another one in TEMPORAL_ADDRESS"


def task_queue() -> str:
    return os.environ.get("ACTS_TASK_QUEUE") or TASK_QUEUE


def find_target(address: str | None = None) -> ServerTarget:
    """The server to connect to: the one at ``address``, or the one of this environment and folder."""
    from temporalio.envconfig import ClientConfig

    if (profiles := os.environ.get("TEMPORAL_CONFIG_FILE")) and not Path(profiles).exists():  # the SDK ignores it
        raise ClientError(
            f"TEMPORAL_CONFIG_FILE names {clean(profiles, 300)}, which is not there", "correct or unset it"
        )
    try:
        config: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
    except (RuntimeError, OSError) as error:  # ConfigError, or a file that cannot be read
        hint = "check the TEMPORAL_* variables"
        raise ClientError(f"Temporal's configuration is invalid: {clean(error, 300)}", hint) from None
    configured = config.pop("target_host", None)
    if address is not None:
        return ServerTarget(address, "as the program says", config)
    if address := configured:
        is_variable = bool(os.environ.get("TEMPORAL_ADDRESS"))
        source = "TEMPORAL_ADDRESS" if is_variable else "the profile of Temporal's configuration"
        if not re.fullmatch(r"[^/]+:\d+", address):  # the SDK would look for a host of this name, for ever
            raise ClientError(
                f"{source} has the address {clean(address, 100)!r}", "it is host:port, like 127.0.0.1:7233"
            )
        return ServerTarget(address, source, config)
    if (state := marked_state()) is None:
        source = "the default: TEMPORAL_ADDRESS is not set, and `acts dev` has not run in this folder or above"
        hint = "start a server and a worker with `acts dev`, or set TEMPORAL_ADDRESS"
        return ServerTarget(f"{HOST}:7233", source, config, hint=hint)
    if (dev := find_dev_server(state)) is None:
        head = f"the dev server of {clean(state, 300)} is not running, and no other one is taken in its place"
        hint = f"start it: {shell('cd', state.absolute().parent)} && acts dev; or set TEMPORAL_ADDRESS"
        if state.name != DEFAULT_STATE.name:
            hint = f"start it: {shell('acts', 'dev', '--state', state)}; or set TEMPORAL_ADDRESS"
        raise ClientError(head, hint, is_unavailable=True)
    return ServerTarget(dev.address, f"the dev server of {state}", config, dev.ui_url)


async def connect(target: ServerTarget | None = None, interceptors: Sequence[Interceptor] | None = None) -> Client:
    """A client of the server; by default it writes spans where the environment asks for traces.

    ClientError: the server does not answer, or the settings are wrong.
    """
    from temporalio.client import Client

    from acts.payloads.codec import CodecError
    from acts.payloads.converter import client_converter

    target = target or find_target()
    try:
        converter = client_converter()
    except CodecError as error:
        raise codec_error(error) from None
    try:
        options = {
            **target.config,
            "data_converter": converter,
            "interceptors": _spans() if interceptors is None else interceptors,
        }
        client = Client.connect(target.address, runtime=silent_runtime(), **options)
        return await asyncio.wait_for(client, CONNECT_SECONDS)
    except TimeoutError:
        cause = f"no answer within {CONNECT_SECONDS:g} s"
    except (RuntimeError, ValueError) as error:
        from acts.telemetry.failures import connection_problem

        cause = clean(connection_problem(error), 200)
    head = f"no Temporal server answers at {clean(target.address, 100)} ({clean(target.source, 200)}): {cause}"
    raise ClientError(head, target.hint, is_unavailable=True)


@cache
def _spans() -> Sequence[Interceptor]:
    """What writes spans, where the environment asks for traces."""
    if not any(name.startswith("OTEL_EXPORTER_OTLP") for name in os.environ):
        return ()
    from acts.telemetry.tracing import ClientSpans, start_tracing

    # Each failed attempt to reach the collector would be a line among those of the command
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    try:
        tracing = start_tracing("acts-cli")
    except SettingsError as error:
        logger.warning("traces are off: %s", clean(error))
        return ()
    return () if tracing is None else (ClientSpans(tracing),)


@cache
def silent_runtime() -> Runtime:
    """The SDK without its log lines: errors report what matters of them.

    The thread of the SDK that brings an answer needs the interpreter once more after that. An interpreter that ends in
    this moment is aborted (``PyGILState_Release``): so it waits for a moment before it ends.
    """
    from temporalio.runtime import Runtime, TelemetryConfig

    atexit.register(time.sleep, EXIT_SECONDS)
    return Runtime(telemetry=TelemetryConfig(logging=None))


async def has_pollers(client: Client, queue: str, *, is_for_activities: bool = False) -> bool:
    """False if no worker has polled this queue lately; True if the server cannot tell."""
    from temporalio.service import RPCError

    from acts.telemetry.observation import KINDS, describe_queue

    kind = KINDS["activity" if is_for_activities else "workflow"]
    try:
        return bool((await describe_queue(client, queue, kind, limit=RPC)).pollers)
    except RPCError:
        return True
