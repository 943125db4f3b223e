"""The forecast of a finished run beside its actual figures.

Laws of this file:
- a run that a person approved has both in its result;
- for any other plan the forecast is computed again from the run's input: edits and provided messages are not in it;
- a figure that is unknown is left out, never guessed.
"""

from __future__ import annotations

from typing import Any, Final

from acts.language.errors import InvalidRequest
from acts.language.values import Json
from acts.language.wire import PLAN
from acts.simulation.forecast_vs_actual import actual_figures, compare, expected_ranges
from cli.command_errors import CommandError
from cli.runs.billed_actions import count_actions
from cli.runs.run_reader import RunReader
from cli.text.preflight import UNSEEN_TOOL, run_preflight

MAX_CALLS: Final = (
    500  # up to 64 combinations of outcomes of so many Calls take some seconds; `acts simulate` may take more
)
PROPOSED: Final = "forecast of what was proposed"
STARTED: Final = "forecast of the plan as it was started"


def forecast_in_result(result: Json) -> dict[str, Any] | None:
    """The forecast in a result: ``{figure: {expected: {min, max}, actual}}``, or None."""
    table = result.get("forecast") if isinstance(result, dict) else None
    return table if isinstance(table, dict) else None


async def read_forecast(run: RunReader) -> tuple[str, dict[str, Any] | None]:
    """The title and the table of a finished run's forecast; the table is None if it cannot be known."""
    result = await run.result()
    table = forecast_in_result(result)
    if table is not None:
        return PROPOSED, table
    description = await run.describe()
    if description.workflow_type != PLAN or not isinstance(result.get("calls"), list):
        return STARTED, None
    simulation = _simulate(await run.request())
    if simulation is None:
        return STARTED, None
    expected, actions = expected_ranges(simulation), None
    if expected["actions"] is not None:
        first_run_id = description.raw_description.workflow_execution_info.first_run_id or description.run_id
        actions = await count_actions(run.client, description.id, first_run_id)
    seconds = (description.close_time - description.start_time).total_seconds() if description.close_time else None
    return STARTED, compare(expected, actual_figures(result, actions, seconds and round(seconds, 3)))


def _simulate(request: Json) -> dict[str, Any] | None:
    from acts.simulation.simulate import simulate

    try:
        preflight = run_preflight(request, agent=False)
        if preflight.errors or preflight.calls > MAX_CALLS or any(p.code == UNSEEN_TOOL for p in preflight.problems):
            return None
        return simulate(request, preflight.tools, preflight.served)
    except (InvalidRequest, CommandError):
        return None
