"""Cases of order, of methods and of outcomes."""

from __future__ import annotations

from tests.case_rows import Row, call, row, state

ORDER: list[Row] = [
    row(
        "a reader that is listed before its only writer waits for it",
        [call("report", "†state.report", x="†state.total"), call("sum", "†state.total")],
        results={"report": "r", "sum": 3},
        state={"total": 3, "report": "r"},
        started={"report": {"x": 3}},
        written=[["†state.total", "set", 3, None], ["†state.report", "set", "r", None]],
    ),
    row(
        "a reader of what the context holds does not wait for a later writer",
        [call("read", "†state.r", x="†state.a"), call("write", "†state.a")],
        context=[state(a="old")],
        results={"read": 0, "write": "new"},
        state={"a": "new", "r": 0},
        started={"read": {"x": "old"}},
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
        state={"o": {"c": 3}, "r": 4},
        started={"all": {"x": {"a": 1, "b": 2}}, "part": {"x": 3}},
    ),
    row(
        "the later of two writers wins, whichever finishes first",
        [call("one", "†state.a"), call("two", "†state.a")],
        results={"one": 1, "two": 2},
        state={"a": 2},
        written=[["†state.a", "set", 1, None], ["†state.a", "set", 2, None]],
    ),
]


METHODS: list[Row] = [
    row(
        "push builds its list in plan order",
        [call("a", "†state.l", "push"), call("b", "†state.l", "push"), call("c", "†state.l", "push")],
        results={"a": 1, "b": [2], "c": None},
        state={"l": [1, [2], None]},
    ),
    row(
        "merge goes deep and replaces lists",
        [call("a", "†state.o", "merge")],
        context=[state(o={"p": {"q": 1, "l": [1, 2]}, "r": 0})],
        results={"a": {"p": {"l": [3], "s": {}}}},
        state={"o": {"p": {"q": 1, "l": [3], "s": {}}, "r": 0}},
    ),
    row(
        "assign is shallow",
        [call("a", "†state.o", "assign")],
        context=[state(o={"p": {"q": 1}, "r": 0})],
        results={"a": {"p": {"s": 2}}},
        state={"o": {"p": {"s": 2}, "r": 0}},
    ),
    row(
        "any method just writes where there is nothing or null",
        [
            call("a", "†state.a", "push"),
            call("b", "†state.b", "concat"),
            call("c", "†state.c", "merge"),
            call("d", "†state.d", "assign"),
            call("e", "†state.e", "merge"),
        ],
        context=[state(a=None, b=None, c=None)],
        results={"a": 1, "b": "s", "c": 7, "d": [1], "e": "t"},
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
        states=dict.fromkeys("abcde", "failed"),
        errors=dict.fromkeys("abcde", "WrongKind"),
        state={"n": 1, "l": [1]},
        written=[],
    ),
    row(
        "a merge waits for the writer that makes an object of what it meets",
        [call("a", "†state.o"), call("b", "†state.o.deep.er"), call("c", "†state.o", "merge")],
        results={"a": 3, "b": 6, "c": {"z": 11}},
        state={"o": {"deep": {"er": 6}, "z": 11}},
    ),
    row(
        "what a merge puts in the place of a list hides the elements of the list",
        [call("a", "†state.o", "merge"), call("b", "†state.r", x="†state.o.l.0 || †data.none")],
        context=[state(o={"l": [1, 2]}), {"type": "data", "none": "nothing"}],
        results={"a": {"l": {"k": 1}}, "b": 0},
        state={"o": {"l": {"k": 1}}, "r": 0},
        started={"b": {"x": "nothing"}},
    ),
    row(
        "a scalar on the way to a path is replaced by an object",
        [call("a", "†state.s.x.y")],
        context=[state(s=5)],
        results={"a": 1},
        state={"s": {"x": {"y": 1}}},
    ),
    row(
        "a bare kind replaces that kind's view",
        [call("a", "†state"), call("b", "†notes"), call("c", "†state.r", x="†notes.n")],
        context=[state(old=1)],
        results={"a": {"new": 1}, "b": {"n": 2}, "c": 3},
        state={"new": 1, "r": 3},
        started={"c": {"x": 2}},
    ),
    row(
        "a write to several places happens at all of them or at none",
        [call("a", "†state.a && †state.n", "push"), call("b", "†state.b", x="†state.a || †state.n")],
        context=[state(n=1)],
        results={"a": 1, "b": 2},
        states={"a": "failed"},
        errors={"a": "WrongKind"},
        state={"n": 1, "b": 2},
        started={"b": {"x": 1}},
        written=[["†state.b", "set", 2, None]],
    ),
]


OUTCOMES: list[Row] = [
    row(
        "a plain value takes the first outcome; readers of the other are skipped",
        [
            call("choose", "†state.yes || †state.no"),
            call("y", "†state.y", x="†state.yes"),
            call("n", "†state.n", x="†state.no"),
        ],
        results={"choose": 1, "y": 2, "n": 3},
        states={"n": "skipped"},
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
        states={"y": "skipped"},
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
        states={"y": "skipped"},
        state={"no": 1, "n": 3, "end": 4},
        started={"join": {"x": 3}},
    ),
    row(
        "a call that needs both outcomes is skipped, though one of them is there",
        [call("choose", "†state.a || †state.b"), call("both", "†state.c", p="†state.a || †state.b", q="†state.b")],
        results={"choose": 1, "both": 2},
        states={"both": "skipped"},
        state={"a": 1},
    ),
    row(
        "a message may write several paths of one conjunction; a path it lacks gets the first it has",
        [call("a", "(†state.ok || †state.bad) && †log.entry && †state.last")],
        results={"a": {"type": "state", "state": {"ok": 1, "last": 2}}},
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
        state={
            "a": {"type": "state", "b": 1},
            "c": {"type": "state", "state": {"c": 1}, "extra": True},
            "d": {"type": "text", "text": "hello"},
        },
    ),
]
