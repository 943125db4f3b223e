"""Tools: their parameters, their meta-properties, and what answers their Calls.

A Tool is a JSON Schema. Properties without ``_`` are the parameters; the others, the meta-properties, say how a Call
runs and where its result goes. A ``const`` applies to every Call. What a Tool runs (``_activity``, ``_options``, a
fixed ``_delegate``) is decided here, by its definition; nothing in a Call can change it.

``const`` is the canonical way to fix a meta-property. A plain value in the place of a schema
(``"_activity": "charge"``, also at the top level of the Tool) is read as one.

Annotations of a Tool's schema that no check reads: ``x-mcp``: the Tool is one of an MCP server (``{"server", "tool",
"digest"}``); ``x-hints``: what people should know before they approve a Call (``{"readOnly", "destructive",
"idempotent", "openWorld"}``, each true or false). Those of an MCP server are what the server says of itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ValidationError

from acts.language.admission import SUBSCHEMAS, TOOLS, Meter
from acts.language.config import Options, settings_problems
from acts.language.errors import ExpressionError, Problem, TooComplex, format_choices, suggest, truncate
from acts.language.messages import METHODS, Request, ToolMessage
from acts.language.references import parse
from acts.language.schemas import Checker, find_schema_problem, is_self_contained, with_defs
from acts.language.secrets import secret_parameters
from acts.language.values import ABSENT, Json, Place, pointer
from acts.language.wire import TOO_COMPLEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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
# Temporal stores these names in columns, ids and labels
MAX_NAME: Final = 200
SERVER_TOOL: Final = "x-mcp"
HINTS: Final = "x-hints"


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
        return Checker(parameter_schema(self.schema))

    @cached_property
    def meta_checks(self) -> dict[str, Checker]:
        """Check the meta-properties that a Call may carry."""
        return {key: Checker(with_defs(part, self.schema)) for key, part in self.meta.items()}

    @cached_property
    def output_check(self) -> Checker | None:
        """Checks a result; None when the Tool declares no ``_output``."""
        return None if self.output is None else Checker(with_defs(self.output, self.schema))

    @cached_property
    def required_meta(self) -> tuple[str, ...]:
        """The meta-properties that a Call must carry."""
        names = self.schema.get("required", ())
        return tuple(n for n in names if n in META and n not in OPTIONAL and n not in self.consts)

    @property
    def activity(self) -> str | None:
        """The Activity that answers the Tool's Calls, or None for a latent Tool."""
        return self.consts.get("_activity", self.name if self.served else None) or None

    @property
    def approval(self) -> bool:
        """True when a human confirms each Call."""
        return self.consts.get("_approval") is True

    def call_kind(self, delegate: Json) -> CallKind:
        """What answers a Call of the Tool; ``delegate`` is the Call's ``_delegate``."""
        return "delegate" if delegate else "activity" if self.activity else "latent"


def parameter_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a Tool without its meta-properties. A Call may not have what the Tool fixes to a secret."""
    secret = secret_parameters(schema)
    parameters = {k: v for k, v in schema.items() if k not in META}
    if isinstance(parameters.get("properties"), dict):
        properties = parameters["properties"] | dict.fromkeys(secret, False)
        parameters["properties"] = {k: v for k, v in properties.items() if k not in META}
    if isinstance(parameters.get("required"), list):
        parameters["required"] = [k for k in parameters["required"] if k not in META and k not in secret]
    return parameters


@dataclass
class Tools:
    """Tools by name, and what is wrong with their definitions."""

    by_name: dict[str, Tool] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_tools(request: Request, registry: Mapping[str, Json], served: Callable[[str], bool]) -> Tools:
    """The Tools of a context; the latest definition of a name counts.

    ``registry`` holds the schemas of the Tools registered with the worker, by name; ``served``
    tells whether the worker has an Activity of a name.
    """
    tools = Tools()
    count, subschemas = Meter(TOOLS), Meter(SUBSCHEMAS)
    for message in (message for message in request.context if isinstance(message, ToolMessage)):
        at = ("context", message.index, "tool")
        try:
            for name, schema, place in _definitions(message.tool, at, registry, tools.problems):
                count.spend(1)
                tool, problems = read_tool(name, schema, place, served=served(name), meter=subschemas)
                tools.problems += problems
                if tool is not None:
                    tools.by_name[name] = tool
        except TooComplex as error:
            tools.problems.append(Problem(TOO_COMPLEX, str(error), pointer(*at)))
            break
    return tools


def _definitions(
    tool: Json, at: Place, registry: Mapping[str, Json], problems: list[Problem]
) -> list[tuple[str, Json, Place]]:
    """The name, schema and place of each Tool that a message defines."""
    if isinstance(tool, str):
        name = tool.removeprefix("Tool.")
        if name in registry:
            return [(name, registry[name], at)]
        text = f'no tool "{name}" is registered with the worker; registered: {format_choices(registry)}'
        hint = suggest(name, registry) or "define it here as a schema, or load it with ACTS_ACTIVITIES or ACTS_TOOLS"
        problems.append(Problem("unknownTool", text, pointer(*at), hint=hint))
        return []
    own_name = tool_name(tool)
    if own_name is not None:
        return [(own_name, tool, at)]
    is_schema = "$schema" in tool or ("properties" in tool and "type" not in tool["properties"])
    if is_schema or tool.get("type") == "object":
        hint = 'add "_tool": {"const": "<name>"} to its properties, or use {"<name>": <schema>}'
        problems.append(Problem("invalidTool", "the tool's schema has no name", pointer(*at), hint=hint))
        return []
    return [(str(key), schema, (*at, key)) for key, schema in tool.items()]


def registered_names(request: Request) -> list[str]:
    """The Tools that the context expects to be registered with the worker."""
    tools = [message.tool for message in request.context if isinstance(message, ToolMessage)]
    return list(dict.fromkeys(tool.removeprefix("Tool.") for tool in tools if isinstance(tool, str)))


def undecided_names(request: Request) -> list[str]:
    """The Tools whose definition fixes neither an Activity nor a delegate: the worker decides."""
    names: dict[str, None] = {}
    for message in request.context:
        if isinstance(message, ToolMessage) and isinstance(message.tool, dict):
            own_name = tool_name(message.tool)
            for name, schema in ({own_name: message.tool} if own_name else message.tool).items():
                declared = _declared(schema)
                is_fixed = any(_constant(k, declared.get(k)) is not ABSENT for k in ("_activity", "_delegate"))
                if isinstance(schema, dict) and not is_fixed:
                    names[str(name)] = None
    return list(names)


def tool_name(schema: Json) -> str | None:
    """The name that a schema has by its own ``_tool``, or None."""
    name = _constant("_tool", _declared(schema).get("_tool"))
    return name if isinstance(name, str) and name else None


def _declared(schema: Json) -> dict[str, Json]:
    """The meta-properties of a Tool: those of its ``properties``, and of its top level."""
    if not isinstance(schema, dict):
        return {}
    properties = schema.get("properties")
    every = {**schema, **properties} if isinstance(properties, dict) else schema
    return {key: every[key] for key in META if key in every}


def read_tool(
    name: str, schema: Json, at: Place = (), *, served: bool = False, meter: Meter | None = None
) -> tuple[Tool | None, list[Problem]]:
    """The Tool of a schema (None when it is no schema of one), and what is wrong with it; ``meter`` counts."""
    declared = _declared(schema)
    values = {key: value for key, part in declared.items() if (value := _constant(key, part)) is not ABSENT}
    # A plain value in the place of a schema is its constant
    meta = {key: {"const": part} if values.get(key, ABSENT) is part else part for key, part in declared.items()}
    whole = schema
    if isinstance(schema, dict) and isinstance(schema.get("properties", {}), dict):
        whole = {**schema, "properties": {**schema.get("properties", {}), **meta}}
    problem = find_schema_problem(whole, at, "invalidTool", subject=f'tool "{name}": ', meter=meter)
    if problem is None and not isinstance(whole, dict):
        problem = Problem("invalidTool", f'tool "{name}": not an object', pointer(*at))
    if problem is not None:
        return None, [problem]
    consts = {key: value for key, value in values.items() if key != "_output"}
    problems = list(_definition_problems(name, consts, whole["properties"], at))
    options = Options()
    try:
        if "_options" in meta:
            options = Options.model_validate(consts.get("_options", meta["_options"]))
    except ValidationError as error:
        of_options = settings_problems(error, Options, *at, "properties", "_options")
        problems += [replace(p, message=f'_options of "{name}": {p.message}') for p in of_options]
    for key, part in meta.items():
        if not is_self_contained(part):  # it is checked alone
            text = f'{key} of "{name}" refers to a part of the schema outside of $defs'
            problems.append(Problem("invalidTool", text, pointer(*at, "properties", key)))
            meta[key] = True
    output = meta.get("_output")
    return Tool(name, whole, meta, consts, None if output is True else output, options, served), problems


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
    return declared if key == "_options" and declared and set(declared) <= set(Options.model_fields) else ABSENT


def _definition_problems(
    name: str, consts: Mapping[str, Json], properties: Mapping[str, Json], at: Place
) -> Iterator[Problem]:
    for key in properties:
        if key.startswith("_") and key not in META:
            text = f'tool "{name}" declares "{key}"; a name with _ is one of {", ".join(META)}'
            yield Problem("unknownMeta", text, pointer(*at, "properties", key), severity="warning")
    if consts.get("_tool", name) != name:
        text = f'the map calls it "{name}", its _tool says "{consts["_tool"]}"'
        yield Problem("invalidTool", text, pointer(*at))
    for what, value in (("a tool's name", name), ("_activity", consts.get("_activity") or "latent")):
        is_name = isinstance(value, str) and value.isprintable() and value == value.strip()
        if not (is_name and 0 < len(value) <= MAX_NAME):
            brief_value = truncate(repr(value), 60)
            text = f"{what} is 1 to {MAX_NAME} printable characters without space at the ends, not {brief_value}"
            yield Problem("invalidTool", text, pointer(*at))
    words = {str: "a string", list: "a list", bool: "true or false"}
    for key, value in consts.items():
        place = pointer(*at, "properties", key)
        if key in _PLAIN and not isinstance(value, _PLAIN[key]):
            text = f'{key} of "{name}" must be {" or ".join(words[type_] for type_ in _PLAIN[key])}'
            yield Problem("invalidTool", text, place)
        elif key in ("_outputPath", "_errorPath"):
            try:
                parse(value)
            except ExpressionError as error:
                yield Problem("invalidExpression", f'{key} of "{name}": {error}', place)
        elif key == "_outputMethod" and value not in METHODS:
            text = f'{key} of "{name}" is {value!r}; allowed: {", ".join(METHODS)}'
            yield Problem("invalidTool", text, place)


def is_server_tool(schema: Mapping[str, Any]) -> bool:
    """True for a Tool of an MCP server: its results are values, never Messages."""
    return isinstance(schema.get(SERVER_TOOL), dict)


def hint_words(schema: Mapping[str, Any]) -> list[str]:
    """The hints of a Tool that are true, as words; what is read-only is idempotent anyway."""
    hints = schema[HINTS] if isinstance(schema.get(HINTS), dict) else {}
    words = {"readOnly": "read-only", "destructive": "destructive", "idempotent": "idempotent"}
    if hints.get("readOnly") is True:
        del words["idempotent"]
    return [word for key, word in {**words, "openWorld": "open world"}.items() if hints.get(key) is True]
