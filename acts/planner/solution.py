"""A Solution, ``{calls, output}``: the checks of its shape, and its output with references resolved.

The one reading of a model's answer on this side of the activity: what the provider sent was parsed and brought into the
form of the schema by the activity; here it is checked as a Solution. Its Calls are checked as a plan
(``acts/plan/validate.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from acts.language.errors import ExpressionError, Problem, TooComplex
from acts.language.references import MARK, ReferenceUse, find_embedded, parse_marked, resolve_references
from acts.language.schemas import Checker
from acts.language.values import MAX_DEPTH, Json, Place, defect, pointer, type_name
from acts.language.wire import SCHEMA_MISMATCH, TOO_COMPLEX, UNRESOLVED

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from acts.language.references import Path

# Levels of nesting that a plan's Request adds around a Call or a provided Message
DEPTH_RESERVE: Final = 4

_EMPTY: Final = "emptySolution"


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


def output_problems(value: Json) -> Iterator[Problem]:
    """The malformed expressions and templates in an output."""
    for at, text in _marked_texts(value):
        try:
            parse_marked(text)
        except ExpressionError as error:
            yield Problem("invalidExpression", f"{error} in {text!r}", pointer("output", *at))


def _marked_texts(value: Json, *at: str | int) -> Iterator[tuple[Place, str]]:
    """Each string of an output with a ``†``, and its place."""
    if isinstance(value, str) and MARK in value:
        yield at, value
    for key, child in _children(value):
        yield from _marked_texts(child, *at, key)


def _children(value: Json) -> Iterator[tuple[str | int, Json]]:
    """The items of an object or list; an object with ``_tool`` is literal data and has none."""
    if isinstance(value, dict) and "_tool" not in value:
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def check_output(
    wanted: Json, schema: Json, read: Callable[[Path], Json], kinds: Container[str]
) -> tuple[Json, list[Problem]]:
    """The output that a model wants to give with its references resolved, or why it does not hold.

    ``read`` is the context now, ``kinds`` are those in it.
    """
    if wanted is None:
        return None, [Problem(_EMPTY, "the answer has neither calls nor an output: give one of them")]
    uses = [ReferenceUse.of(at, text, parse_marked(text)) for at, text in _marked_texts(wanted)]
    embedded = [problem for use in uses if (problem := find_embedded(use, kinds)) is not None]
    if embedded:
        return None, [replace(problem, pointer="/output" + problem.pointer) for problem in embedded]
    try:
        output, absent = resolve_references(wanted, uses, read)
        if absent:
            listed = ", ".join(dict.fromkeys(text for use in absent for text in use.absent_texts(read)))
            return None, [Problem(UNRESOLVED, f"the output refers to {listed}, and nothing is there", "/output")]
        if output is None:
            return None, [Problem(_EMPTY, "the output refers to null: that is no output", "/output")]
        defects = [] if schema is None else Checker(schema).defects(output)
    except TooComplex as error:
        return None, [Problem(TOO_COMPLEX, f"the output: {error}", "/output")]
    problems = [Problem(SCHEMA_MISMATCH, f"the output: {why}", pointer("output", *at)) for at, why in defects]
    return None if problems else output, problems


def call_at(location: str, calls: Sequence[Json]) -> Json:
    """The Call that a JSON pointer like ``/calls/2/x`` leads into, or None."""
    tokens = location.split("/")
    is_inside = len(tokens) > 2 and tokens[1] == "calls" and tokens[2].isdigit()  # noqa: PLR2004 - "", "calls", index
    return calls[int(tokens[2])] if is_inside and int(tokens[2]) < len(calls) else None
