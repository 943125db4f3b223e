"""A plan drawn wave by wave for a terminal.

Laws of this file:
- it lays out what ``acts.views.plan_drawing.draw_waves`` returns, from here or from a worker;
- a line fits the terminal, wide characters included, and holds nothing that a terminal obeys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from acts.views.plan_drawing import MAX_EDGES, mixed_states, worst_state
from acts.views.state_marks import STATE_MARKS, UNKNOWN_MARK
from cli.console import clean, count_text

MIN_COLUMNS: Final = 20
MAX_COLUMNS: Final = 500


def render_plan(drawing: Mapping[str, Any], columns: int) -> str:
    """The drawing for a terminal of so many columns."""
    columns = min(max(columns, MIN_COLUMNS), MAX_COLUMNS)
    return "\n".join(_fit(line, columns) for line in _lines(drawing, columns))


def _lines(drawing: Mapping[str, Any], columns: int) -> Iterator[str]:
    waves = drawing["waves"]
    head = f"{count_text(drawing['calls'], 'call')} in {count_text(drawing['waveCount'], 'wave')}"
    yield head + (f", for each of {drawing['instances']:,} instances" if "instances" in drawing else "")
    for number, wave in enumerate(waves):
        title = f"{'├' if number else '┌'}─ {number + 1} "
        yield title + "─" * (columns - len(title))
        yield from map(_call_line, wave["first"])
        if (more := wave["calls"] - len(wave["first"])) > 0:
            yield f"│   and {count_text(more, 'more call')}"
    if (more := drawing["waveCount"] - len(waves)) > 0:
        calls = drawing["calls"] - sum(wave["calls"] for wave in waves)
        yield f"├─ and {count_text(more, 'more wave')} with {count_text(calls, 'call')}"
    if waves:
        yield "└" + "─" * (columns - 1)
    if drawing["moreReads"]:
        yield f"only the first {MAX_EDGES:,} reads are shown"


def _call_line(call: Mapping[str, Any]) -> str:
    states = call.get("states")
    mark = "•" if states is None else STATE_MARKS.get(worst_state(states), UNKNOWN_MARK)
    words = [call["id"]]
    if "instance" in call:
        words.append(f"@{call['instance']}")
    if call["kind"] != "activity":
        words.append(f"[{call['kind']}]")
    if call.get("background"):
        words.append("[background]")
    words += [f"{word} {call[word]}" for word in ("each", "when") if word in call]
    if mixed := mixed_states(states or {}):
        words.append(f"[{mixed}]")
    if "writes" in call:
        words.append(f"→ {call['writes']}")
    if call["reads"]:
        more = f", … ({call['readCount']} in all)" if call["readCount"] > len(call["reads"]) else ""
        words.append(f"← {', '.join(call['reads'])}{more}")
    return f"│ {mark} {clean(' '.join(words))}"


def _fit(line: str, columns: int) -> str:
    return line if cell_len(line) <= columns else set_cell_size(line, columns - 1).rstrip() + "…"
