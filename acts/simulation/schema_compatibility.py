"""Whether a value of one schema can be a value of another.

Only JSON types, the shape of objects and lists, and known values (``const``, ``enum``)
decide. A pattern, a bound or a length on a free value says nothing here.

A clash is *certain* when no value that the one schema allows fits the other. Whatever is
not understood (a keyword, a depth, too many alternatives) counts as fitting: a certain
clash is a proof, and one that is not certain names a value that would not fit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from acts.language.errors import truncate
from acts.language.schemas import follow
from acts.language.values import ABSENT, Json, Names, get, list_index, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Nobody writes more by hand; beyond them the answer is "fits". Alternatives of one value;
# levels of nesting, and of ``$ref`` in a row.
MAX_KINDS: Final = 32
MAX_LEVELS: Final = 16

_NAMES: Final = {"integer": "number", "array": "list"}  # a number may be whole
# Keywords that may declare properties elsewhere than in ``properties``
_ELSEWHERE: Final = (
    "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties",
    "unevaluatedProperties",
)  # fmt: skip


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


Kinds = tuple[TypeAlternative, ...]
ANY: Final = TypeAlternative("any")
_NOTHING: Final = TypeAlternative("nothing")
UNDECLARED: Final = "undeclared"
_UNDECLARED: Final = TypeAlternative(UNDECLARED)
# The kinds that say nothing of a value's type
OPEN: Final = ("any", "nothing", UNDECLARED)


def exact(value: Json) -> TypeAlternative:
    """The kind of a known value."""
    return TypeAlternative(type_name(value), {}, None, value)


def kinds(schema: Json, root: Json, depth: int = 0) -> Kinds:
    """Every way a value of this schema may be."""
    if not isinstance(schema, dict) or depth > MAX_LEVELS:
        return (ANY,)
    if "const" in schema:
        return (exact(schema["const"]),)
    listed = schema.get("enum")
    if isinstance(listed, list) and 0 < len(listed) <= MAX_KINDS:
        return tuple(exact(v) for v in listed)
    if "type" in schema:
        named: list[str] = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return tuple(TypeAlternative(n, schema, root) for n in dict.fromkeys(_NAMES.get(n, n) for n in named))
    if isinstance(schema.get("$ref"), str):
        return kinds(follow(root, schema["$ref"]), root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _few(k for part in schema[key] for k in kinds(part, root, depth + 1))
    for part in schema.get("allOf") or ():
        found = kinds(part, root, depth + 1)
        if ANY not in found:
            return found
    return (ANY,)


def inside(found: Kinds, names: Names) -> Kinds:
    """Every way the value at ``names`` may be."""
    for name in names:
        found = _few(part for kind in found for part in _step(kind, name))
    return found


def _few(found: Iterable[TypeAlternative]) -> Kinds:
    out: list[TypeAlternative] = []
    for kind in found:
        out.append(kind)
        if len(out) > MAX_KINDS:
            return (ANY,)
    return tuple(out)


def _step(kind: TypeAlternative, name: str) -> Kinds:
    if kind.name in OPEN:
        return (kind,)
    if kind.exact is not ABSENT:
        value = get(kind.exact, (name,))
        return (_NOTHING,) if value is ABSENT else (exact(value),)
    if kind.name == "list" and list_index(name) is not None:
        return (ANY,) if "prefixItems" in kind.schema else kinds(kind.schema.get("items", True), kind.root)
    return _member(kind, name) if kind.name == "object" else (_NOTHING,)


def _member(kind: TypeAlternative, name: str) -> Kinds:
    declared, extra = _properties(kind), kind.schema.get("additionalProperties", True)
    if name in declared:
        return kinds(declared[name], kind.root)
    if isinstance(extra, dict):
        return (ANY,) if "patternProperties" in kind.schema else kinds(extra, kind.root)
    if _closed(kind):
        return (_NOTHING,)
    return (_UNDECLARED,) if _tells(kind) else (ANY,)


def _properties(kind: TypeAlternative) -> dict[str, Json]:
    found = kind.schema.get("properties")
    return found if isinstance(found, dict) else {}


def _required(kind: TypeAlternative) -> list[str]:
    found = kind.schema.get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _closed(kind: TypeAlternative) -> bool:
    return kind.schema.get("additionalProperties") is False and "patternProperties" not in kind.schema


def _tells(kind: TypeAlternative) -> bool:
    """True when the schema means to list what its objects hold."""
    return bool(_properties(kind)) and not any(key in kind.schema for key in _ELSEWHERE)


# -- two values ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Why a value may not fit, or (``certain``) never does. ``at`` leads into the value."""

    certain: bool
    at: Names
    found: str
    expected: str


_Seen = dict[tuple[int, int], Incompatibility | None]


def find_incompatibility(given: Kinds, wanted: Kinds) -> Incompatibility | None:
    """What keeps a value of one of the kinds ``given`` from being one of those ``wanted``."""
    return _compare(given, wanted, (), {})


def _compare(given: Kinds, wanted: Kinds, at: Names, seen: _Seen) -> Incompatibility | None:
    if len(at) > MAX_LEVELS or any(w.name in OPEN for w in wanted):
        return None
    results = [_best(kind, wanted, at, seen) for kind in given]
    bad = [c for c in results if c is not None]
    if not bad:
        return None
    if len(bad) == len(results) and all(c.certain for c in bad):
        return bad[0] if bad[0].at != at else Incompatibility(True, at, _words(given), _words(wanted))
    first = next((c for c in bad if c.certain), bad[0])
    return replace(first, certain=False)


def _best(kind: TypeAlternative, wanted: Kinds, at: Names, seen: _Seen) -> Incompatibility | None:
    """The mildest clash of one kind with any of those wanted."""
    if kind.name == "any":
        return None
    if kind.name == UNDECLARED:
        return Incompatibility(False, at, UNDECLARED, _words(wanted))
    same = [w for w in wanted if w.name == kind.name and (ABSENT in (w.exact, kind.exact) or w.exact == kind.exact)]
    if not same:
        return Incompatibility(True, at, _words((kind,)), _words(wanted))
    found: list[Incompatibility] = []
    for other in same:
        result = _inner(kind, other, at, seen)
        if result is None:
            return None
        found.append(result)
    return next((c for c in found if not c.certain), found[0])


def _inner(kind: TypeAlternative, wanted: TypeAlternative, at: Names, seen: _Seen) -> Incompatibility | None:
    if kind.name not in ("object", "list") or kind.exact is not ABSENT or wanted.exact is not ABSENT:
        return None
    key = (id(kind.schema), id(wanted.schema))
    if key not in seen:
        seen[key] = None  # a schema that holds itself adds nothing new
        seen[key] = (_objects if kind.name == "object" else _lists)(kind, wanted, at, seen)
    return seen[key]


def _lists(kind: TypeAlternative, wanted: TypeAlternative, at: Names, seen: _Seen) -> Incompatibility | None:
    if "prefixItems" in kind.schema or "prefixItems" in wanted.schema:
        return None
    items = kinds(kind.schema.get("items", True), kind.root)
    found = _compare(items, kinds(wanted.schema.get("items", True), wanted.root), (*at, "0"), seen)
    sure = found is not None and found.certain and kind.schema.get("minItems", 0) >= 1  # an empty list fits anywhere
    return replace(found, certain=sure) if found else None


def _objects(kind: TypeAlternative, wanted: TypeAlternative, at: Names, seen: _Seen) -> Incompatibility | None:
    have, must, needs = _properties(kind), _required(kind), _required(wanted)
    want = {**dict.fromkeys(needs, True), **_properties(wanted)}
    milder: Incompatibility | None = None
    for name, part in want.items():
        found = _property(kind, wanted, name, part, at, seen)
        if found is not None and found.certain and (name in must or name in needs):
            return found
        milder = milder or found
    for name in have if _closed(wanted) else ():
        if name not in want:
            found = Incompatibility(name in must, (*at, name), _words(kinds(have[name], kind.root)), "no such property")
            if found.certain:
                return found
            milder = milder or found
    return replace(milder, certain=False) if milder else None


def _property(
    kind: TypeAlternative, wanted: TypeAlternative, name: str, part: Json, at: Names, seen: _Seen
) -> Incompatibility | None:
    """The clash of one property that is wanted."""
    asked = kinds(part, wanted.root)
    if name in _properties(kind):
        return _compare(kinds(_properties(kind)[name], kind.root), asked, (*at, name), seen)
    if name not in _required(wanted) or not (_closed(kind) or _tells(kind)):
        return None
    return Incompatibility(_closed(kind), (*at, name), "nothing" if _closed(kind) else UNDECLARED, _words(asked))


def _words(found: Sequence[TypeAlternative]) -> str:
    """``string or null``; known values as JSON."""
    named = [
        truncate(json.dumps(k.exact, ensure_ascii=False), 40)
        if k.exact is not ABSENT and k.name in ("string", "number", "boolean")
        else k.name
        for k in found[:6]
    ]
    return " or ".join(dict.fromkeys(named)) + (" or …" if len(found) > len(named) else "")
