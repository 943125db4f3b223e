"""``acts dev``: a server with its Web UI and a worker until Ctrl-C, with the state on disk.

Laws of this file:
- one block says what runs where, and what to try next; afterwards the worker prints, and each start of another one
  is said;
- a requested port is used or refused; a default one that is in use is replaced, and the block says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acts.language.errors import format_choices
from cli.command_errors import EXIT_DONE, EXIT_NO_SERVER, message
from cli.console import clean, console, print_blocks, print_err
from cli.dev.dev_engine import Engine, EngineSetup, choose_port, run_engine, stops_by_signal
from cli.text.preflight import EXAMPLES

PORT: Final = 7233
UI_PORT: Final = 8233
_WEATHER: Final = "examples.weather.activities"


def dev(state: Path, port: int | None, ui_port: int | None, *, ui: bool, modules: str | None) -> int:
    """Run until a signal, or until the server has ended by itself: exit codes 0 and 3.

    Raises:
        CommandError: the server or the worker does not start.
    """
    began = time.monotonic()
    actual, moved = choose_port(port, PORT)
    actual_ui, ui_moved = choose_port(ui_port, UI_PORT) if ui else (None, False)
    replaced = [p for p, is_moved in ((PORT, moved), (UI_PORT, ui_moved)) if is_moved]
    ended = ""
    with stops_by_signal() as stop:
        try:
            with run_engine(EngineSetup(state, actual, actual_ui, ui, modules)) as engine:
                _print_block(engine, state, time.monotonic() - began, replaced)
                ended = engine.wait(stop)
                print_blocks([message(ended, hint=f"see the output above, and {engine.server.log}")])
        except KeyboardInterrupt:
            if not ended:
                print_err(f"stopped; the state is in {clean(state)}")
                return EXIT_DONE
    return EXIT_NO_SERVER


def _print_block(engine: Engine, state: Path, seconds: float, replaced: Sequence[int]) -> None:
    server, serves = engine.server, engine.serves
    screen = console()
    screen.print(f"acts dev is ready after {seconds:.1f} s; Ctrl-C stops all of it", style="bold green")
    names = f"activities: {format_choices(serves['activities'])}; tools: {format_choices(serves['tools'])}"
    rows = [
        ("server", f"{server.address}, namespace {server.namespace}"),
        ("Web UI", server.ui_url or "not served (--no-ui)"),
        ("state", f"{state.resolve()}, locked; log: {server.log}"),
        ("worker", f"task queue {serves['taskQueue']}; {names}"),
        ("loaded", engine.modules or "what ACTS_TOOLS and installed packages name"),
    ]
    if replaced:
        rows.append(("note", replaced_ports_note(replaced)))
    address = os.environ.get("TEMPORAL_ADDRESS")
    if address and address != server.address:
        rows.append(("note", f"TEMPORAL_ADDRESS={address} is set, and commands go there; unset it to use this server"))
    rows.append(("try", next_command(state, engine.modules)))
    for label, text in rows:
        screen.print(f"  {label.ljust(7)} {clean(text)}")


def replaced_ports_note(ports: Sequence[int]) -> str:
    """The note that one default port, or both, are in use."""
    if len(ports) == 1:
        return f"port {ports[0]} is used by another program, so a free one was chosen"
    return f"the ports {' and '.join(map(str, ports))} are used by other programs, so free ones were chosen"


def next_command(state: Path, modules: str) -> str:
    """A command to try: an example, if the worker has its Activities."""
    example = EXAMPLES / "weather" / "plan.yaml"
    relative = Path(os.path.relpath(example))
    file: object = relative if len(relative.parts) < len(example.parts) else example
    command = f"acts run {file if _WEATHER in modules.split(',') else 'FILE'} --watch"
    is_default = state.resolve() == (Path.cwd() / ".acts").resolve()
    return command if is_default else f"ACTS_STATE={state} {command}"
