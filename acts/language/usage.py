"""The model usage of a run, and the rest of its budget.

``cost`` is in US dollars; it is None as soon as the price of one request is unknown. A budget is
checked before each request, so it is exceeded by no more than the requests in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass
class Usage:
    """Sums over the requests of a run. Input tokens include cached ones, output tokens reasoning ones.

    ``schemaForms`` counts the requests whose schema was not sent as a strict one, by the form that was.
    """

    requests: int = 0
    inputTokens: int = 0
    outputTokens: int = 0
    cachedTokens: int = 0
    reasoningTokens: int = 0
    cost: float | None = 0.0
    schemaForms: dict[str, int] = field(default_factory=dict)

    def add(self, more: Mapping[str, Any] | None) -> None:
        """Add another sum in its JSON form; ignore anything else."""
        if not isinstance(more, dict):
            return
        for key in ("requests", "inputTokens", "outputTokens", "cachedTokens", "reasoningTokens"):
            value = more.get(key, 0)
            if isinstance(value, int):
                setattr(self, key, getattr(self, key) + value)
        forms = more.get("schemaForms")
        for form, count in forms.items() if isinstance(forms, dict) else ():
            if isinstance(count, int):
                self.schemaForms[form] = self.schemaForms.get(form, 0) + count
        cost = more.get("cost", 0.0)
        self.cost = None if cost is None or self.cost is None else self.cost + float(cost)

    def to_json(self) -> dict[str, Any]:
        """``{requests, inputTokens, outputTokens, cachedTokens?, reasoningTokens?, schemaForms?, cost}``."""
        cost = None if self.cost is None else round(self.cost, 9)
        parts = {"cachedTokens": self.cachedTokens, "reasoningTokens": self.reasoningTokens}
        return {
            "requests": self.requests, "inputTokens": self.inputTokens, "outputTokens": self.outputTokens,
            **{k: v for k, v in parts.items() if v},
            **({"schemaForms": dict(sorted(self.schemaForms.items()))} if self.schemaForms else {}),
            "cost": int(cost) if cost is not None and cost == int(cost) else cost,
        }  # fmt: skip
