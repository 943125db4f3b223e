"""``Delegate``: does one delegated Call in a clean room. An agent of its own, mostly.

It is started with a ``DelegateInput``, and with nothing else of its parent. It loads its definition by an
activity, so that the content is in this history alone. ``anonymous`` has no definition and makes one Call;
a definition whose plan says ``run`` is walked without a planner.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from acts.language.request_reader import read_request
from acts.language.wire import ANONYMOUS, DELEGATE
from acts.machines.delegate_run import AnonymousDelegate, DelegateMachine, WalkedDelegate
from acts.plan.validate import validate_parsed
from acts.tree.delegation import anonymous_request, delegate_request
from acts.tree.records import AgentState, Capabilities, DelegateInput
from acts.views.run_views import DelegateView
from workflows.agent import go_on, plan_and_walk
from workflows.plan import FATAL
from workflows.runtime import results
from workflows.runtime.handlers import RunWorkflow
from workflows.runtime.model_calls import own_context
from workflows.runtime.past_runs import refuse_resume
from workflows.runtime.payloads import NOTHING, decode_record, record_type
from workflows.runtime.startup import complete_position, load_definition


@workflow.defn(name=DELEGATE, failure_exception_types=FATAL)
class DelegateWorkflow(RunWorkflow):
    """What is behind a Call with ``_delegate``."""

    @workflow.run
    async def run(self, value: RawValue = NOTHING) -> RawValue:
        """``value`` is what the run above sends, or the state of the run before."""
        return await self.guarded(self._run(value), value)

    async def _run(self, value: RawValue) -> RawValue:
        if record_type(value) == AgentState.__name__:
            definition = decode_record(value, AgentState).definition
            run, view, actions = await go_on(self, value)
            return results.agent_delegate_result(run, view, definition, actions)
        own = decode_record(value, DelegateInput)
        own = own.model_copy(update={"position": await complete_position(own.position, value)})
        if own.delegate == ANONYMOUS:
            return await self._make_one_call(own)
        workflow.set_current_details("**loading** the definition")
        loaded = await _load(own)
        origin = {"source": loaded["source"], "sha256": loaded["sha256"]}
        raw = delegate_request(own, loaded["definition"])
        parsed = read_request(raw)
        refuse_resume(parsed.config)
        if parsed.plan is not None and parsed.plan.run:
            position = own.position.with_budget(workflow.info().workflow_id, parsed.config.budget)
            position = position.with_limit(parsed.config.maxParallel, own.lease)
            machine = WalkedDelegate(workflow.info().workflow_id, own, position, parsed, raw)
            return await self._drive_machine(machine, DelegateView(machine), origin)
        run, view, actions = await plan_and_walk(self, raw, own.position, own, {"definition": origin})
        return results.agent_delegate_result(run, view, origin, actions)

    async def _make_one_call(self, own: DelegateInput) -> RawValue:
        parsed = read_request(anonymous_request(own))
        served = [own.call.tool] if own.call is not None and own.call.served else []
        prepared = validate_parsed(parsed, {}, served)
        info = workflow.info()
        position = own.position.with_budget(info.workflow_id, parsed.config.budget)
        position = position.with_limit(parsed.config.maxParallel, own.lease)
        source = own_context(len(parsed.context))
        machine = AnonymousDelegate(info.workflow_id, own, position, prepared, Capabilities(price=own.price), source)
        return await self._drive_machine(machine, DelegateView(machine, machine), {})

    async def _drive_machine(self, machine: DelegateMachine, view: DelegateView, origin: dict[str, str]) -> RawValue:
        actions = await self.drive(machine, view, _cannot_carry, {})
        return results.delegate_result(machine, origin, actions)


def _cannot_carry(_actions: dict[str, int]) -> Any:
    raise AssertionError("a delegate without a planner does not continue as new")


async def _load(own: DelegateInput) -> dict[str, Any]:
    try:
        return await load_definition(own.delegate, own.sha256)
    except ActivityError as error:
        cause = error.__cause__
        if is_cancelled_exception(error) or not isinstance(cause, ApplicationError):
            raise
        raise ApplicationError(cause.message, type=cause.type, non_retryable=True) from None
