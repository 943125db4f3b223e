"""What the commands print, and how they fail: consoles, messages, JSON, exit codes.

- Results go to stdout, everything else to stderr.
- Text from outside (tool names, messages, results) is only text: control characters become visible, and markup in it
  is not interpreted.
- Colors only on a terminal (rich decides by the stream, NO_COLOR and TERM); printing never fails: a character that the
  terminal's encoding lacks is printed as its code.
- An error of a person, a server or an environment is a ``CommandError``, never a traceback.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1  # the run ended otherwise than completed: failed, partial, rejected, cancelled, …
EXIT_WRONG_INPUT: Final = 2  # typer exits with it too, for a wrong option
EXIT_NO_SERVER: Final = 3
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as shells report it

FILE_COLUMNS: Final = 120  # the width of a drawing in a file or pipe, which has none of its own
_PIPE_COLUMNS: Final = 1_000  # … of a table with one line per thing: a pipe has no edge, and `grep` wants whole lines
_STYLES: Final = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


@dataclass(frozen=True)
class MessageBlock:
    """One message: a sentence, where it applies, and ``facts``, labelled lines below it."""

    head: str
    where: str = ""
    facts: Sequence[tuple[str, str]] = ()
    severity: str = "error"

    def text(self) -> str:
        """The message as plain lines."""
        facts = "".join(f"\n  {label}: {fact}" for label, fact in self.facts)
        return f"{self.where}: {self.head}{facts}" if self.where else f"{self.head}{facts}"


class CommandError(Exception):
    """The command cannot do what was requested. ``blocks`` are printed, ``code`` is the exit code."""

    def __init__(self, *blocks: MessageBlock, code: int = EXIT_WRONG_INPUT) -> None:
        super().__init__("; ".join(b.head for b in blocks))
        self.blocks = blocks
        self.code = code


def message(head: str, *, where: str = "", hint: str = "", severity: str = "error") -> MessageBlock:
    """A message with at most one hint."""
    return MessageBlock(head, where, (("hint", hint),) if hint else (), severity)


def command_error(head: str, *, where: str = "", hint: str = "", code: int = EXIT_WRONG_INPUT) -> CommandError:
    """A ``CommandError`` of one message with at most one hint."""
    return CommandError(message(head, where=where, hint=hint), code=code)


def configure_streams() -> None:
    """Make both streams print any text: of a character that the encoding lacks, the code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


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


def clean_lines(text: str) -> list[str]:
    """The lines of a text, each without control characters."""
    return [clean(line) for line in text.splitlines()] or [""]


def compact_json(value: Any) -> str:
    """A value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def count_text(number: int, noun: str) -> str:
    """``1 call``, ``2,000 calls``"""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def list_names(names: Sequence[Any], limit: int) -> str:
    """``a, b, … (200 in all)``"""
    more = f", … ({len(names)} in all)" if len(names) > limit else ""
    return ", ".join(clean(name, 80) for name in names[:limit]) + more if names else "none"


def duration_text(seconds: float) -> str:
    """``1.2 s``, ``3.5 h``"""
    for unit, name in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{max(seconds, 0.0):.1f} s"


def print_err(text: str = "", style: str = "") -> None:
    """Print a line on stderr."""
    console(stderr=True).print(text, style=style or None)


def print_out(text: str) -> None:
    """Print a line on stdout, unchanged."""
    print(text)


def print_json(value: Any) -> int:
    """Print a value as JSON on stdout; the exit code of a command that has done so."""
    utf8 = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    print(json.dumps(value, indent=2, ensure_ascii=not utf8))
    return EXIT_DONE


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
    text.append("\n  ".join([first, *rest]))
    width = max((len(label) for label, _ in block.facts), default=0)
    for label, fact in block.facts:
        text.append(f"\n  {label.ljust(width)}  ", "dim")
        text.append(f"\n  {' ' * width}  ".join(clean_lines(fact)))
    return text
