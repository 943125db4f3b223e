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

from typing import TYPE_CHECKING, Final

from acts.language.compiled_schema import CompiledSchema, compile_schema, judge_schema, key_of
from acts.language.errors import Problem, TooComplex
from acts.language.reference_uses import unread_value
from acts.language.references import MARK
from acts.language.schema_defects import Defect
from acts.language.schema_evaluation import Evaluation
from acts.language.schema_forms import follow, part_of, subschemas, with_defs, with_null
from acts.language.strict_json import write_json
from acts.language.values import UNKNOWN, UNKNOWN_TEXT, Json, Place, pointer
from acts.language.wire import TOO_COMPLEX
from acts.language.work_meter import WorkMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable

    Identify = Callable[[str, Json], Hashable]
    """What stays the same while a property, of this name and value, does."""
    CheckKey = tuple[bytes, str, Hashable]
    """A check: the key of its schema, the property, and what identifies the property's value."""

__all__ = [
    "MAX_DEFECTS", "CheckMemo", "Checker", "Defect", "checker", "find_schema_problem", "follow", "part_of",
    "schema_defect", "subschemas", "with_defs", "with_null",
]  # fmt: skip

MAX_DEFECTS: Final = 20
# Parts from which on a list or object is large: checking it takes longer than remembering that
LARGE_PARTS: Final = 50
# Steps of a check that are not counted with those of others: 20,000 Calls of one task have so many each
FREE_STEPS: Final = 20
# Parts of a list or object that are looked at in the time of a step of a check
PARTS_PER_STEP: Final = 8
# Checks that a memo remembers; each holds its value
MAX_REMEMBERED: Final = 64
# Subschemas that may be compiled once more for one property of them
MAX_COPIED_NODES: Final = 500


class Checker:
    """Checks values with one schema. Use ``checker`` to build it; equal schemas share what is compiled."""

    __slots__ = ("_is_trivial", "_key", "_names", "_text_bytes", "schema")

    def __init__(self, schema: Json, names: tuple[str, ...] = ()) -> None:
        text = write_json(schema)
        self.schema = schema
        self._is_trivial = schema is True or schema == {}
        self._key = key_of(text)
        self._text_bytes = len(text)
        self._names = names

    def at(self, names: tuple[str, ...]) -> Checker:
        """Checks values of the property that ``names`` lead to, by ``properties`` and ``additionalProperties``."""
        return Checker(self.schema, (*self._names, *names))

    def defects(
        self, value: Json, meter: WorkMeter | None = None, memo: CheckMemo | None = None,
        checking: WorkMeter | None = None, identify: Identify | None = None,
    ) -> list[Defect]:  # fmt: skip
        """Why a resolved value does not fit; empty when it does.

        ``meter`` is for several checks together. ``memo`` remembers what was found of large properties, which
        ``identify`` tells apart. ``checking`` counts what the checks of a workflow task take beside ``FREE_STEPS``
        each: ten thousand Calls may fail in one, each for a reason that takes milliseconds to find. When it has run
        out, the fast library alone decides.

        Raises:
            TooComplex: the check takes more steps than are allowed.
            ValueError: the schema is not valid (``schema_defect``).
        """
        if self._is_trivial:
            return []
        compiled = self._compiled()
        large = _find_large_parts(value) if memo is not None and compiled.is_flat and not self._names else {}
        if memo is not None and large:
            return self._defects_by_property(compiled, value, large, meter, memo, checking, identify, is_resolved=True)
        return self._judge(compiled, value, meter, checking)

    def open_defects(self, planned: Json, meter: WorkMeter | None = None) -> list[Defect]:
        """Why a planned value cannot fit, whatever its references resolve to. Raises as ``defects``."""
        unknown: set[int] = set()
        value = _with_unknowns(planned, unknown)
        return self._partial_defects(value, unknown, meter)

    def partial_defects(
        self, value: Json, meter: WorkMeter | None = None, memo: CheckMemo | None = None,
        checking: WorkMeter | None = None, identify: Identify | None = None,
    ) -> list[Defect]:  # fmt: skip
        """Why a value cannot fit, whatever its UNKNOWN parts turn out to be. Raises as ``defects``.

        When ``checking`` has run out, none is looked for: a real run checks the value when it is known.
        """
        if checking is not None and checking.is_exhausted:
            return []
        if memo is not None and not self._is_trivial and not self._names:
            compiled = self._compiled()
            large = _find_large_parts(value) if compiled.is_flat else {}
            if large:
                return self._defects_by_property(
                    compiled, value, large, meter, memo, checking, identify, is_resolved=False
                )
        return self._partial_defects(value, _find_unknown(value, checking), meter, checking)

    def _partial_defects(
        self, value: Json, unknown: set[int], meter: WorkMeter | None, checking: WorkMeter | None = None
    ) -> list[Defect]:
        if self._is_trivial:
            return []
        if not unknown and not _is_unknown(value):
            return self._judge(self._compiled(), value, meter, checking)
        return self._explain_counted(self._compiled(), value, unknown, meter, checking)

    def _judge(
        self, compiled: CompiledSchema, value: Json, meter: WorkMeter | None, checking: WorkMeter | None
    ) -> list[Defect]:
        """The defects of a value without unknown parts; of many values that do not fit, the first are explained."""
        is_fit = None if self._names else compiled.accepts(value, meter)
        if is_fit:
            return []
        if checking is not None and checking.is_exhausted:
            if is_fit is None:
                checking.spend(0)
            return [((), "does not fit; why is not said, since many values of this plan do not fit")]
        return self._explain_counted(compiled, value, (), meter, checking)

    def _explain_counted(
        self, compiled: CompiledSchema, value: Json, unknown: Container[int], meter: WorkMeter | None,
        checking: WorkMeter | None,
    ) -> list[Defect]:  # fmt: skip
        meter = meter or WorkMeter("checking the value with its schema")
        before = meter.spent
        try:
            return self._explain(compiled, value, unknown, meter)
        finally:
            if checking is not None:
                checking.spent += max(0, meter.spent - before - FREE_STEPS)

    def _defects_by_property(
        self, compiled: CompiledSchema, value: dict[str, Json], large: dict[str, Json], meter: WorkMeter | None,
        memo: CheckMemo, checking: WorkMeter | None, identify: Identify | None, *, is_resolved: bool,
    ) -> list[Defect]:  # fmt: skip
        """The defects of an object whose ``large`` properties are each checked once, however many Calls have them."""
        small = {key: UNKNOWN if key in large else part for key, part in value.items()}
        defects = self._explain(compiled, small, _find_unknown(small, None), meter)
        for key, part in large.items():
            declared = compiled.graph.root.sub.get("properties", {}).get(key)
            if declared is None or declared.schema is True or declared.schema == {}:
                continue
            check = (self._key, key, id(part) if identify is None else identify(key, part))
            found = memo.find(check)
            if found is None:
                # A resolved value has none: each Call would look through all of it for nothing
                unknown = set() if is_resolved else _find_unknown(part, checking)
                own = self._property_check(compiled, key)
                found = memo.remember(check, part, own._partial_defects(part, unknown, meter, checking))  # noqa: SLF001
            defects += [((key, *at), text) for at, text in found]
        return defects[:MAX_DEFECTS]

    def _property_check(self, compiled: CompiledSchema, key: str) -> Checker:
        check: Checker | None = compiled.property_checks.get(key)
        if check is None:
            check = compiled.property_checks[key] = self._check_of(compiled, key)
        return check

    def _check_of(self, compiled: CompiledSchema, key: str) -> Checker:
        """The check of one property: by a schema of its own, where that is not much more than the property's."""
        part = self.schema["properties"][key]
        own = part_of(part, self.schema)
        is_small = own is part or len(compiled.graph.nodes) <= MAX_COPIED_NODES
        return Checker(own) if is_small and own is not None else self.at((key,))

    def _explain(
        self, compiled: CompiledSchema, value: Json, unknown: Container[int], meter: WorkMeter | None
    ) -> list[Defect]:
        meter = meter or WorkMeter("checking the value with its schema")
        root = compiled.graph.find_property(self._names)
        evaluation = Evaluation(root, meter, unknown, remembers=compiled.load is None)
        try:
            return evaluation.defects(value)[:MAX_DEFECTS]
        except RecursionError as error:
            raise TooComplex("the value is nested too deeply to be checked") from error

    def _compiled(self) -> CompiledSchema:
        return compile_schema(self.schema, self._key, self._text_bytes)


class CheckMemo:
    """What checks of large values found, for one walk or one dry run: many Calls may read the same value.

    A value is known by its identity; it is held here, so that no other value can have it.
    """

    def __init__(self) -> None:
        self._found: dict[CheckKey, tuple[Json, list[Defect]]] = {}

    def find(self, check: CheckKey) -> list[Defect] | None:
        """What this check of the value found before, or None."""
        entry = self._found.get(check)
        return None if entry is None else entry[1]

    def remember(self, check: CheckKey, value: Json, defects: list[Defect]) -> list[Defect]:
        """Keep what a check found; returns it."""
        if len(self._found) >= MAX_REMEMBERED:
            self._found.clear()
        self._found[check] = (value, defects)
        return defects


def checker(schema: Json) -> Checker:
    """The checker of a valid schema (see ``schema_defect``)."""
    return Checker(schema)


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


# -- what is not known yet -------------------------------------------------------


def _is_unknown(value: Json) -> bool:
    return value is UNKNOWN or value is UNKNOWN_TEXT


def _with_unknowns(value: Json, unknown: set[int]) -> Json:
    """A planned value with UNKNOWN for each reference, UNKNOWN_TEXT for each template, and the rest unescaped.

    ``unknown`` gets the ids of the lists and objects in it that have an unknown part.
    """
    if isinstance(value, str):
        return unread_value(value)
    if not isinstance(value, (dict, list)):
        return value
    out = value.copy()
    has_unknown = False
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(child, str):
            if MARK not in child:
                continue
        elif not isinstance(child, (dict, list)):
            has_unknown = has_unknown or _is_unknown(child)
            continue
        out[key] = part = _with_unknowns(child, unknown)
        has_unknown = has_unknown or _is_unknown(part) or id(part) in unknown
    if has_unknown:
        unknown.add(id(out))
    return out


def _add_unknown_containers(value: Json, unknown: set[int]) -> int:
    """Add the ids of the lists and objects that have an unknown part to ``unknown``; returns how many parts it has."""
    if not isinstance(value, (dict, list)):
        return 1
    has_unknown, parts = False, len(value)
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, (dict, list)):
            parts += _add_unknown_containers(child, unknown)
            has_unknown = has_unknown or id(child) in unknown
        elif _is_unknown(child):
            has_unknown = True
    if has_unknown:
        unknown.add(id(value))
    return parts


def _find_unknown(value: Json, checking: WorkMeter | None) -> set[int]:
    """The ids of the lists and objects that have an unknown part; that all parts are looked at is counted."""
    unknown: set[int] = set()
    parts = _add_unknown_containers(value, unknown)
    if checking is not None:
        checking.spent += parts // PARTS_PER_STEP
    return unknown


def _find_large_parts(value: Json) -> dict[str, Json]:
    """The properties of an object that hold large lists or objects."""
    if not isinstance(value, dict):
        return {}
    return {key: part for key, part in value.items() if isinstance(part, (dict, list)) and _is_large(part)}


def _is_large(value: Json) -> bool:
    stack, parts = [value], 0
    while stack:
        part = stack.pop()
        parts += len(part)
        if parts >= LARGE_PARTS:
            return True
        stack.extend(p for p in (part.values() if isinstance(part, dict) else part) if isinstance(p, (dict, list)))
    return False
