"""A definition from a file below one of the delegate folders, and never from anywhere else.

* A name is letters, digits, ``_ - .`` and ``/`` between them, so it can only mean a path below a folder; only
  ``*.json`` is ever read.
* Symbolic links are followed only inside their folder (a Kubernetes ConfigMap is made of such links). The path without
  links is then opened step by step, each step refusing a link: swapping one in between gains nothing.
* There is no cache. Reading a file again costs less than a tenth of a millisecond (docs/delegates.md), and an uncached
  definition is never out of date.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acts.language.errors import format_choices
from acts.language.wire import DELEGATE_NOT_FOUND, DELEGATE_REFUSED, DELEGATE_UNAVAILABLE
from delegates.load_errors import MAX_BYTES, load_error, quote, too_large

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Characters; no common file system has longer paths
MAX_NAME: Final = 1000
SUFFIX: Final = ".json"

_STEP: Final = re.compile(r"[\w-][\w.-]*")
_ALLOWED: Final = 'a delegate is a name ("composer"), a path inside a folder ("music/composer.json") or an http(s) URL'
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_CHUNK: Final = 256 * 1024
# Names that are collected for an error
_MAX_LISTED: Final = 1000

# What a name may not contain, and its description
_FORBIDDEN: Final = (
    (re.compile(r"\x00"), "a null byte"),
    (re.compile(r"\\"), "a backslash: paths are written with /"),
    (re.compile(r"%"), "a percent sign: names are not decoded"),
    (re.compile(r"^/"), "a / at its beginning: paths are relative to a folder"),
    (re.compile(r"(^|/)\.\.(/|$)"), 'the step "..", which leaves the folder'),
    (re.compile(r"(^|/)\.(/|$)"), 'the step "."'),
    (re.compile(r"(^|/)\."), "a name that begins with a dot"),
    (re.compile(r"//|/$"), "an empty step"),
)

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# NONBLOCK: opening a pipe in place of the file must not block
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
# A part of the path does not exist, or is too long to exist
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)

_KINDS: Final = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip


def read_file(folders: Sequence[Path], name: str) -> tuple[bytes, str]:
    """The bytes of the first file with that name, and its path inside its folder.

    Raises:
        ApplicationError: ``DelegateNotFound``, ``DelegateRefused``, ``DelegateTooLarge``; or
            ``DelegateUnavailable``, where it changed during the read.
    """
    steps = split_name(name)
    source = "/".join(steps)
    for folder in folders:
        data = _read_below(folder, steps, source)
        if data is not None:
            return data, source
    raise _not_found_error(folders, name, source)


def split_name(name: str) -> list[str]:
    """The steps of the path from a folder to the named file.

    Raises:
        ApplicationError: ``DelegateRefused``; the name is not that of a file below a folder.
    """
    if len(name) > MAX_NAME:
        text = f"a delegate's name has {len(name):,} characters; at most {MAX_NAME:,} are allowed: {quote(name)}"
        raise load_error(DELEGATE_REFUSED, text)
    fault = next((description for pattern, description in _FORBIDDEN if pattern.search(name)), None)
    if fault is None and _DRIVE.match(name):
        fault = "a drive letter"
    steps = name.split("/")
    if fault is None and not all(_STEP.fullmatch(step) for step in steps):
        fault = "a character that is not a letter, digit, _, - or ." if name else "nothing"
    if fault is not None:
        raise load_error(DELEGATE_REFUSED, f"the delegate {quote(name)} has {fault}; {_ALLOWED}")
    if not steps[-1].endswith(SUFFIX):
        steps[-1] += SUFFIX
    return steps


def _read_below(folder: Path, steps: list[str], source: str) -> bytes | None:
    """The bytes, or None where the folder has no such file."""
    root = os.path.realpath(folder)
    try:
        path = os.path.realpath(os.path.join(root, *steps), strict=True)  # noqa: PTH118 - one str, no Path per step
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise _unreadable_error(source, folder, error) from error
    if os.path.commonpath([root, path]) != root:
        text = f'the delegate "{source}" of {folder} is a symbolic link that leaves the folder'
        raise load_error(DELEGATE_REFUSED, f"{text}; links inside it are allowed")
    try:
        with _open_file(root, Path(path).relative_to(root).parts or (".",), source) as descriptor:
            return _read_content(descriptor, source)
    except OSError as error:
        if error.errno in (*_ABSENT, errno.ELOOP):
            text = f'the delegate "{source}" of {folder} was replaced while it was being opened'
            raise load_error(DELEGATE_UNAVAILABLE, text) from error
        raise _unreadable_error(source, folder, error) from error


@contextmanager
def _open_file(root: str, steps: Sequence[str], source: str) -> Iterator[int]:
    """A descriptor of the regular file at the end of the steps, none of which may be a link."""
    folder = os.open(root, _FOLDER_FLAGS)
    try:
        for step in steps[:-1]:
            below = os.open(step, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
        # Checked before it is opened: opening a pipe or a device has effects
        _require_regular_file(os.stat(steps[-1], dir_fd=folder, follow_symlinks=False), source)
        descriptor = os.open(steps[-1], _FILE_FLAGS, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_content(descriptor: int, source: str) -> bytes:
    before = os.fstat(descriptor)
    _require_regular_file(before, source)
    if before.st_size > MAX_BYTES:
        raise too_large(source, f"{before.st_size:,}")
    data = bytearray()
    while len(data) <= MAX_BYTES:
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            break
        data += chunk
    after = os.fstat(descriptor)
    if len(data) != after.st_size or (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise load_error(DELEGATE_UNAVAILABLE, f'the delegate "{source}" changed while it was being read')
    return bytes(data)


def _require_regular_file(status: os.stat_result, source: str) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "no regular file")
    raise load_error(DELEGATE_REFUSED, f'the delegate "{source}" is {kind}; a definition is a regular file')


def _unreadable_error(source: str, folder: Path, error: OSError) -> Exception:
    text = f'the delegate "{source}" of {folder} cannot be read: {error.strerror}'
    is_permanent = error.errno in (errno.EACCES, errno.EPERM, errno.ELOOP)
    return load_error(DELEGATE_REFUSED if is_permanent else DELEGATE_UNAVAILABLE, text)


# -- names -----------------------------------------------------------------------


def _not_found_error(folders: Sequence[Path], name: str, source: str) -> Exception:
    names = list_delegates(folders)
    near = get_close_matches(source.removesuffix(SUFFIX), names, 1)
    hint = f'did you mean "{near[0]}"? there' if near else "there"
    where = ", ".join(map(str, folders))
    text = f"there is no delegate {quote(name)}: {hint} are: {format_choices(names)}; looked for {source} in {where}"
    return load_error(DELEGATE_NOT_FOUND, text)


def list_delegates(folders: Sequence[Path]) -> list[str]:
    """The names of the delegates in the folders, as a Call names them; of very many, the first."""
    names = (name for folder in folders for name in _names_below(folder))
    return list(dict.fromkeys(islice(names, _MAX_LISTED)))


def _names_below(folder: Path) -> Iterator[str]:
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if _STEP.fullmatch(f) and not f.startswith("__"))
        relative = os.path.relpath(path, folder)
        for file in sorted(files):
            if file.endswith(SUFFIX) and _STEP.fullmatch(file):
                yield os.path.normpath(f"{relative}/{file}").removesuffix(SUFFIX)
