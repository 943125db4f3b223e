"""JSON Schema (2020-12) checks, before and after references resolve: the one door to them.

Two ways lead to an answer. ``jsonschema-rs`` says yes or no a hundred times faster than Python could, and cannot be
stopped; so it is asked where the load of the schema and the size of the value say that it takes milliseconds.
``Evaluation`` explains a no, knows parts that are not known yet, counts its steps and stops. Neither backtracks in a
pattern, and neither ever fetches a ``$ref``.

*Relaxed* checks let a reference, or a value that a dry run cannot know, satisfy any type. OpenAPI's ``nullable: true``
means that null is allowed too.

What is compiled is kept in caches that are bounded in bytes: a ``Checker`` holds a schema and a key, nothing more.
"""

from __future__ import annotations

import hashlib
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs

from acts.language.byte_cache import ByteCache
from acts.language.errors import Problem, TooComplex, truncate
from acts.language.patterns import OPTIONS
from acts.language.references import MARK, is_reference, unescape
from acts.language.schema_defects import Defect
from acts.language.schema_evaluation import Evaluation
from acts.language.schema_forms import follow, part_of, subschemas, with_defs, with_null
from acts.language.schema_graph import SchemaError, SchemaGraph
from acts.language.schema_load import Load, measure_load
from acts.language.strict_json import write_json
from acts.language.values import UNKNOWN, UNKNOWN_TEXT, Json, Place, defect, pointer
from acts.language.wire import TOO_COMPLEX
from acts.language.work_meter import MAX_CHECK_STEPS, WorkMeter

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = [
    "MAX_DEFECTS", "Checker", "Defect", "checker", "find_schema_problem", "follow", "part_of", "schema_defect",
    "subschemas", "with_defs", "with_null",
]  # fmt: skip

MAX_DEFECTS: Final = 20
# Steps to read one schema: 20,000 subschemas with their references, patterns and load
MAX_SCHEMA_STEPS: Final = 400_000
# Bytes of all compiled schemas of a process; the estimate of one is by its subschemas, measured at 2 kB each in both
# libraries together, and by its text
_COMPILED_BYTES: Final = 64 * 1024 * 1024
_SUBSCHEMA_BYTES: Final = 2_000
_TEXT_FACTOR: Final = 12
# Bytes of all verdicts, some 300 each
_VERDICT_BYTES: Final = 4 * 1024 * 1024
_VERDICT_SIZE: Final = 300
# Up to this load every value may take the fast way, unmeasured: 2 MiB of the smallest parts take a third of a second
_FREE_LOAD: Final = 16
# Looks of the fast library in one check, at 20 to 40 ns each
_MAX_FAST_LOOKS: Final = 4_000_000
# Positions of patterns times characters in one check, at 8 ns each at worst
_MAX_FAST_POSITIONS: Final = 20_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a schema cannot be used (None: it can), whether a limit is the reason, and the steps that took."""

    reason: str | None
    is_too_complex: bool
    steps: int


class _Compiled:
    """A schema, ready to check with. ``size`` is an estimate of its bytes."""

    def __init__(self, schema: Json, text_bytes: int) -> None:
        meter = WorkMeter("reading the schema", MAX_SCHEMA_STEPS)
        self.schema = with_null(schema)
        self.graph = SchemaGraph(self.schema, meter)
        self.load = measure_load(self.graph, meter)
        self.size = len(self.graph.nodes) * _SUBSCHEMA_BYTES + text_bytes * _TEXT_FACTOR + 2 * self.graph.pattern_bytes
        self.steps = meter.spent

    @cached_property
    def fast(self) -> Any:
        """The validator of the fast library, or None where it does not take the schema."""
        schema = self.schema
        if isinstance(schema, dict) and "$schema" in schema:  # read as 2020-12, whatever it says
            schema = {k: v for k, v in schema.items() if k != "$schema"}
        try:
            return jsonschema_rs.Draft202012Validator(schema, retriever=_refuse, pattern_options=OPTIONS)
        except (ValueError, TypeError, RecursionError):
            return None

    def accepts(self, value: Json) -> bool:
        """True when the fast library accepts a value; False where it does not, or is not asked."""
        if self.load is None or not _is_bounded(self.load, value) or self.fast is None:
            return False
        try:
            return bool(self.fast.is_valid(value))
        except (ValueError, TypeError, OverflowError):
            return False  # the evaluation says why


def _is_bounded(load: Load, value: Json) -> bool:
    """True when the fast library checks a value within milliseconds, or a third of a second at the very worst."""
    if load.looks <= _FREE_LOAD and load.characters <= _FREE_LOAD:
        return True
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
            return False
    return True


class Checker:
    """Checks values with one schema. Use ``checker`` to build it; equal schemas share what is compiled."""

    __slots__ = ("_is_trivial", "_key", "_names", "_text_bytes", "schema")

    def __init__(self, schema: Json) -> None:
        text = write_json(schema)
        self.schema = schema
        self._is_trivial = schema is True or schema == {}
        self._key = _key_of(text)
        self._text_bytes = len(text)
        self._names: tuple[str, ...] = ()

    def at(self, names: tuple[str, ...]) -> Checker:
        """Checks values of the property that ``names`` lead to, by ``properties`` and ``additionalProperties``."""
        part = copy(self)
        part._names = (*self._names, *names)  # noqa: SLF001 - a copy of this very object
        return part

    def defects(self, value: Json, meter: WorkMeter | None = None) -> list[Defect]:
        """Why a resolved value does not fit; empty when it does. ``meter`` is for several checks together.

        Raises:
            TooComplex: the check takes more steps than are allowed.
            ValueError: the schema is not valid (``schema_defect``).
        """
        if self._is_trivial:
            return []
        compiled = self._compiled()
        is_fit = not self._names and compiled.accepts(value)
        return [] if is_fit else self._explain(compiled, value, (), meter)

    def open_defects(self, planned: Json, meter: WorkMeter | None = None) -> list[Defect]:
        """Why a planned value cannot fit, whatever its references resolve to. Raises as ``defects``."""
        unknown: set[int] = set()
        value = _with_unknowns(planned, unknown)
        return self._partial_defects(value, unknown, meter)

    def partial_defects(self, value: Json, meter: WorkMeter | None = None) -> list[Defect]:
        """Why a value cannot fit, whatever its UNKNOWN parts turn out to be. Raises as ``defects``."""
        unknown: set[int] = set()
        _add_unknown_containers(value, unknown)
        return self._partial_defects(value, unknown, meter)

    def _partial_defects(self, value: Json, unknown: set[int], meter: WorkMeter | None) -> list[Defect]:
        if not unknown and not _is_unknown(value):
            return self.defects(value, meter)
        return [] if self._is_trivial else self._explain(self._compiled(), value, unknown, meter)

    def _explain(
        self, compiled: _Compiled, value: Json, unknown: Container[int], meter: WorkMeter | None
    ) -> list[Defect]:
        meter = meter or WorkMeter("checking the value with its schema")
        root = compiled.graph.find_property(self._names)
        evaluation = Evaluation(root, meter, unknown, remembers=compiled.load is None)
        try:
            return evaluation.defects(value)[:MAX_DEFECTS]
        except RecursionError as error:
            raise TooComplex("the value is nested too deeply to be checked") from error

    def _compiled(self) -> _Compiled:
        """The compiled schema.

        Raises:
            ValueError, TooComplex: the schema cannot be used.
        """

        def build() -> tuple[_Compiled, int]:
            compiled = _Compiled(self.schema, self._text_bytes)
            return compiled, compiled.size

        return _compiled_schemas.get_or_build(self._key, build)


_compiled_schemas: Final[ByteCache[_Compiled]] = ByteCache(_COMPILED_BYTES)
_verdicts: Final[ByteCache[Verdict]] = ByteCache(_VERDICT_BYTES)


def checker(schema: Json) -> Checker:
    """The checker of a valid schema (see ``schema_defect``)."""
    return Checker(schema)


def judge_schema(schema: Json) -> Verdict:
    """Whether a schema can be used. Cached: it takes up to milliseconds, and the same Tools come again and again."""
    try:
        text = write_json(schema)
    except (RecursionError, TypeError, ValueError) as error:
        return Verdict(f"a schema is JSON: {truncate(str(error), 200)}", is_too_complex=False, steps=1)
    return _verdicts.get_or_build(_key_of(text), lambda: (_judge(schema, len(text)), _VERDICT_SIZE))


def _judge(schema: Json, text_bytes: int) -> Verdict:
    base = text_bytes // 100
    broken = defect(schema)
    if broken:
        return Verdict(f"{broken[0] or 'the schema'}: {broken[1]}", is_too_complex=False, steps=base)
    try:
        return Verdict(None, is_too_complex=False, steps=base + _Compiled(schema, text_bytes).steps)
    except TooComplex as error:
        return Verdict(str(error), is_too_complex=True, steps=MAX_CHECK_STEPS // 10)
    except SchemaError as error:
        return Verdict(str(error), is_too_complex=False, steps=base)


def schema_defect(schema: Json) -> str | None:
    """Why this is no usable schema, or None."""
    return judge_schema(schema).reason


def find_schema_problem(
    schema: Json, at: Place, code: str, *, subject: str = "", meter: WorkMeter | None = None
) -> Problem | None:
    """The Problem of a schema that cannot be used; ``subject`` is what it is of, for the message.

    Raises:
        TooComplex: the meter has run out.
    """
    verdict = judge_schema(schema)
    if meter is not None:
        meter.spend(verdict.steps)
    if verdict.reason is None:
        return None
    return Problem(TOO_COMPLEX if verdict.is_too_complex else code, f"{subject}{verdict.reason}", pointer(*at))


def _key_of(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")


# -- what is not known yet -------------------------------------------------------


def _is_unknown(value: Json) -> bool:
    return value is UNKNOWN or value is UNKNOWN_TEXT


def _with_unknowns(value: Json, unknown: set[int]) -> Json:
    """A planned value with UNKNOWN in place of each reference, and ``††x`` unescaped.

    ``unknown`` gets the ids of the lists and objects in it that have an unknown part.
    """
    if isinstance(value, str):
        return value if value[:1] != MARK else UNKNOWN if is_reference(value) else unescape(value)
    if not isinstance(value, (dict, list)):
        return value
    out = value.copy()
    has_unknown = False
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(child, str):
            if child[:1] != MARK:
                continue
        elif not isinstance(child, (dict, list)):
            has_unknown = has_unknown or _is_unknown(child)
            continue
        out[key] = part = _with_unknowns(child, unknown)
        has_unknown = has_unknown or _is_unknown(part) or id(part) in unknown
    if has_unknown:
        unknown.add(id(out))
    return out


def _add_unknown_containers(value: Json, unknown: set[int]) -> bool:
    """Add the ids of the lists and objects that have an unknown part to ``unknown``; True when there is one."""
    if not isinstance(value, (dict, list)):
        return _is_unknown(value)
    has_unknown = False
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, (dict, list)):
            has_unknown = _add_unknown_containers(child, unknown) or has_unknown
        elif _is_unknown(child):
            has_unknown = True
    if has_unknown:
        unknown.add(id(value))
    return has_unknown
