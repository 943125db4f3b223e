"""What a run over a set does before its first Batch: it surveys the file, and creates the results file.

The activities and their arguments, by the keys that their events have. Nothing of the run changes here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acts.language.errors import truncate
from acts.language.wire import CREATE_RESULTS, SURVEY_SET
from acts.machines.past_sets import past_query
from acts.machines.run_commands import StartSetActivity

if TYPE_CHECKING:
    from acts.machines.set_run import SetRun

SURVEY: Final = "survey"
RESULTS: Final = "results"


def survey_set(run: SetRun) -> StartSetActivity:
    """Count the rows of the set and find its pages."""
    message = run.setup.message
    past = past_query(run.setup.resumed)
    argument = {"source": message.source, "id": message.id_field, **past, **run.address()}
    return StartSetActivity(SURVEY, SURVEY_SET, argument, f"survey {truncate(message.source, 150)}")


def create_results(run: SetRun, file: str) -> StartSetActivity:
    """Create the results file, which belongs to this run from then on."""
    argument = {"file": file, "run": run.position.identity, **run.address()}
    return StartSetActivity(RESULTS, CREATE_RESULTS, argument, f"create {truncate(file, 150)}")
