"""A server with its Web UI, the engine's worker, and a person at a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli.dev.temporal_server import DevServer, dev_server
from tests.browser import webui
from tests.workflow.conftest import delegates_folder, engine, foreign, plain_client, sets_folder

__all__ = ["delegates_folder", "engine", "foreign", "plain_client", "sets_folder"]


@pytest.fixture(scope="session")
def server() -> Iterator[DevServer]:
    """In this folder, the server shows its Web UI."""
    with dev_server(ui=True) as running:
        yield running


@pytest.fixture(scope="session")
def person(server: DevServer) -> Iterator[webui.WebUI]:
    """One browser for all tests: it starts in seconds, and each test opens a run of its own."""
    assert server.ui_url is not None
    with webui.browser() as driver:
        yield webui.WebUI(driver, server.ui_url)
