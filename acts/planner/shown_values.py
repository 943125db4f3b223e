r"""Values as a model is shown them: JSON that cannot pose as anything else, and large values in part.

Laws of this file: pure, equal input gives equal text. Data is JSON in which no ``<`` begins a closing tag or one of
our tags (it is written ``\u003c``, which JSON reads as the same text); free text keeps every ``<`` but those of our
tags. What stands between the tags, and where, is not decided here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from acts.language.errors import truncate
from acts.language.references import Path
from acts.language.strict_json import json_size
from acts.language.values import Json, type_name

# Bytes of compact JSON: some 40,000 tokens. A value up to this size may have to be read; a larger one is passed on by
# its reference, and what a planner needs of it is the shape
LARGE_VALUE_BYTES: Final = 128 * 1024
# What is shown of a large value: this part of the limit, within these bounds
_BEGINNING: Final = 16
_LEAST_BEGINNING_BYTES: Final = 64
_MOST_BEGINNING_BYTES: Final = 2048
# A part of a part with less room than this has no beginning of its own: values nest 100 deep
_LEAST_PART_BYTES: Final = 16
# An object of more keys than these is a table: its beginning is shown, not each of its keys
_MAX_KEYS: Final = 64
# Items of a list whose keys are described: enough to meet the optional ones
_SAMPLE_ITEMS: Final = 50
# Characters of a key in the beginning of a large object
_MAX_KEY: Final = 100
IN_PART: Final = "(in part)"
# Adding up sizes takes about eight times as long as encoding, and is done once
_LEVELS_MEASURED: Final = 8

ShowPart = Callable[[Json, Path | None, int], Json]
"""Shows a part of a value, which is at a path, in so many bytes."""

TAGS: Final = (
    "text", "data", "outcomes", "problems", "earlier", "plan", "error", "call", "tool", "tools", "state", "input",
    "system", "developer", "user", "assistant", "instructions", "rules", "output",
)  # fmt: skip
"""Names of tags that are ours, or that a reader could take for ours."""
_OWN: Final = rf"\s*(?:{'|'.join(TAGS)})\b"
_IN_JSON: Final = re.compile(rf"<(?=\s*[/\\]|{_OWN})", re.IGNORECASE)
_IN_TEXT: Final = re.compile(rf"<(?=\s*/?{_OWN})", re.IGNORECASE)


def data_json(value: Any) -> str:
    """Compact JSON in which no tag of ours begins or ends."""
    return _IN_JSON.sub("\\\\u003c", json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def escape_text(text: str) -> str:
    """Free text in which no tag of ours begins or ends: their ``<`` is written ``&lt;``."""
    return _IN_TEXT.sub("&lt;", text)


def in_part(value: Json, path: Path | None, limit: int = LARGE_VALUE_BYTES) -> Json:
    """The value itself up to ``limit`` bytes of JSON; of a larger one its shape, its beginning and its reference.

    ``path`` is where a Call can read all of it; None: nowhere.
    """
    return _in_part(value, path, limit, _PartSizes(), 0)


class _PartSizes:
    """The JSON sizes of a value and of its parts, asked for on the way down.

    The first levels are measured by the encoder, which is quick. A deep value would be measured once for each of its
    levels so: from ``_LEVELS_MEASURED`` on, sizes are added up and remembered.
    """

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}

    def size(self, value: Json, depth: int) -> int:
        """What ``json_size`` returns, of a part of the value at this depth."""
        return json_size(value) if depth < _LEVELS_MEASURED else self._add_up(value)

    def _add_up(self, value: Json) -> int:
        if not isinstance(value, (dict, list)):
            return json_size(value)
        if (size := self._sizes.get(id(value))) is not None:
            return size
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        nested = {key: self._add_up(part) for key, part in parts if isinstance(part, (dict, list))}
        # The encoder counts the rest, with a digit in place of each nested value
        if isinstance(value, dict):
            size = json_size({key: 0 if key in nested else part for key, part in value.items()})
        else:
            size = json_size([0 if i in nested else part for i, part in enumerate(value)])
        self._sizes[id(value)] = size = size + sum(nested.values()) - len(nested)
        return size


def _in_part(value: Json, path: Path | None, limit: int, sizes: _PartSizes, depth: int) -> Json:
    size = sizes.size(value, depth)
    if size <= limit:
        return value
    # Without the bound each level would be tried three times, for as many levels as the value has
    if isinstance(value, dict) and len(value) <= _MAX_KEYS and limit >= _LEAST_BEGINNING_BYTES:
        for share in (2, 8, 32):
            parts = {k: _in_part(v, _below(path, k), limit // share, sizes, depth + 1) for k, v in value.items()}
            if json_size(parts) <= limit:
                return parts
    if limit < _LEAST_PART_BYTES and isinstance(value, (dict, list)):  # so small a part says nothing
        return {IN_PART: f"{len(value):,} {'keys' if isinstance(value, dict) else 'items'}, {size:,} bytes"}
    room = min(max(limit // _BEGINNING, _LEAST_BEGINNING_BYTES), _MOST_BEGINNING_BYTES)
    show = partial(_in_part, sizes=sizes, depth=depth + 1)
    return _digest(value, path, size, room, show)


def _below(path: Path | None, name: str) -> Path | None:
    return None if path is None else Path(path.kind, (*path.names, name))


def _digest(value: Json, path: Path | None, size: int, room: int, show: ShowPart) -> Json:
    """``{"(in part)": shape, "begins": …, "keys"?: …, "whole"?: reference}``; ``room`` bytes for the beginning."""
    more: dict[str, Json] = {} if path is None else {"whole": str(path)}
    if isinstance(value, str):
        text = f"a text of {len(value):,} characters"
        return {IN_PART: text, "begins": value.encode()[:room].decode(errors="ignore"), **more}
    if isinstance(value, list):
        text = f"a list of {len(value):,} items, {size:,} bytes"
        keys = _describe_items(value)
        begins = _first_items(value, path, room, show)
        return {IN_PART: text, "begins": begins, **({"keys": keys} if keys else {}), **more}
    if isinstance(value, dict):
        text = f"an object of {len(value):,} keys, {size:,} bytes"
        return {IN_PART: text, "begins": _first_keys(value, path, room, show), **more}
    return {IN_PART: f"a number of {size:,} digits", **more}


def _first_items(value: list[Json], path: Path | None, room: int, show: ShowPart) -> list[Json]:
    out: list[Json] = []
    for index, item in enumerate(value):
        shown = show(item, _below(path, str(index)), room // 2)
        room -= json_size(shown)
        if out and room < 0:
            break
        out.append(shown)
    return out


def _first_keys(value: dict[str, Json], path: Path | None, room: int, show: ShowPart) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for key, item in value.items():
        shown = show(item, _below(path, key), room // 2)
        room -= json_size(shown) + len(key.encode())
        if out and room < 0:
            break
        out[_short_key(key)] = shown
    return out


def _describe_items(value: list[Json]) -> dict[str, str]:
    """The keys of the objects in a list, each with its type; ``{}`` where the items are no objects, or have many."""
    types: dict[str, dict[str, None]] = {}
    for item in value[:_SAMPLE_ITEMS]:
        for key, part in item.items() if isinstance(item, dict) else ():
            types.setdefault(_short_key(key), {})[type_name(part)] = None
    return {key: " or ".join(names) for key, names in types.items()} if len(types) <= _MAX_KEYS else {}


def _short_key(key: str) -> str:
    return truncate(key, _MAX_KEY)
