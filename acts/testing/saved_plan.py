"""A plan of a run as one by name that others can call: what its Calls read becomes its input, its results a test.

Pure: no I/O. Data of the Request that the Calls read, save the State and what they write themselves, becomes the input,
whose schema says the types that the values had. The output of an agent is one more Call, where it refers to values.
The plan says ``run``: a worker that has it in ``ACTS_PLANS`` offers it as a Tool (``activities/plan_folders.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from acts.language import references
from acts.language.config import MODEL_SETTINGS
from acts.language.errors import InvalidRequest, Problem
from acts.language.messages import DATA_TYPES, Data, Instruction, Request, ToolMessage, parse_message, parse_request
from acts.language.references import MARK, Operation, Path, Projection, TextTemplate, paths
from acts.language.tools import tool_name
from acts.language.values import Json, get, type_name
from acts.language.wire import PLAN_TOOL
from acts.plan.context_log import START, Log

_INPUT: Final = "input"
# What of the config of a run its plan keeps
_KEPT: Final = (*MODEL_SETTINGS, "approve", "maxParallel", "missing", "resolve")
_WRITES: Final = ("_outputPath", "_errorPath")
_TYPES: Final = {"list": "array", **{name: name for name in ("object", "string", "number", "boolean")}}


def save_plan(
    raw: Json, calls: Sequence[Json], output: Json, result: Mapping[str, Any], title: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plan that a run walked, as a Request, and a test file of one case: the run. ``output`` is that of an agent as
    its model wrote it, ``result`` the run's. Raises InvalidRequest: it cannot be saved, and why.
    """
    request = parse_request(raw)
    ticks = {item.get("tick") for item in result["calls"]}
    if request.instances() or len(ticks) != 1:
        why = "it has instances" if request.instances() else f"its calls were planned in {len(ticks)} answers"
        raise InvalidRequest([Problem("notSaved", f"{why}; what is saved is one plan, whose calls run once")])
    inputs = _Inputs(request, calls)
    plan, results = [inputs.rename_call(call) for call in calls], dict(_canned_results(calls, result))
    expected = dict(result.get("state") or {})
    if MARK in str(output):
        plan.append({
            "_tool": "compute", "code": "value", "value": inputs.rename(output), "_outputPath": "†state.output"
        })  # fmt: skip
        results[f"{len(plan)}:compute"], expected["output"] = {"$value": result["output"]}, result["output"]
    settings = request.raw.get("config") or {}
    about = [m.text for m in request.context if isinstance(m, Instruction) and m.type != "system"]
    context = [
        *(m.raw for m in request.context if isinstance(m, Instruction) and m.type == "system"),
        *_tool_messages(request, {str(call["_tool"]) for call in plan}),
        *(m.raw for m in request.data() if m.kind not in inputs.keys),
        {"type": _INPUT, "schema": inputs.schema, "description": about[0] if about else f"What {title} did."},
        {"type": "plan", "plan": plan, "run": True, **({"mode": "lazy"} if request.mode == "lazy" else {})},
    ]
    case = {"name": title, _INPUT: inputs.values, "results": results, "decisions": "approve"}
    case["expect"] = {"status": result["status"], "state": expected}
    return {"config": {k: settings[k] for k in _KEPT if k in settings}, "context": context}, {"cases": [case]}


class _Inputs:
    """The data that becomes the input; ``keys`` are where its kinds are in it, None: that of the input itself."""

    def __init__(self, request: Request, calls: Sequence[Json]) -> None:
        data = [m for m in request.data() if m.kind != "state"]
        texts = [call[key] for call in calls for key in _WRITES if isinstance(call.get(key), str)]
        written = {path.kind for text in texts for path in paths(references.parse_output(text))}
        kinds = [kind for kind in dict.fromkeys(m.kind for m in data) if kind not in written]
        view = Log(data).shared
        self._values = {kind: view.read(Path(kind), START) for kind in kinds}
        own = self._values.get(_INPUT)
        own_names = own.keys() if isinstance(own, dict) else ()
        keys = {kind: f"{kind}Data" if kind in own_names else kind for kind in kinds}
        self.keys: dict[str, str | None] = {**keys, **({_INPUT: None} if _INPUT in kinds else {})}
        self._names: dict[str, dict[str, None]] = {}  # that are read, by kind
        inputs = [m for m in data if m.kind == _INPUT and isinstance(m.schema, dict) and "$defs" not in m.schema]
        self._inputs = (inputs[-1].schema.get("properties") or {}) if inputs else {}

    @property
    def values(self) -> dict[str, Json]:
        """The input of the run."""
        out: dict[str, Json] = {}
        for kind, names in self._names.items():
            value, key = self._values[kind], self.keys[kind]
            part = {n: value[n] for n in names if n in value} if isinstance(value, dict) else value
            out |= part if key is None else {key: part}
        return out

    @property
    def schema(self) -> dict[str, Any]:
        shape = _shape_of(self.values)
        return {**shape, "properties": {**shape["properties"], **{
            name: self._inputs[name] for name in shape["properties"] if name in self._inputs
        }}, "required": [*shape["properties"]]}  # fmt: skip

    def rename_call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The Call as it reads the input; what a model has answered in the plan is answered again each time."""
        unchanged = ("_tool", "_outputMethod", *_WRITES, *(("plan",) if call["_tool"] == PLAN_TOOL else ()))
        out = {k: v if k in unchanged else self.rename(v, is_condition=k == "_when") for k, v in call.items()}
        if isinstance(call.get("_scopes"), list):
            out["_scopes"] = [self.rename(scope if MARK in scope else MARK + scope) for scope in call["_scopes"]]
        return {k: v for k, v in out.items() if k != "_output"}

    def rename(self, value: Json, *, is_condition: bool = False) -> Json:
        """The value with its references leading into the input."""
        if isinstance(value, (dict, list)):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            parts = {k: self.rename(v) for k, v in pairs}
            return parts if isinstance(value, dict) else [*parts.values()]
        if not isinstance(value, str) or MARK not in value:
            return value
        tree = references.parse_condition(value) if is_condition else references.parse_marked(value)
        renamed = self._rename(tree)
        return value if renamed == tree else str(renamed)

    def _rename(self, tree: references.Expression) -> Any:
        match tree:
            case Path(kind, names) if kind in self.keys:
                value, key = self._values[kind], self.keys[kind]
                every = value if isinstance(value, dict) else {}
                self._names.setdefault(kind, {}).update(dict.fromkeys(names[:1] or every))
                return Path(_INPUT, (*(() if key is None else (key,)), *names))
            case Projection(source, steps):
                return Projection(self._rename(source), steps)
            case Operation(sign, terms):
                return Operation(sign, tuple(map(self._rename, terms)))
            case TextTemplate(parts):
                return TextTemplate(tuple(p if isinstance(p, str) else self._rename(p) for p in parts))
        return tree


def _shape_of(value: Json) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"type": "object", "properties": {name: _shape_of(part) for name, part in value.items()}}
    type_ = _TYPES.get(type_name(value))
    return {} if type_ is None else {"type": type_}


def _tool_messages(request: Request, names: set[str]) -> Iterator[dict[str, Any]]:
    """The messages that have Tools of these names; what the Request does not define is the worker's."""
    for message in (m for m in request.context if isinstance(m, ToolMessage)):
        tool = message.tool
        own = {tool.removeprefix("Tool.")} if isinstance(tool, str) else {n} if (n := tool_name(tool)) else {*tool}
        if own & names:
            names = names - own
            yield message.raw
    yield from ({"type": "tool", "tool": name} for name in sorted(names))


def _canned_results(calls: Sequence[Json], result: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    """What came of each Call, by its id, in the form of a test."""
    written = [m for m in map(parse_message, result["context"]) if isinstance(m, Data) and m.path is not None]
    for item in result["calls"]:
        id_, number = item["id"], int(item["id"].partition(":")[0]) - 1
        call = calls[number] if number < len(calls) else {}
        if item.get("error") is not None:
            yield id_, {"$error": {k: v for k, v in item["error"].items() if k in ("code", "message", "details")}}
            continue
        texts = (
            {str(path) for path in paths(references.parse_output(item["outputPath"]))} if item.get("outputPath") else ()
        )
        own = next((m for m in written if m.raw.get("_call") == call and str(m.path) in texts), None)
        if own is None or own.path is None or item["state"] != "completed":
            continue
        value = get(own.payload, own.path.names)
        if "_each" in call and isinstance(value, list):
            yield from ((f"{id_}[{index}]", _canned(part)) for index, part in enumerate(value))
        elif "||" in str(call.get("_outputPath")):
            yield id_, {"$path": item["outputPath"], "$value": value}
        else:
            yield id_, _canned(value)


def _canned(value: Json) -> Json:
    """A value as a canned result; one that could be taken for another form, or a Message, says that it is a value."""
    is_odd = isinstance(value, dict) and (value.get("type") in DATA_TYPES or any(k.startswith("$") for k in value))
    return {"$value": value} if is_odd else value
