"""What the walk wants done: plain data, performed by a shell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acts.plan.planned_call import PlannedCall


@dataclass(frozen=True, slots=True)
class StartCall:
    """Start what runs behind a Call. ``call`` is resolved; ``context`` is what it may see."""

    rank: int
    node: PlannedCall
    call: dict[str, Any]
    context: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class AskHuman:
    """A Call waits for a decision: about itself (``what`` is ``call``), or about its ``scopes``."""

    rank: int
    node: PlannedCall
    call: dict[str, Any]
    what: str = "call"


@dataclass(frozen=True, slots=True)
class PlanFinished:
    """Every Call has settled."""

    status: str


Command = StartCall | AskHuman | PlanFinished
