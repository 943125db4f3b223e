"""Walks a plan over a set: what a ``Plan`` does whose Request names a file of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from temporalio import workflow

from acts.language.messages import INSTANCES
from acts.language.request_reader import read_request
from acts.language.wire import MAX_PAYLOAD_BYTES
from acts.machines.past_sets import resumed_set
from acts.machines.set_run import SetRun
from acts.machines.set_setup import SetSetup
from acts.plan.validate import validate_parsed
from acts.tree.records import TreePosition
from acts.tree.set_records import SetState
from acts.views.set_view import SetView
from workflows.runtime import results
from workflows.runtime.past_runs import read_past
from workflows.runtime.payload_limits import decide_storage, share_storage
from workflows.runtime.payloads import decode_or_none, decode_record, decode_request, record_type
from workflows.runtime.startup import complete_position, prepare_request

if TYPE_CHECKING:
    from temporalio.common import RawValue

    from workflows.runtime.handlers import RunWorkflow


def starts_set(value: RawValue) -> bool:
    """True for a Request of a person that names a set, and for the state of a run over one."""
    kind = record_type(value)
    if kind == SetState.__name__:
        return True
    if kind or INSTANCES.encode() not in value.payload.data or len(value.payload.data) > MAX_PAYLOAD_BYTES:
        return False
    request = decode_or_none(value)
    context = request.get("context") if isinstance(request, dict) else None
    return isinstance(context, list) and any(isinstance(m, dict) and INSTANCES in m for m in context)


async def walk_set(owner: RunWorkflow, value: RawValue) -> RawValue:
    """Walk the plan for each row, or go on from the state of the run before; returns the result."""
    state = decode_record(value, SetState) if record_type(value) == SetState.__name__ else None
    run = SetRun(
        workflow.info().workflow_id, await _setup(value, state), is_cron=workflow.info().cron_schedule is not None
    )
    if state is not None:
        run.restore(state)
    view = SetView(run)

    def carry(actions: dict[str, int]) -> SetState:
        return SetState(**run.common_snapshot(), **run.snapshot_fields(), actions=actions)

    await owner.drive(run, view, carry, {} if state is None else state.actions)
    return results.set_result(run, view)


async def _setup(value: RawValue, state: SetState | None) -> SetSetup:
    """What the run knows before it begins.

    Raises:
        InvalidRequest: with every problem of the Request. ApplicationError: the run that it names cannot be resumed.
    """
    if state is not None:
        raw, capabilities, position = state.request, state.capabilities, share_storage(state.position)
        parsed = read_request(raw)
    else:
        decide_storage()
        position = await complete_position(TreePosition(), value)
        raw, parsed, capabilities = await prepare_request(decode_request(value), position)
    prepared = validate_parsed(parsed, capabilities.tools, capabilities.served)
    if parsed.set is None:
        raise AssertionError("a set without its message")
    lease = None if state is None else state.lease
    if state is None:
        position = position.with_budget(workflow.info().workflow_id, parsed.config.budget)
        position = position.with_limit(parsed.config.maxParallel, None)
    setup = SetSetup(raw, prepared, parsed.set, capabilities, position, lease)
    if state is not None:
        return replace(setup, resumed=state.resumed)
    resume = parsed.config.resume
    if resume is None:
        return setup
    past = await read_past(resume.workflowId, resume.runId)
    return replace(setup, resumed=resumed_set(resume, past, parsed.set), provided=past.provided)
