"""``acts why``: where a value of a run came from, back through the calls.

Laws of this file:
- a run can be asked while it runs and after it has ended;
- text from outside is only text: clean, cut to a line, never interpreted as markup;
- a path without a value is answered with the nearest values, and the calls that may still write there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from acts.language.errors import ExpressionError
from acts.language.expression_parser import parse
from acts.language.references import MARK, Path, alternatives
from acts.language.request_reader import read_request
from acts.language.tools import Tool
from acts.language.values import Json
from acts.provenance.message_authors import RunRecord
from acts.provenance.trace import Limits, ProvenanceIndex
from cli.command_errors import EXIT_DONE, CommandError, MessageBlock, command_error, message
from cli.console import clean, console, print_blocks, print_json
from cli.render.provenance_tree import provenance_tree, short_value
from cli.runs.instance_lookup import list_names
from cli.runs.run_reader import open_run
from cli.runs.run_record import read_record

# Of --json: calls that wrote one value, and lines in all
_JSON_EACH, _JSON_ALL = 100, 2000


@dataclass(frozen=True)
class WhyQuery:
    """A path of a run, in the view of an instance, and how many calls back the answer goes."""

    run: str
    path: str
    instance: str | None = None
    depth: int = Limits.depth


async def why(query: WhyQuery, *, as_json: bool) -> int:
    """Print where a value came from."""
    path = parse_path(query.path)
    read = await read_record(await open_run(query.run))
    index = ProvenanceIndex(read.record)
    if query.instance is not None and query.instance not in index.instances:
        text = f'this run has no instance "{clean(query.instance, 100)}"'
        raise command_error(text, where="--instance", hint=f"it has: {list_names(index.instances)}")
    limits = Limits(query.depth, _JSON_EACH, _JSON_ALL) if as_json else Limits(query.depth)
    trace = index.why(path, query.instance, limits=limits)
    if trace.text is None:
        raise _no_value_error(index, path, query, read.record)
    if as_json:
        out = {**trace.to_json(), "value": index.value(path, query.instance)}
        out.pop("shortened", None)
        print_json(out if query.instance is None else {**out, "instance": query.instance})
    else:
        console(wrap=True).print(provenance_tree(trace, read.parent))
    if not read.has_tools:
        text = "no worker answers, so what executed a call is known only from its tool's own schema"
        print_blocks([message(text, severity="note")])
    return EXIT_DONE


def parse_path(text: str) -> Path:
    """A single path; its leading † may be omitted, as few keyboards have it.

    Raises:
        CommandError: it is not a path, or several.
    """
    text = text.strip()
    text = text if text.startswith(MARK) else MARK + text
    try:
        tree = parse(text)
    except ExpressionError as error:
        hint = "like †state.order[0].price"
        raise command_error(f"{error} in {clean(text, 100)!r}", where="PATH", hint=hint) from None
    if not isinstance(tree, Path):
        raise command_error(f"{clean(text, 100)} is several paths", where="PATH", hint="ask for one of them")
    return tree


def _no_value_error(index: ProvenanceIndex, path: Path, query: WhyQuery, record: RunRecord) -> CommandError:
    """There is no value at the path: the nearest one, the calls that may write there, and a suggestion."""
    above, names, likely = index.near(path, query.instance)
    facts = [("there is", list_names([str(n) for n in names]))] if names else []
    if above is not None and not names:
        facts = [("found", f"{above} = {short_value(index.why(above, query.instance))}")]
    hints = [("may be written by", text) for text in _possible_writers(record, path)]
    if query.instance is None and (holders := [i for i in index.instances if index.find(path, i, index.end)]):
        text = f"{list_names(holders)} {'has' if len(holders) == 1 else 'have'} a value there"
        hints.append(("instances", f"{text}: --instance {clean(holders[0], 100)}"))
    if path.kind == "output":
        hints.append(("hint", "an agent's output is its model's own answer; ask for a value that it refers to"))
    elif likely is not None and not hints:
        hints.append(("hint", f"did you mean {clean(likely, 200)}?"))
    return CommandError(MessageBlock(f"there is no value at {clean(path, 200)}", "", [*facts, *hints]))


def _possible_writers(record: RunRecord, path: Path) -> Iterator[str]:
    """The calls of the latest plan that may write at a path, above or below it, with their states."""
    states = {str(c.get("id")): str(c.get("state")) for c in record.calls}
    plan = read_request({"context": list(record.messages)}).plan
    for position, call in enumerate(plan.calls if plan is not None else (), 1):
        id_ = f"{position}:{call.get('_tool')}" if isinstance(call, dict) else ""
        tool = record.tools.get(id_.partition(":")[2])
        if tool is None or states.get(id_) == "completed":
            continue
        if any(p.overlaps(path) for p in _writes(call, tool)):
            yield clean(id_ + (f", which is {states[id_]}" if id_ in states else ""), 200)


def _writes(call: Mapping[str, Json], tool: Tool) -> Iterator[Path]:
    for key in ("_outputPath", "_errorPath"):
        text = call.get(key, tool.consts.get(key))
        try:
            options: Sequence[Sequence[Path]] = alternatives(parse(text)) if isinstance(text, str) else ()
        except ExpressionError:
            continue
        for option in options:
            yield from option
