"""Interceptors that keep oversized results from hurting a run, and the Web UI's list of signals to what is for people.

* An Activity's result that is too large to record: the Activity fails with a readable error, and is not retried for
  it. A local one would fail its workflow task, on every retry.
* The SDK's list of a run's signals and queries: the Web UI offers what stands in it. Ours is a table, since one
  dynamic handler takes all signals.
* The page of a run (the SDK's current details) is drawn by the query that shows it. Drawn at the end of each
  workflow task, it took a tenth of the time of a replay, and nearly always nobody looked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from temporalio import activity, workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    HandleQueryInput,
    Interceptor,
    WorkflowInboundInterceptor,
)

from acts.language.wire import BACKGROUND, MAX_PAYLOAD_BYTES, RESULT_TOO_LARGE
from workflows.runtime.handlers import RunWorkflow
from workflows.runtime.payloads import MAX_LOCAL_RESULT
from workflows.runtime.signals import describe_interactions

if TYPE_CHECKING:
    from temporalio.worker import WorkflowInterceptorClassInput

# The query by which the Web UI asks a run for its handlers and its page; the answer is a ``WorkflowMetadata``
_METADATA: Final = "__temporal_workflow_metadata"


class SanitizingInterceptor(Interceptor):
    """Installs both interceptors in a worker."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Check the size of results."""
        return _ResultLimit(next)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """Describe the signals that are for people, and draw the page."""
        return _MetadataQuery


class _ResultLimit(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        result = await super().execute_activity(input)
        bytes_ = activity.payload_converter().to_payload(result).ByteSize()
        if activity.info().is_local and bytes_ > MAX_LOCAL_RESULT:
            limit, hint = f"of a `local` activity at most {MAX_LOCAL_RESULT:,}", "remove `local` from _options"
        elif bytes_ > MAX_PAYLOAD_BYTES:
            limit, hint = f"at most {MAX_PAYLOAD_BYTES:,}", "keep large data outside and return a reference to it"
        else:
            return result
        text = f"the result has {bytes_:,} bytes; {limit} are recorded: {hint}"
        raise ApplicationError(text, type=RESULT_TOO_LARGE, non_retryable=True)


class _MetadataQuery(WorkflowInboundInterceptor):
    async def handle_query(self, input: HandleQueryInput) -> Any:  # noqa: A002 - the SDK's name
        answer = await super().handle_query(input)
        if input.query != _METADATA:
            return answer
        describe_interactions(answer, takes_signals=workflow.info().workflow_type != BACKGROUND)
        run = workflow.instance()
        page = run.page() if isinstance(run, RunWorkflow) else None
        if page is not None:
            answer.current_details = page
        return answer
