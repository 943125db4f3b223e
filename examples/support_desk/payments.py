"""The payment service: it stands for somebody else's, so it knows nothing of the engine and shares no code with it.

    POST /payments {kind: charge | refund, order, cents, run}   with Idempotency-Key: 202 {id, kind, order, cents}
    GET /orders/A-1                                             {charged, refunded}
    GET /ledger                                                 all payments

The same key is the same payment. Every third new one is answered 429, with Retry-After, before anything is written.
What is booked is told to ``DESK_WEBHOOK``, signed, until that answers with 2xx; the ledger knows what was told.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.support_desk.database import sample_orders

Json = dict[str, Any]

_TABLE: Final = """CREATE TABLE IF NOT EXISTS payments (
    number INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, kind TEXT NOT NULL, order_id TEXT NOT NULL,
    cents INTEGER NOT NULL, run TEXT NOT NULL, told INTEGER NOT NULL)"""
_BUSY_EVERY: Final = 3
_TELL_AGAIN_SECONDS: Final = 0.5
_FORGOTTEN: Final = (8, 1_000)  # the eighth order of each thousand was never charged: the nightly run finds it


class Service:
    """The routes of the service, over its ledger."""

    def __init__(self, ledger: str, webhook: str, secret: str, orders: int) -> None:
        self._db = sqlite3.connect(ledger, isolation_level=None)
        self._webhook, self._secret = webhook, secret
        self._busy: set[str] = set()
        self._news = asyncio.Event()
        self._db.execute(_TABLE)
        forgotten, of = _FORGOTTEN
        sold = (row for number, row in enumerate(sample_orders(orders), 1) if number % of != forgotten)
        charges = ((f"sale-{order}", order, cents) for order, _customer, _item, cents, _city in sold)
        statement = "INSERT OR IGNORE INTO payments VALUES (NULL, ?, 'charge', ?, ?, '', 1)"
        with self._db:
            self._db.execute("BEGIN")
            self._db.executemany(statement, charges)

    async def pay(self, request: Request) -> Response:
        wanted, key = await request.json(), request.headers.get("Idempotency-Key")
        if not key:
            return JSONResponse({"problem": "no Idempotency-Key"}, 400)
        known = self._payments("WHERE key = ?", key)
        if not known and key not in self._busy:
            self._busy.add(key)
            if len(self._busy) % _BUSY_EVERY == 0:
                return JSONResponse({"problem": "busy"}, 429, {"Retry-After": "1"})
        if not known:
            paid = self._sums(wanted["order"])
            if wanted["kind"] == "refund" and wanted["cents"] > paid["charged"] - paid["refunded"]:
                return JSONResponse({"problem": f"of {wanted['order']} not so much is paid"}, 409)
            row = (key, wanted["kind"], wanted["order"], wanted["cents"], wanted["run"])
            self._db.execute("INSERT INTO payments VALUES (NULL, ?, ?, ?, ?, ?, 0)", row)
            self._news.set()
            known = self._payments("WHERE key = ?", key)
        (payment,) = known
        if any(payment[name] != wanted[name] for name in ("kind", "order", "cents")):
            return JSONResponse({"problem": "this key is another payment's"}, 422)
        return JSONResponse(payment, 202)

    async def order(self, request: Request) -> Response:
        return JSONResponse(self._sums(request.path_params["order"]))

    async def ledger(self, _request: Request) -> Response:
        return JSONResponse(self._payments("WHERE run != '' ORDER BY number DESC LIMIT 1000"))

    def _payments(self, where: str, *values: Any) -> list[Json]:
        query = f"SELECT 'pay_' || number, key, kind, order_id, cents, run FROM payments {where}"  # noqa: S608 - of this file
        names = ("id", "key", "kind", "order", "cents", "run")
        return [dict(zip(names, row, strict=True)) for row in self._db.execute(query, values)]

    def _sums(self, order: str) -> Json:
        rows = self._db.execute("SELECT kind, sum(cents) FROM payments WHERE order_id = ? GROUP BY kind", (order,))
        return {"charged": 0, "refunded": 0} | {f"{kind.removesuffix('e')}ed": cents for kind, cents in rows}

    async def tell(self) -> None:
        """Tell the webhook what it was not told, for ever."""
        async with httpx2.AsyncClient(timeout=30) as client:
            while True:
                self._news.clear()
                for payment in self._payments("WHERE told = 0 ORDER BY number"):
                    body = json.dumps(payment).encode()
                    mark = hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
                    try:
                        answer = await client.post(self._webhook, content=body, headers={"Signature": mark})
                    except httpx2.TransportError:
                        continue
                    if answer.is_success:
                        self._db.execute("UPDATE payments SET told = 1 WHERE key = ?", (payment["key"],))
                pause = _TELL_AGAIN_SECONDS if self._payments("WHERE told = 0") else None
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), pause)


def make_app() -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        own = os.environ
        service = Service(own["DESK_LEDGER"], own["DESK_WEBHOOK"], own["DESK_SECRET"], int(own["DESK_ORDERS"]))
        app.router.routes += [
            Route("/payments", service.pay, methods=["POST"]),
            Route("/orders/{order}", service.order),
            Route("/ledger", service.ledger),
        ]
        telling = asyncio.create_task(service.tell())
        yield
        telling.cancel()

    return Starlette(lifespan=lifespan)


if __name__ == "__main__":
    uvicorn.run(
        make_app(), host="127.0.0.1", port=int(os.environ["DESK_PAYMENTS"].rpartition(":")[2]), log_level="warning"
    )
