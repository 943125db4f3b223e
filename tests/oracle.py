"""What a plan must come to, worked out the slow way: one Call after another.

This file is the protocol's promise of serial equivalence turned into the plainest code that keeps it. It shares
nothing with ``acts/``: its own reader of expressions, its own folds (from the first message, every time), its own
overlap tests (every pair). It must never be made clever, and never be "fixed" to agree with the engine without a
sentence of the protocol that says so.

What the protocol leaves open, and what is taken here (each marked OPEN below, in step with the engine's docs):

* an alternative of several paths is "there" when each of its paths is held by the context or overlapped by a write
  listed before;
* a list on the way to an output path is a runtime error of the Call (a scalar there is replaced by an object);
* ``merge`` takes two objects or two lists, ``assign`` two objects; anything else is of the wrong kind;
* a failure before anything ran (references, schema) goes to the error path too, written with the Call's method;
* a Call with an ``_errorPath`` alone is waited for, and writes nothing when it succeeds;
* a Message fits an alternative that has a place for all of it, where alternatives share paths;
* a dependency "took another outcome" when it left a path unwritten that overlaps one that is missing;
* when a later global write turns what an instance pushed onto into something else, the instance's own wins: its
  message is applied as if nothing stood there;
* a scope that leads into a list keeps the place in the list, with null before it.

Not modelled: schemas, approval, ``missing: "wait"``, agents.
"""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass, field
from typing import Any


class ABSENT:
    """The key does not exist."""


DATA_LIKE = ("data", "input", "state")
BESIDE = {"kind", "schema", "description", "_instance", "_call", "_date", "_outputPath", "_outputMethod"}
META = {
    *("_tool", "_output", "_activity", "_delegate", "_scopes", "_outputPath", "_outputMethod", "_errorPath"),
    *("_instance", "_reasoningForCall", "_approval", "_options"),
}
PATH = re.compile(r"""†[\w-]+(\.[^.\[\]()|&"\s]+|\[[0-9]+\]|\["([^"\\]|\\.)*"\])*""")
STEP = re.compile(r"""\.([^.\[\]()|&"\s]+)|\[([0-9]+)\]|\[("([^"\\]|\\.)*")\]""")

Where = tuple[str, ...]  # (kind, name, name, …)


# The wording of the engine's own failures is the engine's business
SOME_TEXT = "…"


class Malformed(Exception):
    """Not an expression."""


class Cycle(Exception):
    """No plan order exists."""


class Refused(Exception):
    """A write that cannot be applied, or a result that fits no outcome."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


# -- expressions ---------------------------------------------------------------


def parse(text: str) -> Any:
    """``("path", where)``, ``("or", [trees])`` or ``("and", [trees])``."""
    for sign, word in (("||", "or"), ("&&", "and")):
        parts = split(text, sign)
        if len(parts) > 1:
            return (word, [parse(part) for part in parts])
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        return parse(text[1:-1])
    if not PATH.fullmatch(text):
        raise Malformed(text)
    kind = re.match(r"†([\w-]+)", text)
    assert kind
    where = [kind.group(1)]
    for name, digits, quoted, _ in STEP.findall(text[kind.end() :]):
        try:
            where.append(name or (str(int(digits)) if digits else json.loads(quoted)))
        except ValueError:
            raise Malformed(text) from None
    return ("path", tuple(where))


def split(text: str, sign: str) -> list[str]:
    """``text`` cut at each ``sign`` that stands outside of parentheses and of quoted names."""
    parts, depth, at, start = [], 0, 0, 0
    while at < len(text):
        if text[at] == '"':
            at += 1
            while at < len(text) and text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        elif text[at] in "()":
            depth += 1 if text[at] == "(" else -1
            if depth < 0:
                raise Malformed(text)
        elif depth == 0 and text.startswith(sign, at):
            parts.append(text[start:at])
            at += 1
            start = at + 1
        at += 1
    if depth:
        raise Malformed(text)
    return [*parts, text[start:]]


def evaluate(tree: Any, read: Any) -> Any:
    word, rest = tree
    if word == "path":
        return read(rest)
    found = [evaluate(part, read) for part in rest]
    values = [v for v in found if v is not ABSENT and v is not None]
    if word == "or":
        return values[0] if values else None if any(v is None for v in found) else ABSENT
    if len(values) == len(found):
        return values[-1]
    return ABSENT if any(v is ABSENT for v in found) else None


def paths(tree: Any) -> list[Where]:
    word, rest = tree
    return [rest] if word == "path" else [p for part in rest for p in paths(part)]


def alternatives(tree: Any) -> list[list[Where]]:
    word, rest = tree
    if word == "path":
        return [[rest]]
    if word == "or":
        return [option for part in rest for option in alternatives(part)]
    out: list[list[Where]] = [[]]
    for part in rest:
        out = [left + [p for p in right if p not in left] for left in out for right in alternatives(part)]
    return out


def render(where: Where) -> str:
    """Only for names that need no brackets."""
    return "†" + ".".join(where)


def is_expression(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("†") and not value.startswith("††")


def expressions(value: Any) -> list[str]:
    """Every expression in a parameter, at any depth."""
    if is_expression(value):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for child in inner for text in expressions(child)]


def resolve(value: Any, read: Any) -> Any:
    """Raises KeyError for an expression that is absent (``missing`` finds them all)."""
    if is_expression(value):
        found = evaluate(parse(value), read)
        if found is ABSENT:
            raise KeyError(value)
        return found
    if isinstance(value, str) and value.startswith("††"):
        return value[1:]
    if isinstance(value, dict):
        return {k: resolve(v, read) for k, v in value.items()}
    return [resolve(v, read) for v in value] if isinstance(value, list) else value


# -- folding -------------------------------------------------------------------


def get(value: Any, names: Where) -> Any:
    for name in names:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and str(int(name)) == name and int(name) < len(value):
            value = value[int(name)]
        else:
            return ABSENT
    return value


def deep_merge(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{k: deep_merge(old[k], v) if k in old else v for k, v in new.items()}}
    return new


def combine(old: Any, method: str, new: Any) -> Any:
    """``old`` after ``method`` wrote ``new``. Raises Refused where the kinds do not fit."""
    if method == "set":
        return new
    if old is ABSENT or old is None:
        return [new] if method == "push" else new
    if method == "push" and isinstance(old, list):
        return [*old, new]
    for kind in {"concat": (list, str), "merge": (dict, list), "assign": (dict,)}.get(method, ()):
        if isinstance(old, kind) and isinstance(new, kind):
            if method == "concat":
                return old + new
            return deep_merge(old, new) if method == "merge" else {**old, **new}
    raise Refused("WrongKind")


def put(root: Any, names: Where, method: str, value: Any, *, strict: bool) -> Any:
    """``root`` after a write at ``names``. Strict: the Call is writing; else a message is read again."""
    if not names:
        try:
            return combine(root, method, value)
        except Refused:
            if strict:
                raise
            return combine(ABSENT, method, value)
    if isinstance(root, list) and strict:
        raise Refused("WrongKind")  # OPEN
    kept = root if isinstance(root, dict) else {}
    return {**kept, names[0]: put(kept.get(names[0], ABSENT), names[1:], method, value, strict=strict)}


@dataclass(frozen=True)
class Entry:
    """One data-like message. Without ``where`` it deep-merges at the root of its kind."""

    kind: str
    instance: str | None
    payload: Any
    names: Where | None = None
    method: str = "set"


def entry(raw: dict[str, Any]) -> Entry | None:
    """A data-like message, in either form; None for one that holds a schema alone."""
    type_ = raw["type"]
    kind = raw.get("kind", type_)
    payload = raw[type_] if type_ in raw else {k: v for k, v in raw.items() if k not in BESIDE and k != "type"}
    if type_ not in raw and not payload and "schema" in raw:
        return None
    if "_outputPath" not in raw:
        return Entry(kind, raw.get("_instance"), payload)
    where = parse(raw["_outputPath"])[1]
    value = get(payload, where[1:])
    return Entry(kind, raw.get("_instance"), value, where[1:], raw.get("_outputMethod", "set"))


def view(entries: list[Entry], kind: str, instance: str | None) -> Any:
    """The fold of the global messages, then of the instance's own."""
    value: Any = ABSENT
    for owner in (None,) if instance is None else (None, instance):
        for item in entries:
            if item.kind != kind or item.instance != owner:
                continue
            if item.names is None:
                value = item.payload if value is ABSENT else deep_merge(value, item.payload)
            else:
                value = put(value, item.names, item.method, item.payload, strict=False)
    return copy.deepcopy(value)


def read_messages(context: list[dict[str, Any]]) -> list[Entry]:
    found = [entry(m) for m in context if m.get("type") in DATA_LIKE]
    return [e for e in found if e is not None]


# -- calls and the graph ---------------------------------------------------------


@dataclass
class Call:
    id: str
    raw: dict[str, Any]
    tool: dict[str, Any]
    instance: str | None
    parameters: dict[str, Any]
    reads: list[Any]  # trees
    scopes: list[Where]
    outcomes: list[list[Where]]
    choices: int
    error: int | None
    method: str
    latent: bool

    def reading(self) -> list[Where]:
        return [p for tree in self.reads for p in paths(tree)] + self.scopes

    def writing(self) -> list[Where]:
        return [p for outcome in self.outcomes for p in outcome]


def tools_of(context: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The constants of each tool, by name."""
    out: dict[str, dict[str, Any]] = {}
    for message in context:
        if message.get("type") == "tool":
            given = message["tool"]
            named = given.get("properties", {}).get("_tool", {}).get("const")
            for name, schema in {named: given}.items() if named else given.items():
                properties = schema.get("properties", {})
                out[name] = {k: v["const"] for k, v in properties.items() if isinstance(v, dict) and "const" in v}
    return out


def is_error_name(where: Where) -> bool:
    last = where[-1] if len(where) > 1 else ""
    return last in ("error", "errors", "failed", "failure") or last.endswith(("Error", "Failed"))


def read_call(raw: dict[str, Any], position: int, tools: dict[str, dict[str, Any]]) -> Call:
    tool = tools[raw["_tool"]]
    whole = {**{k: v for k, v in tool.items() if k in META}, **raw}
    parameters = {k: v for k, v in whole.items() if k not in META}
    outcomes = alternatives(parse(whole["_outputPath"])) if "_outputPath" in whole else []
    choices, error = len(outcomes), None
    if len(outcomes) > 1:
        error = next((i for i, o in enumerate(outcomes) if is_error_name(o[-1])), None)
    if "_errorPath" in whole:
        own = alternatives(parse(whole["_errorPath"]))[0]
        error = next((i for i, o in enumerate(outcomes) if set(o) == set(own)), len(outcomes))
        outcomes = outcomes if error < len(outcomes) else [*outcomes, own]
    return Call(
        id=f"{position + 1}:{raw['_tool']}",
        raw=raw,
        tool=tool,
        instance=whole.get("_instance"),
        parameters=parameters,
        reads=[parse(text) for text in expressions(parameters)],
        scopes=[parse(s if s.startswith("†") else "†" + s)[1] for s in whole.get("_scopes", [])],
        outcomes=outcomes,
        choices=choices,
        error=error,
        method=whole.get("_outputMethod", "set"),
        latent=not tool.get("_activity") and "_delegate" not in whole,
    )


def overlap(one: Where, other: Where) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def feeds(writer: Call, reader: Call, reads: list[Where]) -> bool:
    """``writer`` may write what ``reader`` reads."""
    visible = writer.instance is None or writer.instance == reader.instance
    return writer is not reader and visible and any(overlap(w, r) for w in writer.writing() for r in reads)


def held(entries: list[Entry], call: Call, where: Where) -> bool:
    return get(view(entries, where[0], call.instance), where[1:]) is not ABSENT


def plan_order(calls: list[Call], entries: list[Entry]) -> list[int]:
    """The listed positions in plan order. Raises Cycle."""
    edges: list[set[int]] = []
    for position, call in enumerate(calls):
        before = {j for j in range(position) if feeds(calls[j], call, call.reading())}
        for tree in call.reads:

            def there(where: Where, position: int = position, call: Call = call) -> bool:
                return held(entries, call, where) or any(feeds(calls[j], call, [where]) for j in range(position))

            if not any(all(there(p) for p in option) for option in alternatives(tree)):  # OPEN
                before |= {j for j in range(position + 1, len(calls)) if feeds(calls[j], call, paths(tree))}
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
    calls, entries = _read(request)
    order = plan_order(calls, entries)
    out = []
    for rank, position in enumerate(order):
        call = calls[position]
        for tree in call.reads:
            options = alternatives(tree)
            possible = {
                p: held(entries, call, p) or any(feeds(calls[j], call, [p]) for j in order[:rank])
                for option in options
                for p in option
            }
            if not any(all(possible[p] for p in option) for option in options):
                out.append(call.id)
                break
    return out


# -- the run -----------------------------------------------------------------------


@dataclass
class Outcome:
    """What became of a plan. Ids are those of Calls; messages are without ``_date``."""

    order: list[str] = field(default_factory=list)
    depends: dict[str, set[str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str | None] = field(default_factory=dict)
    errors: dict[str, dict[str, Any]] = field(default_factory=dict)
    started: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = field(default_factory=dict)
    appended: list[dict[str, Any]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    def view(self, kind: str, instance: str | None = None) -> Any:
        return view(self.entries, kind, instance)


def _read(request: dict[str, Any]) -> tuple[list[Call], list[Entry]]:
    context = request["context"]
    plan = [m for m in context if m.get("type") == "plan"][-1]
    tools = tools_of(context)
    return [read_call(raw, i, tools) for i, raw in enumerate(plan["plan"])], read_messages(context)


def instances_of(request: dict[str, Any]) -> list[str]:
    found = [m["_instance"] for m in request["context"] if m.get("type") in DATA_LIKE and "_instance" in m]
    return list(dict.fromkeys(found))


def run(request: dict[str, Any], results: dict[str, Any]) -> Outcome:
    """Run a plan serially. ``results``: by Call id, a value or ``{"$fail": {"type", "message"}}``."""
    calls, entries = _read(request)
    positions = plan_order(calls, entries)
    order = [calls[i] for i in positions]
    out = Outcome(order=[c.id for c in order], entries=list(entries))
    written: dict[str, list[Where]] = {}
    for rank, call in enumerate(order):
        earlier = order[:rank]
        out.depends[call.id] = {c.id for c in earlier if feeds(c, call, call.reading())}
        out.paths[call.id] = None
        out.states[call.id] = _Turn(out, call, earlier, written).take(results)
    return out


class _Turn:
    """One Call's turn: everything before it in plan order has happened, nothing after it has."""

    def __init__(self, out: Outcome, call: Call, earlier: list[Call], written: dict[str, list[Where]]) -> None:
        self.out, self.call, self.earlier, self.written = out, call, earlier, written

    def read(self, where: Where) -> Any:
        return get(self.out.view(where[0], self.call.instance), where[1:])

    def take(self, results: dict[str, Any]) -> str:
        call = self.call
        if call.latent and "_output" in call.raw and self.all_given():
            return self.write([(p, call.raw["_output"]) for p in call.outcomes[0]]) if call.outcomes else "completed"
        if call.latent and not call.outcomes:
            return "skipped"
        missing = [text for text in expressions(call.parameters) if evaluate(parse(text), self.read) is ABSENT]
        if missing:
            return "skipped" if self.withheld(missing) else self.fail("UnresolvedReference")
        self.out.started[call.id] = (resolve(call.parameters, self.read), self.scoped())
        if not call.outcomes:
            return "detached"
        result = results[call.id]
        if isinstance(result, dict) and set(result) == {"$fail"}:
            return self.fail(result["$fail"]["type"], result["$fail"]["message"])
        try:
            writes = self.place(result)
        except Refused as refused:
            return self.fail(refused.code)
        return self.write(writes)

    def all_given(self) -> bool:
        """Eager: an ``_output`` counts when nothing it depends on was still to come."""
        by_id = {c.id: c for c in self.earlier}

        def given(id_: str) -> bool:
            call = by_id[id_]
            return call.latent and "_output" in call.raw and all(given(d) for d in self.out.depends[id_])

        return all(given(d) for d in self.out.depends[self.call.id])

    def withheld(self, missing: list[str]) -> bool:
        """A dependency was skipped, failed, or took another outcome than what is missing."""
        wanted = [p for text in missing for p in paths(parse(text))]
        for call in self.earlier:
            if call.id not in self.out.depends[self.call.id]:
                continue
            if self.out.states[call.id] != "completed":
                return True
            left = [w for w in call.writing() if w not in self.written.get(call.id, [])]
            if any(overlap(w, where) for w in left for where in wanted):  # OPEN
                return True
        return False

    def scoped(self) -> list[dict[str, Any]]:
        found: dict[str, Any] = {}
        for where in self.call.scopes:
            value = self.read(where)
            if value is ABSENT:
                continue
            for depth in range(len(where) - 1, 0, -1):
                above = self.read(where[:depth])
                name = where[depth]
                value = [None] * int(name) + [value] if isinstance(above, list) else {name: value}  # OPEN
            kind = where[0]
            found[kind] = _overlay(found[kind], value) if kind in found else value
        return [
            {"type": kind, kind: payload} if kind in DATA_LIKE else {"type": "data", "kind": kind, "data": payload}
            for kind, payload in found.items()
        ]

    def place(self, result: Any) -> list[tuple[Where, Any]]:
        call = self.call
        if not call.choices:
            return []  # OPEN
        if not is_message(result):
            return [(p, result) for p in call.outcomes[0]]
        kind, payload = result.get("kind", result["type"]), result[result["type"]]
        choices = call.outcomes[: call.choices]

        def holds(where: Where) -> bool:
            return where[0] == kind and get(payload, where[1:]) is not ABSENT

        def has_room(outcome: list[Where]) -> bool:
            return all(any(p[0] == kind and leaf[: len(p) - 1] == p[1:] for p in outcome) for leaf in leaves(payload))

        chosen = [outcome for outcome in choices if any(holds(p) for p in outcome)]
        if len(chosen) > 1:
            chosen = [outcome for outcome in chosen if has_room(outcome)]  # OPEN
        if len(chosen) != 1 or not has_room(chosen[0]):
            raise Refused("OutsideOutputPath")
        outcome = chosen[0]
        first = next(get(payload, p[1:]) for p in outcome if holds(p))
        return [(p, get(payload, p[1:]) if holds(p) else first) for p in outcome]

    def fail(self, code: str, message: str = SOME_TEXT) -> str:
        id_, call = self.call.id, self.call
        again = id_ in self.out.errors
        if not again:
            self.out.errors[id_] = {"code": code, "message": message}
        if call.error is None or again:
            return "failed"
        return self.write([(p, self.out.errors[id_]) for p in call.outcomes[call.error]])

    def write(self, writes: list[tuple[Where, Any]]) -> str:
        call, entries = self.call, list(self.out.entries)
        try:
            for where, value in writes:
                put(view(entries, where[0], call.instance), where[1:], call.method, value, strict=True)
                entries.append(Entry(where[0], call.instance, value, where[1:], call.method))
        except Refused as refused:
            return self.fail(refused.code)
        self.out.entries[:] = entries
        self.written[call.id] = [where for where, _ in writes]
        self.out.paths[call.id] = " && ".join(render(where) for where, _ in writes) or None
        self.out.appended += [self.message(where, value) for where, value in writes]
        return "completed"

    def message(self, where: Where, value: Any) -> dict[str, Any]:
        for name in reversed(where[1:]):
            value = {name: value}
        type_ = "state" if where[0] == "state" else "data"
        out = {
            "type": type_,
            "kind": where[0],
            type_: value,
            "_call": self.call.raw,
            "_outputPath": render(where),
            "_outputMethod": self.call.method,
        }
        return out if self.call.instance is None else {**out, "_instance": self.call.instance}


def _overlay(old: Any, new: Any) -> Any:
    """Two parts of the same whole, put together."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{k: _overlay(old[k], v) if k in old else v for k, v in new.items()}}
    if isinstance(old, list) and isinstance(new, list):
        length = max(len(old), len(new))
        pairs = zip(old + [None] * (length - len(old)), new + [None] * (length - len(new)), strict=True)
        return [_overlay(a, b) for a, b in pairs]
    return old if new is None else new


def is_message(value: Any) -> bool:
    """The wrapped form of a data-like message, and nothing beside it."""
    if not isinstance(value, dict) or value.get("type") not in DATA_LIKE:
        return False
    type_ = value["type"]
    return type_ in value and set(value) <= {"type", type_, "kind", "schema", "description"}


def leaves(value: Any) -> list[Where]:
    """The names that lead to whatever a payload holds; an empty object is something."""
    if not isinstance(value, dict) or not value:
        return [()]
    return [(name, *rest) for name, child in value.items() for rest in leaves(child)]
