"""Cases of failures, values, scopes, instances, and of Calls that run no Activity."""

from __future__ import annotations

from tests.case_rows import DONE, Row, call, fails, own, row, state

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
        "a failure goes to the error path, and its readers run",
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
        "a scope gives one wrapped message per kind, and only the parts in scope",
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
        "a latent call's output that looks like a message is written unchanged",
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
