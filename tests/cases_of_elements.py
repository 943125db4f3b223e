"""Cases of templates, of conditions, and of Calls that are made once per element of a list."""

from __future__ import annotations

from tests.case_rows import Row, call, fails, own, row, state

USER = {"type": "data", "kind": "user", "data": {"name": "Ada", "tags": ["a", 1]}}


TEMPLATES: list[Row] = [
    row(
        "a template puts values into a text: strings, nothing for null, JSON for the rest",
        [
            call("a", "†state.a", x="Dear †{user.name}, †{state.n} left", y=["†{user.tags}|†{state.null}|†{state.no}"]),
            call("b", "†state.b", x="††{user.name} and 5†", y="†{(state.none || user.name) && state.n}"),
        ],
        context=[USER, state(n=2, null=None, no=False)],
        results={"a": 1, "b": 2},
        started={"a": {"x": "Dear Ada, 2 left", "y": ['["a",1]||false']}, "b": {"x": "†{user.name} and 5†", "y": "2"}},
    ),
    row(
        "what was put into a text is never read again",
        [call("a", "†state.a"), call("b", "†state.b", x="<†{state.a}>"), call("c", "†state.c", x="†{state.b}")],
        context=[state(hidden="s")],
        results={"a": "†state.hidden †{state.hidden} ††", "b": "†{state.hidden}", "c": 0},
        started={"b": {"x": "<†state.hidden †{state.hidden} ††>"}, "c": {"x": "†{state.hidden}"}},
    ),
    row(
        "a template waits for what it reads, and is absent when one of its expressions is",
        [
            call("ok", "†state.ok"),
            call("bad", "†state.bad"),
            call("both", "†state.x", x="†{state.ok} †{state.bad}"),
            call("later", "†state.y", x="†{state.z}"),
            call("z", "†state.z"),
        ],
        results={"ok": 1, "bad": fails(), "both": 0, "later": 0, "z": [1]},
        states={"bad": "failed", "both": "skipped"},
        errors={"bad": "card_declined"},
        started={"later": {"x": "[1]"}},
    ),
]


CHOICES: list[Row] = [
    row(
        "a value compares, chooses, counts and takes a list apart; what is not chosen need not be there",
        [
            call("find", "†state.orders"),
            call("refund", "†state.refund", _when="†state.orders.length > 9"),
            call(
                "mail",
                "†state.mail",
                ids="†state.orders[*].id",
                cities="†state.orders[*].to.city",
                count="†state.orders.length",
                size='†state.orders.length > 1 ? "many" : †state.refund',
                paid="†state.refund != null",
                note='†state.note || "none"',
                text='†{state.refund ? "paid" : "open"}: †{state.orders.length}',
            ),
            call("each", "†state.each", _each="†state.prices", price="†item", order="†state.orders[†index].id"),
        ],
        context=[state(prices=[7, 8])],
        results={"find": [{"id": 1, "to": {"city": "Oslo"}}, {"id": 2}], "mail": 1, "each": 0},
        states={"refund": "skipped"},
        started={
            "mail": {
                "ids": [1, 2],
                "cities": ["Oslo", None],
                "count": 2,
                "size": "many",
                "paid": False,
                "note": "none",
                "text": "open: 2",
            },
            "each[0]": {"price": 7, "order": 1},
            "each[1]": {"price": 8, "order": 2},
        },
    ),
    row(
        "a condition that reads the element is decided for each; groups are lists",
        [
            call("some", "†state.some", _each="†input.l", _when="†item.ok && †input.go", x="†item.n"),
            call("none", "†state.none", _each="†input.l", _when="†index > 5", x="†item.n"),
            call("groups", "†state.groups", _each={"of": "†input.l[*].n", "size": 2}, x="†item", at="†index"),
        ],
        context=[{"type": "input", "input": {"l": [{"n": 1}, {"n": 2, "ok": True}, {"n": 3, "ok": True}], "go": 1}}],
        results={"some[1]": "b", "some[2]": "c", "none": 0, "groups": 0},
        state={"some": [None, "b", "c"], "none": [None] * 3, "groups": [0, 0]},
        started={
            "some[1]": {"x": 2},
            "some[2]": {"x": 3},
            "groups[0]": {"x": [1, 2], "at": 0},
            "groups[1]": {"x": [3], "at": 1},
        },
    ),
]


CONDITIONS: list[Row] = [
    row(
        "a condition that does not hold skips its call and what needs it",
        [
            call("low", "†state.low", _when="†state.score >= 0.8"),
            call("high", "†state.high", _when="†state.score >= 0.5 && !†state.blocked"),
            call("none", "†state.none", _when="†state.nobody == null || †state.score > 5"),
            call("needs", "†state.needs", x="†state.low"),
            call("not", "†state.not", _when="!†state.low"),
        ],
        context=[state(score=0.6)],
        results={"low": 1, "high": 2, "none": 3, "needs": 4, "not": 5},
        states={"low": "skipped", "needs": "skipped"},
        state={"score": 0.6, "high": 2, "none": 3, "not": 5},
    ),
    row(
        "a condition puts a call after another of which it needs no data, wherever that is listed",
        [
            call("mail", "†state.mail", _when="†state.receipt"),
            call("sorry", "†state.sorry", _when="†state.error"),
            call("pay", "†state.receipt || †state.error"),
        ],
        results={"mail": "sent", "sorry": "sent", "pay": 0},
        states={"sorry": "skipped"},
        state={"receipt": 0, "mail": "sent"},
        started={"mail": {}},
    ),
    row(
        "a condition reads what stands before it in plan order and never what a later call writes",
        [
            call("first", "†state.n"),
            call("check", "†state.ok", _when="†state.n < 5"),
            call("second", "†state.n"),
            call("again", "†state.no", _when="†state.n < 5"),
        ],
        results={"first": 1, "check": "yes", "second": 9, "again": "yes"},
        states={"again": "skipped"},
        state={"n": 9, "ok": "yes"},
    ),
    row(
        "false, null and what is absent do not hold; 0 and the empty string do",
        [call(name, f"†state.{name}1", _when=f"†state.{name}") for name in ("zero", "empty", "null", "no", "absent")],
        context=[state(zero=0, empty="", null=None, no=False)],
        results=dict.fromkeys(("zero", "empty", "null", "no", "absent"), 1),
        states={"null": "skipped", "no": "skipped", "absent": "skipped"},
    ),
]


ORDERS = [{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 3}]
CODES = {"card_declined": {"code": "card_declined", "message": "no"}}

ELEMENTS: list[Row] = [
    row(
        "a call is made once per element, and its results are one list in the order of the elements",
        [
            call("list", "†state.orders"),
            call("refund", "†state.refunds", _each="†state.orders", id="†item.id", note="Order †{item.n} (†{index})"),
            call("sum", "†state.sum", x="†state.refunds", y="†state.refunds[1]"),
        ],
        results={"list": ORDERS, "refund[0]": "A", "refund[1]": {"b": 1}, "refund[2]": None, "sum": 3},
        state={"orders": ORDERS, "refunds": ["A", {"b": 1}, None], "sum": 3},
        started={
            "refund[0]": {"id": "a", "note": "Order 1 (0)"},
            "refund[2]": {"id": "c", "note": "Order 3 (2)"},
            "sum": {"x": ["A", {"b": 1}, None], "y": {"b": 1}},
        },
    ),
    row(
        "an element that fails fails the call, whose details have all errors and all results",
        [
            call("refund", "†state.refunds", _each=[1, 2, 3], x="†item", _errorPath="†state.trouble"),
            call("sorry", "†state.sorry", x="†state.trouble.details.errors[0].index", y="†state.trouble.code"),
        ],
        results={"refund": "ok", "refund[1]": fails(), "sorry": 0},
        errors={"refund": "eachFailed"},
        started={"sorry": {"x": 1, "y": "eachFailed"}},
    ),
    row(
        "an empty list gives an empty list, and what is no list fails",
        [
            call("empty", "†state.empty", _each="†state.none", x="†item"),
            call("number", "†state.number", _each="†state.n"),
            call("text", "†state.text", _each="†state.s", _errorPath="†state.e"),
            call("null", "†state.null", _each="†state.nil"),
        ],
        context=[state(none=[], n=5, s="abc", nil=None)],
        results=dict.fromkeys(["empty", "number", "text", "null"], 1),
        states={"number": "failed", "null": "failed"},
        errors=dict.fromkeys(["number", "text", "null"], "WrongKind"),
    ),
    row(
        "a list that another call pushes to is read as of the place in plan order",
        [
            call("a", "†state.l", "push"),
            call("each", "†state.r", _each="†state.l", x="†item"),
            call("b", "†state.l", "push"),
        ],
        context=[state(l=[0])],
        results={"a": 1, "each": "x", "b": 2},
        state={"l": [0, 1, 2], "r": ["x", "x"]},
        written=[["†state.l", "push", 1, None], ["†state.r", "set", ["x", "x"], None], ["†state.l", "push", 2, None]],
    ),
    row(
        "the list is one value, written by the method of its call",
        [call("a", "†state.a", "push", _each=[1, 2]), call("b", "†state.b", "concat", _each=[1, 2], x="†index")],
        context=[state(a=[0], b=[0])],
        results={"a": "x", "b[0]": "y", "b[1]": "z"},
        state={"a": [0, ["x", "x"]], "b": [0, "y", "z"]},
    ),
    row(
        "elements of a fire-and-forget call are started and let go",
        [call("notify", None, _each=[1, 2], x="†item"), call("b", "†state.b")],
        results={"notify": fails(), "b": 1},
        states={"notify": "detached"},
        state={"b": 1},
        started={"notify[0]": {"x": 1}, "notify[1]": {"x": 2}},
    ),
    row(
        "each instance has a list of its own",
        [
            call("a", "†state.r", _instance="A", _each="†state.l", x="†item"),
            call("b", "†state.r", _instance="B", _each="†state.l", x="†item"),
        ],
        context=[own("A", l=[1, 2]), own("B", l=[])],
        results={"a": "x", "b": "y"},
        instances={"A": {"l": [1, 2], "r": ["x", "x"]}, "B": {"l": [], "r": []}},
    ),
    row(
        "the outcome of a call may be a subset of another one",
        [
            call("both", "†state.a || †state.b || †state.a && †state.b"),
            call("one", "†state.c || †state.d || †state.c && †state.d"),
            call("more", "†state.e || †state.f || †state.e && †state.f"),
        ],
        results={
            "both": {"type": "state", "state": {"a": 1, "b": 2}},
            "one": {"type": "state", "state": {"d": 3}},
            "more": {"type": "state", "state": {"e": 1, "g": 3}},
        },
        states={"more": "failed"},
        errors={"more": "OutsideOutputPath"},
        written=[["†state.a", "set", 1, None], ["†state.b", "set", 2, None], ["†state.d", "set", 3, None]],
    ),
]
