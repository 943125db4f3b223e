"""Requests and their Messages: typed records, and their one reader, which reports every defect of plain JSON.

A Request is ``{config, context, schema}``; its context is a list of Messages. A record keeps the JSON that it was read
from (``raw``). Both forms of a data-like Message, wrapped and inline, are read here and nowhere else. Messages are open
JSON: they are parsed by hand, so that an error names the message's index; settings are closed models (``config.py``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import ValidationError

from acts.language.config import Config, settings_problems
from acts.language.errors import ExpressionError, InvalidRequest, Problem, find_similar, suggest, truncate
from acts.language.references import Path, parse
from acts.language.values import ABSENT, UNKNOWN, Json, Place, defect, list_index, pointer, type_name
from acts.language.wire import NOW

# By output method, the types of value that it adds to; "set" replaces any. What a method does to a value
# is in ``plan/context_log.py``; whose part it leaves whose in ``provenance/trace.py``
OUTPUT_METHODS: Final[dict[str, tuple[str, ...]]] = {
    "set": (), "merge": ("object", "list"), "assign": ("object",), "push": ("list",), "concat": ("list", "string"),
}  # fmt: skip
METHODS: Final = tuple(OUTPUT_METHODS)
# They lengthen a list or string, so an index into it depends on all of it
GROWING_METHODS: Final = ("push", "concat")
# For people and models
METHODS_TEXT: Final = f"{METHODS[0]} (default), {', '.join(METHODS[1:-1])} or {METHODS[-1]}"
DATA_TYPES: Final = ("data", "input", "state")
TYPES: Final = ("system", "text", *DATA_TYPES, "tool", "plan", "error")
# The key of a Message that names a set, the keys of its value, and the name that stands for the instances of a set
INSTANCES: Final = "_instances"
SET_KEYS: Final = ("source", "id")
EACH_ROW: Final = "each row"
WHOLE: Final = "whole"  # what ``_show`` of a Message or a Tool says, and nothing else
PROVENANCE: Final = ("_call", "_date", "_outputPath", "_outputMethod")
# Keys of an inline data-like message that are not part of its payload
_FRAME: Final = frozenset({"type", "kind", "schema", "description", "_instance", "_show", *PROVENANCE})
# After so many problems the others are not kept: a report shows a hundred, and each hint takes time
MAX_PROBLEMS_READ: Final = 1_000
# Keys of one object that are compared with the right ones: a hostile one has 100,000
MAX_KEYS_COMPARED: Final = 20
_KIND_NAME: Final = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class Message:
    """One element of a context. ``index`` is its position, from 0; ``type`` is as on the wire."""

    index: int
    type: str
    raw: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Instruction(Message):
    """``system`` or ``text``, or a chat message (``role`` and ``content``)."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Data(Message):
    """A data-like Message; ``payload`` is ABSENT when it has only a schema. Without ``path`` it merges at the root."""

    kind: str = "data"
    payload: Json = ABSENT
    schema: Json = None
    instance: str | None = None
    path: Path | None = None
    method: str = "set"


@dataclass(frozen=True, slots=True)
class SetData(Data):
    """A Message that names a set: each row of ``source`` is the data of one instance.

    The id of an instance is the row's field ``id_field``; None: the row's number. The rows are not here, so the payload
    is UNKNOWN. The Message has an instance that stands for all of them, ``EACH_ROW``.
    """

    source: str = ""
    id_field: str | None = None


@dataclass(frozen=True, slots=True)
class ToolMessage(Message):
    """``tool`` is the name of a registered Tool, a schema, or a map of name to schema."""

    tool: Json = None


@dataclass(frozen=True, slots=True)
class PlanMessage(Message):
    """A list of Calls, as JSON. The latest plan message of a context is its plan."""

    calls: tuple[Json, ...] = ()
    mode: Literal["eager", "lazy"] = "eager"
    run: bool = False


@dataclass(frozen=True, slots=True)
class ErrorMessage(Message):
    """A failure or a refused Solution of an earlier tick."""

    data: Json = None


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed Request. ``schema`` is that of the output (None: any JSON).

    ``is_partial`` says that a message could not be read: it may define what seems to be missing.
    """

    config: Config
    context: tuple[Message, ...]
    schema: Json
    raw: dict[str, Any]
    problems: tuple[Problem, ...] = ()
    is_partial: bool = False

    @property
    def plan(self) -> PlanMessage | None:
        return next((m for m in reversed(self.context) if isinstance(m, PlanMessage)), None)

    @property
    def calls(self) -> list[Json]:
        return [] if self.plan is None else list(self.plan.calls)

    @property
    def mode(self) -> str:
        return "eager" if self.plan is None else self.plan.mode

    @property
    def asks_for_plan(self) -> bool:
        """True when a person approves the plan before any of it runs: the default for lazy plans."""
        approve = self.config.approve
        is_lazy = approve.plan is None and self.mode == "lazy"
        return is_lazy or approve.plan_rule.plan

    def data(self) -> tuple[Data, ...]:
        return tuple(m for m in self.context if isinstance(m, Data))

    @property
    def set(self) -> SetData | None:
        return next((m for m in self.context if isinstance(m, SetData)), None)

    def instances(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(m.instance for m in self.data() if m.instance is not None))

    def is_template(self, plan: Iterable[Json]) -> bool:
        """True when the Calls of ``plan`` run once per instance: there are instances, and no Call names one."""
        is_general = not any(isinstance(call, dict) and call.get("_instance") is not None for call in plan)
        return is_general and bool(self.instances())

    def count_calls(self, plan: Sequence[Json]) -> int:
        """How many Calls ``plan`` makes in this context: a template makes its Calls once per instance."""
        return len(plan) * (len(self.instances()) if self.is_template(plan) else 1)


def output_schema(schema: Json) -> Json:
    """The schema of a Request's ``output``: its ``schema``, or ``properties.output`` of the long form."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not {"calls", "output"} <= set(properties):
        return schema
    output = properties["output"]
    return {**output, "$defs": schema["$defs"]} if isinstance(output, dict) and "$defs" in schema else output


def parse_request(raw: Json) -> Request:
    """Read a Request, whose plan is checked later; raises InvalidRequest with every problem of its shape."""
    request = read_request(raw)
    if any(p.fatal for p in request.problems):
        raise InvalidRequest(request.problems)
    return request


def read_request(raw: Json) -> Request:
    """Read the Request of a JSON value, as far as it can be read.

    ``problems`` holds what is wrong with its shape. The rest is read all the same, so that later checks report their
    problems together with these. Raises InvalidRequest: the value is no JSON object, or JSON that cannot be stored.
    """
    reader = _Reader(raw)
    if not isinstance(raw, dict):
        text = f"a Request is an object {{config, context, schema}}, not {type_name(raw)}"
        raise InvalidRequest([Problem("invalidRequest", text)])
    keys = ("config", "context", "schema")
    for key in [key for key in raw if key not in keys]:
        hint = "a Request has config, context and schema"
        reader.report("unknownKey", f'unknown key "{key}"', key, hint=hint, like=(key, keys))
    config = Config()
    try:
        config = Config.model_validate(raw.get("config") if raw.get("config") is not None else {})
    except ValidationError as error:
        reader.problems += settings_problems(error, Config, "config")
    before = len(reader.problems)
    context = raw.get("context", [])
    if not isinstance(context, list):
        reader.report("invalidRequest", f"context is a list of Messages, not {type_name(context)}", "context")
        context = []
    read = [reader.read(item, index) for index, item in enumerate(context)]
    messages = tuple(message for message in read if message is not None)
    reader.check_set(messages)
    partial = any(p.fatal for p in reader.problems[before:])
    return Request(config, messages, raw.get("schema"), raw, tuple(reader.problems), partial)


def with_input(request: dict[str, Any], values: Any) -> dict[str, Any]:
    """A Request with one more Message, which holds the input; None: unchanged."""
    context = request.get("context", [])
    if values is None or not isinstance(context, list):  # who validates it reports what is wrong with it
        return request
    return {**request, "context": [*context, {"type": "input", "input": values}]}


def with_tags(request: dict[str, Any], tags: Any) -> dict[str, Any]:
    """A Request with these tags over its own; none: unchanged."""
    config = request.get("config") or {}
    if not tags or not isinstance(config, dict) or not isinstance(own := config.get("tags", {}), dict):
        return request  # who validates it reports what is wrong with it
    return {**request, "config": {**config, "tags": {**own, **tags}}}


def choose_workflow(request: Request) -> tuple[bool, str]:
    """True if a Request is for an Agent: it has a model, and no Calls or a setting that only an agent uses; and why."""
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


def parse_message(raw: Json, index: int = 0) -> Message:
    """Read a Message (of ``provide``, or a Tool's result); raises InvalidRequest when the value is none."""
    reader = _Reader(raw)
    message = reader.read(raw, index)
    if message is None or any(p.fatal for p in reader.problems):
        raise InvalidRequest(reader.problems)
    return message


def counting_now(raw: dict[str, Any]) -> dict[str, Any]:
    """A Message to provide that counts at once: in wrapped form, with ``when`` beside its payload."""
    type_ = raw.get("type", "text")
    if type_ in raw or type_ not in DATA_TYPES:
        return {**raw, "when": NOW}
    frame = {k: v for k, v in raw.items() if k in _FRAME}
    return {**frame, type_: {k: v for k, v in raw.items() if k not in _FRAME}, "when": NOW}


# By key: what its value must be, and the code and the text of the problem when it is not
_RULES: Final[dict[str, tuple[Callable[[Json], Any], str, str]]] = {
    "kind": (lambda v: isinstance(v, str) and _KIND_NAME.fullmatch(v), "invalidMessage",
             "kind {value!r} is not made of letters, digits, _ and -"),
    "schema": (lambda v: v is None or isinstance(v, (dict, bool)), "invalidSchema",
               "a schema is an object, not {type}"),
    "_instance": (lambda v: v is None or (isinstance(v, str) and v), "invalidMessage",
                  "_instance is a non-empty string"),
    "_outputMethod": (lambda v: v in METHODS, "invalidMessage",
                      f"_outputMethod {{value!r}}; allowed: {', '.join(METHODS)}"),
    "_show": (lambda v: v == WHOLE, "invalidMessage", f"_show {{value!r}}; allowed: {WHOLE}"),
    INSTANCES: (lambda v: isinstance(v, dict), "invalidSet",
                f'{INSTANCES} is {{{{"source": "orders.jsonl", "id"?: "orderId"}}}}, not {{type}}'),
    "source": (lambda v: isinstance(v, str) and v, "invalidSet",
               '"source" of a set is the name of a file or a URL, not {type}'),
    "id": (lambda v: v in (ABSENT, None) or (isinstance(v, str) and v), "invalidSet",
           '"id" of a set is the name of a field, not {type}'),
    "tool": (lambda v: isinstance(v, (str, dict)) and v, "invalidTool",
             '"tool" is a registered name, a JSON Schema with _tool, or a map of name to schema; found {type}'),
    "plan": (lambda v: v is ABSENT or isinstance(v, list), "invalidPlan", '"plan" is a list of Calls, not {type}'),
    "mode": (lambda v: v in (ABSENT, "eager", "lazy"), "invalidPlan", "mode {value!r}; allowed: eager, lazy"),
}  # fmt: skip
_DATA_KEYS: Final = ("kind", "schema", "_instance", "_outputMethod", "_show", INSTANCES)


class _Reader:
    """Reads Messages, and collects problems: up to MAX_PROBLEMS_READ errors, and as many warnings."""

    def __init__(self, raw: Json) -> None:
        self.problems: list[Problem] = []
        self._counts = Counter[bool]()
        self._place: Place = ()
        if (reason := defect(raw)) is not None:  # it cannot be stored
            raise InvalidRequest([Problem("invalidJson", reason[1], reason[0])])

    def report(
        self, code: str, message: str, *at: str | int,
        hint: str | None = None, like: tuple[str, Sequence[str]] | None = None, warn: bool = False,
    ) -> None:  # fmt: skip
        self._counts[warn] += 1
        if self._counts[warn] <= MAX_PROBLEMS_READ:
            hint = (suggest(*like) if like is not None else None) or hint
            severity, place = "warning" if warn else "error", pointer(*self._place, *at)
            self.problems.append(Problem(code, truncate(message), place, hint=hint, severity=severity))

    def _obeys(self, raw: dict[str, Any], keys: Iterable[str], *at: str) -> bool:
        wrong = [key for key in keys if not _RULES[key][0](raw.get(key, ABSENT))]
        for key in wrong:
            _, code, text = _RULES[key]
            value = raw.get(key, ABSENT)
            self.report(code, text.format(value=value, type=type_name(value)), *at, key)
        return not wrong

    def read(self, raw: Json, index: int) -> Message | None:
        """Return the Message at ``index`` of the context, or None when it cannot be read."""
        self._place = ("context", index)
        if not isinstance(raw, dict):
            self.report("invalidMessage", f"a Message is an object, not {type_name(raw)}")
            return None
        kind = raw.get("type")
        if kind in ("system", "text") or (kind is None and "role" in raw and "content" in raw):
            return self._read_instruction(raw, index)
        if kind in DATA_TYPES:
            return self._read_data(raw, index)
        if kind == "tool":
            return ToolMessage(index, kind, raw, raw["tool"]) if self._obeys(raw, ("tool",)) else None
        if kind == "plan":
            return self._read_plan(raw, index)
        if kind == "error":
            return ErrorMessage(index, kind, raw, data=raw.get("data"))
        text = "no type" if kind is None else f"the unknown type {kind!r}"
        text = f"message {index} has {text}; known: {', '.join(TYPES)}"
        similar = find_similar("type", list(raw)[:MAX_KEYS_COMPARED]) if kind is None else None
        hint = None if similar is None else f'is "{similar}" meant to be "type"?'
        like = (kind, TYPES) if isinstance(kind, str) else None
        self.report("unknownMessageType", text, "type", hint=hint, like=like)
        return None

    def _read_instruction(self, raw: dict[str, Any], index: int) -> Message | None:
        usual_key = {"system": "message", "text": "text"}.get(str(raw.get("type")), "content")
        key = next((k for k in (usual_key, "text", "message") if k in raw), usual_key)
        text = raw.get(key, ABSENT)
        if not isinstance(text, str):
            self.report("invalidMessage", f'"{key}" is a string, not {type_name(text)}', key)
            return None
        kind = raw.get("type") or ("system" if raw.get("role") == "system" else "text")
        return Instruction(index, str(kind), raw, text=text)

    def _read_data(self, raw: dict[str, Any], index: int) -> Message | None:
        type_ = raw["type"]
        kind = raw.get("kind", type_)
        if not self._obeys(raw, [key for key in _DATA_KEYS if key in raw]):
            return None
        if INSTANCES in raw:
            return self._read_set(raw, index, kind)
        payload, schema = raw.get(type_, ABSENT), raw.get("schema")
        rest = {k: v for k, v in raw.items() if k != type_ and k not in _FRAME}
        if payload is not ABSENT:
            for key in rest:
                text = f'"{key}" is beside the payload of a message in wrapped form, and is ignored'
                self.report("ignoredField", text, key, hint=f'put it inside "{type_}"', warn=True)
        elif rest or "schema" not in raw:
            payload = rest
        written, tree = raw.get("_outputPath"), None
        with suppress(ExpressionError):
            tree = parse(written) if isinstance(written, str) else None
        path = tree if isinstance(tree, Path) and tree.kind == kind else None
        if path is None and written is not None:
            self.report("invalidMessage", f"_outputPath is one path below †{kind}", "_outputPath")
        method = raw.get("_outputMethod", "set")
        return Data(index, type_, raw, kind, payload, schema, raw.get("_instance"), path, method)

    def _read_set(self, raw: dict[str, Any], index: int, kind: str) -> Message | None:
        value = raw[INSTANCES]
        for key in value:
            if key not in SET_KEYS:
                text = f'unknown key "{key}" of a set; known: {", ".join(SET_KEYS)}'
                self.report("invalidSet", text, INSTANCES, key, like=(key, SET_KEYS))
        if not self._obeys(value, SET_KEYS, INSTANCES):
            return None
        if "state" in (raw["type"], kind):
            text = "the rows of a set are data, and no state: each instance begins with an empty one"
            self.report("invalidSet", text, "kind", hint='"kind": "order" makes them †order')
        for key in raw:
            if key == "_instance" or (key not in _FRAME and key != INSTANCES):
                self.report("invalidSet", f'"{key}" is beside {INSTANCES}: the rows of the set are the data', key)
        source, id_field = value["source"], value.get("id")
        return SetData(
            index, raw["type"], raw, kind, UNKNOWN, raw.get("schema"), EACH_ROW, source=source, id_field=id_field
        )

    def check_set(self, messages: Sequence[Message]) -> None:
        sets = [m for m in messages if isinstance(m, SetData)]
        for message in messages if sets else ():
            self._place = ("context", message.index)
            if isinstance(message, SetData) and message is not sets[0]:
                text = f"a Request has one set, and message {sets[0].index} names one already"
                self.report("invalidSet", text, INSTANCES)
            elif isinstance(message, Data) and message.instance not in (None, EACH_ROW):
                text = f"message {sets[0].index} names a set, so all instances come from there"
                self.report("invalidSet", text, "_instance")

    def _read_plan(self, raw: dict[str, Any], index: int) -> Message | None:
        if not self._obeys(raw, ("plan", "mode")):
            return None
        for key in raw:
            if key not in ("type", "plan", "mode", "run"):
                self.report("ignoredField", f'"{key}" has no meaning in a plan message', key, warn=True)
        return PlanMessage(
            index, "plan", raw, tuple(raw.get("plan", ())), raw.get("mode", "eager"), raw.get("run") is True
        )


def scoped_context(
    scopes: Iterable[Path], read: Callable[[Path], Json], is_list: Callable[[Path], bool] | None = None
) -> list[dict[str, Any]]:
    """The Messages that a Call with these scopes gets; ``[]`` without scopes.

    A scope is a kind or a path: the part of the context that a Call may see, an allow-list. A Call gets one merged
    Message per kind in scope, without provenance and ``_instance``. A path gives the part there and nothing beside it.
    ``is_list`` tells whether a value on the way to a scope is a list, where ``read`` must not be asked for it: a Call
    does not depend on what else is written there.
    """
    is_list = is_list or (lambda path: isinstance(read(path), list))
    values = {path: value for path in scopes if (value := read(path)) is not ABSENT}
    payloads: dict[str, Json] = dict.fromkeys((path.kind for path in values), ABSENT)
    for path, value in values.items():
        if not any(prefix in values for prefix in path.prefixes()):
            payloads[path.kind] = _place(payloads[path.kind], path, 0, value, is_list)
    return [wrap_message(kind, payload) for kind, payload in payloads.items()]


def wrap_message(kind: str, payload: Json) -> dict[str, Any]:
    """The Message of a kind in wrapped form; any other than the data-like types is ``data`` with ``kind``."""
    return {"type": kind, kind: payload} if kind in DATA_TYPES else {"type": "data", "kind": kind, "data": payload}


def _place(payload: Json, path: Path, depth: int, value: Json, is_list: Callable[[Path], bool]) -> Json:
    """``payload`` with ``value`` at the names of a path from ``depth`` on; a list has null before its index."""
    if depth == len(path.names):
        return value
    name = path.names[depth]
    index = list_index(name)
    if index is None or not is_list(Path(path.kind, path.names[:depth])):
        part = payload if isinstance(payload, dict) else {}
        part[name] = _place(part.get(name, ABSENT), path, depth + 1, value, is_list)
        return part
    items = payload if isinstance(payload, list) else []
    items.extend([None] * (index + 1 - len(items)))
    items[index] = _place(items[index], path, depth + 1, value, is_list)
    return items
