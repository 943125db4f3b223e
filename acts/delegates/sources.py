"""The sources that definitions may come from: settings of the worker that no plan can change.

    ACTS_DELEGATES               folders with *.json definitions, separated like PATH
    ACTS_DELEGATE_HOSTS          hosts to fetch them from: "host" (port 443 of https,
                                 80 of http) or "host:port", comma separated
    ACTS_DELEGATE_PRIVATE_HOSTS  "host:port" to fetch them from although its addresses are
                                 not public; it need not be listed above as well

Hosts are compared as a whole, in lower case and in their ASCII form (IDNA). There are no wildcards.
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

# The definitions that ship with the engine; searched last, so that a folder may override one
SHIPPED: Final = Path(__file__).resolve().parent
PORTS: Final = {"http": 80, "https": 443}
_MAX_PORT: Final = 65_535
# Characters of more than a host with a port, and the empty text
_NOT_A_HOST: Final = re.compile(r"[\s/?#@\\*%]|^$")

Host = tuple[str, int | None]


class DelegateSourcesError(Exception):
    """A setting names no existing folder, or no valid host."""


@dataclass(frozen=True)
class DelegateSources:
    """``folders`` are searched before the shipped one. A host without a port stands for the port of the scheme."""

    folders: tuple[Path, ...] = ()
    hosts: frozenset[Host] = frozenset()
    private_hosts: frozenset[Host] = frozenset()

    @property
    def all_folders(self) -> tuple[Path, ...]:
        """The folders in the order in which they are searched."""
        return (*self.folders, SHIPPED)

    def allows(self, scheme: str, host: str, port: int) -> bool:
        """True when definitions may be fetched from there."""
        return (
            (host, port) in self.hosts
            or (port == PORTS[scheme] and (host, None) in self.hosts)
            or self.allows_private(host, port)
        )

    def allows_private(self, host: str, port: int) -> bool:
        """True when its addresses need not be public."""
        return (host, port) in self.private_hosts

    def format_hosts(self) -> list[str]:
        """The hosts as text for an error."""
        hosts = self.hosts | self.private_hosts
        return [bracket_ipv6(host) if port is None else f"{bracket_ipv6(host)}:{port}" for host, port in hosts]


def read_folders(variable: str, text: str) -> tuple[Path, ...]:
    """The folders that a variable names, separated like PATH."""
    folders = tuple(Path(p) for p in text.split(os.pathsep) if p)
    for folder in folders:
        if not folder.is_dir():
            raise DelegateSourcesError(f"{variable} names {folder}, which is not a folder")
    return folders


def host_of(url: httpx2.URL) -> str:
    """The host of a URL, in the form in which hosts are compared."""
    text = url.raw_host.decode("ascii")
    try:
        return str(ip_address(text))  # one of the many ways to write an IPv6 address
    except ValueError:
        return text


def bracket_ipv6(host: str) -> str:
    """A host as a URL has it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def read_hosts(variable: str, text: str, *, needs_port: bool = False) -> frozenset[Host]:
    """The hosts that a variable of the environment lists.

    Raises:
        DelegateSourcesError: naming the variable, its value and what is allowed.
    """
    parts = (part.strip() for part in text.split(","))
    return frozenset(_parse_host(variable, part, needs_port=needs_port) for part in parts if part)


def _parse_host(variable: str, text: str, *, needs_port: bool) -> Host:
    import httpx2  # takes a tenth of a second: imported only where hosts are listed

    form = '"host:port"' if needs_port else '"host" or "host:port"'
    error = DelegateSourcesError(f"{variable} has {text!r}; it is a list of {form}, without scheme, path and wildcards")
    if _NOT_A_HOST.search(text):
        raise error
    try:
        url = httpx2.URL(f"host://{text}")  # a scheme without a default port, which would be dropped
    except httpx2.InvalidURL as cause:
        raise error from cause
    if not url.raw_host or (url.port is None if needs_port else text.endswith(":")):
        raise error
    if url.port is not None and not 0 < url.port <= _MAX_PORT:
        raise DelegateSourcesError(f"{variable} has {text!r}; a port is a number from 1 to {_MAX_PORT}")
    return host_of(url), url.port
