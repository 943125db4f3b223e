"""A loan in cents: interest, installments, and a ledger of payments."""

from __future__ import annotations

from typing import Any, Final

from temporalio import activity

from examples.effects import Json, database

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS installments (
    number INTEGER PRIMARY KEY, call TEXT NOT NULL UNIQUE, month INTEGER NOT NULL, cents INTEGER NOT NULL
);
"""
_CENTS: Final = {"type": "integer", "minimum": 0}
_MONTH: Final = {"type": "integer", "minimum": 0, "description": "how many have passed"}
_LOAN: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"month": _MONTH, "balance": _CENTS, "done": {"type": "boolean"}},
    "required": ["month", "balance", "done"],
}


def _tool(name: str, description: str, output: Json, **parameters: Json) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "properties": {
            "_activity": {"const": name}, "_outputPath": {"type": "string", "pattern": "^†"}, "_output": output,
            **parameters,
        },
        "required": ["_outputPath", *parameters],
        "additionalProperties": False,
    }  # fmt: skip


TOOLS: Final[dict[str, dict[str, Any]]] = {
    "addInterest": _tool(
        "addInterest", "What is owed after a month.", _CENTS, balance=_CENTS, percent={"type": "number", "minimum": 0}
    ),
    "payInstallment": _tool(
        "payInstallment", "Pays a month's installment, or the rest.", _LOAN,
        owed=_CENTS, installment=_CENTS, month=_MONTH,
    ),
}  # fmt: skip


@activity.defn(name="addInterest")
def add_interest(call: Json, _tool: Json, _context: list[Json]) -> int:
    """Returns the balance plus its interest, in whole cents."""
    return round(int(call["balance"]) * (100 + float(call["percent"])) / 100)


@activity.defn(name="payInstallment")
def pay_installment(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Adds a row to the ledger; returns the loan after the month."""
    paid, month = min(call["owed"], call["installment"]), call["month"] + 1
    with database("loan", _TABLES) as db:
        row = (call["_id"], month, paid)
        db.execute("INSERT INTO installments (call, month, cents) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
    balance = call["owed"] - paid
    return {"month": month, "balance": balance, "done": balance == 0}
