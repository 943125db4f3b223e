"""What a person should know of a plan that is valid: warnings, never errors.

A run does not compute them.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Final

from acts.language.errors import Problem
from acts.language.references import Path, alternatives
from acts.language.values import pointer
from acts.plan.graph import Graph, WriterIndex, paths_read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acts.plan.context_log import Log
    from acts.plan.planned_call import PlannedCall

Needs = dict[int, frozenset[int]] | None
"""By rank: the outcomes of branching Calls of which one must have been taken; None: impossible."""


def lint(graph: Graph, log: Log) -> list[Problem]:
    """Writes and results that get lost, and Calls that can never run."""
    needs, unreachable = _needs(graph, log)
    return [*_lost_writes(graph, needs), *_dropped_results(graph), *unreachable]


def _dropped_results(graph: Graph) -> list[Problem]:
    """Fire-and-forget Calls of Tools whose results nobody keeps, though they have some: a path may be forgotten."""
    text = "this call has no _outputPath, so nobody waits for it and its result is dropped"
    hint = "give it an _outputPath, unless that is what you want"
    kept = {n.tool.name for n in graph.order if n.outcomes}
    lost = (n for n in graph.order if n.detached and n.tool.output is not None and n.tool.name not in kept)
    return [Problem("droppedResult", text, n.pointer, n.id, hint, "warning") for n in lost]


def _lost_writes(graph: Graph, needs: Sequence[Needs]) -> list[Problem]:
    """Writes that nothing can read before the same path is surely set again."""
    readers = WriterIndex()
    for rank, node in enumerate(graph.order):
        _register_reads(readers, node, rank)
    out = []
    for chain in graph.writers.exact.values():
        for earlier, later in zip(chain.entries, chain.entries[1:], strict=False):
            node, after = graph.order[earlier], graph.order[later]
            if after.method != "set" or len(after.outcomes) != 1 or after.instance != node.instance:
                continue
            if not _follows(needs[earlier], needs[later]):
                continue
            if not any(_within(c.entries, earlier, later) for c in readers.overlapping(chain.path, node.instance)):
                text = f"{chain.path} is set again by {after.id} before anything can read it"
                out.append(Problem("lostWrite", text, node.pointer, node.id, severity="warning"))
    return out


def _register_reads(readers: WriterIndex, node: PlannedCall, rank: int) -> None:
    for path in dict.fromkeys(paths_read(node)):
        readers.add_path(path, node.instance, rank)


def _within(entries: list[int], low: int, high: int) -> bool:
    at = bisect.bisect_right(entries, low)
    return at < len(entries) and entries[at] <= high


def _follows(earlier: Needs, later: Needs) -> bool:
    """True when whatever lets the one Call run lets the other run too."""
    if earlier is None or later is None:
        return False
    return all(writer in earlier and earlier[writer] <= outcomes for writer, outcomes in later.items())


def _needs(graph: Graph, log: Log) -> tuple[list[Needs], list[Problem]]:
    """The outcomes each Call needs; Calls that need two of which only one can be."""
    needs: list[Needs] = []
    out = []
    for rank, node in enumerate(graph.order):
        need: Needs = {}
        for read in node.reads:
            options = [
                _join_needs([_path_needs(graph, log, needs, rank, node, p) for p in option])
                for option in alternatives(read.tree)
            ]
            feasible = [o for o in options if o is not None]
            if not feasible:
                need = None
            elif len(options) == 1:
                need = _join_needs([need, feasible[0]])
            if need is None:
                text = "no combination of outcomes lets this call run"
                out.append(Problem("unreachable", text, node.pointer + pointer(*read.at), node.id, severity="warning"))
                break
        needs.append(need)
    return needs, out


# What a Call inherits from its providers is followed through this many branching
# Calls; beyond it the check stays silent rather than slow.
_MAX_NEEDS: Final = 16


def _path_needs(graph: Graph, log: Log, needs: list[Needs], rank: int, node: PlannedCall, path: Path) -> Needs:
    """The outcomes that must have been taken for a path to be there; None: it cannot be."""
    if log.has_initially(path, node.instance):
        return {}
    writers: list[int] = []
    for chain in graph.writers.overlapping(path, node.instance):
        writers.extend(chain.entries[: bisect.bisect_left(chain.entries, rank)][:2])
    writers = list(dict.fromkeys(writers))
    if len(writers) != 1:
        return {} if any(needs[w] is not None for w in writers) or not writers else None
    only = graph.order[writers[0]]
    taken = frozenset(i for i, o in enumerate(only.outcomes) if any(p.overlaps(path) for p in o))
    inherited = needs[writers[0]]
    if inherited is None or len(only.outcomes) == 1:
        return inherited
    return _join_needs([inherited, {writers[0]: taken}])


def _join_needs(parts: Sequence[Needs]) -> Needs:
    out: dict[int, frozenset[int]] = {}
    for part in parts:
        if part is None:
            return None
        for writer, outcomes in part.items():
            out[writer] = out[writer] & outcomes if writer in out else outcomes
            if not out[writer]:
                return None
            if len(out) > _MAX_NEEDS:
                return {}
    return out
