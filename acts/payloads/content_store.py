"""What a store of large values must do, and the SDK's storage driver over it: it hashes, verifies, caches, and waits.

Laws of this file
-----------------
* A ``ContentStore`` keeps bytes by their SHA-256, knows no Temporal and blocks; what it raises is a ``StorageError``
  that names the place, what was found, and what to do.
* Content is read at most once by each process as long as the cache holds it: a workflow decodes the same values again
  with each replay. The cache is bounded in bytes.
* What is read has the hash that was asked for, or is an error.
* A store that cannot be reached is waited for, for as long as the caller has patience. Content that is not there is an
  error after a second: a network file system may show it late.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriver, StorageDriverClaim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from temporalio.converter import StorageDriverRetrieveContext, StorageDriverStoreContext

T = TypeVar("T")
logger = logging.getLogger(__name__)

_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")
_KEY: Final = re.compile(r"[A-Za-z0-9_%-]+/(\d{4}-\d\d-\d\d)/[0-9a-f]{2}/([0-9a-f]{64})")
# Bytes of a path segment that need no escape, on file systems and in S3 keys
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
# A file name has at most 255 bytes
_MAX_SEGMENT: Final = 200


class StorageError(Exception):
    """A value could not be stored or read."""


class StorageUnavailable(StorageError):
    """The place cannot be reached or written to now; it may come back."""


class StorageRefused(StorageUnavailable):
    """The place answers, and refuses: credentials, permissions or the setting must be changed first."""


class ContentMissing(StorageError):
    """The place is there, the content is not."""


class ContentCorrupt(StorageError):
    """What is there is not what was stored."""


@dataclass(frozen=True, slots=True)
class StoredContent:
    """One piece of content. ``last_use``: no program has begun to refer to it after that time."""

    location: str
    digest: str
    size: int
    last_use: datetime


class ContentStore(ABC):
    """A place that keeps bytes by their SHA-256, apart for each namespace and week.

    The key of content is ``<namespace>/<week>/<two digits>/<sha256>``, the week by its Monday (UTC). A writer uses only
    content of the present week, and a clean-up deletes only that of weeks that are over, so the two never meet. What is
    used for many weeks is stored once a week.

    A *claim* is what a history records of a piece of content: a small map of strings. ``driver_name`` is in references:
    every client must have a driver of this name.
    """

    driver_name: str

    @abstractmethod
    def describe(self) -> str:
        """The place, as a person knows it."""

    @abstractmethod
    def prepare(self, *, creates: bool) -> None:
        """Make the place usable, and create it where the caller ``creates``; raises StorageError where it cannot be."""

    @abstractmethod
    def verify(self, *, writes: bool) -> None:
        """Ask the place itself whether content can be read, and written where the caller ``writes``.

        Raises:
            StorageRefused: it says no, and will until somebody changes something. StorageUnavailable: no answer.
        """

    @abstractmethod
    def put(self, namespace: str, digest: str, data: bytes) -> dict[str, str]:
        """Keep the data, unless it is there already; returns the claim."""

    @abstractmethod
    def read_digest(self, claim: Mapping[str, str]) -> str:
        """The SHA-256 that a claim names; raises ContentMissing for a claim of another form."""

    @abstractmethod
    def get(self, claim: Mapping[str, str]) -> bytes:
        """The bytes of a claim, not verified."""

    @abstractmethod
    def list_contents(self, namespace: str) -> Iterator[StoredContent]:
        """All content of a namespace."""

    @abstractmethod
    def delete(self, content: StoredContent) -> None:
        """Delete content of a week that is over."""

    def delete_leftovers(self, unused_since: datetime) -> int:  # noqa: ARG002 - a store may leave none
        """Delete what writers that were killed have left; returns how many."""
        return 0


def make_key(namespace: str, digest: str) -> str:
    """The key of content that is stored now."""
    now = datetime.now(UTC)
    monday = now - timedelta(days=now.weekday())
    return f"{path_segment(namespace)}/{monday:%Y-%m-%d}/{digest[:2]}/{digest}"


def read_key(key: str) -> tuple[str, datetime] | None:
    """The SHA-256 in a key, and the end of its week; None for a key of another form."""
    match = _KEY.fullmatch(key)
    try:
        monday = datetime.strptime(match[1], "%Y-%m-%d").replace(tzinfo=UTC) if match else None
    except ValueError:
        return None
    return (match[2], monday + timedelta(weeks=1)) if match and monday else None


def sha256(data: bytes) -> str:
    """The SHA-256 of the data, as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def is_digest(text: object) -> bool:
    """True for 64 lower-case hex digits."""
    return isinstance(text, str) and _DIGEST.match(text) is not None


def path_segment(name: str) -> str:
    """A name as one segment of a path: bytes outside letters, digits, ``-`` and ``_`` are written ``%XX``.

    So no name is ``..`` or has a slash; different names stay different.
    """
    text = "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in name.encode()) or "%"
    return text if len(text) <= _MAX_SEGMENT else f"%-{sha256(name.encode())}"


# Of a process: twelve values of 5 MB. A larger cache would take what the worker's own cache of runs needs
CACHE_BYTES: Final = 64 * 1024 * 1024
# A larger value would push out everything else: it is read again
MAX_CACHED_BYTES: Final = CACHE_BYTES // 4
# Content that was stored so recently is not stored again: a replay encodes all that a run ever sent
STORED_SECONDS: Final = 60.0
MAX_STORED: Final = 10_000
# Reads and writes at a time, in threads
THREADS: Final = 16
# A workflow task has 10 s by default, and may wait twice: for what it reads, and for what it writes
TASK_PATIENCE_SECONDS: Final = 4.0
# An Activity has done its work, or could begin it: it waits as long as a Tool's default timeout
ACTIVITY_PATIENCE_SECONDS: Final = 300.0
# A command is watched by a person
CLIENT_PATIENCE_SECONDS: Final = 1.0
MISSING_PATIENCE_SECONDS: Final = 1.0
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0
# Between two lines of the log about a store that is away
_LOG_SECONDS: Final = 10.0


class ContentCache:
    """Content by its SHA-256, the least recently used first, at most ``limit`` bytes; and what was stored lately."""

    def __init__(self, limit: int = CACHE_BYTES, largest: int = MAX_CACHED_BYTES) -> None:
        self._limit, self._largest = limit, largest
        self._lock = threading.Lock()
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._stored: OrderedDict[tuple[str, str], tuple[float, dict[str, str]]] = OrderedDict()
        self.bytes = 0

    def get(self, digest: str) -> bytes | None:
        """The content, if it is here."""
        with self._lock:
            data = self._contents.get(digest)
            if data is not None:
                self._contents.move_to_end(digest)
            return data

    def put(self, digest: str, data: bytes) -> None:
        """Keep the content, unless it is too large."""
        with self._lock:
            if digest in self._contents or len(data) > self._largest:
                return
            self._contents[digest] = data
            self.bytes += len(data)
            while self.bytes > self._limit:
                self.bytes -= len(self._contents.popitem(last=False)[1])

    def find_stored(self, namespace: str, digest: str) -> dict[str, str] | None:
        """The claim of content that was stored a moment ago."""
        stored_at, claim = self._stored.get((namespace, digest), (float("-inf"), {}))
        return claim if time.monotonic() - stored_at <= STORED_SECONDS else None

    def mark_stored(self, namespace: str, digest: str, claim: dict[str, str]) -> None:
        """The content has been stored now."""
        with self._lock:
            self._stored[namespace, digest] = time.monotonic(), claim
            self._stored.move_to_end((namespace, digest))
            while len(self._stored) > MAX_STORED:
                self._stored.popitem(last=False)


class ContentDriver(StorageDriver):
    """Stores and retrieves payloads by their content. ``patience``: seconds that a store may be away."""

    def __init__(self, store: ContentStore, patience: float = CLIENT_PATIENCE_SECONDS) -> None:
        self.contents, self._patience = store, patience
        self._cache, self._threads = ContentCache(), ThreadPoolExecutor(THREADS, "storage")
        # When the log had a line about a store that is away
        self._logged_at = float("-inf")

    def with_patience(self, seconds: float) -> ContentDriver:
        """The same store and cache, for a caller that can wait so long."""
        other = ContentDriver(self.contents, seconds)
        other._cache, other._threads = self._cache, self._threads
        return other

    def name(self) -> str:
        """The name in references."""
        return self.contents.driver_name

    def type(self) -> str:
        """The same: each kind of store has one name."""
        return self.contents.driver_name

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Store each payload under the hash of its bytes."""
        namespace = context.target.namespace if context.target is not None else ""
        claims = [self._patiently(lambda p=payload: self._put(namespace, p)) for payload in payloads]  # type: ignore[misc]
        return [StorageDriverClaim(claim) for claim in await asyncio.gather(*claims)]

    async def retrieve(
        self,
        context: StorageDriverRetrieveContext,  # noqa: ARG002 - the SDK's form
        claims: Sequence[StorageDriverClaim],
    ) -> list[Payload]:
        """The payloads, each with the hash that its claim names."""
        return await asyncio.gather(*[self._retrieve(claim.claim_data) for claim in claims])

    async def _retrieve(self, claim: Mapping[str, str]) -> Payload:
        data = self._cache.get(self.contents.read_digest(claim))
        if data is None:
            data = await self._patiently(lambda: self._get(claim))
        return Payload.FromString(data)

    def _put(self, namespace: str, payload: Payload) -> dict[str, str]:
        data = payload.SerializeToString(deterministic=True)  # the order of metadata must not change the hash
        digest = sha256(data)
        claim = self._cache.find_stored(namespace, digest)
        if claim is None:
            claim = self.contents.put(namespace, digest, data)
            self._cache.mark_stored(namespace, digest, claim)
        self._cache.put(digest, data)
        return claim

    def _get(self, claim: Mapping[str, str]) -> bytes:
        data, digest = self.contents.get(claim), self.contents.read_digest(claim)
        if (actual := sha256(data)) != digest:
            raise ContentCorrupt(
                f"the value {digest} in {self.contents.describe()} has another content: {len(data):,} bytes with the "
                f"SHA-256 {actual}; restore it from a backup"
            )
        self._cache.put(digest, data)
        return data

    async def _patiently(self, operation: Callable[[], T]) -> T:
        began, pause = time.monotonic(), _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, operation)
            except ContentMissing:
                if time.monotonic() - began + pause > min(self._patience, MISSING_PATIENCE_SECONDS):
                    raise
            except StorageUnavailable as error:
                if time.monotonic() - began + pause > self._patience:
                    raise
                self._log(error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _log(self, error: Exception) -> None:
        if self._patience <= CLIENT_PATIENCE_SECONDS:
            return  # a client fails in a moment, and says why
        if time.monotonic() - self._logged_at > _LOG_SECONDS:
            self._logged_at = time.monotonic()
            logger.warning("external storage: %s; it is tried again, and nothing is lost meanwhile", error)
