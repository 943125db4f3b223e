"""Who looks, and who decides: one guard before every page, and one token in every form.

- Alone: this machine only. A one-time link becomes a cookie; the Host is a name of this machine, so that no other site
  can pose as it. Programs send ACTS_UI_TOKEN as a bearer.
- In a team: a proxy has signed people in, and names them in the header that ACTS_UI_USER_HEADER names. It shows that it
  is the proxy by ACTS_UI_PROXY_TOKEN in ``X-Acts-Proxy``; without it the name would be anybody's claim.
- What changes something is a POST from a page of this origin, with the token that its form was given. No GET decides.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from acts.client.client_errors import ClientError
from acts.client.run_decisions import login_name
from acts.payloads.codec_server import is_loopback

MAX_SESSIONS: Final = 100  # browsers of one person; the oldest goes
MAX_NAME: Final = 200  # characters of a name that a proxy sends
_FORBIDDEN: Final = 403
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send the Origin "null"
    "Cache-Control": "no-store",
}
# A browser that comes from a link elsewhere sends no Strict cookie; the same page, opened by itself, has it
_AGAIN: Final = '<!doctype html><meta http-equiv="refresh" content="0"><title>acts</title>'


@dataclass(frozen=True)
class Visitor:
    """Somebody who is signed in; ``groups`` None: nobody says which.

    ``is_program``: by a bearer, which no browser sends by itself.
    """

    name: str
    groups: tuple[str, ...] | None
    csrf: str
    is_program: bool = False


class Access:
    """Who may come in. Raises ClientError for settings that would let in anybody."""

    def __init__(self, host: str, port: int, environment: Mapping[str, str] = os.environ) -> None:
        self.header, self.groups = environment.get("ACTS_UI_USER_HEADER"), environment.get("ACTS_UI_GROUPS_HEADER")
        self._proxy, self.origin = environment.get("ACTS_UI_PROXY_TOKEN", ""), environment.get("ACTS_UI_ORIGIN", "")
        self._bearer = "" if self.header else environment.get("ACTS_UI_TOKEN", "")
        self._port, self._cookie = port, f"acts_ui_{port}"
        self._link, self._sessions = secrets.token_urlsafe(24), OrderedDict[str, None]()
        if self.header and not (self._proxy and self.origin):
            hint = "the proxy sends ACTS_UI_PROXY_TOKEN in X-Acts-Proxy; ACTS_UI_ORIGIN is like https://acts.example"
            raise ClientError("ACTS_UI_USER_HEADER needs ACTS_UI_PROXY_TOKEN and ACTS_UI_ORIGIN", hint)
        if not self.header and not is_loopback(host):
            hint = "listen on 127.0.0.1, or set ACTS_UI_USER_HEADER behind a proxy that signs people in"
            raise ClientError(f"on {host} anybody who reaches it could decide", hint)

    def link(self, host: str) -> str:
        """The address to open; alone it works once."""
        return self.origin if self.header else f"http://{host}:{self._port}/enter?token={self._link}"

    def admit(self, request: Request) -> Visitor | Response:
        """Who this is, or what a stranger is shown instead."""
        if self.header:
            return self._admit_from_proxy(request)
        host = urlsplit(f"//{request.headers.get('host', '')}")
        if not is_loopback(host.hostname or ""):
            return _refusal("this page has another name than the one that it was opened by")
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._bearer and _is_same(token, self._bearer):
            return Visitor(login_name() or "?", None, "", is_program=True)
        session = request.cookies.get(self._cookie, "")
        if session in self._sessions:
            return Visitor(login_name() or "?", None, _digest(session, "csrf"))
        if request.url.path == "/enter":
            return self._enter(request)
        if request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
            return HTMLResponse(_AGAIN)
        return _refusal("open the address that `acts ui` has printed; it works once, and each start prints one", 401)

    def _enter(self, request: Request) -> Response:
        if not self._link or not _is_same(request.query_params.get("token", ""), self._link):
            return _refusal("this link has been used, or is of another start: start `acts ui` again", 401)
        self._link, session = "", secrets.token_urlsafe(32)
        self._sessions[session] = None
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        response = RedirectResponse("/", 303)
        response.set_cookie(self._cookie, session, httponly=True, samesite="strict", path="/")
        return response

    def _admit_from_proxy(self, request: Request) -> Visitor | Response:
        names = request.headers.getlist(str(self.header))
        name = names[0].strip() if len(names) == 1 else ""  # of two, a browser may have sent one
        if not _is_same(request.headers.get("x-acts-proxy", ""), self._proxy):
            return _refusal("X-Acts-Proxy lacks the token of ACTS_UI_PROXY_TOKEN: come through the proxy", 401)
        if not name or len(name) > MAX_NAME:
            return _refusal(f"the proxy names nobody in {self.header}", 401)
        listed = None
        if self.groups:
            groups = request.headers.getlist(self.groups)
            listed = tuple(filter(None, map(str.strip, groups[0].split(",")))) if len(groups) == 1 else ()
        return Visitor(name, listed, _digest(self._proxy, name))

    def check_origin(self, request: Request, visitor: Visitor) -> None:
        """Raise HTTPException for a POST that no page of ours sends."""
        own = self.origin or f"http://{request.headers.get('host', '')}"
        if not visitor.is_program and request.headers.get("origin") != own:
            raise HTTPException(_FORBIDDEN, "nothing was sent: this was asked for by another page")


def check_csrf(request: Request, token: object) -> Visitor:
    """The visitor, whose form has the token that it was given. HTTPException: it has another one, or none."""
    visitor: Visitor = request.state.visitor
    if not visitor.is_program and not _is_same(str(token or ""), visitor.csrf):
        raise HTTPException(_FORBIDDEN, "nothing was sent: the form is of another session. Open the page again")
    return visitor


class Guard:
    """The ASGI door: headers on every answer, and nobody in whom ``Access`` does not admit."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update({name: value for name, value in HEADERS.items() if name not in headers})
            await send(message)

        await self._choose(scope)(scope, receive, send_with_headers)

    def _choose(self, scope: Scope) -> ASGIApp:
        request = Request(scope)
        if request.url.path.startswith("/static/") and request.method == "GET":
            return self._app
        answer = self._access.admit(request)
        if isinstance(answer, Response):
            return answer
        if request.method not in ("GET", "HEAD"):
            try:
                self._access.check_origin(request, answer)
            except HTTPException as error:
                return _refusal(error.detail)
        state: dict[str, Any] = scope.setdefault("state", {})
        state["visitor"] = answer
        return self._app


def _refusal(text: str, status: int = _FORBIDDEN) -> Response:
    return PlainTextResponse(f"{text}\n", status)


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="replace"), other.encode(errors="replace"))


def _digest(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
