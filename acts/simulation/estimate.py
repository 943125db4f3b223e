"""What a plan is expected to take: requests to models, tokens, money, and Temporal's billable actions.

Every figure is a range over the combinations of outcomes. Those of children that walk instances
are in it; what delegates do is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.references import conjunction
from acts.plan.validate import ValidatedPlan, is_template
from acts.simulation.action_forecast import ActionForecaster, actions_are_foreseeable
from acts.simulation.time_forecast import Durations, StartedCalls, forecast_seconds
from acts.simulation.token_estimate import TokenEstimator
from acts.simulation.type_flow import find_list_lengths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.plan.planned_call import PlannedCall
    from acts.simulation.critical_path import Depths
    from acts.simulation.outcome_exploration import OutcomeRun

# Calls whose tokens are estimated in all combinations together, at some 0.05 ms each
MAX_ESTIMATED_CALLS: Final = 2_000

Price = Callable[[str], float | None]
"""The estimated US dollars of one request to a model, or None where no price is known."""


@dataclass(frozen=True, slots=True)
class _Scenario:
    """The Calls that one combination starts, those that fail, and how many paths have to be provided for them.

    ``least`` and ``most`` say how often those with ``_each`` are started, where that is not once.
    """

    started: Sequence[int]
    least: Mapping[int, int]
    most: Mapping[int, int]
    failed: frozenset[int] = frozenset()
    missing: int = 0

    def count_starts(self, kind: str, nodes: Sequence[PlannedCall]) -> tuple[int, int]:
        """How often the Calls of a kind are started, at least and at most."""
        ranks = [rank for rank in self.started if nodes[rank].kind == kind]
        return sum(self.least.get(rank, 1) for rank in ranks), sum(self.most.get(rank, 1) for rank in ranks)


def estimate_plan(
    prepared: ValidatedPlan, depths: Depths, runs: Sequence[OutcomeRun], price: Price | None, *,
    approvals: Sequence[bool], truncated: bool, child: bool, durations: Durations | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The figures of ``simulate_prepared``, by name.

    ``approvals`` says of each Call whether it waits for a decision, ``truncated`` that ``runs`` are not all
    combinations, ``child`` that an agent starts the run, ``durations`` what Calls took in earlier runs.
    """
    scenarios = list(_scenarios(prepared, depths, runs, truncated=truncated))
    times = len(prepared.request.instances()) if is_template(prepared.request, prepared.nodes) else 1
    requests = _range(times * n for s in scenarios for n in s.count_starts("latent", prepared.nodes))
    delegates = _range(times * n for s in scenarios for n in s.count_starts("delegate", prepared.nodes))
    tokens, actions = TokenEstimator(prepared), ActionForecaster(prepared, approvals, child=child)
    unforeseen = ["requests", "tokens", "cost", "actions"] if delegates["max"] else []
    if not actions_are_foreseeable(prepared, approvals, requests=requests["max"], child=child):
        unforeseen = unforeseen or ["actions"]
    time = forecast_seconds(prepared, (StartedCalls(s.started, s.least, s.most) for s in scenarios), durations, times)
    if time.get("withoutDuration"):
        unforeseen = [*unforeseen, "seconds"]
    return {
        "requests": requests, "delegates": delegates, "cost": _cost(prepared, requests, price),
        "tokens": _range(
            times * tokens.estimate(s.started, s.failed, counts)
            for s in _estimated(scenarios) for counts in _both(s)
        ),
        "actions": _range(
            n for s in scenarios for counts in _both(s) for n in actions.bounds(s.started, s.missing, counts)
        ),
        **({"runs": actions.children} if actions.children else {}),
        **time, "unforeseen": unforeseen,
    }  # fmt: skip


def _both(scenario: _Scenario) -> Iterable[Mapping[int, int]]:
    return (scenario.least,) if scenario.least == scenario.most else (scenario.least, scenario.most)


def _scenarios(
    prepared: ValidatedPlan, depths: Depths, runs: Sequence[OutcomeRun], *, truncated: bool
) -> Iterable[_Scenario]:
    lengths = find_list_lengths(prepared)
    least = {rank: low for rank, (low, _) in lengths.items()}
    most = {rank: high for rank, (_, high) in lengths.items()}
    for run in runs:
        failed, waiting = _failed(prepared, run), run.states.get("waiting", [])
        counts = {**least, **run.elements}, {**most, **run.elements}
        yield _Scenario(run.started, *counts, failed)
        if waiting:  # the same when somebody provides all that is missing
            yield _Scenario((*run.started, *waiting), *counts, failed, _count_missing(prepared, waiting))
    if truncated:  # between the Calls that depend on no outcome, and all of them
        able = [
            r
            for r, n in enumerate(prepared.nodes)
            if r not in prepared.literal_outputs and (n.outcomes or n.is_detached)
        ]
        yield _Scenario([r for r in able if depths.sure[r]], least, most)
        yield _Scenario(able, least, most)


def _count_missing(prepared: ValidatedPlan, waiting: Iterable[int]) -> int:
    """The paths that these Calls read and that no Call writes; at least one."""
    nodes = [prepared.nodes[rank] for rank in waiting]
    reads = {(path, node.instance) for node in nodes for read in node.reads for path in read.paths}
    return max(1, sum(not prepared.graph.writers.has_writer(*read) for read in reads))


def _failed(prepared: ValidatedPlan, run: OutcomeRun) -> frozenset[int]:
    """The started Calls of a combination that end with an error."""
    failed = set()
    for rank in run.started:
        node = prepared.nodes[rank]
        path = None if node.error is None else conjunction(node.outcomes[node.error])
        if rank in run.errors or (path is not None and run.choices.get(rank) == path):
            failed.add(rank)
    return frozenset(failed)


def _estimated(scenarios: Sequence[_Scenario]) -> Sequence[_Scenario]:
    """Every combination of a small plan; of a large one, those with the fewest and the most Calls."""
    if sum(len(s.started) for s in scenarios) <= MAX_ESTIMATED_CALLS:
        return scenarios
    by_size = sorted(scenarios, key=lambda s: len(s.started))
    return [by_size[0], by_size[-1]]


def _cost(prepared: ValidatedPlan, requests: dict[str, int], price: Price | None) -> dict[str, float] | None:
    """US dollars, or None where no price is known."""
    model = prepared.request.config.model
    each = 0.0 if not requests["max"] else price(model) if price and model else None
    return None if each is None else {k: round(n * each, 6) for k, n in requests.items()}


def _range(numbers: Iterable[int]) -> dict[str, int]:
    values = list(numbers)
    return {"min": min(values), "max": max(values)}
