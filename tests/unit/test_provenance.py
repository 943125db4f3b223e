"""Where a value came from: what it is made of, who wrote that, what they had read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from acts.language.references import Path
from acts.language.tools import Tool, read_tool
from acts.language.values import ABSENT
from acts.plan.context_log import END
from acts.provenance import message_authors
from acts.provenance.message_authors import Author, Authors, RunRecord
from acts.provenance.trace import MAX_SHOWN, Limits, ProvenanceIndex, Source, ValueTrace
from acts.provenance.value_writers import MAX_PATHS, ValueWriters, build_value, encode_beginning, find_writers
from tests.unit.test_context_log import FOLDS, path, written

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


def why(messages: list[Json], requested: int, where: str, **more: Any) -> ValueTrace:
    return ProvenanceIndex(run_record(messages, requested)).why(path(where), **more)


def origin(messages: list[Json], requested: int | None, index: int = -1, **more: Any) -> Author:
    """The origin of one message, the last one unless another is named."""
    return Authors(run_record(messages, requested, **more)).find(index % len(messages))


def written_parts(trace: ValueTrace) -> list[tuple[int, list[str]]]:
    """The messages that a value is made of, and what of it is theirs."""
    return [(s.message, [str(p) for p in s.wrote]) for s in trace.sources]


def sources(trace: ValueTrace) -> Iterator[Source]:
    for source in trace.sources:
        yield source
        for read in source.reads:
            for value in read.values:
                yield from sources(value)


# -- what a value is made of -----------------------------------------------------------------


@pytest.mark.parametrize(("messages", "view"), FOLDS, ids=lambda x: str(x)[:80])
def test_a_value_taken_apart_is_the_value(messages: list[Json], view: Json) -> None:
    node = ValueWriters(Authors(run_record(messages, 0)).by_index.values()).find(Path("state"), END)
    if view is ABSENT:
        assert node is None
        return
    assert node is not None
    assert build_value(node, END) == view
    text, whole = encode_beginning(node, END, 10_000)
    assert (json.loads(text), whole) == (view, True)


# messages, path, the messages that the value is made of, each with its places
MADE_OF: list[tuple[list[Json], str, dict[int, list[str]]]] = [
    ([{"type": "state", "a": 1}], "†state.a", {0: ["†state.a"]}),
    ([{"type": "state", "a": {"x": 1}}], "†state.a.x", {0: ["†state.a.x"]}),
    # what was replaced is no part
    ([{"type": "state", "a": 1}, written("†state.a", 2)], "†state.a", {1: ["†state.a"]}),
    ([{"type": "state", "a": 1}, written("†state", {"b": 2})], "†state", {1: ["†state"]}),
    ([written("†state.a", {"x": 1}), written("†state.a.x", 2)], "†state.a", {1: ["†state.a.x"]}),
    ([written("†state.a", {"x": 1, "y": 1}), written("†state.a", {})], "†state.a", {1: ["†state.a"]}),
    ([{"type": "state", "a": 5}, written("†state.a.b", 1)], "†state", {1: ["†state.a.b"]}),
    # what is beside it is its writer's
    ([{"type": "state", "a": 1}, {"type": "state", "b": 2}], "†state", {0: ["†state"], 1: ["†state.b"]}),
    (
        [written("†state.a", {"x": 1, "y": 1}), written("†state.a.x", 2)],
        "†state.a",
        {0: ["†state.a.y"], 1: ["†state.a.x"]},
    ),
    (
        [written("†state.a", {"b": {"x": 1}, "c": 1}), written("†state.a", {"b": {"y": 2}}, "merge")],
        "†state.a",
        {0: ["†state.a.c", "†state.a.b"], 1: ["†state.a.b.y"]},
    ),
    (
        [written("†state.a", {"b": {"x": 1}, "c": 1}), written("†state.a", {"b": {"y": 2}}, "assign")],
        "†state.a",
        {0: ["†state.a.c"], 1: ["†state.a.b"]},
    ),
    # who made an object or a list in which others wrote has no part, unless it is empty still
    ([written("†state.a", {}), written("†state.a.x", 2)], "†state.a", {1: ["†state.a.x"]}),
    ([written("†state.a", []), written("†state.a", 7, "push")], "†state.a", {1: ["†state.a.0"]}),
    ([written("†state.a", {}), written("†state.a", {}, "merge")], "†state.a", {0: ["†state.a"]}),
    ([written("†state.a", []), written("†state.a", [], "concat")], "†state.a", {0: ["†state.a"]}),
    # elements are told apart
    (
        [written("†state.l", [1, 2]), written("†state.l", 3, "push"), written("†state.l", [4, 5], "concat")],
        "†state.l",
        {0: ["†state.l"], 1: ["†state.l.2"], 2: ["†state.l.3"]},
    ),
    (
        [written("†state.l", [1, 2]), written("†state.l", 3, "push"), written("†state.l", [4, 5], "concat")],
        "†state.l[4]",
        {2: ["†state.l.4"]},
    ),
    ([written("†state.l", {"x": 1}, "push"), written("†state.l", 2, "push")], "†state.l[0].x", {0: ["†state.l.0.x"]}),
    (
        [written("†state.s", "a", "concat"), written("†state.s", "", "concat"), written("†state.s", "b", "concat")],
        "†state.s",
        {0: ["†state.s"], 2: ["†state.s"]},
    ),
    ([{"type": "state", "l": None}, written("†state.l", 1, "push")], "†state.l", {1: ["†state.l.0"]}),
]


@pytest.mark.parametrize(("messages", "where", "parts_by_writer"), MADE_OF, ids=lambda x: str(x)[:80])
def test_a_value_is_made_of_what_still_stands(
    messages: list[Json], where: str, parts_by_writer: dict[int, list[str]]
) -> None:
    assert written_parts(why(messages, 0, where)) == sorted(parts_by_writer.items())


def test_a_value_is_told_as_of_a_message() -> None:
    messages = [written("†state.a", {"x": 1, "y": 1}), written("†state.a.x", 2), written("†state.a", 3)]
    traces = [why(messages, 0, "†state.a", upto=n) for n in range(4)]
    assert [f.text for f in traces] == [None, '{"x": 1, "y": 1}', '{"x": 2, "y": 1}', "3"]
    assert [[s.message for s in f.sources] for f in traces] == [[], [0], [0, 1], [2]]
    emptied = [written("†state.a", {}), written("†state.a.x", 1)]
    assert [written_parts(why(emptied, 0, "†state.a", upto=n)) for n in (1, 2)] == [
        [(0, ["†state.a"])],
        [(1, ["†state.a.x"])],
    ]


def test_of_many_places_of_one_message_the_first_are_kept() -> None:
    many = {str(n): n for n in range(50)}
    node = ValueWriters(
        Authors(run_record([written("†state", many), written("†state.0", "x")], 0)).by_index.values()
    ).find(Path("state"), END)
    assert node is not None
    assert [len(places) for places in find_writers(node, END).values()] == [MAX_PATHS, 1]
    assert [len(places) for places in find_writers(node, END, limit=None).values()] == [49, 1]


# -- who wrote it --------------------------------------------------------------------------


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


# what is asked, the messages, how many were the Request's, what else is told; word, outside, and more of the origin
ORIGINS: list[tuple[str, list[Json], int | None, dict[str, Json], tuple[str, bool], dict[str, Json]]] = [
    ("a message of the Request", [{"type": "state", "a": 1}], 1, {}, (message_authors.REQUEST, False), {"call": None}),
    ("a message that was provided", [{"type": "state", "a": 1}], 0, {}, (message_authors.PROVIDED, True), {}),
    ("nobody knows the Request", [{"type": "state", "a": 1}], None, {}, (message_authors.UNKNOWN, True), {}),
    ("a decision", [APPENDED], 0, {"decisions": [RECORD]}, (message_authors.DECISION, True), {}),
    ("what only looks like a decision", [APPENDED], 0, {}, (message_authors.PROVIDED, True), {}),
    (
        "a decision about an instance",
        [{**APPENDED, "_instance": "a"}],
        0,
        {"decisions": [{**RECORD, "instance": "a"}]},
        (message_authors.DECISION, True),
        {},
    ),
    (
        "what looks like a decision about another instance",
        [{**APPENDED, "_instance": "b"}],
        0,
        {"decisions": [{**RECORD, "instance": "a"}]},
        (message_authors.PROVIDED, True),
        {},
    ),
    (
        "an Activity",
        [plan(ACT), output(ACT, 1)],
        1,
        {},
        (message_authors.ACTIVITY, True),
        {"id": "1:act", "planned": "request"},
    ),
    ("a delegate", [plan(ASK), output(ASK, 1)], 1, {}, (message_authors.DELEGATE, True), {"id": "1:ask"}),
    (
        "a model, which saw all",
        [plan(THINK), output(THINK, 1)],
        1,
        {},
        (message_authors.MODEL, True),
        {"saw_all": True},
    ),
    (
        "a model, which saw its scopes",
        [plan(t := {**THINK, "_scopes": []}), output(t, 1)],
        1,
        {},
        (message_authors.MODEL, True),
        {"saw_all": False, "is_literal": False},
    ),
    (
        "an answer that stood in the Request",
        [plan(t := {**THINK, "_output": 1}), output(t, 1)],
        1,
        {},
        (message_authors.REQUEST, False),
        {"is_literal": True, "saw_all": False, "id": "1:think"},
    ),
    (
        "an answer that stood in the Request and was not taken",
        [plan(t := {**THINK, "_output": 1}), output(t, 2)],
        1,
        {},
        (message_authors.MODEL, True),
        {"is_literal": False},
    ),
    (
        "an answer of the planner",
        [plan(t := {**THINK, "_output": 1}), output(t, 1)],
        0,
        {},
        (message_authors.MODEL, True),
        {"is_literal": True, "planned": "model"},
    ),
    (
        "an answer that somebody put into the plan",
        [plan(THINK), output({**THINK, "_output": 1}, 1)],
        0,
        {},
        (message_authors.DECISION, True),
        {"is_literal": True, "planned": "person"},
    ),
    (
        "a plan of the model that was edited before it ran",
        [{"type": "data", "kind": "decision", "data": {"what": "plan", "decision": "edit"}}, plan(ACT), output(ACT, 1)],
        0,
        {},
        (message_authors.ACTIVITY, True),
        {"planned": "edited"},
    ),
    (
        "a later plan of the model, which nobody edited",
        [
            {"type": "data", "kind": "decision", "data": {"what": "plan", "decision": "edit"}},
            *(plan(ACT), output(ACT, 1), plan(ACT), output(ACT, 1)),
        ],
        0,
        {},
        (message_authors.ACTIVITY, True),
        {"planned": "model"},
    ),
    (
        "a failure that the Activity named",
        [plan(ACT), output(ACT, FAILED)],
        1,
        {"calls": [state_of("1:act", error=FAILED)]},
        (message_authors.ACTIVITY, True),
        {"error": "card_declined"},
    ),
    (
        "a failure that has a name of ours may quote anybody",
        [plan(ACT), output(ACT, LATE)],
        1,
        {"calls": [state_of("1:act", error=LATE)]},
        (message_authors.ENGINE, True),
        {"error": "timeout"},
    ),
    (
        "a result that looks like a failure",
        [plan(ACT), output(ACT, FAILED)],
        1,
        {"calls": [state_of("1:act")]},
        (message_authors.ACTIVITY, True),
        {"error": None},
    ),
    (
        "another value than the failure of its Call",
        [plan(ACT), output(ACT, 1)],
        1,
        {"calls": [state_of("1:act", error=FAILED)]},
        (message_authors.ACTIVITY, True),
        {"error": None},
    ),
    (
        "a Tool that is not known",
        [output(call("gone", "†state.a"), 1)],
        0,
        {},
        (message_authors.UNKNOWN, True),
        {"id": None},
    ),
    (
        "what an earlier run wrote and the Request holds",
        [plan(ACT), output(ACT, 1)],
        2,
        {},
        (message_authors.REQUEST, True),
        {"id": "1:act", "call": ACT, "planned": None},
    ),
]


@pytest.mark.parametrize(
    ("messages", "requested", "more", "expected", "facts"),
    [row[1:] for row in ORIGINS],
    ids=[row[0] for row in ORIGINS],
)
def test_a_message_knows_where_it_came_from(
    messages: list[Json], requested: int | None, more: Json, expected: tuple[str, bool], facts: dict[str, Json]
) -> None:
    author = origin(messages, requested, **more)
    assert (author.word, author.outside) == expected
    assert {key: getattr(author, key) for key in facts} == facts


def test_an_edit_of_the_plan_of_a_request_is_a_persons() -> None:
    began, edited = plan(ACT), plan({**ACT, "x": 1})
    run = RunRecord([edited, output(edited["plan"][0], 1)], TOOLS, [began])
    assert Authors(run).find(1).planned == message_authors.PERSON


def test_calls_that_read_alike_are_told_apart_by_their_order() -> None:
    push = call("act", "†state.l", _outputMethod="push")
    messages = [plan(push, ACT, push), output(push, 1, "push"), output(ACT, 0), output(push, 2, "push")]
    assert [origin(messages, 1, i).id for i in (1, 2, 3)] == ["1:act", "2:act", "3:act"]


def test_calls_that_read_alike_are_left_open_where_one_of_them_wrote_nothing() -> None:
    push = call("act", "†state.l", _outputMethod="push")
    messages = [plan(push, push), output(push, 1, "push")]
    assert origin(messages, 1).id is None
    wrote = {"id": "2:act", "tool": "act", "state": "completed", "outputPath": "†state.l"}
    failed = {"id": "1:act", "tool": "act", "state": "failed"}
    assert origin(messages, 1, calls=[failed, wrote]).id == "2:act"


def test_the_messages_of_a_conjunction_are_of_one_call() -> None:
    both = call("act", "†state.a && †state.b", x="†state.a")
    messages = [{"type": "state", "a": 0}, plan(both, both)]
    messages += [output(both, v, at=f"†state.{n}") for v in (1, 2) for n in "ab"]
    authors = Authors(run_record(messages, 2))
    assert [(authors.find(i).start, authors.find(i).id) for i in range(2, 6)] == [
        (2, "1:act"), (2, "1:act"), (4, "2:act"), (4, "2:act"),
    ]  # fmt: skip
    # the second path of the first Call is read as of its first message
    (source,) = ProvenanceIndex(run_record(messages[:4], 2)).why(path("†state.b")).sources
    assert source.reads[0].values[0].text == "0"


def test_a_tick_is_that_of_the_plan_before_it() -> None:
    refused = {"type": "error", "data": {"call": None, "error": {"code": "rejected", "message": "no"}}}
    large = {"type": "error", "data": {"call": None, "error": {"code": "PayloadTooLarge", "message": "too much"}}}
    messages = [
        *(plan(ACT), output(ACT, 1)),  # tick 1
        *(plan(ACT), refused),  # 2
        *(plan(ACT), large),  # 3
        *(plan(ACT), output(ACT, 2), {"type": "error", "data": {"call": ACT, "error": {"code": "x"}}}),  # 5
        *(plan(ACT), output(ACT, 3)),  # 6
    ]
    calls = [state_of("1:act", tick=n) for n in (1, 5, 6)]
    ticks = [origin(messages, 0, i, calls=calls).tick for i in (1, 7, 10)]
    assert ticks == [1, 5, 6]
    # the list of Calls may lack the oldest
    assert [origin(messages, 0, i, calls=calls[1:]).tick for i in (1, 7, 10)] == [None, 5, 6]


def test_a_call_that_was_edited_while_its_tick_ran_is_found_by_what_it_wrote() -> None:
    messages = [plan(ACT, call("act", "†state.b")), output({**ACT, "x": 1}, 1)]
    items = [state_of("1:act", tick=1), {**state_of("2:act", tick=1), "outputPath": "†state.b"}]
    author = origin(messages, 0, calls=items)
    assert (author.id, author.planned) == ("1:act", message_authors.PERSON)


# -- what they had read ----------------------------------------------------------------------


def test_every_reference_of_a_call_is_followed_and_no_other() -> None:
    planned = call("see", "†state.out", one="†state.a", deep={"er": [1, "†input.b"]}, text="††state.c", n=7)
    messages = [{"type": "state", "a": 1, "c": 3}, {"type": "input", "b": 2}, plan(planned), output(planned, 0)]
    (source,) = why(messages, 3, "†state.out").sources
    assert [(r.parameter, r.at, r.text) for r in source.reads] == [
        ("one", "one", "†state.a"), ("deep", "deep.er[1]", "†input.b"),
        ("_scopes", "_scopes", "†state.a"), ("_scopes", "_scopes", "†input"),
    ]  # fmt: skip
    assert [v.text for r in source.reads for v in r.values] == ["1", "2", "1", '{"b": 2}']


@pytest.mark.parametrize(
    ("text", "followed"),
    [
        ("†state.a", {"a": "1"}),
        ("†state.none || †state.a", {"none": None, "a": "1"}),
        ("†state.a || †state.b", {"a": "1", "b": "unused"}),
        ("†state.null || †state.b", {"null": "null", "b": "2"}),
        ("†state.a && †state.b", {"a": "1", "b": "2"}),
        ("†state.none && †state.a || †state.b || †state.c", {"none": None, "a": "1", "b": "2", "c": "unused"}),
        ("†state.b || †state.b", {"b": "2"}),
    ],
)
def test_what_decided_about_an_expression_is_followed(text: str, followed: dict[str, str | None]) -> None:
    planned = call("act", "†state.out", x=text)
    state = {"a": 1, "b": 2, "c": 3, "null": None}
    (source,) = why([{"type": "state", "state": state}, plan(planned), output(planned, 0)], 2, "†state.out").sources
    texts = {v.path.names[0]: v.text if v.used else "unused" for v in source.reads[0].values}
    assert texts == followed


def test_a_call_read_what_stood_before_it() -> None:
    raised = call("act", "†state.n", n="†state.n")
    messages = [{"type": "state", "n": 0}, plan(raised, raised), output(raised, 1), output(raised, 2)]
    answer = why(messages, 2, "†state.n")
    chain = [(s.message, s.reads[0].values[0].text) for s in sources(answer) if s.reads]
    assert (answer.text, chain) == ("2", [(3, "1"), (2, "0")])
    assert list(sources(answer))[-1].origin.word == message_authors.REQUEST


def test_a_global_call_sees_nothing_of_an_instance_and_an_instance_its_own() -> None:
    shared, own = call("act", "†state.out", x="†state.a"), call("act", "†state.own", x="†state.a")
    messages = [
        {"type": "state", "a": "all"}, {"type": "state", "a": "mine", "_instance": "A"},
        {"type": "state", "a": "other", "_instance": "B"}, plan(shared, own), output(shared, 1),
        output(own, 2, _instance="A"), {"type": "state", "a": "late"},
    ]  # fmt: skip
    run = ProvenanceIndex(run_record(messages, 4))
    assert run.instances == ["A", "B"]
    (of_all,) = run.why(path("†state.out"), "A").sources
    (of_a,) = run.why(path("†state.own"), "A").sources
    assert of_all.reads[0].values[0].text == '"all"'
    assert of_a.reads[0].values[0].text == '"mine"'
    assert run.why(path("†state.own")).text is None
    assert [run.why(path("†state.a"), i).text for i in (None, "A", "B")] == ['"late"', '"mine"', '"other"']


def test_outside_is_said_of_what_any_stranger_wrote() -> None:
    messages = [{"type": "state", "a": {"x": 1}}, plan(ACT), output(call("act", "†state.a.y"), 2)]
    assert [why(messages, 2, where).outside for where in ("†state.a", "†state.a.x", "†state.a.y")] == [
        True, False, True,
    ]  # fmt: skip


# -- bounds ------------------------------------------------------------------------------------


def line(length: int) -> list[Json]:
    """Calls that each read what the one before wrote."""
    calls = [call("act", f"†state.a{n + 1}", x=f"†state.a{n}") for n in range(length)]
    return [{"type": "state", "a0": 0}, plan(*calls), *(output(c, n) for n, c in enumerate(calls, 1))]


def test_what_is_deeper_than_asked_for_is_marked() -> None:
    chain = list(sources(why(line(5), 2, "†state.a5", limits=Limits(depth=3))))
    assert [(s.message, s.cut) for s in chain] == [(6, False), (5, False), (4, True)]
    whole = list(sources(why(line(5), 2, "†state.a5", limits=Limits(depth=9))))
    assert [s.message for s in whole] == [6, 5, 4, 3, 2, 0]
    assert not any(s.cut for s in whole)


def test_a_call_is_told_once_and_where_it_is_nearest() -> None:
    first = call("act", "†state.first", x="†state.seed")
    middle = call("act", "†state.middle", x="†state.first")
    last = call("act", "†state.last", far="†state.middle", near="†state.first")
    calls = (first, middle, last)
    messages = [{"type": "state", "seed": 0}, plan(*calls), *(output(c, 0) for c in calls)]
    (source,) = why(messages, 2, "†state.last").sources
    far, near = source.reads
    (told_here,) = near.values[0].sources
    assert (told_here.again, [r.text for r in told_here.reads]) == (False, ["†state.seed"])
    (again,) = far.values[0].sources[0].reads[0].values[0].sources
    assert (again.again, again.reads) == (True, [])


def test_of_many_sources_the_first_are_told_and_the_rest_counted() -> None:
    push = [call("act", "†state.l", _outputMethod="push", n=n) for n in range(30)]
    messages = [plan(*push), *(output(c, n, "push") for n, c in enumerate(push))]
    trace = why(messages, 1, "†state.l", limits=Limits(each=5))
    assert ([s.message for s in trace.sources], trace.more) == ([1, 2, 3, 4, 5], 25)
    assert why(messages, 1, "†state.l", limits=Limits(all=3)).more == 27
    near, far = sources(why(line(5), 2, "†state.a5", limits=Limits(all=2)))
    assert [(s.message, s.cut, len(s.reads)) for s in (near, far)] == [(6, False, 1), (5, True, 0)]


def test_a_long_value_is_shortened_and_says_so() -> None:
    messages = [{"type": "state", "text": "x" * 5000, "l": list(range(5000)), "o": {str(n): n for n in range(5000)}}]
    messages += [written("†state.l", 1, "push"), written("†state.o.x", 1)]
    for where in ("†state.text", "†state.l", "†state.o"):
        trace = why(messages, 3, where)
        assert trace.text is not None
        assert (len(trace.text), trace.whole) == (MAX_SHOWN, False)
        assert trace.to_json()["shortened"] == trace.text


def shape(name: str, size: int) -> tuple[list[dict[str, Json]], str]:
    """The Calls of a long plan, and a path that all of it stands behind."""
    if name == "a line":
        return [call("act", f"†state.a{n + 1}", x=f"†state.a{n}") for n in range(size)], f"†state.a{size}"
    if name == "a counter, read with all that is beside it":
        return [call("act", "†state.a0", x="†state") for _ in range(size)], "†state.a0"
    if name == "a list that each reads before it appends":
        return [
            call("act", "†state.l", x="†state.l || †state.a0", _outputMethod="push") for _ in range(size)
        ], "†state.l"
    return [call("act", f"†state.b{n}", x="†state") for n in range(size)], "†state"


@pytest.mark.parametrize(
    "name",
    [
        "a line",
        "a counter, read with all that is beside it",
        "a list that each reads before it appends",
        "all read all",
    ],
)
def test_ten_thousand_messages_are_answered_within_the_limits(name: str) -> None:
    calls, where = shape(name, 10_000)
    messages = [{"type": "state", "a0": 0}, plan(*calls)]
    messages += [output(c, n, c.get("_outputMethod", "set")) for n, c in enumerate(calls)]
    trace = why(messages, 2, where)
    limits = Limits()
    assert trace.outside
    assert 0 < len(list(sources(trace))) <= limits.all
    assert len(trace.sources) <= limits.each
    assert len(trace.sources) + trace.more in (1, 10_000, 10_001)


# -- the answer --------------------------------------------------------------------------------


def test_the_answer_as_json_says_all_that_is_known_and_nothing_else() -> None:
    planned = call("act", "†state.out", card="†input.card || †input.other", amount=5)
    messages = [{"type": "input", "card": "c1"}, plan(planned), output(planned, {"n": 1})]
    items = [{"id": "1:act", "tool": "act", "state": "completed", "outputPath": "†state.out", "tick": 3}]
    trace = ProvenanceIndex(RunRecord(messages, TOOLS, messages[:1], items)).why(path("†state.out.n"))
    card = {
        "path": "†input.card", "value": "c1", "outside": False,
        "sources": [{"message": 0, "origin": "request", "outside": False, "wrote": ["†input.card"]}],
    }  # fmt: skip
    assert trace.to_json() == {
        "path": "†state.out.n", "value": 1, "outside": True,
        "sources": [{
            "message": 2, "origin": "activity", "outside": True, "wrote": ["†state.out.n"], "id": "1:act",
            "tool": "act", "tick": 3, "date": DATE, "outputPath": "†state.out", "method": "set",
            "plannedBy": "model", "call": planned,
            "reads": [{
                "at": "card", "expression": "†input.card || †input.other",
                "values": [card, {"path": "†input.other", "unused": True}],
            }],
        }],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("where", "above", "names", "likely"),
    [
        ("†stat", None, ["†state", "†input"], "†state"),
        ("†state.ordr.total", "†state", ["†state.order"], "†state.order"),
        ("†state.order.itms[0]", "†state.order", ["†state.order.items", "†state.order.n"], "†state.order.items"),
        ("†state.order.items[7]", "†state.order.items", ["†state.order.items.0"], None),
        ("†state.order.n.x", "†state.order.n", [], None),
        ("†zzz", None, ["†state", "†input"], None),
    ],
)
def test_a_path_that_leads_nowhere_is_told_where_it_could(
    where: str, above: str | None, names: list[str], likely: str | None
) -> None:
    run = ProvenanceIndex(
        run_record([{"type": "state", "order": {"items": ["a"], "n": 1}}, {"type": "input", "x": 1}], 2)
    )
    near = run.near(path(where))
    assert (str(near[0]) if near[0] else None, [str(n) for n in near[1]]) == (above, names)
    assert (str(near[2]) if near[2] else None) == likely
    assert run.why(path(where)).to_json() == {"path": str(path(where)), "absent": True}
    assert run.value(path(where)) is ABSENT
    assert run.value(path("†state.order")) == {"items": ["a"], "n": 1}
