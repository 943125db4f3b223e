"""The billable actions that a plan is expected to take, as a range (see ``billable_actions``).

Laws
----
* The range holds for a run in which every activity succeeds or fails at its first attempt, that
  nobody edits, and whose values fit in its history. Retries, edits, further messages, and
  continue-as-new because of large values come on top.
* It covers the run and the children that walk its instances. Of any other child only the start is
  known: what a delegate does is ``unforeseen``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from acts.language.tools import registered_names, undecided_names
from acts.machines.queue_watch import foreign_queues
from acts.plan.validate import ValidatedPlan, is_template
from acts.simulation.billable_actions import (
    ACTIONS,
    ACTIVITY,
    CHILD_WORKFLOW,
    LOCAL_ACTIVITIES,
    SEARCH_UPDATE,
    SIGNAL,
    TIMER,
    WORKFLOW,
)
from acts.tree.batches import group_instances, needs_children
from acts.tree.delegation import resolved_upfront

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.plan.planned_call import PlannedCall

# The server suggests continue-as-new from so many events on (``limit.historyCount.suggestContinueAsNew``)
_EVENTS_PER_RUN: Final = 4_096
# Changes of phase of a root: to ``running`` and to its end; and to ``awaiting`` and back for each wait
_PHASES_PER_RUN: Final = 2
_PHASES_PER_WAIT: Final = 2
# The most events that one action leaves: an activity's three and those of a workflow task
_EVENTS_PER_ACTION: Final = 6


@dataclass(slots=True)
class _RunForecast:
    """The actions of one run: those that are certain, its decisions, its local activities, and possible ones."""

    certain: int = 0
    decisions: int = 0
    local: int = 0
    possible: int = 0

    def times(self, n: int) -> _RunForecast:
        """The same for ``n`` instances in one run."""
        return _RunForecast(n * self.certain, n * self.decisions, n * self.local, n * self.possible)

    def bounds(self, *, deadline: bool, wait: int) -> tuple[int, int]:
        """The fewest and the most.

        A decision is a signal or an update; with a ``deadline``, a timer and perhaps one of these. It may take
        ``wait`` more because the run's phase changes. Local activities run in one workflow task, or each in its own.
        """
        decision = ACTIONS[SIGNAL] + (ACTIONS[TIMER] if deadline else 0) + wait
        low = self.certain + self.decisions + (ACTIONS[LOCAL_ACTIVITIES] if self.local else 0)
        high = self.certain + self.possible + decision * self.decisions + ACTIONS[LOCAL_ACTIVITIES] * self.local
        return low, high + high * _EVENTS_PER_ACTION // _EVENTS_PER_RUN


class ActionForecaster:
    """Forecasts for one plan. ``bounds`` is called once for each combination of outcomes.

    ``approvals`` says of each Call whether it waits for a decision; ``child`` that an agent starts this run.
    ``children`` is how many children walk instances.
    """

    def __init__(self, prepared: ValidatedPlan, approvals: Sequence[bool], *, child: bool) -> None:
        self._prepared, self._approvals = prepared, approvals
        groups = group_instances(prepared) if needs_children(prepared) else []
        self.children = len(groups)
        # A child of several instances may start the timer after which it gives back idle permits
        self._possible_timers = sum(len(group) > 1 for group in groups)
        # Of a template, all children do the same for each of their instances: by number of instances
        template = is_template(prepared.request, prepared.nodes)
        self._sizes = Counter(len(group) for group in groups) if template else None
        self._group_of = {instance: number for number, group in enumerate(groups) for instance in group}
        self._deadline = prepared.request.config.approve.timeout is not None
        self._start = _start_of_run(prepared, child=child)
        # The phase of a root changes when it waits, and back; a run below leaves that to its root
        self._wait = 0 if child else _PHASES_PER_WAIT * ACTIONS[SEARCH_UPDATE]

    def bounds(
        self, started: Iterable[int], missing: int = 0, counts: Mapping[int, int] | None = None
    ) -> tuple[int, int]:
        """The fewest and the most actions of a run that starts these Calls, those in ``counts`` so often.

        ``missing`` is how many paths have to be provided: in one message, or one by one.
        """
        own = replace(self._start)
        below: dict[int, _RunForecast] = {}
        for rank in started:
            group = self._group_of.get(self._prepared.nodes[rank].instance or "")
            run = own if group is None else below.setdefault(group, _RunForecast())
            self._add_call(run, rank, 1 if counts is None else counts.get(rank, 1))
        own.certain += ACTIONS[CHILD_WORKFLOW] * self.children
        runs = [(own, 1), *self._child_runs(below)]
        bounds = [(*run.bounds(deadline=self._deadline, wait=self._wait), count) for run, count in runs]
        low, high = sum(low * count for low, _, count in bounds), sum(high * count for _, high, count in bounds)
        high += ACTIONS[TIMER] * self._possible_timers
        return low + (ACTIONS[SIGNAL] if missing else 0), high + (ACTIONS[SIGNAL] + self._wait) * missing

    def _child_runs(self, below: Mapping[int, _RunForecast]) -> Iterable[tuple[_RunForecast, int]]:
        """What the children do, and how many do the same."""
        if self._sizes is None:
            return [(run, 1) for run in below.values()]
        return [(run.times(size), count) for run in below.values() for size, count in self._sizes.items()]

    def _add_call(self, run: _RunForecast, rank: int, times: int) -> None:
        node = self._prepared.nodes[rank]
        run.decisions += self._approvals[rank]
        if node.kind == "activity" and node.tool.options.local and not node.is_detached:
            run.local += times
        else:
            run.certain += times * _actions_of(node)


def _actions_of(node: PlannedCall) -> int:
    """The actions of one Call that is no local activity. In the background it runs in a child of its own."""
    own = ACTIONS[CHILD_WORKFLOW] if node.kind == "delegate" else ACTIONS[ACTIVITY]
    return own + (ACTIONS[CHILD_WORKFLOW] if node.is_detached else 0)


def _start_of_run(prepared: ValidatedPlan, *, child: bool) -> _RunForecast:
    """The start of the run and what it does before the first Call; an agent has done this for its children."""
    if child:
        return _RunForecast(certain=ACTIONS[CHILD_WORKFLOW])
    request = prepared.request
    definitions = set(resolved_upfront(request, prepared.tools).values())
    looks_up = bool(registered_names(request) or undecided_names(request))
    approve, mode = request.config.approve, request.plan.mode if request.plan is not None else "eager"
    waits = mode == "lazy" if approve.plan is None else approve.plan
    certain = ACTIONS[WORKFLOW] + ACTIONS[ACTIVITY] * len(definitions)
    # A check of other task queues, and the timer of the next one; the run's own queue is not known here
    watches = bool(foreign_queues(node.tool for node in prepared.nodes))
    possible = ACTIONS[LOCAL_ACTIVITIES] + ACTIONS[TIMER] if watches else 0
    # Where the namespace has search attributes. Each root asks for them, in a local activity
    possible += _PHASES_PER_RUN * ACTIONS[SEARCH_UPDATE]
    return _RunForecast(certain, decisions=int(waits), local=1 + int(looks_up), possible=possible)


def actions_are_foreseeable(prepared: ValidatedPlan, approvals: Sequence[bool], *, requests: int, child: bool) -> bool:
    """False when other runs send this one signals that nobody can count in advance.

    They report decisions that Calls in children wait for, or grant what a budget in another run limits.
    ``requests`` is the most that the plan makes.
    """
    budget, batch = prepared.request.config.budget, needs_children(prepared)
    reports = batch and any(a and n.instance is not None for a, n in zip(approvals, prepared.nodes, strict=True))
    limits = requests and any(n is not None for n in (budget.requests, budget.tokens, budget.cost))
    grants = (child or batch) and bool(limits or budget.calls is not None)
    return not reports and not grants
