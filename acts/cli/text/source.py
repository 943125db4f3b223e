"""A Request's file, standard input or argument as a value whose parts have positions, and messages that name them.

- Every error names the source and, if possible, the line.
- Input is bounded: a device or a pipe is cut off at the limit.
- .json is JSON, .yaml and .yml are YAML; otherwise the first character decides.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import yaml

from acts.cli.console import CommandError, MessageBlock, clean, command_error, message
from acts.language.errors import MAX_PROBLEMS_REPORTED, Problem, visible
from acts.language.messages import with_input
from acts.language.source_text import SUFFIXES, Format, SourceText, TextError, cut_line, parse
from acts.language.values import Json, defect, is_equal

STDIN: Final = "-"
# Temporal stores at most 2 MB of input; eight times that leaves room for indentation and comments
MAX_BYTES: Final = 16 * 1024 * 1024


def read_source(name: str) -> SourceText:
    title = "standard input" if name == STDIN else name
    content = _read_bytes(name)
    if len(content) > MAX_BYTES:
        text = f"the file is larger than {MAX_BYTES // 1024 // 1024} MiB"
        raise command_error(text, where=title, hint="a run takes at most 2 MB of input")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise command_error("the file is UTF-16", where=title, hint="save it as UTF-8")
    if b"\0" in content:
        text = f"this is not a text file: byte {content.index(bytes(1))} is NUL"
        raise command_error(text, where=title, hint="a request is JSON or YAML text in UTF-8")
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        text = f"this is not UTF-8 text: byte {error.start} is 0x{content[error.start]:02X}"
        raise command_error(text, where=f"{title}:{line}", hint="save the file as UTF-8") from None
    suffix = "" if name == STDIN else Path(name).suffix.lower()
    is_json = suffix == ".json" or (suffix not in SUFFIXES and text.lstrip()[:1] in ("{", "["))
    return parse_source(title, text, "JSON" if is_json else "YAML")


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
        hint = f"did you mean {' or '.join(near)}?" if near else "or a plan's name: in ACTS_PLANS, or in this folder"
        raise command_error("there is no such file", where=name, hint=hint) from None
    except (OSError, ValueError) as error:
        text = f"the file cannot be read: {getattr(error, 'strerror', None) or error}"
        raise command_error(text, where=clean(name, 200)) from None


def parse_source(name: str, text: str, format_: Format) -> SourceText:
    if not text.strip():
        raise command_error("the file is empty", where=name, hint="it must hold one JSON or YAML value")
    try:
        source = SourceText(name, text, format_, parse(text, format_))
    except TextError as error:
        place = error.position
        where = name if place is None else f"{name}:{place.line}:{place.column}"
        facts = [("line", "" if place is None else cut_line(text, place)), ("hint", error.hint)]
        raise CommandError(MessageBlock(error.message, where, [fact for fact in facts if fact[1]])) from None
    if (broken := defect(source.value)) is not None:
        at, what = broken
        raise CommandError(MessageBlock(what, source.where(at), [("line", source.excerpt(at)), ("at", at or "/")]))
    return source


def looks_like_file(argument: str) -> bool:
    return argument == STDIN or argument.lower().endswith(SUFFIXES) or Path(argument).is_file()


def find_plan(name: str) -> str | None:
    """The file of a plan's name: in the folders of ``ACTS_PLANS``, or else in this one."""
    if looks_like_file(name) or not re.fullmatch(r"[\w.-]+", name):
        return None
    folders = [*filter(None, os.environ.get("ACTS_PLANS", "").split(os.pathsep)), ""]
    files = (Path(folder, f"{name}{suffix}") for folder in folders for suffix in SUFFIXES)
    return next((str(file) for file in files if file.is_file()), None)


def source_error(source: SourceText, problems: Iterable[Problem]) -> CommandError:
    """The error of a Request with these problems."""
    return CommandError(*problem_blocks(problems, source))


def problem_blocks(problems: Iterable[Problem], source: SourceText | None) -> list[MessageBlock]:

    def order(problem: Problem) -> tuple[bool, int]:
        position = source.position(problem.pointer) if source is not None else None
        return (not problem.fatal, 0 if position is None else position.line)

    ordered, blocks = sorted(problems, key=order), []
    for problem in ordered[:MAX_PROBLEMS_REPORTED]:
        line, where = ("", "") if source is None else (source.excerpt(problem.pointer), source.where(problem.pointer))
        texts = {"line": line, "call": problem.call, "instance": problem.instance, "at": problem.pointer}
        facts = [(label, text) for label, text in (texts | {"hint": problem.hint}).items() if text]
        blocks.append(MessageBlock(f"{problem.message} [{problem.code}]", where, facts, problem.severity))
    if len(ordered) > len(blocks):
        blocks.append(message(f"… and {len(ordered) - len(blocks)} more problems", severity="note"))
    return blocks


def add_inputs(request: Json, inputs: Sequence[str]) -> Json:
    """The Request with one more message, which holds the inputs."""
    return with_input(request, read_inputs(inputs)) if isinstance(request, dict) else request


def read_inputs(inputs: Sequence[str]) -> dict[str, Json] | None:
    """The object of inputs ``key=value``, and of files that hold one; None for no inputs."""
    payload: dict[str, Json] = {}
    for item in inputs:
        for key, value in _read_input(item).items():
            if key in payload:
                raise command_error(f'the input "{clean(key, 100)}" is given twice', where="--input")
            payload[key] = value
    if (broken := defect(payload)) is not None:
        raise command_error(f"{broken[1]} (at {broken[0]})", where="--input")
    return payload if inputs else None


def _read_input(item: str) -> dict[str, Json]:
    key, equals, text = item.partition("=")
    if not equals and looks_like_file(item):
        source = read_source(item)
        if not isinstance(source.value, dict):
            raise command_error("the inputs of a file are one object", where=source.name, hint='{"orderId": "7"}')
        return source.value
    if not key or not equals:
        hint = "write key=value, where a value that is not JSON is a string; or name a file that holds an object"
        raise command_error(f"{clean(item, 100)!r} is not an input", where="--input", hint=hint)
    try:
        return {key: parse(text, "JSON")}
    except TextError as error:
        if not error.is_syntax and "is not a JSON number" not in error.message:
            raise command_error(error.message, where="--input", hint=error.hint) from None
        return {key: text}


def format_plan(value: Json) -> tuple[str, Format]:
    """A plan or a call as text, and the format of the text."""
    text = yaml.safe_dump(value, allow_unicode=True, sort_keys=False, width=120)
    with suppress(TextError):
        if visible(text, "\n") == text and is_equal(parse(text, "YAML"), value):
            return text, "YAML"
    return visible(json.dumps(value, indent=2, ensure_ascii=False), "\n") + "\n", "JSON"


def compare_plans(old: Json, new: Json, names: tuple[str, str]) -> list[str]:
    """The unified diff of two plans, as clean lines; empty if they are equal."""
    old_text, new_text = format_plan(old)[0], format_plan(new)[0]
    rows = difflib.unified_diff(old_text.splitlines(), new_text.splitlines(), *names, lineterm="")
    return [clean(row) for row in rows]
