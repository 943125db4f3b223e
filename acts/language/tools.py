"""Tools: their parameters, their meta-properties, and what answers their Calls.

A Tool is a JSON Schema. Properties without ``_`` are the parameters; the others, the
meta-properties, say how a Call runs and where its result goes. A ``const`` applies to every Call.
What a Tool runs (``_activity``, ``_options``, a fixed ``_delegate``) is decided here, by its
definition; nothing in a Call can change it.

``const`` is the canonical way to fix a meta-property. A plain value in the place of a schema
(``"_activity": "charge"``, also at the top level of the Tool) is read as one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ValidationError

from acts.language.config import Options, settings_problems
from acts.language.errors import ExpressionError, Problem, TooComplex, format_choices, suggest, truncate
from acts.language.expression_parser import parse
from acts.language.messages import Request, ToolMessage
from acts.language.output_methods import METHODS
from acts.language.schema_forms import is_self_contained, with_defs
from acts.language.schemas import Checker, checker, find_schema_problem
from acts.language.secret_references import forbid_secrets
from acts.language.values import ABSENT, Json, Place, pointer
from acts.language.wire import TOO_COMPLEX
from acts.language.work_meter import WorkMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

META: Final = (
    "_tool", "_output", "_activity", "_delegate", "_scopes", "_outputPath", "_outputMethod", "_errorPath",
    "_instance", "_reasoningForCall", "_approval", "_options", "_when", "_each",
)  # fmt: skip

CallKind = Literal["activity", "delegate", "latent", "instance"]
"""What answers a Call; ``instance`` is a child that walks the Calls of some instances."""

# Say when and how often a Call runs; a Call may carry them unless its Tool's schema for them is ``false``
CONTROL: Final = ("_when", "_each")
# Decided by the Tool alone: stripped from a Call, with a warning
TOOL_ONLY: Final = ("_activity", "_options")
# A Call may leave these out even where the Tool lists them as required
OPTIONAL: Final = frozenset({"_tool", "_output", "_activity", "_options", "_instance"})
_PLAIN: Final[dict[str, tuple[type, ...]]] = {
    "_activity": (str,), "_delegate": (str,), "_outputPath": (str,), "_outputMethod": (str,), "_errorPath": (str,),
    "_scopes": (list,), "_approval": (bool,), "_tool": (str,), "_reasoningForCall": (str,), "_when": (str,),
    "_each": (str, list),
}  # fmt: skip
_OPTION_KEYS: Final = frozenset(Options.model_fields)
# Steps to read all Tools of a context, without their schemas: 10,000
MAX_TOOLS_STEPS: Final = 500_000
# Steps to read their schemas: about 70,000 subschemas, for which the caches of compiled schemas have room
MAX_SCHEMAS_STEPS: Final = 240_000
# Steps for a Tool beside those for its schema
TOOL_STEPS: Final = 50


@dataclass(frozen=True)
class Tool:
    """A Tool, parsed. ``schema`` is its JSON; ``meta`` holds the schemas of its meta-properties.

    ``consts`` are the meta-properties that every Call has; ``output`` is the schema of the result
    (None: any). ``served`` says that the worker has an Activity of the Tool's own name.
    """

    name: str
    schema: dict[str, Any]
    meta: dict[str, Json]
    consts: dict[str, Json]
    output: Json = None
    options: Options = field(default_factory=Options)
    served: bool = False

    @cached_property
    def parameters(self) -> Checker:
        """Checks the parameters of a Call (without its meta-properties)."""
        return checker(parameter_schema(self.schema))

    def meta_check(self, key: str) -> Checker:
        """Checks a meta-property that a Call may carry."""
        check = self._meta_checks.get(key)
        if check is None:
            check = self._meta_checks[key] = checker(with_defs(self.meta[key], self.schema))
        return check

    @cached_property
    def _meta_checks(self) -> dict[str, Checker]:
        return {}

    @cached_property
    def output_check(self) -> Checker | None:
        """Checks a result; None when the Tool declares no ``_output``."""
        return None if self.output is None else checker(with_defs(self.output, self.schema))

    @cached_property
    def required_meta(self) -> tuple[str, ...]:
        """The meta-properties that a Call must carry."""
        listed = self.schema.get("required")
        names = listed if isinstance(listed, list) else []
        return tuple(n for n in names if n in META and n not in OPTIONAL and n not in self.consts)

    @property
    def activity(self) -> str | None:
        """The Activity that answers the Tool's Calls, or None for a latent Tool."""
        fixed = self.consts.get("_activity", ABSENT)
        if fixed is ABSENT:
            return self.name if self.served else None
        return fixed or None

    @property
    def approval(self) -> bool:
        """True when a human confirms each Call."""
        return self.consts.get("_approval") is True

    def call_kind(self, delegate: Json) -> CallKind:
        """What answers a Call of the Tool; ``delegate`` is the Call's ``_delegate``."""
        if delegate:
            return "delegate"
        return "activity" if self.activity else "latent"


def parameter_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a Tool without its meta-properties. A Call may not have what the Tool fixes to a secret."""
    parameters = forbid_secrets({k: v for k, v in schema.items() if k not in META})
    if isinstance(parameters.get("properties"), dict):
        parameters["properties"] = {k: v for k, v in parameters["properties"].items() if k not in META}
    if isinstance(parameters.get("required"), list):
        parameters["required"] = [k for k in parameters["required"] if k not in META]
    return parameters


def read_tools(request: Request, registry: Mapping[str, Json], served: Callable[[str], bool]) -> _Tools:
    """The Tools of a context; the latest definition of a name counts.

    ``registry`` holds the schemas of the Tools registered with the worker, by name; ``served``
    tells whether the worker has an Activity of a name.
    """
    tools = _Tools()
    for message in request.context:
        if not isinstance(message, ToolMessage):
            continue
        at = ("context", message.index, "tool")
        try:
            for name, schema, place in _definitions(message.tool, at, registry, tools.problems):
                tools.add(name, schema, place, served)
        except TooComplex as error:
            hint = "define fewer Tools, or simpler ones; a delegate has Tools of its own"
            tools.problems.append(Problem(TOO_COMPLEX, str(error), pointer(*at), hint=hint))
            break
    return tools


class _Tools:
    """Tools by name, and what is wrong with their definitions."""

    def __init__(self) -> None:
        self.by_name: dict[str, Tool] = {}
        self.problems: list[Problem] = []
        self._tools = WorkMeter("reading the tools of the context", MAX_TOOLS_STEPS)
        self._schemas = WorkMeter("reading the schemas of the tools", MAX_SCHEMAS_STEPS)

    def add(self, name: str, schema: Json, at: Place, served: Callable[[str], bool]) -> None:
        """Read a Tool.

        Raises:
            TooComplex: reading all Tools so far takes too long.
        """
        self._tools.spend(TOOL_STEPS)
        schema = _canonical(schema)
        problem = find_schema_problem(schema, at, "invalidTool", subject=f'tool "{name}": ', meter=self._schemas)
        if problem is None and not isinstance(schema, dict):
            problem = Problem("invalidTool", f'tool "{name}": not an object', pointer(*at))
        if problem is not None:
            self.problems.append(problem)
            return
        tool, problems = read_tool(name, schema, at, served=served(name), meter=self._schemas)
        self.problems.extend(problems)
        if tool is not None:
            self.by_name[name] = tool


def _canonical(schema: Json) -> Json:
    """The schema with plain values of meta-properties (``"_activity": "charge"``) as ``const``."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return schema
    plain = {k: {"const": properties[k]} for k, kinds in _PLAIN.items() if isinstance(properties.get(k), kinds)}
    return {**schema, "properties": {**properties, **plain}} if plain else schema


def _definitions(
    tool: Json, at: Place, registry: Mapping[str, Json], problems: list[Problem]
) -> list[tuple[str, Json, Place]]:
    """The name, schema and place of each Tool that a message defines."""
    if isinstance(tool, str):
        name = tool.removeprefix("Tool.")
        if name not in registry:
            text = f'no tool "{name}" is registered with the worker; registered: {format_choices(registry)}'
            hint = "define it here as a schema, or load it with ACTS_ACTIVITIES or ACTS_TOOLS"
            hint = suggest(name, registry) or hint
            problems.append(Problem("unknownTool", text, pointer(*at), hint=hint))
            return []
        return [(name, registry[name], at)]
    own_name = tool_name(tool)
    if own_name is not None:
        return [(own_name, tool, at)]
    if _looks_like_schema(tool):
        problems.append(
            Problem("invalidTool", "the tool's schema has no name", pointer(*at),
                    hint='add "_tool": {"const": "<name>"} to its properties, or use {"<name>": <schema>}')
        )  # fmt: skip
        return []
    return [(str(key), schema, (*at, key)) for key, schema in tool.items()]


def registered_names(request: Request) -> list[str]:
    """The Tools that the context expects to be registered with the worker."""
    names = [m.tool.removeprefix("Tool.") for m in request.context
             if isinstance(m, ToolMessage) and isinstance(m.tool, str)]  # fmt: skip
    return list(dict.fromkeys(names))


def undecided_names(request: Request) -> list[str]:
    """The Tools whose definition fixes neither an Activity nor a delegate: the worker decides."""
    names: dict[str, None] = {}
    for message in request.context:
        if not isinstance(message, ToolMessage) or not isinstance(message.tool, dict):
            continue
        own_name = tool_name(message.tool)
        for name, schema in {own_name: message.tool}.items() if own_name else message.tool.items():
            if isinstance(schema, dict) and not fixes_answer(schema):
                names[str(name)] = None
    return list(names)


def fixes_answer(schema: Json) -> bool:
    """True when a Tool's definition says what answers its Calls, so that no worker has to decide."""
    if not isinstance(schema, dict):
        return False
    properties = schema.get("properties")
    declared = {**schema, **properties} if isinstance(properties, dict) else schema
    return any(_constant(k, declared.get(k)) is not ABSENT for k in ("_activity", "_delegate"))


def tool_name(schema: Json) -> str | None:
    """The name that a schema has by its own ``_tool``, or None."""
    if not isinstance(schema, dict):
        return None
    properties = schema.get("properties")
    declared = properties.get("_tool") if isinstance(properties, dict) else None
    name = _constant("_tool", schema.get("_tool") if declared is None else declared)
    return name if isinstance(name, str) and name else None


def _looks_like_schema(value: Json) -> bool:
    kind = value.get("type")
    return (
        kind == "object" or "$schema" in value or ("properties" in value and "type" not in value.get("properties", {}))
    )


def read_tool(
    name: str, schema: dict[str, Any], at: Place = (), *, served: bool = False, meter: WorkMeter | None = None
) -> tuple[Tool | None, list[Problem]]:
    """The Tool of a schema (None when the schema names another one too), and what is wrong with it.

    Raises:
        TooComplex: ``meter`` has run out.
    """
    problems: list[Problem] = []
    listed = schema.get("properties")
    properties: dict[str, Json] = listed if isinstance(listed, dict) else {}
    meta: dict[str, Json] = {}
    consts: dict[str, Json] = {}
    for key in META:
        declared = properties.get(key, schema.get(key, ABSENT))
        if declared is ABSENT:
            continue
        value = _constant(key, declared)
        meta[key] = {"const": value} if value is not ABSENT and not isinstance(declared, dict) else declared
        if value is not ABSENT and key != "_output":
            consts[key] = value
    known_names = f"a name with _ is one of {', '.join(META)}"
    problems.extend(
        Problem("unknownMeta", f'tool "{name}" declares "{key}"; {known_names}', pointer(*at, "properties", key),
                severity="warning")
        for key in properties if key.startswith("_") and key not in META
    )  # fmt: skip
    own_name = consts.get("_tool", name)
    if own_name != name:
        problems.append(Problem("invalidTool", f'the map calls it "{name}", its _tool says "{own_name}"', pointer(*at)))
    problems.extend(_name_problem("a tool's name", name, at))
    if isinstance(consts.get("_activity"), str) and consts["_activity"]:
        problems.extend(_name_problem("_activity", consts["_activity"], at))
    problems.extend(_constant_problems(name, consts, at))
    options = Options()
    if "_options" in meta:
        options = _read_options(name, consts.get("_options", meta["_options"]), at, problems)
    for key, declared in list(meta.items()):
        is_checked = key == "_options" or (key in properties and is_self_contained(declared))
        place = (*at, "properties", key) if key in properties else (*at, key)
        part, subject = with_defs(declared, schema), f'{key} of "{name}": '
        problem = None if is_checked else find_schema_problem(part, place, "invalidTool", subject=subject, meter=meter)
        if problem is not None:
            problems.append(problem)
            meta[key] = True
    output = meta.get("_output")
    return Tool(name, schema, meta, consts, None if output is True else output, options, served), problems


def _constant(key: str, declared: Json) -> Json:
    """The value that a meta-property has in every Call, or ABSENT when the Call chooses it."""
    if key in _PLAIN and isinstance(declared, _PLAIN[key]) and not (key == "_approval" and declared is False):
        return declared
    if not isinstance(declared, dict):
        return ABSENT
    if "const" in declared:
        return declared["const"]
    enum = declared.get("enum")
    if isinstance(enum, list) and len(enum) == 1 and key in ("_activity", "_delegate", "_tool"):
        return enum[0]
    if key == "_options" and declared and set(declared) <= _OPTION_KEYS:
        return declared
    return ABSENT


def _read_options(name: str, raw: Json, at: Place, problems: list[Problem]) -> Options:
    try:
        return Options.model_validate(raw)
    except ValidationError as error:
        of_options = settings_problems(error, Options, *at, "properties", "_options")
        problems.extend(replace(p, message=f'_options of "{name}": {p.message}') for p in of_options)
        return Options()


# Temporal stores these names in columns, ids and labels
MAX_NAME: Final = 200


def _name_problem(what: str, name: str, at: Place) -> list[Problem]:
    if 0 < len(name) <= MAX_NAME and name.isprintable() and name == name.strip():
        return []
    text = f"{what} is 1 to {MAX_NAME} printable characters without space at the ends, not {truncate(repr(name), 60)}"
    return [Problem("invalidTool", text, pointer(*at))]


def _constant_problems(name: str, consts: Mapping[str, Json], at: Place) -> list[Problem]:
    problems = []
    for key, value in consts.items():
        place = pointer(*at, "properties", key)
        types = _PLAIN.get(key)
        if types and not isinstance(value, types):
            words = " or ".join(
                {"str": "a string", "list": "a list", "bool": "true or false"}[t.__name__] for t in types
            )
            problems.append(Problem("invalidTool", f'{key} of "{name}" must be {words}', place))
        elif key in ("_outputPath", "_errorPath"):
            try:
                parse(value)
            except ExpressionError as error:
                problems.append(Problem("invalidExpression", f'{key} of "{name}": {error}', place))
        elif key == "_outputMethod" and value not in METHODS:
            text = f'{key} of "{name}" is {value!r}; allowed: {", ".join(METHODS)}'
            problems.append(Problem("invalidTool", text, place))
    return problems
