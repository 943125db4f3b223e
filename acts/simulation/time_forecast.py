"""How long a plan is expected to take, in seconds: durations of Calls, scheduled with ``maxParallel``.

Laws of this file:
- durations are declared by Tools (``_options.expected``) or learned from earlier runs; none is guessed. A plan with a
  Call of unknown duration has a lower bound only;
- the engine starts a Call as soon as it can (a greedy schedule). So the time T of a plan with the work W, the critical
  path C and m permits obeys Graham's bound: max(C, W/m) <= T <= W/m + C * (1 - 1/m). Where all Calls fit beside each
  other, T is C;
- waiting for people, for messages and for the engine itself is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acts.plan.graph import Graph
    from acts.plan.validate import ValidatedPlan

Span = tuple[float, float]
"""The least and the greatest duration that one start of a Call is expected to take, in seconds."""

Durations = Mapping[str, Span]
"""By the name of a Tool."""

# Digits of a figure: nobody plans in microseconds
DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class Schedule:
    """One combination of outcomes with one duration per start: bounds of its time, and its critical path."""

    least: float
    most: float
    path: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StartedCalls:
    """The Calls that one combination starts, and how often those with ``_each`` are started: at least, at most."""

    ranks: Sequence[int]
    least: Mapping[int, int]
    most: Mapping[int, int]


def declared_durations(prepared: ValidatedPlan) -> dict[str, Span]:
    """What the Tools of a plan declare."""
    tools = {node.tool.name: node.tool for node in prepared.nodes}
    return {name: t.options.expected.span for name, t in tools.items() if t.options.expected is not None}


def forecast_seconds(
    prepared: ValidatedPlan, scenarios: Iterable[StartedCalls], learned: Durations | None, times: int
) -> dict[str, Any]:
    """``{seconds: {min, max}, slowest: ranks | None, withoutDuration: [tool]}``; {} where no duration is known.

    ``times`` is how many instances walk the plan; ``slowest`` the critical path of the slowest combination, None where
    a duration is missing.
    """
    durations = {**declared_durations(prepared), **(learned or {})}
    awaited = [
        rank for rank, n in enumerate(prepared.nodes) if not n.is_detached and rank not in prepared.literal_outputs
    ]
    tools = dict.fromkeys(prepared.nodes[rank].tool.name for rank in awaited)
    if not any(tool in durations for tool in tools):
        return {}
    unknown = [tool for tool in tools if tool not in durations]
    spans = {rank: durations.get(prepared.nodes[rank].tool.name, (0.0, 0.0)) for rank in awaited}
    limit = prepared.request.config.maxParallel
    low, high, slowest = float("inf"), 0.0, Schedule(0, 0, ())
    for scenario in scenarios:
        ranks = [rank for rank in scenario.ranks if rank in spans]
        quick = {rank: (spans[rank][0], scenario.least.get(rank, 1)) for rank in ranks}
        slow = {rank: (spans[rank][1], scenario.most.get(rank, 1)) for rank in ranks}
        low = min(low, schedule(prepared.graph, quick, limit, times).least)
        longest = schedule(prepared.graph, slow, limit, times)
        high = max(high, longest.most)
        slowest = max(slowest, longest, key=lambda s: s.most)
    figures = {"min": round(min(low, high), DIGITS), "max": round(high, DIGITS)}
    path = None if unknown or not slowest.path else slowest.path
    return {"seconds": figures, "slowest": path, "withoutDuration": unknown}


def schedule(graph: Graph, starts: Mapping[int, tuple[float, int]], limit: int, times: int = 1) -> Schedule:
    """The bounds for Calls that take ``starts[rank]`` seconds, so many times each. Linear in the plan.

    A Call that is not started takes no time, and those that wait for it wait for what it waited for.
    """
    ends: list[float] = []
    before: list[int | None] = []
    progress: dict[int, tuple[int, int | None]] = {}  # by chain: entries read, and the one of them that ends last
    for rank in range(len(graph.order)):
        latest: int | None = None
        for chain, count in graph.waits[rank]:
            at, last = progress.get(id(chain), (0, None))
            for entry in chain.entries[at:count]:
                last = entry if last is None or ends[entry] > ends[last] else last
            progress[id(chain)] = (max(at, count), last)
            if last is not None and (latest is None or ends[last] > ends[latest]):
                latest = last
        seconds, count = starts.get(rank, (0.0, 0))
        ends.append((0.0 if latest is None else ends[latest]) + (seconds if count else 0.0))
        before.append(latest)
    path = max(ends, default=0.0)
    work = times * sum(seconds * count for seconds, count in starts.values())
    all_at_once = times * sum(count for _, count in starts.values()) <= limit
    most = path if all_at_once else min(work, work / limit + path * (1 - 1 / limit))
    return Schedule(max(path, work / limit), max(path, most), _longest_chain(ends, before, starts))


def _longest_chain(
    ends: Sequence[float], before: Sequence[int | None], starts: Mapping[int, tuple[float, int]]
) -> tuple[int, ...]:
    """The started Calls on the way to the end that comes last."""
    at = max(range(len(ends)), key=ends.__getitem__, default=None)
    out: list[int] = []
    while at is not None:
        if at in starts:
            out.append(at)
        at = before[at]
    return tuple(out[::-1])


def span_of(samples: Sequence[float]) -> Span:
    """The tenth and the ninetieth percentile of measured durations (nearest rank); of one sample, it is both."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    return ordered[round(0.1 * last)], ordered[round(0.9 * last)]
