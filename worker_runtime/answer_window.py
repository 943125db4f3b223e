"""How many answers to workflow tasks may be on their way to the server before a busy tree computes its next task.

A server writes one thing at a time for each shard. What a batch sends at once becomes a queue there, and every other
run of the server waits in it. What waits in this process holds up nobody, since the order here is fair. So only as
many answers are on their way as the way itself holds, which is their rate times the fastest of them (Little's law, as
in TCP Vegas), and a few more, so that the server never runs out of work.
"""

from __future__ import annotations

import math
from typing import Final

# Beyond what the way holds, so that the server has the next one. With one, a batch is an eighth slower; with four it is
# no faster than with two, and a small plan beside it takes a third longer
SPARE_ANSWERS: Final = 2
# Of a busy tree while a quiet one is at work: the server's queue is as short as it can be
COURTEOUS_ANSWERS: Final = 1
# The rate of answers counts one that is older by this much half
HALF_LIFE_SECONDS: Final = 1.0
# The fastest time grows by this factor with each answer that is alone on its way: the way may have become longer
FORGET: Final = 1.05


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
        rate = math.log(2) * self._count(now) / HALF_LIFE_SECONDS
        return SPARE_ANSWERS + int(rate * self._fastest)

    def _count(self, now: float) -> float:
        return float(self._recent * 0.5 ** ((now - self._then) / HALF_LIFE_SECONDS))
