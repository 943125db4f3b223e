"""The progress of a run on stderr: a live table on a terminal, else a line per change."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Self

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from acts.views.set_counts import named_instances, set_counts
from cli.console import clean, console
from cli.render.pending_view import approval_lines
from cli.render.set_progress_view import SetLog, SetRate, set_bar
from cli.render.tables import calls_table, counts_text, describe_call, headline, instances_table, usage_text
from cli.runs.run_reader import read_approvals

SILENCE_SECONDS: Final = 3.0  # a worker that does not answer for so long is reported
HEAD_ROWS: Final = 6  # rows of the terminal that the tables leave to everything else


def _approval_lines(run: str, status: Mapping[str, Any]) -> list[str]:
    return approval_lines(run, read_approvals(status.get("pending")) or [])


class LogLines:
    """Progress for a log: a line for each change."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._console = console(stderr=True)
        self._states: dict[str, str] = {}
        self._phase: tuple[Any, Any] = ("", None)
        self._began = time.monotonic()
        self._silence_shown: str | None = None
        self._set = SetLog()
        self._approvals: list[str] = []

    def show(self, status: Mapping[str, Any]) -> None:
        """Print what has changed."""
        phase, tick = status.get("phase"), status.get("tick")
        if (phase, tick) != self._phase:
            self._phase = (phase, tick)
            self._print(f"{self._run}: {phase}" + (f", tick {tick}" if tick else ""))
        for call in status.get("calls") or ():
            self._show_call(call)
        if line := self._set.line(status):
            self._print(line)
        approvals = _approval_lines(self._run, status)
        for text in approvals if approvals != self._approvals else ():
            self._print(text)
        self._approvals = approvals

    def _show_call(self, call: Mapping[str, Any]) -> None:
        key, state = f"{call.get('id')} {call.get('instance') or ''}".strip(), str(call.get("state"))
        key = f"tick {call['tick']}  {key}" if call.get("tick") else key
        if self._states.get(key, "pending") != state:
            self._print(" ".join(x for x in (key, state, describe_call(call)) if x))
        self._states[key] = state

    def show_silence(self, seconds: float, obstacle: str = "") -> None:
        """Report it once, and each further obstacle."""
        if seconds > SILENCE_SECONDS and self._silence_shown != obstacle:
            self._silence_shown = obstacle
            self._print(obstacle or "no worker answers; is one running?")

    def _print(self, text: str) -> None:
        self._console.print(f"{time.monotonic() - self._began:8.2f} s  {clean(text)}")


class LiveTable:
    """Progress for a terminal: a table that changes in place."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._status: Mapping[str, Any] = {}
        self._silence, self._obstacle = 0.0, ""
        self._rate = SetRate()
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
        if (counts := set_counts(status)) is not None:
            self._rate.add(counts["completed"] + counts["failed"])

    def show_silence(self, seconds: float, obstacle: str = "") -> None:
        """The next frame reports it."""
        self._silence, self._obstacle = seconds, obstacle

    def _frame(self) -> Group:
        status = self._status
        calls = list(status.get("calls") or ())
        rows = self._console.height - HEAD_ROWS
        parts: list[RenderableType] = [Columns([self._spinner, self._head(status, calls)])]
        if self._silence > SILENCE_SECONDS:
            reason = self._obstacle or "is one running?"
            parts.append(Text(f"no worker has answered for {self._silence:.0f} s; {reason}", "yellow"))
        if calls:
            parts.append(calls_table(calls, max(rows, 3)))
        if instances := named_instances(status):
            parts.append(instances_table(instances, max(rows - len(calls), 3)))
        if set_counts(status) is not None:
            parts.append(set_bar(status, self._rate))
        parts += [Text(clean(n, 200), "dim") for n in list(status.get("notes") or ())[-3:]]
        if any(c.get("waitsFor") for c in calls):
            message = '\'{"type":"input","input":{…}}\''
            parts.append(Text(f"it waits for a message: acts provide {clean(self._run)} {message}", "magenta"))
        parts += [Text(text, "magenta") for text in _approval_lines(self._run, status)]
        return Group(*parts)

    def _head(self, status: Mapping[str, Any], calls: list[Any]) -> Any:
        tick = f"tick {status['tick']}" if status.get("tick") else ""
        counts = counts_text(Counter(str(c.get("state")) for c in calls))
        usage = usage_text(status["usage"]) if (status.get("usage") or {}).get("requests") else ""
        seconds = f"{time.monotonic() - self._began:.1f} s"
        return headline(str(status.get("phase") or "starting"), self._run, tick, counts, usage, seconds)
