"""``acts cancel``, ``pause``, ``resume`` and ``provide``: commands that change a run and do not wait for what follows.

A signal has no answer, so ``provide`` reads the run's notes afterwards: they say whether it refused the message.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final

import typer

from acts.cli.command_line import CommandGroup, Run
from acts.cli.console import EXIT_DONE, CommandError, clean, command_error, print_err
from acts.cli.runs import server
from acts.cli.runs.run_reader import open_run, unknown_instance_error
from acts.cli.text.source import SourceText, parse_source, problem_blocks, read_source
from acts.language.errors import InvalidRequest
from acts.language.messages import Data, parse_message
from acts.language.wire import PAUSE, PROVIDE, RESUME

# How a run's note about a refused message begins
_REFUSED: Final = "a message was refused: "

Message = Annotated[
    str, typer.Argument(metavar="MESSAGE", help="A data, input or state message: JSON, or a file that holds it.")
]

app = CommandGroup()


@app.add
async def provide(run: Run, message: Message) -> int:
    """Send a run a message that it waits for.

    Examples:
      acts provide order-7 '{"type": "data", "kind": "guest", "data": {"name": "Ada"}}'
    """
    source, data = _read_message(message)
    reader = await open_run(run)
    # Beside a wrapped payload, the message may name a run below; else these keys are data
    address = data.raw if data.raw.get("type") in data.raw else {}
    below, instance = address.get("workflowId"), address.get("instance", data.instance)
    receiver = reader.other(below) if isinstance(below, str) else reader
    status = await receiver.status()
    if status is not None and isinstance(instance, str):
        value = await receiver.value("†state", instance)
        if value is not None and "error" in value:
            raise unknown_instance_error(receiver.id, list(status.get("instances") or ()), instance, source.name)
    await server.for_run(run, reader.handle.signal(PROVIDE, source.value, rpc_timeout=server.RPC))
    after = {} if status is None else await receiver.fresh().status() or {}
    new_notes = Counter(after.get("notes") or ()) - Counter((status or {}).get("notes") or ())
    name = clean(receiver.id, 200)
    for note in new_notes:
        if note.startswith(_REFUSED):
            hint = f"`acts show {name}` shows what it waits for"
            raise command_error(f"{name} refused the message: {note.removeprefix(_REFUSED)}", hint=hint)
    effect = "has the message" if status is not None else "will get the message when a worker runs; none answers now"
    print_err(f"{clean(run)} {effect}")
    return EXIT_DONE


@app.add
async def cancel(run: Run) -> int:
    """Cancel a run: running calls are cancelled, no more start."""
    reader = await open_run(run)
    await reader.describe_running()  # the server accepts the request for a run that has ended, without any effect
    await server.for_run(run, reader.handle.cancel(rpc_timeout=server.RPC))
    print_err(f"{clean(run)} is being cancelled")
    return EXIT_DONE


@app.add
async def pause(run: Run) -> int:
    """Start no more calls of a run; running ones continue."""
    await server.for_run(run, (await open_run(run)).handle.signal(PAUSE, rpc_timeout=server.RPC))
    print_err(f"{clean(run)} is paused: it starts no more calls")
    return EXIT_DONE


@app.add
async def resume(run: Run) -> int:
    """Resume a paused run."""
    await server.for_run(run, (await open_run(run)).handle.signal(RESUME, rpc_timeout=server.RPC))
    print_err(f"{clean(run)} is resumed")
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
