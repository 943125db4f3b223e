"""The turns of a planner: each answer as it was written, and what came of it.

Laws of this file: it words what a ``Turn`` (``tree/records.py``) says. An agent makes one per tick, carries them into
its next run, and the activity that asks the model reads them by query. Values that Calls wrote are not kept there:
they are messages of the context, and ``conversation.py`` finds them.

An outcome is ``{call, outcome, _instance?, path?, error?, reason?}``: ``call`` is the Call's id in the answer,
``outcome`` one word, ``path`` where something was written. Equal outcomes of several Calls are one, with ``calls``;
those of one Call in many instances are one, with ``instances``, a number.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import Problem, truncate
from acts.language.values import Json
from acts.planner.notation import in_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

COMPLETED: Final = "completed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
REJECTED: Final = "rejected"
STARTED: Final = "started"
NOT_RUN: Final = "not run"
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
# Characters of an answer that is no JSON: its beginning shows what went wrong
MAX_TEXT: Final = 2_000


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
    """The ids of the Calls of an answer, which need not be valid."""
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
        out |= {"outcome": FAILED, "error": _short_error(error)}
    elif state == SKIPPED:
        reason = item.get("reason") or skip_reason(item)
        out |= {} if reason is None else {"reason": reason}
    if item.get("outputPath"):
        out["path"] = item["outputPath"]
    return out


def _short_error(error: Mapping[str, Any]) -> dict[str, Any]:
    out = {"code": error.get("code"), "message": truncate(str(error.get("message")), _MAX_MESSAGE)}
    details = error.get("details")
    return out if details is None else {**out, "details": in_part(details, None, _MAX_DETAILS_BYTES)}


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
