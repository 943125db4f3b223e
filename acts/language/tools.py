"""What a Tool is: its parameters, its meta-properties, what runs behind it.

A Tool is a JSON Schema. Properties without ``_`` are the parameters; the others say
how a Call runs and where its result goes. A ``const`` applies to every Call. What a
Tool runs (``_activity``, ``_options``, a fixed ``_delegate``) is decided here, by its
definition, and nothing in a Call can change it.

``const`` is the canonical way to fix a meta-property. A plain value where a schema is
expected (``"_activity": "charge"``, also at the top level of the Tool) is read as one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from acts.language.config import Options, settings_problems
from acts.language.errors import ExpressionError, Problem, format_choices, suggest, truncate
from acts.language.messages import METHODS, Request, ToolMessage
from acts.language.references import parse
from acts.language.schemas import Checker, checker, schema_defect, with_defs
from acts.language.values import ABSENT, Json, pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

META: Final = (
    "_tool", "_output", "_activity", "_delegate", "_scopes", "_outputPath", "_outputMethod", "_errorPath",
    "_instance", "_reasoningForCall", "_approval", "_options",
)  # fmt: skip

# Decided by the Tool alone; a Call that carries one loses it, with a warning
TOOL_ONLY: Final = ("_activity", "_options")
# Asked of nobody: a Call may leave these out even where the Tool lists them as required
OPTIONAL: Final = frozenset({"_tool", "_output", "_activity", "_options", "_instance"})
_PLAIN: Final[dict[str, tuple[type, ...]]] = {
    "_activity": (str,), "_delegate": (str,), "_outputPath": (str,), "_outputMethod": (str,), "_errorPath": (str,),
    "_scopes": (list,), "_approval": (bool,), "_tool": (str,), "_reasoningForCall": (str,),
}  # fmt: skip
_OPTION_KEYS: Final = frozenset(Options.model_fields)


@dataclass(frozen=True)
class Tool:
    """A Tool, read. ``schema`` is the JSON as it was given; ``meta`` what it says of Calls.

    ``consts`` are the values every Call has; ``output`` the schema of the result (None:
    any). ``served`` says that our worker has an Activity of the Tool's own name.
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
        """The check of a Call's parameters, meta-properties left out."""
        return checker(parameter_schema(self.schema))

    @cached_property
    def meta_checks(self) -> dict[str, Checker]:
        """The check of each meta-property that a Call may carry."""
        return {key: checker(with_defs(schema, self.schema)) for key, schema in self.meta.items() if key != "_output"}

    @cached_property
    def output_check(self) -> Checker | None:
        """The check of a result, where the Tool declares one."""
        return None if self.output is None else checker(with_defs(self.output, self.schema))

    @cached_property
    def required_meta(self) -> tuple[str, ...]:
        """The meta-properties that the author of a Call must give."""
        listed = self.schema.get("required")
        names = listed if isinstance(listed, list) else []
        return tuple(n for n in names if n in META and n not in OPTIONAL and n not in self.consts)

    @property
    def activity(self) -> str | None:
        """The Activity behind the Tool, or None for a latent one."""
        fixed = self.consts.get("_activity", ABSENT)
        if fixed is ABSENT:
            return self.name if self.served else None
        return fixed or None

    @property
    def approval(self) -> bool:
        """True when a human confirms each Call."""
        return self.consts.get("_approval") is True

    def runs(self, delegate: Json) -> str:
        """``delegate``, ``activity`` or ``latent``; ``delegate`` being the Call's own."""
        if delegate:
            return "delegate"
        return "activity" if self.activity else "latent"


def parameter_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The Tool's schema without its meta-properties."""
    out = {k: v for k, v in schema.items() if k not in META}
    if isinstance(out.get("properties"), dict):
        out["properties"] = {k: v for k, v in out["properties"].items() if k not in META}
    if isinstance(out.get("required"), list):
        out["required"] = [k for k in out["required"] if k not in META]
    return out


def read_tools(request: Request, registry: Mapping[str, Json], served: Callable[[str], bool]) -> _Tools:
    """The Tools of a context: the latest definition of a name wins.

    ``registry`` holds the schemas of Tools registered with the worker (None where that was not asked for);
    ``served`` tells whether it has an Activity of that name.
    """
    found = _Tools()
    for message in request.context:
        if not isinstance(message, ToolMessage):
            continue
        at = ("context", message.index, "tool")
        for name, schema, place in _definitions(message.tool, at, registry, found.problems):
            found.add(name, schema, place, served)
    return found


class _Tools:
    """Tools by name, and what was wrong with their definitions."""

    def __init__(self) -> None:
        self.by_name: dict[str, Tool] = {}
        self.problems: list[Problem] = []

    def add(self, name: str, schema: Json, at: tuple[str | int, ...], served: Callable[[str], bool]) -> None:
        schema = _canonical(schema)
        defect = schema_defect(schema)
        if defect or not isinstance(schema, dict):
            self.problems.append(Problem("invalidTool", f'tool "{name}": {defect or "not an object"}', pointer(*at)))
            return
        tool, problems = read_tool(name, schema, at, served=served(name))
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
    given: Json, at: tuple[str | int, ...], registry: Mapping[str, Json], problems: list[Problem]
) -> list[tuple[str, Json, tuple[str | int, ...]]]:
    if isinstance(given, str):
        name = given.removeprefix("Tool.")
        if name not in registry:
            text = f'no tool "{name}" is registered with the worker; registered: {format_choices(registry)}'
            hint = "define it here as a schema, or load it with ACTS_ACTIVITIES or ACTS_TOOLS"
            hint = suggest(name, registry) or hint
            problems.append(Problem("unknownTool", text, pointer(*at), hint=hint))
            return []
        return [(name, registry[name], at)]
    own = tool_name(given)
    if own is not None:
        return [(own, given, at)]
    if _looks_like_schema(given):
        problems.append(
            Problem("invalidTool", "the tool's schema has no name", pointer(*at),
                    hint='add "_tool": {"const": "<name>"} to its properties, or use {"<name>": <schema>}')
        )  # fmt: skip
        return []
    return [(str(key), schema, (*at, key)) for key, schema in given.items()]


def registered_names(request: Request) -> list[str]:
    """The names that the context expects the worker to know."""
    names = [m.tool.removeprefix("Tool.") for m in request.context
             if isinstance(m, ToolMessage) and isinstance(m.tool, str)]  # fmt: skip
    return list(dict.fromkeys(names))


def undecided_names(request: Request) -> list[str]:
    """Tools whose definition leaves open whether an Activity of their name runs."""
    out: dict[str, None] = {}
    for message in request.context:
        if not isinstance(message, ToolMessage) or not isinstance(message.tool, dict):
            continue
        own = tool_name(message.tool)
        for name, schema in {own: message.tool}.items() if own else message.tool.items():
            if isinstance(schema, dict):
                properties = schema.get("properties")
                fixed = {**schema, **properties} if isinstance(properties, dict) else schema
                if not any(_const(k, fixed.get(k)) is not ABSENT for k in ("_activity", "_delegate")):
                    out[str(name)] = None
    return list(out)


def tool_name(schema: Json) -> str | None:
    """The name a schema gives itself with ``_tool``."""
    if not isinstance(schema, dict):
        return None
    properties = schema.get("properties")
    given = properties.get("_tool") if isinstance(properties, dict) else None
    given = schema.get("_tool") if given is None else given
    value = _const("_tool", given)
    return value if isinstance(value, str) and value else None


def _looks_like_schema(value: Json) -> bool:
    kind = value.get("type")
    return (
        kind == "object" or "$schema" in value or ("properties" in value and "type" not in value.get("properties", {}))
    )


def read_tool(
    name: str, schema: dict[str, Any], at: tuple[str | int, ...] = (), *, served: bool = False
) -> tuple[Tool | None, list[Problem]]:
    """A Tool from its schema, and what is wrong with it."""
    problems: list[Problem] = []
    found = schema.get("properties")
    properties: dict[str, Json] = found if isinstance(found, dict) else {}
    meta: dict[str, Json] = {}
    consts: dict[str, Json] = {}
    for key in META:
        given = properties.get(key, ABSENT)
        given = schema.get(key, ABSENT) if given is ABSENT else given
        if given is ABSENT:
            continue
        value = _const(key, given)
        meta[key] = {"const": value} if value is not ABSENT and not isinstance(given, dict) else given
        if value is not ABSENT and key != "_output":
            consts[key] = value
    known_names = f"a name with _ is one of {', '.join(META)}"
    problems.extend(
        Problem("unknownMeta", f'tool "{name}" declares "{key}"; {known_names}', pointer(*at, "properties", key),
                severity="warning")
        for key in properties if key.startswith("_") and key not in META
    )  # fmt: skip
    own = consts.get("_tool", name)
    if own != name:
        problems.append(Problem("invalidTool", f'the map calls it "{name}", its _tool says "{own}"', pointer(*at)))
    problems.extend(_name_problem("a tool's name", name, at))
    if isinstance(consts.get("_activity"), str) and consts["_activity"]:
        problems.extend(_name_problem("_activity", consts["_activity"], at))
    problems.extend(_const_problems(name, consts, at))
    options = Options()
    if "_options" in meta:
        options = _options(name, consts.get("_options", meta["_options"]), at, problems)
    for key, given in list(meta.items()):
        why = schema_defect(with_defs(given, schema)) if key != "_options" else None
        if why:
            place = (*at, "properties", key) if key in properties else (*at, key)
            problems.append(Problem("invalidTool", f'{key} of "{name}": {why}', pointer(*place)))
            meta[key] = True
    output = meta.get("_output")
    return Tool(name, schema, meta, consts, None if output is True else output, options, served), problems


def _const(key: str, given: Json) -> Json:
    """The one value a meta-property has, or ABSENT when the Call chooses."""
    if key in _PLAIN and isinstance(given, _PLAIN[key]) and not (key == "_approval" and given is False):
        return given
    if not isinstance(given, dict):
        return ABSENT
    if "const" in given:
        return given["const"]
    if isinstance(given.get("enum"), list) and len(given["enum"]) == 1 and key in ("_activity", "_delegate", "_tool"):
        return given["enum"][0]
    if key == "_options" and given and set(given) <= _OPTION_KEYS:
        return given
    return ABSENT


def _options(name: str, given: Json, at: tuple[str | int, ...], problems: list[Problem]) -> Options:
    try:
        return Options.model_validate(given)
    except ValidationError as error:
        found = settings_problems(error, Options, *at, "properties", "_options")
        problems.extend(Problem(p.code, f'_options of "{name}": {p.message}', p.pointer, hint=p.hint) for p in found)
        return Options()


# Names that leave JSON: Temporal keeps them in columns, ids and labels
MAX_NAME: Final = 200


def _name_problem(what: str, name: str, at: tuple[str | int, ...]) -> list[Problem]:
    if 0 < len(name) <= MAX_NAME and name.isprintable() and name == name.strip():
        return []
    text = f"{what} is 1 to {MAX_NAME} printable characters without space at the ends, not {truncate(repr(name), 60)}"
    return [Problem("invalidTool", text, pointer(*at))]


def _const_problems(name: str, consts: Mapping[str, Json], at: tuple[str | int, ...]) -> list[Problem]:
    out = []
    for key, value in consts.items():
        wanted = _PLAIN.get(key)
        if wanted and not isinstance(value, wanted):
            words = {"str": "a string", "list": "a list", "bool": "true or false"}[wanted[0].__name__]
            out.append(Problem("invalidTool", f'{key} of "{name}" must be {words}', pointer(*at, "properties", key)))
        elif key in ("_outputPath", "_errorPath"):
            try:
                parse(value)
            except ExpressionError as error:
                out.append(Problem("invalidExpression", f'{key} of "{name}": {error}', pointer(*at, "properties", key)))
        elif key == "_outputMethod" and value not in METHODS:
            text = f'{key} of "{name}" is {value!r}; allowed: {", ".join(METHODS)}'
            out.append(Problem("invalidTool", text, pointer(*at, "properties", key)))
    return out
