"""What a plan is expected to come to: requests, tokens, money, and the events and bytes of its history."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from acts.language.references import conjunction
from acts.language.tools import registered_names, undecided_names
from acts.plan.validate import ValidatedPlan, is_template
from acts.simulation.approval_cost import ApprovalCost, approval_cost
from acts.simulation.size_estimate import TASK_BYTES, SizeEstimator, lookup_bytes
from acts.tree.batches import needs_children

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from acts.plan.planned_call import PlannedCall
    from acts.simulation.critical_path import Depths
    from acts.simulation.outcome_exploration import OutcomeRun

# Events in a run's history, as Temporal counts them: an activity is scheduled, started
# and completed; a child workflow is initiated, started and completed, and its start is a
# workflow task of its own. One that is not waited for has the first two, and the third with
# a task if it ends while the run goes on. A local activity leaves one marker.
_EVENTS: Final = {"activity": 3.0, "latent": 3.0, "delegate": 6.0, "background": 2.0, "local": 1.0}
_LATE_EVENTS: Final = 1.0
_CHILD_EVENTS: Final = 3.0  # of an instance, beside the workflow tasks
# A workflow task is scheduled, started and completed. A chain needs one per Call. Results of
# parallel Calls share them, as it happens: 1 to 7 tasks were measured for 12 Calls side by
# side, 7 for 100, 75 for 1,000. Local activities run within the task that starts them.
_TASK_EVENTS: Final = 3.0
_FEWEST_TASKS: Final = (1.0, 0.05)
_MOST_TASKS: Final = (6.0, 0.07)
# Start and end of the run with its first task, and the marker of the look-up of what is served
_RUN_EVENTS: Final = 5.0
_LOOKUP_EVENTS: Final = 1.0

# Calls weighed in all combinations together, at some 0.05 ms each
MAX_WEIGHED: Final = 2_000

Price = Callable[[str], float | None]
"""The estimated US dollars of one request to a model, or None where nobody knows."""


def estimated(
    prepared: ValidatedPlan,
    shape: Depths,
    trials: Sequence[OutcomeRun],
    price: Price | None,
    *,
    asked: Sequence[bool],
    truncated: bool,
    handed: int | None,
) -> dict[str, Any]:
    """The figures of ``simulate_prepared``, by name."""
    walks: list[_Walked] = [(t.started, _failing(prepared, t)) for t in trials]
    waiting = [(t, t.states["waiting"]) for t in trials if t.states.get("waiting")]
    walks += [((*t.started, *more), _failing(prepared, t)) for t, more in waiting]  # all that is lacking is provided
    if truncated:  # between the Calls that no outcome decides about, and all of them
        able = [r for r, n in enumerate(prepared.nodes) if r not in prepared.given and (n.outcomes or n.detached)]
        walks += [([r for r in able if shape.sure[r]], ()), (able, ())]
    times = len(prepared.request.instances()) if is_template(prepared.request, prepared.nodes) else 1
    how = [n.kind for n in prepared.nodes]
    requests = _range(times * sum(how[r] == "latent" for r in walk) for walk, _ in walks)
    delegates = _range(times * sum(how[r] == "delegate" for r in walk) for walk, _ in walks)
    model = prepared.request.config.model
    each = 0.0 if not requests["max"] else price(model) if price and model else None
    cost = None if each is None else {k: round(n * each, 6) for k, n in requests.items()}
    return {
        "requests": requests, "delegates": delegates, "cost": cost,
        **_history(prepared, shape, walks, asked=asked, times=times, handed=handed),
        "unforeseen": _unforeseen(prepared, asked, requests["max"], delegates["max"]),
    }  # fmt: skip


def _history(
    prepared: ValidatedPlan,
    shape: Depths,
    walks: Sequence[_Walked],
    *,
    asked: Sequence[bool],
    times: int,
    handed: int | None,
) -> dict[str, Any]:
    """``{tokens, events, bytes, runs?, each?}``."""
    looked_up = handed is None and bool(registered_names(prepared.request) or undecided_names(prepared.request))
    names = dict.fromkeys(registered_names(prepared.request))
    more = lookup_bytes({n: prepared.tools[n].schema for n in names if n in prepared.tools}) if looked_up else 0
    own, sizes = _LOOKUP_EVENTS * looked_up, SizeEstimator(prepared, handed)
    runs = sizes.runs
    alike = runs == times and is_template(prepared.request, prepared.nodes)  # one run for each, of all of the plan
    events, bytes_, tokens, each_events, each_bytes = [], [], [], [], []
    parts = [_share(prepared, shape, _here(sizes, walk), asked, below=handed is not None) for walk, _ in walks]
    for (walk, _), part in zip(walks, parts, strict=True):
        here = _here(sizes, walk)
        events += [round(own + n) for n in _events(prepared, shape, here, part, runs)]
        if alike:
            each_events += [round(n) for n in _events(prepared, shape, walk, ApprovalCost())]
    for (walk, failed), part in _weighed(list(zip(walks, parts, strict=True))):
        weight = sizes.of(walk, failed)
        tasks = _tasks(prepared, shape, _here(sizes, walk), part, runs)
        for n, said in zip(tasks, part.bytes, strict=True):
            bytes_.append(round(weight.bytes + more + said + TASK_BYTES * (1 + n)))
        if alike:
            each_bytes += [
                round(weight.each + TASK_BYTES * (1 + n)) for n in _tasks(prepared, shape, walk, ApprovalCost())
            ]
        tokens.append(times * weight.tokens)
    out: dict[str, Any] = {"tokens": _range(tokens), "events": _range(events), "bytes": _range(bytes_)}
    if runs:
        out["runs"] = runs
    if alike:
        out["each"] = {"events": _range(each_events), "bytes": _range(each_bytes)}
    return out


def _here(sizes: SizeEstimator, walk: Sequence[int]) -> Sequence[int]:
    """The Calls that no child of an instance walks."""
    return [rank for rank in walk if rank not in sizes.below] if sizes.below else walk


def _unforeseen(prepared: ValidatedPlan, asked: Sequence[bool], requests: int, delegates: int) -> list[str]:
    """The figures to which more is added than is known: by what delegates do, and by what is said between runs."""
    config = prepared.request.config
    approve, budget, batch = config.approve, config.budget, needs_children(prepared)
    kept = any(n is not None for n in (budget.requests, budget.tokens, budget.cost, budget.calls))
    waits = batch and any(a and n.instance is not None for a, n in zip(asked, prepared.nodes, strict=True))
    waits = waits or bool(delegates and (approve.plan or approve.calls or approve.scopes))
    asks = kept and bool(delegates or (batch and requests))
    spent = ["requests", "tokens", "cost"] if delegates else []
    return [*spent, "events", "bytes"] if waits or asks else spent


# What a combination starts, and which of that fails
_Walked = tuple["Sequence[int]", "Sequence[int]"]


def _failing(prepared: ValidatedPlan, trial: OutcomeRun) -> tuple[int, ...]:
    """The started Calls of a combination that end with an error."""
    out = []
    for rank in trial.started:
        node = prepared.nodes[rank]
        path = None if node.error is None else conjunction(node.outcomes[node.error])
        if rank in trial.errors or (path is not None and trial.choices.get(rank) == path):
            out.append(rank)
    return tuple(out)


def _weighed(walks: Sequence[tuple[_Walked, ApprovalCost]]) -> list[tuple[_Walked, ApprovalCost]]:
    """What is weighed: every combination of a small plan; of a large one, those with the fewest and most Calls."""
    if sum(len(started) for (started, _), _ in walks) <= MAX_WEIGHED:
        return list(walks)
    by_size = sorted(walks, key=lambda w: len(w[0][0]))
    return [by_size[0], by_size[-1]]


def _range(numbers: Iterable[int]) -> dict[str, int]:
    found = list(numbers)
    return {"min": min(found), "max": max(found)}


def _kind(node: PlannedCall) -> str:
    if node.detached:
        return "background"
    return "local" if node.kind == "activity" and node.tool.options.local else node.kind


def _tasks(
    prepared: ValidatedPlan, shape: Depths, started: Sequence[int], decisions: ApprovalCost, runs: int = 0
) -> tuple[float, float]:
    """Workflow tasks beside the first one: the fewest and the most."""
    wide = [0] * (max(shape.level, default=-1) + 1)
    for rank in started:
        wide[shape.level[rank]] += _kind(prepared.nodes[rank]) != "local"
    low, high = (sum(min(float(n), base + each * n) for n in wide) for base, each in (_FEWEST_TASKS, _MOST_TASKS))
    if decisions.tasks[1] > 1:  # what is decided one by one ends one by one
        high = max(high, min(float(sum(wide)), float(decisions.tasks[1])))
    high += _unwaited(prepared, started)
    if runs:  # each start and each end of a child may have a task to itself
        low, high = low + min(2.0 * runs, _FEWEST_TASKS[0] + 2 * _FEWEST_TASKS[1] * runs), high + 2.0 * runs
    return decisions.tasks[0] + low, decisions.tasks[1] + high


def _unwaited(prepared: ValidatedPlan, started: Sequence[int]) -> int:
    return sum(prepared.nodes[rank].detached for rank in started)


def _share(
    prepared: ValidatedPlan, shape: Depths, started: Sequence[int], asked: Sequence[bool], *, below: bool
) -> ApprovalCost:
    """What the decisions of people add to a walk."""
    plan, approve = prepared.request.plan, prepared.request.config.approve
    whole = plan is not None and (plan.mode == "lazy" if approve.plan is None else approve.plan)
    waves = [0] * (max(shape.level, default=-1) + 1)
    for rank in started:
        waves[shape.level[rank]] += asked[rank]
    return approval_cost(
        waves, len(prepared.nodes), whole=whole and not below, limited=approve.timeout is not None, below=below
    )


def _events(
    prepared: ValidatedPlan, shape: Depths, started: Sequence[int], decisions: ApprovalCost, runs: int = 0
) -> tuple[float, float]:
    total = _RUN_EVENTS + _CHILD_EVENTS * runs + sum(_EVENTS[_kind(prepared.nodes[rank])] for rank in started)
    low, high = _tasks(prepared, shape, started, decisions, runs)
    late = _LATE_EVENTS * _unwaited(prepared, started)
    return total + decisions.events[0] + _TASK_EVENTS * low, total + decisions.events[1] + late + _TASK_EVENTS * high
