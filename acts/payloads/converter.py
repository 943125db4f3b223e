"""How values become payloads: the same for the worker, the CLI and every client of this project.

``ACTS_STORAGE`` says where values above 128 KiB are kept: ``file:<folder>`` or ``s3://bucket/prefix``; unset: values
travel in histories, and none is larger than 2 MiB.

Laws of this file: it knows no workflow, no command and no Tool. What the environment sets for payloads (an encryption
codec, an external storage) is added here and nowhere else, so that no program writes what another cannot read.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from temporalio.converter import DataConverter, ExternalStorage

from acts.language.wire import STORED_ABOVE_BYTES
from acts.payloads.codec import codec_from_environment, is_encrypting
from acts.payloads.content_store import (
    ACTIVITY_PATIENCE_SECONDS,
    CLIENT_PATIENCE_SECONDS,
    TASK_PATIENCE_SECONDS,
    ContentDriver,
    StorageError,
    StorageRefused,
    StorageUnavailable,
)
from acts.payloads.folder_store import FolderStore
from acts.payloads.s3_store import S3Store

if TYPE_CHECKING:
    from temporalio.api.failure.v1 import Failure
    from temporalio.converter import FailureConverter, PayloadConverter

    from acts.payloads.content_store import ContentStore


VARIABLE: Final = "ACTS_STORAGE"


def read_setting(text: str) -> ContentStore:
    """The store that a value of ``ACTS_STORAGE`` names.

    Raises:
        StorageError: it names none.
    """
    kind, _, rest = text.partition(":")
    if kind == "file" and rest:
        if rest.startswith("//"):  # a URL: file:///folder, file://localhost/folder
            host, slash, path = rest[2:].partition("/")
            if host not in ("", "localhost"):
                raise StorageError(f"{VARIABLE} is {text!r}: a folder of this machine is file:<folder>")
            rest = slash + path
        return FolderStore(Path(rest).expanduser().absolute())
    bucket, _, prefix = rest.removeprefix("//").partition("/")
    if kind == "s3" and rest.startswith("//") and bucket:
        return S3Store(bucket, prefix)
    raise StorageError(f'{VARIABLE} is {text!r}; it is "file:<folder>" or "s3://bucket/prefix"')


@lru_cache(maxsize=8)  # one cache and one set of threads per store and process
def _driver(text: str) -> ContentDriver:
    return ContentDriver(read_setting(text), CLIENT_PATIENCE_SECONDS)


def driver_from_environment(*, creates: bool = False) -> ContentDriver | None:
    """The driver of ``ACTS_STORAGE``; None where it is not set. ``creates``: a folder that is not there is made.

    Raises:
        StorageError: the setting is wrong, or the place cannot be used.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    driver = _driver(text)
    driver.contents.prepare(creates=creates)
    return driver


def verify_storage(*, writes: bool) -> str:
    """Ask the storage itself, where one is set: "" if it can be used, else why it does not answer now.

    One that does not answer is waited for whenever it is needed; one that refuses stays of no use.

    Raises:
        StorageError: it refuses, or the setting is wrong.
    """
    driver = driver_from_environment(creates=writes)
    try:
        if driver is not None:
            driver.contents.verify(writes=writes)
    except StorageRefused:
        raise
    except StorageUnavailable as error:
        return str(error)
    return ""


def activity_converter(converter: DataConverter) -> DataConverter:
    """A worker's converter for its Activities, which wait for minutes: a failure would repeat what one has done."""
    drivers = () if converter.external_storage is None else converter.external_storage.drivers
    if len(drivers) != 1 or not isinstance(drivers[0], ContentDriver):
        return converter  # a program has set up a storage of its own
    return _with_driver(converter, drivers[0].with_patience(ACTIVITY_PATIENCE_SECONDS))


def _with_driver(converter: DataConverter, driver: ContentDriver) -> DataConverter:
    return replace(converter, external_storage=ExternalStorage([driver], payload_size_threshold=STORED_ABOVE_BYTES))


# In place of a message that is encrypted: the SDK's own words
_ENCODED: Final = "Encoded failure"


def worker_converter(failures: type[FailureConverter]) -> DataConverter:
    """The converter of a worker, whose failures are converted by ``failures``.

    It creates a folder of values that is not there, and its workflow tasks wait some seconds for one that is away.
    """
    converter = replace(DataConverter.default, failure_converter_class=failures)
    return _with_environment(converter, driver_from_environment(creates=True), TASK_PATIENCE_SECONDS)


def client_converter() -> DataConverter:
    """The converter of a client. Pydantic's keeps the order of keys; the SDK's own sorts them."""
    from temporalio.contrib.pydantic import pydantic_data_converter

    return _with_environment(pydantic_data_converter, driver_from_environment(), CLIENT_PATIENCE_SECONDS)


def _with_environment(converter: DataConverter, driver: ContentDriver | None, patience: float) -> DataConverter:
    """Add what the environment sets. Raises KeySettingsError for keys that cannot be used."""
    converter = replace(converter, payload_codec=codec_from_environment())
    if is_encrypting():
        converter = replace(
            converter, failure_converter_class=_with_encoded_messages(converter.failure_converter_class)
        )
    return converter if driver is None else _with_driver(converter, driver.with_patience(patience))


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
