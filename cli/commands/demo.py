"""``acts demo``: a few examples on a server in memory; nothing is left behind.

Laws of this file:
- it needs nothing that is not in the checkout: free ports, a temporary folder;
- it runs what a person would run by hand, and says what that was;
- 0 only when every plan ended as its example says.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from acts.language.wire import AGENT, PLAN
from cli.command_errors import DONE, INTERRUPTED, PLAN_FAILED, CommandError, MessageBlock
from cli.commands.offline import draw
from cli.commands.run import new_id, start
from cli.console import console, print_blocks, say
from cli.dev.dev_engine import Engine, Setup, engine, stops_by_signal
from cli.render.agent_view import print_ticks
from cli.render.tables import headline, print_outcome
from cli.runs import server
from cli.runs.follow import watched
from cli.text.plan_files import read
from cli.text.preflight import EXAMPLES, default_modules, judge
from cli.text.problems import blocks


@dataclass(frozen=True)
class Scene:
    """An example, and what there is to see in it."""

    name: str
    text: str

    @property
    def file(self) -> Path:
        """Its plan."""
        return EXAMPLES / self.name / "plan.yaml"


SCENES: Final = (
    Scene("weather", "A branch: what a service answers decides which calls run."),
    Scene("payment", "A failure as data: the payment is declined, and the plan takes the other way."),
    Scene("fanout", "Twelve calls side by side, and one that joins them in the order of the plan."),
    Scene(
        "refund",
        "An agent: a model plans, one call of its plan runs, and it plans again with the result.\n"
        "   (The model is scripted here and needs no key; a real one is a change of one line.)",
    ),
)
_STATE_ROWS: Final = 24


def demo(scenes: Sequence[Scene] = SCENES) -> int:
    """Play the scenes. 0 when all went well."""
    began = time.monotonic()
    with stops_by_signal(), tempfile.TemporaryDirectory(prefix="acts-demo-") as folder:
        say("starting a Temporal server in memory, and a worker …", "dim")
        log = Path(folder) / "worker.log"
        try:
            with engine(Setup(None, ui=False, modules=default_modules(), files=Path(folder), log=log)) as running:
                say(f"both are up after {time.monotonic() - began:.1f} s: {running.server.address}", "dim")
                done = server.go(_play(running, scenes))
        except KeyboardInterrupt:
            say("stopped")
            return INTERRUPTED
        except CommandError:
            _tell_log(log)
            raise
        if not done:
            _tell_log(log)
    _print_end(time.monotonic() - began, done=done)
    return DONE if done else PLAN_FAILED


async def _play(running: Engine, scenes: Sequence[Scene]) -> bool:
    config: dict[str, Any] = {"target_host": running.server.address, "namespace": running.server.namespace}
    client = await server.connect(server.Target(config, "the demo's server", (("the demo", running.server.address),)))
    screen = console()
    good = True
    for number, scene in enumerate(scenes, 1):
        screen.print(f"\n{number}. {scene.text}", style="bold")
        say(f"   acts run {scene.file.relative_to(EXAMPLES.parent)} --watch", "dim")
        source = read(str(scene.file))
        verdict = judge(source.value, strict=True, modules=running.modules)
        if verdict.errors:
            print_blocks(blocks(verdict.problems, source))
            return False
        workflow = AGENT if verdict.agent else PLAN
        handle = await start(client, workflow, source.value, new_id(str(scene.file)), source.name)
        began = time.monotonic()
        outcome = await watched(client, handle)
        good = good and outcome.status == "completed"
        took = f"{time.monotonic() - began:.1f} s"
        if verdict.agent and verdict.request is not None and outcome.status == "completed":
            screen.print(headline(outcome.status, handle.id, took))
            print_ticks(verdict.request, outcome.result)
            continue
        print_outcome(outcome, handle.id, took, rows=_STATE_ROWS)
        print_blocks(blocks(outcome.problems, source))
        if outcome.result is not None and not verdict.agent:
            screen.print("\ngraph", style="bold")
            draw(source.value, verdict, mermaid=False, told=outcome.result)
    return good


def _tell_log(log: Path) -> None:
    """What the worker printed, when something went wrong."""
    if log.exists() and (text := log.read_text("utf-8", "replace").strip()):
        print_blocks(
            [MessageBlock("the worker's last words", "", [("log", "\n".join(text.splitlines()[-20:]))], "note")]
        )


def _print_end(seconds: float, *, done: bool) -> None:
    screen = console()
    if not done:
        screen.print(f"\nthe demo failed after {seconds:.1f} s", style="bold red")
        return
    screen.print(f"\nall of it ran in {seconds:.1f} s, and everything is stopped again", style="bold green")
    screen.print("  next    make dev (or: acts dev) keeps a server with a Web UI running, and its state in .acts")
    screen.print("  then    acts run examples/weather/plan.yaml --watch --input city=Bergen")
    screen.print("          acts run examples/replan/plan.yaml --watch   (an agent; examples/README.md has more)")
    screen.print("  also    acts simulate FILE, acts graph FILE, acts show ID; acts --help lists all")
