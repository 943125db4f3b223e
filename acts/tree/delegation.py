"""What the child of a delegated Call is started with, and the Request that it makes of it.

The parent builds a ``DelegateInput`` of the definition's name, the Call's parameters, what its scopes
show, and the inherited settings. What is not in it is not in the child's history either. The child
loads the definition (a saved Request) itself; ``anonymous`` has none.

Upfront resolution puts the definition's schemas into the Tool before anybody plans, and pins the
definition by the SHA-256 of its content.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import EngineError
from acts.language.messages import Data, output_schema, parse_message, read_request
from acts.language.schemas import subschemas
from acts.language.tools import META
from acts.language.values import ABSENT, Json
from acts.language.wire import ANONYMOUS
from acts.plan.context_log import Log
from acts.tree.records import AnonymousCall, DelegateInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.language.messages import Request
    from acts.language.tools import Tool
    from acts.plan.planned_call import PlannedCall
    from acts.tree.records import TreePosition

# Settings that a definition takes over from the run that uses it, unless it has its own
INHERITED: Final = ("model", "temperature", "maxOutputTokens", "maxParallel", "resolve")
_LOCAL: Final = "#/$defs/"
# Where the result of a Call without ``_outputPath`` would go: it is dropped
_DROPPED: Final = "†state.output"


def depth_problem(position: TreePosition, node: PlannedCall) -> str | None:
    """Why a delegate may not be started here, or None."""
    if position.depth < position.maxDepth:
        return None
    limit = f"delegates may be nested {position.maxDepth} deep (budget.depth)"
    return f'{limit}, and "{node.delegate}" would be one deeper'


def build_delegate_input(
    call: Mapping[str, Any], context: Sequence[Json], node: PlannedCall, config: Mapping[str, Json],
    position: TreePosition, pins: Mapping[str, str], share: Mapping[str, Any] | None = None,
) -> DelegateInput:  # fmt: skip
    """What the child that does a delegated Call is started with. ``config`` is that of the parent's Request.

    ``share`` is the budget of a delegate that outlives its tree.
    """
    own: AnonymousCall | None = None
    if node.delegate == ANONYMOUS:
        own = AnonymousCall(
            tool=node.tool.name, schema_=_own_schema(node.tool), served=node.tool.served, id=str(call.get("_id")),
            path=" || ".join(node.outcome_texts) or _DROPPED,
        )  # fmt: skip
    return DelegateInput(
        delegate=str(node.delegate), input={k: v for k, v in call.items() if k not in META and k != "_id"},
        context=tuple(context), config={**inherited_config(config), **({"budget": dict(share)} if share else {})},
        position=position, sha256=pins.get(str(node.delegate)), call=own,
    )  # fmt: skip


def _own_schema(tool: Tool) -> dict[str, Any]:
    """The Tool's schema without what only matters to the parent."""
    own = [k for k in META if k not in ("_tool", "_output", "_activity", "_options")]
    schema = {k: v for k, v in tool.schema.items() if k not in own}
    if isinstance(schema.get("properties"), dict):
        schema["properties"] = {k: v for k, v in schema["properties"].items() if k not in own}
    if isinstance(schema.get("required"), list):
        schema["required"] = [k for k in schema["required"] if k not in own]
    return schema


def inherited_config(config: Mapping[str, Json]) -> dict[str, Any]:
    """The settings of a run that hold in what it delegates to, too."""
    out = {k: config[k] for k in INHERITED if config.get(k) is not None}
    approve = config.get("approve")
    if isinstance(approve, dict):
        out["approve"] = approve
    return out


def delegate_request(own_input: DelegateInput, definition: Mapping[str, Any]) -> dict[str, Any]:
    """The Request of a delegate: the definition's context, then the scoped messages, then the input."""
    own = definition.get("config") or {}
    given = own_input.config
    config = {**given, **own}
    if isinstance(given.get("budget"), dict) and isinstance(own.get("budget"), dict):  # within what it was given
        config["budget"] = {**own["budget"], **{k: _least(v, own["budget"].get(k)) for k, v in given["budget"].items()}}
    approve = _approval(given.get("approve"), own.get("approve"))
    if approve is not None:
        config["approve"] = approve
    message: dict[str, Any] = {"type": "input", "input": own_input.input}
    schema = input_schema(definition)
    if schema is not None:
        message["schema"] = schema
    context = [*definition.get("context", []), *own_input.context, message]
    out: dict[str, Any] = {"config": config, "context": context}
    if definition.get("schema") is not None:
        out["schema"] = definition["schema"]
    return out


def _least(given: Json, own: Json) -> Json:
    return min(given, own) if isinstance(own, (int, float)) else given


def _approval(above: Json, own: Json) -> Json:
    """What people confirm: a definition may ask for more than the run that uses it, never for less."""
    if not isinstance(above, dict) or not isinstance(own, dict):
        return own if isinstance(own, dict) else above
    out = {**above, **own}
    for key in ("plan", "calls", "scopes"):
        asked = above.get(key)
        if asked is True:
            out[key] = True
        elif isinstance(asked, list) and own.get(key) is not True:
            also = own.get(key)
            out[key] = [*asked, *(also if isinstance(also, list) else [])]
    if any(above.get(key) for key in ("plan", "calls", "scopes")):  # nor does its own deadline approve
        for key in ("timeout", "onTimeout"):
            out.pop(key, None)
            if key in above:
                out[key] = above[key]
    return out


def anonymous_request(own_input: DelegateInput) -> dict[str, Any]:
    """The Request of a delegate without a definition: one Call of one Tool, beside its scopes and its input."""
    call, parameters = own_input.call, own_input.input
    if call is None:
        raise EngineError("an anonymous delegate without its Call")
    properties = call.schema_.get("properties")
    own = {**(properties if isinstance(properties, dict) else {}), "_tool": {"const": call.tool}}
    own["_outputPath"] = {"const": call.path}
    config = {k: v for k, v in own_input.config.items() if k not in ("approve", "resolve")}
    return {
        "config": config,
        "context": [
            *own_input.context, {"type": "input", "input": parameters},
            {"type": "tool", "tool": {**call.schema_, "properties": own}},
            {"type": "plan", "plan": [{"_tool": call.tool, **_literal(parameters)}]},
        ],
    }  # fmt: skip


def _literal(value: Json) -> Json:
    """A value as a planned Call has it: a string that begins with † is told from a reference."""
    if isinstance(value, str):
        return "†" + value if value.startswith("†") else value
    if isinstance(value, dict):
        return {k: _literal(v) for k, v in value.items()}
    return [_literal(v) for v in value] if isinstance(value, list) else value


def input_schema(definition: Mapping[str, Any]) -> Json:
    """What a definition expects: the schema of its last input message, or None."""
    found = [m for m in definition.get("context", []) if isinstance(m, dict) and m.get("type") == "input"]
    return found[-1].get("schema") if found else None


def runs_without_planner(definition: Mapping[str, Any]) -> bool:
    """True for a definition whose plan is walked as it is, without a planner."""
    plan = read_request(definition).plan
    return plan is not None and plan.run


def plan_output(data: Iterable[Data], appended: Iterable[Json]) -> Json:
    """What a walked definition yields: ``state.output``, else its state; with instances, the state of each."""
    more = [m for raw in appended if isinstance(m := parse_message(raw), Data)]
    log = Log([*data, *more])
    state = log.view("state")
    if isinstance(state, dict) and "output" in state:
        return state["output"]
    if log.own:  # a batch: the state of each instance
        views = {id_: log.view("state", instance=id_) for id_ in log.own}
        return {id_: {} if view is ABSENT else view for id_, view in views.items()}
    return {} if state is ABSENT else state


# -- upfront -------------------------------------------------------------------


def resolved_upfront(request: Request, tools: Mapping[str, Tool]) -> dict[str, str]:
    """The delegates to load before anybody plans, by Tool: those that the Tool fixes and that are asked for."""
    out = {}
    for name, tool in tools.items():
        fixed = tool.consts.get("_delegate")
        wanted = tool.options.resolve or request.config.resolve
        if wanted == "upfront" and isinstance(fixed, str) and fixed not in ("", ANONYMOUS):
            out[name] = fixed
    return out


def merged_tool(tool: Tool, definition: Mapping[str, Any]) -> dict[str, Any]:
    """The Tool's schema with what its definition takes and gives: what both say of a parameter holds."""
    expected = input_schema(definition)
    schema = dict(tool.schema)
    defs: dict[str, Json] = dict(schema.get("$defs") or {})
    properties = dict(schema.get("properties") or {})
    if isinstance(expected, dict):
        own = _hoisted(expected, defs, "input")
        for key, value in (own.get("properties") or {}).items():
            if key not in META:
                known = properties.get(key, ABSENT)
                properties[key] = value if known in (ABSENT, True, {}, value) else {"allOf": [known, value]}
        listed = [k for k in own.get("required") or [] if k not in META]
        schema["required"] = list(dict.fromkeys([*(schema.get("required") or []), *listed]))
        if own.get("additionalProperties") is False:
            schema["additionalProperties"] = False
    result = output_schema(definition.get("schema"))
    if result is not None:
        known = tool.meta.get("_output", ABSENT)
        own_output = _hoisted(result, defs, "output") if isinstance(result, dict) else result
        properties["_output"] = own_output if known in (ABSENT, True, {}) else {"allOf": [known, own_output]}
        schema.pop("_output", None)
    out = {**schema, "type": schema.get("type", "object"), "properties": {**properties, "_tool": {"const": tool.name}}}
    return {**out, "$defs": defs} if defs else out


def _hoisted(schema: dict[str, Any], defs: dict[str, Json], prefix: str) -> dict[str, Any]:
    """A schema without its ``$defs``, which join ``defs`` under names of their own."""
    own = schema.get("$defs")
    names = {key: f"{prefix}_{key}" for key in own} if isinstance(own, dict) else {}
    copy: dict[str, Any] = json.loads(json.dumps(schema))
    for part in subschemas(copy):
        target = part.get("$ref") if isinstance(part, dict) else None
        if isinstance(target, str) and target.removeprefix(_LOCAL) in names:
            part["$ref"] = _LOCAL + names[target.removeprefix(_LOCAL)]
    for key, new in names.items():
        defs[new] = copy["$defs"][key]
    return {k: v for k, v in copy.items() if k not in ("$defs", "$schema", "$id")}


def upfront_context(tools: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The message that puts merged Tools in place of the ones before it."""
    return [{"type": "tool", "tool": tools[name]} for name in sorted(tools)]
