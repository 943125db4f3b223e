"""``acts dev``, ``demo`` and ``worker``: what serves.

``dev`` runs until Ctrl-C, with the state on disk. One block says what runs where, and what to try next; afterwards the
worker prints. A requested port is used or refused; a default one that is in use is replaced, and the block says so.
``demo`` needs only what the wheel ships: free ports, a temporary folder; nothing remains.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from acts.cli.command_line import CommandGroup
from acts.cli.commands.start import Waiting, start_and_wait
from acts.cli.console import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NO_SERVER,
    clean,
    console,
    message,
    print_blocks,
    print_err,
)
from acts.cli.dev.engine import Engine, run_engine, stops_by_signal
from acts.cli.dev.temporal_server import DevServerError, free_address
from acts.cli.render.tables import print_plan
from acts.cli.runs import server
from acts.cli.runs.starting import new_id
from acts.cli.text.preflight import DEMO, EXAMPLES, check_file, default_modules, has_examples, require_valid
from acts.language.errors import format_choices
from acts.language.wire import AGENT, PLAN

PORT: Final = 7233
UI_PORT: Final = 8233
_DEMO_FOLDER: Final = Path(__file__).parents[1] / "demo"
_LOG_ROWS: Final = 20
# By the name of a file of the demo: what it shows
STEPS: Final = {
    "weather": "A branch: the answer of a service decides which calls run.",
    "payment": "A failure as data: the payment is declined, and the plan takes another branch.",
    "fanout": "Twelve calls in parallel, and one that joins their results in the order of the plan.",
    "refund": "An agent: a model plans, one call of its plan runs, and it plans again with the result.\n"
    "   (The model is scripted here and needs no key; a real one takes a change of one line.)",
}

State = Annotated[Path, typer.Option(envvar="ACTS_STATE", help="The folder of the state; one server per folder.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Of the server (default 7233, or a free one).")]
UiPort = Annotated[int | None, typer.Option(min=1, max=65535, help="Of the Web UI (default 8233, or a free one).")]
Ui = Annotated[bool, typer.Option("--ui/--no-ui", help="Serve the Web UI.")]
Modules = Annotated[
    str | None,
    typer.Option(
        envvar="ACTS_ACTIVITIES",
        metavar="MODULES",
        help="Python modules with Activities, comma separated (default: the examples).",
    ),
]

app = CommandGroup()


@app.add
def dev(
    state: State = Path(".acts"), port: Port = None, ui_port: UiPort = None, ui: Ui = True, activities: Modules = None
) -> int:
    """Start a server, its Web UI and a worker; Ctrl-C stops all of it."""
    began = time.monotonic()
    notes: list[str] = []
    port = choose_port(port, PORT, notes)
    ui_port = choose_port(ui_port, UI_PORT, notes) if ui else None
    ended = ""
    with stops_by_signal() as stop:
        try:
            with run_engine(state, port=port, ui_port=ui_port, ui=ui, modules=activities) as engine:
                _print_block(engine, state, time.monotonic() - began, notes)
                ended = engine.wait(stop)
                print_blocks([message(ended, hint=f"see the output above, and {engine.server.log}")])
        except KeyboardInterrupt:
            if not ended:
                print_err(f"stopped; the state is in {clean(state)}")
                return EXIT_DONE
    return EXIT_NO_SERVER


def choose_port(requested: int | None, default: int, notes: list[str]) -> int | None:
    """The port to use; None for any, where the default one is in use."""
    if requested is None:
        try:
            free_address(default)
        except DevServerError:
            notes.append(f"port {default} is used by another program, so a free one was chosen")
            return None
    return requested or default


def _print_block(engine: Engine, state: Path, seconds: float, notes: Sequence[str]) -> None:
    served, serves = engine.server, engine.serves
    screen = console()
    screen.print(f"acts dev is ready after {seconds:.1f} s; Ctrl-C stops all of it", style="bold green")
    names = f"activities: {format_choices(serves['activities'])}; tools: {format_choices(serves['tools'])}"
    rows = [
        ("server", f"{served.address}, namespace {served.namespace}"),
        ("Web UI", served.ui_url or "not served (--no-ui)"),
        ("state", f"{state.resolve()}, locked; log: {served.log}"),
        ("worker", f"task queue {serves['taskQueue']}; {names}"),
        ("loaded", engine.modules or "what ACTS_TOOLS and installed packages name"),
        *(("note", note) for note in notes),
    ]
    address = os.environ.get("TEMPORAL_ADDRESS")
    if address and address != served.address:
        rows.append(("note", f"TEMPORAL_ADDRESS={address} is set, and commands go there; unset it to use this server"))
    rows.append(("try", next_command(state, engine.modules)))
    for label, text in rows:
        screen.print(f"  {label.ljust(7)} {clean(text)}")


def next_command(state: Path, modules: str) -> str:
    """A command to try: a plan that ships, if the worker has its Activities."""
    plans = {DEMO: _DEMO_FOLDER / "weather.yaml", default_modules(): EXAMPLES / "weather" / "plan.yaml"}
    command = f"acts run {plans.get(modules, 'FILE')} --watch"
    is_default = state.resolve() == (Path.cwd() / ".acts").resolve()
    return command if is_default else f"ACTS_STATE={state} {command}"


@app.add
def worker() -> int:
    """Start a worker, as `python -m acts.worker` does."""
    from acts.worker.serve import main

    return main()


# -- the demo --------------------------------------------------------------------------------------------------------


@app.add
def demo() -> int:
    """Run example plans on a server in memory, and stop it."""
    began = time.monotonic()
    with stops_by_signal(), tempfile.TemporaryDirectory(prefix="acts-demo-") as folder:
        print_err("starting a Temporal server in memory, and a worker …", "dim")
        file = Path(folder) / "worker.log"
        completed = False
        try:
            with run_engine(None, ui=False, modules=DEMO, files=Path(folder), log=file) as engine:
                print_err(f"both are ready after {time.monotonic() - began:.1f} s: {engine.server.address}", "dim")
                completed = server.run_async(_run_steps(engine.server.address))
        except KeyboardInterrupt:
            print_err("stopped")
            return EXIT_INTERRUPTED
        finally:
            if not completed and file.exists():
                log = file.read_text("utf-8", "replace").splitlines()[-_LOG_ROWS:]
                print_err("\n".join(["the end of the worker's log:", *map(clean, log)]))
    _print_end(time.monotonic() - began, completed=completed)
    return EXIT_DONE if completed else EXIT_FAILED


async def _run_steps(address: str) -> bool:
    """Run each plan as `acts run` does, on the server of the demo; True if all completed."""
    for name in [name for name in os.environ if name.startswith("TEMPORAL_")]:  # they are about other servers
        del os.environ[name]
    os.environ |= {"TEMPORAL_ADDRESS": address, "TEMPORAL_CONFIG_FILE": os.devnull, "ACTS_ACTIVITIES": DEMO}
    codes = []
    for number, (name, text) in enumerate(STEPS.items(), 1):
        console().print(f"\n{number}. {text}", style="bold")
        print_err(f"   acts run {name}.yaml --watch", "dim")
        file = str(_DEMO_FOLDER / f"{name}.yaml")
        source, request, preflight = check_file(file, strict=True)
        require_valid(preflight, source)
        workflow = AGENT if preflight.agent else PLAN
        codes.append(await start_and_wait(request, workflow, new_id(file), source, Waiting(watch=True)))
        if not preflight.agent:
            console().print("\ngraph", style="bold")
            print_plan(request, preflight, mermaid=False)
    return not any(codes)


def _print_end(seconds: float, *, completed: bool) -> None:
    screen = console()
    if not completed:
        screen.print(f"\nthe demo failed after {seconds:.1f} s", style="bold red")
        return
    screen.print(f"\nall of it ran in {seconds:.1f} s; the server and the worker are stopped", style="bold green")
    screen.print("  next    acts dev keeps a server with a Web UI running, and its state in .acts")
    if has_examples():
        screen.print("  then    acts run examples/weather/plan.yaml --watch --input city=Bergen")
        screen.print("          acts run examples/replan/plan.yaml --watch   (an agent; examples/README.md has more)")
    else:
        screen.print("  then    acts init my-plans writes a plan with tools and tests of your own")
    screen.print("  also    acts simulate FILE, acts graph FILE, acts show ID; acts --help lists all")
