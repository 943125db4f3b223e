"""Typed tools of the tests, as a user's module has them; a model would answer ``sumUp``."""

from __future__ import annotations

import threading
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

import acts


class Refund(BaseModel):
    """What is returned."""

    key: str
    attempt: int
    due: date
    status: Literal["paid", "booked"] = "booked"


@acts.tool(name="payBack", destructive=True, timeout="20s", failures={"declined": "the card has expired"})
def pay_back(
    order: str, cents: Annotated[int, Field(gt=0)], due: date = date(2026, 1, 31), *, call: acts.Call
) -> Refund:
    """Pays back to the card that was charged.

    Args:
        order: the number of the order
    """
    if order == "expired":
        raise acts.Failure("declined", "the card has expired", details={"cents": cents})
    assert threading.current_thread() is not threading.main_thread()
    return Refund(key=call.id, attempt=call.attempt, due=due)


@acts.tool(name="sayWho", scopes=["state.user"])
async def say_who(*, context: list[Any]) -> str:
    return str(context[0]["state"]["user"])


@acts.tool(name="countWrong")
async def count_wrong(text: str) -> int:
    return text  # type: ignore[return-value] # on purpose


@acts.tool(name="sumUp", latent=True)
def sum_up(text: str) -> str:
    """Sums up a text."""
    raise NotImplementedError
