"""Where definitions may come from: settings of the worker, and nothing that a plan can change.

    ACTS_DELEGATES               folders with *.json definitions, separated like PATH
    ACTS_DELEGATE_HOSTS          hosts that they may be fetched from: "host" (port 443 of https,
                                 80 of http) or "host:port", comma separated
    ACTS_DELEGATE_PRIVATE_HOSTS  "host:port" that may be fetched from although its addresses
                                 are not public; it need not be listed above as well

A host is compared whole, lower-cased and in its ASCII form (IDNA). There are no wildcards.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpx2

FOLDERS: Final = "ACTS_DELEGATES"
HOSTS: Final = "ACTS_DELEGATE_HOSTS"
PRIVATE_HOSTS: Final = "ACTS_DELEGATE_PRIVATE_HOSTS"

# The definitions that come with the engine; looked into last, so that a folder may have its own of the same name
SHIPPED: Final = Path(__file__).resolve().parent
PORTS: Final = {"http": 80, "https": 443}
_MAX_PORT: Final = 65_535
# Everything that would make it more than a host with a port, or less than one host
_NO_HOST: Final = re.compile(r"[\s/?#@\\*%]|^$")

Host = tuple[str, int | None]


class DelegateSourcesError(Exception):
    """A setting names a folder or a host that cannot be meant."""


@dataclass(frozen=True)
class DelegateSources:
    """``folders`` come before the shipped one. A host without a port means the port of the URL's scheme."""

    folders: tuple[Path, ...] = ()
    hosts: frozenset[Host] = frozenset()
    private_hosts: frozenset[Host] = frozenset()

    @property
    def all_folders(self) -> tuple[Path, ...]:
        """The folders in the order in which they are looked into."""
        return (*self.folders, SHIPPED)

    def allows(self, scheme: str, host: str, port: int) -> bool:
        """True when something may be fetched from there."""
        return (
            (host, port) in self.hosts
            or (port == PORTS[scheme] and (host, None) in self.hosts)
            or self.allows_private(host, port)
        )

    def allows_private(self, host: str, port: int) -> bool:
        """True when the addresses there need not be public."""
        return (host, port) in self.private_hosts

    def listed_hosts(self) -> list[str]:
        """The hosts as a person would write them."""
        both = self.hosts | self.private_hosts
        return [bracketed(host) if port is None else f"{bracketed(host)}:{port}" for host, port in both]


def from_environment() -> DelegateSources:
    """What the environment says.

    Raises:
        PlacesError: naming the variable, what it holds and what is allowed.
    """
    folders = tuple(Path(p) for p in os.environ.get(FOLDERS, "").split(os.pathsep) if p)
    for folder in folders:
        if not folder.is_dir():
            raise DelegateSourcesError(f"{FOLDERS} names {folder}, which is not a folder")
    return DelegateSources(folders, _hosts(HOSTS), _hosts(PRIVATE_HOSTS, with_port=True))


def host_of(url: httpx2.URL) -> str:
    """The host of a URL in the one form in which hosts are compared."""
    text = url.raw_host.decode("ascii")
    try:
        return str(ip_address(text))  # one of the many ways to write an IPv6 address
    except ValueError:
        return text


def bracketed(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def _hosts(variable: str, *, with_port: bool = False) -> frozenset[Host]:
    listed = (part.strip() for part in os.environ.get(variable, "").split(","))
    return frozenset(_host(variable, part, with_port=with_port) for part in listed if part)


def _host(variable: str, text: str, *, with_port: bool) -> Host:
    import httpx2  # takes a tenth of a second: only for those who have hosts

    form = '"host:port"' if with_port else '"host" or "host:port"'
    wrong = DelegateSourcesError(f"{variable} has {text!r}; it is a list of {form}, without scheme, path and wildcards")
    if _NO_HOST.search(text):
        raise wrong
    try:
        url = httpx2.URL(f"host://{text}")  # of no scheme, so that no port is a default and left out
    except httpx2.InvalidURL as error:
        raise wrong from error
    if not url.raw_host or (url.port is None if with_port else text.endswith(":")):
        raise wrong
    if url.port is not None and not 0 < url.port <= _MAX_PORT:
        raise DelegateSourcesError(f"{variable} has {text!r}; a port is a number from 1 to {_MAX_PORT}")
    return host_of(url), url.port
