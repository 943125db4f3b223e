"""Regular files inside the folders that the settings name, and never anywhere else.

Symbolic links are followed only inside their folder. The path without links is then opened step by step, each step
refusing a link: swapping one in between gains nothing. Errors are those of the system; callers say what they mean.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# NONBLOCK: opening a pipe in place of the file must not block
FILE_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class IrregularFileError(Exception):
    """What is there is no regular file but a folder, a pipe, a device …"""


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
        OSError: a step does not exist, is no folder, or has become a link.
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


def open_regular(root: str, steps: Sequence[str], flags: int = os.O_RDONLY) -> int:
    """A descriptor of the regular file at the end of the steps.

    Raises:
        OSError: a step does not exist, or has become a link. IrregularFileError: it is no regular file.
    """
    with open_parent(root, steps) as parent:
        # Checked before it is opened: opening a pipe or a device has effects
        check_regular(os.stat(steps[-1], dir_fd=parent, follow_symlinks=False).st_mode)
        return os.open(steps[-1], flags | FILE_FLAGS, dir_fd=parent)


def check_regular(mode: int) -> None:
    """Raise IrregularFileError unless this is the mode of a regular file."""
    if not stat.S_ISREG(mode):
        raise IrregularFileError("no regular file")
