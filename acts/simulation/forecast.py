"""What a plan is expected to take: requests to models, money, Temporal's billable actions, and time.

* Every figure is a range over the combinations of outcomes. Those of children that walk instances are in it; what
  delegates do is not known.
* Actions are what Temporal Cloud bills (docs.temporal.io/cloud/actions). The range holds for a run in which every
  activity ends at its first attempt, that nobody edits, and whose values fit in its history.
* Time: Tools declare durations (``_options.expected``); none is guessed. A plan with a Call of unknown duration has a
  lower bound only. The engine starts a Call as soon as it can (a greedy schedule), so the time T of a plan with the
  work W, the critical path C and m permits obeys Graham's bound: max(C, W/m) <= T <= W/m + C * (1 - 1/m). Waiting for
  people, for messages and for the engine itself is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.tools import registered_names, undecided_names
from acts.plan.graph import ChainFold
from acts.plan.validate import ValidatedPlan, is_template
from acts.tree.child_requests import group_instances, needs_children, resolved_upfront

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from acts.plan.calls import PlannedCall
    from acts.plan.graph import Graph
    from acts.simulation.outcomes import OutcomeRun

Price = Callable[[str], float | None]
"""The estimated US dollars of one request to a model, or None where no price is known."""
Lengths = Mapping[int, tuple[int, int]]
"""How often Calls with ``_each`` are started, at least and at most, by rank."""

# Digits of a time: nobody plans in microseconds
DIGITS: Final = 3
# An activity, a timer, a signal and an update are one action each. A child takes two, one to record the intent and one
# for the start. All local activities of one workflow task take one together.
_CHILD: Final = 2
# Changes of phase of a root, each a write of search attributes: to ``running`` and to its end; and for each wait, to
# ``awaiting`` and back
_PHASES_PER_RUN: Final = 2
_PHASES_PER_WAIT: Final = 2


@dataclass(frozen=True, slots=True)
class _Scenario:
    """The Calls that one combination starts, with how often, and how many paths have to be provided for them."""

    started: Mapping[int, int]
    missing: int = 0

    def total(self, nodes: Sequence[PlannedCall], kind: str) -> int:
        """How many Calls of a kind are started."""
        return sum(count for rank, count in self.started.items() if nodes[rank].kind == kind)


def estimate_plan(
    prepared: ValidatedPlan, runs: Sequence[OutcomeRun], price: Price | None, lengths: Lengths, *,
    approvals: Sequence[bool], truncated: bool, child: bool,
) -> dict[str, Any]:  # fmt: skip
    """The figures of ``simulate_prepared``, by name.

    ``approvals`` says of each Call whether it waits for a decision, ``truncated`` that ``runs`` are not all
    combinations, ``child`` that an agent starts the run.
    """
    nodes = prepared.nodes
    times = len(prepared.request.instances()) if is_template(prepared.request, nodes) else 1
    started = list(_start_sets(prepared, runs, truncated=truncated))
    bounds = [
        [_Scenario({rank: lengths.get(rank, (1, 1))[bound] for rank in ranks}, missing) for ranks, missing in started]
        for bound in (0, 1)
    ]
    scenarios = [*bounds[0], *bounds[1]]
    requests, delegates = (_range(times * s.total(nodes, kind) for s in scenarios) for kind in ("latent", "delegate"))
    model = prepared.request.config.model
    each = 0.0 if not requests["max"] else price(model) if price and model else None
    time = _forecast_seconds(prepared, bounds, times)
    children = len(group_instances(prepared)) if needs_children(prepared) else 0
    fixed = _actions_of_start(prepared, child=child)
    actions = [_estimate_actions(prepared, s, fixed, approvals, times, children, child=child) for s in scenarios]
    return {
        "requests": requests,
        "delegates": delegates,
        "cost": None if each is None else {k: round(n * each, 6) for k, n in requests.items()},
        "actions": _range(number for pair in actions for number in pair),
        **({"runs": children} if children else {}),
        **time,
        "unforeseen": [
            *(["requests", "cost", "actions"] if delegates["max"] else []),
            *(["seconds"] if time.get("withoutDuration") else []),
        ],
    }


def _start_sets(
    prepared: ValidatedPlan, runs: Sequence[OutcomeRun], *, truncated: bool
) -> Iterable[tuple[Sequence[int], int]]:
    """The ranks that each combination starts, and how many paths somebody has to provide for them."""
    for run in runs:
        yield run.started, 0
        if waiting := run.states.get("waiting", []):  # the same when somebody provides all that is missing
            nodes = [prepared.nodes[rank] for rank in waiting]
            reads = {(path, node.instance) for node in nodes for read in node.reads for path in read.paths}
            missing = sum(not prepared.graph.writers.has_writer(*read) for read in reads)
            yield (*run.started, *waiting), max(1, missing)
    if truncated:  # between nothing and everything
        literal = prepared.literal_outputs
        yield (), 0
        yield [r for r, n in enumerate(prepared.nodes) if r not in literal and (n.outcomes or n.is_detached)], 0


def _range(numbers: Iterable[int]) -> dict[str, int]:
    values = list(numbers)
    return {"min": min(values), "max": max(values)}


# -- the longest chain of Calls ----------------------------------------------------------------


def longest_paths(graph: Graph, weights: Sequence[float]) -> tuple[list[float], list[int | None]]:
    """Where each Call ends that begins where the last one that it waits for ends, and which one that is; by rank.

    Linear in the Calls: each chain keeps the last of its ends.
    """
    ends: list[float] = []
    before: list[int | None] = []

    def later(last: int | None, rank: int | None) -> int | None:
        return rank if last is None or (rank is not None and ends[rank] > ends[last]) else last

    fold: ChainFold[int | None] = ChainFold(None, later)
    for rank, waits in enumerate(graph.waits):
        last: int | None = None
        for chain, count in waits:
            last = later(last, fold.at(chain, count))
        ends.append((0.0 if last is None else ends[last]) + weights[rank])
        before.append(last)
    return ends, before


def _longest_chain(ends: Sequence[float], before: Sequence[int | None]) -> list[int]:
    """The ranks on the way to the end that comes last."""
    at = max(range(len(ends)), key=ends.__getitem__, default=None)
    out: list[int] = []
    while at is not None:
        out.append(at)
        at = before[at]
    return out[::-1]


def find_waves(graph: Graph) -> list[list[int]]:
    """The ranks of the Calls that may run side by side, wave after wave."""
    ends, _ = longest_paths(graph, [1] * len(graph.order))
    waves: list[list[int]] = [[] for _ in range(int(max(ends, default=0)))]
    for rank, end in enumerate(ends):
        waves[int(end) - 1].append(rank)
    return waves


def find_critical_path(graph: Graph) -> list[int]:
    """The ranks of the longest chain of Calls that wait for each other."""
    return _longest_chain(*longest_paths(graph, [1] * len(graph.order)))


# -- time ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schedule:
    """One combination of outcomes with one duration per start: bounds of its time, and its critical path."""

    least: float
    most: float
    path: tuple[int, ...]


def _forecast_seconds(prepared: ValidatedPlan, bounds: Sequence[Sequence[_Scenario]], times: int) -> dict[str, Any]:
    """``{seconds: {min, max}, slowest: ranks | None, withoutDuration: [tool]}``; {} where no duration is known.

    ``times`` is how many instances walk the plan; ``slowest`` the critical path of the slowest combination, None where
    a duration is missing.
    """
    literal = prepared.literal_outputs
    tools = {r: n.tool for r, n in enumerate(prepared.nodes) if not n.is_detached and r not in literal}
    expected = {tool.name: tool.options.expected for tool in tools.values()}
    if not any(expected.values()):
        return {}
    unknown = [name for name, duration in expected.items() if duration is None]
    spans = {rank: (0.0, 0.0) if (e := expected[tool.name]) is None else (e.min, e.max) for rank, tool in tools.items()}
    limit = prepared.request.config.maxParallel
    quick, slow = (
        [
            schedule(prepared.graph, {r: (spans[r][at], n) for r, n in s.started.items() if r in spans}, limit, times)
            for s in scenarios
        ]
        for at, scenarios in enumerate(bounds)
    )
    slowest = max(slow, key=lambda s: s.most)
    low = min(*(s.least for s in quick), slowest.most)
    figures = {"min": round(low, DIGITS), "max": round(slowest.most, DIGITS)}
    return {"seconds": figures, "slowest": None if unknown else slowest.path, "withoutDuration": unknown}


def schedule(graph: Graph, starts: Mapping[int, tuple[float, int]], limit: int, times: int = 1) -> Schedule:
    """The bounds for Calls that take ``starts[rank]`` seconds, so many times each.

    A Call that is not started takes no time, and those that wait for it wait for what it waited for.
    """
    weights = [0.0] * len(graph.order)
    for rank, (seconds, count) in starts.items():
        weights[rank] = seconds if count else 0.0
    ends, before = longest_paths(graph, weights)
    path = max(ends, default=0.0)
    work = times * sum(seconds * count for seconds, count in starts.values())
    all_at_once = times * sum(count for _, count in starts.values()) <= limit
    most = path if all_at_once else min(work, work / limit + path * (1 - 1 / limit))
    chain = tuple(rank for rank in _longest_chain(ends, before) if rank in starts)
    return Schedule(max(path, work / limit), max(path, most), chain)


# -- billable actions ----------------------------------------------------------------------------


def _actions_of_start(prepared: ValidatedPlan, *, child: bool) -> tuple[int, int, int]:
    """The actions, decisions and local activities before the first Call; for a child, its agent has done it."""
    request = prepared.request
    if child:
        return _CHILD, 0, 0
    definitions = set(resolved_upfront(request, prepared.tools).values())
    looks_up = bool(registered_names(request) or undecided_names(request))
    return 1 + len(definitions), int(request.asks_for_plan), 1 + looks_up


def _estimate_actions(
    prepared: ValidatedPlan, scenario: _Scenario, fixed: tuple[int, int, int], approvals: Sequence[bool], times: int,
    children: int, *, child: bool,
) -> tuple[int, int]:  # fmt: skip
    """The fewest and the most actions of a run that starts these Calls, in ``children`` runs for its instances."""
    certain, decisions, local = fixed
    certain += _CHILD * children
    for rank, count in scenario.started.items():
        node = prepared.nodes[rank]
        decisions += times * approvals[rank]
        if node.kind == "activity" and node.tool.options.local and not node.is_detached:
            local += times * count
        else:  # in the background it runs in a child of its own
            own = (_CHILD if node.kind == "delegate" else 1) + _CHILD * node.is_detached
            certain += times * count * own
    # The phase of a root changes when it waits, and back; a run below leaves that to its root
    wait = 0 if child else _PHASES_PER_WAIT
    has_deadline = prepared.request.config.approve.timeout is not None
    # All local activities may run in one workflow task, or each in its own
    low = certain + decisions + bool(local) + bool(scenario.missing)
    high = certain + decisions * (1 + has_deadline + wait) + local + scenario.missing * (1 + wait)
    return low, high + (0 if child else _PHASES_PER_RUN)
