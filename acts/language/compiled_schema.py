"""Schemas made ready for checks, and the verdicts on those that cannot be; both cached, in caches bounded in bytes.

``CompiledSchema.accepts`` is the fast way of ``schemas``: it asks ``jsonschema-rs``, which cannot be stopped, only
where the load of the schema and the size of the value say that the answer takes milliseconds.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import jsonschema_rs

from acts.language.byte_cache import ByteCache
from acts.language.errors import TooComplex, truncate
from acts.language.patterns import OPTIONS
from acts.language.schema_forms import with_null
from acts.language.schema_graph import SchemaError, SchemaGraph
from acts.language.schema_load import Load, measure_load
from acts.language.strict_json import write_json
from acts.language.values import Json, defect
from acts.language.work_meter import MAX_CHECK_STEPS, WorkMeter

# Steps to read one schema: 20,000 subschemas with their references, patterns and load
MAX_SCHEMA_STEPS: Final = 400_000
# Bytes of all compiled schemas of a process, and of all validators of the fast library. The estimates are by
# subschemas, as measured, and by the text. All Tools of a Request have room at once: its Calls may use them in turn
_COMPILED_BYTES: Final = 96 * 1024 * 1024
_SUBSCHEMA_BYTES: Final = 650
_TEXT_FACTOR: Final = 12
_FAST_BYTES: Final = 96 * 1024 * 1024
_FAST_SUBSCHEMA_BYTES: Final = 1_400
# Bytes of all verdicts, some 300 each
_VERDICT_BYTES: Final = 4 * 1024 * 1024
_VERDICT_SIZE: Final = 300
# Up to this load every value may take the fast way, unmeasured: 2 MiB of the smallest parts take a third of a second
_FREE_LOAD: Final = 16
# Looks of the fast library in one check, at 20 to 40 ns each
_MAX_FAST_LOOKS: Final = 4_000_000
# Looks in the time of one step of a plan's check, a microsecond
_LOOKS_PER_STEP: Final = 25
# Positions of patterns times characters in one check, at 8 ns each at worst
_MAX_FAST_POSITIONS: Final = 20_000_000
# Keywords of an object whose properties can be checked one by one
_FLAT: Final = frozenset({
    "type", "properties", "required", "additionalProperties", "title", "description", "default", "examples",
    "$defs", "definitions", "$schema", "$comment",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a schema cannot be used (None: it can), whether a limit is the reason, and the steps that took."""

    reason: str | None
    is_too_complex: bool
    steps: int


class CompiledSchema:
    """A schema, ready to check with. ``size`` is an estimate of its bytes.

    ``property_checks`` are the ``Checker`` objects of single properties, by name, as far as any was needed.
    """

    def __init__(self, schema: Json, text_bytes: int, key: bytes) -> None:
        self._key = key
        meter = WorkMeter("reading the schema", MAX_SCHEMA_STEPS)
        self.schema = with_null(schema)
        self.graph = SchemaGraph(self.schema, meter)
        self.load = measure_load(self.graph, meter)
        self.size = len(self.graph.nodes) * _SUBSCHEMA_BYTES + text_bytes * _TEXT_FACTOR + self.graph.pattern_bytes
        self.steps = meter.spent
        self.property_checks: dict[str, Any] = {}

    @cached_property
    def is_flat(self) -> bool:
        """True for an object without keywords that look at several properties together: almost every Tool."""
        schema = self.schema
        if not isinstance(schema, dict) or schema.get("type") != "object" or not _FLAT.issuperset(schema):
            return False
        return isinstance(schema.get("additionalProperties", True), bool)

    @property
    def fast(self) -> Any:
        """The validator of the fast library, or None where it does not take the schema."""
        return _fast_validators.get_or_build(self._key, self._build_fast)[0]

    def _build_fast(self) -> tuple[tuple[Any], int]:
        size = len(self.graph.nodes) * _FAST_SUBSCHEMA_BYTES + 2 * self.graph.pattern_bytes
        return (self._make_fast(),), size

    def _make_fast(self) -> Any:
        schema = self.schema
        if isinstance(schema, dict) and "$schema" in schema:  # read as 2020-12, whatever it says
            schema = {k: v for k, v in schema.items() if k != "$schema"}
        try:
            return jsonschema_rs.Draft202012Validator(schema, retriever=_refuse, pattern_options=OPTIONS)
        except (ValueError, TypeError, RecursionError):
            return None

    def accepts(self, value: Json, meter: WorkMeter | None = None) -> bool | None:
        """Whether the fast library accepts a value; None where it is not asked, or has no answer.

        Raises:
            TooComplex: ``meter`` has run out; it counts the checks that take more than some microseconds.
        """
        looks = None if self.load is None else _count_looks(self.load, value)
        if looks is None or (fast := self.fast) is None:
            return None
        if meter is not None:
            meter.spend(looks // _LOOKS_PER_STEP)
        try:
            return bool(fast.is_valid(value))
        except (ValueError, TypeError, OverflowError):
            return None  # the evaluation says why


def _count_looks(load: Load, value: Json) -> int | None:
    """The looks of the fast library at a value, 0 where they are few; None where they may take over 0.3 s."""
    if load.looks <= _FREE_LOAD and load.characters <= _FREE_LOAD:
        return 0
    most_parts = _MAX_FAST_LOOKS // load.looks
    most_characters = _MAX_FAST_POSITIONS // load.characters if load.characters else None
    stack, parts, characters = [value], 0, 0
    while stack:
        part = stack.pop()
        parts += 1
        if isinstance(part, dict):
            stack.extend(part.values())
            characters += sum(map(len, part)) if most_characters is not None else 0
        elif isinstance(part, list):
            stack.extend(part)
        elif isinstance(part, str):
            characters += len(part)
        if parts + len(stack) > most_parts or (most_characters is not None and characters > most_characters):
            return None
    return parts * load.looks


_compiled_schemas: Final[ByteCache[CompiledSchema]] = ByteCache(_COMPILED_BYTES)
_fast_validators: Final[ByteCache[tuple[Any]]] = ByteCache(_FAST_BYTES)
_verdicts: Final[ByteCache[Verdict]] = ByteCache(_VERDICT_BYTES)


def clear_caches() -> None:
    """Forget all that was compiled, as in a fresh process."""
    _compiled_schemas.clear()
    _fast_validators.clear()
    _verdicts.clear()


def compile_schema(schema: Json, key: bytes, text_bytes: int) -> CompiledSchema:
    """The compiled schema; ``key`` is ``key_of`` its JSON text, of ``text_bytes``.

    Raises:
        ValueError, TooComplex: the schema cannot be used.
    """

    def build() -> tuple[CompiledSchema, int]:
        compiled = CompiledSchema(schema, text_bytes, key)
        return compiled, compiled.size

    return _compiled_schemas.get_or_build(key, build)


def judge_schema(schema: Json) -> Verdict:
    """Whether a schema can be used. Cached: it takes up to milliseconds, and the same Tools come again and again."""
    try:
        text = write_json(schema)
    except (RecursionError, TypeError, ValueError) as error:
        return Verdict(f"a schema is JSON: {truncate(str(error), 200)}", is_too_complex=False, steps=1)
    key = key_of(text)
    return _verdicts.get_or_build(key, lambda: (_judge(schema, len(text), key), _VERDICT_SIZE))


def _judge(schema: Json, text_bytes: int, key: bytes) -> Verdict:
    base = text_bytes // 100
    broken = defect(schema)
    if broken:
        return Verdict(f"{broken[0] or 'the schema'}: {broken[1]}", is_too_complex=False, steps=base)
    try:
        return Verdict(None, is_too_complex=False, steps=base + CompiledSchema(schema, text_bytes, key).steps)
    except TooComplex as error:
        return Verdict(str(error), is_too_complex=True, steps=MAX_CHECK_STEPS // 10)
    except SchemaError as error:
        return Verdict(str(error), is_too_complex=False, steps=base)


def key_of(text: bytes) -> bytes:
    """The key of a schema in the caches, from its JSON text."""
    return hashlib.blake2b(text, digest_size=16).digest()


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")
