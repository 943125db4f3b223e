"""The workflow types: each has its name and a ``run`` of a few lines over the driver.

* ``Plan`` walks the plan of a Request, without a planner. A Request that names a set is walked by a run of its own
  kind: it surveys the set, asks for approval, starts a Batch for each page, and ends with counts.
* ``Agent`` asks the model, walks what it planned, and again, until an output holds. Each tick is one request to the
  model (an Activity) and one child, a ``Plan``. Neither gets the context: the Activity reads it by query, the child
  gets the part that its Calls need. So a tick leaves as much history as there was work in it, however long the
  conversation.
* ``Delegate`` does one delegated Call in a clean room. It is started with a ``DelegateInput``, and with nothing else
  of its parent. It loads its definition by an Activity, so that the content is in this history alone. ``anonymous``
  has no definition and makes one Call; a definition whose plan says ``run`` is walked without a planner.
* ``Instance`` walks the Calls of one or some instances of a Plan; ``Batch`` those of one page of a set.
* ``Background`` runs what is behind a Call without ``_outputPath``, and needs no machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from acts.language import wire
from acts.language.config import Options
from acts.language.errors import ActsError, CallError, InvalidRequest
from acts.language.messages import INSTANCES, read_request
from acts.machines.agent_run import AgentRun, AgentSetup
from acts.machines.delegate_run import AnonymousDelegate, DelegateMachine, WalkedDelegate
from acts.machines.plan_run import PlanRun, PlanSetup
from acts.machines.set_run import BatchRun, PageResults, SetRun, SetSetup, page_request, resumed_set
from acts.plan.validate import set_refusal, validate_parsed
from acts.tree.child_requests import anonymous_request, delegate_request
from acts.tree.identity import call_identity
from acts.tree.records import (
    AgentState,
    BackgroundInput,
    Capabilities,
    DelegateInput,
    InstanceInput,
    PlanInput,
    PlanState,
    TreePosition,
)
from acts.tree.set_records import BatchInput, SetState
from acts.tree.signal_records import Superseded
from acts.tree.wire_format import RecordError
from acts.views.run_views import AgentView, DelegateView, PlanView, SetView
from acts.views.text import code_span
from acts.workflows import endings
from acts.workflows.children import start_child
from acts.workflows.engine_calls import ask_or_fail, own_context
from acts.workflows.handlers import RunWorkflow, data_message
from acts.workflows.in_flight import MissedActivity, activity_options, miss_of, retry_policy
from acts.workflows.lifeline import Lifeline
from acts.workflows.payloads import (
    NOTHING,
    decide_storage,
    decode_or_none,
    decode_record,
    decode_request,
    decode_signal,
    encode,
    encode_record,
    max_payload_bytes,
    record_type,
    share_storage,
)
from acts.workflows.startup import add_past, complete_position, load_or_fail, prepare_request, read_past, refuse_resume

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.language.config import Config
    from acts.machines.past import PastCalls
    from acts.plan.calls import PlannedCall
    from acts.tree.records import PermitLease


# Errors of the SDK's own decoding of arguments fail the run. Not Exception: that would let a
# nondeterminism error, which a corrected worker heals, kill runs.
FATAL: Final = (ActsError, TypeError, ValueError, KeyError, RuntimeError)


@workflow.defn(name=wire.PLAN, failure_exception_types=FATAL)
class PlanWorkflow(RunWorkflow):
    """Walks one plan."""

    @workflow.run
    async def run(self, request: RawValue = NOTHING) -> RawValue:
        """``request`` is the Request, what a run above sends, or the state of the run before."""
        return await self.guarded(self._run(request), request)

    async def _run(self, value: RawValue) -> RawValue:
        if starts_set(value):
            return await walk_set(self, value)
        run, view = await walk_plan(self, value, PlanInput)
        finish = endings.plan_result if run.setup.input is None else endings.part_result
        return finish(run, view)


async def walk_plan(owner: RunWorkflow, value: RawValue, input_type: type[PlanInput]) -> tuple[PlanRun, PlanView]:
    """Walk what a run was started with, or go on from its state; returns the run and its view."""
    state = decode_record(value, PlanState) if record_type(value) == PlanState.__name__ else None
    setup = await plan_setup(value, state, input_type)
    info = workflow.info()
    run = PlanRun(info.workflow_id, setup, partial(identify, setup.position.identity, setup.past))
    if state is not None:
        run.restore(state)
    view = PlanView(run)

    def carry() -> PlanState:
        return PlanState(**run.common_snapshot(), **run.snapshot_fields())

    try:
        await owner.drive(run, view, carry, is_first_run=state is None)
    except asyncio.CancelledError:
        if setup.input is not None:
            await owner.report_cancelled(endings.cancelled_report(run, view))
        raise
    return run, view


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
    is_growing = state.walk.isGrowing if state is not None else own is not None and own.isGrowing
    if refusal := set_refusal(parsed, "a plan inside another run"):
        raise InvalidRequest(refusal)
    prepared = validate_parsed(parsed, capabilities.tools, capabilities.served, places, is_complete=not is_growing)
    source = own.context if own is not None else None
    lease = state.lease if state is not None else own.lease if own is not None else None
    if state is None or state.position is None:
        position = _limit(position, parsed.config, lease)
    source = source or own_context(len(parsed.context))
    setup = PlanSetup(raw, prepared, capabilities, position, source, own, lease, max_payload_bytes())
    return await add_past(setup, state)


def _limit(position: TreePosition, config: Config, lease: PermitLease | None) -> TreePosition:
    """A run's place in its tree, with the budget and the limit of Calls that its own Request sets."""
    return position.with_budget(workflow.info().workflow_id, config.budget).with_limit(config.maxParallel, lease)


def _cannot_carry() -> Any:
    raise AssertionError("this run does not continue as new")


def identify(identity: str, past: PastCalls | None, node: PlannedCall) -> str:
    """The ``_id`` of a Call of the run that has this identity: the one that it had in the run that this one resumes,
    or its own.
    """
    own = None if past is None else past.identify(node)
    return own or call_identity(identity, node.instance, node.id)


@workflow.defn(name=wire.INSTANCE, failure_exception_types=FATAL)
class InstanceWorkflow(RunWorkflow):
    """One isolated data context of a batch."""

    @workflow.run
    async def run(self, value: RawValue = NOTHING) -> RawValue:
        """``value`` is what the run above sends, or the state of the run before."""
        return await self.guarded(self._run(value), value)

    async def _run(self, value: RawValue) -> RawValue:
        run, view = await walk_plan(self, value, InstanceInput)
        return endings.instance_result(run, view)


@workflow.defn(name=wire.AGENT, failure_exception_types=FATAL)
class AgentWorkflow(RunWorkflow):
    """Plans and walks, tick after tick."""

    @workflow.run
    async def run(self, request: RawValue = NOTHING) -> RawValue:
        """``request`` is the Request, or the state of the run before."""
        return await self.guarded(self._run(request), request)

    async def _run(self, value: RawValue) -> RawValue:
        if record_type(value) == AgentState.__name__:
            run, view = await go_on(self, value)
        else:
            decide_storage()
            raw = decode_request(value)
            run, view = await plan_and_walk(self, raw, await complete_position(TreePosition(), value))
        return endings.agent_result(run, view)


async def plan_and_walk(
    owner: RunWorkflow, raw: dict[str, Any], position: TreePosition, start: DelegateInput | None = None,
    more: Mapping[str, Any] | None = None,
) -> tuple[AgentRun, AgentView]:  # fmt: skip
    """Run an agent from its first tick; returns the run and its view.

    ``start`` is what a delegate was started with; ``more`` are fields that ``AgentState`` carries besides.
    """
    info = workflow.info()
    raw, parsed, capabilities = await prepare_request(raw, position)
    refuse_resume(parsed.config)
    lease = None if start is None else start.lease
    setup = AgentSetup(raw, parsed, capabilities, _limit(position, parsed.config, lease), info.run_id, lease)
    return await _drive(owner, AgentRun(info.workflow_id, setup), more or {}, is_first_run=True)


async def go_on(owner: RunWorkflow, value: RawValue) -> tuple[AgentRun, AgentView]:
    """Run an agent on from where the run before left off: ``value`` is its ``AgentState``."""
    info, state = workflow.info(), decode_record(value, AgentState)
    parsed = read_request(state.request)
    position = await complete_position(state.position, value)
    setup = AgentSetup(state.request, parsed, state.capabilities, position, info.run_id, lease=state.lease)
    run = AgentRun(info.workflow_id, setup)
    run.restore(state, map(data_message, state.provided))
    more = {"definition": state.definition, "delegate": state.delegate}
    return await _drive(owner, run, more, is_first_run=False)


async def _drive(
    owner: RunWorkflow, run: AgentRun, more: Mapping[str, Any], *, is_first_run: bool
) -> tuple[AgentRun, AgentView]:
    view = AgentView(run)

    def carry() -> AgentState:
        return AgentState(**{**run.common_snapshot(), **run.snapshot_fields(), **more})

    await owner.drive(run, view, carry, is_first_run=is_first_run)
    return run, view


@workflow.defn(name=wire.DELEGATE, failure_exception_types=FATAL)
class DelegateWorkflow(RunWorkflow):
    """What is behind a Call with ``_delegate``."""

    @workflow.run
    async def run(self, value: RawValue = NOTHING) -> RawValue:
        """``value`` is what the run above sends, or the state of the run before."""
        return await self.guarded(self._run(value), value)

    async def _run(self, value: RawValue) -> RawValue:
        if record_type(value) == AgentState.__name__:
            definition = decode_record(value, AgentState).definition
            run, view = await go_on(self, value)
            return endings.agent_delegate_result(run, view, definition)
        own = decode_record(value, DelegateInput)
        own = own.model_copy(update={"position": await complete_position(own.position, value)})
        if own.delegate == wire.ANONYMOUS:
            return await self._make_one_call(own)
        workflow.set_current_details("**loading** the definition")
        loaded = await load_or_fail(own.delegate, own.sha256)
        origin = {"source": loaded["source"], "sha256": loaded["sha256"]}
        raw = delegate_request(own, loaded["definition"])
        parsed = read_request(raw)
        refuse_resume(parsed.config)
        if parsed.plan is not None and parsed.plan.run:
            position = _limit(own.position, parsed.config, own.lease)
            machine = WalkedDelegate(workflow.info().workflow_id, own, position, parsed, raw)
            return await self._drive_machine(machine, DelegateView(machine), origin)
        run, view = await plan_and_walk(self, raw, own.position, own, {"definition": origin})
        return endings.agent_delegate_result(run, view, origin)

    async def _make_one_call(self, own: DelegateInput) -> RawValue:
        parsed = read_request(anonymous_request(own))
        served = [own.call.tool] if own.call is not None and own.call.served else []
        prepared = validate_parsed(parsed, {}, served)
        position = _limit(own.position, parsed.config, own.lease)
        source, capabilities = own_context(len(parsed.context)), Capabilities(price=own.price)
        machine = AnonymousDelegate(workflow.info().workflow_id, own, position, prepared, capabilities, source)
        return await self._drive_machine(machine, DelegateView(machine), {})

    async def _drive_machine(self, machine: DelegateMachine, view: DelegateView, origin: dict[str, str]) -> RawValue:
        await self.drive(machine, view, _cannot_carry, is_first_run=True)
        return endings.delegate_result(machine, origin)


@workflow.defn(name=wire.BATCH, failure_exception_types=FATAL)
class BatchWorkflow(RunWorkflow):
    """The instances of one page."""

    @workflow.run
    async def run(self, value: RawValue = NOTHING) -> RawValue:
        """``value`` is what the run over the set sends."""
        return await self.guarded(self._run(value), value)

    async def _run(self, value: RawValue) -> RawValue:
        own = decode_record(value, BatchInput)
        own = own.model_copy(update={"position": await complete_position(own.position, value)})
        workflow.set_current_details(f"**reading** {own.reading.page.rows} rows")
        label = f"read rows {own.reading.page.row:,} …"
        read = await ask_or_fail(wire.READ_PAGE, own.reading.to_json(), label)
        rows, page = read["rows"], PageResults(own, read["rows"], read["bad"])
        setup = _batch_setup(own, rows, page) if rows else None
        if setup is None:
            return await _write_lines(own, page)
        run = BatchRun(workflow.info().workflow_id, setup, partial(identify, own.position.identity, None), page)
        try:
            await self.drive(run, PlanView(run), _cannot_carry, is_first_run=True)
        except asyncio.CancelledError:
            await self.report_cancelled({**page.report(), "usage": run.usage.to_json()})
            raise
        return endings.batch_result(run)


def _batch_setup(own: BatchInput, rows: Sequence[Any], page: PageResults) -> PlanSetup | None:
    """What the run knows before it begins; None where the plan fits none of its rows, which have failed then."""
    raw = page_request(own, rows)
    capabilities = own.capabilities or Capabilities()
    try:
        parsed = read_request(raw)
        prepared = validate_parsed(parsed, capabilities.tools, capabilities.served)
    except InvalidRequest as error:
        problem = next((p for p in error.problems if p.fatal), error.problems[0])
        item = {"call": problem.call, "code": wire.INVALID_REQUEST, "message": problem.text()}
        for _, id_, _ in rows:
            page.add(id_, {"status": "failed", "errors": [item]})
        return None
    source = own_context(len(parsed.context))
    return PlanSetup(raw, prepared, capabilities, own.position, source, own, own.lease)


async def _write_lines(own: BatchInput, page: PageResults) -> RawValue:
    """The result of a page of which no row runs: their lines are written."""
    command = page.append()
    while command is not None:
        await ask_or_fail(command.activity, command.argument, command.label)
        page.record_append(None)
        command = page.append()
    return endings.idle_batch_result(page, own.lease)


def starts_set(value: RawValue) -> bool:
    """True for a Request of a person that names a set, and for the state of a run over one."""
    kind = record_type(value)
    if kind == SetState.__name__:
        return True
    if kind or INSTANCES.encode() not in value.payload.data or len(value.payload.data) > wire.MAX_PAYLOAD_BYTES:
        return False
    request = decode_or_none(value)
    context = request.get("context") if isinstance(request, dict) else None
    return isinstance(context, list) and any(isinstance(m, dict) and INSTANCES in m for m in context)


async def walk_set(owner: RunWorkflow, value: RawValue) -> RawValue:
    """Walk the plan for each row, or go on from the state of the run before; returns the result."""
    state = decode_record(value, SetState) if record_type(value) == SetState.__name__ else None
    run = SetRun(
        workflow.info().workflow_id, await _set_setup(value, state), is_cron=workflow.info().cron_schedule is not None
    )
    if state is not None:
        run.restore(state)
    view = SetView(run)

    def carry() -> SetState:
        return SetState(**run.common_snapshot(), **run.snapshot_fields())

    await owner.drive(run, view, carry, is_first_run=state is None)
    return endings.set_result(run, view)


async def _set_setup(value: RawValue, state: SetState | None) -> SetSetup:
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
        position = _limit(position, parsed.config, None)
    setup = SetSetup(raw, prepared, parsed.set, capabilities, position, lease)
    if state is not None:
        return replace(setup, resumed=state.resumed)
    resume = parsed.config.resume
    if resume is None:
        return setup
    past = await read_past(resume.workflowId, resume.runId)
    return replace(setup, resumed=resumed_set(resume, past, parsed.set), provided=past.provided)


@workflow.defn(name=wire.BACKGROUND)
class BackgroundWorkflow:
    """Runs what is behind a Call without ``_outputPath``; outlives the plan that started it."""

    def __init__(self) -> None:
        self.uses_storage = False
        self._lifeline = Lifeline()
        self._show = partial(_show, "")

    @workflow.run
    async def run(self, value: RawValue = NOTHING) -> None:
        """``value`` is a ``BackgroundInput``."""
        self._lifeline.begin()
        try:
            own = decode_record(value, BackgroundInput)
        except RecordError as error:
            raise ApplicationError(str(error), type=wire.INVALID_REQUEST, non_retryable=True) from None
        self._lifeline.token = own.token
        self.uses_storage = own.storesValues
        name = own.delegate.delegate if own.delegate is not None else str(own.activity)
        self._show = partial(_show, f"fire-and-forget: {code_span(name)}")
        self._show(None)
        try:
            await self._perform(own)
        except (FailureError, asyncio.CancelledError) as error:
            ending = self._lifeline.ending_of(error)
            if ending is None:
                raise
            raise ending from None

    async def _perform(self, own: BackgroundInput) -> None:
        if own.delegate is not None:
            policy = workflow.ParentClosePolicy.REQUEST_CANCEL
            arg = encode_record(own.delegate)
            await (
                await start_child(wire.DELEGATE, "delegate", arg, own.label, self._lifeline, parent_close_policy=policy)
            )
            return
        options = Options.model_validate(own.options)
        retries = retry_policy(options)
        args = [encode(own.call), encode(own.tool), encode(list(own.context))]

        def start(attempts: int) -> workflow.ActivityHandle[Any]:
            return workflow.start_activity(
                str(own.activity), args=args, result_type=RawValue, summary=own.label,
                **activity_options(options, replace(retries, maximum_attempts=attempts)),
            )  # fmt: skip

        try:
            await start(retries.maximum_attempts)
        except ActivityError as error:
            miss = miss_of(error, options)
            if miss is None:
                raise
            try:
                await MissedActivity(start, options, self._show).run(miss)
            except CallError as failure:
                raise ApplicationError(failure.message, type=failure.code, non_retryable=True) from None

    @workflow.signal(dynamic=True)
    def take_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Stop when the run that started this one was reset, and starts the Call again; ignore all else."""
        if name != wire.SUPERSEDED:
            return
        try:
            record = decode_signal(args[0] if args else NOTHING, Superseded)
        except RecordError:
            return
        parent = workflow.info().parent
        is_of_tree = record.token and record.token == self._lifeline.token
        if is_of_tree and record.is_about(parent.workflow_id if parent else None, self._lifeline.started_at):
            self._lifeline.supersede(record.runId)


def _show(title: str, note: str | None) -> None:
    workflow.set_current_details(title if note is None else f"{title}\n\n{code_span(note)}")
