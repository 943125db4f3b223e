"""``acts dev``, ``ui``, ``demo`` and ``worker``: what serves.

- A requested port is used or refused; a default one that is in use is replaced, and ``dev`` says so. ``demo`` needs
  only what the wheel ships: free ports, a temporary folder; nothing remains.
- The worker is ``python -m acts.worker``, a child process that dies with this one. One that ends by itself is started
  again, and so is one whose modules have changed; ``acts dev`` ends with its server, or by a signal.
- The worker stops before the server, so that its last results are recorded. Every wait is bounded, and a second Ctrl-C
  cuts the only long one short.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final

from rich.text import Text

from acts.activities.plan_folders import PLAN_FOLDERS, plan_files
from acts.cli import console as cli
from acts.cli.commands.start import StartPolicy, new_id, start_and_wait
from acts.cli.console import clean, command_error, console, option, print_err, print_message
from acts.cli.dev import temporal_server
from acts.cli.render.tables import print_plan
from acts.cli.text import preflight
from acts.client import server
from acts.client.server import DevServer, ServerTarget
from acts.language.errors import format_choices, install_hint
from acts.language.wire import AGENT, PLAN

PORT: Final = 7233
UI_PORT: Final = 8233
DELEGATES: Final = "ACTS_DELEGATES"
SHUTDOWN: Final = "ACTS_SHUTDOWN_SECONDS"
# Of running Activities, unless the environment says otherwise: a developer restarts often, and they are retried then
SHUTDOWN_SECONDS: Final = 3.0
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
READY_SECONDS: Final = 60.0  # it needs 1 s; importing the worker's modules takes as long as they take
KILL_SECONDS: Final = 3.0  # between the worker's own limit for a stop and the kill
QUIET_STOP_SECONDS: Final = 0.5  # a stop that takes longer is explained
# How soon the end of the server and a changed file are noticed; the end of the worker is noticed at once
CHECK_SECONDS: Final = 1.0
RESTART_SECONDS: Final = 1.0  # until a worker that has ended is started again
_DEMO_FOLDER: Final = Path(__file__).parents[1] / "demo"
# By the name of a file of the demo: what it shows
STEPS: Final = {
    "weather": "A branch: the answer of a service decides which calls run.",
    "payment": "A failure as data: the payment is declined, and the plan takes another branch.",
    "fanout": "Twelve calls in parallel, and one that joins their results in the order of the plan.",
    "refund": "An agent: a model plans, one call of its plan runs, and it plans again with the result.\n"
    "   (The model is scripted here and needs no key; a real one takes a change of one line.)",
}

State = Annotated[Path, option("--state", "The folder of the state; one server per folder.", envvar="ACTS_STATE")]
Port = Annotated[int | None, option("--port", "Of the server (default 7233, or a free one).", min=1, max=65535)]
UiPort = Annotated[int | None, option("--ui-port", "Of the Web UI (default 8233, or a free one).", min=1, max=65535)]
Ui = Annotated[bool, option("--ui/--no-ui", "Serve the Web UI.")]
UiHost = Annotated[str, option("--host", "The address to listen on; not this machine alone: behind a proxy.")]
PagePort = Annotated[int | None, option("--port", "Of the page (default 8234; 0: a free one).", min=0, max=65535)]
_MODULES: Final = "Python modules with Activities, comma separated (default: the examples)."
Modules = Annotated[str | None, option("--activities MODULES", _MODULES, envvar=preflight.MODULES)]

app = cli.CommandGroup()


@app.add
def dev(
    state: State = Path(".acts"), port: Port = None, ui_port: UiPort = None, ui: Ui = True, activities: Modules = None
) -> int:
    """Start a server, its Web UI and a worker; Ctrl-C stops all of it."""
    began = time.monotonic()
    cli.trust(Path())
    notes: list[str] = []
    port = choose_port(port, PORT, notes)
    ui_port = choose_port(ui_port, UI_PORT, notes) if ui else None
    ended = ""
    for variable, folder in {"ACTS_DATA": "data", "ACTS_RESULTS": "results"}.items():
        if variable not in os.environ:  # nothing else is read or written here by the word of a Request
            Path(folder).mkdir(exist_ok=True)
            os.environ[variable] = str(Path(folder).resolve())
    with stops_by_signal() as stop:
        try:
            with run_engine(state, port=port, ui_port=ui_port, ui=ui, modules=activities) as engine:
                inbox = _serve_inbox(engine.server) if ui else "not served (--no-ui)"
                _print_block(engine, state, time.monotonic() - began, notes, inbox)
                ended = engine.wait(stop)
                print_message(ended, hint=f"see the output above, and {engine.server.log}")
        except KeyboardInterrupt:
            if not ended:
                print_err(f"stopped; the state is in {clean(state)}")
                return cli.EXIT_DONE
    return cli.EXIT_NO_SERVER


def choose_port(requested: int | None, default: int, notes: list[str]) -> int | None:
    """The port to use; None for any, where the default one is in use."""
    if requested is None:
        try:
            temporal_server.free_address(default)
        except temporal_server.DevServerError:
            notes.append(f"port {default} is used by another program, so a free one was chosen")
            return None
    return requested or default


def _serve_inbox(dev: DevServer) -> str:
    """The address of the inbox, which is served from now on, or why it is not."""
    try:
        from acts.ui.ui_server import serve_beside
    except ImportError:
        return f"not served: {install_hint('ui')}"
    return serve_beside(ServerTarget(dev.address, "acts dev", {"namespace": dev.namespace}))


def _print_block(engine: Engine, state: Path, seconds: float, notes: Sequence[str], inbox: str) -> None:
    served, serves = engine.server, engine.serves
    screen = console()
    screen.print(f"acts dev is ready after {seconds:.1f} s; Ctrl-C stops all of it", style="bold green")
    names = f"activities: {format_choices(serves['activities'])}; tools: {format_choices(serves['tools'])}"
    rows = [
        ("server", f"{served.address}, namespace {served.namespace}"),
        ("Web UI", served.ui_url or "not served (--no-ui)"),
        ("inbox", inbox),
        ("state", f"{state.resolve()}, locked; log: {served.log}"),
        ("worker", f"task queue {serves['taskQueue']}; {names}"),
        ("loaded", engine.modules or "what ACTS_TOOLS and installed packages name"),
        *(("note", note) for note in notes),
    ]
    address = os.environ.get("TEMPORAL_ADDRESS")
    if address and address != served.address:
        rows.append(("note", f"TEMPORAL_ADDRESS={address} is set, and commands go there; unset it to use this server"))
    plans = {preflight.DEMO: _DEMO_FOLDER / "weather.yaml"}
    plans[preflight.default_modules()] = preflight.EXAMPLES / "weather" / "plan.yaml"
    command = f"{cli.shell('acts', 'run', plans.get(engine.modules, 'FILE'))} --watch"
    is_default = state.resolve() == (Path.cwd() / ".acts").resolve()
    rows.append(("try", command if is_default else f"ACTS_STATE={cli.shell(state)} {command}"))
    for label, text in rows:
        screen.print(f"  {label.ljust(7)} {clean(text)}")


@app.add
async def ui_(host: UiHost = server.HOST, port: PagePort = None) -> None:
    """Serve the inbox: pending decisions of all runs, cards to decide on, runs and their cost.

    Alone it listens on this machine, and prints a link that works once. Behind a proxy that signs people in:
    ACTS_UI_USER_HEADER, ACTS_UI_PROXY_TOKEN and ACTS_UI_ORIGIN (docs/people.md).
    """
    try:
        from acts.ui import ui_server as page
        from acts.ui.access import Access
    except ImportError:
        raise command_error("the inbox is not installed", hint=install_hint("ui")) from None
    listening = page.listen(host, page.PORT if port is None else port)
    access = Access(host, listening.getsockname()[1])
    console().print(Text(f"acts ui: {access.link(host)}   (Ctrl-C stops it)"), soft_wrap=True)
    await page.serve(listening, access)


@app.add
def worker() -> int:
    """Start a worker, as `python -m acts.worker` does."""
    from acts.worker.serve import main

    cli.trust(Path())
    return main()


@app.add
def demo() -> int:
    """Run example plans on a server in memory, and stop it."""
    began = time.monotonic()
    with stops_by_signal(), tempfile.TemporaryDirectory(prefix="acts-demo-") as folder:
        print_err("starting a Temporal server in memory, and a worker …", "dim")
        file = Path(folder) / "worker.log"
        completed = False
        try:
            with run_engine(None, ui=False, modules=preflight.DEMO, files=Path(folder), log=file) as engine:
                print_err(f"both are ready after {time.monotonic() - began:.1f} s: {engine.server.address}", "dim")
                completed = cli.run_async(_run_steps(engine.server.address))
        except KeyboardInterrupt:
            print_err("stopped")
            return cli.EXIT_INTERRUPTED
        finally:
            if not completed and file.exists():
                log = file.read_text("utf-8", "replace").splitlines()[-20:]
                print_err("\n".join(["the end of the worker's log:", *map(clean, log)]))
    seconds = time.monotonic() - began
    if not completed:
        console().print(f"\nthe demo failed after {seconds:.1f} s", style="bold red")
        return cli.EXIT_FAILED
    console().print(f"\nall of it ran in {seconds:.1f} s; the server and the worker are stopped", style="bold green")
    examples = "acts run examples/weather/plan.yaml --watch --input city=Bergen   (examples/README.md has more)"
    then = examples if preflight.has_examples() else "acts init my-plans writes a plan with tools and tests of your own"
    print("  next    acts dev keeps a server with a Web UI running, and its state in .acts")
    print(f"  then    {then}\n  also    acts simulate FILE, acts graph FILE, acts show ID; acts --help lists all")
    return cli.EXIT_DONE


async def _run_steps(address: str) -> bool:
    for name in [name for name in os.environ if name.startswith("TEMPORAL_")]:  # they are about other servers
        del os.environ[name]
    os.environ |= {"TEMPORAL_ADDRESS": address, "TEMPORAL_CONFIG_FILE": os.devnull, preflight.MODULES: preflight.DEMO}
    codes = []
    for number, (name, text) in enumerate(STEPS.items(), 1):
        console().print(f"\n{number}. {text}", style="bold")
        print_err(f"   acts run {name}.yaml --watch", "dim")
        file = str(_DEMO_FOLDER / f"{name}.yaml")
        source, request, checked = preflight.check_file(file, strict=True)
        preflight.require_valid(checked, source)
        workflow = AGENT if checked.agent else PLAN
        codes.append(await start_and_wait(request, workflow, new_id(file), source, StartPolicy(watch=True)))
        if not checked.agent:
            console().print("\ngraph", style="bold")
            print_plan(request, checked)
    return not any(codes)


class Engine:
    """A running server and its worker. ``serves`` is what the worker reports: ``{taskQueue, activities, tools}``."""

    def __init__(self, dev: DevServer, modules: str, files: Path | None, log: Path | None) -> None:
        self.server, self.modules = dev, modules
        self.serves: dict[str, Any] = {}
        self._log, self._state_files = log, files
        self._report = dev.log.with_name("worker.json")
        self._environment = self._worker_environment()
        self._from_file: dict[str, str] = {}  # the settings of ``acts.toml`` that hold
        self._worker: subprocess.Popen[bytes] | None = None
        self._files: dict[str, float] = {}  # when each was changed

    def _worker_environment(self) -> dict[str, str]:
        dev, modules, files = self.server, self.modules, self._state_files
        own = {k: v for k, v in os.environ.items() if not k.startswith("TEMPORAL_")}
        own |= {"TEMPORAL_ADDRESS": dev.address, "TEMPORAL_NAMESPACE": dev.namespace, preflight.MODULES: modules}
        own |= {"TEMPORAL_CONFIG_FILE": os.devnull, "ACTS_START_REPORT": str(self._report)}
        if (
            preflight.has_examples() and modules == preflight.default_modules()
        ):  # they need their delegates, after the own
            import examples

            own[DELEGATES] = os.pathsep.join([*filter(None, [own.get(DELEGATES)]), *examples.DELEGATES])
        own |= {} if files is None else {server.STATE_VARIABLE: str(files.resolve())}
        defaults = {"ACTS_LOG_LEVEL": "warning"}  # no line is logged for what goes well
        defaults |= {} if self._log is None and sys.stderr.isatty() else {"NO_COLOR": "1"}  # of the SDK's core neither
        return {**defaults, SHUTDOWN: str(SHUTDOWN_SECONDS), **own}

    def _reload_settings(self) -> None:
        """Take over the settings of a changed ``acts.toml``; CommandError where it cannot be used."""
        cli.read_project_file()
        cli.trust(Path())
        before = self._from_file
        for name in before:
            os.environ.pop(name, None)
        cli.load_project_file()
        self._from_file = _settings_of_file()
        if self.modules in (before.get(preflight.MODULES), "", preflight.default_modules()):  # not the option's
            self.modules = os.environ.get(preflight.MODULES) or default_modules()
        self._environment = self._worker_environment()

    def start_worker(self) -> None:
        self.serves = {}
        self._report.unlink(missing_ok=True)
        with ExitStack() as stack:
            output = sys.stderr if self._log is None else stack.enter_context(self._log.open("ab"))
            self._worker = temporal_server.spawn([sys.executable, "-m", "acts.worker"], output, self._environment)
        deadline = time.monotonic() + READY_SECONDS
        while not self.serves and self._worker.poll() is None and time.monotonic() < deadline:
            time.sleep(temporal_server.POLL_SECONDS)
            with suppress(OSError, ValueError):  # it is not there, or not yet whole
                self.serves = json.loads(self._report.read_text("utf-8"))
        if not self.serves:
            code = cli.EXIT_WRONG_INPUT if self._worker.poll() == cli.EXIT_WRONG_INPUT else cli.EXIT_FAILED
            self._kill_worker()
            hint = "see its output above" if self._log is None else f"its output is in {self._log}"
            raise command_error("the worker did not start", hint=hint, code=code)
        self._files = _read_times(watched_files(self.serves["modules"], self.modules))

    def wait(self, stop: threading.Event) -> str:
        """Keep a worker running until the server has ended; the message says so. A stop raises KeyboardInterrupt."""
        self._from_file = _settings_of_file()
        while temporal_server.is_listening(self.server.address):
            if stop.is_set():
                raise KeyboardInterrupt
            has_ended = self._worker is not None and self._has_ended_within(CHECK_SECONDS)
            if has_ended:
                text = f"the worker {self._ending()} and starts again in {RESTART_SECONDS:g} s"
                print_message(f"{text}; its calls are retried", severity="warning")
            if has_ended or self._worker is None:
                time.sleep(RESTART_SECONDS)
            before, self._files = self._files, _read_times(self._files)
            changed = [os.path.relpath(file) for file, at in self._files.items() if at != before[file]]
            if changed:
                print_err(f"{format_choices(changed, 3)} changed: the worker starts again", "dim")
                self.stop_worker()
            if not has_ended and not changed:
                continue
            try:
                if cli.PROJECT_FILE in changed:
                    self._reload_settings()
                self.start_worker()
            except cli.CommandError as error:
                cli.print_blocks(error.blocks)
                print_err("the server goes on; the worker starts again when a file changes", "dim")
            else:
                print_err(f"the worker is ready: {format_choices(self.serves['activities'])}", "dim")
        self._kill_worker()  # it could report nothing, and its own end would write the stacks of all threads
        return "the server has ended by itself, and the worker with it"

    def _ending(self) -> str:
        """How the worker has ended, while nobody stopped it: ``was ended by SIGKILL``."""
        code = None if self._worker is None else self._worker.returncode
        if code is not None and code < 0:
            names = {-one.value: one.name for one in signal.Signals}
            return f"was ended by {names.get(code, f'the signal {-code}')}"
        return f"has ended by itself (exit code {code})"

    def _has_ended_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            return self._worker is not None and self._worker.wait(seconds) is not None
        return False

    def stop_worker(self) -> None:
        """Stop the worker gracefully, unless it takes too long or Ctrl-C comes again."""
        if self._worker is None:
            return
        try:
            self._worker.terminate()
            if self._has_ended_within(QUIET_STOP_SECONDS):
                return
            limit = float(self._environment[SHUTDOWN] or SHUTDOWN_SECONDS)
            print_err(f"running Activities have up to {limit:g} s to finish; Ctrl-C again does not wait for them")
            if not self._has_ended_within(limit + KILL_SECONDS):
                print_err("the worker did not stop in time and was killed; its Activities will be retried")
        except KeyboardInterrupt:
            pass
        finally:
            self._kill_worker()

    def _kill_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker.wait()
        self._worker = None


def default_modules() -> str:
    """The modules that a worker loads where nothing names any: none, if something else is configured."""
    return "" if preflight.is_configured() else preflight.default_modules()


def _settings_of_file() -> dict[str, str]:
    """The variables of ``acts.toml`` that hold."""
    return {name: value for name, value in cli.read_project_file().items() if os.environ.get(name) == value}


@contextmanager
def run_engine(
    state: Path | None, *, port: int | None = None, ui_port: int | None = None, ui: bool = True,
    modules: str | None = None, files: Path | None = None, log: Path | None = None,
) -> Iterator[Engine]:  # fmt: skip
    """A server and a worker for as long as the block runs; where one of the two does not start, the other is stopped.

    ``state`` None: in memory. ``files``: where the worker's Activities keep files, if not in ``state``.
    """
    with ExitStack() as stack:
        try:
            dev = stack.enter_context(temporal_server.dev_server(state=state, port=port, ui_port=ui_port, ui=ui))
        except temporal_server.DevServerError as error:
            raise command_error(str(error), code=cli.EXIT_NO_SERVER) from None
        engine = Engine(dev, modules or default_modules(), files or state, log)
        for number in STOP_SIGNALS:  # nothing interrupts the end of the server
            stack.callback(signal.signal, number, signal.SIG_IGN)
        stack.callback(engine.stop_worker)
        engine.start_worker()
        yield engine


@contextmanager
def stops_by_signal() -> Iterator[threading.Event]:
    """SIGTERM, SIGHUP and SIGINT stop the block, also if the shell had SIGINT ignored.

    Python drops an exception that a signal handler raises inside a destructor; the event stays set.
    """
    stop = threading.Event()

    def on_signal(_number: int, _frame: object) -> None:
        stop.set()
        raise KeyboardInterrupt

    before = [signal.signal(number, on_signal) for number in STOP_SIGNALS]
    try:
        yield stop
    finally:
        for number, handler in zip(STOP_SIGNALS, before, strict=True):
            signal.signal(number, handler)


def watched_files(modules: Mapping[str, str], names: str) -> list[str]:
    """The files that a developer may change: of the loaded modules those below the current folder (but those of
    installed packages) and those of ``names``; Tools, MCP servers and models in files; ``acts.toml``.
    """
    here = Path.cwd()
    own = {file: Path(file).relative_to(here).parts for file in modules.values() if Path(file).is_relative_to(here)}
    files = {file for file, parts in own.items() if not any(p.startswith(".") or p == "site-packages" for p in parts)}
    files |= {file for name, file in modules.items() if name in names.split(",")}
    folders = [Path(folder) for folder in os.environ.get(preflight.FOLDERS, "").split(os.pathsep) if folder]
    files |= {str(file) for folder in folders for file in (folder, *folder.glob("*.json"))}
    plans = [Path(folder) for folder in os.environ.get(PLAN_FOLDERS, "").split(os.pathsep) if folder]
    files |= {str(file) for file in (*plans, *plan_files(filter(Path.is_dir, plans)))}
    files.add(str(here / cli.PROJECT_FILE))
    return sorted(files | {file for name in ("ACTS_MCP", "ACTS_MODELS") if (file := os.environ.get(name))})


def _read_times(files: Iterable[str]) -> dict[str, float]:
    """When each file was changed; 0 for one that is not there."""
    paths = {file: Path(file) for file in files}
    return {file: path.stat().st_mtime if path.exists() else 0.0 for file, path in paths.items()}
