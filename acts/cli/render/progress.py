"""The progress of a run on stderr, while its end is awaited: a live table on a terminal, else a line per change.

The end of a run is awaited, never polled; progress is polled, less often while nothing changes. A query without an
answer (no worker, or the moment between two runs of a chain) is no failure: the view keeps the last known progress.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rich.console import Group
from rich.live import Live
from rich.text import Text

from acts.cli.console import clean, console
from acts.cli.render.tables import (
    MAX_SHOWN,
    approval_lines,
    call_name,
    counts_text,
    describe,
    headline,
    progress_parts,
    set_text,
)
from acts.cli.runs.run_reader import Outcome, RunReader, read_progress, wait_for_outcome
from acts.tree.decisions import PendingApproval

# A query costs the worker a look at the run. Four per second look live; an unchanged run is polled once per second.
FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 3.0  # a worker that does not answer for so long is reported
HEAD_ROWS: Final = 6  # rows of the terminal that the tables leave to everything else

Show = Callable[[Mapping[str, Any], str], None]
"""Shows a status, and why the worker is silent; "" while it answers."""


async def watch_run(run: RunReader) -> Outcome:
    """Wait for a run and show its progress."""
    if not console(stderr=True).is_terminal:
        return await _follow(run, _log(run.id))
    screen = console(stderr=True, wrap=True)
    with Live(console=screen, auto_refresh=False, transient=True) as live:
        began = time.monotonic()

        def show(status: Mapping[str, Any], silence: str) -> None:
            tick = f"tick {status['tick']}" if status.get("tick") else ""
            counts = counts_text(Counter(str(c.get("state")) for c in status.get("calls") or ()))
            head = headline(
                str(status.get("phase") or "starting"), run.id, tick, counts, f"{time.monotonic() - began:.1f} s"
            )
            parts = progress_parts(run.id, status, max(screen.height - HEAD_ROWS, 3))
            live.update(Group(head, *([Text(silence, "yellow")] if silence else []), *parts), refresh=True)

        return await _follow(run, show)


async def _follow(run: RunReader, show: Show) -> Outcome:
    """The outcome of a run; its progress is shown."""
    ending = asyncio.ensure_future(wait_for_outcome(run.handle))
    try:
        await _poll_progress(run, show, ending)
        outcome = await ending
        if isinstance(outcome.result, dict):
            show({**outcome.result, "phase": outcome.status}, "")  # what happened since the last query
        return outcome
    finally:
        ending.cancel()


async def _poll_progress(run: RunReader, show: Show, ending: asyncio.Future[Outcome]) -> None:
    last: Mapping[str, Any] = {}
    answered, pause = time.monotonic(), FIRST_PAUSE_SECONDS
    while not ending.done():
        reader = run.fresh()
        query = asyncio.ensure_future(read_progress(reader, MAX_SHOWN))
        either: list[asyncio.Future[Any]] = [ending, query]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not query.done():
            query.cancel()
            return
        progress = query.result()
        pause = FIRST_PAUSE_SECONDS if progress not in (None, last) else min(pause * 1.5, LONGEST_PAUSE_SECONDS)
        if progress is not None:
            answered, last = time.monotonic(), progress
        is_silent = time.monotonic() - answered > SILENCE_SECONDS
        show(last, await reader.obstacle() or "no worker answers; is one running?" if is_silent else "")
        await asyncio.wait({ending}, timeout=pause)


def _log(run: str) -> Show:
    """Progress for a log: each line once, when it becomes true."""
    screen, began = console(stderr=True), time.monotonic()
    printed: set[str] = set()

    def show(status: Mapping[str, Any], silence: str) -> None:
        nonlocal printed
        lines = dict.fromkeys([*_lines(run, status), *([silence] if silence else [])])
        for line in lines:
            if line not in printed:
                screen.print(f"{time.monotonic() - began:8.2f} s  {clean(line)}")
        printed = set(lines)

    return show


def _lines(run: str, status: Mapping[str, Any]) -> Iterator[str]:
    tick = f", tick {status['tick']}" if status.get("tick") else ""
    if "phase" in status:
        yield f"{run}: {status['phase']}{tick}"
    for call in status.get("calls") or ():
        tick = f"tick {call['tick']}  " if call.get("tick") else ""
        if call.get("state") != "pending":
            yield " ".join(filter(None, (tick + call_name(call), str(call.get("state")), describe(call))))
    if text := set_text(status):
        yield text
    yield from approval_lines(run, [PendingApproval.model_validate(p) for p in status.get("pending") or ()])
