"""Fetches a set from a URL, under the rules of delegates' URLs (``delegates/web.py``) but for the size.

The body goes to a file as it comes; nothing of it is kept in memory.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from temporalio.exceptions import ApplicationError

from acts.language.wire import (
    DELEGATE_NOT_FOUND,
    DELEGATE_UNAVAILABLE,
    SET_NOT_FOUND,
    SET_REFUSED,
    SET_TOO_LARGE,
    SET_UNAVAILABLE,
)
from sets.set_errors import SetError
from sets.set_files import MAX_SPOOL_BYTES
from sets.set_sources import DATA_HOSTS, DATA_PRIVATE_HOSTS

if TYPE_CHECKING:
    from typing import BinaryIO

    from delegates.sources import DelegateSources
    from delegates.web import Resolve
    from sets.set_files import Download

# For all of it: 20 GiB at 12 MB/s
DEADLINE_SECONDS: Final = 1800.0
_TYPES: Final = {DELEGATE_NOT_FOUND: SET_NOT_FOUND, DELEGATE_UNAVAILABLE: SET_UNAVAILABLE}


def downloader(hosts: DelegateSources, resolve: Resolve | None = None) -> Download:
    """Writes what is at a URL of these hosts into a file. ``resolve`` is for tests."""

    def download(url: str, file: BinaryIO) -> None:
        from httpx2 import create_ssl_context  # takes a tenth of a second: imported when a URL is first fetched

        from delegates import web

        left = MAX_SPOOL_BYTES

        def write(chunk: bytes) -> None:
            nonlocal left
            left -= len(chunk)
            if left < 0:
                raise SetError(SET_TOO_LARGE, f"the set at a URL has more than {MAX_SPOOL_BYTES >> 30} GiB")
            file.write(chunk)

        rules = web.FetchRules("set", DATA_HOSTS, DATA_PRIVATE_HOSTS, write)
        tls = create_ssl_context()
        fetched = web.fetch(
            url, hosts, resolve=resolve or web.system_addresses, tls=tls, deadline_seconds=DEADLINE_SECONDS, rules=rules
        )
        try:
            asyncio.run(fetched)
        except ApplicationError as error:
            raise SetError(_TYPES.get(error.type or "", SET_REFUSED), error.message) from None

    return download
