"""What this environment knows of the worker's Tools, and a verdict that allows for the rest.

Laws of this file:
- a Request is looked at before anything is imported: only one that leaves something to
  the worker costs the import of the worker's modules (and with them of Temporal);
- the worker has the last word. What it may know and we do not is a warning here, unless
  ``strict``: an error is what no worker could make right;
- what a file is run as (``Plan`` or ``Agent``) is decided here, once, and with a reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from acts.language.errors import InvalidRequest, Problem, format_choices
from acts.language.messages import Request, ToolMessage, parse_request
from acts.language.tools import META, registered_names, undecided_names
from acts.language.values import Json, pointer
from acts.plan.validate import validate
from cli.command_errors import CommandError, refuse

MODULES: Final = "ACTS_ACTIVITIES"
FOLDERS: Final = "ACTS_TOOLS"
DELEGATES: Final = "ACTS_DELEGATES"
EXAMPLES: Final = Path(__file__).resolve().parent.parent.parent / "examples"
# What a Tool that we cannot see may write, nobody here can tell
_DEPENDS_ON_TOOLS: Final = ("unknownReference", "cycle")


@dataclass(frozen=True)
class Verdict:
    """What was found, and what it was found with (stand-ins for unseen Tools included).

    ``agent``: it is one for an ``Agent``, else for a ``Plan``; ``why`` says it to a person,
    where it could be doubted. ``unseen``: the Tools that stand-ins are there for, where what
    reads from what cannot be told without them.
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
        """The problems that no worker could make right."""
        return [p for p in self.problems if p.fatal]

    @property
    def calls(self) -> int:
        """How many Calls the latest plan of the Request has."""
        plan = self.request.plan if self.request is not None else None
        return 0 if plan is None else len(plan.calls)


def kind_of(request: Request) -> tuple[bool, str]:
    """Whether a Request is for an Agent, and why.

    It is, when it has a model and no Calls, or a model, Calls, and something that only an
    agent has a use for (``schema``, ``maxTicks``, ``step``): those Calls are then shown to
    the model. Any other Request is a Plan.
    """
    config = request.config
    calls = request.plan is not None and bool(request.plan.calls)
    if config.model is None:
        return False, ""
    if not calls:
        return True, f"no calls are given: {config.model} plans them"
    signs = [*(["a schema"] if request.schema is not None else []),
             *(k for k in ("maxTicks", "step") if k in config.model_fields_set)]  # fmt: skip
    if signs:
        why = f"it has {' and '.join(signs)}, so its calls are shown to {config.model}; --plan runs them as they stand"
        return True, why
    return False, f"its calls run as they stand; --agent shows them to {config.model}"


def judge(
    raw: Json, *, strict: bool = False, file: str | None = None, modules: str | None = None, agent: bool | None = None
) -> Verdict:
    """Every problem of a Request, Tools being looked up in this environment (or in ``modules``).

    ``agent`` says what it is to be run as; None leaves that to the Request.

    Raises:
        Refusal: the environment names modules or folders that cannot be loaded.
    """
    try:
        request = parse_request(raw)
    except InvalidRequest as error:
        return Verdict(list(error.problems), {}, ())
    registered, undecided = registered_names(request), undecided_names(request)
    tools, served = registry(file, modules) if registered or undecided else ({}, ())
    found, why = kind_of(request) if agent is None else (agent, "--agent" if agent else "--plan")
    missing = [] if strict else [n for n in registered if n not in tools]
    unsure = [] if strict or found else [n for n in undecided if n not in served]
    tools = {**tools, **{n: _stand_in(n) for n in missing}}
    problems = _for_agent(request, tools, served) if found else _validate(request, raw, tools, served)
    if unsure:
        problems = _lenient(problems, _validate(request, raw, tools, (*served, *unsure)))
    unseen: list[str] = []
    if missing:
        unseen = missing if any(p.fatal and p.code in _DEPENDS_ON_TOOLS for p in problems) else []
        hint = f"the worker may know it; here {MODULES} and {FOLDERS} say what is loaded"
        problems = [replace(p, severity="warning") if p.code in _DEPENDS_ON_TOOLS else p for p in problems]
        problems += [_unseen(request, n, hint) for n in missing]
    return Verdict(problems, tools, (*served, *unsure), request, found, why, tuple(unseen))


def needs_tools(what: str, unseen: Sequence[str], where: str = "") -> CommandError:
    """What cannot be done without Tools that only the worker knows, and how to make them known here."""
    names = f"tool{'s' * (len(unseen) != 1)} {format_choices(unseen)}"
    hint = f"set {MODULES} to the modules that serve them (or {FOLDERS} to the folders of tools), as for the worker"
    return refuse(f"{what} needs the {names}, which only the worker knows", where=where, hint=hint)


def registry(file: str | None = None, modules: str | None = None) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """The Tools and the names of the Activities that this environment loads; for one of our examples, its own.

    Raises:
        Refusal: they cannot be loaded.
    """
    if modules is None and not configured():
        if file is None or not _is_example(file):
            return {}, ()
        modules = default_modules()
    from activities.registry import RegistryError, from_environment, load

    try:
        found = from_environment() if modules is None else load(modules.split(","), [])
    except RegistryError as error:
        raise refuse(str(error), where="the environment", hint=f"mend {MODULES} or {FOLDERS}") from None
    return dict(found.tools), tuple(found.names)


def configured() -> bool:
    """True when the environment, or an installed package, says what to load."""
    if os.environ.get(MODULES) or os.environ.get(FOLDERS):
        return True
    from importlib.metadata import entry_points

    return bool(entry_points(group="acts.activities"))


def default_modules() -> str:
    """What is loaded where nothing says otherwise: the examples."""
    import examples

    return ",".join(examples.MODULES)


def default_delegates() -> str:
    """Where definitions are looked for beside ``ACTS_DELEGATES`` when the examples are loaded: in theirs."""
    import examples

    return os.pathsep.join(examples.DELEGATES)


def _is_example(file: str) -> bool:
    return Path(file).resolve().is_relative_to(EXAMPLES)


def _validate(request: Request, raw: Json, tools: Mapping[str, Any], served: Iterable[str]) -> list[Problem]:
    """The problems of a plan."""
    problems = validate(raw, tools, served)
    hint = "; or set config.model: then an agent makes the plan" if request.config.model is None else ""
    return [replace(p, hint=f"{p.hint or ''}{hint}") if p.code == "noPlan" else p for p in problems]


def _for_agent(request: Request, tools: Mapping[str, Any], served: Iterable[str]) -> list[Problem]:
    """The problems that an agent has before its first tick, with the worker's own words."""
    from acts.machines.loop import Loop

    try:
        loop = Loop(request, tools, served)
    except InvalidRequest as error:
        return list(error.problems)
    return list(loop.warnings)


def _lenient(ours: list[Problem], theirs: list[Problem]) -> list[Problem]:
    """Ours, those being warnings that a worker with more Activities would not have."""
    fatal = {(p.code, p.pointer) for p in theirs if p.fatal}
    return [
        p if not p.fatal or (p.code, p.pointer) in fatal else replace(p, severity="warning", hint=_join(p.hint))
        for p in ours
    ]


def _join(hint: str | None) -> str:
    note = "no error where the worker serves an Activity of that name"
    return f"{hint}; {note}" if hint else note


def _unseen(request: Request, name: str, hint: str) -> Problem:
    at = next(m.index for m in request.context if isinstance(m, ToolMessage) and m.tool in (name, f"Tool.{name}"))
    text = f'the tool "{name}" is not registered here, so its calls were not checked'
    return Problem("unseenTool", text, pointer("context", at, "tool"), hint=hint, severity="warning")


def _stand_in(name: str) -> dict[str, Any]:
    """A Tool that allows whatever the real one may allow."""
    free: dict[str, Any] = {key: {} for key in META}
    return {"type": "object", "properties": {**free, "_tool": {"const": name}, "_activity": {"const": name}}}
