"""The Tool ``http``: where it may go, what its answers mean, and when it is tried again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from acts.activities.http_request import MAX_PAUSE_SECONDS
from acts.activities.shipped_tools import http
from tests.delegates.support import Endless, Hanging, Site, answer, redirect, site

TEXT = "text/plain"


@pytest.fixture
async def shop(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    async with site() as running:
        monkeypatch.setenv("ACTS_HTTP_PRIVATE_HOSTS", f"127.0.0.1:{running.port}")
        yield running


async def ask(shop: Site, seconds: float = 60, **call: Any) -> Any:
    own = {"url": shop.url("/orders", "127.0.0.1"), "_id": "run/1:http", "_tool": "http"}
    attempt = ActivityEnvironment()
    attempt.info = replace(attempt.info, start_to_close_timeout=timedelta(seconds=seconds))
    return await attempt.run(http, own | call, {}, [])


async def refusal(shop: Site, **call: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        await ask(shop, **call)
    return caught.value


ANSWERS: list[tuple[bytes, dict[str, Any]]] = [
    (answer(b'{"a": [1]}'), {"status": 200, "json": {"a": [1]}}),
    (answer(b"[1]", 201, content_type="application/vnd.shop+json; charset=utf-8"), {"status": 201, "json": [1]}),
    (answer(b"", 204, content_type=""), {"status": 204}),
    (answer("ä".encode(), content_type=TEXT), {"status": 200, "text": "ä"}),
    (answer(b"{", content_type="application/json"), {"status": 200, "text": "{"}),
    (answer(b"\xff", content_type="image/png"), {"status": 200, "base64": "/w=="}),
]


@pytest.mark.parametrize(("reply", "result"), ANSWERS, ids=str)
async def test_an_answer_is_read_by_what_it_says_it_is(shop: Site, reply: bytes, result: dict[str, Any]) -> None:
    shop.reply_with(reply)
    given = await ask(shop)
    assert {k: v for k, v in given.items() if k != "headers"} == result


async def test_a_request_has_its_headers_query_body_and_key(shop: Site) -> None:
    shop.reply_with(answer(b"{}"))
    await ask(shop, method="POST", query={"q": "a b"}, json={"n": 1}, headers={"authorization": "Bearer x"})
    (sent,) = shop.requests
    assert sent.startswith(("POST /orders?q=a+b HTTP", "POST /orders?q=a%20b HTTP"))
    lines = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in sent.splitlines()}
    assert lines["idempotency-key"] == "run/1:http"
    assert (lines["authorization"], lines["content-type"], lines["content-length"]) == (
        "Bearer x", "application/json", "7",
    )  # fmt: skip


# status, the Retry-After that comes with it; whether it is tried again, and after how many seconds
STATUSES: list[tuple[int, str, bool, float | None]] = [
    (404, "", False, None), (400, "5", False, None), (408, "", True, None), (425, "", True, None),
    (429, "7", True, 7.0), (503, "999999999999", True, MAX_PAUSE_SECONDS), (500, "soon", True, None),
]  # fmt: skip


@pytest.mark.parametrize(("status", "after", "is_retried", "seconds"), STATUSES, ids=str)
async def test_what_fails_is_tried_again_as_its_status_says(
    shop: Site, status: int, after: str, is_retried: object, seconds: float | None
) -> None:
    shop.reply_with(answer(b'{"why": "no"}', status, retry_after=after))
    error = await refusal(shop)
    assert (error.type, error.non_retryable) == ("httpStatus", not is_retried)
    assert error.details == ({"status": status, "json": {"why": "no"}},)
    assert error.next_retry_delay == (None if seconds is None else timedelta(seconds=seconds))


async def test_a_server_that_does_not_answer_is_tried_again_whatever_the_timeout_of_its_tool(shop: Site) -> None:
    shop.reply_with(Hanging(b""))
    error = await refusal(shop, seconds=0.4)
    assert (error.type, error.non_retryable) == ("httpUnavailable", False)
    assert "within 0.2 s" in error.message


async def test_a_date_is_waited_for(shop: Site) -> None:
    shop.reply_with(answer(b"", 503, retry_after=format_datetime(datetime.now(UTC) + timedelta(seconds=90))))
    pause = (await refusal(shop)).next_retry_delay
    assert pause is not None
    assert 0 < pause.total_seconds() <= 90


async def test_a_redirect_is_followed_to_allowed_hosts_without_the_headers_of_the_call(
    shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site() as other:
        there = other.url("/x", "127.0.0.1")
        shop.reply_with(redirect(there), redirect(there), redirect(there, 307))
        assert (await refusal(shop)).type == "httpRefused"
        monkeypatch.setenv("ACTS_HTTP_PRIVATE_HOSTS", f"127.0.0.1:{shop.port}, 127.0.0.1:{other.port}")
        other.reply_with(answer(b"{}"))
        assert (await ask(shop, headers={"authorization": "secret"}))["json"] == {}
        assert "secret" in shop.requests[-1]
        assert "secret" not in other.requests[0]
        assert (await refusal(shop, method="POST")).details[0]["status"] == 307  # an effect is not moved


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"url": "http://169.254.169.254/latest"}, "ACTS_HTTP_HOSTS allows"),
    ({"url": "http://10.0.0.8/"}, "not fetched from"),
    ({"url": "file:///etc/passwd"}, "scheme"),
    ({"url": "http://user:pw@127.0.0.1/"}, "user or a password"),
    ({"headers": {"Host": "evil"}}, "leave it out"),
    ({"headers": {"x": "a\r\nb: c"}}, "no header may have"),
]


@pytest.mark.parametrize(("call", "word"), REFUSALS, ids=str)
async def test_what_may_not_be_sent_is_refused_once(shop: Site, call: dict[str, Any], word: str) -> None:
    error = await refusal(shop, **call)
    assert (error.type, error.non_retryable) == ("httpRefused", True)
    assert word in error.message
    assert not shop.requests


async def test_a_name_that_leads_to_a_private_address_is_refused(shop: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_HTTP_HOSTS", f"localhost:{shop.port}")
    error = await refusal(shop, url=f"http://localhost:{shop.port}/")
    assert "not a public address" in error.message


async def test_an_answer_without_end_is_cut_off_and_a_compressed_one_not_read(shop: Site) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
    shop.reply_with(Endless(head + b"\r\n", b"x" * 65_536), head + b"content-encoding: gzip\r\n\r\nxx")
    assert (await refusal(shop)).type == "httpTooLarge"
    assert (await refusal(shop)).type == "httpRefused"
