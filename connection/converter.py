"""How values become payloads: the same for the worker, the CLI and every client of this project.

Laws of this file: it knows no workflow, no command and no Tool. What the environment sets for payloads (an encryption
codec, an external storage) is added here and nowhere else, so that no program writes what another cannot read.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Final

from temporalio.converter import DataConverter

from connection.codec import codec_from_environment
from connection.codec_keys import is_encrypting
from connection.storage import with_storage

if TYPE_CHECKING:
    from temporalio.api.failure.v1 import Failure
    from temporalio.converter import FailureConverter, PayloadConverter

# In place of a message that is encrypted: the SDK's own words
_ENCODED: Final = "Encoded failure"


def worker_converter(failures: type[FailureConverter]) -> DataConverter:
    """The converter of a worker, whose failures are converted by ``failures``."""
    converter = dataclasses.replace(DataConverter.default, failure_converter_class=failures)
    return _with_environment(converter, is_worker=True)


def client_converter() -> DataConverter:
    """The converter of a client. Pydantic's keeps the order of keys; the SDK's own sorts them."""
    from temporalio.contrib.pydantic import pydantic_data_converter

    return _with_environment(pydantic_data_converter)


def _with_environment(converter: DataConverter, *, is_worker: bool = False) -> DataConverter:
    """Add what the environment sets. Raises KeySettingsError for keys that cannot be used."""
    codec = codec_from_environment()
    failures = converter.failure_converter_class
    if is_encrypting():
        failures = _with_encoded_messages(failures)
    encrypted = dataclasses.replace(converter, payload_codec=codec, failure_converter_class=failures)
    return with_storage(encrypted, is_worker=is_worker)


@cache
def _with_encoded_messages(failures: type[FailureConverter]) -> type[FailureConverter]:
    """The same failures, with message and stack trace in a payload, which the codec encrypts.

    The SDK's own option would encode the stack trace before ``failures`` has shortened it.
    """

    def to_failure(
        self: FailureConverter, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        failures.to_failure(self, exception, payload_converter, failure)
        level: Failure | None = failure
        while level is not None:  # also causes that have not been through here; those of a workflow have
            if level.message != _ENCODED or not level.HasField("encoded_attributes"):
                attributes = {"message": level.message, "stack_trace": level.stack_trace}
                level.encoded_attributes.CopyFrom(payload_converter.to_payloads([attributes])[0])
                level.message, level.stack_trace = _ENCODED, ""
            level = level.cause if level.HasField("cause") else None

    return type(f"Encoded{failures.__name__}", (failures,), {"to_failure": to_failure, "__doc__": failures.__doc__})
