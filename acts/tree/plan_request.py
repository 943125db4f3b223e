"""Builds the Requests of runs that walk a part of a plan, and the context page for a model. Pure.

An agent's context grows with every tick, but the plan of one tick reads little of it; a batch has thousands of children
with the same global data. So the Request of a part has only the Tools that its Calls use, the values that they read,
the schemas of what they write, and an empty value of the right type at each path that they write (an empty list for a
list), which decides whether ``push`` or ``merge`` applies. It runs as the full Request would. Where a person may edit
the plan into any other, it has all Tools and data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import InvalidRequest, Problem
from acts.language.messages import GROWING_METHODS, scoped_context, wrap_message
from acts.language.references import Path
from acts.language.strict_json import json_size
from acts.language.values import ABSENT, Json, Names, deep_merge, nest
from acts.language.wire import MAX_PAYLOAD_BYTES
from acts.plan.graph import paths_read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.language.messages import Data, Request
    from acts.language.tools import Tool
    from acts.plan.calls import PlannedCall
    from acts.plan.context_log import Log
    from acts.plan.validate import ValidatedPlan

_EMPTY: Final[dict[type, Json]] = {list: [], dict: {}, str: "", bool: False, int: 0, float: 0}


def part_request(
    prepared: ValidatedPlan,
    log: Log,
    nodes: Sequence[PlannedCall],
    config: dict[str, Any],
    *,
    is_editable: bool = False,
) -> dict[str, Any]:
    """The Request of some Calls of a plan (all, or the first), over all of its instances."""
    listed = sorted(nodes, key=lambda n: n.index)
    requests = PartRequests(prepared, log, config, is_editable=is_editable)
    return requests.build(listed, [n.planned for n in listed], list(prepared.request.instances()))


class PartRequests:
    """The Requests of the parts of one plan. ``log`` has the values that its Calls may read.

    Global data up to ``unfiltered_bytes`` is in all of them.
    """

    def __init__(
        self, prepared: ValidatedPlan, log: Log, config: dict[str, Any], *, is_editable: bool, unfiltered_bytes: int = 0
    ) -> None:
        self._prepared, self._log, self._config = prepared, log, config
        self._is_editable, self._unfiltered_bytes = is_editable, unfiltered_bytes
        self._local: dict[str, list[Data]] = {}
        for message in prepared.request.data():
            if message.instance is not None:
                self._local.setdefault(message.instance, []).append(message)
        self._nodes: Sequence[PlannedCall] = ()
        self._common: list[Json] | None = None

    def build(
        self, nodes: Sequence[PlannedCall], calls: list[Json], instances: Sequence[str], provided: Iterable[Data] = ()
    ) -> dict[str, Any]:
        """The Request of these Calls (``nodes`` as planned, ``calls`` as they are listed) over these instances."""
        if self._common is None or nodes is not self._nodes:  # every child of a template has the same
            self._nodes, self._common = nodes, self._common_messages(nodes)
        context = [*self._common, *(m for id_ in instances for m in self._instance_messages(id_))]
        context += [m.raw for m in provided if m.instance is None or m.instance in instances]
        mode = self._prepared.request.plan.mode if self._prepared.request.plan is not None else "eager"
        context.append({"type": "plan", "plan": calls, **({"mode": mode} if mode != "eager" else {})})
        return {"config": self._config, "context": context}

    def _common_messages(self, nodes: Sequence[PlannedCall]) -> list[Json]:
        """The Tools and the global data."""
        data = self._prepared.request.data()
        messages = [_without_author(m) for m in data if m.instance is None]
        if self._is_editable:
            return [*_tool_messages({name: tool.schema for name, tool in self._prepared.tools.items()}), *messages]
        if json_size(messages) <= self._unfiltered_bytes:
            return [*tool_messages(nodes), *messages]
        local = [m for own in self._local.values() for m in own]
        needed = needed_messages(self._log, nodes, local)
        return [*tool_messages(nodes), *_schema_messages(data, nodes), *needed]

    def _instance_messages(self, id_: str) -> list[Json]:
        own = [_without_author(m) for m in self._local.get(id_, ())]
        return own or [{"type": "state", "state": {}, "_instance": id_}]


def tool_messages(nodes: Iterable[PlannedCall]) -> list[Json]:
    """One message for each Tool that the Calls use."""
    return _tool_messages({n.tool.name: n.tool.schema for n in nodes})


def _tool_messages(schemas: Mapping[str, dict[str, Any]]) -> list[Json]:
    return [{"type": "tool", "tool": _with_name(name, schemas[name])} for name in sorted(schemas)]


def _with_name(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The Tool's schema with its name inside: in a map by name, some names would read as keywords of a schema."""
    properties = schema.get("properties")
    return {**schema, "properties": {**(properties if isinstance(properties, dict) else {}), "_tool": {"const": name}}}


def _schema_messages(data: Iterable[Data], nodes: Sequence[PlannedCall]) -> list[Json]:
    """The global messages' schemas for the kinds that the Calls write."""
    kinds = {p.kind for n in nodes for p in n.writes}
    return [
        {k: v for k, v in m.raw.items() if k in ("type", "kind", "schema", "_instance")}
        for m in data
        if m.schema is not None and m.kind in kinds and m.instance is None
    ]


def _without_author(message: Data) -> dict[str, Any]:
    return {k: v for k, v in message.raw.items() if k not in ("_call", "_date")}


def needed_messages(log: Log, nodes: Iterable[PlannedCall], local: Iterable[Data] = ()) -> list[dict[str, Any]]:
    """Global Messages with the values that these Calls read, and empty values of the type at each path they write.

    ``local`` are the messages of instances in the same Request; they may add to global lists, too.
    """
    nodes = list(nodes)
    read = [p for n in nodes for p in paths_read(n)]
    grown = [p for n in nodes if n.method in GROWING_METHODS for p in n.writes]
    grown += [m.path for m in local if m.path is not None and m.method in GROWING_METHODS]
    needed = dict.fromkeys(read)
    above = {prefix for path in needed for prefix in path.prefixes(itself=True)}
    needed.update({g: None for g in grown if g in above})
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
