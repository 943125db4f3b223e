"""The codec server: the Web UI and ``temporal`` send it payloads, and get them decrypted (or encrypted).

``POST /decode`` and ``POST /encode`` take and give ``{"payloads": [{"metadata": {…}, "data": …}]}`` with base64, as
Temporal's Web UI and CLI do. Laws of this file: it stores and logs no payload. It answers only pages of the origins
that it was started for, also against DNS rebinding, and beyond this machine only requests with the token.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from temporalio.api.common.v1 import Payloads
from temporalio.converter import PayloadCodec

from acts.payloads.codec import CodecError

TOKEN_VARIABLE: Final = "ACTS_CODEC_TOKEN"  # noqa: S105 - the name of a variable
MAX_BODY_BYTES: Final = 64 * 1024 * 1024  # a history in base64; the server's own limit is 50 MB
_HINT: Final = "POST /decode or /encode"
_CORS: Final = {
    "Vary": "Origin",
    "Access-Control-Allow-Methods": "POST, OPTIONS",
    "Access-Control-Allow-Headers": "authorization, content-type, x-namespace",
    "Access-Control-Allow-Credentials": "true",
    "Access-Control-Allow-Private-Network": "true",
}


def is_loopback(host: str) -> bool:
    """True for an address, or a name, that only programs of this machine reach."""
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


def create_server(
    codec: PayloadCodec, host: str, port: int, origins: Sequence[str], token: str | None = None
) -> ThreadingHTTPServer:
    """A server that listens; ``serve_forever`` serves. Port 0 is a free one.

    ``origins`` are those of the Web UI, like http://localhost:8233; ``token``: what ``Authorization`` must have. Raises
    CodecError: it would answer anybody. OSError: the address cannot be bound.
    """
    if not token and not is_loopback(host):
        text = f"on {host} anybody who reaches it could decrypt everything"
        raise CodecError(f"{text}: set {TOKEN_VARIABLE}, or listen on 127.0.0.1")
    if "*" in origins:
        raise CodecError("any web page could decrypt everything with the origin *: name that of the Web UI")
    settings = {"codec": codec, "origins": tuple(origins), "token": token}
    return ThreadingHTTPServer((host, port), type("Handler", (_Handler,), settings))


class _Handler(BaseHTTPRequestHandler):
    codec: PayloadCodec
    origins: Sequence[str]
    token: str | None
    timeout = 30.0  # of a client that sends nothing
    server_version, sys_version = "acts-codec", ""

    def do_OPTIONS(self) -> None:
        self._answer(204 if self._is_allowed_origin() else 403)

    def do_GET(self) -> None:
        self._answer(*((200, {"status": "ok"}) if self.path == "/health" else (404, {"error": _HINT})))

    def do_POST(self) -> None:
        # Also below a path that a proxy or the Web UI puts before them
        path = "/" + self.path.partition("?")[0].rstrip("/").rpartition("/")[2]
        length = self.headers.get("Content-Length") or ""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ").encode(errors="replace")
        if not self._is_allowed_origin():
            text = f"the origin {self.headers['Origin'][:200]!r} is not allowed: --origin names it"
            self._answer(403, {"error": text})
        elif self.token and not hmac.compare_digest(token, self.token.encode()):
            self._answer(401, {"error": f"the header Authorization lacks the token of {TOKEN_VARIABLE}"})
        elif path not in ("/decode", "/encode"):
            self._answer(404, {"error": _HINT})
        elif not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            self._answer(413, {"error": f"a request has a Content-Length of at most {MAX_BODY_BYTES:,} bytes"})
        else:
            self._answer(*self._convert(path, self.rfile.read(int(length))))

    def _convert(self, path: str, body: bytes) -> tuple[int, Any]:
        try:
            payloads = ParseDict(json.loads(body), Payloads())
        except (ValueError, TypeError, AttributeError, RecursionError, ParseError):
            return 400, {"error": 'a request is {"payloads": [{"metadata": {key: base64}, "data": base64}]}'}
        convert: Any = self.codec.decode if path == "/decode" else self.codec.encode
        try:
            answer = Payloads(payloads=asyncio.run(convert(payloads.payloads)))
        except CodecError as error:
            return 400, {"error": str(error)}
        return 200, {"payloads": [], **MessageToDict(answer)}

    def _is_allowed_origin(self) -> bool:
        """A browser names the origin of each page that asks; other programs name none."""
        origin = self.headers.get("Origin")
        return origin is None or origin in self.origins

    def _answer(self, status: int, content: Any = None) -> None:
        data = b"" if content is None else json.dumps(content).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(data)), "Cache-Control": "no-store"}
        origin = self.headers.get("Origin")
        if origin is not None and self._is_allowed_origin():
            headers |= {"Access-Control-Allow-Origin": origin, **_CORS}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that http.server has
        """Log nothing."""
