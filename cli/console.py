"""Output of the commands: consoles, messages, JSON.

Laws of this file:
- results go to stdout, everything else to stderr;
- text from outside (tool names, messages, results) is only text: control characters become visible, and markup in it
  is not interpreted;
- colors only on a terminal (rich decides by the stream, NO_COLOR and TERM);
- printing never fails, whatever the encoding of the terminal.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from cli.command_errors import MessageBlock

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_STYLES: Final = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
FILE_COLUMNS: Final = 120  # the width of a drawing in a file or pipe, which has none of its own
_PIPE_COLUMNS: Final = 1_000  # … of a table with one line per thing: a pipe has no edge, and `grep` wants whole lines
_ASCII: Final = {
    **dict.fromkeys("─━", "-"), **dict.fromkeys("│┃", "|"), **dict.fromkeys("┌├└┐┤┘╭╰", "+"), "→": "->", "←": "<-",
    "…": "...", "•": "*", "·": ".", "✓": "+", "✗": "x", "–": "-",
    "▶": ">", "⏸": "=", "↗": "^", "⊘": "o", "“": '"', "”": '"',
}  # fmt: skip


def configure_streams() -> None:
    """Make both streams print any text: a character that the encoding lacks is replaced."""
    codecs.register_error("acts", _replace_character)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="acts")


def _replace_character(error: UnicodeError) -> tuple[str | bytes, int]:
    """An ASCII form of the marks that the commands print; the code of any other character."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    char = error.object[error.start]
    if char in _ASCII:
        return _ASCII[char], error.start + 1
    one = UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)
    return codecs.backslashreplace_errors(one)


def console(*, stderr: bool = False, wrap: bool = False) -> Console:
    """A console without markup and highlighting. ``wrap`` breaks long lines here instead of in the terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else FILE_COLUMNS
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=not wrap, width=width)


def line_console() -> Console:
    """A console for a table with one line per thing: in a file or pipe none of them is broken."""
    screen = console()
    if not screen.is_terminal:
        screen.width = _PIPE_COLUMNS
    return screen


def clean(text: object, limit: int | None = None) -> str:
    """Text on one line, without control characters, of at most ``limit`` characters."""
    line = "".join(c if c.isprintable() else " " if c in "\n\t" else "�" for c in str(text))
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def compact_json(value: Any) -> str:
    """A value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def count_text(number: int, noun: str) -> str:
    """``1 call``, ``2,000 calls``"""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def clean_lines(text: str) -> list[str]:
    """The lines of a text, each without control characters."""
    return [clean(line) for line in text.splitlines()] or [""]


def print_err(text: str = "", style: str = "") -> None:
    """Print a line on stderr."""
    console(stderr=True).print(text, style=style or None)


def print_out(text: str) -> None:
    """Print a line on stdout, unchanged."""
    print(text)


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout."""
    utf8 = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    print(json.dumps(value, indent=2, ensure_ascii=not utf8))


def print_blocks(blocks: Iterable[MessageBlock]) -> None:
    """Print messages on stderr."""
    for block in blocks:
        console(stderr=True).print(_format_block(block))


def _format_block(block: MessageBlock) -> Text:
    from rich.text import Text

    first, *rest = clean_lines(block.head)
    text = Text()
    text.append(f"{block.severity}: ", _STYLES.get(block.severity, ""))
    if block.where:
        text.append(f"{clean(block.where)}: ", "bold")
    text.append(first)
    for line in rest:
        text.append(f"\n  {line}")
    width = max((len(label) for label, _ in block.facts), default=0)
    for label, fact in block.facts:
        text.append(f"\n  {label.ljust(width)}  ", "dim")
        text.append(f"\n  {' ' * width}  ".join(clean_lines(fact)))
    return text
