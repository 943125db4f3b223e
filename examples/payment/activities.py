"""A card is charged, and the order confirmed or the failure reported. One ledger keeps all of it.

The Tools are registered here (``TOOLS``), so a Request needs only their names: the worker that has
the Activities has their schemas as well.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from examples.effects import Json, database

# What a bank would know: how much each card allows in one payment, in cents.
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
    """A Tool whose Activity has its name."""
    own = {"_tool": {"const": name}, "_activity": {"const": name}, "_output": output, **meta}
    return {
        "type": "object",
        "description": description,
        "properties": own | parameters,
        "required": ["_tool", "_outputPath", *parameters],
        "additionalProperties": False,
    }


_PAYMENT: Final[dict[str, Any]] = {
    # A Call says where the receipt goes, and where the failure
    "_outputPath": {"type": "string", "pattern": "^†"},
    # The card is no parameter: the Activity sees it, and who writes the plan never handles it
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
    """A receipt, or ``card_declined``. The card is what the Tool's scope shows of the input.

    The ledger's row is the decision. Its key is the Call's ``_id``, so another attempt neither
    charges again nor decides anew: it finds the row and gives the same answer, a refusal too.
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
    if outcome == "declined":  # after the commit: the refusal is in the ledger
        raise ApplicationError("Your card was declined.", type="card_declined", non_retryable=True)
    return {"number": number, "card": card, "cents": cents}


@activity.defn(name="confirmOrder")
def confirm_order(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """A letter that thanks for the payment."""
    receipt = call["receipt"]
    paid = Decimal(receipt["cents"]) / 100
    return _send(call, "confirmation", f"Thank you. Receipt {receipt['number']}: {paid:.2f} paid.")


@activity.defn(name="reportFailure")
def report_failure(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """An apology that says why nothing was paid."""
    error = call["error"]
    return _send(call, "apology", f"Nothing was paid. {error['message']} ({error['code']})")


def _send(call: Json, kind: str, text: str) -> Json:
    with database("payment", _TABLES) as db:
        db.execute("INSERT INTO letters VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (call["_id"], kind, text))
    return {"kind": kind, "text": text}
