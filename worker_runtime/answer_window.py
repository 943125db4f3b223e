"""How many answers to workflow tasks may be on their way to the server before a busy tree computes its next task.

A server writes one thing at a time (per shard, at best), so what a batch sends at once becomes a line there, in which
every other run of the server stands, too. An answer that waits in this process instead does not: here the order is
fair. So only as many are on their way as the way itself holds, which is their rate times the fastest of them
(Little's law, as in TCP Vegas), and a few more, so that the server never waits.
"""

from __future__ import annotations

from typing import Final

# Beyond what the way holds: with four, the server always has the next one
SPARE_ANSWERS: Final = 4
# Of a busy tree while a quiet one is at work: the server's line is as short as it can be
COURTEOUS_ANSWERS: Final = 1
# In which half of the answers so far is forgotten, for their rate
HALF_LIFE_SECONDS: Final = 1.0
# The fastest answer is forgotten by so much with each that was alone: the way may have become longer
FORGET: Final = 1.05
_LN2: Final = 0.693


class AnswerWindow:
    """The size of the window, from the times at which answers were sent and had arrived, in seconds."""

    def __init__(self) -> None:
        self._fastest = 0.0
        self._recent, self._then = 0.0, 0.0
        self._alone_since: float | None = None

    def send(self, now: float, unanswered: int) -> None:
        """An answer goes out; ``unanswered`` counts it."""
        self._recent, self._then = self._count(now) + 1, now
        self._alone_since = now if unanswered == 1 else None

    def arrive(self, now: float, unanswered: int) -> None:
        """An answer has arrived; so many are still on their way."""
        if self._alone_since is not None and not unanswered:
            seconds = now - self._alone_since
            self._fastest = min(seconds, FORGET * self._fastest) if self._fastest else seconds
        self._alone_since = None

    def size(self, now: float) -> int:
        """How many answers may be on their way at once."""
        rate = _LN2 * self._count(now) / HALF_LIFE_SECONDS
        return SPARE_ANSWERS + int(rate * self._fastest)

    def _count(self, now: float) -> float:
        return float(self._recent * 0.5 ** ((now - self._then) / HALF_LIFE_SECONDS))
