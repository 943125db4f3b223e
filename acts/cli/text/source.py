"""A Request's file, standard input or argument as a value whose parts have positions, and messages that name them.

- Every error names the source and, if possible, the line.
- Input is bounded: a device or a pipe is cut off at the limit.
- .json is JSON, .yaml and .yml are YAML; otherwise the first character decides.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml

from acts.cli.console import CommandError, MessageBlock, clean, command_error, message
from acts.cli.text.yaml_json import Format, Position, TextError, parse, positions
from acts.language.errors import MAX_PROBLEMS_REPORTED, Problem
from acts.language.values import Json, defect

STDIN: Final = "-"
# Temporal stores at most 2 MB of input; eight times that leaves room for indentation and comments
MAX_BYTES: Final = 16 * 1024 * 1024
MAX_EXCERPT: Final = 100  # characters of a line that an error shows
SUFFIXES: Final = (".json", ".yaml", ".yml")


@dataclass(frozen=True)
class SourceText:
    """A text with the value that it holds, and the name that errors use."""

    name: str
    text: str
    format: Format
    value: Json

    @cached_property
    def _positions(self) -> dict[str, Position]:
        with suppress(TextError):  # a JSON text that YAML cannot read: messages have no lines
            found = positions(self.text, self.format, self.value)
            return {"/".join(_token(key) for key in ("", *path)): place for path, place in found.items()}
        return {}

    def position(self, pointer: str) -> Position | None:
        """The position of the value at a JSON pointer, or of the nearest value around it."""
        while pointer and pointer not in self._positions:
            pointer = pointer.rpartition("/")[0]
        return self._positions.get(pointer)

    def where(self, pointer: str) -> str:
        """``plan.json:12``"""
        position = self.position(pointer)
        return self.name if position is None else f"{self.name}:{position.line}"

    def excerpt(self, pointer: str) -> str:
        """The line of the value at a JSON pointer."""
        position = self.position(pointer)
        return "" if position is None else _cut_line(self.text, position)

    def error(self, problems: Iterable[Problem]) -> CommandError:
        """The error of a Request with these problems."""
        return CommandError(*problem_blocks(problems, self))


def _token(key: str | int) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")


def read_source(name: str) -> SourceText:
    """The content of a file, or of standard input for ``-``.

    Raises:
        CommandError: it cannot be read, or holds no JSON value.
    """
    title = "standard input" if name == STDIN else name
    text = _decode(title, _read_bytes(name))
    suffix = "" if name == STDIN else Path(name).suffix.lower()
    is_json = suffix == ".json" or (suffix not in SUFFIXES and text.lstrip()[:1] in ("{", "["))
    return parse_source(title, text, "JSON" if is_json else "YAML")


def parse_source(name: str, text: str, format_: Format) -> SourceText:
    """A text with its value.

    Raises:
        CommandError: it holds no JSON value.
    """
    if not text.strip():
        raise command_error("the file is empty", where=name, hint="it must hold one JSON or YAML value")
    try:
        source = SourceText(name, text, format_, parse(text, format_))
    except TextError as error:
        place = error.position
        where = name if place is None else f"{name}:{place.line}:{place.column}"
        facts = [("line", "" if place is None else _cut_line(text, place)), ("hint", error.hint)]
        raise CommandError(MessageBlock(error.message, where, [fact for fact in facts if fact[1]])) from None
    if (broken := defect(source.value)) is not None:
        pointer, what = broken
        facts = [("line", source.excerpt(pointer)), ("at", pointer or "/")]
        raise CommandError(MessageBlock(what, source.where(pointer), facts))
    return source


def looks_like_file(argument: str) -> bool:
    """True if an argument names a file and not a run."""
    return argument == STDIN or argument.lower().endswith(SUFFIXES) or Path(argument).is_file()


def _cut_line(text: str, position: Position) -> str:
    """A line of a text; of a long one the part around the column."""
    row = (text.split("\n")[position.line - 1 : position.line] or [""])[0]
    start = max(0, position.column - 1 - MAX_EXCERPT // 2) if len(row) > MAX_EXCERPT else 0
    part = row[start : start + MAX_EXCERPT].strip()
    return clean(("…" if start else "") + part + ("…" if start + MAX_EXCERPT < len(row) else ""))


def _read_bytes(name: str) -> bytes:
    try:
        if name == STDIN:
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with open(name, "rb") as file:  # noqa: PTH123 - the name unchanged, "a//b" too
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        path = Path(name)
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = [str(path.parent / n) for n in difflib.get_close_matches(path.name, names, 3, 0.5)]
        hint = f"did you mean {' or '.join(near)}?" if near else ""
        raise command_error("there is no such file", where=name, hint=hint) from None
    except (OSError, ValueError) as error:
        text = f"the file cannot be read: {getattr(error, 'strerror', None) or error}"
        raise command_error(text, where=clean(name, 200)) from None


def _decode(name: str, content: bytes) -> str:
    if len(content) > MAX_BYTES:
        text = f"the file is larger than {MAX_BYTES // 1024 // 1024} MiB"
        raise command_error(text, where=name, hint="a run takes at most 2 MB of input")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise command_error("the file is UTF-16", where=name, hint="save it as UTF-8")
    if b"\0" in content:
        text = f"this is not a text file: byte {content.index(bytes(1))} is NUL"
        raise command_error(text, where=name, hint="a request is JSON or YAML text in UTF-8")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        text = f"this is not UTF-8 text: byte {error.start} is 0x{content[error.start]:02X}"
        raise command_error(text, where=f"{name}:{line}", hint="save the file as UTF-8") from None


# -- problems of the validator, with the lines of their values --------------------


def problem_blocks(problems: Iterable[Problem], source: SourceText | None) -> list[MessageBlock]:
    """A message per problem: errors first, then in the order of the file; capped."""
    ordered = sorted(problems, key=lambda p: (not p.fatal, _line(p, source)))
    blocks = [_format_problem(p, source) for p in ordered[:MAX_PROBLEMS_REPORTED]]
    if len(ordered) > len(blocks):
        blocks.append(message(f"… and {len(ordered) - len(blocks)} more problems", severity="note"))
    return blocks


def problems_from_json(items: Sequence[dict[str, Any]]) -> list[Problem]:
    """The problems of an InvalidRequest failure."""
    keys = [field.name for field in fields(Problem)]
    return [Problem(**{"code": "unknown", "message": "", **{k: i[k] for k in keys if k in i}}) for i in items]


def _line(problem: Problem, source: SourceText | None) -> int:
    position = source.position(problem.pointer) if source is not None else None
    return 0 if position is None else position.line


def _format_problem(problem: Problem, source: SourceText | None) -> MessageBlock:
    line, where = ("", "") if source is None else (source.excerpt(problem.pointer), source.where(problem.pointer))
    texts = {"line": line, "call": problem.call, "instance": problem.instance, "at": problem.pointer}
    facts = [(label, text) for label, text in (texts | {"hint": problem.hint}).items() if text]
    return MessageBlock(f"{problem.message} [{problem.code}]", where, facts, problem.severity)


# -- values that the command line adds --------------------


def add_inputs(request: Json, inputs: Sequence[str]) -> Json:
    """The Request with one more message, which holds the inputs.

    Raises:
        CommandError: an input is not ``key=value``, or a key is repeated.
    """
    if not inputs:
        return request
    payload: dict[str, Json] = {}
    for item in inputs:
        key, equals, text = item.partition("=")
        if not key or not equals:
            hint = "write key=value; a value that is not JSON is a string"
            raise command_error(f"{clean(item, 100)!r} is not an input", where="--input", hint=hint)
        if key in payload:
            raise command_error(f'the input "{clean(key, 100)}" is given twice', where="--input")
        payload[key] = _parse_value(text)
    broken = defect(payload)
    if broken is not None:
        raise command_error(f"{broken[1]} (at {broken[0]})", where="--input")
    context = request.get("context", []) if isinstance(request, dict) else None
    if not isinstance(context, list):
        return request  # the validator reports what is wrong with it
    return {**request, "context": [*context, {"type": "input", "input": payload}]}


def _parse_value(text: str) -> Json:
    """The value of a JSON text; any other text is itself the value."""
    try:
        return parse(text, "JSON")
    except TextError as error:
        if error.is_syntax or "is not a JSON number" in error.message:
            return text
        raise command_error(error.message, where="--input", hint=error.hint) from None


# -- plans as texts that a person reads and edits --------------------


def format_plan(value: Json) -> tuple[str, Format]:
    """A plan or a call as text, and the format of the text."""
    text = yaml.safe_dump(value, allow_unicode=True, sort_keys=False, width=120)
    try:
        if parse(text, "YAML") == value:
            return text, "YAML"
    except TextError:
        pass
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n", "JSON"


def compare_plans(old: Json, new: Json, names: tuple[str, str]) -> list[str]:
    """The unified diff of two plans, as clean lines; empty if they are equal."""
    old_text, new_text = format_plan(old)[0], format_plan(new)[0]
    rows = difflib.unified_diff(old_text.splitlines(), new_text.splitlines(), *names, lineterm="")
    return [clean(row) for row in rows]
