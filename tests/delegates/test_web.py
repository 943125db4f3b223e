"""Definitions from URLs: which are asked at all, at which address, and which answers are taken."""

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
    redirect,
    refused,
    site,
)

# -- what is asked -------------------------------------------------------------------


async def test_a_definition_comes_with_the_hash_of_its_bytes_and_the_url_it_was_asked_for(web: Site) -> None:
    web.will(answer(b"\n" + BYTES))
    url = web.url("/saved/composer.json?v=2#here")
    found = await for_site(web).load({"delegate": url})
    assert found == {"definition": DEFINITION, "sha256": sha256(b"\n" + BYTES).hexdigest(), "source": url}


async def test_a_request_says_no_more_than_it_has_to(web: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    web.will(answer())
    await for_site(web).load({"delegate": web.url("/a%20b.json?v=2#here")})
    first, *headers = web.asked[0].strip().split("\r\n")
    assert first == "GET /a%20b.json?v=2 HTTP/1.1"
    assert sorted(line.lower() for line in headers) == [
        "accept-encoding: identity",
        "accept: application/json, text/plain;q=0.5",
        "connection: close",
        f"host: {HOST}:{web.port}",
        "user-agent: acts",
    ]


async def test_nothing_is_kept_so_what_has_changed_is_seen(web: Site) -> None:
    web.will(answer(), answer(b'{"context": []}'))
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
async def test_a_url_that_is_not_allowed_is_refused_before_any_name_is_looked_up(url: str, words: list[str]) -> None:
    names = Names({})
    with refused("DelegateRefused", *words) as caught:
        await loader("good.test", names=names).load({"delegate": url})
    assert names.asked == []
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
async def test_a_host_is_compared_in_one_form(host: str, url: str) -> None:
    bare = host.rpartition(":")[0] or host
    with refused("DelegateRefused", "is at 10.0.0.1, which is not a public address"):  # so it was allowed, and asked
        await loader(host, names=Names({bare: ["10.0.0.1"]})).load({"delegate": url})


# -- where it is asked ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "why"),
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
async def test_a_name_that_leads_to_an_address_that_is_not_public_is_refused(address: str, why: str) -> None:
    names = Names({"good.test": [address]})
    with refused("DelegateRefused", f"is at {address}", why, "list good.test:443 in ACTS_DELEGATE_PRIVATE_HOSTS"):
        await loader("good.test", names=names).load({"delegate": "https://good.test/d.json"})


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0",
     "192.0.1.0", "223.255.255.255", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2606:4700::1111", "2001:200::1",
     "2a00:1450::1"],
)  # fmt: skip
def test_an_address_beside_the_reserved_ones_is_public(address: str) -> None:
    assert why_not_public(address) is None


@pytest.mark.parametrize("found", [["1.1.1.1", "10.0.0.1"], ["10.0.0.1", "1.1.1.1"], ["1.1.1.1"] * 9 + ["::1"]])
async def test_one_bad_address_among_good_ones_is_enough(found: Sequence[str]) -> None:
    with refused("DelegateRefused", "which is not a public address"):
        await loader("good.test", names=Names({"good.test": found})).load({"delegate": "https://good.test/"})


async def test_a_private_address_is_allowed_for_exactly_the_host_and_port_that_are_listed(web: Site) -> None:
    web.will(answer())
    names = Names({HOST: ["127.0.0.1"], "other.test": ["127.0.0.1"]})
    own = loader(HOST, f"other.test:{web.port}", names=names, private=[f"{HOST}:{web.port}"])
    assert (await own.load({"delegate": web.url()}))["definition"] == DEFINITION
    with refused("DelegateRefused", "loopback"):
        await own.load({"delegate": web.url(host="other.test")})
    with refused("DelegateRefused", "loopback"):
        await own.load({"delegate": f"http://{HOST}/d.json"})
    assert len(web.asked) == 1


async def test_a_name_is_looked_up_once_and_the_connection_goes_where_it_led(web: Site) -> None:
    """A name server that answers differently the next time (DNS rebinding) is not asked a next time."""

    class Rebinding(Names):
        async def __call__(self, host: str, port: int) -> Sequence[str]:
            await super().__call__(host, port)
            return ["127.0.0.1"] if self.asked == [HOST] else ["10.0.0.1"]

    web.will(answer())
    names = Rebinding()
    await for_site(web, names=names).load({"delegate": web.url()})
    assert names.asked == [HOST]
    assert f"\r\nHost: {HOST}:{web.port}\r\n" in web.asked[0]


async def test_an_address_that_does_not_answer_leaves_its_turn_to_the_next(web: Site) -> None:
    web.will(answer())
    names = Names({HOST: ["127.0.0.2", "127.0.0.1"]})
    assert (await for_site(web, names=names).load({"delegate": web.url()}))["definition"] == DEFINITION


async def test_the_systems_resolver_is_asked_where_no_other_is_given(web: Site) -> None:
    web.will(answer())
    own = loader(private=[f"localhost:{web.port}"], resolve=None)
    assert (await own.load({"delegate": web.url(host="localhost")}))["definition"] == DEFINITION
    with refused("DelegateRefused", "loopback"):
        await loader("localhost:1", resolve=None).load({"delegate": "http://localhost:1/"})


@pytest.mark.parametrize("error", [socket.gaierror(-2, "Name or service not known"), TimeoutError("too slow")])
async def test_a_name_that_cannot_be_resolved_is_worth_another_attempt(error: Exception) -> None:
    async def broken(host: str, port: int) -> Sequence[str]:
        raise error

    with refused("DelegateUnavailable", "https://good.test:443 cannot be resolved"):
        await loader("good.test", resolve=broken).load({"delegate": "https://good.test/"})
    with refused("DelegateUnavailable", "no address"):
        await loader("good.test", names=Names({"good.test": []})).load({"delegate": "https://good.test/"})


async def test_a_server_that_is_not_there_is_worth_another_attempt(web: Site) -> None:
    names = Names({HOST: ["127.0.0.2"]})
    with refused("DelegateUnavailable", f"http://{HOST}:{web.port} cannot be reached"):
        await for_site(web, names=names).load({"delegate": web.url()})


# -- redirects ------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_and_the_source_stays_the_url_that_was_asked_for(web: Site, status: int) -> None:
    web.will(redirect("../other.json?x#y", status), answer())
    found = await for_site(web).load({"delegate": web.url("/a/b.json")})
    assert found["source"] == web.url("/a/b.json")
    assert [head.split("\r\n")[0] for head in web.asked] == ["GET /a/b.json HTTP/1.1", "GET /other.json?x HTTP/1.1"]


async def test_a_redirect_to_another_allowed_host_is_resolved_and_checked_by_itself(web: Site) -> None:
    async with site() as second:
        web.will(redirect(second.url("/x", host="second.test")))
        second.will(answer())
        names = Names({HOST: ["127.0.0.1"], "second.test": ["127.0.0.1"]})
        own = loader(names=names, private=[f"{HOST}:{web.port}", f"second.test:{second.port}"])
        assert (await own.load({"delegate": web.url()}))["definition"] == DEFINITION
        assert names.asked == [HOST, "second.test"]


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
async def test_a_redirect_to_where_nobody_may_go_is_refused(web: Site, to: str, words: list[str]) -> None:
    web.will(*[redirect(to)] * 4)
    own = loader(
        "good.test", private=[f"{HOST}:{web.port}"], names=Names({HOST: ["127.0.0.1"], "good.test": ["10.0.0.1"]})
    )
    with refused("DelegateRefused", *words) as caught:
        await own.load({"delegate": web.url()})
    assert "hunter2" not in caught.value.message


async def test_three_redirects_are_followed(web: Site) -> None:
    web.will(*[redirect("/next")] * 3, answer())
    assert (await for_site(web).load({"delegate": web.url()}))["definition"] == DEFINITION
