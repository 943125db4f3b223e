"""The commands of a walk: plain data, performed by a shell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acts.plan.planned_call import PlannedCall


@dataclass(frozen=True, slots=True)
class StartCall:
    """Start a Call. ``call`` has its references resolved; ``context`` are the messages that it may see."""

    rank: int
    node: PlannedCall
    call: dict[str, Any]
    context: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class AskHuman:
    """Ask a human to decide about a Call (``what`` is ``call``), or about its ``scopes``. It may be asked again."""

    rank: int
    node: PlannedCall
    call: dict[str, Any]
    what: str = "call"


@dataclass(frozen=True, slots=True)
class CountElements:
    """A Call is made ``more`` times beyond the one that the plan lists: may it? ``Walk.allow_elements`` answers yes."""

    rank: int
    node: PlannedCall
    more: int


@dataclass(frozen=True, slots=True)
class PlanFinished:
    """Every Call has settled."""

    status: str


Command = StartCall | AskHuman | CountElements | PlanFinished
