"""The model usage of a run, and the rest of its budget.

``cost`` is in US dollars; it is None as soon as the price of one request is unknown. A budget is
checked before each request, so it is exceeded by no more than the requests in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

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
        for key in _COUNTS:
            if isinstance(count := more.get(key), int):
                setattr(self, key, getattr(self, key) + count)
        forms = more.get("schemaForms")
        for form, count in forms.items() if isinstance(forms, dict) else ():
            self.schemaForms[form] = self.schemaForms.get(form, 0) + count
        cost = more.get("cost", 0.0)
        self.cost = None if cost is None or self.cost is None else self.cost + float(cost)

    def to_json(self) -> dict[str, Any]:
        """``{requests, inputTokens, outputTokens, cachedTokens?, reasoningTokens?, schemaForms?, cost}``."""
        counts = {key: getattr(self, key) for key in _COUNTS}
        forms = {"schemaForms": dict(sorted(self.schemaForms.items()))} if self.schemaForms else {}
        cost = None if self.cost is None else round(self.cost, 9)
        return {
            **{key: count for key, count in counts.items() if count or key in _COUNTS[:3]}, **forms,
            "cost": int(cost) if cost is not None and cost == int(cost) else cost,
        }  # fmt: skip


_COUNTS: Final = ("requests", "inputTokens", "outputTokens", "cachedTokens", "reasoningTokens")
