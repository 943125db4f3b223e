"""What an agent knows before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acts.language.messages import Request
    from acts.tree.records import Capabilities, GrantedRequest, PermitLease, TreePosition


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """What an agent knows before it begins. ``raw`` is its Request as JSON; ``run_id`` that of this run.

    ``advance`` is the request to a model that it begins with, ``refusal`` the reason why it has none, ``lease`` its
    permits.
    """

    raw: dict[str, Any]
    request: Request
    capabilities: Capabilities
    position: TreePosition
    run_id: str
    advance: GrantedRequest | None = None
    refusal: str | None = None
    lease: PermitLease | None = None
