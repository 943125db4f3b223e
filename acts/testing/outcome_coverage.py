"""Which outcomes of a plan its tests reach.

An outcome of a Call is an alternative of its ``_outputPath`` or its error path; of a Call with ``_when``, also that it
is skipped. A failure that no path takes is none: it is the same for every Call, and ends in ``errors``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from acts.language.references import conjunction
from acts.simulation.possible_outcomes import SUCCESS, PossibleOutcomes

if TYPE_CHECKING:
    from acts.machines.call_state import CallState
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan
    from acts.testing.rehearsal import Rehearsal

SKIPPED: Final = -2
RAN: Final = -3  # a Call that writes nothing
_WORDS: Final = {SUCCESS: "completed", SKIPPED: "skipped", RAN: "ran"}

Outcome = tuple[str, int]  # the id of a Call, and the index of an outcome or one of the numbers above


@dataclass
class Coverage:
    """``texts`` are all outcomes of a plan, in its order; ``reached`` those that a test has reached."""

    texts: dict[Outcome, str]
    reached: set[Outcome] = field(default_factory=set)

    def add(self, rehearsal: Rehearsal) -> None:
        """Count what one rehearsal has reached."""
        for node, call in rehearsal.calls:
            outcome = _outcome_of(node, call)
            if outcome is not None and (node.id, outcome) in self.texts:
                self.reached.add((node.id, outcome))

    @property
    def missing(self) -> list[tuple[str, str]]:
        """The outcomes that no test reaches: Call id and text."""
        return [(key[0], text) for key, text in self.texts.items() if key not in self.reached]

    def to_json(self) -> dict[str, Any]:
        """``{reached, total, missing: [{call, outcome}]}``"""
        missing = [{"call": call, "outcome": text} for call, text in self.missing]
        return {"reached": len(self.reached), "total": len(self.texts), "missing": missing}


def outcomes_of(prepared: ValidatedPlan) -> Coverage:
    """The outcomes of a plan, none of them reached."""
    texts: dict[Outcome, str] = {}
    ranks = sorted(range(len(prepared.nodes)), key=lambda rank: prepared.nodes[rank].index)
    outcomes = PossibleOutcomes()
    for rank in ranks:
        node = prepared.nodes[rank]
        for outcome in _possible(node, outcomes, is_literal=rank in prepared.literal_outputs):
            texts[node.id, outcome] = _text(node, outcome)
    return Coverage(texts)


def _possible(node: PlannedCall, outcomes: PossibleOutcomes, *, is_literal: bool) -> list[int]:
    if not node.outcomes:
        out = [] if node.kind == "latent" else [RAN]
    else:
        out = [0] if is_literal else list(outcomes.find(node))
    return [*out, SKIPPED] if node.condition is not None and out else out


def _text(node: PlannedCall, outcome: int) -> str:
    if outcome in _WORDS:
        return _WORDS[outcome]
    text = conjunction(node.outcomes[outcome])
    return f"failed, {text}" if outcome == node.error else text


def _outcome_of(node: PlannedCall, call: CallState) -> int | None:
    """The outcome that a Call took, or None."""
    if call.state == "skipped":
        return SKIPPED
    if call.state == "detached" or (call.state == "completed" and not node.outcomes):
        return RAN
    if call.state != "completed":
        return None
    if not node.result_outcome_count and call.error is None:
        return SUCCESS
    return call.outcome
