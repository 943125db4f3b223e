"""What a run over a set knows before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acts.language.messages import SetData
    from acts.plan.validate import ValidatedPlan
    from acts.tree.records import Capabilities, PermitLease, TreePosition
    from acts.tree.set_records import ResumedSet


@dataclass(frozen=True, slots=True)
class SetSetup:
    """``raw`` is its Request as JSON, ``resumed`` the earlier run that it resumes."""

    raw: dict[str, Any]
    prepared: ValidatedPlan
    message: SetData
    capabilities: Capabilities
    position: TreePosition
    lease: PermitLease | None = None
    resumed: ResumedSet | None = None
    provided: tuple[Any, ...] = ()
