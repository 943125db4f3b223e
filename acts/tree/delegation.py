"""The input of a delegated Call's child workflow, and the Request that the child runs.

The parent builds a ``DelegateInput`` from the definition's name, the Call's parameters, the data in
its scopes and the inherited settings; the child's history holds nothing else of the parent. The child
loads the definition (a saved Request) itself; ``anonymous`` has none.

With ``resolve: upfront`` the definition's schemas join the Tool before planning, and the SHA-256 of
the definition's content pins it. Pure: definitions are loaded elsewhere.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from acts.language.config import MODEL_SETTINGS
from acts.language.errors import EngineError
from acts.language.messages import Data, output_schema, parse_message
from acts.language.references import Path
from acts.language.schemas import subschemas
from acts.language.tools import CONTROL, META
from acts.language.values import ABSENT, Json
from acts.language.wire import ANONYMOUS
from acts.plan.context_log import Log
from acts.tree.records import AnonymousCall, DelegateInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.language.messages import Request
    from acts.language.tools import Tool
    from acts.plan.calls import PlannedCall
    from acts.tree.records import TreePosition

# Settings that a definition inherits from the calling run, unless it sets them itself
INHERITED: Final = (*MODEL_SETTINGS, "maxParallel", "resolve")
_LOCAL: Final = "#/$defs/"
# The output path of a Call that has none: the result is not used
_DROPPED: Final = "†state.output"


def depth_problem(position: TreePosition, node: PlannedCall) -> str | None:
    """The error for a delegate nested deeper than ``budget.depth``, or None."""
    if position.depth < position.maxDepth:
        return None
    limit = f"delegates may be nested {position.maxDepth} deep (budget.depth)"
    return f'{limit}, and "{node.delegate}" would be one deeper'


def build_delegate_input(
    call: Mapping[str, Any], context: Sequence[Json], node: PlannedCall, config: Mapping[str, Json],
    position: TreePosition, pins: Mapping[str, str], share: Mapping[str, Any] | None = None,
) -> DelegateInput:  # fmt: skip
    """The input of a delegated Call's child. ``config`` is that of the parent's Request.

    ``share`` is the budget reserved for a delegate that outlives its tree.
    """
    anonymous: AnonymousCall | None = None
    if node.delegate == ANONYMOUS:
        anonymous = AnonymousCall(
            tool=node.tool.name, toolSchema=_child_schema(node.tool), served=node.tool.served, id=str(call.get("_id")),
            path=" || ".join(node.outcome_texts) or _DROPPED,
        )  # fmt: skip
    return DelegateInput(
        delegate=str(node.delegate), input={k: v for k, v in call.items() if k not in META and k != "_id"},
        context=tuple(context), config={**inherited_config(config), **({"budget": dict(share)} if share else {})},
        position=position, sha256=pins.get(str(node.delegate)), call=anonymous,
    )  # fmt: skip


def _child_schema(tool: Tool) -> dict[str, Any]:
    """The Tool's schema without the parameters that only the parent uses."""
    dropped = [k for k in META if k not in ("_tool", "_output", "_activity", "_options")]
    schema = {k: v for k, v in tool.schema.items() if k not in dropped}
    if isinstance(schema.get("properties"), dict):
        schema["properties"] = {k: v for k, v in schema["properties"].items() if k not in dropped}
    if isinstance(schema.get("required"), list):
        schema["required"] = [k for k in schema["required"] if k not in dropped]
    return schema


def inherited_config(config: Mapping[str, Json]) -> dict[str, Any]:
    """The settings of a run that its delegates inherit."""
    out = {k: config[k] for k in INHERITED if config.get(k) is not None}
    approve = config.get("approve")
    if isinstance(approve, dict):
        out["approve"] = approve
    return out


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
    context = [*definition.get("context", []), *delegate_input.context, message]
    out: dict[str, Any] = {"config": config, "context": context}
    if definition.get("schema") is not None:
        out["schema"] = definition["schema"]
    return out


def _merge_approval(inherited: Json, own: Json) -> Json:
    """The ``approve`` setting of a delegate: a definition may require more approvals than its caller, never fewer."""
    if not isinstance(inherited, dict) or not isinstance(own, dict):
        return own if isinstance(own, dict) else inherited
    out = {**inherited, **own}
    for key in ("plan", "calls", "scopes"):
        required = inherited.get(key)
        if required is True:
            out[key] = True
        elif isinstance(required, list) and own.get(key) is not True:
            more = own.get(key)
            out[key] = [*required, *(more if isinstance(more, list) else [])]
    if any(
        inherited.get(key) for key in ("plan", "calls", "scopes")
    ):  # a definition's deadline must not approve what its caller reserves
        for key in ("timeout", "onTimeout"):
            out.pop(key, None)
            if key in inherited:
                out[key] = inherited[key]
    return out


def anonymous_request(delegate_input: DelegateInput) -> dict[str, Any]:
    """The Request of a delegate without a definition: its scopes, its input, and one Call of one Tool.

    The Call refers to the input: a value is never read as a reference or a template. Its condition holds already,
    and it is made for one element.
    """
    call, parameters = delegate_input.call, delegate_input.input
    if call is None:
        raise EngineError("the input of an anonymous delegate has no Call")
    schema = {k: v for k, v in call.toolSchema.items() if k not in CONTROL}
    properties = schema.get("properties")
    fixed = {"_tool": {"const": call.tool}, "_outputPath": {"const": call.path}}
    own = {k: v for k, v in properties.items() if k not in CONTROL} if isinstance(properties, dict) else {}
    references = {key: str(Path("input", (key,))) for key in parameters}
    config = {k: v for k, v in delegate_input.config.items() if k not in ("approve", "resolve")}
    return {
        "config": config,
        "context": [
            *delegate_input.context, {"type": "input", "input": parameters},
            {"type": "tool", "tool": {**schema, "properties": {**own, **fixed}}},
            {"type": "plan", "plan": [{"_tool": call.tool, **references}]},
        ],
    }  # fmt: skip


def input_schema(definition: Mapping[str, Any]) -> Json:
    """The schema of a definition's last input message, or None."""
    messages = [m for m in definition.get("context", []) if isinstance(m, dict) and m.get("type") == "input"]
    return messages[-1].get("schema") if messages else None


def plan_output(data: Iterable[Data], appended: Iterable[Json]) -> Json:
    """The result of a definition's plan: ``state.output``, or else its state; with instances, the state of each."""
    more = [m for raw in appended if isinstance(m := parse_message(raw), Data)]
    log = Log([*data, *more])
    state = log.read_kind("state")
    if isinstance(state, dict) and "output" in state:
        return state["output"]
    if log.own:  # a batch: the state of each instance
        views = {id_: log.read_kind("state", instance=id_) for id_ in log.own}
        return {id_: {} if view is ABSENT else view for id_, view in views.items()}
    return {} if state is ABSENT else state


# -- upfront -------------------------------------------------------------------


def resolved_upfront(request: Request, tools: Mapping[str, Tool]) -> dict[str, str]:
    """The delegates to load before planning, by Tool: fixed by the Tool, with ``resolve: upfront``."""
    out = {}
    for name, tool in tools.items():
        fixed = tool.consts.get("_delegate")
        resolve = tool.options.resolve or request.config.resolve
        if resolve == "upfront" and isinstance(fixed, str) and fixed not in ("", ANONYMOUS):
            out[name] = fixed
    return out


def merged_tool(tool: Tool, definition: Mapping[str, Any]) -> dict[str, Any]:
    """The Tool's schema joined with the definition's input and output schemas; a parameter in both meets both."""
    expected = input_schema(definition)
    schema = dict(tool.schema)
    defs: dict[str, Json] = dict(schema.get("$defs") or {})
    properties = dict(schema.get("properties") or {})
    if isinstance(expected, dict):
        inputs = _hoist_defs(expected, defs, "input")
        for key, value in (inputs.get("properties") or {}).items():
            if key not in META:
                current = properties.get(key, ABSENT)
                properties[key] = value if current in (ABSENT, True, {}, value) else {"allOf": [current, value]}
        required = [k for k in inputs.get("required") or [] if k not in META]
        schema["required"] = list(dict.fromkeys([*(schema.get("required") or []), *required]))
        if inputs.get("additionalProperties") is False:
            schema["additionalProperties"] = False
    result = output_schema(definition.get("schema"))
    if result is not None:
        current = tool.meta.get("_output", ABSENT)
        output = _hoist_defs(result, defs, "output") if isinstance(result, dict) else result
        properties["_output"] = output if current in (ABSENT, True, {}) else {"allOf": [current, output]}
        schema.pop("_output", None)
    out = {**schema, "type": schema.get("type", "object"), "properties": {**properties, "_tool": {"const": tool.name}}}
    return {**out, "$defs": defs} if defs else out


def _hoist_defs(schema: dict[str, Any], defs: dict[str, Json], prefix: str) -> dict[str, Any]:
    """The schema without its ``$defs``, which are added to ``defs`` under prefixed names."""
    own = schema.get("$defs")
    names = {key: f"{prefix}_{key}" for key in own} if isinstance(own, dict) else {}
    copy: dict[str, Any] = deepcopy(schema)
    for part in subschemas(copy):
        target = part.get("$ref")
        if isinstance(target, str) and target.removeprefix(_LOCAL) in names:
            part["$ref"] = _LOCAL + names[target.removeprefix(_LOCAL)]
    for key, new in names.items():
        defs[new] = copy["$defs"][key]
    return {k: v for k, v in copy.items() if k not in ("$defs", "$schema", "$id")}
