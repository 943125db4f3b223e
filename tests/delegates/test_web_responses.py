"""Definitions from URLs: which responses are accepted, and how hostile servers end."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence

import pytest

from acts.delegates.definitions import MAX_BYTES
from tests.delegates.support import (
    BYTES,
    HOST,
    Endless,
    Hanging,
    Reply,
    Site,
    answer,
    for_site,
    raises_load_error,
    redirect,
)

# Long enough for a busy machine to answer; a hanging reply hangs forever
SOON_SECONDS = 1.0


@pytest.mark.parametrize(
    ("status", "type_"),
    [
        (206, "DelegateRefused"), (304, "DelegateRefused"), (403, "DelegateRefused"), (404, "DelegateNotFound"),
        (410, "DelegateNotFound"), (429, "DelegateUnavailable"), (503, "DelegateUnavailable"),
    ],
)  # fmt: skip
async def test_only_200_is_a_success(web: Site, status: int, type_: str) -> None:
    web.reply_with(answer(status=status))
    with raises_load_error(type_, f"http://{HOST}:{web.port} answered {status}"):
        await for_site(web).load({"delegate": web.url()})


@pytest.mark.parametrize(
    "kind",
    ["text/html", "text/html; charset=utf-8", "application/octet-stream", "text/json", "application/jsonx",
     "application/json, text/html", "json", ""],
)  # fmt: skip
async def test_any_other_content_type_is_refused(web: Site, kind: str) -> None:
    web.reply_with(answer(content_type=kind))
    with raises_load_error("DelegateInvalid", "the content type", kind or "nothing", "allowed: application/json"):
        await for_site(web).load({"delegate": web.url()})


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip"])
async def test_a_compressed_body_is_refused_without_being_unpacked(web: Site, encoding: str) -> None:
    web.reply_with(answer(gzip.compress(b" " * 50 * MAX_BYTES), content_encoding=encoding))
    with raises_load_error("DelegateRefused", f"in the encoding '{encoding}'"):
        await for_site(web).load({"delegate": web.url()})


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


CHUNKED = answer(b"", content_length="", transfer_encoding="chunked")
UNTIL_CLOSED = answer(b"", content_length="")


@pytest.mark.parametrize(
    "reply",
    [
        answer(BYTES.ljust(MAX_BYTES + 1)),
        UNTIL_CLOSED + BYTES.ljust(MAX_BYTES + 1),
        Endless(CHUNKED, chunk(b" " * 65_536)),
        Endless(UNTIL_CLOSED, b" " * 65_536),
    ],
    ids=str,
)
async def test_a_larger_body_is_too_large_even_if_it_is_endless(web: Site, reply: Reply) -> None:
    web.reply_with(reply)
    with raises_load_error("DelegateTooLarge", "has more than 1,048,576 bytes"):
        await for_site(web).load({"delegate": web.url()})
    if isinstance(reply, Endless):
        await web.client_closed.wait()


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 200",
        b"HTTP/1.1 OK 200\r\n\r\n",
        answer()[:-1],
        answer(content_length=str(len(BYTES) + 1)),
        CHUNKED + chunk(BYTES),
        CHUNKED + b"zz\r\n",
        answer(x="y" * 200_000),
        b"HTTP/1.1 200 X\r\n" + b"x: y\r\n" * 50_000,
    ],
)
async def test_a_response_that_breaks_off_or_is_not_http_is_retryable(web: Site, reply: bytes) -> None:
    web.reply_with(reply)
    with raises_load_error("DelegateUnavailable", f"http://{HOST}:{web.port} broke off its answer"):
        await for_site(web).load({"delegate": web.url()})


@pytest.mark.parametrize(
    "reply", [Hanging(b""), Hanging(answer()[:-1]), Endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n")], ids=str
)
async def test_a_response_without_an_end_fails_at_the_deadline(web: Site, reply: Reply) -> None:
    web.reply_with(reply)
    with raises_load_error("DelegateUnavailable", "did not send the delegate within 1 s"):
        await for_site(web, deadline_seconds=SOON_SECONDS).load({"delegate": web.url()})
    await web.client_closed.wait()


async def test_the_deadline_covers_name_lookups_and_all_redirects(web: Site) -> None:
    async def silent(host: str, port: int) -> Sequence[str]:
        return await asyncio.get_running_loop().create_future()

    with raises_load_error("DelegateUnavailable", "within 1 s"):
        await for_site(web, resolve=silent, deadline_seconds=SOON_SECONDS).load({"delegate": web.url()})
    web.reply_with(redirect("/next"), Hanging(b""))
    with raises_load_error("DelegateUnavailable", "within 1 s"):
        await for_site(web, deadline_seconds=SOON_SECONDS).load({"delegate": web.url()})
