"""Cases of failures, values, scopes, instances, and of Calls that run no Activity."""

from __future__ import annotations

from tests.case_rows import Row, call, fails, own, row, state

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
        states={"bad": "failed", "needs": "skipped", "needstoo": "skipped"},
        errors={"bad": "boom"},
        state={"d": 4},
    ),
    row(
        "a failure goes to the error path, and its readers run",
        [
            call("pay", "†state.receipt", _errorPath="†state.trouble"),
            call("thank", "†state.t", x="†state.receipt"),
            call("sorry", "†state.s", x="†state.trouble.code", y="†state.trouble.message"),
        ],
        results={"pay": fails("card_declined", "no money"), "thank": 1, "sorry": 2},
        states={"thank": "skipped"},
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
        errors=dict.fromkeys("abc", "boom"),
        state={
            "aFailed": {"code": "boom", "message": "m"},
            "b2": {"error": {"code": "boom", "message": "m"}},
            "c2": {"errors": {"code": "boom", "message": "m"}},
        },
    ),
    row(
        "a call that succeeds leaves its error path unwritten; who reads it is skipped",
        [call("pay", "†state.receipt", _errorPath="†state.trouble"), call("sorry", "†state.s", x="†state.trouble")],
        results={"pay": 1, "sorry": 2},
        states={"sorry": "skipped"},
        state={"receipt": 1},
    ),
    row(
        "errors gather in a list where the method is push",
        [
            call("a", "†state.ok", "push", _errorPath="†state.errors"),
            call("b", "†state.ok", "push", _errorPath="†state.errors"),
            call("c", "†state.ok", "push", _errorPath="†state.errors"),
        ],
        results={"a": fails("x", "1"), "b": "fine", "c": fails("y", "2")},
        errors={"a": "x", "c": "y"},
        state={"ok": ["fine"], "errors": [{"code": "x", "message": "1"}, {"code": "y", "message": "2"}]},
    ),
    row(
        "a value that is missing where nothing was withheld fails its reader",
        [call("a", "†state.a"), call("b", "†state.b", x="†state.a.name"), call("c", "†state.c", x="†state.b")],
        results={"a": {"other": 1}, "b": 2, "c": 3},
        states={"b": "failed", "c": "skipped"},
        errors={"b": "UnresolvedReference"},
        state={"a": {"other": 1}},
    ),
]


VALUES: list[Row] = [
    row(
        "what an activity returns is data, never an expression",
        [call("a", "†state.a"), call("b", "†state.b", x="†state.a", y="††state.a")],
        results={"a": {"deep": ["†state.hidden", "††x"]}, "b": "†state.a"},
        context=[state(hidden="h")],
        state={"hidden": "h", "a": {"deep": ["†state.hidden", "††x"]}, "b": "†state.a"},
        started={"b": {"x": {"deep": ["†state.hidden", "††x"]}, "y": "†state.a"}},
    )
]


SCOPES: list[Row] = [
    row(
        "a scope gives one wrapped message per kind, and only the parts in scope",
        [call("a", "†state.a", _scopes=["†state.user.name", "limits", "†state.user.age", "†state.nothing"])],
        context=[
            state(user={"name": "Ada", "age": 36, "secret": 1}),
            {"type": "data", "kind": "limits", "day": 500, "description": "not for tools"},
        ],
        results={"a": 1},
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
        states={"bad": "failed"},
        errors={"bad": "boom"},
        state={"y": 1, "a": 2},
        sees={"a": [{"type": "state", "state": {"y": 1}}]},
    ),
]


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
        state={"who": "everyone", "all": 1, "g": 3},
        instances={
            "A": {"who": "Ada", "all": 1, "g": 3, "n": 1},
            "B": {"who": "everyone", "all": 1, "g": 3, "age": 3, "n": 2},
        },
        started={"a": {"x": "Ada", "y": 1}, "b": {"x": "everyone", "y": 1}, "g": {"x": "everyone"}},
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
        state={"l": [9]},
        instances={"A": {"l": [9, 1, 2], "id": 1, "r": 0}},
        started={"r": {"x": [9, 1, 2]}},
    ),
]


THOUGHTS: list[Row] = [
    row(
        "a latent call's output is literal, and a thought is not stored",
        [
            call("thinkA", "†state.a", _output={"deep": "†state.x"}),
            call("thinkB", None, _output="hm"),
            call("c", "†state.c", x="†state.a"),
        ],
        results={"c": 1},
        state={"a": {"deep": "†state.x"}, "c": 1},
        started={"c": {"x": {"deep": "†state.x"}}},
    ),
    row(
        "an explicit call without an output path is started and let go",
        [call("notify", None, x="†state.a"), call("a", "†state.b")],
        context=[state(a=1)],
        results={"notify": fails("nobody reads this"), "a": 2},
        states={"notify": "detached"},
        state={"a": 1, "b": 2},
        started={"notify": {"x": 1}},
    ),
]
