"""What all records have in common on the wire: names, defaults that are left out, a version, digests.

Laws: a field is added with a default, so that records of an earlier version are read; a change of meaning raises
``WIRE_VERSION``, and a run that meets a later version than its own refuses it by name. Which records there are,
``records.py`` says.
"""

from __future__ import annotations

import hashlib
import json
import re
from decimal import Decimal
from typing import Any, Final, Self

from pydantic import BaseModel, ValidationError, model_validator

from acts.language.errors import ActsError
from acts.language.values import Json

WIRE_VERSION: Final = 2
# Numbers that ECMAScript writes without an exponent
_PLAIN: Final = (1e-6, 1e21)
TYPE_KEY: Final = "acts"  # key of a payload's metadata: the type of the record


class RecordError(ActsError):
    """A payload that is not the record it should be; the message names the record and the field."""


def first_error(error: ValidationError) -> str:
    """Return the first thing that is wrong, as ``place: message``."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    text = str(first["msg"]).removeprefix("Value error, ")
    return f"{place}: {text}" if place else text


class Record(BaseModel, frozen=True, extra="forbid"):
    """Base of all records: camelCase on the wire, nothing unknown, defaults left out."""

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(exclude_defaults=True, by_alias=True)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read what ``to_json`` gave; raise RecordError for anything else, and for a later version."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise RecordError(f"not a {cls.__name__}: {first_error(error)}") from None


class VersionedRecord(Record):
    """A record that stands in a history by itself: it says which version of the wire it is of."""

    v: int = WIRE_VERSION

    def to_json(self) -> dict[str, Any]:
        return {"v": self.v, **super().to_json()}

    @model_validator(mode="before")
    @classmethod
    def _check_version(cls, data: Any) -> Any:
        """Before the fields are checked: a later version may have fields that this one does not know."""
        version = data.get("v") if isinstance(data, dict) else None
        if isinstance(version, int) and version > WIRE_VERSION:
            raise ValueError(f"it has version {version} of the wire; this worker reads up to {WIRE_VERSION}: update it")
        return data


# What may be a float, or a key that UTF-16 sorts otherwise: all else has the form of the RFC as it is
_UNLIKE_RFC: Final = re.compile(r"\d[.eE]|[\ud800-\U0010ffff]|NaN|Infinity")


def canonical_json(value: Json) -> bytes:
    """The one form of a value that is hashed and signed: RFC 8785, so that any language can make it.

    Where the RFC has no form, ours is exact: integers beyond 2^53 keep their digits, lone surrogates their code.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    if _UNLIKE_RFC.search(text):
        out: list[str] = []
        _append_canonical(value, out)
        text = "".join(out)
    return text.encode(errors="surrogatepass")


def _append_canonical(value: Json, out: list[str]) -> None:
    match value:
        case dict():
            for at, key in enumerate(sorted(value, key=lambda key: key.encode("utf-16-be", errors="surrogatepass"))):
                out += ("," if at else "{", json.dumps(key, ensure_ascii=False), ":")
                _append_canonical(value[key], out)
            out.append("}" if value else "{}")
        case list() | tuple():
            for at, item in enumerate(value):
                out.append("," if at else "[")
                _append_canonical(item, out)
            out.append("]" if value else "[]")
        case float():
            out.append(_format_double(value))
        case _:
            out.append(json.dumps(value, ensure_ascii=False))


def _format_double(value: float) -> str:
    """A number as ECMAScript writes it."""
    if value == 0:
        return "0"
    if _PLAIN[0] <= abs(value) < _PLAIN[1]:
        text = format(Decimal(repr(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    digits, _, exponent = repr(value).partition("e")
    return f"{digits.removesuffix('.0')}e{int(exponent):+d}"


def digest(value: Json, characters: int = 64) -> str:
    """SHA-256 of a value, as hex, or its first characters: 32 of them, 128 bits, never meet by chance."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:characters]
