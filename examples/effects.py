"""Helpers of the examples' tools: where effects go, and how each happens once.

- Everything is written below ``<state folder>/examples/<example>``, nothing elsewhere. The state
  folder is ``ACTS_STATE``, by default ``.acts`` in the worker's current directory.
- A tool may run more than once: its worker can die after the effect and before it reports the
  result. So every effect has the ``call.id``, which is the same on every attempt and different for
  every Call of every run: as the key of a row, or in the name of a file.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import acts

Json = dict[str, Any]

_HERE: Final = Path(__file__).parent
_SHIPPED: Final = (".csv", ".txt")
# Hex digits of a SHA-256: 48 bits distinguish the runs of one machine, and the name stays readable.
_MARK_DIGITS: Final = 12


def folder(example: str) -> Path:
    """The folder that an example writes to, created if it does not exist."""
    path = Path(os.environ.get("ACTS_STATE") or ".acts") / "examples" / example
    path.mkdir(parents=True, exist_ok=True)
    return path


def example_file(example: str, name: str) -> Path:
    """The path of a file that ships in an example's folder.

    Raises:
        Failure: ``no_such_file``: it does not exist, or ``name`` leads out of the folder.
    """
    root = _HERE / example
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()) or not path.is_file():
        names = ", ".join(sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.suffix in _SHIPPED))
        raise acts.Failure("no_such_file", f'no file "{name}" in {example}; there is: {names}')
    return path


def own_file(example: str, stem: str, call: acts.Call, suffix: str = ".txt") -> Path:
    """The path of a Call's own file: the same for every attempt, different for every run."""
    mark = hashlib.sha256(call.id.encode()).hexdigest()[:_MARK_DIGITS]
    return folder(example) / f"{stem}-{mark}{suffix}"


def write_atomically(path: Path, content: str | bytes) -> str:
    """Write a file atomically, so that no reader and no crash sees half of it; returns its path."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")
    with os.fdopen(handle, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    Path(draft).replace(path)
    return path.as_posix()


def scoped_value(context: list[Json], kind: str) -> Any:
    """The part of one kind that a Call's scopes show, or None."""
    message = next((m for m in context if m.get("kind", m["type"]) == kind), None)
    return None if message is None else message[message["type"]]


@contextmanager
def database(example: str, tables: str) -> Iterator[sqlite3.Connection]:
    """One transaction on ``<example>.db``: committed at the end of the block, rolled back on an error."""
    with closing(sqlite3.connect(folder(example) / f"{example}.db")) as connection:
        connection.executescript(tables)
        with connection:
            yield connection
