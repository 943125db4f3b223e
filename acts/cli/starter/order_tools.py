"""The tools of this folder: what a plan may call.

`acts dev`, `acts validate` and `acts test` load this module, because acts.toml names it. A function with `@acts.tool`
is a tool; its type hints say what it takes and returns. A plain `def` runs in a thread of its own and may block; an
`async def` must not.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

import acts

MAX_AMOUNT = 100  # US dollars that the card of this example has


class Item(BaseModel):
    name: str
    price: float
    count: int = 1


class Quote(BaseModel):
    total: float


class Payment(BaseModel):
    receipt: str


class Mail(BaseModel):
    to: str
    text: str


@acts.tool(name="quoteOrder", read_only=True)
def quote_order(items: list[Item]) -> Quote:
    """The price of an order."""
    return Quote(total=sum(item.price * item.count for item in items))


@acts.tool(name="chargeCard", destructive=True, failures={"Declined": "the card has not enough"})
def charge_card(customer: str, amount: Annotated[float, Field(gt=0)], *, call: acts.Call) -> Payment:
    """Charge the card of a customer, once."""
    if amount > MAX_AMOUNT:  # a failure takes the path of the plan that ends in `error`
        raise acts.Failure("Declined", f"the card of {customer} has {MAX_AMOUNT} dollars")
    # `call.id` is the same in every attempt: hand it to a payment service as its idempotency key
    return Payment(receipt=f"R-{call.id[-6:]}")


@acts.tool(name="writeMail")
def write_mail(customer: str, text: str) -> Mail:
    """Write a mail to a customer."""
    return Mail(to=customer, text=text)  # replace this by your mail service
