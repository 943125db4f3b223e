"""A definition, or a set, from an http(s) URL: of a host that the settings name, at an address that is checked here.

* A URL is parsed once, and the request goes exactly where the checks were made: each name is resolved once, every
  address it has must be allowed, and the connection goes to such an address. ``Host``, SNI and the certificate's name
  stay those of the URL, so a second answer of the name server (DNS rebinding) is never used.
* The tables of addresses are IANA's registries of special-purpose addresses. ``ipaddress.is_global`` is not used: its
  answer depends on the patch version of Python.
* A redirect is another URL, with all checks again; ``MAX_REDIRECTS`` of them, never from https down to http.
* No proxy, cookie, password or ``.netrc`` of the environment is used: a proxy would resolve the name once more, without
  checks.
* The body is read as it is sent, at most ``MAX_BYTES``. A compressed one is refused: a few kilobytes of it can be
  gigabytes.
* One deadline covers everything, and there is no cache.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from types import MappingProxyType
from typing import Any, Final, TypeVar

import httpx2

from acts.delegates.definitions import MAX_BYTES, load_error, too_large
from acts.delegates.sources import HOSTS, PORTS, PRIVATE_HOSTS, DelegateSources, bracket_ipv6, host_of, quote
from acts.language.errors import format_choices
from acts.language.wire import DELEGATE_INVALID, DELEGATE_NOT_FOUND, DELEGATE_REFUSED, DELEGATE_UNAVAILABLE

# Clouds serve the credentials of a machine at 169.254.169.254, and Azure more at 168.63.129.16
_SPECIAL_4: Final = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 168.63.129.16/32 172.16.0.0/12 192.0.0.0/24"
    " 192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
)
_NOT_PUBLIC_4: Final = tuple(map(IPv4Network, _SPECIAL_4.split()))
# The only addresses assigned to hosts on the internet so far, and what of them is for other purposes
_PUBLIC_6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_6: Final = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
# A gateway turns these into the IPv4 address in their last 32 bits
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LAST_32_BITS: Final = 0xFFFF_FFFF


def is_public(address: str) -> bool:
    """True for an address of the internet. IPv4 inside IPv6 (mapped, NAT64) counts as the address it leads to."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        inner = ip_address(int(ip) & _LAST_32_BITS) if ip in _NAT64 else ip.ipv4_mapped
        if inner is None:
            return ip in _PUBLIC_6 and not any(ip in network for network in _NOT_PUBLIC_6)
        ip = inner
    return not any(ip in network for network in _NOT_PUBLIC_4)


# Host and port to addresses, best first; OSError when there are none
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
# Characters; servers commonly refuse longer URLs
MAX_URL: Final = 2000
MAX_REDIRECTS: Final = 3
# For everything. A definition is a small file: a server that needs longer would not finish within a minute either
DEADLINE_SECONDS: Final = 20.0
# Per address: with two of them, a dead one leaves time for the other
CONNECT_SECONDS: Final = 5.0
# Addresses of a name that are tried; each may cost CONNECT_SECONDS
MAX_ADDRESSES: Final = 4

_Answer = TypeVar("_Answer")
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f\\]")
REDIRECTS: Final = (301, 302, 303, 307, 308)
_GONE: Final = (404, 410)
# Beside 5xx: statuses of a server that may answer later
TRY_LATER: Final = (408, 425, 429)
_OK, _SERVER_ERROR = 200, 500
# Hosts of raw files (GitHub's and GitLab's among them) send JSON as text/plain. A log-in page also answers with 200;
# only this header distinguishes its HTML from a definition
_CONTENT_TYPES: Final = re.compile(r"application/json|application/[\w.!#$&^-]+\+json|text/plain", re.IGNORECASE)


_refusal: Final = partial(load_error, DELEGATE_REFUSED)


def _port(url: httpx2.URL) -> int:
    return PORTS[url.scheme] if url.port is None else url.port


def origin_of(url: httpx2.URL) -> str:
    """``scheme://host:port``, for errors: a path or a query may hold a secret."""
    return f"{url.scheme}://{bracket_ipv6(host_of(url))}:{_port(url)}"


@asynccontextmanager
async def open_response(
    target: httpx2.URL, address: str, tls: ssl.SSLContext, method: str = "GET",
    headers: Mapping[str, str] = MappingProxyType({}), content: bytes | None = None,
) -> AsyncIterator[httpx2.Response]:  # fmt: skip
    """One request to one address. Each has a client of its own: another host must not get its connection."""
    own = {
        "Host": target.netloc.decode("ascii"), "Accept-Encoding": "identity", "Connection": "close",
        **({} if any(name.lower() == "user-agent" for name in headers) else {"User-Agent": "acts"}),
    }  # fmt: skip
    url = target.copy_with(host=address, fragment=None)
    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)  # the deadline of the caller limits the rest
    extensions: dict[str, Any] = {"sni_hostname": host_of(target)}
    async with (
        httpx2.AsyncClient(verify=tls, trust_env=False, follow_redirects=False, timeout=timeout) as client,
        client.stream(method, url, headers={**headers, **own}, content=content, extensions=extensions) as response,
    ):
        yield response


@dataclass(frozen=True)
class Fetcher:
    """Fetches from ``sources``; ``hosts`` and ``private_hosts`` are the settings that name them.

    ``write`` takes a body in parts; None: it is a definition, checked and returned. ``resolve`` and ``tls`` are
    for tests.
    """

    sources: DelegateSources
    noun: str = "delegate"
    hosts: str = HOSTS
    private_hosts: str = PRIVATE_HOSTS
    write: Callable[[bytes], object] | None = None
    resolve: Resolve | None = None
    tls: ssl.SSLContext | None = None
    deadline_seconds: float = DEADLINE_SECONDS

    async def fetch(self, url: str) -> bytes:
        """The bytes that a URL leads to; none where ``write`` takes them."""
        target = self.check_url(url)
        # Reads all certificates of the system
        tls = self.tls if self.tls is not None else await asyncio.to_thread(httpx2.create_ssl_context)
        try:
            async with asyncio.timeout(self.deadline_seconds):
                for _ in range(MAX_REDIRECTS + 1):
                    result = await self.request(target, tls)
                    if isinstance(result, bytes):
                        return result
                    target = self.check_following(target, result)
        except TimeoutError as error:
            text = f"{origin_of(target)} did not send the {self.noun} within {self.deadline_seconds:g} s"
            raise load_error(DELEGATE_UNAVAILABLE, text) from error
        raise _refusal(f"{origin_of(target)}: more than {MAX_REDIRECTS} redirects, one after another")

    def check_following(self, target: httpx2.URL, location: str) -> httpx2.URL:
        """Where a target redirects to; raises ``DelegateRefused``."""
        try:
            following = self.check_url(str(target.join(location)))
        except (httpx2.InvalidURL, ValueError) as error:
            raise _refusal(f"{origin_of(target)} redirects to something that is no URL") from error
        if target.scheme == "https" and following.scheme == "http":
            text = f"{origin_of(target)} redirects to {origin_of(following)}"
            raise _refusal(f"{text}: from https to http is not followed")
        return following

    def check_url(self, url: str) -> httpx2.URL:
        """The URL as a target; ``DelegateRefused`` names the fault and what is allowed."""
        noun = self.noun
        if len(url) > MAX_URL:
            raise _refusal(f"the URL of a {noun} has {len(url):,} characters; at most {MAX_URL:,} are allowed")
        if match := _FORBIDDEN.search(url):
            raise _refusal(f"the URL of a {noun} has the character {match.group()!r}, which no URL may contain")
        try:
            parts = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise _refusal(f"the URL of a {noun} cannot be read: {error}") from error
        if parts.scheme not in PORTS:
            raise _refusal(f"a {noun}'s URL has the scheme {quote(parts.scheme)}; allowed: {format_choices(PORTS)}")
        if parts.userinfo:  # not repeated: it may be a password
            raise _refusal(f"the URL of a {noun} has a user or a password before the host: leave it out")
        if not host_of(parts):
            raise _refusal(f"the URL of a {noun} has no host: {quote(url)}")
        if not self.sources.allows(parts.scheme, host_of(parts), _port(parts)):
            allowed = self.sources.hosts | self.sources.private_hosts
            hosts = [bracket_ipv6(h) + ("" if port is None else f":{port}") for h, port in allowed]
            text = f"{noun}s are not fetched from {origin_of(parts)}; {self.hosts} allows: {format_choices(hosts)}"
            raise _refusal(text)
        return parts

    async def _resolve_addresses(self, target: httpx2.URL) -> list[str]:
        """The addresses of a target; one that is not allowed refuses all of them."""
        host, port = host_of(target), _port(target)
        try:
            if self.resolve is not None:
                addresses = list(await self.resolve(host, port))
            else:
                loop = asyncio.get_running_loop()
                answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                addresses = list(dict.fromkeys(str(address[0]) for *_, address in answers))
        except (OSError, UnicodeError) as error:
            text = f"the host of {origin_of(target)} cannot be resolved: {error}"
            raise load_error(DELEGATE_UNAVAILABLE, text) from error
        private = next((a for a in addresses if not is_public(a)), None)
        if private is not None and (host, port) not in self.sources.private_hosts:
            own = f"{bracket_ipv6(host)}:{port}"
            text = f"{origin_of(target)} is at {private}, which is not a public address"
            raise _refusal(f"{text}; for a server of your own, list {own} in {self.private_hosts}")
        return addresses[:MAX_ADDRESSES]

    async def request(self, target: httpx2.URL, tls: ssl.SSLContext) -> bytes | str:
        """The body, or the location of a redirect."""
        return await self.reach(target, partial(self._request_at, target, tls=tls))

    async def reach(self, target: httpx2.URL, ask: Callable[[str], Awaitable[_Answer]]) -> _Answer:
        """What ``ask`` returns of the first address of a target that can be connected to."""
        reason = "it has no address"
        for address in await self._resolve_addresses(target):
            try:
                return await ask(address)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                fault: BaseException | None = error
                while fault is not None and not isinstance(fault, ssl.SSLCertVerificationError):
                    fault = fault.__cause__ or fault.__context__
                if fault is not None:
                    text = f"{origin_of(target)}: its certificate is not accepted: {fault.verify_message or fault}"
                    raise _refusal(text) from error
                reason = str(error) or type(error).__name__
            except (httpx2.HTTPError, OSError) as error:
                text = f"{origin_of(target)} broke off its answer: {str(error) or type(error).__name__}"
                raise load_error(DELEGATE_UNAVAILABLE, text) from error
        raise load_error(DELEGATE_UNAVAILABLE, f"{origin_of(target)} cannot be reached: {reason}")

    async def _request_at(self, target: httpx2.URL, address: str, tls: ssl.SSLContext) -> bytes | str:
        accept = {"Accept": "application/json, text/plain;q=0.5"}
        async with open_response(target, address, tls, headers=accept) as response:
            location = response.headers.get("location")
            if response.status_code in REDIRECTS and location is not None:
                return str(location)
            return await self._read_body(target, response)

    async def _read_body(self, target: httpx2.URL, response: httpx2.Response) -> bytes:
        status = response.status_code
        if status != _OK:
            may_recover = status in TRY_LATER or status >= _SERVER_ERROR
            type_ = DELEGATE_UNAVAILABLE if may_recover else DELEGATE_REFUSED
            text = f"{origin_of(target)} answered {status}; a {self.noun} comes with 200"
            raise load_error(DELEGATE_NOT_FOUND if status in _GONE else type_, text)
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.strip().lower() not in ("", "identity"):
            text = f"{origin_of(target)} sent a body in the encoding {quote(encoding)}"
            raise _refusal(f"{text}; only identity, which was asked for, is accepted")
        content, write = response.headers.get("content-type", ""), self.write
        if write is None and not _CONTENT_TYPES.fullmatch(content.partition(";")[0].strip()):
            actual = quote(content) if content else "nothing"
            text = f"{origin_of(target)} sent the content type {actual}; allowed: application/json, …+json, text/plain"
            raise load_error(DELEGATE_INVALID, text)
        data = bytearray()
        async for chunk in response.aiter_raw():
            if write is not None:
                write(chunk)
                continue
            data += chunk
            if len(data) > MAX_BYTES:
                raise too_large(origin_of(target))
        return bytes(data)
