"""``acts list``, ``show``, ``diff`` and ``tools``: runs as they are, and what the workers serve."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from acts.cli.command_line import AsJson, CommandGroup, Run, RunId, Watch, read_seconds
from acts.cli.console import (
    EXIT_DONE,
    clean,
    command_error,
    console,
    duration_text,
    line_console,
    message,
    print_blocks,
    print_err,
    print_json,
)
from acts.cli.render.progress import watch_run
from acts.cli.render.tables import (
    STATE_STYLES,
    approval_lines,
    cut_lines,
    failure_blocks,
    headline,
    new_table,
    print_diff,
    print_outcome,
    progress_parts,
    report_parts,
    text_table,
)
from acts.cli.runs import server
from acts.cli.runs.listings import iso_text, list_runs, runs_query
from acts.cli.runs.run_reader import Outcome, RunReader, add_parameters, open_run, read_instance, read_progress
from acts.cli.text.preflight import load_registry
from acts.cli.text.source import compare_plans, problem_blocks
from acts.language.errors import format_choices, suggest
from acts.language.tools import META, Tool, hint_words, read_tool
from acts.language.values import Json
from acts.language.wire import INSTANCE, LIST_TOOLS, PLAN
from acts.views.text import STATE_MARKS

if TYPE_CHECKING:
    from temporalio.client import WorkflowExecutionDescription

# Of an answer about tools: a worker gives it at once, if a slot is free
ANSWER_SECONDS: Final = 10.0
_MAX_CELL: Final = 80

Limit = Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest first.")]
PhaseNames = Annotated[
    list[str] | None,
    typer.Option("--phase", "-p", metavar="PHASE", help="Only in this phase, like awaiting."),
]
Waiting = Annotated[bool, typer.Option("--waiting", help="Only those that wait for a person.")]
ByTool = Annotated[str | None, typer.Option("--tool", metavar="NAME", help="Only those with this tool.")]
ByModel = Annotated[str | None, typer.Option("--model", metavar="NAME", help="Only those with this model.")]
MinCost = Annotated[float | None, typer.Option("--min-cost", metavar="USD", help="Only those that cost at least this.")]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Started within this time, like 30m, 2h or 7d.")]
Older = Annotated[str | None, typer.Option(metavar="TIME", help="Started before this time, like 1h.")]
AllRuns = Annotated[bool, typer.Option("--all", "-a", help="Also runs below others: delegates, instances.")]
OneInstance = Annotated[
    str | None, typer.Option(metavar="NAME", help="One instance of a batch, whichever run executes it.")
]
ToolName = Annotated[str | None, typer.Argument(metavar="[TOOL]", help="One tool: its schema.", show_default=False)]
Here = Annotated[bool, typer.Option("--here", help="Ask no worker: list what this environment loads.")]

app = CommandGroup()


@app.add
async def list_(
    phase: PhaseNames = None, waiting: Waiting = False, tool: ByTool = None, model: ByModel = None,
    min_cost: MinCost = None, since: Since = None, older: Older = None, limit: Limit = 50, below: AllRuns = False,
    as_json: AsJson = False,
) -> int:  # fmt: skip
    """List runs, newest first: phase, cost, tools. Filters need `acts setup` once per namespace.

    Examples:
      acts list --waiting
      acts list --phase failed --since 1d
      acts list --tool refund --min-cost 0.5
    """
    query = runs_query(
        phase or (), waiting=waiting, tool=tool, model=model, min_cost=min_cost, since=_ago(since, "--since"),
        older=_ago(older, "--older"), below=below,
    )  # fmt: skip
    rows = [row async for row in list_runs(await server.connect(), query, limit)]
    if as_json:
        return print_json(rows)
    if not rows:
        print_err("no runs")
        return EXIT_DONE
    table = new_table("", "run", "type", "phase", "waits", "started", "took", "cost", "tools")
    table.columns[1].no_wrap = all(len(row["id"]) <= _MAX_CELL // 4 for row in rows)  # to copy
    for row in rows:
        style = STATE_STYLES.get(row["phase"], "")
        end = datetime.fromisoformat(row["closed"]) if "closed" in row else datetime.now(UTC)
        took = duration_text((end - datetime.fromisoformat(row["started"])).total_seconds())
        cells = (
            row.get("waiting") or "", row["started"][:19].replace("T", " ").removeprefix(f"{datetime.now(UTC):%Y-}"),
            took, f"{row['cost']:.4f}" if "cost" in row else "", ", ".join(row.get("tools") or []),
        )  # fmt: skip
        table.add_row(
            Text(STATE_MARKS.get(row["phase"], "·"), style), Text(clean(row["id"])), row["workflow"],
            Text(clean(row["phase"]), style), *(Text(clean(cell, _MAX_CELL)) for cell in cells),
        )  # fmt: skip
    line_console().print(table)
    if len(rows) == limit:
        print_err(f"the newest {limit:,}; --limit lists more", "dim")
    return EXIT_DONE


def _ago(time: str | None, option: str) -> datetime | None:
    seconds = read_seconds(time, option)
    return None if seconds is None else datetime.now(UTC) - timedelta(seconds=seconds)


# -- one run -----------------------------------------------------------------------------------------------------------


@app.add
async def show(
    run: Run, as_json: AsJson = False, run_id: RunId = None, instance: OneInstance = None, watch: Watch = False
) -> int:
    """Show a run: its calls, result and errors; of an agent also its ticks and its usage.

    Examples:
      acts show plan-1f2e3d4c
      acts show batch-7 --instance c4
    """
    reader = await open_run(run, run_id)
    info = await reader.describe()
    if watch and instance is None and info.close_time is None:
        await watch_run(reader)
        reader = reader.fresh()
        info = await reader.describe()
    if instance is not None:
        await _show_instance(reader, info, instance, as_json=as_json)
    elif (outcome := await reader.outcome()) is None:
        await _show_running(reader, info, as_json=as_json)
    elif as_json:
        print_json({**_facts(info), "status": outcome.status, "result": outcome.result, "error": outcome.error})
    else:
        await _show_ended(reader, info, outcome)
    return EXIT_DONE


async def _show_ended(run: RunReader, info: WorkflowExecutionDescription, outcome: Outcome) -> None:
    print_outcome(outcome, info.id, info.workflow_type, _duration(info), f"run {info.run_id}")
    if outcome.result is None and not outcome.problems:
        # a worker still knows the calls of a run that ended without a result
        for part in report_parts(await run.status() or {}):
            console().print(part)
    for text in cut_lines(info.id, outcome.result):
        console().print(text, style="yellow")
    print_blocks(problem_blocks(outcome.problems, None))
    print_blocks(failure_blocks(outcome))


async def _show_running(run: RunReader, info: WorkflowExecutionDescription, *, as_json: bool) -> None:
    status = await read_progress(run)
    obstacle = await run.obstacle() if status is None else ""
    if as_json:
        print_json({**_facts(info), "progress": status, **({"obstacle": obstacle} if obstacle else {})})
        return
    phase, tick = (status or {}).get("phase", "running"), (status or {}).get("tick")
    facts = (info.workflow_type, f"tick {tick}" if tick else "", f"for {_duration(info)}", f"run {info.run_id}")
    console().print(headline(str(phase), info.id, *facts))
    for part in progress_parts(info.id, status or {}):
        console().print(part)
    if obstacle:
        hint = "the server begins a failed workflow task again, as long as it takes; the worker's log says more"
        print_blocks([message(obstacle, hint=hint)])
    elif status is None:
        print_err("no worker answers, so its calls are unknown; it continues as soon as one runs: `acts dev`")


async def _show_instance(run: RunReader, info: WorkflowExecutionDescription, name: str, *, as_json: bool) -> None:
    item, run_id = await read_instance(run, name)
    if as_json:
        print_json({**_facts(info), "instance": {"id": name, "run": run_id, **item}})
        return
    outcome = Outcome(str(item["status"]), item)
    print_outcome(outcome, f"{info.id} [{name}]", "" if run_id == info.id else f"in {run_id}")
    if info.close_time is None:
        root = await run.root()
        own = [
            a for a in await root.pending() or [] if a.instance == name and f"{a.workflow_id}/".startswith(f"{run.id}/")
        ]
        for text in approval_lines(root.id, await add_parameters(root, own)):
            console().print(text, style="magenta")
    print_blocks(failure_blocks(outcome))


def _facts(info: WorkflowExecutionDescription) -> dict[str, Any]:
    return {
        "id": info.id,
        "runId": info.run_id,
        "workflow": info.workflow_type,
        "status": info.status.name.lower() if info.status else None,
        "started": iso_text(info.start_time),
        "closed": None if info.close_time is None else iso_text(info.close_time),
    }


def _duration(info: WorkflowExecutionDescription) -> str:
    return duration_text(((info.close_time or datetime.now(UTC)) - info.start_time).total_seconds())


# -- changes of a plan -------------------------------------------------------------------------------------------------


@app.add
async def diff(run: Run, as_json: AsJson = False) -> int:
    """Show how a run's plan differs from the one it was started with; of an agent, from the plan before."""
    reader = await open_run(run)
    await reader.describe_planning()
    info, plan = await reader.describe(), await reader.require(reader.plan())
    running = info.close_time is None
    approvals = await reader.pending() or [] if running else []
    version = next((a.version for a in approvals if a.workflow_id == reader.id and a.what == "plan"), None)
    if info.workflow_type in (PLAN, INSTANCE):
        request = await reader.request()
        context = request.get("context") if isinstance(request, dict) else None
        before, name = _plans(context if isinstance(context, list) else [])[-1], "as it was started"
    else:  # of an agent: the last plan message, or the one before it if that is the current plan
        plans, name = _plans(await reader.messages() or []), "the plan before"
        before = plans[-2 if version is None and len(plans) > 1 else -1]
    now = f"version {version}, waits" if version is not None else "as it is now" if running else "as it ended"
    rows = compare_plans(before, plan, (name, now))
    if as_json:
        return print_json({"run": reader.id, "before": before, "after": plan, "diff": rows})
    if not rows:
        print_err("the plan has not changed")
    print_diff(rows)
    return EXIT_DONE


def _plans(messages: Sequence[Json]) -> list[list[Any]]:
    """An empty plan, then the Calls of each plan message."""
    return [[], *(m.get("plan") or [] for m in messages if isinstance(m, dict) and m.get("type") == "plan")]


# -- tools -------------------------------------------------------------------------------------------------------------


@app.add
async def tools(name: ToolName = None, here: Here = False, as_json: AsJson = False) -> int:
    """List the tools that the workers serve; with a name, the schema of one.

    Examples:
      acts tools
      acts tools chargeCard
      acts tools --here
    """
    if here:
        schemas, activities = load_registry()
        answer: dict[str, Any] = {"tools": schemas, "activities": sorted(activities)}
    else:
        answer = await _read_worker_tools()
    if name is not None:
        print_json(_find(name, answer["tools"]))
    elif as_json:
        print_json({"taskQueue": server.task_queue(), "workers": [answer]})
    else:
        _print_tools(answer["tools"], sorted(answer["activities"]))
    return EXIT_DONE


async def _read_worker_tools() -> dict[str, Any]:
    """What a worker of the task queue serves: ``{version, worker, tools, activities}``.

    Raises:
        CommandError: no worker answers, or the server cannot run an activity without a workflow.
    """
    from temporalio.client import ActivityFailureError
    from temporalio.service import RPCError, RPCStatusCode

    client, queue = await server.connect(), server.task_queue()
    if not await server.has_pollers(client, queue, is_for_activities=True):
        raise command_error(f'no worker serves the task queue "{queue}"', hint=server.START_WORKER)
    seconds = timedelta(seconds=ANSWER_SECONDS)
    try:
        answer: dict[str, Any] = await client.execute_activity(
            LIST_TOOLS, {}, id=f"acts-tools-{secrets.token_hex(6)}", task_queue=queue, result_type=dict,
            start_to_close_timeout=seconds, schedule_to_close_timeout=seconds, rpc_timeout=server.RPC,
        )  # fmt: skip
    except ActivityFailureError as error:
        text = f"no worker has answered within {ANSWER_SECONDS:g} s: {clean(str(error.__cause__ or error), 200)}"
        raise command_error(text, hint="they may be busy; the Web UI lists who polls the task queue") from None
    except RPCError as error:
        text = str(error.message).lower()
        if error.status != RPCStatusCode.UNIMPLEMENTED and "standalone" not in text and "not enabled" not in text:
            raise
        hint = "`acts tools --here` lists what this environment loads"
        head = "the server cannot run an activity without a workflow, so no worker can be asked"
        raise command_error(head, hint=hint) from None
    return answer


def _find(name: str, tools_: Mapping[str, Any]) -> Any:
    if name not in tools_:
        hint = suggest(name, tools_) or f"there are: {format_choices(tools_)}"
        raise command_error(f'there is no tool "{clean(name, 100)}"', hint=hint)
    if tools_[name] is None:
        raise command_error("its schema is left out of the answer, which would be too large", where=clean(name, 100))
    return tools_[name]


def _print_tools(tools_: Mapping[str, Any], activities: Sequence[str]) -> None:
    if not tools_:
        print_err("no tool is registered: a module's TOOLS, a folder of ACTS_TOOLS, or ACTS_MCP")
    rows, own = [], set()
    for name, schema in tools_.items():
        tool = None if schema is None else read_tool(name, schema, served=name in activities)[0]
        own |= {tool.activity} if tool is not None and tool.activity else set()
        rows.append((name,) if tool is None else (name, _answerer(tool), _parameters(tool), _description(tool)))
    if rows:
        line_console().print(text_table(("tool", "answered by", "parameters", "description"), rows, _MAX_CELL))
    others = [name for name in activities if name not in own]
    if others:
        console().print(f"activities without a tool: {clean(format_choices(others, 40))}", style="dim")


def _answerer(tool: Tool) -> str:
    """The activity, delegate or model that answers the calls of a tool."""
    if delegate := tool.consts.get("_delegate"):
        return f"delegate {delegate}"
    queue = f" on {tool.options.taskQueue}" if tool.options.taskQueue else ""
    return f"activity {tool.activity}{queue}" if tool.activity else "model"


def _parameters(tool: Tool) -> str:
    """``amount, customer?``: ? marks what a call may leave out."""
    listed, required = tool.schema.get("properties"), tool.schema.get("required")
    needed = required if isinstance(required, list) else []
    names = [name for name in (listed if isinstance(listed, dict) else ()) if name not in META]
    return ", ".join(name if name in needed else f"{name}?" for name in names)


def _description(tool: Tool) -> str:
    hints = f"({', '.join(words)}) " if (words := hint_words(tool.schema)) else ""
    return f"{hints}{tool.schema.get('description') or ''}"
