"""Reads orders from a CSV file, adds them up in SQLite, and writes a report. Money is whole cents, never a float."""

from __future__ import annotations

import csv
from decimal import Decimal, InvalidOperation
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from examples.effects import Json, database, example_file, own_file, write_atomically

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS totals (
    call TEXT, customer TEXT, orders INTEGER NOT NULL, cents INTEGER NOT NULL, PRIMARY KEY (call, customer)
);
"""


@activity.defn(name="readOrders")
def read_orders(call: Json, _tool: Json, _context: list[Json]) -> list[Json]:
    """Returns the orders of ``file``, each ``{order, customer, cents}``.

    Raises:
        ApplicationError: ``bad_order``, not retryable: a row is not an order, and stays so.
    """
    orders = []
    with example_file("linear", call["file"]).open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        for row in rows:
            try:
                cents = int(int(row["quantity"]) * Decimal(row["price"]) * 100)
                orders.append({"order": int(row["order"]), "customer": row["customer"], "cents": cents})
            except (KeyError, TypeError, ValueError, InvalidOperation) as error:
                where = f"{call['file']}, line {rows.line_num}"
                raise ApplicationError(f"{where} is no order: {row}", type="bad_order", non_retryable=True) from error
    return orders


@activity.defn(name="computeTotals")
def compute_totals(call: Json, _tool: Json, _context: list[Json]) -> list[Json]:
    """Stores the total of each customer in SQLite under this Call's id; returns them, the highest first."""
    totals: dict[str, list[int]] = {}
    for order in call["orders"]:
        totals.setdefault(order["customer"], []).append(order["cents"])
    with database("linear", _TABLES) as db:
        db.executemany(
            "INSERT INTO totals VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            [(call["_id"], customer, len(cents), sum(cents)) for customer, cents in totals.items()],
        )
        rows = db.execute(
            "SELECT customer, orders, cents FROM totals WHERE call = ? ORDER BY cents DESC, customer", (call["_id"],)
        ).fetchall()
    return [{"customer": customer, "orders": orders, "cents": cents} for customer, orders, cents in rows]


@activity.defn(name="writeReport")
def write_report(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Writes a table for people to the Call's own file."""
    total = sum(row["cents"] for row in call["totals"])
    lines = [call["title"], "=" * len(call["title"]), ""]
    lines += [f"{row['customer']:<12}{row['orders']:>3} orders{_money(row['cents']):>12}" for row in call["totals"]]
    lines += ["", f"{'together':<22}{_money(total):>12}", ""]
    return {"file": write_atomically(own_file("linear", "report", call), "\n".join(lines)), "cents": total}


def _money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02}"
