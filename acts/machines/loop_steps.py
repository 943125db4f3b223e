"""What an agent does next: the steps that its loop returns and ``AgentRun`` performs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask the model: tick ``tick``, the first ``message_count`` messages of the context being what it is shown."""

    tick: int
    message_count: int


@dataclass(frozen=True, slots=True)
class StartPlan:
    """Walk ``request`` as a plan of its own; ``ids`` are its Calls' ids in the Solution.

    It makes so many ``calls``, those of a template once for each instance.
    """

    tick: int
    request: dict[str, Any]
    ids: tuple[str, ...]
    calls: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The end: ``completed`` with an output, or ``failed`` at the limit that ``message`` names."""

    status: str
    message: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """A person approves the plan of this tick before any of it runs: ``approved``, ``rejected``, ``edited``."""

    tick: int


@dataclass(frozen=True, slots=True)
class DropRest:
    """The answer cannot be used, and Calls of it have started: the plan of this tick is what has started."""

    tick: int
    reason: str


Step = AskModel | AwaitApproval | StartPlan | DropRest | Finished
