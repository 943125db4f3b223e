"""Fire-and-forget: one Activity, or one delegate, as a run of its own. Its result is dropped."""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import RawValue

from acts.language.config import Options
from acts.language.wire import BACKGROUND, DELEGATE
from acts.views.markdown import code_span
from workflows.dispatch import activity_options, retry_policy, short_id
from workflows.payloads import NOTHING, decode, hand


@workflow.defn(name=BACKGROUND)
class BackgroundWorkflow:
    """Runs what is behind a Call without ``_outputPath``; outlives the plan that started it."""

    @workflow.run
    async def run(
        self, own: RawValue = NOTHING, call: RawValue = NOTHING, tool: RawValue = NOTHING, context: RawValue = NOTHING
    ) -> None:
        """``own`` is ``{activity, options, summary}``, the rest the Activity's arguments; or ``{errand, summary}``."""
        what = decode(own)
        if "errand" in what:
            workflow.set_current_details(f"fire-and-forget: {code_span(str(what['errand']['delegate']))}")
            await workflow.execute_child_workflow(
                DELEGATE, hand(what["errand"]), id=short_id(f"{workflow.info().workflow_id}/delegate"),
                result_type=RawValue, static_summary=what["summary"],
                parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
            )  # fmt: skip
            return
        options = Options.model_validate(what["options"])
        workflow.set_current_details(f"fire-and-forget: {code_span(str(what['activity']))}")
        await workflow.execute_activity(
            what["activity"], args=[call, tool, context], result_type=RawValue, summary=what["summary"],
            **activity_options(options, retry_policy(options)),
        )  # fmt: skip
