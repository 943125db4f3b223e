"""The turns of a planner: the checks of an answer, the answer as it was written, and what came of it.

A Solution is ``{calls, output, tools?}``; ``tools`` names Tools whose schemas the planner wants. What the provider sent
was parsed and brought into the form of the schema by the activity; here its shape is checked, and its output with
references resolved. Its Calls are checked as a plan (``acts/plan/validate.py``).

The turns word what a ``Turn`` (``tree/records.py``) says. An agent makes one per tick, carries them into its next run,
and the activity that asks the model reads them by query. Values that Calls wrote are not kept there: they are messages
of the context, and ``prompt.py`` finds them.

An outcome is ``{call, outcome, _instance?, path?, error?, reason?}``: ``call`` is the Call's id in the answer,
``outcome`` one word, ``path`` where something was written. Equal outcomes of several Calls are one, with ``calls``;
those of one Call in many instances are one, with ``instances``, a number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from acts.language.errors import ExpressionError, Problem, TooComplex, format_choices, suggest, truncate
from acts.language.references import MARK, Path, ReferenceUse, find_embedded, parse_marked, resolve_references
from acts.language.schemas import Checker
from acts.language.tools import Tool
from acts.language.values import MAX_DEPTH, Json, Place, defect, pointer, type_name
from acts.language.wire import SCHEMA_MISMATCH, TOO_COMPLEX, UNRESOLVED
from acts.planner.notation import data_json, in_part
from acts.tree.records import Turn

# Levels of nesting that a plan's Request adds around a Call or a provided Message
DEPTH_RESERVE: Final = 4
_EMPTY: Final = "emptySolution"

COMPLETED: Final = "completed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
REJECTED: Final = "rejected"
STARTED: Final = "started"
NOT_RUN: Final = "not run"
DESCRIBED: Final = "described"  # of Tools: their schemas are shown from now on
# States of Calls in a result whose outcome has another name
_OUTCOME: Final = {"detached": STARTED}
MORE_PROBLEMS: Final = "moreProblems"
# Of a tick's problems, and of the failures of instances, a model is shown these; more of them say nothing new
MAX_PROBLEMS_SHOWN: Final = 20
# Outcomes of instances are listed one by one up to this many, some 2,000 tokens; more are counted, with examples
MAX_INSTANCE_OUTCOMES: Final = 60
_EXAMPLES: Final = 3
# Characters of an error's message, and bytes of its details
_MAX_MESSAGE: Final = 2_000
_MAX_DETAILS_BYTES: Final = 1_024
MAX_TEXT: Final = 2_000  # characters of an answer that is no JSON: its beginning shows what went wrong


# -- a Solution ------------------------------------------------------------------


def shape_problems(solution: Json) -> Iterator[Problem]:
    if not isinstance(solution, dict):
        yield Problem("invalidSolution", f"a Solution is an object {{calls, output}}, not {type_name(solution)}")
        return
    unfit = defect(solution, MAX_DEPTH - DEPTH_RESERVE)
    if unfit:
        yield Problem("invalidSolution", unfit[1], unfit[0])
        return
    for key in solution:
        if key not in ("calls", "output", "tools"):
            yield Problem("invalidSolution", f'unknown key "{key}": a Solution has calls and output', pointer(key))
    if not isinstance(solution.get("tools") or [], list):
        yield Problem("invalidSolution", "tools is a list of names of Tools", "/tools")
    calls = solution.get("calls")
    if calls is not None and not isinstance(calls, list):
        yield Problem("invalidSolution", f"calls is a list of Calls, not {type_name(calls)}", "/calls")


def read_wanted_tools(names: list[Json], tools: Collection[str]) -> tuple[list[str], list[Problem]]:
    """The Tools that an answer wants to see, and a problem for each name that no Tool has."""
    own_names = [name for name in names if isinstance(name, str) and name in tools]
    problems = [
        Problem("unknownTool", f"no tool is called {truncate(data_json(name), 100)}", pointer("tools", index),
                hint=suggest(str(name), tools) or f"known: {format_choices(tools)}")
        for index, name in enumerate(names[:MAX_PROBLEMS_SHOWN]) if name not in own_names
    ]  # fmt: skip
    return list(dict.fromkeys(own_names)), problems


def known_tools(tools: Mapping[str, Tool], search: int | None, turns: Iterable[Turn]) -> Mapping[str, Tool]:
    """The Tools whose schemas a planner has: all, or of more than ``search`` those that its answers named."""
    if search is None or len(tools) <= search:
        return tools
    answers = [turn.answer for turn in turns if isinstance(turn.answer, dict)]
    names = [name for answer in answers if isinstance(answer.get("tools"), list) for name in answer["tools"]]
    calls = [call for answer in answers if isinstance(answer.get("calls"), list) for call in answer["calls"]]
    names += [call.get("_tool") for call in calls if isinstance(call, dict)]
    return {name: tools[name] for name in names if isinstance(name, str) and name in tools}


def output_problems(value: Json, kinds: Container[str]) -> Iterator[Problem]:
    """What is wrong with an output before anything runs; ``kinds`` are those that there are then."""
    for at, text in _marked_texts(value):
        try:
            use = ReferenceUse.of(at, text, parse_marked(text))
        except ExpressionError as error:
            yield Problem("invalidExpression", f"{error} in {text!r}", pointer("output", *at))
            continue
        if (problem := find_embedded(use, kinds)) is not None:
            yield replace(problem, pointer="/output" + problem.pointer)


def _marked_texts(value: Json, *at: str | int) -> Iterator[tuple[Place, str]]:
    """Each string of an output with a ``†``, and its place; an object with ``_tool`` is literal data."""
    if isinstance(value, str) and MARK in value:
        yield at, value
    is_open = isinstance(value, dict) and "_tool" not in value
    for key, child in value.items() if is_open else enumerate(value) if isinstance(value, list) else ():
        yield from _marked_texts(child, *at, key)


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


# -- what came of it -------------------------------------------------------------


def problem_items(problems: Sequence[Problem]) -> tuple[dict[str, Any], ...]:
    """Problems of an answer as a planner is shown them, the first of them."""
    out: list[dict[str, Any]] = []
    for problem in problems[:MAX_PROBLEMS_SHOWN]:
        fields = {"code": problem.code, "message": truncate(problem.message, _MAX_MESSAGE)}
        fields |= {k: v for k, v in (("pointer", problem.pointer), ("hint", problem.hint)) if v}
        out.append(fields if problem.call is None else {"call": problem.call, **fields})
    more = len(problems) - MAX_PROBLEMS_SHOWN
    return (*out, {"code": MORE_PROBLEMS, "message": f"… and {more} more problems"}) if more > 0 else tuple(out)


def answer_ids(calls: Sequence[Json]) -> list[str]:
    return [f"{i}:{call.get('_tool') if isinstance(call, dict) else '?'}" for i, call in enumerate(calls, 1)]


def unrun_outcomes(calls: Json, outcome: str = NOT_RUN, reason: str | None = None) -> tuple[dict[str, Any], ...]:
    """The one outcome of all Calls of an answer of which none was run."""
    if not isinstance(calls, list) or not calls:
        return ()
    ids = answer_ids(calls)
    shared = {"outcome": outcome} if reason is None else {"outcome": outcome, "reason": truncate(reason, _MAX_MESSAGE)}
    return ({"call": ids[0], **shared} if len(ids) == 1 else {"calls": ids, **shared},)


def call_outcomes(
    items: Iterable[Mapping[str, Any]], skip_reason: Callable[[Mapping[str, Any]], str | None]
) -> tuple[dict[str, Any], ...]:
    """The outcomes of Calls that were walked; ``items`` are those of a result: ``{id, state, instance?, …}``."""
    listed = [_outcome(item, skip_reason) for item in items]
    own = [item for item in listed if "_instance" not in item]
    instances = [item for item in listed if "_instance" in item]
    if len(instances) > MAX_INSTANCE_OUTCOMES:
        instances = _count_instances(instances)
    return (*join_equal(own), *instances)


def _outcome(item: Mapping[str, Any], skip_reason: Callable[[Mapping[str, Any]], str | None]) -> dict[str, Any]:
    state, error = item["state"], item.get("error")
    own = {"_instance": item["instance"]} if "instance" in item else {}
    out: dict[str, Any] = {"call": item["id"], **own, "outcome": _OUTCOME.get(state, state)}
    if "call" in item:
        out["changedTo"] = item["call"]
    if state == REJECTED:
        out["reason"] = truncate(str((error or {}).get("message", "")), _MAX_MESSAGE)
    elif error is not None:
        short = {"code": error.get("code"), "message": truncate(str(error.get("message")), _MAX_MESSAGE)}
        if error.get("details") is not None:
            short["details"] = in_part(error["details"], None, _MAX_DETAILS_BYTES)
        out |= {"outcome": FAILED, "error": short}
    elif state == SKIPPED:
        reason = item.get("reason") or skip_reason(item)
        out |= {} if reason is None else {"reason": reason}
    if item.get("outputPath"):
        out["path"] = item["outputPath"]
    return out


def join_equal(outcomes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Consecutive outcomes that differ only in their Call, and wrote nothing, as one."""
    out: list[dict[str, Any]] = []
    for rest, group in groupby(outcomes, lambda o: {k: v for k, v in o.items() if k != "call"}):
        same = list(group)
        if len(same) == 1 or "path" in rest or "error" in rest:
            out += same
        else:
            out.append({"calls": [item["call"] for item in same], **rest})
    return out


def _count_instances(outcomes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Outcomes of instances, counted by Call and outcome; failures are named as far as there are few."""
    groups: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for item in outcomes:
        groups.setdefault((item.get("call"), item["outcome"]), []).append(item)
    out: list[dict[str, Any]] = []
    for (call, outcome), same in groups.items():
        fields: dict[str, Any] = {"call": call, "outcome": outcome, "instances": len(same)}
        if outcome in (FAILED, REJECTED):
            named = [{k: item[k] for k in ("_instance", "error", "reason") if k in item} for item in same]
            fields["of"] = named[:MAX_PROBLEMS_SHOWN]
        else:
            fields["examples"] = [item["_instance"] for item in same[:_EXAMPLES]]
        path = same[0].get("path")
        out.append(fields if path is None or outcome == FAILED else {**fields, "path": path})
    return out
