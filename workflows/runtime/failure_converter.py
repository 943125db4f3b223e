"""Failures from foreign workers, read whatever was attached to them; and our own, as others read them.

The SDK decodes the details of a failure before our code sees it. Details that are not
decodable (another encoding, broken JSON) would fail the workflow task, or the run; here
they are dropped, and the failure itself, its type and message, remains.

A refusal of a workflow says what was wrong with what came in. Where in the engine that was found
out helps nobody, and the Web UI shows it below the message; so a refusal has no stack trace, and
no cause, which would say the same again. All else keeps both, whatever an Activity raises too.
"""

from __future__ import annotations

from typing import Final

from temporalio import workflow
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import ApplicationError

from acts.language.wire import INVALID_REQUEST, REFUSED

_REFUSALS: Final = frozenset({INVALID_REQUEST, REFUSED})


class LenientFailureConverter(DefaultFailureConverter):
    """The default failure converter, for details of any kind."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """The failure of an exception; that of a refusal is its message and details."""
        if isinstance(exception, ApplicationError) and exception.type in _REFUSALS and workflow.in_workflow():
            exception = _unraised(exception)
        super().to_failure(exception, payload_converter, failure)

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        """The exception of a failure, without details that cannot be decoded."""
        try:
            return super().from_failure(failure, payload_converter)
        except Exception:  # noqa: BLE001 - whatever a foreign SDK put there must not end the run
            return super().from_failure(_without_details(failure), payload_converter)


def _unraised(error: ApplicationError) -> ApplicationError:
    """The same error as it was before it was raised anywhere; the SDK's logs still have the other."""
    return ApplicationError(error.message, *error.details, type=error.type, non_retryable=error.non_retryable)


def _without_details(failure: Failure) -> Failure:
    bare = Failure()
    bare.CopyFrom(failure)
    part = bare
    while True:
        part.ClearField("encoded_attributes")
        if part.HasField("application_failure_info"):
            part.application_failure_info.ClearField("details")
        if part.HasField("canceled_failure_info"):
            part.canceled_failure_info.ClearField("details")
        if part.HasField("timeout_failure_info"):
            part.timeout_failure_info.ClearField("last_heartbeat_details")
        if not part.HasField("cause"):
            return bare
        part = part.cause
