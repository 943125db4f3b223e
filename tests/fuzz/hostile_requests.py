"""Requests, Solutions, results and decisions that are heavy for their size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acts.language.schemas import judge_schema
from tests.fuzz import hostile_json, hostile_plans, hostile_schemas
from tests.fuzz.hostile_json import Source
from tests.fuzz.hostile_plans import plan

Json = Any

# A Tool that takes anything, with every meta-property open
OPEN_META = {
    "_outputPath": {"type": "string"}, "_outputMethod": {"type": "string"}, "_errorPath": {"type": "string"},
    "_scopes": {"type": "array"}, "_delegate": {"type": "string"},
    "_reasoningForCall": {},
}  # fmt: skip


def request(source: Source, *, agent: bool = False) -> Json:
    """A Request with a plan (or for an agent), made of the parts below; sometimes changed somewhere."""
    size = source.left
    shares = source.pick(
        ((0.9, 0.05, 0), (0.05, 0.9, 0), (0.05, 0.05, 0.8), (0.3, 0.3, 0.3), (0.5, 0, 0.4), (0, 0.5, 0.4))
    )
    source.left = 200 + int(size * shares[0])
    context = _context(source)
    source.left = 200 + int(size * shares[1])
    tools = _tools(source)
    source.left = 200 + int(size * shares[2])
    context.append({"type": "tool", "tool": tools})
    if source.chance(0.3):
        context.append(
            {
                "type": "state",
                "schema": hostile_schemas.usable_schema(Source(source.random.randrange(10**9), size // 10)),
            }
        )
    instances = [m["_instance"] for m in context if isinstance(m, dict) and isinstance(m.get("_instance"), str)]
    calls = [] if agent else plan(source, list(tools), instances)
    context.append({"type": "plan", "plan": calls, "mode": source.pick(("eager", "lazy"))})
    if source.slips(0.4):
        source.random.shuffle(context)
    out: dict[str, Any] = {"config": _config(source), "context": context}
    if source.chance(0.3):
        out["schema"] = hostile_schemas.usable_schema(Source(source.random.randrange(10**9), size // 10))
    return hostile_json.mutate(source, out) if source.slips(0.4) else out


def _config(source: Source) -> Json:
    config: dict[str, Any] = {} if source.slips(0.2) else {"model": "scripted:x"}
    if source.chance(0.3):
        config["approve"] = source.pick(
            ({"plan": True}, {"calls": True}, {"scopes": True, "timeout": "5m"}, {"calls": ["a"] * 1000})
        )
    if source.chance(0.2):
        config |= source.pick(({"missing": "wait"}, {"maxParallel": 5000}, {"budget": {"calls": 10**9}}, {"budget": {"cost": 1}},
                               {"step": "call"}, {"instancesPerChild": 7}))  # fmt: skip
    if source.slips(0.1):
        config |= source.pick(({"temperature": 10**300}, {"x" * 1000: 1}, {"budget": []}))
    return config


def _context(source: Source) -> list[Json]:
    valid: tuple[Callable[[Source], list[Json]], ...] = (
        lambda s: [{"type": "state", "state": {"x": hostile_json.value(s), "s": 1}}],
        lambda s: [{"type": "data", "kind": s.pick(("user", "a-b", "k" * 100)), "data": hostile_json.value(s)}],
        lambda s: [{"type": "text", "text": s.text()}],
        lambda s: [{"type": "input", "input": {"i": i}, "_instance": f"n{i}"} for i in range(s.count(60))],
        lambda s: [{"type": "state", "state": {"l": i}, "_outputPath": "†state.l", "_outputMethod": "push"} for i in range(s.count(70))],
        lambda s: [{"type": "state", "state": {"l": [i]}, "_outputPath": "†state.l", "_outputMethod": "concat"} for i in range(s.count(80))],
        lambda s: [{"type": "state", "state": {"o": {f"k{i}": 1}}} for i in range(s.count(45))],
        lambda s: [{"type": "data", "kind": f"k{i}", "data": {}} for i in range(s.count(40))],
        lambda s: [{"type": "error", "data": hostile_json.value(s)}],
        lambda s: [{"type": "state", "schema": hostile_schemas.usable_schema(s)} for _ in range(s.count(200, 300))],
        lambda s: [{"type": "state", "state": {"x": 1}}],
    )  # fmt: skip
    messages = (
        lambda s: [{"type": s.pick(("x", "stat", 5, "texts"))} for _ in range(s.count(20))],
        lambda s: [{"type": "state", "l": i, "_outputPath": "†state.l", "_outputMethod": s.pick(hostile_plans.METHODS)} for i in range(s.count(70))],
        lambda s: [hostile_json.value(s) for _ in range(5)],
    )  # fmt: skip
    size = source.left
    out: list[Json] = [
        {"type": "state", "state": {"x": source.pick((1, "text", {"y": {"z": 1}}, [1, 2], None)), "s": 1}}
    ]
    for _ in range(source.random.randrange(1, 4)):
        source.left = size // 2
        out += source.pick(messages if source.slips(0.3) else valid)(source)
    return out


def _tools(source: Source) -> dict[str, Json]:
    """Tools by name: ``t`` takes anything."""
    tools: dict[str, Json] = {"t": {"type": "object", "properties": {**OPEN_META, "x": {}}, "_activity": "t"}}
    for i in range(source.random.randrange(4)):
        tools[f"t{i}"] = _tool(source)
    tools["fixed"] = _fixing_tool(source)
    if source.chance(0.2):
        small = source.pick(({}, {"properties": {}}, {"properties": {"x": {"type": "integer"}, **OPEN_META}}))
        tools |= {f"m{i}": small for i in range(source.count(len(str(small)) + 10))}
    return tools if source.slips(0.2) else {name: tool for name, tool in tools.items() if _is_usable(tool)}


def _is_usable(tool: Json) -> bool:
    return isinstance(tool, dict) and (len(tool) < 3 or judge_schema(tool).reason is None)


def _fixing_tool(source: Source) -> Json:
    """A Tool whose constants say much for each of its Calls."""
    width = source.pick((1, 8, 64))
    paths = " || ".join(f"†state.{source.pick('abc')}{i}" + ".n" * source.pick((0, 0, 5)) for i in range(width))
    fixed: dict[str, Json] = {"_outputPath": {"const": source.pick((paths, "†state.f", paths.replace("||", "&&")))}}
    if source.chance(0.2):
        fixed["_scopes"] = {
            "const": source.pick((["state"] * 50, [f"†state.x{i}" for i in range(source.count(12, 3_000))]))
        }
    if source.chance(0.2):
        fixed["_errorPath"] = {"const": "†state.broken"}
    if source.chance(0.2):
        fixed["_when"] = {"const": " && ".join(["†state.x == †state.x"] * source.count(24, 100))}
    if source.chance(0.2):
        fixed["_each"] = {"const": source.pick(("†state.x", list(range(source.count(4, 10_000)))))}
    return {"type": "object", "properties": {"x": {}, **fixed}, "_activity": source.pick(("t", "act", ""))}


def _tool(source: Source) -> Json:
    if source.chance(0.4):
        return {
            "type": "object",
            "properties": {
                **OPEN_META,
                "x": source.pick(({}, {"type": ["string", "number", "object", "array", "null"]})),
            },
        }
    parameter = hostile_schemas.usable_schema(source)
    tool: dict[str, Any] = {"type": "object", "properties": {**OPEN_META, "x": parameter}}
    if source.chance(0.3):
        tool["properties"]["_output"] = hostile_schemas.usable_schema(source)
    if isinstance(parameter, dict) and "$defs" in parameter and source.chance(0.7):
        tool["$defs"] = parameter["$defs"]
    if source.chance(0.6):
        tool["properties"]["_activity"] = {"const": "x" * 300 if source.slips(0.2) else source.pick(("act", ""))}
    if source.chance(0.2):
        tool |= {"_outputPath": source.pick(("†state.r", "†state.r || †state.error")), "_errorPath": "†state.e"}
    if source.chance(0.1):
        tool["_options"] = {"timeout": "5s"} if not source.slips(0.5) else hostile_json.value(source)
    return hostile_json.mutate(source, tool) if source.slips(0.3) else tool


def result(source: Source, output: Json = None) -> Json:
    if source.chance(0.3):
        kind = source.pick(("state", "data", "input"))
        return {"type": kind, kind: hostile_json.value(source)}
    return hostile_schemas.value_for(source, output)


def solution(source: Source, tools: list[str]) -> Json:
    if source.chance(0.1):
        return hostile_json.value(source)
    output = source.pick((None, "†state.r0", {"a": "†state.x", "b": ["†state"]}, hostile_json.value(source)))
    return {"calls": plan(source, tools, []), "output": output}


def decision(source: Source, calls: list[Json], tools: list[str]) -> Json:
    changed = plan(source, tools, [])
    one = calls[0] if calls else {"_tool": "t"}
    return source.pick((
        {"decision": "edit", "plan": changed}, {"decision": "edit", "plan": calls[::-1]}, {"decision": "approve"},
        {"decision": "reject", "reason": source.text()}, {"decision": "edit", "call": "1:t", "with": {**one, "x": hostile_json.value(source)}}
        if isinstance(one, dict) else {}, hostile_json.value(source), {"decision": "edit", "plan": hostile_json.value(source)},
        {"decision": source.text(10_000), "call": source.text(10_000)},
    ))  # fmt: skip
