"""External storage: where values above 128 KiB are kept, as ``ACTS_STORAGE`` says.

``file:<folder>`` or ``s3://bucket/prefix``; unset: values travel in histories, and none is larger than 2 MiB.

Laws of this file: it reads the setting and builds the SDK's ``ExternalStorage`` from it. How a store works is not
known here.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from temporalio.converter import DataConverter, ExternalStorage

from acts.language.wire import STORED_ABOVE_BYTES
from connection.content_driver import (
    ACTIVITY_PATIENCE_SECONDS,
    CLIENT_PATIENCE_SECONDS,
    TASK_PATIENCE_SECONDS,
    ContentDriver,
)
from connection.content_store import StorageError, StorageRefused, StorageUnavailable
from connection.folder_store import FolderStore
from connection.s3_store import S3Store

if TYPE_CHECKING:
    from connection.content_store import ContentStore

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
    if driver is None:
        return ""
    try:
        driver.contents.verify(writes=writes)
    except StorageRefused:
        raise
    except StorageUnavailable as error:
        return str(error)
    return ""


def with_storage(converter: DataConverter, *, is_worker: bool = False) -> DataConverter:
    """The converter with the storage of the environment, if it names one.

    A worker creates a folder that is not there, and its workflow tasks wait some seconds for a storage that is away.
    """
    driver = driver_from_environment(creates=is_worker)
    if driver is None:
        return converter
    return replace(
        converter, external_storage=_storage(driver.with_patience(TASK_PATIENCE_SECONDS) if is_worker else driver)
    )


def activity_converter(converter: DataConverter) -> DataConverter:
    """A worker's converter for its Activities, which wait for minutes: a failure would repeat what one has done."""
    drivers = () if converter.external_storage is None else converter.external_storage.drivers
    if len(drivers) != 1 or not isinstance(drivers[0], ContentDriver):
        return converter  # a program has set up a storage of its own
    return replace(converter, external_storage=_storage(drivers[0].with_patience(ACTIVITY_PATIENCE_SECONDS)))


def _storage(driver: ContentDriver) -> ExternalStorage:
    return ExternalStorage([driver], payload_size_threshold=STORED_ABOVE_BYTES)
