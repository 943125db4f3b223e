"""A customer's billing history from a file, refunds in a ledger, and cases for a supervisor.

The tools fix where results go (``output_path``): the model need not.
"""

from __future__ import annotations

import csv
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BaseModel, Field

import acts
from examples.effects import database, example_file

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS refunds (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, customer TEXT NOT NULL, cents INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS cases (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, customer TEXT NOT NULL, reason TEXT NOT NULL
);
"""
CustomerId = Annotated[str, Field(alias="customerId")]
_UNKNOWN: Final = {"unknown_customer": "there is no order"}


class History(BaseModel):
    orders: int
    lastChargeback: str | None


class Refund(BaseModel):
    confirmationId: str
    cents: int


class Case(BaseModel):
    caseId: str


def _orders(customer: str) -> list[dict[str, str]]:
    """The customer's orders, oldest first.

    Raises:
        Failure: ``unknown_customer``.
    """
    with example_file("refund", "billing.csv").open(encoding="utf-8", newline="") as file:
        orders = [row for row in csv.DictReader(file) if row["customer"] == customer]
    if not orders:
        raise acts.Failure("unknown_customer", f'no customer "{customer}" has ever ordered')
    return sorted(orders, key=lambda row: row["date"])


@acts.tool(name="checkBillingHistory", read_only=True, output_path="†state.billingHistory", failures=_UNKNOWN)
def check_billing_history(customer_id: CustomerId) -> History:
    """How often a customer has ordered, and the date of the last chargeback."""
    orders = _orders(customer_id)
    chargebacks = sorted(row["chargeback"] for row in orders if row["chargeback"])
    return History(orders=len(orders), lastChargeback=chargebacks[-1] if chargebacks else None)


@acts.tool(
    name="issueRefund", destructive=True, output_path="†state.refund",
    failures={**_UNKNOWN, "more_than_paid": "the last order cost less"},
)  # fmt: skip
def issue_refund(customer_id: CustomerId, amount: Annotated[float, Field(gt=0)], *, call: acts.Call) -> Refund:
    """Pays an amount back, at most what the customer's last order cost."""
    cents = int(Decimal(str(amount)) * 100)
    paid = int(_orders(customer_id)[-1]["cents"])
    if cents > paid:
        text = f"the last order cost {Decimal(paid) / 100:.2f}; {Decimal(cents) / 100:.2f} are more than that"
        raise acts.Failure("more_than_paid", text)
    # The row's key is the Call's id: a second attempt finds it and returns the same confirmation
    with database("refund", _TABLES) as db:
        row = (call.id, customer_id, cents)
        db.execute("INSERT INTO refunds (call, customer, cents) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
        number, cents = db.execute("SELECT number, cents FROM refunds WHERE call = ?", (call.id,)).fetchone()
    return Refund(confirmationId=f"refund_{number}", cents=cents)


@acts.tool(name="escalateToSupervisor", output_path="†state.case")
def escalate_to_supervisor(customer_id: CustomerId, reason: str, *, call: acts.Call) -> Case:
    """Hands the request to a human, with the reason."""
    with database("refund", _TABLES) as db:
        row = (call.id, customer_id, reason)
        db.execute("INSERT INTO cases (call, customer, reason) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
        (number,) = db.execute("SELECT number FROM cases WHERE call = ?", (call.id,)).fetchone()
    return Case(caseId=f"case_{number}")
