"""A file (or standard input) to a JSON value that remembers where its parts stand.

Laws of this file:
- whatever is wrong with a file is a Refusal that names it and, where it can, the line;
- nothing endless is read: a device or pipe is cut off at the limit;
- JSON by the suffix .json, YAML by .yaml or .yml; else by the first character.
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
from cli.command_errors import CommandError, MessageBlock, refuse
from cli.console import MAX_EXCERPT, clean
from cli.text.positions import Place, TextError

STDIN: Final = "-"
# Temporal keeps at most 2 MB of input; eight times that is room for indentation and comments.
MAX_BYTES: Final = 16 * 1024 * 1024
SUFFIXES: Final = (".json", ".yaml", ".yml")


@dataclass(frozen=True)
class Source:
    """What was read, under the name a person knows it by."""

    name: str
    text: str
    format: Literal["JSON", "YAML"]
    value: Json
    _places: dict[tuple[str | int, ...], Place] = field(default_factory=dict, compare=False)

    def place(self, pointer: str) -> Place | None:
        """Where a JSON pointer leads, or the nearest thing around it."""
        if not self._places:
            with suppress(TextError):  # too deep: what stands above it has its places
                for path, place in _walk(self.format, self.text):
                    self._places[path] = place
        tokens = self._tokens(pointer)
        while tokens not in self._places and tokens:
            tokens = tokens[:-1]
        return self._places.get(tokens)

    def where(self, pointer: str) -> str:
        """``plan.json:12``"""
        place = self.place(pointer)
        return self.name if place is None else f"{self.name}:{place.line}"

    def excerpt(self, pointer: str) -> str:
        """The line that a pointer leads to."""
        place = self.place(pointer)
        return "" if place is None else excerpt(self.text, place)

    def _tokens(self, pointer: str) -> tuple[str | int, ...]:
        """A pointer's tokens, numbers where the value has lists; cut where the value ends."""
        out: list[str | int] = []
        value = self.value
        for word in pointer.split("/")[1:]:
            name = word.replace("~1", "/").replace("~0", "~")
            below = get(value, (name,))
            out.append(int(name) if isinstance(value, list) and name.isdigit() else name)
            if below is ABSENT:
                break
            value = below
        return tuple(out)


def read(given: str) -> Source:
    """The value of a file, or of standard input for ``-``.

    Raises:
        Refusal: it cannot be read, or holds no JSON value.
    """
    name = "standard input" if given == STDIN else given
    text = _decode(name, _stdin() if given == STDIN else _bytes(given))
    suffix = "" if given == STDIN else Path(given).suffix.lower()
    is_json = suffix == ".json" or (suffix not in SUFFIXES and text.lstrip()[:1] in ("{", "["))
    return parse(name, text, "JSON" if is_json else "YAML")


def parse(name: str, text: str, format_: Literal["JSON", "YAML"]) -> Source:
    """The value of a text.

    Raises:
        Refusal: it holds none.
    """
    if not text.strip():
        raise refuse("the file is empty", where=name, hint="it must hold one JSON or YAML value")
    from cli.text import json_text, yaml_text

    try:
        value = json_text.parse(text) if format_ == "JSON" else yaml_text.parse(text)
    except TextError as error:
        raise _unreadable(name, text, error) from None
    source = Source(name, text, format_, value)
    broken = defect(value)
    if broken is not None:
        facts = [("line", source.excerpt(broken[0])), ("at", broken[0] or "/")]
        raise CommandError(MessageBlock(broken[1], source.where(broken[0]), facts))
    return source


def looks_like_file(given: str) -> bool:
    """True for an argument that names a file rather than a run."""
    return given == STDIN or given.lower().endswith(SUFFIXES) or Path(given).is_file()


def excerpt(text: str, place: Place) -> str:
    """A line of a text, cut to what fits, around its column if it is long."""
    rows = text.split("\n")
    row = rows[place.line - 1] if place.line <= len(rows) else ""
    start = max(0, place.column - 1 - MAX_EXCERPT // 2) if len(row) > MAX_EXCERPT else 0
    cut = row[start : start + MAX_EXCERPT]
    return clean(("…" if start else "") + cut.strip() + ("…" if start + MAX_EXCERPT < len(row) else ""))


def _walk(format_: str, text: str) -> Iterable[tuple[tuple[str | int, ...], Place]]:
    from cli.text import json_text, yaml_text

    return json_text.places(text) if format_ == "JSON" else yaml_text.places(text)


def _unreadable(name: str, text: str, error: TextError) -> CommandError:
    facts: list[tuple[str, str]] = []
    where = name
    if error.place is not None:
        where = f"{name}:{error.place.line}:{error.place.column}"
        facts.append(("line", excerpt(text, error.place)))
    if error.hint:
        facts.append(("hint", error.hint))
    return CommandError(MessageBlock(error.message, where, facts))


def _stdin() -> bytes:
    if sys.stdin is None or sys.stdin.closed:
        raise refuse("there is no standard input to read", hint="name a file")
    return sys.stdin.buffer.read(MAX_BYTES + 1)


def _bytes(given: str) -> bytes:
    if "\0" in given or not given:
        raise refuse(f"{clean(given)!r} is not the name of a file")
    try:
        with open(given, "rb") as file:  # noqa: PTH123 - the name as it was given, "a//b" too
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _no_file(given, error) from None


def _no_file(given: str, error: OSError) -> CommandError:
    if isinstance(error, IsADirectoryError):
        inside = sorted(n for n in _listing(Path(given)) if n.endswith(SUFFIXES))[:5]
        return refuse(
            "this is a folder, not a file",
            where=given,
            hint=f"it holds: {', '.join(inside)}" if inside else "name a file",
        )
    if isinstance(error, FileNotFoundError):
        return refuse("there is no such file", where=given, hint=_near(given))
    if error.errno == errno.ENAMETOOLONG:
        return refuse("the name is too long for a file", where=clean(given, 60))
    return refuse(f"the file cannot be read: {error.strerror}", where=given)


def _near(given: str) -> str:
    """What a missing file may have been meant to be."""
    path = Path(given)
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder} either"
    names = [n for n in _listing(folder) if n.endswith(SUFFIXES) or Path(n).stem == path.stem]
    near = get_close_matches(path.name, names, 3, 0.5)
    if near:
        return f"did you mean {' or '.join(str(folder / n) for n in near)}?"
    listed = ", ".join(sorted(names)[:5])
    return f"in {folder} there is: {listed}" if listed else f"{folder} holds no {', '.join(SUFFIXES)} file"


def _listing(folder: Path) -> list[str]:
    try:
        return [p.name for p in folder.iterdir()]
    except OSError:
        return []


def _decode(name: str, content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise refuse(
            f"the file is larger than {MAX_BYTES // 1024 // 1024} MiB",
            where=name,
            hint="a run takes at most 2 MB of input",
        )
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise refuse("the file is UTF-16", where=name, hint="save it as UTF-8")
    if b"\0" in content:
        at = content.index(b"\0")
        raise refuse(
            f"this is not a text file: byte {at} is NUL", where=name, hint="a request is JSON or YAML text in UTF-8"
        )
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        text = f"this is not UTF-8 text: byte {error.start} is 0x{content[error.start]:02X}"
        raise refuse(text, where=f"{name}:{line}", hint="save the file as UTF-8") from None
