"""A planned Call: what it reads, where it writes, and what stands behind it.

``CallReader`` makes these records of a plan's JSON; nothing changes one afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import truncate
from acts.language.references import Escape, Path, ReferenceUse, conjunction, resolve_references
from acts.language.tools import META, Tool
from acts.language.values import ABSENT, Json
from acts.language.wire import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acts.language.config import Approve

# The kind of a node that stands for a child of the run: it walks the Calls of some instances
UNIT: Final = "instance"
# Characters of a label: a summary in the Web UI is one line
MAX_LABEL: Final = 200
# ``||`` without an ``_errorPath``: the alternative that a failure is written to is
# known by the last segment of its last path
_ERROR_WORDS: Final = frozenset({"error", "errors", "failed", "failure"})
_ERROR_ENDINGS: Final = ("Error", "Failed")


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A Call as the plan holds it. ``id`` is ``<position from 1>:<tool>``.

    ``planned`` is the Call's own JSON; ``call`` the same with the Tool's constants applied
    and what is the Tool's business stripped.

    ``outcomes`` are the alternatives of ``_outputPath``, each a conjunction of paths;
    an ``_errorPath`` of its own comes last. ``error`` is the outcome that a failure
    takes (None: nowhere to go), ``result_outcome_count`` how many of them a result may choose.

    ``name`` tells apart the Calls of instances that are walked together. A *unit* is no Call:
    it stands for a child that walks all Calls of the instances in ``members``.
    """

    index: int
    id: str
    tool: Tool
    planned: dict[str, Any]
    call: dict[str, Any]
    pointer: str
    instance: str | None
    kind: str
    delegate: str | None
    reads: tuple[ReferenceUse, ...]
    scopes: tuple[Path, ...]
    outcomes: tuple[tuple[Path, ...], ...]
    result_outcome_count: int
    error: int | None
    method: str
    escapes: tuple[Escape, ...] = ()
    name: str = ""
    members: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The Call's name within a walk, where several instances may have Calls of the same id."""
        return self.name or self.id

    @property
    def parameters(self) -> dict[str, Any]:
        """The Call without its meta-properties."""
        return {k: v for k, v in self.call.items() if k not in META}

    def resolve_parameters(self, read: Callable[[Path], Json]) -> tuple[dict[str, Any], list[ReferenceUse]]:
        """The parameters with every expression replaced by what it yields, and the uses that are absent."""
        parameters, missing = resolve_references(self.parameters, self.reads, self.escapes, read)
        return parameters, missing

    @property
    def writes(self) -> tuple[Path, ...]:
        """Every path the Call may write, without repeats."""
        return tuple(dict.fromkeys(p for outcome in self.outcomes for p in outcome))

    @property
    def detached(self) -> bool:
        """True for fire-and-forget: something runs, and its result goes nowhere."""
        return not self.outcomes and self.kind in ("activity", "delegate")

    @property
    def acts(self) -> bool:
        """True when an Activity answers, be it in a clean room: what it returns may choose an outcome."""
        return self.kind == "activity" or (self.delegate == ANONYMOUS and bool(self.tool.activity))

    @property
    def given(self) -> Json:
        """The ``_output`` that came with a latent Call, or ABSENT."""
        return self.call.get("_output", ABSENT) if self.kind == "latent" else ABSENT

    @property
    def result_outcomes(self) -> tuple[tuple[Path, ...], ...]:
        """The outcomes that a result may choose."""
        return self.outcomes[: self.result_outcome_count]

    @property
    def outcome_texts(self) -> list[str]:
        """The outcomes that a result may choose, each as one expression."""
        return [conjunction(outcome) for outcome in self.result_outcomes]

    @property
    def label(self) -> str:
        """``tool → path``, for the summary of the Call's activity or child: printable, at most 200 characters."""
        where = " || ".join(self.outcome_texts)
        text = f"{self.tool.name} → {where}" if where else self.tool.name
        if self.kind == UNIT:
            text = f"instance {self.id}"
        text = text if self.instance is None else f"{text} [{self.instance}]"
        return truncate("".join(c if c.isprintable() else "�" for c in text), MAX_LABEL)

    @property
    def branches(self) -> bool:
        """True when a result chooses between outcomes."""
        return self.result_outcome_count > 1


def error_alternative(outcomes: Sequence[Sequence[Path]]) -> int | None:
    """Which alternative of a ``||`` takes a failure, by the name of its last path."""
    if len(outcomes) == 1:
        return None
    for index, outcome in enumerate(outcomes):
        names = outcome[-1].names
        if names and (names[-1] in _ERROR_WORDS or names[-1].endswith(_ERROR_ENDINGS)):
            return index
    return None


def approval_needed(node: PlannedCall, approve: Approve) -> str | None:
    """What of a Call a human confirms: ``call``, ``scopes``, or None."""
    listed = approve.calls is True or (isinstance(approve.calls, tuple) and node.tool.name in approve.calls)
    if listed or node.tool.approval or node.call.get("_approval") is True:
        return "call"
    return "scopes" if approve.scopes and node.scopes and "_scopes" not in node.tool.consts else None
