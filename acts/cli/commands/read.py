"""``acts list``, ``show``, ``events``, ``diff``, ``tools`` and ``why``: runs, their values, and what the workers serve.

``why`` reads a run by queries, also one that has ended: a worker replays it. Its input is in its
history. Data that a parent run passed to its child does not count as data of a Request. What came from outside is
yellow.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from rich.text import Text
from rich.tree import Tree
from temporalio.client import WorkflowExecutionDescription

from acts.cli import console as cli
from acts.cli.console import argument, clean, command_error, console, option, print_blocks, print_err, print_json
from acts.cli.render import tables
from acts.cli.text.preflight import load_registry
from acts.cli.text.source import compare_plans, problem_blocks
from acts.client import client, run_reader, server
from acts.client.run_reader import RunReader, RunResult, open_run
from acts.client.served import ask_worker
from acts.language.errors import ExpressionError, format_choices, suggest, visible
from acts.language.references import MARK, Path, parse, scan
from acts.language.tools import META, hint_words, read_tool
from acts.language.values import Json, is_equal
from acts.language.wire import INSTANCE, PLAN, PLAN_QUERY
from acts.provenance import trace as provenance
from acts.provenance.trace import Limits, ProvenanceIndex, Trace
from acts.views.run_events import TYPES, EventFilter, EventsRefused, RunEvent
from acts.views.text import STATE_MARKS, change_lines

_MAX_CELL: Final = 80
_MAX_READ: Final = 200  # results that a list reads, of the newest runs
_MAX_LISTED: Final = 10  # calls that were made more than once
_MAX_CUTS: Final = 5  # commands that are shown, of the largest parts; the JSON has more

Limit = Annotated[int, option("--limit", "At most so many, the newest first.", min=1, max=10_000)]
PhaseNames = Annotated[list[str] | None, option("--phase,-p PHASE", "Only in this phase, like awaiting.")]
Waiting = Annotated[bool, option("--waiting", "Only those that wait for a person.")]
ByTool = Annotated[str | None, option("--tool NAME", "Only those with this tool.")]
ByModel = Annotated[str | None, option("--model NAME", "Only those with this model.")]
ByTags = Annotated[list[str] | None, option("--tag NAME=VALUE", "Only those with this tag.")]
Sort = Annotated[
    Literal["started", "cost"], option("--sort WORD", "By started (newest first) or cost (dearest first).")
]
Sums = Annotated[
    Literal["day", "tool", "model", "tag"] | None,
    option("--sums WORD", "Sums of runs and cost instead, by day (UTC, of the start), tool, model or tag."),
]
MinCost = Annotated[float | None, option("--min-cost USD", "Only those that cost at least this.")]
Since = Annotated[str | None, option("--since TIME", "Started within this time, like 30m, 2h or 7d.")]
Older = Annotated[str | None, option("--older TIME", "Started before this time, like 1h.")]
AllRuns = Annotated[bool, option("--all,-a", "Also runs below others: delegates, instances.")]
OneInstance = Annotated[str | None, option("--instance NAME", "One instance of a batch, whichever run executes it.")]
Follow = Annotated[bool, option("--follow,-f", "Go on until the run and all below it have ended.")]
After = Annotated[str, option("--after OFFSET", "Only what came after this event.", show_default=False)]
OfTypes = Annotated[list[str] | None, option("--type NAME", f"Only events of this type: {', '.join(TYPES)}.")]
OfCalls = Annotated[list[str] | None, option("--call NAME", "Only of this call, or of the calls of this tool.")]
OfInstance = Annotated[str | None, option("--instance NAME", "Only of this instance.")]
ToolName = Annotated[str | None, argument("[TOOL]", "One tool: its schema.")]
Here = Annotated[bool, option("--here", "Ask no worker: list what this environment loads.")]
ValuePath = Annotated[str, argument("PATH", "The path of a value, like state.order[0].price.")]
InView = Annotated[str | None, option("--instance NAME", "In the view of an instance.")]
Depth = Annotated[int, option("--depth", "How many calls back.", min=1, max=50)]

app = cli.CommandGroup()


@app.add
async def list_(
    phase: PhaseNames = None, waiting: Waiting = False, tool: ByTool = None, model: ByModel = None,
    min_cost: MinCost = None, since: Since = None, older: Older = None, limit: Limit = 50, below: AllRuns = False,
    tag: ByTags = None, sort: Sort = "started", sums: Sums = None, as_json: cli.AsJson = False,
) -> int:  # fmt: skip
    """List runs, newest first: phase, cost, tools. Filters need `acts setup` once per namespace.

    Examples:
      acts list --waiting
      acts list --phase failed --since 1d
      acts list --tool refund --min-cost 0.5
      acts list --tag customer=c-17 --sort cost
      acts list --sums tag --since 30d
    """
    now = datetime.now(UTC)
    ages = [cli.read_seconds(text, name) for text, name in ((since, "--since"), (older, "--older"))]
    earliest, latest = (None if age is None else now - timedelta(seconds=age) for age in ages)
    query = run_reader.runs_query(
        phase or (), tool=tool, model=model, min_cost=min_cost, since=earliest, older=latest, below=below,
        conditions=[*([run_reader.IS_WAITING] if waiting else []), *run_reader.tag_conditions(tag or ())],
    )  # fmt: skip
    temporal = await server.connect()
    wants_all = sums is not None or sort == "cost"
    rows = [row async for row in run_reader.list_runs(temporal, query, run_reader.MAX_LISTED if wants_all else limit)]
    if sums is not None:
        return _print_sums(rows, sums, as_json=as_json)
    if sort == "cost":
        rows = sorted(rows, key=lambda row: row.get("cost", 0.0), reverse=True)[:limit]
    await run_reader.add_errors(temporal, rows[:_MAX_READ])
    await run_reader.add_retries(temporal, rows[:_MAX_READ])
    if as_json:
        return print_json(rows)
    if not rows:
        print_err("no runs")
        return cli.EXIT_DONE
    table = tables.new_table("", "run", "type", "phase", "waits", "started", "took", "cost", "tools")
    table.columns[1].no_wrap = all(len(row["id"]) <= _MAX_CELL // 4 for row in rows)  # to copy
    for row in rows:
        style = tables.STATE_STYLES.get(row["phase"], "")
        end = datetime.fromisoformat(row["closed"]) if "closed" in row else now
        errors = f", {cli.count_text(row['errors'], 'error')}" if "errors" in row else ""
        errors += f" ({row['undeclared']:,} undeclared)" if "undeclared" in row else ""
        errors += ", retried" if "retriedAs" in row else ""
        cells = (
            row.get("waiting") or "", row["started"][:19].replace("T", " ").removeprefix(f"{now:%Y-}"),
            _duration(datetime.fromisoformat(row["started"]), end), f"{row['cost']:.4f}" if "cost" in row else "",
            ", ".join(row.get("tools") or []),
        )  # fmt: skip
        table.add_row(
            Text(STATE_MARKS.get(row["phase"], "·"), style), Text(clean(row["id"])), row["workflow"],
            Text(clean(row["phase"]), style).append(errors, "yellow"),
            *(Text(clean(cell, _MAX_CELL)) for cell in cells),
        )  # fmt: skip
    cli.print_rows(table)
    if len(rows) == limit:
        print_err(f"the {'dearest' if sort == 'cost' else 'newest'} {limit:,}; --limit lists more", "dim")
    return cli.EXIT_DONE


def _print_sums(rows: Sequence[Mapping[str, Any]], by: str, *, as_json: bool) -> int:
    """Runs, failures and dollars by what the rows have in common."""
    listed = run_reader.sum_runs(rows, by)
    if as_json:
        return print_json(listed)
    cells = [(e[by], f"{e['runs']:,}", f"{e['failed']:,}", f"{e['cost']:.4f}") for e in listed]
    cli.print_rows(tables.text_table((by, "runs", "failed", "cost"), cells))
    if len(rows) == run_reader.MAX_LISTED:
        print_err(f"of the newest {run_reader.MAX_LISTED:,} runs; --since bounds them", "bold yellow")
    return cli.EXIT_DONE


def _duration(start: datetime, end: datetime | None) -> str:
    """``1.2 s``, ``3.5 h``; until now where there is no end."""
    seconds = ((end or datetime.now(UTC)) - start).total_seconds()
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{max(seconds, 0.0):.1f} s"


@app.add
async def show(
    run: cli.Run, as_json: cli.AsJson = False, run_id: cli.RunId = None, instance: OneInstance = None,
    watch: cli.Watch = False,
) -> int:  # fmt: skip
    """Show a run: its calls, result and errors; of an agent also its ticks and its usage.

    Examples:
      acts show plan-1f2e3d4c
      acts show batch-7 --instance c4
    """
    reader = await open_run(run, run_id)
    info = await reader.describe()
    if watch and instance is None and info.close_time is None:
        await tables.watch_run(reader, shows_end=as_json)
        reader = reader.fresh()
        info = await reader.describe()
    facts: dict[str, Any] = {
        "id": info.id, "runId": info.run_id, "workflow": info.workflow_type,
        "status": info.status.name.lower() if info.status else None, "started": run_reader.iso_text(info.start_time),
        "closed": None if info.close_time is None else run_reader.iso_text(info.close_time),
    }  # fmt: skip
    if info.close_time is not None and (retry := await reader.retried_as()):
        facts["retriedAs"] = retry
    if instance is not None:
        item, source = await run_reader.read_instance(reader, instance)
        facts["instance"] = {"id": instance, "run": source, **item}
        if not as_json:
            await _show_instance(reader, info, instance, item, source)
    elif (outcome := await reader.outcome()) is not None:
        facts |= {"status": outcome.status, "result": outcome.raw, "error": outcome.error}
        if not as_json:
            await _show_ended(reader, info, outcome)
    else:
        facts["progress"] = await run_reader.read_progress(reader)
        if facts["progress"] is None and (obstacle := await reader.obstacle()):
            facts["obstacle"] = obstacle
        if way_on := await reader.way_on():
            facts["wayOn"] = way_on
        if not as_json:
            _show_running(info, facts["progress"], facts.get("obstacle", ""), way_on)
    if instance is None:
        facts |= await run_reader.read_repeats(reader)
    if as_json:
        return print_json(facts)
    _show_repeats(facts)
    return cli.EXIT_DONE


def _show_repeats(facts: Mapping[str, Any]) -> None:
    if attempts := facts.get("attempts"):
        listed = [f"{name} took {count:,} attempts" for name, count in attempts.items()]
        print(f"{cli.list_names(listed, _MAX_LISTED)}: any of them may have acted")
    if reset := facts.get("reset"):
        calls = cli.list_names(reset["calls"], _MAX_LISTED) if "calls" in reset else "nobody knows what"
        print(f"reset from the run {reset['runId']}, which after that point had made, or begun: {calls}")
    if "retriedAs" in facts:
        print(f"retried as {clean(facts['retriedAs'])}")


async def _show_ended(run: RunReader, info: WorkflowExecutionDescription, outcome: RunResult) -> None:
    took = _duration(info.start_time, info.close_time)
    tables.print_outcome(outcome, info.id, info.workflow_type, took, f"run {info.run_id}")
    if outcome.raw is None and not outcome.problems:
        # a worker still knows the calls of a run that ended without a result
        tables.print_parts(info.id, await run.status() or {})
    omitted = outcome.raw.get("omitted") if isinstance(outcome.raw, Mapping) else None
    if isinstance(omitted, Mapping):
        parts = ", ".join(f"{clean(k)} ({n:,} bytes)" for k, n in omitted["bytes"].items())
        lines = [f"left out of the result, which was too large to be recorded: {parts}"]
        for cut in omitted["cut"][:_MAX_CUTS]:
            words = ["temporal", "workflow", "query", "--workflow-id", info.id, "--type", str(cut.get("query"))]
            words += ["--input", json.dumps(cut["argument"], ensure_ascii=False)] if "argument" in cut else []
            command = f": {clean(shlex.join(words))}" if "query" in cut else ""
            lines.append(f"  {clean(cut['at'])} ({cut['bytes']:,} bytes){command}")
        if (more := len(omitted["cut"]) - _MAX_CUTS + int(omitted.get("more", 0))) > 0:
            lines.append(f"  … and {more:,} more; --json lists the largest")
        console().print("\n".join(lines), style="yellow")
    print_blocks(problem_blocks(outcome.problems, None))
    print_blocks(tables.failure_blocks(outcome))


def _show_running(
    info: WorkflowExecutionDescription, status: Mapping[str, Any] | None, obstacle: str, way_on: str
) -> None:
    phase, tick = (status or {}).get("phase", "running"), (status or {}).get("tick")
    took = f"for {_duration(info.start_time, None)}"
    facts = (info.workflow_type, f"tick {tick}" if tick else "", took, f"run {info.run_id}")
    console().print(tables.headline(str(phase), info.id, *facts))
    tables.print_parts(info.id, status or {})
    print_blocks(tables.error_path_blocks(status or {}))
    if obstacle:
        hint = 'docs/repair.md, "A run that stands still", says what to do; the worker\'s log says more'
        cli.print_message(obstacle, hint=hint)
    elif status is None and not way_on:
        print_err("no worker answers, so its calls are unknown; it continues as soon as one runs: `acts worker`")
    if way_on:
        print_err(way_on, "bold yellow")


async def _show_instance(
    run: RunReader, info: WorkflowExecutionDescription, name: str, item: dict[str, Any], source: str
) -> None:
    outcome = RunResult(str(item["status"]), item)
    tables.print_outcome(outcome, f"{info.id} [{name}]", "" if source == info.id else f"in {source}")
    if info.close_time is None:
        root = await run.root()
        listed = [a for a in await root.pending() or [] if a.instance == name]
        own = [a for a in listed if f"{a.workflow_id}/".startswith(f"{run.id}/")]
        for text in tables.approval_lines(root.id, await run_reader.add_parameters(root, own)):
            console().print(text, style="magenta")
    print_blocks(tables.failure_blocks(outcome))


@app.add
async def events(
    run: cli.Run, as_json: cli.AsJson = False, follow: Follow = False, after: After = "", type_: OfTypes = None,
    call: OfCalls = None, instance: OfInstance = None, run_id: cli.RunId = None,
) -> None:  # fmt: skip
    """Print what happens in a run and below it, an event a line, in order; of one that has ended, what happened.

    Examples:
      acts events plan-1f2e3d4c --follow
      acts events plan-1f2e3d4c --json --after 6438ad1c9d3f0-1b-0a1b2c3d4e5f
      acts events batch-7 --type callEnded --call refund
    """
    source = client.Run(await server.connect(), run, run_id)
    try:
        wanted = EventFilter(frozenset(type_ or ()), frozenset(call or ()), instance)
        async for event in source.events(after, follow=follow, wanted=wanted):
            line = json.dumps(event.to_json(), ensure_ascii=False) if as_json else _event_line(event, run)
            print(visible(line), flush=follow)
    except EventsRefused as error:
        raise command_error(clean(error)) from None


def _event_line(event: RunEvent, root: str) -> str:
    """``10:00:00.123  callEnded  2:refund [a]  completed  …``, and the run where it is one below."""
    subject = event.call or (f"tick {event.tick}" if event.tick else "")
    subject += f" [{event.instance}]" if event.instance else ""
    data = {name: value for name, value in event.data.items() if name not in ("id", "subject")}
    data |= {"attempts": f"{data['attempts']} attempts"} if "attempts" in data else {}
    texts = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in data.values())
    facts = [clean(text, _MAX_CELL) for text in texts]
    below = event.run.removeprefix(f"{root}/") if event.run != root else ""
    return "  ".join(filter(None, (event.time[11:23], f"{event.type:<13}", clean(subject), *facts, clean(below))))


@app.add
async def diff(run: cli.Run, as_json: cli.AsJson = False) -> int:
    """Show how a run's plan differs from the one it was started with; of an agent, from what its model proposed.

    Of an agent's plan that nobody has edited, the difference from the plan before is shown.
    """
    reader = await open_run(run)
    info, plan = await reader.describe_planning(), await reader.require(reader.plan())
    running = info.close_time is None
    approvals = await reader.pending() or [] if running else []
    version = next((a.version for a in approvals if a.workflow_id == reader.id and a.what == "plan"), None)
    if info.workflow_type in (PLAN, INSTANCE):
        request = await reader.request()
        context = request.get("context") if isinstance(request, dict) else None
        messages, name = context if isinstance(context, list) else [], "as it was started"
    else:
        messages, name = await reader.messages() or [], "the plan before"
    plans = [[], *(m.get("plan") or [] for m in messages if isinstance(m, dict) and m.get("type") == "plan")]
    before = plans[-1]
    if info.workflow_type not in (PLAN, INSTANCE):  # of an agent, the one before the last if that is the current plan
        before = plans[-2 if version is None and len(plans) > 1 else -1]
        proposed = await reader.query(list, PLAN_QUERY, {"as": "proposed"})
        if proposed and not is_equal(proposed, plan):
            before, name = proposed, "as it was proposed"
    now = f"version {version}, waits" if version is not None else "as it is now" if running else "as it ended"
    rows = compare_plans(before, plan, (name, now))
    records = (await reader.status() or {}).get("decisions") or ()  # what was edited, by whom and when
    edits = [{**c, **{k: r[k] for k in ("by", "date") if k in r}} for r in records for c in r.get("changes") or ()]
    own = ((a.call, change) for a in approvals if a.workflow_id == reader.id for change in a.about.get("changes") or ())
    changes = [*edits, *({**c, "part": f"{call or 'the plan'} {c['part']}"} for call, c in own if "part" in c)]
    if as_json:
        return print_json({"run": reader.id, "before": before, "after": plan, "diff": rows, "changes": changes})
    if not rows:
        print_err("the plan has not changed")
    tables.print_diff([*rows, *(clean(f"changed: {line}") for line in change_lines(changes))])
    return cli.EXIT_DONE


@app.add
async def tools(name: ToolName = None, here: Here = False, as_json: cli.AsJson = False) -> int:
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
        reply = await ask_worker(await server.connect(), server.task_queue(), {})
        if reply is None:
            head = "the server cannot run an activity without a workflow, so no worker can be asked"
            raise command_error(head, hint="`acts tools --here` lists what this environment loads")
        answer, schemas = reply, reply["tools"]
    if name is None:
        if as_json:
            return print_json({"taskQueue": server.task_queue(), "workers": [answer]})
        _print_tools(schemas, sorted(answer["activities"]))
        if plans := answer.get("plans"):
            print_err(f"plans by name: {cli.list_names(list(plans), 50)}")
        return cli.EXIT_DONE
    if name not in schemas:
        hint = suggest(name, schemas) or f"there are: {format_choices(schemas)}"
        raise command_error(f'there is no tool "{clean(name, 100)}"', hint=hint)
    if schemas[name] is None:
        raise command_error("its schema is left out of the answer, which would be too large", where=clean(name, 100))
    return print_json(schemas[name])


def _print_tools(schemas: Mapping[str, Any], activities: Sequence[str]) -> None:
    if not schemas:
        print_err("no tool is registered: a module with @acts.tool or TOOLS, a folder of ACTS_TOOLS, or ACTS_MCP")
    rows, own = list[Sequence[str]](), set()
    for name, schema in schemas.items():
        tool = None if schema is None else read_tool(name, schema, served=name in activities)[0]
        own |= {tool.activity} if tool is not None and tool.activity else set()
        if tool is None:
            rows.append((name,))
            continue
        queue = f" on {tool.options.taskQueue}" if tool.options.taskQueue else ""
        answerer = f"activity {tool.activity}{queue}" if tool.activity else "model"
        if delegate := tool.consts.get("_delegate"):
            answerer = f"delegate {delegate}"
        listed, required = tool.schema.get("properties"), tool.schema.get("required")
        needed = required if isinstance(required, list) else []
        names = [key for key in (listed if isinstance(listed, dict) else ()) if key not in META]
        parameters = ", ".join(key if key in needed else f"{key}?" for key in names)  # what a call may leave out
        hints = f"({', '.join(words)}) " if (words := hint_words(tool.schema)) else ""
        rows.append((name, answerer, parameters, f"{hints}{tool.schema.get('description') or ''}"))
    if rows:
        cli.print_rows(tables.text_table(("tool", "answered by", "parameters", "description"), rows, _MAX_CELL))
    if others := [name for name in activities if name not in own]:
        console().print(f"activities without a tool: {clean(format_choices(others, 40))}", style="dim")


@app.add
async def why(
    run: cli.Run, path: ValuePath, instance: InView = None, depth: Depth = 5, as_json: cli.AsJson = False
) -> int:
    """Show where a value of a run came from: who wrote it, what that call had read, and so on.

    Examples:
      acts why plan-1f2e3d4c state.order[0].price
    """
    # Of --json: 100 calls that wrote one value, 2,000 lines in all
    limits = Limits(depth, 100, 2000) if as_json else Limits(depth)
    trace, parent, value = await trace_value(run, path, instance, limits)
    if as_json:
        out = {**trace, "value": value}
        out.pop("shortened", None)
        return print_json(out if instance is None else {**out, "instance": instance})
    console(wrap=True).print(provenance_tree(trace, parent))
    return cli.EXIT_DONE


async def trace_value(run: str, path: str, instance: str | None, limits: Limits) -> tuple[Trace, str | None, Json]:
    """Where a value of a run came from, the run that passed this one its data, and the whole value.

    A path without a value is answered with the nearest values; its leading † may be omitted, as few keyboards have it.
    """
    text = path.strip()
    try:
        where = parse(text if text.startswith(MARK) else MARK + text)
    except ExpressionError as error:
        hint = "like †state.order[0].price"
        raise command_error(f"{error} in {clean(text, 100)!r}", where="PATH", hint=hint) from None
    if not isinstance(where, Path):
        raise command_error(f"{clean(text, 100)} is several paths", where="PATH", hint="ask for one of them")
    record, parent = await run_reader.read_record(await open_run(run))
    index = ProvenanceIndex(record)
    if instance is not None and instance not in index.instances:
        raise run_reader.unknown_instance_error(run, index.instances, instance)
    trace = index.why(where, instance, limits=limits)
    if "absent" in trace:
        hint = f"there is: {cli.list_names(index.near(where, instance), 12)}"
        if where.kind == "output":
            hint = "an agent's output is its model's own answer; ask for a value that it refers to"
        elif instance is None and index.instances:
            hint += "; a value of an instance: --instance NAME"
        raise command_error(f"there is no value at {clean(where, 200)}", hint=hint)
    return trace, parent, index.value(where, instance)


MAX_VALUE: Final = 100
MAX_PARAMETERS: Final = 20  # of one call; --json has all
_MAX_PATHS: Final = 3  # in one line
_COLORS: Final = ("green", "yellow")  # of what came from the Request alone, and from outside

# What executed a call …
_EXECUTORS: Final = {
    provenance.ACTIVITY: "Activity", provenance.MODEL: "the model", provenance.DELEGATE: "delegate",
    provenance.ANSWER: "a person",
    provenance.ENGINE: "the engine, whose error it is", provenance.UNKNOWN: "unknown",
}  # fmt: skip
# … who wrote a result that was in the plan already, and who planned the call
_LITERAL_AUTHORS: Final = {
    provenance.MODEL: "the model, in its plan", provenance.REQUEST: "the Request, in its plan",
    provenance.DECISION: "a person, in the edited plan",
}  # fmt: skip
_PLANNERS: Final = {provenance.MODEL: "planned by the model", provenance.PERSON: "planned by a person"}


def provenance_tree(trace: Trace, parent: str | None = None) -> Tree:
    """A trace as a tree. ``parent`` is the run that passed this one its data."""
    head = _text((trace["path"], "bold"), (_value_text(trace), ""))
    head.append("   from outside" if trace["outside"] else "   from the Request alone", _COLORS[trace["outside"]])
    tree = Tree(head, guide_style="dim")
    _add_sources(tree, trace, parent)
    return tree


def _value_text(trace: Trace) -> str:
    text = trace["shortened"] if "shortened" in trace else json.dumps(trace["value"], ensure_ascii=False)
    return f" = {clean(text, MAX_VALUE)}"


def _add_sources(tree: Tree, trace: Trace, parent: str | None) -> None:
    """Add who wrote a value: the parameters of each call as planned, and where those that it read came from."""
    for source in trace["sources"]:
        branch, reads = tree.add(_source_line(source, trace, parent)), source.get("reads", ())
        if "again" in source or "cut" in source:
            continue
        parameters = {k: v for k, v in source.get("call", {}).items() if k not in META}
        for name, value in list(parameters.items())[:MAX_PARAMETERS]:
            if not any(scan(value)):
                branch.add(_text((f"{name}  ", "dim"), (clean(json.dumps(value, ensure_ascii=False), MAX_VALUE), "")))
            _add_reads(branch, [read for read in reads if read["parameter"] == name], parent)
        if len(parameters) > MAX_PARAMETERS:
            branch.add(_text((f"… and {len(parameters) - MAX_PARAMETERS} more parameters", "dim")))
        _add_reads(branch, [read for read in reads if read["parameter"] in META], parent)
        if "allShown" in source:
            branch.add(_text(("was shown all data as of the start of its plan", "dim")))
    if "more" in trace:
        tree.add(_text((f"… and {trace['more']} more messages: ask for a part of it, or --json", "dim")))


def _add_reads(tree: Tree, reads: Sequence[Trace], parent: str | None) -> None:
    for read in reads:
        branch, name, values = tree, "scope" if read["parameter"] == "_scopes" else read["at"], read["values"]
        if len(values) != 1:
            branch, name = branch.add(_text((f"{name}  ", "dim"), (read["expression"], ""))), ""
        for value in values:
            label, path = (f"{name}  " if name else "", "dim"), value["path"]
            if "sources" in value:
                line = _text(label, (path, "bold"), (_value_text(value), ""))
                _add_sources(branch.add(line), value, parent)
            else:
                branch.add(_text(label, (path, ""), (": not needed" if "unused" in value else ": no value", "dim")))


def _source_line(source: Trace, trace: Trace, parent: str | None) -> Text:
    """``3:chargeCard  Activity chargeCard  tick 2  2026-01-01 10:00:00Z``"""
    origin, color, is_literal = source["origin"], _COLORS[source["outside"]], "given" in source
    is_of_earlier_run, writer = origin == provenance.REQUEST and not is_literal, source.get("id") or source.get("tool")
    if "call" not in source or is_of_earlier_run:
        text = _text((_author(source, parent), color))
    else:
        executor = " ".join(filter(None, (_EXECUTORS.get(origin, ""), source.get(origin))))
        executor = _LITERAL_AUTHORS.get(origin, "the author of the plan") if is_literal else executor
        text = _text((f"{writer}  ", "bold"), (executor, color))
    wrote, date = source["wrote"], source.get("date")
    paths = ", ".join([*wrote[:_MAX_PATHS], *(["…"] if len(wrote) > _MAX_PATHS else [])])
    facts = (
        f"written by {writer} of an earlier run" if is_of_earlier_run and "call" in source else "",
        f"tick {source['tick']}" if "tick" in source else "",
        cli.moment_text(date) if isinstance(date, str) else "",
        "" if source.get("method") in (None, "set") else str(source["method"]),
        f"failed: {source['error']}" if "error" in source else "",
        "" if is_literal else _PLANNERS.get(str(source.get("plannedBy")), ""),
        "" if wrote == [trace["path"]] else f"→ {paths}",
    )
    text.append("".join(clean(f"  {fact}", 300) for fact in facts if fact), "dim")
    if "again" in source or "cut" in source:
        text.append("  (shown elsewhere)" if "again" in source else "  (more with --depth)", "dim italic")
    return text


def _author(source: Trace, parent: str | None) -> str:
    place, payload = f"message {source['message']}", source.get("decision")
    match source["origin"]:
        case provenance.REQUEST:
            return f"the Request, /context/{source['message']}"
        case provenance.PROVIDED:
            return f"provided to the run ({place})"
        case provenance.DECISION:
            by = payload.get("by") if isinstance(payload, dict) else None
            return f"decided by {by or 'somebody'} ({place})"
    return f"passed by the parent run {parent} ({place})" if parent else f"unknown ({place})"


def _text(*parts: tuple[str, str]) -> Text:
    return Text.assemble(*((clean(words, 400), style) for words, style in parts))
