"""Where a result goes: which outcome it takes, what is written, what is appended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError
from acts.language.messages import DATA_TYPES
from acts.language.references import Path
from acts.language.values import ABSENT, MAX_DEPTH, Json, Names, defect, get, nest
from acts.language.wire import NOT_JSON, OUTSIDE_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acts.plan.planned_call import PlannedCall

Writes = tuple[tuple[Path, Json], ...]

_BESIDE_PAYLOAD: Final = frozenset({"kind", "schema", "description"})


def is_message(value: Json) -> bool:
    """True for a data-like Message: the wrapped form, and nothing but it."""
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    return (
        isinstance(kind, str)
        and kind in DATA_TYPES
        and kind in value
        and all(k in ("type", kind) or k in _BESIDE_PAYLOAD for k in value)
    )


def place_result(node: PlannedCall, value: Json, chosen: int | None = None) -> tuple[int, Writes]:
    """The outcome that a result takes and what it writes there.

    ``chosen`` is the outcome that came with it (a model's choice); an Activity chooses
    by the Message that it returns.

    Raises:
        CallError: the result is not JSON, or a Message that fits no one outcome.
    """
    # A written value stands in a message of a context of a Request: that deep it must fit again
    deepest = max((len(p.names) for o in node.outcomes for p in o), default=0)
    broken = defect(value, MAX_DEPTH - 3 - deepest)
    if broken:
        raise CallError(NOT_JSON, f"the result cannot be kept: {broken[1]}" + (f" at {broken[0]}" if broken[0] else ""))
    if not node.result_outcome_count:
        return 0, ()  # only its failure is written
    if chosen is not None or not node.acts or not is_message(value):
        return chosen or 0, tuple((path, value) for path in node.outcomes[chosen or 0])
    return _by_message(node, value)


def _by_message(node: PlannedCall, value: dict[str, Any]) -> tuple[int, Writes]:
    """The outcome that a Message chooses by what it holds."""
    kind = value.get("kind", value["type"])
    payload = value[value["type"]]
    taken = [i for i, paths in enumerate(node.result_outcomes) if any(_holds(kind, payload, p) for p in paths)]
    offered = " || ".join(" && ".join(str(p) for p in o) for o in node.result_outcomes)
    if len(taken) > 1:  # alternatives that share paths: the one that takes all of the message
        whole = [i for i in taken if all(_covered(kind, leaf, node.outcomes[i]) for leaf in _leaves(payload, ()))]
        taken = whole if len(whole) == 1 else taken
    if len(taken) > 1:
        raise CallError(
            OUTSIDE_OUTPUT, f"the returned message writes at {len(taken)} alternatives of {offered}; exactly one may be"
        )
    if not taken:
        raise CallError(OUTSIDE_OUTPUT, f"the returned message holds nothing at {offered}")
    chosen = node.outcomes[taken[0]]
    for leaf in _leaves(payload, ()):
        if not _covered(kind, leaf, chosen):
            raise CallError(OUTSIDE_OUTPUT, f"the returned message also writes {Path(kind, leaf)}, outside {offered}")
    first = next(get(payload, p.names) for p in chosen if _holds(kind, payload, p))
    return taken[0], tuple((p, get(payload, p.names) if _holds(kind, payload, p) else first) for p in chosen)


def appended_message(node: PlannedCall, path: Path, value: Json, date: str) -> dict[str, Any]:
    """The Message that one write appends to the context, provenance included."""
    return build_message(node.planned, node.method, path, value, date, node.instance)


def build_message(
    planned: Json, method: str, path: Path, value: Json, date: str, instance: str | None = None
) -> dict[str, Any]:
    """What ``appended`` is of a Call that was planned so, and writes so."""
    kind = "state" if path.kind == "state" else "data"
    out = {
        "type": kind, "kind": path.kind, kind: nest(path.names, value), "_call": planned, "_date": date,
        "_outputPath": str(path), "_outputMethod": method,
    }  # fmt: skip
    return out if instance is None else {**out, "_instance": instance}


def _covered(kind: Json, leaf: Names, outcome: tuple[Path, ...]) -> bool:
    return any(p.kind == kind and leaf[: len(p.names)] == p.names for p in outcome)


def _holds(kind: Json, payload: Json, path: Path) -> bool:
    return path.kind == kind and get(payload, path.names) is not ABSENT


def _leaves(value: Json, at: Names) -> Iterator[Names]:
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _leaves(child, (*at, key))
    else:
        yield at
