"""Waiting for a run, and showing what it does meanwhile.

Laws of this file:
- the end of a run is waited for, never polled; progress is asked for a few times per
  second, and less often while nothing changes;
- a question that is not answered (no worker, a moment between two runs) is no failure:
  what was last known stays on the screen;
- a terminal sees one picture that changes, anything else a line per change;
- an agent does not hear what the plan of its tick does until that is over: the plan is asked too.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from cli.console import clean, console
from cli.render.tables import calls_table, counts_text, headline, instances_table, note, usage_text
from cli.runs.pending_parameters import Known, with_calls
from cli.runs.pending_view import read_waits, wait_lines, waits_of
from cli.runs.queries import status_of
from cli.runs.run_outcome import Outcome, wait

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from temporalio.client import Client, WorkflowHandle

# Each question costs the worker a look at the run. Four per second look alive; an
# unchanged picture is asked for once per second.
FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 3.0  # without any answer for this long, the screen says so
HEAD_ROWS: Final = 6  # rows of the terminal that the table leaves to the rest


class Screen(Protocol):
    """What progress is shown on."""

    def show(self, status: Mapping[str, Any]) -> None:
        """Show what the query ``status`` answered."""

    def silent(self, seconds: float) -> None:
        """Nobody has answered for this long."""


async def follow(client: Client, handle: WorkflowHandle[Any, Any], screen: Screen) -> Outcome:
    """The outcome of a run; what it does meanwhile goes to the screen."""
    ending = asyncio.ensure_future(wait(handle))
    try:
        await _watch(client, handle, screen, ending)
        outcome = await ending
        if isinstance(outcome.result, dict):
            screen.show({**outcome.result, "phase": outcome.status})  # what happened since the last question
        return outcome
    finally:
        ending.cancel()


async def _watch(
    client: Client, handle: WorkflowHandle[Any, Any], screen: Screen, ending: asyncio.Future[Outcome]
) -> None:
    seen: Any = None
    known: Known = {}
    answered = time.monotonic()
    pause = FIRST_PAUSE_SECONDS
    while not ending.done():
        asked = asyncio.ensure_future(progress(client, handle, known))
        either: list[asyncio.Future[Any]] = [ending, asked]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            asked.cancel()
            return
        found = asked.result()
        if found is None:
            screen.silent(time.monotonic() - answered)
        else:
            answered = time.monotonic()
            screen.show(found)
        pause = FIRST_PAUSE_SECONDS if found != seen else min(pause * 1.5, LONGEST_PAUSE_SECONDS)
        seen = found
        await asyncio.wait({ending}, timeout=pause)


async def progress(
    client: Client, handle: WorkflowHandle[Any, Any], known: Known | None = None
) -> dict[str, Any] | None:
    """The answer of ``status``, with ``pending`` where something waits for a person, and what would be called.

    In that of an agent, the calls of the plan it walks are as that plan tells them. ``known`` as in ``with_calls``.
    """
    status = await status_of(handle)
    if status is None:
        return None
    await _add_walked(client, handle, status)
    if status.get("waits") or status.get("phase") == "awaiting":
        waits = await waits_of(handle)
        if waits:
            status["pending"] = [wait.to_json() for wait in await with_calls(client, waits, known)]
    return status


async def _add_walked(client: Client, handle: WorkflowHandle[Any, Any], status: dict[str, Any]) -> None:
    calls = status.get("calls") or []
    tick = status.get("tick")
    walked = [i for i, call in enumerate(calls) if call.get("tick") == tick and call.get("state") == "pending"]
    if not tick or not walked:
        return
    child = await status_of(client.get_workflow_handle(f"{handle.id}/plan-{tick}"))
    told = (child or {}).get("calls") or []
    if len(told) != len(walked):
        return
    # the child numbers its calls anew; their order is the same
    for index, call in zip(walked, told, strict=True):
        calls[index] = {**call, **{k: calls[index][k] for k in ("id", "tool", "tick")}}


def _waits(run: str, status: Mapping[str, Any]) -> list[str]:
    """What waits for a person, as lines."""
    return wait_lines(run, read_waits(status.get("pending")) or [])


class Lines:
    """Progress for a log: a line whenever a call changes its state."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._console = console(stderr=True)
        self._states: dict[str, str] = {}
        self._phase: tuple[Any, Any] = ("", None)
        self._began = time.monotonic()
        self._told = False
        self._waits: list[str] = []

    def show(self, status: Mapping[str, Any]) -> None:
        """Say what is new."""
        phase, tick = status.get("phase"), status.get("tick")
        if (phase, tick) != self._phase:
            self._phase = (phase, tick)
            self._line(f"{self._run}: {phase}" + (f", tick {tick}" if tick else ""))
        for call in status.get("calls") or ():
            key, state = f"{call.get('id')} {call.get('instance') or ''}".strip(), str(call.get("state"))
            key = f"tick {call['tick']}  {key}" if call.get("tick") else key
            if self._states.get(key) != state and not (state == "pending" and key not in self._states):
                self._line(" ".join(x for x in (key, state, note(call)) if x))
            self._states[key] = state
        waits = _waits(self._run, status)
        for text in waits if waits != self._waits else ():
            self._line(text)
        self._waits = waits

    def silent(self, seconds: float) -> None:
        """Say so, once."""
        if seconds > SILENCE_SECONDS and not self._told:
            self._told = True
            self._line("no worker answers; is one running?")

    def _line(self, text: str) -> None:
        self._console.print(f"{time.monotonic() - self._began:8.2f} s  {clean(text)}")


class Picture:
    """Progress for a terminal: one live table."""

    def __init__(self, run: str) -> None:
        from rich.live import Live
        from rich.spinner import Spinner

        self._run = run
        self._status: Mapping[str, Any] = {}
        self._silence = 0.0
        self._began = time.monotonic()
        self._spinner = Spinner("dots")
        self._console = console(stderr=True, wrap=True)
        self._live = Live(console=self._console, get_renderable=self._frame, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, status: Mapping[str, Any]) -> None:
        """The next frame shows this."""
        self._status, self._silence = status, 0.0

    def silent(self, seconds: float) -> None:
        """The next frame says so."""
        self._silence = seconds

    def _frame(self) -> Group:
        from rich.columns import Columns
        from rich.console import Group
        from rich.text import Text

        status = self._status
        calls = list(status.get("calls") or ())
        tick = f"tick {status['tick']}" if status.get("tick") else ""
        counts = counts_text(Counter(str(c.get("state")) for c in calls))
        seconds = f"{time.monotonic() - self._began:.1f} s"
        spent = usage_text(status["usage"]) if (status.get("usage") or {}).get("requests") else ""
        head = headline(str(status.get("phase") or "starting"), self._run, tick, counts, spent, seconds)
        parts: list[RenderableType] = [Columns([self._spinner, head])]
        if self._silence > SILENCE_SECONDS:
            parts.append(Text(f"no worker has answered for {self._silence:.0f} s; is one running?", "yellow"))
        if calls:
            parts.append(calls_table(calls, max(self._console.height - HEAD_ROWS, 3)))
        if status.get("instances"):
            parts.append(instances_table(status["instances"], max(self._console.height - HEAD_ROWS - len(calls), 3)))
        parts += [Text(clean(n, 200), "dim") for n in list(status.get("notes") or ())[-3:]]
        if any(c.get("waitsFor") for c in calls):
            parts.append(
                Text(
                    f'it waits for a message: acts provide {clean(self._run)} \'{{"type":"input","input":{{…}}}}\'',
                    "magenta",
                )
            )
        parts += [Text(text, "magenta") for text in _waits(self._run, status)]
        return Group(*parts)


async def watched(client: Client, handle: WorkflowHandle[Any, Any]) -> Outcome:
    """``follow`` on the screen that fits: a picture for a terminal, else lines."""
    if console(stderr=True).is_terminal:
        with Picture(handle.id) as picture:
            return await follow(client, handle, picture)
    return await follow(client, handle, Lines(handle.id))
