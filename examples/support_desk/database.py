"""The shop's database, which ``DESK_DATABASE`` names: a PostgreSQL (``postgresql://…``), or a file of SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS orders (
        id TEXT PRIMARY KEY, customer TEXT NOT NULL, item TEXT NOT NULL, cents INTEGER NOT NULL, city TEXT NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, count INTEGER NOT NULL CHECK (count >= 0))",
    # What the tools do, by the id of the Call that did it: a second attempt finds the first one's row
    "CREATE TABLE IF NOT EXISTS reservations (call TEXT PRIMARY KEY, item TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS couriers (call TEXT PRIMARY KEY, order_id TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS mails (call TEXT PRIMARY KEY, customer TEXT NOT NULL, text TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS notices (id TEXT PRIMARY KEY, text TEXT NOT NULL, run TEXT NOT NULL)",
)
_ITEMS: Final = ("mug", "kettle", "lamp", "chair", "desk")
_CITIES: Final = ("Lisbon", "Bergen", "Graz", "Longyearbyen")
_STOCK: Final = 50
Row = tuple[Any, ...]
Statement = Callable[..., list[Row]]


@contextmanager
def transaction(address: str | None = None) -> Iterator[Statement]:
    """One transaction: yields a function that runs a statement, with ``?`` for values, and returns its rows."""
    with _connect(address or os.environ["DESK_DATABASE"]) as connection:
        mark = "?" if isinstance(connection, sqlite3.Connection) else "%s"

        def run(statement: str, *values: Any) -> list[Row]:
            cursor = connection.execute(statement.replace("?", mark), values)
            return cursor.fetchall() if cursor.description else []

        yield run


@contextmanager
def _connect(address: str) -> Iterator[Any]:
    if address.startswith("postgresql:"):
        import psycopg  # not needed with SQLite

        with psycopg.connect(address, connect_timeout=5) as connection:  # commits, or rolls back, and closes
            yield connection
    else:
        with closing(sqlite3.connect(address)) as file, file:
            yield file


def sample_orders(count: int) -> Iterator[Row]:
    """As many orders, always the same: ``(id, customer, item, cents, city)``."""
    for number in range(1, count + 1):
        item, cents = _ITEMS[number % 5], 1_200 + number * 7_919 % 60_000
        yield f"A-{number}", f"customer{number % 997}@example.com", item, cents, _CITIES[number % 4]


def prepare(address: str, count: int) -> None:
    """Make the tables, and fill those that are empty."""
    with transaction(address) as run:
        for table in _TABLES:
            run(table)
        if not run("SELECT 1 FROM orders LIMIT 1"):
            for order in sample_orders(count):
                run("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", *order)
            for item in _ITEMS:
                run("INSERT INTO stock VALUES (?, ?)", item, _STOCK)
