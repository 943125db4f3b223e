"""How values become payloads: the same for the worker, the CLI and every client of this project.

``ACTS_STORAGE`` says where values above 128 KiB are kept: ``file:<folder>`` or ``s3://bucket/prefix``; unset: values
travel in histories, and none is larger than 2 MiB.

Laws of this file: what the environment sets for payloads (an encryption codec, an external storage) is added here and
nowhere else, so that no program writes what another cannot read. Content is read once by each process as long as the
cache holds it (a replay decodes the same values again), and has the hash that was asked for, or is an error. A store
that is away is waited for, for as long as the caller has patience; content that is not there is an error after a
second: a network file system may show it late.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, ExternalStorage, StorageDriver, StorageDriverClaim

from acts.language.wire import STORED_ABOVE_BYTES
from acts.payloads import stores
from acts.payloads.codec import AesGcmCodec, codec_from_environment, is_encrypting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from temporalio.api.failure.v1 import Failure
    from temporalio.converter import (
        FailureConverter,
        PayloadConverter,
        StorageDriverRetrieveContext,
        StorageDriverStoreContext,
    )

T = TypeVar("T")
logger = logging.getLogger(__name__)

VARIABLE: Final = "ACTS_STORAGE"
# Of a process: twelve values of 5 MB; a larger value would push out everything else
CACHE_BYTES: Final = 64 * 1024 * 1024
MAX_CACHED_BYTES: Final = CACHE_BYTES // 4
# Content that was stored so recently is not stored again: a replay encodes all that a run ever sent
STORED_SECONDS, MAX_STORED = 60.0, 10_000
# A workflow task has 10 s by default, and may wait twice: for what it reads, and for what it writes
TASK_PATIENCE_SECONDS: Final = 4.0
ACTIVITY_PATIENCE_SECONDS: Final = 300.0  # a Tool's default timeout
CLIENT_PATIENCE_SECONDS: Final = 1.0  # a person watches
MISSING_PATIENCE_SECONDS: Final = 1.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 2.0
_LOG_SECONDS: Final = 10.0  # between two lines about a store that is away


class ContentCache:
    """Content by its SHA-256, the least recently used first, at most ``limit`` bytes. Thread-safe."""

    def __init__(self, limit: int = CACHE_BYTES, largest: int = MAX_CACHED_BYTES) -> None:
        self._limit, self._largest = limit, largest
        self._lock = threading.Lock()
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self.bytes = 0

    def get(self, digest: str) -> bytes | None:
        with self._lock:
            data = self._contents.get(digest)
            if data is not None:
                self._contents.move_to_end(digest)
            return data

    def put(self, digest: str, data: bytes) -> None:
        with self._lock:
            if digest in self._contents or len(data) > self._largest:
                return
            self._contents[digest] = data
            self.bytes += len(data)
            while self.bytes > self._limit:
                self.bytes -= len(self._contents.popitem(last=False)[1])


class ContentDriver(StorageDriver):
    """Stores and retrieves payloads by their content. ``patience``: seconds that a store may be away."""

    def __init__(self, store: stores.ContentStore, patience: float = CLIENT_PATIENCE_SECONDS) -> None:
        self.contents, self.patience = store, patience
        self._cache, self._threads = ContentCache(), ThreadPoolExecutor(stores.THREADS, "storage")
        # By namespace and hash: when content was stored, and its claim
        self._stored: dict[tuple[str, str], tuple[float, dict[str, str]]] = {}
        self._logged_at = float("-inf")
        self.users: dict[str, str] = {}  # names and ids of namespaces that are to be written before the next content

    def name(self) -> str:
        return self.contents.driver_name

    type = name  # each kind of store has one name

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        namespace = context.target.namespace if context.target is not None else ""
        claims = [self._patiently(lambda p=payload: self._put(namespace, p)) for payload in payloads]  # type: ignore[misc]
        return [StorageDriverClaim(claim) for claim in await asyncio.gather(*claims)]

    async def retrieve(
        self,
        context: StorageDriverRetrieveContext,  # noqa: ARG002 - the SDK's form
        claims: Sequence[StorageDriverClaim],
    ) -> list[Payload]:
        return await asyncio.gather(*[self._retrieve(claim.claim_data) for claim in claims])

    async def _retrieve(self, claim: Mapping[str, str]) -> Payload:
        data = self._cache.get(self.contents.read_digest(claim))
        return Payload.FromString(await self._patiently(lambda: self._get(claim)) if data is None else data)

    def _put(self, namespace: str, payload: Payload) -> dict[str, str]:
        data = payload.SerializeToString(deterministic=True)  # the order of metadata must not change the hash
        digest = stores.sha256(data)
        stored_at, claim = self._stored.get((namespace, digest), (float("-inf"), {}))
        if time.monotonic() - stored_at > STORED_SECONDS:
            self.write_users()
            claim = self.contents.put(namespace, digest, data)
            if len(self._stored) >= MAX_STORED:
                self._stored.clear()
            self._stored[namespace, digest] = time.monotonic(), claim
        self._cache.put(digest, data)
        return claim

    def write_users(self) -> None:
        """Write whose storage it is. Raises StorageError, and is then tried again."""
        for namespace, id_ in [*self.users.items()]:
            self.contents.add_user(namespace, id_)
            self.users.pop(namespace, None)

    def _get(self, claim: Mapping[str, str]) -> bytes:
        data, digest = self.contents.get(claim), self.contents.read_digest(claim)
        if (actual := stores.sha256(data)) != digest:
            text = f"{len(data):,} bytes with the SHA-256 {actual}; restore it from a backup"
            raise stores.StorageError(f"the value {digest} in {self.contents.describe()} has another content: {text}")
        self._cache.put(digest, data)
        return data

    async def _patiently(self, operation: Callable[[], T]) -> T:
        began, pause = time.monotonic(), _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, operation)
            except stores.ContentMissing:
                if time.monotonic() - began + pause > min(self.patience, MISSING_PATIENCE_SECONDS):
                    raise
            except stores.StorageUnavailable as error:
                if time.monotonic() - began + pause > self.patience:
                    raise
                # A client fails in a moment, and says why
                is_quiet = self.patience <= CLIENT_PATIENCE_SECONDS
                if not is_quiet and time.monotonic() - self._logged_at > _LOG_SECONDS:
                    self._logged_at = time.monotonic()
                    logger.warning("external storage: %s; it is tried again, and nothing is lost meanwhile", error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


@lru_cache(maxsize=8)  # one cache and one set of threads per store and process
def read_setting(text: str) -> ContentDriver:
    """The driver of the store that a value of ``ACTS_STORAGE`` names. Raises StorageError if it names none."""
    kind, _, rest = text.partition(":")
    if kind == "file" and rest and (rest.startswith("///") or not rest.startswith("//")):  # of no other host
        return ContentDriver(stores.FolderStore(Path(rest).expanduser().absolute()))
    bucket, _, prefix = rest.removeprefix("//").partition("/")
    if kind == "s3" and rest.startswith("//") and bucket:
        return ContentDriver(stores.S3Store(bucket, prefix))
    raise stores.StorageError(f'{VARIABLE} is {text!r}; it is "file:<folder>" or "s3://bucket/prefix"')


def driver_from_environment(*, creates: bool = False) -> ContentDriver | None:
    """The driver of ``ACTS_STORAGE``, or None; ``creates``: a folder that is not there is made. Raises StorageError."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    driver = read_setting(text)
    driver.contents.prepare(creates=creates)
    return driver


def verify_storage(*, writes: bool) -> str:
    """Ask the storage itself, where one is set: "" if it can be used, else why it does not answer now.

    Raises StorageError where it refuses. One that does not answer is waited for whenever it is needed.
    """
    driver = driver_from_environment(creates=writes)
    try:
        if driver is not None:
            driver.contents.verify(writes=writes)
    except stores.StorageUnavailable as error:
        if isinstance(error, stores.StorageRefused):
            raise
        return str(error)
    return ""


def worker_converter(failures: type[FailureConverter]) -> DataConverter:
    """The converter of a worker; it creates a folder of values, and waits some seconds for one that is away."""
    converter = replace(DataConverter.default, failure_converter_class=failures)
    return _with_environment(converter, driver_from_environment(creates=True), TASK_PATIENCE_SECONDS)


def activity_converter(converter: DataConverter) -> DataConverter:
    """A worker's converter for its Activities, which wait for minutes: a failure would repeat what one has done."""
    drivers = () if converter.external_storage is None else converter.external_storage.drivers
    if len(drivers) != 1 or not isinstance(drivers[0], ContentDriver):
        return converter  # a program has set up a storage of its own
    return _with_driver(converter, drivers[0], ACTIVITY_PATIENCE_SECONDS)


def client_converter() -> DataConverter:
    """The converter of a client. Pydantic's keeps the order of keys; the SDK's own sorts them."""
    from temporalio.contrib.pydantic import pydantic_data_converter

    return _with_environment(pydantic_data_converter, driver_from_environment(), CLIENT_PATIENCE_SECONDS)


def describe_converter(converter: DataConverter) -> str:
    """For a worker's identity, `` keys=1a2b3c storage=4d5e6f``: digests of the ids of its keys (never of a key), and of
    the address of its storage, as far as it has them.
    """
    codec, storage = converter.payload_codec, converter.external_storage
    keys = " ".join(sorted(codec.keys)) if isinstance(codec, AesGcmCodec) else ""
    stores_ = [d.contents.describe() for d in (storage.drivers if storage else ()) if isinstance(d, ContentDriver)]
    parts = {"keys": keys, "storage": " ".join(stores_)}
    return "".join(f" {name}={stores.sha256(text.encode())[:6]}" for name, text in parts.items() if text)


def _with_environment(converter: DataConverter, driver: ContentDriver | None, patience: float) -> DataConverter:
    """Add what the environment sets. Raises CodecError for keys that cannot be used."""
    converter = replace(converter, payload_codec=codec_from_environment())
    if is_encrypting():
        failures = _with_encoded_messages(converter.failure_converter_class)
        converter = replace(converter, failure_converter_class=failures)
    return converter if driver is None else _with_driver(converter, driver, patience)


def _with_driver(converter: DataConverter, driver: ContentDriver, patience: float) -> DataConverter:
    own = copy(driver)  # the same store and cache, for a caller that can wait so long
    own.patience = patience
    return replace(converter, external_storage=ExternalStorage([own], payload_size_threshold=STORED_ABOVE_BYTES))


_ENCODED: Final = "Encoded failure"  # the SDK's own words, in place of a message that is encrypted


@cache
def _with_encoded_messages(failures: type[FailureConverter]) -> type[FailureConverter]:
    """The same failures, with message and stack trace in a payload, which the codec encrypts."""
    # The SDK's own option would encode the stack trace before ``failures`` has shortened it

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
