"""Servers behind a URL: the same rules as for those in a process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from acts.activities.mcp.server_tools import McpServerConfig
from acts.activities.mcp.servers import McpServers
from tests.mcp.conftest import SERVER, Hostile
from tests.support import assert_eventually, free_port


@contextmanager
def http_server(folder: Path, form: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, str(SERVER), str(folder), form, str(port)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def _was_called(hostile: Hostile, times: int) -> bool:
    return len(hostile.calls()) == times


async def test_calls_go_over_http_and_outlive_a_server_that_is_started_again(tmp_path: Path) -> None:
    form = "sse"
    port = free_port()
    entry = {"name": "h", "url": f"http://127.0.0.1:{port}/mcp", "headers": {"Authorization": "Bearer t0"}}
    servers = McpServers([McpServerConfig.model_validate(entry)])
    hostile = Hostile(tmp_path, servers)
    try:
        with http_server(tmp_path, form, port) as process:
            servers.start()
            assert await hostile.text("add", a=1, b=2) == "3"
            assert (tmp_path / "authorization").read_text() == "Bearer t0"
            assert hostile.calls()[-1]["meta"]["_id"] == "k"
            with pytest.raises(ApplicationError) as caught:
                await hostile.call("hang", seconds=0.5)
            assert caught.value.type == "timeout"
            assert await hostile.text("add", a=2, b=2) == "4"
            lost = asyncio.create_task(hostile.call("hang"))
            await assert_eventually(lambda: _was_called(hostile, 4))
            process.kill()
            with pytest.raises(ApplicationError) as caught:
                await lost
            assert not caught.value.non_retryable
        with http_server(tmp_path, form, port):
            assert await hostile.text("add", a=3, b=3) == "6"
    finally:
        await servers.stop()
