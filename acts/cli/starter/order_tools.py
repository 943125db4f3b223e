"""The tools of this folder: what a plan may call.

`acts dev`, `acts validate` and `acts test` load this module, because acts.toml names it. A tool is a schema, and an
activity of the same name behind it. A plain `def` runs in a thread of its own and may block; an `async def` must not.
"""

from __future__ import annotations

from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

MAX_AMOUNT = 100  # US dollars that the card of this example has

TOOLS: dict[str, dict[str, Any]] = {
    "quoteOrder": {
        "description": "The price of an order",
        "properties": {
            "_tool": {"const": "quoteOrder"},
            "_outputPath": {},
            "_output": {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]},
            "items": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["items"],
    },
    "chargeCard": {
        "description": "Charge the card of a customer, once",
        "properties": {
            "_tool": {"const": "chargeCard"},
            "_outputPath": {},
            "_output": {"type": "object", "properties": {"receipt": {"type": "string"}}, "required": ["receipt"]},
            "customer": {"type": "string"},
            "amount": {"type": "number", "exclusiveMinimum": 0},
        },
        "required": ["customer", "amount"],
    },
    "writeMail": {
        "description": "Write a mail to a customer",
        "properties": {
            "_tool": {"const": "writeMail"},
            "_outputPath": {},
            "_output": {"type": "object"},
            "customer": {"type": "string"},
            "text": {"type": "string"},
        },
        "required": ["customer", "text"],
    },
}


@activity.defn(name="quoteOrder")
def quote_order(call: dict[str, Any], _tool: dict[str, Any], _context: list[Any]) -> dict[str, Any]:
    """`call` has the parameters of the call, references resolved."""
    return {"total": sum(item["price"] * item.get("count", 1) for item in call["items"])}


@activity.defn(name="chargeCard")
def charge_card(call: dict[str, Any], _tool: dict[str, Any], _context: list[Any]) -> dict[str, Any]:
    """An error takes the path of the plan that ends in `error`; `non_retryable` spends no more attempts on it.

    `_id` is the same in every attempt: hand it to a payment service as its idempotency key.
    """
    if call["amount"] > MAX_AMOUNT:
        raise ApplicationError(f"the card has {MAX_AMOUNT} dollars", type="Declined", non_retryable=True)
    return {"receipt": f"R-{call['_id'][-6:]}"}


@activity.defn(name="writeMail")
def write_mail(call: dict[str, Any], _tool: dict[str, Any], _context: list[Any]) -> dict[str, Any]:
    """Replace this by your mail service."""
    return {"to": call["customer"], "text": call["text"]}
