"""The one reader and the one writer of JSON text.

Laws of this file:
- what is read is JSON as RFC 8259 has it: no NaN, no Infinity, no number beyond a double, UTF-8;
- what is written is compact UTF-8, so that sizes can be compared with the limits of payloads;
- whether a value is fit to be stored (its depth, its strings) is for ``values.defect`` to say.
"""

from __future__ import annotations

import json
import math
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NoReturn

from acts.language.errors import truncate
from acts.language.values import MAX_DEPTH, Json


class DuplicateKeyError(ValueError):
    """A key is twice in one object: two readers could see two different values."""

    def __init__(self, key: str) -> None:
        super().__init__(f'the key "{truncate(key, 60)}" is twice in one object')
        self.key = key


class NestingError(ValueError):
    """The text nests deeper than any JSON that could be stored."""

    def __init__(self) -> None:
        super().__init__(f"it is nested deeper than {MAX_DEPTH} levels")


def read_json(data: str | bytes, *, unique_keys: bool = False) -> Json:
    """The value of a JSON text; bytes are UTF-8, with or without a byte order mark.

    ``unique_keys`` refuses a key that is twice in one object, for texts that people write. It
    makes reading several times slower. Otherwise the last of them counts.

    Raises:
        ValueError: the text is not JSON, and why. A ``json.JSONDecodeError`` has the position,
            a ``UnicodeDecodeError`` the offset; the others are a ``DuplicateKeyError``, a
            ``NestingError``, or name the number that JSON does not have.
    """
    text = data.removeprefix(BOM_UTF8).decode() if isinstance(data, bytes) else data
    try:
        return (_UNIQUE_KEYS if unique_keys else DECODER).decode(text)
    except RecursionError:
        raise NestingError from None
    except ValueError as error:
        if str(error).startswith("Exceeds the limit"):  # Python's bound on the digits of an integer
            raise ValueError("a number has more digits than can be read") from None
        raise


def write_json(value: Json) -> bytes:
    """A value as compact UTF-8 JSON.

    Raises:
        ValueError: it contains a number or a string that JSON does not have.
        TypeError: it contains something else that is not JSON.
    """
    return _write(value).encode()


def json_size(value: Json) -> int:
    """Bytes of a value as ``write_json`` writes it; what is no JSON (UNKNOWN) counts as its name."""
    return len(_write_estimate(value).encode())


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise DuplicateKeyError(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _read_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_read_float)
"""What ``read_json`` reads with, for readers of a text that only begins with JSON."""
_UNIQUE_KEYS: Final = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_read_float, object_pairs_hook=_unique
)


def _make_writer(default: Callable[[Any], Any] | None = None, *, allow_nan: bool) -> Callable[[Json], str]:
    """What ``json.JSONEncoder.encode`` does with these settings; it sets up its C code anew for each value.

    No circles are looked for: no JSON text has any, and one would end as a RecursionError.
    """
    encoder = json.JSONEncoder(default=default, allow_nan=allow_nan, ensure_ascii=False, separators=(",", ":"))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # a Python without the C code
        return encoder.encode
    chunks = make(None, encoder.default, json.encoder.encode_basestring, None, ":", ",", False, False, allow_nan)

    def write(value: Json) -> str:
        return "".join(chunks(value, 0))

    return write


_write: Final = _make_writer(allow_nan=False)
_write_estimate: Final = _make_writer(repr, allow_nan=True)
