"""The plan of a tick while a person decides about it: its versions, what an edit makes of it, its forecast.

Laws of this file: pure. It changes the loop as the decision says and returns the step that follows. When a
plan waits, and who is told, is the agent's business.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from acts.language.wire import APPROVAL_TIMEOUT, APPROVE, EDIT, REJECT
from acts.machines.loop_steps import Finished, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from acts.machines.approval_effects import Decided
    from acts.machines.loop import Loop
    from acts.plan.validate import ValidatedPlan
    from acts.tree.decisions import Decision


class PlanProposals:
    """The proposals of one agent. ``version`` counts what a person has been shown, edits included.

    ``forecast_plan`` says what a plan will cost; ``forecasts`` are those of the plans that ended.
    """

    def __init__(self, loop: Loop, forecast_plan: Callable[[ValidatedPlan], dict[str, Any] | None]) -> None:
        self.version = 0
        self.forecasts: list[dict[str, Any]] = []
        self._loop = loop
        self._forecast_plan = forecast_plan
        self._approved_forecast: dict[str, Any] | None = None
        self._checked: tuple[Any, ValidatedPlan] | None = None

    def check_decision(self, decision: Decision) -> ValidatedPlan | None:
        """The edited proposal, validated once for an update and its validator; None for what is no edit.

        Raises:
            InvalidRequest, DecisionRefused: the edit cannot be made, and why.
        """
        if decision.decision != EDIT:
            return None
        raw = json.dumps(decision.raw, sort_keys=True, default=str)
        key = (raw, self.version, len(self._loop.request.context))
        if self._checked is None or self._checked[0] != key:
            self._checked = (key, self._loop.check_edit(decision.call, decision.call_with, decision.calls))
        return self._checked[1]

    def decide(self, effect: Decided, expiry: str | None) -> Step | None:
        """The step after a decision; None after an edit, which waits for a decision of its own."""
        wait, decision, loop = effect.wait, effect.decision, self._loop
        if decision.decision == REJECT:
            return loop.rejected(decision.reason or "")
        if decision.decision not in (APPROVE, EDIT):
            return Finished("failed", expiry or "nobody decided in time", APPROVAL_TIMEOUT)
        if decision.decision == EDIT:
            loop.edited(effect.token)
            self._checked = None
            self.version += 1
            loop.context.append_decision(decision.record(wait, ""))
            return None
        part, _ = loop.pending_plan_request()
        self._approved_forecast = self._forecast_plan(part)
        loop.context.append_decision(decision.record(wait, ""))
        return loop.approved()

    def take_forecast(self) -> dict[str, Any] | None:
        """The forecast of the plan that starts now, where a person approved one."""
        forecast, self._approved_forecast = self._approved_forecast, None
        return forecast
