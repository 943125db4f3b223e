"""A definition from a file: of one of the folders, and never anything beside them.

Laws of this file:
- a name is letters, digits, ``_ - .`` and ``/`` between them, so it cannot say more than
  a place below a folder; only ``*.json`` is ever read;
- symbolic links are followed only where they stay inside their folder (a ConfigMap of
  Kubernetes is made of such links). The path without links is then opened step by step,
  each step refusing a link: who swaps one in between gains nothing;
- nothing is kept. Reading again costs less than a tenth of a millisecond (docs/delegates.md),
  and what is not kept cannot be out of date.
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
from delegates.load_errors import MAX_BYTES, failed, shown, too_large

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Longer is no path on any common file system
MAX_NAME: Final = 1000
SUFFIX: Final = ".json"

_PART: Final = re.compile(r"[\w-][\w.-]*")
_ALLOWED: Final = 'a delegate is a name ("composer"), a path inside a folder ("music/composer.json") or an http(s) URL'
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_CHUNK: Final = 256 * 1024
# Files looked at to say which names there are
_MAX_LISTED: Final = 1000

# What a name may not hold, and what it is called
_ODD: Final = (
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
# NONBLOCK: a pipe that takes the place of the file must not hold us
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
# A part of the path is not there, or is too long to be there
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)

_KINDS: Final = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip


def read_file(folders: Sequence[Path], name: str) -> tuple[bytes, str]:
    """The bytes of the first file of that name, and its path inside its folder.

    Raises:
        ApplicationError: ``DelegateNotFound``, ``DelegateRefused``, ``DelegateTooLarge``; or
            ``DelegateUnavailable``, when it changed while it was read.
    """
    parts = steps(name)
    source = "/".join(parts)
    for folder in folders:
        found = _read_below(folder, parts, source)
        if found is not None:
            return found, source
    raise _not_found(folders, name, source)


def steps(name: str) -> list[str]:
    """The steps from a folder to the file that a name means.

    Raises:
        ApplicationError: ``DelegateRefused``; the name says something else than a place below a folder.
    """
    if len(name) > MAX_NAME:
        text = f"a delegate's name has {len(name):,} characters; at most {MAX_NAME:,} are allowed: {shown(name)}"
        raise failed(DELEGATE_REFUSED, text)
    odd = next((word for pattern, word in _ODD if pattern.search(name)), None)
    if odd is None and _DRIVE.match(name):
        odd = "a drive letter"
    parts = name.split("/")
    if odd is None and not all(_PART.fullmatch(part) for part in parts):
        odd = "a character that is not a letter, digit, _, - or ." if name else "nothing"
    if odd is not None:
        raise failed(DELEGATE_REFUSED, f"the delegate {shown(name)} has {odd}; {_ALLOWED}")
    if not parts[-1].endswith(SUFFIX):
        parts[-1] += SUFFIX
    return parts


def _read_below(folder: Path, parts: list[str], source: str) -> bytes | None:
    """The bytes, or None where the folder has no such file."""
    root = os.path.realpath(folder)
    try:
        path = os.path.realpath(os.path.join(root, *parts), strict=True)  # noqa: PTH118 - one str, no Path per step
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise _unreadable(source, folder, error) from error
    if os.path.commonpath([root, path]) != root:
        text = f'the delegate "{source}" of {folder} is a symbolic link that leaves the folder; one inside it may be'
        raise failed(DELEGATE_REFUSED, text)
    try:
        with _opened(root, Path(path).relative_to(root).parts or (".",), source) as descriptor:
            return _content(descriptor, source)
    except OSError as error:
        if error.errno in (*_ABSENT, errno.ELOOP):
            text = f'the delegate "{source}" of {folder} was replaced while it was opened'
            raise failed(DELEGATE_UNAVAILABLE, text) from error
        raise _unreadable(source, folder, error) from error


@contextmanager
def _opened(root: str, inside: Sequence[str], source: str) -> Iterator[int]:
    """A descriptor of the regular file at the end of the steps, none of which may be a link."""
    folder = os.open(root, _FOLDER_FLAGS)
    try:
        for step in inside[:-1]:
            below = os.open(step, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
        # Looked at before it is opened: to open a pipe or a device is to act on it
        _check_kind(os.stat(inside[-1], dir_fd=folder, follow_symlinks=False), source)
        descriptor = os.open(inside[-1], _FILE_FLAGS, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _content(descriptor: int, source: str) -> bytes:
    before = os.fstat(descriptor)
    _check_kind(before, source)
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
        raise failed(DELEGATE_UNAVAILABLE, f'the delegate "{source}" changed while it was read')
    return bytes(data)


def _check_kind(status: os.stat_result, source: str) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    found = next((word for test, word in _KINDS if test(status.st_mode)), "no regular file")
    raise failed(DELEGATE_REFUSED, f'the delegate "{source}" is {found}; a definition is a regular file')


def _unreadable(source: str, folder: Path, error: OSError) -> Exception:
    text = f'the delegate "{source}" of {folder} cannot be read: {error.strerror}'
    lasting = error.errno in (errno.EACCES, errno.EPERM, errno.ELOOP)
    return failed(DELEGATE_REFUSED if lasting else DELEGATE_UNAVAILABLE, text)


# -- what there is ---------------------------------------------------------------


def _not_found(folders: Sequence[Path], name: str, source: str) -> Exception:
    there = names(folders)
    near = get_close_matches(source.removesuffix(SUFFIX), there, 1)
    hint = f'did you mean "{near[0]}"? there' if near else "there"
    where = ", ".join(map(str, folders))
    text = f"there is no delegate {shown(name)}: {hint} are: {format_choices(there)}; looked for {source} in {where}"
    return failed(DELEGATE_NOT_FOUND, text)


def names(folders: Sequence[Path]) -> list[str]:
    """The delegates of the folders, as a Call would name them; of very many, the first."""
    found = (name for folder in folders for name in _names(folder))
    return list(dict.fromkeys(islice(found, _MAX_LISTED)))


def _names(folder: Path) -> Iterator[str]:
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if _PART.fullmatch(f) and not f.startswith("__"))
        below = os.path.relpath(at, folder)
        for file in sorted(files):
            if file.endswith(SUFFIX) and _PART.fullmatch(file):
                yield os.path.normpath(f"{below}/{file}").removesuffix(SUFFIX)
