"""How the plan of a walk changes while it is walked: an edit by a person, or Calls that are added.

Laws of this file: what has started stays as it is. A change is refused where it would alter a Call that
has started, or what one has read or writes onto. Whatever the change is, the walk is loaded again from
the new plan and the states of the Calls that both plans have; there is no second mechanism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.errors import DecisionRefused
from acts.machines.call_state import CallState
from acts.machines.snapshot import keep_call
from acts.plan.graph import WriterIndex, paths_read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.machines.walk import Walk
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan


def match_calls(walk: Walk, prepared: ValidatedPlan) -> dict[int, int]:
    """The Calls that a new plan leaves as they are: their rank in it, and their rank in the walk.

    Raises:
        DecisionRefused: the new plan alters a Call that has started, or what one has read or writes onto.
    """
    ranks = {_position(node): rank for rank, node in enumerate(walk.nodes)}
    same: dict[int, int] = {}
    for rank, node in enumerate(prepared.nodes):
        old = ranks.get(_position(node))
        if old is not None and _is_same(walk.nodes[old], node):
            same[rank] = old
    unchanged = dict.fromkeys(same.values())
    for rank, (node, call) in enumerate(zip(walk.nodes, walk.calls, strict=True)):
        if call.has_started and rank not in unchanged:
            raise DecisionRefused(f"{node.id} has started and cannot be changed")
    started = [rank for rank in unchanged if walk.calls[rank].has_started]
    if started != sorted(started):
        raise DecisionRefused("the edit would change the order of calls that have started")
    _refuse_new_writes_before_started(walk, prepared, same)
    return same


def _position(node: PlannedCall) -> Any:
    """What makes a Call the same in two plans: its place in the list; of a batch child, its name."""
    return node.key if node.members else (node.index, node.name)


def _is_same(old: PlannedCall, new: PlannedCall) -> bool:
    return old.planned == new.planned and old.instance == new.instance


def _refuse_new_writes_before_started(walk: Walk, prepared: ValidatedPlan, same: Mapping[int, int]) -> None:
    """A started Call may not come after a new one that writes what it reads or writes."""
    new_writes = WriterIndex()
    for rank, node in enumerate(prepared.nodes):
        if rank not in same:
            new_writes.add(node, rank)  # its own reads are no matter: they are of what precedes its place
            continue
        touched = (*node.writes, *paths_read(node))
        if walk.calls[same[rank]].has_started and any(new_writes.has_writer(path, node.instance) for path in touched):
            raise DecisionRefused(f"{node.id} has started: the edit would change what it reads, or writes onto")


def load_new_plan(walk: Walk, prepared: ValidatedPlan, same: Mapping[int, int], *, edited: bool) -> None:
    """Load a new plan into a walk. ``edited`` marks its new Calls as put there by a person."""
    calls = {}
    for rank in range(len(prepared.nodes)):
        old = same.get(rank)
        calls[rank] = CallState(edited=edited) if old is None else keep_call(walk.calls[old])
    ignored = walk.ignored
    walk.load(prepared, walk.provided_data(), calls)
    walk.ignored.extend(ignored)


def walk_anew(walk: Walk, prepared: ValidatedPlan) -> Walk:
    """A walk of another plan that has not begun, with the provided messages and the settings of this one."""
    other = type(walk)(prepared, walk.identify, walk.may_start, walk.assume if walk.dry else None)
    for setting in ("paused", "draining", "cancelling", "growing", "counts_elements"):
        setattr(other, setting, getattr(walk, setting))
    other.past = walk.past
    other.load(prepared, walk.provided_data(), {})
    return other
