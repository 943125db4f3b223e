"""A run over a set that resumes another one: what it reads of that one, and what the next one reads of it.

Laws of this file: what rows have come to is in results files, or in histories of runs without one, which only an
activity reads. Here is which those are, and the identity that the ``_id``s of the rows derive from; a row that runs
again has the ``_id``s that it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.errors import InvalidRequest, Problem
from acts.tree.past_run import PastHistory, PastResults, PastRow, PastRun, PastSet
from acts.tree.set_records import ResumedSet

if TYPE_CHECKING:
    from acts.language.config import Resume
    from acts.language.messages import SetData
    from acts.machines.set_run import SetRun


def resumed_set(resume: Resume, past: PastRun, message: SetData) -> ResumedSet:
    """What a run over a set takes over from an earlier one.

    Raises:
        InvalidRequest: that one is over no set, or its rows have other ids.
    """
    earlier, name = past.set, past.workflowId
    if earlier is None and past.prompt:
        raise _refusal(f"{name} was not a run over a set, and this request names one", "resume it without the set")
    if earlier is None:
        text = f"{name} ended before it began, so it says nothing of its rows"
        raise _refusal(text, "name the run that it was to resume, or start the plan without config.resume")
    if earlier.id != message.id_field:
        own, other = (
            f'the field "{id_}"' if id_ else "the number of the row" for id_ in (message.id_field, earlier.id)
        )
        raise _refusal(f"the id of a row is {own} here, and was {other} in {name}", "rows are recognised by their ids")
    source: dict[str, Any] = {"workflowId": name, "runId": past.runId, "keep": "completed"}
    source["ids"] = "same" if resume.keeps_ids else "new"
    source |= {"only": resume.only} if resume.only is not None else {}
    return ResumedSet(source=source, results=earlier.results, identity=earlier.identity if resume.keeps_ids else None)


def refuse_set(past: PastRun) -> None:
    """Refuse a run over a set for a plan that is over none.

    Raises:
        InvalidRequest: it is one.
    """
    if past.set is not None:
        text = f"{past.workflowId} is a run over a set, and this request names none"
        raise _refusal(text, "name its set (_instances), as that run did")


def _refusal(text: str, hint: str) -> InvalidRequest:
    return InvalidRequest([Problem("invalidSetting", text, "/config/resume", hint=hint)])


def past_query(resumed: ResumedSet | None) -> dict[str, Any]:
    """What the survey is asked besides: ``{past: {run, results, only?}}``. ``run`` is for people."""
    if resumed is None:
        return {}
    query: dict[str, Any] = {"run": resumed.source["workflowId"], "results": [r.to_json() for r in resumed.results]}
    only = resumed.source.get("only")
    return {"past": query if only is None else {**query, "only": only}}


def read_set_facts(run: SetRun, run_id: str, events: int) -> PastRun:
    """What a run that resumes this one has to know. ``run_id`` is that of the run, ``events`` what was read of it."""
    resumed, progress = run.setup.resumed, run.progress
    results = () if resumed is None else resumed.results
    identity = run.position.identity if resumed is None else resumed.identity or run.position.identity
    if run.config.results is None and progress.survey is not None:
        results = (*results, PastHistory(workflowId=run.own, runId=run_id))
    elif run.config.results is not None and run.has_results:
        results = (*results, PastResults(file=run.config.results, run=run.position.identity))
    rows = tuple(PastRow(id=id_, status=status, isLine=is_line) for id_, status, is_line in progress.rows)
    facts = PastSet(identity=identity, id=run.setup.message.id_field, results=results, rows=rows)
    return PastRun(workflowId=run.own, runId=run_id, events=events, provided=tuple(run.provided), set=facts)


def report_resumed(run: SetRun) -> dict[str, Any]:
    """``{workflowId, runId, keep, ids, only?, instances?}``: how many rows were taken over, or left out by ``only``."""
    if run.setup.resumed is None:
        return {}
    progress, out = run.progress, dict(run.setup.resumed.source)
    if progress.survey is not None:
        out["instances"] = {"takenOver": progress.taken_over}
        if "only" in out:
            out["instances"]["leftOut"] = progress.left_out
    return {"resumedFrom": out}
