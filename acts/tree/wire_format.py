"""What all records have in common on the wire: names, defaults that are left out, a version.

Laws: a field is added with a default, so that records of an earlier version are read; a change of meaning raises
``WIRE_VERSION``, and a run that meets a later version than its own refuses it by name. Which records there are,
``records.py`` says.
"""

from __future__ import annotations

from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from acts.language.errors import ActsError

WIRE_VERSION: Final = 2


class RecordError(ActsError):
    """A payload that is not the record it should be; the message names the record and the field."""


class Record(BaseModel):
    """Base of all records: camelCase on the wire, nothing unknown, defaults left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_json(self) -> dict[str, Any]:
        """The record as JSON; a field that has its default is left out."""
        out: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if field.is_required() or value != field.get_default(call_default_factory=True):
                out[name] = _to_json(value)
        return out

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """The record that ``to_json`` gave.

        Raises:
            RecordError: the data is none, or of a later version.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "the record"
            raise RecordError(f"not a {cls.__name__}: {place}: {first['msg']}") from None


class VersionedRecord(Record):
    """A record that stands in a history by itself: it says which version of the wire it is of."""

    v: int = WIRE_VERSION

    def to_json(self) -> dict[str, Any]:
        """The record as JSON, its version first."""
        return {"v": self.v, **super().to_json()}

    @model_validator(mode="before")
    @classmethod
    def _check_version(cls, data: Any) -> Any:
        """Before the fields are checked: a later version may have fields that this one does not know."""
        version = data.get("v") if isinstance(data, dict) else None
        if isinstance(version, int) and version > WIRE_VERSION:
            raise ValueError(f"it has version {version} of the wire; this worker reads up to {WIRE_VERSION}: update it")
        return data


def _to_json(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    return value
