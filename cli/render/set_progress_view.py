"""How far a run over a set has come: one bar with the rate and the time left, or a line for a log now and then."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from acts.views.set_counts import set_counts
from cli.console import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

# The rate is that of the last minute: of a whole run it would hide that nothing moves any more
RATE_SECONDS: Final = 60.0
_BAR_WIDTH: Final = 40
_MINUTE: Final = 60
_HOUR: Final = 3600
# A log gets a line when a hundredth more has ended, but not more often than this
LOG_SECONDS: Final = 5.0
_LOG_SHARE: Final = 100
_MAX_FAILURES: Final = 5


class SetRate:
    """How many rows end per second, and how long the rest takes at this rate."""

    def __init__(self) -> None:
        self._samples = deque[tuple[float, int]]()

    def add(self, ended: int) -> None:
        """So many rows have ended now."""
        now = time.monotonic()
        if self._samples and ended == self._samples[-1][1] and len(self._samples) > 1:
            self._samples.pop()
        self._samples.append((now, ended))
        while len(self._samples) > 2 and now - self._samples[0][0] > RATE_SECONDS:  # noqa: PLR2004 - a rate needs two
            self._samples.popleft()

    @property
    def per_second(self) -> float | None:
        """Rows per second; None before anything has ended."""
        if len(self._samples) < 2:  # noqa: PLR2004 - a rate needs two
            return None
        (start, before), (end, after) = self._samples[0], self._samples[-1]
        return (after - before) / (end - start) if after > before and end > start else None


def set_facts(status: Mapping[str, Any], rate: SetRate) -> list[str]:
    """``12,500 of 100,000 rows (12 %)``, failures, the rate, and the time left."""
    counts = set_counts(status) or {}
    ended, total = counts["completed"] + counts["failed"], counts.get("total")
    if total is None:
        return ["counting the rows"]
    out = [f"{ended:,} of {total:,} rows ({100 * ended // max(total, 1)} %)"]
    if counts["failed"]:
        out.append(f"{counts['failed']:,} failed")
    speed = rate.per_second
    if speed is not None and status.get("phase") == "running" and ended < total:
        out += [f"{speed:,.0f}/s" if speed >= 1 else f"{speed * _MINUTE:.1f}/min"]
        out += [f"{duration_text((total - ended) / speed)} left"]
    return out


def duration_text(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds // _HOUR:.0f} h {seconds % _HOUR // _MINUTE:.0f} min"


def set_bar(status: Mapping[str, Any], rate: SetRate) -> RenderableType:
    """The bar, and the first failures."""
    counts = set_counts(status) or {}
    ended, total = counts["completed"] + counts["failed"], counts.get("total")
    row = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=total or None, completed=ended, width=_BAR_WIDTH, pulse=total is None)
    row.add_row(bar, Text("  ".join(set_facts(status, rate))))
    failures = list(status.get("failures") or ())
    shown = ", ".join(clean(name, 60) for name in failures[:_MAX_FAILURES])
    more = ", …" if len(failures) > _MAX_FAILURES or counts["failed"] > len(failures) else ""
    return Group(row, *([Text(f"failed: {shown}{more}", "red")] if failures else []))


class SetLog:
    """The lines of a log about a set."""

    def __init__(self) -> None:
        self.rate = SetRate()
        self._last = (-1, 0.0)

    def line(self, status: Mapping[str, Any]) -> str | None:
        """A line, if enough has changed since the last one."""
        counts = set_counts(status)
        if counts is None:
            return None
        ended, total = counts["completed"] + counts["failed"], counts.get("total")
        self.rate.add(ended)
        step, now = -1 if total is None else ended * _LOG_SHARE // max(total, 1), time.monotonic()
        is_end = total is not None and ended == total
        if step == self._last[0] or (now - self._last[1] < LOG_SECONDS and not is_end):
            return None
        self._last = (step, now)
        return "  ".join(set_facts(status, self.rate))


# Phases of a status in which no further row ends
_OVER: Final = ("completed", "partial", "failed", "rejected", "cancelled")


def outcome_lines(result: Mapping[str, Any]) -> list[str]:
    """What a run over a set came to, or has come to so far (a status), in lines for a terminal."""
    counts = set_counts(result) or {}
    total = counts.get("total")
    rest = 0 if total is None else total - counts["completed"] - counts["failed"]
    parts = [f"{counts['completed']:,} completed", f"{counts['failed']:,} failed"]
    is_over = "phase" not in result or result["phase"] in _OVER
    parts += [f"{rest:,} {'did not run to their end' if is_over else 'have not ended yet'}"] if rest else []
    lines = [f"{'rows not counted' if total is None else f'{total:,} rows'}: {', '.join(parts)}"]
    if result.get("results"):
        lines.append(f"results: {clean(result['results'], 300)}")
    return lines
