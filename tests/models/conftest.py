"""The servers of the tests: a raw one that misbehaves, and an independent fake that does not."""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from activities import cache_warming, rate_limiter
from activities.providers.http_clients import close_clients
from tests.models.rawserver import RawServer, raw_server

ROOT = Path(__file__).parents[2]
INSTALL = "npm install --no-save @copilotkit/aimock"


@pytest.fixture(autouse=True)
async def clients(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """No test uses a key of the machine; no connection, and nothing learned of a model, outlives its test."""
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "OPENAI_", "ACTS_OPENAI", "ACTS_MODELS", "ACTS_KEEP")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(rate_limiter, "_LIMITERS", weakref.WeakKeyDictionary())
    monkeypatch.setattr(cache_warming, "_PREFIXES", weakref.WeakKeyDictionary())
    yield
    await close_clients()


@pytest.fixture
async def raw(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RawServer]:
    async with raw_server() as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        yield server


def aimock_cli() -> Path | None:
    """The installed aimock, if any. Nothing is downloaded."""
    from aimock_pytest import AIMOCK_VERSION

    package = Path("@copilotkit", "aimock", "dist", "cli.js")
    cache = Path(os.environ.get("AIMOCK_CACHE_DIR", Path.home() / ".cache" / "aimock"))
    node = shutil.which("node")
    candidates = [
        Path(os.environ.get("AIMOCK_CLI_PATH", "")),
        ROOT / "node_modules" / package,
        cache / AIMOCK_VERSION / "package" / "dist" / "cli.js",
    ]
    if node is not None:
        candidates.append(Path(node).resolve().parents[1] / "lib" / "node_modules" / package)  # npm install --global
    return next((p for p in candidates if p.is_file()), None)


@pytest.fixture(scope="session")
def aimock_url_server() -> Iterator[object]:
    """aimock, which imitates both providers and shares no code with us; skips where it is not installed."""
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed; the fake aimock needs version 20 or newer")
    pytest.importorskip("aimock_pytest", reason="aimock-pytest is not installed")
    from aimock_pytest import AIMockServer, NodeManager

    cli = aimock_cli()
    if cli is None:
        pytest.skip(f"aimock is not installed; to run this: {INSTALL} (in the checkout), or set AIMOCK_CLI_PATH")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIMOCK_CLI_PATH", str(cli))
        server = AIMockServer(NodeManager())
        process = None
        try:
            server.start()
        except RuntimeError as error:
            pytest.skip(f"aimock does not start: {error}")
        process = server._proc
        yield server
        server.stop()
        if process is not None and process.stdout is not None:
            process.stdout.close()
