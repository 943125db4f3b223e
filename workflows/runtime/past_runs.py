"""Reads what an earlier run had done, by an activity: so it is in the history of the run that resumes it, once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from acts.language.errors import InvalidRequest, Problem, truncate
from acts.language.request_reader import read_request
from acts.language.wire import PAST_RUN
from acts.machines.past_sets import refuse_set
from acts.machines.past_setup import keep_failed_instances, past_of_child, past_of_root, past_of_state
from acts.plan.validate import validate_parsed
from acts.tree.past_run import PastRun
from acts.tree.records import InstanceInput
from workflows.runtime.model_calls import own_context

if TYPE_CHECKING:
    from acts.language.config import Config
    from acts.machines.plan_setup import PlanSetup
    from acts.tree.past_run import PastSource
    from acts.tree.records import PlanState

# A worker replays the earlier run: 50,000 events, the most that a run may have, take about a minute
READ_SECONDS: Final = 300.0
# The activity reports twice a second while it reads; a worker that died is missed after this long
READ_HEARTBEAT_SECONDS: Final = 20.0
READ_ATTEMPTS: Final = 5


async def add_past(setup: PlanSetup, state: PlanState | None) -> PlanSetup:
    """What a run knows before it begins, with what an earlier run had done, if it resumes one.

    ``state`` is what the run before carried over; it has read that already.

    Raises:
        InvalidRequest: ``config.resume`` does not fit the plan, or the earlier run.
    """
    own, resume = setup.input, setup.prepared.request.config.resume
    if state is not None:
        past = None if state.past is None else past_of_state(state.past, setup.prepared, setup.instances)
        return replace(setup, past=past)
    if isinstance(own, InstanceInput):
        if own.resume is None:
            return setup
        return replace(setup, past=past_of_child(own.resume, await _past_of_source(own.resume), setup.prepared))
    if own is not None or resume is None:
        return setup
    past_run = await read_past(resume.workflowId, resume.runId)
    refuse_set(past_run)
    if resume.only is not None:
        raw = keep_failed_instances(setup.raw, past_run)
        parsed, known = read_request(raw), setup.capabilities
        prepared = validate_parsed(parsed, known.tools, known.served)
        setup = replace(setup, raw=raw, prepared=prepared, source=own_context(len(parsed.context)))
    return replace(setup, past=past_of_root(resume, past_run, setup.prepared))


def refuse_resume(config: Config) -> None:
    """Refuse ``config.resume`` where a model plans, or in a definition.

    Raises:
        InvalidRequest: it is set.
    """
    if config.resume is not None:
        text = "an agent cannot resume another run, and neither can a delegate: only a Plan that a person starts can"
        hint = "resume the plan of one of the agent's ticks as a Plan, or reset the agent: docs/repair.md"
        raise InvalidRequest([Problem("invalidSetting", text, "/config/resume", hint=hint)])


async def read_past(workflow_id: str, run_id: str | None) -> PastRun:
    """What an earlier run had done. Its Calls may take several pages.

    Raises:
        ApplicationError: it is no run that can be resumed; the message says why.
    """
    query: dict[str, Any] = {"workflowId": workflow_id, **({} if run_id is None else {"runId": run_id})}
    first = last = await _read_page(query)
    calls, instances = list(first.calls), list(first.instances)
    while last.next is not None:
        # The rest of what was read first: the run may have gone on since
        last = await _read_page({**query, "runId": first.runId, "events": first.events, "offset": last.next})
        calls += last.calls
        instances += last.instances
    return first.model_copy(update={"calls": tuple(calls), "instances": tuple(instances), "next": None})


async def _past_of_source(source: PastSource) -> tuple[PastRun, ...]:
    """What the runs had done that walked these instances."""
    out: list[PastRun] = []
    for workflow_id, run_id in source.runs:
        past = await read_past(workflow_id, run_id)
        calls = tuple(call for call in past.calls if call.instance is None or call.instance in source.instances)
        out.append(past.model_copy(update={"calls": calls}))
    return tuple(out)


async def _read_page(query: dict[str, Any]) -> PastRun:
    try:
        answer: dict[str, Any] = await workflow.execute_activity(
            PAST_RUN, query, result_type=dict, start_to_close_timeout=timedelta(seconds=READ_SECONDS),
            heartbeat_timeout=timedelta(seconds=READ_HEARTBEAT_SECONDS),
            retry_policy=RetryPolicy(maximum_attempts=READ_ATTEMPTS),
            summary=f"what {truncate(query['workflowId'], 100)} had done",
        )  # fmt: skip
    except ActivityError as error:
        cause = error.__cause__
        if is_cancelled_exception(error) or not isinstance(cause, ApplicationError):
            raise
        raise ApplicationError(cause.message, type=cause.type, non_retryable=True) from None
    return PastRun.from_json(answer)
