"""What a plan needs of the context it was made in: the Request of a plan that is walked by itself.

An agent's context grows with every tick; the plan of one tick reads little of it. So the
child that walks a plan is handed a part only: the Tools that its Calls use, the values
that they read, the schemas of what they write, and of each place that they write the
kind of thing that stands there (an empty list for a list), which decides whether a
``push`` or ``merge`` can be applied. Walking this part gives what walking the whole gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import InvalidRequest, Problem
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
# A list that these change is read by index as a whole: what was added counts on from its end
_GROWING: Final = ("push", "concat")


def minimal_request(
    prepared: ValidatedPlan, log: Log, nodes: Sequence[PlannedCall], config: dict[str, Any]
) -> dict[str, Any]:
    """The Request for some Calls of a plan (all of them, or the first), as JSON."""
    request = prepared.request
    plan = request.plan
    mode = plan.mode if plan is not None else "eager"
    own = [m for m in request.data() if m.instance is not None]
    context: list[Json] = [*tool_messages(nodes), *schema_messages(request, nodes), *needed_messages(log, nodes, own)]
    by_instance: dict[str, list[Data]] = {}
    for message in own:
        by_instance.setdefault(str(message.instance), []).append(message)
    for instance, messages in by_instance.items():
        seen = [n for n in nodes if n.call.get("_instance") in (None, instance)]
        context += own_messages(messages, seen) or [{**wrap_message("state", {}), "_instance": instance}]
    listed = sorted(nodes, key=lambda n: n.index)
    context.append({"type": "plan", "plan": [n.planned for n in listed], "mode": mode})
    return {"config": config, "context": context}


def tool_messages(nodes: Iterable[PlannedCall]) -> list[Json]:
    """The Tools that Calls use, each as a message."""
    tools = {n.tool.name: n.tool.schema for n in nodes}
    return [{"type": "tool", "tool": _named(name, tools[name])} for name in sorted(tools)]


def schema_messages(request: Request, nodes: Sequence[PlannedCall]) -> list[Json]:
    """The schemas of what Calls write."""
    kinds = {p.kind for n in nodes for p in n.writes}
    return [
        {k: v for k, v in m.raw.items() if k in ("type", "kind", "schema", "_instance")}
        for m in request.data()
        if m.schema is not None and m.kind in kinds and m.instance is None
    ]


def own_messages(messages: Sequence[Data], nodes: Sequence[PlannedCall]) -> list[Json]:
    """An instance's own messages, as far as these Calls meet them; what a later one replaced is left out."""
    met = [p for n in nodes for p in (*paths_read(n), *n.writes)]
    replaced: set[tuple[str, Names]] = set()
    out: list[Json] = []
    for message in reversed(messages):
        at = (message.kind, message.path.names if message.path is not None else ())
        hidden = any((at[0], at[1][:depth]) in replaced for depth in range(len(at[1]) + 1))
        hidden = hidden and message.schema is None
        seen = message.schema is not None or any(Path(*at).overlaps(p) for p in met)
        if seen and not hidden:
            out.append({k: v for k, v in message.raw.items() if k not in ("_call", "_date")})
        if message.path is not None and message.method == "set":
            replaced.add(at)
    return out[::-1]


def full_request(
    prepared: ValidatedPlan, _: Log, nodes: Sequence[PlannedCall], config: dict[str, Any]
) -> dict[str, Any]:
    """The Request with all Tools and data: a person may change its Calls into any that the agent could make."""
    request = prepared.request
    mode = request.plan.mode if request.plan is not None else "eager"
    context = [*all_tools(prepared), *(m.raw for m in request.data())]
    listed = sorted(nodes, key=lambda n: n.index)
    return {
        "config": config,
        "context": [*context, {"type": "plan", "plan": [n.planned for n in listed], "mode": mode}],
    }


def all_tools(prepared: ValidatedPlan) -> list[dict[str, Any]]:
    """The Tools of a Request, each as a message."""
    return [{"type": "tool", "tool": _named(name, prepared.tools[name].schema)} for name in sorted(prepared.tools)]


def _named(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A Tool's schema that says its name itself: as a map, some names would look like a schema."""
    found = schema.get("properties")
    return {**schema, "properties": {**(found if isinstance(found, dict) else {}), "_tool": {"const": name}}}


def needed_messages(log: Log, nodes: Iterable[PlannedCall], own: Iterable[Data] = ()) -> list[dict[str, Any]]:
    """The global Messages that hold what these Calls read, and the shape of what they write onto.

    ``own`` are messages of instances, which are handed over beside them: what they grow counts as grown.
    """
    nodes = list(nodes)
    read = [p for n in nodes for p in paths_read(n)]
    grown = [p for n in nodes if n.method in _GROWING for p in n.writes]
    grown += [m.path for m in own if m.path is not None and m.method in _GROWING]
    whole = dict.fromkeys(read)
    whole.update({g: None for g in grown if any(_below(g, p) for p in read)})
    held = scoped_context(whole, lambda path: log.read(path, 0))
    values = {str(m.get("kind", m["type"])): m[m["type"]] for m in held}
    for path in dict.fromkeys(p for n in nodes for p in n.writes):
        frame = _shape(log, path)
        if frame is not ABSENT:
            values[path.kind] = _under(frame, values[path.kind]) if path.kind in values else frame
    return [wrap_message(kind, payload) for kind, payload in values.items()]


def _below(above: Path, path: Path) -> bool:
    return above.kind == path.kind and path.names[: len(above.names)] == above.names


def _shape(log: Log, path: Path) -> Json:
    """An empty value of the kind that stands at a path, in its place; a list on the way ends it."""
    for depth in range(len(path.names) + 1):
        names: Names = path.names[:depth]
        found = log.read(Path(path.kind, names), 0)
        if found is ABSENT:
            return ABSENT
        if isinstance(found, list) or depth == len(path.names) or not isinstance(found, dict):
            return nest(names, None if found is None else _EMPTY.get(type(found)))
    return ABSENT


def _under(frame: Json, value: Json) -> Json:
    """What is read, over the frame that is only there for its shape."""
    if isinstance(frame, list) and isinstance(value, (list, dict)):
        return value
    return deep_merge(frame, value)


def edited_request(request: dict[str, Any], index: int, calls: list[Json]) -> dict[str, Any]:
    """A Request with other Calls in its plan message, which stands at ``index`` of the context.

    Raises:
        InvalidRequest: it does not fit one payload.
    """
    context = list(request["context"])
    context[index] = {**context[index], "plan": calls}
    out = {**request, "context": context}
    size = json_size(out)
    if size > MAX_PAYLOAD_BYTES:
        text = f"the edited Request has {size:,} bytes; at most {MAX_PAYLOAD_BYTES:,} can be recorded"
        raise InvalidRequest([Problem("limitExceeded", text)])
    return out


def prompt_context(request: Request, tools: Iterable[Tool], mode: str, page: Json, limit: int) -> dict[str, Any]:
    """A page of what a model is shown of a context, of at most ``limit`` bytes: the answer to ``promptContext``.

    ``page`` is ``{offset?, upto?, known?}``; with the first page come the Tools and what else a prompt needs.
    """
    page = page if isinstance(page, dict) else {}
    offset = int(page.get("offset", 0))
    upto = min(int(page.get("upto", len(request.context))), len(request.context))
    out: dict[str, Any] = {"messages": []}
    if not page.get("known"):
        out.update(
            tools={t.name: {"schema": t.schema, "served": t.served} for t in tools}, output=request.schema, mode=mode,
            step=request.config.step, instances=list(request.instances()),
        )  # fmt: skip
    size = json_size(out)
    for message in request.context[offset:upto]:
        size += json_size(message.raw)
        if out["messages"] and size > limit:
            break
        out["messages"].append(message.raw)
    return out
