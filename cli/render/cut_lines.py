"""What is missing from a result because it was too large to be recorded, and the commands that print it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cli.console import clean

# Commands that are shown, of the largest parts; the JSON has more
MAX_LINES: Final = 5


def cut_lines(run: str, result: Any) -> Iterator[str]:
    """A line per part that was cut, its size, and how to read it."""
    omitted = result.get("omitted") if isinstance(result, Mapping) else None
    if not isinstance(omitted, Mapping):
        return
    sizes = omitted.get("bytes")
    parts = ", ".join(f"{clean(k)} ({n:,} bytes)" for k, n in sizes.items()) if isinstance(sizes, Mapping) else ""
    yield f"left out of the result, which was too large to be recorded: {parts}"
    cuts = [cut for cut in omitted.get("cut") or () if isinstance(cut, Mapping)]
    for cut in cuts[:MAX_LINES]:
        yield f"  {clean(cut.get('at'))} ({cut.get('bytes', 0):,} bytes){_command(run, cut)}"
    if (more := len(cuts) - MAX_LINES + int(omitted.get("more", 0))) > 0:
        yield f"  … and {more:,} more; --json lists the largest"


def _command(run: str, cut: Mapping[str, Any]) -> str:
    """The query that has a part, as a command of the Temporal CLI."""
    if "query" not in cut:
        return ""
    words = ["temporal", "workflow", "query", "--workflow-id", run, "--type", str(cut["query"])]
    if "argument" in cut:
        words += ["--input", json.dumps(cut["argument"], ensure_ascii=False)]
    return f": {clean(shlex.join(words))}"
