"""Answers of a model in a row that could not be used, what they cost, and the cap of the next request. Plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.usage import Usage
from acts.language.wire import MAX_UNUSABLE_ANSWERS

if TYPE_CHECKING:
    from collections.abc import Mapping


class UnusableAnswers:
    """Those of one agent. ``cap`` is that of the request after a cut answer, in tokens: no later one is lower."""

    def __init__(self) -> None:
        self.count = 0
        self.cap: int | None = None
        self._usage = Usage()

    @property
    def left(self) -> int:
        """How many more end the run."""
        return max(1, MAX_UNUSABLE_ANSWERS - self.count)

    def record(self, unusable: Mapping[str, Any], usage: Mapping[str, Any]) -> None:
        """An answer could not be used; ``unusable`` is as the model activity returns it."""
        self.count += unusable.get("answers", 1)
        self._usage.add(usage)
        cap = unusable.get("cap")
        if isinstance(cap, int):
            self.cap = cap

    def reset(self) -> None:
        """An answer could be used."""
        self.count, self._usage = 0, Usage()

    def end_text(self, message: str) -> str | None:
        """Why the run ends now, after an answer with this fault; None: it does not."""
        if self.count < MAX_UNUSABLE_ANSWERS:
            return None
        usage = self._usage
        cost = "an unknown price" if usage.cost is None else f"{usage.cost:.4f} US dollars"
        tokens = usage.inputTokens + usage.outputTokens
        return (
            f"{self.count} answers of the model in a row could not be used; they cost {tokens:,} tokens and {cost}. "
            f"The last: {message}"
        )

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON; empty where there is none."""
        if not self.count and self.cap is None:
            return {}
        return {"count": self.count, "cap": self.cap, "usage": self._usage.to_json()}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over a snapshot."""
        self.count, self.cap = data.get("count", 0), data.get("cap")
        self._usage.add(data.get("usage"))
