"""``acts why``: where a value of a run came from, back through the calls.

- A run is read by queries, also one that has ended: a worker replays it. What it was started with is in its history.
- Data that a parent run passed to its child does not count as data of a Request.
- A path without a value is answered with the nearest values.
- Everything that is shown is clean text; what came from outside is yellow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from rich.text import Text
from rich.tree import Tree

from acts.cli.command_line import AsJson, CommandGroup, Run
from acts.cli.console import (
    EXIT_DONE,
    clean,
    command_error,
    compact_json,
    console,
    list_names,
    print_json,
)
from acts.cli.runs.run_reader import PLANNING_TYPES, RunReader, open_run, unknown_instance_error
from acts.language.errors import ExpressionError
from acts.language.references import MARK, Path, parse, scan
from acts.language.tools import META, read_tool
from acts.language.values import Json
from acts.provenance import trace as provenance
from acts.provenance.trace import Author, Limits, ProvenanceIndex, ReferenceTrace, RunRecord, Source, ValueTrace
from acts.views.text import named_instances

# Of --json: calls that wrote one value, and lines in all
_JSON_EACH, _JSON_ALL = 100, 2000
_MAX_NAMES: Final = 12

ValuePath = Annotated[str, typer.Argument(metavar="PATH", help="The path of a value, like state.order[0].price.")]
InView = Annotated[str | None, typer.Option(metavar="NAME", help="In the view of an instance.")]
Depth = Annotated[int, typer.Option(min=1, max=50, help="How many calls back.")]

app = CommandGroup()


@app.add
async def why(run: Run, path: ValuePath, instance: InView = None, depth: Depth = 5, as_json: AsJson = False) -> int:
    """Show where a value of a run came from: who wrote it, what that call had read, and so on.

    Examples:
      acts why plan-1f2e3d4c state.order[0].price
    """
    limits = Limits(depth, _JSON_EACH, _JSON_ALL) if as_json else Limits(depth)
    trace, parent, value = await trace_value(run, path, instance, limits)
    if as_json:
        out = {**trace.to_json(), "value": value}
        out.pop("shortened", None)
        print_json(out if instance is None else {**out, "instance": instance})
    else:
        console(wrap=True).print(provenance_tree(trace, parent))
    return EXIT_DONE


async def trace_value(run: str, path: str, instance: str | None, limits: Limits) -> tuple[ValueTrace, str | None, Json]:
    """Where a value of a run came from, the run that passed this one its data, and the whole value.

    Raises:
        CommandError: there is no such value, or it cannot be read.
    """
    where = parse_path(path)
    record, parent = await read_record(await open_run(run))
    index = ProvenanceIndex(record)
    if instance is not None and instance not in index.instances:
        raise unknown_instance_error(run, index.instances, instance)
    trace = index.why(where, instance, limits=limits)
    if trace.text is None:
        hint = f"there is: {list_names(index.near(where, instance), _MAX_NAMES)}"
        if where.kind == "output":
            hint = "an agent's output is its model's own answer; ask for a value that it refers to"
        elif instance is None and index.instances:
            hint += "; a value of an instance: --instance NAME"
        raise command_error(f"there is no value at {clean(where, 200)}", hint=hint)
    return trace, parent, index.value(where, instance)


def parse_path(text: str) -> Path:
    """A single path; its leading † may be omitted, as few keyboards have it.

    Raises:
        CommandError: it is not a path, or several.
    """
    text = text.strip()
    try:
        tree = parse(text if text.startswith(MARK) else MARK + text)
    except ExpressionError as error:
        hint = "like †state.order[0].price"
        raise command_error(f"{error} in {clean(text, 100)!r}", where="PATH", hint=hint) from None
    if not isinstance(tree, Path):
        raise command_error(f"{clean(text, 100)} is several paths", where="PATH", hint="ask for one of them")
    return tree


# -- reading a run -----------------------------------------------------------------------------------------------------


async def read_record(run: RunReader) -> tuple[RunRecord, str | None]:
    """The record of a run, and the run that passed it its data.

    Raises:
        CommandError: there is no such run, it has no context, or no worker answers.
    """
    await run.describe_planning()
    await run.allow_replay_time()
    parent = await _planning_parent(run)
    messages, status = await run.require(run.messages()), await run.require(run.status())
    result = await run.result()
    items = ((await run.require(run.prompt_context())).get("tools") or {}).items()
    tools = {name: read_tool(name, item["schema"], served=item["served"])[0] for name, item in items}
    described = {name: tool for name, tool in tools.items() if tool is not None}
    request = None if parent is not None else await _request_context(run)
    calls = [*(status.get("calls") or ()), *_instance_calls(result)]
    return RunRecord(messages, described, request, calls, status.get("decisions") or ()), parent


async def _planning_parent(run: RunReader) -> str | None:
    """The run that started this one and has a context; None for a root."""
    parent_id = (await run.describe()).parent_id
    if parent_id is None:
        return None
    parent = run.other(parent_id)
    if await parent.exists() and (await parent.describe()).workflow_type not in PLANNING_TYPES:
        return None
    return parent_id  # also if its history is gone, and with it its type


async def _request_context(run: RunReader) -> Sequence[Json] | None:
    """The context that the run was started with; None if the history of its start is gone."""
    from temporalio.service import RPCError

    try:
        request = await run.request()
    except RPCError:
        return None
    context = request.get("context", []) if isinstance(request, dict) else None
    return context if isinstance(context, list) else None


def _instance_calls(result: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The Calls of the instances of a run that has ended: children have walked some."""
    for instance, item in named_instances(result).items():
        for call in (item.get("calls") if isinstance(item, dict) else None) or ():
            yield {**call, "instance": instance}


# -- the answer as a tree ---------------------------------------------------------------------------------------------

MAX_VALUE: Final = 100
MAX_PARAMETERS: Final = 20  # of one call; --json has all
_MAX_PATHS: Final = 3  # in one line

# What executed a call …
_EXECUTORS: Final = {
    provenance.ACTIVITY: "Activity", provenance.MODEL: "the model", provenance.DELEGATE: "delegate",
    provenance.ENGINE: "the engine, whose error it is", provenance.UNKNOWN: "unknown",
}  # fmt: skip
# … who wrote a result that was in the plan already, and who planned the call
_LITERAL_AUTHORS: Final = {
    provenance.MODEL: "the model, in its plan", provenance.REQUEST: "the Request, in its plan",
    provenance.DECISION: "a person, in the edited plan",
}  # fmt: skip
_PLANNERS: Final = {provenance.MODEL: "planned by the model", provenance.PERSON: "planned by a person"}


def provenance_tree(trace: ValueTrace, parent: str | None = None) -> Tree:
    """A trace as a tree. ``parent`` is the run that passed this one its data."""
    head = _text((f"{trace.path}", "bold"), (f" = {_short(trace)}", ""))
    head.append("   from outside" if trace.outside else "   from the Request alone", _style(outside=trace.outside))
    tree = Tree(head, guide_style="dim")
    _add_sources(tree, trace, parent)
    return tree


def _short(trace: ValueTrace) -> str:
    return clean(trace.text if trace.text is not None else "nothing", MAX_VALUE)


def _add_sources(tree: Tree, trace: ValueTrace, parent: str | None) -> None:
    for source in trace.sources:
        branch = tree.add(_source_line(source, trace, parent))
        if not source.again and not source.cut:
            _add_call(branch, source, parent)
    if trace.more:
        tree.add(_text((f"… and {trace.more} more messages: ask for a part of it, or --json", "dim")))


def _add_call(branch: Tree, source: Source, parent: str | None) -> None:
    """The parameters of a call as planned, and where the values of their references came from."""
    parameters = {k: v for k, v in (source.origin.call or {}).items() if k not in META}
    for name, value in list(parameters.items())[:MAX_PARAMETERS]:
        if not any(scan(value)):
            branch.add(_text((f"{name}  ", "dim"), (clean(compact_json(value), MAX_VALUE), "")))
        for read in source.reads:
            if read.parameter == name:
                _add_read(branch, read, parent)
    if len(parameters) > MAX_PARAMETERS:
        branch.add(_text((f"… and {len(parameters) - MAX_PARAMETERS} more parameters", "dim")))
    for read in source.reads:
        if read.parameter in META:
            _add_read(branch, read, parent)
    if source.origin.saw_all:
        branch.add(_text(("was shown all data as of the start of its plan", "dim")))


def _add_read(branch: Tree, read: ReferenceTrace, parent: str | None) -> None:
    name = "scope" if read.parameter == "_scopes" else read.at
    if len(read.values) != 1:
        branch, name = branch.add(_text((f"{name}  ", "dim"), (read.text, ""))), ""
    for value in read.values:
        label, path = (f"{name}  " if name else "", "dim"), str(value.path)
        if value.text is None:
            branch.add(_text(label, (path, ""), (": no value" if value.used else ": not needed", "dim")))
        else:
            _add_sources(branch.add(_text(label, (path, "bold"), (f" = {_short(value)}", ""))), value, parent)


def _source_line(source: Source, trace: ValueTrace, parent: str | None) -> Text:
    """``3:chargeCard  Activity chargeCard  tick 2  2026-01-01 10:00:00Z``"""
    origin = source.origin
    text = _text((_author(source, parent), _style(outside=origin.outside)))
    if origin.call is not None and (origin.word != provenance.REQUEST or origin.is_literal):
        name = source.id or str(origin.call.get("_tool"))
        text = _text((f"{name}  ", "bold"), (_executor(origin), _style(outside=origin.outside)))
    for fact in _facts(source, trace):
        text.append(clean(f"  {fact}", 300), "dim")
    if source.again or (source.cut and origin.call is not None):
        text.append("  (shown elsewhere)" if source.again else "  (more with --depth)", "dim italic")
    return text


def _author(source: Source, parent: str | None) -> str:
    """The author of a message that no call of this run wrote."""
    word, place = source.origin.word, f"message {source.message}"
    if word == provenance.REQUEST:
        return f"the Request, /context/{source.message}"
    if word == provenance.PROVIDED:
        return f"provided to the run ({place})"
    if word == provenance.DECISION:
        payload = source.raw.get(str(source.raw["type"]))
        by = payload.get("by") if isinstance(payload, dict) else None
        return f"decided by {by or 'somebody'} ({place})"
    return f"passed by the parent run {parent} ({place})" if parent else f"unknown ({place})"


def _executor(origin: Author) -> str:
    """What executed a call, or who wrote its result in the plan."""
    if origin.is_literal:
        return _LITERAL_AUTHORS.get(origin.word, "the author of the plan")
    tool = origin.tool
    fixed = (origin.call or {}).get("_delegate") or (tool.consts.get("_delegate") if tool is not None else None)
    names = {provenance.ACTIVITY: tool.activity if tool is not None else None, provenance.DELEGATE: fixed}
    name = names.get(origin.word)
    return _EXECUTORS[origin.word] + (f" {name}" if name else "")


def _facts(source: Source, trace: ValueTrace) -> Iterator[str]:
    origin, raw = source.origin, source.raw
    if origin.word == provenance.REQUEST and origin.call is not None and not origin.is_literal:
        yield f"written by {origin.id or origin.call.get('_tool')} of an earlier run"
    if origin.tick is not None:
        yield f"tick {origin.tick}"
    if isinstance(raw.get("_date"), str):
        yield f"{str(raw['_date'])[:19].replace('T', ' ')}Z"
    if raw.get("_outputMethod") not in (None, "set"):
        yield str(raw["_outputMethod"])
    if origin.error is not None:
        yield f"failed: {origin.error}"
    if origin.planned in _PLANNERS and not origin.is_literal:
        yield _PLANNERS[origin.planned]
    if source.wrote != [trace.path]:
        more = ", …" if len(source.wrote) > _MAX_PATHS else ""
        yield f"→ {', '.join(map(str, source.wrote[:_MAX_PATHS]))}{more}"


def _style(*, outside: bool) -> str:
    return "yellow" if outside else "green"


def _text(*parts: tuple[str, str]) -> Text:
    return Text.assemble(*((clean(words, 400), style) for words, style in parts))
