"""``Instance``: walks a plan for one instance, or for a few.

It is started with the global messages and those of its own instances, and nothing of another.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import RawValue

from acts.language.wire import INSTANCE
from acts.tree.records import InstanceInput
from workflows.plan import FATAL, walk_plan
from workflows.runtime import results
from workflows.runtime.handlers import RunWorkflow
from workflows.runtime.payloads import NOTHING


@workflow.defn(name=INSTANCE, failure_exception_types=FATAL)
class InstanceWorkflow(RunWorkflow):
    """One isolated data context of a batch."""

    @workflow.run
    async def run(self, value: RawValue = NOTHING) -> RawValue:
        """``value`` is what the run above sends, or the state of the run before."""
        return await self.guarded(self._run(value), value)

    async def _run(self, value: RawValue) -> RawValue:
        run, view, actions = await walk_plan(self, value, InstanceInput)
        return results.instance_result(run, view, actions)
