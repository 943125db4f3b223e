"""Converts failures of any worker leniently, and those that the engine states without a stack trace.

The SDK decodes a failure's details before workflow code runs. Details that cannot be decoded (another
encoding, broken JSON) would fail the workflow task or the run; here they are dropped, and the failure
keeps its type and message.

The Web UI shows a stack trace and a cause below a failure's message. What a workflow of ours fails with (a plan that
failed, a budget that is spent, an invalid Request, a refused decision) says what happened in its message: places in the
engine's code add nothing, so it has neither. The same holds for the outcome of a local activity that is deferred, of
which many travel in one message. Failures of Tools, and an ``EngineError``, which is a fault of ours, keep both.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.api.failure.v1 import Failure
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError

from acts.language.wire import ENGINE_ERROR, LOCAL_DEFERRED
from telemetry.bounded_failures import levels_of, without_details
from telemetry.stack_traces import ShortTraceConverter


class LenientFailureConverter(ShortTraceConverter):
    """The default failure converter, except for undecodable details, what a workflow states, and long stack traces."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Encode an exception; one that a workflow raised on purpose keeps only its message, type and details."""
        if isinstance(exception, ApplicationError) and (
            exception.type == LOCAL_DEFERRED or (exception.type != ENGINE_ERROR and workflow.in_workflow())
        ):
            exception = _without_traceback(exception)
        super().to_failure(exception, payload_converter, failure)

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        """Decode a failure, dropping details that cannot be decoded."""
        try:
            return super().from_failure(failure, payload_converter)
        except Exception:  # noqa: BLE001 - undecodable details of a foreign SDK must not end the run
            bare = without_details(failure)
            for level in levels_of(bare):
                level.ClearField("encoded_attributes")
            return super().from_failure(bare, payload_converter)


def _without_traceback(error: ApplicationError) -> ApplicationError:
    """A copy of the error without traceback and cause; the SDK still logs the original."""
    return ApplicationError(error.message, *error.details, type=error.type, non_retryable=error.non_retryable)
