"""Markdown of the page that Temporal's Web UI shows of a run. Pure.

Laws
----
* Text that came from outside (names, messages, reasons) stands in code spans. There it is shown
  as it was written: no markup, no script, no link, no typographic quotes. Character references
  would do for marks, but not for quotes, and whoever reads the page raw would read them too.
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
# Lines of one part: more are not read in a browser
MAX_ROWS: Final = 100
# What a code span cannot hold: its own mark, the one that ends a cell of a table, and what the Web UI fills in
_OUTSIDE: Final = re.compile(r"([`|]+|\{(?=(?:namespace|workflowId|runId)\}))")


def code_span(text: Any, limit: int = 120) -> str:
    """Text from outside, on one line, shown as it was written. Of more than ``limit`` characters, the first."""
    line = str(text)
    if not line.isprintable():
        line = "".join(c if c.isprintable() else " " for c in line)
    parts = _OUTSIDE.split(truncate(" ".join(line.split()), limit))
    return "".join(_referred(part) if i % 2 else _span(part) for i, part in enumerate(parts))


def _span(text: str) -> str:
    """A code span, with the spaces around it outside: inside they would be lost."""
    inner = text.strip()
    if not inner:
        return text
    before, _, after = text.partition(inner)
    return f"{before}`{inner}`{after}"


def _referred(marks: str) -> str:
    return "".join(f"&#{ord(c)};" for c in marks)


def fence(value: Any) -> str:
    """JSON to be copied, in a fence that nothing in it can close; in lines narrow enough to be seen whole."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    text = "".join(c if c == "\n" or (c.isprintable() and c != "`") else _escaped(c) for c in text)
    return f"```json\n{_OUTSIDE.sub(lambda found: _unfilled(found[0]), text)}\n```"


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "`" else "\\u0060"


def _unfilled(found: str) -> str:
    return found.replace("{", "\\u007b")


def table(heads: Sequence[str], rows: Sequence[str]) -> str:
    """A table of rows that ``row`` made."""
    return "\n".join([row(*heads), "|" + "-|" * len(heads), *rows])


def row(*cells: str) -> str:
    """One row. What stands outside of code spans in a cell must be ours.

    The Web UI draws cells without any space between them, so a cell ends with a space of its own.
    """
    return "| " + "\u00a0 | ".join(cells) + " |"


def fit_lines(lines: Iterable[str], count: int, others: str, most: int = MAX_ROWS) -> list[str]:
    """The first lines that fit; of the others (there are ``count`` in all) how many, and where they are told."""
    shown: list[str] = []
    room = MAX_SECTION
    for line in islice(lines, most):
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    left = count - len(shown)
    return [*shown, f"\n… and {left:,} more: {others}"] if left else shown
