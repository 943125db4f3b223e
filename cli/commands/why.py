"""``acts why``: where a value of a run came from, back through the Calls.

Laws of this file:
- a run that goes on is asked as well as one that is over;
- what came from outside is shown as text: clean, cut to a line, and never read as markup;
- a path that leads nowhere is answered with where it could have led, and who would have written there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from acts.language.errors import ExpressionError, truncate
from acts.language.messages import read_request
from acts.language.references import MARK, Path, alternatives, any_reference, parse
from acts.language.tools import META, Tool
from acts.language.values import Json
from acts.provenance import message_authors
from acts.provenance.message_authors import Author, RunRecord
from acts.provenance.trace import Limits, ProvenanceIndex, ReferenceTrace, Source, ValueTrace
from cli.command_errors import DONE, CommandError, MessageBlock, refuse
from cli.console import clean, console, out_json, print_blocks
from cli.runs import server
from cli.runs.run_reader import account

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

# More is told to programs than a person reads
_EACH_JSON, _ALL_JSON = 100, 2000
MAX_VALUE: Final = 100
MAX_NAMED: Final = 12
_MAX_PARAMETERS: Final = 20  # of one Call; --json has all

# What ran behind a Call …
_BEHIND: Final = {
    message_authors.ACTIVITY: "Activity", message_authors.MODEL: "the model", message_authors.DELEGATE: "delegate",
    message_authors.ENGINE: "the engine, whose error it is", message_authors.UNKNOWN: "nobody can tell what",
}  # fmt: skip
# … whose words its result is, where that stood in the plan already, and who planned it
_GIVEN: Final = {
    message_authors.MODEL: "the model, in its plan", message_authors.REQUEST: "the Request, in its plan",
    message_authors.DECISION: "a person, in the edited plan",
}  # fmt: skip
_PLANNED: Final = {
    message_authors.MODEL: "planned by the model", message_authors.PERSON: "planned by a person",
    message_authors.EDITED: "planned by the model, then edited",
}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What is asked: a path of a run, in the view of an instance, so many levels of Calls deep."""

    run: str
    path: str
    instance: str | None = None
    depth: int = Limits.depth


def why(asked: Asked, *, as_json: bool) -> int:
    """Tell where a value came from.

    Raises:
        Refusal: there is no such run, nothing stands there, or nobody answers.
    """
    return server.go(_why(asked, path_of(asked.path), as_json=as_json))


def path_of(text: str) -> Path:
    """One path; its first sign may be left out, since few keyboards have it.

    Raises:
        Refusal: it is none.
    """
    given = text.strip() if text.strip().startswith(MARK) else MARK + text.strip()
    try:
        tree = parse(given)
    except ExpressionError as error:
        raise refuse(f"{error} in {clean(given, 100)!r}", where="PATH", hint="like †state.order[0].price") from None
    if not isinstance(tree, Path):
        raise refuse(f"{clean(given, 100)} is several paths", where="PATH", hint="ask for one of them")
    return tree


async def _why(asked: Asked, path: Path, *, as_json: bool) -> int:
    client = await server.connect()
    found = await account(client, asked.run)
    trail = ProvenanceIndex(found.told)
    _check_instance(trail, asked)
    limits = Limits(asked.depth, _EACH_JSON, _ALL_JSON) if as_json else Limits(asked.depth)
    answer = trail.why(path, asked.instance, limits=limits)
    if answer.text is None:
        raise _nowhere(trail, path, asked, found.told)
    if as_json:
        out = {**answer.to_json(), "value": trail.value(path, asked.instance)}
        out.pop("shortened", None)
        out_json(out if asked.instance is None else {**out, "instance": asked.instance})
    else:
        console(wrap=True).print(tree_of(answer, found.above))
    if not found.complete:
        text = "no worker answers, so what ran behind calls is told only where their tools say it"
        print_blocks([MessageBlock(text, severity="note")])
    return DONE


# -- what cannot be answered ---------------------------------------------------


def _check_instance(trail: ProvenanceIndex, asked: Asked) -> None:
    if asked.instance is not None and asked.instance not in trail.instances:
        text = f'this run has no instance "{clean(asked.instance, 100)}"'
        raise refuse(text, where="--instance", hint=f"it has: {_listed(trail.instances)}")


def _nowhere(trail: ProvenanceIndex, path: Path, asked: Asked, told: RunRecord) -> CommandError:
    """Nothing stands there: how far the path leads, who would write there, and what may have been meant."""
    above, names, likely = trail.near(path, asked.instance)
    facts = [("there is", _listed([str(n) for n in names]))] if names else []
    if above is not None and not names:
        facts = [("found", f"{above} = {_short(trail.why(above, asked.instance))}")]
    coming = [("writes there", text) for text in _would_write(told, path)]
    holding = [i for i in trail.instances if trail.find(path, i, trail.end)] if asked.instance is None else []
    if holding:
        coming.append(("instances", f"it stands in {_listed(holding)}: --instance {clean(holding[0], 100)}"))
    if path.kind == "output":
        coming.append(("hint", "an agent's output is its model's own answer; ask for a value that it refers to"))
    elif likely is not None and not coming:
        coming.append(("hint", f"did you mean {clean(likely, 200)}?"))
    return CommandError(MessageBlock(f"nothing stands at {clean(path, 200)}", "", [*facts, *coming]))


def _would_write(told: RunRecord, path: Path) -> Iterator[str]:
    """The Calls of the latest plan that may write at a path, or above or below it, and how they are."""
    states = {str(c.get("id")): str(c.get("state")) for c in told.calls}
    plan = read_request({"context": list(told.messages)}).plan
    for position, call in enumerate(plan.calls if plan is not None else ()):
        id_ = f"{position + 1}:{call.get('_tool')}" if isinstance(call, dict) else ""
        tool = told.tools.get(id_.partition(":")[2])
        if tool is not None and states.get(id_) != "completed" and any(p.overlaps(path) for p in _writes(call, tool)):
            yield clean(id_ + (f", which is {states[id_]}" if id_ in states else ""), 200)


def _writes(call: Mapping[str, Json], tool: Tool) -> Iterator[Path]:
    for key in ("_outputPath", "_errorPath"):
        text = call.get(key, tool.consts.get(key))
        try:
            yield from (p for option in alternatives(parse(text)) for p in option) if isinstance(text, str) else ()
        except ExpressionError:
            continue


def _listed(names: Sequence[str]) -> str:
    more = f", … ({len(names)} in all)" if len(names) > MAX_NAMED else ""
    return ", ".join(clean(n, 80) for n in names[:MAX_NAMED]) + more if names else "none"


# -- the tree ------------------------------------------------------------------


def tree_of(answer: ValueTrace, above: str | None = None) -> Tree:
    """An answer as a tree. ``above``: the run that gave this one its data."""
    from rich.tree import Tree

    head = _text((f"{answer.path}", "bold"), (f" = {_short(answer)}", ""))
    head.append("   from outside" if answer.outside else "   from the Request alone", _style(outside=answer.outside))
    tree = Tree(head, guide_style="dim")
    _add_sources(tree, answer, above)
    return tree


def _add_sources(tree: Tree, found: ValueTrace, above: str | None) -> None:
    for source in found.sources:
        branch = tree.add(_source(source, found, above))
        if not source.again and not source.cut:
            _add_call(branch, source, above)
    if found.more:
        tree.add(_text((f"… and {found.more} more messages: ask for a part of it, or --json", "dim")))


def _add_call(branch: Tree, source: Source, above: str | None) -> None:
    """What a Call was given: its parameters as planned, and where what they refer to came from."""
    given = {k: v for k, v in (source.origin.call or {}).items() if k not in META}
    for name, value in list(given.items())[:_MAX_PARAMETERS]:
        if not any_reference(value):
            branch.add(_text((f"{name}  ", "dim"), (_json(value), "")))
        for read in source.reads:
            if read.parameter == name:
                _add_read(branch, read, above)
    if len(given) > _MAX_PARAMETERS:
        branch.add(_text((f"… and {len(given) - _MAX_PARAMETERS} more parameters", "dim")))
    for read in source.reads:
        if read.parameter == "_scopes":
            _add_read(branch, read, above)
    if source.origin.all_shown:
        branch.add(_text(("was shown all data as it stood when its plan began", "dim")))


def _add_read(branch: Tree, read: ReferenceTrace, above: str | None) -> None:
    name = "scope" if read.parameter == "_scopes" else read.at
    if len(read.values) == 1:
        _add_value(branch, f"{name}  ", read.values[0], above)
        return
    inner = branch.add(_text((f"{name}  ", "dim"), (read.text, "")))
    for value in read.values:
        _add_value(inner, "", value, above)


def _add_value(branch: Tree, label: str, value: ValueTrace, above: str | None) -> None:
    if not value.used:
        branch.add(_text((label, "dim"), (f"{value.path}", ""), (": not needed", "dim")))
    elif value.text is None:
        branch.add(_text((label, "dim"), (f"{value.path}", ""), (": nothing there", "dim")))
    else:
        shown = _text((label, "dim"), (f"{value.path}", "bold"), (f" = {_short(value)}", ""))
        _add_sources(branch.add(shown), value, above)


def _source(source: Source, found: ValueTrace, above: str | None) -> Text:
    """``3:chargeCard  Activity chargeCard  tick 2  2026-01-01T10:00:00Z``"""
    origin = source.origin
    text = _text((_who(source, above), _style(outside=origin.outside)))
    if origin.call is not None and (origin.word != message_authors.REQUEST or origin.given):
        name = origin.id or str(origin.call.get("_tool"))
        text = _text((f"{name}  ", "bold"), (_behind(origin), _style(outside=origin.outside)))
    facts = [*_facts(source), *([] if source.wrote == [found.path] else [_wrote(source.wrote)])]
    for fact in facts:
        text.append(clean(f"  {fact}", 300), "dim")
    if source.again or (source.cut and source.origin.call is not None):
        text.append("  (told elsewhere)" if source.again else "  (more with --depth)", "dim italic")
    return text


def _who(source: Source, above: str | None) -> str:
    """Who wrote a message that no Call of this run did."""
    word, place = source.origin.word, f"message {source.message}"
    if word == message_authors.REQUEST:
        return f"the Request, /context/{source.message}"
    if word == message_authors.PROVIDED:
        return f"provided to the run ({place})"
    if word == message_authors.DECISION:
        payload = source.raw.get(str(source.raw["type"]))
        told = payload if isinstance(payload, dict) else {}
        return f"decided by {told.get('by') or 'somebody'} ({place})"
    return f"given by {above}, the run above ({place})" if above else f"nobody can tell ({place})"


def _behind(origin: Author) -> str:
    """What ran behind a Call, or whose words its result is."""
    if origin.given:
        return _GIVEN.get(origin.word, "whoever planned it")
    tool = origin.tool
    fixed = (origin.call or {}).get("_delegate") or (tool.consts.get("_delegate") if tool is not None else None)
    name = {message_authors.ACTIVITY: tool.activity if tool is not None else None, message_authors.DELEGATE: fixed}.get(
        origin.word
    )
    return _BEHIND[origin.word] + (f" {name}" if name else "")


def _facts(source: Source) -> Iterator[str]:
    origin, raw = source.origin, source.raw
    if origin.word == message_authors.REQUEST and origin.call is not None and not origin.given:
        yield f"where {origin.id or origin.call.get('_tool')} of an earlier run wrote it"
    if origin.tick is not None:
        yield f"tick {origin.tick}"
    if isinstance(raw.get("_date"), str):
        yield f"{str(raw['_date'])[:19].replace('T', ' ')}Z"
    if raw.get("_outputMethod") not in (None, "set"):
        yield str(raw["_outputMethod"])
    if origin.error is not None:
        yield f"failed: {origin.error}"
    if origin.planned in _PLANNED and not origin.given:
        yield _PLANNED[origin.planned]


def _wrote(places: Sequence[Path]) -> str:
    return f"→ {', '.join(map(str, places[:3]))}{', …' if len(places) > 3 else ''}"  # noqa: PLR2004 - what fits a line


def _style(*, outside: bool) -> str:
    return "yellow" if outside else "green"


def _short(found: ValueTrace) -> str:
    return clean(found.text if found.text is not None else "nothing", MAX_VALUE)


def _json(value: Json) -> str:
    import json

    return clean(json.dumps(value, ensure_ascii=False), MAX_VALUE)


def _text(*parts: tuple[str, str]) -> Text:
    from rich.text import Text

    text = Text()
    for words, style in parts:
        text.append(clean(truncate(words, 400)), style)
    return text
