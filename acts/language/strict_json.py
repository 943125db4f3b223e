"""The one reader and the one writer of JSON text.

What is read is JSON as RFC 8259 has it: no NaN, no Infinity, no number beyond a double, UTF-8. What is written is
compact UTF-8. Whether a value is fit to be stored (its depth, its strings) is for ``values.defect`` to say.
"""

from __future__ import annotations

import json
import math
import zlib
from codecs import BOM_UTF8
from collections import Counter
from typing import Any, Final, NoReturn

from acts.language.errors import truncate
from acts.language.values import MAX_DEPTH, Json

# With external storage the state of a run may be so large as JSON; 128 MiB take some 3 s of the 8 s of a task
MAX_UNPACKED: Final = 128 * 1024 * 1024
# Values in it: an empty list has three bytes of text, and takes eighty
MAX_UNPACKED_VALUES: Final = 8_000_000


class DuplicateKeyError(ValueError):
    """A key is twice in one object: two readers could see two different values."""


class NestingError(ValueError):
    """The text nests deeper than any JSON that could be stored."""


def read_json(data: str | bytes, *, unique_keys: bool = False) -> Json:
    """The value of a JSON text; bytes are UTF-8, with or without a byte order mark.

    ``unique_keys`` refuses a key that is twice in one object, for texts that people write: it is several times slower.
    Otherwise the last of them counts. Raises ValueError: the text is not JSON, and why. A ``json.JSONDecodeError`` has
    the position, a ``UnicodeDecodeError`` the offset; the others are a ``DuplicateKeyError``, a ``NestingError``, or
    name the number.
    """
    text = data.removeprefix(BOM_UTF8).decode() if isinstance(data, bytes) else data
    try:
        return (UNIQUE_KEYS if unique_keys else DECODER).decode(text)
    except RecursionError:
        raise NestingError(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        if str(error).startswith("Exceeds the limit"):  # Python's bound on the digits of an integer
            raise ValueError("a number has more digits than can be read") from None
        raise


def unpack(data: bytes) -> bytes:
    """What ``zlib`` has compressed; ValueError where it is cut, or more than any run has: bytes may be gigabytes."""
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(data, MAX_UNPACKED + 1)
    except zlib.error as error:
        raise ValueError(f"it cannot be unpacked: {error}") from None
    if not unpacker.eof:
        raise ValueError(f"it is cut, or has more than {MAX_UNPACKED:,} bytes unpacked")
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_UNPACKED_VALUES:
        raise ValueError(f"it has more than {MAX_UNPACKED_VALUES:,} values unpacked")
    return content


def write_json(value: Json) -> bytes:
    """A value as compact UTF-8 JSON; raises ValueError or TypeError for what JSON does not have."""
    return _WRITER.encode(value).encode()


def json_text(value: Json) -> str:
    """A value as ``write_json`` writes it; what is no JSON (UNKNOWN) is its name."""
    return _ESTIMATE.encode(value)


def json_size(value: Json) -> int:
    """Bytes of ``json_text``."""
    return len(json_text(value).encode())


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise DuplicateKeyError(f'the key "{truncate(key, 60)}" is twice in one object')
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _read_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


# What ``read_json`` reads with, for readers of a text that only begins with JSON
DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_read_float)
UNIQUE_KEYS: Final = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_read_float, object_pairs_hook=_unique
)
# No circles are looked for: no JSON text has any, and one would end as a RecursionError
_COMPACT: Final[dict[str, Any]] = {"ensure_ascii": False, "separators": (",", ":"), "check_circular": False}
_WRITER: Final = json.JSONEncoder(allow_nan=False, **_COMPACT)
_ESTIMATE: Final = json.JSONEncoder(default=repr, **_COMPACT)


# Characters from which on a text is remembered, too
_LONG_TEXT: Final = 1_000


class SharedSizes:
    """Sizes in bytes. It remembers those of lists, objects and long texts, and holds these: no other gets their ids."""

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[Json, int]] = {}

    def size(self, value: Json) -> int:
        """What ``json_size`` returns; each object, each list and each long text is looked at once."""
        if not _is_remembered(value):
            return json_size(value)
        entry = self._sizes.get(id(value))
        if entry is None:
            parts = {k: v for k, v in value.items() if _is_remembered(v)} if isinstance(value, dict) else {}
            # The rest is written at once, which is quicker, with null (four bytes) in place of each of the parts
            rest = {**value, **dict.fromkeys(parts)} if parts else value
            size = json_size(rest) + sum(self.size(part) - 4 for part in parts.values())
            entry = self._sizes[id(value)] = value, size
        return entry[1]

    def size_of_list(self, items: list[Json]) -> int:
        """The size of a list whose elements may share parts."""
        return 2 + sum(map(self.size, items)) + max(0, len(items) - 1)


def _is_remembered(value: Json) -> bool:
    return isinstance(value, (dict, list)) or (isinstance(value, str) and len(value) >= _LONG_TEXT)
