"""Requests and their Messages: from plain JSON to typed parts, every defect reported.

A Request is ``{config, context, schema}``; the context is a list of Messages. Each
Message keeps the JSON it came as (``raw``) beside what it means. Both forms of a
data-like Message, wrapped and inline, are read here and nowhere else.

Messages and Calls are open JSON, read by hand so that each error can name its index
(settings are closed models: ``config.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import ValidationError

from acts.language.config import Config, settings_problems
from acts.language.errors import ExpressionError, InvalidRequest, Problem, suggest
from acts.language.references import Path, parse
from acts.language.values import ABSENT, Json, defect, pointer, type_name

DATA_TYPES: Final = ("data", "input", "state")
TYPES: Final = ("system", "text", *DATA_TYPES, "tool", "plan", "error")
PROVENANCE: Final = ("_call", "_date", "_outputPath", "_outputMethod")
METHODS: Final = ("set", "merge", "assign", "push", "concat")

# What stands beside the payload of an inline data-like message and is not part of it
_FRAME: Final = frozenset({"type", "kind", "schema", "description", "_instance", *PROVENANCE})
_KIND_NAME: Final = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class Message:
    """One element of a context. ``index`` is its place from 0; ``type`` as on the wire."""

    index: int
    type: str
    raw: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Instruction(Message):
    """``system`` or ``text`` (a chat ``role``/``content`` pair too)."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Data(Message):
    """A data-like Message. ``payload`` is ABSENT when only a schema was given.

    ``path`` and ``method`` are those of a written output (``_outputPath`` given);
    without them the payload deep-merges at the root of its kind.
    """

    kind: str = "data"
    payload: Json = ABSENT
    schema: Json = None
    instance: str | None = None
    path: Path | None = None
    method: str = "set"


@dataclass(frozen=True, slots=True)
class ToolMessage(Message):
    """``tool`` is a registered name, a schema, or a map of name to schema."""

    tool: Json = None


@dataclass(frozen=True, slots=True)
class PlanMessage(Message):
    """The graph of Calls. Of several, the latest counts."""

    calls: tuple[Json, ...] = ()
    mode: Literal["eager", "lazy"] = "eager"
    run: bool = False


@dataclass(frozen=True, slots=True)
class ErrorMessage(Message):
    """What went wrong in an earlier tick."""

    data: Json = None


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed Request. ``schema`` is that of the output (None: any JSON).

    ``partial``: a message could not be read, so what seems to be missing may stand there.
    """

    config: Config
    context: tuple[Message, ...]
    schema: Json
    raw: dict[str, Any]
    problems: tuple[Problem, ...] = ()
    partial: bool = False

    @property
    def plan(self) -> PlanMessage | None:
        """The latest plan message."""
        return next((m for m in reversed(self.context) if isinstance(m, PlanMessage)), None)

    def data(self) -> tuple[Data, ...]:
        """The data-like messages, oldest first."""
        return tuple(m for m in self.context if isinstance(m, Data))

    def instances(self) -> tuple[str, ...]:
        """The ids of the instances, in the order in which they appear."""
        return tuple(dict.fromkeys(m.instance for m in self.data() if m.instance is not None))

    def calls_of(self, plan: Sequence[Json]) -> int:
        """How many Calls a plan makes: those of a template once for each instance."""
        template = not any(isinstance(call, dict) and call.get("_instance") is not None for call in plan)
        return len(plan) * max(1, len(self.instances()) if template else 1)


class _Reader:
    """Collects problems while a Request is read."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def say(self, code: str, message: str, *at: str | int, hint: str | None = None, severity: str = "error") -> None:
        self.problems.append(Problem(code, message, pointer(*at), hint=hint, severity=severity))


def parse_request(raw: Json) -> Request:
    """A Request from its JSON, whole.

    Raises:
        InvalidRequest: with every problem of its shape. What the plan means is
            checked later (``validate``).
    """
    request = read_request(raw)
    if any(p.fatal for p in request.problems):
        raise InvalidRequest(request.problems)
    return request


def read_request(raw: Json) -> Request:
    """A Request from its JSON, as far as it can be read.

    What is wrong with its shape is in ``problems``; what could be read is there all the
    same, so that the rest is checked too and every problem told at once.

    Raises:
        InvalidRequest: it is no JSON object at all, or not fit to be kept.
    """
    reader = _Reader()
    broken = defect(raw)
    if broken:
        raise InvalidRequest([Problem("invalidJson", broken[1], broken[0])])
    if not isinstance(raw, dict):
        raise InvalidRequest(
            [Problem("invalidRequest", f"a Request is an object {{config, context, schema}}, not {type_name(raw)}")]
        )
    for key in raw:
        if key not in ("config", "context", "schema"):
            reader.say("unknownKey", f'unknown key "{key}"', key, hint="a Request has config, context and schema")
    config = _config(raw.get("config"), reader)
    before = len(reader.problems)
    context = raw.get("context", [])
    messages: list[Message] = []
    if isinstance(context, list):
        messages = [m for i, item in enumerate(context) if (m := _message(item, i, reader)) is not None]
    else:
        reader.say("invalidRequest", f"context is a list of Messages, not {type_name(context)}", "context")
    partial = any(p.fatal for p in reader.problems[before:])
    return Request(config, tuple(messages), raw.get("schema"), raw, tuple(reader.problems), partial)


def parse_message(raw: Json, index: int = 0) -> Message:
    """One Message by itself (``provide``, a Tool's result).

    Raises:
        InvalidRequest: when it is not a Message.
    """
    broken = defect(raw)
    if broken:
        raise InvalidRequest([Problem("invalidJson", broken[1], broken[0])])
    reader = _Reader()
    message = _message(raw, index, reader)
    if message is None or any(p.fatal for p in reader.problems):
        raise InvalidRequest(reader.problems)
    return message


def _config(raw: Json, reader: _Reader) -> Config:
    if raw is None:
        return Config()
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        reader.problems.extend(settings_problems(error, Config, "config"))
        return Config()


def _message(raw: Json, index: int, reader: _Reader) -> Message | None:
    at = ("context", index)
    if not isinstance(raw, dict):
        reader.say("invalidMessage", f"a Message is an object, not {type_name(raw)}", *at)
        return None
    kind = raw.get("type")
    if kind is None and "role" in raw and "content" in raw:
        return _instruction(raw, index, reader)
    if isinstance(kind, str) and kind in _READERS:
        return _READERS[kind](raw, index, reader)
    found = "no type" if kind is None else f"the unknown type {kind!r}"
    reader.say(
        "unknownMessageType",
        f"message {index} has {found}; known: {', '.join(TYPES)}",
        *at,
        "type",
        hint=suggest(kind, TYPES) if isinstance(kind, str) else None,
    )
    return None


def _instruction(raw: dict[str, Any], index: int, reader: _Reader) -> Message | None:
    wanted = {"system": "message", "text": "text"}.get(str(raw.get("type")), "content")
    key = next((k for k in (wanted, "text", "message") if k in raw), wanted)
    text = raw.get(key)
    if not isinstance(text, str):
        reader.say(
            "invalidMessage", f'"{key}" is a string, not {type_name(raw.get(key, ABSENT))}', "context", index, key
        )
        return None
    kind = raw.get("type") or ("system" if raw.get("role") == "system" else "text")
    return Instruction(index, str(kind), raw, text=text)


def _data(raw: dict[str, Any], index: int, reader: _Reader) -> Message | None:
    at = ("context", index)
    type_ = raw["type"]
    kind = raw.get("kind", type_)
    if not isinstance(kind, str) or not _KIND_NAME.fullmatch(kind):
        reader.say("invalidMessage", f"kind {kind!r} is not made of letters, digits, _ and -", *at, "kind")
        return None
    payload, ignored = _payload(raw, type_)
    for key in ignored:
        reader.say(
            "ignoredField",
            f'"{key}" stands beside the payload and is ignored: the message is in wrapped form',
            *at,
            key,
            hint=f'put it inside "{type_}"',
            severity="warning",
        )
    schema = raw.get("schema")
    if schema is not None and not isinstance(schema, (dict, bool)):
        reader.say("invalidSchema", f"a schema is an object, not {type_name(schema)}", *at, "schema")
    instance = raw.get("_instance")
    if instance is not None and (not isinstance(instance, str) or not instance):
        reader.say("invalidMessage", "_instance is a non-empty string", *at, "_instance")
        instance = None
    method = raw.get("_outputMethod", "set")
    if method not in METHODS:
        reader.say("invalidMessage", f"_outputMethod {method!r}; allowed: {', '.join(METHODS)}", *at, "_outputMethod")
        method = "set"
    path = _written_path(raw, kind, index, reader)
    return Data(index, type_, raw, kind, payload, schema, instance, path, method)


def _written_path(raw: dict[str, Any], kind: str, index: int, reader: _Reader) -> Path | None:
    """Where a Call wrote this message, or None for a message that merges at the root."""
    text = raw.get("_outputPath")
    if text is None:
        return None
    try:
        tree = parse(text) if isinstance(text, str) else None
    except ExpressionError:
        tree = None
    if isinstance(tree, Path) and tree.kind == kind:
        return tree
    reader.say("invalidMessage", f"_outputPath is one path below †{kind}", "context", index, "_outputPath")
    return None


def _payload(raw: dict[str, Any], type_: str) -> tuple[Json, list[str]]:
    """The payload, and the keys beside it that mean nothing."""
    if type_ in raw:
        return raw[type_], [k for k in raw if k != type_ and k not in _FRAME]
    inline = {k: v for k, v in raw.items() if k not in _FRAME}
    return (ABSENT if not inline and "schema" in raw else inline), []


def _tool(raw: dict[str, Any], index: int, reader: _Reader) -> Message | None:
    tool = raw.get("tool")
    if isinstance(tool, str) and tool:
        return ToolMessage(index, "tool", raw, tool=tool)
    if isinstance(tool, dict) and tool:
        return ToolMessage(index, "tool", raw, tool=tool)
    found = type_name(raw.get("tool", ABSENT)) if tool else "nothing"
    reader.say(
        "invalidTool",
        f'"tool" is a registered name, a JSON Schema with _tool, or a map of name to schema; found {found}',
        "context",
        index,
        "tool",
    )
    return None


def _plan(raw: dict[str, Any], index: int, reader: _Reader) -> Message | None:
    at = ("context", index)
    calls = raw.get("plan", [])
    mode = raw.get("mode", "eager")
    if not isinstance(calls, list):
        reader.say("invalidPlan", f'"plan" is a list of Calls, not {type_name(calls)}', *at, "plan")
        return None
    if mode not in ("eager", "lazy"):
        reader.say("invalidPlan", f"mode {mode!r}; allowed: eager, lazy", *at, "mode")
        return None
    for key in raw:
        if key not in ("type", "plan", "mode", "run"):
            reader.say("ignoredField", f'"{key}" means nothing in a plan message', *at, key, severity="warning")
    return PlanMessage(index, "plan", raw, calls=tuple(calls), mode=mode, run=raw.get("run") is True)


def _error(raw: dict[str, Any], index: int, _: _Reader) -> Message | None:
    return ErrorMessage(index, "error", raw, data=raw.get("data"))


_READERS: Final[dict[str, Callable[[dict[str, Any], int, _Reader], Message | None]]] = {
    "system": _instruction,
    "text": _instruction,
    **dict.fromkeys(DATA_TYPES, _data),
    "tool": _tool,
    "plan": _plan,
    "error": _error,
}


def output_schema(schema: Json) -> Json:
    """The schema of a Request's ``output``: its ``schema``, or ``properties.output`` of the long form."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not {"calls", "output"} <= set(properties):
        return schema
    found = properties["output"]
    return {**found, "$defs": schema["$defs"]} if isinstance(found, dict) and "$defs" in schema else found
