"""Opens the file of a set: a plain one where it is, a compressed one or a URL from a copy on this machine.

A page begins at an offset in bytes. A ``.gz`` file and most web servers cannot be read from there, so their content is
written once into a file below the system's folder for temporary files (the *spool*), and read from that. The spool is a
cache: what is missing is made again, on each worker that reads a page; a page has a hash, so a stale copy is noticed.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import re
import tempfile
import threading
import time
import zlib
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from acts.language.errors import format_choices
from acts.language.wire import SET_INVALID, SET_NOT_FOUND, SET_REFUSED, SET_TOO_LARGE, SET_UNAVAILABLE
from sets.folder_paths import check_name, kind_of_file, open_parent, resolve_below
from sets.set_errors import SetError, quote
from sets.set_sources import DATA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sets.set_sources import SetSources

    Download = Callable[[str, BinaryIO], None]

SUFFIXES: Final = (".jsonl", ".ndjson", ".csv", ".jsonl.gz", ".ndjson.gz", ".csv.gz")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# Of one copy: more than a disk for temporary files commonly has free. A few kilobytes of gzip can be gigabytes
MAX_SPOOL_BYTES: Final = 20 * 1024**3
# A copy that nothing has read for so long is deleted when the next one is made
_SPOOL_SECONDS: Final = 24 * 3600.0
_CHUNK: Final = 1024 * 1024
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_MAX_LISTED: Final = 1_000
_locks: Final[dict[str, threading.Lock]] = defaultdict(threading.Lock)


@dataclass(frozen=True, slots=True)
class OpenSet:
    """An open set: its name for people, its bytes in all, and whether it was read from a copy of another place."""

    name: str
    stream: BinaryIO
    size: int
    is_copy: bool = False


@contextmanager
def open_set(source: str, sources: SetSources, download: Download, *, is_fresh: bool = False) -> Iterator[OpenSet]:
    """The set that a plan names. ``download`` writes what is at a URL; ``is_fresh`` takes no copy of before.

    Raises:
        SetError: it is not there, not allowed, or cannot be read.
    """
    is_url = _URL.match(source) is not None
    path = source.partition("?")[0].partition("#")[0] if is_url else source
    name = (
        check_name(path, "a set", SET_REFUSED).rpartition("/")[2] if is_url else check_name(path, "a set", SET_REFUSED)
    )
    if not name.lower().endswith(SUFFIXES):
        text = f"the set {quote(source)} is neither JSON Lines nor CSV by its name"
        raise SetError(SET_REFUSED, f"{text}; names end in {format_choices(SUFFIXES)}")
    if is_url:
        with _spooled(source, lambda file: download(source, file), is_fresh=is_fresh) as stream:
            yield from _unpacked(name, stream, source, is_copy=True, is_fresh=is_fresh)
    else:
        with _open_below(sources.data, source) as stream:
            status = os.fstat(stream.fileno())
            key = f"{os.path.realpath(source)}:{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
            yield from _unpacked(name, stream, key, is_copy=False, is_fresh=False)


def _unpacked(name: str, stream: BinaryIO, key: str, *, is_copy: bool, is_fresh: bool) -> Iterator[OpenSet]:
    if not name.lower().endswith(".gz"):
        yield OpenSet(name, stream, os.fstat(stream.fileno()).st_size, is_copy)
        return
    with _spooled(f"gz:{key}", lambda file: _unpack(name, stream, file), is_fresh=is_fresh) as plain:
        yield OpenSet(name, plain, os.fstat(plain.fileno()).st_size, is_copy)


def _unpack(name: str, stream: BinaryIO, file: BinaryIO) -> None:
    try:
        with gzip.GzipFile(fileobj=stream) as packed:
            size = 0
            while chunk := packed.read(_CHUNK):
                size += len(chunk)
                if size > MAX_SPOOL_BYTES:
                    raise SetError(SET_TOO_LARGE, f"{name} has more than {MAX_SPOOL_BYTES >> 30} GiB uncompressed")
                file.write(chunk)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise SetError(SET_INVALID, f"{name} is no complete gzip file: {error}") from None


# -- copies --------------------------------------------------------------------------


@contextmanager
def _spooled(key: str, write: Callable[[BinaryIO], None], *, is_fresh: bool) -> Iterator[BinaryIO]:
    folder = Path(tempfile.gettempdir()) / f"acts-sets-{os.getuid()}"
    path = folder / hashlib.sha256(key.encode()).hexdigest()[:32]
    with _locks[str(path)]:
        if is_fresh or not path.exists():
            _make_copy(folder, path, write)
        with suppress(OSError):
            os.utime(path)
        stream = path.open("rb")
    with stream:
        yield stream


def _make_copy(folder: Path, path: Path, write: Callable[[BinaryIO], None]) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise SetError(SET_UNAVAILABLE, f"{folder} belongs to another user: the worker keeps copies of sets there")
        _delete_old(folder)
        with tempfile.NamedTemporaryFile(dir=folder, prefix="part-", delete=False) as file:
            try:
                write(cast("BinaryIO", file))
                file.close()
                os.replace(file.name, path)  # noqa: PTH105 - file.name is a str
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        text = f"the copy of the set in {folder} cannot be written: {error.strerror or error}"
        raise SetError(SET_UNAVAILABLE, text) from error


def _delete_old(folder: Path) -> None:
    oldest = time.time() - _SPOOL_SECONDS
    for file in folder.iterdir():
        with suppress(OSError):
            if file.stat().st_mtime < oldest:
                file.unlink()


# -- files in folders ----------------------------------------------------------------


@contextmanager
def _open_below(folders: tuple[Path, ...], name: str) -> Iterator[BinaryIO]:
    if not folders:
        raise SetError(SET_REFUSED, f"this worker reads no sets: {DATA} names no folder to read {quote(name)} from")
    has_left = True
    for folder in folders:
        place = resolve_below(folder, name)
        has_left &= place is None
        stream = None if place is None else _open(folder, *place, name)
        if stream is not None:
            with stream:
                yield stream
            return
    where = ", ".join(map(str, folders))
    if has_left:
        text = f"the set {quote(name)} is outside the folders of {DATA} ({where})"
        raise SetError(SET_REFUSED, f"{text}: only files inside them are read")
    names = list_sets(folders)
    near = get_close_matches(name, names, 1)
    hint = f'did you mean "{near[0]}"? there' if near else "there"
    text = f"there is no set {quote(name)} in {where} ({DATA}); {hint} are: {format_choices(names)}"
    raise SetError(SET_NOT_FOUND, text)


def _open(folder: Path, root: str, steps: tuple[str, ...], name: str) -> BinaryIO | None:
    try:
        with open_parent(root, steps) as parent:
            kind = kind_of_file(os.stat(steps[-1], dir_fd=parent, follow_symlinks=False).st_mode)
            if kind is not None:
                raise SetError(SET_REFUSED, f"the set {quote(name)} is {kind}; a set is a regular file")
            return os.fdopen(os.open(steps[-1], _FILE_FLAGS, dir_fd=parent), "rb")
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        text = f"the set {quote(name)} of {folder} cannot be read: {error.strerror}"
        is_permanent = error.errno in (errno.EACCES, errno.EPERM, errno.ELOOP)
        raise SetError(SET_REFUSED if is_permanent else SET_UNAVAILABLE, text) from error


def list_sets(folders: tuple[Path, ...]) -> list[str]:
    """The names of the sets directly in the folders; of very many, the first."""
    names = (p.name for folder in folders for p in sorted(folder.glob("*"))[:_MAX_LISTED])
    return [name for name in dict.fromkeys(names) if name.lower().endswith(SUFFIXES)]
