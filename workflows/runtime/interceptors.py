"""Interceptors that keep malformed input and oversized results from failing workflow tasks.

* A signal with several arguments: the SDK would raise inside the workflow and fail the run for the
  sender's mistake. Only the first argument is passed on.
* A local Activity's result that is too large to record: the workflow task would fail on every retry.
  The Activity attempt fails instead, with a readable error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    HandleSignalInput,
    Interceptor,
    WorkflowInboundInterceptor,
)

from acts.language.strict_json import write_json
from acts.language.wire import RESULT_TOO_LARGE
from workflows.runtime.payloads import MAX_LOCAL_RESULT, raw

if TYPE_CHECKING:
    from temporalio.worker import WorkflowInterceptorClassInput


class SanitizingInterceptor(Interceptor):
    """Installs both interceptors in a worker."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Check the size of local results."""
        return _LocalResultLimit(next)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """Drop surplus signal arguments."""
        return _SingleArgumentSignals


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


class _SingleArgumentSignals(WorkflowInboundInterceptor):
    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002 - the SDK's name
        if len(input.args) > 1:
            first = input.args[0]
            input.args = [first if isinstance(first, RawValue) else raw(write_json(first))]
        await super().handle_signal(input)
