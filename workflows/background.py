"""``Background``: one fire-and-forget Call, an Activity or a delegate, as a run of its own. Its result is dropped."""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from acts.language.config import Options
from acts.language.wire import BACKGROUND, DELEGATE, INVALID_REQUEST
from acts.tree.child_ids import call_child_id
from acts.tree.records import BackgroundInput, RecordError
from acts.views.markdown import code_span
from workflows.runtime.activity_calls import activity_options, retry_policy
from workflows.runtime.payloads import NOTHING, decode_record, encode, encode_record


@workflow.defn(name=BACKGROUND)
class BackgroundWorkflow:
    """Runs what is behind a Call without ``_outputPath``; outlives the plan that started it."""

    @workflow.run
    async def run(self, value: RawValue = NOTHING) -> None:
        """``value`` is a ``BackgroundInput``."""
        try:
            own = decode_record(value, BackgroundInput)
        except RecordError as error:
            raise ApplicationError(str(error), type=INVALID_REQUEST, non_retryable=True) from None
        name = own.delegate.delegate if own.delegate is not None else str(own.activity)
        workflow.set_current_details(f"fire-and-forget: {code_span(name)}")
        if own.delegate is not None:
            await workflow.execute_child_workflow(
                DELEGATE, encode_record(own.delegate), id=call_child_id(workflow.info().workflow_id, "delegate"),
                result_type=RawValue, static_summary=own.label,
                parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
            )  # fmt: skip
            return
        options = Options.model_validate(own.options)
        args = [encode(own.call), encode(own.tool), encode(list(own.context))]
        await workflow.execute_activity(
            str(own.activity), args=args, result_type=RawValue, summary=own.label,
            **activity_options(options, retry_policy(options)),
        )  # fmt: skip
