"""The file that ``ACTS_MCP`` names: the MCP servers of a worker, in the form that MCP clients use.

    {"mcpServers": {"<name>": {"command": …, "args": […], "env": {…}, "cwd": …} or {"url": …, "headers": {…}},
                               "disabled"?: true, "acts"?: {…}}}

Keys of other clients are ignored; ``acts`` holds our own settings and is closed. ``${NAME}`` and ``${NAME:-default}``
in any string stand for environment variables. Nothing is started here, and the MCP SDK is not imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from acts.language.config import Options, Strings, parse_seconds, settings_text
from acts.language.errors import install_hint, truncate
from acts.language.strict_json import read_json

VARIABLE: Final = "ACTS_MCP"
# A server's name begins the names of its Tools, and Temporal stores "mcp.<name>" as the type of an Activity
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class McpConfigError(Exception):
    """The file of ``ACTS_MCP`` cannot be used: names the file, the server and the key."""


class McpCallError(Exception):
    """A Call of a server's tool has no answer. ``code`` is one of ``wire.py``; ``is_final``: it would fail again."""

    def __init__(self, code: str, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.code, self.message, self.is_final = code, message, is_final


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Hints(_Settings):
    """What a Tool does, said by the operator: these count before what the server says. None leaves it to the server."""

    readOnly: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    openWorld: bool | None = None


class ToolPolicy(_Settings):
    """Settings of one tool. ``approve`` says whether a person confirms each Call, before any other rule."""

    approve: bool | None = None
    hints: Hints = Hints()
    options: Options | None = None


class ServerPolicy(_Settings):
    """Our settings of one server (the key ``acts``).

    ``approve``: which Calls a person confirms: of tools that are ``destructive`` (default), of ``all``, of ``none``.
    ``only``: the tools to offer. ``options`` are the ``_options`` of all its tools. ``startTimeout`` is in seconds.
    """

    approve: Literal["destructive", "all", "none"] = "destructive"
    only: Strings | None = None
    options: Options = Options()
    tools: dict[str, ToolPolicy] = {}
    # npx and uvx download a server when it is started for the first time
    startTimeout: Annotated[float, BeforeValidator(parse_seconds)] = 60.0


class McpServerConfig(BaseModel):
    """One server: a ``command`` that speaks over its standard streams, or the ``url`` of a streamable HTTP endpoint."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    name: str
    type: str | None = None
    command: str | None = Field(default=None, min_length=1)
    args: Strings = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = Field(default=None, pattern=r"^https?://")
    headers: dict[str, str] = {}
    disabled: bool = False
    acts: ServerPolicy = ServerPolicy()

    @model_validator(mode="after")
    def _check_transport(self) -> McpServerConfig:
        if (self.command is None) == (self.url is None):
            raise ValueError('a server has either a "command" or a "url"')
        if self.type is not None and self.type.lower() not in ("stdio", "http", "streamable-http", "streamablehttp"):
            raise ValueError(f'the type {self.type!r} is not supported; use a "command", or a "url" of streamable HTTP')
        return self


def read_config(path: Path, environment: Mapping[str, str] = os.environ) -> tuple[McpServerConfig, ...]:
    """The servers of a file, without those that are disabled.

    Raises:
        McpConfigError: the file cannot be read, or says something that is not allowed, or the MCP SDK is missing.
    """
    if find_spec("mcp") is None:
        raise McpConfigError(f"{VARIABLE} is set, but the MCP SDK is not installed: {install_hint('mcp')}")
    try:
        content = read_json(path.read_bytes(), unique_keys=True)
    except (OSError, ValueError) as error:
        raise McpConfigError(f"{VARIABLE} names {path}, which is not a readable JSON file: {error}") from error
    servers = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise McpConfigError(f'{path} has no object "mcpServers": {{"mcpServers": {{"<name>": {{"command": …}}}}}}')
    read = [_read_server(path, name, entry, environment) for name, entry in servers.items()]
    return tuple(server for server in read if not server.disabled)


def _read_server(path: Path, name: str, entry: Any, environment: Mapping[str, str]) -> McpServerConfig:
    at = f'{path}: the MCP server "{truncate(name, 80)}"'
    if not _NAME.fullmatch(name) or not isinstance(entry, dict):
        raise McpConfigError(f"{at}: a name has 1 to 64 letters, digits, - and _, and its value is an object")
    try:
        return McpServerConfig.model_validate({**_expand(entry, environment), "name": name})
    except KeyError as error:
        raise McpConfigError(f"{at} uses ${{{error.args[0]}}}, which is not set in the environment") from None
    except ValidationError as error:
        raise McpConfigError(f"{at}: {settings_text(error)}") from None


def _expand(value: Any, environment: Mapping[str, str]) -> Any:
    """The value with environment variables in its strings. Raises KeyError with the name of a missing one."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda m: environment.get(m[1]) or (environment[m[1]] if m[2] is None else m[2]), value)
    if isinstance(value, list):
        return [_expand(item, environment) for item in value]
    if isinstance(value, dict):
        return {key: _expand(item, environment) for key, item in value.items()}
    return value
