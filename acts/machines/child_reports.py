"""What the child of a Call reports, as the run above takes it: decisions that were made there, and instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.errors import CallError
from acts.language.wire import CANCELLED, ENGINE_ERROR
from acts.machines.instance_results import REPORT_KEYS
from acts.tree.decisions import INNER

if TYPE_CHECKING:
    from acts.plan.planned_call import PlannedCall


def decision_seen_from_above(node: PlannedCall, record: dict[str, Any]) -> dict[str, Any]:
    """A decision that was made in a child: of which instance of this run, or below which Call."""
    if node.members:
        return {"instance": node.members[0], **record}
    # The instances of a delegate are none of ours, and it does not know for whom it works
    inner = {} if record.get("instance") is None else {INNER: record.get(INNER, record["instance"])}
    own = {} if node.instance is None else {"instance": node.instance}
    return {**{k: v for k, v in record.items() if k != "instance"}, **inner, "below": node.id, **own}


def reported_instances(node: PlannedCall, report: Any, error: CallError | None) -> dict[str, Any]:
    """What each instance of a unit came to, by id; ``error`` where the child said nothing."""
    if isinstance(report, dict) and isinstance(report.get("instances"), dict):
        return dict(report["instances"])
    if isinstance(report, dict) and "status" in report:
        return {node.members[0]: {k: report[k] for k in REPORT_KEYS if k in report}}
    cause = error or CallError(ENGINE_ERROR, "the child that walked it said nothing of it")
    item = {"call": None, "code": cause.code, "message": cause.message}
    status = "cancelled" if cause.code == CANCELLED else "failed"
    nothing = {"status": status, "state": {}, "calls": [], "errors": [item], "written": []}
    return dict.fromkeys(node.members, nothing)
