"""The workflow types: each has its name and a ``run`` of a few lines over the driver; and how a run ends.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from acts.language import wire
from acts.language.config import Config, Options, Undoes
from acts.language.errors import ActsError, CallError, InvalidRequest, heading
from acts.language.messages import INSTANCES, read_request
from acts.language.strict_json import write_json
from acts.machines.agent_run import AgentRun, AgentSetup, AnonymousDelegate, DelegateMachine, WalkedDelegate
from acts.machines.past import PastCalls
from acts.machines.plan_run import PlanRun, PlanSetup
from acts.machines.run_machine import RunMachine
from acts.machines.set_run import BatchRun, PageResults, SetRun, SetSetup, page_request, resumed_set
from acts.plan.calls import PlannedCall
from acts.plan.validate import set_refusal, validate_parsed
from acts.tree import records
from acts.tree.child_requests import anonymous_request, delegate_request
from acts.tree.identity import call_identity, undo_identity
from acts.tree.records import AgentState, DelegateInput, InstanceInput, PlanInput, PlanState, TreePosition
from acts.tree.set_records import BatchInput, SetState, fill_results
from acts.tree.signal_records import Superseded
from acts.tree.wire_format import RecordError
from acts.views.results import MAX_BATCH_RESULT, MAX_RESULT, cut_result, failure_text
from acts.views.run_views import AgentView, PlanView, RunView, SetView, SingleCallView
from acts.views.text import code_span
from acts.workflows import engine_calls, payloads
from acts.workflows.children import Lifeline, start_child
from acts.workflows.engine_calls import complete_position, own_context, pin_plan, prepare_request
from acts.workflows.handlers import RunWorkflow, guarded, provided_message
from acts.workflows.in_flight import activity_options, miss_of, run_missed
from acts.workflows.payloads import NOTHING, decode_record, encode, encode_or_compress, encode_record, raw, record_type

# Errors of the SDK's own decoding of arguments fail the run. Not Exception: that would let a
# nondeterminism error, which a corrected worker heals, kill runs.
FATAL: Final = (ActsError, TypeError, ValueError, KeyError, RuntimeError)
# With external storage; the rest of the largest value is for the list of what was cut
MAX_STORED_RESULT: Final = wire.MAX_STORED_BYTES - 512 * 1024
# Failures inside a delegate that its parent is given
MAX_ERRORS: Final = 20


def _end(payload: RawValue, failure: CallError | None) -> RawValue:
    """The result of a run; ApplicationError with it as the first detail where the run has failed."""
    if failure is None:
        return payload
    raise ApplicationError(failure.message, payload, type=failure.code, non_retryable=True)


def _result_limits() -> tuple[int, int]:
    """The bytes that a result may have to be recorded, and those of a batch."""
    return (MAX_STORED_RESULT, MAX_STORED_RESULT) if payloads.uses_storage() else (MAX_RESULT, MAX_BATCH_RESULT)


def _accounting(run: RunMachine) -> dict[str, Any]:
    """What the work of this run adds to the run above: requests that the root has not heard of, permits."""
    permits = run.permits.take_all()
    return records.Accounting(settled=run.budget.take_unreported(), permits=permits).to_json()


def _failure_of_root(run: PlanRun | SetRun, text: Callable[[], str], code: str = wire.PLAN_FAILED) -> CallError | None:
    if run.approvals.expired is not None and not run.is_approved:
        return CallError(wire.APPROVAL_TIMEOUT, run.approvals.expired)
    return CallError(code, text()) if run.finished == "failed" else None


def _with_undone(run: PlanRun) -> str:
    return "\n".join(filter(None, (failure_text(run.walk), run.undone_text)))


def _report(out: dict[str, Any], failure: CallError | None, encode_: Callable[[Any], RawValue]) -> RawValue:
    """What the run above is given; too large, it fails as ``resultTooLarge``, and costs what it cost."""
    try:
        payload = encode_(out)
    except CallError as error:
        rest = {k: out[k] for k in ("usage", "decisions", "accounting") if k in out}
        text = f"the results are too large for the run above: {error.message}"
        return _end(raw(write_json({**rest, "status": "failed"})), CallError(error.code, text))
    return _end(payload, failure)


def _delegate_report(run: AgentRun | DelegateMachine, result: dict[str, Any], origin: Mapping[str, str]) -> RawValue:
    """The result of a Delegate: its output, and what the parent must know besides."""
    out = {**result, "accounting": _accounting(run)}
    if origin:
        out["definition"] = dict(origin)
    if "errors" in out:
        out["errors"] = out["errors"][-MAX_ERRORS:]
    return _report(out, run.failure, encode)


def _agent_report(run: AgentRun, view: AgentView) -> RawValue:
    """The result of a Delegate with a planner."""
    keys = ("status", "output", "ticks", "usage", "decisions", *(() if run.failure is None else ("errors",)))
    result = view.result()
    return _delegate_report(run, {k: result[k] for k in keys if k in result}, run.setup.definition)


def _page_report(out: dict[str, Any]) -> RawValue:
    """One that is too large keeps the statuses of its instances: their own runs have the rest."""
    try:
        return encode_or_compress(out)
    except CallError:
        statuses = {id_: {"status": item["status"]} for id_, item in out.get("instances", {}).items()}
        omitted = f"the state, calls and errors of {len(statuses)} instances: set config.results, or ask their own runs"
        return encode_or_compress({**out, "instances": statuses, "omitted": omitted})


@workflow.defn(name=wire.PLAN, failure_exception_types=FATAL, sandboxed=False)
class PlanWorkflow(RunWorkflow):
    """Walks one plan."""

    @workflow.run
    @guarded
    async def run(self, value: RawValue = NOTHING) -> RawValue:
        """``value`` is the Request or names one, what a run above sends, or the state of the run before."""
        value = await pin_plan(value, is_untouched=lambda: self.is_untouched)
        if starts_set(value):
            return await walk_set(self, value)
        run, view = await walk_plan(self, value, PlanInput)
        if run.setup.input is not None:
            return _report({**view.part_result(), "accounting": _accounting(run)}, None, encode_or_compress)
        limits = _result_limits()
        result = cut_result(view.result(limits[1]), view.first_message, *limits)
        return _end(raw(write_json(result)), _failure_of_root(run, lambda: _with_undone(run)))


@workflow.defn(name=wire.INSTANCE, failure_exception_types=FATAL, sandboxed=False)
class InstanceWorkflow(RunWorkflow):
    """One isolated data context of a batch."""

    @workflow.run
    @guarded
    async def run(self, value: RawValue = NOTHING) -> RawValue:
        """``value`` is what the run above sends, or the state of the run before."""
        run, view = await walk_plan(self, value, InstanceInput)
        out = {"usage": run.usage.to_json(), **view.instance_result(), "accounting": _accounting(run)}
        failure = CallError(wire.PLAN_FAILED, _with_undone(run)) if run.finished == "failed" else None
        return _report(out, failure, encode_or_compress)


async def walk_plan(owner: RunWorkflow, value: RawValue, input_type: type[PlanInput]) -> tuple[PlanRun, PlanView]:
    """Walk what a run was started with, or go on from its state; returns the run and its view."""
    state = decode_record(value, PlanState) if record_type(value) == PlanState.__name__ else None
    setup = await plan_setup(value, state, input_type)
    identify = partial(_identify, setup.position.identity, setup.past, setup.prepared.request.config.undoes)
    run = PlanRun(workflow.info().workflow_id, setup, identify)
    if state is not None:
        run.restore(state)
    view = PlanView(run)
    await owner.drive(run, view, view.instance_result if setup.instances else view.part_result)
    return run, view


async def plan_setup(value: RawValue, state: PlanState | None, input_type: type[PlanInput]) -> PlanSetup:
    """What the run knows before it begins; RecordError where it was started with something else."""
    own: PlanInput | None = None
    if state is not None and state.input is not None:
        own = (InstanceInput if "instances" in state.input else PlanInput).from_json(state.input)
    elif state is None and (record_type(value) == input_type.__name__ or input_type is not PlanInput):
        own = decode_record(value, input_type)
    start = state or own
    if start is None:
        engine_calls.decide_settings()
    request = payloads.decode_request(value) if start is None else start.request
    position = await complete_position((start and start.position) or TreePosition(), value)
    if start is None or start.capabilities is None:
        request, parsed, capabilities = await prepare_request(request, position)
    else:
        parsed, capabilities = read_request(request), start.capabilities
    places = own.places if isinstance(own, InstanceInput) else None
    is_growing = state.walk.isGrowing if state is not None else own is not None and own.isGrowing
    if refusal := set_refusal(parsed, "a plan inside another run"):
        raise InvalidRequest(refusal)
    prepared = validate_parsed(parsed, capabilities.tools, capabilities.served, places, is_complete=not is_growing)
    lease = None if start is None else start.lease
    if state is None:
        position = _limit(position, parsed.config, lease)
    source = own_context(len(parsed.context)) if own is None or own.context is None else own.context
    size = payloads.max_payload_bytes()
    setup = PlanSetup(request, prepared, capabilities, position, source, own, lease, size)
    return await engine_calls.add_past(setup, state)


def _limit(position: TreePosition, config: Config, lease: records.PermitLease | None) -> TreePosition:
    """A run's place in its tree, with the budget and the limit of Calls that its own Request sets."""
    return position.with_budget(workflow.info().workflow_id, config.budget).with_limit(config.maxParallel, lease)


def _identify(identity: str, past: PastCalls | None, undoes: Undoes | None, node: PlannedCall) -> str:
    """The ``_id`` of a Call: the one that it had in the run that this one resumes, or follows from what it undoes."""
    if past is not None and (own := past.identify(node)):
        return own
    if undoes is not None and node.index < len(undoes.calls):
        return undo_identity(undoes.calls[node.index].id)
    return call_identity(identity, node.instance, node.id)


# -- agents and delegates ---------------------------------------------------------------------------


@workflow.defn(name=wire.AGENT, failure_exception_types=FATAL, sandboxed=False)
class AgentWorkflow(RunWorkflow):
    """Plans and walks, tick after tick."""

    @workflow.run
    @guarded
    async def run(self, value: RawValue = NOTHING) -> RawValue:
        """``value`` is the Request or names one, or the state of the run before."""
        value = await pin_plan(value, is_untouched=lambda: self.is_untouched)
        if record_type(value) == AgentState.__name__:
            run, view = await go_on(self, value)
        else:
            engine_calls.decide_settings()
            request = payloads.decode_request(value)
            run, view = await plan_and_walk(self, request, await complete_position(TreePosition(), value))
        result = raw(write_json(cut_result(view.result(), view.first_message, *_result_limits())))
        return _end(result, run.failure)


async def plan_and_walk(
    owner: RunWorkflow, request: dict[str, Any], position: TreePosition, lease: records.PermitLease | None = None,
    definition: Mapping[str, str] | None = None,
) -> tuple[AgentRun, AgentView]:  # fmt: skip
    """Run an agent, or a delegate, which has a ``definition``."""
    request, parsed, capabilities = await prepare_request(request, position)
    engine_calls.refuse_resume(parsed.config)
    position, run_id = _limit(position, parsed.config, lease), workflow.info().run_id
    return await _drive(owner, AgentSetup(request, parsed, capabilities, position, run_id, lease, definition or {}))


async def go_on(owner: RunWorkflow, value: RawValue) -> tuple[AgentRun, AgentView]:
    """Run an agent on from where the run before left off: ``value`` is its ``AgentState``."""
    state = decode_record(value, AgentState)
    position, run_id = await complete_position(state.position, value), workflow.info().run_id
    parsed, capabilities = read_request(state.request), state.capabilities
    setup = AgentSetup(state.request, parsed, capabilities, position, run_id, state.lease, state.definition)
    return await _drive(owner, setup, state)


async def _drive(owner: RunWorkflow, setup: AgentSetup, state: AgentState | None = None) -> tuple[AgentRun, AgentView]:
    run = AgentRun(workflow.info().workflow_id, setup)
    if state is not None:
        run.restore(state, map(provided_message, state.provided))
    view = AgentView(run)
    await owner.drive(run, view)
    return run, view


@workflow.defn(name=wire.DELEGATE, failure_exception_types=FATAL, sandboxed=False)
class DelegateWorkflow(RunWorkflow):
    """What is behind a Call with ``_delegate``."""

    @workflow.run
    @guarded
    async def run(self, value: RawValue = NOTHING) -> RawValue:
        """``value`` is what the run above sends, or the state of the run before."""
        if record_type(value) == AgentState.__name__:
            return _agent_report(*await go_on(self, value))
        own = decode_record(value, DelegateInput)
        own = own.model_copy(update={"position": await complete_position(own.position, value)})
        machine: DelegateMachine
        origin: dict[str, str] = {}
        workflow_id = workflow.info().workflow_id
        if own.delegate == wire.ANONYMOUS:
            parsed = read_request(anonymous_request(own))
            prepared = validate_parsed(parsed, {}, [own.call.tool] if own.call is not None and own.call.served else [])
            position = _limit(own.position, parsed.config, own.lease)
            source, capabilities = own_context(len(parsed.context)), records.Capabilities(price=own.price)
            machine = AnonymousDelegate(workflow_id, own, position, prepared, capabilities, source)
        else:
            if own.plan is not None and own.plan.calls is not None:
                definition: dict[str, Any] = {"context": [{"type": "plan", "plan": list(own.plan.calls)}]}
            else:
                workflow.set_current_details("**loading** the definition")
                loaded = await engine_calls.load_definition(own.delegate, own.sha256)
                origin = {"source": loaded["source"], "sha256": loaded["sha256"]}
                definition = loaded["definition"]
            request = delegate_request(own, definition)
            parsed = read_request(request)
            engine_calls.refuse_resume(parsed.config)
            if own.plan is None and (parsed.plan is None or not parsed.plan.run):
                return _agent_report(*await plan_and_walk(self, request, own.position, own.lease, origin))
            position = _limit(own.position, parsed.config, own.lease)
            machine = WalkedDelegate(workflow_id, own, position, parsed, request)
        view = SingleCallView(machine) if isinstance(machine, AnonymousDelegate) else RunView(machine)
        await self.drive(machine, view)
        result = {**machine.result, "usage": machine.usage.to_json()}
        if machine.approvals.records:
            result["decisions"] = machine.approvals.records
        return _delegate_report(machine, result, origin)


# -- sets ------------------------------------------------------------------------------------------


@workflow.defn(name=wire.BATCH, failure_exception_types=FATAL, sandboxed=False)
class BatchWorkflow(RunWorkflow):
    """The instances of one page."""

    @workflow.run
    @guarded
    async def run(self, value: RawValue = NOTHING) -> RawValue:
        """``value`` is what the run over the set sends."""
        own = decode_record(value, BatchInput)
        own = own.model_copy(update={"position": await complete_position(own.position, value)})
        workflow.set_current_details(f"**reading** {own.reading.page.rows} rows")
        label = f"read rows {own.reading.page.row:,} …"
        read = await engine_calls.ask(wire.READ_PAGE, own.reading.to_json(), label)
        page = PageResults(own, read["rows"], read["bad"])
        setup = _batch_setup(own, read["rows"], page) if read["rows"] else None
        if setup is None:  # no row runs: their lines are written
            while (command := page.append()) is not None:
                await engine_calls.ask(command.activity, command.argument, command.label)
                page.record_append(None)
            accounting = records.Accounting(permits=None if own.lease is None else own.lease.permits)
            return _page_report({"status": "failed", **page.report(), "accounting": accounting.to_json()})
        run = BatchRun(workflow.info().workflow_id, setup, partial(_identify, own.position.identity, None, None), page)
        await self.drive(run, PlanView(run), lambda: {**page.report(), "usage": run.usage.to_json()})
        rest = {"usage": run.usage.to_json(), "accounting": _accounting(run)}
        if run.failure is not None:
            return _end(raw(write_json(rest)), run.failure)
        decisions = {"decisions": run.approvals.records} if run.approvals.records else {}
        return _page_report({"status": run.finished, **page.report(), **rest, **decisions})


def _batch_setup(own: BatchInput, rows: Sequence[Any], page: PageResults) -> PlanSetup | None:
    """What the run knows before it begins; None where the plan fits none of its rows, which have failed then."""
    request = page_request(own, rows)
    capabilities = own.capabilities or records.Capabilities()
    try:
        parsed = read_request(request)
        prepared = validate_parsed(parsed, capabilities.tools, capabilities.served)
    except InvalidRequest as error:
        problem = next((p for p in error.problems if p.fatal), error.problems[0])
        item = {"call": problem.call, "code": wire.INVALID_REQUEST, "message": problem.text()}
        for _, id_, _ in rows:
            page.add(id_, {"status": "failed", "errors": [item]})
        return None
    source = own_context(len(parsed.context))
    return PlanSetup(request, prepared, capabilities, own.position, source, own, own.lease)


def starts_set(value: RawValue) -> bool:
    """True for a Request of a person that names a set, and for the state of a run over one."""
    kind = record_type(value)
    if kind == SetState.__name__:
        return True
    if kind or INSTANCES.encode() not in value.payload.data or len(value.payload.data) > wire.MAX_PAYLOAD_BYTES:
        return False
    request = payloads.decode_or_none(value)
    context = request.get("context") if isinstance(request, dict) else None
    return isinstance(context, list) and any(isinstance(m, dict) and INSTANCES in m for m in context)


async def walk_set(owner: RunWorkflow, value: RawValue) -> RawValue:
    """Walk the plan for each row, or go on from the state of the run before; returns the result."""
    info = workflow.info()
    state = decode_record(value, SetState) if record_type(value) == SetState.__name__ else None
    run = SetRun(info.workflow_id, await _set_setup(value, state), is_cron=info.cron_schedule is not None)
    if state is not None:
        run.restore(state)
    view = SetView(run)
    await owner.drive(run, view)
    stopped = run.progress.stopped
    failure = _failure_of_root(run, lambda: view.failure_text, wire.PLAN_FAILED if stopped is None else stopped["code"])
    return _end(raw(write_json(view.result())), failure)


async def _set_setup(value: RawValue, state: SetState | None) -> SetSetup:
    """What the run knows before it begins; ApplicationError where the run that it names cannot be resumed."""
    date = f"{workflow.info().workflow_start_time:%Y-%m-%d}"
    if state is not None:
        request, capabilities, lease = state.request, state.capabilities, state.lease
        position, parsed = payloads.share_storage(state.position), read_request(request)
    else:
        engine_calls.decide_settings()
        position, lease = await complete_position(TreePosition(), value), None
        named = fill_results(payloads.decode_request(value), workflow.info().workflow_id, date)
        request, parsed, capabilities = await prepare_request(named, position)
        position = _limit(position, parsed.config, None)
    prepared = validate_parsed(parsed, capabilities.tools, capabilities.served)
    if parsed.set is None:
        raise AssertionError("a set without its message")
    setup = SetSetup(request, prepared, parsed.set, capabilities, position, date, lease)
    if state is not None:
        return replace(setup, resumed=state.resumed)
    resume = parsed.config.resume
    if resume is None:
        return setup
    past = await engine_calls.read_past(resume.workflowId, resume.runId)
    return replace(setup, resumed=resumed_set(resume, past, parsed.set), provided=past.provided)


@workflow.defn(name=wire.BACKGROUND, sandboxed=False)
class BackgroundWorkflow:
    """Runs what is behind a Call without ``_outputPath``; outlives the plan that started it."""

    def __init__(self) -> None:
        self.uses_storage = False
        self._lifeline = Lifeline()

    @workflow.run
    async def run(self, value: RawValue = NOTHING) -> None:
        """``value`` is a ``BackgroundInput``."""
        self._lifeline.main_task = asyncio.current_task()
        try:
            own = decode_record(value, records.BackgroundInput)
        except RecordError as error:
            raise ApplicationError(str(error), type=wire.INVALID_REQUEST, non_retryable=True) from None
        self._lifeline.token = own.token
        self.uses_storage = own.storesValues
        name = own.delegate.delegate if own.delegate is not None else str(own.activity)
        title = f"fire-and-forget: {code_span(name)}"

        def show(note: str | None) -> None:
            workflow.set_current_details(title if note is None else f"{title}\n\n{code_span(note)}")

        show(None)
        try:
            if own.delegate is None:
                await _run_activity(own, show)
            else:
                policy, arg = workflow.ParentClosePolicy.REQUEST_CANCEL, encode_record(own.delegate)
                lifeline, label = self._lifeline, own.label
                await (await start_child(wire.DELEGATE, "delegate", arg, label, lifeline, parent_close_policy=policy))
        except (FailureError, asyncio.CancelledError) as error:
            self._lifeline.raise_ending(error)
            raise

    @workflow.signal(dynamic=True)
    def take_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Stop when the run that started this one was reset, and starts the Call again; ignore all else."""
        if name != Superseded.signal_name():
            return
        try:
            record = payloads.decode_signal(args[0] if args else NOTHING, Superseded)
        except RecordError:
            return
        parent = workflow.info().parent
        is_of_tree = record.token and record.token == self._lifeline.token
        if is_of_tree and record.is_about(parent.workflow_id if parent else None, self._lifeline.started_at):
            self._lifeline.supersede(record.runId)


async def _run_activity(own: records.BackgroundInput, show: Callable[[str | None], None]) -> None:
    options = Options.model_validate(own.options)
    args = [encode(own.call), encode(own.tool), encode(list(own.context))]

    def start(attempts: int) -> workflow.ActivityHandle[Any]:
        more = activity_options(options, attempts)
        label = heading(own.label)
        return workflow.start_activity(str(own.activity), args=args, result_type=RawValue, summary=label, **more)

    try:
        await start(options.retry.maxAttempts)
    except ActivityError as error:
        if (miss := miss_of(error, options)) is None:
            raise
        try:
            await run_missed(start, options, show, miss)
        except CallError as failure:
            raise ApplicationError(failure.message, type=failure.code, non_retryable=True) from None
