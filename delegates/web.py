"""A definition from an http(s) URL: of a host that the settings name, at an address that was checked.

* A URL is parsed once, here, and the request goes exactly where the checks were made: each name is resolved once, every
  address it has must be allowed, and the connection goes to such an address. ``Host``, SNI and the certificate's name
  stay those of the URL, so a second answer of the name server (DNS rebinding) is never used.
* A redirect is another URL, with all checks again; ``MAX_REDIRECTS`` of them, never from https down to http.
* No proxy, cookie, password or ``.netrc`` of the environment is used: a proxy would resolve the name once more, without
  checks.
* The body is read as it is sent, at most ``MAX_BYTES``. A compressed one is refused: none was asked for, and a few
  kilobytes of it can be gigabytes.
* One deadline covers everything, so a slow server cannot hold the activity.
* There is no cache: each load asks the server.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx2

from acts.language.errors import format_choices
from acts.language.wire import DELEGATE_INVALID, DELEGATE_NOT_FOUND, DELEGATE_REFUSED, DELEGATE_UNAVAILABLE
from delegates.load_errors import MAX_BYTES, load_error, quote, too_large
from delegates.public_addresses import why_not_public
from delegates.sources import HOSTS, PORTS, PRIVATE_HOSTS, DelegateSources, bracket_ipv6, host_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to addresses, best first; OSError when there are none."""

# Characters; servers commonly refuse longer URLs
MAX_URL: Final = 2000
MAX_REDIRECTS: Final = 3
# For everything. A definition is a small file: a server that needs longer would not finish within a minute either
DEADLINE_SECONDS: Final = 20.0
# Per address: with two of them, a dead one leaves time for the other
CONNECT_SECONDS: Final = 5.0
# Addresses of a name that are tried; each may cost CONNECT_SECONDS
MAX_ADDRESSES: Final = 4

_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f\\]")
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_GONE: Final = (404, 410)
# Beside 5xx: statuses of a server that may answer later
_TRY_LATER: Final = (408, 425, 429)
_SERVER_ERROR: Final = 500
_OK: Final = 200
# Hosts of raw files (GitHub's and GitLab's among them) send JSON as text/plain. A log-in page also answers with 200;
# only this header distinguishes its HTML from a definition
_CONTENT_TYPES: Final = re.compile(r"application/json|application/[\w.!#$&^-]+\+json|text/plain", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FetchRules:
    """What is fetched: its name in errors, and the settings that list its hosts.

    ``write`` takes the body in parts, of any type and size; None: it is a definition, which is checked and returned.
    """

    noun: str = "delegate"
    hosts: str = HOSTS
    private_hosts: str = PRIVATE_HOSTS
    write: Callable[[bytes], object] | None = None


DEFINITION: Final = FetchRules()


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """A URL that may be fetched. ``host`` and ``port`` are compared with the settings."""

    url: httpx2.URL
    host: str
    port: int

    @property
    def origin(self) -> str:
        """``scheme://host:port``, for errors: a path or a query may hold a secret."""
        return f"{self.url.scheme}://{bracket_ipv6(self.host)}:{self.port}"


async def fetch(
    url: str,
    sources: DelegateSources,
    *,
    resolve: Resolve,
    tls: ssl.SSLContext,
    deadline_seconds: float = DEADLINE_SECONDS,
    rules: FetchRules = DEFINITION,
) -> bytes:
    """The bytes that a URL leads to; none where ``rules.write`` takes them.

    Raises:
        ApplicationError: ``DelegateRefused``, ``DelegateNotFound``, ``DelegateTooLarge``,
            ``DelegateInvalid`` (a wrong content type), or ``DelegateUnavailable``.
    """
    target = check_url(url, sources, rules)
    try:
        async with asyncio.timeout(deadline_seconds):
            return await _follow_redirects(target, sources, resolve, tls, rules)
    except TimeoutError as error:
        text = f"{target.origin} did not send the {rules.noun} within {deadline_seconds:g} s"
        raise load_error(DELEGATE_UNAVAILABLE, text) from error


async def system_addresses(host: str, port: int) -> Sequence[str]:
    """The addresses that the system's resolver returns."""
    answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in answers))


async def _follow_redirects(
    target: FetchTarget, sources: DelegateSources, resolve: Resolve, tls: ssl.SSLContext, rules: FetchRules
) -> bytes:
    for _ in range(MAX_REDIRECTS + 1):
        result = await _request(target, sources, resolve, tls, rules)
        if isinstance(result, bytes):
            return result
        target = _check_redirect(target, result, sources, rules)
    raise load_error(DELEGATE_REFUSED, f"{target.origin}: more than {MAX_REDIRECTS} redirects, one after another")


# -- checks ------------------------------------------------------------------------


def check_url(url: str, sources: DelegateSources, rules: FetchRules = DEFINITION) -> FetchTarget:
    """The URL as a target.

    Raises:
        ApplicationError: ``DelegateRefused``, naming the fault and what is allowed.
    """
    if len(url) > MAX_URL:
        raise _refusal(f"the URL of a {rules.noun} has {len(url):,} characters; at most {MAX_URL:,} are allowed")
    if match := _FORBIDDEN.search(url):
        raise _refusal(f"the URL of a {rules.noun} has the character {match.group()!r}, which no URL may contain")
    try:
        parts = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise _refusal(f"the URL of a {rules.noun} cannot be read: {error}") from error
    if parts.scheme not in PORTS:
        raise _refusal(f"a {rules.noun}'s URL has the scheme {quote(parts.scheme)}; allowed: {format_choices(PORTS)}")
    if parts.userinfo:  # not repeated: it may be a password
        text = "has a user or a password before the host (user:password@…): leave it out"
        raise _refusal(f"the URL of a {rules.noun} {text}")
    target = FetchTarget(parts, host_of(parts), PORTS[parts.scheme] if parts.port is None else parts.port)
    if not target.host:
        raise _refusal(f"the URL of a {rules.noun} has no host: {quote(url)}")
    if not sources.allows(parts.scheme, target.host, target.port):
        hosts = format_choices(sources.format_hosts())
        raise _refusal(f"{rules.noun}s are not fetched from {target.origin}; {rules.hosts} allows: {hosts}")
    return target


def _check_redirect(target: FetchTarget, location: str, sources: DelegateSources, rules: FetchRules) -> FetchTarget:
    """The target of a redirect, with the checks of any URL."""
    try:
        following = check_url(str(target.url.join(location)), sources, rules)
    except (httpx2.InvalidURL, ValueError) as error:
        raise _refusal(f"{target.origin} redirects to something that is no URL") from error
    if target.url.scheme == "https" and following.url.scheme == "http":
        raise _refusal(f"{target.origin} redirects to {following.origin}: from https to http is not followed")
    return following


async def _resolve_addresses(
    target: FetchTarget, sources: DelegateSources, resolve: Resolve, rules: FetchRules
) -> list[str]:
    """The addresses of a target; one that is not allowed refuses all of them."""
    try:
        addresses = list(await resolve(target.host, target.port))
    except (OSError, UnicodeError) as error:
        raise load_error(DELEGATE_UNAVAILABLE, f"the host of {target.origin} cannot be resolved: {error}") from error
    if not addresses:
        raise load_error(DELEGATE_UNAVAILABLE, f"the host of {target.origin} has no address")
    if sources.allows_private(target.host, target.port):
        return addresses[:MAX_ADDRESSES]
    for address in addresses:
        if kind := why_not_public(address):
            host = f"{bracket_ipv6(target.host)}:{target.port}"
            raise _refusal(
                f"{target.origin} is at {address}, which is not a public address ({kind}); "
                f"for a server of your own, list {host} in {rules.private_hosts}"
            )
    return addresses[:MAX_ADDRESSES]


def _refusal(text: str) -> Exception:
    return load_error(DELEGATE_REFUSED, text)


# -- one request -------------------------------------------------------------------


async def _request(
    target: FetchTarget, sources: DelegateSources, resolve: Resolve, tls: ssl.SSLContext, rules: FetchRules
) -> bytes | str:
    """The body, or the location of a redirect. Addresses are tried until one can be connected to."""
    last: Exception | None = None
    for address in await _resolve_addresses(target, sources, resolve, rules):
        try:
            return await _request_at(target, address, tls, rules)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if fault := _certificate_error(error):
                text = f"{target.origin}: its certificate is not accepted: {fault.verify_message or fault}"
                raise _refusal(text) from error
            last = error
        except (httpx2.HTTPError, OSError) as error:
            text = f"{target.origin} broke off its answer: {_describe(error)}"
            raise load_error(DELEGATE_UNAVAILABLE, text) from error
    text = f"{target.origin} cannot be reached: {_describe(last)}"
    raise load_error(DELEGATE_UNAVAILABLE, text) from last


async def _request_at(target: FetchTarget, address: str, tls: ssl.SSLContext, rules: FetchRules) -> bytes | str:
    """One request to one address. Each has a client of its own: another host must not get its connection."""
    headers = {
        "Host": target.url.netloc.decode("ascii"), "Accept": "application/json, text/plain;q=0.5",
        "Accept-Encoding": "identity", "User-Agent": "acts", "Connection": "close",
    }  # fmt: skip
    url = target.url.copy_with(host=address, fragment=None)
    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)  # the deadline of ``fetch`` limits the rest
    extensions: dict[str, Any] = {"sni_hostname": target.host}
    async with (
        httpx2.AsyncClient(verify=tls, trust_env=False, follow_redirects=False, timeout=timeout) as client,
        client.stream("GET", url, headers=headers, extensions=extensions) as response,
    ):
        location = response.headers.get("location")
        if response.status_code in _REDIRECTS and location is not None:
            return str(location)
        _check_status(target, response, rules.noun)
        if rules.write is not None:
            async for chunk in response.aiter_raw():
                rules.write(chunk)
            return b""
        _check_definition(target, response)
        return await _read_body(target, response.aiter_raw())


def _check_status(target: FetchTarget, response: httpx2.Response, noun: str) -> None:
    status = response.status_code
    if status != _OK:
        text = (
            f"{target.origin} answered {status}; a {'definition' if noun == DEFINITION.noun else noun} comes with 200"
        )
        if status in _GONE:
            raise load_error(DELEGATE_NOT_FOUND, text)
        may_recover = status in _TRY_LATER or status >= _SERVER_ERROR
        raise load_error(DELEGATE_UNAVAILABLE if may_recover else DELEGATE_REFUSED, text)
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        text = f"{target.origin} sent a body in the encoding {quote(encoding)}"
        raise _refusal(f"{text}; only identity, which was asked for, is accepted")


def _check_definition(target: FetchTarget, response: httpx2.Response) -> None:
    content = response.headers.get("content-type", "")
    if not _CONTENT_TYPES.fullmatch(content.partition(";")[0].strip()):
        actual = quote(content) if content else "nothing"
        text = f"{target.origin} sent the content type {actual}; allowed: application/json, …+json, text/plain"
        raise load_error(DELEGATE_INVALID, text)
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length) > MAX_BYTES:
        raise too_large(target.origin, f"{int(length):,}")


async def _read_body(target: FetchTarget, chunks: AsyncIterator[bytes]) -> bytes:
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > MAX_BYTES:
            raise too_large(target.origin, "more")
    return bytes(data)


def _describe(error: Exception | None) -> str:
    return str(error) or type(error).__name__


def _certificate_error(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """The certificate error that caused an error, if any."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error
        error = error.__cause__ or error.__context__
    return None
