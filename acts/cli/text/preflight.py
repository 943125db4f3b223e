"""Preflight: a Request validated before a worker sees it, with the Tools that this environment can load.

- The worker's modules (and with them Temporal) are imported only for a Request that needs them.
- The worker decides. A problem that a worker with other Tools or Activities may not have is a warning here, unless
  ``strict``; an error is one that every worker would report.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

from acts.cli.console import CommandError, clean, command_error, is_trusted, print_blocks, print_message, shell
from acts.cli.text.source import STDIN, add_inputs, find_plan, problem_blocks, read_source, source_error
from acts.language.errors import InvalidRequest, Problem, SettingsError, format_choices, suggest
from acts.language.messages import INSTANCES, Request, SetData, ToolMessage, choose_workflow, parse_request, with_tags
from acts.language.references import scan
from acts.language.source_text import SourceText
from acts.language.tools import META, inline_secret_problems, read_tools, registered_names, undecided_names
from acts.language.values import Json, pointer
from acts.language.wire import RESULTS_EXIST
from acts.machines.budget import LEAST_OUTPUT_TOKENS
from acts.plan.validate import ValidatedPlan, approve_problems, validate, validate_parsed, validate_request
from acts.planner.request_estimate import estimate_request
from acts.simulation.simulate import find_unreachable
from acts.simulation.type_flow import CANNOT_FIT, find_type_problems
from acts.tree.set_records import DATE_PART, RUN_PART, fill_name, is_wild

MODULES: Final = "ACTS_ACTIVITIES"
FOLDERS: Final = "ACTS_TOOLS"
SERVERS: Final = "ACTS_MCP"
CHECKOUT: Final = Path(__file__).resolve().parents[3]
EXAMPLES: Final = CHECKOUT / "examples"
DEMO: Final = "acts.cli.demo.demo_tools"
UNSEEN_TOOL: Final = "unseenTool"
# Problems that depend on what an unseen Tool may write
_DEPENDS_ON_TOOLS: Final = ("unknownReference", "cycle")


@dataclass(frozen=True)
class Preflight:
    """The problems of a Request, and the Tools and Activities that it was validated with.

    ``tools`` includes stand-ins for Tools that this environment does not load; ``unseen`` are their names if the
    references of the plan cannot be checked without them. ``why`` says why it is for an ``agent`` if not obvious.
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
        """The problems that every worker would report before anything runs."""
        return [p for p in self.problems if p.fatal and p.code != CANNOT_FIT]

    @property
    def by_model(self) -> list[str]:
        """The Calls of a valid plan that a model answers, by their ids, as far as this environment knows."""
        if self.request is None or self.agent or self.errors:
            return []
        try:
            plan = validate_parsed(self.request, self.tools, self.served)
        except InvalidRequest:  # a problem that another worker may not have, shown as a warning
            return []
        calls = [call for rank, call in enumerate(plan.nodes) if rank not in plan.literal_outputs]
        return [call.id for call in sorted(calls, key=lambda call: call.index) if call.kind == "latent"]

    @property
    def calls(self) -> int:
        """The number of Calls in the latest plan of the Request."""
        plan = self.request.plan if self.request is not None else None
        return 0 if plan is None else len(plan.calls)


def run_preflight(raw: Json, *, strict: bool = False, file: str | None = None, agent: bool | None = None) -> Preflight:
    """Validate a Request with the Tools of this environment; ``agent`` None leaves what it is run as to the Request."""
    try:
        request = parse_request(raw)
    except InvalidRequest as error:
        return Preflight(list(error.problems), {}, ())
    registered, undecided = registered_names(request), undecided_names(request)
    tools, served = load_registry(file, registered) if registered or undecided else ({}, ())
    missing = [] if strict else [name for name in registered if name not in tools]
    free: dict[str, Any] = {key: {} for key in META if key not in ("_approval", "_person", "_undo")}
    for name in missing:  # a stand-in that allows whatever the real Tool may allow
        properties = {**free, "_tool": {"const": name}, "_activity": {"const": name}}
        tools = {**tools, name: {"type": "object", "properties": properties}}
    as_agent, why = choose_workflow(request) if agent is None else (agent, "--agent" if agent else "--plan")
    problems = _find_problems(request, raw, tools, served, agent=as_agent)
    # A worker may serve Activities of their names; where there is a model, and it does not, the model answers
    if not strict and not as_agent and undecided and request.config.latent_model is None:
        served = tuple(dict.fromkeys((*served, *undecided)))
        certain = {(p.code, p.pointer) for p in _find_problems(request, raw, tools, served, agent=False)}
        problems = [p if (p.code, p.pointer) in certain else replace(p, severity="warning") for p in problems]
    depends = [p for p in problems if p.code in _DEPENDS_ON_TOOLS] if missing else []
    problems = [replace(p, severity="warning") if p in depends else p for p in problems]
    if missing:  # one warning for all of them, at the first
        spellings = [*missing, *(f"Tool.{name}" for name in missing)]
        at = next(m.index for m in request.context if isinstance(m, ToolMessage) and m.tool in spellings)
        quoted, is_one = format_choices([f'"{name}"' for name in missing]), len(missing) == 1
        which = f"the tool {quoted} is" if is_one else f"the tools {quoted} are"
        text = f"{which} not registered here, so calls of {'it' if is_one else 'them'} were not checked"
        hint = f"the worker may have them (`acts tools` asks it); {MODULES} and {FOLDERS} say what is loaded here"
        where = pointer("context", at, "tool")
        problems.append(Problem(UNSEEN_TOOL, text, where, hint=hint, severity="warning"))
    places = {m.tool: m.index for m in request.context if isinstance(m, ToolMessage) and isinstance(m.tool, str)}
    for name in places.keys() & _undecorated.keys():
        if name in missing or name not in tools:
            place = pointer("context", places[name], "tool")
            problems.append(Problem("undecorated", f"{_undecorated[name]}: it is no tool", place, severity="warning"))
    problems += inline_secret_problems(request)
    named = approve_problems(request, read_tools(request, tools, frozenset(served).__contains__).by_name)
    problems += [replace(p, severity="warning") if missing else p for p in named]  # an unseen Tool may have the name
    if request.set is not None and not any(p.fatal for p in problems):
        problems += _set_problems(request, request.set, tools, served)
    unseen = missing if any(p.fatal for p in depends) else ()
    return Preflight(problems, tools, served, request, as_agent, why, tuple(unseen))


def _find_problems(
    request: Request, raw: Json, tools: Mapping[str, Any], served: Iterable[str], *, agent: bool
) -> list[Problem]:
    from acts.machines.agent_context import AgentContext

    if agent:
        try:
            return list(AgentContext(request, tools, served).warnings)
        except InvalidRequest as error:
            return list(error.problems)
    hint = "; or set config.model: then an agent makes the plan" if request.config.model is None else ""
    problems = validate(raw, tools, served)
    if not any(p.fatal for p in problems):
        plan = validate_request(raw, tools, served)
        problems += [*(mismatch.problem for mismatch in find_type_problems(plan)), *find_unreachable(plan)]
    return [replace(p, hint=f"{p.hint or ''}{hint}") if p.code == "noPlan" else p for p in problems]


def check_file(
    file: str, inputs: Sequence[str] | None = None, *, set_file: str | None = None, results: str | None = None,
    strict: bool = False, agent: bool | None = None, tags: Mapping[str, str] | None = None,
) -> tuple[SourceText, Json, Preflight]:  # fmt: skip
    file = find_plan(file) or file
    source = read_source(file)
    request = add_set(add_inputs(source.value, inputs or ()), set_file, results)
    request = with_tags(request, tags) if isinstance(request, dict) else request
    return source, request, run_preflight(request, strict=strict, file=None if file == STDIN else file, agent=agent)


def require_valid(preflight: Preflight, source: SourceText) -> None:
    """Print the warnings about a Request; one that no worker could run is an error, with the lines of its problems."""
    problems = preflight.problems
    if any(p.code == UNSEEN_TOOL for p in problems):  # the worker itself reports at once what depends on its Tools
        problems = [p for p in problems if p.fatal or p.code not in (UNSEEN_TOOL, *_DEPENDS_ON_TOOLS)]
    if preflight.errors:
        raise source_error(source, problems)
    problems = [replace(p, severity="warning") for p in problems]  # a call that cannot run fails by itself
    print_blocks(problem_blocks(problems, source))


def missing_tools_error(what: str, unseen: Sequence[str], where: str = "") -> CommandError:
    """``what`` needs Tools that only the worker knows."""
    names = f"tool{'s' * (len(unseen) != 1)} {format_choices(unseen)}"
    hint = f"set {MODULES} to the modules that serve them (or {FOLDERS} to the folders of tools), as for the worker"
    return command_error(f"{what} needs the {names}, which only the worker knows", where=where, hint=hint)


def load_registry(
    file: str | None = None, names: Sequence[str] = ()
) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """The Tools and the names of the Activities of this environment; for a file of the examples, of the examples.

    The MCP servers of Tools among ``names`` are started, to ask them, and ended again.
    """
    is_example = file is not None and Path(file).resolve().is_relative_to(EXAMPLES)
    if not ((has_modules := is_configured()) or is_example or names):
        return {}, ()
    from acts.activities.registry import from_environment, load

    # The user's own modules come before those of a folder that one only looks into, unless the command names some of it
    if not (is_trusted(Path()) or _named):
        here = str(Path.cwd())
        sys.path[:] = [*(path for path in sys.path if path not in ("", here)), here]
    try:
        modules = default_modules().split(",") if is_example and not has_modules else []
        registry = load(modules, [], shipped=os.environ.get("ACTS_SHIPPED_TOOLS")) if modules else from_environment()
    except SettingsError as error:
        hint = f"correct {MODULES}, {FOLDERS} or {SERVERS}"
        raise command_error(str(error), where="the environment", hint=hint) from None
    _undecorated.update(registry.undecorated)
    for line in registry.warnings:
        print_message(clean(line), severity="warning")
    of_servers, _ = registry.servers.read_once([name for name in names if name not in registry.tools])
    return {**of_servers, **registry.tools}, tuple(registry.names)


def request_cost(model: str, prompt_bytes: int) -> float | None:
    """The estimated US dollars of one request of a latent Call with a short answer; None: no known price."""
    from acts.activities.models.endpoints import price_per_token

    price = None
    with suppress(SettingsError):
        price = price_per_token(model)
    per_token = None if price is None else (price["input"], price["output"])
    return estimate_request(model, prompt_bytes, LEAST_OUTPUT_TOKENS, per_token).cost


_undecorated: Final[dict[str, str]] = {}  # functions that are no Tools, of the modules that are loaded here
_named: Final[set[str]] = set()  # by this command's own option


def name_modules(modules: str | None) -> None:
    """Load these modules in the place of those that the environment names."""
    if modules is not None:
        os.environ[MODULES] = modules
        _named.update(modules.split(","))


def is_configured() -> bool:
    from importlib.metadata import entry_points

    return any(map(os.environ.get, (MODULES, FOLDERS, SERVERS))) or bool(entry_points(group="acts.activities"))


def has_examples() -> bool:
    return (EXAMPLES / "__init__.py").is_file() and (CHECKOUT / "pyproject.toml").is_file()


def default_modules() -> str:
    if not has_examples():
        return DEMO
    import examples

    return ",".join(examples.MODULES)


_KIND: Final = re.compile(r"†\{?([\w-]+)")
_DAY: Final = 86_400.0  # seconds
_NOT_ROWS: Final = ("state", "item", "index", "decision")


def names_set(request: Json) -> bool:
    context = request.get("context") if isinstance(request, dict) else None
    return isinstance(context, list) and any(isinstance(m, dict) and INSTANCES in m for m in context)


def folders_for_set(request: Request | None) -> tuple[str, ...]:
    """The variables that name the folders which a run over this set needs."""
    if request is None or request.set is None:
        return ()
    needs = {"ACTS_DATA": "://" not in request.set.source, "ACTS_RESULTS": request.config.results is not None}
    return tuple(name for name, is_needed in needs.items() if is_needed)


def add_set(request: Json, set_file: str | None, results: str | None) -> Json:
    """The Request with the set and the results file of the command line.

    A set that the Request names already gets another source. Else the rows are of the one kind that the calls read and
    that nothing provides.
    """
    if set_file is None and results is None:
        return request
    if not isinstance(request, dict) or not isinstance(request.get("context", []), list):
        return request  # the validator reports what is wrong with it
    context = list(request.get("context", []))
    if set_file is not None:
        _put_set(context, set_file)
    elif not names_set(request):
        head = "no set is named, so there are no results of one"
        raise command_error(head, where="--results", hint="name it: --set FILE")
    out = {**request, "context": context}
    if results is not None:
        path = Path(results)
        if path.exists():
            hint = "remove it, or name another one: a run appends only to its own"
            raise command_error(f"{clean(results, 200)} exists already", where="--results", hint=hint)
        is_path = path.parent != Path() and path.parent.is_dir()  # a name alone is one in the worker's folder
        out["config"] = {**(request.get("config") or {}), "results": str(path.absolute()) if is_path else results}
    return out


def repeated_problem(request: Json, every: float | None = None) -> CommandError | None:
    """Why a Request over a set can work only once, if it does; ``every`` are the seconds between two starts."""
    config = request.get("config") if isinstance(request, dict) else None
    file = config.get("results") if isinstance(config, dict) else None
    if not isinstance(file, str) or RUN_PART in file or (DATE_PART in file and not (every or _DAY) < _DAY):
        return None
    path = Path(file)
    text = f"{clean(file, 200)} would be the results file of each start, and a run takes only one of its own"
    if DATE_PART in file:
        text = f"{clean(file, 200)} would be the results file of all starts of a day"
    return command_error(text, where="results", hint=f"name one for each run: --results {shell(_name_by_run(path))}")


def next_results(file: str) -> str:
    """A results file for a run that goes on from the one that wrote this one: ``out.2.jsonl`` after ``out.jsonl``."""
    if RUN_PART in file:  # every run has its own
        return file
    path = Path(file)
    stem, count = path.stem, 2
    if numbered := re.fullmatch(r"(.+)\.(\d{1,3})", stem):  # longer numbers are dates
        stem, count = numbered[1], int(numbered[2]) + 1
    while (name := path.with_name(f"{stem}.{count}{path.suffix}")).exists():
        count += 1
    return str(name)


_ROWS_READ: Final = 100  # of JSON Lines, whose rows may have different fields


def _set_problems(
    request: Request, message: SetData, tools: Mapping[str, Any], served: Iterable[str]
) -> Iterator[Problem]:
    """What can be seen here of a set before a run begins: its file, the columns that calls read, and its results file.

    The worker may have other folders: where this environment does not name them, what is missing is a warning.
    """
    from acts.sets.results_file import find_results
    from acts.sets.set_files import SetError, SetSources, find_source, open_set
    from acts.sets.survey import LineReader, iterate_rows, read_dialect

    today = f"{datetime.now(UTC):%Y-%m-%d}"
    source, results = fill_name(message.source, "", today), request.config.results
    at, (data, severity) = ("context", message.index, INSTANCES), _folders_of("ACTS_DATA", "data")
    if not data and Path(source).is_file():
        data = (Path(source).absolute().parent,)
    if data and "://" not in source and not source.endswith(".gz"):
        try:
            with open_set(find_source(source, SetSources(data)), SetSources(data)) as (name, stream, _):
                dialect = read_dialect(stream, name)
                stream.seek(dialect.start)
                rows = islice(iterate_rows(LineReader(stream), dialect, dialect.lines + 1), _ROWS_READ)
                columns = dict.fromkeys(dialect.columns or (key for row in rows for key in row.data or ()))
        except SetError as error:
            severity = severity if source == message.source and not is_wild(source) else "warning"  # it may come later
            yield Problem(error.type, error.message, pointer(*at, "source"), severity=severity)
        else:
            with suppress(InvalidRequest):  # by a problem that another worker may not have
                yield from _column_problems(message, columns, validate_parsed(request, tools, served), name)
    folders, severity = _folders_of("ACTS_RESULTS", "results")
    if results is not None and folders and RUN_PART not in results:
        with suppress(SetError):  # what else is wrong with its name, the worker says
            file = find_results(folders, fill_name(results, "", today))
            if Path(file.root, *file.steps).exists():
                text = f"the results file {results} exists already, and a run appends only to its own"
                hint = f"remove it, or name one for each run: --results {shell(_name_by_run(Path(results)))}"
                severity = "warning" if DATE_PART in results else severity
                yield Problem(RESULTS_EXIST, text, pointer("config", "results"), hint=hint, severity=severity)


def _folders_of(variable: str, of_dev: str) -> tuple[tuple[Path, ...], str]:
    """The folders that a variable names, else the one that `acts dev` makes; and how certain it is that it is those."""
    named = tuple(Path(part) for part in os.environ.get(variable, "").split(os.pathsep) if part)
    return (named, "error") if named else ((Path(of_dev),) if Path(of_dev).is_dir() else (), "warning")


def _column_problems(
    message: SetData, columns: Mapping[str, None], plan: ValidatedPlan, file: str
) -> Iterator[Problem]:
    columns_hint = f"{file} has: {format_choices(columns)}"
    if message.id_field is not None and message.id_field not in columns:
        text = f'no column is called "{message.id_field}", which is to be the id'
        hint = suggest(message.id_field, columns) or columns_hint
        yield Problem("unknownColumn", text, pointer("context", message.index, INSTANCES, "id"), hint=hint)
    written = {path.names[0] for node in plan.nodes for path in node.writes if path.kind == message.kind and path.names}
    for node in plan.nodes:
        for use in node.reads:
            paths = [path for path in use.paths if path.kind == message.kind and path.names]
            wrong = [path for path in paths if path.names[0] not in (*columns, *written)]
            if wrong and columns and len(wrong) == len(use.paths):
                text, hint = f"no row has {wrong[0]}", suggest(wrong[0].names[0], columns) or columns_hint
                place = node.pointer + pointer(*use.at)
                severity = "warning" if use is node.condition or not file.endswith(".csv") else "error"
                yield Problem("unknownColumn", text, place, node.id, hint, severity)


def _name_by_run(path: Path) -> Path:
    return path.with_name(f"{path.stem.replace(DATE_PART, '').rstrip('-_.') or 'out'}-{RUN_PART}{path.suffix}")


def _put_set(context: list[Any], text: str) -> None:
    file, id_ = text, None
    if not Path(text).exists() and (named := re.fullmatch(r"(.+):([^:/\\]+)", text)):
        file, id_ = named[1], named[2]
    if Path(file).exists():  # the worker may have been started in another folder
        file = str(Path(file).absolute())
    rows = {"source": file, **({} if id_ is None else {"id": id_})}
    for index, message in enumerate(context):
        if isinstance(message, dict) and INSTANCES in message:
            own = message[INSTANCES] if isinstance(message[INSTANCES], dict) else {}
            context[index] = {**message, INSTANCES: {**own, **rows}}
            return
    at = next((i for i, m in enumerate(context) if isinstance(m, dict) and m.get("type") == "plan"), len(context))
    # Of the one kind that calls read and nothing provides
    messages = [message for message in context if isinstance(message, dict)]
    provided = {str(m.get("kind", m["type"])) for m in messages if m.get("type") in ("data", "input", "state")}
    plans = [m.get("plan") for m in messages if m.get("type") == "plan"]
    reads: dict[str, None] = {}
    for call in plans[-1] if plans and isinstance(plans[-1], list) else ():
        for key, value in call.items() if isinstance(call, dict) else ():
            kinds = [kind for _, text in scan(value) for kind in _KIND.findall(text)]
            if key in ("_outputPath", "_errorPath"):
                provided.update(kinds)
            else:
                reads.update(dict.fromkeys(kinds))
    open_kinds = [kind for kind in reads if kind not in provided and kind not in _NOT_ROWS]
    if len(open_kinds) > 1:
        hint = f'add {{"type": "data", "kind": …, "{INSTANCES}": {{"source": …}}}} to the context, which says it'
        text = f"the calls read {format_choices(open_kinds)}, and the rows can be one of them"
        raise command_error(text, where="--set", hint=hint)
    context.insert(at, {"type": "data", "kind": open_kinds[0] if open_kinds else "row", INSTANCES: rows})
