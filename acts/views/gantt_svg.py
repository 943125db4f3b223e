"""When what happened in a run and below it: a picture with a bar for each Call, planner request and wait for a person.

What ended last before another began, in the same instance or in none, is what that one waited for, since a Call starts
when its last dependency, or the place of another Call, is free. So the way back from the last end is the critical path:
its bars have a thick edge. What a run below does is part of the Call that started it, whose bar is hollow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from acts.views.plan_svg import state_color, svg_picture, svg_text, write
from acts.views.run_events import RunEvent
from acts.views.text import STATE_MARKS, UNKNOWN_MARK

MAX_BARS: Final = 300
_NAMES, _BARS, _ROW, _MARGIN = 210, 560, 20, 8  # pixels: the names, the time, the height of a row
_NAME_UNITS: Final = 28
_TICKS: Final = 4
# What opens a bar, and what ends it
_ENDS: Final = {"callStarted": "callEnded", "waitOpened": "waitClosed", "tickStarted": "modelAnswered"}
_KINDS: Final = {**{v: k for k, v in _ENDS.items()}, **{k: k for k in _ENDS}}


@dataclass(slots=True)
class Bar:
    """From ``start`` to ``end``, in seconds since 1970; without an end it goes on."""

    name: str
    kind: str
    run: str
    start: float
    end: float | None = None
    state: str = "running"
    attempts: int = 1
    child: str = ""  # the run whose bars say what this one did
    note: str = ""
    instance: str | None = None
    is_critical: bool = False

    def may_precede(self, other: Bar) -> bool:
        """False for two instances: neither waits for the other."""
        return self.instance is None or other.instance is None or self.instance == other.instance


def read_bars(events: Iterable[RunEvent], now: float = 0.0) -> list[Bar]:
    """The bars of a tree of runs, in the order in which they begin, from its events in their order. What has no end yet
    lasts until ``now``, seconds since 1970, and at least until the last event.
    """
    bars: list[Bar] = []
    open_: dict[tuple[object, ...], Bar] = {}
    last = 0.0
    for event in events:
        last = at = datetime.fromisoformat(event.time).timestamp()
        kind = _KINDS.get(event.type, "")
        key = (kind, event.run, event.call, event.instance, event.tick if kind == "tickStarted" else None)
        if event.type in _ENDS:
            state = "awaiting" if kind == "waitOpened" else "running"
            bar = open_[key] = Bar(_name(event), kind, event.run, at, state=state)
            bar.child, bar.instance = str(event.data.get("child") or ""), event.instance
            bars.append(bar)
        elif kind and (bar_ := open_.pop(key, None)) is not None:
            error = event.data.get("error")
            bar_.end, bar_.attempts = at, int(event.data.get("attempts") or 1)
            bar_.state = str(event.data.get("state") or ("failed" if error else "completed"))
            bar_.note = str(error.get("message") or "") if isinstance(error, dict) else ""
    _mark_critical(bars, max(last, now))
    return bars


def _name(event: RunEvent) -> str:
    name = event.call or (f"tick {event.tick}" if event.tick else str(event.data.get("what") or ""))
    name += f" [{event.instance}]" if event.instance else ""
    return f"{name} waits" if event.type == "waitOpened" else name


def _mark_critical(bars: Sequence[Bar], last: float) -> None:
    runs = {bar.run for bar in bars}
    for bar in bars:
        bar.child = bar.child if bar.child in runs else ""
    ends = [(last if bar.end is None else bar.end, bar.start, at) for at, bar in enumerate(bars) if not bar.child]
    after: Bar | None = None
    for end, _, at in sorted(ends, reverse=True):  # the latest end first: one pass finds the whole way
        if after is None or (end <= after.start and bars[at].may_precede(after)):
            after, bars[at].is_critical = bars[at], True


def gantt_svg(events: Iterable[RunEvent], now: float = 0.0) -> str:
    """The bars of a tree of runs as an SVG, from all of its events in their order; ``now``: see ``read_bars``."""
    bars = read_bars(events, now)
    drawn = bars[:MAX_BARS]
    first = min((bar.start for bar in bars), default=0.0)
    last = max((max(bar.start, now if bar.end is None else bar.end) for bar in bars), default=0.0)
    span = max(last - first, 0.001)
    height = _ROW * (len(drawn) + 1) + 2 * _MARGIN
    parts = [_scale(at / _TICKS, span, height) for at in range(_TICKS + 1)]
    parts += [_bar(bar, row, first, last, span) for row, bar in enumerate(drawn, 1)]
    notes = [f"{len(bars) - len(drawn):,} later ones are not drawn"] if len(bars) > len(drawn) else []
    notes += [] if bars else ["nothing has started"]
    parts += [write(_MARGIN, height + _ROW / 2, note) for note in notes]
    size = height + _ROW * len(notes)
    return svg_picture(_NAMES + _BARS + 2 * _MARGIN + 50, size, f"{len(bars):,} steps in {_duration(span)}", parts)


def _scale(part: float, span: float, height: float) -> str:
    x = _NAMES + _MARGIN + part * _BARS
    line = f'<path d="M{x:g} {_ROW + 2}V{height - _MARGIN:g}" stroke="currentColor" stroke-opacity=".15"/>'
    return line + write(x, _ROW - 4, _duration(part * span), size=0.68, more=' text-anchor="middle"')


def _bar(bar: Bar, row: int, first: float, last: float, span: float) -> str:
    end = max(last if bar.end is None else bar.end, bar.start)
    x, width = _NAMES + _MARGIN + (bar.start - first) / span * _BARS, max((end - bar.start) / span * _BARS, 2)
    y, color, mark = _MARGIN + row * _ROW, state_color(bar.state), STATE_MARKS.get(bar.state, UNKNOWN_MARK)
    color = state_color("awaiting") if bar.kind == "waitOpened" else color
    facts = [_duration(end - bar.start), f"{bar.attempts} attempts" if bar.attempts > 1 else "",
             "critical" if bar.is_critical else ""]  # fmt: skip
    title = "&#10;".join(map(svg_text, filter(None, (bar.name, bar.run, bar.state, *facts, bar.note))))
    tries = f" ×{bar.attempts}" if bar.attempts > 1 else ""
    weight = 2.5 if bar.is_critical else 1
    after = min(x + width + 4, _NAMES + _BARS + 2 * _MARGIN)
    return (
        f'<g data-state="{svg_text(bar.state)}"><title>{title}</title>'
        f"{write(_MARGIN, y + 13, f'{mark} {svg_text(bar.name, _NAME_UNITS)}', size=0.75)}"
        f'<rect x="{x:.2f}" y="{y + 2}" width="{width:.2f}" height="{_ROW - 6}" rx="2" stroke="{color}" '
        f'stroke-width="{weight}" fill="{color}" fill-opacity="{0 if bar.child else 0.35}"/>'
        f"{write(after, y + 13, svg_text(facts[0] + tries), size=0.65)}</g>"
    )


def _duration(seconds: float) -> str:
    """``120 ms``, ``1.2 s``, ``3.5 h``"""
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
