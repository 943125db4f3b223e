"""``Plan``: walks the plan of a Request, without a planner."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from temporalio import workflow
from temporalio.common import RawValue

from acts.language.errors import ActsError, InvalidRequest
from acts.language.request_reader import read_request
from acts.language.wire import PLAN
from acts.machines.plan_run import PlanRun
from acts.machines.plan_setup import PlanSetup
from acts.plan.validate import set_refusal, validate_parsed
from acts.tree.identity import call_identity
from acts.tree.records import InstanceInput, PlanInput, PlanState, TreePosition
from acts.views.run_views import PlanView, forecast_plan
from workflows.runtime import results
from workflows.runtime.handlers import RunWorkflow
from workflows.runtime.model_calls import own_context
from workflows.runtime.past_runs import add_past
from workflows.runtime.payload_limits import decide_storage, max_payload_bytes, share_storage
from workflows.runtime.payloads import NOTHING, decode_record, decode_request, record_type
from workflows.runtime.provided import data_message
from workflows.runtime.set_walk import starts_set, walk_set
from workflows.runtime.startup import complete_position, prepare_request

if TYPE_CHECKING:
    from acts.machines.past_calls import PastCalls
    from acts.plan.planned_call import PlannedCall
    from acts.simulation.billable_actions import ActionCount
    from acts.tree.records import Capabilities

# Errors of the SDK's own decoding of arguments fail the run. Not Exception: that would let a
# nondeterminism error, which a corrected worker heals, kill runs.
FATAL: Final = (ActsError, TypeError, ValueError, KeyError, RuntimeError)


@workflow.defn(name=PLAN, failure_exception_types=FATAL)
class PlanWorkflow(RunWorkflow):
    """Walks one plan."""

    @workflow.run
    async def run(self, request: RawValue = NOTHING) -> RawValue:
        """``request`` is the Request, what a run above sends, or the state of the run before."""
        return await self.guarded(self._run(request), request)

    async def _run(self, value: RawValue) -> RawValue:
        if starts_set(value):
            return await walk_set(self, value)
        run, view, actions = await walk_plan(self, value, PlanInput)
        finish = results.plan_result if run.setup.input is None else results.part_result
        return finish(run, view, actions)


async def walk_plan(
    owner: RunWorkflow, value: RawValue, input_type: type[PlanInput]
) -> tuple[PlanRun, PlanView, ActionCount]:
    """Walk what a run was started with, or go on from its state; returns the run, its view and its actions."""
    state = decode_record(value, PlanState) if record_type(value) == PlanState.__name__ else None
    setup = await plan_setup(value, state, input_type)
    info = workflow.info()
    run = PlanRun(info.workflow_id, setup, partial(identify, setup.position.identity, setup.past), forecast_plan)
    if state is not None:
        run.restore(state, data_message)
    view = PlanView(run)

    def carry(actions: dict[str, int]) -> PlanState:
        return PlanState(**run.common_snapshot(), **run.snapshot_fields(), actions=actions)

    try:
        actions = await owner.drive(run, view, carry, {} if state is None else state.actions)
    except asyncio.CancelledError:
        if setup.input is not None:
            await owner.report_cancelled(results.cancelled_report(run, view))
        raise
    return run, view, actions


async def plan_setup(value: RawValue, state: PlanState | None, input_type: type[PlanInput]) -> PlanSetup:
    """What the run knows before it begins.

    Raises:
        InvalidRequest: with every problem of the Request. RecordError: it was started with something else.
    """
    own: PlanInput | None = None
    capabilities: Capabilities | None = None
    position: TreePosition | None = None
    if state is not None:
        type_ = InstanceInput if state.input is not None and "instances" in state.input else PlanInput
        own = None if state.input is None else type_.from_json(state.input)
        raw, capabilities, position = state.request, state.capabilities, state.position
    elif record_type(value) == input_type.__name__ or input_type is not PlanInput:
        own = decode_record(value, input_type)
        raw, capabilities = own.request, own.capabilities
    else:
        decide_storage()
        raw = decode_request(value)
    if position is None:
        position = await complete_position(own.position if own is not None else TreePosition(), value)
    position = share_storage(position)
    if capabilities is None:
        raw, parsed, capabilities = await prepare_request(raw, position)
    else:
        parsed = read_request(raw)
    places = own.places if isinstance(own, InstanceInput) else None
    is_growing = state.walk.get("growing", False) if state is not None else own is not None and own.isGrowing
    if refusal := set_refusal(parsed, "a plan inside another run"):
        raise InvalidRequest(refusal)
    prepared = validate_parsed(parsed, capabilities.tools, capabilities.served, places, is_complete=not is_growing)
    source = own.context if own is not None else None
    lease = state.lease if state is not None else own.lease if own is not None else None
    if state is None or state.position is None:
        position = position.with_budget(workflow.info().workflow_id, parsed.config.budget)
        position = position.with_limit(parsed.config.maxParallel, lease)
    source = source or own_context(len(parsed.context))
    setup = PlanSetup(raw, prepared, capabilities, position, source, own, lease, max_payload_bytes())
    return await add_past(setup, state)


def identify(identity: str, past: PastCalls | None, node: PlannedCall) -> str:
    """The ``_id`` of a Call of the run that has this identity: the one that it had in the run that this one resumes,
    or its own.
    """
    own = None if past is None else past.identify(node)
    return own or call_identity(identity, node.instance, node.id)
