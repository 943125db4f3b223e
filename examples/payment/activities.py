"""Charges a card, and confirms the order or reports the failure, with one ledger.

A Request needs only the names of these tools: the worker that has the functions has their schemas as well.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

import acts
from examples.effects import database

# The limit of each card for one payment, in cents.
_CARD_LIMITS: Final = {"card-of-ada": 500_00, "card-of-tony": 20_00}

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS payments (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, card TEXT NOT NULL, cents INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('charged', 'declined'))
);
CREATE TABLE IF NOT EXISTS letters (call TEXT PRIMARY KEY, kind TEXT NOT NULL, text TEXT NOT NULL);
"""


class Receipt(BaseModel):
    number: int
    card: str
    cents: int


class Refusal(BaseModel):
    code: str
    message: str


class Letter(BaseModel):
    kind: Literal["confirmation", "apology"]
    text: str


# The card is not a parameter: the function sees it in scope, and the author of the plan never handles it
@acts.tool(
    name="processPayment", destructive=True, scopes=["†input.card"],
    failures={"card_declined": "the card has not enough", "no_card": "the input holds none"},
)  # fmt: skip
def process_payment(
    amount: Annotated[float, Field(gt=0)], *, call: acts.Call, context: list[dict[str, Any]]
) -> Receipt:
    """Charges the card of the input; the result is a receipt, a failure says why there is none."""
    if not context:
        raise acts.Failure("no_card", "the input holds no card")
    card = context[0]["input"]["card"]
    cents = int(Decimal(str(amount)) * 100)
    allowed = _CARD_LIMITS.get(card, 0)
    # The ledger's row is the decision. Its key is the Call's id, so a second attempt neither charges nor decides again:
    # it finds the row and gives the same answer, even a refusal
    with database("payment", _TABLES) as db:
        row = (call.id, card, cents, "charged" if cents <= allowed else "declined")
        db.execute("INSERT INTO payments (call, card, cents, outcome) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", row)
        number, card, cents, outcome = db.execute(
            "SELECT number, card, cents, outcome FROM payments WHERE call = ?", (call.id,)
        ).fetchone()
    if outcome == "declined":  # after the commit, so the refusal is in the ledger
        raise acts.Failure("card_declined", "Your card was declined.")
    return Receipt(number=number, card=card, cents=cents)


@acts.tool(name="confirmOrder", output_path="†state.confirmation")
def confirm_order(receipt: Receipt, *, call: acts.Call) -> Letter:
    """Thanks the customer for a payment."""
    paid = Decimal(receipt.cents) / 100
    return _send(call, "confirmation", f"Thank you. Receipt {receipt.number}: {paid:.2f} paid.")


@acts.tool(name="reportFailure", output_path="†state.apology")
def report_failure(error: Refusal, *, call: acts.Call) -> Letter:
    """Tells the customer why nothing was paid."""
    return _send(call, "apology", f"Nothing was paid. {error.message} ({error.code})")


def _send(call: acts.Call, kind: Literal["confirmation", "apology"], text: str) -> Letter:
    with database("payment", _TABLES) as db:
        db.execute("INSERT INTO letters VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (call.id, kind, text))
    return Letter(kind=kind, text=text)
