"""What a tree of runs may spend: kept by one run, asked before each request wherever it is made.

Handing each child what is left would let a hundred of them spend it a hundred times. So
the budget has one keeper; a run below asks it before each request, and says afterwards
what the request cost. Requests are counted when they are granted, so ``requests`` is never
overrun; tokens and money are known afterwards, so they are overrun by no more than what is
in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acts.language.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.language.config import Budget


@dataclass(frozen=True, slots=True)
class BudgetGrant:
    """The answer to a question: ``refused`` says why not; ``left`` is what a second turn may still spend."""

    refused: str | None = None
    left: Mapping[str, float] = field(default_factory=dict)
    repair: bool = True

    def to_json(self) -> dict[str, Any]:
        """``{refused?, left?, repair?}``."""
        out: dict[str, Any] = {} if self.refused is None else {"refused": self.refused}
        if self.left:
            out["left"] = dict(self.left)
        return out if self.repair else {**out, "repair": False}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BudgetGrant:
        """What ``to_json`` gave."""
        return cls(data.get("refused"), data.get("left") or {}, data.get("repair", True))

    def within(self, other: BudgetGrant) -> BudgetGrant:
        """What two keepers allow together."""
        left = {k: min(g.left[k] for g in (self, other) if k in g.left) for k in {**self.left, **other.left}}
        return BudgetGrant(self.refused or other.refused, left, self.repair and other.repair)


class Ledger:
    """One budget. ``spent`` are the requests that have ended, ``flying`` those that were granted and have not.

    ``lent`` is the part of ``spent`` that runs were given which go on alone. ``whole`` is the budget that somebody
    set, where ``budget`` is what was left of it. ``calls`` counts those made or planned, here and below; ``planned``
    of them are those of the run's plan as it began.
    """

    def __init__(self, budget: Budget, whole: Budget | None = None) -> None:
        self.budget, self.whole = budget, whole
        self.spent = Usage()
        self.lent = Usage()
        self.flying = 0
        self.calls = 0
        self.planned = 0

    @property
    def limited(self) -> bool:
        """True when there is anything to keep."""
        budget = self.budget
        return any(n is not None for n in (budget.requests, budget.tokens, budget.cost, budget.calls))

    def request(self, others: int = 0) -> BudgetGrant:
        """Grant one request, or say which limit does not allow it. ``others`` are still to come besides."""
        why = self.spent.exhausted(self.budget, flying=self.flying, whole=self.whole)
        if why is not None:
            return BudgetGrant(why)
        self.flying += 1
        left = self.spent.left(self.budget, flying=self.flying)
        # Each request in flight may need a second turn; nobody's turn must take another's request
        repair = "requests" not in left or left["requests"] >= self.flying + others
        return BudgetGrant(None, {k: v for k, v in left.items() if k != "requests"}, repair)

    def settle(self, usage: Mapping[str, Any] | None) -> None:
        """A granted request has ended."""
        self.flying = max(0, self.flying - 1)
        self.spent.add(usage)

    def plan(self, count: int) -> None:
        """The run's plan begins with so many Calls."""
        self.calls = self.planned = count

    def too_many(self, count: int) -> str | None:
        """Why ``count`` more Calls are not allowed, or None."""
        limit = self.budget.calls
        if limit is None or count <= 0 or self.calls + count <= limit:
            return None
        whole = limit if self.whole is None or self.whole.calls is None else self.whole.calls
        made = f"{whole - limit + self.calls:,} were made or planned"
        return f"the budget of {whole:,} calls does not allow {count:,} more: {made}"

    def more_calls(self, count: int) -> BudgetGrant:
        """Allow ``count`` more Calls, or say why not."""
        why = self.too_many(count)
        self.calls += count if why is None else 0
        return BudgetGrant(why)

    def share(self, parts: int, most: Mapping[str, float] | None = None) -> dict[str, float]:
        """One part of what is left (and at most so much), for a run that goes on alone; it counts as spent here.

        However many such runs there are, together they never have more than there was.
        """
        out = self.part(parts, most)
        lent = {"requests": int(out.get("requests", 0)), "inputTokens": int(out.get("tokens", 0))}
        for sums in (self.spent, self.lent):
            sums.add({**lent, "cost": out.get("cost", 0.0)})
        self.calls += int(out.get("calls", 0))
        return {k: v if k == "cost" else int(v) for k, v in out.items()}

    def part(self, parts: int, most: Mapping[str, float] | None = None) -> dict[str, float]:
        """What ``share`` would give, before it counts as spent."""
        left = {k: max(0, v) for k, v in self.spent.left(self.budget, flying=self.flying).items()}
        if self.budget.calls is not None:
            left["calls"] = max(0, self.budget.calls - self.calls)
        out = {k: v / parts if k == "cost" else -(-v // parts) for k, v in left.items()}
        return out | {k: min(v, out.get(k, v)) for k, v in (most or {}).items()}

    def to_json(self) -> dict[str, Any]:
        """``{spent, lent, flying, calls, planned}``, for the next run."""
        return {
            "spent": self.spent.to_json(), "lent": self.lent.to_json(), "flying": self.flying, "calls": self.calls,
            "planned": self.planned,
        }  # fmt: skip

    def restore(self, data: Mapping[str, Any] | None) -> None:
        """Take over what ``to_json`` gave."""
        if data is not None:
            self.spent.add(data["spent"])
            self.lent.add(data.get("lent"))
            self.flying, self.calls = data["flying"], data["calls"]
            self.planned = data.get("planned", self.planned)
