"""A run as a member of a tree: where it stands, what it may spend, which children it has.

Plans and agents alike. What a run above asks and tells comes by signal; history has
these signals only where there is a budget to keep, a pause, or something to provide.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from acts.language.config import Budget
from acts.language.errors import CallError, truncate
from acts.language.wire import GRANTED, SPEND, SPENT
from acts.tree.delegation import Place
from workflows.children import Children
from workflows.decidable import Decidable
from workflows.payloads import NOTHING, decode
from workflows.purse import Purse


class Member(Decidable):
    """A run that may have runs above and below it."""

    def __init__(self) -> None:
        super().__init__()
        self._place = Place()
        self._purse = Purse(Budget())
        self._children = Children(self._note, self._post)

    def _is_below(self, workflow_id: str) -> bool:
        return workflow_id in self._children

    async def _aimed_below(self, signal: str, aim: Any, *args: RawValue) -> bool:
        """Hand a signal to the one run below that it names; False when it is for this run."""
        own = workflow.info().workflow_id
        named = aim.get("workflowId") if isinstance(aim, dict) else None
        instance = aim.get("instance") if isinstance(aim, dict) else None
        if isinstance(named, str) and named != own:
            if not named.startswith(f"{own}/"):
                self._note(f"the signal {signal} was ignored: {truncate(named, 100)} is no run below this one")
                return True
            await self._children.tell_one(workflow.get_external_workflow_handle(named), signal, *args)
            return True
        if not isinstance(instance, str):
            return False
        if not await self._children.tell_named(instance, signal, *args):
            self._note(f"the signal {signal} was ignored: no child walks the instance {truncate(instance, 100)} now")
        return True

    @workflow.signal(name=SPEND, description="For the engine: a run below asks whether it may ask a model.")
    async def spend(self, given: RawValue = NOTHING) -> None:
        """A run below asks."""
        await self._purse.asked(read_signal(given))

    @workflow.signal(name=SPENT, description="For the engine: what a request of a run below cost.")
    def spent(self, given: RawValue = NOTHING) -> None:
        """A run below reports."""
        self._purse.reported(read_signal(given))

    @workflow.signal(name=GRANTED, description="For the engine: the answer of the run that keeps the budget.")
    def granted(self, given: RawValue = NOTHING) -> None:
        """The run above answers."""
        self._purse.answered(read_signal(given))


def read_signal(given: RawValue) -> Any:
    """What a signal holds; None when it is no JSON."""
    try:
        return decode(given)
    except CallError:
        return None
