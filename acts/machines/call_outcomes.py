"""How the outcome of a Call takes effect: a result or a failure is written, or it ends the Call.

Laws of this file: its functions work on a walk and on Calls in the stage ``applying``. A result is
written at once, unless a write before it in plan order could still decide whether it can be applied at
all; then it waits for that write. A result that cannot be applied is a failure of its Call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError, EngineError
from acts.machines.instance_results import status_of
from acts.machines.readiness import check_writes
from acts.plan.result_placement import place_result

if TYPE_CHECKING:
    from acts.language.references import Path
    from acts.language.values import Json
    from acts.machines.walk import Walk
    from acts.plan.result_placement import Writes

# How a batch child settles, by the status of its instances together
_EVENT_OF_STATUS: Final = {
    "completed": "written", "partial": "written", "failed": "failed", "rejected": "all_rejected",
    "cancelled": "cancelled",
}  # fmt: skip


def apply_result(walk: Walk, rank: int, value: Json, now: str, chosen: int | None = None) -> None:
    """Place and check a result, then write it; ``chosen`` is the outcome that came with it."""
    node = walk.nodes[rank]
    try:
        outcome, writes = place_result(node, value, chosen)
        check_writes(walk, node, writes)
    except CallError as error:
        apply_failure(walk, rank, error, now)
        return
    _apply(walk, rank, outcome, writes, now)


def apply_literal_output(walk: Walk, rank: int, now: str) -> None:
    """Take the ``_output`` that the plan holds for a latent Call as its result."""
    node = walk.nodes[rank]
    if node.outcomes:
        apply_result(walk, rank, node.literal_output, now)
    else:
        walk.settle(rank, "written", now)


def apply_child_report(walk: Walk, rank: int, report: dict[str, Any], now: str) -> None:
    """Take what the instances of a batch child wrote; ``report`` is that of each instance, by id."""
    walk.calls[rank].value = report
    walk.context.apply_child_report(report)
    status = status_of("completed", [item["status"] for item in report.values()])
    walk.settle(rank, _EVENT_OF_STATUS[status], now)


def apply_failure(walk: Walk, rank: int, error: CallError, now: str) -> None:
    """Write a failure to the Call's error outcome, or end the Call where it has none, or fails again."""
    node, call = walk.nodes[rank], walk.calls[rank]
    is_first = call.error is None
    if is_first:
        call.error = error.to_json()
    if node.error is None or not is_first:
        walk.settle(rank, "failed", now)
        return
    _apply(walk, rank, node.error, tuple((path, call.error) for path in node.outcomes[node.error]), now)


def apply_past_writes(walk: Walk, rank: int, outcome: int, writes: Writes, now: str) -> None:
    """Write what a Call of an earlier run had written."""
    _apply(walk, rank, outcome, writes, now)


def _apply(walk: Walk, rank: int, outcome: int, writes: Writes, now: str) -> None:
    call = walk.calls[rank]
    call.resolved, call.outcome, call.effect = None, outcome, (writes, now)
    write_when_possible(walk, rank)


def write_when_possible(walk: Walk, rank: int) -> None:
    """Write the result of a Call, unless it must wait for an earlier write."""
    node, call = walk.nodes[rank], walk.calls[rank]
    if call.effect is None:
        raise EngineError(f"call {node.id} has nothing to write")
    writes, now = call.effect
    _await_earlier_writes(walk, rank, writes)
    if walk.progress.is_waiting(rank):
        return
    call.effect = None
    view = walk.log.view_of(node.instance)
    for path, value in writes:
        conflict = view.find_conflict(path, node.method, value, rank)
        if conflict:
            apply_failure(walk, rank, conflict, now)
            return
    for path, value in writes:
        view.write(path, node.method, value, rank)
    call.written = tuple((path, value, now) for path, value in writes)
    walk.progress.record_writes(rank)
    walk.settle(rank, "written", now)


def _await_earlier_writes(walk: Walk, rank: int, writes: Writes) -> None:
    """Register waits for the earlier writes that can still decide whether a result may be written.

    They are the writes above its paths and, except for ``set``, at them. Once those have settled, methods
    other than ``set`` wait for the writes below too, unless the value there takes a merge in any case.
    """
    node, writers = walk.nodes[rank], walk.prepared.graph.writers
    is_set = node.method == "set"
    for path, _ in writes:
        walk.progress.await_earlier_writers(rank, writers.above(path, node.instance, itself=not is_set))
    if is_set or walk.progress.is_waiting(rank):
        return
    for path, value in writes:
        merges = node.method in ("merge", "assign") and isinstance(value, dict)
        if not (merges and _takes_merge(walk, rank, path)):
            walk.progress.await_earlier_writers(rank, writers.at_or_below(path, node.instance))


def _takes_merge(walk: Walk, rank: int, path: Path) -> bool:
    """True when the value at ``path``, as far as its writers have settled, can be merged into."""
    return walk.log.view_of(walk.nodes[rank].instance).type_at(path, rank) in ("object", "nothing", "null")
