"""A set from a URL: the rules of delegates' URLs, but for the size."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from acts.delegates.sources import DelegateSources
from acts.sets.set_files import SetError, SetSources, open_set
from tests.delegates.support import HOST, Site, answer, redirect

ROWS = b'{"id": 1, "text": "' + b"x" * 1000 + b'"}\n'


async def at_home(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def read(url: str, port: int, *, is_fresh: bool = True) -> bytes:
    hosts = DelegateSources((), frozenset({(HOST, None)}), frozenset({(HOST, port)}))
    with open_set(url, SetSources(hosts=hosts, resolve=at_home), is_fresh=is_fresh) as opened:
        assert opened.is_copy
        return opened.stream.read()


@pytest.fixture(autouse=True)
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


async def test_a_set_of_any_size_and_type_is_copied_once(web: Site) -> None:
    body = ROWS * 3000  # three times what a definition may have
    web.reply_with(answer(body, content_type="application/octet-stream"))
    url = web.url(path="/rows.jsonl?token=1")
    assert await asyncio.to_thread(read, url, web.port) == body
    assert await asyncio.to_thread(read, url, web.port, is_fresh=False) == body
    assert len(web.requests) == 1


@pytest.mark.parametrize(
    ("reply", "type_", "message"),
    [
        (answer(b"", 404), "SetNotFound", "answered 404; a set comes with 200"),
        (answer(b"", 503), "SetUnavailable", "answered 503"),
        (
            redirect("http://elsewhere.test/rows.jsonl"),
            "SetRefused",
            "sets are not fetched from http://elsewhere.test:80",
        ),
        (answer(ROWS, content_encoding="gzip"), "SetRefused", "only identity"),
    ],
)
async def test_what_is_no_set_is_an_error_of_the_set(web: Site, reply: bytes, type_: str, message: str) -> None:
    web.reply_with(reply)
    with pytest.raises(SetError, match=message) as error:
        await asyncio.to_thread(read, web.url(path="/rows.jsonl"), web.port)
    assert error.value.type == type_


async def test_a_url_of_another_host_or_of_a_private_address_is_refused(web: Site) -> None:
    with pytest.raises(SetError, match=r"ACTS_DATA_HOSTS allows: internal\.test"):
        await asyncio.to_thread(read, "https://other.test/rows.csv", web.port)
    with pytest.raises(SetError, match=r"list internal\.test:443 in ACTS_DATA_PRIVATE_HOSTS"):
        await asyncio.to_thread(read, f"https://{HOST}/rows.csv", web.port)
