"""Where sets come from: the settings of the worker, and the file of a set, opened.

A plain file is read where it is, a compressed one or a URL from a copy on this machine. A page begins at an offset in
bytes. A ``.gz`` file and most web servers cannot be read from there, so their content is written once into a file below
the system's folder for temporary files (the *spool*), and read from that. The spool is a cache: what is missing is made
again, on each worker that reads a page; a page has a hash, so a stale copy is noticed.

No plan can change the settings. Nothing here knows Temporal: the activities say which errors are retried.
"""

from __future__ import annotations

import asyncio
import errno
import gzip
import hashlib
import os
import re
import stat
import tempfile
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from acts.delegates import sources as places
from acts.delegates.sources import DelegateSources, quote
from acts.language import wire
from acts.language.errors import format_choices
from acts.tree.set_records import is_wild

if TYPE_CHECKING:
    from acts.delegates.web import Resolve

DATA: Final = "ACTS_DATA"
RESULTS: Final = "ACTS_RESULTS"
DATA_HOSTS: Final = "ACTS_DATA_HOSTS"
DATA_PRIVATE_HOSTS: Final = "ACTS_DATA_PRIVATE_HOSTS"
SUFFIXES: Final = (".jsonl", ".ndjson", ".csv", ".jsonl.gz", ".ndjson.gz", ".csv.gz")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# Of one copy: more than a disk for temporary files commonly has free. A few kilobytes of gzip can be gigabytes
MAX_SPOOL_BYTES: Final = 20 * 1024**3
# What is left free of the disk, or a tenth of a small one
MIN_FREE_BYTES: Final = 1024**3
# Tables of numbers and texts take a twentieth to a third; of so small ones nobody asks how they came about
MAX_RATIO: Final = 200
_MIN_RATIO_BYTES: Final = 256 * 1024**2
# For a download: 20 GiB at 12 MB/s
DEADLINE_SECONDS: Final = 1800.0
# A copy that nothing has read for so long is deleted when the next one is made
_SPOOL_SECONDS: Final = 24 * 3600.0
_CHUNK: Final = 1024 * 1024
_MAX_LISTED: Final = 1_000
_locks: Final[dict[str, threading.Lock]] = defaultdict(threading.Lock)


class SetError(Exception):
    """A set that cannot be read, or results that cannot be written; ``type`` is one of the types of ``wire.py``."""

    def __init__(self, type_: str, message: str) -> None:
        super().__init__(message)
        self.type, self.message = type_, message


def check_name(name: object, what: str, refused: str) -> str:
    """The name of a file as a plan may write it; SetError of the type ``refused`` names the fault."""
    if not isinstance(name, str) or not name.strip():
        raise SetError(refused, f"{what} is named by a text, not by {quote(name)}")
    faults = {
        f"has more than {places.MAX_NAME:,} characters": len(name) > places.MAX_NAME,
        "has a control character or a backslash: paths are written with /": not name.isprintable() or "\\" in name,
        'has the step "..", which leaves the folder': ".." in name.split("/"),
        "ends in /: it is the name of a folder": name.endswith("/"),
    }
    for fault, is_there in faults.items():
        if is_there:
            raise SetError(refused, f"the name {quote(name)} of {what} {fault}")
    return name


@dataclass(frozen=True)
class SetSources:
    """Folders are searched in their order; ``hosts`` are compared like those of delegates. ``resolve`` is for tests."""

    data: tuple[Path, ...] = ()
    results: tuple[Path, ...] = ()
    hosts: DelegateSources = field(default_factory=DelegateSources)
    resolve: Resolve | None = None


class OpenSet(NamedTuple):
    """An open set: its name for people, and whether it is read from a copy of another place."""

    name: str
    stream: BinaryIO
    is_copy: bool


@contextmanager
def open_set(source: str, sources: SetSources, *, is_fresh: bool = False) -> Iterator[OpenSet]:
    """The set that a plan names, or SetError. ``is_fresh`` takes no old copy."""
    is_url = _URL.match(source) is not None
    path = source.partition("?")[0].partition("#")[0] if is_url else source
    name = check_name(path, "a set", wire.SET_REFUSED)
    name = name.rpartition("/")[2] if is_url else name
    if not name.lower().endswith(SUFFIXES):
        text = f"the set {quote(source)} is neither JSON Lines nor CSV by its name"
        raise SetError(wire.SET_REFUSED, f"{text}; names end in {format_choices(SUFFIXES)}")
    with ExitStack() as stack:
        if is_url:
            stream = stack.enter_context(_open_copy(source, partial(_download, source, sources), is_fresh=is_fresh))
            key = source
        else:
            stream = stack.enter_context(_open_below(sources.data, source))
            status = os.fstat(stream.fileno())
            key = f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
        if name.lower().endswith(".gz"):
            unpack = partial(_unpack, name, stream)
            stream = stack.enter_context(_open_copy(f"gz:{key}", unpack, is_fresh=is_fresh and is_url))
        yield OpenSet(name, stream, is_url)


def _unpack(name: str, stream: BinaryIO, file: BinaryIO) -> None:
    try:
        with gzip.GzipFile(fileobj=stream) as packed:
            while chunk := packed.read(_CHUNK):
                if file.tell() > max(MAX_RATIO * stream.tell(), _MIN_RATIO_BYTES):
                    text = f"{name} has more than {MAX_RATIO} times its size uncompressed: name the file that is in it"
                    raise SetError(wire.SET_TOO_LARGE, text)
                _add(file, chunk, name)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise SetError(wire.SET_INVALID, f"{name} is no complete gzip file: {error}") from None


def _add(file: BinaryIO, chunk: bytes, name: str) -> None:
    """Write a part of a copy, unless it becomes too large, or leaves the disk too little."""
    if file.tell() + len(chunk) > MAX_SPOOL_BYTES:
        raise SetError(wire.SET_TOO_LARGE, f"{name} has more than {MAX_SPOOL_BYTES >> 30} GiB uncompressed")
    disk = os.fstatvfs(file.fileno())
    if disk.f_bavail * disk.f_frsize < min(MIN_FREE_BYTES, disk.f_blocks * disk.f_frsize // 10) + len(chunk):
        raise OSError(errno.ENOSPC, f"{name} leaves too little free space")
    file.write(chunk)


def _open_copy(key: str, write: Callable[[BinaryIO], None], *, is_fresh: bool) -> BinaryIO:
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    with _locks[name]:
        try:
            path = _own_folder() / name
            if is_fresh or not path.exists():
                _make_copy(path, write)
            with suppress(OSError):
                os.utime(path)
            return os.fdopen(os.open(path, os.O_RDONLY | places.FILE_FLAGS), "rb")
        except OSError as error:
            text = f"the copy of the set in {tempfile.gettempdir()} cannot be made: {error.strerror or error}"
            raise SetError(wire.SET_UNAVAILABLE, text) from error


def _own_folder() -> Path:
    """The folder of the copies, made where it is missing; OSError where it is not ours alone."""
    folder = Path(tempfile.gettempdir(), f"acts-sets-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        text = f"{folder} is a link, or not the worker's alone (mode 700): remove it, and it is made anew"
        raise PermissionError(errno.EACCES, text)
    return folder


def _make_copy(path: Path, write: Callable[[BinaryIO], None]) -> None:
    for file in path.parent.iterdir():
        with suppress(OSError):
            if file.stat().st_mtime < time.time() - _SPOOL_SECONDS:
                file.unlink()
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix="part-")
    try:
        with os.fdopen(descriptor, "wb") as copy:
            write(copy)
        Path(part).replace(path)
    finally:
        Path(part).unlink(missing_ok=True)


def find_source(source: str, sources: SetSources) -> str:
    """The name of the set that is meant: of those that a pattern (``*``, ``?``) in its last step fits, the last."""
    if not is_wild(source):
        return source
    above, _, pattern = check_name(source, "a set", wire.SET_REFUSED).rpartition("/")
    for folder in sources.data:
        place = places.resolve_below(folder, above) if above else (os.path.realpath(folder), ())
        files = list(Path(place[0], *place[1]).glob("*")) if place is not None else []
        names = [f.name for f in files if fnmatchcase(f.name, pattern) and f.name.lower().endswith(SUFFIXES)]
        if names := [name for name in names if not name.startswith(".")]:
            return f"{above}/{max(names)}" if above else max(names)
    where = ", ".join(map(str, sources.data)) or f"{DATA}, which is not set"
    raise SetError(wire.SET_NOT_FOUND, f"no set in {where} has a name like {quote(source)}")


def _open_below(folders: tuple[Path, ...], name: str) -> BinaryIO:
    """The set of this name, in the first folder that has it."""
    if not folders:
        text = f"this worker reads no sets: {DATA} names no folder to read {quote(name)} from"
        raise SetError(wire.SET_REFUSED, text)
    below = [place for folder in folders if (place := places.resolve_below(folder, name)) is not None]
    where = ", ".join(map(str, folders))
    if not below:
        text = f"the set {quote(name)} is outside the folders of {DATA} ({where}): only files inside them are read"
        raise SetError(wire.SET_REFUSED, text)
    for place in below:
        try:
            return os.fdopen(places.open_regular(*place), "rb")
        except places.IrregularFileError as kind:
            raise SetError(wire.SET_REFUSED, f"the set {quote(name)} is {kind}; a set is a regular file") from None
        except OSError as error:
            if error.errno not in places.ABSENT:
                text = f"the set {quote(name)} of {where} cannot be read: {error.strerror}"
                type_ = wire.SET_REFUSED if error.errno in places.DENIED else wire.SET_UNAVAILABLE
                raise SetError(type_, text) from error
    files = (p.name for folder in folders for p in sorted(folder.glob("*"))[:_MAX_LISTED])
    names = [file for file in dict.fromkeys(files) if file.lower().endswith(SUFFIXES)]
    text = f"there is no set {quote(name)} in {where} ({DATA}); there are: {format_choices(names)}"
    raise SetError(wire.SET_NOT_FOUND, text)


def _download(url: str, sources: SetSources, file: BinaryIO) -> None:
    """Write what is at a URL of the hosts into a file, by the rules of delegates' URLs."""
    from temporalio.exceptions import ApplicationError

    from acts.delegates import web  # takes a tenth of a second: imported when a URL is first fetched

    def write(chunk: bytes) -> None:
        _add(file, chunk, "the set at a URL")

    fetcher = web.Fetcher(
        sources.hosts, "set", DATA_HOSTS, DATA_PRIVATE_HOSTS, write, sources.resolve, deadline_seconds=DEADLINE_SECONDS
    )
    try:
        asyncio.run(fetcher.fetch(url))
    except ApplicationError as error:
        types = {wire.DELEGATE_NOT_FOUND: wire.SET_NOT_FOUND, wire.DELEGATE_UNAVAILABLE: wire.SET_UNAVAILABLE}
        raise SetError(types.get(error.type or "", wire.SET_REFUSED), error.message) from None
