"""The SDK's storage driver over a ``ContentStore``: hashes, verifies, caches, and waits for a store that is away.

Laws of this file
-----------------
* Content is read at most once by each process as long as the cache holds it: a workflow decodes the same values again
  with each replay. The cache is bounded in bytes.
* What is read has the hash that was asked for, or is an error.
* A store that cannot be reached is waited for, for as long as the caller has patience; nothing is given up that was
  done. Content that is not there is an error after a second: a network file system may show it late.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriver, StorageDriverClaim

from connection.content_store import ContentCorrupt, ContentMissing, StorageUnavailable, sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from temporalio.converter import StorageDriverRetrieveContext, StorageDriverStoreContext

    from connection.content_store import ContentStore

T = TypeVar("T")
logger = logging.getLogger(__name__)

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
_NEVER: Final = float("-inf")


class ContentCache:
    """Content by its SHA-256, the least recently used first; at most ``limit`` bytes. For all threads."""

    def __init__(self, limit: int = CACHE_BYTES, largest: int = MAX_CACHED_BYTES) -> None:
        self._limit, self._largest = limit, largest
        self._lock = threading.Lock()
        self._contents: OrderedDict[str, bytes] = OrderedDict()
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
        if len(data) > self._largest:
            return
        with self._lock:
            if digest in self._contents:
                return
            self._contents[digest] = data
            self.bytes += len(data)
            while self.bytes > self._limit:
                self.bytes -= len(self._contents.popitem(last=False)[1])


@dataclass
class _Shared:
    """What the drivers of one store in a process have in common."""

    cache: ContentCache = field(default_factory=ContentCache)
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, "storage"))
    stored: OrderedDict[tuple[str, str], tuple[float, dict[str, str]]] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    logged_at: float = _NEVER


class ContentDriver(StorageDriver):
    """Stores and retrieves payloads by their content. ``patience``: seconds that a store may be away."""

    def __init__(
        self, store: ContentStore, patience: float = CLIENT_PATIENCE_SECONDS, shared: _Shared | None = None
    ) -> None:
        self.contents, self._patience, self._shared = store, patience, shared or _Shared()

    def with_patience(self, seconds: float) -> ContentDriver:
        """The same store and cache, for a caller that can wait so long."""
        return ContentDriver(self.contents, seconds, self._shared)

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
        return await asyncio.gather(*[self._retrieve(claim) for claim in claims])

    async def _retrieve(self, claim: StorageDriverClaim) -> Payload:
        data = self._shared.cache.get(self.contents.read_digest(claim.claim_data))
        if data is None:
            data = await self._patiently(lambda: self._get(claim))
        return Payload.FromString(data)

    def _put(self, namespace: str, payload: Payload) -> dict[str, str]:
        data = payload.SerializeToString(deterministic=True)  # the order of metadata must not change the hash
        digest, shared = sha256(data), self._shared
        with shared.lock:
            stored_at, claim = shared.stored.get((namespace, digest), (_NEVER, {}))
        if time.monotonic() - stored_at > STORED_SECONDS:
            claim = self.contents.put(namespace, digest, data)
            self._log_return()
            with shared.lock:
                shared.stored[namespace, digest] = time.monotonic(), claim
                shared.stored.move_to_end((namespace, digest))
                while len(shared.stored) > MAX_STORED:
                    shared.stored.popitem(last=False)
        shared.cache.put(digest, data)
        return claim

    def _get(self, claim: StorageDriverClaim) -> bytes:
        data, digest = self.contents.get(claim.claim_data), self.contents.read_digest(claim.claim_data)
        self._log_return()
        if (found := sha256(data)) != digest:
            raise ContentCorrupt(
                f"the value {digest} in {self.contents.describe()} has another content: {len(data):,} bytes with the "
                f"SHA-256 {found}; restore it from a backup"
            )
        self._shared.cache.put(digest, data)
        return data

    async def _patiently(self, operation: Callable[[], T]) -> T:
        began, pause = time.monotonic(), _FIRST_PAUSE_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await loop.run_in_executor(self._shared.threads, operation)
            except (StorageUnavailable, ContentMissing) as error:
                is_missing = isinstance(error, ContentMissing)
                patience = min(self._patience, MISSING_PATIENCE_SECONDS) if is_missing else self._patience
                if time.monotonic() - began + pause > patience:
                    raise
                if not is_missing:
                    self._log(error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _log(self, error: Exception) -> None:
        if self._patience <= CLIENT_PATIENCE_SECONDS:
            return  # a client fails in a moment, and says why
        if time.monotonic() - self._shared.logged_at > _LOG_SECONDS:
            self._shared.logged_at = time.monotonic()
            logger.warning("external storage: %s; it is tried again, and nothing is lost meanwhile", error)

    def _log_return(self) -> None:
        """Only where the store itself has answered: what the cache holds says nothing of it."""
        with self._shared.lock:
            was_away, self._shared.logged_at = self._shared.logged_at != _NEVER, _NEVER
        if was_away:
            logger.warning("external storage: %s is back", self.contents.describe())
