"""Large values in a folder that all programs share, such as a network file system.

::

    <folder>/acts-storage.json                   says that this is a storage; without it nothing is written
    <folder>/values/<namespace>/ab/cd/<sha256>   one value: a serialized Temporal ``Payload``
    <folder>/new/…                               what is being written
    <folder>/old/…                               what is being deleted

Laws of this file
-----------------
* A file under ``values`` is complete: it is written elsewhere, synchronized, and renamed. A kill leaves a file in
  ``new``, never half a value.
* The time of a file is that of its last use by a writer. So what is written again is *touched*, and a deletion
  renames the file first, looks at its time once more, and puts it back where a writer was quicker. Whichever of a
  touch and a rename comes second sees the other.
* A folder that is not mounted is empty. ``acts-storage.json`` tells it from a storage without values, so nothing is
  written below a mount point by mistake.
* Every path is built from a digest and an escaped namespace; none leaves the folder.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from connection.content_store import (
    ContentMissing,
    ContentStore,
    StorageError,
    StorageUnavailable,
    StoredContent,
    is_digest,
    path_segment,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MARKER: Final = "acts-storage.json"
_MARKER_TEXT: Final = b'{"storage": "acts", "version": 1}\n'
# A file is touched at most this often. A clean-up leaves what is younger than its grace period, which is longer
TOUCH_SECONDS: Final = 60.0
# Values hold whatever the plans hold: they are for the owner of the folder. A folder's group is inherited where it
# has the setgid bit, and an administrator may widen the folder itself
_FOLDER_MODE: Final = 0o770
_FILE_MODE: Final = 0o660


class FolderStore(ContentStore):
    """Values as files of one folder."""

    driver_name = "acts.folder"

    def __init__(self, root: Path) -> None:
        self.root = root
        self._marker = root / MARKER
        self._values, self._new, self._old = root / "values", root / "new", root / "old"

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
            for folder in (self._values, self._new, self._old):
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
        """Keep the data: touch the file of this content, or write it."""
        path = self._path(namespace, digest)
        with self._explained("write to"):
            if not _touch(path, len(data)):
                self._require_marker()
                self._write(path, data)
        return {"namespace": namespace, "sha256": digest}

    def read_digest(self, claim: Mapping[str, str]) -> str:
        """The ``sha256`` of a claim."""
        digest = claim.get("sha256")
        if not is_digest(digest) or not isinstance(claim.get("namespace"), str):
            raise ContentMissing(f"a reference to {self.describe()} has a namespace and a sha256, not {dict(claim)!r}")
        return str(digest)

    def get(self, claim: Mapping[str, str]) -> bytes:
        """The content of the file; where it is being deleted at this moment, of that one."""
        digest = self.read_digest(claim)
        path = self._path(claim["namespace"], digest)
        with self._explained("read"):
            for place in (path, self._deleted(path), path):
                with suppress(FileNotFoundError):
                    return place.read_bytes()
            self._require_marker()
        raise ContentMissing(
            f"the value {digest} of namespace {claim['namespace']!r} is not in {self.describe()}: "
            "it was deleted, or its writer has another ACTS_STORAGE; restore it from a backup"
        )

    def list_contents(self, namespace: str) -> Iterator[StoredContent]:
        """All files of the namespace; what a clean-up that was killed has left half deleted is put back before."""
        with self._explained("read"):
            self._require_marker()
            self._restore_deleted()
            for path in (self._values / path_segment(namespace)).glob("??/??/*"):
                with suppress(FileNotFoundError):
                    stat = path.stat()
                    if is_digest(path.name):
                        yield StoredContent(str(path), path.name, stat.st_size, _date(stat.st_mtime))

    def delete(self, content: StoredContent, unused_since: datetime) -> bool:
        """Delete a file that no writer has touched since."""
        path = Path(content.location)
        aside = self._deleted(path)
        with self._explained("delete from"):
            try:
                path.rename(aside)
            except FileNotFoundError:
                return False
            if _date(aside.stat().st_mtime) >= unused_since:
                aside.rename(path)  # over a file that was written meanwhile: the content is the same
                return False
            aside.unlink()
        return True

    def delete_leftovers(self, unused_since: datetime) -> int:
        """Delete what was being written when its writer was killed."""
        count = 0
        with self._explained("delete from"):
            for path in self._new.iterdir():
                with suppress(FileNotFoundError):
                    if _date(path.stat().st_mtime) < unused_since:
                        path.unlink()
                        count += 1
        return count

    # -- files ------------------------------------------------------------------------------------------

    def _path(self, namespace: str, digest: str) -> Path:
        return self._values / path_segment(namespace) / digest[:2] / digest[2:4] / digest

    def _deleted(self, path: Path) -> Path:
        """Where a file is while it is deleted: beside ``values``, with its namespace in the name."""
        return self._old / f"{path.parent.parent.parent.name}.{path.name}"

    def _restore_deleted(self) -> None:
        for aside in self._old.iterdir():
            namespace, _, digest = aside.name.rpartition(".")
            if is_digest(digest):
                path = self._values / namespace / digest[:2] / digest[2:4] / digest
                with suppress(FileNotFoundError):
                    aside.rename(path)

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
            self._make_parents(path)
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _synchronize(path.parent)

    def _make_parents(self, path: Path) -> None:
        if path.parent.is_dir():
            return
        for folder in reversed(path.relative_to(self.root).parents[:-1]):
            try:
                (self.root / folder).mkdir(mode=_FOLDER_MODE)
            except FileExistsError:
                continue
            _synchronize((self.root / folder).parent)

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = f"cannot {verb} {self.describe()}: {_reason(error)}"
            raise StorageUnavailable(text) from error


def _touch(path: Path, size: int) -> bool:
    """True when the file is there, and marked as used now; False for none, or one of another size."""
    try:
        stat = path.stat()
        if stat.st_size != size:
            return False  # the file system was damaged: the writer has the right bytes
        if abs(time.time() - stat.st_mtime) > TOUCH_SECONDS:
            os.utime(path)
    except FileNotFoundError:
        return False
    return True


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


def _date(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _reason(error: OSError) -> str:
    return f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
