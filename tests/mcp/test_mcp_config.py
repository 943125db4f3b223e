"""The file of ACTS_MCP: the form of other clients, and errors that name the server and the key."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from acts.activities.mcp.server_tools import McpServerConfig, read_answer, read_config
from acts.activities.mcp.servers import McpServers
from acts.activities.registry import load
from acts.language.errors import SettingsError
from acts.language.values import Json
from tests.mcp.conftest import SERVER, Hostile
from tests.support import assert_eventually, free_port

ENVIRONMENT = {"TOKEN": "t0", "EMPTY": ""}


def read(folder: Path, content: Any) -> tuple[McpServerConfig, ...]:
    file = folder / "mcp.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return read_config(file, ENVIRONMENT)


def one(folder: Path, **entry: Any) -> McpServerConfig:
    return read(folder, {"mcpServers": {"s": entry}})[0]


def test_it_is_the_file_of_other_clients(tmp_path: Path) -> None:
    local = {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}, "alwaysAllow": ["x"], "type": "stdio"}
    remote = {"type": "http", "url": "https://host/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    servers = read(tmp_path, {"mcpServers": {"a": local, "b": remote, "c": {"command": "x", "disabled": True}}, "x": 1})
    assert [(s.name, s.command, s.url) for s in servers] == [("a", "npx", None), ("b", None, "https://host/mcp")]
    assert servers[0].args == ("-y", "x")
    assert servers[1].headers == {"Authorization": "Bearer t0"}


@pytest.mark.parametrize(
    ("text", "value"),
    [("${TOKEN}", "t0"), ("a${TOKEN}b", "at0b"), ("${NONE:-c}", "c"), ("${EMPTY:-c}", "c"), ("$TOKEN", "$TOKEN")],
)
def test_variables_are_replaced(text: str, value: str, tmp_path: Path) -> None:
    assert one(tmp_path, command="x", args=[text], env={"A": text}).args == (value,)


WRONG: list[tuple[Any, str]] = [
    ("{", "not a readable JSON file"),
    ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', '"a"'),
    ([], "mcpServers"),
    ({"mcpServers": {"s": []}}, "its value is an object"),
    ({"mcpServers": {"s": {}}}, 'either a "command" or a "url"'),
    ({"mcpServers": {"s": {"url": "ftp://x"}}}, "url"),
    ({"mcpServers": {"s": {"type": "sse", "url": "http://x"}}}, "streamable-http"),
    ({"mcpServers": {"a.b": {"command": "x"}}}, "letters, digits"),
    ({"mcpServers": {"s": {"command": "${NONE}"}}}, "${NONE}, which is not set"),
    ({"mcpServers": {"s": {"command": "x", "acts": {"aprove": "all"}}}}, "acts.aprove"),
    ({"mcpServers": {"s": {"command": "x", "acts": {"options": {"timeout": "soon"}}}}}, "acts.options.timeout"),
    ({"mcpServers": {"s": {"command": "x", "acts": {"tools": {"t": {"approve": "no"}}}}}}, "acts.tools.t.approve"),
]


@pytest.mark.parametrize(("content", "reason"), WRONG)
def test_what_is_wrong_is_named(content: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, content)
    assert reason in str(caught.value)
    assert "mcp.json" in str(caught.value)


def test_a_registry_serves_one_activity_per_server(tmp_path: Path) -> None:
    read(tmp_path, {"mcpServers": {"time": {"command": "x"}, "git": {"command": "y"}}})
    assert load([], [], tmp_path / "mcp.json").names == ["mcp.time", "mcp.git"]
    (tmp_path / "mcp.json").write_text("{}")
    with pytest.raises(SettingsError):
        load([], [], tmp_path / "mcp.json")


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "annotations": {"priority": 1}}


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
BLOB = {"type": "resource", "resource": {"uri": "a:b", "blob": "aGk=", "mimeType": "image/png", "_meta": {"x": 1}}}
WORDS = {"type": "resource", "resource": {"uri": "a:c", "text": "hi"}}
LINK = {"type": "resource_link", "uri": "a:d", "name": "d", "icons": []}

CASES: list[tuple[str, dict[str, Any], Json]] = [
    ("one text", {"content": [text("hi")]}, "hi"),
    ("structure", {"content": [text("{}")], "structuredContent": {"a": 1}}, {"a": 1}),
    ("null is a structure", {"content": [text("x")], "structuredContent": None}, None),
    ("an image", {"content": [IMAGE]}, [IMAGE]),
    ("a mix", {"content": [text("a"), IMAGE]}, [{"type": "text", "text": "a"}, IMAGE]),
    ("a blob", {"content": [BLOB]}, [{"type": "resource", "uri": "a:b", "mimeType": "image/png", "data": "aGk="}]),
    ("a link", {"content": [LINK]}, [{"type": "resource_link", "uri": "a:d", "name": "d"}]),
]


@pytest.mark.parametrize(("answer", "value"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_an_answer_is_a_value(answer: dict[str, Any], value: Json) -> None:
    assert read_answer(answer) == (value, "")
    details, message = read_answer({**answer, "isError": True})
    assert details == value
    assert message.strip()


def test_a_failure_says_what_the_tool_says_and_no_more_than_fits() -> None:
    _, message = read_answer({"content": [text("no"), IMAGE, text("disk " * 10_000)], "isError": True})
    assert message.startswith("no\ndisk ")
    assert len(message) <= 10_000


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


@pytest.mark.long
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
