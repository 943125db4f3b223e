"""What the child of a Call reports, as the run above takes it: decisions that were made there, and instances."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError
from acts.language.wire import CANCELLED, ENGINE_ERROR
from acts.machines.instance_results import REPORT_KEYS
from acts.tree.decisions import INNER

if TYPE_CHECKING:
    from acts.language.values import Json
    from acts.plan.planned_call import PlannedCall

_SHARED: Final = ("calls", "errors")
# Different parts that are remembered: the instances of one plan rarely end in more ways
MAX_SHARED: Final = 1_000


def decision_seen_from_above(node: PlannedCall, record: dict[str, Any]) -> dict[str, Any]:
    """A decision that was made in a child: of which instance of this run, or below which Call."""
    if node.members:
        return {"instance": node.members[0], **record}
    # The instances of a delegate are none of ours, and it does not know for whom it works
    inner = {} if record.get("instance") is None else {INNER: record.get(INNER, record["instance"])}
    own = {} if node.instance is None else {"instance": node.instance}
    return {**{k: v for k, v in record.items() if k != "instance"}, **inner, "below": node.id, **own}


class SharedParts:
    """Parts of reports that thousands of instances have alike, each held once: their Calls, and their lack of errors.

    The Calls of an instance take 2 kB of memory, and all other instances of a template have the same.
    """

    def __init__(self) -> None:
        self._by_text: dict[str, Json] = {}

    def share(self, reports: dict[str, Any]) -> dict[str, Any]:
        """The reports of a child's instances, by id, with shared parts."""
        return {id_: {**item, **{key: self._shared(item[key]) for key in _SHARED}} for id_, item in reports.items()}

    def _shared(self, part: Json) -> Json:
        text = json.dumps(part)
        if len(self._by_text) >= MAX_SHARED and text not in self._by_text:
            return part
        return self._by_text.setdefault(text, part)


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
