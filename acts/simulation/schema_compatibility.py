"""Whether a value of one schema can be a value of another.

Only JSON types, the shape of objects and lists, and known values (``const``, ``enum``) count. A
pattern, a bound or a length of a free value is ignored.

An incompatibility is *certain* when no value that the one schema allows fits the other. Whatever is
not understood (a keyword, a depth, too many alternatives) counts as fitting: a certain
incompatibility is a proof, and one that is not certain describes a value that would not fit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from acts.language.errors import truncate
from acts.language.schemas import follow
from acts.language.values import ABSENT, UNKNOWN, Json, Names, get, list_index, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Nobody writes more by hand; beyond them the answer is "fits". Alternatives of one value;
# levels of nesting, and of ``$ref`` in a row.
MAX_ALTERNATIVES: Final = 32
MAX_LEVELS: Final = 16

_NAMES: Final = {"integer": "number", "array": "list"}  # a number may be whole
# Keywords that may declare properties elsewhere than in ``properties``
_ELSEWHERE: Final = (
    "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties",
    "unevaluatedProperties",
)  # fmt: skip
_DESCRIBED: Final = 6  # alternatives that a message lists


# -- one value -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class TypeAlternative:
    """One way a value may be.

    ``name`` is a JSON type, or ``any``, ``nothing`` (no value can be there) or
    ``undeclared`` (an open object may hold it, and its schema does not say so).
    """

    name: str
    schema: Json = None
    root: Json = None
    exact: Json = ABSENT


Alternatives = tuple[TypeAlternative, ...]
ANY: Final = TypeAlternative("any")
NOTHING: Final = "nothing"
_NOTHING: Final = TypeAlternative(NOTHING)
UNDECLARED: Final = "undeclared"
_UNDECLARED: Final = TypeAlternative(UNDECLARED)
# The alternatives that say nothing of a value's type
OPEN: Final = ("any", NOTHING, UNDECLARED)


def exact_type(value: Json) -> TypeAlternative:
    """The alternative of a value: that of its type, unless it cannot be known."""
    if value is UNKNOWN:
        return ANY
    return TypeAlternative(type_name(value), {}, None, value)


def type_alternatives(schema: Json, root: Json, depth: int = 0) -> Alternatives:
    """Every way a value of this schema may be."""
    if not isinstance(schema, dict) or depth > MAX_LEVELS:
        return (ANY,)
    if "const" in schema:
        return (exact_type(schema["const"]),)
    listed = schema.get("enum")
    if isinstance(listed, list) and 0 < len(listed) <= MAX_ALTERNATIVES:
        return tuple(exact_type(v) for v in listed)
    if "type" in schema:
        names: list[str] = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return tuple(TypeAlternative(n, schema, root) for n in dict.fromkeys(_NAMES.get(n, n) for n in names))
    if isinstance(schema.get("$ref"), str):
        return type_alternatives(follow(root, schema["$ref"]), root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _bounded(one for part in schema[key] for one in type_alternatives(part, root, depth + 1))
    for part in schema.get("allOf") or ():
        alternatives = type_alternatives(part, root, depth + 1)
        if ANY not in alternatives:
            return alternatives
    return (ANY,)


def alternatives_at(alternatives: Alternatives, names: Names) -> Alternatives:
    """Every way the value at ``names`` inside a value may be."""
    for name in names:
        alternatives = _bounded(inner for one in alternatives for inner in _at_name(one, name))
    return alternatives


def _bounded(alternatives: Iterable[TypeAlternative]) -> Alternatives:
    out: list[TypeAlternative] = []
    for one in alternatives:
        out.append(one)
        if len(out) > MAX_ALTERNATIVES:
            return (ANY,)
    return tuple(out)


def _at_name(one: TypeAlternative, name: str) -> Alternatives:
    if one.name in OPEN:
        return (one,)
    if one.exact is not ABSENT:
        value = get(one.exact, (name,))
        return (_NOTHING,) if value is ABSENT else (exact_type(value),)
    if one.name == "list" and list_index(name) is not None:
        return (ANY,) if "prefixItems" in one.schema else type_alternatives(one.schema.get("items", True), one.root)
    return _at_property(one, name) if one.name == "object" else (_NOTHING,)


def _at_property(one: TypeAlternative, name: str) -> Alternatives:
    declared, extra = _properties(one), one.schema.get("additionalProperties", True)
    if name in declared:
        return type_alternatives(declared[name], one.root)
    if isinstance(extra, dict):
        return (ANY,) if "patternProperties" in one.schema else type_alternatives(extra, one.root)
    if _is_closed(one):
        return (_NOTHING,)
    return (_UNDECLARED,) if _declares_all_properties(one) else (ANY,)


def _properties(one: TypeAlternative) -> dict[str, Json]:
    properties = one.schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _required(one: TypeAlternative) -> list[str]:
    required = one.schema.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _is_closed(one: TypeAlternative) -> bool:
    return one.schema.get("additionalProperties") is False and "patternProperties" not in one.schema


def _declares_all_properties(one: TypeAlternative) -> bool:
    """True when the schema appears to list all that its objects hold."""
    return bool(_properties(one)) and not any(key in one.schema for key in _ELSEWHERE)


# -- two values ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Why a value may not fit, or (``certain``) never does. ``at`` leads into the value."""

    certain: bool
    at: Names
    produced: str
    accepted: str


_Memo = dict[tuple[int, int], Incompatibility | None]


def find_incompatibility(produced: Alternatives, accepted: Alternatives) -> Incompatibility | None:
    """Why a value that is one of ``produced`` may be none of ``accepted``, or None."""
    return _compare(produced, accepted, (), {})


def _compare(produced: Alternatives, accepted: Alternatives, at: Names, memo: _Memo) -> Incompatibility | None:
    if len(at) > MAX_LEVELS or any(other.name in OPEN for other in accepted):
        return None
    results = [_compare_one(one, accepted, at, memo) for one in produced]
    misfits = [r for r in results if r is not None]
    if not misfits:
        return None
    if len(misfits) == len(results) and all(m.certain for m in misfits):
        own = misfits[0].at == at
        return Incompatibility(True, at, _describe(produced), _describe(accepted)) if own else misfits[0]
    return replace(next((m for m in misfits if m.certain), misfits[0]), certain=False)


def _compare_one(one: TypeAlternative, accepted: Alternatives, at: Names, memo: _Memo) -> Incompatibility | None:
    """The mildest incompatibility of one alternative with any of those accepted."""
    if one.name == "any":
        return None
    if one.name == UNDECLARED:
        return Incompatibility(False, at, UNDECLARED, _describe(accepted))
    same = [
        other
        for other in accepted
        if other.name == one.name and (ABSENT in (other.exact, one.exact) or other.exact == one.exact)
    ]
    if not same:
        return Incompatibility(True, at, _describe((one,)), _describe(accepted))
    misfits: list[Incompatibility] = []
    for other in same:
        result = _compare_contents(one, other, at, memo)
        if result is None:
            return None
        misfits.append(result)
    return next((m for m in misfits if not m.certain), misfits[0])


def _compare_contents(one: TypeAlternative, other: TypeAlternative, at: Names, memo: _Memo) -> Incompatibility | None:
    if one.name not in ("object", "list") or one.exact is not ABSENT or other.exact is not ABSENT:
        return None
    key = (id(one.schema), id(other.schema))
    if key not in memo:
        memo[key] = None  # a schema that contains itself adds nothing new
        memo[key] = (_compare_objects if one.name == "object" else _compare_lists)(one, other, at, memo)
    return memo[key]


def _compare_lists(one: TypeAlternative, other: TypeAlternative, at: Names, memo: _Memo) -> Incompatibility | None:
    if "prefixItems" in one.schema or "prefixItems" in other.schema:
        return None
    items = type_alternatives(one.schema.get("items", True), one.root)
    accepted = type_alternatives(other.schema.get("items", True), other.root)
    misfit = _compare(items, accepted, (*at, "0"), memo)
    never_empty = one.schema.get("minItems", 0) >= 1  # an empty list fits everywhere
    return replace(misfit, certain=misfit.certain and never_empty) if misfit else None


def _compare_objects(one: TypeAlternative, other: TypeAlternative, at: Names, memo: _Memo) -> Incompatibility | None:
    declared, always, needed = _properties(one), _required(one), _required(other)
    accepted = {**dict.fromkeys(needed, True), **_properties(other)}
    milder: Incompatibility | None = None
    for name, schema in accepted.items():
        misfit = _compare_property(one, other, name, type_alternatives(schema, other.root), at, memo)
        if misfit is not None and misfit.certain and (name in always or name in needed):
            return misfit
        milder = milder or misfit
    for name in declared if _is_closed(other) else ():
        if name not in accepted:
            types = _describe(type_alternatives(declared[name], one.root))
            misfit = Incompatibility(name in always, (*at, name), types, "no such property")
            if misfit.certain:
                return misfit
            milder = milder or misfit
    return replace(milder, certain=False) if milder else None


def _compare_property(
    one: TypeAlternative, other: TypeAlternative, name: str, accepted: Alternatives, at: Names, memo: _Memo
) -> Incompatibility | None:
    """The incompatibility of one property that the other object declares or requires."""
    if name in _properties(one):
        return _compare(type_alternatives(_properties(one)[name], one.root), accepted, (*at, name), memo)
    if name not in _required(other) or not (_is_closed(one) or _declares_all_properties(one)):
        return None
    return Incompatibility(
        _is_closed(one), (*at, name), NOTHING if _is_closed(one) else UNDECLARED, _describe(accepted)
    )


def _describe(alternatives: Sequence[TypeAlternative]) -> str:
    """``string or null``; known values as JSON."""
    words = [
        truncate(json.dumps(one.exact, ensure_ascii=False), 40)
        if one.exact is not ABSENT and one.name in ("string", "number", "boolean")
        else one.name
        for one in alternatives[:_DESCRIBED]
    ]
    return " or ".join(dict.fromkeys(words)) + (" or …" if len(alternatives) > len(words) else "")
