"""The search attributes by which runs are found: their names, types, and the values of a root.

They are optional: a namespace may lack them. ``acts setup`` registers them; the values are written by the root of a
tree, one event for each change of its phase. Every run below it has ``ActsRoot`` and ``ActsTags`` from its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

ROOT: Final = "ActsRoot"
PHASE: Final = "ActsPhase"
WAITING: Final = "ActsWaiting"
WAITING_SINCE: Final = "ActsWaitingSince"
TOOLS: Final = "ActsTools"
MODEL: Final = "ActsModel"
COST: Final = "ActsCost"
TAGS: Final = "ActsTags"  # name=value

# By name, as ``temporal operator search-attribute create --type`` calls the types
TYPES: Final[Mapping[str, str]] = {
    PHASE: "Keyword", WAITING: "Int", TOOLS: "KeywordList", MODEL: "Keyword", COST: "Double", ROOT: "Keyword",
    WAITING_SINCE: "Datetime",
    TAGS: "KeywordList",
}  # fmt: skip
# What the engine's look-up says of a namespace that has all; 1: all but the last, as namespaces of before
ALL_ATTRIBUTES: Final = 2
# The server takes 2 kB in one value (``limit.searchAttributesSizeOfValue``) and 255 characters in a keyword in SQL
MAX_TOOLS_BYTES: Final = 1_500
MAX_KEYWORD: Final = 255


def tool_keywords(names: Iterable[str]) -> list[str]:
    """The names of Tools, each once, in order, as many as one value may hold."""
    out: list[str] = []
    room = MAX_TOOLS_BYTES
    for name in sorted(set(names)):
        keyword = name[:MAX_KEYWORD]
        room -= len(keyword.encode()) + 4
        if room < 0:
            break
        out.append(keyword)
    return out
