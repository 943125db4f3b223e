"""The file of ACTS_MCP: the form of other clients, and errors that name the server and the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acts.activities.mcp.server_tools import McpConfigError, McpServerConfig, read_config
from acts.activities.registry import RegistryError, load

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
    with pytest.raises(McpConfigError) as caught:
        read(tmp_path, content)
    assert reason in str(caught.value)
    assert "mcp.json" in str(caught.value)


def test_a_registry_serves_one_activity_per_server(tmp_path: Path) -> None:
    read(tmp_path, {"mcpServers": {"time": {"command": "x"}, "git": {"command": "y"}}})
    assert load([], [], tmp_path / "mcp.json").names == ["mcp.time", "mcp.git"]
    (tmp_path / "mcp.json").write_text("{}")
    with pytest.raises(RegistryError):
        load([], [], tmp_path / "mcp.json")
