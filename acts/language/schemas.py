"""JSON Schema (2020-12): which schemas may be used, and checks of values before and after references resolve.

``jsonschema-rs`` decides and explains: it is a hundred times faster than Python, never backtracks in a pattern, and
never fetches a ``$ref`` here. It cannot be stopped, so what it is asked is bounded first:

A schema becomes a graph: a node is one subschema. Keywords that apply to the same value (``allOf``, ``$ref`` …) lead to
other nodes *in place*, the others (``properties``, ``items`` …) to nodes for the parts of a value. The looks of a
validator at a part of a value are at most the number of paths in the graph that lead to it:

    f(0, n) = own(n) + sum of f(0, m)             over the nodes m in place
    f(d, n) = sum of f(d, m) in place + those of f(d - 1, c) for the nodes c that can meet at one part below

A schema that doubles for one value is refused; one that doubles per level of a value is usable, and refuses the values
that are too deep for it. Patterns run in Rust's ``regex``, in linear time.

A value with unknown parts (references, templates, what a dry run cannot know) is checked with texts in their places,
and of the defects only those count that no value of the unknown parts removes. It is checked once more when all is
known.

OpenAPI's ``nullable: true`` means that null is allowed too. An ``$id`` below the root begins no schema of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final
from urllib.parse import unquote

import jsonschema_rs

from acts.language import values
from acts.language.admission import Meter
from acts.language.errors import Problem, TooComplex, brief, format_choices, suggest, truncate
from acts.language.references import MARK, unread_value
from acts.language.strict_json import json_size, write_json
from acts.language.values import ABSENT, UNKNOWN, UNKNOWN_TEXT, Json, Place, get, pointer
from acts.language.wire import TOO_COMPLEX

DEFS: Final = "#/$defs/"  # what a reference to a shared definition begins with
Defect = tuple[Place, str]
"""The place in the value (keys and indexes), and what is wrong, in words."""

# Subschemas of one schema: the largest that people or generators write have some thousands. A node takes 2 kB
MAX_SUBSCHEMAS: Final = 20_000
# Subschemas that one value is checked with, ``$ref`` and ``allOf`` written out. Ten times what any use has
MAX_EXPANSION: Final = 10_000
# Nodes that follow each other in place (``$ref`` to ``$ref`` …): the validator recurses through them
MAX_CHAIN: Final = 40
# Bytes of the compiled patterns of one schema: two thousand plain ones
MAX_PATTERN_BYTES: Final = 32 * 1024 * 1024
# Looks at one value, at 20 to 100 ns each, and steps of patterns, at 8 ns: about half a second
MAX_LOOKS: Final = 8_000_000
MAX_PATTERN_STEPS: Final = 40_000_000
# Defects of one value that are listed
MAX_DEFECTS: Final = 20
# Bytes that one compiled pattern may take, tried in this order: ``[a-z]+``, ``[a-z]{2,40}``, ``\p{L}+``, ``.{0,4000}``
_PATTERN_SIZES: Final = (1024, 16 * 1024, 64 * 1024, 512 * 1024, 4 * 1024 * 1024)
# Bytes of a compiled pattern that a character may meet in one step
_BYTES_PER_STEP: Final = 512
# Bytes of the automaton that the engine builds while it matches; beyond them it goes on more slowly
_AUTOMATON_BYTES: Final = 1024 * 1024
_PATTERN_OPTIONS: Final = jsonschema_rs.RegexOptions(size_limit=_PATTERN_SIZES[-1], dfa_size_limit=_AUTOMATON_BYTES)
# Above this a number of looks says nothing: no value could be checked
_UNBOUNDED: Final = 10**9
# Nodes times levels that are counted, at 1 µs each
_MAX_COUNTS: Final = 200_000
# Looks at each part that nobody needs to count
_LIGHT: Final = 16
# Bytes of ``enum`` and its like that are compared in one look
_BYTES_PER_LOOK: Final = 40
# Looks that ``multipleOf`` is worth, as measured: it computes with fractions of up to 600 digits
_MULTIPLE_OF: Final = 500
_LARGEST_WORD: Final = 2**63
# Looks in the time of one step of a meter, a microsecond
_LOOKS_PER_STEP: Final = 25
# Looks up to which all defects of a value are listed, each made in 10 to 50 µs; of a larger one the first is
_MAX_EXPLAINED: Final = 5_000
# Names that a defect lists, and characters of the members of an enum
_MAX_NAMES: Final = 20
_MAX_CHOICES_TEXT: Final = 160
# Bytes of all compiled schemas of a process, by estimates: all Tools of a Request have room at once
_COMPILED_BYTES: Final = 128 * 1024 * 1024
_SUBSCHEMA_BYTES: Final = 3_000

# Keywords whose argument is a schema, a list of schemas, or a map of names to schemas
_NESTED: Final = (
    "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LISTED: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPPED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "propertyNames")
# One of these looks at a part of a value; of the other keywords each does
_ONE_OF_PARTS: Final = ("properties", "additionalProperties", "prefixItems", "items")
_COMPARED: Final = (
    "const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "required", "dependentRequired",
)  # fmt: skip
# Keywords that say of a list or an object with unknown parts what they say of any with these keys or so many items
_OF_KEYS: Final = (
    "type", "required", "additionalProperties", "propertyNames", "dependentRequired", "minItems", "maxItems",
    "minProperties", "maxProperties", "falseSchema",
)  # fmt: skip
# Texts that stand for an unknown value and for an unknown text, which nobody writes; and for the value in a text of
# the library, which would write all of it
_ANYTHING: Final = "\x00\u2020any"
_ANY_TEXT: Final = "\x00\u2020text"
_SHOWN: Final = "\x00"

# Schemas come from outside: every function takes any JSON for one.


def parts_of_keyword(key: str, argument: Json) -> Iterator[tuple[Place, Json]]:
    """Yield the schemas that are the argument of a keyword, each with its place, such as ``("allOf", 0)``."""
    if key in _NESTED:
        yield (key,), argument
    elif key in _LISTED and isinstance(argument, list):
        yield from (((key, i), part) for i, part in enumerate(argument))
    elif key in _MAPPED and isinstance(argument, dict):
        yield from (((key, name), part) for name, part in argument.items())


def subschemas(schema: Json) -> Iterator[dict[str, Any]]:
    """Yield the schema and every schema inside it that is an object, each before its parts."""
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            yield part
            stack.extend([inner for key in part for _, inner in parts_of_keyword(key, part[key])][::-1])


def map_parts(schema: dict[str, Any], change: Callable[[Json], Json]) -> dict[str, Any]:
    """Return a copy of the schema with each schema directly inside it changed; all of them keep their places."""
    parts = [part for key, argument in schema.items() for part in parts_of_keyword(key, argument)]
    copy: dict[str, Any] = values.replace_parts(schema.copy(), [(at, change(part)) for at, part in parts])
    return copy


def with_null(schema: Json, *, for_checks: bool = False) -> Json:
    """Return the schema with ``nullable: true`` written as JSON Schema. Values (``const``, ``enum`` …) stay.

    ``for_checks`` makes it what the library is to read: as 2020-12, whatever it says, and without annotations.
    """
    if not isinstance(schema, dict):
        return schema
    out = map_parts(schema, partial(with_null, for_checks=for_checks))
    for key in ("$schema", "$id", "contentSchema") if for_checks else ():
        out.pop(key, None)
    if for_checks and out.get("additionalProperties") is False:
        out.setdefault("properties", {})  # without, the library does not say which keys are too many
    if out.pop("nullable", None) is not True:
        return out
    if "type" in out:
        kinds = out["type"] if isinstance(out["type"], list) else [out["type"]]
        out["type"] = [*kinds, "null"] if "null" not in kinds else kinds
    if isinstance(out.get("enum"), list):
        out["enum"] = [*out["enum"], None]
    if "const" in out:
        out["enum"] = [out.pop("const"), None]
    # Properties and items keep their places, which a ``$ref`` may lead to
    alternatives = {key: out.pop(key) for key in ("$ref", "allOf", "anyOf", "oneOf") if key in out}
    return {**out, "anyOf": [alternatives, {"type": "null"}]} if alternatives else out


def follow(root: Json, ref: str) -> Json:
    """Return the part of a schema that a ``$ref`` of ``#/…`` leads to; True (anything) where it leads nowhere."""
    part = _find_part(root, ref)
    return True if part is ABSENT else part


def declared_types(schema: Json, at: Place) -> set[str]:
    """The types that a schema names for the value at a place inside; empty where it names none."""
    part = schema
    for token in at:
        part = follow(schema, part["$ref"]) if isinstance(part, dict) and isinstance(part.get("$ref"), str) else part
        part = get(part, ("items",) if isinstance(token, int) else ("properties", token))
    part = follow(schema, part["$ref"]) if isinstance(part, dict) and isinstance(part.get("$ref"), str) else part
    if not isinstance(part, dict):
        return set()
    parts = [part, *(one for key in ("anyOf", "oneOf") for one in part.get(key) or () if isinstance(one, dict))]
    named = [one["type"] if isinstance(one.get("type"), list) else [one.get("type")] for one in parts]
    nullable = {"null"} if part.get("nullable") is True else set[str]()
    return nullable | {name for names in named for name in names if isinstance(name, str)}


def _find_part(root: Json, ref: str) -> Json:
    before, *tokens = unquote(ref.removeprefix("#")).split("/")
    return ABSENT if before else get(root, tuple(token.replace("~1", "/").replace("~0", "~") for token in tokens))


def with_defs(part: Json, schema: dict[str, Any]) -> Json:
    """Return a part of a schema, with the ``$defs`` of the whole where it refers to any."""
    if "$defs" not in schema or not isinstance(part, dict) or not any("$ref" in inner for inner in subschemas(part)):
        return part
    return {**part, "$defs": schema["$defs"]}


def is_self_contained(schema: Json) -> bool:
    """Return True when every ``$ref`` leads into ``$defs``: a part can be checked with these alone."""
    return all(str(part.get("$ref", DEFS)).startswith(DEFS) for part in subschemas(schema))


class SchemaError(ValueError):
    """A schema that cannot be used, and why."""


@dataclass(slots=True, eq=False)
class _Node:
    """A subschema, the nodes it leads to in place, and those for the parts of a value."""

    index: int
    schema: Json
    in_place: list[_Node] = field(default_factory=list)
    one_of_parts: list[_Node] = field(default_factory=list)
    all_of_parts: list[_Node] = field(default_factory=list)
    pattern_bytes: int = 0

    def count_own_looks(self) -> int:
        """Return the looks at a value with this node, without those of the nodes that it leads to."""
        schema = self.schema if isinstance(self.schema, dict) else {}
        compared = sum(json_size(schema[key]) for key in _COMPARED if key in schema) // _BYTES_PER_LOOK
        parts = len(self.one_of_parts) + len(self.all_of_parts)
        return 1 + parts + compared + (_MULTIPLE_OF if "multipleOf" in schema else 0)


class _Graph:
    """The nodes of one schema. Raises SchemaError: it is no JSON Schema, leads out of itself, refers to itself in
    place, or has a bad pattern. TooComplex: it breaks a limit.
    """

    def __init__(self, schema: Json) -> None:
        if not isinstance(schema, (dict, bool)):
            raise SchemaError(f"a schema is an object, not {values.type_name(schema)}")
        _refuse_invalid(schema)
        self.nodes: list[_Node] = []
        self.pattern_bytes = 0
        self._schema = schema
        self._by_id: dict[int, _Node] = {}
        self._node(schema, ())
        for node in self.nodes:  # it grows: a reference may lead to where no keyword does
            if isinstance(node.schema, dict) and "$ref" in node.schema:
                node.in_place.append(self._target(node.schema["$ref"]))
        self.order = self._sort()

    def _node(self, schema: Json, place: Place) -> _Node:
        if id(schema) in self._by_id:
            return self._by_id[id(schema)]
        if len(self.nodes) >= MAX_SUBSCHEMAS:
            raise TooComplex(f"the schema has more than {MAX_SUBSCHEMAS:,} subschemas")
        node = self._by_id[id(schema)] = _Node(len(self.nodes), schema)
        self.nodes.append(node)
        for key, argument in schema.items() if isinstance(schema, dict) else ():
            nodes = [self._node(part, (*place, *at)) for at, part in parts_of_keyword(key, argument)]
            if key in _IN_PLACE:
                node.in_place += nodes
            elif key in _ONE_OF_PARTS:
                node.one_of_parts += nodes
            elif key not in ("$defs", "definitions"):
                node.all_of_parts += nodes
            for text in [argument] if key == "pattern" else argument if key == "patternProperties" else ():
                self._add_pattern(node, text, (*place, key))
        return node

    def _add_pattern(self, node: _Node, text: str, place: Place) -> None:
        size = measure_pattern(text)
        if size is None:
            raise SchemaError(
                f"{pointer(*place)}: the pattern {truncate(text, 80)!r} is not one that is checked in bounded time: a "
                "regular expression of ECMA-262 without look-around and back-references, and at most "
                f"{_PATTERN_SIZES[-1]:,} bytes when it is compiled; maxLength bounds a length"
            )
        node.pattern_bytes += size
        self.pattern_bytes += size
        if self.pattern_bytes > MAX_PATTERN_BYTES:
            raise TooComplex(f"the patterns of the schema take more than {MAX_PATTERN_BYTES:,} bytes when compiled")

    def _target(self, reference: str) -> _Node:
        if not reference.startswith("#"):
            raise SchemaError(f'$ref {brief(reference)} leads out of the schema; only "#…" is followed')
        target = _find_part(self._schema, reference)
        if not isinstance(target, (dict, bool)):
            raise SchemaError(f"$ref {brief(reference)} leads to no schema")
        if id(target) not in self._by_id:
            _refuse_invalid(target)  # at a place that the metaschema does not look at
        return self._node(target, (reference,))

    def _sort(self) -> list[_Node]:
        try:
            order = list(TopologicalSorter({node: node.in_place for node in self.nodes}).static_order())
        except CycleError as error:
            text = "a schema refers to itself for the same value, by $ref, allOf or their like"
            raise SchemaError(text) from error
        heights, expansions = [0] * len(order), [0] * len(order)
        for node in order:
            height = heights[node.index] = 1 + max((heights[child.index] for child in node.in_place), default=0)
            expansion = expansions[node.index] = 1 + sum(expansions[child.index] for child in node.in_place)
            if height > MAX_CHAIN:
                raise TooComplex(f"more than {MAX_CHAIN} subschemas follow each other for one value ($ref, allOf …)")
            if expansion > MAX_EXPANSION:
                text = f"one value is checked with {expansion:,} subschemas, $ref and allOf written out"
                raise TooComplex(f"{text}; at most {MAX_EXPANSION:,} are allowed")
        return order

    def count_paths(self, own: Sequence[int]) -> tuple[int, ...]:
        """Return f(d, root) by depth, see the top of the file, for the ``own`` looks of each node in ``order``."""
        if not any(own):
            return (0,)
        counts: list[int] = []
        before: list[int] = []
        for _ in range(min(values.MAX_DEPTH, max(8, _MAX_COUNTS // len(own)))):
            now = [0] * len(own)
            for node, own_looks in zip(self.order, own, strict=True):
                below = own_looks
                if before:
                    below = max((before[child.index] for child in node.one_of_parts), default=0)
                    below += sum(before[child.index] for child in node.all_of_parts)
                # What is not evaluated by the nodes in place is found by evaluating them once more
                is_twice = isinstance(node.schema, dict) and any(key.startswith("unevaluated") for key in node.schema)
                inner = (1 + is_twice) * sum(now[child.index] for child in node.in_place)
                now[node.index] = min(_UNBOUNDED, inner + below)
            counts.append(now[0])
            if not any(now) or now == before or now[0] >= _UNBOUNDED:
                return tuple(counts)
            before = now
        return (*counts, _UNBOUNDED)


def _refuse_invalid(schema: Json) -> None:
    """Raise SchemaError for what the metaschema does not allow."""
    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as error:
        place = error.instance_path
        reason = truncate(error.message, 200)
        if place[-1:] == ["type"]:
            types = "array, boolean, integer, null, number, object, string"
            reason = f"{brief(get(schema, tuple(map(str, place))))} is no type; known: {types}"
        raise SchemaError(f"{pointer(*place) or 'the schema'}: {reason}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise SchemaError(truncate(str(error).split("\n", 1)[0], 200)) from error


@lru_cache(maxsize=512)
def measure_pattern(text: str) -> int | None:
    """Return about the bytes of a compiled pattern; None when the engine does not take it."""
    for size in _PATTERN_SIZES:
        options = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=_AUTOMATON_BYTES)
        with suppress(ValueError):
            jsonschema_rs.Draft202012Validator({"pattern": text}, pattern_options=options)
            return size
    return None


def _refuse_to_fetch(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")


class JudgedSchema:
    """A schema with the reason why it cannot be used, or (None) with its validator and what that takes.

    ``looks`` are those at one part of a value, by its depth, and ``pattern_steps`` those for one character there; the
    last number counts for all deeper levels. ``parts`` is the work to read it, in subschemas.
    """

    def __init__(self, schema: Json, text_bytes: int) -> None:
        self.reason: str | None = None
        self.is_too_complex = False
        self.parts, self.bytes = 1 + text_bytes // 100, text_bytes * 12
        try:
            self._prepare(schema)
        except (TooComplex, SchemaError) as error:
            self.reason, self.is_too_complex = str(error), isinstance(error, TooComplex)

    def _prepare(self, schema: Json) -> None:
        broken = values.defect(schema)
        if broken:
            raise SchemaError(f"{broken[0] or 'the schema'}: {broken[1]}")
        self.schema = with_null(schema, for_checks=True)
        graph = _Graph(self.schema)
        keywords = {key for node in graph.nodes if isinstance(node.schema, dict) for key in node.schema}
        self.looks = graph.count_paths([node.count_own_looks() for node in graph.order])
        self.pattern_steps = graph.count_paths([-(-node.pattern_bytes // _BYTES_PER_STEP) for node in graph.order])
        self.parts += len(graph.nodes)
        self.bytes += len(graph.nodes) * _SUBSCHEMA_BYTES + 3 * graph.pattern_bytes
        self.has_unique_items = "uniqueItems" in keywords
        self.has_alternatives = not keywords.isdisjoint({"anyOf", "oneOf"})
        # A value of any size may be checked: 2 MiB of the smallest parts take a third of a second
        is_cheap = self.looks[0] <= MAX_EXPANSION and max(self.looks[1:], default=0) <= _LIGHT
        self.is_light = is_cheap and not any(self.pattern_steps) and not self.has_unique_items
        try:
            self.validator = jsonschema_rs.Draft202012Validator(
                self.schema, retriever=_refuse_to_fetch, pattern_options=_PATTERN_OPTIONS, mask=_SHOWN
            )
        except (ValueError, TypeError, RecursionError) as error:
            raise TooComplex(f"the schema cannot be compiled: {truncate(str(error), 200)}") from error

    def count_looks(self, value: Json) -> int:
        """Return the looks at a value, at most; raises TooComplex when it may take over half a second to check."""
        looks = pattern_steps = long_numbers = depth = 0
        level = [value]
        while level:
            looks += len(level) * max(1, self.looks[min(depth, len(self.looks) - 1)])
            of_character = self.pattern_steps[min(depth, len(self.pattern_steps) - 1)]
            below: list[Json] = []
            for part in level:
                if isinstance(part, (dict, list)):
                    below.extend(part.values() if isinstance(part, dict) else part)
                    if of_character and isinstance(part, dict):
                        pattern_steps += of_character * sum(map(len, part))
                elif isinstance(part, str):
                    pattern_steps += of_character * len(part)
                elif isinstance(part, int):
                    long_numbers += abs(part) >= _LARGEST_WORD
            # The library compares each pair of long numbers in a list whose items must be unique
            if looks + self.has_unique_items * long_numbers**2 > MAX_LOOKS:
                text = f"checking the value with its schema takes more than the {MAX_LOOKS:,} steps allowed"
                raise TooComplex(f"{text}: it has too many parts, or its schema too many alternatives for each")
            if pattern_steps > MAX_PATTERN_STEPS:
                text = f"checking the texts with their patterns takes more than the {MAX_PATTERN_STEPS:,} steps allowed"
                raise TooComplex(f"{text}: shorten the texts, or the repetitions of the patterns")
            level, depth = below, depth + 1
        return looks


class _Cache:
    """Judged schemas by their JSON; what was not used for the longest time is forgotten first.

    No lock is needed: each step is one operation on a dict, and a lost race costs one more compilation.
    """

    def __init__(self) -> None:
        self.verdicts: OrderedDict[bytes, JudgedSchema] = OrderedDict()
        self.bytes = 0

    def judge(self, schema: Json, text: bytes) -> JudgedSchema:
        verdict = self.verdicts.pop(text, None)
        if verdict is None:
            verdict = JudgedSchema(schema, len(text))
            self.bytes += verdict.bytes
        self.verdicts[text] = verdict
        while self.bytes > _COMPILED_BYTES and len(self.verdicts) > 1:
            self.bytes -= self.verdicts.popitem(last=False)[1].bytes
        return verdict


_cache: Final = _Cache()


def clear_caches() -> None:
    """Forget all that was compiled, as in a fresh process."""
    _cache.verdicts.clear()
    _cache.bytes = 0


def judge_schema(schema: Json) -> JudgedSchema:
    """Return whether a schema can be used. Cached: it takes up to milliseconds, and the same Tools come again."""
    try:
        return _cache.judge(schema, write_json(schema))
    except (RecursionError, TypeError, ValueError):
        return JudgedSchema(schema, 0)


def find_schema_problem(
    schema: Json, at: Place, code: str, *, subject: str = "", meter: Meter | None = None
) -> Problem | None:
    """Return the Problem of a schema of ``subject`` that cannot be used; ``meter`` counts subschemas."""
    verdict = judge_schema(schema)
    if meter is not None:
        meter.spend(verdict.parts)
    if verdict.reason is None:
        return None
    return Problem(TOO_COMPLEX if verdict.is_too_complex else code, f"{subject}{verdict.reason}", pointer(*at))


def _mark_unknown(value: Json, at: Place, places: dict[Place, str], *, is_planned: bool) -> Json:
    """Return the value with texts in place of its unknown parts (of a planned one its references); add their places."""
    if is_planned and isinstance(value, str) and MARK in value:
        value = unread_value(value)
    if value is UNKNOWN or value is UNKNOWN_TEXT:
        places[at] = _ANYTHING if value is UNKNOWN else _ANY_TEXT
        return places[at]
    if not isinstance(value, (dict, list)):
        return value
    out = value.copy()
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(child, (str, dict, list)) or child is UNKNOWN or child is UNKNOWN_TEXT:
            out[key] = _mark_unknown(child, (*at, key), places, is_planned=is_planned)
    return out


class _Unknown:
    """The unknown parts of a value, and what is certain of it all the same."""

    def __init__(self, places: dict[Place, str]) -> None:
        self._texts = places
        self._wholes = {place[:depth] for place in places for depth in range(len(place))}

    def is_certain(self, error: Any) -> bool:
        at, kind = tuple(error.instance_path), error.kind
        name, text = kind.name, self._texts.get(at)
        if name in ("anyOf", "oneOf") and hasattr(kind, "context") and (text is not None or at in self._wholes):
            return all(any(self.is_certain(inner) for inner in branch) for branch in kind.context)
        if text == _ANYTHING:
            is_certain = name == "falseSchema"
        elif text == _ANY_TEXT:
            options = kind.as_dict().get("options", [kind.as_dict().get("expected_value")])
            is_no_choice = name in ("enum", "const") and not any(isinstance(option, str) for option in options)
            is_certain = is_no_choice or name in ("type", "falseSchema")
        else:
            is_certain = at not in self._wholes or name in _OF_KEYS
        # Which of ``then`` and ``else`` holds is not certain
        return is_certain and {"then", "else"}.isdisjoint(error.evaluation_path)


class Checker:
    """Checks values with one valid schema (``judge_schema``). Equal schemas share what is compiled.

    Each check returns what is wrong, an empty list when nothing is. ``meter`` counts the work of several checks; all
    raise TooComplex when a check, or all checks of the meter together, take too long.
    """

    __slots__ = ("_text", "schema")

    def __init__(self, schema: Json) -> None:
        self.schema = schema
        self._text = write_json(schema)

    def defects(self, value: Json, meter: Meter | None = None) -> list[Defect]:
        return self._find(value, None, meter)

    def open_defects(self, value: Json, meter: Meter | None = None, *, is_planned: bool = True) -> list[Defect]:
        """Return why a value cannot fit, whatever its unknown parts are: references of a planned one, or UNKNOWN."""
        places: dict[Place, str] = {}
        marked = _mark_unknown(value, (), places, is_planned=is_planned)
        return self._find(marked, _Unknown(places) if places else None, meter)

    def _find(self, value: Json, unknown: _Unknown | None, meter: Meter | None) -> list[Defect]:
        verdict = _cache.judge(self.schema, self._text)
        if verdict.reason is not None:
            raise ValueError(verdict.reason)
        looks = 0 if verdict.is_light else verdict.count_looks(value)
        if meter is not None:
            meter.spend(looks // _LOOKS_PER_STEP)
        try:
            if verdict.validator.is_valid(value):
                return []
            looks = looks or verdict.count_looks(value)
            if meter is not None:
                meter.spend(min(looks, _MAX_EXPLAINED))
            errors = _explain(verdict, value, looks, has_unknown=unknown is not None)
            certain = [error for error in errors if unknown is None or unknown.is_certain(error)]
            if not errors and unknown is None:
                return [((), f"{brief(value)} does not fit its schema, and is too large to say where")]
            defects = [d for error in certain for d in _defects_of(error, verdict.schema)]
        except RecursionError as error:
            raise TooComplex("the value is nested too deeply to be checked") from error
        # A whole before its parts, list items in their order, keys by name
        return sorted(dict.fromkeys(defects), key=lambda d: [(isinstance(k, str), k) for k in d[0]])[:MAX_DEFECTS]


def _explain(verdict: JudgedSchema, value: Json, looks: int, *, has_unknown: bool) -> list[Any]:
    """Return the errors of a value; of a large one the first, or none where that takes long, too."""
    if looks <= _MAX_EXPLAINED:
        return list(verdict.validator.iter_errors(value))
    if verdict.has_alternatives or has_unknown:
        return []
    try:
        verdict.validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return [error]
    return []


def _defects_of(error: Any, schema: Json) -> list[Defect]:
    kind, at, value = error.kind, tuple(error.instance_path), error.instance
    name = brief(value).replace(brief(_ANY_TEXT), "a template").replace(brief(_ANYTHING), "a reference")
    if kind.name in ("anyOf", "oneOf") and hasattr(kind, "context"):
        branches = [[d for e in branch for d in _defects_of(e, schema)] for branch in kind.context]
        if not all(branches):
            return [(at, f"{name} fits several of the alternatives of oneOf; exactly one is allowed")]
        deepest = [max(branch, key=lambda d: len(d[0])) for branch in branches]
        depth = max(len(place) for place, _ in deepest)
        nearest = [d for d in deepest if len(d[0]) == depth]
        return nearest if len(nearest) == 1 else [(at, f"{name} fits none of the alternatives")]
    if kind.name == "propertyNames":
        return [(at, text) for _, text in _defects_of(kind.error, schema)]
    if kind.name == "enum":
        choices = truncate(brief(kind.as_dict()["options"], _MAX_CHOICES_TEXT), _MAX_CHOICES_TEXT)
        return [(at, f"{name} is not one of {choices}")]
    if kind.name == "additionalProperties":
        extra, closed = kind.as_dict()["unexpected"], _find_part(schema, "#" + pointer(*error.schema_path[:-1]))
        allowed = [*closed.get("properties", ()), *(brief(pattern) for pattern in closed.get("patternProperties", ()))]
        names = ", ".join(f'"{truncate(key, 40)}"' for key in extra[:_MAX_NAMES])
        text = f"{names} {'is' if len(extra) == 1 else 'are'} not allowed; allowed: {format_choices(allowed)}"
        return [(at, "; ".join(filter(None, (text, suggest(extra[0], allowed)))))]
    return [(at, truncate(error.message, 240).replace('"', "'").replace(_SHOWN, name))]
