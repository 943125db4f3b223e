"""What a walk reports of each Call: its state, where it wrote, its error, as results and ``status`` show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.plan.planned_call import UNIT

if TYPE_CHECKING:
    from acts.machines.walk import Walk

_FAILED: Final = ("failed", "rejected")
_WRONG: Final = (*_FAILED, "cancelled")


def call_item(walk: Walk, rank: int) -> dict[str, Any]:
    """``{id, tool, state, outputPath?, error?, …}`` of one Call; ``call`` is one that was edited and went wrong."""
    node, run = walk.nodes[rank], walk.runs[rank]
    out: dict[str, Any] = {"id": node.id, "tool": node.tool.name, "state": run.state}
    if node.instance is not None:
        out["instance"] = node.instance
    path = walk.path_written(rank)
    if path is not None:
        out["outputPath"] = path
    if run.error is not None:
        out["error"] = run.error
    if run.edited and run.state in _WRONG:
        out["call"] = node.planned
    if run.missing:
        out["waitsFor"] = list(run.missing)
    return out


def calls(walk: Walk) -> list[dict[str, Any]]:
    """Every Call, as listed in the plan."""
    ranks = [rank for rank, node in enumerate(walk.nodes) if node.kind != UNIT]
    return [call_item(walk, rank) for rank in sorted(ranks, key=lambda r: walk.nodes[r].index)]


def error_item(walk: Walk, rank: int) -> dict[str, Any] | None:
    """The failure of one Call that nothing took, or None."""
    node, run = walk.nodes[rank], walk.runs[rank]
    if run.state not in ("failed", "rejected") or run.error is None:
        return None
    item = {"call": node.id, **run.error}
    return item if node.instance is None else {**item, "instance": node.instance}


def errors(walk: Walk) -> list[dict[str, Any]]:
    """The failures that nothing took: ``{call, instance?, code, message}``."""
    out = [e for rank in range(len(walk.nodes)) if (e := error_item(walk, rank)) is not None]
    for run in walk.runs:
        for id_, item in (run.value or {}).items():
            out += [{**e, "instance": id_} for e in item["errors"]]
    return out
