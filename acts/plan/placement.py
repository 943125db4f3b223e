"""Where the result of a Call goes: its outcome, its writes, and the Messages that record them.

Nothing is written here, and whether a write can be applied is for the context log to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError
from acts.language.messages import DATA_TYPES
from acts.language.references import Path
from acts.language.tools import is_server_tool
from acts.language.values import ABSENT, MAX_DEPTH, Json, Names, defect, get, nest
from acts.language.wire import NOT_JSON, OUTSIDE_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acts.plan.calls import PlannedCall


Writes = tuple[tuple[Path, Json], ...]

_BESIDE_PAYLOAD: Final = frozenset({"kind", "schema", "description"})


def is_message(value: Json) -> bool:
    """True for a data-like Message in wrapped form."""
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    return (
        isinstance(kind, str)
        and kind in DATA_TYPES
        and kind in value
        and all(k in ("type", kind) or k in _BESIDE_PAYLOAD for k in value)
    )


def place_result(call: PlannedCall, value: Json, chosen: int | None = None) -> tuple[int, Writes]:
    """The outcome that the result of a Call takes, and what it writes there.

    ``chosen`` is the index of the outcome that a model chose. An Activity chooses by returning a
    Message; what a tool of an MCP server returns is a value, whatever it looks like.

    Raises:
        CallError: the result is not JSON, or a Message that does not fit exactly one outcome.
    """
    refuse_defects(call, value)
    if not call.result_outcome_count:
        return 0, ()  # only a failure is written
    if chosen is not None or not call.runs_activity or is_server_tool(call.tool.schema) or not is_message(value):
        return chosen or 0, tuple((path, value) for path in call.outcomes[chosen or 0])
    return _place_message(call, value)


def refuse_defects(call: PlannedCall, value: Json, *, levels: int = 0) -> None:
    """Refuse a result that cannot be stored; ``levels`` of nesting are put around it first.

    Raises:
        CallError: ``NotJson``.
    """
    # A write is stored inside a message of the context of a Request, and nested under its path
    deepest = max((len(p.names) for o in call.outcomes for p in o), default=0)
    reason = defect(value, MAX_DEPTH - 3 - deepest - levels)
    if reason:
        at = f" at {reason[0]}" if reason[0] else ""
        raise CallError(NOT_JSON, f"the result cannot be stored: {reason[1]}{at}")


def _place_message(call: PlannedCall, message: dict[str, Any]) -> tuple[int, Writes]:
    """The outcome that a Message chooses by its payload, and the parts of it that are written."""
    kind = message.get("kind", message["type"])
    payload = message[message["type"]]
    leaves = list(_leaves(payload, ()))
    chosen = _choose_outcome(call.result_outcomes, kind, payload, leaves)
    if len(chosen) > 1:
        text = f"the returned message writes at {len(chosen)} alternatives of {_offer(call)}; exactly one is allowed"
        raise CallError(OUTSIDE_OUTPUT, text)
    if not chosen:
        raise CallError(OUTSIDE_OUTPUT, f"the returned message has nothing at {_offer(call)}")
    outcome = call.outcomes[chosen[0]]
    for leaf in leaves:
        if not _is_covered(kind, leaf, outcome):
            text = f"the returned message also writes {Path(kind, leaf)}, outside {_offer(call)}"
            raise CallError(OUTSIDE_OUTPUT, text)
    first = next(get(payload, p.names) for p in outcome if _has(kind, payload, p))
    return chosen[0], tuple((p, get(payload, p.names) if _has(kind, payload, p) else first) for p in outcome)


def _offer(call: PlannedCall) -> str:
    return " || ".join(call.outcome_texts)


def _choose_outcome(
    outcomes: Sequence[tuple[Path, ...]], kind: Json, payload: Json, leaves: Sequence[Names]
) -> list[int]:
    """The indexes of the outcomes that a Message may mean: one if all is well.

    Of several with a path that the Message holds, it means the one of which it holds every path, and of those
    the one with most paths. Where that leaves none or several, it means the one that covers all of the Message.
    """
    matching = [i for i, paths in enumerate(outcomes) if any(_has(kind, payload, p) for p in paths)]
    if len(matching) < 2:  # noqa: PLR2004 - two can be confused
        return matching
    complete = [i for i in matching if all(_has(kind, payload, p) for p in outcomes[i])]
    most = max((len(outcomes[i]) for i in complete), default=0)
    widest = [i for i in complete if len(outcomes[i]) == most] or matching
    covering = [i for i in widest if all(_is_covered(kind, leaf, outcomes[i]) for leaf in leaves)]
    return covering if len(covering) == 1 else widest


def appended_message(call: PlannedCall, path: Path, value: Json, date: str) -> dict[str, Any]:
    """The Message that one write of a Call appends to the context, provenance included."""
    return build_message(call.planned, call.method, path, value, date, call.instance)


def build_message(
    planned: Json, method: str, path: Path, value: Json, date: str, instance: str | None = None
) -> dict[str, Any]:
    """The Message that a write appends, from the planned JSON of its Call and the write itself."""
    type_ = "state" if path.kind == "state" else "data"
    message = {
        "type": type_, "kind": path.kind, type_: nest(path.names, value), "_call": planned, "_date": date,
        "_outputPath": str(path), "_outputMethod": method,
    }  # fmt: skip
    return message if instance is None else {**message, "_instance": instance}


def _is_covered(kind: Json, leaf: Names, outcome: tuple[Path, ...]) -> bool:
    return any(p.kind == kind and leaf[: len(p.names)] == p.names for p in outcome)


def _has(kind: Json, payload: Json, path: Path) -> bool:
    return path.kind == kind and get(payload, path.names) is not ABSENT


def _leaves(value: Json, at: Names) -> Iterator[Names]:
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _leaves(child, (*at, key))
    else:
        yield at
