"""Markdown for the page of a run in Temporal's Web UI. Pure.

Laws
----
* Text from outside (names, messages, reasons) is in code spans, which show it as it was written: no
  markup, script, link or typographic quotes. (Character references would do for marks, but not for
  quotes, and would be hard to read in the raw page.)
* A page is bounded, by whole lines. The Web UI asks its server for the page with the text in the
  address, which may have 1 MiB; a character takes up to 12 bytes there.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import truncate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Characters of one part of a page. It has at most eight, and notes: 73,000 characters, 876,000 bytes
MAX_SECTION: Final = 8_000
# Lines of one part: nobody reads more in a browser
MAX_ROWS: Final = 100
# What a code span cannot contain: its own mark, the one that ends a cell of a table, and the placeholders of the Web UI
_UNSAFE: Final = re.compile(r"([`|]+|\{(?=(?:namespace|workflowId|runId)\}))")


def code_span(text: Any, limit: int = 120) -> str:
    """Text from outside, on one line, as it was written; of more than ``limit`` characters, the beginning."""
    line = str(text)
    if not line.isprintable():
        line = "".join(c if c.isprintable() else " " for c in line)
    parts = _UNSAFE.split(truncate(" ".join(line.split()), limit))
    return "".join(_char_refs(part) if i % 2 else _span(part) for i, part in enumerate(parts))


def _span(text: str) -> str:
    """A code span, with the spaces around the text outside of it: inside they would be lost."""
    inner = text.strip()
    if not inner:
        return text
    before, _, after = text.partition(inner)
    return f"{before}`{inner}`{after}"


def _char_refs(marks: str) -> str:
    return "".join(f"&#{ord(c)};" for c in marks)


def fence(value: Any) -> str:
    """JSON to be copied, in a fence that nothing in it can close, in lines narrow enough to be seen whole."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    text = "".join(c if c == "\n" or (c.isprintable() and c != "`") else _json_escape(c) for c in text)
    return f"```json\n{_UNSAFE.sub(lambda match: _escape_placeholder(match[0]), text)}\n```"


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "`" else "\\u0060"


def _escape_placeholder(text: str) -> str:
    return text.replace("{", "\\u007b")


def table(heads: Sequence[str], rows: Sequence[str]) -> str:
    """A table of rows made by ``row``."""
    return "\n".join([row(*heads), "|" + "-|" * len(heads), *rows])


def row(*cells: str) -> str:
    """One row. Text from outside must be in code spans.

    The Web UI draws cells without any space between them, so a cell ends with a space of its own.
    """
    return "| " + "\u00a0 | ".join(cells) + " |"


def fit_lines(lines: Iterable[str], count: int, others: str, limit: int = MAX_ROWS) -> list[str]:
    """The first lines that fit, at most ``limit``, and the number of the rest (of ``count``) with where to find them.

    ``others`` says where, like "ask the query `status`".
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
