"""The engine's worker and a foreign user as the tests of workflows have them, and a look over the model's shoulder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.tree import Spy
from tests.workflow.conftest import agents, delegates_folder, engine, foreign, plain_client, saved, sets_folder

__all__ = ["agents", "delegates_folder", "engine", "foreign", "plain_client", "saved", "sets_folder"]


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spy]:
    """All that any model is shown while the test runs."""
    found = Spy()
    found.watch(monkeypatch)
    return found
