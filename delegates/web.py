"""A definition from an http(s) URL: of a host that the settings name, at an address that was checked.

Laws of this file:
- a URL is parsed once, here. What was checked is what is asked: each name is resolved one
  time, every address it has must be allowed, and the connection goes to such an address.
  ``Host``, SNI and the certificate's name stay those of the URL, so a second answer of the
  name server (DNS rebinding) is never asked for;
- a redirect is another URL, with all checks again; ``MAX_REDIRECTS`` of them, never from
  https down to http;
- no proxy, cookie, password or ``.netrc`` of the environment is used: a proxy would resolve
  the name once more, where nobody checks;
- the body is read as it is sent, ``MAX_BYTES`` at most. A compressed one is refused: none
  was asked for, and a few kilobytes of it can be gigabytes;
- one deadline for everything, so slow is as good as never;
- nothing is kept: each load asks the server, so a definition is never older than that.
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
from delegates.load_errors import MAX_BYTES, failed, shown, too_large
from delegates.public_addresses import why_not_public
from delegates.sources import HOSTS, PORTS, PRIVATE_HOSTS, DelegateSources, bracketed, host_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to addresses, best first; OSError when there are none."""

# Longer is no URL that servers agree to take
MAX_URL: Final = 2000
MAX_REDIRECTS: Final = 3
# A definition is a small file: whoever needs longer than this for all of it will not be done in a minute either
DEADLINE_SECONDS: Final = 20.0
# Per address: with two of them, a dead one leaves time for the other
CONNECT_SECONDS: Final = 5.0
# As many as a name has on any sane day; each may cost CONNECT_SECONDS
MAX_ADDRESSES: Final = 4

_ODD: Final = re.compile(r"[\x00-\x20\x7f\\]")
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_GONE: Final = (404, 410)
# Besides 5xx: what a server says that wants to be asked again
_LATER: Final = (408, 425, 429)
_SERVER_ERROR: Final = 500
_OK: Final = 200
# text/plain is what hosts of raw files (GitHub's and GitLab's among them) call JSON. HTML, which is what a
# log-in page answers with 200, is told from a definition by this header alone
_TYPES: Final = re.compile(r"application/json|application/[\w.!#$&^-]+\+json|text/plain", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """A URL that may be fetched. ``host`` and ``port`` are what is compared with the settings."""

    url: httpx2.URL
    host: str
    port: int

    @property
    def place(self) -> str:
        """``scheme://host:port``: what an error may repeat. A path or a query may hold a secret."""
        return f"{self.url.scheme}://{bracketed(self.host)}:{self.port}"


async def fetch(
    url: str,
    places: DelegateSources,
    *,
    resolve: Resolve,
    tls: ssl.SSLContext,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> bytes:
    """The bytes behind a URL.

    Raises:
        ApplicationError: ``DelegateRefused``, ``DelegateNotFound``, ``DelegateTooLarge``,
            ``DelegateInvalid`` (a wrong content type), or ``DelegateUnavailable``.
    """
    target = checked(url, places)
    try:
        async with asyncio.timeout(deadline_seconds):
            return await _followed(target, places, resolve, tls)
    except TimeoutError as error:
        text = f"{target.place} did not send the delegate within {deadline_seconds:g} s"
        raise failed(DELEGATE_UNAVAILABLE, text) from error


async def system_addresses(host: str, port: int) -> Sequence[str]:
    """What the system's resolver says."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def _followed(target: FetchTarget, places: DelegateSources, resolve: Resolve, tls: ssl.SSLContext) -> bytes:
    for _ in range(MAX_REDIRECTS + 1):
        found = await _asked(target, places, resolve, tls)
        if isinstance(found, bytes):
            return found
        target = _redirected(target, found, places)
    raise failed(DELEGATE_REFUSED, f"{target.place}: more than {MAX_REDIRECTS} redirects, one after another")


# -- what may be asked -------------------------------------------------------------


def checked(url: str, places: DelegateSources) -> FetchTarget:
    """The URL as a target.

    Raises:
        ApplicationError: ``DelegateRefused``, naming what is wrong and what is allowed.
    """
    if len(url) > MAX_URL:
        raise _refused(f"the URL of a delegate has {len(url):,} characters; at most {MAX_URL:,} are allowed")
    if odd := _ODD.search(url):
        raise _refused(f"the URL of a delegate holds the character {odd.group()!r}, which no URL has")
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise _refused(f"the URL of a delegate cannot be read: {error}") from error
    if parsed.scheme not in PORTS:
        raise _refused(f"a delegate's URL has the scheme {shown(parsed.scheme)}; allowed: {format_choices(PORTS)}")
    if parsed.userinfo:  # not repeated: it may be a password
        raise _refused("the URL of a delegate has a user or a password before the host (user:password@…): leave it out")
    target = FetchTarget(parsed, host_of(parsed), PORTS[parsed.scheme] if parsed.port is None else parsed.port)
    if not target.host:
        raise _refused(f"the URL of a delegate has no host: {shown(url)}")
    if not places.allows(parsed.scheme, target.host, target.port):
        allowed = format_choices(places.listed_hosts())
        raise _refused(f"delegates are not fetched from {target.place}; {HOSTS} allows: {allowed}")
    return target


def _redirected(target: FetchTarget, location: str, places: DelegateSources) -> FetchTarget:
    """Where a redirect leads, with the checks of any URL."""
    try:
        following = checked(str(target.url.join(location)), places)
    except (httpx2.InvalidURL, ValueError) as error:
        raise _refused(f"{target.place} redirects to what is no URL") from error
    if target.url.scheme == "https" and following.url.scheme == "http":
        raise _refused(f"{target.place} redirects to {following.place}: from https to http is not followed")
    return following


async def _addresses(target: FetchTarget, places: DelegateSources, resolve: Resolve) -> list[str]:
    """The addresses of a target: all of them allowed, or none is used."""
    try:
        found = list(await resolve(target.host, target.port))
    except (OSError, UnicodeError) as error:
        raise failed(DELEGATE_UNAVAILABLE, f"the host of {target.place} cannot be resolved: {error}") from error
    if not found:
        raise failed(DELEGATE_UNAVAILABLE, f"the host of {target.place} has no address")
    if places.allows_private(target.host, target.port):
        return found[:MAX_ADDRESSES]
    for address in found:
        if why := why_not_public(address):
            own = f"{bracketed(target.host)}:{target.port}"
            raise _refused(
                f"{target.place} is at {address}, which is not a public address ({why}); "
                f"for a server of your own, list {own} in {PRIVATE_HOSTS}"
            )
    return found[:MAX_ADDRESSES]


def _refused(text: str) -> Exception:
    return failed(DELEGATE_REFUSED, text)


# -- one request -------------------------------------------------------------------


async def _asked(target: FetchTarget, places: DelegateSources, resolve: Resolve, tls: ssl.SSLContext) -> bytes | str:
    """The body, or where a redirect leads."""
    lost: Exception | None = None
    for address in await _addresses(target, places, resolve):
        try:
            return await _asked_at(target, address, tls)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if bad := _certificate_error(error):
                text = f"{target.place}: its certificate is not accepted: {bad.verify_message or bad}"
                raise _refused(text) from error
            lost = error
        except (httpx2.HTTPError, OSError) as error:
            text = f"{target.place} did not answer to the end: {_said(error)}"
            raise failed(DELEGATE_UNAVAILABLE, text) from error
    text = f"{target.place} cannot be reached: {_said(lost)}"
    raise failed(DELEGATE_UNAVAILABLE, text) from lost


async def _asked_at(target: FetchTarget, address: str, tls: ssl.SSLContext) -> bytes | str:
    """Ask one address. A client is used once: another host must not get its connection."""
    headers = {
        "Host": target.url.netloc.decode("ascii"), "Accept": "application/json, text/plain;q=0.5",
        "Accept-Encoding": "identity", "User-Agent": "acts", "Connection": "close",
    }  # fmt: skip
    url = target.url.copy_with(host=address, fragment=None)
    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)  # the deadline of the whole is the other limit
    extensions: dict[str, Any] = {"sni_hostname": target.host}
    async with (
        httpx2.AsyncClient(verify=tls, trust_env=False, follow_redirects=False, timeout=timeout) as client,
        client.stream("GET", url, headers=headers, extensions=extensions) as response,
    ):
        location = response.headers.get("location")
        if response.status_code in _REDIRECTS and location is not None:
            return str(location)
        _check_head(target, response)
        return await _body(target, response.aiter_raw())


def _check_head(target: FetchTarget, response: httpx2.Response) -> None:
    status = response.status_code
    if status != _OK:
        text = f"{target.place} answered {status}; a definition comes with 200"
        if status in _GONE:
            raise failed(DELEGATE_NOT_FOUND, text)
        later = status in _LATER or status >= _SERVER_ERROR
        raise failed(DELEGATE_UNAVAILABLE if later else DELEGATE_REFUSED, text)
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        text = f"{target.place} sent a body in the encoding {shown(encoding)}; it was asked for identity, and only that"
        raise _refused(f"{text} is read")
    content = response.headers.get("content-type", "")
    if not _TYPES.fullmatch(content.partition(";")[0].strip()):
        found = shown(content) if content else "nothing"
        text = f"{target.place} sent the content type {found}; allowed: application/json, …+json, text/plain"
        raise failed(DELEGATE_INVALID, text)
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length) > MAX_BYTES:
        raise too_large(target.place, f"{int(length):,}")


async def _body(target: FetchTarget, chunks: AsyncIterator[bytes]) -> bytes:
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > MAX_BYTES:
            raise too_large(target.place, "more")
    return bytes(data)


def _said(error: Exception | None) -> str:
    return str(error) or type(error).__name__


def _certificate_error(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """The certificate's fault behind an error, if that is what it was."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error
        error = error.__cause__ or error.__context__
    return None
