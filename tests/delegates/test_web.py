"""Definitions from URLs: which may be fetched, at which address, and through which redirects."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from acts.delegates.web import is_public
from tests.delegates.support import (
    DEFINITION,
    HOST,
    Names,
    Site,
    answer,
    for_site,
    loader,
    raises_load_error,
    redirect,
    site,
)


async def test_a_request_sends_only_the_necessary_headers_and_uses_no_proxy(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    web.reply_with(answer())
    await for_site(web).load({"delegate": web.url("/a%20b.json?v=2#here")})
    first, *headers = web.requests[0].strip().split("\r\n")
    assert first == "GET /a%20b.json?v=2 HTTP/1.1"
    assert sorted(line.lower() for line in headers) == [
        "accept-encoding: identity",
        "accept: application/json, text/plain;q=0.5",
        "connection: close",
        f"host: {HOST}:{web.port}",
        "user-agent: acts",
    ]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://other.test/d.json", ["from https://other.test:443", "ACTS_DELEGATE_HOSTS allows: good.test"]),
        ("https://good.test.evil.test/", ["from https://good.test.evil.test:443"]),
        ("https://good.test./", ["from https://good.test.:443"]),
        ("https://good.test:8443/", ["from https://good.test:8443"]),
        ("http://good.test:443/", ["from http://good.test:443"]),
        ("https://127.0.0.1/", ["from https://127.0.0.1:443"]),
        ("https://[::1]/", ["from https://[::1]:443"]),
        ("https://user:hunter2@good.test/", ["a user or a password before the host"]),
        ("https://good.test\\@evil.test/", ["the character '\\\\'"]),
        ("https://good.test/\r\nX: y", ["the character '\\r'"]),
        ("https://good.test:99999/", ["from https://good.test:99999"]),
        ("https://good.test:x/", ["cannot be read"]),
        ("http:", ["has no host"]),
        ("https://good.test/" + "x" * 2000, ["2,018 characters; at most 2,000"]),
        ("file:///etc/passwd", ["the scheme 'file'", "allowed: http, https"]),
        ("unix:/var/run/docker.sock", ["the scheme 'unix'"]),
        ("//good.test/d.json", ["is no name or path"]),
    ],
)
async def test_a_url_that_is_not_allowed_is_refused_before_any_name_lookup(url: str, words: list[str]) -> None:
    names = Names({})
    with raises_load_error("DelegateRefused", *words) as caught:
        await loader("good.test", names=names).load({"delegate": url})
    assert names.lookups == []
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("good.test", "https://good.test/d.json"),
        ("good.test", "http://good.test/d.json"),
        ("good.test", "HTTPS://GOOD.Test:443/d.json"),
        ("good.test:8443", "https://good.test:8443/d.json"),
        ("xn--80adxhks.xn--p1ai", "https://МОСКВА.рф/d.json"),
        ("2606:4700::1111:443", "https://[2606:4700:0:0:0:0:0:1111]/d.json"),
    ],
)
async def test_hosts_are_normalized_before_they_are_compared(host: str, url: str) -> None:
    bare = host.rpartition(":")[0] or host
    with raises_load_error(
        "DelegateRefused", "is at 10.0.0.1, which is not a public address"
    ):  # so the host was allowed
        await loader(host, names=Names({bare: ["10.0.0.1"]})).load({"delegate": url})


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.255.0.9", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
     "168.63.129.16", "100.64.0.1", "100.127.255.255", "0.0.0.0", "0.1.2.3", "192.0.0.8", "192.0.2.1",  # noqa: S104
     "192.88.99.1", "198.18.0.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "::", "::1",
     "::ffff:127.0.0.1", "::ffff:a00:1", "::ffff:0.0.0.0", "::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe",
     "64:ff9b:1::1", "2002:7f00:1::", "2001::1", "2001:db8::1", "3fff::1", "100::1", "fc00::1", "fd12:3456::1",
     "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "4000::1", "5f00::1", "nonsense"],
)  # fmt: skip
async def test_a_name_with_an_address_that_is_not_public_is_refused(address: str) -> None:
    names = Names({"good.test": [address]})
    with raises_load_error("DelegateRefused", f"is at {address}", "list good.test:443 in ACTS_DELEGATE_PRIVATE_HOSTS"):
        await loader("good.test", names=names).load({"delegate": "https://good.test/d.json"})


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0",
     "192.0.1.0", "223.255.255.255", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2606:4700::1111", "2001:200::1",
     "2a00:1450::1"],
)  # fmt: skip
def test_an_address_beside_the_reserved_ones_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("addresses", [["1.1.1.1", "10.0.0.1"], ["10.0.0.1", "1.1.1.1"], ["1.1.1.1"] * 9 + ["::1"]])
async def test_one_address_that_is_not_public_is_enough(addresses: Sequence[str]) -> None:
    with raises_load_error("DelegateRefused", "which is not a public address"):
        await loader("good.test", names=Names({"good.test": addresses})).load({"delegate": "https://good.test/"})


async def test_a_private_address_is_allowed_for_exactly_the_listed_host_and_port(web: Site) -> None:
    web.reply_with(answer())
    names = Names({HOST: ["127.0.0.1"], "other.test": ["127.0.0.1"]})
    own = loader(HOST, f"other.test:{web.port}", names=names, private=[f"{HOST}:{web.port}"])
    assert (await own.load({"delegate": web.url()}))["definition"] == DEFINITION
    with raises_load_error("DelegateRefused", "is at 127.0.0.1"):
        await own.load({"delegate": web.url(host="other.test")})
    with raises_load_error("DelegateRefused", "is at 127.0.0.1"):
        await own.load({"delegate": f"http://{HOST}/d.json"})
    assert len(web.requests) == 1


async def test_a_name_is_resolved_once_and_the_connection_goes_to_that_address(web: Site) -> None:
    """A name server that answers differently the second time (DNS rebinding) gets no second query."""

    class Rebinding(Names):
        async def __call__(self, host: str, port: int) -> Sequence[str]:
            await super().__call__(host, port)
            return ["127.0.0.1"] if self.lookups == [HOST] else ["10.0.0.1"]

    web.reply_with(answer())
    names = Rebinding()
    await for_site(web, names=names).load({"delegate": web.url()})
    assert names.lookups == [HOST]
    assert f"\r\nHost: {HOST}:{web.port}\r\n" in web.requests[0]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_and_the_source_stays_the_requested_url(web: Site, status: int) -> None:
    web.reply_with(redirect("../other.json?x#y", status), answer())
    result = await for_site(web).load({"delegate": web.url("/a/b.json")})
    assert result["source"] == web.url("/a/b.json")
    assert [head.split("\r\n")[0] for head in web.requests] == ["GET /a/b.json HTTP/1.1", "GET /other.json?x HTTP/1.1"]


async def test_the_host_of_a_redirect_is_resolved_and_checked_too(web: Site) -> None:
    async with site() as second:
        web.reply_with(redirect(second.url("/x", host="second.test")))
        second.reply_with(answer())
        names = Names({HOST: ["127.0.0.1"], "second.test": ["127.0.0.1"]})
        own = loader(names=names, private=[f"{HOST}:{web.port}", f"second.test:{second.port}"])
        assert (await own.load({"delegate": web.url()}))["definition"] == DEFINITION
        assert names.lookups == [HOST, "second.test"]


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("http://evil.test/", ["from http://evil.test:80"]),
        ("http://127.0.0.1:1/", ["from http://127.0.0.1:1"]),
        ("http://good.test/", ["http://good.test:80 is at 10.0.0.1"]),
        ("file:///etc/passwd", ["the scheme 'file'"]),
        ("http://good.test:x/", ["no URL"]),
        ("http://[/", ["from http://%5b:80"]),
        ("/d.json", ["more than 3 redirects"]),
        ("/" + "x" * 3000, ["characters; at most 2,000"]),
    ],
)
async def test_a_redirect_to_a_forbidden_url_is_refused(web: Site, to: str, words: list[str]) -> None:
    web.reply_with(*[redirect(to)] * 4)
    own = loader(
        "good.test", private=[f"{HOST}:{web.port}"], names=Names({HOST: ["127.0.0.1"], "good.test": ["10.0.0.1"]})
    )
    with raises_load_error("DelegateRefused", *words) as caught:
        await own.load({"delegate": web.url()})
    assert "hunter2" not in caught.value.message
