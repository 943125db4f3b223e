"""Warnings about a valid plan: lost writes, dropped results, Calls that can never run.

They are for people who look at a plan; a run does not compute them. Nothing here is an error.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Final

from acts.language.errors import Problem
from acts.language.references import Path, alternatives, paths
from acts.language.values import pointer
from acts.plan.graph import Graph, WriterIndex, paths_read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acts.plan.context_log import Log

Needs = dict[int, frozenset[int]] | None
"""What a Call needs to run: by rank of a branching Call, the outcomes of which it must take one. None: impossible."""


def lint(graph: Graph, log: Log) -> list[Problem]:
    """The warnings of a plan. ``log`` is its context."""
    needs, unreachable = _needs(graph, log)
    return [*_lost_writes(graph, needs), *_dropped_results(graph), *unreachable]


def _dropped_results(graph: Graph) -> list[Problem]:
    """Fire-and-forget Calls of Tools with a result that no Call of the plan writes: a path may be missing."""
    text = "this call has no _outputPath, so nobody waits for it and its result is dropped"
    hint = "give it an _outputPath, unless that is what you want"
    writing = {call.tool.name for call in graph.order if call.outcomes}
    dropping = (c for c in graph.order if c.is_detached and c.tool.output is not None and c.tool.name not in writing)
    return [Problem("droppedResult", text, call.pointer, call.id, hint, "warning") for call in dropping]


def _lost_writes(graph: Graph, needs: Sequence[Needs]) -> list[Problem]:
    """Writes that nothing can read before the same path is certainly set again."""
    readers = WriterIndex()  # the same index, of what Calls read
    for rank, call in enumerate(graph.order):
        for path in dict.fromkeys(paths_read(call)):
            readers.add_path(path, call.instance, rank)
    problems = []
    for chain in graph.writers.exact.values():
        for earlier, later in zip(chain.entries, chain.entries[1:], strict=False):
            call, next_call = graph.order[earlier], graph.order[later]
            if next_call.method != "set" or len(next_call.outcomes) != 1 or next_call.instance != call.instance:
                continue
            if not _implies(needs[earlier], needs[later]):
                continue
            positions = (
                (bisect.bisect_right(reading.entries, earlier), bisect.bisect_right(reading.entries, later))
                for reading in readers.overlapping(chain.path, call.instance)
            )
            if all(first == last for first, last in positions):  # nobody reads between the two, nor the later one
                text = f"{chain.path} is set again by {next_call.id} before anything can read it"
                problems.append(Problem("lostWrite", text, call.pointer, call.id, severity="warning"))
    return problems


def _implies(earlier: Needs, later: Needs) -> bool:
    """True when the later Call runs whenever the earlier one does."""
    if earlier is None or later is None:
        return False
    return all(writer in earlier and earlier[writer] <= outcomes for writer, outcomes in later.items())


def _needs(graph: Graph, log: Log) -> tuple[list[Needs], list[Problem]]:
    """What each Call needs, by rank; and the Calls that need two outcomes of which only one can be taken."""
    needs: list[Needs] = []
    problems = []
    for rank, call in enumerate(graph.order):
        need: Needs = {}
        for use, tree in [(read, term) for read in call.reads for term in read.needed_expressions]:
            own = dict.fromkeys(path for path in paths(tree) if use.is_of_context(path))
            of_path = {path: _path_needs(graph, log, needs, rank, path) for path in own}
            options = [
                _join_needs([of_path[path] for path in option if path in of_path]) for option in alternatives(tree)
            ]
            feasible = [option for option in options if option is not None]
            if not feasible:
                need = None
            elif len(options) == 1:
                need = _join_needs([need, feasible[0]])
            if need is None:
                text = "no combination of outcomes lets this call run"
                place = call.pointer + pointer(*use.at)
                problems.append(Problem("unreachable", text, place, call.id, severity="warning"))
                break
        needs.append(need)
    return needs, problems


# What a Call needs through its writers is followed over this many branching Calls; with more,
# the check reports nothing rather than taking long
_MAX_NEEDS: Final = 16


def _path_needs(graph: Graph, log: Log, needs: list[Needs], rank: int, path: Path) -> Needs:
    """What must happen for the Call of ``rank`` to find a value at ``path``; None: it cannot."""
    instance = graph.order[rank].instance
    if log.has_initially(path, instance):
        return {}
    writers: dict[int, None] = {}
    for chain in graph.writers.overlapping(path, instance):
        count = bisect.bisect_left(chain.entries, rank)
        writers.update(dict.fromkeys(chain.entries[: min(count, 2)]))
    if len(writers) != 1:
        return {} if not writers or any(needs[w] is not None for w in writers) else None
    (writer,) = writers
    outcomes = graph.order[writer].outcomes
    inherited = needs[writer]
    if inherited is None or len(outcomes) == 1:
        return inherited
    providing = frozenset(i for i, outcome in enumerate(outcomes) if any(p.overlaps(path) for p in outcome))
    return _join_needs([inherited, {writer: providing}])


def _join_needs(parts: Sequence[Needs]) -> Needs:
    joined: dict[int, frozenset[int]] = {}
    for part in parts:
        if part is None:
            return None
        for writer, outcomes in part.items():
            joined[writer] = joined[writer] & outcomes if writer in joined else outcomes
            if not joined[writer]:
                return None
            if len(joined) > _MAX_NEEDS:
                return {}
    return joined
