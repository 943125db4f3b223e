"""The Activities and Tools that this worker serves: loaded once at its start, from named places only.

* ``ACTS_ACTIVITIES``: Python modules, comma separated. Every ``@activity.defn`` in a module is served; its ``TOOLS``
  (name → schema), if it has any, are registered.
* entry points of the group ``acts.activities``: the same, for installed packages.
* ``ACTS_TOOLS``: folders, separated like ``PATH``. Each ``*.json`` is one schema with ``_tool``, or a map of name to
  schema.
* ``ACTS_MCP``: a file that names MCP servers; what they offer may change while the worker runs.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from temporalio import activity

from acts.activities.call_mcp_tool import call_activity
from acts.activities.mcp.mcp_config import VARIABLE, McpConfigError, read_config
from acts.activities.mcp.server_tools import activity_of
from acts.activities.mcp.servers import McpServers
from acts.activities.models.model_facts import highest_price
from acts.language.strict_json import json_size, read_json
from acts.language.tools import tool_name
from acts.language.wire import LIST_TOOLS, REGISTRY

# A link of the checkout leads here, where a project has no module of that name
_ENGINE: Final = Path(__file__).resolve().parents[1]
ENTRY_POINTS: Final = "acts.activities"
# Names of Tools that a run gets to list in its error when a Tool it asks for is missing
MAX_NAMES: Final = 1_000
# Bytes of all schemas in one list, half of what a payload may hold; beyond, they are left out, and null in the list
MAX_LISTED_BYTES: Final = 1024 * 1024


class RegistryError(Exception):
    """A module, folder or definition that the worker's settings name cannot be loaded."""


@dataclass(frozen=True)
class Registry:
    """``tools``: schemas by name; ``activities``: the functions, in the order of loading.

    ``servers`` are MCP servers, which have Tools besides. ``start`` and ``stop`` them around the work.
    """

    tools: dict[str, dict[str, Any]]
    activities: tuple[Callable[..., Any], ...]
    servers: McpServers = field(default_factory=lambda: McpServers(()))

    @property
    def server_activities(self) -> list[Callable[..., Any]]:
        """The Activities that call the tools of the MCP servers."""
        return [call_activity(name, self.servers) for name in self.servers.configs]

    @property
    def names(self) -> list[str]:
        """The names under which the activities are served."""
        return [activity_name(f) for f in (*self.activities, *self.server_activities)]

    def lookup(self) -> Callable[..., Any]:
        """The activity ``acts.registry``; its result is recorded in history.

        {"tools"?: [names], "activities"?: [names], "model"?: "provider:name", "otherModels"?: [names]}
        → {"tools": {name: schema | null}, "served": [names], "unavailable"?: {name: reason},
           "price"?: {"input", "output"} | null}

        ``served`` are those of ``activities`` that this worker has. ``price`` answers ``model``: US dollars per token,
        null where no price list has the model. Where a Tool is missing, ``tools`` also names the others,
        without their schemas; ``unavailable`` says why an MCP server does not offer it.
        """
        tools, served = self.tools, frozenset(self.names)

        @activity.defn(name=REGISTRY)
        async def look_up(request: dict[str, Any]) -> dict[str, Any]:
            names = request.get("tools", [])
            remote, unavailable = await self.servers.find_tools(n for n in names if n not in tools)
            schemas = {n: tools[n] for n in names if n in tools} | remote
            others = [] if len(schemas) == len(names) else sorted({*tools, *self.servers.tools})[:MAX_NAMES]
            result: dict[str, Any] = {
                "tools": {**dict.fromkeys(others), **schemas},
                "served": [n for n in request.get("activities", []) if n in served],
                **({"unavailable": unavailable} if unavailable else {}),
            }
            if "model" in request:
                models = (request["model"], *request.get("otherModels", ()))
                result["price"] = await asyncio.to_thread(highest_price, models)
            return result

        return look_up

    def tool_list(self, version: str, identity: str) -> Callable[..., Any]:
        """The activity ``acts.tools``, everything that one worker serves, for people who ask before they write a plan.

        {} → {version, worker, tools: {name: schema | null}, activities: [names]}
        """

        @activity.defn(name=LIST_TOOLS)
        async def list_tools(_request: dict[str, Any]) -> dict[str, Any]:
            tools: dict[str, Any] = {}
            room = MAX_LISTED_BYTES
            for name, schema in sorted({**self.servers.tools, **self.tools}.items()):
                room -= json_size(schema)
                tools[name] = schema if room >= 0 else None
            return {"version": version, "worker": identity, "tools": tools, "activities": sorted(self.names)}

        return list_tools


def activity_name(function: Callable[..., Any]) -> str:
    """The Temporal name of an activity function."""
    definition = getattr(function, "__temporal_activity_definition", None)
    return str(definition.name) if definition is not None and definition.name else function.__name__


def from_environment() -> Registry:
    """The registry that the environment and the installed packages describe.

    Raises:
        RegistryError: something they name cannot be loaded.
    """
    modules = [m.strip() for m in os.environ.get("ACTS_ACTIVITIES", "").split(",") if m.strip()]
    folders = [Path(p) for p in os.environ.get("ACTS_TOOLS", "").split(os.pathsep) if p]
    mcp = os.environ.get(VARIABLE)
    return load(modules, folders, Path(mcp) if mcp else None)


def load(modules: Sequence[str], tool_folders: Sequence[Path], mcp: Path | None = None) -> Registry:
    """Import the modules (and entry points), read the folders, and the file of MCP servers.

    Raises:
        RegistryError: naming the module or file, and the reason.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # users start the worker in the folder of their modules
    sources = [(name, _import_module(name)) for name in modules]
    sources += [(f"entry point {e.name}", e.load()) for e in entry_points(group=ENTRY_POINTS)]
    try:
        servers = McpServers(() if mcp is None else read_config(mcp))
    except McpConfigError as error:
        raise RegistryError(str(error)) from error
    tools: dict[str, dict[str, Any]] = {}
    functions: dict[str, Callable[..., Any]] = {}
    for source, module in sources:
        for function in _activities_of(module):
            if functions.setdefault(activity_name(function), function) is not function:
                text = f'two activities are called "{activity_name(function)}": one of them is in {source}'
                raise RegistryError(text)
        _add_tools(tools, getattr(module, "TOOLS", {}), source)
    for folder in tool_folders:
        tools.update(_read_folder(folder))
    if conflict := functions.keys() & map(activity_of, servers.configs):
        raise RegistryError(
            f'two activities are called "{conflict.pop()}": one is in a module, one calls an MCP server'
        )
    return Registry(tools, tuple(functions.values()), servers)


def _import_module(name: str) -> Any:
    try:
        module = importlib.import_module(name)
    except Exception as error:
        text = f'"{name}" of ACTS_ACTIVITIES cannot be imported: {type(error).__name__}: {error}'
        raise RegistryError(text) from error
    file = getattr(module, "__file__", None)
    if file is not None and _ENGINE in Path(file).resolve().parents and not name.startswith("acts."):
        raise RegistryError(
            f'ACTS_ACTIVITIES names "{name}", which leads to the engine itself, {file}: it has no tools'
        )
    return module


def _activities_of(module: Any) -> Iterable[Callable[..., Any]]:
    """The activities in a module; an entry point may also be an activity itself."""
    members = [module, *(getattr(module, name) for name in dir(module))]
    return [m for m in members if callable(m) and hasattr(m, "__temporal_activity_definition")]


def _add_tools(tools: dict[str, dict[str, Any]], more: Any, source: str) -> None:
    if not isinstance(more, dict):
        raise RegistryError(f"TOOLS of {source} is a map of name to schema, not {type(more).__name__}")
    conflict = next((n for n in more if n in tools and tools[n] != more[n]), None)
    if conflict is not None:
        raise RegistryError(f'two tools are called "{conflict}": one of them is in {source}')
    tools.update(more)


def _read_folder(folder: Path) -> dict[str, dict[str, Any]]:
    if not folder.is_dir():
        raise RegistryError(f"ACTS_TOOLS names {folder}, which is not a folder")
    tools: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            content = read_json(file.read_bytes())
        except (OSError, ValueError) as error:
            raise RegistryError(f"{file} is not a readable JSON file: {error}") from error
        name = tool_name(content)
        schemas = {name: content} if name else content
        if not isinstance(schemas, dict) or not all(isinstance(v, dict) for v in schemas.values()):
            raise RegistryError(f"{file} holds neither a schema with _tool nor a map of name to schema")
        tools.update(schemas)
    return tools
