"""Reads orders from a CSV file, adds them up in SQLite, and writes a report. Money is whole cents, never a float."""

from __future__ import annotations

import csv
from decimal import Decimal, InvalidOperation
from typing import Final

from pydantic import BaseModel, Field

import acts
from examples.effects import database, example_file, own_file, write_atomically

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS totals (
    call TEXT, customer TEXT, orders INTEGER NOT NULL, cents INTEGER NOT NULL, PRIMARY KEY (call, customer)
);
"""


class Order(BaseModel):
    order: int
    customer: str
    cents: int = Field(ge=0)


class Total(BaseModel):
    customer: str
    orders: int = Field(ge=1)
    cents: int = Field(ge=0)


class Report(BaseModel):
    file: str
    cents: int


@acts.tool(name="readOrders", read_only=True, failures={"bad_order": "a row is no order"})
def read_orders(file: str) -> list[Order]:
    """The orders of a file.

    Args:
        file: a CSV file in the folder of this example
    """
    orders = []
    with example_file("linear", file).open(encoding="utf-8", newline="") as opened:
        rows = csv.DictReader(opened)
        for row in rows:
            try:
                cents = int(int(row["quantity"]) * Decimal(row["price"]) * 100)
                orders.append(Order(order=int(row["order"]), customer=row["customer"], cents=cents))
            except (KeyError, TypeError, ValueError, InvalidOperation) as error:
                raise acts.Failure("bad_order", f"{file}, line {rows.line_num} is no order: {row}") from error
    return orders


@acts.tool(name="computeTotals")
def compute_totals(orders: list[Order], *, call: acts.Call) -> list[Total]:
    """Stores the total of each customer in SQLite under this Call's id; returns them, the highest first."""
    totals: dict[str, list[int]] = {}
    for order in orders:
        totals.setdefault(order.customer, []).append(order.cents)
    with database("linear", _TABLES) as db:
        db.executemany(
            "INSERT INTO totals VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            [(call.id, customer, len(cents), sum(cents)) for customer, cents in totals.items()],
        )
        rows = db.execute(
            "SELECT customer, orders, cents FROM totals WHERE call = ? ORDER BY cents DESC, customer", (call.id,)
        ).fetchall()
    return [Total(customer=customer, orders=count, cents=cents) for customer, count, cents in rows]


@acts.tool(name="writeReport")
def write_report(title: str, totals: list[Total], *, call: acts.Call) -> Report:
    """Writes a table for people to the Call's own file."""
    cents = sum(total.cents for total in totals)
    lines = [title, "=" * len(title), ""]
    lines += [f"{total.customer:<12}{total.orders:>3} orders{_money(total.cents):>12}" for total in totals]
    lines += ["", f"{'together':<22}{_money(cents):>12}", ""]
    return Report(file=write_atomically(own_file("linear", "report", call), "\n".join(lines)), cents=cents)


def _money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02}"
