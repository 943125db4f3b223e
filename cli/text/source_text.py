"""A file, standard input or argument as a JSON value that remembers the positions of its parts.

Laws of this file:
- every error names the source and, if possible, the line;
- input is bounded: a device or a pipe is cut off at the limit;
- .json is JSON, .yaml and .yml are YAML; otherwise the first character decides.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal

from acts.language.values import ABSENT, Json, defect, get
from cli.command_errors import CommandError, MessageBlock, command_error
from cli.console import clean
from cli.text.positions import Position, TextError

Format = Literal["JSON", "YAML"]

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
    _positions: dict[tuple[str | int, ...], Position] = field(default_factory=dict, compare=False)

    def position(self, pointer: str) -> Position | None:
        """The position of the value at a JSON pointer, or of the nearest value around it."""
        if not self._positions:
            with suppress(TextError):  # nested too deeply; the levels above have positions
                self._positions.update(_positions(self.format, self.text))
        keys = self._keys(pointer)
        while keys not in self._positions and keys:
            keys = keys[:-1]
        return self._positions.get(keys)

    def where(self, pointer: str) -> str:
        """``plan.json:12``"""
        position = self.position(pointer)
        return self.name if position is None else f"{self.name}:{position.line}"

    def excerpt(self, pointer: str) -> str:
        """The line of the value at a JSON pointer."""
        position = self.position(pointer)
        return "" if position is None else cut_line(self.text, position)

    def _keys(self, pointer: str) -> tuple[str | int, ...]:
        """The keys of a pointer, numbers for lists; cut where the value ends."""
        keys: list[str | int] = []
        value = self.value
        for token in pointer.split("/")[1:]:
            name = token.replace("~1", "/").replace("~0", "~")
            keys.append(int(name) if isinstance(value, list) and name.isdigit() else name)
            value = get(value, (name,))
            if value is ABSENT:
                break
        return tuple(keys)


def read_source(name: str) -> SourceText:
    """The content of a file, or of standard input for ``-``.

    Raises:
        CommandError: it cannot be read, or holds no JSON value.
    """
    title = "standard input" if name == STDIN else name
    text = _decode(title, _read_stdin() if name == STDIN else _read_bytes(name))
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
    from cli.text import json_text, yaml_text

    try:
        value = json_text.parse(text) if format_ == "JSON" else yaml_text.parse(text)
    except TextError as error:
        raise _text_error(name, text, error) from None
    source = SourceText(name, text, format_, value)
    broken = defect(value)
    if broken is not None:
        pointer, what = broken
        facts = [("line", source.excerpt(pointer)), ("at", pointer or "/")]
        raise CommandError(MessageBlock(what, source.where(pointer), facts))
    return source


def looks_like_file(argument: str) -> bool:
    """True if an argument names a file and not a run."""
    return argument == STDIN or argument.lower().endswith(SUFFIXES) or Path(argument).is_file()


def cut_line(text: str, position: Position) -> str:
    """A line of a text; of a long one the part around the column."""
    rows = text.split("\n")
    row = rows[position.line - 1] if position.line <= len(rows) else ""
    start = max(0, position.column - 1 - MAX_EXCERPT // 2) if len(row) > MAX_EXCERPT else 0
    part = row[start : start + MAX_EXCERPT].strip()
    return clean(("…" if start else "") + part + ("…" if start + MAX_EXCERPT < len(row) else ""))


def _positions(format_: str, text: str) -> Iterable[tuple[tuple[str | int, ...], Position]]:
    from cli.text import json_text, yaml_text

    return json_text.positions(text) if format_ == "JSON" else yaml_text.positions(text)


def _text_error(name: str, text: str, error: TextError) -> CommandError:
    facts: list[tuple[str, str]] = []
    if error.position is not None:
        name = f"{name}:{error.position.line}:{error.position.column}"
        facts.append(("line", cut_line(text, error.position)))
    if error.hint:
        facts.append(("hint", error.hint))
    return CommandError(MessageBlock(error.message, name, facts))


def _read_stdin() -> bytes:
    if sys.stdin is None or sys.stdin.closed:
        raise command_error("there is no standard input to read", hint="name a file")
    return sys.stdin.buffer.read(MAX_BYTES + 1)


def _read_bytes(name: str) -> bytes:
    if "\0" in name or not name:
        raise command_error(f"{clean(name)!r} is not the name of a file")
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - the name unchanged, "a//b" too
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _file_error(name, error) from None


def _file_error(name: str, error: OSError) -> CommandError:
    if isinstance(error, IsADirectoryError):
        files = sorted(n for n in _list_folder(Path(name)) if n.endswith(SUFFIXES))[:5]
        hint = f"it holds: {', '.join(files)}" if files else "name a file"
        return command_error("this is a folder, not a file", where=name, hint=hint)
    if isinstance(error, FileNotFoundError):
        return command_error("there is no such file", where=name, hint=_suggest_files(name))
    if error.errno == errno.ENAMETOOLONG:
        return command_error("the name is too long for a file", where=clean(name, 60))
    return command_error(f"the file cannot be read: {error.strerror}", where=name)


def _suggest_files(name: str) -> str:
    """Files with a similar name, or else those of the folder."""
    path = Path(name)
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder} either"
    names = [n for n in _list_folder(folder) if n.endswith(SUFFIXES) or Path(n).stem == path.stem]
    near = get_close_matches(path.name, names, 3, 0.5)
    if near:
        return f"did you mean {' or '.join(str(folder / n) for n in near)}?"
    listed = ", ".join(sorted(names)[:5])
    return f"{folder} holds: {listed}" if listed else f"{folder} holds no {', '.join(SUFFIXES)} file"


def _list_folder(folder: Path) -> list[str]:
    try:
        return [p.name for p in folder.iterdir()]
    except OSError:
        return []


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
