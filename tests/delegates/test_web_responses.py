"""Definitions from URLs: which responses are accepted, and how hostile servers end."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence
from hashlib import sha256

import pytest

from delegates.load_errors import MAX_BYTES
from tests.delegates.support import (
    BYTES,
    DEFINITION,
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
        (201, "DelegateRefused"), (204, "DelegateRefused"), (206, "DelegateRefused"), (304, "DelegateRefused"),
        (300, "DelegateRefused"), (400, "DelegateRefused"), (401, "DelegateRefused"), (403, "DelegateRefused"),
        (404, "DelegateNotFound"), (410, "DelegateNotFound"),
        (408, "DelegateUnavailable"), (425, "DelegateUnavailable"), (429, "DelegateUnavailable"),
        (500, "DelegateUnavailable"), (502, "DelegateUnavailable"), (503, "DelegateUnavailable"),
        (599, "DelegateUnavailable"),
    ],
)  # fmt: skip
async def test_only_200_is_a_success(web: Site, status: int, type_: str) -> None:
    web.reply_with(answer(status=status))
    with raises_load_error(type_, f"http://{HOST}:{web.port} answered {status}"):
        await for_site(web).load({"delegate": web.url()})


async def test_a_redirect_without_a_location_is_refused(web: Site) -> None:
    web.reply_with(answer(status=302))
    with raises_load_error("DelegateRefused", "answered 302"):
        await for_site(web).load({"delegate": web.url()})


@pytest.mark.parametrize(
    "kind",
    ["application/json", "APPLICATION/JSON; charset=utf-8", "application/vnd.acts.request+json", "text/plain",
     "text/plain;charset=iso-8859-1"],
)  # fmt: skip
async def test_json_and_plain_text_are_accepted(web: Site, kind: str) -> None:
    web.reply_with(answer(content_type=kind))
    assert (await for_site(web).load({"delegate": web.url()}))["definition"] == DEFINITION


@pytest.mark.parametrize(
    "kind",
    ["text/html", "text/html; charset=utf-8", "application/octet-stream", "text/json", "application/jsonx",
     "application/json, text/html", "json", ""],
)  # fmt: skip
async def test_any_other_content_type_is_refused(web: Site, kind: str) -> None:
    web.reply_with(answer(content_type=kind))
    with raises_load_error("DelegateInvalid", "the content type", kind or "nothing", "allowed: application/json"):
        await for_site(web).load({"delegate": web.url()})


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "deflate", "zstd", "identity, gzip"])
async def test_a_compressed_body_is_refused_without_being_unpacked(web: Site, encoding: str) -> None:
    web.reply_with(answer(gzip.compress(b" " * 50 * MAX_BYTES), content_encoding=encoding))
    with raises_load_error("DelegateRefused", f"in the encoding '{encoding}'"):
        await for_site(web).load({"delegate": web.url()})


async def test_the_encoding_identity_is_accepted(web: Site) -> None:
    web.reply_with(answer(content_encoding="identity"))
    assert (await for_site(web).load({"delegate": web.url()}))["definition"] == DEFINITION


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


CHUNKED = answer(b"", content_length="", transfer_encoding="chunked")
UNTIL_CLOSED = answer(b"", content_length="")


async def test_a_body_of_one_mebibyte_is_read(web: Site) -> None:
    web.reply_with(
        answer(BYTES.ljust(MAX_BYTES)), CHUNKED + chunk(BYTES.ljust(MAX_BYTES)) + b"0\r\n\r\n", UNTIL_CLOSED + BYTES
    )
    for _ in range(3):
        assert (await for_site(web).load({"delegate": web.url()}))["definition"] == DEFINITION


@pytest.mark.parametrize(
    ("reply", "size"),
    [
        (answer(BYTES.ljust(MAX_BYTES + 1)), "1,048,577"),
        (answer(b"", content_length="99999999999999"), "99,999,999,999,999"),
        (UNTIL_CLOSED + BYTES.ljust(MAX_BYTES + 1), "more"),
        (Endless(CHUNKED, chunk(b" " * 65_536)), "more"),
        (Endless(UNTIL_CLOSED, b" " * 65_536), "more"),
    ],
)
async def test_a_larger_body_is_too_large_even_if_it_is_endless(web: Site, reply: Reply, size: str) -> None:
    web.reply_with(reply)
    with raises_load_error("DelegateTooLarge", f"has {size} bytes; at most 1,048,576"):
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
        answer(content_length="-5"),
        answer(content_length="9" * 5000),
        answer(content_length="five"),
        CHUNKED + chunk(BYTES),
        CHUNKED + b"zz\r\n",
        answer(transfer_encoding="gzip, chunked"),
        answer(x="y" * 200_000),
        b"HTTP/1.1 200 X\r\n" + b"x: y\r\n" * 50_000,
    ],
)
async def test_a_response_that_breaks_off_or_is_not_http_is_retryable(web: Site, reply: bytes) -> None:
    web.reply_with(reply)
    with raises_load_error("DelegateUnavailable", f"http://{HOST}:{web.port} broke off its answer"):
        await for_site(web).load({"delegate": web.url()})


async def test_bytes_after_the_end_of_the_body_are_ignored(web: Site) -> None:
    web.reply_with(answer(BYTES + b"]]]", content_length=str(len(BYTES))))
    assert (await for_site(web).load({"delegate": web.url()}))["sha256"] == sha256(BYTES).hexdigest()


@pytest.mark.parametrize(
    "reply",
    [
        Hanging(b""),
        Hanging(answer()[:30]),
        Hanging(answer()[:-1]),
        Hanging(CHUNKED + chunk(BYTES)),
        Hanging(UNTIL_CLOSED + BYTES),
        Endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    ],
    ids=str,
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


async def test_an_invalid_definition_is_reported_with_its_url(web: Site) -> None:
    web.reply_with(answer(b'{"context": {}}'))
    with raises_load_error("DelegateInvalid", web.url(), "context is a list of Messages"):
        await for_site(web).load({"delegate": web.url()})
