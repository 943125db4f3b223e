"""``acts dev``: server, Web UI and worker until Ctrl-C, with the state on disk.

Laws of this file:
- one block says what runs where, and what to try next; afterwards only the worker speaks;
- a port that was asked for is used or refused; a usual one that is taken is replaced and
  that is said.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acts.language.errors import format_choices
from cli.command_errors import DONE, NO_SERVER, PLAN_FAILED, MessageBlock
from cli.console import clean, console, print_blocks, say
from cli.dev.dev_engine import Engine, Setup, choose_port, engine, stops_by_signal
from cli.text.preflight import EXAMPLES

PORT: Final = 7233
UI_PORT: Final = 8233
_WEATHER: Final = "examples.weather.activities"


def dev(state: Path, port: int | None, ui_port: int | None, *, ui: bool, modules: str | None) -> int:
    """Run until a signal. 0 after one; else what ended by itself decides.

    Raises:
        Refusal: the server or the worker does not come up.
    """
    began = time.monotonic()
    chosen, taken = choose_port(port, PORT)
    chosen_ui, taken_ui = choose_port(ui_port, UI_PORT) if ui else (None, False)
    moved = [p for p, was in ((PORT, taken), (UI_PORT, taken_ui)) if was]
    gone = ""
    with stops_by_signal() as stop:
        try:
            with engine(Setup(state, chosen, chosen_ui, ui, modules)) as running:
                _print_block(running, state, time.monotonic() - began, moved)
                gone = running.wait(stop)
                print_blocks(
                    [MessageBlock(gone, "", [("hint", f"look at what stands above, and at {running.server.log}")])]
                )
        except KeyboardInterrupt:
            if not gone:
                say(f"stopped; the state is in {clean(state)}")
                return DONE
    return NO_SERVER if "server" in gone else PLAN_FAILED


def _print_block(running: Engine, state: Path, seconds: float, moved: Sequence[int]) -> None:
    server, serves = running.server, running.serves
    screen = console()
    screen.print(f"acts dev is up after {seconds:.1f} s; Ctrl-C stops all of it", style="bold green")
    serving = f"activities: {format_choices(serves['activities'])}; tools: {format_choices(serves['tools'])}"
    rows = [
        ("server", f"{server.address}, namespace {server.namespace}"),
        ("Web UI", server.ui_url or "not served (--no-ui)"),
        ("state", f"{state.resolve()}, locked; log: {server.log}"),
        ("worker", f"task queue {serves['taskQueue']}; {serving}"),
        ("loaded", running.modules or "what ACTS_TOOLS and installed packages name"),
    ]
    if moved:
        rows.append(("note", taken_by_others(moved)))
    address = os.environ.get("TEMPORAL_ADDRESS")
    if address and address != server.address:
        rows.append(("note", f"TEMPORAL_ADDRESS={address} is set, and commands go there; unset it to use this server"))
    rows.append(("try", advice(state, running.modules)))
    for label, text in rows:
        screen.print(f"  {label.ljust(7)} {clean(text)}")


def taken_by_others(ports: Sequence[int]) -> str:
    """That other programs have the usual ports: one of them, or both."""
    if len(ports) == 1:
        return f"port {ports[0]} is taken by another program, so a free one was chosen"
    return f"the ports {' and '.join(map(str, ports))} are taken by other programs, so free ones were chosen"


def advice(state: Path, modules: str) -> str:
    """What to type next: an example, where the worker has what it takes."""
    example = EXAMPLES / "weather" / "plan.yaml"
    here = Path(os.path.relpath(example))
    file: object = here if len(here.parts) < len(example.parts) else example
    command = f"acts run {file if _WEATHER in modules.split(',') else 'FILE'} --watch"
    default = state.resolve() == (Path.cwd() / ".acts").resolve()
    return command if default else f"ACTS_STATE={state} {command}"
