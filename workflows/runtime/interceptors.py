"""What is taken off a call from outside before a workflow sees it.

* A signal with more arguments than its one: the SDK would raise in the workflow, and
  end the run for another's mistake. The first argument counts.
* The result of a local activity that is too large to be recorded: the workflow's task
  would fail again and again. The attempt fails instead, readably.
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
    """For the worker."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Look at results."""
        return _Results(next)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """Look at signals."""
        return _Signals


class _Results(ActivityInboundInterceptor):
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


class _Signals(WorkflowInboundInterceptor):
    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002 - the SDK's name
        if len(input.args) > 1:
            first = input.args[0]
            input.args = [first if isinstance(first, RawValue) else raw(write_json(first))]
        await super().handle_signal(input)
