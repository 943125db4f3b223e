"""Commands that steer a run: a signal each, or a cancellation. None of them waits for what follows."""

from __future__ import annotations

from typing import Any, Final

from acts.errors import InvalidRequest
from acts.messages import Data, parse_message
from acts.values import Json
from acts.wire import PAUSE, PROVIDE, RESUME
from cli import server
from cli.failures import DONE, Refusal, refuse
from cli.files import Source, parse, read
from cli.output import clean, say
from cli.problems import blocks

_DONE: Final = {
    PAUSE: "starts no more calls",
    RESUME: "goes on",
    PROVIDE: "has the message",
}


def send(run: str, signal: str, payload: Json = None) -> int:
    """Send a signal to a run that is going on.

    Raises:
        Refusal: there is no such run, it is over, or no server answers.
    """
    return server.go(_send(run, signal, payload))


async def _send(run: str, signal: str, payload: Json) -> int:
    client = await server.connect()
    handle = server.handle(client, run)
    args: list[Any] = [] if payload is None else [payload]
    await server.about(run, handle.signal(signal, args=args, rpc_timeout=server.RPC))
    say(f"{clean(run)} {_DONE[signal]}")
    return DONE


def cancel(run: str) -> int:
    """Ask a run to end: what runs is cancelled, nothing more starts."""
    return server.go(_cancel(run))


async def _cancel(run: str) -> int:
    client = await server.connect()
    handle = server.handle(client, run)
    found = await server.about(run, handle.describe(rpc_timeout=server.RPC))
    if found.close_time is not None:  # the server would say yes to this, and nothing would happen
        raise server.over(run)
    await server.about(run, handle.cancel(rpc_timeout=server.RPC))
    say(f"{clean(run)} was asked to end")
    return DONE


def provide(run: str, given: str) -> int:
    """Send a data-like message: JSON as it stands, or a file that holds it."""
    source = message_source(given)
    try:
        message = parse_message(source.value)
    except InvalidRequest as error:
        raise Refusal(*blocks(error.problems, source)) from None
    if not isinstance(message, Data):
        raise refuse(
            f"a {message.type} message cannot be provided", where=source.name, hint="only data, input and state can"
        )
    return send(run, PROVIDE, source.value)


def message_source(given: str) -> Source:
    """A message from the command line, a file, or standard input."""
    return parse("the message", given, "JSON") if given.lstrip().startswith(("{", "[", '"')) else read(given)
