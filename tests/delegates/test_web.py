"""Definitions from URLs: which may be fetched, at which address, and through which redirects."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from hashlib import sha256

import pytest

from delegates.public_addresses import why_not_public
from tests.delegates.support import (
    BYTES,
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

# -- URLs -------------------------------------------------------------------


async def test_the_result_has_the_definition_the_hash_of_its_bytes_and_the_requested_url(web: Site) -> None:
    web.reply_with(answer(b"\n" + BYTES))
    url = web.url("/saved/composer.json?v=2#here")
    result = await for_site(web).load({"delegate": url})
    assert result == {"definition": DEFINITION, "sha256": sha256(b"\n" + BYTES).hexdigest(), "source": url}


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


async def test_there_is_no_cache(web: Site) -> None:
    web.reply_with(answer(), answer(b'{"context": []}'))
    own = for_site(web)
    assert (await own.load({"delegate": web.url()}))["definition"] == DEFINITION
    assert (await own.load({"delegate": web.url()}))["definition"] == {"context": []}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://other.test/d.json", ["from https://other.test:443", "ACTS_DELEGATE_HOSTS allows: good.test"]),
        ("https://good.test.evil.test/", ["from https://good.test.evil.test:443"]),
        ("https://evilgood.test/", ["from https://evilgood.test:443"]),
        ("https://good.test./", ["from https://good.test.:443"]),
        ("https://good.test:8443/", ["from https://good.test:8443"]),
        ("http://good.test:443/", ["from http://good.test:443"]),
        ("https://good%2etest/", ["from https://good%2etest:443"]),
        ("https://127.0.0.1/", ["from https://127.0.0.1:443"]),
        ("https://[::1]/", ["from https://[::1]:443"]),
        ("https://2130706433/", ["from https://2130706433:443"]),
        ("https://user:hunter2@good.test/", ["a user or a password before the host"]),
        ("https://good.test:x@evil.test/", ["a user or a password before the host"]),
        ("https://good.test\\@evil.test/", ["the character '\\\\'"]),
        ("https://good.test/\r\nX: y", ["the character '\\r'"]),
        ("https://good.test/a b", ["the character ' '"]),
        ("https://good.test/\0", ["the character '\\x00'"]),
        ("https://good.test:99999/", ["from https://good.test:99999"]),
        ("https://good.test:x/", ["cannot be read"]),
        ("https://[good.test]/", ["cannot be read"]),
        ("https:///d.json", ["has no host"]),
        ("https:good.test/d.json", ["has no host"]),
        ("http:", ["has no host"]),
        ("https://good.test/" + "x" * 2000, ["2,018 characters; at most 2,000"]),
        ("file:///etc/passwd", ["the scheme 'file'", "allowed: http, https"]),
        ("FILE:///etc/passwd", ["the scheme 'FILE'"]),
        ("ftp://good.test/d.json", ["the scheme 'ftp'"]),
        ("gopher://good.test/", ["the scheme 'gopher'"]),
        ("data:application/json,{}", ["the scheme 'data'"]),
        ("jar:http://good.test!/", ["the scheme 'jar'"]),
        ("unix:/var/run/docker.sock", ["the scheme 'unix'"]),
        ("//good.test/d.json", ["a / at its beginning"]),
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
        ("good.test:443", "https://good.test/d.json"),
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


# -- addresses ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.0.9", "loopback"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("169.254.169.254", "link-local"),
        ("168.63.129.16", "of the cloud itself"),
        ("100.64.0.1", "carrier-grade NAT"),
        ("100.127.255.255", "carrier-grade NAT"),
        ("0.0.0.0", "unspecified"),  # noqa: S104 - an address that is refused
        ("0.1.2.3", "unspecified"),
        ("192.0.0.8", "reserved"),
        ("192.0.2.1", "documentation"),
        ("192.88.99.1", "6to4"),
        ("198.18.0.1", "benchmarks"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.250", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "127.0.0.1 in IPv6, which is loopback"),
        ("::ffff:a00:1", "10.0.0.1 in IPv6, which is private"),
        ("::ffff:0.0.0.0", "unspecified"),
        ("::127.0.0.1", "reserved"),
        ("64:ff9b::10.0.0.1", "10.0.0.1 in IPv6, which is private"),
        ("64:ff9b::a9fe:a9fe", "169.254.169.254 in IPv6, which is link-local"),
        ("64:ff9b:1::1", "local NAT64"),
        ("2002:7f00:1::", "6to4"),
        ("2001::1", "Teredo"),
        ("2001:db8::1", "documentation"),
        ("3fff::1", "documentation"),
        ("100::1", "reserved"),
        ("fc00::1", "private"),
        ("fd12:3456::1", "private"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
        ("4000::1", "reserved"),
        ("5f00::1", "reserved"),
        ("nonsense", "no address"),
    ],
)
async def test_a_name_with_an_address_that_is_not_public_is_refused(address: str, kind: str) -> None:
    names = Names({"good.test": [address]})
    with raises_load_error(
        "DelegateRefused", f"is at {address}", kind, "list good.test:443 in ACTS_DELEGATE_PRIVATE_HOSTS"
    ):
        await loader("good.test", names=names).load({"delegate": "https://good.test/d.json"})


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0",
     "192.0.1.0", "223.255.255.255", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2606:4700::1111", "2001:200::1",
     "2a00:1450::1"],
)  # fmt: skip
def test_an_address_beside_the_reserved_ones_is_public(address: str) -> None:
    assert why_not_public(address) is None


@pytest.mark.parametrize("addresses", [["1.1.1.1", "10.0.0.1"], ["10.0.0.1", "1.1.1.1"], ["1.1.1.1"] * 9 + ["::1"]])
async def test_one_address_that_is_not_public_is_enough(addresses: Sequence[str]) -> None:
    with raises_load_error("DelegateRefused", "which is not a public address"):
        await loader("good.test", names=Names({"good.test": addresses})).load({"delegate": "https://good.test/"})


async def test_a_private_address_is_allowed_for_exactly_the_listed_host_and_port(web: Site) -> None:
    web.reply_with(answer())
    names = Names({HOST: ["127.0.0.1"], "other.test": ["127.0.0.1"]})
    own = loader(HOST, f"other.test:{web.port}", names=names, private=[f"{HOST}:{web.port}"])
    assert (await own.load({"delegate": web.url()}))["definition"] == DEFINITION
    with raises_load_error("DelegateRefused", "loopback"):
        await own.load({"delegate": web.url(host="other.test")})
    with raises_load_error("DelegateRefused", "loopback"):
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


async def test_the_next_address_is_tried_when_one_does_not_answer(web: Site) -> None:
    web.reply_with(answer())
    names = Names({HOST: ["127.0.0.2", "127.0.0.1"]})
    assert (await for_site(web, names=names).load({"delegate": web.url()}))["definition"] == DEFINITION


async def test_the_default_is_the_systems_resolver(web: Site) -> None:
    web.reply_with(answer())
    own = loader(private=[f"localhost:{web.port}"], resolve=None)
    assert (await own.load({"delegate": web.url(host="localhost")}))["definition"] == DEFINITION
    with raises_load_error("DelegateRefused", "loopback"):
        await loader("localhost:1", resolve=None).load({"delegate": "http://localhost:1/"})


@pytest.mark.parametrize("error", [socket.gaierror(-2, "Name or service not known"), TimeoutError("too slow")])
async def test_a_name_that_cannot_be_resolved_is_retryable(error: Exception) -> None:
    async def broken(host: str, port: int) -> Sequence[str]:
        raise error

    with raises_load_error("DelegateUnavailable", "https://good.test:443 cannot be resolved"):
        await loader("good.test", resolve=broken).load({"delegate": "https://good.test/"})
    with raises_load_error("DelegateUnavailable", "no address"):
        await loader("good.test", names=Names({"good.test": []})).load({"delegate": "https://good.test/"})


async def test_an_unreachable_server_is_retryable(web: Site) -> None:
    names = Names({HOST: ["127.0.0.2"]})
    with raises_load_error("DelegateUnavailable", f"http://{HOST}:{web.port} cannot be reached"):
        await for_site(web, names=names).load({"delegate": web.url()})


# -- redirects ------------------------------------------------------------------------


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
        ("//evil.test/", ["from http://evil.test:80"]),
        ("http://127.0.0.1:1/", ["from http://127.0.0.1:1"]),
        ("http://good.test/", ["http://good.test:80 is at 10.0.0.1", "private"]),
        ("file:///etc/passwd", ["the scheme 'file'"]),
        ("http://user:hunter2@good.test/", ["a user or a password before the host"]),
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


async def test_three_redirects_are_followed(web: Site) -> None:
    web.reply_with(*[redirect("/next")] * 3, answer())
    assert (await for_site(web).load({"delegate": web.url()}))["definition"] == DEFINITION
