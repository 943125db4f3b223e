"""A loan in cents: interest, installments, and a ledger of payments."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, Field

import acts
from examples.effects import database

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS installments (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, month INTEGER NOT NULL, cents INTEGER NOT NULL
);
"""
Cents = Annotated[int, Field(ge=0)]
Month = Annotated[int, Field(ge=0, description="how many have passed")]


class Loan(BaseModel):
    month: Month
    balance: Cents
    done: bool


@acts.tool(name="addInterest", read_only=True)
def add_interest(balance: Cents, percent: Annotated[float, Field(ge=0)]) -> Cents:
    """What is owed after a month."""
    return round(balance * (100 + percent) / 100)


@acts.tool(name="payInstallment")
def pay_installment(owed: Cents, installment: Cents, month: Month, *, call: acts.Call) -> Loan:
    """Pays a month's installment, or the rest."""
    paid, month = min(owed, installment), month + 1
    with database("loan", _TABLES) as db:
        row = (call.id, month, paid)
        db.execute("INSERT INTO installments (call, month, cents) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
    return Loan(month=month, balance=owed - paid, done=owed == paid)
