"""The server of the tests, which misbehaves as it is told."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from acts.activities import ask_model
from acts.activities.models import request_batches
from acts.activities.models.adapters import close_clients
from tests.models.rawserver import RawServer, raw_server
from tests.models.support import APIS, Api


@pytest.fixture(autouse=True)
async def clients(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """No test uses a key of the machine; no connection, and nothing learned of a model, outlives its test."""
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "OPENAI_", "ACTS_OPENAI", "ACTS_MODELS", "ACTS_KEEP")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(ask_model, "_pauses", {})
    monkeypatch.setattr(request_batches, "_batches", {})
    yield
    await close_clients()


@pytest.fixture
async def raw(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RawServer]:
    async with raw_server() as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        yield server


@pytest.fixture(params=APIS.values(), ids=APIS.keys())
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Api:
    selected: Api = request.param
    for name, value in selected.env.items():
        monkeypatch.setenv(name, value)
    return selected
