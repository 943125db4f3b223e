"""The desk's own site: cases come in, programs call back, and a page follows a run (that of examples/page).

GET /desk                  the page: a form, the latest notices, the ledger
POST /cases                {kind: refund | exchange, orderId, message?}: starts a run; the same case is the same run
POST /webhooks/payments    the payment service: what is booked goes to the run that waits for it
POST /webhooks/notices     `acts notify`: what waits for people, or has failed
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path
from typing import Any, Final

import httpx2
import uvicorn
import yaml
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

import acts
from examples.page.serve import make_app
from examples.support_desk.database import transaction

HERE: Final = Path(__file__).parent
_OK, _REFUSED, _LATER = 200, 403, 503


async def start_case(client: acts.Client, case: dict[str, Any]) -> acts.Run:
    """Start the run of a case; ``DESK_MODEL`` (like ``anthropic:NAME``) plans refunds, else a script."""
    kind, order = case["kind"], case["orderId"]
    if kind == "exchange":
        return await client.start("exchange", {"orderId": order}, id=f"exchange-{order}")
    told = {"orderId": order, "message": case["message"]}
    plan: Any = "refund"
    if model := os.environ.get("DESK_MODEL"):
        plan = yaml.safe_load((HERE / "plans" / "refund.yaml").read_text("utf-8"))
        plan["config"]["model"] = model
    return await client.start(plan, told, id=f"refund-{order}", agent=True)


async def cases(request: Request) -> Response:
    if request.headers.get("origin") not in (None, f"http://{request.headers['host']}"):
        return JSONResponse({"problem": "only the desk's page may start a case"}, _REFUSED)
    try:
        async with await acts.Client.connect() as client:
            run = await start_case(client, await request.json())
    except acts.ClientError as error:
        return JSONResponse({"problem": str(error)}, _LATER)
    return JSONResponse({"run": run.id})


async def payment(request: Request) -> Response:
    if not _is_signed(await request.body(), b"", request.headers.get("signature", "")):
        return JSONResponse({"problem": "not signed by the payment service"}, _REFUSED)
    settled = await request.json()
    message = {"type": "data", "kind": "settlement", "data": settled}
    try:
        async with await acts.Client.connect() as client:
            await client.run(settled["run"]).provide(message)
    except acts.ClientError as error:  # a run that has ended waits for nothing; else the service says it again
        return JSONResponse({"note": str(error)}, _LATER if error.is_unavailable else _OK)
    return JSONResponse({})


async def notices(request: Request) -> Response:
    stamp, mark = (request.headers.get(name, "") for name in ("acts-timestamp", "acts-signature"))
    if not _is_signed(await request.body(), f"{stamp}.".encode(), mark.removeprefix("sha256=")):
        return JSONResponse({"problem": "not signed by acts notify"}, _REFUSED)
    with transaction() as run:
        for notice in (await request.json())["notices"]:
            row = (notice["id"], notice["text"], notice["run"])
            run("INSERT INTO notices VALUES (?, ?, ?) ON CONFLICT DO NOTHING", *row)
    return JSONResponse({})


def _is_signed(body: bytes, before: bytes, mark: str) -> bool:
    right = hmac.new(os.environ["DESK_SECRET"].encode(), before + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(right, mark)


async def overview(_request: Request) -> Response:
    with transaction() as run:
        told = [{"text": text, "run": name} for text, name in run("SELECT text, run FROM notices")]
        mails = [{"to": to, "text": text} for to, text in run("SELECT customer, text FROM mails")]
    async with httpx2.AsyncClient() as client:
        ledger = (await client.get(f"{os.environ['DESK_PAYMENTS']}/ledger")).json()
    return JSONResponse({"notices": told, "mails": mails, "ledger": ledger})


async def page(_request: Request) -> Response:
    return FileResponse(HERE / "desk.html")


ROUTES: Final = [
    Route("/desk", page),
    Route("/overview", overview),
    Route("/cases", cases, methods=["POST"]),
    Route("/webhooks/payments", payment, methods=["POST"]),
    Route("/webhooks/notices", notices, methods=["POST"]),
]

if __name__ == "__main__":
    address = os.environ["DESK_SITE"].removeprefix("http://")
    app = make_app(os.environ["DESK_INBOX"], os.environ["DESK_SECRET"], address, ROUTES)
    uvicorn.run(app, host="127.0.0.1", port=int(address.rpartition(":")[2]), log_level="warning")
