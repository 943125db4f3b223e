"""``acts storage gc`` and ``acts storage check``: what is stored outside of histories, and what of it is unused."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cli.command_errors import EXIT_DONE, command_error
from cli.console import count_text, print_err, print_json, print_out
from cli.runs import server
from connection.content_store import sha256
from connection.storage import VARIABLE, driver_from_environment
from connection.storage_gc import Inventory, delete_unused, find_unused

if TYPE_CHECKING:
    from connection.content_store import ContentStore

# Below this, a program that has stored a value and not yet reported it could lose it
_SHORT_GRACE_SECONDS = 3600.0
_PROGRESS_SECONDS = 2.0


async def collect(grace: float, *, delete: bool, as_json: bool) -> int:
    """Count, and delete if so requested, what no run of the namespace refers to."""
    store = _store()
    client = await server.connect()
    began, cutoff = time.monotonic(), datetime.now(UTC) - timedelta(seconds=grace)
    if grace < _SHORT_GRACE_SECONDS:
        print_err("a grace period below 1h is safe only while no worker and no client stores values", "yellow")
    shown = began

    def show(runs: int) -> None:
        nonlocal shown
        if time.monotonic() - shown > _PROGRESS_SECONDS:
            shown = time.monotonic()
            print_err(f"read {count_text(runs, 'run')}", "dim")

    inventory = await find_unused(client, store, timedelta(seconds=grace), show)
    done = await delete_unused(store, inventory, cutoff) if delete else Counter[str]()
    if as_json:
        print_json(_figures(inventory, done, store, client.namespace))
        return EXIT_DONE
    used = len(inventory.contents) - len(inventory.unused) - inventory.young
    about = f"{store.describe()}, namespace {client.namespace}"
    print_out(f"{about}: {count_text(len(inventory.contents), 'value')}, {_size(inventory.bytes)}")
    read = f"{count_text(inventory.runs, 'run')} and {count_text(inventory.schedules, 'schedule')}"
    print_out(f"  in use      {used:>8,}   by {read}, read in {time.monotonic() - began:.1f} s")
    print_out(f"  too young   {inventory.young:>8,}   used within the grace period")
    print_out(f"  unused      {len(inventory.unused):>8,}   {_size(inventory.unused_bytes)}")
    if delete:
        print_out(f"deleted {done['deleted']:,}" + (f"; {done['kept']:,} came into use" if done["kept"] else ""))
    elif inventory.unused:
        print_out("nothing was deleted: add --delete")
    return EXIT_DONE


async def check(*, as_json: bool) -> int:
    """Write, read and delete a value of its own, then count what is stored."""
    store = _store()
    client = await server.connect()

    def run() -> None:
        data = f"acts storage check {time.time_ns()}".encode()
        claim = store.put(client.namespace, sha256(data), data)
        if store.get(claim) != data:
            raise command_error(f"{store.describe()} returns other bytes than were stored")
        own = next((c for c in store.list_contents(client.namespace) if c.digest == sha256(data)), None)
        if own is None:
            raise command_error(f"{store.describe()} does not list what was stored a moment ago")
        # Nobody else refers to it, whenever it was stored
        store.delete(replace(own, last_use=datetime.min.replace(tzinfo=UTC)), datetime.max.replace(tzinfo=UTC))

    await asyncio.to_thread(run)
    contents = await asyncio.to_thread(lambda: list(store.list_contents(client.namespace)))
    inventory = Inventory(contents)
    if as_json:
        print_json(_figures(inventory, Counter(), store, client.namespace))
    else:
        text = f"{count_text(len(contents), 'value')}, {_size(inventory.bytes)}"
        print_out(f"{store.describe()} can be written to and read; namespace {client.namespace}: {text}")
    return EXIT_DONE


def _store() -> ContentStore:
    driver = driver_from_environment()
    if driver is None:
        text = f"{VARIABLE} is not set here" if not os.environ.get(VARIABLE) else f"{VARIABLE} is empty"
        raise command_error(text, hint="set it to what the worker has: file:<folder> or s3://bucket/prefix")
    return driver.contents


def _figures(inventory: Inventory, done: Counter[str], store: ContentStore, namespace: str) -> dict[str, object]:
    return {
        "storage": store.describe(), "namespace": namespace, "values": len(inventory.contents),
        "bytes": inventory.bytes, "young": inventory.young, "unused": len(inventory.unused),
        "unusedBytes": inventory.unused_bytes, "runs": inventory.runs, "schedules": inventory.schedules,
        "deleted": done["deleted"],
    }  # fmt: skip


def _size(size: int) -> str:
    """``12.3 MB``, or bytes below one kB."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return count_text(size, "byte")
