"""Which Activities and Tools this worker has: loaded once, from named places only.

* ``ACTS_ACTIVITIES``: Python modules, comma separated. Every ``@activity.defn`` in a
  module is served; its ``TOOLS`` (name → schema), if it has one, is registered.
* entry points of the group ``acts.activities``: the same, for installed packages.
* ``ACTS_TOOLS``: folders, separated like ``PATH``. Each ``*.json`` is one schema with
  ``_tool``, or a map of name to schema.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity

from acts.language.tools import tool_name
from acts.language.wire import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ENTRY_POINTS: Final = "acts.activities"
# Names of Tools that a run is told of when one that it asked for is missing
MAX_NAMES: Final = 1_000


class RegistryError(Exception):
    """A module, folder or definition that the worker was told to load cannot be."""


@dataclass(frozen=True)
class Registry:
    """``tools``: schemas by name; ``activities``: the functions, in the order of loading."""

    tools: dict[str, dict[str, Any]]
    activities: tuple[Callable[..., Any], ...]

    @property
    def names(self) -> list[str]:
        """The names under which the activities are served."""
        return [activity_name(f) for f in self.activities]

    def lookup(self) -> Callable[..., Any]:
        """The activity that tells a run what there is; its answer is recorded in history."""
        tools, served = self.tools, frozenset(self.names)

        @activity.defn(name=REGISTRY)
        async def acts_registry(asked: dict[str, list[str]]) -> dict[str, Any]:
            found = {n: tools[n] for n in asked["tools"] if n in tools}
            # Where one is missing, the run fails, and says which there are
            others = [] if len(found) == len(asked["tools"]) else sorted(tools)[:MAX_NAMES]
            return {
                "tools": {**dict.fromkeys(others), **found},
                "served": [n for n in asked["activities"] if n in served],
            }

        return acts_registry


def activity_name(function: Callable[..., Any]) -> str:
    """The Temporal name of an activity function."""
    definition = getattr(function, "__temporal_activity_definition", None)
    return str(definition.name) if definition is not None and definition.name else function.__name__


def from_environment() -> Registry:
    """The registry that the environment and the installed packages describe.

    Raises:
        RegistryError: what was asked for cannot be loaded.
    """
    modules = [m.strip() for m in os.environ.get("ACTS_ACTIVITIES", "").split(",") if m.strip()]
    folders = [Path(p) for p in os.environ.get("ACTS_TOOLS", "").split(os.pathsep) if p]
    return load(modules, folders)


def load(modules: Sequence[str], tool_folders: Sequence[Path]) -> Registry:
    """Import the modules (and entry points) and read the folders.

    Raises:
        RegistryError: naming the module or file, and why.
    """
    tools: dict[str, dict[str, Any]] = {}
    functions: dict[str, Callable[..., Any]] = {}
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # a user's modules lie where the worker is started
    found = [_module(name) for name in modules]
    found += [(f"entry point {e.name}", e.load()) for e in entry_points(group=ENTRY_POINTS)]
    for name, module in found:
        for function in _activities(module):
            known = functions.setdefault(activity_name(function), function)
            if known is not function:
                raise RegistryError(f'two activities are called "{activity_name(function)}": one of them is in {name}')
        declared = getattr(module, "TOOLS", {})
        if not isinstance(declared, dict):
            raise RegistryError(f"TOOLS of {name} is a map of name to schema, not {type(declared).__name__}")
        twice = next((n for n in declared if n in tools and tools[n] != declared[n]), None)
        if twice is not None:
            raise RegistryError(f'two tools are called "{twice}": one of them is in {name}')
        tools.update(declared)
    for folder in tool_folders:
        tools.update(_folder(folder))
    return Registry(tools, tuple(functions.values()))


def _module(name: str) -> tuple[str, Any]:
    try:
        return name, importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise RegistryError(
            f'ACTS_ACTIVITIES names "{name}", but there is no module {error.name!r} to import'
        ) from error
    except Exception as error:
        raise RegistryError(f'"{name}" of ACTS_ACTIVITIES fails on import: {type(error).__name__}: {error}') from error


def _activities(module: Any) -> list[Callable[..., Any]]:
    if hasattr(module, "__temporal_activity_definition"):
        return [module]
    members = [getattr(module, n) for n in dir(module)]
    return [m for m in members if callable(m) and hasattr(m, "__temporal_activity_definition")]


def _folder(folder: Path) -> dict[str, dict[str, Any]]:
    if not folder.is_dir():
        raise RegistryError(f"ACTS_TOOLS names {folder}, which is not a folder")
    out: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RegistryError(f"{file} is not a readable JSON file: {error}") from error
        name = tool_name(content)
        found = {name: content} if name else content
        if not isinstance(found, dict) or not all(isinstance(v, dict) for v in found.values()):
            raise RegistryError(f"{file} holds neither a schema with _tool nor a map of name to schema")
        out.update(found)
    return out
