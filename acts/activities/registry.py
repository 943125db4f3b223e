"""The Activities and Tools that this worker serves: loaded once at its start, from named places only.

* ``ACTS_ACTIVITIES``: Python modules, comma separated. Every ``@acts.tool`` and ``@activity.defn`` in a module is
  served; so are its ``TOOLS`` (name → schema), if it has any.
* entry points of the group ``acts.activities``: the same, for installed packages.
* ``ACTS_TOOLS``: folders, separated like ``PATH``. Each ``*.json`` is one schema with ``_tool``, or a map of name to
  schema.
* ``ACTS_PLANS``: folders of plans, which runs are started with by name (``plan_folders.py``).
* ``ACTS_SHIPPED_TOOLS``: which of the Tools that ship with the engine (``shipped_tools.py``); all where it is not set.
* ``ACTS_MCP``: a file that names MCP servers; what they offer may change while the worker runs. The Activity of a
  server is ``mcp.<server>``, with the three arguments of any Activity; its Tool, as the run recorded it, says which of
  the server's tools is meant (``x-mcp``).

A worker's *version* is a digest of its Tools, plans and the names of its Activities; its identity begins with it.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import json
import os
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from acts.activities.engine_activities import encode_result, heartbeat, miss
from acts.activities.mcp.server_tools import VARIABLE, activity_of, read_answer, read_config
from acts.activities.mcp.servers import McpServers
from acts.activities.models.endpoints import highest_price, lacks_batches
from acts.activities.plan_folders import NamedPlan, find_plan, plan_tools, plans_from_environment
from acts.activities.shipped_tools import shipped_tools
from acts.language import wire
from acts.language.errors import SettingsError, format_choices, truncate
from acts.language.spelling import read_plain
from acts.language.strict_json import json_size, read_json
from acts.language.tools import SERVER_TOOL, TYPED_TOOL, read_tool, tool_name
from acts.sets.set_files import DATA, RESULTS
from acts.telemetry.failures import find_place

if TYPE_CHECKING:
    from temporalio.worker import ExecuteActivityInput

# A link of the checkout leads here, where a project has no module of that name
_ENGINE: Final = Path(__file__).resolve().parents[1]
# Names of Tools that a run gets to list in its error when a Tool it asks for is missing
MAX_NAMES: Final = 1_000
# Bytes of all schemas in one list, half of what a payload may hold; beyond, they are left out, and null in the list
MAX_LISTED_BYTES: Final = 1024 * 1024
# Of the time of an attempt, what is left to report that an MCP server did not answer
REPORT_SECONDS: Final = 0.5
# The key of the Call's _id by MCP's rules for names in _meta, and under its own name: for idempotency
ID_KEYS: Final = ("acts/id", "_id")
MAX_PROGRESS_TEXT: Final = 200


@dataclass(frozen=True)
class Registry:
    """``tools``: schemas by name; ``activities``: the functions, in the order of loading.

    ``servers`` are MCP servers, which have Tools besides. ``start`` and ``stop`` them around the work. ``undecorated``
    are functions of the modules that are no Tools, by name: what a Request that names one is told.
    """

    tools: dict[str, dict[str, Any]]
    activities: tuple[Callable[..., Any], ...]
    servers: McpServers = field(default_factory=lambda: McpServers(()))
    plans: Mapping[str, NamedPlan] = field(default_factory=dict)
    undecorated: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [*map(activity_name, self.activities), *map(activity_of, self.servers.configs)]

    @property
    def asks(self) -> list[str]:
        """What its Tools have a person confirm: Activities, and tools of MCP servers; all tools of a server that has
        not said yet which it has.
        """
        all_tools = {**self.servers.tools, **self.tools}
        tools = (read_tool(name, schema, served=name in self.names)[0] for name, schema in all_tools.items())
        asking = {tool.answer for tool in tools if tool is not None and tool.approval and tool.answer}
        return sorted(asking | set(map(activity_of, self.servers.unlisted)))

    @property
    def version(self) -> str:
        """Eight hex digits that differ where Tools, plans, or the names of Activities, differ."""
        plans = [{name: plan.sha256 for name, plan in self.plans.items()}] if self.plans else []
        content = json.dumps([self.tools, sorted(self.names), *plans], sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()[:8]

    @property
    def identity(self) -> str:
        """The name of this worker on the server and in the Web UI."""
        return f"acts/{self.version} {os.getpid()}@{socket.gethostname()}"

    def own_activities(self) -> list[Callable[..., Any]]:
        """``acts.registry``, ``acts.tools``, ``acts.plan``, and one Activity for each MCP server."""
        of_servers = (call_activity(name, self.servers) for name in self.servers.configs)
        return [self.look_up, self.list_tools, self.load_plan, *of_servers]

    @activity.defn(name=wire.REGISTRY)
    async def look_up(self, request: dict[str, Any]) -> dict[str, Any]:
        """The activity ``acts.registry``; its result is recorded in history.

        {"tools"?: [names], "activities"?: [names], "asks"?: true, "model"?: "provider:name", "otherModels"?: [names],
         "batch"?: [models]}
        → {"tools": {name: schema | null}, "served": [names], "unavailable"?: {name: reason},
           "asks"?: [names], "price"?: {"input", "output"} | null, "direct"?: [models]}

        ``served`` are those of ``activities`` that this worker has, and the Activities of the ``tools``. ``price``
        answers ``model``: US dollars per token, null where no price list has the model. Where a Tool is missing,
        ``tools`` also names the others, without their schemas; ``unavailable`` says why an MCP server offers none, or
        that a function of that name is no Tool. ``direct`` are those of ``batch`` whose endpoint has no batches.
        """
        names, tools = request.get("tools", []), self.tools
        remote, unavailable = await self.servers.find_tools(n for n in names if n not in tools)
        schemas = {n: tools[n] for n in names if n in tools} | remote
        unavailable |= {n: self.undecorated[n] for n in names if n in self.undecorated and n not in schemas}
        others = [] if len(schemas) == len(names) else sorted({*tools, *self.servers.tools})[:MAX_NAMES]
        own = set(self.names)
        tools_read = (read_tool(n, schema, served=n in own)[0] for n, schema in schemas.items())
        wanted = (*request.get("activities", ()), *(t.activity for t in tools_read if t is not None and t.activity))
        asks = self.asks if request.get("asks") else []
        result: dict[str, Any] = {
            "tools": {**dict.fromkeys(others), **schemas},
            "served": [n for n in dict.fromkeys(wanted) if n in own],
            **({"unavailable": unavailable} if unavailable else {}),
            **({"asks": asks} if asks else {}),
        }
        if direct := list(filter(lacks_batches, request.get("batch", ()))):
            result["direct"] = direct
        if "model" in request:
            models = (request["model"], *request.get("otherModels", ()))
            result["price"] = await asyncio.to_thread(highest_price, models)
        return result

    @activity.defn(name=wire.LIST_TOOLS)
    async def list_tools(self, request: dict[str, Any]) -> dict[str, Any]:
        """The activity ``acts.tools``, everything that one worker serves, for people who ask before they write a plan.

        {} → {version, worker, tools: {name: schema | null}, activities: [names], plans: {name: {workflow, sha256}}};
        {"only": "plans"} → {plans, unset: [variables of folders of sets that it has not]}
        """
        plans = {name: {"workflow": p.workflow, "sha256": p.sha256} for name, p in sorted(self.plans.items())}
        if request.get("only") == "plans":
            return {"plans": plans, "unset": [name for name in (DATA, RESULTS) if not os.environ.get(name)]}
        tools: dict[str, Any] = {}
        room = MAX_LISTED_BYTES
        for name, schema in sorted({**self.servers.tools, **self.tools}.items()):
            room -= json_size(schema)
            tools[name] = schema if room >= 0 else None
        return {
            "version": self.version,
            "worker": self.identity,
            "tools": tools,
            "activities": sorted(self.names),
            "plans": plans,
        }

    @activity.defn(name=wire.LOAD_PLAN)
    async def load_plan(self, request: dict[str, Any]) -> RawValue:
        """The activity ``acts.plan``: {"plan": name} → {request, sha256, source}, as this worker has read it."""
        name = str(request["plan"])
        plan = find_plan(name, self.plans)
        content = {"request": plan.request, "sha256": plan.sha256, "source": plan.file.name}
        text = f'the plan "{name}" has'
        return encode_result(content, lambda size: ApplicationError(f"{text} {size}", type=wire.RESULT_TOO_LARGE))

    async def refuse_missing(self, call: ExecuteActivityInput, proceed: Callable[..., Awaitable[Any]]) -> Any:
        """Refuse an Activity that this worker does not have, so that the run tries another one."""
        if call.fn is not missing_activity:
            return await proceed(call)
        name = activity.info().activity_type
        raise miss(f'{self.identity} has no activity "{name}"; it has {format_choices(self.names)}')


def activity_name(function: Callable[..., Any]) -> str:
    """The Temporal name of an activity function."""
    definition = getattr(function, "__temporal_activity_definition", None)
    return str(definition.name) if definition is not None and definition.name else function.__name__


@activity.defn(dynamic=True)
async def missing_activity(_args: Sequence[RawValue]) -> None:
    """The activity of every name that a worker does not have: ``refuse_missing`` refuses it before it begins."""


def call_activity(server: str, servers: McpServers) -> Callable[..., Any]:
    """The Activity of one server. Progress of the tool is the detail of its heartbeats."""

    @activity.defn(name=activity_of(server))
    async def call_tool(call: dict[str, Any], tool: dict[str, Any], context: list[Any]) -> RawValue:  # noqa: ARG001 - scopes stay here
        source = tool.get(SERVER_TOOL)
        if not isinstance(source, dict) or source.get("server") != server or not isinstance(source.get("tool"), str):
            hint = f'name it in its schema: "{SERVER_TOOL}": {{"server": "{server}", "tool": "<name>"}}'
            text = f'the Tool does not say which tool of MCP server "{server}" it is; {hint}'
            raise ApplicationError(text, type=wire.MCP_REFUSED, non_retryable=True)
        latest: dict[str, Any] = {}

        async def note(progress: float, total: float | None, message: str | None) -> None:
            latest.update(progress=progress, total=total, message=truncate(message or "", MAX_PROGRESS_TEXT))

        meta = dict.fromkeys(ID_KEYS, call["_id"]) if "_id" in call else {}
        arguments = {key: value for key, value in call.items() if not key.startswith("_")}
        seconds = (activity.info().start_to_close_timeout or timedelta(minutes=5)).total_seconds()
        most, name = max(seconds - REPORT_SECONDS, seconds / 2), source["tool"]
        async with heartbeat(lambda: latest):
            connection = await servers.connection(server)
            answer = await connection.call(name, arguments, meta, source.get("digest"), most, note)
        return await asyncio.to_thread(_encode_answer, answer, name)

    return call_tool


def _encode_answer(answer: dict[str, Any], tool: str) -> RawValue:
    value, failure = read_answer(answer)
    text = f'the answer of "{tool}"'
    refuse = partial(ApplicationError, type=wire.RESULT_TOO_LARGE, non_retryable=True)
    try:
        result = encode_result(
            value, lambda size: refuse(f'the answer of "{tool}" has {size}: ask it for less at once')
        )
    except (ValueError, TypeError) as error:
        raise ApplicationError(f"{text} is not JSON: {error}", type=wire.NOT_JSON, non_retryable=True) from None
    if failure:
        raise ApplicationError(failure, value, type=wire.MCP_TOOL_ERROR, non_retryable=True)
    return result


# -- loading ---------------------------------------------------------------------------


def from_environment() -> Registry:
    """The registry that the environment and the installed packages describe. Raises SettingsError: something they name
    cannot be loaded.
    """
    modules = [m.strip() for m in os.environ.get("ACTS_ACTIVITIES", "").split(",") if m.strip()]
    folders = [Path(p) for p in os.environ.get("ACTS_TOOLS", "").split(os.pathsep) if p]
    mcp = os.environ.get(VARIABLE)
    shipped = os.environ.get("ACTS_SHIPPED_TOOLS")
    return load(modules, folders, Path(mcp) if mcp else None, plans_from_environment(), shipped)


def load(
    modules: Sequence[str], tool_folders: Sequence[Path], mcp: Path | None = None,
    plans: Mapping[str, NamedPlan] | None = None, shipped: str | None = "",
) -> Registry:  # fmt: skip
    """Import the modules (and entry points), read the folders, and the file of MCP servers. Raises SettingsError:
    naming the module or file, and the reason.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # users start the worker in the folder of their modules
    sources = [(name, _import_module(name)) for name in modules]
    sources += [(f"entry point {e.name}", e.load()) for e in entry_points(group="acts.activities")]
    servers = McpServers(() if mcp is None else read_config(mcp))
    loaded = Loaded()
    for source, module in sources:
        loaded.add(source, module)
    for folder in tool_folders:
        for name, schema in _read_folder(folder).items():
            loaded.add_tool(name, schema, str(folder))
    refuse_same_name(plans or {}, loaded.places)  # a folder of plans may well have a plan.yaml
    for name, (schema, function) in shipped_tools(shipped).items():
        if name not in loaded.tools and name not in loaded.functions:  # one's own takes its place
            loaded.add_tool(name, schema, "acts")
            loaded.functions |= {} if function is None else {name: function}
    tools, functions = loaded.tools, loaded.functions
    refuse_unanswered(tools, functions, loaded.places)
    tools = plan_tools(plans or {}) | tools
    if conflict := functions.keys() & map(activity_of, servers.configs):
        text = f'two activities are called "{conflict.pop()}": one is in a module, one calls an MCP server'
        raise SettingsError(text)
    return Registry(tools, tuple(functions.values()), servers, plans or {}, loaded.undecorated, tuple(loaded.warnings))


@dataclass
class Loaded:
    """Tools, functions and the places of Tools, by their names; raises SettingsError for two of one name."""

    tools: dict[str, dict[str, Any]] = field(default_factory=dict)
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    undecorated: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, source: str, module: Any) -> None:
        """Add what a module has; an entry point may also be an Activity or a typed Tool itself."""
        count = len(self.tools) + len(self.functions)
        parts = [module, *(getattr(module, name) for name in dir(module))]
        typed = {
            id(one): one for part in parts if (one := getattr(part, TYPED_TOOL, None)) is not None and callable(part)
        }
        for tool in typed.values():
            self.add_tool(tool.name, tool.schema, tool.place)
            parts += [] if tool.is_latent else [tool.activity]
        for function in parts:
            if not callable(function) or not hasattr(function, "__temporal_activity_definition"):
                continue
            if self.functions.setdefault(activity_name(function), function) is not function:
                text = f'two activities are called "{activity_name(function)}": one of them is in {source}'
                raise SettingsError(text)
        more = getattr(module, "TOOLS", {})
        if not isinstance(more, dict):
            raise SettingsError(f"TOOLS of {source} is a map of name to schema, not {type(more).__name__}")
        for name, schema in more.items():
            self.add_tool(name, schema, str(getattr(module, "__file__", source)))
        plain = find_undecorated(parts, getattr(module, "__name__", ""))
        self.undecorated |= plain
        if len(self.tools) + len(self.functions) == count:
            names = f"; {format_choices(plain)} may lack it" if plain else ""
            self.warnings.append(f"{source} brings no tool: nothing in it has @acts.tool or @activity.defn{names}")

    def add_tool(self, name: str, schema: dict[str, Any], place: str) -> None:
        if self.tools.setdefault(name, schema) != schema:
            raise SettingsError(f'two tools are called "{name}": one is at {self.places[name]}, one at {place}')
        self.places.setdefault(name, place)


def find_undecorated(parts: Sequence[Any], module: str) -> dict[str, str]:
    """The public functions that a module defines and that are no Tools, by name: ``pay in tools.py:7 has no @…``."""
    out = {}
    for one in parts:
        is_tool = hasattr(one, TYPED_TOOL) or hasattr(one, "__temporal_activity_definition")
        if inspect.isfunction(one) and one.__module__ == module and not is_tool and not one.__name__.startswith("_"):
            code = inspect.unwrap(one).__code__
            place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
            out[one.__name__] = f"{one.__name__} in {place} has no @acts.tool"
    return out


def activities(*modules: Any) -> list[Callable[..., Any]]:
    """What a worker of one's own serves of these modules: ``Worker(activities=acts.activities(module))``.

    It is every ``@acts.tool`` and ``@activity.defn`` in them, and ``acts.tools``, which lists their Tools for whoever
    asks. Raises SettingsError: two have one name.
    """
    loaded = Loaded()
    for module in modules:
        loaded.add(str(getattr(module, "__name__", module)), module)
    refuse_unanswered(loaded.tools, loaded.functions, loaded.places)
    functions = tuple(loaded.functions.values())
    return [*functions, Registry(loaded.tools, functions).list_tools]


def refuse_same_name(plans: Mapping[str, NamedPlan], places: Mapping[str, str]) -> None:
    """Raise SettingsError for a plan that has the name of a Tool: who reads it would not know which one is meant."""
    if both := sorted(plans.keys() & places.keys()):
        name = both[0]
        text = f'the plan "{name}" of {plans[name].file} has the name of a tool of {places[name]}'
        raise SettingsError(f"{text}: rename one of them")


def refuse_unanswered(tools: Mapping[str, Any], functions: Container[str], places: Mapping[str, str]) -> None:
    """Raise SettingsError for a Tool that nothing answers: a model would invent its results."""
    for name, schema in tools.items():
        tool, _ = read_tool(name, schema, served=name in functions)
        if tool is not None and tool.is_unanswered:
            hint = f'decorate its function with @activity.defn(name="{name}"), name another with "_activity", or say'
            text = f'nothing answers the tool "{name}" of {places[name]}'
            raise SettingsError(f'{text}: {hint} "_activity": "" where a model answers it')


def _import_module(name: str) -> Any:
    try:
        module = importlib.import_module(name)
    except SettingsError:  # of a typed Tool: it has the place
        raise
    except Exception as error:
        text = f'"{name}" of ACTS_ACTIVITIES cannot be imported: {type(error).__name__}: {error}'
        raise SettingsError(f"{place}: {text}" if (place := _place_of(error)) else text) from error
    file = getattr(module, "__file__", None)
    if file is not None and _ENGINE in Path(file).resolve().parents and not name.startswith("acts."):
        raise SettingsError(
            f'ACTS_ACTIVITIES names "{name}", which leads to the engine itself, {file}: it has no tools'
        )
    return module


def _place_of(error: Exception) -> str | None:
    """The file and line of a module at which its import has failed; None where there is no such module."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__)[1:] if not f.filename.startswith("<frozen ")]
    return find_place("".join(traceback.format_list([f for f in frames if f.filename != importlib.__file__])))


def _read_folder(folder: Path) -> dict[str, dict[str, Any]]:
    if not folder.is_dir():
        raise SettingsError(f"ACTS_TOOLS names {folder}, which is not a folder")
    tools: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            content = read_plain(read_json(file.read_bytes()))
        except (OSError, ValueError) as error:
            raise SettingsError(f"{file} is not a readable JSON file: {error}") from error
        name = tool_name(content)
        schemas = {name: content} if name else content
        if not isinstance(schemas, dict) or not all(isinstance(v, dict) for v in schemas.values()):
            raise SettingsError(f"{file} holds neither a schema with _tool nor a map of name to schema")
        tools.update(schemas)
    return tools
