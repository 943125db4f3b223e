"""The folders and hosts that sets may come from, and the folders that results may go to: settings of the worker.

    ACTS_DATA                folders with sets (JSON Lines or CSV, also .gz), separated like PATH
    ACTS_RESULTS             folders for results files, separated like PATH
    ACTS_DATA_HOSTS          hosts to fetch sets from: "host" or "host:port", comma separated
    ACTS_DATA_PRIVATE_HOSTS  "host:port" to fetch them from although its addresses are not public

No plan can change them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from delegates.sources import DelegateSources, DelegateSourcesError, read_hosts

DATA: Final = "ACTS_DATA"
RESULTS: Final = "ACTS_RESULTS"
DATA_HOSTS: Final = "ACTS_DATA_HOSTS"
DATA_PRIVATE_HOSTS: Final = "ACTS_DATA_PRIVATE_HOSTS"


class SetSourcesError(Exception):
    """A setting names no existing folder, or no valid host."""


@dataclass(frozen=True)
class SetSources:
    """Folders are searched in their order; ``hosts`` are compared like those of delegates."""

    data: tuple[Path, ...] = ()
    results: tuple[Path, ...] = ()
    hosts: DelegateSources = field(default_factory=DelegateSources)


def from_environment() -> SetSources:
    """The sources that the environment names.

    Raises:
        SetSourcesError: naming the variable, its value and what is allowed.
    """
    try:
        hosts = read_hosts(DATA_HOSTS), read_hosts(DATA_PRIVATE_HOSTS, needs_port=True)
    except DelegateSourcesError as error:
        raise SetSourcesError(str(error)) from error
    return SetSources(_read_folders(DATA), _read_folders(RESULTS), DelegateSources((), *hosts))


def _read_folders(variable: str) -> tuple[Path, ...]:
    folders = tuple(Path(p) for p in os.environ.get(variable, "").split(os.pathsep) if p)
    for folder in folders:
        if not folder.is_dir():
            raise SetSourcesError(f"{variable} names {folder}, which is not a folder")
    return folders
