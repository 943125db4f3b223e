"""Interceptors: malformed input and oversized results do not fail workflow tasks, and pages are drawn when asked for.

* A signal with several arguments: the SDK would raise inside the workflow and fail the run for the
  sender's mistake. Only the first argument is passed on.
* A local Activity's result that is too large to record: the workflow task would fail on every retry.
  The Activity attempt fails instead, with a readable error.
* The page of a run (the SDK's current details) is drawn by the query that shows it. Drawn at the end of each
  workflow task, it took a tenth of the time of a replay, and nearly always nobody looked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from temporalio import activity, workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    HandleQueryInput,
    HandleSignalInput,
    Interceptor,
    WorkflowInboundInterceptor,
)

from acts.language.strict_json import write_json
from acts.language.wire import RESULT_TOO_LARGE
from workflows.runtime.handlers import RunWorkflow
from workflows.runtime.payloads import MAX_LOCAL_RESULT, raw

if TYPE_CHECKING:
    from temporalio.worker import WorkflowInterceptorClassInput


# The query by which the Web UI asks a run for its handlers and its page; the answer is a ``WorkflowMetadata``
_METADATA: Final = "__temporal_workflow_metadata"


class SanitizingInterceptor(Interceptor):
    """Installs both interceptors in a worker."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Check the size of local results."""
        return _LocalResultLimit(next)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """Drop surplus signal arguments, and draw pages."""
        return _RunInterceptor


class _LocalResultLimit(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        result = await super().execute_activity(input)
        if activity.info().is_local:
            bytes_ = activity.payload_converter().to_payload(result).ByteSize()
            if bytes_ > MAX_LOCAL_RESULT:
                text = (
                    f"the result has {bytes_:,} bytes; of a `local` activity at most {MAX_LOCAL_RESULT:,} are recorded"
                )
                raise ApplicationError(
                    f"{text}: remove `local` from _options", type=RESULT_TOO_LARGE, non_retryable=True
                )
        return result


class _RunInterceptor(WorkflowInboundInterceptor):
    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002 - the SDK's name
        if len(input.args) > 1:
            first = input.args[0]
            input.args = [first if isinstance(first, RawValue) else raw(write_json(first))]
        await super().handle_signal(input)

    async def handle_query(self, input: HandleQueryInput) -> Any:  # noqa: A002 - the SDK's name
        answer = await super().handle_query(input)
        run = workflow.instance()
        if input.query == _METADATA and isinstance(run, RunWorkflow):
            page = run.page()
            if page is not None:
                answer.current_details = page
        return answer
