"""Tools with real effects, in a database: what was begun, and what was done under which idempotency key.

Loaded into worker processes that are killed at any moment: before, between and after the two. Knows nothing of the
engine; run as a program it is a foreign worker of the same tools.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

Json = Any
STEP_SECONDS = 0.03  # long enough for a kill to come in between
TABLES = """
CREATE TABLE IF NOT EXISTS begun (run TEXT, call TEXT, id TEXT, attempt INTEGER, pid INTEGER);
CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY, run TEXT, call TEXT, result);
"""


def connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=10)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(TABLES)
    return connection


async def effect(call: dict[str, Json], result: Json) -> Json:
    """What a careful tool does: an effect that was there already is not repeated, its result is given again."""
    info, connection = activity.info(), connect(os.environ["EFFECTS"])
    run, call_id = str(info.workflow_id), info.activity_id
    try:
        with connection:
            row = (run, call_id, call["_id"], info.attempt, os.getpid())
            connection.execute("INSERT INTO begun VALUES (?, ?, ?, ?, ?)", row)
        await asyncio.sleep(STEP_SECONDS)
        with connection:
            connection.execute("INSERT OR IGNORE INTO done VALUES (?, ?, ?, ?)", (call["_id"], run, call_id, result))
        await asyncio.sleep(STEP_SECONDS)
        return connection.execute("SELECT result FROM done WHERE id = ?", (call["_id"],)).fetchone()[0]
    finally:
        connection.close()


@activity.defn
async def add_one(call: dict[str, Json], tool: Json, context: Json) -> int:
    return await effect(call, call["value"] + 1)


@activity.defn
async def total(call: dict[str, Json], tool: Json, context: Json) -> int:
    return await effect(call, sum(call["values"]))


@activity.defn
async def decline(call: dict[str, Json], tool: Json, context: Json) -> int:
    await effect(call, -1)
    raise ApplicationError("no funds", type="declined", non_retryable=True)


@activity.defn
async def weigh(call: dict[str, Json], tool: Json, context: Json) -> Json:
    """By the last digit: 3 is declined, 7 is large, everything else small."""
    value = await effect(call, call["value"])
    if value % 10 == 3:
        raise ApplicationError("no funds", type="declined", non_retryable=True)
    return {"type": "state", "state": {"large" if value % 10 == 7 else "small": value}}


@activity.defn
async def report(call: dict[str, Json], tool: Json, context: Json) -> Json:
    """An effect, and then the result that its Call names, or the failure."""
    await effect(call, 0)
    if "fail" in call:
        raise ApplicationError(call["fail"], type="declined", non_retryable=True)
    return call["result"]


@activity.defn
async def play(call: dict[str, Json], tool: Json, context: Json) -> Json:
    """An effect, and then what ``returns`` says, as JSON: by element (``at``), or one for all; maybe a failure.

    One that undoes another notes what.
    """
    await effect(call, json.dumps(call.get("what"), sort_keys=True))
    results = json.loads(call.get("returns", "{}"))
    result = results.get(str(call.get("at")), results.get(""))
    if isinstance(result, dict) and set(result) == {"$fail"}:
        error, details = result["$fail"], [result["$fail"]["details"]] if "details" in result["$fail"] else []
        raise ApplicationError(error["message"], *details, type=error["type"], non_retryable=True)
    return result


@activity.defn
async def gated(call: dict[str, Json], tool: Json, context: Json) -> int:
    """As ``add_one``, but it does not return before there is a file ``<EFFECTS>.open``."""
    result = await effect(call, call["value"] + 1)
    while not Path(os.environ["EFFECTS"] + ".open").exists():
        activity.heartbeat()
        await asyncio.sleep(STEP_SECONDS)
    return result


@activity.defn
def plain(call: dict[str, Json], tool: Json, context: Json) -> int:
    """A tool that knows nothing of heartbeats; its first attempt does not end."""
    attempt = activity.info().attempt
    connection = connect(os.environ["EFFECTS"])
    with connection:
        connection.execute("INSERT INTO begun VALUES ('', '', ?, ?, ?)", (call["_id"], attempt, os.getpid()))
    connection.close()
    if attempt == 1:
        threading.Event().wait()
    return attempt


async def serve(address: str, queue: str) -> None:
    client = await Client.connect(address)
    async with Worker(client, task_queue=queue, activities=[add_one, total, decline, weigh, report, play]):
        sys.stdout.write("foreign worker\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
