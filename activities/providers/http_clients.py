"""HTTP clients of the SDKs: one for each event loop and set of credentials.

A connection pool must not outlive its event loop. Clients are built by the adapters; here they are kept and closed.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

# Seconds between two pieces of an answer. A model may think for minutes without sending any; the timeout of the
# activity bounds the request as a whole.
READ_TIMEOUT: Final = 300.0
CONNECT_TIMEOUT: Final = 10.0

# The SDKs want a key; a server of one's own needs none
NO_KEY: Final = "none"

_CLIENTS: Final[weakref.WeakKeyDictionary[Any, dict[Any, Any]]] = weakref.WeakKeyDictionary()


def get_client(key: tuple[Any, ...], build: Callable[[], _T]) -> _T:
    """The client of the running event loop for ``key``, built on first use."""
    clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    if key not in clients:
        clients[key] = build()
    return clients[key]  # type: ignore[no-any-return]


async def close_clients() -> None:
    """Close the connections of the running event loop; the next request builds its client again."""
    for client in _CLIENTS.pop(asyncio.get_running_loop(), {}).values():
        await client.close()
