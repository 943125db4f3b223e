"""Builds the Requests that run an agent's plan, and the context page for a model. Pure.

An agent's context grows with every tick, but the plan of one tick reads little of it. The minimal
Request of a plan has only the Tools that its Calls use, the values that they read, the schemas of
what they write, and an empty value of the right type at each path that they write (an empty list
for a list), which decides whether ``push`` or ``merge`` applies. It runs as the full Request would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import InvalidRequest, Problem
from acts.language.output_methods import GROWING_METHODS
from acts.language.references import Path
from acts.language.scopes import scoped_context, wrap_message
from acts.language.strict_json import json_size
from acts.language.values import ABSENT, Json, Names, deep_merge, nest
from acts.language.wire import MAX_PAYLOAD_BYTES
from acts.plan.graph import paths_read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from acts.language.messages import Data, Request
    from acts.language.tools import Tool
    from acts.plan.context_log import Log
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan

_EMPTY: Final[dict[type, Json]] = {list: [], dict: {}, str: "", bool: False, int: 0, float: 0}


def minimal_request(
    prepared: ValidatedPlan, log: Log, nodes: Sequence[PlannedCall], config: dict[str, Any]
) -> dict[str, Any]:
    """The Request of some Calls of a plan (all, or the first), with only the context that they need."""
    request = prepared.request
    plan = request.plan
    mode = plan.mode if plan is not None else "eager"
    local = [m for m in request.data() if m.instance is not None]
    context: list[Json] = [*tool_messages(nodes), *schema_messages(request, nodes), *needed_messages(log, nodes, local)]
    by_instance: dict[str, list[Data]] = {}
    for message in local:
        by_instance.setdefault(str(message.instance), []).append(message)
    by_call: dict[str | None, TouchedPaths] = {None: TouchedPaths()}
    for node in nodes:
        by_call.setdefault(node.call.get("_instance"), TouchedPaths()).add(node)
    for instance, messages in by_instance.items():
        touched = [by_call[None], *([by_call[instance]] if instance in by_call else [])]
        context += own_messages(messages, touched) or [{**wrap_message("state", {}), "_instance": instance}]
    listed = sorted(nodes, key=lambda n: n.index)
    context.append({"type": "plan", "plan": [n.planned for n in listed], "mode": mode})
    return {"config": config, "context": context}


def tool_messages(nodes: Iterable[PlannedCall]) -> list[Json]:
    """One message for each Tool that the Calls use."""
    tools = {n.tool.name: n.tool.schema for n in nodes}
    return [{"type": "tool", "tool": _with_name(name, tools[name])} for name in sorted(tools)]


def schema_messages(request: Request, nodes: Sequence[PlannedCall]) -> list[Json]:
    """The global messages' schemas for the kinds that the Calls write."""
    kinds = {p.kind for n in nodes for p in n.writes}
    return [
        {k: v for k, v in m.raw.items() if k in ("type", "kind", "schema", "_instance")}
        for m in request.data()
        if m.schema is not None and m.kind in kinds and m.instance is None
    ]


class TouchedPaths:
    """The paths that some Calls read or write; built once for the messages of all instances."""

    def __init__(self, nodes: Iterable[PlannedCall] = ()) -> None:
        self._at: set[tuple[str, Names]] = set()
        self._above: set[tuple[str, Names]] = set()
        for node in nodes:
            self.add(node)

    def add(self, node: PlannedCall) -> None:
        """Add those of a Call."""
        for path in (*paths_read(node), *node.writes):
            if (path.kind, path.names) not in self._at:
                self._at.add((path.kind, path.names))
                self._above.update((path.kind, path.names[:depth]) for depth in range(len(path.names) + 1))

    def overlap(self, kind: str, names: Names) -> bool:
        """True when one of the paths leads to this one, below it or above it."""
        return (kind, names) in self._above or any((kind, names[:depth]) in self._at for depth in range(len(names)))


def own_messages(messages: Sequence[Data], touched: Sequence[TouchedPaths]) -> list[Json]:
    """The messages of one instance that its Calls read or write, without those that a later one replaces."""
    replaced: set[tuple[str, Names]] = set()
    out: list[Json] = []
    for message in reversed(messages):
        at = (message.kind, message.path.names if message.path is not None else ())
        hidden = any((at[0], at[1][:depth]) in replaced for depth in range(len(at[1]) + 1))
        hidden = hidden and message.schema is None
        needed = message.schema is not None or any(paths.overlap(*at) for paths in touched)
        if needed and not hidden:
            out.append({k: v for k, v in message.raw.items() if k not in ("_call", "_date")})
        if message.path is not None and message.method == "set":
            replaced.add(at)
    return out[::-1]


def full_request(
    prepared: ValidatedPlan, _: Log, nodes: Sequence[PlannedCall], config: dict[str, Any]
) -> dict[str, Any]:
    """The Request with all Tools and data, for a plan that a person may edit into any that the agent could make."""
    request = prepared.request
    mode = request.plan.mode if request.plan is not None else "eager"
    context = [*all_tools(prepared), *(m.raw for m in request.data())]
    listed = sorted(nodes, key=lambda n: n.index)
    return {
        "config": config,
        "context": [*context, {"type": "plan", "plan": [n.planned for n in listed], "mode": mode}],
    }


def all_tools(prepared: ValidatedPlan) -> list[dict[str, Any]]:
    """One message for each Tool of a Request."""
    return [{"type": "tool", "tool": _with_name(name, prepared.tools[name].schema)} for name in sorted(prepared.tools)]


def _with_name(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The Tool's schema with its name inside: in a map by name, some names would read as keywords of a schema."""
    properties = schema.get("properties")
    return {**schema, "properties": {**(properties if isinstance(properties, dict) else {}), "_tool": {"const": name}}}


def needed_messages(log: Log, nodes: Iterable[PlannedCall], local: Iterable[Data] = ()) -> list[dict[str, Any]]:
    """Global Messages with the values that these Calls read, and empty values of the type at each path they write.

    ``local`` are the messages of instances in the same Request; they may add to global lists, too.
    """
    nodes = list(nodes)
    read = [p for n in nodes for p in paths_read(n)]
    grown = [p for n in nodes if n.method in GROWING_METHODS for p in n.writes]
    grown += [m.path for m in local if m.path is not None and m.method in GROWING_METHODS]
    needed = dict.fromkeys(read)
    above = {(p.kind, p.names[:depth]) for p in needed for depth in range(len(p.names) + 1)}
    needed.update({g: None for g in grown if (g.kind, g.names) in above})
    context = scoped_context(needed, lambda path: log.read(path, 0))
    values = {str(m.get("kind", m["type"])): m[m["type"]] for m in context}
    for path in dict.fromkeys(p for n in nodes for p in n.writes):
        frame = _empty_frame(log, path)
        if frame is not ABSENT:
            values[path.kind] = _merge_over(frame, values[path.kind]) if path.kind in values else frame
    return [wrap_message(kind, payload) for kind, payload in values.items()]


def _empty_frame(log: Log, path: Path) -> Json:
    """An empty value of the type at a path, nested at that path, or at the first list on the way to it."""
    for depth in range(len(path.names) + 1):
        names: Names = path.names[:depth]
        value = log.read(Path(path.kind, names), 0)
        if value is ABSENT:
            return ABSENT
        if isinstance(value, list) or depth == len(path.names) or not isinstance(value, dict):
            return nest(names, None if value is None else _EMPTY.get(type(value)))
    return ABSENT


def _merge_over(frame: Json, value: Json) -> Json:
    """The value read, merged over the empty frame of the same kind."""
    if isinstance(frame, list) and isinstance(value, (list, dict)):
        return value
    return deep_merge(frame, value)


def edited_request(
    request: dict[str, Any], index: int, calls: list[Json], limit: int = MAX_PAYLOAD_BYTES
) -> dict[str, Any]:
    """The Request with other Calls in its plan message, at ``index`` of the context.

    Raises:
        InvalidRequest: the Request has more bytes than the limit.
    """
    context = list(request["context"])
    context[index] = {**context[index], "plan": calls}
    out = {**request, "context": context}
    size = json_size(out)
    if size > limit:
        text = f"the edited Request has {size:,} bytes; at most {limit:,} can be recorded"
        raise InvalidRequest([Problem("limitExceeded", text)])
    return out


def prompt_context(
    request: Request, tools: Iterable[Tool], mode: str, page: Json, limit: int, turns: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """A page of the context for a model's prompt, of at most ``limit`` bytes: the answer to ``promptContext``.

    ``page`` is ``{offset?, upto?, turns?: [offset, upto], known?}``; without ``known`` the page includes the Tools and
    the settings. ``turns`` are those of a planner from that offset on; they follow after the last message.
    """
    page = page if isinstance(page, dict) else {}
    offset = int(page.get("offset", 0))
    upto = min(int(page.get("upto", len(request.context))), len(request.context))
    out: dict[str, Any] = {"messages": []}
    if not page.get("known"):
        out.update(
            tools={t.name: {"schema": t.schema, "served": t.served} for t in tools}, output=request.schema, mode=mode,
            step=request.config.step, instances=list(request.instances()), maxTicks=request.config.maxTicks,
        )  # fmt: skip
    size = json_size(out)
    for message in request.context[offset:upto]:
        size += json_size(message.raw)
        if out["messages"] and size > limit:
            return out
        out["messages"].append(message.raw)
    fitting: list[dict[str, Any]] = []
    for turn in turns:
        size += json_size(turn)
        if (fitting or out["messages"]) and size > limit:
            break
        fitting.append(turn)
    return {**out, "turns": fitting} if fitting else out
