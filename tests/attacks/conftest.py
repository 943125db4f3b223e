"""The engine's worker and a foreign user as the tests of workflows have them, and a look over the model's shoulder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.tree import Saved, Spy
from tests.workflow.agents import Agents
from tests.workflow.conftest import delegates_folder, engine, foreign, plain_client, sets_folder
from tests.workflow.foreign import Foreign

__all__ = ["delegates_folder", "engine", "foreign", "plain_client", "sets_folder"]


@pytest.fixture
def saved(delegates_folder: Path) -> Saved:
    return Saved(delegates_folder)


@pytest.fixture
def agents(foreign: Foreign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agents:
    monkeypatch.setenv("ACTS_SCRIPTS", str(tmp_path))
    return Agents(foreign, tmp_path)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spy]:
    """All that any model is shown while the test runs."""
    found = Spy()
    found.watch(monkeypatch)
    return found
