"""A Solution, ``{calls, output}``: what keeps an answer from being one, and its output with references resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acts.language.errors import ExpressionError, Problem
from acts.language.references import is_reference, parse, resolve
from acts.language.values import MAX_DEPTH, Json, defect, pointer, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acts.language.references import Path

# Levels by which a Call, or a provided Message, stands deeper in the Request of its plan
ROOM: Final = 4


def shape_problems(solution: Json) -> Iterator[Problem]:
    """What keeps an answer from being a Solution."""
    if not isinstance(solution, dict):
        yield Problem("invalidSolution", f"a Solution is an object {{calls, output}}, not {type_name(solution)}")
        return
    broken = defect(solution, MAX_DEPTH - ROOM)
    if broken:
        yield Problem("invalidSolution", broken[1], broken[0])
        return
    for key in solution:
        if key not in ("calls", "output"):
            yield Problem("invalidSolution", f'unknown key "{key}": a Solution has calls and output', pointer(key))
    calls = solution.get("calls")
    if calls is not None and not isinstance(calls, list):
        yield Problem("invalidSolution", f"calls is a list of Calls, not {type_name(calls)}", "/calls")


def output_problems(value: Json, *at: str | int) -> Iterator[Problem]:
    """Malformed expressions in an output."""
    if isinstance(value, str) and is_reference(value):
        try:
            parse(value)
        except ExpressionError as error:
            yield Problem("invalidExpression", f"{error} in {value!r}", pointer("output", *at))
    for key, child in _children(value):
        yield from output_problems(child, *at, key)


def _children(value: Json) -> Iterator[tuple[str | int, Json]]:
    """The parts of an output; an object with ``_tool`` is data and has none."""
    if isinstance(value, dict) and "_tool" not in value:
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def resolved_output(value: Json, read: Callable[[Path], Json], missing: list[str]) -> Json:
    """An output with its references resolved, at any depth; what has ``_tool`` is left alone."""
    if isinstance(value, dict):
        if "_tool" in value:
            return value
        return {key: resolved_output(child, read, missing) for key, child in value.items()}
    if isinstance(value, list):
        return [resolved_output(child, read, missing) for child in value]
    return resolve(value, read, missing)


def call_at(where: str, calls: list[Json]) -> Json:
    """The Call that a pointer like ``/calls/2/x`` leads into, or None."""
    parts = where.split("/")
    inside = len(parts) > 2 and parts[1] == "calls" and parts[2].isdigit()  # noqa: PLR2004 - "", "calls", index
    return calls[int(parts[2])] if inside and int(parts[2]) < len(calls) else None
