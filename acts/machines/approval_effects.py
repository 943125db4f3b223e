"""What follows from an event of the approvals: typed effects, for the run itself or for the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acts.machines.budget import SendRecord

if TYPE_CHECKING:
    from acts.tree.decisions import Decision, PendingApproval
    from acts.tree.signal_records import DecisionAnswer


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision was taken; the run applies it at once. ``token`` is what its check returned."""

    wait: PendingApproval
    decision: Decision
    token: Any = None


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Wake the run after so many seconds, with the timer's name."""

    name: str
    seconds: float
    summary: str


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Stop a timer."""

    name: str


@dataclass(frozen=True, slots=True)
class AnswerUpdate:
    """Answer the update of this id: None, or the problem that refuses it."""

    id: str
    problem: DecisionAnswer | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A remark for ``status`` and the page."""

    text: str


ApprovalEffect = Decided | StartTimer | CancelTimer | AnswerUpdate | Note | SendRecord
