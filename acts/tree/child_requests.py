"""Builds the Requests of the runs below a run: of a part of its plan, of its instances, of a delegate. Pure.

* A plan whose Calls name no instance is a *template*: every instance runs all of it. Otherwise a Call runs in the
  instance that it names, and a Call without one runs once, globally. A child runs the Calls of one instance, or of
  ``instancesPerChild``; its parent schedules it as a *unit*: a planned Call without reads and writes, started, counted
  and paused like any other. If a Call of an instance touches what a global Call of the same plan writes, there are no
  children: one workflow runs all Calls, and the log separates the instances.
* An agent's context grows with every tick, but the plan of one tick reads little of it; a batch has thousands of
  children with the same global data. So the Request of a part has only the Tools that its Calls use, the values that
  they read, the schemas of what they write, and an empty value of the right type at each path that they write (an empty
  list for a list), which decides whether ``push`` or ``merge`` applies. It runs as the full Request would. Where a
  person may edit the plan into any other, it has all Tools and data. No child receives messages of another's instance.
* A delegate's history holds a ``DelegateInput`` and nothing else of the parent. The child loads the definition (a saved
  Request) itself; ``anonymous`` has none. With ``resolve: upfront`` the definition's schemas join the Tool before
  planning, and the SHA-256 of the definition's content pins it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from acts.language import wire
from acts.language.config import MODEL_SETTINGS, parse_seconds
from acts.language.errors import CallError, DecisionRefused, EngineError, InvalidRequest, Problem
from acts.language.messages import (
    GROWING_METHODS,
    Data,
    Request,
    output_schema,
    parse_message,
    scoped_context,
    wrap_message,
)
from acts.language.references import Path
from acts.language.schemas import DEFS, subschemas
from acts.language.strict_json import json_size
from acts.language.tools import META, Tool, secret_parameters, tool_name, without_properties
from acts.language.values import ABSENT, Json, Names, deep_merge, nest
from acts.plan.calls import UNIT, PlannedCall, find_rule
from acts.plan.context_log import Log
from acts.plan.graph import Graph, WriterIndex, build_graph, paths_read
from acts.plan.validate import ValidatedPlan, find_literal_outputs, is_template
from acts.tree.past_run import UndoStep
from acts.tree.records import AnonymousCall, Capabilities, DelegateInput, InnerPlan, TreePosition

_TOOL: Final = Tool(UNIT, {}, {}, {})
# Every child receives all global data up to this size in bytes; above it, only what its Calls need
MAX_UNFILTERED_DATA: Final = 4096
_EMPTY: Final[dict[type, Json]] = {list: [], dict: {}, str: "", bool: False, int: 0, float: 0}
# Settings that a run below inherits, unless it sets them itself
INHERITED: Final = (*MODEL_SETTINGS, "maxParallel", "resolve")
# In ``approve``: what is asked about, and until when
_SUBJECTS: Final = ("plan", "calls", "scopes", "rules")
_DEADLINE: Final = ("timeout", "onTimeout")
_DROPPED: Final = "†state.output"  # the output path of a Call that has none: the result is not used


# -- a plan over instances ---------------------------------------------------------


def needs_children(prepared: ValidatedPlan) -> bool:
    if not prepared.request.instances():
        return False
    shared = WriterIndex()
    for rank, node in enumerate(prepared.nodes):
        if node.instance is None:
            shared.add(node, rank)
    local = [n for n in prepared.nodes if n.instance is not None]
    return bool(local) and not any(shared.overlapping(p, None) for n in local for p in (*paths_read(n), *n.writes))


def split_into_children(prepared: ValidatedPlan) -> ValidatedPlan:
    """The plan that the parent runs: the global Calls, and a unit for each child."""
    graph, _ = build_graph(
        [n for n in _listed(prepared.nodes) if n.instance is None], prepared.initial_log.has_initially
    )
    calls, units = _calls_by_instance(prepared), list[PlannedCall]()
    index = len(prepared.request.calls)
    for ids in group_instances(prepared):
        label = ids[0] if len(ids) == 1 else f"{ids[0]} … {ids[-1]}"
        planned = {"_instance": list(ids), "plan": [calls[i] for i in ids]}
        units.append(PlannedCall(
            index=index, id=label, tool=_TOOL, planned=planned, call={}, pointer="", instance=None, kind=UNIT,
            delegate=None, reads=(), scopes=(), outcomes=(), result_outcome_count=0, error=None, method="set",
            name=f"{UNIT}/{ids[0]}", members=ids,
        ))  # fmt: skip
        index += len(ids)
    combined = Graph((*graph.order, *units), (*graph.waits, *(() for _ in units)), graph.writers)
    return replace(_with_graph(prepared, combined), unsplit=prepared)


def _with_graph(prepared: ValidatedPlan, graph: Graph) -> ValidatedPlan:
    return replace(prepared, graph=graph, literal_outputs=find_literal_outputs(graph, prepared.request.mode)[0])


def _listed(nodes: Iterable[PlannedCall]) -> list[PlannedCall]:
    return sorted(nodes, key=lambda n: n.index)


def group_instances(prepared: ValidatedPlan) -> list[tuple[str, ...]]:
    calls = _calls_by_instance(prepared)
    ids = [i for i in prepared.request.instances() if calls.get(i)]
    step = prepared.request.config.instancesPerChild
    return [tuple(ids[at : at + step]) for at in range(0, len(ids), step)]


def _calls_by_instance(prepared: ValidatedPlan) -> dict[str, list[Json]]:
    if is_template(prepared.request, prepared.nodes):
        return dict.fromkeys(prepared.request.instances(), prepared.request.calls)
    out: dict[str, list[Json]] = {}
    for node in _listed(prepared.nodes):
        if node.instance is not None:
            out.setdefault(node.instance, []).append(node.planned)
    return out


def keep_instance(planned: Mapping[str, Any], changed: Json, instance: str | None) -> Json:
    """The edited Call ``changed``, in the instance of the Call that it replaces.

    ``instance`` is the instance that the Call runs for; a template's Call names none itself. Raises DecisionRefused:
    the edit names another instance.
    """
    own = planned.get("_instance")
    if not isinstance(changed, dict) or (own is None and instance is None):
        return changed
    if changed.get("_instance") not in (None, own, instance):
        raise DecisionRefused(f"an edit of one call cannot change its instance, {own or instance}")
    rest = {k: v for k, v in changed.items() if k != "_instance"}
    return rest if own is None else {"_instance": own, **rest}


def count_calls(prepared: ValidatedPlan) -> int:
    return prepared.request.count_calls([n.call for n in prepared.nodes])


def expand_template(prepared: ValidatedPlan, instances: Sequence[str]) -> ValidatedPlan:
    """The plan of a child with several instances of a template: its Calls, once for each instance."""
    if len(instances) <= 1 or not is_template(prepared.request, prepared.nodes):
        return prepared
    nodes = [replace(n, instance=i, name=f"{i}/{n.id}") for i in instances for n in _listed(prepared.nodes)]
    return _with_graph(prepared, build_graph(nodes, prepared.initial_log.has_initially)[0])


# -- the Request of a part ---------------------------------------------------------


def part_request(
    prepared: ValidatedPlan, log: Log, nodes: Iterable[PlannedCall], config: dict[str, Any], *, is_editable: bool
) -> dict[str, Any]:
    """The Request of some Calls of a plan (all, or the first), over all of its instances."""
    requests = PartRequests(prepared, log, config, is_editable=is_editable)
    return requests.build(_listed(nodes), prepared.request.instances())


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
        self._nodes: Sequence[PlannedCall] | None = None
        self._common: list[Json] = []

    def build(
        self, nodes: Sequence[PlannedCall], instances: Sequence[str], provided: Iterable[Data] = ()
    ) -> dict[str, Any]:
        """The Request of these Calls, in the order in which they are listed, over these instances."""
        if nodes is not self._nodes:  # every child of a template has the same
            self._nodes, self._common = nodes, self._common_messages(nodes)
        context = list(self._common)
        for id_ in instances:
            own = [_without_author(m) for m in self._local.get(id_, ())]
            context += own or [{"type": "state", "state": {}, "_instance": id_}]
        context += [m.raw for m in provided if m.instance is None or m.instance in instances]
        mode = self._prepared.request.mode
        plan = {"type": "plan", "plan": [n.planned for n in nodes], **({"mode": mode} if mode != "eager" else {})}
        return {"config": self._config, "context": [*context, plan]}

    def _common_messages(self, nodes: Sequence[PlannedCall]) -> list[Json]:
        data = [m for m in self._prepared.request.data() if m.instance is None]
        messages = [_without_author(m) for m in data]
        if self._is_editable:
            return [*tool_messages(self._prepared.tools.values()), *messages]
        tools = tool_messages(_used_tools(nodes, self._prepared.tools))
        if json_size(messages) <= self._unfiltered_bytes:
            return [*tools, *messages]
        kinds = {p.kind for n in nodes for p in n.writes}
        schemas = [
            {k: v for k, v in m.raw.items() if k in ("type", "kind", "schema")}
            for m in data
            if m.schema is not None and m.kind in kinds
        ]
        return [*tools, *schemas, *needed_messages(self._log, nodes, [m for own in self._local.values() for m in own])]


class Batch(PartRequests):
    """The Requests of the children of one plan."""

    def __init__(self, prepared: ValidatedPlan, config: Mapping[str, Json]) -> None:
        approve, listed = prepared.request.config.approve, _listed(prepared.nodes)
        inherited = inherited_config(config, "missing", "onFailure")
        # Its parent keeps the budget, and the plan is approved already
        own = {**inherited, "approve": without_plan(inherited.get("approve"))}
        is_editable = any(find_rule(n, approve) for n in listed if n.instance is not None)
        super().__init__(
            prepared, prepared.initial_log, own, is_editable=is_editable, unfiltered_bytes=MAX_UNFILTERED_DATA
        )
        self._template = listed if is_template(prepared.request, prepared.nodes) else None
        self._calls: dict[str, list[PlannedCall]] = {}
        for node in listed:
            if node.instance is not None:
                self._calls.setdefault(node.instance, []).append(node)

    def request_for(
        self, instances: Sequence[str], provided: Sequence[Data] = ()
    ) -> tuple[dict[str, Any], tuple[int, ...] | None]:
        """The Request of the child that runs these instances, and the index of each of its Calls in the parent's plan.

        The indices are None for a template: every instance runs all of it.
        """
        if self._template is not None:
            return self.build(self._template, instances, provided), None
        nodes = _listed(n for i in instances for n in self._calls.get(i, ()))
        return self.build(nodes, instances, provided), tuple(n.index for n in nodes)


def _used_tools(nodes: Iterable[PlannedCall], tools: Mapping[str, Tool]) -> Iterator[Tool]:
    for node in nodes:
        yield from _with_undo(node.tool, tools)
        if node.walks_plan:
            yield from _inner_tools(node.call.get("plan"), tools)


def _with_undo(tool: Tool, tools: Mapping[str, Tool]) -> Iterator[Tool]:
    yield tool
    if tool.undo is not None:
        yield tools[tool.undo["_tool"]]


def _inner_tools(plan: Json, tools: Mapping[str, Tool]) -> Iterator[Tool]:
    """The Tools of a plan inside another, and of those inside it; all for one that has a name."""
    if not isinstance(plan, list):
        yield from tools.values()
        return
    for call in (call for call in plan if isinstance(call, dict)):
        if (tool := tools.get(str(call.get("_tool")))) is not None:
            yield from _with_undo(tool, tools)
        if "plan" in call:
            yield from _inner_tools(call["plan"], tools)


def tool_messages(tools: Iterable[Tool]) -> list[Json]:
    """One message for each of these Tools.

    Each is its schema with its name inside: in a map by name, some names would read as keywords of a schema.
    """
    out: list[Json] = []
    for name, schema in sorted({tool.name: tool.schema for tool in tools}.items(), key=lambda pair: pair[0]):
        properties = {**schema["properties"], "_tool": {"const": name}}
        out.append({"type": "tool", "tool": {**schema, "properties": properties}})
    return out


def _without_author(message: Data) -> dict[str, Any]:
    return {k: v for k, v in message.raw.items() if k not in ("_call", "_date")}


def needed_messages(log: Log, nodes: Sequence[PlannedCall], local: Iterable[Data] = ()) -> list[dict[str, Any]]:
    """Global Messages with the values that these Calls read, and empty values of the type at each path they write.

    ``local`` are the messages of instances in the same Request; they may add to global lists, too.
    """
    needed = dict.fromkeys(p for n in nodes for p in paths_read(n))
    grown = [p for n in nodes if n.method in GROWING_METHODS for p in n.writes]
    grown += [m.path for m in local if m.path is not None and m.method in GROWING_METHODS]
    above = {prefix for path in needed for prefix in (*path.prefixes(), path)}
    needed.update({g: None for g in grown if g in above})
    context = scoped_context(needed, lambda path: log.read(path, 0))
    values = {str(m.get("kind", m["type"])): m[m["type"]] for m in context}
    for path in dict.fromkeys(p for n in nodes for p in n.writes):
        frame, value = _empty_frame(log, path), values.get(path.kind, ABSENT)
        if frame is ABSENT or (isinstance(frame, list) and isinstance(value, (list, dict))):
            continue
        values[path.kind] = frame if value is ABSENT else deep_merge(frame, value)
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


def edited_request(
    request: dict[str, Any], index: int, calls: list[Json], limit: int = wire.MAX_PAYLOAD_BYTES
) -> dict[str, Any]:
    """The Request with other Calls in its plan message, at ``index`` of the context. Raises InvalidRequest: the Request
    has more bytes than the limit.
    """
    context = list(request["context"])
    context[index] = {**context[index], "plan": calls}
    out = {**request, "context": context}
    size = json_size(out)
    if size > limit:
        text = f"the edited Request has {size:,} bytes; at most {limit:,} can be recorded"
        raise InvalidRequest([Problem("limitExceeded", text)])
    return out


# -- delegates ---------------------------------------------------------------------


def depth_problem(position: TreePosition, node: PlannedCall) -> str | None:
    """The error for a delegate nested deeper than ``budget.depth``, or None."""
    if position.depth < position.maxDepth:
        return None
    limit = f"delegates may be nested {position.maxDepth} deep (budget.depth)"
    return f'{limit}, and "{node.delegate}" would be one deeper'


def build_delegate_input(
    call: Mapping[str, Any], context: Sequence[Json], node: PlannedCall, config: Mapping[str, Json],
    position: TreePosition, pins: Mapping[str, str], share: Mapping[str, Any] | None = None,
    plan: InnerPlan | None = None,
) -> DelegateInput:  # fmt: skip
    """The input of a delegated Call's child. ``config`` is that of the parent's Request.

    ``share`` is the budget reserved for a delegate that outlives its tree; ``plan`` is that of the Call.
    """
    anonymous: AnonymousCall | None = None
    inherited, parameters = inherited_config(config), {k: v for k, v in call.items() if k not in META and k != "_id"}
    if plan is not None:
        inherited, parameters = inherited_config(config, "missing"), call.get("input") or {}
    if node.delegate == wire.ANONYMOUS:
        anonymous = AnonymousCall(
            tool=node.tool.name, toolSchema=child_schema(node.tool.schema), served=node.tool.served,
            id=str(call.get("_id")), path=" || ".join(node.outcome_texts) or _DROPPED,
        )  # fmt: skip
    return DelegateInput(
        delegate=str(node.delegate), input=parameters, context=tuple(context),
        config={**inherited, **({"budget": dict(share)} if share else {})}, position=position,
        sha256=pins.get(str(node.delegate)), call=anonymous, plan=plan,
    )  # fmt: skip


def inner_plan(call: Mapping[str, Any], prepared: ValidatedPlan, capabilities: Capabilities) -> InnerPlan:
    """What the child of a Call of the Tool ``plan`` walks, with the Tools of its run. Raises CallError.

    Where a person may edit it, it has all of them. A plan by name is read by the child, which looks up what it needs
    itself; it may not define a Tool with a secret, and names that.
    """
    plan, repeat, all_tools = call["plan"], call.get("repeat") or {}, prepared.tools
    try:
        every = parse_seconds(repeat["every"]) if "every" in repeat else 0.0
    except ValueError as error:
        raise CallError(wire.SCHEMA_MISMATCH, f"repeat.every: {error}") from None
    is_editable = _asks_people(prepared.request, all_tools)
    messages = tool_messages(all_tools.values() if is_editable else _inner_tools(plan, all_tools))
    rest: dict[str, Any] = {"until": call.get("until"), "max": repeat.get("max"), "every": every}
    if isinstance(plan, str):
        secret = {name for name, tool in all_tools.items() if secret_parameters(tool.schema)}
        named = [name if (name := tool_name(m["tool"])) in secret else m["tool"] for m in messages]
        return InnerPlan(tools=tuple({"type": "tool", "tool": tool} for tool in named), **rest)
    own = capabilities.model_copy(update={"tools": {}})
    return InnerPlan(tools=tuple(messages), calls=tuple(plan), capabilities=own, **rest)


def child_schema(schema: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """The schema of a Tool without what only the parent uses, save ``more``."""
    dropped = [k for k in META if k not in ("_tool", "_output", "_activity", "_options", *more)]
    return without_properties({k: v for k, v in schema.items() if k not in dropped}, dropped)


def inherited_config(config: Mapping[str, Json], *more: str) -> dict[str, Any]:
    """The settings of a run that a run below inherits, and ``more``."""
    out = {k: config[k] for k in (*INHERITED, *more) if config.get(k) is not None}
    approve = config.get("approve")
    return {**out, "approve": approve} if isinstance(approve, dict) else out


def delegate_request(delegate_input: DelegateInput, definition: Mapping[str, Any]) -> dict[str, Any]:
    """The Request of a delegate: the definition's context, then the scoped messages, then the input."""
    own = definition.get("config") or {}
    inherited = delegate_input.config
    config = {**inherited, **own}
    share, limits = inherited.get("budget"), own.get("budget")
    if isinstance(share, dict) and isinstance(limits, dict):  # a definition cannot raise its share
        own_limits = {k: v for k, v in limits.items() if isinstance(v, (int, float))}
        config["budget"] = {**limits, **{k: min(v, own_limits.get(k, v)) for k, v in share.items()}}
    approve = _merge_approval(inherited.get("approve"), own.get("approve"))
    if approve is not None:
        config["approve"] = approve
    message: dict[str, Any] = {"type": "input", "input": delegate_input.input}
    schema = input_schema(definition)
    if schema is not None:
        message["schema"] = schema
    tools = () if delegate_input.plan is None else delegate_input.plan.tools
    out = {"config": config, "context": [*definition.get("context", []), *tools, *delegate_input.context, message]}
    return out if definition.get("schema") is None else {**out, "schema": definition["schema"]}


def without_plan(approve: Json) -> dict[str, Any]:
    """An ``approve`` setting for runs that walk parts of a plan: people decide about the whole, above."""
    settings = approve if isinstance(approve, dict) else {}
    return {**settings, "plan": False, **_with_rules(settings, lambda rule: {**rule, "plan": False})}


def _with_rules(approve: Mapping[str, Json], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    rules = approve.get("rules")
    return {"rules": [change(rule) for rule in rules if isinstance(rule, dict)]} if isinstance(rules, list) else {}


def _merge_approval(inherited: Json, own: Json) -> Json:
    """The ``approve`` setting of a delegate: a definition may require more approvals than its caller, never fewer.

    Nor may its deadline approve: a Tool of the worker may ask, too. Rules of the caller come first.
    """
    if isinstance(own, dict):
        own = {key: value for key, value in own.items() if (key, value) != ("onTimeout", "approve")}
        own |= _with_rules(own, lambda rule: {k: v for k, v in rule.items() if (k, v) != ("onTimeout", "approve")})
    if not isinstance(inherited, dict) or not isinstance(own, dict):
        return own if isinstance(own, dict) else inherited
    if any(inherited.get(key) for key in _SUBJECTS):  # what it asks about is not for rules of the definition to ease
        own |= _with_rules(own, lambda rule: {k: v for k, v in rule.items() if k not in _DEADLINE})
    out = {**inherited, **own}
    for key in _SUBJECTS:
        required, more = inherited.get(key), own.get(key)
        if required is True:
            out[key] = True
        elif isinstance(required, list) and more is not True:
            out[key] = [*required, *(more if isinstance(more, list) else [])]
    if inherited.get("selfApproval") is False:
        out |= {"selfApproval": False, **_with_rules(out, lambda rule: {**rule, "selfApproval": False})}
    if any(inherited.get(key) for key in _SUBJECTS):  # its deadline must not approve what its caller reserves
        rest = {key: value for key, value in out.items() if key not in _DEADLINE}
        return {**rest, **{key: inherited[key] for key in _DEADLINE if key in inherited}}
    return out


def anonymous_request(delegate_input: DelegateInput) -> dict[str, Any]:
    """The Request of a delegate without a definition: its scopes, its input, and one Call of one Tool.

    The Call refers to the input: a value is never read as a reference or a template. Its condition holds already,
    and it is made for one element.
    """
    call, parameters = delegate_input.call, delegate_input.input
    if call is None:
        raise EngineError("the input of an anonymous delegate has no Call")
    fixed = {"_tool": {"const": call.tool}, "_outputPath": {"const": call.path}}
    references = {key: str(Path("input", (key,))) for key in parameters}
    return {
        "config": {k: v for k, v in delegate_input.config.items() if k not in ("approve", "resolve")},
        "context": [
            *delegate_input.context, {"type": "input", "input": parameters},
            {"type": "tool", "tool": {**call.toolSchema, "properties": {**call.toolSchema["properties"], **fixed}}},
            {"type": "plan", "plan": [{"_tool": call.tool, **references}]},
        ],
    }  # fmt: skip


def undo_request(
    workflow_id: str, steps: Iterable[UndoStep], tools: Mapping[str, Tool], config: Mapping[str, Json]
) -> dict[str, Any]:
    """The Request of the run that undoes what a run has completed, in the order of ``steps``.

    Each Call waits for the one before, however that ended. They refer to their values: none is read as a reference.
    """
    undoable, problems = list[UndoStep](), list[dict[str, Any]]()
    for step in steps:
        problem = step.problem or (None if step.tool in tools else "only a plan inside this one has that tool")
        if problem is None:
            undoable.append(step)
        else:
            own = {} if step.instance is None else {"instance": step.instance}
            text = f"it cannot be undone by {step.tool}: {problem}"
            problems.append({"call": step.call, **own, "code": wire.UNRESOLVED, "message": text})
    calls, names = list[Json](), [f"s{at}" for at in range(len(undoable))]
    for at, step in enumerate(undoable):
        after = {"_when": f"{Path('undone', (names[at - 1],))} == null || true"} if at else {}
        parameters = {key: str(Path("undo", (names[at], key))) for key in step.parameters}
        calls.append({"_tool": step.tool, **parameters, **after, "_outputPath": str(Path("undone", (names[at],)))})
    undone = [{"call": step.call, "id": step.id} for step in undoable]
    own = inherited_config(config, "tags", "priority", "fairness")
    conditions = ("_approval", "_delegate", "_person")
    schemas = {step.tool: child_schema(tools[step.tool].schema, *conditions) for step in undoable}
    for name, schema in schemas.items():
        fixed = {"_tool": {"const": name}, "_outputPath": {"type": "string"}}
        schemas[name] = {**schema, "properties": {**schema["properties"], **fixed}}
    return {
        "config": {
            **own, "approve": without_plan(own.get("approve")),
            "undoes": {"workflowId": workflow_id, "calls": undone, "problems": problems},
        },
        "context": [
            *({"type": "tool", "tool": schema} for schema in schemas.values()),
            {"type": "data", "kind": "undo", "data": {names[at]: step.parameters for at, step in enumerate(undoable)}},
            {"type": "plan", "plan": calls},
        ],
    }  # fmt: skip


def input_schema(definition: Mapping[str, Any]) -> Json:
    messages = [m for m in definition.get("context", []) if isinstance(m, dict) and m.get("type") == "input"]
    return messages[-1].get("schema") if messages else None


def plan_log(data: Iterable[Data], appended: Iterable[Json]) -> Log:
    """The context of a plan that has ended, of its own data and of what it appended."""
    return Log([*data, *(m for raw in appended if isinstance(m := parse_message(raw), Data))])


def plan_output(log: Log) -> Json:
    """The result of a definition's plan: ``state.output``, or else its state; with instances, the state of each."""
    state = log.state()
    if isinstance(state, dict) and "output" in state:
        return state["output"]
    return {id_: log.state(id_) for id_ in log.own} if log.own else state


def resolved_upfront(request: Request, tools: Mapping[str, Tool]) -> dict[str, str]:
    """The delegates to load before planning, by Tool: fixed by the Tool, with ``resolve: upfront``."""
    fixed = {name: tool.consts.get("_delegate") for name, tool in tools.items()}
    return {
        name: delegate
        for name, delegate in fixed.items()
        if (tools[name].options.resolve or request.config.resolve) == "upfront"
        and isinstance(delegate, str)
        and delegate not in wire.NOT_LOADED
    }


def named_delegates(definition: Json) -> Iterator[str]:
    """The delegates that a definition names: in its Tools and its plan, at any place; plans by name, too."""
    if isinstance(definition, dict):
        named = definition.get("_delegate")
        names = [named.get("const"), *(named.get("enum") or ())] if isinstance(named, dict) else [named]
        if definition.get("_tool") == wire.PLAN_TOOL and isinstance(plan := definition.get("plan"), str):
            names.append(f"{wire.INNER_PLAN}/{plan}")
        yield from (name for name in names if isinstance(name, str) and name not in wire.NOT_LOADED)
        definition = list(definition.values())
    for part in definition if isinstance(definition, list) else ():
        yield from named_delegates(part)


def _asks_people(request: Request, tools: Mapping[str, Tool]) -> bool:
    approve = request.config.approve
    asks = request.asks_for_plan or any(rule.calls or rule.scopes for rule in approve.all_rules)
    return asks or any(tool.approval for tool in tools.values())


def approved_delegates(request: Request, tools: Mapping[str, Tool]) -> dict[str, None]:
    """The delegates whose content people approve, where any are asked: those that Tools fix or list, the plan's."""
    if not _asks_people(request, tools):
        return {}
    schemas = (tool.meta.get("_delegate") for tool in tools.values())
    named = [name for s in schemas if isinstance(s, dict) for name in (s.get("const"), *(s.get("enum") or ()))]
    named += [call.get("_delegate") for call in request.calls if isinstance(call, dict)]
    if wire.PLAN_TOOL in tools and tools[wire.PLAN_TOOL].walks_plan:
        named += named_delegates([c for c in request.calls if isinstance(c, dict) and c.get("_tool") == wire.PLAN_TOOL])
    return dict.fromkeys(name for name in named if isinstance(name, str) and name not in wire.NOT_LOADED)


def with_answers(config: Mapping[str, Json], tools: Mapping[str, Tool]) -> Json:
    """The ``approve`` of a Request for the runs below: ``calls`` names, beside its Tools, what answers them; in rules,
    too.

    So no Tool of a definition over the same Activity or delegate runs unasked, whatever its name.
    """

    def complete(part: dict[str, Any]) -> dict[str, Any]:
        names = part.get("calls")
        if not isinstance(names, (list, tuple)):
            return part
        answers = (tools[name].answer or tools[name].consts.get("_delegate") for name in names if name in tools)
        more = [answer for answer in dict.fromkeys(answers) if answer not in (None, *wire.NOT_LOADED, *names)]
        return {**part, "calls": [*names, *more]}

    approve = config.get("approve")
    return {**complete(approve), **_with_rules(approve, complete)} if isinstance(approve, dict) else approve


def merged_tool(tool: Tool, definition: Mapping[str, Any]) -> dict[str, Any]:
    """The Tool's schema joined with the definition's input and output schemas; a parameter in both meets both."""
    expected, schema = input_schema(definition), dict(tool.schema)
    defs: dict[str, Json] = dict(schema.get("$defs") or {})
    properties = dict(schema.get("properties") or {})
    if isinstance(expected, dict):
        inputs = _hoist_defs(expected, defs, "input")
        for key, value in (inputs.get("properties") or {}).items():
            if key not in META:
                properties[key] = _meet(properties.get(key, ABSENT), value)
        required = [k for k in inputs.get("required") or [] if k not in META]
        schema["required"] = list(dict.fromkeys([*(schema.get("required") or []), *required]))
        if inputs.get("additionalProperties") is False:
            schema["additionalProperties"] = False
    result = output_schema(definition.get("schema"))
    if result is not None:
        output = _hoist_defs(result, defs, "output") if isinstance(result, dict) else result
        properties["_output"] = _meet(tool.meta.get("_output", ABSENT), output)
        schema.pop("_output", None)
    out = {**schema, "type": schema.get("type", "object"), "properties": {**properties, "_tool": {"const": tool.name}}}
    return {**out, "$defs": defs} if defs else out


def _meet(current: Json, other: Json) -> Json:
    return other if current in (ABSENT, True, {}, other) else {"allOf": [current, other]}


def _hoist_defs(schema: dict[str, Any], defs: dict[str, Json], prefix: str) -> dict[str, Any]:
    """The schema without its ``$defs``, which are added to ``defs`` under prefixed names."""
    own = schema.get("$defs")
    names = {key: f"{prefix}_{key}" for key in own} if isinstance(own, dict) else {}
    copy: dict[str, Any] = deepcopy(schema)
    for part in subschemas(copy):
        target = part.get("$ref")
        if isinstance(target, str) and target.removeprefix(DEFS) in names:
            part["$ref"] = DEFS + names[target.removeprefix(DEFS)]
    defs.update({new: copy["$defs"][key] for key, new in names.items()})
    return {k: v for k, v in copy.items() if k not in ("$defs", "$schema", "$id")}
