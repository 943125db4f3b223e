"""``acts demo``: a few examples on a server in memory; nothing remains afterwards.

Laws of this file:
- it needs only the checkout: free ports, a temporary folder;
- it runs what a person can run, and prints those commands;
- the exit code is 0 only if every plan completed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from acts.language.wire import AGENT, PLAN
from cli.command_errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, CommandError, MessageBlock
from cli.commands.offline import print_plan
from cli.commands.run import new_id, start, watch_run
from cli.console import console, print_blocks, print_err
from cli.dev.dev_engine import Engine, EngineSetup, run_engine, stops_by_signal
from cli.render.agent_view import print_ticks
from cli.render.tables import headline, print_outcome
from cli.runs import server
from cli.text.preflight import EXAMPLES, default_modules, run_preflight
from cli.text.problems import problem_blocks
from cli.text.source_text import read_source

if TYPE_CHECKING:
    from temporalio.client import Client


@dataclass(frozen=True)
class DemoStep:
    """An example, and what it shows."""

    name: str
    text: str

    @property
    def file(self) -> Path:
        """The file of its plan."""
        return EXAMPLES / self.name / "plan.yaml"


STEPS: Final = (
    DemoStep("weather", "A branch: the answer of a service decides which calls run."),
    DemoStep("payment", "A failure as data: the payment is declined, and the plan takes another branch."),
    DemoStep("fanout", "Twelve calls in parallel, and one that joins their results in the order of the plan."),
    DemoStep(
        "refund",
        "An agent: a model plans, one call of its plan runs, and it plans again with the result.\n"
        "   (The model is scripted here and needs no key; a real one takes a change of one line.)",
    ),
)
_RESULT_ROWS: Final = 24
_LOG_ROWS: Final = 20


def demo(steps: Sequence[DemoStep] = STEPS) -> int:
    """Run the steps. 0 if all of them completed."""
    began = time.monotonic()
    with stops_by_signal(), tempfile.TemporaryDirectory(prefix="acts-demo-") as folder:
        print_err("starting a Temporal server in memory, and a worker …", "dim")
        log = Path(folder) / "worker.log"
        setup = EngineSetup(None, ui=False, modules=default_modules(), files=Path(folder), log=log)
        try:
            with run_engine(setup) as engine:
                print_err(f"both are ready after {time.monotonic() - began:.1f} s: {engine.server.address}", "dim")
                completed = server.run_async(_run_steps(engine, steps))
        except KeyboardInterrupt:
            print_err("stopped")
            return EXIT_INTERRUPTED
        except CommandError:
            _print_log(log)
            raise
        if not completed:
            _print_log(log)
    _print_end(time.monotonic() - began, completed=completed)
    return EXIT_DONE if completed else EXIT_FAILED


async def _run_steps(engine: Engine, steps: Sequence[DemoStep]) -> bool:
    address = engine.server.address
    config: dict[str, Any] = {"target_host": address, "namespace": engine.server.namespace}
    client = await server.connect(server.ServerTarget(config, (("the demo", address),)))
    completed = True
    for number, step in enumerate(steps, 1):
        console().print(f"\n{number}. {step.text}", style="bold")
        print_err(f"   acts run {step.file.relative_to(EXAMPLES.parent)} --watch", "dim")
        completed = await _run_step(client, step, engine.modules) and completed
    return completed


async def _run_step(client: Client, step: DemoStep, modules: str) -> bool:
    source = read_source(str(step.file))
    preflight = run_preflight(source.value, strict=True, modules=modules)
    if preflight.errors:
        print_blocks(problem_blocks(preflight.problems, source))
        return False
    workflow = AGENT if preflight.agent else PLAN
    run = await start(client, workflow, source.value, new_id(str(step.file)), source.name)
    began = time.monotonic()
    outcome = await watch_run(run)
    completed = outcome.status == "completed"
    seconds = f"{time.monotonic() - began:.1f} s"
    if preflight.agent and preflight.request is not None and completed:
        console().print(headline(outcome.status, run.id, seconds))
        print_ticks(preflight.request, outcome.result)
        return True
    print_outcome(outcome, run.id, seconds, rows=_RESULT_ROWS)
    print_blocks(problem_blocks(outcome.problems, source))
    if outcome.result is not None and not preflight.agent:
        console().print("\ngraph", style="bold")
        print_plan(source.value, preflight, mermaid=False, report=outcome.result)
    return completed


def _print_log(log: Path) -> None:
    """Print the end of the worker's log."""
    if log.exists() and (text := log.read_text("utf-8", "replace").strip()):
        rows = "\n".join(text.splitlines()[-_LOG_ROWS:])
        print_blocks([MessageBlock("the end of the worker's log", "", [("log", rows)], "note")])


def _print_end(seconds: float, *, completed: bool) -> None:
    screen = console()
    if not completed:
        screen.print(f"\nthe demo failed after {seconds:.1f} s", style="bold red")
        return
    screen.print(f"\nall of it ran in {seconds:.1f} s; the server and the worker are stopped", style="bold green")
    screen.print("  next    make dev (or: acts dev) keeps a server with a Web UI running, and its state in .acts")
    screen.print("  then    acts run examples/weather/plan.yaml --watch --input city=Bergen")
    screen.print("          acts run examples/replan/plan.yaml --watch   (an agent; examples/README.md has more)")
    screen.print("  also    acts simulate FILE, acts graph FILE, acts show ID; acts --help lists all")
