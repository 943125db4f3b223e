"""How many Batches a run over a set has: at once, and before it continues as new.

Figures with their reasons, and what follows from them; nothing of a run's state.
"""

from __future__ import annotations

from typing import Final

# Batches at once: fewer leave the worker idle while one reads or writes; more only hold more instances in its memory.
# Above this many Calls of each, there are more of them
MIN_BATCHES: Final = 4
MAX_BATCHES: Final = 16
CALLS_OF_BATCH: Final = 50
# A Batch is about 10 events in the history of this run: 300 are 3,000, a seventeenth of the server's limit
BATCHES_PER_RUN: Final = 300
# Without a results file the result of a Batch has those of its rows, about 125 kB: 30 are 4 MB, a twelfth of the limit
BATCHES_WITH_RESULTS: Final = 30
# Continue-as-new ends a cron, so a run of one goes on to four fifths of the limit, with 875,000 rows
BATCHES_OF_CRON: Final = 3_500


def batches_at_once(max_parallel: int) -> int:
    """How many Batches share ``max_parallel`` Calls in flight."""
    return min(max_parallel, MAX_BATCHES, max(MIN_BATCHES, -(-max_parallel // CALLS_OF_BATCH)))


def batches_per_run(results: str | None, *, is_cron: bool) -> int:
    """How many Batches one run starts before it continues as new; ``results`` is its results file."""
    if is_cron:
        return BATCHES_OF_CRON
    return BATCHES_WITH_RESULTS if results is None else BATCHES_PER_RUN
