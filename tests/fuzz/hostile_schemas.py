"""Schemas that are heavy, or wrong, in the ways that validators have suffered from; and values for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acts.language.schemas import judge_schema
from tests.fuzz import hostile_json
from tests.fuzz.hostile_json import Source

Json = Any

PATTERNS = (
    r"^([\w.-]+)+@example\.com$", r"^(a+)+$", r"(a|aa)+$", r"^(a|a?)+$", r"(.*a){20}", r"[ab]*a[ab]{300}c", r"\p{L}+",
    r"^\p{L}{1,60}$", r"^[\s\S]{0,4000}$", r"^.{1,1000}$", r"(a{1,100}){1,100}", r"(?=a)b", r"(?<!a)b", r"(a)\1", "[a-",
    "(" * 200 + ")" * 200, "a" * 5000, "|".join("abcdefgh" * 50), r"^\d{3}-\d{4}$", "", "^$", r"(((a{9}){9}){9}){9}",
)  # fmt: skip
TYPES = ("string", "number", "integer", "object", "array", "boolean", "null")
WRONG = (
    {"anyOf": 5}, {"type": "objct"}, {"properties": []}, {"$ref": "#/$defs/nowhere"}, {"$ref": "http://127.0.0.1:9/x"},
    {"required": "a"}, {"allOf": []}, {"enum": 5}, 5, None, "x", [], {"items": [{}]}, {"multipleOf": 0},
    {"minLength": -1}, {"$defs": 7}, {"if": 3}, {"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"not": 1},
)  # fmt: skip


def schema(source: Source) -> Json:
    """A schema of one of the shapes below, sometimes changed somewhere."""
    made = source.pick(SHAPES if source.slips(0.5) else USUAL_SHAPES)(source)
    return hostile_json.mutate(source, made) if source.slips(0.4) else made


def usable_schema(source: Source) -> Json:
    """A schema that is mostly accepted: what a Request has beside it is then reached."""
    left = source.left
    for _ in range(6):
        source.left = left
        made = schema(source)
        if source.slips(0.2) or judge_schema(made).reason is None:
            return made
    return {}


def _plain(source: Source, depth: int = 0) -> Json:
    """A schema as people write them."""
    if depth > 3 or source.left < 100:
        return {"type": source.pick(TYPES)}
    kind = source.pick(TYPES)
    out: dict[str, Any] = {"type": kind}
    if kind == "object":
        names = [f"p{i}" for i in range(source.random.randrange(1, 8))]
        out["properties"] = {name: _plain(source, depth + 1) for name in names}
        out["required"] = names[: source.random.randrange(len(names) + 1)]
        if source.chance(0.3):
            out["additionalProperties"] = source.pick((False, True, {"type": "integer"}))
    elif kind == "array":
        out["items"] = _plain(source, depth + 1)
        if source.chance(0.2):
            out["uniqueItems"] = True
    elif kind == "string" and source.chance(0.4):
        out["pattern"] = source.pick(PATTERNS)
    elif kind in ("number", "integer"):
        out |= source.pick(({}, {"minimum": 0}, {"maximum": 10**300}, {"multipleOf": 0.01}, {"multipleOf": 1e-300}))
    source.left -= 60
    if source.chance(0.2):
        return {source.pick(("anyOf", "oneOf", "allOf")): [out, _plain(source, depth + 1)]}
    return {**out, "nullable": True} if source.chance(0.1) else out


def _doubling(source: Source) -> Json:
    """Each definition uses the next one twice, for the same value or for one below it."""
    levels = source.pick((3, 12, 30, 60))
    last: Json = source.pick(({"type": "integer"}, {"required": ["x"]}, {"pattern": "^(a+)+$"}))
    shapes: tuple[Callable[[Json], Json], ...] = (
        lambda ref: {"allOf": [ref, ref]}, lambda ref: {"anyOf": [ref, ref]}, lambda ref: {"oneOf": [ref, ref]},
        lambda ref: {"properties": {"a": ref, "b": ref}},
        lambda ref: {"allOf": [{"properties": {"a": ref}}, {"properties": {"a": ref}}]},
        lambda ref: {"anyOf": [{"properties": {"a": ref}, "required": ["x"]}, {"properties": {"a": ref}, "required": ["y"]}]},
        lambda ref: {"allOf": [{"items": ref}, {"items": ref}]},
        lambda ref: {"if": ref, "then": ref, "else": ref}, lambda ref: {"not": {"not": {"allOf": [ref, ref]}}},
        lambda ref: {"unevaluatedProperties": False, "anyOf": [{"properties": {"a": ref}}, {"properties": {"a": ref}}]},
        lambda ref: {"dependentSchemas": {"a": ref, "b": ref}}, lambda ref: {"contains": ref, "items": ref},
    )  # fmt: skip
    shape = source.pick(shapes)
    defs = {f"d{i}": shape({"$ref": f"#/$defs/d{i + 1}"}) for i in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": last}}


def _recursive(source: Source) -> Json:
    """A schema that contains itself, once or several times for one part of a value."""
    ref = {"$ref": "#"}
    return source.pick((
        {"properties": {"a": ref, "b": ref}}, {"items": ref}, {"additionalProperties": ref, "items": ref},
        {"anyOf": [{"type": "null"}, {"properties": {"a": ref}, "required": ["x"]}, {"properties": {"a": ref}, "required": ["y"]}]},
        {"allOf": [{"additionalProperties": ref}, {"additionalProperties": ref}]},
        {"items": {"allOf": [ref, ref]}}, {"uniqueItems": True, "items": ref},
        {"unevaluatedItems": False, "prefixItems": [ref, ref]},
        {"oneOf": [{"type": "integer"}, {"type": "array", "items": ref}, {"type": "array", "items": ref, "minItems": 1}]},
    ))  # fmt: skip


def _many(source: Source) -> Json:
    key = source.pick((
        "properties", "enum", "required", "anyOf", "oneOf", "allOf", "prefixItems", "$defs", "patternProperties",
        "dependentRequired", "dependentSchemas", "patterns", "enum objects",
    ))  # fmt: skip
    part: Json = source.pick(({}, {"type": "string"}, {"type": "integer", "maximum": 5}, {"const": 1}))
    each = len(str(part)) + 12
    n = source.count(each)
    match key:
        case "properties" | "$defs" | "dependentSchemas":
            return {key: {f"p{i}": part for i in range(n)}}
        case "enum":
            long = [10**300 + i for i in range(n // 30 + 1)]
            return {"enum": source.pick((list(range(n)), [str(i) for i in range(n)], long))}
        case "enum objects":
            return {"enum": [{"a": [i]} for i in range(n)]}
        case "required":
            return {"required": [f"p{i}" for i in range(n)]}
        case "patternProperties":
            return {key: {f"^x{i}.*$": part for i in range(n)}}
        case "dependentRequired":
            return {key: {f"p{i}": [f"p{i + 1}"] for i in range(n)}}
        case "patterns":
            return {"properties": {f"p{i}": {"pattern": source.pick(PATTERNS) + f"x{i}?"} for i in range(n // 10 + 1)}}
        case _:
            return {key: [part] * n if source.chance(0.5) else [{"const": i} for i in range(n)]}


def _tower(source: Source) -> Json:
    """A schema in a schema in a schema."""
    inner: Json = {"type": "integer"}
    key = source.pick(("properties", "items", "not", "allOf", "anyOf", "if", "additionalProperties", "$ref"))
    levels = source.pick((10, 40, 90, 120))
    if key == "$ref":
        defs = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(levels)}
        return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {}}}
    for _ in range(levels):
        inner = {key: {"a": inner} if key == "properties" else [inner] if key in ("allOf", "anyOf") else inner}
    return inner


def _keywords(source: Source) -> Json:
    """Keywords that take long for some values."""
    return source.pick((
        {"uniqueItems": True}, {"items": {"uniqueItems": True}}, {"items": {"multipleOf": 1e-300}},
        {"items": {"multipleOf": 0.01}}, {"additionalProperties": {"multipleOf": 7}}, {"pattern": source.pick(PATTERNS)},
        {"propertyNames": {"pattern": source.pick(PATTERNS)}}, {"items": {"pattern": source.pick(PATTERNS)}},
        {"contains": {"uniqueItems": True}, "minContains": 10**30}, {"const": hostile_json.value(source)},
        {"enum": [hostile_json.value(source) for _ in range(5)]}, {"default": hostile_json.value(source)},
        {"type": "string", "format": "email", "maxLength": 10**300}, {"maxItems": 1e300, "minItems": 3},
        {"unevaluatedProperties": False, "patternProperties": {"^a": {}}}, {"description": source.text()},
        {"patternProperties": {p: {} for p in PATTERNS if "?=" not in p}},
        {"$ref": "#/hidden/a", "hidden": {"a": {"type": "integer"}}}, {"$anchor": "x", "items": {"$ref": "#x"}},
        {"properties": {"a": {"$id": "http://x.y/z", "$ref": "#/$defs/q", "$defs": {"q": {"type": "string"}}}}},
        {"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}}, {"$ref": "#/" + "a/" * 5000},
    ))  # fmt: skip


def _wrong(source: Source) -> Json:
    return source.pick(WRONG)


def _arbitrary(source: Source) -> Json:
    return hostile_json.value(source)


USUAL_SHAPES: tuple[Callable[[Source], Json], ...] = (
    _plain, _plain, _plain, _doubling, _recursive, _many, _many, _tower, _keywords, _keywords,
)  # fmt: skip
SHAPES = (*USUAL_SHAPES, _wrong, _wrong, _arbitrary)


def value_for(source: Source, form: Json, depth: int = 0) -> Json:
    """A value that may fit a schema, or nearly does, or is meant to keep it busy."""
    if source.chance(0.3) or not isinstance(form, dict) or depth > 20:
        return source.pick((hostile_json.value, _busy))(source)
    if isinstance(form.get("properties"), dict):
        names = list(form["properties"])[:50]
        return {name: value_for(source, form["properties"][name], depth + 1) for name in names}
    if isinstance(form.get("items"), dict):
        item = value_for(source, form["items"], depth + 1)
        return [item] * source.count(len(str(item)[:10_000]) + 2)
    if form.get("type") in TYPES:
        return {"string": "a" * source.pick((1, 40)), "number": 1.5, "integer": 3, "object": {}, "array": [],
                "boolean": True, "null": None}[form["type"]]  # fmt: skip
    return source.pick((hostile_json.value, _busy))(source)


def _busy(source: Source) -> Json:
    """Values that keywords are slow with."""
    n = source.count(8)
    shapes: tuple[Callable[[], Json], ...] = (
        lambda: [2**63 + i for i in range(n // 3 + 1)], lambda: [{"a": i} for i in range(n)],
        lambda: "a" * n, lambda: "ab" * n, lambda: [10**300 + i for i in range(n // 40 + 1)],
        lambda: {"a" * (i % 50) + str(i): 1 for i in range(n // 4 + 1)}, lambda: [[i] for i in range(n)],
        lambda: [1e-300] * n, lambda: _nested({"a": None, "b": None}, 60), lambda: _nested({"a": None}, 90),
        lambda: [[[[i]]] for i in range(n // 2)],
    )  # fmt: skip
    return source.pick(shapes)()


def _nested(shape: dict[str, Any], levels: int) -> Json:
    inner: Json = "x"
    for _ in range(levels):
        inner = {k: inner if i == 0 else 1 for i, k in enumerate(shape)}
    return inner
