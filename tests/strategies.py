"""Random plans, as plain Requests with scripted results, that make Calls collide.

There are few kinds and few names, so that paths overlap all the time. References are drawn from what the context has
and what the plan's Calls write (before the reader or after it), so that most plans are valid.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from acts.activities.shipped_tools import SHIPPED
from acts.language.messages import METHODS
from acts.plan.validate import validate
from tests import oracle

KINDS = ("state", "data", "user")
NAMES = ("a", "b", "c", "0")
ERROR_NAMES = ("error", "payFailed")
INSTANCES = ("A", "B")

Where = tuple[str, ...]

# One above the other, index-like names among them
MEETING_POINTS: tuple[Where, ...] = (
    *(("state",), ("state", "a"), ("state", "a", "a"), ("state", "a", "a", "0"), ("state", "a", "b")),
    *(("state", "a", "0"), ("state", "0"), ("state", "0", "a"), ("state", "b")),
)

scalars = st.sampled_from([None, 0, 1, False, "", "s", "†state.a", "††x", 2.5])
names = st.sampled_from(NAMES)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2), max_leaves=4
)
objects = st.dictionaries(names, values, max_size=2)
methods = st.sampled_from(["set", "set", *METHODS])


@dataclass(frozen=True)
class Case:
    """A Request whose plan can be walked, and what each Call's Activity returns, by Call id.

    Of a Call that walks a plan, the results are those inside; of one that names a definition, what that holds, too.
    """

    request: dict[str, Any]
    results: dict[str, Any]


def render(where: Where) -> str:
    return "†" + ".".join(where)


@st.composite
def places(draw: st.DrawFn, *, names: st.SearchStrategy[str] = names) -> Where:
    """A kind and up to three names; a bare kind now and then."""
    kind = draw(st.sampled_from(["state", "state", *KINDS]))
    return (kind, *draw(st.lists(names, min_size=0 if draw(st.integers(0, 5)) == 0 else 1, max_size=3)))


def apart(one: Where, others: list[Where]) -> bool:
    return not any(one[: len(o)] == o[: len(one)] for o in others)


@st.composite
def outputs(draw: st.DrawFn) -> list[list[Where]]:
    """Alternatives of conjunctions, mostly just one path. Paths of one conjunction lie apart."""
    shape = draw(st.sampled_from([[1], [1], [1], [2], [1, 1], [1, 1], [2, 1], [1, 1, 1]]))
    out: list[list[Where]] = []
    for index, size in enumerate(shape):
        option: list[Where] = []
        for _ in range(size):
            where = draw(places())
            if index and draw(st.booleans()):
                where = (*where[:3], draw(st.sampled_from(ERROR_NAMES)))
            if apart(where, option):
                option.append(where)
        out.append(option)
    if len(out) > 1 and draw(st.integers(0, 3)) == 0:  # outcomes that are subsets of another one
        out.append([*out[0], *(where for where in out[1] if apart(where, out[0]))])
    return out


def output_text(options: list[list[Where]]) -> str:
    return " || ".join(" && ".join(render(w) for w in option) for option in options)


@st.composite
def near(draw: st.DrawFn, pool: list[Where]) -> Where:
    """A path that overlaps one of the pool: the same, one below it, or one above it."""
    where = draw(st.sampled_from(pool))
    match draw(st.integers(0, 5)):
        case 0:
            return where[: max(1, len(where) - 1)]
        case 1:
            return (*where, draw(names))
        case 2:
            return where[:1]
        case _:
            return where


@st.composite
def texts(draw: st.DrawFn, pool: list[Where], depth: int = 0) -> str:
    """An expression over places near the pool."""
    sign = draw(st.sampled_from(["", "", "", "||", "||", "&&", "new"])) if depth < 2 else ""
    if not sign:
        return render(draw(near(pool)))
    if sign == "new":
        return draw(computed(pool))
    parts = [draw(texts(pool, depth + 1)) for _ in range(draw(st.integers(2, 3)))]
    space = draw(st.sampled_from(["", " "]))
    joined = f"{space}{sign}{space}".join(f"({p})" if depth or ("|" in p or "&" in p) else p for p in parts)
    return joined if joined.startswith("†") else f"{render(draw(near(pool)))} || {joined}" if depth == 0 else joined


@st.composite
def computed(draw: st.DrawFn, pool: list[Where]) -> str:
    """An expression that makes or chooses its value."""
    one, other = (render(draw(near(pool))) for _ in range(2))
    forms = [
        f"{one}[*].a", f"{one}.length", f"{one} != null", f'{one} || "none"', f"{one} > 1 && {other}",
        f"{one} ? {other} : 1", f"{one} == {other} ? {one} : {other}", f"{one}[*] || {other}",
    ]  # fmt: skip
    return draw(st.sampled_from(forms))


@st.composite
def templates(draw: st.DrawFn, expressions: st.SearchStrategy[str]) -> str:
    """A text with expressions in braces, some of their marks left out."""
    parts = ["Dear "]
    for _ in range(draw(st.integers(1, 2))):
        text = draw(expressions)
        parts += [
            "†{",
            text.replace("†", "") if draw(st.booleans()) and "[†" not in text else text,
            "}",
            draw(st.sampled_from(["", " ††{x}"])),
        ]
    return "".join(parts[draw(st.integers(0, 1)) :])


@st.composite
def conditions(draw: st.DrawFn, pool: list[Where]) -> Any:
    """A condition over places near the pool."""
    parts = []
    for _ in range(draw(st.integers(1, 2))):
        path = render(draw(near(pool)))
        literal = draw(st.sampled_from(["null", "0", "1", "true", '"s"', "[]", path]))
        comparison = f"{path} {draw(st.sampled_from(['==', '!=', '<', '>=']))} {literal}"
        parts.append(
            draw(st.sampled_from([path, f"!{path}", comparison, f"!({comparison})", f"{path} || {comparison}"]))
        )
    return draw(st.sampled_from([" && ".join(parts), " || ".join(parts), " && ".join(parts), True]))


@st.composite
def lists(draw: st.DrawFn, pool: list[Where]) -> Any:
    """What ``_each`` may be: a literal list, with references inside, or a reference that often leads to none."""
    text = draw(texts(pool))
    items = st.sampled_from([1, "s", None, {"a": 2}, {"a": None}, [3], "††x"])
    literal = draw(st.lists(items, max_size=3))
    groups = {"of": draw(st.sampled_from([literal, text])), "size": draw(st.integers(1, 2))}
    return draw(st.sampled_from([*[literal] * 5, [*literal, text], [{"a": text}, *literal], text, groups]))


@st.composite
def timings(draw: st.DrawFn, pool: list[Where]) -> dict[str, Any]:
    """When and how often a Call runs; mostly nothing of it."""
    each = {"_each": draw(lists(pool))} if draw(st.integers(0, 5)) == 0 else {}
    if each and draw(st.booleans()):
        forms = ["†item", "†item.a != null", "†index > 0", f"†item && !{render(draw(near(pool)))}", "†item.length > 1"]
        return {**each, "_when": draw(st.sampled_from(forms))}
    return {**each, "_when": draw(conditions(pool))} if draw(st.integers(0, 5)) == 0 else each


@st.composite
def parameters(draw: st.DrawFn, pool: list[Where], *, each: bool = False) -> dict[str, Any]:
    out: dict[str, Any] = {}
    own = st.sampled_from(
        ["†item", "†item.a", "†index", "†item.a || †index", "†item && †index", "†item.length || †item[*]"]
    )
    at_index = texts(pool).map(lambda text: f"{text}[†index]" if text.count("†") == 1 and " " not in text else text)
    mixed = st.tuples(own, texts(pool)).map(lambda pair: f"{pair[0]} || ({pair[1]})")
    expressions = st.one_of(own, mixed, at_index, texts(pool)) if each else texts(pool)
    for name in draw(st.lists(st.sampled_from(["p", "q"]), max_size=2, unique=True)):
        text = draw(st.one_of(expressions, expressions, templates(expressions)))
        out[name] = draw(st.sampled_from([text, text, text, [1, text], {"deep": {"er": [text]}}, "††literal", 7]))
    return out


def tool(name: str, *, activity: bool = True, **more: Any) -> dict[str, Any]:
    """A Tool that lets its Calls choose everything that a Call may choose."""
    text = {"type": "string"}
    meta = {
        "_tool": {"const": name},
        "_outputPath": text,
        "_errorPath": text,
        "_outputMethod": text,
        "_output": True,
        "_scopes": {"type": "array"},
        "_activity": {"const": f"activity.{name}" if activity else ""},
        **more,
    }
    return {"type": "object", "properties": meta}


_UNDO = {"_undo": {"_tool": "undo", "what": "†result"}}
ALL_TOOLS = {
    "act": tool("act", **_UNDO),
    "undo": tool("undo"),
    "think": tool("think", activity=False),
    **SHIPPED,
    "saved": tool("saved", activity=False, _delegate={"type": "string"}, **_UNDO),
    "alone": tool("alone", _delegate={"const": "anonymous"}, **_UNDO),
}


@st.composite
def results_of(draw: st.DrawFn, call: dict[str, Any], options: list[list[Where]]) -> Any:
    """What an Activity returns: a value that often fits the method, a failure, or a Message."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        details = draw(st.sampled_from([{}, {"details": {"a": 1}}]))
        return {"$fail": {"type": draw(st.sampled_from(["Boom", "timeout"])), "message": "it broke", **details}}
    if kind in (1, 2) and options:
        return draw(messages(options))
    fitting = {"concat": st.lists(scalars, max_size=2), "merge": objects, "assign": objects}
    return draw(fitting.get(call.get("_outputMethod", "set"), values) if kind < 8 else values)


@st.composite
def messages(draw: st.DrawFn, options: list[list[Where]]) -> dict[str, Any]:
    """A data-like Message that writes what one alternative offers; sometimes more, or less."""
    option = draw(st.sampled_from(options))
    kind = option[0][0]
    payload: Any = {}
    for where in option:
        if where[0] == kind and draw(st.integers(0, 9)):
            payload = _place(payload, where[1:], draw(values))
    if draw(st.integers(0, 9)) == 0:
        payload = _place(payload, (draw(names),), draw(values))
    if kind in ("state", "data") and draw(st.booleans()):
        return {"type": kind, kind: payload}
    return {"type": "data", "kind": kind, "data": payload}


def _place(root: Any, where: Where, value: Any) -> Any:
    if not where:
        return value
    inner = root if isinstance(root, dict) else {}
    return {**inner, where[0]: _place(inner.get(where[0]), where[1:], value)}


@st.composite
def contexts(draw: st.DrawFn, *, instances: bool) -> list[dict[str, Any]]:
    """Data-like messages in all forms; with instances, at least one message of each."""
    out: list[dict[str, Any]] = [{"type": "state", "state": {"a": draw(values)}}]
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(KINDS))
        payload = draw(objects)
        match kind, draw(st.booleans()):
            case "user", True:
                out.append({"type": "data", "kind": "user", "data": payload})
            case "user", False:
                out.append({"type": "data", "kind": "user", **payload})
            case _, True:
                out.append({"type": kind, kind: payload})
            case _:
                out.append({"type": kind, **payload})
    if instances:
        out += [{"type": "state", "state": draw(objects), "_instance": name} for name in INSTANCES]
        if draw(st.booleans()):
            out.append({"type": "data", "data": draw(objects), "_instance": "A"})
    return out


def held_places(context: list[dict[str, Any]]) -> list[Where]:
    """The kinds of the context and their first names."""
    out: list[Where] = []
    for message in context:
        payload = message.get(message["type"], message)
        kind = message.get("kind", message["type"])
        out += [(kind,), *((kind, name) for name in NAMES if isinstance(payload, dict) and name in payload)]
    return out


MOST_CALLS = 7


def orders() -> st.SearchStrategy[list[int]]:
    """Who reports first: the positions of Calls by urgency. Shrinks to the order listed."""
    return st.permutations(range(MOST_CALLS))


# What a worker loads by a name, with the results of its Calls; None: it has nothing of that name
Saved = Sequence[tuple[str, Any]]


@st.composite
def definitions(draw: st.DrawFn, saved: Saved = ()) -> Any:
    """A Request that is walked as it stands, with data, Tools and maybe instances of its own."""
    instances = draw(st.integers(0, 4)) == 0
    context = draw(contexts(instances=instances))
    if draw(st.integers(0, 3)) == 0:
        context.append({"type": "input", "input": draw(objects), "schema": {"type": "object"}})
    held: list[Where] = [("input", "p"), ("input", "q"), *held_places(context)]
    plan, results = draw(calls(held, 3, instances=instances, depth=1, inside=True, saved=saved))
    given = {"type": "input", "input": dict.fromkeys("pq")}
    request = {"context": [{"type": "tool", "tool": ALL_TOOLS}, *context, {"type": "plan", "run": True, "plan": plan}]}
    problems = [p for p in validate({"context": [given, *request["context"]]}) if p.fatal]
    # The oracle knows which references nothing satisfies, but not those of a plan inside this one
    if any(p.code not in ("cycle", "unknownReference") or p.pointer.count("/plan/") > 1 for p in problems):
        return None
    return {"definition": request, "results": results}


@st.composite
def libraries(draw: st.DrawFn) -> Saved:
    """What a worker may load; the last of it may name the others."""
    first = [("first", draw(definitions())), ("nowhere", None)]
    return [*first, ("second", draw(definitions(first)))][draw(st.integers(0, 2)) :]


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    instances: bool | None = None,
    most_calls: int = MOST_CALLS,
    shipped: bool = False,
    saved: Saved | None = None,
) -> Case:
    """A Request with a plan that uses everything at once, and its scripted results.

    ``shipped``: with the Tools that ship, delegates, plans inside plans, and with what undoes a Call. ``saved`` is what
    they load, if not drawn.
    """
    instances = draw(st.booleans()) if instances is None else instances
    context = draw(contexts(instances=instances))
    if saved is None:
        saved = draw(libraries()) if shipped else ()
    held = held_places(context)
    plan, results = draw(calls(held, most_calls, instances=instances, depth=2 if shipped else 0, saved=saved))
    tools = ALL_TOOLS if shipped else {"act": tool("act"), "think": ALL_TOOLS["think"]}
    message = {"type": "tool", "tool": tools}
    config = {
        "model": "scripted:none",
        **({"onFailure": "undo"} if shipped and not instances and draw(st.booleans()) else {}),
    }
    return Case({"config": config, "context": [message, *context, {"type": "plan", "plan": plan}]}, results)


@st.composite
def calls(
    draw: st.DrawFn,
    held: list[Where],
    most_calls: int,
    *,
    instances: bool = False,
    depth: int = 0,
    inside: bool = False,
    saved: Saved = (),
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The Calls of a plan over a context that has these places, and their results by id.

    Without ``depth``, no Tools that ship; the results of a plan inside are those of its Calls.
    """
    names = ["act"] * 11 + ["think"] * (not inside) + ["saved"] * 3 * bool(saved)
    names += ([*["compute", "plan"] * 3, "wait", "alone", "http"]) * bool(depth)
    count = draw(st.integers(1, most_calls))
    drawn = [draw(calls_that_write(draw(st.sampled_from(names)), position)) for position in range(count)]
    plan, written = [call for call, _ in drawn], [options for _, options in drawn]
    for call in plan:
        if instances and call["_tool"] != "wait" and draw(st.integers(0, 2)):
            call["_instance"] = draw(st.sampled_from(INSTANCES))
    if instances and not any("_instance" in call for call in plan):
        plan[0]["_instance"] = "A"
    pool = held * 2 + [w for options in written for option in options for w in option]
    waits = st.sampled_from([call["_outputPath"] for call in plan if call["_tool"] == "wait"] or [None])
    results: dict[str, Any] = {}
    for position, call in enumerate(plan):
        if call["_tool"] == "wait":
            continue
        before = [w for options in written[:position] for option in options for w in option] * 3
        call.update(draw(timings(pool + before)))
        if (due := draw(waits)) is not None and "_when" not in call and draw(st.booleans()):
            call["_when"] = due + draw(st.sampled_from(["", " != null"]))
        own, results_of_call = draw(parts(call, pool + before, written[position], depth, saved))
        call.update(own)
        if call["_tool"] not in ("compute", "http") and draw(st.integers(0, 3)) == 0:
            call["_scopes"] = [render(draw(near(pool))) for _ in range(draw(st.integers(1, 2)))]
        results |= {f"{position + 1}:{call['_tool']}{element}": result for element, result in results_of_call.items()}
    return plan, results


@st.composite
def calls_that_write(draw: st.DrawFn, name: str, position: int) -> tuple[dict[str, Any], list[list[Where]]]:
    """A Call without what it reads, and its outcomes."""
    call: dict[str, Any] = {"_tool": name}
    if name == "wait":  # a date is nothing to compare: only conditions read it
        return {**call, "for": "20ms", "_outputPath": f"†due.n{position}"}, []
    options: list[list[Where]] = []
    if draw(st.integers(0, 5)) or name == "compute":
        options = [draw(outputs())[0]] if name == "think" else draw(outputs())
        call["_outputPath"] = output_text(options)
        if draw(st.booleans()):
            call["_outputMethod"] = draw(methods)
    if name != "think" and draw(st.integers(0, 3 if name == "act" else 1)) == 0:
        call["_errorPath"] = render(draw(places(names=st.sampled_from(["a", *ERROR_NAMES]))))
    return call | ({"_output": draw(values)} if name == "think" else {}), options


@st.composite
def parts(
    draw: st.DrawFn, call: dict[str, Any], pool: list[Where], options: list[list[Where]], depth: int, saved: Saved
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of a Call, and its results: for all of its elements under "", of some under "[0]"."""
    own = draw(parameters(pool, each="_each" in call))
    match call["_tool"]:
        case "saved":
            name, results = draw(st.sampled_from(saved))
            return {**own, "_delegate": name}, {"": results or _MISSING_DELEGATE}
        case "plan" if saved and draw(st.booleans()):
            name, results = draw(st.sampled_from(saved))
            again = draw(st.sampled_from([{}, {}, {"until": "†state.never", "repeat": {"max": 2}}]))
            return {"plan": name, **({"input": own} if own else {}), **again}, {"": results or _MISSING_PLAN}
        case "plan":
            inner, results = draw(plans_inside(own, depth - 1, saved))
            return inner, {"": results}
        case "http":
            url = "https://world.test/" + draw(st.sampled_from(["x", f"†{{{draw(texts(pool))}}}"]))
            answers = st.builds(answer, values, st.sampled_from([200, 200, 201, 404]))
            return {"method": "POST", "url": url, "json": own}, {"": draw(answers)}
        case "compute":
            return {"p": 1, "q": [2], **own, "code": draw(st.sampled_from(CODES))}, {}
        case "think":
            return own, {"": draw(values)}
    elements = draw(st.lists(st.integers(0, 3), max_size=2)) if "_each" in call else []
    return own, {at: draw(results_of(call, options)) for at in ["", *(f"[{index}]" for index in elements)]}


_MISSING_DELEGATE = {"$fail": {"type": "DelegateNotFound", "message": oracle.SOME_TEXT}}
_MISSING_PLAN = {"$fail": {"type": "PlanNotFound", "message": oracle.SOME_TEXT}}


def answer(value: Any, status: int) -> Any:
    """What the Tool ``http`` returns of an answer."""
    headers = {"content-type": "application/json", "content-length": str(len(json.dumps(value)))}
    if status < 300:
        return {"status": status, "headers": headers, "json": value}
    failure = {"type": "httpStatus", "message": oracle.SOME_TEXT, "details": {"status": status, "json": value}}
    return {"$fail": failure}


CODES = ("[p, q]", "len(p)", "p + q", "p['a']", "{'a': p, 'b': [q]}", "[x for x in q if x]", "p if p == q else None")


@st.composite
def plans_inside(
    draw: st.DrawFn, given: dict[str, Any], depth: int, saved: Saved
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a Call of the Tool ``plan`` has, and the results of the Calls inside.

    With ``until``, its Calls go one after another: who is cancelled would depend on the time else.
    """
    if draw(st.integers(0, 2)):
        held: list[Where] = [("input",), *(("input", name) for name in given)]
        plan, results = draw(calls(held, 3, depth=depth, inside=True, saved=saved))
        return {"plan": plan, **({"input": given} if given else {})}, results
    plan = [
        {"_tool": "compute", "code": "n + 1", "n": "†input.previous.n || 0", "_outputPath": "†state.m"},
        {"_tool": "act", "n": "†state.m", "_outputPath": "†state.seen", "_each": [1] * draw(st.integers(0, 2))},
        {"_tool": "compute", "code": "n", "n": "†state.m", "_outputPath": "†state.n", "_when": "†state.seen"},
        {"_tool": "act", "n": "†state.n", "_outputPath": draw(st.sampled_from(["†state.late", "†state.output"]))},
    ]
    inner = {"plan": plan, "until": f"†state.n >= {draw(st.integers(1, 3))}"}
    results = {"2:act": draw(results_of(plan[1], [])), "4:act": draw(results_of(plan[3], []))}
    if draw(st.booleans()):
        return {**inner, "input": {"previous": {"n": 1}}}, results
    return {
        **inner,
        "repeat": {"max": draw(st.integers(1, 3)), **draw(st.sampled_from([{}, {"every": "10ms"}]))},
    }, results


@st.composite
def collisions(draw: st.DrawFn, *, most_calls: int = MOST_CALLS) -> Case:
    """Few Calls that all write the same few places, with every method, and read them with something to fall back on.

    Every such plan is valid, and nearly every pair of its Calls meets. Names that look like indexes meet lists.
    """
    where = st.sampled_from(draw(st.lists(st.sampled_from(MEETING_POINTS), min_size=2, max_size=9, unique=True)))
    instances = draw(st.booleans())
    small = st.sampled_from([3, "s", None, [], [1], {}, {"a": 1}, {"a": [2, 3]}, {"0": 4}, {"a": {"b": 5}}, {"b": {}}])
    fit = {"concat": st.sampled_from([[7], [], "t"]), "merge": small, "assign": small, "push": small, "set": small}
    plan: list[dict[str, Any]] = []
    results_by_call: dict[str, Any] = {}
    for position in range(draw(st.integers(2, most_calls))):
        method = draw(st.sampled_from(METHODS))
        call: dict[str, Any] = {"_tool": "act", "_outputPath": render(draw(where)), "_outputMethod": method}
        if draw(st.integers(0, 2)):
            call["x"] = f"{render(draw(where))} || †data.z"
        if draw(st.integers(0, 6)) == 0:
            call["_each"] = draw(st.sampled_from([[1, 2], [], f"{render(draw(where))} || †data.z", "†data.l"]))
        if draw(st.integers(0, 4)) == 0:
            call["_when"] = f"!{render(draw(where))} || {render(draw(where))} != 3"
        if draw(st.integers(0, 3)) == 0:
            call["_scopes"] = [render(draw(where))]
        if draw(st.integers(0, 5)) == 0:
            call["_errorPath"] = draw(st.sampled_from(["†data.error", "†state.error", "†state.a.error"]))
        if instances and draw(st.booleans()):
            call["_instance"] = draw(st.sampled_from(INSTANCES))
        plan.append(call)
        broken = draw(st.integers(0, 9)) == 0
        results_by_call[f"{position + 1}:act"] = (
            {"$fail": {"type": "Boom", "message": "it broke"}} if broken else draw(fit[method])
        )
    context: list[dict[str, Any]] = [
        {"type": "data", "z": 0, "l": [4, {"a": 5}]},
        {"type": "state", "state": draw(st.one_of(objects, st.fixed_dictionaries({"a": small})))},
    ]
    if any("_instance" in call for call in plan):
        context += [{"type": "state", "state": draw(objects), "_instance": name} for name in INSTANCES]
    tools = {"type": "tool", "tool": tool("act")}
    request = {"config": {}, "context": [tools, *context, {"type": "plan", "plan": plan}]}
    return Case(request, results_by_call)


def waits(case: Case) -> bool:
    return any(call["_tool"] == "wait" for call in case.request["context"][-1]["plan"])


# Of all kinds, but for waits, which end when nothing else runs
plans = st.one_of(cases(), collisions(), cases(shipped=True).filter(lambda case: not waits(case)))


def draw_many(strategy: st.SearchStrategy[Any], count: int, number: int) -> list[Any]:
    """About so many values by a seed."""
    out: list[Any] = []

    @seed(number)
    @settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def collect(value: Any) -> None:
        out.append(value)

    collect()
    return out


def draw_plans(strategy: st.SearchStrategy[Case], count: int, number: int) -> list[tuple[Case, oracle.Outcome]]:
    """About so many valid plans by a seed, without a thought that a model must answer, and their serial runs."""

    def judge(case: Case) -> tuple[Case, oracle.Outcome] | None:
        if any(problem.fatal for problem in validate(case.request)):
            return None
        expected = oracle.run(case.request, case.results)
        return None if any("think" in id_ for id_ in expected.started) else (case, expected)

    return draw_many(strategy.map(judge).filter(lambda pair: pair is not None), count, number)
