"""Runs as pages show them: one with its Calls, decisions and results; many with what they cost. And what people may do
to a run besides deciding: pause, resume, cancel, retry, fork.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from temporalio.client import Client

from acts.client import client as acts_client
from acts.client import run_reader
from acts.client.client_errors import ClientError
from acts.client.run_decisions import call_position
from acts.client.run_reader import RunReader
from acts.client.start_runs import IdPolicy, start_run, with_calls
from acts.language.errors import shell
from acts.language.messages import INSTANCES
from acts.language.tools import Tool
from acts.language.wire import PLAN
from acts.tree.decisions import PendingApproval
from acts.tree.identity import retry_id
from acts.ui.cards import written_call
from acts.views import text

MAX_RUNS: Final = 500  # of the list, and of the figures below it
MAX_SQUARES: Final = 5_000
MAX_CALLS: Final = 2_000
MAX_CHILDREN: Final = 100


@dataclass
class RunView:
    """A run, or an instance of it, with what the server and a worker say. ``silence``: why no worker answers."""

    id: str
    instance: str
    workflow: str
    phase: str
    started: str
    summary: str = ""
    closed: str = ""
    silence: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    more_calls: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    pending: list[PendingApproval] = field(default_factory=list)
    usage: str = ""
    counts: Mapping[str, Any] | None = None
    squares: list[tuple[str, str]] = field(default_factory=list)
    more_squares: int = 0
    causes: list[dict[str, Any]] = field(default_factory=list)
    has_plan: bool = False
    parent: str = ""
    children: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return not self.closed


async def read_run(client: Client, id_: str, instance: str = "") -> RunView:
    """A run as it is now. ClientError: there is none."""
    reader = RunReader(client, id_)
    info = await reader.describe()
    closed = "" if info.close_time is None else f"{info.close_time:%Y-%m-%d %H:%M:%S} UTC"
    view = RunView(
        id_, instance, info.workflow_type, "running", f"{info.start_time:%Y-%m-%d %H:%M:%S} UTC", closed=closed
    )
    view.summary = str(await info.static_summary() or "")
    outcome = await reader.outcome()
    if outcome is None:
        report = await run_reader.read_progress(reader)
        view.silence = await reader.silence() if report is None else ""
        report = report or {}
        view.phase = str(report.get("phase") or "running")
    else:
        report = outcome.raw if isinstance(outcome.raw, dict) else {}
        view.phase, view.errors = outcome.status, outcome.errors
    if instance:
        report, _ = await run_reader.read_instance(reader, instance)
        view.phase = str(report.get("status") or view.phase)
        view.errors = run_reader.outcome_of_value(report, id_).errors
    else:
        view.parent = info.parent_id or ""
        with suppress(ClientError):  # a server without visibility shows the run all the same
            query = f"ParentWorkflowId = {run_reader.quote(id_)}"
            view.children = [row async for row in run_reader.list_runs(client, query, MAX_CHILDREN)]
    _fill(view, report)
    if not instance and not view.silence and outcome is None and view.counts is None:
        view.has_plan = True
    return view


def _fill(view: RunView, report: Mapping[str, Any]) -> None:
    calls = [call for call in report.get("calls") or () if isinstance(call, dict)]
    view.calls = [{**call, "words": text.describe_call(call)} for call in calls[:MAX_CALLS]]
    view.more_calls = len(calls) - len(view.calls)
    view.values = {k: report[k] for k in ("output", "state") if report.get(k) not in (None, {})}
    view.decisions = [item for item in report.get("decisions") or () if isinstance(item, dict)]
    view.pending = [PendingApproval.model_validate(item) for item in report.get("pending") or ()]
    view.usage = text.usage_text(report["usage"]) if (report.get("usage") or {}).get("requests") else ""
    view.counts = text.set_counts(report)
    items = text.named_instances(report)
    states = [(name, str(item.get("status") if isinstance(item, dict) else item)) for name, item in items.items()]
    view.squares, view.more_squares = states[:MAX_SQUARES], max(len(states) - MAX_SQUARES, 0)
    parts = [(name, item.get("errors")) for name, item in items.items() if isinstance(item, dict)]
    own = [{**error, "instance": name} for name, errors in parts for error in errors or () if isinstance(error, dict)]
    view.causes = text.find_causes([*(error for error in view.errors if error.get("instance")), *own])


async def steer(client: Client, id_: str, action: str, name: str) -> str:
    """Pause, resume, cancel or retry a run; the id of the run to look at then."""
    run = acts_client.Run(client, id_)
    if action == "cancel" and name.strip() != id_:
        raise ClientError("nothing was cancelled: the name that you typed is not that of the run", f"it is {id_}")
    actions = {"pause": run.pause, "resume": run.resume, "cancel": run.cancel}
    if action in actions:
        await actions[action]()
        return id_
    if action == "retry":
        return await retry(client, id_)
    raise ClientError(f"{action!r} is nothing that a run can do", "pause, resume, cancel or retry")


async def retry(client: Client, id_: str) -> str:
    """Start the one run that takes over what this plan's has completed, as ``acts retry`` does; its id."""
    reader = RunReader(client, id_)
    if (info := await reader.describe()).close_time is None:
        raise ClientError("the run has not ended, so there is nothing to retry", "cancel it first")
    request = await _read_request(reader)
    return await _start_again(reader, request, retry_id(id_, info.run_id), {})


async def _read_request(reader: RunReader) -> dict[str, Any]:
    """The Request of a plan that can run again from a page, with its Calls as they were edited."""
    info, request = await reader.describe(), await reader.request()
    if info.workflow_type != PLAN or not isinstance(request, dict) or not isinstance(request.get("context"), list):
        raise ClientError("only a plan runs again from here", f"see {shell('acts', 'retry', '--help')}")
    if any(isinstance(m, dict) and INSTANCES in m for m in request["context"]):
        hint = f"start it from a terminal: {shell('acts', 'retry', reader.id)}"
        raise ClientError("a set does not run again from here: its results need another file", hint)
    calls = await reader.plan()
    return request if calls is None else with_calls(request, calls)


async def _start_again(reader: RunReader, request: dict[str, Any], new_id: str, keep: dict[str, Any]) -> str:
    info = await reader.describe()
    resume = {"workflowId": reader.id, "runId": info.run_id, **keep}
    request = {**request, "config": {**(request.get("config") or {}), "resume": resume}}
    await start_run(reader.client, PLAN, request, new_id, IdPolicy(), info.task_queue, reader.id)
    return new_id


@dataclass(frozen=True)
class Fork:
    """A plan that is to run another way from one of its Calls on; ``written`` is this Call."""

    reader: RunReader
    request: dict[str, Any]
    call: str
    calls: list[Any]
    tool: Tool | None

    @property
    def written(self) -> dict[str, Any]:
        return written_call(self.calls, self.call)


async def read_fork(client: Client, id_: str, call: str) -> Fork:
    """What a fork begins with. ClientError: this run has none."""
    reader = RunReader(client, id_)
    request = await _read_request(reader)
    plans = [m.get("plan") for m in request["context"] if isinstance(m, dict) and m.get("type") == "plan"]
    calls = plans[-1] if plans and isinstance(plans[-1], list) else []
    record, _ = await run_reader.read_record(reader)
    return Fork(reader, request, call, calls, record.tools.get(call.partition(":")[2]))


async def start_fork(fork: Fork, new: dict[str, Any], token: str) -> str:
    """Start a fork, once for each token: calls before this one are taken over, it and all others run; its id."""
    at = call_position(fork.call)
    request = with_calls(fork.request, [*fork.calls[:at], new, *fork.calls[at + 1 :]])
    new_id = f"{fork.reader.id[:200]}-fork-{token[:6]}"
    return await _start_again(fork.reader, request, new_id, {"keep": {"before": fork.call}})


@dataclass
class RunsReport:
    """The newest runs, and what they cost by day, tool and model."""

    rows: list[dict[str, Any]]
    tables: dict[str, list[dict[str, Any]]]
    total: float
    is_cut: bool


async def read_runs(client: Client, phase: str = "") -> RunsReport:
    """The newest runs of a phase ("": of all)."""
    query = run_reader.runs_query([phase] if phase else [])
    rows = [row async for row in run_reader.list_runs(client, query, MAX_RUNS)]
    tables = {by: run_reader.sum_runs(rows, by) for by in ("day", "tool", "model")}
    tables["day"].reverse()  # the newest first
    return RunsReport(rows, tables, sum(row.get("cost") or 0.0 for row in rows), len(rows) == MAX_RUNS)
