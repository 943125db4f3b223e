"""The records that other runs of the tree send to a run, and which of its machines takes each.

A record counts only with the token of the tree. One that all runs take has a row here; one that only one kind of run
takes goes to its ``on_record``. What a record means is decided by the machine that takes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.machines.approval_effects import Note
from acts.machines.run_commands import Stop
from acts.tree.permit_records import PermitGrant, PermitRequest, PermitReturn
from acts.tree.signal_records import (
    BudgetGrant,
    BudgetReport,
    BudgetRequest,
    CancelledReport,
    ChildReset,
    DecisionAnswer,
    ForwardedDecision,
    ModelWait,
    PendingChanged,
    Resync,
    RunEnded,
    Superseded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from acts.machines.events import RecordReceived
    from acts.machines.run_machine import RunMachine


def receive_record(run: RunMachine, event: RecordReceived, now: str) -> list[Any]:
    """The effects of a record on the run that receives it; one of another tree is ignored."""
    record = event.record
    if record.token != run.position.token:
        return [Note(f"a {type(record).__name__} was ignored: it does not come from a run of this tree")]
    take = _RECORDS.get(type(record))
    return run.on_record(record, now) if take is None else list(take(run, record, now) or ())


def _change_pending(run: RunMachine, record: PendingChanged, now: str) -> list[Any]:
    is_below = run.position.is_root and _is_below(run, (*record.ancestors, record.workflowId))
    return list(run.approvals.on_pending_changed(record, now)) if is_below else []


def _is_below(run: RunMachine, path: tuple[str, ...]) -> bool:
    """True for the path of a run below this one: the word that its child has started may come later."""
    if len(path) < 2 or path[0] != run.own:  # noqa: PLR2004 - this run, and at least one below it
        return False
    return path[1] in run.children.values() or path[1].startswith(f"{run.own}/")


def _store_report(run: RunMachine, record: CancelledReport, _now: str) -> None:
    run.cancelled_reports[record.workflowId] = record.report


def _stop_if_superseded(run: RunMachine, record: Superseded, _now: str) -> list[Any]:
    return [Stop(record.runId)] if record.is_about(run.position.parent, run.position.startedAt) else []


_RECORDS: Final[dict[type, Callable[[RunMachine, Any, str], Iterable[Any] | None]]] = {
    PendingChanged: _change_pending,
    ForwardedDecision: lambda run, record, now: run.approvals.on_forwarded(record, now),
    DecisionAnswer: lambda run, record, _now: run.approvals.on_answer(record),
    BudgetRequest: lambda run, record, _now: run.budget.on_request(record),
    BudgetReport: lambda run, record, _now: run.budget.on_report(record),
    BudgetGrant: lambda run, record, _now: run.budget.on_grant(record),
    PermitRequest: lambda run, record, _now: run.permits.on_request(record),
    PermitGrant: lambda run, record, _now: run.permits.on_grant(record),
    PermitReturn: lambda run, record, _now: run.permits.on_return(record),
    CancelledReport: _store_report,
    Resync: lambda run, _record, _now: run.recovery.on_resync(),
    ChildReset: lambda run, record, _now: [] if run.finished else run.recovery.on_child_reset(record),
    ModelWait: lambda run, record, _now: run.model_waits.record(record),
    RunEnded: lambda run, record, _now: run.recovery.forget_run(record.workflowId),
    Superseded: _stop_if_superseded,
}
