"""JSON Schema (2020-12) checks, before and after references resolve.

Two libraries share the work: ``jsonschema-rs`` accepts values (a hundred times faster), and
``jsonschema`` explains why a value was not accepted. Neither ever fetches a remote ``$ref``.

*Relaxed* checks let a reference, or a value that a dry run cannot know, satisfy any type.
OpenAPI's ``nullable: true`` means that null is allowed too.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match, relevance
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from acts.language.errors import find_similar, format_choices, truncate
from acts.language.references import is_reference, unescape
from acts.language.strict_json import read_json, write_json
from acts.language.values import UNKNOWN, Json, pointer, type_name

if TYPE_CHECKING:
    from collections.abc import Iterator

Defect = tuple[tuple[str | int, ...], str]
"""The place in the value (keys and indexes), and what is wrong, in words."""

MAX_DEFECTS: Final = 20
# The verdict on a larger schema is not cached: a thousand of these take 32 MB at most
MAX_CACHED_BYTES: Final = 32 * 1024
_REGISTRY: Final[Registry[Any]] = Registry()
_NESTED: Final = (
    "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LISTED: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPPED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def _contains_unknown(value: Json) -> bool:
    """True when a part of the value is not known yet."""
    if isinstance(value, dict):
        return any(map(_contains_unknown, value.values()))
    if isinstance(value, list):
        return any(map(_contains_unknown, value))
    return value is UNKNOWN


def _with_unknowns(value: Json) -> Json:
    """A planned value with UNKNOWN in place of each reference, and ``††x`` unescaped."""
    if isinstance(value, str):
        return UNKNOWN if is_reference(value) else unescape(value)
    if isinstance(value, dict):
        return {k: _with_unknowns(v) for k, v in value.items()}
    return [_with_unknowns(v) for v in value] if isinstance(value, list) else value


def _relaxed_rule(keyword: str, strict: Any) -> Any:
    """The check of a keyword that skips what is not known yet.

    Keywords that look at a whole value (``const``, ``not`` …) are skipped when any part of it is
    unknown; ``oneOf`` then needs only one branch that fits.
    """
    rule = Draft202012Validator.VALIDATORS["anyOf"] if keyword == "oneOf" else strict
    checks_whole = keyword in ("not", "if", "const", "enum", "uniqueItems", "contains")

    def check(validator: Any, argument: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if instance is UNKNOWN or (checks_whole and _contains_unknown(instance)):
            return
        applicable = rule if keyword != "oneOf" or _contains_unknown(instance) else strict
        yield from applicable(validator, argument, instance, schema) or ()

    return check


_Relaxed: Final[Any] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {k: _relaxed_rule(k, rule) for k, rule in Draft202012Validator.VALIDATORS.items()}
)


class Checker:
    """One schema, compiled. Use ``checker`` to build it, so that equal schemas share one."""

    def __init__(self, schema: Json) -> None:
        self.schema = with_null(schema)
        self._trivial = schema is True or schema == {}
        self._fast = _compile(self.schema)
        self._strict = Draft202012Validator(self.schema, registry=_REGISTRY)
        self._relaxed = _Relaxed(self.schema, registry=_REGISTRY)

    def defects(self, value: Json) -> list[Defect]:
        """Why a resolved value does not fit; empty when it does."""
        if self._trivial or self._accepts(value):
            return []
        return _explain(self._strict, value)

    def open_defects(self, planned: Json) -> list[Defect]:
        """Why a planned value cannot fit, whatever its references resolve to."""
        return self.partial_defects(_with_unknowns(planned))

    def partial_defects(self, value: Json) -> list[Defect]:
        """Why a value cannot fit, whatever its UNKNOWN parts turn out to be."""
        if not _contains_unknown(value):
            return self.defects(value)
        parts = self._flat
        if parts is not None and isinstance(value, dict):
            return self._by_part(parts, value)
        item = self._item
        if item is not None and isinstance(value, list):
            return [((i, *at), text) for i, v in enumerate(value) for at, text in item.partial_defects(v)]
        return _explain(self._relaxed, value)

    def _accepts(self, value: Json) -> bool:
        try:
            return self._fast is not None and bool(self._fast.is_valid(value))
        except (ValueError, TypeError, OverflowError):
            return False  # the slower library says why

    @cached_property
    def _flat(self) -> dict[str, Checker] | None:
        """A checker per property, for a schema without keywords that look at several properties.

        Almost every Tool is such a flat object. Checking its properties one by one keeps the
        fast path for the values without references.
        """
        schema = self.schema
        plain = {"type", "properties", "required", "additionalProperties", "title", "description", "$defs"}
        if not isinstance(schema, dict) or "object" not in _types(schema) or not set(schema) <= plain:
            return None
        if not isinstance(schema.get("additionalProperties", True), bool) or not _is_self_contained(schema):
            return None
        return {key: checker(with_defs(part, schema)) for key, part in schema.get("properties", {}).items()}

    @cached_property
    def _item(self) -> Checker | None:
        """The checker of a list's items, for a schema with ``items`` alone."""
        schema = self.schema
        plain = {"type", "items", "title", "description", "$defs"}
        if not isinstance(schema, dict) or "array" not in _types(schema) or not set(schema) <= plain:
            return None
        if not _is_self_contained(schema):
            return None
        return checker(with_defs(schema.get("items", True), schema))

    def _by_part(self, parts: dict[str, Checker], value: dict[str, Json]) -> list[Defect]:
        if any(key not in value for key in self.schema.get("required", ())):
            return _explain(self._relaxed, value)
        if self.schema.get("additionalProperties") is False and any(key not in parts for key in value):
            return _explain(self._relaxed, value)
        defects: list[Defect] = []
        for key, item in value.items():
            if key in parts and item is not UNKNOWN:
                defects.extend(((key, *at), text) for at, text in parts[key].partial_defects(item))
        return defects


def _types(schema: dict[str, Any]) -> list[str]:
    """The types that a schema names; none where it allows any."""
    types = schema.get("type", [])
    return types if isinstance(types, list) else [types]


def _compile(schema: Json) -> Any:
    """The fast checker, or None for a schema that its library does not accept."""
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse)
    except (ValueError, TypeError, RecursionError, jsonschema_rs.ValidationError):
        return None


def _is_self_contained(schema: Json) -> bool:
    """True when every ``$ref`` leads into ``$defs``: a part can be checked with these alone."""
    return all(str(part.get("$ref", "#/$defs/")).startswith("#/$defs/") for part in subschemas(schema))


def part_of(part: Json, schema: dict[str, Any]) -> Json:
    """A part of a schema with all that it refers to, or None when that is more than ``$defs``."""
    if not isinstance(part, dict):
        return part
    complete = with_defs(part, schema)
    return complete if _is_self_contained(complete) else None


def with_defs(part: Json, schema: dict[str, Any]) -> Json:
    """A part of a schema, with the ``$defs`` of the whole."""
    return {**part, "$defs": schema["$defs"]} if "$defs" in schema and isinstance(part, dict) else part


def checker(schema: Json) -> Checker:
    """The shared checker of a valid schema (see ``schema_defect``; an invalid one raises ValueError)."""
    return _compiled(write_json(schema))


@lru_cache(maxsize=4096)
def _compiled(data: bytes) -> Checker:
    return Checker(read_json(data))


def schema_defect(schema: Json) -> str | None:
    """Why this is no usable schema, or None.

    The check takes milliseconds, and the same Tools come with every instance and every tick: it is cached.
    """
    try:
        data = write_json(schema)
    except (RecursionError, TypeError, ValueError) as error:
        return _defect(schema) or f"a schema is JSON: {truncate(str(error), 200)}"
    return _cached_defect(data) if len(data) <= MAX_CACHED_BYTES else _defect(schema)


@lru_cache(maxsize=1024)
def _cached_defect(data: bytes) -> str | None:
    return _defect(read_json(data))


def _defect(schema: Json) -> str | None:
    if not isinstance(schema, (dict, bool)):
        return f"a schema is an object, not {type_name(schema)}"
    remote = _remote(schema)
    if remote:
        return f'$ref {remote!r} leads out of the schema; only "#…" is followed'
    try:
        Draft202012Validator.check_schema(with_null(schema))
        jsonschema_rs.validator_for(with_null(schema), retriever=_refuse)
    except SchemaError as error:
        return f"{pointer(*error.absolute_path) or 'the schema'}: {truncate(error.message, 200)}"
    except (ValueError, TypeError, RecursionError, Unresolvable, jsonschema_rs.ValidationError) as error:
        return truncate(str(error).split("\n", 1)[0], 200)
    return None


def with_null(schema: Json) -> Json:
    """The schema with ``nullable: true`` written as JSON Schema. Values (``const``, ``enum`` …) stay."""
    if not isinstance(schema, dict):
        return schema
    out = dict(schema)
    for key in _NESTED:
        if key in out:
            out[key] = with_null(out[key])
    for key in _LISTED:
        if isinstance(out.get(key), list):
            out[key] = [with_null(s) for s in out[key]]
    for key in _MAPPED:
        if isinstance(out.get(key), dict):
            out[key] = {k: with_null(v) for k, v in out[key].items()}
    return _nullable(out) if out.pop("nullable", None) is True else out


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, with null allowed. Every part keeps its place, which a ``$ref`` may lead to."""
    out = dict(schema)
    if "type" in out:
        kinds = out["type"] if isinstance(out["type"], list) else [out["type"]]
        out["type"] = [*kinds, "null"] if "null" not in kinds else kinds
    if isinstance(out.get("enum"), list):
        out["enum"] = [*out["enum"], None]
    if "const" in out:
        out["enum"] = [out.pop("const"), None]
    for key in ("anyOf", "oneOf"):
        if isinstance(out.get(key), list):
            out[key] = [*out[key], {"type": "null"}]
    if "$ref" in out or "allOf" in out:
        moved = {k: out.pop(k) for k in ("$ref", "allOf") if k in out}
        rest = out.pop("anyOf", None)
        out["anyOf"] = [moved if rest is None else {**moved, "anyOf": rest}, {"type": "null"}]
    return out


def subschemas(schema: Json) -> Iterator[Json]:
    """The schema and every schema inside it, depth first."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in _NESTED:
        yield from subschemas(schema.get(key))
    for key in _LISTED:
        for part in schema.get(key) or ():
            yield from subschemas(part)
    for key in _MAPPED:
        for part in (schema.get(key) or {}).values():
            yield from subschemas(part)


def _remote(schema: Json) -> str | None:
    try:
        for part in subschemas(schema):
            for key in ("$ref", "$dynamicRef"):
                target = part.get(key)
                if isinstance(target, str) and not target.startswith("#"):
                    return target
    except AttributeError:
        return None  # no schema at all: the metaschema says why
    return None


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")


def _explain(validator: Any, value: Json) -> list[Defect]:
    """What ``validator`` finds wrong: a whole before its parts, list items in their order, keys by name."""
    try:
        errors = sorted(validator.iter_errors(value), key=relevance, reverse=True)
    except RecursionError:
        return [((), "nested too deeply to be checked")]
    except Unresolvable as error:
        return [((), f"the schema has a reference that leads nowhere: {truncate(str(error), 120)}")]
    errors.sort(key=lambda error: list(error.absolute_path))
    inner = [best_match([error]) or error for error in errors[:MAX_DEFECTS]]
    return [(tuple(error.absolute_path), _error_text(error)) for error in inner]


def _error_text(error: Any) -> str:
    if error.validator == "anyOf":
        return f"{truncate(repr(error.instance), 80)} fits none of the alternatives"
    if error.validator == "additionalProperties" and error.validator_value is False:
        return _unknown_keys(error.instance, error.schema) or truncate(error.message, 240)
    return truncate(error.message, 240)


def _unknown_keys(value: dict[str, Json], schema: dict[str, Any]) -> str | None:
    """The keys that a closed object does not allow, and those that it does; None where patterns allow more."""
    allowed = schema.get("properties", {})
    unknown = [key for key in value if key not in allowed]
    if schema.get("patternProperties"):
        return None
    names = ", ".join(f'"{truncate(key, 40)}"' for key in unknown[:MAX_DEFECTS])
    text = f"{names} {'is' if len(unknown) == 1 else 'are'} not allowed; allowed: {format_choices(allowed)}"
    similar = find_similar(unknown[0], allowed)
    return f'{text}; did you mean "{similar}"?' if similar is not None else text


def follow(root: Json, ref: str) -> Json:
    """The part of a schema that a ``$ref`` of ``#/…`` leads to; True (anything) where it leads nowhere."""
    value = root
    for token in ref.removeprefix("#").strip("/").split("/"):
        key = token.replace("~1", "/").replace("~0", "~")
        if key:
            value = value.get(key, True) if isinstance(value, dict) else True
    return value
