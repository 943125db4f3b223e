"""The run of a plan: one Call after another, in plan order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.oracle.expressions import (
    ABSENT,
    Where,
    evaluate,
    expressions,
    holds,
    parse,
    parse_condition,
    paths,
    render,
    resolve,
    trees_of,
    yields,
)
from tests.oracle.folding import DATA_LIKE, Entry, Refused, get, put, view
from tests.oracle.ordering import ELEMENT, Call, Cycle, depends, overlap, plan_order, read_plan, unsatisfied

# The texts of the engine's own failures are not compared
SOME_TEXT = "…"


@dataclass
class Outcome:
    """The result of a plan. Ids are those of Calls; messages have no ``_date``."""

    order: list[str] = field(default_factory=list)
    depends: dict[str, set[str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str | None] = field(default_factory=dict)
    errors: dict[str, dict[str, Any]] = field(default_factory=dict)
    started: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = field(default_factory=dict)
    appended: list[dict[str, Any]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    inside: list[Outcome] = field(default_factory=list)  # of the plans that its Calls had walked
    reached: bool = False
    undo: list[tuple[str, Any]] = field(default_factory=list)  # what undoes it: the Call or element, and ``what``

    @property
    def failed(self) -> bool:
        return "failed" in self.states.values()

    def starts_of(self, *tools: str) -> int:
        """How often the Calls of Tools are made, here and inside."""
        own = sum(id_.partition(":")[2].partition("[")[0] in tools for id_ in self.started)
        return own + sum(inner.starts_of(*tools) for inner in self.inside)

    def view(self, kind: str, instance: str | None = None) -> Any:
        return view(self.entries, kind, instance)


def instances_of(request: dict[str, Any]) -> list[str]:
    names = [m["_instance"] for m in request["context"] if m.get("type") in DATA_LIKE and "_instance" in m]
    return list(dict.fromkeys(names))


def run(request: dict[str, Any], results: dict[str, Any], until: Any = None) -> Outcome:
    """Run a plan serially. ``results``: by Call id, a value or ``{"$fail": {"type", "message"}}``.

    It ends where ``until``, a condition, holds of what was written.
    """
    calls, entries = read_plan(request)
    positions = plan_order(calls, entries)
    order = [calls[i] for i in positions]
    out = Outcome(order=[c.id for c in order], entries=list(entries))
    written: dict[str, list[Where]] = {}
    tools = [m for m in request["context"] if m.get("type") == "tool"]
    for rank, call in enumerate(order):
        earlier = order[:rank]
        out.depends[call.id] = depends(call, earlier)
        out.paths[call.id] = None
        turn = _Turn(out, call, earlier, written, tools)
        out.states[call.id] = turn.run(results)
        is_partly = call.each or call.literal
        if is_partly or (out.states[call.id] == "completed" and call.id not in out.errors):
            out.undo[:0] = turn.undo
        if until is not None and call.id in written and holds(until, lambda p: get(out.view(p[0]), p[1:])):
            out.reached = True
            break
    return out


class _Turn:
    """One Call at its turn: every Call before it in plan order has ended, none after it has started."""

    def __init__(
        self, out: Outcome, call: Call, earlier: list[Call], written: dict[str, list[Where]], tools: list[Any]
    ) -> None:
        self.out, self.call, self.earlier, self.written, self.tools = out, call, earlier, written, tools
        self.undo: list[tuple[str, Any]] = []  # what undoes it, the last first

    def read(self, where: Where) -> Any:
        return get(self.out.view(where[0], self.call.instance), where[1:])

    def run(self, results: dict[str, Any]) -> str:
        call = self.call
        if call.when is not None and not self.is_per_element(call.when) and not holds(call.when, self.read):
            return "skipped"
        if call.latent and not call.outcomes:
            return "completed" if self.has_literal_output() else "skipped"
        return self.run_each(results) if call.each else self.run_once(results)

    def run_once(self, results: dict[str, Any]) -> str:
        call = self.call
        missing = [text for text in expressions(call.parameters) if yields(text, self.read) is ABSENT]
        if missing:
            return "skipped" if self.is_withheld(missing) else self.fail("UnresolvedReference")
        if self.has_literal_output():
            return self.write([(p, call.raw["_output"]) for p in call.outcomes[0]])
        parameters = resolve(call.parameters, self.read) | call.literal
        result = self.start(call.id, parameters, results)
        if not call.outcomes:
            return "detached"
        if is_failure(result):
            return self.fail(*result["$fail"].values())
        try:
            writes = self.place_result(result)
        except Refused as refused:
            return self.fail(refused.code)
        return self.write(writes)

    def run_each(self, results: dict[str, Any]) -> str:
        """The Call once per element, one after another; one result."""
        call = self.call
        texts = expressions(call.parameters)
        shared = [text for text in texts if not self.is_of_element(text)]
        missing = [t for t in [*expressions(call.raw["_each"]), *shared] if yields(t, self.read) is ABSENT]
        if missing:
            return "skipped" if self.is_withheld(missing) else self.fail("UnresolvedReference")
        each = call.raw["_each"]
        size = each["size"] if isinstance(each, dict) else None
        each = each["of"] if isinstance(each, dict) else each
        items = evaluate(parse(each), self.read) if isinstance(each, str) else resolve(each, self.read)
        if not isinstance(items, list):
            return self.fail("WrongKind")
        items = items if size is None else [items[at : at + size] for at in range(0, len(items), size)]
        runs = [not self.is_per_element(call.when) or holds(call.when, self.reader(*pair)) for pair in enumerate(items)]
        mixed = [t for t in texts if self.is_of_element(t) and self.lacks_a_path(t)]
        missing = [
            t
            for t in mixed
            if any(runs[i] and yields(t, self.reader(i, item)) is ABSENT for i, item in enumerate(items))
        ]
        if missing and self.is_withheld(missing):
            return "skipped"
        ends = [self.run_element(i, item, results) if runs[i] else None for i, item in enumerate(items)]
        errors = [{"index": i, **end["$fail"]} for i, end in enumerate(ends) if is_failure(end)]
        values = [None if is_failure(end) else end for end in ends]
        if errors:
            return self.fail("eachFailed", SOME_TEXT, {"errors": errors, "results": values})
        if not call.outcomes and any(runs):
            return "detached"
        return self.write([(p, values) for p in call.outcomes[0]] if call.choices else [])

    def is_per_element(self, when: Any) -> bool:
        return self.call.each and when is not None and any(p[0] in ELEMENT for p in paths(when))

    def is_of_element(self, text: str) -> bool:
        return any(p[0] in ELEMENT for tree in trees_of(text) for p in paths(tree))

    def lacks_a_path(self, text: str) -> bool:
        """A path of the context that the expressions read has no value."""
        return any(self.read(path) is ABSENT for tree in trees_of(text) for path in self.call.paths(tree))

    def reader(self, index: int, item: Any) -> Any:
        own = {"item": item, "index": index}
        return lambda where: get(own[where[0]], where[1:]) if where[0] in own else self.read(where)

    def run_element(self, index: int, item: Any, results: dict[str, Any]) -> Any:
        """Its result, or ``{"$fail": {"code", "message"}}``."""
        id_ = f"{self.call.id}[{index}]"
        try:
            parameters = resolve(self.call.parameters, self.reader(index, item)) | self.call.literal
        except KeyError:
            return {"$fail": {"code": "UnresolvedReference", "message": SOME_TEXT}}
        result = self.start(id_, parameters, results)
        if not self.call.outcomes:
            return None  # nobody waits for it
        if is_failure(result):
            return {"$fail": {"code": result["$fail"]["type"], "message": result["$fail"]["message"]}}
        return result

    def start(self, id_: str, parameters: dict[str, Any], results: dict[str, Any]) -> Any:
        """What its Tool returns: a Tool that ships by its parameters, any other as scripted."""
        name, scoped = self.call.raw["_tool"], self.scoped()
        if name == "wait":
            return SOME_TEXT  # a date
        self.out.started[id_] = (parameters, scoped)
        result = results.get(id_, results.get(self.call.id))
        if name == "compute":
            result = compute(**parameters)
        if name == "plan":
            return self.walk(id_, parameters, scoped, result)
        if self.call.definition is not None:
            result = self.walk(id_, {"input": parameters}, scoped, result)
        if "_undo" in self.call.tool and self.call.outcomes and not is_failure(result):
            self.undo.insert(0, (id_, result))
        return result

    def walk(self, id_: str, parameters: dict[str, Any], scoped: list[Any], results: dict[str, Any]) -> Any:
        """The plan inside, or that of a definition, as often as it is repeated."""
        if is_failure(results):
            return results  # nothing is loaded
        definition: list[Any] = [{"type": "plan", "plan": parameters.get("plan")}]
        if self.call.definition is not None:
            definition, results = results["definition"]["context"], results["results"]
        is_own = self.call.raw["_tool"] == "plan"
        until = parse_condition(parameters["until"]) if "until" in parameters else None
        given, previous = parameters.get("input", {}), None
        for _ in range(parameters["repeat"]["max"] if "repeat" in parameters else 1):
            given = {**given, "previous": previous} if "repeat" in parameters else given
            data = [*scoped, {"type": "input", "input": given}]
            request = {"context": [*definition, *(self.tools if is_own else ()), *data]}
            try:
                if unsatisfied(request):
                    return {"$fail": {"type": "InvalidRequest", "message": SOME_TEXT}}
            except Cycle:
                return {"$fail": {"type": "InvalidRequest", "message": SOME_TEXT}}
            inner = run(request, results, until)
            self.out.inside.append(inner)
            if self.call.outcomes and is_own:  # what a delegate has done is undone by its Tool
                self.undo[:0] = [(f"{id_}/{call}", what) for call, what in inner.undo]
            if inner.failed and not inner.reached:
                return {"$fail": {"type": "PlanFailed", "message": SOME_TEXT}}
            previous = inner.view("state")
            previous = {} if previous is ABSENT else previous
            if until is None or inner.reached:
                if isinstance(previous, dict) and "output" in previous:
                    return previous["output"]
                return {i: inner.view("state", i) for i in instances_of(request)} or previous
        return {"$fail": {"type": "untilUnmet", "message": SOME_TEXT}}

    def has_literal_output(self) -> bool:
        """Eager: an ``_output`` counts when it depends only on Calls whose ``_output`` counts."""
        by_id = {c.id: c for c in (*self.earlier, self.call)}

        def is_literal(id_: str) -> bool:
            call = by_id[id_]
            is_given = call.latent and "_output" in call.raw and not call.each
            return is_given and all(is_literal(d) for d in self.out.depends[id_])

        return is_literal(self.call.id)

    def is_withheld(self, missing: list[str]) -> bool:
        """A dependency was skipped, failed, or took another outcome than what is missing."""
        missing_paths = [p for text in missing for tree in trees_of(text) for p in self.call.paths(tree)]
        for call in self.earlier:
            if call.id not in self.out.depends[self.call.id]:
                continue
            if self.out.states[call.id] != "completed":
                return True
            unwritten = [w for w in call.writing() if w not in self.written.get(call.id, [])]
            if any(overlap(w, where) for w in unwritten for where in missing_paths):  # OPEN
                return True
        return False

    def scoped(self) -> list[dict[str, Any]]:
        payloads: dict[str, Any] = {}
        for where in self.call.scopes:
            value = self.read(where)
            if value is ABSENT:
                continue
            for depth in range(len(where) - 1, 0, -1):
                above = self.read(where[:depth])
                name = where[depth]
                value = [None] * int(name) + [value] if isinstance(above, list) else {name: value}  # OPEN
            kind = where[0]
            payloads[kind] = _overlay(payloads[kind], value) if kind in payloads else value
        return [
            {"type": kind, kind: payload} if kind in DATA_LIKE else {"type": "data", "kind": kind, "data": payload}
            for kind, payload in payloads.items()
        ]

    def place_result(self, result: Any) -> list[tuple[Where, Any]]:
        call = self.call
        if not call.choices:
            return []  # OPEN
        if not is_message(result) or not call.tool.get("_activity"):
            return [(p, result) for p in call.outcomes[0]]
        kind, payload = result.get("kind", result["type"]), result[result["type"]]
        choices = call.outcomes[: call.choices]

        def holds(where: Where) -> bool:
            return where[0] == kind and get(payload, where[1:]) is not ABSENT

        def covers(outcome: list[Where]) -> bool:
            return all(any(p[0] == kind and leaf[: len(p) - 1] == p[1:] for p in outcome) for leaf in leaves(payload))

        matching = [outcome for outcome in choices if any(holds(p) for p in outcome)]
        complete = [outcome for outcome in matching if all(holds(p) for p in outcome)]
        if len(matching) > 1:
            matching = [o for o in complete if len(o) == max(map(len, complete))] or matching
            covering = [outcome for outcome in matching if covers(outcome)]  # OPEN
            matching = covering if len(covering) == 1 else matching
        if len(matching) != 1 or not covers(matching[0]):
            raise Refused("OutsideOutputPath")
        outcome = matching[0]
        first = next(get(payload, p[1:]) for p in outcome if holds(p))
        return [(p, get(payload, p[1:]) if holds(p) else first) for p in outcome]

    def fail(self, code: str, message: str = SOME_TEXT, details: Any = None) -> str:
        id_, call = self.call.id, self.call
        failed_before = id_ in self.out.errors
        if not failed_before:
            more = {} if details is None else {"details": details}
            self.out.errors[id_] = {"code": code, "message": message, **more}
        if call.error is None or failed_before:
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


def compute(code: str, **names: Any) -> Any:
    """The Tool of that name, for code that is written here."""
    try:
        return eval(code, {"__builtins__": {"len": len, "str": str}, **names})  # noqa: S307 - of the strategies
    except Exception:  # noqa: BLE001 - whatever the code does
        return {"$fail": {"type": "computeFailed", "message": SOME_TEXT}}


def call_of(id_: str) -> str:
    """The id of the Call of an element: ``2:act`` of ``2:act[0]``."""
    return id_.partition("[")[0]


def is_failure(result: Any) -> bool:
    return isinstance(result, dict) and set(result) == {"$fail"}


def _overlay(old: Any, new: Any) -> Any:
    """Two parts of one value, joined."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{k: _overlay(old[k], v) if k in old else v for k, v in new.items()}}
    if isinstance(old, list) and isinstance(new, list):
        length = max(len(old), len(new))
        pairs = zip(old + [None] * (length - len(old)), new + [None] * (length - len(new)), strict=True)
        return [_overlay(a, b) for a, b in pairs]
    return old if new is None else new


def is_message(value: Any) -> bool:
    """True for a data-like message in wrapped form."""
    if not isinstance(value, dict) or value.get("type") not in DATA_LIKE:
        return False
    type_ = value["type"]
    return type_ in value and set(value) <= {"type", type_, "kind", "schema", "description"}


def leaves(value: Any) -> list[Where]:
    """The paths of the leaves of a payload; an empty object is a leaf."""
    if not isinstance(value, dict) or not value:
        return [()]
    return [(name, *rest) for name, child in value.items() for rest in leaves(child)]
