"""The report on each Call of a walk, as results, ``status`` and pages show it. It reads a walk and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.wire import EACH_FAILED
from acts.plan.calls import UNIT

if TYPE_CHECKING:
    from collections.abc import Collection

    from acts.machines.walk import Walk

_FAILED: Final = ("failed", "rejected")
# Results of elements in the error of a Call, in a status that is asked for again and again
MAX_RESULTS_SHOWN: Final = 100


def call_item(walk: Walk, rank: int, in_queue: Collection[str] = ()) -> dict[str, Any]:
    """``{id, tool, state, instance?, outputPath?, error?, reason?, elements?, call?, waitsFor?, taskQueue?}``.

    ``reason`` says why a Call was skipped; ``elements`` is ``{total, completed, failed, running}``. ``call`` is the
    Call as planned, if a person put it into the plan and it failed: no plan message has it. The results of many
    elements are left out of the ``error``: ``errors`` has them.
    ``in_queue`` are the keys of Calls that no worker has taken: they are ``ready``, in their ``taskQueue``.
    """
    node, call = walk.nodes[rank], walk.calls[rank]
    out: dict[str, Any] = {"id": node.id, "tool": node.tool.name, "state": call.state}
    if call.state == "running" and node.key in in_queue:
        out |= {"state": "ready", "taskQueue": node.tool.options.taskQueue}
    has_failed_edit = call.edited and call.state in (*_FAILED, "cancelled")
    more = {
        "instance": node.instance, "outputPath": call.output_path, "error": call.error and _shorten_error(call.error),
        "reason": call.reason, "elements": call.elements and call.elements.counts(),
        "call": node.planned if has_failed_edit else None, "waitsFor": list(call.missing) or None,
    }  # fmt: skip
    return out | {name: value for name, value in more.items() if value is not None}


def _shorten_error(error: dict[str, Any]) -> dict[str, Any]:
    """An error as lists of Calls show it: of many elements, the first failures alone."""
    details = error.get("details") if error["code"] == EACH_FAILED else None
    is_long = isinstance(details, dict) and len(details.get("results", ())) > MAX_RESULTS_SHOWN
    return {**error, "details": {"errors": details["errors"][:MAX_RESULTS_SHOWN]}} if details and is_long else error


def calls(walk: Walk, in_queue: Collection[str] = ()) -> list[dict[str, Any]]:
    """Every Call, in the order in which the plan lists them; batch children are none. ``in_queue``: ``call_item``."""
    ranks = [rank for rank, node in enumerate(walk.nodes) if node.kind != UNIT]
    return [call_item(walk, rank, in_queue) for rank in sorted(ranks, key=lambda rank: walk.nodes[rank].index)]


def error_item(walk: Walk, rank: int) -> dict[str, Any] | None:
    """``{call, instance?, code, message}`` of a Call that failed without an error path, or None."""
    node, call = walk.nodes[rank], walk.calls[rank]
    if call.state not in _FAILED or call.error is None:
        return None
    item = {"call": node.id, **call.error}
    return item if node.instance is None else {**item, "instance": node.instance}


def errors(walk: Walk) -> list[dict[str, Any]]:
    """The failures that no error path took, those in batch children among them."""
    own = [error for rank in range(len(walk.nodes)) if (error := error_item(walk, rank)) is not None]
    reports = (item for call in walk.calls for item in (call.value or {}).items())
    return [*own, *({**error, "instance": id_} for id_, report in reports for error in report["errors"])]
