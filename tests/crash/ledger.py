"""The activity of the crash tests: every attempt is noted, and one effect per ``_id``."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from temporalio import activity

SCHEMA = """
create table if not exists attempts (id text, call text);
create table if not exists done (id text, call text);
create table if not exists effects (id text primary key, call text);
"""


def book() -> sqlite3.Connection:
    """The ledger that all processes of one test share."""
    found = sqlite3.connect(Path(os.environ["TEST_LEDGER"]), timeout=30, isolation_level=None)
    found.executescript("pragma journal_mode=wal;" + SCHEMA)
    return found


@activity.defn(name="ledger.add")
def add(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> int:
    """The sum of ``call["amounts"]``; booked once per ``_id``, however often it is attempted."""
    name = call["name"]
    db = book()
    try:
        db.execute("insert into attempts values (?, ?)", (call["_id"], name))
        db.execute("insert or ignore into effects values (?, ?)", (call["_id"], name))
        db.execute("insert into done values (?, ?)", (call["_id"], name))
    finally:
        db.close()
    return int(sum(call["amounts"])) + 1


@activity.defn(name="ledger.gate")
def gate(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> int:
    """As ``ledger.add``, but it only returns while the file of the gate is there."""
    opened = Path(os.environ["TEST_LEDGER"]).with_suffix(".open")
    value = add(call, tool, context)
    if not opened.exists():
        os.abort()  # the worker dies in the middle of this call, its effect booked
    return value
