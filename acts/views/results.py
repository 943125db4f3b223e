"""The result of a plan or an agent as JSON, as much of it as may be recorded, and the text of a failure.

Of a result that is too large the largest entries go, whatever part they are in; ``calls``, ``errors`` and ``instances``
lose entries only where that is not enough. ``omitted`` says what was cut, how large it was, and which query has it::

    {"bytes": {"state": 900002}, "how": …,
     "cut": [{"at": "/state/report", "bytes": 900002, "query": "context", "argument": {"path": "†state.report"}}]}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from acts.language.config import Usage
from acts.language.errors import truncate
from acts.language.references import Path
from acts.language.strict_json import SharedSizes, json_size
from acts.language.values import pointer
from acts.language.wire import CONTEXT, STATUS
from acts.machines.agent_run import AgentRun
from acts.machines.call_state import call_items, error_items
from acts.machines.plan_run import call_summary, calls_by_instance
from acts.machines.walk import Walk
from acts.plan.context_log import appended_message

# Failures that the message of a failed workflow names, and the characters of each
MAX_FAILURES: Final = 50
MAX_FAILURE: Final = 300


def build_result(walk: Walk, usage: Usage, status: str | None = None, batch_limit: int | None = None) -> dict[str, Any]:
    """The result of a Plan: ``{status, state, instances?, calls, context, errors, usage}``.

    When the children of its instances have reported more than ``batch_limit`` bytes, only their statuses are in it:
    to build 20,000 states and messages that ``cut_result`` drops would take a workflow task of ten seconds.
    """
    items = call_items(walk.calls)
    out: dict[str, Any] = {"status": status or walk.status, "state": walk.context.log.state()}
    reported = 0 if batch_limit is None else json_size([call.value for call in walk.calls if call.value])
    is_large = batch_limit is not None and reported > batch_limit
    if ids := walk.prepared.request.instances():
        # An instance without Calls, or one that was not reached
        idle = out["status"] if out["status"] in ("cancelled", "rejected") or not walk.has_begun else "completed"
        own = {} if walk.has_begun else {"status": idle}
        reports = {id_: {**call_summary(calls), **own} for id_, calls in calls_by_instance(walk).items()}
        for run in walk.calls:
            reports |= run.value or {}
        out["instances"] = _instance_items(ids, reports, idle, None if is_large else walk.context.log.state)
        items = [item for item in items if "instance" not in item]
    out |= {
        "calls": items, "context": walk.context.appended() if is_large else appended_messages(walk),
        "errors": plan_errors(walk), "usage": usage.to_json(),
    }  # fmt: skip
    return {**out, "omitted": {"bytes": {"instances": reported}}} if is_large else out


def _instance_items(
    ids: Iterable[str], reports: Mapping[str, Any], idle: str, state: Callable[[str], Any] | None
) -> dict[str, dict[str, Any]]:
    """``{id: {status, state, calls, errors}}``; ``idle`` is the status of one without a report.

    Without ``state``, which reads it, only the statuses.
    """
    out: dict[str, dict[str, Any]] = {}
    for id_ in ids:
        report = reports.get(id_, {"status": idle, "calls": [], "errors": []})
        more = {} if state is None else {"state": state(id_), "calls": report["calls"], "errors": report["errors"]}
        undone = {"undone": report["undone"]} if "undone" in report else {}
        out[id_] = {"status": report["status"], **more, **undone}
    return out


def total_undone(parts: Iterable[dict[str, Any] | None]) -> dict[str, Any] | None:
    """What a run and its instances have undone: ``{workflowId, status, calls, errors}``, of several ``workflowIds``."""
    runs = {part["workflowId"]: part for part in parts if part is not None}
    if len(runs) <= 1:
        return next(iter(runs.values()), None)
    errors, statuses = [e for part in runs.values() for e in part["errors"]], [p["status"] for p in runs.values()]
    return {
        "workflowIds": list(runs)[:MAX_ERRORS], "status": next((s for s in statuses if s != "completed"), "completed"),
        "calls": sum(part["calls"] for part in runs.values()), "errors": without_details(errors),
    }  # fmt: skip


def appended_messages(walk: Walk) -> list[dict[str, Any]]:
    """The messages after those of the Request: provided ones, then outputs in plan order, of children too."""
    by_rank = [pair for run in walk.calls for id_, item in (run.value or {}).items()
               for pair in walk.context.instance_messages(id_, item)]  # fmt: skip
    if not by_rank:
        return walk.context.appended()
    if list(walk.context.calls_by_instance) != [None]:  # no template: the run itself walks the global Calls
        ranks = {n.key: rank for rank, n in enumerate(walk.prepared.unsplit.nodes)} if walk.prepared.unsplit else {}
        for node, run in zip(walk.nodes, walk.calls, strict=True):
            by_rank += [(ranks[node.key], appended_message(node, *write)) for write in run.written]
        by_rank.sort(key=lambda pair: pair[0])
    return [*(m.raw for m in walk.context.provided), *(message for _, message in by_rank)]


def plan_errors(walk: Walk) -> list[dict[str, Any]]:
    """The failures that no error path took; of a run that undoes another, also what cannot be undone."""
    undoes = walk.prepared.request.config.undoes
    return [*(() if undoes is None else undoes.problems), *error_items(walk.calls)]


def failure_text(walk: Walk) -> str:
    failures, lines = plan_errors(walk), []
    for error in failures[:MAX_FAILURES]:
        call = f"{error['call']} [{error['instance']}]" if "instance" in error else error["call"]
        lines.append(f"{call}: [{error['code']}] {truncate(str(error['message']), MAX_FAILURE)}")
    if walk.prepared.unsplit is not None:
        head = f"{len(failures)} calls failed in {len({e.get('instance') for e in failures})} instances"
    else:
        skipped = walk.counts.get("skipped", 0)
        head = f"{len(failures)} of {len(walk.nodes)} calls failed" + (f", {skipped} skipped" if skipped else "")
    return list_failures(head, lines, len(failures))


def list_failures(head: str, lines: Sequence[str], count: int) -> str:
    """The message of a failed workflow: the first of ``count`` failures, a line each."""
    more = [f"… and {count - len(lines):,} more"] if count > len(lines) else []
    return "\n- ".join([f"{head}:", *lines, *more])


def build_agent_result(run: AgentRun, status: str) -> dict[str, Any]:
    """The result of an Agent: ``{status, output, ticks, state, instances?, calls, context, errors, usage}``."""
    instances = _instance_items(run.request.instances(), run.results.instances, status, run.context.log.state)
    return {
        "status": status, "output": run.output, "ticks": run.tick, "state": run.context.log.state(),
        **({"instances": instances} if instances else {}),
        "calls": run.results.calls, "context": run.context.appended(), "errors": run.results.errors,
        "usage": run.usage.to_json(),
    }  # fmt: skip


# -- what may be recorded ----------------------------------------------------------------------

MAX_RESULT: Final = 1536 * 1024  # a payload has 2 MiB; the rest is for the envelope, and for the list of what was cut
MAX_BATCH_RESULT: Final = 1024 * 1024  # of a batch: above this, each instance's own run has its result
# Cuts that are listed, the largest; and errors that a list keeps at all
MAX_CUTS: Final = 100
MAX_ERRORS: Final = 500
# What can be asked for elsewhere is cut first; how the run went is cut last
_DATA: Final = ("decisions", "output", "state", "context")
_REPORTS: Final = ("errors", "calls", "instances")
HOW: Final = "ask the named query, or the instance's own run; `acts show` prints the commands"

Entry = tuple[int, str, str | int | None]
"""What can be cut: its bytes, its part, and its key or index there; None for a part that is one value."""


def cut_result(
    result: dict[str, Any], first_message: int = 0, limit: int = MAX_RESULT, batch_limit: int = MAX_BATCH_RESULT
) -> dict[str, Any]:
    """The result with at most ``limit`` bytes of JSON, ``omitted`` apart; with ``instances``, ``batch_limit``.

    ``first_message`` is the position in the whole context of the first appended message.
    """
    out, cuts, measure = dict(result), list[dict[str, Any]](), SharedSizes()
    omitted: Counter[str] = Counter(out.pop("omitted", {}).get("bytes"))

    def shorten(key: str, short: Any) -> None:
        if missing := measure.size(out[key]) - measure.size(short):
            omitted[key] += missing
            out[key] = short

    if "instances" in out and measure.size(dict(out)) > batch_limit:
        shorten("instances", {id_: {"status": item["status"]} for id_, item in out["instances"].items()})
        shorten("context", [m for m in out["context"] if "_instance" not in m])
    excess = measure.size(dict(out)) - limit
    if excess > 0:
        shorten("errors", without_details(out["errors"]))
        shorten("calls", [_without_details(item) for item in out["calls"]])
        # The last entry of a part has no comma
        excess = measure.size(dict(out)) - limit + len(_DATA) + len(_REPORTS)
    dropped: dict[str, set[str | int | None]] = {}
    for size, key, name in _largest_first(out, measure) if excess > 0 else ():
        if excess <= 0:
            break
        excess -= size
        omitted[key] += size
        dropped.setdefault(key, set()).add(name)
        item: dict[str, Any] = {"at": pointer(key, *([] if name is None else [name])), "bytes": size}
        if key == "context":
            item |= {"query": CONTEXT, "argument": {"offset": first_message + int(name or 0), "limit": 1}}
        elif key == "state":
            item |= {"query": CONTEXT, "argument": {"path": str(Path("state", (str(name),)))}}
        elif key != "output":
            item["query"] = STATUS
        cuts.append(item)
    out |= {key: _without(out[key], names) for key, names in dropped.items()}
    if not omitted:
        return out
    cuts.sort(key=lambda item: -item["bytes"])
    more = {"more": len(cuts) - MAX_CUTS} if len(cuts) > MAX_CUTS else {}
    return {**out, "omitted": {"bytes": dict(omitted), "how": HOW, "cut": cuts[:MAX_CUTS], **more}}


def _largest_first(result: Mapping[str, Any], measure: SharedSizes) -> Iterator[Entry]:
    """What can be cut, in this order: data by size, of parts of one size the last; then the last of the reports."""
    data = [entry for key in _DATA for entry in _entries(result.get(key), key, measure)]
    yield from sorted(data, key=lambda entry: entry[0])[::-1]
    reports = [pair for key in _REPORTS for pair in enumerate(_entries(result.get(key), key, measure))]
    yield from (entry for _, entry in sorted(reports, key=lambda pair: -pair[0]))


def _entries(value: Any, key: str, measure: SharedSizes) -> Iterator[Entry]:
    if isinstance(value, list):
        yield from ((measure.size(item) + 1, key, index) for index, item in enumerate(value))
    elif isinstance(value, dict):
        yield from ((measure.size(item) + json_size(name) + 2, key, name) for name, item in value.items())
    elif value is not None:
        yield measure.size(value), key, None


def _without(value: Any, names: set[str | int | None]) -> Any:
    if isinstance(value, list):
        return [item for index, item in enumerate(value) if index not in names]
    return {name: item for name, item in value.items() if name not in names} if isinstance(value, dict) else None


def _without_details(item: dict[str, Any]) -> dict[str, Any]:
    """A Call, or an error, without the details of its failure."""
    if "error" in item:
        return {**item, "error": _without_details(item["error"])}
    short = {key: part for key, part in item.items() if key != "details"}
    return {**short, "message": truncate(str(short["message"]))} if "message" in short else short


def without_details(errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_without_details(error) for error in errors[:MAX_ERRORS]]
