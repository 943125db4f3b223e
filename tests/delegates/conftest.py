"""The server of the tests of delegates."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.delegates.support import Site, site


@pytest.fixture
async def web() -> AsyncIterator[Site]:
    async with site() as server:
        yield server
