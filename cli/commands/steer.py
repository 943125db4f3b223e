"""Commands that steer a run: a signal each, or a cancellation.

None of them waits for what follows. Of a message it is asked whether the run took it: a signal has no answer.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from acts.language.errors import InvalidRequest
from acts.language.messages import Data, parse_message
from acts.language.wire import CONTEXT, PAUSE, PROVIDE, RESUME
from cli.command_errors import DONE, CommandError, refuse
from cli.console import clean, say
from cli.runs import server
from cli.runs.instance_view import unknown
from cli.runs.queries import ask, status_of
from cli.text.plan_files import Source, parse, read
from cli.text.problems import blocks

_DONE: Final = {
    PAUSE: "starts no more calls",
    RESUME: "goes on",
}
# How a note begins that a run makes of a message which it does not take
_REFUSED: Final = "a message was refused: "


def send(run: str, signal: str) -> int:
    """Send a signal to a run that is going on.

    Raises:
        Refusal: there is no such run, it is over, or no server answers.
    """
    return server.go(_send(run, signal))


async def _send(run: str, signal: str) -> int:
    client = await server.connect()
    handle = server.handle(client, run)
    await server.about(run, handle.signal(signal, rpc_timeout=server.RPC))
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
    """Send a data-like message: JSON as it stands, or a file that holds it.

    Raises:
        Refusal: it is no such message, the run has no use for it, or there is no such run.
    """
    source = message_source(given)
    try:
        message = parse_message(source.value)
    except InvalidRequest as error:
        raise CommandError(*blocks(error.problems, source)) from None
    if not isinstance(message, Data):
        raise refuse(
            f"a {message.type} message cannot be provided", where=source.name, hint="only data, input and state can"
        )
    return server.go(_provide(run, message, source))


async def _provide(run: str, message: Data, source: Source) -> int:
    client = await server.connect()
    handle = server.handle(client, run)
    below, instance = _aim(message)
    asked = handle if below is None else client.get_workflow_handle(below)
    status = await status_of(asked)
    if status is not None and instance is not None:
        found = await ask(asked, CONTEXT, {"path": "†state", "instance": instance})
        if isinstance(found, dict) and "error" in found:
            raise unknown(asked.id, list(status.get("instances") or ()), instance, source.name)
    await server.about(run, handle.signal(PROVIDE, source.value, rpc_timeout=server.RPC))
    refused = [] if status is None else _new_notes(status, await status_of(asked))
    if refused:
        hint = f"`acts show {clean(asked.id, 200)}` tells what it waits for"
        raise refuse(f"{clean(asked.id, 200)} refused the message: {refused[-1]}", where=source.name, hint=hint)
    taken = "has the message" if status is not None else "was sent the message; no worker answers, so it waits for one"
    say(f"{clean(run)} {taken}")
    return DONE


def _aim(message: Data) -> tuple[str | None, str | None]:
    """The run below and the instance that a message names, in the forms that a run reads them in."""
    raw = message.raw
    if raw.get("type") not in raw:  # without a wrapper these keys are data
        return None, message.instance
    below, instance = raw.get("workflowId"), raw.get("instance", message.instance)
    return below if isinstance(below, str) else None, instance if isinstance(instance, str) else None


def _new_notes(before: dict[str, Any], after: dict[str, Any] | None) -> list[str]:
    """What a run noted about messages that it refused, in the meantime."""
    new = Counter((after or {}).get("notes") or ()) - Counter(before.get("notes") or ())
    return [text.removeprefix(_REFUSED) for text in new if text.startswith(_REFUSED)]


def message_source(given: str) -> Source:
    """A message from the command line, a file, or standard input."""
    return parse("the message", given, "JSON") if given.lstrip().startswith(("{", "[", '"')) else read(given)
