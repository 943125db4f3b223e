"""Tools: their parameters, their meta-properties, and what answers their Calls.

A Tool is a JSON Schema. Properties without ``_`` are the parameters; the others, the meta-properties, say how a Call
runs and where its result goes. A ``const`` applies to every Call. What a Tool runs (``_activity``, ``_options``, a
fixed ``_delegate``) is decided here, by its definition; nothing in a Call can change it.

``const`` is the canonical way to fix a meta-property. A plain value in the place of a schema
(``"_activity": "charge"``, also at the top level of the Tool) is read as one. ``"_activity": ""``, or null, says that a
model answers.

A Tool may fix a parameter to ``{"$secret": "name"}``, or to a value that contains this, and its worker has the value.
Such a parameter belongs to the Tool: no Call may have it, no model is shown it, and no run knows its value. The worker
puts it into the Call that the Activity gets, and masks it in all that comes back (``secret_masks.py``).

No check reads ``x-mcp``: the Tool is one of an MCP server (``{"server", "tool", "digest"}``), and ``x-hints``: what
people should know before they approve a Call. Those of an MCP server are what the server says of itself.
``"_show": "whole"``: a planner is shown results of the Tool whole, where others are shown up to 2 KB.
``x-failures`` is a map of the codes that the Tool fails with to what each means.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ValidationError

from acts.language.admission import SUBSCHEMAS, TOOLS, Meter
from acts.language.config import Options, Person, settings_problems
from acts.language.errors import ExpressionError, Problem, TooComplex, format_choices, suggest, truncate
from acts.language.messages import METHODS, WHOLE, Request, ToolMessage
from acts.language.references import ReferenceUse, parse_marked, parse_output, paths, scan_marked
from acts.language.schemas import Checker, find_schema_problem, is_self_contained, subschemas, with_defs
from acts.language.spelling import expression_hint
from acts.language.values import ABSENT, Json, Place, pointer
from acts.language.wire import INNER_PLAN, PLAN_TOOL, TOO_COMPLEX

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

META: Final = (
    "_tool", "_output", "_activity", "_delegate", "_scopes", "_outputPath", "_outputMethod", "_errorPath",
    "_instance", "_reasoningForCall", "_approval", "_options", "_when", "_each", "_person",
    "_undo", "_show",
)  # fmt: skip

CallKind = Literal["activity", "delegate", "latent", "person", "instance"]
"""What answers a Call; ``instance`` is a child that walks the Calls of some instances."""

# Say when and how often a Call runs; a Call may carry them unless its Tool's schema for them is ``false``
CONTROL: Final = ("_when", "_each")
# Decided by the Tool alone: stripped from a Call, with a warning
TOOL_ONLY: Final = ("_activity", "_options", "_person", "_undo", "_show")
# What the Call that undoes another may read: the result of that one, and its parameters
UNDO_KINDS: Final = ("result", "call")
MAX_UNDO_EXPRESSIONS: Final = 100  # each is read whenever a Call of the Tool completes
# A Call may leave these out even where the Tool lists them as required
OPTIONAL: Final = frozenset({"_tool", "_output", "_instance", *TOOL_ONLY})
_PLAIN: Final[dict[str, tuple[type, ...]]] = {
    "_activity": (str,), "_delegate": (str,), "_outputPath": (str,), "_outputMethod": (str,), "_errorPath": (str,),
    "_scopes": (list,), "_approval": (bool,), "_tool": (str,), "_reasoningForCall": (str,), "_when": (str,),
    "_each": (str, list), "_show": (str,),
}  # fmt: skip
# Temporal stores these names in columns, ids and labels
MAX_NAME: Final = 200
KEY: Final = "$secret"
SERVER_TOOL: Final = "x-mcp"
HINTS: Final = "x-hints"
# Our workers send heartbeats for each Tool that they run. A worker that is killed is missed after so long, and a tool
# that holds Python's lock for nearly as long is not
HEARTBEAT_SECONDS: Final = 10.0
FAILURES: Final = "x-failures"
# The attribute by which a function says which Tool it is (``acts/client/typed_tools.py``)
TYPED_TOOL: Final = "__acts_tool__"


@dataclass(frozen=True)
class Tool:
    """A Tool, parsed. ``schema`` is its JSON; ``meta`` holds the schemas of its meta-properties.

    ``consts`` are the meta-properties that every Call has; ``output`` is the schema of the result (None: any).
    ``served`` says that the worker has an Activity of the Tool's own name, ``person`` that a person answers.
    """

    name: str
    schema: dict[str, Any]
    meta: dict[str, Json]
    consts: dict[str, Json]
    output: Json = None
    options: Options = field(default_factory=Options)
    person: Person | None = None
    served: bool = False

    @cached_property
    def parameters(self) -> Checker:
        return Checker(parameter_schema(self.schema))

    @cached_property
    def meta_checks(self) -> dict[str, Checker]:
        return {key: Checker(with_defs(part, self.schema)) for key, part in self.meta.items()}

    @cached_property
    def output_check(self) -> Checker | None:
        return None if self.output is None else Checker(with_defs(self.output, self.schema))

    @cached_property
    def required_meta(self) -> tuple[str, ...]:
        names = self.schema.get("required", ())
        return tuple(n for n in names if n in META and n not in OPTIONAL and n not in self.consts)

    @property
    def activity(self) -> str | None:
        """The Activity that answers the Tool's Calls, or None for a latent Tool."""
        served = self.name if self.served and self.person is None else None
        return self.consts.get("_activity", served) or None

    @property
    def is_unanswered(self) -> bool:
        """True where no Activity and no delegate stands behind the Tool, and it does not say that a model does."""
        return not self.activity and not {"_activity", "_person"} & self.consts.keys() and "_delegate" not in self.meta

    @property
    def answer(self) -> str | None:
        """What answers, by a name: the Activity, and of an MCP server the tool, like ``mcp.shop/refund``."""
        source = self.schema.get(SERVER_TOOL)
        if not isinstance(source, dict) or self.activity != f"mcp.{source.get('server')}":
            return self.activity
        return f"{self.activity}/{source.get('tool')}"

    def asking(self) -> dict[str, Any]:
        """Its schema, with ``_approval``: for a Tool over what a Tool of the worker asks a person about."""
        properties = {**(self.schema.get("properties") or {}), "_tool": {"const": self.name}}
        return {**self.schema, "properties": {**properties, "_approval": {"const": True}}}

    @property
    def undo(self) -> dict[str, Any] | None:
        """The Call that undoes one of this Tool: its ``_tool``, and parameters of ``†result`` and ``†call``."""
        undo = self.consts.get("_undo")
        return undo if isinstance(undo, dict) and isinstance(undo.get("_tool"), str) else None

    @cached_property
    def undo_uses(self) -> tuple[ReferenceUse, ...]:
        return tuple(ReferenceUse.of(at, text, parse_marked(text)) for at, text in scan_marked(self.undo))

    @property
    def walks_plan(self) -> bool:
        """True where each Call holds, or names, a plan that a child walks."""
        return self.consts.get("_delegate") == INNER_PLAN

    @property
    def approval(self) -> bool:
        return self.consts.get("_approval") is True

    def call_kind(self, delegate: Json) -> CallKind:
        """What answers a Call of the Tool; ``delegate`` is the Call's ``_delegate``."""
        other: CallKind = "latent" if self.person is None else "person"
        return "delegate" if delegate else "activity" if self.activity else other


def parameter_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a Tool without its meta-properties. A Call may not have what the Tool fixes to a secret."""
    secret = secret_parameters(schema)
    parameters = without_properties({k: v for k, v in schema.items() if k not in META}, {*META, *secret})
    if secret:
        parameters["properties"] |= dict.fromkeys(secret, False)
    return parameters


def without_properties(schema: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    """A schema of objects without these properties, required or not."""
    out = dict(schema)
    if isinstance(out.get("properties"), dict):
        out["properties"] = {key: part for key, part in out["properties"].items() if key not in names}
    if isinstance(out.get("required"), list):
        out["required"] = [name for name in out["required"] if name not in names]
    return out


@dataclass
class Tools:
    by_name: dict[str, Tool] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_tools(request: Request, registry: Mapping[str, Json], served: Callable[[str], bool]) -> Tools:
    """The Tools of a context, the latest of a name; ``served`` tells whether the worker has an Activity of a name."""
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
                    tools.by_name[name] = _with_heartbeat(tool, served)
        except TooComplex as error:
            tools.problems.append(Problem(TOO_COMPLEX, str(error), pointer(*at)))
            break
    return tools


def _with_heartbeat(tool: Tool, served: Callable[[str], bool]) -> Tool:
    options = tool.options
    is_ours = tool.activity is not None and options.taskQueue is None and served(tool.activity)
    if not is_ours or options.heartbeat is not None:
        return tool
    return replace(tool, options=options.model_copy(update={"heartbeat": HEARTBEAT_SECONDS}))


def _definitions(
    tool: Json, at: Place, registry: Mapping[str, Json], problems: list[Problem]
) -> list[tuple[str, Json, Place]]:
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
    tools = [message.tool for message in request.context if isinstance(message, ToolMessage)]
    return list(dict.fromkeys(tool.removeprefix("Tool.") for tool in tools if isinstance(tool, str)))


def defined_names(request: Request) -> set[str]:
    """The Tools that the Request itself defines."""
    own = [m.tool for m in request.context if isinstance(m, ToolMessage) and isinstance(m.tool, dict)]
    return {name for tool in own for name, _, _ in _definitions(tool, (), {}, [])}


def undecided_names(request: Request) -> list[str]:
    """The Tools whose definition fixes neither an Activity nor a delegate: the worker decides."""
    names: dict[str, None] = {}
    for tool in [m.tool for m in request.context if isinstance(m, ToolMessage) and isinstance(m.tool, dict)]:
        for name, schema, _ in _definitions(tool, (), {}, []):
            declared = _declared(schema)
            keys = ("_activity", "_delegate", "_person")
            is_fixed = any(_constant(k, declared.get(k, ABSENT)) is not ABSENT for k in keys)
            names |= {} if is_fixed or not isinstance(schema, dict) else {name: None}
    return list(names)


def activity_names(request: Request) -> list[str]:
    """What the worker is asked for: the Activities that Tools of the Request name, and what may stand behind others."""
    tools = [message.tool for message in request.context if isinstance(message, ToolMessage)]
    defined = (schema for t in tools if isinstance(t, dict) for _, schema, _ in _definitions(t, (), {}, []))
    named = (_constant("_activity", _declared(schema).get("_activity", ABSENT)) for schema in defined)
    return list(dict.fromkeys((*undecided_names(request), *(n for n in named if n and isinstance(n, str)))))


def tool_name(schema: Json) -> str | None:
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
    is_plain = {key: part is None or values[key] is part for key, part in declared.items() if key in values}
    meta = {key: {"const": values[key]} if is_plain.get(key) else part for key, part in declared.items()}
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
    settings: dict[str, Any] = {"_options": Options(), "_person": Person() if "_person" in meta else None}
    for key, model in (("_options", Options), ("_person", Person)):
        try:
            if key in meta:
                settings[key] = model.model_validate(consts.get(key, meta[key]))
        except ValidationError as error:
            of_settings = settings_problems(error, model, *at, "properties", key)
            problems += [replace(p, message=f'{key} of "{name}": {p.message}') for p in of_settings]
    problems += _undo_problems(name, consts.get("_undo", meta.get("_undo", ABSENT)), at)
    if "_approval" in meta and "_approval" not in consts:
        text = f'_approval of "{name}" does not say whether a person confirms its calls'
        place = pointer(*at, "properties", "_approval")
        problems.append(Problem("invalidTool", text, place, hint='the one form is "_approval": {"const": true}'))
    if any("_approval" in (part.get("properties") or ()) for part in subschemas({**whole, "properties": {}})):
        text = f'_approval of "{name}" stands in a part of its schema, where nobody reads it'
        problems.append(
            Problem("invalidTool", text, pointer(*at), hint="put it into the properties of the Tool itself")
        )
    for key, part in meta.items():
        if not is_self_contained(part):  # it is checked alone
            text = f'{key} of "{name}" refers to a part of the schema outside of $defs'
            problems.append(Problem("invalidTool", text, pointer(*at, "properties", key)))
            meta[key] = True
    output = meta.get("_output")
    output = None if output is True else output
    if "_person" in meta and (output is None or consts.get("_activity") or {"_delegate", "_approval"} & meta.keys()):
        text = f'"{name}" has _person: its _output is the form that a person answers, and nothing else answers or asks'
        hint = "give it an _output, and neither _activity, _delegate nor _approval"
        problems.append(Problem("invalidTool", text, pointer(*at, "properties", "_person"), hint=hint))
    return Tool(name, whole, meta, consts, output, settings["_options"], settings["_person"], served), problems


def _constant(key: str, declared: Json) -> Json:
    """The value that a meta-property has in every Call, or ABSENT when the Call chooses it."""
    if declared is None and key == "_activity":
        return ""
    if key == "_undo" and isinstance(declared, dict) and isinstance(declared.get("_tool"), str):
        return declared
    if key in _PLAIN and isinstance(declared, _PLAIN[key]) and not (key == "_approval" and declared is False):
        return declared
    if not isinstance(declared, dict):
        return ABSENT
    if "const" in declared:
        return declared["const"]
    enum = declared.get("enum")
    if isinstance(enum, list) and len(enum) == 1 and key in ("_activity", "_delegate", "_tool"):
        return enum[0]
    fields: dict[str, Any] = {"_options": Options.model_fields, "_person": Person.model_fields}
    is_plain = (declared or key == "_person") and set(declared) <= set(fields.get(key, ()))
    return declared if key in fields and is_plain else ABSENT


def _undo_problems(name: str, undo: Json, at: Place) -> Iterator[Problem]:
    """What is wrong with the Call that undoes others, apart from its Tool; ABSENT: there is none."""
    place = pointer(*at, "properties", "_undo")
    if undo is ABSENT:
        return
    if not isinstance(undo, dict) or not isinstance(undo.get("_tool"), str):
        hint = 'like {"_tool": "refund", "paymentId": "†result.id"}'
        yield Problem("invalidTool", f'_undo of "{name}" is the Call that undoes one of it', place, hint=hint)
        return
    if others := [key for key in undo if key.startswith("_") and key != "_tool"]:
        text = f'_undo of "{name}" has {format_choices(others)}: it has its _tool and parameters, and nothing else'
        yield Problem("invalidTool", text, place)
    texts = list(islice((text for _, text in scan_marked(undo)), MAX_UNDO_EXPRESSIONS + 1))
    if len(texts) > MAX_UNDO_EXPRESSIONS:
        text = f'_undo of "{name}" has more than {MAX_UNDO_EXPRESSIONS} expressions: pass †result, or †call, whole'
        yield Problem("invalidTool", text, place)
        return
    for text in texts:
        try:
            other = next((path for path in paths(parse_marked(text)) if path.kind not in UNDO_KINDS), None)
        except ExpressionError as error:
            yield Problem("invalidExpression", f'_undo of "{name}": {error}', place)
            continue
        if other is not None:
            message = f'_undo of "{name}" reads {other}: it sees what the Call gave and was given, and nothing else'
            yield Problem("invalidExpression", message, place, hint="†result.id, †call.amount")


def _definition_problems(
    name: str, consts: Mapping[str, Json], properties: Mapping[str, Json], at: Place
) -> Iterator[Problem]:
    for key in properties:
        if key.startswith("_") and key not in META:
            text = f'tool "{name}" declares "{key}"; a name with _ is one of {", ".join(META)}'
            yield Problem("unknownMeta", text, pointer(*at, "properties", key), None, suggest(key, META), "warning")
    if consts.get("_tool", name) != name:
        text = f'the map calls it "{name}", its _tool says "{consts["_tool"]}"'
        yield Problem("invalidTool", text, pointer(*at))
    for what, value in (("a tool's name", name), ("_activity", consts.get("_activity") or "latent")):
        is_name = isinstance(value, str) and value.isprintable() and value == value.strip()
        if not (is_name and 0 < len(value) <= MAX_NAME):
            brief_value = truncate(repr(value), 60)
            text = f"{what} is 1 to {MAX_NAME} printable characters without space at the ends, not {brief_value}"
            yield Problem("invalidTool", text, pointer(*at))
    if consts.get("_delegate") == INNER_PLAN and name != PLAN_TOOL:
        text = f'"{INNER_PLAN}" is behind the tool "{PLAN_TOOL}" that ships, and behind no other such as "{name}"'
        yield Problem("invalidTool", text, pointer(*at, "properties", "_delegate"))
    yield from _const_problems(name, consts, at)


def _const_problems(name: str, consts: Mapping[str, Json], at: Place) -> Iterator[Problem]:
    words = {str: "a string", list: "a list", bool: "true or false"}
    for key, value in consts.items():
        place = pointer(*at, "properties", key)
        is_group = key == "_each" and isinstance(value, dict)  # as a value of its own it would be a schema
        if key in _PLAIN and not isinstance(value, _PLAIN[key]) and not is_group:
            text = f'{key} of "{name}" must be {" or ".join(words[type_] for type_ in _PLAIN[key])}'
            yield Problem("invalidTool", text, place)
        elif key in ("_outputPath", "_errorPath"):
            try:
                parse_output(value)
            except ExpressionError as error:
                text, hint = f'{key} of "{name}": {error}', expression_hint(value, parse_output)
                yield Problem("invalidExpression", text, place, hint=hint)
        elif value not in (choices := {"_outputMethod": METHODS, "_show": (WHOLE,)}.get(key, (value,))):
            text = f'{key} of "{name}" is {value!r}; allowed: {", ".join(choices)}'
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


def describe_changes(before: Tool, after: Tool) -> list[str]:
    """What a Call meets otherwise than before: parameters, result, shared definitions, and what answers it."""
    one, other = _contract(before), _contract(after)
    texts = {name: "is new" if name not in one else "is gone" if name not in other else "has changed"
             for name in (*one, *other)}  # fmt: skip
    return [f"{name} {text}" for name, text in texts.items() if one.get(name, ABSENT) != other.get(name, ABSENT)]


def _contract(tool: Tool) -> dict[str, Json]:
    schema = parameter_schema(tool.schema)
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    parts: dict[str, Json] = {name: [_without_notes(part), name in required] for name, part in properties.items()}
    answer = tool.answer if tool.person is None else tool.person.model_dump()
    parts |= {"the result": _without_notes(tool.output), "what answers it": answer}
    return {**parts, **{f"$defs/{name}": _without_notes(p) for name, p in (schema.get("$defs") or {}).items()}}


def _without_notes(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_without_notes(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _without_notes(part) for key, part in schema.items()
            if key not in ("title", "description", "examples") or isinstance(part, dict)}  # fmt: skip


# -- secrets -------------------------------------------------------------------


def secret_parameters(schema: Json) -> dict[str, Json]:
    """The parameters of a Tool that hold secrets, with what the Tool fixes them to."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    fixed = {name: declared["const"] for name, declared in properties.items()
             if isinstance(declared, dict) and isinstance(declared.get("const"), (dict, list))}  # fmt: skip
    return {name: value for name, value in fixed.items() if next(secret_names(value), None) is not None}


def secret_names(value: Json) -> Iterator[str]:
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            if len(part) == 1 and isinstance(part.get(KEY), str):
                yield part[KEY]
            else:
                stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)


def put_secrets(value: Json, secrets: Mapping[str, str]) -> Json:
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(value.get(KEY), str):
            return secrets[value[KEY]]
        return {key: put_secrets(part, secrets) for key, part in value.items()}
    if isinstance(value, list):
        return [put_secrets(part, secrets) for part in value]
    return value


def without_secrets(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a Tool as a model is shown it: without its secret parameters."""
    return without_properties(schema, secret_parameters(schema))


def inline_secret_problems(request: Request) -> list[Problem]:
    """The Tools of a Request that name a secret: its author would choose to which Activity, so where, it is sent."""
    problems, hint = [], "load the tool with ACTS_ACTIVITIES or ACTS_TOOLS, and use it by its name"
    for message in request.context:
        tool = message.tool if isinstance(message, ToolMessage) and isinstance(message.tool, dict) else {}
        for schema in (tool, *tool.values()):
            fixed = secret_parameters(schema).values()
            for name in dict.fromkeys(name for value in fixed for name in secret_names(value)):
                text = f'a tool of this Request names the secret "{name}"; only one that a worker has loaded may'
                place = pointer("context", message.index, "tool")
                problems.append(Problem("secretNotAllowed", text, place, hint=hint))
    return problems
