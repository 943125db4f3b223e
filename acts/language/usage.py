"""What a run used of models, and what remains of its budget.

``cost`` is in US dollars; it is None as soon as the price of one request is unknown. A budget is
checked before each request, so it is exceeded by no more than the requests in flight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.language.config import Budget


@dataclass
class Usage:
    """Sums over the requests of a run. Input tokens include cached ones, output tokens reasoning ones."""

    requests: int = 0
    inputTokens: int = 0
    outputTokens: int = 0
    cachedTokens: int = 0
    reasoningTokens: int = 0
    cost: float | None = 0.0

    def add(self, more: Mapping[str, Any] | None) -> None:
        """Add another sum in its JSON form; anything else counts as nothing."""
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
        """What remains of ``requests``, ``tokens`` and ``cost``, as far as the budget limits them.

        ``flying`` is the number of requests that are not answered yet.
        """
        remaining: dict[str, float] = {}
        if budget.requests is not None:
            remaining["requests"] = budget.requests - self.requests - flying
        if budget.tokens is not None:
            remaining["tokens"] = budget.tokens - self.inputTokens - self.outputTokens
        if budget.cost is not None:
            remaining["cost"] = budget.cost - (self.cost or 0.0)
        return remaining

    def exhausted(self, budget: Budget, *, flying: int = 0, whole: Budget | None = None) -> str | None:
        """The limit that allows no further request, in words, or None.

        ``whole`` is the configured budget, where ``budget`` is only what remained of it.
        """
        for name, rest in self.left(budget, flying=flying).items():
            if rest <= 0:
                limit = getattr(whole or budget, name) or getattr(budget, name)
                unit = {"requests": "requests", "tokens": "tokens", "cost": "US dollars"}[name]
                amount = f"{limit:,.6g}" if name == "cost" else f"{limit:,}"
                return f"the budget of {amount} {unit} is spent"
        return None
