"""JSON Schema (2020-12) checks, before and after references resolve.

Two checkers share the work: ``jsonschema-rs`` accepts (a hundred times faster),
``jsonschema`` explains what was not accepted. Neither ever fetches a remote ``$ref``.

*Relaxed* checks let a reference, or a value that a dry run cannot know, stand for
any type. OpenAPI's ``nullable: true`` means that null is allowed too.
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
    from collections.abc import Iterator, Mapping

Defect = tuple[tuple[str | int, ...], str]
"""Where in the value (keys and indexes), and what is wrong in words."""

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


def _holds_open(value: Json) -> bool:
    """True when something in the value is not known yet."""
    if isinstance(value, dict):
        return any(_holds_open(v) for v in value.values())
    if isinstance(value, list):
        return any(_holds_open(v) for v in value)
    return value is UNKNOWN


def _marked(value: Json) -> Json:
    """A planned value with UNKNOWN for each reference, and ``††x`` read as the string ``†x``."""
    if isinstance(value, str):
        return UNKNOWN if is_reference(value) else unescape(value)
    if isinstance(value, dict):
        return {k: _marked(v) for k, v in value.items()}
    return [_marked(v) for v in value] if isinstance(value, list) else value


def _relaxed_rule(keyword: str, strict: Any) -> Any:
    """A keyword's check that passes over whatever is not known yet.

    Keywords that look at a whole value (``const``, ``not`` …) are passed over when
    anything inside it is open; ``oneOf`` then only needs a branch that fits.
    """
    rule = Draft202012Validator.VALIDATORS["anyOf"] if keyword == "oneOf" else strict
    whole = keyword in ("not", "if", "const", "enum", "uniqueItems", "contains")

    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if instance is UNKNOWN or (whole and _holds_open(instance)):
            return
        chosen = rule if keyword != "oneOf" or _holds_open(instance) else strict
        yield from chosen(validator, wanted, instance, schema) or ()

    return check


_Relaxed: Final[Any] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {k: _relaxed_rule(k, rule) for k, rule in Draft202012Validator.VALIDATORS.items()}
)


class Checker:
    """One schema, compiled once. Build it with ``checker`` so that it is shared."""

    def __init__(self, schema: Json) -> None:
        self.schema = with_null(schema)
        self._trivial = schema is True or schema == {}
        self._fast = _compile(self.schema)
        self._strict = Draft202012Validator(self.schema, registry=_REGISTRY)
        self._relaxed = _Relaxed(self.schema, registry=_REGISTRY)

    def defects(self, value: Json) -> list[Defect]:
        """What keeps a resolved value from fitting; empty when it fits."""
        if self._trivial or self._accepts(value):
            return []
        return _explain(self._strict, value)

    def open_defects(self, planned: Json) -> list[Defect]:
        """The same while references still stand in a planned value for what is to come."""
        return self.partial_defects(_marked(planned))

    def partial_defects(self, value: Json) -> list[Defect]:
        """The same for a value in which UNKNOWN stands for what is not known yet."""
        if not _holds_open(value):
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
            return False  # let the slower one say why

    @cached_property
    def _flat(self) -> dict[str, Checker] | None:
        """A checker per property, where nothing else in the schema looks at two at once.

        Almost every Tool is such a flat object, and checking its properties one by
        one keeps the fast path for all values that hold no reference.
        """
        schema = self.schema
        plain = {"type", "properties", "required", "additionalProperties", "title", "description", "$defs"}
        if not isinstance(schema, dict) or schema.get("type") != "object" or not set(schema) <= plain:
            return None
        if not isinstance(schema.get("additionalProperties", True), bool) or not _self_contained(schema):
            return None
        return {key: checker(with_defs(part, schema)) for key, part in schema.get("properties", {}).items()}

    @cached_property
    def _item(self) -> Checker | None:
        """The checker of a list's items, where nothing but ``items`` is asked of a list."""
        schema = self.schema
        plain = {"type", "items", "title", "description", "$defs"}
        if not isinstance(schema, dict) or schema.get("type") != "array" or not set(schema) <= plain:
            return None
        if not _self_contained(schema):
            return None
        return checker(with_defs(schema.get("items", True), schema))

    def _by_part(self, parts: dict[str, Checker], value: dict[str, Json]) -> list[Defect]:
        if any(key not in value for key in self.schema.get("required", ())):
            return _explain(self._relaxed, value)
        if self.schema.get("additionalProperties") is False and any(key not in parts for key in value):
            return _explain(self._relaxed, value)
        out: list[Defect] = []
        for key, item in value.items():
            if key in parts and item is not UNKNOWN:
                out.extend(((key, *at), text) for at, text in parts[key].partial_defects(item))
        return out


def _compile(schema: Json) -> Any:
    """The fast checker, or None where its library does not take the schema."""
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse)
    except (ValueError, TypeError, RecursionError, jsonschema_rs.ValidationError):
        return None


def _self_contained(schema: Json) -> bool:
    """True when its parts only refer to ``$defs``, so that a part can be checked with these alone."""
    return all(str(part.get("$ref", "#/$defs/")).startswith("#/$defs/") for part in subschemas(schema))


def part_of(part: Json, schema: dict[str, Any]) -> Json:
    """A part of a schema to be checked by itself, or None when it needs more of the whole than ``$defs``."""
    if not isinstance(part, dict):
        return part
    found = with_defs(part, schema)
    return found if _self_contained(found) else None


def with_defs(part: Json, schema: dict[str, Any]) -> Json:
    """A part of a schema that can still follow the whole one's ``$defs``."""
    return {**part, "$defs": schema["$defs"]} if "$defs" in schema and isinstance(part, dict) else part


def checker(schema: Json) -> Checker:
    """The shared checker of a schema (a bad one raises ValueError: see ``schema_defect``)."""
    return _compiled(write_json(schema))


@lru_cache(maxsize=4096)
def _compiled(data: bytes) -> Checker:
    return Checker(read_json(data))


def schema_defect(schema: Json) -> str | None:
    """Why this is not a usable schema, or None.

    It takes milliseconds to find out, and the same Tools come again with every instance and every tick.
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
    """``nullable: true`` spelled out. Values inside ``const``, ``enum`` … are left alone."""
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
    """The schema, allowing null; everything stays where a ``$ref`` may look for it."""
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
        return None  # not a schema at all: the metaschema says where
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


# Recursive schemas branch without end; a sample is for people and needs no more parts
MAX_SAMPLE_PARTS: Final = 1_000
MAX_SAMPLE_DEPTH: Final = 12
MAX_SAMPLE_ITEMS: Final = 8


def sample(schema: Json) -> Json:
    """A value that a schema allows, as full as it can be; UNKNOWN where nothing is said.

    Patterns and formats are not followed. At most MAX_SAMPLE_PARTS values are made.
    """
    return _Sampler(schema).of(schema, 0)


class _Sampler:
    def __init__(self, root: Json) -> None:
        self.root = root
        self.left = MAX_SAMPLE_PARTS

    def of(self, schema: Json, depth: int) -> Json:  # noqa: C901 - a table of what a schema may say
        self.left -= 1
        if not isinstance(schema, dict) or depth > MAX_SAMPLE_DEPTH or self.left < 0:
            return UNKNOWN
        if "const" in schema:
            return schema["const"]
        if "default" in schema:
            return schema["default"]
        for key in ("enum", "examples"):
            if schema.get(key):
                return schema[key][0]
        target = schema.get("$ref")
        if isinstance(target, str):
            return self.of(follow(self.root, target), depth + 1)
        if "type" not in schema and "properties" not in schema:
            for key in ("oneOf", "anyOf"):
                if schema.get(key):
                    return self.of(schema[key][0], depth + 1)
        value = self._of_type(schema, depth)
        for part in schema.get("allOf") or ():
            more = self.of(part, depth + 1)
            if value is UNKNOWN:
                value = more
            elif isinstance(value, dict) and isinstance(more, dict):
                value = {**value, **more}
        return value

    def _of_type(self, schema: dict[str, Any], depth: int) -> Json:
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            kind = next((k for k in kind if k != "null"), "null")
        if kind == "object":
            if "properties" not in schema and schema.get("additionalProperties") is not False:
                return UNKNOWN
            return {k: self.of(v, depth + 1) for k, v in schema.get("properties", {}).items()}
        if kind == "array":
            first = schema.get("prefixItems") or []
            parts = [*first, *[schema.get("items", True)] * MAX_SAMPLE_ITEMS]
            most = min(MAX_SAMPLE_ITEMS, int(schema.get("maxItems", MAX_SAMPLE_ITEMS)))
            count = min(most, max(1, len(first), int(schema.get("minItems", 1))))
            return [self.of(part, depth + 1) for part in parts[:count]]
        if kind == "string":
            word = "sample"
            length = max(int(schema.get("minLength", 0)), min(len(word), int(schema.get("maxLength", len(word)))))
            return (word * 10)[:length]
        if kind in ("integer", "number"):
            return _sample_number(schema)
        return {"boolean": True, "null": None}.get(str(kind), UNKNOWN)


def _sample_number(schema: Mapping[str, Any]) -> float:
    """0, or the number nearest to it within the bounds (in steps of one)."""
    value: float = min(0, schema.get("maximum", 0), schema.get("exclusiveMaximum", 1) - 1)
    if "minimum" in schema:
        value = max(value, schema["minimum"])
    if "exclusiveMinimum" in schema:
        value = max(value, schema["exclusiveMinimum"] + 1)
    return value


def follow(root: Json, ref: str) -> Json:
    """The part of a schema that a ``#/…`` leads to; True (anything) where it leads nowhere."""
    value = root
    for token in ref.removeprefix("#").strip("/").split("/"):
        key = token.replace("~1", "/").replace("~0", "~")
        if key:
            value = value.get(key, True) if isinstance(value, dict) else True
    return value
