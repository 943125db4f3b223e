"""Preflight: a Request validated before a worker sees it, with the Tools that this environment can load.

Laws of this file:
- the worker's modules (and with them Temporal) are imported only for a Request that needs them;
- the worker decides. A problem that a worker with other Tools or Activities may not have is a warning here, unless
  ``strict``; an error is one that every worker would report;
- whether a file is run as a ``Plan`` or an ``Agent`` is decided here alone, with a reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from acts.language.errors import InvalidRequest, Problem, format_choices
from acts.language.messages import Request, ToolMessage
from acts.language.request_reader import parse_request
from acts.language.secret_references import inline_secret_problems
from acts.language.tools import META, registered_names, undecided_names
from acts.language.values import Json, pointer
from acts.plan.validate import validate
from cli.command_errors import CommandError, command_error

MODULES: Final = "ACTS_ACTIVITIES"
FOLDERS: Final = "ACTS_TOOLS"
SERVERS: Final = "ACTS_MCP"
DELEGATES: Final = "ACTS_DELEGATES"
EXAMPLES: Final = Path(__file__).resolve().parent.parent.parent / "examples"
UNSEEN_TOOL: Final = "unseenTool"
# Problems that depend on what an unseen Tool may write
_DEPENDS_ON_TOOLS: Final = ("unknownReference", "cycle")


@dataclass(frozen=True)
class Preflight:
    """The problems of a Request, and the Tools and Activities that it was validated with.

    ``tools`` includes stand-ins for Tools that this environment does not load; ``unseen`` are their names if the
    references of the plan cannot be checked without them. ``agent``: the Request is run as an ``Agent``, else as a
    ``Plan``; ``why`` explains that if it is not obvious.
    """

    problems: list[Problem]
    tools: Mapping[str, dict[str, Any]]
    served: tuple[str, ...]
    request: Request | None = None
    agent: bool = False
    why: str = ""
    unseen: tuple[str, ...] = ()

    @property
    def errors(self) -> list[Problem]:
        """The problems that every worker would report."""
        return [p for p in self.problems if p.fatal]

    @property
    def problems_for_worker(self) -> list[Problem]:
        """The problems without those that come from Tools which only the worker knows: it reports them at once."""
        if not any(p.code == UNSEEN_TOOL for p in self.problems):
            return self.problems
        return [p for p in self.problems if p.fatal or p.code not in (UNSEEN_TOOL, *_DEPENDS_ON_TOOLS)]

    @property
    def calls(self) -> int:
        """The number of Calls in the latest plan of the Request."""
        plan = self.request.plan if self.request is not None else None
        return 0 if plan is None else len(plan.calls)


def run_preflight(
    raw: Json, *, strict: bool = False, file: str | None = None, modules: str | None = None, agent: bool | None = None
) -> Preflight:
    """Validate a Request with the Tools of this environment, or of ``modules``.

    ``agent`` says what it is run as; None leaves that to the Request.

    Raises:
        CommandError: the environment names modules or folders that cannot be loaded.
    """
    try:
        request = parse_request(raw)
    except InvalidRequest as error:
        return Preflight(list(error.problems), {}, ())
    registered, undecided = registered_names(request), undecided_names(request)
    tools, served = load_registry(file, modules, registered) if registered or undecided else ({}, ())
    as_agent, why = choose_workflow(request) if agent is None else (agent, "--agent" if agent else "--plan")
    missing = [] if strict else [n for n in registered if n not in tools]
    unsure = [] if strict or as_agent else [n for n in undecided if n not in served]
    tools = {**tools, **{n: _stand_in(n) for n in missing}}
    problems = _agent_problems(request, tools, served) if as_agent else _plan_problems(request, raw, tools, served)
    if unsure:
        problems = _relax(problems, _plan_problems(request, raw, tools, (*served, *unsure)))
    unseen: list[str] = []
    if missing:
        unseen = missing if any(p.fatal and p.code in _DEPENDS_ON_TOOLS for p in problems) else []
        problems = [replace(p, severity="warning") if p.code in _DEPENDS_ON_TOOLS else p for p in problems]
        problems.append(_unseen_tools(request, missing))
    problems += inline_secret_problems(request)
    return Preflight(problems, tools, (*served, *unsure), request, as_agent, why, tuple(unseen))


def choose_workflow(request: Request) -> tuple[bool, str]:
    """True if a Request is for an Agent, and why.

    It is if it has a model and no Calls; or a model, Calls, and a setting that only an agent uses (``schema``,
    ``maxTicks``, ``step``): its Calls are then shown to the model. Any other Request is for a Plan.
    """
    config = request.config
    if config.model is None:
        return False, ""
    if request.plan is None or not request.plan.calls:
        return True, f"no calls are given: {config.model} plans them"
    signs = ["a schema"] if request.schema is not None else []
    signs += [k for k in ("maxTicks", "step") if k in config.model_fields_set]
    if signs:
        text = f"it has {' and '.join(signs)}, so its calls are shown to {config.model}"
        return True, f"{text}; --plan runs them unchanged"
    return False, f"its calls run unchanged; --agent shows them to {config.model}"


def missing_tools_error(what: str, unseen: Sequence[str], where: str = "") -> CommandError:
    """``what`` needs Tools that only the worker knows."""
    names = f"tool{'s' * (len(unseen) != 1)} {format_choices(unseen)}"
    hint = f"set {MODULES} to the modules that serve them (or {FOLDERS} to the folders of tools), as for the worker"
    return command_error(f"{what} needs the {names}, which only the worker knows", where=where, hint=hint)


def load_registry(
    file: str | None = None, modules: str | None = None, names: Sequence[str] = ()
) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """The Tools and the names of the Activities of this environment; for a file of the examples, of the examples.

    The MCP servers of Tools among ``names`` are started, to ask them, and ended again.

    Raises:
        CommandError: they cannot be loaded.
    """
    if modules is None and not is_configured():
        if file is None or not Path(file).resolve().is_relative_to(EXAMPLES):
            return {}, ()
        modules = default_modules()
    from activities.registry import RegistryError, from_environment, load

    try:
        registry = from_environment() if modules is None else load(modules.split(","), [])
    except RegistryError as error:
        raise command_error(
            str(error), where="the environment", hint=f"correct {MODULES}, {FOLDERS} or {SERVERS}"
        ) from None
    of_servers, _ = registry.servers.read_once([name for name in names if name not in registry.tools])
    return {**of_servers, **registry.tools}, tuple(registry.names)


def is_configured() -> bool:
    """True if the environment or an installed package names modules to load."""
    if any(os.environ.get(variable) for variable in (MODULES, FOLDERS, SERVERS)):
        return True
    from importlib.metadata import entry_points

    return bool(entry_points(group="acts.activities"))


def default_modules() -> str:
    """The modules that are loaded if none are configured: the examples."""
    import examples

    return ",".join(examples.MODULES)


def default_delegates() -> str:
    """The folders of the examples' delegates, which are searched after those of ``ACTS_DELEGATES``."""
    import examples

    return os.pathsep.join(examples.DELEGATES)


def _plan_problems(request: Request, raw: Json, tools: Mapping[str, Any], served: Iterable[str]) -> list[Problem]:
    problems = validate(raw, tools, served)
    hint = "; or set config.model: then an agent makes the plan" if request.config.model is None else ""
    return [replace(p, hint=f"{p.hint or ''}{hint}") if p.code == "noPlan" else p for p in problems]


def _agent_problems(request: Request, tools: Mapping[str, Any], served: Iterable[str]) -> list[Problem]:
    """The problems of an agent before its first tick."""
    from acts.machines.loop import Loop

    try:
        return list(Loop(request, tools, served).warnings)
    except InvalidRequest as error:
        return list(error.problems)


def _relax(problems: list[Problem], with_activities: list[Problem]) -> list[Problem]:
    """The problems; those that a worker with more Activities would not report are warnings."""
    fatal = {(p.code, p.pointer) for p in with_activities if p.fatal}
    note = "no error if the worker serves an Activity of that name"
    return [
        replace(p, severity="warning", hint=f"{p.hint}; {note}" if p.hint else note)
        if p.fatal and (p.code, p.pointer) not in fatal
        else p
        for p in problems
    ]


def _unseen_tools(request: Request, names: Sequence[str]) -> Problem:
    """One warning for all Tools that this environment does not load, at the first of them."""
    at = next(m.index for m in request.context if isinstance(m, ToolMessage) and m.tool in _spellings(names))
    which = f"tool{'s' * (len(names) > 1)} {format_choices([json.dumps(n, ensure_ascii=False) for n in names])}"
    verb, whose = ("are", "their") if len(names) > 1 else ("is", "its")
    text = f"the {which} {verb} not registered here, so {whose} calls were not checked"
    hint = f"the worker may have them (`acts tools` asks it); {MODULES} and {FOLDERS} say what is loaded here"
    return Problem(UNSEEN_TOOL, text, pointer("context", at, "tool"), hint=hint, severity="warning")


def _spellings(names: Sequence[str]) -> list[str]:
    return [*names, *(f"Tool.{name}" for name in names)]


def _stand_in(name: str) -> dict[str, Any]:
    """A Tool that allows whatever the real one may allow."""
    free: dict[str, Any] = {key: {} for key in META}
    return {"type": "object", "properties": {**free, "_tool": {"const": name}, "_activity": {"const": name}}}
