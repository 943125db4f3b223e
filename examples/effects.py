"""What the examples' Activities share: where effects go, and how each happens once.

- Everything is written below ``<state folder>/examples/<example>``, nothing elsewhere. The state
  folder is ``ACTS_STATE``, by default ``.acts`` where the worker was started.
- An Activity may run more than once: its worker can die after the effect and before Temporal hears of
  it. So every effect carries the Call's ``_id``, which is the same on every attempt and different for
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

from temporalio.exceptions import ApplicationError

Json = dict[str, Any]

_HERE: Final = Path(__file__).parent
_SHIPPED: Final = (".csv", ".txt")
# Of a SHA-256 in hex: 48 bits tell the runs of one machine apart, and a person can still read the name.
_MARK_DIGITS: Final = 12


def folder(example: str) -> Path:
    """Where an example writes; made if need be."""
    path = Path(os.environ.get("ACTS_STATE") or ".acts") / "examples" / example
    path.mkdir(parents=True, exist_ok=True)
    return path


def shipped(example: str, name: str) -> Path:
    """A file that lies in an example's folder.

    Raises:
        ApplicationError: ``no_such_file``, not retryable: there is none, or ``name`` leads out of the folder.
    """
    root = _HERE / example
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()) or not path.is_file():
        known = ", ".join(sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.suffix in _SHIPPED))
        text = f'no file "{name}" in {example}; there is: {known}'
        raise ApplicationError(text, type="no_such_file", non_retryable=True)
    return path


def own_file(example: str, stem: str, call: Json, suffix: str = ".txt") -> Path:
    """The one file of a Call: another attempt gets the same name, another run another one."""
    mark = hashlib.sha256(call["_id"].encode()).hexdigest()[:_MARK_DIGITS]
    return folder(example) / f"{stem}-{mark}{suffix}"


def write_whole(path: Path, content: str | bytes) -> str:
    """Write a file in one step, so that no reader and no crash finds half of it; gives its path."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")
    with os.fdopen(handle, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    Path(draft).replace(path)
    return path.as_posix()


def seen(context: list[Json], kind: str) -> Any:
    """What a Call's scopes show of one kind; None, if they show nothing of it."""
    message = next((m for m in context if m.get("kind", m["type"]) == kind), None)
    return None if message is None else message[message["type"]]


@contextmanager
def database(example: str, tables: str) -> Iterator[sqlite3.Connection]:
    """One transaction on ``<example>.db``: committed at the end of the block, undone by an error."""
    with closing(sqlite3.connect(folder(example) / f"{example}.db")) as connection:
        connection.executescript(tables)
        with connection:
            yield connection
