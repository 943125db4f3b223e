"""``Agent``: asks the model, walks what it planned, and again, until an output holds.

Each tick is one request to the model (an activity) and one child, a ``Plan``. Neither gets the context: the
activity reads it by query, the child gets the part that its Calls need. So a tick leaves as much history as
there was work in it, however long the conversation.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import RawValue

from acts.language.request_reader import read_request
from acts.language.wire import AGENT
from acts.machines.agent_run import AgentRun
from acts.machines.agent_setup import AgentSetup
from acts.tree.records import AgentState, DelegateInput, TreePosition
from acts.views.run_views import AgentView, forecast_plan
from workflows.plan import FATAL
from workflows.runtime import results
from workflows.runtime.handlers import RunWorkflow
from workflows.runtime.past_runs import refuse_resume
from workflows.runtime.payload_limits import decide_storage
from workflows.runtime.payloads import NOTHING, decode_record, decode_request, record_type
from workflows.runtime.provided import data_message
from workflows.runtime.startup import complete_position, prepare_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.simulation.billable_actions import ActionCount


@workflow.defn(name=AGENT, failure_exception_types=FATAL)
class AgentWorkflow(RunWorkflow):
    """Plans and walks, tick after tick."""

    @workflow.run
    async def run(self, request: RawValue = NOTHING) -> RawValue:
        """``request`` is the Request, or the state of the run before."""
        return await self.guarded(self._run(request), request)

    async def _run(self, value: RawValue) -> RawValue:
        if record_type(value) == AgentState.__name__:
            run, view, _ = await go_on(self, value)
        else:
            decide_storage()
            raw = decode_request(value)
            run, view, _ = await plan_and_walk(self, raw, await complete_position(TreePosition(), value))
        return results.agent_result(run, view)


async def plan_and_walk(
    owner: RunWorkflow, raw: dict[str, Any], position: TreePosition, start: DelegateInput | None = None,
    more: Mapping[str, Any] | None = None,
) -> tuple[AgentRun, AgentView, ActionCount]:  # fmt: skip
    """Run an agent from its first tick; returns the run, its view and its actions.

    ``start`` is what a delegate was started with; ``more`` are fields that ``AgentState`` carries besides.
    """
    info = workflow.info()
    raw, parsed, capabilities = await prepare_request(raw, position)
    refuse_resume(parsed.config)
    grant, refusal, lease = (None, None, None) if start is None else (start.grant, start.refusal, start.lease)
    position = position.with_budget(info.workflow_id, parsed.config.budget)
    position = position.with_limit(parsed.config.maxParallel, lease)
    setup = AgentSetup(raw, parsed, capabilities, position, info.run_id, grant, refusal, lease)
    return await _drive(owner, AgentRun(info.workflow_id, setup, partial(forecast_plan, child=True)), {}, more or {})


async def go_on(owner: RunWorkflow, value: RawValue) -> tuple[AgentRun, AgentView, ActionCount]:
    """Run an agent on from where the run before left off: ``value`` is its ``AgentState``."""
    info, state = workflow.info(), decode_record(value, AgentState)
    parsed = read_request(state.request)
    position = await complete_position(state.position, value)
    setup = AgentSetup(state.request, parsed, state.capabilities, position, info.run_id, lease=state.lease)
    run = AgentRun(info.workflow_id, setup, partial(forecast_plan, child=True))
    run.restore(state, map(data_message, state.provided))
    more = {"definition": state.definition, "delegate": state.delegate}
    return await _drive(owner, run, state.actions, more)


async def _drive(
    owner: RunWorkflow, run: AgentRun, actions: dict[str, int], more: Mapping[str, Any]
) -> tuple[AgentRun, AgentView, ActionCount]:
    view = AgentView(run)

    def carry(actions: dict[str, int]) -> AgentState:
        fields = {**run.common_snapshot(), **run.snapshot_fields(), **more}
        return AgentState(**fields, actions=actions)

    return run, view, await owner.drive(run, view, carry, actions)
