"""A simulation and forecasts as text: what a plan would do, and what its run is expected to take.

Laws of this file:
- the figures of a forecast are those of its table, whatever they are; none is known here but for its label;
- everything shown is clean text, cut to what a person reads: ``--json`` has all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from acts.simulation.forecast_vs_actual import FIGURES
from cli.console import clean, console
from cli.render.tables import MAX_ROWS, call_name, new_table

MAX_COMBINATIONS: Final = 16
MAX_NAMES: Final = 20  # in one line
MAX_PATH: Final = 40  # calls of the critical path
_LABELS: Final = {"requests": "model requests", "cost": "USD", "seconds": "s without waits for people"}
_EXACT: Final = ("calls", "requests")
_STYLES: Final = {"skipped": "dim", "failed": "red"}


def print_simulation(simulation: Mapping[str, Any]) -> None:
    """Print what ``simulate`` returns."""
    screen = console()
    screen.print("waves", style="bold")
    for number, wave in enumerate(simulation["waves"], 1):
        screen.print(f"  {number}  {_names(wave)}")
    screen.print("critical path", style="bold")
    screen.print("  " + " → ".join(clean(c) for c in simulation["criticalPath"][:MAX_PATH]))
    screen.print("calls", style="bold")
    screen.print(_calls_table(simulation["calls"]))
    if simulation["outside"]:
        screen.print("may change something outside", style="bold")
        screen.print(f"  {_names(simulation['outside'])}")
    _print_outcomes(simulation["outcomes"])
    screen.print("forecast", style="bold")
    screen.print("  " + ", ".join(_forecast_parts(simulation)))


def _names(names: Sequence[str]) -> str:
    more = f", … ({len(names)} in all)" if len(names) > MAX_NAMES else ""
    return ", ".join(clean(n) for n in names[:MAX_NAMES]) + more


def _calls_table(calls: Sequence[Mapping[str, Any]]) -> Any:
    table = new_table("call", "how", "reads", "writes", pad_edge=True, padding=(0, 1, 0, 2))
    for call in calls[:MAX_ROWS]:
        target = call.get("activity") or call.get("delegate")
        how = f"{call['how']} {target}" if target and target != call["tool"] else str(call["how"])
        how += f" on {call['taskQueue']}" if call.get("taskQueue") else ""
        how += ", in the background" if call.get("background") else ""
        how += ", after approval" if call.get("approval") else ""
        how += f" ({', '.join(call['hints'])})" if call.get("hints") else ""
        reads = ", ".join([*call["reads"], *(f"{s} (scope)" for s in call["scopes"])])
        table.add_row(*(Text(clean(t, 300)) for t in (call_name(call), how, reads, ", ".join(call["writes"]))))
    if len(calls) > MAX_ROWS:
        table.add_row(Text(f"… and {len(calls) - MAX_ROWS} more; --json lists all"))
    return table


def _print_outcomes(outcomes: Mapping[str, Any]) -> None:
    combinations = [c for c in outcomes["combinations"] if c["choices"]]
    if not combinations:
        return
    screen = console()
    screen.print("outcomes", style="bold")
    for item in combinations[:MAX_COMBINATIONS]:
        screen.print("  if " + ", ".join(clean(f"{call} → {path}") for call, path in item["choices"].items()))
        for key in ("run", "skipped", "failed", "waiting"):
            if item.get(key):
                screen.print(f"    {key.ljust(8)} {_names(item[key])}", style=_STYLES.get(key))
    if len(combinations) > MAX_COMBINATIONS or outcomes["truncated"]:
        screen.print("  … and more; --json lists up to 64", style="dim")


def _forecast_parts(simulation: Mapping[str, Any]) -> Iterator[str]:
    unbounded = simulation["unforeseen"]
    for name in FIGURES:
        span = simulation.get(name)
        if isinstance(span, dict) and (span["max"] or name == "requests"):
            yield _figure_text(name, span, unbounded=name in unbounded)
    if simulation["requests"]["max"] and simulation.get("cost") is None:
        yield "cost unknown"
    if simulation.get("withoutDuration"):
        yield f"the duration of {_names(simulation['withoutDuration'])} is unknown"
    delegates = simulation["delegates"]
    if delegates["max"]:
        yield f"{format_range(delegates)} delegates, whose requests are not counted"
    if "each" in simulation:
        each = [_figure_text(name, span) for name, span in simulation["each"].items()]
        yield f"{' and '.join(each)} in each of {simulation['runs']:,} children"
    elif "runs" in simulation:
        yield f"and what {simulation['runs']:,} children take"


def _figure_text(name: str, span: Mapping[str, float], *, unbounded: bool = False) -> str:
    """``about 7 to 9 tokens``; ``at least 3 model requests`` if delegates or children add to it."""
    label = _LABELS.get(name, name)
    if unbounded:
        return f"at least {span['min']:,} {label}"
    return f"{'' if name in _EXACT else 'about '}{format_range(span)} {label}"


def format_range(span: Mapping[str, float]) -> str:
    """``3``, or ``3 to 5``."""
    low, high = span["min"], span["max"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def print_forecast(title: str, table: Mapping[str, Any] | None) -> None:
    """Print a forecast beside the actual figures: the rows in which both are known and one is not 0."""
    rows = new_table("", "expected", "actual")
    for column in rows.columns[1:]:
        column.justify = "right"
    for name, row in (table or {}).items():
        expected, actual = row["expected"], row["actual"]
        if expected is not None and actual is not None and (expected["max"] or actual):
            rows.add_row(Text(clean(name)), format_range(expected), f"{actual:,}")
    if rows.row_count:
        console().print(f"\n{title}", style="bold")
        console().print(rows)
