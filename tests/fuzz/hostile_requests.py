"""Requests, Solutions, results and decisions that are heavy for their size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acts.language.schemas import schema_defect
from tests.fuzz import hostile_json, hostile_schemas
from tests.fuzz.hostile_json import Source

Json = Any

METHODS = ("set", "push", "concat", "merge", "assign")
# A Tool that takes anything, with every meta-property open
OPEN_META = {
    "_outputPath": {"type": "string"}, "_outputMethod": {"type": "string"}, "_errorPath": {"type": "string"},
    "_scopes": {"type": "array"}, "_delegate": {"type": "string"}, "_approval": {"type": "boolean"},
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
        lambda s: [{"type": "state", "l": i, "_outputPath": "†state.l", "_outputMethod": s.pick(METHODS)} for i in range(s.count(70))],
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
    if source.chance(0.2):
        small = source.pick(({}, {"properties": {}}, {"properties": {"x": {"type": "integer"}, **OPEN_META}}))
        tools |= {f"m{i}": small for i in range(source.count(len(str(small)) + 10))}
    return tools if source.slips(0.2) else {name: tool for name, tool in tools.items() if _is_usable(tool)}


def _is_usable(tool: Json) -> bool:
    return isinstance(tool, dict) and (len(tool) < 3 or schema_defect(tool) is None)


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


# -- plans -----------------------------------------------------------------------


def plan(source: Source, tools: list[str], instances: list[str]) -> list[Json]:
    """The Calls of a plan of one of the shapes below."""
    make = source.pick(PLANS if source.slips(0.5) else VALID_PLANS)
    calls = make(source, source.pick(tools[:4] or ["t"]))
    if instances and source.chance(0.4):
        calls = [{**c, "_instance": instances[i % len(instances)]} if i % 3 else c for i, c in enumerate(calls)]
    return hostile_json.mutate(source, calls) if source.slips(0.3) else calls


def _chain(s: Source, tool: str) -> list[Json]:
    n = s.count(60)
    calls = [{"_tool": tool, "x": f"†state.c{i - 1}" if i else 1, "_outputPath": f"†state.c{i}"} for i in range(n)]
    return calls[::-1] if s.chance(0.3) else calls


def _readers_of_all(s: Source, tool: str) -> list[Json]:
    return [{"_tool": tool, "x": s.pick(("†state", "†state.x", "†user", "†state.x || †user")), "_outputPath": f"†{s.pick(('state', 'out'))}.c{i}"}
            for i in range(s.count(60))]  # fmt: skip


def _branches(s: Source, tool: str) -> list[Json]:
    width = s.pick((2, 8, 64))
    each = " || ".join(f"†state.b{{0}}o{j}" for j in range(width))
    n = s.count(len(each) + 40)
    return [
        {"_tool": tool, "x": f"†state.b{i - 1}o0 || †state.b{i - 1}o1" if i else 1, "_outputPath": each.format(i)}
        for i in range(n)
    ]


def _wide_expressions(s: Source, tool: str) -> list[Json]:
    operator = s.pick((" && ", " || ", " && (†state.x || †state.s) && ")[: 2 if s.is_careful else 3])
    path = s.pick(("†state.x", "†state", "†state.s", "†state.x[0]", '†state["x"]'))
    width = s.count(len(path) + len(operator), 64 if s.is_careful and "||" in operator else 60_000)
    text = (
        operator.join([path] * width)
        if s.is_careful or s.chance(0.5)
        else operator.join(f"{path}{i}" for i in range(width))
    )
    key = s.pick(("x", "_outputPath", "_errorPath"))
    return [
        {"_tool": tool, "_outputPath": "†state.r", key: text}
        for _ in range(s.count(len(text)) if s.left > len(text) else 1)
    ]


def _deep_paths(s: Source, tool: str) -> list[Json]:
    depth = s.pick((5, 30, 59))
    tail = ".".join("n" * s.pick((1, 5)) for _ in range(depth - 1))
    return [
        {"_tool": tool, "x": f"†state.r{i - 1}.{tail}" if i else 1, "_outputPath": f"†state.r{i}.{tail}"}
        for i in range(s.count(2 * len(tail) + 60))
    ]


def _own_names(s: Source, tool: str) -> list[Json]:
    """Every name of every path is another one."""
    depth = s.pick((5, 30, 58))
    return [
        {"_tool": tool, "x": 1, "_outputPath": "†state." + ".".join(f"{i}n{j}" for j in range(depth))}
        for i in range(s.count(8 * depth + 40))
    ]


def _writers_of_one(s: Source, tool: str) -> list[Json]:
    method = s.pick(METHODS)
    return [{"_tool": tool, "x": s.pick((1, "†state.l")), "_outputPath": s.pick(("†state.l", "†state", "†state.l.a")), "_outputMethod": method}
            for _ in range(s.count(80))]  # fmt: skip


def _literal_data(s: Source, tool: str) -> list[Json]:
    each = hostile_json.value(s)
    if s.chance(0.5):
        each = {"data": each, "one": "†state.x"}
    return [{"_tool": tool, "x": each, "_outputPath": "†state.r"} for _ in range(s.random.randrange(1, 4))]


def _marked_text(s: Source, tool: str) -> list[Json]:
    marked = s.pick(
        ("†state.x", "††x", "†state.x || †state.s", "†", "†(", "†{state.x}", "††{x}")[: 7 if s.slips(0.5) else 3]
    )
    shape = s.pick((lambda n: [marked] * n, lambda n: {f"k{i}": marked for i in range(n)}, lambda n: marked * n))
    return [{"_tool": tool, "x": shape(s.count(len(marked.encode()) + 6)), "_outputPath": "†state.r"}]


def _wrong_calls(s: Source, tool: str) -> list[Json]:
    wrong = s.pick((5, {}, {"_tool": "nope"}, {"_tool": tool, "_foo": 1}, {"_tool": tool, "_outputPath": 5}, {"_tool": tool, "y" * 30: 1},
                    {"_tool": tool, "x": "†nothing.at.all", "_outputPath": "†state.r"}, {"_tool": tool, "_scopes": 5},
                    {"_tool": tool, "_instance": "nobody"}, {"_tool": tool, "_outputPath": "†state.a && †state.a.b"}, {"_tool": tool, "_output": 1}))  # fmt: skip
    return [wrong] * s.count(len(str(wrong)))


def _scopes(s: Source, tool: str) -> list[Json]:
    scopes = [s.pick(("state", "†state.x", f"†state.x{i}", "user")) for i in range(s.count(14, 3_000))]
    return [
        {"_tool": tool, "x": 1, "_scopes": scopes, "_outputPath": f"†state.r{i}"}
        for i in range(s.random.randrange(1, 30))
    ]


def _cycle(s: Source, tool: str) -> list[Json]:
    n = s.count(60)
    return [{"_tool": tool, "x": f"†out.c{(i + 1) % n}", "_outputPath": f"†out.c{i}"} for i in range(n)]


def _detached(s: Source, tool: str) -> list[Json]:
    return [{"_tool": tool, "x": i} for i in range(s.count(24))]


def _conditions(s: Source, tool: str) -> list[Json]:
    term = s.pick(("†state.x == 1", "!†state.x", "†state.x < 5 && †state.s != null", '†state.x == "' + "a" * 500 + '"'))
    condition = s.pick((" && ", " || ")).join([term] * s.count(len(term) + 4, 20_000))
    conditions = (condition, "!" * 300 + "†state.x", "(" * 300 + "†state.x" + ")" * 300, "†state.x == " + "9" * 5000)
    return [
        {"_tool": tool, "x": 1, "_when": s.pick(conditions), "_outputPath": f"†state.w{i}"}
        for i in range(s.random.randrange(1, 20))
    ]


def _each(s: Source, tool: str) -> list[Json]:
    elements = s.pick(("†state.x", "†user", [1] * s.count(3), [{"a": i} for i in range(s.count(10))]))
    return [
        {
            "_tool": tool,
            "_each": elements,
            "x": s.pick(("†item", "†item.a", "no †{index}")),
            "_outputPath": f"†state.e{i}",
        }
        for i in range(s.random.randrange(1, 5))
    ]


VALID_PLANS: tuple[Callable[[Source, str], list[Json]], ...] = (
    _chain, _readers_of_all, _branches, _wide_expressions, _deep_paths, _own_names, _writers_of_one, _literal_data,
    _marked_text, _scopes, _detached,
)  # fmt: skip
PLANS = (*VALID_PLANS, _wrong_calls, _cycle, _conditions, _each)


# -- what comes later --------------------------------------------------------------


def result(source: Source, output: Json = None) -> Json:
    """What an Activity returns."""
    if source.chance(0.3):
        kind = source.pick(("state", "data", "input"))
        return {"type": kind, kind: hostile_json.value(source)}
    return hostile_schemas.value_for(source, output)


def solution(source: Source, tools: list[str]) -> Json:
    """What a model answers."""
    if source.chance(0.1):
        return hostile_json.value(source)
    output = source.pick((None, "†state.r0", {"a": "†state.x", "b": ["†state"]}, hostile_json.value(source)))
    return {"calls": plan(source, tools, []), "output": output}


def decision(source: Source, calls: list[Json], tools: list[str]) -> Json:
    """What a person sends."""
    changed = plan(source, tools, [])
    one = calls[0] if calls else {"_tool": "t"}
    return source.pick((
        {"decision": "edit", "plan": changed}, {"decision": "edit", "plan": calls[::-1]}, {"decision": "approve"},
        {"decision": "reject", "reason": source.text()}, {"decision": "edit", "call": "1:t", "with": {**one, "x": hostile_json.value(source)}}
        if isinstance(one, dict) else {}, hostile_json.value(source), {"decision": "edit", "plan": hostile_json.value(source)},
        {"decision": source.text(10_000), "call": source.text(10_000)},
    ))  # fmt: skip
