"""What is left out of a result that is too large to be recorded: what is large, and nothing that is small. Pure.

The parts are cut in the order of ``_ORDER``, each only as far as the others leave no room for it. Of an object the
largest entries go, of a list the largest elements; an entry that is an object is cut inside. ``omitted`` says what
was cut, how large it was, and which query has it::

    {"bytes": {"state": 900002}, "how": …,
     "cut": [{"at": "/state/report", "bytes": 900002, "query": "context", "argument": {"path": "†state.report"}}]}
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import truncate
from acts.language.references import Path
from acts.language.shared_sizes import SharedSizes
from acts.language.strict_json import json_size
from acts.language.values import pointer
from acts.language.wire import CONTEXT, STATUS

if TYPE_CHECKING:
    from collections.abc import Mapping

# A payload has 2 MiB; the rest is for the envelope, and for the list of what was cut
MAX_RESULT: Final = 1536 * 1024
# Of a batch: above this, each instance's own run has its result
MAX_BATCH_RESULT: Final = 1024 * 1024
# Cuts that are listed, the largest; and errors that a list keeps at all
MAX_CUTS: Final = 100
MAX_ERRORS: Final = 500
# A comma, and a key with its quotes and its colon
_SEPARATOR_BYTES: Final = 4
# The two brackets of an object or list, without the comma that its last entry does not have
_BRACKETS_BYTES: Final = 1

# Of the limit, what each part may keep however large the others are: what is small, everywhere
_SMALL_SHARE: Final = 32

# What every reader can ask for comes first, and what says how the run went last
_ORDER: Final = ("context", "state", "output", "decisions", "errors", "calls", "instances")
HOW: Final = "ask the named query; `acts show` prints the commands"


@dataclass(slots=True)
class _Cuts:
    """What was cut so far. ``first_message`` is the position in the whole context of the first appended message."""

    first_message: int
    bytes: dict[str, int] = field(default_factory=dict)
    items: list[dict[str, Any]] = field(default_factory=list)
    sizes: SharedSizes = field(default_factory=SharedSizes)

    def size(self, value: Any) -> int:
        """Bytes of a part of the result; messages share their Calls, instances their state."""
        return self.sizes.size_of_list(value) if isinstance(value, list) else self.sizes.size(value)

    def add(self, names: tuple[str, ...], size: int) -> None:
        self.bytes[names[0]] = self.bytes.get(names[0], 0) + size
        self.items.append({"at": pointer(*names), "bytes": size, **self._source(names)})

    def _source(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The query that has it."""
        if names[0] == "context" and len(names) > 1:
            return {"query": CONTEXT, "argument": {"offset": self.first_message + int(names[1]), "limit": 1}}
        if names[0] == "state":
            return {"query": CONTEXT, "argument": {"path": str(Path("state", names[1:]))}}
        return {"query": STATUS} if names[0] in ("calls", "errors", "decisions", "instances") else {}

    def to_json(self, how: str) -> dict[str, Any]:
        largest = sorted(self.items, key=lambda item: -item["bytes"])
        more = {"more": len(largest) - MAX_CUTS} if len(largest) > MAX_CUTS else {}
        return {"bytes": self.bytes, "cut": largest[:MAX_CUTS], **more, "how": how}


def cut_result(
    result: dict[str, Any], first_message: int = 0, limit: int = MAX_RESULT, batch_limit: int = MAX_BATCH_RESULT,
    left_out: Mapping[str, int] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The result with at most ``limit`` bytes of JSON, ``omitted`` apart.

    ``left_out`` are the bytes that its parts lack already, since a batch above ``batch_limit`` has no room for them.
    """
    left_out = left_out or {}
    cuts, how, out = _Cuts(first_message), HOW, dict(result)
    sizes = {key: cuts.size(value) for key, value in result.items()}
    total = sum(sizes.values()) + sum(len(key) + _SEPARATOR_BYTES for key in sizes) + _BRACKETS_BYTES
    if "instances" in out and total + sum(left_out.values()) > batch_limit:
        how = f"{HOW}; each instance's child has its own result"
        for key, rest in (
            ("instances", {i: {"status": item["status"]} for i, item in out["instances"].items()}),
            ("context", [m for m in out["context"] if "_instance" not in m]),
        ):
            size = cuts.size(rest)
            if missing := sizes[key] - size + left_out.get(key, 0):
                cuts.bytes[key] = missing
            total, sizes[key], out[key] = total - sizes[key] + size, size, rest
    for key in _ORDER:
        if total <= limit:
            break
        if key in out:
            others = total - sizes[key]
            room = max(limit - others, limit // _SMALL_SHARE)
            if sizes[key] <= room:
                continue
            out[key] = _cut(out[key], sizes[key], (key,), room, cuts)
            total = others + cuts.size(out[key])
    return {**out, "omitted": cuts.to_json(how)} if cuts.bytes else out


def _cut(value: Any, size: int, names: tuple[str, ...], room: int, cuts: _Cuts) -> Any:
    """A value with at most ``room`` bytes; null in place of one that cannot be cut inside."""
    if names[0] in ("errors", "calls") and len(names) == 1:
        shorter = [_without_details(item) for item in value]
        shorter = shorter[:MAX_ERRORS] if names[0] == "errors" else shorter
        rest = cuts.size(shorter)
        if rest < size:
            cuts.add(names, size - rest)
        value, size = shorter, rest
        if size <= room:
            return value
    if isinstance(value, dict):
        return _cut_object(value, names, room, cuts)
    if isinstance(value, list) and len(names) == 1:
        return _cut_list(value, names, room, cuts)
    cuts.add(names, size)
    return None


def _cut_object(value: dict[str, Any], names: tuple[str, ...], room: int, cuts: _Cuts) -> dict[str, Any]:
    """The small entries, in their order, and what is small in the others."""
    sizes = {key: cuts.sizes.size(item) + _key_bytes(key) for key, item in value.items()}
    room -= _BRACKETS_BYTES
    out: dict[str, Any] = {}
    for key in sorted(sizes, key=sizes.__getitem__):
        if sizes[key] <= room:
            out[key] = value[key]
            room -= sizes[key]
        elif isinstance(value[key], dict) and room > _key_bytes(key) + len("{}"):
            out[key] = _cut_object(value[key], (*names, key), room - _key_bytes(key), cuts)
            room -= cuts.sizes.size(out[key]) + _key_bytes(key)
        else:
            cuts.add((*names, key), sizes[key])
    return {key: out[key] for key in value if key in out}


def _key_bytes(key: str) -> int:
    """The bytes of a key as JSON writes it, with its colon and a comma."""
    return json_size(key) + 2


def _cut_list(value: list[Any], names: tuple[str, ...], room: int, cuts: _Cuts) -> list[Any]:
    """The small elements, in their order; of equal ones the first."""
    sizes = [cuts.sizes.size(item) + 1 for item in value]
    room -= _BRACKETS_BYTES
    indices = set[int]()
    for index in sorted(range(len(sizes)), key=sizes.__getitem__):
        if sizes[index] > room:
            cuts.add((*names, str(index)), sizes[index])
        else:
            indices.add(index)
            room -= sizes[index]
    return [item for index, item in enumerate(value) if index in indices]


def _without_details(item: dict[str, Any]) -> dict[str, Any]:
    """A Call, or an error, without the details of its failure."""
    if "error" in item:
        return {**item, "error": _without_details(item["error"])}
    short = {key: part for key, part in item.items() if key != "details"}
    return {**short, "message": truncate(str(short["message"]))} if "message" in short else short


def without_details(errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Errors without their details, the first of very many."""
    return [_without_details(error) for error in errors[:MAX_ERRORS]]
