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

from acts.language.config import Options, Strings, parse_seconds
from acts.language.errors import truncate
from acts.language.strict_json import read_json

VARIABLE: Final = "ACTS_MCP"
# What a client's configuration may hold is small; a device or a pipe is not read for ever
MAX_FILE_BYTES: Final = 1024 * 1024
# A server's name begins the names of its Tools, and Temporal stores "mcp.<name>" as the type of an Activity
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class McpConfigError(Exception):
    """The file of ``ACTS_MCP`` cannot be used: names the file, the server and the key."""


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
        raise McpConfigError(f"{VARIABLE} is set, but the MCP SDK is not installed: pip install mcp")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        content = read_json(data, unique_keys=True)
    except (OSError, ValueError) as error:
        raise McpConfigError(f"{VARIABLE} names {path}, which is not a readable JSON file: {error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise McpConfigError(f"{VARIABLE} names {path}, which has more than {MAX_FILE_BYTES:,} bytes")
    servers = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise McpConfigError(f'{path} has no object "mcpServers": {{"mcpServers": {{"<name>": {{"command": …}}}}}}')
    read = [_read_server(path, name, entry, environment) for name, entry in servers.items()]
    return tuple(server for server in read if not server.disabled)


def _read_server(path: Path, name: str, entry: Any, environment: Mapping[str, str]) -> McpServerConfig:
    at = f'{path}: the MCP server "{truncate(name, 80)}"'
    if not _NAME.fullmatch(name):
        raise McpConfigError(f"{at}: a name is 1 to 64 letters, digits, - and _, and begins with a letter or digit")
    if not isinstance(entry, dict):
        raise McpConfigError(f"{at} is not an object")
    try:
        return McpServerConfig.model_validate({**_expand(entry, environment), "name": name})
    except KeyError as error:
        raise McpConfigError(f"{at} uses ${{{error.args[0]}}}, which is not set in the environment") from None
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        texts = [f"{'.'.join(map(str, d['loc'])) or name}: {d['msg'].removeprefix('Value error, ')}" for d in details]
        raise McpConfigError(f"{at}: {'; '.join(texts[:10])}") from None


def _expand(value: Any, environment: Mapping[str, str]) -> Any:
    """The value with environment variables in its strings. Raises KeyError with the name of a missing one."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: _lookup(match, environment), value)
    if isinstance(value, list):
        return [_expand(item, environment) for item in value]
    if isinstance(value, dict):
        return {key: _expand(item, environment) for key, item in value.items()}
    return value


def _lookup(match: re.Match[str], environment: Mapping[str, str]) -> str:
    value = environment.get(match[1]) or match[2]
    if value is None:
        raise KeyError(match[1])
    return value
