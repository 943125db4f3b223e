"""Reads Requests and Messages: from plain JSON to the records of ``messages.py``, every defect reported.

Both forms of a data-like Message, wrapped and inline, are read here and nowhere else. Messages are open JSON: they are
parsed by hand, so that an error names the message's index. Settings are closed models (``config.py``). What a plan or a
Tool means is not known here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic import ValidationError

from acts.language.config import Config, settings_problems
from acts.language.errors import ExpressionError, InvalidRequest, Problem, find_similar, suggest, truncate
from acts.language.expression_parser import parse
from acts.language.messages import (
    DATA_TYPES,
    EACH_ROW,
    INSTANCES,
    PROVENANCE,
    SET_KEYS,
    TYPES,
    Data,
    ErrorMessage,
    Instruction,
    Message,
    PlanMessage,
    Request,
    SetData,
    ToolMessage,
)
from acts.language.output_methods import METHODS
from acts.language.references import Path
from acts.language.values import ABSENT, UNKNOWN, Json, defect, pointer, type_name

# Keys of an inline data-like message that are not part of its payload
_FRAME: Final = frozenset({"type", "kind", "schema", "description", "_instance", *PROVENANCE})
# After so many problems the other messages are not read: a report shows a hundred, and each hint takes time
MAX_PROBLEMS_READ: Final = 1_000
# Keys of one object that are compared with the right ones: a hostile one has 100,000
MAX_KEYS_COMPARED: Final = 20
_KIND_NAME: Final = re.compile(r"[\w-]+")


class _Problems:
    """Collects problems while a Request is read: up to MAX_PROBLEMS_READ errors, and as many warnings."""

    def __init__(self) -> None:
        self.items: list[Problem] = []
        self._counts = Counter[str]()

    @property
    def is_full(self) -> bool:
        """True when nothing more is to be read."""
        return self._counts["error"] >= MAX_PROBLEMS_READ

    def report(self, code: str, message: str, *at: str | int, hint: str | None = None, severity: str = "error") -> None:
        self._counts[severity] += 1
        if self._counts[severity] <= MAX_PROBLEMS_READ:
            self.items.append(Problem(code, truncate(message), pointer(*at), hint=hint, severity=severity))


def parse_request(raw: Json) -> Request:
    """The Request of a JSON value. Its plan is checked later (``validate``).

    Raises:
        InvalidRequest: with every problem of its shape.
    """
    request = read_request(raw)
    if any(p.fatal for p in request.problems):
        raise InvalidRequest(request.problems)
    return request


def read_request(raw: Json) -> Request:
    """The Request of a JSON value, as far as it can be read.

    ``problems`` holds what is wrong with its shape. The rest is read all the same, so that later
    checks report their problems together with these.

    Raises:
        InvalidRequest: the value is no JSON object, or JSON that cannot be stored.
    """
    problems = _Problems()
    _refuse_defects(raw)
    if not isinstance(raw, dict):
        text = f"a Request is an object {{config, context, schema}}, not {type_name(raw)}"
        raise InvalidRequest([Problem("invalidRequest", text)])
    for key in raw:
        if key not in ("config", "context", "schema"):
            similar = suggest(key, ("config", "context", "schema")) if len(raw) <= MAX_KEYS_COMPARED else None
            hint = f"{similar or ''} a Request has config, context and schema".lstrip()
            problems.report("unknownKey", f'unknown key "{key}"', key, hint=hint)
    config = _read_config(raw.get("config"), problems)
    before = len(problems.items)
    context = raw.get("context", [])
    messages: list[Message] = []
    if isinstance(context, list):
        for index, item in enumerate(context):
            message = None if problems.is_full else _read_message(item, index, problems)
            messages.extend([message] if message is not None else [])
    else:
        problems.report("invalidRequest", f"context is a list of Messages, not {type_name(context)}", "context")
    _check_set(messages, problems)
    partial = any(p.fatal for p in problems.items[before:])
    return Request(config, tuple(messages), raw.get("schema"), raw, tuple(problems.items), partial)


def parse_message(raw: Json, index: int = 0) -> Message:
    """The Message of a JSON value (of ``provide``, or a Tool's result).

    Raises:
        InvalidRequest: the value is no Message.
    """
    _refuse_defects(raw)
    problems = _Problems()
    message = _read_message(raw, index, problems)
    if message is None or any(p.fatal for p in problems.items):
        raise InvalidRequest(problems.items)
    return message


def _refuse_defects(raw: Json) -> None:
    """Raise InvalidRequest for JSON that cannot be stored."""
    reason = defect(raw)
    if reason:
        raise InvalidRequest([Problem("invalidJson", reason[1], reason[0])])


def _read_config(raw: Json, problems: _Problems) -> Config:
    if raw is None:
        return Config()
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        problems.items.extend(settings_problems(error, Config, "config"))
        return Config()


def _read_message(raw: Json, index: int, problems: _Problems) -> Message | None:
    at = ("context", index)
    if not isinstance(raw, dict):
        problems.report("invalidMessage", f"a Message is an object, not {type_name(raw)}", *at)
        return None
    kind = raw.get("type")
    if kind is None and "role" in raw and "content" in raw:
        return _read_instruction(raw, index, problems)
    if isinstance(kind, str) and kind in _READERS:
        return _READERS[kind](raw, index, problems)
    text = "no type" if kind is None else f"the unknown type {kind!r}"
    hint = suggest(kind, TYPES) if isinstance(kind, str) else None
    if kind is None and (similar := find_similar("type", list(raw)[:MAX_KEYS_COMPARED])) is not None:
        hint = f'is "{similar}" meant to be "type"?'
    problems.report(
        "unknownMessageType", f"message {index} has {text}; known: {', '.join(TYPES)}", *at, "type", hint=hint
    )
    return None


def _read_instruction(raw: dict[str, Any], index: int, problems: _Problems) -> Message | None:
    usual_key = {"system": "message", "text": "text"}.get(str(raw.get("type")), "content")
    key = next((k for k in (usual_key, "text", "message") if k in raw), usual_key)
    text = raw.get(key, ABSENT)
    if not isinstance(text, str):
        problems.report("invalidMessage", f'"{key}" is a string, not {type_name(text)}', "context", index, key)
        return None
    kind = raw.get("type") or ("system" if raw.get("role") == "system" else "text")
    return Instruction(index, str(kind), raw, text=text)


def _read_data(raw: dict[str, Any], index: int, problems: _Problems) -> Message | None:
    at = ("context", index)
    type_ = raw["type"]
    kind = raw.get("kind", type_)
    if not isinstance(kind, str) or not _KIND_NAME.fullmatch(kind):
        problems.report("invalidMessage", f"kind {kind!r} is not made of letters, digits, _ and -", *at, "kind")
        return None
    if INSTANCES in raw:
        return _read_set(raw, index, kind, problems)
    payload, ignored = _payload(raw, type_)
    for key in ignored:
        text = f'"{key}" is beside the payload of a message in wrapped form, and is ignored'
        problems.report("ignoredField", text, *at, key, hint=f'put it inside "{type_}"', severity="warning")
    schema = raw.get("schema")
    if schema is not None and not isinstance(schema, (dict, bool)):
        problems.report("invalidSchema", f"a schema is an object, not {type_name(schema)}", *at, "schema")
    instance = raw.get("_instance")
    if instance is not None and (not isinstance(instance, str) or not instance):
        problems.report("invalidMessage", "_instance is a non-empty string", *at, "_instance")
        instance = None
    method = raw.get("_outputMethod", "set")
    if method not in METHODS:
        problems.report(
            "invalidMessage", f"_outputMethod {method!r}; allowed: {', '.join(METHODS)}", *at, "_outputMethod"
        )
        method = "set"
    path = _written_path(raw, kind, index, problems)
    return Data(index, type_, raw, kind, payload, schema, instance, path, method)


def _read_set(raw: dict[str, Any], index: int, kind: str, problems: _Problems) -> Message | None:
    """A Message whose instances are the rows of a file."""
    at = ("context", index)
    value, schema = raw[INSTANCES], raw.get("schema")
    if not isinstance(value, dict):
        text = f'{INSTANCES} is {{"source": "orders.jsonl", "id"?: "orderId"}}, not {type_name(value)}'
        problems.report("invalidSet", text, *at, INSTANCES)
        return None
    for key in value:
        if key not in SET_KEYS:
            hint = suggest(key, SET_KEYS) or f"known: {', '.join(SET_KEYS)}"
            problems.report("invalidSet", f'unknown key "{key}" of a set', *at, INSTANCES, key, hint=hint)
    for key in SET_KEYS:
        item = value.get(key)
        if (key == "source" or item is not None) and (not isinstance(item, str) or not item):
            found = "nothing" if item is None else type_name(item) if item else "an empty text"
            what = "the name of a file or a URL" if key == "source" else "the name of a field"
            problems.report("invalidSet", f'"{key}" of a set is {what}, not {found}', *at, INSTANCES, key)
            return None
    rest = [k for k in raw if k not in _FRAME and k != INSTANCES] + [k for k in ("_instance",) if k in raw]
    if raw["type"] == "state" or kind == "state":
        text = "the rows of a set are data, and no state: each instance begins with an empty one"
        problems.report("invalidSet", text, *at, "kind", hint='"kind": "order" makes them †order')
        return None
    for key in rest:
        problems.report("invalidSet", f'"{key}" is beside {INSTANCES}: the rows of the set are the data', *at, key)
    if schema is not None and not isinstance(schema, (dict, bool)):
        problems.report("invalidSchema", f"a schema is an object, not {type_name(schema)}", *at, "schema")
    return SetData(
        index, raw["type"], raw, kind, UNKNOWN, schema, EACH_ROW, source=value["source"], id_field=value.get("id")
    )


def _check_set(messages: Sequence[Message], problems: _Problems) -> None:
    """A Request has one set, and then no other instances."""
    sets = [m for m in messages if isinstance(m, SetData)]
    for other in sets[1:]:
        text = f"a Request has one set, and message {sets[0].index} names one already"
        problems.report("invalidSet", text, "context", other.index, INSTANCES)
    for message in messages if sets else ():
        if isinstance(message, Data) and not isinstance(message, SetData) and message.instance is not None:
            text = f"message {sets[0].index} names a set, so all instances come from there"
            problems.report("invalidSet", text, "context", message.index, "_instance")


def _written_path(raw: dict[str, Any], kind: str, index: int, problems: _Problems) -> Path | None:
    """The path that a Call wrote the message at, or None for a message that merges at the root."""
    text = raw.get("_outputPath")
    if text is None:
        return None
    try:
        tree = parse(text) if isinstance(text, str) else None
    except ExpressionError:
        tree = None
    if isinstance(tree, Path) and tree.kind == kind:
        return tree
    problems.report("invalidMessage", f"_outputPath is one path below †{kind}", "context", index, "_outputPath")
    return None


def _payload(raw: dict[str, Any], type_: str) -> tuple[Json, list[str]]:
    """The payload, and the keys beside it that have no meaning."""
    if type_ in raw:
        return raw[type_], [k for k in raw if k != type_ and k not in _FRAME]
    inline = {k: v for k, v in raw.items() if k not in _FRAME}
    return (ABSENT if not inline and "schema" in raw else inline), []


def _read_tool(raw: dict[str, Any], index: int, problems: _Problems) -> Message | None:
    tool = raw.get("tool")
    if isinstance(tool, (str, dict)) and tool:
        return ToolMessage(index, "tool", raw, tool=tool)
    value = type_name(tool) if tool else "nothing"
    text = f'"tool" is a registered name, a JSON Schema with _tool, or a map of name to schema; found {value}'
    problems.report("invalidTool", text, "context", index, "tool")
    return None


def _read_plan(raw: dict[str, Any], index: int, problems: _Problems) -> Message | None:
    at = ("context", index)
    calls = raw.get("plan", [])
    mode = raw.get("mode", "eager")
    if not isinstance(calls, list):
        problems.report("invalidPlan", f'"plan" is a list of Calls, not {type_name(calls)}', *at, "plan")
        return None
    if mode not in ("eager", "lazy"):
        problems.report("invalidPlan", f"mode {mode!r}; allowed: eager, lazy", *at, "mode")
        return None
    for key in raw:
        if key not in ("type", "plan", "mode", "run"):
            problems.report("ignoredField", f'"{key}" has no meaning in a plan message', *at, key, severity="warning")
    return PlanMessage(index, "plan", raw, calls=tuple(calls), mode=mode, run=raw.get("run") is True)


def _read_error(raw: dict[str, Any], index: int, _: _Problems) -> Message | None:
    return ErrorMessage(index, "error", raw, data=raw.get("data"))


_READERS: Final[dict[str, Callable[[dict[str, Any], int, _Problems], Message | None]]] = {
    "system": _read_instruction,
    "text": _read_instruction,
    **dict.fromkeys(DATA_TYPES, _read_data),
    "tool": _read_tool,
    "plan": _read_plan,
    "error": _read_error,
}
