"""Which of some files have changed since the last look: by time and size, so that no file is read."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

Stamp = tuple[int, int] | None  # nanoseconds and bytes; None: the file is not there


class WatchedFiles:
    """The files that a worker was started with."""

    def __init__(self, files: Iterable[str]) -> None:
        self._stamps = {file: _stamp(file) for file in files}

    def find_changes(self) -> list[str]:
        """The files that have changed since the last look, as they are now."""
        changed = [file for file, stamp in self._stamps.items() if _stamp(file) != stamp]
        self._stamps |= {file: _stamp(file) for file in changed}
        return changed


def _stamp(file: str) -> Stamp:
    try:
        facts = Path(file).stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size


def own_files(folder: Path, modules: Iterable[str], others: Iterable[Path]) -> list[str]:
    """The files that a developer may change under a worker: loaded modules of ``folder``, the named modules, others.

    Folders whose names begin with a dot, and those of installed packages, are left out.
    """
    named = {name for name in modules if name in sys.modules}
    out = [str(path) for path in others]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and (name in named or _is_within(Path(file), folder)):
            out.append(file)
    return sorted(set(out))


def _is_within(file: Path, folder: Path) -> bool:
    if not file.is_relative_to(folder):
        return False
    return not any(part.startswith(".") or part == "site-packages" for part in file.relative_to(folder).parts)
