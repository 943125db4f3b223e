"""What is known of each Call while a plan is walked: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from acts.language.references import Path
    from acts.language.values import Json
    from acts.plan.graph import WriterChain
    from acts.plan.result_placement import Writes

SETTLED: Final = frozenset({"completed", "failed", "skipped", "rejected", "cancelled", "detached"})


@dataclass(slots=True)
class CallState:
    """What is known of one Call while the plan is walked."""

    state: str = "pending"
    waiting: int = 0
    outcome: int | None = None
    error: dict[str, Any] | None = None
    missing: tuple[str, ...] = ()
    approved: bool = False
    edited: bool = False
    resolved: dict[str, Any] | None = None
    effect: tuple[Writes, str] | None = None
    written: tuple[tuple[Path, Json, str], ...] = ()
    value: Json = None  # of a unit: what its instances came to


@dataclass(slots=True)
class ChainProgress:
    """How many of a chain's first entries have settled, and who waits for more."""

    chain: WriterChain
    done: int = 0
    waiters: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
