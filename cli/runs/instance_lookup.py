"""One instance of a batch, whichever run executes it: ``acts show RUN --instance NAME``.

Laws of this file:
- an instance is executed by the run itself, by a child of its own, or by a child that it shares with others;
- a run that has ended is read from its result; if that has no details of the instance, or the run has not ended,
  queries are sent to the run or to the child;
- what cannot be read is an error, never a guess.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from acts.language.wire import AGENT, INSTANCE
from acts.tree.child_ids import instance_child_id, plan_child_id
from acts.views.set_counts import named_instances, set_counts
from cli.command_errors import CommandError, command_error
from cli.console import clean
from cli.runs.run_reader import RunReader

# A shared child is named after its first instance: how many earlier ones to look for, a request to the server each
_MAX_EARLIER: Final = 500
_MAX_NAMES: Final = 12
_NOT_STARTED: Final = ("pending", "ready")


@dataclass(frozen=True)
class InstanceView:
    """An instance: ``{status, state?, calls, errors, decisions?}``, and the run that it was read from."""

    item: dict[str, Any]
    run_id: str


async def read_instance(run: RunReader, name: str) -> InstanceView:
    """An instance of a run.

    Raises:
        CommandError: the run has no instance of this name, or no worker answers.
    """
    result = await run.result()
    if set_counts(result) is not None:
        raise _set_error(run.id, result)
    item = (result.get("instances") or {}).get(name) or {}
    from_result = InstanceView(_item(item, name, result), run.id) if "calls" in item else None
    if from_result is not None and "state" in item:
        return from_result
    try:
        return await _query_instance(run, name)
    except CommandError:
        if from_result is None:
            raise
        return from_result


async def instance_names(run: RunReader) -> list[str]:
    """The instances of a run, as far as it can be read."""
    result = await run.result()
    report = result if isinstance(result.get("instances"), dict) else await run.status() or {}
    return list(named_instances(report))


def _set_error(run_id: str, report: Mapping[str, Any]) -> CommandError:
    """The instances of a set are too many to be found by name."""
    results = report.get("results")
    where = f"their results are in {clean(results, 300)}" if results else "each Batch below the run has their results"
    text = f'the instances of "{clean(run_id)}" are the rows of a set'
    hint = f"{where}; a run that walks some of them: acts show {clean(run_id)}/batch-…/ID"
    return command_error(text, where="--instance", hint=hint)


def _item(item: Mapping[str, Any], name: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """The details of an instance; ``run`` is the result or status with the decisions about it."""
    out = {k: item[k] for k in ("status", "state", "calls") if k in item}
    out["errors"] = [{**e, "instance": name} for e in item.get("errors") or () if isinstance(e, dict)]
    decisions = [d for d in run.get("decisions") or () if isinstance(d, dict) and d.get("instance") == name]
    return {**out, "decisions": decisions} if decisions else out


async def _query_instance(run: RunReader, name: str) -> InstanceView:
    """An instance from the queries of its run, or of the child that executes it."""
    info = await run.describe()
    status = await run.status()
    if status is None:
        raise await run.no_answer_error()
    if info.workflow_type == AGENT and status.get("tick"):
        plan = run.other(plan_child_id(run.id, status["tick"]))
        if await plan.exists():
            return await read_instance(plan, name)
    if set_counts(status) is not None:
        raise _set_error(run.id, status)
    names = list(status.get("instances") or ())
    if name not in names:
        raise unknown_instance_error(run.id, names, name)
    instance_status = str(status["instances"][name])
    calls = [c for c in status.get("calls") or () if c.get("instance") == name]
    if calls:
        state = await run.value("†state", name)
        return InstanceView(_own_item(instance_status, calls, state, name, status), run.id)
    # a child of this id that exists before the instance starts belongs to an earlier run
    child = None if instance_status in _NOT_STARTED else await _find_child(run, names, name)
    if child is None:
        return InstanceView({"status": instance_status, "calls": [], "errors": []}, run.id)
    result = await child.result()
    if "calls" in result:  # a child of its own that has ended
        return InstanceView(_item(result, name, {}), child.id)
    return await read_instance(child, name)


def _own_item(
    status: str, calls: Sequence[Mapping[str, Any]], state: Any, name: str, run: Mapping[str, Any]
) -> dict[str, Any]:
    """The details of an instance that the run executes itself."""
    errors = [{"call": c.get("id"), **c["error"]} for c in calls if isinstance(c.get("error"), dict)]
    own = [{k: v for k, v in call.items() if k != "instance"} for call in calls]
    value = {"state": state["value"]} if isinstance(state, dict) and "value" in state else {}
    return _item({"status": status, **value, "calls": own, "errors": errors}, name, run)


async def _find_child(run: RunReader, names: Sequence[str], name: str) -> RunReader | None:
    """The child that executes an instance: the nearest one, as a child is named after its first instance."""
    position = names.index(name) + 1
    for first in reversed(names[max(position - _MAX_EARLIER, 0) : position]):
        child = run.other(instance_child_id(run.id, first))
        if await child.exists() and (await child.describe()).workflow_type == INSTANCE:
            return child if first == name or name in await instance_names(child) else None
    return None


def unknown_instance_error(run: str, names: Sequence[str], name: str, where: str = "--instance") -> CommandError:
    """The run has no such instance; the error lists those that it has."""
    near = get_close_matches(name, names, 1)
    hint = f"did you mean {clean(near[0], 80)}? " if near else ""
    hint += f"it has: {list_names(names)}" if names else "`_instance` names an instance in the messages of a request"
    head = f'the run {clean(run, 200)} has no instance "{clean(name, 100)}"'
    return command_error(head, where=where, hint=hint)


def list_names(names: Sequence[str]) -> str:
    """``a, b, … (200 in all)``"""
    more = f", … ({len(names)} in all)" if len(names) > _MAX_NAMES else ""
    return ", ".join(clean(n, 80) for n in names[:_MAX_NAMES]) + more if names else "none"


def show_command(run: str, name: str) -> str:
    """The command that shows an instance."""
    return shlex.join(["acts", "show", clean(run), "--instance", clean(name)])


async def suggest_command(run: RunReader) -> str:
    """For an id that no run has: if it is ``RUN/NAME`` and NAME an instance of RUN, the command that shows it."""
    parts = run.id.split("/")
    for at in range(len(parts) - 1, 0, -1):
        above, name = "/".join(parts[:at]), "/".join(parts[at:])
        if above and await (parent := run.other(above)).exists():
            return show_command(above, name) if name in await instance_names(parent) else ""
    return ""
