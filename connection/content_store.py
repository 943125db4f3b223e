"""What a place for large values must do: keep bytes under their SHA-256, return them, list and delete them.

Laws of this file: it knows no Temporal and no environment. A store blocks; who calls it chooses the thread. Whatever a
store raises is a ``StorageError`` that names the place, what was found, and what to do.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")
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
    """A place that keeps bytes by their SHA-256, apart for each namespace.

    A *claim* is what a history records of a piece of content: a small map of strings.
    """

    driver_name: str
    """The name that references carry; every client must have a driver of this name."""

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
    def delete(self, content: StoredContent, unused_since: datetime) -> bool:
        """Delete the content, unless it was used after that time; True if it is gone."""

    def delete_leftovers(self, unused_since: datetime) -> int:  # noqa: ARG002 - a store may leave none
        """Delete what writers that were killed have left; returns how many."""
        return 0


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
