"""What a replayed run had done, for a run that resumes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acts.machines.past_sets import read_set_facts
from acts.machines.plan_run import PlanRun
from acts.machines.run_facts import read_facts
from acts.machines.set_run import SetRun
from acts.tree.past_run import PastRun
from workflows.runtime.handlers import RunWorkflow

if TYPE_CHECKING:
    from collections.abc import Mapping


def facts_of(run: object, workflow_id: str, run_id: str, events: int, children: Mapping[str, str]) -> PastRun | None:
    """What the run had done, of which ``run`` is the workflow object; None if it walks no plan.

    ``children`` are the runs that it had started: run id by workflow id. A run that ended before it began had done
    nothing.
    """
    if not isinstance(run, RunWorkflow):
        return None
    if run.machine is None:
        return PastRun(workflowId=workflow_id, runId=run_id, events=events)
    if isinstance(run.machine, SetRun):
        return read_set_facts(run.machine, run_id, events)
    return read_facts(run.machine, run_id, events, children) if isinstance(run.machine, PlanRun) else None
