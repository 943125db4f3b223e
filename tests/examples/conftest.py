"""One worker with all examples, in a process of its own, for all that run them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from acts.cli.dev.temporal_server import DevServer
from tests.examples.running import ActsWorker, acts_worker


@pytest.fixture(scope="package")
def worker(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActsWorker]:
    with acts_worker(server, f"examples-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("examples")) as running:
        yield running
