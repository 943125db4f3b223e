"""Failures from foreign workers, read whatever was attached to them.

The SDK decodes the details of a failure before our code sees it. Details that are not
decodable (another encoding, broken JSON) would fail the workflow task, or the run; here
they are dropped, and the failure itself, its type and message, remains.
"""

from __future__ import annotations

from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultFailureConverter, PayloadConverter


class TolerantFailures(DefaultFailureConverter):
    """The default failure converter, for details of any kind."""

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        """The exception of a failure, without details that cannot be decoded."""
        try:
            return super().from_failure(failure, payload_converter)
        except Exception:  # noqa: BLE001 - whatever a foreign SDK put there must not end the run
            return super().from_failure(_without_details(failure), payload_converter)


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
