"""Calls, their dependencies, and plan order."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.oracle.expressions import (
    ABSENT,
    Where,
    alternatives,
    expressions,
    may_yield,
    parse,
    parse_condition,
    paths,
    trees_of,
)
from tests.oracle.folding import Entry, get, read_messages, view

META = {
    *("_tool", "_output", "_activity", "_delegate", "_scopes", "_outputPath", "_outputMethod", "_errorPath"),
    *("_instance", "_reasoningForCall", "_approval", "_options", "_when", "_each"),
}
# Of a Call with _each: its element and the position, in no context
ELEMENT = ("item", "index")
# Of a Call of the Tool plan: what the run below it reads
OF_CHILD = ("plan", "until")


class Cycle(Exception):
    """No plan order exists."""


@dataclass
class Call:
    id: str
    raw: dict[str, Any]
    tool: dict[str, Any]
    instance: str | None
    parameters: dict[str, Any]
    literal: dict[str, Any]  # parameters whose references are of the plan inside
    reads: list[Any]  # trees
    scopes: list[Where]
    outcomes: list[list[Where]]
    choices: int
    error: int | None
    method: str
    latent: bool
    when: Any = None  # a tree

    @property
    def each(self) -> bool:
        return "_each" in self.raw

    @property
    def definition(self) -> str | None:
        """The name of what is loaded for it."""
        delegate = self.raw.get("_delegate", self.tool.get("_delegate"))
        if delegate == "acts:plan":
            delegate = self.raw["plan"] if isinstance(self.raw["plan"], str) else None
        return None if delegate == "anonymous" else delegate

    def paths(self, tree: Any) -> list[Where]:
        return [p for p in paths(tree) if not (self.each and p[0] in ELEMENT)]

    def reading(self) -> list[Where]:
        return [p for tree in self.reads for p in self.paths(tree)] + self.scopes

    def writing(self) -> list[Where]:
        return [p for outcome in self.outcomes for p in outcome]


def tools_of(context: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    out: dict[str, dict[str, Any]] = {}
    for message in context:
        if message.get("type") == "tool":
            tool = message["tool"]
            own_name = tool.get("properties", {}).get("_tool", {}).get("const")
            for name, schema in {own_name: tool}.items() if own_name else tool.items():
                properties = schema.get("properties", {})
                out[name] = {k: v["const"] for k, v in properties.items() if isinstance(v, dict) and "const" in v}
                out[name] |= {"_undo": properties["_undo"]} if "_undo" in properties else {}
    return out


def is_error_name(where: Where) -> bool:
    last = where[-1] if len(where) > 1 else ""
    return last in ("error", "errors", "failed", "failure") or last.endswith(("Error", "Failed"))


def read_call(raw: dict[str, Any], position: int, tools: dict[str, dict[str, Any]]) -> Call:
    tool = tools[raw["_tool"]]
    whole = {**{k: v for k, v in tool.items() if k in META}, **raw}
    walks = tool.get("_delegate") == "acts:plan"
    literal = {k: v for k, v in whole.items() if walks and k in OF_CHILD}
    parameters = {k: v for k, v in whole.items() if k not in META and k not in literal}
    outcomes = alternatives(parse(whole["_outputPath"])) if "_outputPath" in whole else []
    choices, error = len(outcomes), None
    if len(outcomes) > 1:
        error = next((i for i, o in enumerate(outcomes) if is_error_name(o[-1])), None)
    if "_errorPath" in whole:
        own = alternatives(parse(whole["_errorPath"]))[0]
        error = next((i for i, o in enumerate(outcomes) if set(o) == set(own)), len(outcomes))
        outcomes = outcomes if error < len(outcomes) else [*outcomes, own]
    when = whole.get("_when")
    when = parse_condition(when if isinstance(when, str) else json.dumps(when)) if "_when" in whole else None
    texts = [*expressions(parameters), *expressions(whole.get("_each"))]
    return Call(
        id=f"{position + 1}:{raw['_tool']}",
        raw=raw,
        tool=tool,
        instance=whole.get("_instance"),
        parameters=parameters,
        literal=literal,
        reads=[*(tree for text in texts for tree in trees_of(text)), *([] if when is None else [when])],
        scopes=[parse(s if s.startswith("†") else "†" + s)[1] for s in whole.get("_scopes", [])],
        outcomes=outcomes,
        choices=choices,
        error=error,
        method=whole.get("_outputMethod", "set"),
        latent=not tool.get("_activity") and "_delegate" not in whole,
        when=when,
    )


def overlap(one: Where, other: Where) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def feeds(writer: Call, reader: Call, reads: list[Where]) -> bool:
    """``writer`` may write what ``reader`` reads."""
    visible = writer.instance is None or writer.instance == reader.instance
    return writer is not reader and visible and any(overlap(w, r) for w in writer.writing() for r in reads)


def depends(call: Call, earlier: list[Call]) -> set[str]:
    """The ids of those that ``call`` waits for, of the Calls before it in plan order."""
    return {c.id for i, c in enumerate(earlier) if feeds(c, call, call.reading()) or hides(c, call, earlier[i + 1 :])}


def hides(writer: Call, reader: Call, between: list[Call]) -> bool:
    """An own write makes an object of a list that a global Call writes above it later, and above what is read."""
    if writer.instance is None or writer.instance != reader.instance:
        return False
    tops = [top for call in between if call.instance is None for top in call.writing()]
    below = [top for top in tops if any(top == r[: len(top)] != r for r in reader.reading())]
    return any(top == w[: len(top)] for top in below for w in writer.writing())


def has_value(entries: list[Entry], call: Call, where: Where) -> bool:
    return get(view(entries, where[0], call.instance), where[1:]) is not ABSENT


def plan_order(calls: list[Call], entries: list[Entry]) -> list[int]:
    """The listed positions in plan order. Raises Cycle."""
    edges: list[set[int]] = []
    for position, call in enumerate(calls):
        before = {j for j in range(position) if feeds(calls[j], call, call.reading())}
        for tree in call.reads:

            def is_provided(where: Where, position: int = position, call: Call = call) -> bool:
                if call.each and where[0] in ELEMENT:
                    return True
                return has_value(entries, call, where) or any(feeds(calls[j], call, [where]) for j in range(position))

            if not any(all(is_provided(p) for p in option) for option in alternatives(tree)):  # OPEN
                before |= {j for j in range(position + 1, len(calls)) if feeds(calls[j], call, call.paths(tree))}
        edges.append(before)
    order: list[int] = []
    while len(order) < len(calls):
        free = [i for i in range(len(calls)) if i not in order and edges[i] <= set(order)]
        if not free:
            raise Cycle
        order.append(free[0])
    return order


def unsatisfied(request: dict[str, Any]) -> list[str]:
    """The Calls with an expression that nothing in the context, or before it in the plan, can satisfy."""
    calls, entries = read_plan(request)
    order = plan_order(calls, entries)
    out = []
    for rank, position in enumerate(order):
        call = calls[position]
        for tree in call.reads:
            if tree is call.when:
                continue  # it is false, and no mistake
            possible = {
                p: (call.each and p[0] in ELEMENT)
                or has_value(entries, call, p)
                or any(feeds(calls[j], call, [p]) for j in order[:rank])
                for p in paths(tree)
            }
            if not may_yield(tree, possible.__getitem__):
                out.append(call.id)
                break
    return out


def read_plan(request: dict[str, Any]) -> tuple[list[Call], list[Entry]]:
    """The Calls of the latest plan, and the data of its context."""
    context = request["context"]
    plan = [m for m in context if m.get("type") == "plan"][-1]
    tools = tools_of(context)
    return [read_call(raw, i, tools) for i, raw in enumerate(plan["plan"])], read_messages(context)
