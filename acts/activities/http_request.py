"""One HTTP request of the Tool ``http``: where it may go, what is sent, and what its answer means.

The defences are those of ``acts/delegates/web.py``: the host is one of ``ACTS_HTTP_HOSTS``, every address of it is
checked, and the connection goes to such an address. A redirect is followed for GET and HEAD, to allowed hosts, and
without the Call's own headers to another origin: they may hold a secret.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import Any, Final

import httpx2
from temporalio.exceptions import ApplicationError

from acts.delegates.definitions import MAX_BYTES
from acts.delegates.sources import DelegateSources, read_hosts
from acts.delegates.web import MAX_REDIRECTS, REDIRECTS, TRY_LATER, Fetcher, open_response, origin_of
from acts.language import wire
from acts.language.errors import truncate
from acts.language.strict_json import read_json, write_json
from acts.language.values import Json

HOSTS: Final = "ACTS_HTTP_HOSTS"
PRIVATE_HOSTS: Final = "ACTS_HTTP_PRIVATE_HOSTS"
REFUSED: Final = "httpRefused"
STATUS: Final = "httpStatus"
UNAVAILABLE: Final = "httpUnavailable"
TOO_LARGE: Final = "httpTooLarge"
# Whoever asks for more is not waited for: the next attempt comes then
MAX_PAUSE_SECONDS: Final = 3600.0
# Characters of the text of an answer that failed
_MAX_TEXT: Final = 4_000
# … and of the body that its details keep: those of a failure are small
_MAX_BODY: Final = 16_000
_FOLLOWED: Final = ("GET", "HEAD")
_OWN: Final = ("host", "connection", "content-length", "transfer-encoding", "accept-encoding", "idempotency-key")
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE: Final = re.compile(r"[\x20-\x7e\t]{0,8000}")
_CODES: Final = {wire.DELEGATE_UNAVAILABLE: UNAVAILABLE, wire.DELEGATE_REFUSED: REFUSED}
_OK, _SERVER_ERROR, _JSON = range(200, 300), 500, re.compile(r"application/(json|[\w.!#$&^-]+\+json)", re.IGNORECASE)


def _refuse(text: str) -> ApplicationError:
    return ApplicationError(text, type=REFUSED, non_retryable=True)


@lru_cache(maxsize=4)
def _sources(hosts: str, private: str) -> DelegateSources:
    return DelegateSources((), read_hosts(HOSTS, hosts), read_hosts(PRIVATE_HOSTS, private, needs_port=True))


_tls = lru_cache(maxsize=1)(httpx2.create_ssl_context)


def url_guard() -> Fetcher:
    """What says whether a URL may be asked."""
    sources = _sources(os.environ.get(HOSTS, ""), os.environ.get(PRIVATE_HOSTS, ""))
    return Fetcher(sources, "resource", HOSTS, PRIVATE_HOSTS)


async def send(call: Mapping[str, Any], seconds: float) -> dict[str, Json]:
    """``{status, headers, json | text | base64}`` of an answer with a status of 2xx. Raises ApplicationError."""
    try:
        async with asyncio.timeout(seconds):
            return await _follow(call, url_guard())
    except TimeoutError:
        raise ApplicationError(f"there was no answer within {seconds:g} s", type=UNAVAILABLE) from None
    except ApplicationError as error:
        if error.type not in _CODES:
            raise
        raise ApplicationError(error.message, type=_CODES[error.type], non_retryable=error.non_retryable) from None


async def _follow(call: Mapping[str, Any], guard: Fetcher) -> dict[str, Json]:
    method, headers = call.get("method", "GET"), _headers(call)
    target = guard.check_url(call["url"])
    if "query" in call:
        target = guard.check_url(str(target.copy_merge_params(call["query"])))
    content, tls = None if "json" not in call else write_json(call["json"]), await asyncio.to_thread(_tls)
    for _ in range(MAX_REDIRECTS + 1):
        ask = partial(_ask, target, tls=tls, method=method, headers=headers, content=content)
        answer = await guard.reach(target, ask)
        location = answer["headers"].get("location")
        if answer["status"] not in REDIRECTS or location is None or method not in _FOLLOWED:
            return _judge(answer, target)
        following = guard.check_following(target, location)
        if origin_of(following) != origin_of(target):
            headers = {}
        target = following
    raise _refuse(f"{origin_of(target)}: more than {MAX_REDIRECTS} redirects, one after another")


def _headers(call: Mapping[str, Any]) -> dict[str, str]:
    headers = {"Accept": "application/json, */*;q=0.5", "Idempotency-Key": str(call.get("_id", ""))}
    headers |= {"Content-Type": "application/json"} if "json" in call else {}
    for name, value in (call.get("headers") or {}).items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):  # not repeated: it may be a secret
            raise _refuse(f"the header {truncate(repr(name), 100)} has a name or a value that no header may have")
        if name.lower() in _OWN:
            raise _refuse(f"the header {name} is set by the tool itself: leave it out")
        headers = {key: own for key, own in headers.items() if key.lower() != name.lower()} | {name: value}
    return headers


async def _ask(target: httpx2.URL, address: str, **request: Any) -> dict[str, Json]:
    async with open_response(target, address, **request) as response:
        body, encoding = bytearray(), response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise _refuse(f"{origin_of(target)} sent a body in the encoding {encoding!r}, which was not asked for")
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > MAX_BYTES:
                text = f"{origin_of(target)} sent more than {MAX_BYTES:,} bytes (1 MiB)"
                raise ApplicationError(text, type=TOO_LARGE, non_retryable=True)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return {"status": response.status_code, "headers": headers, **_body(bytes(body), response.headers)}


def _body(body: bytes, headers: Mapping[str, str]) -> dict[str, Json]:
    if not body:
        return {}
    if _JSON.match(headers.get("content-type", "")):
        try:
            return {"json": read_json(body)}
        except ValueError:
            pass  # it is no JSON, whatever it says
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def _judge(answer: dict[str, Json], target: httpx2.URL) -> dict[str, Json]:
    status = answer["status"]
    if status in _OK:
        return answer
    body = answer.get("text") or (write_json(answer["json"]).decode() if "json" in answer else "")
    bodies = ("json", "text") if len(body) <= _MAX_BODY else ()
    details: dict[str, Json] = {key: answer[key] for key in ("status", *bodies) if key in answer}
    may_recover = status in TRY_LATER or status >= _SERVER_ERROR
    text = truncate(f"{origin_of(target)} answered {status}{': ' * bool(body)}{body}", _MAX_TEXT)
    pause = _pause(answer["headers"].get("retry-after", "")) if may_recover else None
    raise ApplicationError(text, details, type=STATUS, non_retryable=not may_recover, next_retry_delay=pause)


def _pause(text: str) -> timedelta | None:
    """How long a server asks to be left alone, in seconds or until a date; None: it does not say."""
    try:
        if text.isdigit():
            seconds = float(text[:10])
        else:
            seconds = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return None
    return timedelta(seconds=min(max(seconds, 0.0), MAX_PAUSE_SECONDS))
