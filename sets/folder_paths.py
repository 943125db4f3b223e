"""Paths inside the folders that the settings name, and never anywhere else.

* A name is relative to one of the folders, or absolute and inside one of them.
* Symbolic links are followed only inside their folder. The path without links is then opened step by step, each step
  refusing a link: swapping one in between gains nothing.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sets.set_errors import SetError, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Characters; no common file system has longer paths
MAX_NAME: Final = 1000
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_KINDS: Final = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip


def check_name(name: object, what: str, refused: str) -> str:
    """The name of a file as a plan may write it.

    Raises:
        SetError: of the type ``refused``, naming the fault.
    """
    if not isinstance(name, str) or not name.strip():
        raise SetError(refused, f"{what} is named by a text, not by {quote(name)}")
    fault = None
    if len(name) > MAX_NAME:
        fault = f"has {len(name):,} characters; at most {MAX_NAME:,} are allowed"
    elif not name.isprintable() or "\\" in name:
        fault = "has a control character or a backslash: paths are written with /"
    elif ".." in name.split("/"):
        fault = 'has the step "..", which leaves the folder'
    elif name.endswith("/"):
        fault = "ends in /: it is the name of a folder"
    if fault is not None:
        raise SetError(refused, f"the name {quote(name)} of {what} {fault}")
    return name


def resolve_below(folder: Path, name: str) -> tuple[str, tuple[str, ...]] | None:
    """The folder without links, and the steps from there to the file; None where they lead out of it."""
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, name))  # noqa: PTH118 - an absolute name stays one
    if path == root or os.path.commonpath([root, path]) != root:
        return None
    return root, Path(path).relative_to(root).parts


@contextmanager
def open_parent(root: str, steps: Sequence[str]) -> Iterator[int]:
    """A descriptor of the folder that has the file at the end of the steps; no step may be a link.

    Raises:
        OSError: a step is not there, is no folder, or has become a link.
    """
    folder = os.open(root, _FOLDER_FLAGS)
    try:
        for step in steps[:-1]:
            below = os.open(step, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def kind_of_file(mode: int) -> str | None:
    """What is there in place of a regular file; None for one."""
    if stat.S_ISREG(mode):
        return None
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
