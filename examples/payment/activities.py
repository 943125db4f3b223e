"""Charges a card, and confirms the order or reports the failure, with one ledger.

The Tools are registered here (``TOOLS``), so a Request needs only their names: the worker that has
the Activities has their schemas as well.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from examples.effects import Json, database

# The limit of each card for one payment, in cents.
_CARD_LIMITS: Final = {"card-of-ada": 500_00, "card-of-tony": 20_00}

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS payments (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, card TEXT NOT NULL, cents INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('charged', 'declined'))
);
CREATE TABLE IF NOT EXISTS letters (call TEXT PRIMARY KEY, kind TEXT NOT NULL, text TEXT NOT NULL);
"""

_RECEIPT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "card": {"type": "string"}, "cents": {"type": "integer"}},
    "required": ["number", "card", "cents"],
}
_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
    "required": ["code", "message"],
}
_LETTER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"kind": {"enum": ["confirmation", "apology"]}, "text": {"type": "string"}},
    "required": ["kind", "text"],
}


def _schema(
    name: str, description: str, meta: dict[str, Any], output: dict[str, Any], **parameters: dict[str, Any]
) -> dict[str, Any]:
    """The schema of a Tool whose Activity has its name."""
    own = {"_tool": {"const": name}, "_activity": {"const": name}, "_output": output, **meta}
    return {
        "type": "object",
        "description": description,
        "properties": own | parameters,
        "required": ["_tool", "_outputPath", *parameters],
        "additionalProperties": False,
    }


_PAYMENT: Final[dict[str, Any]] = {
    # A Call chooses the paths of the receipt and of the failure
    "_outputPath": {"type": "string", "pattern": "^†"},
    # The card is not a parameter: the Activity sees it in scope, and the author of the plan never handles it
    "_scopes": {"const": ["†input.card"]},
}

TOOLS: Final[dict[str, dict[str, Any]]] = {
    "processPayment": _schema(
        "processPayment",
        "Charges the card of the input; the result is a receipt, a failure says why there is none.",
        _PAYMENT,
        _RECEIPT,
        amount={"type": "number", "exclusiveMinimum": 0},
    ),
    "confirmOrder": _schema(
        "confirmOrder",
        "Thanks the customer for a payment.",
        {"_outputPath": {"const": "†state.confirmation"}},
        _LETTER,
        receipt=_RECEIPT,
    ),
    "reportFailure": _schema(
        "reportFailure",
        "Tells the customer why nothing was paid.",
        {"_outputPath": {"const": "†state.apology"}},
        _LETTER,
        error=_ERROR,
    ),
}


@activity.defn(name="processPayment")
def process_payment(call: Json, _tool: Json, context: list[Json]) -> Json:
    """Returns a receipt, or fails with ``card_declined``. The card is in the Tool's scope.

    The ledger's row is the decision. Its key is the Call's ``_id``, so a second attempt neither
    charges nor decides again: it finds the row and gives the same answer, even a refusal.
    """
    if not context:
        raise ApplicationError("the input holds no card", type="no_card", non_retryable=True)
    card = context[0]["input"]["card"]
    cents = int(Decimal(str(call["amount"])) * 100)
    allowed = _CARD_LIMITS.get(card, 0)
    with database("payment", _TABLES) as db:
        row = (call["_id"], card, cents, "charged" if cents <= allowed else "declined")
        db.execute("INSERT INTO payments (call, card, cents, outcome) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", row)
        number, card, cents, outcome = db.execute(
            "SELECT number, card, cents, outcome FROM payments WHERE call = ?", (call["_id"],)
        ).fetchone()
    if outcome == "declined":  # after the commit, so the refusal is in the ledger
        raise ApplicationError("Your card was declined.", type="card_declined", non_retryable=True)
    return {"number": number, "card": card, "cents": cents}


@activity.defn(name="confirmOrder")
def confirm_order(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Sends a letter of thanks for the payment."""
    receipt = call["receipt"]
    paid = Decimal(receipt["cents"]) / 100
    return _send(call, "confirmation", f"Thank you. Receipt {receipt['number']}: {paid:.2f} paid.")


@activity.defn(name="reportFailure")
def report_failure(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Sends an apology with the reason."""
    error = call["error"]
    return _send(call, "apology", f"Nothing was paid. {error['message']} ({error['code']})")


def _send(call: Json, kind: str, text: str) -> Json:
    with database("payment", _TABLES) as db:
        db.execute("INSERT INTO letters VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (call["_id"], kind, text))
    return {"kind": kind, "text": text}
