"""How many elements the lists of Calls with ``_each`` have: what schemas say, and what dry runs found."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.simulation.outcome_exploration import OutcomeRun


def merge_lengths(declared: Mapping[int, tuple[int, int]], runs: Sequence[OutcomeRun]) -> dict[int, tuple[int, int]]:
    """The least and the greatest length by rank: those of the dry runs, if all of them know it, else as declared."""
    out = dict(declared)
    for rank in declared:
        lengths = [run.elements.get(rank) for run in runs if rank in run.started or rank in run.elements]
        certain = [length for length in lengths if length is not None]
        if certain and len(certain) == len(lengths):
            out[rank] = min(certain), max(certain)
    return out
