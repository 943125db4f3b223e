"""Small plans and what must become of them: plain data, for the pure walk and for a real server alike.

A row is

    name      a sentence
    request   a Request
    results   by Call id: what the Activity returns, or {"$fail": {"type", "message"}}
    expect    status    of the plan
              states    by Call id
              errors    by Call id: the code (only those that have one)
              state     the state view of a global reader
              instances by instance: its state view
              written   every appended message as [path, method, value, instance or None], in plan order
              started   by Call id: the parameters its Activity was called with (rows name those that matter)
              sees      by Call id: the scoped context it was called with (as above)

No two Calls of a row use the same Tool, and every Tool's Activity is named ``row.<tool>``: an Activity can tell its
Call by the Tool, wherever it runs. The position in the plan and the Tool's name make the Call's id.
"""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

TEXT = {"type": "string"}
META = {
    "_outputPath": TEXT,
    "_errorPath": TEXT,
    "_outputMethod": TEXT,
    "_scopes": {"type": "array"},
    "_output": True,
}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    """A Tool with an Activity whose Calls may choose all that a Call may choose."""
    return {
        "type": "object",
        "properties": {"_tool": {"const": name}, "_activity": {"const": f"row.{name}"}, **META, **properties},
    }


def thought(name: str) -> dict[str, Any]:
    """A latent Tool."""
    return {"type": "object", "properties": {"_tool": {"const": name}, "_activity": {"const": ""}, **META}}


def fails(type_: str = "card_declined", message: str = "no") -> dict[str, Any]:
    return {"$fail": {"type": type_, "message": message}}


def row(name: str, plan: list[dict[str, Any]], *, context: Any = (), results: Any = None, **expect: Any) -> Row:
    """All by Tool here. The Tools of a plan are made for it; ``think…`` is latent. ``sees``: the scoped context."""
    tools = {
        call["_tool"]: thought(call["_tool"]) if call["_tool"].startswith("think") else tool(call["_tool"])
        for call in plan
    }
    ids = {call["_tool"]: f"{position}:{call['_tool']}" for position, call in enumerate(plan, 1)}
    for key in ("states", "errors", "started", "sees"):
        if key in expect:
            expect[key] = {ids[name]: value for name, value in expect[key].items()}
    return {
        "name": name,
        "request": {"context": [{"type": "tool", "tool": tools}, *context, {"type": "plan", "plan": plan}]},
        "results": {ids[name]: value for name, value in (results or {}).items()},
        "expect": {"status": "completed", "errors": {}, **expect},
    }


def call(name: str, path: str | None = None, method: str | None = None, **more: Any) -> dict[str, Any]:
    out = {"_tool": name, **more}
    if path is not None:
        out["_outputPath"] = path
    if method is not None:
        out["_outputMethod"] = method
    return out


def state(**payload: Any) -> dict[str, Any]:
    return {"type": "state", "state": payload}


def own(instance: str, **payload: Any) -> dict[str, Any]:
    return {"type": "state", "state": payload, "_instance": instance}


DONE = "completed"

# -- order -----------------------------------------------------------------------

ORDER: list[Row] = [
    row(
        "a value goes from one call to the next",
        [call("one", "†state.a"), call("two", "†state.b", x="†state.a", y={"deep": ["†state.a.n", 1]})],
        results={"one": {"n": 5}, "two": "done"},
        states={"one": DONE, "two": DONE},
        state={"a": {"n": 5}, "b": "done"},
        started={"one": {}, "two": {"x": {"n": 5}, "y": {"deep": [5, 1]}}},
        written=[["†state.a", "set", {"n": 5}, None], ["†state.b", "set", "done", None]],
    ),
    row(
        "a reader that is listed before its only writer waits for it",
        [call("report", "†state.report", x="†state.total"), call("sum", "†state.total")],
        results={"report": "r", "sum": 3},
        states={"report": DONE, "sum": DONE},
        state={"total": 3, "report": "r"},
        started={"report": {"x": 3}},
        written=[["†state.total", "set", 3, None], ["†state.report", "set", "r", None]],
    ),
    row(
        "a whole plan may be listed backwards",
        [
            call("d", "†state.d", x="†state.c"),
            call("c", "†state.c", x="†state.b"),
            call("b", "†state.b", x="†state.a"),
            call("a", "†state.a"),
        ],
        results={"a": 1, "b": 2, "c": 3, "d": 4},
        states={"a": DONE, "b": DONE, "c": DONE, "d": DONE},
        state={"a": 1, "b": 2, "c": 3, "d": 4},
        started={"b": {"x": 1}, "c": {"x": 2}, "d": {"x": 3}},
    ),
    row(
        "a reader of what the context holds does not wait for a later writer",
        [call("read", "†state.r", x="†state.a"), call("write", "†state.a")],
        context=[state(a="old")],
        results={"read": 0, "write": "new"},
        states={"read": DONE, "write": DONE},
        state={"a": "new", "r": 0},
        started={"read": {"x": "old"}},
    ),
    row(
        "null in the context is held: the reader reads null",
        [call("read", "†state.r", x="†state.a"), call("write", "†state.a")],
        context=[state(a=None)],
        results={"read": 0, "write": "new"},
        states={"read": DONE, "write": DONE},
        state={"a": "new", "r": 0},
        started={"read": {"x": None}},
    ),
    row(
        "a reader after one writer and before another reads the first",
        [call("one", "†state.a"), call("read", "†state.r", x="†state.a"), call("two", "†state.a")],
        results={"one": 1, "read": 0, "two": 2},
        states={"one": DONE, "read": DONE, "two": DONE},
        state={"a": 2, "r": 0},
        started={"read": {"x": 1}},
    ),
    row(
        "read-modify-write reads the earlier value",
        [call("init", "†state.n"), call("add", "†state.n", x="†state.n"), call("again", "†state.n", x="†state.n")],
        results={"init": 1, "add": 2, "again": 3},
        states={"init": DONE, "add": DONE, "again": DONE},
        state={"n": 3},
        started={"add": {"x": 1}, "again": {"x": 2}},
    ),
    row(
        "a reader of a whole waits for every part, and of a part for the whole",
        [
            call("a", "†state.o.a"),
            call("b", "†state.o.b"),
            call("all", "†state.o", x="†state.o"),
            call("part", "†state.r", x="†state.o.c"),
        ],
        results={"a": 1, "b": 2, "all": {"c": 3}, "part": 4},
        states={"a": DONE, "b": DONE, "all": DONE, "part": DONE},
        state={"o": {"c": 3}, "r": 4},
        started={"all": {"x": {"a": 1, "b": 2}}, "part": {"x": 3}},
    ),
    row(
        "the later of two writers wins, whichever finishes first",
        [call("one", "†state.a"), call("two", "†state.a")],
        results={"one": 1, "two": 2},
        states={"one": DONE, "two": DONE},
        state={"a": 2},
        written=[["†state.a", "set", 1, None], ["†state.a", "set", 2, None]],
    ),
]

# -- methods -----------------------------------------------------------------------

METHODS: list[Row] = [
    row(
        "push builds its list in plan order",
        [call("a", "†state.l", "push"), call("b", "†state.l", "push"), call("c", "†state.l", "push")],
        results={"a": 1, "b": [2], "c": None},
        states={"a": DONE, "b": DONE, "c": DONE},
        state={"l": [1, [2], None]},
    ),
    row(
        "push extends the list of the context",
        [call("a", "†state.l", "push")],
        context=[state(l=[0])],
        results={"a": 1},
        states={"a": DONE},
        state={"l": [0, 1]},
        written=[["†state.l", "push", 1, None]],
    ),
    row(
        "concat joins lists, and strings, in plan order",
        [
            call("a", "†state.l", "concat"),
            call("b", "†state.l", "concat"),
            call("c", "†state.s", "concat"),
            call("d", "†state.s", "concat"),
        ],
        results={"a": [1], "b": [2, 3], "c": "x", "d": "y"},
        states={"a": DONE, "b": DONE, "c": DONE, "d": DONE},
        state={"l": [1, 2, 3], "s": "xy"},
    ),
    row(
        "merge goes deep and replaces lists",
        [call("a", "†state.o", "merge")],
        context=[state(o={"p": {"q": 1, "l": [1, 2]}, "r": 0})],
        results={"a": {"p": {"l": [3], "s": {}}}},
        states={"a": DONE},
        state={"o": {"p": {"q": 1, "l": [3], "s": {}}, "r": 0}},
    ),
    row(
        "assign is shallow",
        [call("a", "†state.o", "assign")],
        context=[state(o={"p": {"q": 1}, "r": 0})],
        results={"a": {"p": {"s": 2}}},
        states={"a": DONE},
        state={"o": {"p": {"s": 2}, "r": 0}},
    ),
    row(
        "any method just writes where nothing or null stands",
        [
            call("a", "†state.a", "push"),
            call("b", "†state.b", "concat"),
            call("c", "†state.c", "merge"),
            call("d", "†state.d", "assign"),
            call("e", "†state.e", "merge"),
        ],
        context=[state(a=None, b=None, c=None)],
        results={"a": 1, "b": "s", "c": 7, "d": [1], "e": "t"},
        states=dict.fromkeys("abcde", DONE),
        state={"a": [1], "b": "s", "c": 7, "d": [1], "e": "t"},
    ),
    row(
        "a method that meets the wrong kind fails its call",
        [
            call("a", "†state.n", "push"),
            call("b", "†state.n", "concat"),
            call("c", "†state.l", "merge"),
            call("d", "†state.l", "concat"),
            call("e", "†state.n", "assign"),
        ],
        context=[state(n=1, l=[1])],
        results={"a": 1, "b": [1], "c": {"a": 1}, "d": "s", "e": {"a": 1}},
        status="failed",
        states=dict.fromkeys("abcde", "failed"),
        errors=dict.fromkeys("abcde", "WrongKind"),
        state={"n": 1, "l": [1]},
        written=[],
    ),
    row(
        "a merge waits for the writer that makes an object of what it meets",
        [call("a", "†state.o"), call("b", "†state.o.deep.er"), call("c", "†state.o", "merge")],
        results={"a": 3, "b": 6, "c": {"z": 11}},
        states=dict.fromkeys("abc", DONE),
        state={"o": {"deep": {"er": 6}, "z": 11}},
    ),
    row(
        "what a merge puts in the place of a list hides the elements of the list",
        [call("a", "†state.o", "merge"), call("b", "†state.r", x="†state.o.l.0 || †data.none")],
        context=[state(o={"l": [1, 2]}), {"type": "data", "none": "nothing"}],
        results={"a": {"l": {"k": 1}}, "b": 0},
        states={"a": DONE, "b": DONE},
        state={"o": {"l": {"k": 1}}, "r": 0},
        started={"b": {"x": "nothing"}},
    ),
    row(
        "what a merge put in the place of a list is an object to write into",
        [call("a", "†state.o", "merge"), call("b", "†state.o.l.0", "concat")],
        context=[state(o={"l": [1, 2]})],
        results={"a": {"l": {"k": 1}}, "b": [7]},
        states={"a": DONE, "b": DONE},
        state={"o": {"l": {"k": 1, "0": [7]}}},
    ),
    row(
        "a scalar on the way to a path is replaced by an object",
        [call("a", "†state.s.x.y")],
        context=[state(s=5)],
        results={"a": 1},
        states={"a": DONE},
        state={"s": {"x": {"y": 1}}},
    ),
    row(
        "a list on the way to a path fails the call",
        [call("a", "†state.l.x"), call("b", "†state.l.0")],
        context=[state(l=[1])],
        results={"a": 1, "b": 1},
        status="failed",
        states={"a": "failed", "b": "failed"},
        errors={"a": "WrongKind", "b": "WrongKind"},
        state={"l": [1]},
    ),
    row(
        "a bare kind replaces that kind's view",
        [call("a", "†state"), call("b", "†notes"), call("c", "†state.r", x="†notes.n")],
        context=[state(old=1)],
        results={"a": {"new": 1}, "b": {"n": 2}, "c": 3},
        states={"a": DONE, "b": DONE, "c": DONE},
        state={"new": 1, "r": 3},
        started={"c": {"x": 2}},
    ),
    row(
        "one value goes to several places",
        [call("a", "†state.a && †log.a && †state.deep.er")],
        results={"a": {"v": 1}},
        states={"a": DONE},
        state={"a": {"v": 1}, "deep": {"er": {"v": 1}}},
        written=[
            ["†state.a", "set", {"v": 1}, None],
            ["†log.a", "set", {"v": 1}, None],
            ["†state.deep.er", "set", {"v": 1}, None],
        ],
    ),
    row(
        "a write to several places happens at all of them or at none",
        [call("a", "†state.a && †state.n", "push"), call("b", "†state.b", x="†state.a || †state.n")],
        context=[state(n=1)],
        results={"a": 1, "b": 2},
        status="failed",
        states={"a": "failed", "b": DONE},
        errors={"a": "WrongKind"},
        state={"n": 1, "b": 2},
        started={"b": {"x": 1}},
        written=[["†state.b", "set", 2, None]],
    ),
]

# -- outcomes ----------------------------------------------------------------------

OUTCOMES: list[Row] = [
    row(
        "a plain value takes the first outcome; who needs the other is skipped",
        [
            call("choose", "†state.yes || †state.no"),
            call("y", "†state.y", x="†state.yes"),
            call("n", "†state.n", x="†state.no"),
        ],
        results={"choose": 1, "y": 2, "n": 3},
        states={"choose": DONE, "y": DONE, "n": "skipped"},
        state={"yes": 1, "y": 2},
        started={"y": {"x": 1}},
    ),
    row(
        "a message takes the outcome that it writes",
        [
            call("choose", "†state.yes || †state.no"),
            call("y", "†state.y", x="†state.yes"),
            call("n", "†state.n", x="†state.no"),
        ],
        results={"choose": {"type": "state", "state": {"no": {"why": "late"}}}, "y": 2, "n": 3},
        states={"choose": DONE, "y": "skipped", "n": DONE},
        state={"no": {"why": "late"}, "n": 3},
        started={"n": {"x": {"why": "late"}}},
        written=[["†state.no", "set", {"why": "late"}, None], ["†state.n", "set", 3, None]],
    ),
    row(
        "branches join again under ||",
        [
            call("choose", "†state.yes || †state.no"),
            call("y", "†state.y", x="†state.yes"),
            call("n", "†state.n", x="†state.no"),
            call("join", "†state.end", x="†state.y || †state.n"),
        ],
        results={"choose": {"type": "data", "kind": "state", "data": {"no": 1}}, "y": 2, "n": 3, "join": 4},
        states={"choose": DONE, "y": "skipped", "n": DONE, "join": DONE},
        state={"no": 1, "n": 3, "end": 4},
        started={"join": {"x": 3}},
    ),
    row(
        "who needs both outcomes is skipped, though one of them is there",
        [call("choose", "†state.a || †state.b"), call("both", "†state.c", p="†state.a || †state.b", q="†state.b")],
        results={"choose": 1, "both": 2},
        states={"choose": DONE, "both": "skipped"},
        state={"a": 1},
    ),
    row(
        "a conjunction is absent when one of its parts is",
        [
            call("choose", "†state.a || †state.b"),
            call("one", "†state.o"),
            call("both", "†state.c", p="†state.o && †state.b"),
        ],
        results={"choose": 1, "one": 1, "both": 2},
        states={"choose": DONE, "one": DONE, "both": "skipped"},
        state={"a": 1, "o": 1},
    ),
    row(
        "a message may write several paths of one conjunction; a path it lacks gets the first it has",
        [call("a", "(†state.ok || †state.bad) && †log.entry && †state.last")],
        results={"a": {"type": "state", "state": {"ok": 1, "last": 2}}},
        states={"a": DONE},
        state={"ok": 1, "last": 2},
        written=[["†state.ok", "set", 1, None], ["†log.entry", "set", 1, None], ["†state.last", "set", 2, None]],
    ),
    row(
        "a message that writes two outcomes, none, or more than one fails the call",
        [
            call("two", "†state.a || †state.b"),
            call("none", "†state.a || †state.b"),
            call("more", "†state.a || †state.b"),
            call("kind", "†state.a"),
        ],
        results={
            "two": {"type": "state", "state": {"a": 1, "b": 2}},
            "none": {"type": "state", "state": {"c": 1}},
            "more": {"type": "state", "state": {"a": 1, "c": 2}},
            "kind": {"type": "data", "data": {"a": 1}},
        },
        status="failed",
        states=dict.fromkeys(["two", "none", "more", "kind"], "failed"),
        errors=dict.fromkeys(["two", "none", "more", "kind"], "OutsideOutputPath"),
        state={},
        written=[],
    ),
    row(
        "what only looks like a message is a value",
        [call("inline", "†state.a || †state.b"), call("more", "†state.c"), call("type", "†state.d")],
        results={
            "inline": {"type": "state", "b": 1},
            "more": {"type": "state", "state": {"c": 1}, "extra": True},
            "type": {"type": "text", "text": "hello"},
        },
        states={"inline": DONE, "more": DONE, "type": DONE},
        state={
            "a": {"type": "state", "b": 1},
            "c": {"type": "state", "state": {"c": 1}, "extra": True},
            "d": {"type": "text", "text": "hello"},
        },
    ),
]

# -- failures ----------------------------------------------------------------------

FAILURES: list[Row] = [
    row(
        "a failed call skips only what needs it",
        [
            call("bad", "†state.a"),
            call("needs", "†state.b", x="†state.a"),
            call("needstoo", "†state.c", x="†state.b"),
            call("else", "†state.d"),
        ],
        results={"bad": fails("boom"), "needs": 1, "needstoo": 1, "else": 4},
        status="failed",
        states={"bad": "failed", "needs": "skipped", "needstoo": "skipped", "else": DONE},
        errors={"bad": "boom"},
        state={"d": 4},
    ),
    row(
        "a failure goes to the error path, and whoever reads it runs",
        [
            call("pay", "†state.receipt", _errorPath="†state.trouble"),
            call("thank", "†state.t", x="†state.receipt"),
            call("sorry", "†state.s", x="†state.trouble.code", y="†state.trouble.message"),
        ],
        results={"pay": fails("card_declined", "no money"), "thank": 1, "sorry": 2},
        states={"pay": DONE, "thank": "skipped", "sorry": DONE},
        errors={"pay": "card_declined"},
        state={"trouble": {"code": "card_declined", "message": "no money"}, "s": 2},
        started={"sorry": {"x": "card_declined", "y": "no money"}},
    ),
    row(
        "a failure goes to the outcome that is named for one",
        [
            call("a", "†state.a || †state.aFailed"),
            call("b", "†state.b || †state.b2.error"),
            call("c", "†state.c || †log.c && †state.c2.errors"),
        ],
        results=dict.fromkeys("abc", fails("boom", "m")),
        states=dict.fromkeys("abc", DONE),
        errors=dict.fromkeys("abc", "boom"),
        state={
            "aFailed": {"code": "boom", "message": "m"},
            "b2": {"error": {"code": "boom", "message": "m"}},
            "c2": {"errors": {"code": "boom", "message": "m"}},
        },
    ),
    row(
        "a path without || is no error path by its name",
        [call("a", "†state.error"), call("b", "†state.b || †state.fail")],
        results={"a": fails("boom"), "b": fails("boom")},
        status="failed",
        states={"a": "failed", "b": "failed"},
        errors={"a": "boom", "b": "boom"},
        state={},
    ),
    row(
        "a call that succeeds leaves its error path unwritten; who reads it is skipped",
        [call("pay", "†state.receipt", _errorPath="†state.trouble"), call("sorry", "†state.s", x="†state.trouble")],
        results={"pay": 1, "sorry": 2},
        states={"pay": DONE, "sorry": "skipped"},
        state={"receipt": 1},
    ),
    row(
        "a call with an error path alone writes nothing when it succeeds",
        [call("ping", None, _errorPath="†state.trouble"), call("sorry", "†state.s", x="†state.trouble")],
        results={"ping": {"good": 1}, "sorry": 2},
        states={"ping": DONE, "sorry": "skipped"},
        state={},
        written=[],
    ),
    row(
        "errors gather in a list where the method is push",
        [
            call("a", "†state.ok", "push", _errorPath="†state.errors"),
            call("b", "†state.ok", "push", _errorPath="†state.errors"),
            call("c", "†state.ok", "push", _errorPath="†state.errors"),
        ],
        results={"a": fails("x", "1"), "b": "fine", "c": fails("y", "2")},
        states=dict.fromkeys("abc", DONE),
        errors={"a": "x", "c": "y"},
        state={"ok": ["fine"], "errors": [{"code": "x", "message": "1"}, {"code": "y", "message": "2"}]},
    ),
    row(
        "a value that is missing where nothing was withheld fails its reader",
        [call("a", "†state.a"), call("b", "†state.b", x="†state.a.name"), call("c", "†state.c", x="†state.b")],
        results={"a": {"other": 1}, "b": 2, "c": 3},
        status="failed",
        states={"a": DONE, "b": "failed", "c": "skipped"},
        errors={"b": "UnresolvedReference"},
        state={"a": {"other": 1}},
    ),
    row(
        "a missing value goes to the error path like any failure",
        [
            call("a", "†state.a"),
            call("b", "†state.b", x="†state.a.name", _errorPath="†state.e"),
            call("c", "†state.c", x="†state.e.code"),
        ],
        results={"a": {}, "b": 2, "c": 3},
        states={"a": DONE, "b": DONE, "c": DONE},
        errors={"b": "UnresolvedReference"},
        started={"c": {"x": "UnresolvedReference"}},
    ),
    row(
        "a skipped writer leaves the earlier value to its readers",
        [call("bad", "†state.x"), call("write", "†state.a", x="†state.x"), call("read", "†state.r", x="†state.a")],
        context=[state(a="old")],
        results={"bad": fails("boom"), "write": 1, "read": 2},
        status="failed",
        states={"bad": "failed", "write": "skipped", "read": DONE},
        errors={"bad": "boom"},
        state={"a": "old", "r": 2},
        started={"read": {"x": "old"}},
    ),
]

# -- values -------------------------------------------------------------------------

VALUES: list[Row] = [
    row(
        "0, false and the empty string are values; null gives way",
        [
            call(
                "a",
                "†state.a",
                x="†state.zero || †state.s",
                y="†state.null || †state.false",
                z="†state.null || †state.none",
            ),
            call("b", "†state.b", x="†state.zero && †state.empty", y="†state.zero && †state.null"),
        ],
        context=[state(zero=0, false=False, empty="", null=None, s="s")],
        results={"a": 1, "b": 2},
        states={"a": DONE, "b": DONE},
        started={"a": {"x": 0, "y": False, "z": None}, "b": {"x": "", "y": None}},
    ),
    row(
        "what an activity returns is data, never an expression",
        [call("a", "†state.a"), call("b", "†state.b", x="†state.a", y="††state.a")],
        results={"a": {"deep": ["†state.hidden", "††x"]}, "b": "†state.a"},
        context=[state(hidden="h")],
        states={"a": DONE, "b": DONE},
        state={"hidden": "h", "a": {"deep": ["†state.hidden", "††x"]}, "b": "†state.a"},
        started={"b": {"x": {"deep": ["†state.hidden", "††x"]}, "y": "†state.a"}},
    ),
    row(
        "lists are read by index, objects by digits too",
        [call("a", "†state.a", x="†state.l[1].n", y="†state.l.0", z="†state.o.0", q='†state.o["a b"]')],
        context=[state(l=["zero", {"n": 1}], o={"0": "key", "a b": "space"})],
        results={"a": 1},
        states={"a": DONE},
        started={"a": {"x": 1, "y": "zero", "z": "key", "q": "space"}},
    ),
    row(
        "null is a result like any other",
        [call("a", "†state.a"), call("b", "†state.b", x="†state.a")],
        results={"a": None, "b": None},
        states={"a": DONE, "b": DONE},
        state={"a": None, "b": None},
        started={"b": {"x": None}},
    ),
]

# -- scopes -------------------------------------------------------------------------

SCOPES: list[Row] = [
    row(
        "a scope gives one wrapped message per kind, and the parts that were asked for",
        [call("a", "†state.a", _scopes=["†state.user.name", "limits", "†state.user.age", "†state.nothing"])],
        context=[
            state(user={"name": "Ada", "age": 36, "secret": 1}),
            {"type": "data", "kind": "limits", "day": 500, "description": "not for tools"},
        ],
        results={"a": 1},
        states={"a": DONE},
        started={"a": {}},
        sees={
            "a": [
                {"type": "state", "state": {"user": {"name": "Ada", "age": 36}}},
                {"type": "data", "kind": "limits", "data": {"day": 500}},
            ]
        },
    ),
    row(
        "a scope waits for what writes in it, and never makes a call skip",
        [call("bad", "†state.x"), call("w", "†state.y"), call("a", "†state.a", _scopes=["state"])],
        results={"bad": fails("boom"), "w": 1, "a": 2},
        status="failed",
        states={"bad": "failed", "w": DONE, "a": DONE},
        errors={"bad": "boom"},
        state={"y": 1, "a": 2},
        sees={"a": [{"type": "state", "state": {"y": 1}}]},
    ),
    row(
        "a scope with an index among names reads nothing too early",
        [
            call("first", "†state.first"),
            call("slow", "†state.slow"),
            call("scoped", "†log.s", x="†state.first", _scopes=["†state.0.name"]),
            call("all", "†log.r", x="†state"),
        ],
        context=[state(**{"0": {"name": "zero"}})],
        results={"first": 1, "slow": 2, "scoped": 3, "all": 4},
        states=dict.fromkeys(["first", "slow", "scoped", "all"], DONE),
        state={"0": {"name": "zero"}, "first": 1, "slow": 2},
        started={"all": {"x": {"0": {"name": "zero"}, "first": 1, "slow": 2}}},
    ),
]

# -- instances ----------------------------------------------------------------------

INSTANCES: list[Row] = [
    row(
        "an instance sees the global view and its own over it; a global call sees only global messages",
        [
            call("a", "†state.n", _instance="A", x="†state.who", y="†state.all"),
            call("b", "†state.n", _instance="B", x="†state.who", y="†state.all"),
            call("g", "†state.g", x="†state.who"),
        ],
        context=[state(who="everyone", all=1), own("A", who="Ada"), own("B", age=3)],
        results={"a": 1, "b": 2, "g": 3},
        states=dict.fromkeys("abg", DONE),
        state={"who": "everyone", "all": 1, "g": 3},
        instances={
            "A": {"who": "Ada", "all": 1, "g": 3, "n": 1},
            "B": {"who": "everyone", "all": 1, "g": 3, "age": 3, "n": 2},
        },
        started={"a": {"x": "Ada", "y": 1}, "b": {"x": "everyone", "y": 1}, "g": {"x": "everyone"}},
    ),
    row(
        "a global write is seen by instances that come after it",
        [
            call("early", "†state.e", _instance="A", x="†state.p || †state.q"),
            call("g", "†state.p"),
            call("late", "†state.l", _instance="A", x="†state.p || †state.q"),
        ],
        context=[own("A", q="own")],
        results={"early": 1, "g": "global", "late": 2},
        states=dict.fromkeys(["early", "g", "late"], DONE),
        state={"p": "global"},
        instances={"A": {"p": "global", "q": "own", "e": 1, "l": 2}},
        started={"early": {"x": "own"}, "late": {"x": "global"}},
    ),
    row(
        "an instance's own always wins, however late the global write",
        [
            call("o", "†state.v", _instance="A"),
            call("g", "†state.v"),
            call("r", "†state.r", _instance="A", x="†state.v"),
        ],
        context=[own("A", id=1)],
        results={"o": "own", "g": "global", "r": 0},
        states=dict.fromkeys("ogr", DONE),
        state={"v": "global"},
        instances={"A": {"id": 1, "v": "own", "r": 0}},
        started={"r": {"x": "own"}},
    ),
    row(
        "an instance's own push extends a global list, the list of a later global write too",
        [
            call("p", "†state.l", "push", _instance="A"),
            call("g", "†state.l"),
            call("q", "†state.l", "push", _instance="A"),
            call("r", "†state.r", _instance="A", x="†state.l"),
        ],
        context=[own("A", id=1)],
        results={"p": 1, "g": [9], "q": 2, "r": 0},
        states=dict.fromkeys("pgqr", DONE),
        state={"l": [9]},
        instances={"A": {"l": [9, 1, 2], "id": 1, "r": 0}},
        started={"r": {"x": [9, 1, 2]}},
    ),
    row(
        "what an instance wrote where nothing stood is what its next write meets",
        [
            call("a", "†state.b", "concat", _instance="A"),
            call("b", "†state.b.x", "concat", _instance="A"),
        ],
        context=[own("A", id=1)],
        results={"a": {"x": {"y": 5}}, "b": [9]},
        status="failed",
        states={"a": DONE, "b": "failed"},
        errors={"b": "WrongKind"},
        instances={"A": {"id": 1, "b": {"x": {"y": 5}}}},
    ),
    row(
        "an instance's own object takes the place of a global list",
        [call("g", "†state.l"), call("o", "†state.l.0", "concat", _instance="A")],
        context=[own("A", l={"k": 1})],
        results={"g": [7], "o": [9]},
        states={"g": DONE, "o": DONE},
        state={"l": [7]},
        instances={"A": {"l": {"k": 1, "0": [9]}}},
    ),
    row(
        "pushes of one instance add up, and another sees none of them",
        [
            call("p", "†state.l", "push", _instance="A"),
            call("q", "†state.l", "push", _instance="A"),
            call("r", "†state.r", _instance="B", x="†state.l"),
        ],
        context=[state(l=[0]), own("A", id=1), own("B", id=2)],
        results={"p": 1, "q": 2, "r": 0},
        states=dict.fromkeys("pqr", DONE),
        state={"l": [0]},
        instances={"A": {"l": [0, 1, 2], "id": 1}, "B": {"l": [0], "id": 2, "r": 0}},
        started={"r": {"x": [0]}},
        written=[["†state.l", "push", 1, "A"], ["†state.l", "push", 2, "A"], ["†state.r", "set", 0, "B"]],
    ),
]

# -- what is not run as an Activity -----------------------------------------------------

THOUGHTS: list[Row] = [
    row(
        "a latent call's output is literal, and a thought is not stored",
        [
            call("thinkA", "†state.a", _output={"deep": "†state.x"}),
            call("thinkB", None, _output="hm"),
            call("c", "†state.c", x="†state.a"),
        ],
        results={"c": 1},
        states={"thinkA": DONE, "thinkB": DONE, "c": DONE},
        state={"a": {"deep": "†state.x"}, "c": 1},
        started={"c": {"x": {"deep": "†state.x"}}},
    ),
    row(
        "a latent call's output that looks like a message is written as it stands",
        [call("thinkA", "†state.a", _output={"type": "state", "state": {"b": 1}})],
        states={"thinkA": DONE},
        state={"a": {"type": "state", "state": {"b": 1}}},
    ),
    row(
        "an explicit call without an output path is started and let go",
        [call("notify", None, x="†state.a"), call("a", "†state.b")],
        context=[state(a=1)],
        results={"notify": fails("nobody reads this"), "a": 2},
        states={"notify": "detached", "a": DONE},
        state={"a": 1, "b": 2},
        started={"notify": {"x": 1}},
    ),
]

ROWS: list[Row] = [*ORDER, *METHODS, *OUTCOMES, *FAILURES, *VALUES, *SCOPES, *INSTANCES, *THOUGHTS]
