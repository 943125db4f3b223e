"""What a run spent on models, and what its budget leaves.

``cost`` is in US dollars; it is None as soon as one request's price is unknown. A budget
is checked before each request with what is known then, so it is overrun by no more than
the requests in flight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.language.config import Budget


@dataclass
class Usage:
    """Sums over the requests of a run. Input tokens include cached ones, output tokens the reasoning."""

    requests: int = 0
    inputTokens: int = 0
    outputTokens: int = 0
    cachedTokens: int = 0
    reasoningTokens: int = 0
    cost: float | None = 0.0

    def add(self, more: Mapping[str, Any] | None) -> None:
        """Add what ``to_json`` of another sum gave; anything else counts as nothing."""
        if not isinstance(more, dict):
            return
        for key in ("requests", "inputTokens", "outputTokens", "cachedTokens", "reasoningTokens"):
            value = more.get(key, 0)
            if isinstance(value, int):
                setattr(self, key, getattr(self, key) + value)
        cost = more.get("cost", 0.0)
        self.cost = None if cost is None or self.cost is None else self.cost + float(cost)

    def to_json(self) -> dict[str, Any]:
        """``{requests, inputTokens, outputTokens, cachedTokens?, reasoningTokens?, cost}``."""
        cost = None if self.cost is None else round(self.cost, 9)
        parts = {"cachedTokens": self.cachedTokens, "reasoningTokens": self.reasoningTokens}
        return {
            "requests": self.requests, "inputTokens": self.inputTokens, "outputTokens": self.outputTokens,
            **{k: v for k, v in parts.items() if v},
            "cost": int(cost) if cost is not None and cost == int(cost) else cost,
        }  # fmt: skip

    def left(self, budget: Budget, *, flying: int = 0) -> dict[str, float]:
        """What a budget leaves of ``requests``, ``tokens`` and ``cost``, as far as it limits them.

        ``flying`` requests were made and have not answered yet.
        """
        out: dict[str, float] = {}
        if budget.requests is not None:
            out["requests"] = budget.requests - self.requests - flying
        if budget.tokens is not None:
            out["tokens"] = budget.tokens - self.inputTokens - self.outputTokens
        if budget.cost is not None:
            out["cost"] = budget.cost - (self.cost or 0.0)
        return out

    def exhausted(self, budget: Budget, *, flying: int = 0, whole: Budget | None = None) -> str | None:
        """The limit that allows no further request, in words, or None.

        ``whole`` is the limit that somebody set, where ``budget`` is what was left of it.
        """
        for name, rest in self.left(budget, flying=flying).items():
            if rest <= 0:
                limit = getattr(whole or budget, name) or getattr(budget, name)
                unit = {"requests": "requests", "tokens": "tokens", "cost": "US dollars"}[name]
                told = f"{limit:,.6g}" if name == "cost" else f"{limit:,}"
                return f"the budget of {told} {unit} is spent"
        return None
