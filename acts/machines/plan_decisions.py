"""What people decide about a plan that a run walks: its approval, its Calls, and edits of it.

Laws of this file: what waits, and which decision is meant for it, is the business of ``approvals``. Here is what a run
asks a person, whether a decision can be carried out, and what it does to the walk. An edited plan is validated once,
for an update and for its validator.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import DecisionRefused
from acts.language.tool_hints import hint_words
from acts.language.wire import APPROVE, EDIT, REJECT, REJECTED
from acts.machines.plan_setup import validate_edit
from acts.machines.run_commands import Finish
from acts.plan.validate import ValidatedPlan
from acts.tree.batches import count_calls, needs_children
from acts.tree.decision_signature import call_subject
from acts.tree.decisions import Decision

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from acts.machines.approval_effects import Decided
    from acts.machines.commands import AskHuman, Command
    from acts.machines.plan_run import PlanRun
    from acts.plan.planned_call import PlannedCall

    Forecast = Callable[[ValidatedPlan], dict[str, Any] | None]

# Bytes of the parameters that the root is shown of a Call that waits below it; more are left out
MAX_REPORTED_BYTES: Final = 600


class PlanDecisions:
    """The decisions about the plan of one run. ``version`` counts its versions: each edit makes another.

    ``forecast_plan`` says what a plan will cost; ``forecast`` is that of the plan that a person decided about.
    """

    def __init__(self, run: PlanRun, forecast_plan: Forecast, *, is_approved: bool) -> None:
        self.version = 1
        self.is_approved = is_approved
        self.forecast: dict[str, Any] | None = None
        self._run = run
        self._forecast_plan = forecast_plan
        self._checked: tuple[Any, ValidatedPlan] | None = None

    # -- what a person is asked ---------------------------------------------------------------------

    def ask_about_plan(self, now: str) -> list[Any]:
        """Nothing of the plan runs until a person has approved it."""
        run = self._run
        return list(run.approvals.open("plan", self.version, run.config.approve, now, subject=self._plan_calls))

    def ask_about_call(self, command: AskHuman, now: str) -> list[Any]:
        """A Call runs when a person has approved it."""
        run, node = self._run, command.node
        return list(
            run.approvals.open(
                command.what, self.version, run.config.approve, now, call=node.id, instance=node.instance,
                about=self._about(node, command.call), subject=lambda: call_subject(command.call),
            )
        )  # fmt: skip

    def _plan_calls(self) -> list[Any]:
        """The Calls as they were written, as the query ``plan`` answers."""
        plan = self._run.walk.prepared.request.plan
        return list(plan.calls) if plan is not None else []

    def _about(self, node: PlannedCall, call: Mapping[str, Any]) -> dict[str, Any]:
        """What an approval says of a Call: for how many elements, and the hints of its Tool; below the root, its
        parameters if they are small.
        """
        about: dict[str, Any] = {"elements": len(call["_each"])} if "_each" in call else {}
        if hints := hint_words(node.tool.schema):
            about["hints"] = hints
        if self._run.position.is_root:
            return about
        parameters = {k: v for k, v in call.items() if not k.startswith("_")}
        return {**about, "parameters": parameters} if len(json.dumps(parameters)) <= MAX_REPORTED_BYTES else about

    # -- decisions ----------------------------------------------------------------------------------

    def check(self, decision: Decision) -> ValidatedPlan | None:
        """The edited plan, validated; None for what is no edit.

        Raises:
            InvalidRequest, DecisionRefused: it cannot be carried out, and why.
        """
        if decision.decision != EDIT:
            return None
        run = self._run
        key = (json.dumps(decision.raw, sort_keys=True, default=str), self.version)
        if self._checked is None or self._checked[0] != key:
            self._checked = (key, validate_edit(run.setup, run.raw, run.walk.prepared, decision))
        prepared = self._checked[1]
        refusal = run.budget.calls_refusal(self._added_calls(prepared))
        if refusal is not None:
            raise DecisionRefused(refusal)
        if self.is_approved:
            run.walk.check_change(self._edited_part(prepared))
        return prepared

    def carry_out(self, effect: Decided, now: str) -> list[Any]:
        """Do what a person has decided."""
        wait, decision, run = effect.wait, effect.decision, self._run
        if decision.decision == EDIT:
            return self._replan(effect.token, now)
        if wait.what == "plan":
            return self._end_approval(decision, now)
        rank = run.walk.find(wait.call, wait.instance)
        if rank is None:
            return []
        return run.perform(run.walk.decide(rank, decision.decision, decision.reason or "", now), now)

    def _end_approval(self, decision: Decision, now: str) -> list[Any]:
        """The plan begins, or ends without having begun."""
        run = self._run
        self.forecast = self._forecast_plan(run.walk.prepared)
        if decision.decision == APPROVE:
            self.is_approved = True
            return run.perform(run.walk.begin(now), now)
        run.finished = REJECTED if decision.decision == REJECT else "failed"
        return [Finish(run.finished)]

    # -- edits ----------------------------------------------------------------------------------------

    def _added_calls(self, prepared: ValidatedPlan) -> int:
        return count_calls(prepared.unsplit or prepared) - count_calls(self._run.whole_plan)

    def _edited_part(self, prepared: ValidatedPlan) -> ValidatedPlan:
        """What the run walks of an edited plan; what children walk already stays theirs."""
        run = self._run
        by_children = run.walk.prepared.unsplit is not None
        if self.is_approved and by_children and not needs_children(prepared):
            raise DecisionRefused("its instances are walked by children: no call of them can depend on a global one")
        return run.setup.own_part(prepared) if by_children or not self.is_approved else prepared

    def _replan(self, prepared: ValidatedPlan, now: str) -> list[Any]:
        """Walk the edited plan from now on; what waits in it waits for a decision about the new version."""
        run, part = self._run, self._edited_part(prepared)
        run.budget.count_calls(self._added_calls(prepared))
        out: list[Any] = []
        commands: list[Command] = []
        if self.is_approved:
            run.walk, commands = run.walk.changed_plan(part, now)
            for wait in run.approvals.own_pending:
                if run.walk.awaits(wait.call, wait.instance) is None:
                    out += run.approvals.close_call(str(wait.call), wait.instance)
                    same = [n.id for n in run.walk.nodes if n.instance == wait.instance]
                    run.approvals.inherit_deadline(wait, same)
        else:
            run.walk = run.walk.anew(part)
        run.raw = prepared.request.raw
        self._checked = None
        self.version += 1
        run.approvals.raise_version(self.version, self._plan_calls)
        return out + run.perform(commands, now)
