"""``Instance``: walks a plan for one instance, or for a few. A ``Plan`` that has no children of that kind.

It is handed the global messages and those of its own instances, and nothing of another.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from acts.language.errors import CallError, InvalidRequest, Problem
from acts.language.wire import INSTANCE, PLAN_FAILED, RESULT_TOO_LARGE
from acts.machines.instance_results import instance_report
from acts.plan.validate import ValidatedPlan
from acts.tree.batches import expand_template, opened
from acts.views import results
from workflows.payloads import NOTHING, dump, fitted, handed, raw
from workflows.plan import FATAL, PlanWorkflow


@workflow.defn(name=INSTANCE, failure_exception_types=FATAL)
class InstanceWorkflow(PlanWorkflow):
    """One isolated data context of a batch."""

    @workflow.run
    async def run(self, given: RawValue = NOTHING) -> RawValue:
        """``given`` is what the run above handed over, or the run before."""
        return await self._guarded(given)

    def _handed_over(self, given: RawValue) -> Any:
        try:
            return opened(handed(given) or {})
        except ValueError as error:
            text = f"an Instance is started by the run that has the batch: {error}"
            raise InvalidRequest([Problem("invalidRequest", text, hint="start a Plan")]) from None

    def _own_part(self, prepared: ValidatedPlan) -> ValidatedPlan:
        return expand_template(prepared, self._handed["instances"])

    def _delivered(self, result: dict[str, Any], status: str) -> RawValue:
        """What ``told`` says of an instance, with ``usage?``; or ``{status, instances, usage?}`` of several."""
        walk = self._now_walking
        found = instance_report(walk, edited=self._version > 1)
        members = self._handed["instances"]
        out: dict[str, Any] = {"status": status}
        if result["usage"]["requests"]:
            out["usage"] = result["usage"]
        if len(members) == 1:
            out |= found.get(members[0], {})
        else:
            out["instances"] = found
        if self._desk.records:
            out["decisions"] = self._desk.records
        try:
            handed_back = fitted(out)
        except CallError as error:
            text = f"what was completed is too large to be handed back: {error.message}"
            rest = raw(dump({"usage": result["usage"], "decisions": self._desk.records}))
            raise ApplicationError(text, rest, type=RESULT_TOO_LARGE, non_retryable=True) from None
        if status == "failed":
            raise ApplicationError(results.failure_text(walk), handed_back, type=PLAN_FAILED, non_retryable=True)
        return handed_back
