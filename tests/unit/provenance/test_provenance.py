"""Where a value came from: what it is made of, who wrote that, what they had read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from acts.language.tools import Tool, read_tool
from acts.language.values import ABSENT, replace_parts
from acts.provenance import trace as message_authors
from acts.provenance.trace import Authors, Limits, ProvenanceIndex, RunRecord, Trace
from tests.unit.plan.test_context_log import path, written

Json = Any
DATE = "2026-01-01T00:00:00.000Z"


def tool(name: str, **meta: Json) -> Tool:
    properties = {"_tool": {"const": name}, "_outputPath": {}, "_scopes": {}, "_output": {}, **meta}
    result, problems = read_tool(name, {"type": "object", "properties": properties})
    assert result is not None
    assert problems == []
    return result


TOOLS = {
    "act": tool("act", _activity={"const": "do.it"}),
    "think": tool("think"),
    "ask": tool("ask", _delegate={"const": "helper"}),
    "see": tool("see", _activity={"const": "see"}, _scopes={"const": ["†state.a", "input"]}),
}


def call(name: str, where: str, **more: Json) -> dict[str, Json]:
    return {"_tool": name, "_outputPath": where, **more}


def output(planned: dict[str, Json], value: Json, method: str = "set", at: str = "", **more: Json) -> dict[str, Json]:
    """The message that a Call appends; ``at`` where it has several paths."""
    return written(at or planned["_outputPath"], value, method, **{"_call": planned, "_date": DATE, **more})


def plan(*calls: Json) -> dict[str, Json]:
    return {"type": "plan", "plan": list(calls)}


def run_record(messages: list[Json], requested: int | None, **more: Any) -> RunRecord:
    """The record of a run that was started with the first ``requested`` messages."""
    return RunRecord(messages, TOOLS, None if requested is None else messages[:requested], **more)


def why(messages: list[Json], requested: int, where: str, **more: Any) -> Trace:
    return ProvenanceIndex(run_record(messages, requested)).why(path(where), **more)


def sources(trace: Trace) -> Iterator[Trace]:
    for source in trace.get("sources", ()):
        yield source
        for read in source.get("reads", ()):
            for value in read["values"]:
                yield from sources(value)


def reads(trace: Trace) -> dict[str, list[tuple[str, Json]]]:
    """By place in the one Call that wrote the value: the paths that it read, and what was there."""
    (source,) = trace["sources"]
    return {
        read["at"]: [(v["path"], v.get("value", "unused" if "unused" in v else "absent")) for v in read["values"]]
        for read in source["reads"]
    }


A, B = written("†state.a", {"x": 1, "y": 1}), {"type": "state", "b": 2}
LIST = [written("†state.l", [1, 2]), written("†state.l", 3, "push"), written("†state.l", [4, 5], "concat")]
NESTED = written("†state.a", {"b": {"x": 1}, "c": 1})

# messages, path, the messages that the value is made of, each with its places
MADE_OF: list[tuple[list[Json], str, dict[int, list[str]]]] = [
    ([A], "†state.a.x", {0: ["†state.a.x"]}),
    # what was replaced is no part
    ([A, written("†state", {"b": 2})], "†state", {1: ["†state"]}),
    ([A, written("†state.a", {})], "†state.a", {1: ["†state.a"]}),
    ([{"type": "state", "a": 5}, written("†state.a.b", 1)], "†state", {1: ["†state"]}),
    # what is beside it is its writer's
    ([A, B], "†state", {0: ["†state.a"], 1: ["†state.b"]}),
    ([A, written("†state.a.x", 2)], "†state.a", {0: ["†state.a.y"], 1: ["†state.a.x"]}),
    ([NESTED, written("†state.a", {"b": {"y": 2}}, "merge")], "†state.a",
     {0: ["†state.a.b.x", "†state.a.c"], 1: ["†state.a.b.y"]}),
    ([NESTED, written("†state.a", {"b": {"y": 2}}, "assign")], "†state.a", {0: ["†state.a.c"], 1: ["†state.a.b"]}),
    # who made an object or a list in which others wrote has no part, unless it is empty still
    ([written("†state.a", {}), written("†state.a.x", 2)], "†state.a", {1: ["†state.a"]}),
    ([written("†state.a", []), written("†state.a", 7, "push")], "†state.a", {1: ["†state.a"]}),
    ([written("†state.a", {}), written("†state.a", {}, "merge")], "†state.a", {0: ["†state.a"]}),
    # elements are told apart
    (LIST, "†state.l", {0: ["†state.l.0"], 1: ["†state.l.2"], 2: ["†state.l.3"]}),
    (LIST, "†state.l[4]", {2: ["†state.l.4"]}),
    ([written("†state.s", "a", "concat"), written("†state.s", "", "concat"), written("†state.s", "b", "concat")],
     "†state.s", {0: ["†state.s"], 2: ["†state.s"]}),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "where", "parts_by_writer"), MADE_OF, ids=lambda x: str(x)[:80])
def test_a_value_is_made_of_what_still_stands(
    messages: list[Json], where: str, parts_by_writer: dict[int, list[str]]
) -> None:
    trace = why(messages, 0, where)
    assert [(s["message"], s["wrote"]) for s in trace["sources"]] == sorted(parts_by_writer.items())


ACT, THINK, ASK = call("act", "†state.a"), call("think", "†state.a"), call("ask", "†state.a")
DECIDED = {"what": "call", "call": "1:act", "decision": "approve", "by": "ada"}
RECORD = {**DECIDED, "version": 1, "date": DATE}
FAILED = {"code": "card_declined", "message": "no"}
LATE = {"code": "timeout", "message": "nothing came"}
APPENDED = {"type": "data", "kind": "decision", "data": DECIDED}


def state_of(id_: str, name: str = "act", error: Json = None, **more: Json) -> dict[str, Json]:
    """A Call as ``status`` lists it."""
    item = {"id": id_, "tool": name, "state": "completed", "outputPath": "†state.a", **more}
    return item if error is None else {**item, "error": error}


MODEL, OF_REQUEST = message_authors.MODEL, message_authors.REQUEST
ASKED, GIVEN = {**THINK, "_scopes": []}, {**THINK, "_output": 1}
# what is asked, the messages, how many were the Request's, what else is told; word, outside, and more of the origin
ORIGINS: list[tuple[str, list[Json], int | None, dict[str, Json], tuple[str, bool], dict[str, Json]]] = [
    ("a message of the Request", [{"type": "state", "a": 1}], 1, {}, (OF_REQUEST, False), {"call": None}),
    ("a message that was provided", [{"type": "state", "a": 1}], 0, {}, (message_authors.PROVIDED, True), {}),
    ("nobody knows the Request", [{"type": "state", "a": 1}], None, {}, (message_authors.UNKNOWN, True), {}),
    ("a decision", [APPENDED], 0, {"decisions": [RECORD]}, (message_authors.DECISION, True), {}),
    ("what only looks like a decision", [APPENDED], 0, {}, (message_authors.PROVIDED, True), {}),
    ("what looks like a decision about another instance", [{**APPENDED, "_instance": "b"}], 0,
     {"decisions": [{**RECORD, "instance": "a"}]}, (message_authors.PROVIDED, True), {}),
    ("a delegate", [plan(ASK), output(ASK, 1)], 1, {}, (message_authors.DELEGATE, True), {"id": "1:ask"}),
    ("a model, which saw all", [plan(THINK), output(THINK, 1)], 1, {}, (MODEL, True), {"allShown": True}),
    ("a model, which saw its scopes", [plan(ASKED), output(ASKED, 1)], 1, {}, (MODEL, True), {"allShown": None}),
    ("an answer that stood in the Request", [plan(GIVEN), output(GIVEN, 1)], 1, {}, (OF_REQUEST, False),
     {"given": True, "allShown": None, "id": "1:think"}),
    ("an answer that stood in the Request and was not taken", [plan(GIVEN), output(GIVEN, 2)], 1, {}, (MODEL, True),
     {"given": None}),
    ("an answer of the planner", [plan(GIVEN), output(GIVEN, 1)], 0, {}, (MODEL, True), {"plannedBy": "model"}),
    ("an answer that somebody put into the plan", [plan(THINK), output(GIVEN, 1)], 0, {},
     (message_authors.DECISION, True), {"given": True, "plannedBy": "person"}),
    ("a failure that the Activity named", [plan(ACT), output(ACT, FAILED)], 1,
     {"calls": [state_of("1:act", error=FAILED)]}, (message_authors.ACTIVITY, True), {"error": "card_declined"}),
    ("a failure that has a name of ours may quote anybody", [plan(ACT), output(ACT, LATE)], 1,
     {"calls": [state_of("1:act", error=LATE)]}, (message_authors.ENGINE, True), {"error": "timeout"}),
    ("a result that looks like a failure", [plan(ACT), output(ACT, FAILED)], 1, {"calls": [state_of("1:act")]},
     (message_authors.ACTIVITY, True), {"error": None}),
    ("a Tool that is not known", [output(call("gone", "†state.a"), 1)], 0, {}, (message_authors.UNKNOWN, True),
     {"id": None}),
    ("what an earlier run wrote and the Request holds", [plan(ACT), output(ACT, 1)], 2, {}, (OF_REQUEST, True),
     {"id": "1:act", "call": ACT, "plannedBy": None}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("messages", "requested", "more", "expected", "facts"),
    [row[1:] for row in ORIGINS],
    ids=[row[0] for row in ORIGINS],
)
def test_a_message_knows_where_it_came_from(
    messages: list[Json], requested: int | None, more: Json, expected: tuple[str, bool], facts: dict[str, Json]
) -> None:
    author = Authors(run_record(messages, requested, **more)).find(len(messages) - 1)
    assert (author.facts["origin"], author.facts["outside"]) == expected
    assert {key: author.facts.get(key) for key in facts} == facts


@pytest.mark.parametrize(
    ("text", "followed"),
    [
        ("†state.a", {"a": 1}),
        ("†state.none || †state.a", {"none": "absent", "a": 1}),
        ("†state.a || †state.b", {"a": 1, "b": "unused"}),
        ("†state.null || †state.b", {"null": None, "b": 2}),
        ("†state.a && †state.b", {"a": 1, "b": 2}),
        ("†state.none && †state.a || †state.b || †state.c", {"none": "absent", "a": 1, "b": 2, "c": "unused"}),
        ("†state.b || †state.b", {"b": 2}),
        ("†state.a == 2 || †state.b", {"a": 1, "b": 2}),
    ],
)
def test_what_decided_about_an_expression_is_followed(text: str, followed: dict[str, Json]) -> None:
    planned = call("act", "†state.out", x=text)
    state = {"a": 1, "b": 2, "c": 3, "null": None}
    trace = why([{"type": "state", "state": state}, plan(planned), output(planned, 0)], 2, "†state.out")
    values = {place.removeprefix("†state."): value for place, value in reads(trace)["x"]}
    assert values == followed


def test_a_global_call_sees_nothing_of_an_instance_and_an_instance_its_own() -> None:
    shared, own = call("act", "†state.out", x="†state.a"), call("act", "†state.own", x="†state.a")
    messages = [
        {"type": "state", "a": "all"}, {"type": "state", "a": "mine", "_instance": "A"},
        {"type": "state", "a": "other", "_instance": "B"}, plan(shared, own), output(shared, 1),
        output(own, 2, _instance="A"), {"type": "state", "a": "late"},
    ]  # fmt: skip
    run = ProvenanceIndex(run_record(messages, 4))
    assert run.instances == ["A", "B"]
    assert reads(run.why(path("†state.out"), "A")) == {"x": [("†state.a", "all")]}
    assert reads(run.why(path("†state.own"), "A")) == {"x": [("†state.a", "mine")]}
    assert "absent" in run.why(path("†state.own"))
    assert [run.why(path("†state.a"), i)["value"] for i in (None, "A", "B")] == ["late", "mine", "other"]


@pytest.mark.parametrize("shape", [("†state.a0", "†state"), ("†state.l", "†state.l || †state.a0", "push")])
def test_ten_thousand_messages_are_answered_within_the_limits(shape: tuple[str, ...]) -> None:
    where, read, *method = shape
    planned = call("act", where, x=read, **({"_outputMethod": method[0]} if method else {}))
    messages = [{"type": "state", "a0": 0}, plan(*[planned] * 10_000)]
    messages += [output(planned, n, *method) for n in range(10_000)]
    trace = why(messages, 2, where)
    limits = Limits()
    assert trace["outside"]
    assert 0 < len(list(sources(trace))) <= limits.all
    assert len(trace["sources"]) <= limits.each
    assert len(trace["sources"]) + trace.get("more", 0) in (1, 10_000)


def test_the_answer_as_json_says_all_that_is_known_and_nothing_else() -> None:
    planned = call("act", "†state.out", card="†input.card || †input.other", amount=5)
    messages = [{"type": "input", "card": "c1"}, plan(planned), output(planned, {"n": 1})]
    items = [{"id": "1:act", "tool": "act", "state": "completed", "outputPath": "†state.out", "tick": 3}]
    trace = ProvenanceIndex(RunRecord(messages, TOOLS, messages[:1], items)).why(path("†state.out.n"))
    card = {
        "path": "†input.card", "value": "c1", "outside": False,
        "sources": [{"message": 0, "origin": "request", "outside": False, "wrote": ["†input.card"]}],
    }  # fmt: skip
    assert trace == {
        "path": "†state.out.n", "value": 1, "outside": True,
        "sources": [{
            "message": 2, "origin": "activity", "outside": True, "wrote": ["†state.out.n"], "id": "1:act",
            "tool": "act", "activity": "do.it", "tick": 3, "date": DATE, "outputPath": "†state.out", "method": "set",
            "plannedBy": "model", "call": planned,
            "reads": [{
                "parameter": "card", "at": "card", "expression": "†input.card || †input.other",
                "values": [card, {"path": "†input.other", "unused": True}],
            }],
        }],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("†stat", ["†state", "†input"]),
        ("†state.ordr.total", ["†state.order"]),
        ("†state.order.itms[0]", ["†state.order.items", "†state.order.n"]),
        ("†state.order.items[7]", ["†state.order.items.0"]),
        ("†state.order.n.x", ["†state.order.n"]),
    ],
)
def test_a_path_that_leads_nowhere_is_told_where_it_could(where: str, names: list[str]) -> None:
    run = ProvenanceIndex(
        run_record([{"type": "state", "order": {"items": ["a"], "n": 1}}, {"type": "input", "x": 1}], 2)
    )
    assert [str(n) for n in run.near(path(where))] == names
    assert run.why(path(where)) == {"path": str(path(where)), "absent": True}
    assert run.value(path(where)) is ABSENT
    assert run.value(path("†state.order")) == {"items": ["a"], "n": 1}


ORDERS = {"type": "state", "state": {"orders": [{"id": "a"}, {"id": "b"}], "rate": 2, "ok": True}}
REFUND = call(
    "act",
    "†state.refunds",
    _each="†state.orders",
    _when="†state.ok && !†state.no",
    text="Order †{item.id} at †{state.rate}, †{index}",
)


def refunds(where: str, method: str = "set", *before: Any, **more: Any) -> Trace:
    messages = [ORDERS, plan(REFUND), *before, output(REFUND, ["A", "B"], method, **more)]
    return why(messages, 2, where)


def test_what_was_put_into_a_text_is_from_where_it_was() -> None:
    letter = call("act", "†state.letter", text="Dear †{input.name || state.rate}")
    trace = why([{"type": "input", "name": "Ada"}, ORDERS, plan(letter), output(letter, 1)], 3, "†state.letter")
    assert reads(trace) == {"text": [("†input.name", "Ada"), ("†state.rate", "unused")]}


def test_an_element_of_a_result_is_from_an_element_of_the_list() -> None:
    trace = refunds("†state.refunds[1]")
    assert [source["id"] for source in trace["sources"]] == ["1:act[1]"]
    assert reads(trace) == {
        "text": [("†state.orders.1.id", "b"), ("†state.rate", 2)],
        "_each": [("†state.orders.1", {"id": "b"})],
        "_when": [("†state.ok", True), ("†state.no", "absent")],
    }


@pytest.mark.parametrize(
    ("method", "where", "ids"),
    [
        ("push", "†state.refunds[0][1]", ["1:act[1]"]),
        ("push", "†state.refunds[0]", ["1:act"]),
        ("concat", "†state.refunds[0]", ["1:act[0]"]),
        ("set", "†state.refunds[1].deep", []),
    ],
)
def test_the_element_is_known_by_the_method(method: str, where: str, ids: list[str]) -> None:
    assert [source["id"] for source in refunds(where, method).get("sources", ())] == ids


@pytest.mark.parametrize(
    ("where", "rate", "ok"), [("†state.r[0]", "unused", True), ("†state.r[1]", 2, "unused"), ("†state.r", 2, True)]
)
def test_a_choice_is_followed_as_the_element_decided_it(where: str, rate: Json, ok: Json) -> None:
    for condition in ("†index == 1", '†item.id == "b"', '†state.orders[†index].id == "b"'):
        planned = call("act", "†state.r", _each="†state.orders", v=f"{condition} ? †state.rate : †state.ok")
        trace = why([ORDERS, plan(planned), output(planned, [1, 2])], 2, where)
        found = dict(reads(trace)["v"])
        assert (found["†state.rate"], found["†state.ok"]) == (rate, ok)


def test_an_element_of_a_literal_list_leads_to_the_references_of_the_list() -> None:
    planned = call("act", "†state.r", _each=["†state.rate", 5], v="†item")
    trace = why([ORDERS, plan(planned), output(planned, [1, 2])], 2, "†state.r[0]")
    assert reads(trace) == {"v": [], "_each[0]": [("†state.rate", 2)]}


def test_ten_thousand_parts_of_one_list_cost_what_their_number_says() -> None:
    value = list(range(10_000))
    assert replace_parts(value, [((i,), -i) for i in value]) == [-i for i in value]
