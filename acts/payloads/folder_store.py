"""Large values in a folder that all programs share, such as a network file system.

::

    <folder>/acts-storage.json                          says that this is a storage; without it nothing is written
    <folder>/values/<namespace>/<week>/ab/<sha256>      one value: a serialized Temporal ``Payload``
    <folder>/new/…                                      what is being written

Laws of this file
-----------------
* A file under ``values`` is complete: it is written elsewhere, synchronized, and renamed. A kill leaves a file in
  ``new``, never half a value.
* A folder that is not mounted is empty. ``acts-storage.json`` tells it from a storage without values, so nothing is
  written below a mount point by mistake.
* Every path is built from a key that has been checked; none leaves the folder.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acts.payloads.content_store import (
    ContentMissing,
    ContentStore,
    StorageError,
    StorageUnavailable,
    StoredContent,
    make_key,
    path_segment,
    read_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MARKER: Final = "acts-storage.json"
_MARKER_TEXT: Final = b'{"storage": "acts", "version": 2}\n'
# Values hold whatever the plans hold: they are for the owner of the folder. A folder's group is inherited where it
# has the setgid bit, and an administrator may widen the folder itself
_FOLDER_MODE: Final = 0o770
_FILE_MODE: Final = 0o660


class FolderStore(ContentStore):
    """Values as files of one folder."""

    driver_name = "acts.folder"

    def __init__(self, root: Path) -> None:
        self.root = root
        self._marker, self._values, self._new = root / MARKER, root / "values", root / "new"

    def describe(self) -> str:
        """``file:`` and the folder."""
        return f"file:{self.root}"

    def prepare(self, *, creates: bool) -> None:
        """Create what is missing. A client leaves a folder that is not there alone: it may be away for a while."""
        try:
            if creates:
                self.root.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            elif not self.root.is_dir() or any(self.root.iterdir()):
                return
            for folder in (self._values, self._new):
                folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            if not self._marker.exists():
                self._write(self._marker, _MARKER_TEXT)
            if not os.access(self._new, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "not writable")
        except OSError as error:
            raise StorageError(f"{self.describe()} cannot be used: {_reason(error)}") from error

    def verify(self, *, writes: bool) -> None:  # noqa: ARG002 - ``prepare`` has tried to write
        """Look for the marker."""
        with self._explained("read"):
            self._require_marker()

    def put(self, namespace: str, digest: str, data: bytes) -> dict[str, str]:
        """Keep the data, unless the file of this week is there."""
        key = make_key(namespace, digest)
        path = self._values / key
        with self._explained("write to"):
            # A file of another size was cut by the file system: the writer has the right bytes
            if not path.exists() or path.stat().st_size != len(data):
                self._require_marker()
                self._write(path, data)
        return {"key": key}

    def read_digest(self, claim: Mapping[str, str]) -> str:
        """The SHA-256 in the key of a claim."""
        content = read_key(str(claim.get("key")))
        if content is None:
            raise ContentMissing(f"a reference to {self.describe()} has a key, not {dict(claim)!r}")
        return content[0]

    def get(self, claim: Mapping[str, str]) -> bytes:
        """The content of the file."""
        self.read_digest(claim)
        with self._explained("read"):
            with suppress(FileNotFoundError):
                return (self._values / claim["key"]).read_bytes()
            self._require_marker()
        raise ContentMissing(
            f"the value {claim['key']} is not in {self.describe()}: it was deleted, or its writer has another "
            "ACTS_STORAGE; restore it from a backup"
        )

    def list_contents(self, namespace: str) -> Iterator[StoredContent]:
        """All files of the namespace; each may have been used until its week was over."""
        with self._explained("read"):
            self._require_marker()
            for path in (self._values / path_segment(namespace)).glob("*/??/*"):
                content = read_key(path.relative_to(self._values).as_posix())
                with suppress(FileNotFoundError):
                    if content is not None:
                        yield StoredContent(str(path), content[0], path.stat().st_size, content[1])

    def delete(self, content: StoredContent) -> None:
        """Delete a file."""
        with self._explained("delete from"):
            Path(content.location).unlink(missing_ok=True)

    def delete_leftovers(self, unused_since: datetime) -> int:
        """Delete what was being written when its writer was killed."""
        count = 0
        with self._explained("delete from"):
            for path in self._new.iterdir():
                with suppress(FileNotFoundError):
                    if datetime.fromtimestamp(path.stat().st_mtime, UTC) < unused_since:
                        path.unlink()
                        count += 1
        return count

    # -- files ------------------------------------------------------------------------------------------

    def _require_marker(self) -> None:
        if not self._marker.exists():
            raise StorageUnavailable(
                f"{self.describe()} is not there: it has no {MARKER}. Mount the folder; if it was deleted on purpose, "
                "restart the worker, which makes it anew"
            )

    def _write(self, path: Path, data: bytes) -> None:
        """Write a file that is there as a whole or not at all, and still there after a power cut."""
        temporary = self._new / f"{os.getpid()}-{secrets.token_hex(8)}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            for folder in reversed(path.relative_to(self.root).parents[:-1]):
                with suppress(FileExistsError):
                    (self.root / folder).mkdir(mode=_FOLDER_MODE)
                    _synchronize((self.root / folder).parent)
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _synchronize(path.parent)

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageUnavailable(f"cannot {verb} {self.describe()}: {_reason(error)}") from error


def _synchronize(folder: Path) -> None:
    """Make the names in a folder durable; some network file systems have no such call."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
