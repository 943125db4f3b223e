"""``acts diff``: how the plan of a run differs from the one it was started with.

Laws of this file:
- the earlier plan is in the run's input, the current one is what the run answers; what no worker answers is an error;
- an edit inside an instance is in the instance's own run: such runs are named.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from acts.language.values import Json
from acts.language.wire import DELEGATE, EDIT, INSTANCE, PLAN
from acts.tree.child_ids import instance_child_id, plan_child_id
from acts.tree.decisions import PendingApproval
from cli.command_errors import EXIT_DONE
from cli.console import clean, console, print_err, print_json
from cli.runs.run_reader import RunReader, open_run
from cli.text.plan_text import compare_plans

_MAX_INSTANCES: Final = 20  # that are named, or queried
_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def print_diff(rows: Sequence[str]) -> None:
    """Print a unified diff, coloured on a terminal."""
    for row in rows:
        style = "bold" if row[:3] in ("+++", "---") else _STYLES.get(row[:1])
        console().print(row, style=style)


async def diff(id_: str, *, as_json: bool = False) -> int:
    """Print how a plan was changed."""
    return await _diff(await open_run(id_), as_json=as_json)


async def _diff(run: RunReader, *, as_json: bool) -> int:
    info = await run.describe_planning()
    plan = await run.plan()
    if info.workflow_type == DELEGATE and not plan and (child := await run.last_child_plan()) is not None:
        print_err(f"its plan is executed by {clean(child.id)}:", "dim")
        return await _diff(child, as_json=as_json)
    if plan is None:
        raise await run.no_answer_error()
    running = info.close_time is None
    approvals = await run.pending() or [] if running else []
    own = next((a for a in approvals if a.workflow_id == run.id), None)
    proposed = own is not None and own.what == "plan"
    if info.workflow_type in (PLAN, INSTANCE):
        before, name = _last_plan(await run.request()), "as it was started"
    else:
        before, name = await _previous_plan(run, proposed=proposed), "the plan before"
    version = "" if own is None else f"version {own.version}, "
    state = "waits" if proposed else "as it is now" if running else "as it ended"
    rows = compare_plans(before, plan, (name, version + state))
    if as_json:
        print_json({"run": run.id, "before": before, "after": plan, "diff": rows})
        return EXIT_DONE
    if not rows:
        print_err("the plan has not changed")
    print_diff(rows)
    await _print_edited_instances(run, approvals)
    return EXIT_DONE


def _last_plan(request: Json) -> list[Any]:
    context = request.get("context") if isinstance(request, dict) else None
    return _plans(context if isinstance(context, list) else [])[-1]


def _plans(messages: Sequence[Json]) -> list[list[Any]]:
    """An empty plan, then the Calls of each plan message."""
    return [[], *(m.get("plan") or [] for m in messages if isinstance(m, dict) and m.get("type") == "plan")]


async def _previous_plan(run: RunReader, *, proposed: bool) -> list[Any]:
    """Of an agent: the last plan message, or the one before it if that is the current plan."""
    plans = _plans(await run.messages() or [])
    return plans[-1] if proposed else plans[-2 if len(plans) > 1 else -1]


# -- instances -------------------------------------------------------------------


async def _print_edited_instances(run: RunReader, approvals: Sequence[PendingApproval]) -> None:
    """Name the instances whose plan was edited in a run of their own."""
    edited = {a.workflow_id: a.instance for a in approvals if a.instance is not None and a.version > 1}
    records = filter(_is_instance_edit, await _decisions(run))
    edited |= {instance_run_id(run.id, record): record["instance"] for record in records}
    edited |= await _edited_children(run)
    edited.pop(run.id, None)
    for number, (id_, instance) in enumerate(edited.items()):
        if number == _MAX_INSTANCES:
            print_err(f"… and the plans of {len(edited) - number} more instances")
            return
        child = run.other(id_)
        if await child.exists() and (await child.describe()).workflow_type == INSTANCE:
            print_err(clean(f"the plan of the instance {instance} was edited: acts diff {shlex.quote(id_)}"))


async def _decisions(run: RunReader) -> list[Any]:
    """The decisions in a run, and in those below it that have ended."""
    ended = (await run.describe()).close_time is not None
    report = await run.result() if ended else await run.status()
    return list((report or {}).get("decisions") or ())


async def _edited_children(run: RunReader) -> dict[str, str]:
    """By id: running children whose plan was edited; they report decisions to their parent when they end."""
    children = (await run.describe()).raw_description.pending_children
    ids = [c.workflow_id for c in children if c.workflow_type_name == INSTANCE][:_MAX_INSTANCES]
    statuses = await asyncio.gather(*(run.other(id_).status() for id_ in ids))
    edited = [
        id_
        for id_, status in zip(ids, statuses, strict=True)
        if any(map(_is_edit, (status or {}).get("decisions", ())))
    ]
    return {id_: id_.removeprefix(f"{run.id}/") for id_ in edited}


def _is_edit(record: Any) -> bool:
    return isinstance(record, dict) and record.get("decision") == EDIT


def _is_instance_edit(record: Any) -> bool:
    return _is_edit(record) and isinstance(record.get("instance"), str) and "below" not in record


def instance_run_id(run: str, record: Mapping[str, Any]) -> str:
    """The run of the instance of a decision; that of an agent's instance is below the plan of a tick."""
    parent = plan_child_id(run, record["tick"]) if "tick" in record else run
    return instance_child_id(parent, record["instance"])
