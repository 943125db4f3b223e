"""A page of one's own that follows a run and decides: this server knows the token of ``acts ui``, browsers do not.

    ACTS_UI_TOKEN=secret acts ui
    ACTS_UI_TOKEN=secret python examples/page/serve.py      # open http://127.0.0.1:8300/?run=ID

Who may open the page decides, in the name that ``acts ui`` runs under: put the sign-in of your application before it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

PORT = 8300


def make_app(inbox: str, token: str, host: str, routes: Sequence[Route] = ()) -> Starlette:
    """The page at ``http://<host>``, below it the API of the ``acts ui`` at ``inbox``; and your ``routes``."""
    client = httpx2.AsyncClient(base_url=inbox, headers={"Authorization": f"Bearer {token}"}, timeout=None)

    async def page(_request: Request) -> Response:
        return FileResponse(Path(__file__).parent / "index.html")

    async def forward(request: Request) -> Response:
        is_read, origin = request.method == "GET", request.headers.get("origin")
        if request.headers.get("host") != host or not (is_read or origin == f"http://{host}"):
            return PlainTextResponse("only this page may ask", 403)  # no page of another site decides
        target = request.scope["raw_path"] + b"?" + request.scope["query_string"]
        headers = {name: request.headers[name] for name in ("last-event-id",) if name in request.headers}
        sent = client.build_request(request.method, target.decode(), content=await request.body(), headers=headers)
        answer = await client.send(sent, stream=True)
        own = {"Content-Type": answer.headers["content-type"], "Cache-Control": "no-store"}

        async def body() -> AsyncIterator[bytes]:
            try:
                async for part in answer.aiter_raw():
                    yield part
            finally:  # also when the reader is gone
                await answer.aclose()

        return StreamingResponse(body(), answer.status_code, own)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    own_routes = [Route("/", page), Route("/api/{path:path}", forward, methods=["GET", "POST"])]
    return Starlette(routes=[*routes, *own_routes], lifespan=lifespan)


if __name__ == "__main__":
    app = make_app("http://127.0.0.1:8234", os.environ["ACTS_UI_TOKEN"], f"127.0.0.1:{PORT}")
    uvicorn.run(app, host="127.0.0.1", port=PORT)
