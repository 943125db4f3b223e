"""``acts list``: the runs of the namespace, a line each, newest first."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rich.live import Live
from rich.text import Text

from acts.views.state_marks import STATE_MARKS
from cli.command_errors import EXIT_DONE
from cli.console import clean, console, line_console, print_err, print_json
from cli.render.tables import STATE_STYLES, new_table
from cli.runs import server
from cli.runs.run_list import RunFilters, list_runs

if TYPE_CHECKING:
    from rich.table import Table
    from temporalio.client import Client

# Between two looks at the server with --watch
WATCH_SECONDS: Final = 2.0
_MAX_ID: Final = 80
_MAX_TOOLS: Final = 4
# The columns that a narrow terminal does without, in this order: an id that is broken in two cannot be copied
_DISPENSABLE: Final = ("tools", "cost", "type", "took", "started", "waits")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


@dataclass(frozen=True)
class ListOptions:
    """Which runs to list, and how."""

    filters: RunFilters = field(default_factory=RunFilters)
    limit: int = 50
    as_json: bool = False
    watch: bool = False


async def list_command(options: ListOptions) -> int:
    """List runs; with ``watch`` until Ctrl-C."""
    client = await server.connect()
    if options.watch and not options.as_json and console().is_terminal:
        await _watch(client, options)
        return EXIT_DONE
    rows = await _read(client, options)
    if options.as_json:
        print_json(rows)
        return EXIT_DONE
    if not rows:
        print_err("no runs")
        return EXIT_DONE
    screen = line_console()
    screen.print(_table(rows, screen.width))
    if len(rows) == options.limit:
        print_err(f"the newest {options.limit:,}; --limit lists more", "dim")
    return EXIT_DONE


async def _read(client: Client, options: ListOptions) -> list[dict[str, Any]]:
    return [row async for row in list_runs(client, options.filters, options.limit)]


async def _watch(client: Client, options: ListOptions) -> None:
    with Live(console=console(), auto_refresh=False) as live:
        while True:
            rows = await _read(client, options)
            live.update(_table(rows, console().width) if rows else Text("no runs"), refresh=True)
            await asyncio.sleep(WATCH_SECONDS)


def _table(rows: list[dict[str, Any]], width: int) -> Table:
    """A line per run. Where ``width`` is too small for all columns, those that a reader misses least are left out."""
    cells = [_cells(row) for row in rows]
    widths = {title: max(len(title), *(len(row[title]) for row in cells)) for title in cells[0]}
    for title in _DISPENSABLE:
        if sum(widths.values()) + 2 * len(widths) > width:
            del widths[title]
    table = new_table("", *widths)
    for row in cells:
        style = STATE_STYLES.get(row["phase"], "")
        texts = [Text(row[title], style if title == "phase" else "") for title in widths]
        table.add_row(Text(STATE_MARKS.get(row["phase"], "·"), style), *texts)
    return table


def _cells(row: dict[str, Any]) -> dict[str, str]:
    cost = row.get("cost")
    return {
        "run": clean(row["id"], _MAX_ID),
        "type": row["workflow"],
        "phase": clean(row["phase"]),
        "waits": str(row.get("waiting") or ""),
        "started": row["started"][:19].replace("T", " "),
        "took": _took(row),
        "cost": "" if cost is None else f"{cost:.4f}",
        "tools": _tools(row.get("tools") or []),
    }


def _took(row: dict[str, Any]) -> str:
    """How long it took, or has taken until now: ``1.2 s``, ``3.5 h``."""
    end = datetime.fromisoformat(row["closed"]) if "closed" in row else datetime.now(UTC)
    seconds = (end - datetime.fromisoformat(row["started"])).total_seconds()
    for unit, name in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{max(seconds, 0.0):.1f} s"


def _tools(names: list[str]) -> str:
    more = f" +{len(names) - _MAX_TOOLS}" if len(names) > _MAX_TOOLS else ""
    return clean(", ".join(names[:_MAX_TOOLS]), 60) + more
