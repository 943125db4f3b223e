"""A customer's billing history from a file, refunds in a ledger, and cases for a supervisor."""

from __future__ import annotations

import csv
from decimal import Decimal
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from examples.effects import Json, database, example_file

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS refunds (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, customer TEXT NOT NULL, cents INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS cases (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, customer TEXT NOT NULL, reason TEXT NOT NULL
);
"""


def _orders(customer: str) -> list[dict[str, str]]:
    """The customer's orders, oldest first.

    Raises:
        ApplicationError: ``unknown_customer``, not retryable.
    """
    with example_file("refund", "billing.csv").open(encoding="utf-8", newline="") as file:
        orders = [row for row in csv.DictReader(file) if row["customer"] == customer]
    if not orders:
        text = f'no customer "{customer}" has ever ordered'
        raise ApplicationError(text, type="unknown_customer", non_retryable=True)
    return sorted(orders, key=lambda row: row["date"])


@activity.defn(name="checkBillingHistory")
def check_billing_history(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Returns the number of orders, and the date of the last chargeback (null: never)."""
    orders = _orders(call["customerId"])
    chargebacks = sorted(row["chargeback"] for row in orders if row["chargeback"])
    return {"orders": len(orders), "lastChargeback": chargebacks[-1] if chargebacks else None}


@activity.defn(name="issueRefund")
def issue_refund(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Adds a row to the ledger, up to the amount of the last order; returns its number.

    The row's key is the Call's ``_id``. A second attempt finds it and returns the same confirmation.
    """
    cents = int(Decimal(str(call["amount"])) * 100)
    paid = int(_orders(call["customerId"])[-1]["cents"])
    if cents > paid:
        text = f"the last order cost {Decimal(paid) / 100:.2f}; {Decimal(cents) / 100:.2f} are more than that"
        raise ApplicationError(text, type="more_than_paid", non_retryable=True)
    with database("refund", _TABLES) as db:
        row = (call["_id"], call["customerId"], cents)
        db.execute("INSERT INTO refunds (call, customer, cents) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
        number, cents = db.execute("SELECT number, cents FROM refunds WHERE call = ?", (call["_id"],)).fetchone()
    return {"confirmationId": f"refund_{number}", "cents": cents}


@activity.defn(name="escalateToSupervisor")
def escalate_to_supervisor(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Opens a case for a person."""
    with database("refund", _TABLES) as db:
        row = (call["_id"], call["customerId"], call["reason"])
        db.execute("INSERT INTO cases (call, customer, reason) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
        (number,) = db.execute("SELECT number FROM cases WHERE call = ?", (call["_id"],)).fetchone()
    return {"caseId": f"case_{number}"}
