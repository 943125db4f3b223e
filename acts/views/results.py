"""The result of a plan as JSON, and the message of a workflow that failed. Pure.

How a person sees a run is for ``web_page``; the state of a single Call is for ``call_report``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import truncate
from acts.language.shared_sizes import SharedSizes
from acts.language.strict_json import json_size
from acts.machines.call_report import calls, errors
from acts.machines.instance_results import instance_messages, instance_summaries
from acts.plan.result_placement import appended_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.language.usage import Usage
    from acts.machines.loop import Loop
    from acts.machines.walk import Walk

# Failures that the message of a failed workflow names, and the characters of each
MAX_FAILURES: Final = 50
MAX_FAILURE: Final = 300


def build_result(walk: Walk, usage: Usage, status: str | None = None) -> dict[str, Any]:
    """The result of a Plan: ``{status, state, instances?, calls, context, errors, usage}``."""
    items = calls(walk)
    out: dict[str, Any] = {"status": status or walk.status, "state": walk.state()}
    if walk.prepared.request.instances():
        out["instances"] = instance_items(walk)
        items = [item for item in items if "instance" not in item]
    return {
        **out, "calls": items, "context": appended_messages(walk), "errors": errors(walk), "usage": usage.to_json(),
    }  # fmt: skip


def build_batch_result(
    walk: Walk, usage: Usage, status: str | None, limit: int
) -> tuple[dict[str, Any], dict[str, int]]:
    """The result of a Plan, and the bytes that were left out of its parts; of messages about so many.

    Of a batch whose children have reported more than ``limit`` bytes, ``cut_result`` keeps the statuses alone. So its
    states are not folded, and the messages of its instances are not written, only to be left out: 20,000 instances
    would take a workflow task of ten seconds, and some hundred megabytes.
    """
    reports = {id_: item for call in walk.calls for id_, item in (call.value or {}).items()}
    sizes = SharedSizes()
    state_bytes = json_size([item["state"] for item in reports.values()])
    others = sum(sizes.size(item["calls"]) + sizes.size(item["errors"]) for item in reports.values())
    if not reports or state_bytes + others <= limit:
        return build_result(walk, usage, status), {}
    idle = _idle_summary(walk)
    items = {
        id_: {key: item[key] for key in ("status", "calls", "errors")}
        for id_ in walk.prepared.request.instances()
        for item in (reports.get(id_, idle),)
    }
    first = next(iter(reports))
    messages = instance_messages(walk.context.calls_by_instance, first, reports[first])
    out = {
        "status": status or walk.status, "state": walk.state(), "instances": items,
        "calls": [item for item in calls(walk) if "instance" not in item], "context": walk.appended(),
        "errors": errors(walk), "usage": usage.to_json(),
    }  # fmt: skip
    return out, {"instances": state_bytes, "context": (json_size([m for _, m in messages]) - 2) * len(reports)}


def _idle_summary(walk: Walk) -> dict[str, Any]:
    """The report on an instance without Calls, or one that was not reached."""
    status = walk.status if walk.status in ("cancelled", "rejected") else "completed"
    return {"status": status, "calls": [], "errors": []}


def instance_items(walk: Walk) -> dict[str, dict[str, Any]]:
    """``{id: {status, state, calls, errors}}``, in the order in which the context has the instances."""
    summaries = instance_summaries(walk)
    for run in walk.calls:
        summaries |= run.value or {}
    idle = _idle_summary(walk)
    return {id_: _instance_item(walk, id_, summaries.get(id_, idle)) for id_ in walk.prepared.request.instances()}


def _instance_item(walk: Walk, id_: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    shared = {key: summary[key] for key in ("calls", "errors")}
    return {"status": summary["status"], "state": walk.state(id_), **shared}


def appended_messages(walk: Walk) -> list[dict[str, Any]]:
    """The messages after those of the Request: provided ones, then outputs in plan order, of children too."""
    by_rank = [pair for run in walk.calls for id_, item in (run.value or {}).items()
               for pair in instance_messages(walk.context.calls_by_instance, id_, item)]  # fmt: skip
    if not by_rank:
        return walk.appended()
    if list(walk.context.calls_by_instance) != [None]:  # no template: the run itself walks the global Calls
        ranks = {n.key: rank for rank, n in enumerate(walk.prepared.unsplit.nodes)} if walk.prepared.unsplit else {}
        for node, run in zip(walk.nodes, walk.calls, strict=True):
            by_rank += [(ranks[node.key], appended_message(node, *write)) for write in run.written]
        by_rank.sort(key=lambda pair: pair[0])
    return [*walk.provided, *(message for _, message in by_rank)]


def failure_text(walk: Walk) -> str:
    """The message of a failed workflow: one line per failure."""
    failures = errors(walk)
    lines = [f"- {_call_of(e)}: [{e['code']}] {truncate(str(e['message']), MAX_FAILURE)}" for e in failures]
    if len(lines) > MAX_FAILURES:
        lines[MAX_FAILURES:] = [f"- … and {len(lines) - MAX_FAILURES} more"]
    if walk.prepared.unsplit is not None:
        head = f"{len(failures)} calls failed in {len(dict.fromkeys(e.get('instance') for e in failures))} instances"
    else:
        skipped = walk.counts.get("skipped", 0)
        head = f"{len(failures)} of {len(walk.nodes)} calls failed" + (f", {skipped} skipped" if skipped else "")
    return "\n".join([head + ":", *lines])


def _call_of(error: Mapping[str, Any]) -> str:
    return f"{error['call']} [{error['instance']}]" if "instance" in error else str(error["call"])


def build_agent_result(loop: Loop, status: str) -> dict[str, Any]:
    """The result of an Agent: ``{status, output, ticks, state, instances?, calls, context, errors, usage}``."""
    ids = loop.request.instances()
    more = {"instances": {id_: _agent_instance(loop, id_, status) for id_ in ids}} if ids else {}
    return {
        "status": status, "output": loop.output, "ticks": loop.tick, "state": loop.context.state(), **more,
        "calls": loop.results.calls, "context": loop.context.appended(), "errors": loop.results.errors,
        "usage": loop.usage.to_json(),
    }  # fmt: skip


def _agent_instance(loop: Loop, id_: str, status: str) -> dict[str, Any]:
    """One instance of an agent: ``{status, state, calls, errors}``; ``status`` is that of the run."""
    item = loop.results.instances.get(id_, {"status": status, "calls": [], "errors": []})
    return {
        "status": item["status"], "state": loop.context.state(id_), "calls": item["calls"], "errors": item["errors"],
    }  # fmt: skip
