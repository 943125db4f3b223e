"""What the desk can do. Each effect has the id of its Call as its key, so it happens once, whatever dies."""

from __future__ import annotations

import csv
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import httpx2
from pydantic import BaseModel, Field

import acts
from examples.support_desk.database import transaction

# A database or a payment service that is away comes back: each tool tries for a quarter of an hour
_PATIENT: Final[dict[str, Any]] = {
    "timeout": "30s",
    "retry": {"maxAttempts": 900, "initialInterval": "1s", "backoff": 1},
}
_TIMEOUT_SECONDS: Final = 10
_SERVICE: Final = httpx2.Client(timeout=_TIMEOUT_SECONDS)
_NO_COURIER: Final = "Longyearbyen"
_BUSY, _CONFLICT = 429, 409
Cents = Annotated[int, Field(gt=0)]
OrderId = Annotated[str, Field(alias="orderId")]


class Order(BaseModel):
    id: str
    customer: str
    item: str
    cents: int
    city: str


class Payment(BaseModel):
    id: str
    order: str
    cents: int


class Effect(BaseModel):
    id: str


class Check(BaseModel):
    charged: int
    refunded: int
    ok: bool


@acts.tool(read_only=True, failures={"no_order": "the shop has no such order"}, **_PATIENT)
def find_order(order_id: OrderId) -> Order:
    """Looks an order up."""
    with transaction() as run:
        rows = run("SELECT id, customer, item, cents, city FROM orders WHERE id = ?", order_id)
    if not rows:
        raise acts.Failure("no_order", f"there is no order {order_id}")
    return Order(**dict(zip(Order.model_fields, rows[0], strict=True)))


def _pay(kind: str, order: str, cents: int, call: acts.Call) -> Payment:
    body = {"kind": kind, "order": order, "cents": cents, "run": call.run}
    answer = _ask("POST", "/payments", json=body, headers={"Idempotency-Key": call.id})
    if answer.status_code == _CONFLICT:
        raise acts.Failure("refused", answer.json()["problem"])
    return Payment(**answer.raise_for_status().json())


def _ask(method: str, path: str, **content: Any) -> httpx2.Response:
    try:
        answer = _SERVICE.request(method, os.environ["DESK_PAYMENTS"] + path, **content)
    except httpx2.TransportError as error:
        raise acts.Failure("payments_away", f"the payment service does not answer: {error}", retry=True) from error
    if answer.status_code == _BUSY:
        raise acts.Failure("payments_busy", "the payment service is busy", retry=float(answer.headers["Retry-After"]))
    return answer


@acts.tool(destructive=True, failures={"refused": "more than was paid"}, **_PATIENT)
def refund_payment(order_id: OrderId, cents: Cents, *, call: acts.Call) -> Payment:
    """Pays money back for an order."""
    return _pay("refund", order_id, cents, call)


@acts.tool(
    destructive=True, undo={"_tool": "refund_payment", "orderId": "†call.orderId", "cents": "†call.cents"}, **_PATIENT
)
def charge_card(order_id: OrderId, cents: Cents, *, call: acts.Call) -> Payment:
    """Charges the card of an order."""
    return _pay("charge", order_id, cents, call)


@acts.tool(
    failures={"sold_out": "nothing is left"}, undo={"_tool": "release_item", "reservation": "†result.id"}, **_PATIENT
)
def reserve_item(item: str, *, call: acts.Call) -> Effect:
    """Sets one piece of an item aside."""
    with transaction() as run:
        if run(
            "INSERT INTO reservations VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING call", call.id, item
        ) and not run("UPDATE stock SET count = count - 1 WHERE item = ? AND count > 0 RETURNING count", item):
            raise acts.Failure("sold_out", f"no {item} is left")  # and nothing is reserved: the transaction is undone
    return Effect(id=call.id)


@acts.tool(**_PATIENT)
def release_item(reservation: str) -> bool:
    """Puts back what was set aside; says whether it was."""
    with transaction() as run:
        rows = run("DELETE FROM reservations WHERE call = ? RETURNING item", reservation)
        for (item,) in rows:
            run("UPDATE stock SET count = count + 1 WHERE item = ?", item)
    return bool(rows)


@acts.tool(failures={"no_courier": "nobody drives there"}, **_PATIENT)
def book_courier(order_id: OrderId, city: str, *, call: acts.Call) -> Effect:
    """Books a courier who takes one parcel there and another back."""
    if city == _NO_COURIER:
        raise acts.Failure("no_courier", f"no courier goes to {city}")
    with transaction() as run:
        run("INSERT INTO couriers VALUES (?, ?) ON CONFLICT DO NOTHING", call.id, order_id)
    return Effect(id=call.id)


@acts.tool(**_PATIENT)
def send_mail(customer: str, text: str, *, call: acts.Call) -> Effect:
    """Writes to a customer."""
    with transaction() as run:
        run("INSERT INTO mails VALUES (?, ?, ?) ON CONFLICT DO NOTHING", call.id, customer, text)
    return Effect(id=call.id)


@acts.tool(**_PATIENT)
def export_orders() -> int:
    """Writes the orders of the day for the nightly run: ``orders-DATE.csv`` in ACTS_DATA; returns how many."""
    with transaction() as run:
        rows = run("SELECT id, cents FROM orders ORDER BY id")
    file = Path(os.environ["ACTS_DATA"]) / f"orders-{datetime.now(UTC):%Y-%m-%d}.csv"
    with file.with_suffix(".new").open("w", encoding="utf-8", newline="") as draft:
        csv.writer(draft).writerows([("id", "cents"), *rows])
    file.with_suffix(".new").replace(file)
    return len(rows)


@acts.tool(read_only=True, **_PATIENT)
def check_payment(order_id: OrderId, cents: int) -> Check:
    """Compares what an order cost with what the payment service has charged."""
    sums = _ask("GET", f"/orders/{order_id}").raise_for_status().json()
    return Check(**sums, ok=sums["charged"] >= cents)
