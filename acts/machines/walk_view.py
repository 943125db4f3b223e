"""What can be seen of a walk: its figures, the Calls that wait, and the values in its context.

Laws of this file: it reads a walk and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.references import conjunction
from acts.machines.instance_results import status_of_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.language.messages import Data
    from acts.language.references import Expression, Path
    from acts.language.values import Json
    from acts.machines.call_state import CallState, CallStates
    from acts.machines.ready_calls import ReadyCalls
    from acts.machines.walk_context import WalkContext
    from acts.plan.context_log import Log
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan


class WalkView:
    """The part of a walk that only reads it."""

    prepared: ValidatedPlan
    nodes: Sequence[PlannedCall]
    calls: Sequence[CallState]
    rows: Mapping[str, int]
    states: CallStates
    context: WalkContext
    ready: ReadyCalls
    paused: bool
    draining: bool
    cancelling: bool

    @property
    def is_waiting_for_input(self) -> bool:
        """True when a Call waits for data that is missing."""
        return self.prepared.request.config.missing == "wait"

    @property
    def running(self) -> int:
        """How many Calls and elements run."""
        return self.states.running

    @property
    def holds_starts(self) -> bool:
        """True while nothing starts."""
        return self.paused or self.draining

    @property
    def startable(self) -> int:
        """How many Calls and elements are ready and could start now."""
        return 0 if self.holds_starts else self.ready.count

    @property
    def open(self) -> int:
        """How many Calls have not settled."""
        return self.states.unsettled

    @property
    def counts(self) -> dict[str, int]:
        """How many Calls are in each state."""
        return self.states.counts()

    @property
    def quiet(self) -> bool:
        """True when no Call runs: the moment for a snapshot."""
        return self.running == 0

    @property
    def status(self) -> str:
        """How the plan ends, or would end now."""
        return status_of_plan(self)

    def find(self, call: str | None, instance: str | None) -> int | None:
        """The rank of a Call by its id and, where several have it, its instance."""
        row = self.rows.get(str(call))
        if row is None and instance is not None:
            row = self.rows.get(f"{instance}/{call}")
        return row if row is not None and row < len(self.nodes) else None

    def awaits(self, call: str | None, instance: str | None = None) -> int | None:
        """The rank of a Call that awaits a decision or input, or None."""
        rank = self.find(call, instance)
        return rank if rank is not None and self.calls[rank].state == "awaiting" else None

    @property
    def log(self) -> Log:
        """The context: what precedes the plan, and what its Calls wrote."""
        return self.context.log

    @property
    def provided(self) -> list[dict[str, Any]]:
        """The messages that were provided, as JSON."""
        return [message.raw for message in self.context.provided]

    def provided_data(self) -> list[Data]:
        """The messages that were provided."""
        return self.context.provided

    def appended(self) -> list[dict[str, Any]]:
        """The messages that came after the Request's: provided ones, then outputs in plan order."""
        return self.context.appended()

    def path_written(self, rank: int) -> str | None:
        """The paths that a Call wrote, as one expression, or None."""
        return conjunction(path for path, _, _ in self.calls[rank].written) or None

    def read(self, rank: int, path: Path) -> Json:
        """The value at ``path`` as a Call sees it: as of its place in plan order."""
        return self.context.reader(rank)(path)

    def value(self, tree: Expression, instance: str | None = None) -> Json:
        """The value of an expression after everything that has been written."""
        return self.context.value(tree, instance)

    def state(self, instance: str | None = None) -> Json:
        """The view of the state kind: ``{}`` when there is none."""
        return self.context.state(instance)
