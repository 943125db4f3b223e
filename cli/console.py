"""What a person or a program is shown: consoles, blocks, JSON.

Laws of this file:
- results go to stdout, all else to stderr;
- text from outside (tool names, messages, results) is text: control characters are made
  visible, and nothing in it is read as markup;
- no colors unless a terminal is looking (rich looks at the terminal, NO_COLOR and TERM);
- whatever the terminal's encoding, printing never fails.
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
LOG_COLUMNS: Final = 120  # of a table or drawing in a file or pipe, where there is no terminal to fit
_ASCII: Final = {
    **dict.fromkeys("─━", "-"), **dict.fromkeys("│┃", "|"), **dict.fromkeys("┌├└┐┤┘╭╰", "+"), "→": "->", "←": "<-",
    "…": "...", "•": "*", "·": ".", "✓": "+", "✗": "x", "–": "-",
    "▶": ">", "⏸": "=", "↗": "^", "⊘": "o", "“": '"', "”": '"',
}  # fmt: skip
# Of a line of the file that is shown below an error
MAX_EXCERPT: Final = 100


def ready() -> None:
    """Make both streams able to print any text: what they cannot encode is replaced or escaped."""
    codecs.register_error("acts", _replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="acts")


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    """Our own marks as ASCII has them, anything else as its code."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    char = error.object[error.start]
    if char in _ASCII:
        return _ASCII[char], error.start + 1
    one = UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)
    return codecs.backslashreplace_errors(one)


def console(*, stderr: bool = False, wrap: bool = False) -> Console:
    """A console that reads no markup and highlights nothing. ``wrap``: it breaks long lines, not the terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else LOG_COLUMNS
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=not wrap, width=width)


def clean(text: object, limit: int | None = None) -> str:
    """Text on one line, without anything a terminal would obey."""
    shown = "".join(c if c.isprintable() else _visible(c) for c in str(text))
    return shown if limit is None or len(shown) <= limit else shown[: limit - 1] + "…"


def _visible(char: str) -> str:
    return " " if char in "\n\t" else "�"


def lines(text: str) -> list[str]:
    """Text on its lines, each of them clean."""
    return [clean(line) for line in text.splitlines()] or [""]


def say(text: str = "", style: str = "") -> None:
    """A line on stderr."""
    console(stderr=True).print(text, style=style or None)


def out(text: str) -> None:
    """A line on stdout, as it stands."""
    print(text)


def out_json(value: Any) -> None:
    """A value on stdout, for people and programs alike."""
    utf8 = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    print(json.dumps(value, indent=2, ensure_ascii=not utf8))


def print_blocks(blocks: Iterable[MessageBlock]) -> None:
    """Each finding as a block of its own, on stderr."""
    for block in blocks:
        console(stderr=True).print(_block(block))


def _block(block: MessageBlock) -> Text:
    from rich.text import Text

    first, *rest = lines(block.head)
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
        text.append(f"\n  {' ' * width}  ".join(lines(fact)))
    return text
