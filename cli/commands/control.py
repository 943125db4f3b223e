"""``acts cancel``, ``pause``, ``resume`` and ``provide``: commands that change a run and do not wait for what follows.

A signal has no answer, so ``provide`` reads the run's notes afterwards: they say whether it refused the message.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from acts.language.errors import InvalidRequest
from acts.language.messages import Data
from acts.language.request_reader import parse_message
from acts.language.wire import PAUSE, PROVIDE, RESUME
from cli.command_errors import EXIT_DONE, CommandError, command_error
from cli.console import clean, print_err
from cli.runs import server
from cli.runs.instance_lookup import unknown_instance_error
from cli.runs.run_reader import open_run
from cli.text.problems import problem_blocks
from cli.text.source_text import SourceText, parse_source, read_source

_EFFECTS: Final = {PAUSE: "is paused: it starts no more calls", RESUME: "is resumed"}
# How a run's note about a refused message begins
_REFUSED: Final = "a message was refused: "


async def send_signal(id_: str, signal: str) -> int:
    """Pause or resume a run."""
    run = await open_run(id_)
    await server.for_run(id_, run.handle.signal(signal, rpc_timeout=server.RPC))
    print_err(f"{clean(id_)} {_EFFECTS[signal]}")
    return EXIT_DONE


async def cancel(id_: str) -> int:
    """Request the cancellation of a run."""
    run = await open_run(id_)
    await run.describe_running()  # the server accepts the request for a run that has ended, without any effect
    await server.for_run(id_, run.handle.cancel(rpc_timeout=server.RPC))
    print_err(f"{clean(id_)} is being cancelled")
    return EXIT_DONE


async def provide(id_: str, argument: str) -> int:
    """Send a data-like message: JSON, or the name of a file that holds it."""
    source, message = _read_message(argument)
    run = await open_run(id_)
    below, instance = _addressee(message)
    receiver = run if below is None else run.other(below)
    status = await receiver.status()
    if status is not None and instance is not None:
        value = await receiver.value("†state", instance)
        if value is not None and "error" in value:
            raise unknown_instance_error(receiver.id, list(status.get("instances") or ()), instance, source.name)
    await server.for_run(id_, run.handle.signal(PROVIDE, source.value, rpc_timeout=server.RPC))
    refusals = [] if status is None else _new_refusals(status, await receiver.fresh().status())
    name = clean(receiver.id, 200)
    if refusals:
        hint = f"`acts show {name}` shows what it waits for"
        raise command_error(f"{name} refused the message: {refusals[-1]}", where=source.name, hint=hint)
    effect = "has the message" if status is not None else "will get the message when a worker runs; none answers now"
    print_err(f"{clean(id_)} {effect}")
    return EXIT_DONE


def _read_message(argument: str) -> tuple[SourceText, Data]:
    """A message from the command line, a file, or standard input."""
    is_json = argument.lstrip().startswith(("{", "[", '"'))
    source = parse_source("the message", argument, "JSON") if is_json else read_source(argument)
    try:
        message = parse_message(source.value)
    except InvalidRequest as error:
        raise CommandError(*problem_blocks(error.problems, source)) from None
    if not isinstance(message, Data):
        head = f"a {message.type} message cannot be provided"
        raise command_error(head, where=source.name, hint="only data, input and state can")
    return source, message


def _addressee(message: Data) -> tuple[str | None, str | None]:
    """The run below and the instance that a message names, in the forms that a run accepts."""
    raw = message.raw
    if raw.get("type") not in raw:  # without a wrapper these keys are data
        return None, message.instance
    below, instance = raw.get("workflowId"), raw.get("instance", message.instance)
    return below if isinstance(below, str) else None, instance if isinstance(instance, str) else None


def _new_refusals(before: dict[str, Any], after: dict[str, Any] | None) -> list[str]:
    """The reasons of the refusals that a run noted between two statuses."""
    new = Counter((after or {}).get("notes") or ()) - Counter(before.get("notes") or ())
    return [text.removeprefix(_REFUSED) for text in new if text.startswith(_REFUSED)]
