"""A run's share in the budget of its tree: asked before each request, told what it cost.

A run with limits of its own keeps a ledger, for itself and for all below it. A run below
asks the next keeper above by signal and waits for the answer; a keeper that has one above
itself asks on. Where nobody has limits, nobody is asked, and history has nothing of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow

from acts.language.errors import CallError
from acts.language.wire import BUDGET_SPENT, GRANTED, SPEND, SPENT
from acts.machines.budget import BudgetGrant, Ledger
from workflows.payloads import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.language.config import Budget

_GONE: Final = "the run that keeps the budget, {above}, is over: nothing more may be spent"


class Purse:
    """``above`` is the id of the run that keeps the budget of this one's tree, if there is one.

    ``whole`` is the budget that was set, where ``budget`` is what is left of it for this run.
    """

    def __init__(self, budget: Budget, above: str | None = None, whole: Budget | None = None) -> None:
        self.ledger = Ledger(budget, whole)
        self.above = above
        self._asked = 0
        self._answers: dict[int, asyncio.Future[BudgetGrant]] = {}
        self._telling: list[asyncio.Task[None]] = []

    @property
    def keeper(self) -> str | None:
        """Whom the runs below ask."""
        return workflow.info().workflow_id if self.ledger.limited else self.above

    def at_hand(self, others: int = 0) -> None:
        """Take one request, where nobody above has to be asked.

        Raises:
            CallError: the budget is spent.
        """
        self._checked(self.ledger.request(others))

    async def request(self, others: int = 0) -> BudgetGrant:
        """Take one request, wherever the budget is kept; see ``at_hand``."""
        return self._checked(await self._request(others))

    async def _request(self, others: int) -> BudgetGrant:
        own = self.ledger.request(others)
        if own.refused is not None or self.above is None:
            return own
        above = await self._ask({"others": others})
        if above.refused is not None:
            self.ledger.flying -= 1
        return own.within(above)

    async def more_calls(self, count: int) -> None:
        """Take some Calls.

        Raises:
            CallError: the budget does not allow them.
        """
        own = self.ledger.more_calls(count)
        if own.refused is None and self.above is not None:
            own = await self._ask({"calls": count})
            if own.refused is not None:
                self.ledger.calls -= count
        self._checked(own)

    async def share(self, parts: int, most: Mapping[str, float] | None = None) -> dict[str, Any]:
        """``{budget}`` for a run that goes on alone: one of so many parts of what is left here and above.

        ``most`` is what a keeper below would give. Nothing where nobody has limits.
        """
        if self.above is not None:
            asked = {"share": parts, "most": self.ledger.part(parts, most)}
            most = dict((await self._ask(asked)).left)
        found = self.ledger.share(parts, most)
        return {"budget": found} if found else {}

    @staticmethod
    def _checked(grant: BudgetGrant) -> BudgetGrant:
        if grant.refused is not None:
            raise CallError(BUDGET_SPENT, grant.refused)
        return grant

    def settle(self, usage: Mapping[str, Any] | None) -> None:
        """A request that was taken has ended."""
        self.ledger.settle(usage)
        self._tell_above({"usage": dict(usage) if isinstance(usage, dict) else None})

    def changed(self, more: int) -> None:
        """Somebody edited a plan, which makes so many more Calls now (or fewer): they count here and above."""
        self.ledger.calls += more
        if more:
            self._tell_above({"calls": more})

    def _tell_above(self, told: dict[str, Any]) -> None:
        if self.above is not None:
            self._telling.append(asyncio.create_task(self._tell(told)))
            self._telling = [t for t in self._telling if not t.done()]

    async def _tell(self, told: dict[str, Any]) -> None:
        try:
            await workflow.get_external_workflow_handle(str(self.above)).signal(SPENT, encode(told))
        except Exception:  # noqa: BLE001 - the keeper is over; what was spent stands in this run's result
            workflow.logger.warning("%s could not be told of what was spent", self.above)

    async def told(self) -> None:
        """Wait until the keeper above knows of everything that was spent here."""
        for task in list(self._telling):
            await task

    async def _ask(self, asked: dict[str, Any]) -> BudgetGrant:
        self._asked += 1
        number, answer = self._asked, asyncio.get_event_loop().create_future()
        self._answers[number] = answer
        told = {"from": workflow.info().workflow_id, "id": number, **asked}
        try:
            await workflow.get_external_workflow_handle(str(self.above)).signal(SPEND, encode(told))
        except Exception:  # noqa: BLE001 - whatever it is, nobody allows it
            return BudgetGrant(_GONE.format(above=self.above))
        found: BudgetGrant = await answer
        return found

    # -- for the runs below ------------------------------------------------------

    async def asked(self, told: Any) -> None:
        """A run below asks."""
        if not isinstance(told, dict) or not isinstance(told.get("from"), str):
            return
        try:
            if "share" in told:
                share = await self.share(max(2, int(told["share"])), told.get("most"))
                grant = BudgetGrant(None, share.get("budget", {}))
            elif "calls" in told:
                await self.more_calls(int(told["calls"]))
                grant = BudgetGrant()
            else:
                grant = await self._request(int(told.get("others") or 0))
        except CallError as error:
            grant = BudgetGrant(error.message)
        answer = {"id": told.get("id"), **grant.to_json()}
        try:
            await workflow.get_external_workflow_handle(told["from"]).signal(GRANTED, encode(answer))
        except Exception:  # noqa: BLE001 - it has ended: it asks no model
            if grant.refused is None and "calls" not in told and "share" not in told:
                self.settle(None)

    def answered(self, told: Any) -> None:
        """The run above answers."""
        waiting = self._answers.pop(told.get("id", 0), None) if isinstance(told, dict) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(BudgetGrant.from_json(told))

    def reported(self, told: Any) -> None:
        """A run below says what a request cost, or how many more Calls an edit made of its plan."""
        if isinstance(told, dict) and isinstance(told.get("calls"), int):
            self.changed(told["calls"])
        elif isinstance(told, dict):
            self.settle(told.get("usage"))
