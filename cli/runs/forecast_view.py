"""A finished run beside its forecast: what was expected of it, and what it came to.

Laws of this file:
- a run that was proposed to a person says so itself, in its result: that is what is shown;
- of any other plan the forecast is made again from the input of the run, so it is that of the
  plan as it was started: an edit, or what was provided, is not in it;
- what a figure cannot be told of is left out, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import InvalidRequest
from acts.language.values import Json
from acts.language.wire import PLAN
from acts.simulation.forecast_vs_actual import actual_figures, compare, expected_ranges
from cli.command_errors import CommandError
from cli.console import clean, console
from cli.runs.billed_actions import count_actions
from cli.runs.queries import request_of
from cli.text.preflight import judge

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription

MAX_CALLS: Final = 500  # up to 64 combinations of so many Calls take some seconds; `acts simulate` has more patience
OWN: Final = "forecast of what was proposed"
MADE_AGAIN: Final = "forecast of the plan as it was started"


def own(result: Json) -> dict[str, Any] | None:
    """Forecast and actual as a result has them, or None."""
    found = result.get("forecast") if isinstance(result, dict) else None
    return found if isinstance(found, dict) else None


async def side_by_side(client: Client, found: WorkflowExecutionDescription, result: Json) -> dict[str, Any] | None:
    """Forecast and actual of a finished run, or None where one of them is not to be had."""
    told = own(result)
    if told is not None:
        return told
    if found.workflow_type != PLAN or not isinstance(result, dict) or not isinstance(result.get("calls"), list):
        return None
    forecast = _forecast(await request_of(client, found))
    if forecast is None:
        return None
    expected, actions = expected_ranges(forecast), None
    if expected["actions"] is not None:
        first_run_id = found.raw_description.workflow_execution_info.first_run_id or found.run_id
        actions = await count_actions(client, found.id, first_run_id)
    return compare(expected, actual_figures(result, actions))


def _forecast(request: Json) -> dict[str, Any] | None:
    from acts.simulation.simulate import simulate

    try:
        verdict = judge(request, agent=False)
        if verdict.errors or verdict.calls > MAX_CALLS or any(p.code == "unseenTool" for p in verdict.problems):
            return None
        return simulate(request, verdict.tools, verdict.served)
    except (InvalidRequest, CommandError):
        return None


def print_forecast(table: Mapping[str, Any] | None, title: str) -> None:
    """The rows that say something, on stdout."""
    from rich.table import Table
    from rich.text import Text

    if table is None:
        return
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("", "expected", "actual"):
        shown.add_column(head, justify="left" if not head else "right")
    for name, row in table.items():
        expected, actual = row["expected"], row["actual"]
        if expected is not None and actual is not None and (expected["max"] or actual):
            shown.add_row(Text(clean(name)), _span(expected), f"{actual:,}")
    if shown.row_count:
        console().print(f"\n{title}", style="bold")
        console().print(shown)


def _span(found: Mapping[str, int]) -> str:
    low, high = found["min"], found["max"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
