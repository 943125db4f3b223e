"""Changing a Call that waits: a form made from its Tool's schema, and the Call that comes back.

A Call is edited as it is written. A form shows the values that its references have, and what comes back as shown is
left as it was, to the character: a reference stays one until somebody replaces it. What is typed is data to the
letter, never a reference. The engine's own checks judge what is new; the run judges it once more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from acts.language.errors import ActsError, visible
from acts.language.references import MARK, escape_literal, scan_marked, unread_value
from acts.language.schemas import Checker
from acts.language.tools import META, Tool
from acts.language.values import ABSENT, Json, is_equal, pointer, replace_parts
from acts.ui.cards import value_text

LONG_LINE: Final = 80  # characters of a text that gets more than one line
ANSWER: Final = "answer"  # the field of an answer that is no object
PREFIX: Final = "f."  # of the names of fields: none of them is a token or a note
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True)
class FormField:
    """``kind`` is ``choice``, ``line``, ``text`` or ``json``; ``text`` is what it shows, "" for nothing; ``written`` is
    the references that the Call has there, "" for none; ``problem`` what is wrong with what was sent.
    """

    name: str
    kind: str
    text: str
    choices: list[str]
    title: str
    description: str
    is_required: bool
    written: str = ""
    problem: str = ""


def form_fields(call: Mapping[str, Json], tool: Tool | None, known: Mapping[str, Json] = NOTHING) -> list[FormField]:
    """The parameters of a Call, those of its Tool's schema first; ``known`` are values in place of references."""
    return list(_fields(call, {}, (), known) if tool is None else _fields(call, tool.schema, tool.consts, known))


def answer_fields(form: Mapping[str, Any]) -> list[FormField]:
    """What a person fills in for an answer of this schema."""
    return list(_fields({}, _as_object(form)))


def show_sent(
    fields: Iterable[FormField], sent: Mapping[str, Any], problems: Sequence[str]
) -> tuple[list[FormField], list[str]]:
    """The fields with what was sent, each with what is wrong with it; and what is wrong with none of them."""
    own, rest = list[FormField](), list(problems)
    for field in fields:
        wrong = [text for text in problems if re.split(": |/", text, maxsplit=1)[0] == field.name]
        rest = [text for text in rest if text not in wrong]
        text = str(sent.get(PREFIX + field.name, field.text))
        own.append(replace(field, text=text, problem="; ".join(wrong)))
    return own, rest


def read_answer(form: Mapping[str, Any], sent: Mapping[str, Any]) -> tuple[Json, list[str]]:
    """The answer of a person, and what is wrong with it."""
    schema = _as_object(form)
    typed, problems = _read(schema, _fields({}, schema), sent)
    answer: Json = typed if schema is form else typed.get(ANSWER)
    defects = [] if problems else Checker(dict(form)).defects(answer)
    return answer, problems + [_told(at, why, "the answer") for at, why in defects]


def _told(at: Sequence[str | int], why: str, whole: str) -> str:
    """A defect as a person reads it, beside its field if it has one."""
    missing = None if at else re.fullmatch(r"'(.+)' is a required property", why)
    return f"{missing[1]}: fill this in" if missing else f"{pointer(*at).lstrip('/') or whole}: {why}"


def _as_object(form: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself if it is of an object with properties, else that of an object with one."""
    if form.get("type") == "object" and form.get("properties"):
        return form
    return {"properties": {ANSWER: form}, "required": [ANSWER]}


def _fields(
    call: Mapping[str, Json], schema: Mapping[str, Any], fixed: Container[str] = (), known: Mapping[str, Json] = NOTHING
) -> Iterator[FormField]:
    properties = schema.get("properties") or {}
    for name in dict.fromkeys((*properties, *call)):
        if name in META or name in fixed:
            continue
        part = properties[name] if isinstance(properties.get(name), dict) else {}
        value = known.get(name, _plain(call.get(name, ABSENT)))
        marked = (text for _, text in scan_marked(call.get(name)))
        written = ", ".join(text for text in marked if not isinstance(unread_value(text), str))
        text = "" if value is ABSENT else shown_text(value, part)
        choices = _choices(part)
        if choices and (not text or text in choices):
            kind = "choice"
        elif _is_plain(part, value):
            kind = "text" if len(text) > LONG_LINE or "\n" in text else "line"
        else:
            kind = "json"
        title, description = (str(part.get(key) or "") for key in ("title", "description"))
        yield FormField(name, kind, text, choices, title, description, name in schema.get("required", ()), written)


def _choices(part: Mapping[str, Any]) -> list[str]:
    if part.get("type") == "boolean":
        return ["true", "false"]
    options = part.get("enum")
    return [shown_text(option, part) for option in options] if isinstance(options, list) else []


def _is_plain(part: Mapping[str, Any], value: Json) -> bool:
    scalars = ("string", "number", "integer", "boolean", None)
    return part.get("type") in scalars and not isinstance(value, (dict, list))


def shown_text(value: Json, part: Mapping[str, Any]) -> str:
    """A value as its field shows it."""
    is_text = isinstance(value, str) and (part.get("type") == "string" or value.startswith(MARK))
    return visible(str(value) if is_text else value_text(value), "\n")


def read_call(
    call: Mapping[str, Json], tool: Tool | None, sent: Mapping[str, Any], known: Mapping[str, Json] = NOTHING
) -> tuple[dict[str, Json], list[str]]:
    """The Call with what a form has sent, and what is wrong with it."""
    typed, problems = _read(tool.schema if tool is not None else {}, form_fields(call, tool, known), sent)
    before = {name: () if name in known else scan_marked(call.get(name)) for name in typed}
    new = {**call, **{name: _as_written(value, {text for _, text in before[name]}) for name, value in typed.items()}}
    new = {name: value for name, value in new.items() if value is not ABSENT}
    return new, problems + ([] if problems else check_call(new, tool))


def _as_written(typed: Json, shown: Container[str]) -> Json:
    """What was typed, as a Call writes it; inside JSON, a text that was ``shown`` there stays as it was."""
    texts = ((at, text) for at, text in scan_marked(typed) if not at or text not in shown)
    return replace_parts(typed, [(at, escape_literal(text)) for at, text in texts])


def _plain(value: Json) -> Json:
    """A written value as people read it: a text in which nothing is read, without its escapes."""
    text = unread_value(value) if isinstance(value, str) else None
    return text if isinstance(text, str) else value


def _read(
    schema: Mapping[str, Any], fields: Iterable[FormField], sent: Mapping[str, Any]
) -> tuple[dict[str, Json], list[str]]:
    """What was typed, by field, ABSENT for what was emptied; and what is wrong with it."""
    typed, problems = dict[str, Json](), list[str]()
    properties = schema.get("properties") or {}
    for field in fields:
        text = sent.get(PREFIX + field.name)
        if not isinstance(text, str) or (text := text.replace("\r\n", "\n")) == field.text:
            continue
        part = properties[field.name] if isinstance(properties.get(field.name), dict) else {}
        try:
            is_emptied = not text and part.get("type") != "string"
            typed[field.name] = ABSENT if is_emptied else _read_value(text, part)
        except ValueError as error:
            problems.append(f"{field.name}: {_advice(text.strip(), part.get('type'), error)}")
    return typed, problems


def _advice(text: str, kind: Json, error: ValueError) -> str:
    """What to write in place of a text that is no value of this type."""
    if kind == "integer":
        return f"{text[:LONG_LINE]!r} is no whole number: write digits alone, without a comma or a point"
    if kind == "number":
        example = text.replace(",", ".") if re.fullmatch(r"-?\d+,\d+", text) else "45.50"
        return f"write {example}: {text[:LONG_LINE]!r} is no number, which has a point for its fraction and no comma"
    return f"{text[:LONG_LINE]!r} is no JSON, and no text is allowed here: {error}"


def _read_value(text: str, part: Mapping[str, Any]) -> Json:
    if part.get("type") == "string":
        return text
    options = part.get("enum")
    for option in options if isinstance(options, list) else ():
        if shown_text(option, part) == text:
            return option
    try:
        value: Json = json.loads(text)
    except ValueError:
        if part.get("type") is None:
            return text
        raise
    return value


def check_call(call: Mapping[str, Json], tool: Tool | None) -> list[str]:
    """What the engine's validation finds in the parameters of a Call, as far as its references let it see."""
    if tool is None:
        return []
    values = {k: v for k, v in call.items() if k not in META and k != "_tool"}
    try:
        return [_told(at, why, "the call") for at, why in tool.parameters.open_defects(values)]
    except (ActsError, ValueError) as error:
        return [str(error)]


def differences(
    before: Mapping[str, Json], after: Mapping[str, Json], known: Mapping[str, Json]
) -> list[tuple[str, str, str]]:
    """``(name, old, new)`` of each part that differs, the old one of a reference with the value that is known of it."""
    rows = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, ABSENT), after.get(name, ABSENT)
        if old is ABSENT or new is ABSENT or not is_equal(old, new):
            one, other = ("nothing" if side is ABSENT else value_text(_plain(side)) for side in (old, new))
            is_known = name in known and not is_equal(known[name], _plain(old))
            other += " (as a text: it is no reference)" if isinstance(new, str) and MARK in new else ""
            rows.append((name, f"{value_text(known[name])} ({one})" if is_known else one, other))
    return rows
