"""The sources that definitions may come from: settings of the worker that no plan can change; and how to open files.

A host without a port has the one of the scheme. A private host need not be among the others as well. Hosts are compared
as a whole, in lower case and in their ASCII form (IDNA). There are no wildcards.

Only regular files inside a folder are opened. Symbolic links are followed only inside it. The path without links is
then opened step by step, each step refusing a link: swapping one in between gains nothing. Errors are those of the
system; callers say what they mean.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acts.language.errors import SettingsError, truncate

if TYPE_CHECKING:
    import httpx2

FOLDERS: Final = "ACTS_DELEGATES"
HOSTS: Final = "ACTS_DELEGATE_HOSTS"
PRIVATE_HOSTS: Final = "ACTS_DELEGATE_PRIVATE_HOSTS"

# The definitions that ship with the engine; searched last, so that a folder may override one
SHIPPED: Final = Path(__file__).resolve().parent
PORTS: Final = {"http": 80, "https": 443}
_MAX_PORT: Final = 65_535
# Characters of more than a host with a port
_NOT_A_HOST: Final = re.compile(r"[\s/?#@\\*%]")
# Characters; no common file system has longer paths
MAX_NAME: Final = 1000
# Characters of a quoted value
MAX_QUOTE: Final = 200
# A part of a path does not exist, or is too long to exist
ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
DENIED: Final = (errno.EACCES, errno.EPERM, errno.ELOOP)
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# NONBLOCK: opening a pipe in place of the file must not block
FILE_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Host = tuple[str, int | None]


@dataclass(frozen=True)
class DelegateSources:
    """``folders`` are searched before the shipped one. A host without a port stands for the port of the scheme."""

    folders: tuple[Path, ...] = ()
    hosts: frozenset[Host] = frozenset()
    private_hosts: frozenset[Host] = frozenset()

    def allows(self, scheme: str, host: str, port: int) -> bool:
        """True when definitions may be fetched from there."""
        is_default = port == PORTS[scheme] and (host, None) in self.hosts
        return is_default or (host, port) in self.hosts | self.private_hosts


def read_folders(variable: str, text: str) -> tuple[Path, ...]:
    """The folders that a variable names, or SettingsError."""
    folders = tuple(Path(p) for p in text.split(os.pathsep) if p)
    for folder in folders:
        if not folder.is_dir():
            raise SettingsError(f"{variable} names {folder}, which is not a folder")
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
    """The hosts that a variable lists, or SettingsError."""
    hosts: set[Host] = set()
    for part in filter(None, map(str.strip, text.split(","))):
        import httpx2  # takes a tenth of a second: imported only where hosts are listed

        form = '"host:port"' if needs_port else '"host" or "host:port"'
        fault = f"{variable} has {part!r}; it is a list of {form}, without scheme, path and wildcards"
        try:
            url = httpx2.URL(f"host://{part}")  # a scheme without a default port, which would be dropped
        except httpx2.InvalidURL as cause:
            raise SettingsError(fault) from cause
        lacks_port = url.port is None if needs_port else part.endswith(":")
        if _NOT_A_HOST.search(part) or not url.raw_host or lacks_port:
            raise SettingsError(fault)
        if url.port is not None and not 0 < url.port <= _MAX_PORT:
            raise SettingsError(f"{variable} has {part!r}; a port is a number from 1 to {_MAX_PORT}")
        hosts.add((host_of(url), url.port))
    return frozenset(hosts)


def quote(text: object) -> str:
    """A value for a message: on one line, shortened, with control characters escaped."""
    return truncate(repr(text), MAX_QUOTE)


class IrregularFileError(Exception):
    """What is there is no regular file but a folder, a pipe, a device …"""


def resolve_below(folder: Path, name: str) -> tuple[str, tuple[str, ...]] | None:
    """The folder without links, and the steps from there to the file; None where they lead out of it."""
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, name))  # noqa: PTH118 - an absolute name stays one
    if path == root or os.path.commonpath([root, path]) != root:
        return None
    return root, Path(path).relative_to(root).parts


@contextmanager
def open_parent(root: str, steps: Sequence[str]) -> Iterator[int]:
    """A descriptor of the folder that has the file at the end of the steps; OSError where one has become a link."""
    folder = os.open(root, _FOLDER_FLAGS)
    try:
        for step in steps[:-1]:
            below = os.open(step, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def open_regular(root: str, steps: Sequence[str], flags: int = os.O_RDONLY) -> int:
    """A descriptor of the file at the end of the steps; IrregularFileError where it is no regular file, or OSError."""
    with open_parent(root, steps) as parent:
        # Checked before it is opened: opening a pipe or a device has effects
        check_regular(os.stat(steps[-1], dir_fd=parent, follow_symlinks=False).st_mode)
        return os.open(steps[-1], flags | FILE_FLAGS, dir_fd=parent)


def check_regular(mode: int) -> None:
    """Raise IrregularFileError unless this is the mode of a regular file."""
    if not stat.S_ISREG(mode):
        raise IrregularFileError("no regular file")
