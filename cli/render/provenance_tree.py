"""The answer of ``acts why`` as a tree: a value, who wrote it, what that call had read, and so on.

Everything shown is clean text; what came from outside is yellow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text
from rich.tree import Tree

from acts.language.errors import truncate
from acts.language.reference_uses import contains_reference
from acts.language.references import Path
from acts.language.tools import META
from acts.provenance import message_authors as authors
from acts.provenance.message_authors import Author
from acts.provenance.trace import ReferenceTrace, Source, ValueTrace
from cli.console import clean, compact_json

MAX_VALUE: Final = 100
MAX_PARAMETERS: Final = 20  # of one call; --json has all
_MAX_PATHS: Final = 3  # in one line

# What executed a call …
_EXECUTORS: Final = {
    authors.ACTIVITY: "Activity", authors.MODEL: "the model", authors.DELEGATE: "delegate",
    authors.ENGINE: "the engine, whose error it is", authors.UNKNOWN: "unknown",
}  # fmt: skip
# … who wrote a result that was in the plan already, and who planned the call
_LITERAL_AUTHORS: Final = {
    authors.MODEL: "the model, in its plan", authors.REQUEST: "the Request, in its plan",
    authors.DECISION: "a person, in the edited plan",
}  # fmt: skip
_PLANNERS: Final = {
    authors.MODEL: "planned by the model", authors.PERSON: "planned by a person",
    authors.EDITED: "planned by the model, then edited",
}  # fmt: skip


def provenance_tree(trace: ValueTrace, parent: str | None = None) -> Tree:
    """A trace as a tree. ``parent`` is the run that passed this one its data."""
    head = _text((f"{trace.path}", "bold"), (f" = {short_value(trace)}", ""))
    head.append("   from outside" if trace.outside else "   from the Request alone", _style(outside=trace.outside))
    tree = Tree(head, guide_style="dim")
    _add_sources(tree, trace, parent)
    return tree


def short_value(trace: ValueTrace) -> str:
    """The value on one line."""
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
        if not contains_reference(value):
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
    if len(read.values) == 1:
        _add_value(branch, f"{name}  ", read.values[0], parent)
        return
    inner = branch.add(_text((f"{name}  ", "dim"), (read.text, "")))
    for value in read.values:
        _add_value(inner, "", value, parent)


def _add_value(branch: Tree, label: str, value: ValueTrace, parent: str | None) -> None:
    if not value.used:
        branch.add(_text((label, "dim"), (f"{value.path}", ""), (": not needed", "dim")))
    elif value.text is None:
        branch.add(_text((label, "dim"), (f"{value.path}", ""), (": no value", "dim")))
    else:
        line = _text((label, "dim"), (f"{value.path}", "bold"), (f" = {short_value(value)}", ""))
        _add_sources(branch.add(line), value, parent)


def _source_line(source: Source, trace: ValueTrace, parent: str | None) -> Text:
    """``3:chargeCard  Activity chargeCard  tick 2  2026-01-01 10:00:00Z``"""
    origin = source.origin
    text = _text((_author(source, parent), _style(outside=origin.outside)))
    if origin.call is not None and (origin.word != authors.REQUEST or origin.is_literal):
        name = source.id or str(origin.call.get("_tool"))
        text = _text((f"{name}  ", "bold"), (_executor(origin), _style(outside=origin.outside)))
    for fact in [*_facts(source), *([] if source.wrote == [trace.path] else [_paths(source.wrote)])]:
        text.append(clean(f"  {fact}", 300), "dim")
    if source.again or (source.cut and origin.call is not None):
        text.append("  (shown elsewhere)" if source.again else "  (more with --depth)", "dim italic")
    return text


def _author(source: Source, parent: str | None) -> str:
    """The author of a message that no call of this run wrote."""
    word, place = source.origin.word, f"message {source.message}"
    if word == authors.REQUEST:
        return f"the Request, /context/{source.message}"
    if word == authors.PROVIDED:
        return f"provided to the run ({place})"
    if word == authors.DECISION:
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
    names = {authors.ACTIVITY: tool.activity if tool is not None else None, authors.DELEGATE: fixed}
    name = names.get(origin.word)
    return _EXECUTORS[origin.word] + (f" {name}" if name else "")


def _facts(source: Source) -> Iterator[str]:
    origin, raw = source.origin, source.raw
    if origin.word == authors.REQUEST and origin.call is not None and not origin.is_literal:
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


def _paths(paths: Sequence[Path]) -> str:
    return f"→ {', '.join(map(str, paths[:_MAX_PATHS]))}{', …' if len(paths) > _MAX_PATHS else ''}"


def _style(*, outside: bool) -> str:
    return "yellow" if outside else "green"


def _text(*parts: tuple[str, str]) -> Text:
    text = Text()
    for words, style in parts:
        text.append(clean(truncate(words, 400)), style)
    return text
