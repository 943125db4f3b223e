"""Markdown for the page of a run in Temporal's Web UI. Pure.

* Text from outside (names, messages, reasons) is in code spans, which render it literally: no markup,
  scripts, links or typographic quotes. (Character references would escape marks but not quotes, and
  would make the raw page hard to read.)
* A page is bounded, and cut between lines. The Web UI requests the page with the text in the URL,
  which may have 1 MiB; one character takes up to 12 bytes there.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import truncate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Characters of one section. A page has at most eight, and notes: 73,000 characters, 876,000 bytes
MAX_SECTION: Final = 8_000
# Lines of one section: nobody reads more in a browser
MAX_ROWS: Final = 100
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
# What a code span cannot contain: backticks, the cell separator of tables, and the placeholders of the Web UI
_UNSAFE: Final = re.compile(r"([`|]+|\{(?=(?:namespace|workflowId|runId)\}))")


def code_span(text: Any, limit: int = 120) -> str:
    """Text from outside as code, on one line, truncated to ``limit`` characters."""
    line = str(text)
    if not line.isprintable():
        line = "".join(c if c.isprintable() else " " for c in line)
    parts = _UNSAFE.split(truncate(" ".join(line.split()), limit))
    return "".join(_char_refs(part) if i % 2 else _span(part) for i, part in enumerate(parts))


def _span(text: str) -> str:
    """A code span; surrounding spaces go outside, because Markdown strips them inside."""
    inner = text.strip()
    if not inner:
        return text
    before, _, after = text.partition(inner)
    return f"{before}`{inner}`{after}"


def _char_refs(marks: str) -> str:
    return "".join(f"&#{ord(c)};" for c in marks)


def begin_json(value: Any, limit: int) -> str:
    """The beginning of a value as JSON: more than ``limit`` characters of it if there are more, however large it is."""
    if isinstance(value, str):
        return json.dumps(value[: limit + 1], ensure_ascii=False)
    parts, length = [], 0
    for part in _ENCODER.iterencode(value):
        parts.append(part)
        length += len(part)
        if length > limit:
            break
    return "".join(parts)


def fence(value: Any) -> str:
    """JSON in a code block, indented, escaped so that no text in it can close the block."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    text = "".join(c if c == "\n" or (c.isprintable() and c != "`") else _json_escape(c) for c in text)
    return f"```json\n{_UNSAFE.sub(lambda match: _escape_placeholder(match[0]), text)}\n```"


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "`" else "\\u0060"


def _escape_placeholder(text: str) -> str:
    return text.replace("{", "\\u007b")


def table(heads: Sequence[str], rows: Sequence[str]) -> str:
    """A table; ``rows`` are results of ``row``."""
    return "\n".join([row(*heads), "|" + "-|" * len(heads), *rows])


def row(*cells: str) -> str:
    """One row of a table. Text from outside must be in code spans.

    The Web UI renders cells without padding, so each cell ends with a no-break space.
    """
    return "| " + "\u00a0 | ".join(cells) + " |"


def fit_lines(lines: Iterable[str], count: int, others: str, limit: int = MAX_ROWS) -> list[str]:
    """The first lines that fit, at most ``limit``; then how many of ``count`` are missing.

    ``others`` tells the reader where the rest is, like "ask the query `status`".
    """
    out: list[str] = []
    room = MAX_SECTION
    for line in islice(lines, limit):
        room -= len(line) + 1
        if room < 0:
            break
        out.append(line)
    rest = count - len(out)
    return [*out, f"\n… and {rest:,} more: {others}"] if rest else out
