"""How a run ends: its result or its failure as payloads that fit, for a person or for the run above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from temporalio.exceptions import ApplicationError

from acts.language.errors import CallError
from acts.language.strict_json import write_json
from acts.language.wire import APPROVAL_TIMEOUT, BUDGET_SPENT, MAX_STORED_BYTES, PLAN_FAILED
from acts.tree.records import Accounting
from acts.views.results import MAX_BATCH_RESULT, MAX_RESULT, cut_result, failure_text
from acts.workflows.payloads import encode, encode_or_compress, raw, uses_storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.common import RawValue

    from acts.machines.agent_run import AgentRun
    from acts.machines.delegate_run import DelegateMachine
    from acts.machines.plan_run import PlanRun
    from acts.machines.run_machine import RunMachine
    from acts.machines.set_run import BatchRun, PageResults, SetRun
    from acts.tree.records import PermitLease
    from acts.views.run_views import AgentView, PlanView, SetView


# With external storage; the rest of the largest value is for the list of what was cut
MAX_STORED_RESULT: Final = MAX_STORED_BYTES - 512 * 1024
# Failures inside a delegate that its parent is given
MAX_ERRORS: Final = 20


def accounting(run: RunMachine) -> dict[str, Any]:
    """What the work of this run adds to the run above: requests that the root has not heard of, permits."""
    permits = run.permits.take_all()
    return Accounting(settled=run.budget.take_unreported(), permits=permits).to_json()


def _limits() -> tuple[int, int]:
    """The bytes that a result may have to be recorded, and those of a batch."""
    return (MAX_STORED_RESULT, MAX_STORED_RESULT) if uses_storage() else (MAX_RESULT, MAX_BATCH_RESULT)


def plan_result(run: PlanRun, view: PlanView) -> RawValue:
    """The result of a Plan that a person started."""
    limits = _limits()
    result = cut_result(view.result(limits[1]), view.first_message, *limits)
    if run.approvals.expired is not None and not run.is_approved:
        raise _failure(run.approvals.expired, result, APPROVAL_TIMEOUT)
    if run.finished == "failed":
        raise _failure(failure_text(run.walk), result, PLAN_FAILED)
    return raw(write_json(result))


def _failure(message: str, result: Any, type_: str) -> ApplicationError:
    return ApplicationError(message, raw(write_json(result)), type=type_, non_retryable=True)


def _report(out: dict[str, Any], failure: CallError | None, encode_: Callable[[Any], RawValue]) -> RawValue:
    """What the run above is given; too large, it fails as ``resultTooLarge``, and costs what it cost.

    Raises:
        ApplicationError: the run has failed; ``out`` is its detail.
    """
    try:
        payload = encode_(out)
    except CallError as error:
        rest = {k: out[k] for k in ("usage", "decisions", "accounting") if k in out}
        text = f"the results are too large for the run above: {error.message}"
        raise _failure(text, {**rest, "status": "failed"}, error.code) from None
    if failure is not None:
        raise ApplicationError(failure.message, payload, type=failure.code, non_retryable=True)
    return payload


def part_result(run: PlanRun, view: PlanView) -> RawValue:
    """The result for an agent or a delegate whose plan this is."""
    return _report({**view.part_result(), "accounting": accounting(run)}, None, encode_or_compress)


def instance_result(run: PlanRun, view: PlanView) -> RawValue:
    """The result of an Instance."""
    out = {"usage": run.usage.to_json(), **view.instance_result(), "accounting": accounting(run)}
    failure = CallError(PLAN_FAILED, failure_text(run.walk)) if run.finished == "failed" else None
    return _report(out, failure, encode_or_compress)


def batch_result(run: BatchRun) -> RawValue:
    """The result of a Batch: how many of its instances ended how, and without a results file the report of each."""
    if run.failure is not None:
        rest = {"usage": run.usage.to_json(), "accounting": accounting(run)}
        raise _failure(run.failure.message, rest, run.failure.code)
    out = {"status": run.finished, **run.page.report(), "usage": run.usage.to_json()}
    if run.approvals.records:
        out["decisions"] = run.approvals.records
    return _page_payload({**out, "accounting": accounting(run)})


def idle_batch_result(page: PageResults, lease: PermitLease | None) -> RawValue:
    """The result of a Batch of whose rows none runs."""
    own = Accounting(permits=None if lease is None else lease.permits)
    return _page_payload({"status": "failed", **page.report(), "accounting": own.to_json()})


def _page_payload(out: dict[str, Any]) -> RawValue:
    """One that is too large keeps the statuses of its instances: their own runs have the rest."""
    try:
        return encode_or_compress(out)
    except CallError:
        statuses = {id_: {"status": item["status"]} for id_, item in out.get("instances", {}).items()}
        omitted = f"the state, calls and errors of {len(statuses)} instances: set config.results, or ask their own runs"
        return encode_or_compress({**out, "instances": statuses, "omitted": omitted})


def set_result(run: SetRun, view: SetView) -> RawValue:
    """The result of a Plan over a set."""
    result = view.result()
    if run.approvals.expired is not None and not run.is_approved:
        raise _failure(run.approvals.expired, result, APPROVAL_TIMEOUT)
    if run.finished == "failed":
        stopped = run.progress.stopped
        text = view.failure_text
        raise _failure(text, result, PLAN_FAILED if stopped is None else stopped["code"])
    return raw(write_json(result))


def cancelled_report(run: PlanRun, view: PlanView) -> dict[str, Any]:
    """What a cancelled run below another had done, in the form of its result."""
    return view.instance_result() if run.setup.instances else view.part_result()


def agent_result(run: AgentRun, view: AgentView) -> RawValue:
    """The result of an Agent."""
    result = raw(write_json(cut_result(view.result(), view.first_message, *_limits())))
    if run.failure is None:
        return result
    raise ApplicationError(run.failure.message, result, type=run.failure.code, non_retryable=True)


def agent_delegate_result(run: AgentRun, view: AgentView, definition: dict[str, str]) -> RawValue:
    """The result of a Delegate with a planner: its output, and what the parent must know besides."""
    result = view.result()
    out: dict[str, Any] = {k: result[k] for k in ("status", "output", "ticks", "usage", "decisions") if k in result}
    out |= {"definition": definition, "accounting": accounting(run)}
    if run.failure is None:
        return _report(out, None, encode)
    out["errors"] = result["errors"][-MAX_ERRORS:]
    return _report(out, CallError(run.failure.code, run.failure.message), encode)


def delegate_result(run: DelegateMachine, definition: dict[str, str]) -> RawValue:
    """The result of a Delegate without a planner."""
    out: dict[str, Any] = {**run.result, "usage": run.usage.to_json(), "accounting": accounting(run)}
    if definition:
        out["definition"] = definition
    if run.approvals.records:
        out["decisions"] = run.approvals.records
    if "errors" in out:
        out["errors"] = out["errors"][-MAX_ERRORS:]
    failure = run.failure and CallError(run.failure.code or BUDGET_SPENT, run.failure.message)
    return _report(out, failure, encode)
