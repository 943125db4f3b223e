"""Fire-and-forget: one Activity as a run of its own. Its result is dropped."""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import RawValue

from acts.config import Options
from acts.report import plain
from acts.wire import BACKGROUND
from workflows.dispatch import activity_options, retry_policy
from workflows.payloads import NOTHING, decode


@workflow.defn(name=BACKGROUND)
class BackgroundWorkflow:
    """Runs the Activity of a Call without ``_outputPath``; outlives the plan that started it."""

    @workflow.run
    async def run(
        self, own: RawValue = NOTHING, call: RawValue = NOTHING, tool: RawValue = NOTHING, context: RawValue = NOTHING
    ) -> None:
        """``own`` is ``{activity, options, summary}``; the rest are the Activity's arguments."""
        what = decode(own)
        options = Options.model_validate(what["options"])
        workflow.set_current_details(f"fire-and-forget: {plain(str(what['activity']))}")
        await workflow.execute_activity(
            what["activity"], args=[call, tool, context], result_type=RawValue, summary=what["summary"],
            **activity_options(options, retry_policy(options)),
        )  # fmt: skip
