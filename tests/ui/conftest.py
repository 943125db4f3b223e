"""The inbox as it is served, over real HTTP; runs on a real server; the browser of the system."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import httpx2
import pytest

from acts.cli.dev.temporal_server import DevServer
from acts.client.server import ServerTarget
from acts.ui.access import Access
from acts.ui.ui_server import listen, serve
from tests.support import assert_eventually
from tests.workflow.conftest import agents, delegates_folder, engine, foreign, plain_client, sets_folder  # noqa: F401
from tests.workflow.foreign import Foreign, Handle, call, tool

HOST = "127.0.0.1"


@dataclass
class Site:
    """A page that is served, and a browser without a screen that has opened its link."""

    access: Access
    origin: str
    http: httpx2.AsyncClient

    async def get(self, path: str, **query: str) -> str:
        answer = await self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def post(self, path: str, **fields: Any) -> httpx2.Response:
        """What a form of this page sends."""
        return await self.http.post(path, data=fields, headers={"Origin": self.origin})

    async def wait_of(self, handle: Handle) -> dict[str, Any]:
        """The one wait of a run, as programs read it."""

        async def look() -> list[dict[str, Any]]:
            waits = (await self.http.get("/api/pending")).json()["waits"]
            return [wait for wait in waits if wait["run"] == handle.id]

        [wait] = await assert_eventually(look, why="the inbox lists it")
        return wait

    async def card_of(self, handle: Handle) -> tuple[dict[str, str], str]:
        """The address of the one card of a run, and the hidden fields of its form."""
        wait = await self.wait_of(handle)
        return {"run": handle.id, "wait": wait["wait"]}, await self.get("/card", run=handle.id, wait=wait["wait"])


def hidden(page: str) -> dict[str, str]:
    from html import unescape

    return {name: unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page)}


@asynccontextmanager
async def serving(server: DevServer, environment: dict[str, str]) -> AsyncIterator[tuple[Access, str]]:
    listening = listen(HOST, 0)
    port = listening.getsockname()[1]
    access = Access(HOST, port, {name: value.replace("PORT", str(port)) for name, value in environment.items()})
    target = ServerTarget(server.address, "the test", {"namespace": server.namespace})
    task = asyncio.create_task(serve(listening, access, target))
    try:
        yield access, f"http://{HOST}:{port}"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def site(server: DevServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setenv("LOGNAME", "ada")
    async with (
        serving(server, {"ACTS_UI_TOKEN": "for programs"}) as (access, origin),
        httpx2.AsyncClient(base_url=origin, follow_redirects=True, timeout=60) as http,
    ):
        assert (await http.get(access.link(HOST), follow_redirects=False)).status_code == 303
        yield Site(access, origin, http)


def refund_tool(foreign: Foreign) -> dict[str, Any]:
    """A Tool with a schema that people understand."""
    own = tool(
        "refund", activity="refund", options={"taskQueue": foreign.queue},
        orderId={"type": "string", "title": "Order"}, cents={"type": "integer", "minimum": 1},
        why={"type": "string"},
    )  # fmt: skip
    own["tool"] |= {"description": "Pays a customer back.", "x-hints": {"destructive": True}}
    return own


def asking_tool() -> dict[str, Any]:
    """A Tool that somebody of finance answers."""
    form = {
        "type": "object", "required": ["ok", "cents"],
        "properties": {
            "ok": {"type": "boolean"}, "cents": {"type": "integer"}, "fee": {"type": "number"},
            "note": {"type": "string"},
        },
    }  # fmt: skip
    own = tool("ask", activity=None)
    own["tool"]["properties"] |= {"_output": form, "_person": {"const": {"who": "finance"}}}
    return own


async def refund(call: dict[str, Any], *_: Any) -> Any:
    return {"paid": call["cents"]}


async def lookup(call: dict[str, Any], *_: Any) -> Any:
    return {"cents": 4200, "note": call.get("note")}


async def start_refund(
    foreign: Foreign, *, why: str = "broken", id: str | None = None, approve: Any = MappingProxyType({}), **more: Any,  # noqa: A002
) -> Handle:  # fmt: skip
    """A run that waits with a refund: its order is from the input, its amount the result of a Call."""
    request = foreign.request(
        call("lookup", "†state.order"),
        call("refund", "†state.paid", orderId="†input.orderId", cents="†state.order.cents", why=why),
        context=[
            {"type": "text", "text": "Ada wants her money back."}, {"type": "input", "orderId": "A-7"},
            refund_tool(foreign),
        ],
        approve=approve or {"calls": ["refund"]}, **more,
    )  # fmt: skip
    handle = await foreign.start(request, id=id)
    await wait_for(handle)
    return handle


async def wait_for(handle: Handle, count: int = 1) -> list[Any]:
    async def look() -> list[Any]:
        waits: list[Any] = await handle.query("pending")
        return waits if len(waits) == count else []

    waits: list[Any] = await assert_eventually(look, why="it waits")
    return waits
