"""What the tests of delegates may ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.delegates.support import Site, site


@pytest.fixture
async def web() -> AsyncIterator[Site]:
    async with site() as found:
        yield found
