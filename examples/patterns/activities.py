"""What the five patterns call: a shop, carriers and a parcel service. Nothing here has an effect, or a clock."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import BaseModel, Field

import acts

_CREDIT_CENTS = 50_000
_SHIPPED_AFTER = 2


class Parcel(BaseModel):
    asked: int
    shipped: bool


@acts.tool(name="reserveGoods")
def reserve_goods(order: str) -> str:
    """Sets the goods of an order aside."""
    return f"shelf of {order}"


@acts.tool(name="chargeCard", failures={"declined": "the card has not enough credit"})
def charge_card(order: str, cents: Annotated[int, Field(gt=0)]) -> str:
    """Charges the card of an order."""
    if cents > _CREDIT_CENTS:
        raise acts.Failure("declined", f"{cents / 100:.2f} for {order} are more than the card has")
    return f"receipt of {order}"


@acts.tool(name="shipGoods")
def ship_goods(goods: str, receipt: str) -> str:
    """Ships goods that are paid for."""
    return f"{goods}, {receipt}"


@acts.tool(name="askCarrier", read_only=True)
async def ask_carrier(carrier: str, seconds: float) -> dict[str, Any]:
    """Asks a carrier for a quote; it takes so long."""
    await asyncio.sleep(seconds)
    return {"carrier": carrier, "cents": 1_000 + 10 * len(carrier)}


@acts.tool(name="bookCarrier")
def book_carrier(quote: dict[str, Any]) -> str:
    """Books what was quoted."""
    return f"{quote['carrier']} for {quote['cents'] / 100:.2f}"


@acts.tool(name="trackParcel", read_only=True)
def track_parcel(number: str, asked: int) -> Parcel:
    """Asks where a parcel is: it was asked so often before."""
    return Parcel(asked=asked + 1, shipped=bool(number) and asked >= _SHIPPED_AFTER)
