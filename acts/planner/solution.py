"""A Solution, ``{calls, output}``: the checks of its shape, and its output with references resolved.

The one reading of a model's answer on this side of the activity: what the provider sent was parsed and brought into the
form of the schema by the activity; here it is checked as a Solution. Its Calls are checked as a plan
(``acts/plan/validate.py``).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from acts.language.errors import ExpressionError, Problem
from acts.language.reference_uses import find_embedded, parse_marked, resolve
from acts.language.references import MARK
from acts.language.values import MAX_DEPTH, Json, defect, pointer, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from acts.language.references import Path

# Levels of nesting that a plan's Request adds around a Call or a provided Message
DEPTH_RESERVE: Final = 4


def shape_problems(solution: Json) -> Iterator[Problem]:
    """Each reason why an answer is not a Solution."""
    if not isinstance(solution, dict):
        yield Problem("invalidSolution", f"a Solution is an object {{calls, output}}, not {type_name(solution)}")
        return
    unfit = defect(solution, MAX_DEPTH - DEPTH_RESERVE)
    if unfit:
        yield Problem("invalidSolution", unfit[1], unfit[0])
        return
    for key in solution:
        if key not in ("calls", "output"):
            yield Problem("invalidSolution", f'unknown key "{key}": a Solution has calls and output', pointer(key))
    calls = solution.get("calls")
    if calls is not None and not isinstance(calls, list):
        yield Problem("invalidSolution", f"calls is a list of Calls, not {type_name(calls)}", "/calls")


def output_problems(value: Json, *at: str | int) -> Iterator[Problem]:
    """The malformed expressions and templates in an output; ``at`` is the path to ``value`` inside it."""
    if isinstance(value, str) and MARK in value:
        try:
            parse_marked(value)
        except ExpressionError as error:
            yield Problem("invalidExpression", f"{error} in {value!r}", pointer("output", *at))
    for key, child in _children(value):
        yield from output_problems(child, *at, key)


def embedded_problems(value: Json, kinds: Container[str], *at: str | int) -> Iterator[Problem]:
    """The texts of an output, without malformed expressions, that hold a path of one of these kinds unreplaced."""
    if isinstance(value, str) and MARK in value:
        found = (e for e in find_embedded(at, value, parse_marked(value)) if e.is_mistaken(kinds, each=False))
        for embedded in islice(found, 1):
            yield embedded.to_problem(pointer("output", *at))
    for key, child in _children(value):
        yield from embedded_problems(child, kinds, *at, key)


def _children(value: Json) -> Iterator[tuple[str | int, Json]]:
    """The items of an object or list; an object with ``_tool`` is literal data and has none."""
    if isinstance(value, dict) and "_tool" not in value:
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def resolve_output(value: Json, read: Callable[[Path], Json], missing: list[str]) -> Json:
    """The output with its references resolved at any depth; an object with ``_tool`` is returned unchanged.

    ``missing`` receives the references that lead to no value.
    """
    if isinstance(value, dict):
        if "_tool" in value:
            return value
        return {key: resolve_output(child, read, missing) for key, child in value.items()}
    if isinstance(value, list):
        return [resolve_output(child, read, missing) for child in value]
    return resolve(value, read, missing)


def call_at(location: str, calls: list[Json]) -> Json:
    """The Call that a JSON pointer like ``/calls/2/x`` leads into, or None."""
    tokens = location.split("/")
    is_inside = len(tokens) > 2 and tokens[1] == "calls" and tokens[2].isdigit()  # noqa: PLR2004 - "", "calls", index
    return calls[int(tokens[2])] if is_inside and int(tokens[2]) < len(calls) else None
