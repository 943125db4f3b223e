"""A value taken apart: its parts are all of it, none is too many, and a Call's references lead to what it was given.

The slow fold of ``tests/oracle`` says what a value is. Whose it is, is found the plain way: every scalar of a
Message is replaced by a mark of its own, and the marks that stand in the folded value are looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import given, reject
from hypothesis import strategies as st

from acts.language.errors import InvalidRequest
from acts.language.references import Path, evaluate, parse, parse_marked
from acts.language.tools import META
from acts.language.values import ABSENT, get
from acts.machines.call_state import call_items
from acts.plan.context_log import END
from acts.plan.validate import validate_request
from acts.provenance.trace import ACTIVITY, ENGINE, MODEL, REQUEST, Limits, ProvenanceIndex, RunRecord, Trace
from tests import oracle
from tests.property.drive import Drive, many
from tests.strategies import MEETING_POINTS, Case, cases, collisions, orders
from tests.unit.plan.test_context_log import applicable, histories
from tests.unit.provenance.test_provenance import sources

Json = Any
Where = tuple[str, ...]
EVERYTHING = Limits(depth=50, each=10_000, all=100_000)

places = st.sampled_from(MEETING_POINTS)


def trail_of(messages: list[Json], **more: Any) -> ProvenanceIndex:
    return ProvenanceIndex(RunRecord(messages, **{"tools": {}, "request": [], **more}))


def views(messages: list[Json]) -> Iterator[str | None]:
    """The global view, and each instance's."""
    yield from (None, *dict.fromkeys(m["_instance"] for m in messages if "_instance" in m))


@many(80)
@given(histories(), places, st.integers(0, 8))
def test_a_value_is_the_one_as_of_any_message(messages: list[Json], where: Where, upto: int) -> None:
    messages = applicable(messages)
    trail = trail_of(messages)
    for instance in views(messages):
        expected = oracle.get(oracle.view(oracle.read_messages(messages[:upto]), where[0], instance), where[1:])
        path = Path(where[0], where[1:])
        value = trail.value(path, instance, upto)
        assert (value is ABSENT) == (expected is oracle.ABSENT) == (not trail.writers(path, instance, upto))
        assert value is ABSENT or value == expected


def marked(value: Json, owner: int, count: list[int]) -> Json:
    """The value with a string of its own for each scalar; null and what is empty stay: they mean something."""
    if isinstance(value, dict):
        return {k: marked(v, owner, count) for k, v in value.items()}
    if isinstance(value, list):
        return [marked(v, owner, count) for v in value]
    if value is None or value == "":
        return value
    count[0] += 1
    return f"<{owner}.{count[0]}>" if isinstance(value, str) else owner * 1000 + count[0]


def owners(value: Json) -> set[int]:
    """Whose marks a value bears."""
    if isinstance(value, (dict, list)):
        return {o for v in (value.values() if isinstance(value, dict) else value) for o in owners(v)}
    if isinstance(value, int):
        return {value // 1000}
    return {int(o) for o in re.findall(r"<(\d+)\.", value or "")}


def bears_no_mark(value: Json) -> bool:
    """True when there is null in a value, or something empty."""
    inner = list(value.values()) if isinstance(value, dict) else value
    return any(map(bears_no_mark, inner)) if isinstance(value, (dict, list)) and inner else value in (None, "", [], {})


def with_marks(messages: list[Json]) -> list[Json]:
    out = []
    for index, message in enumerate(messages):
        key = message["type"]
        out.append({**message, key: marked(message[key], index, [0])})
    return out


@many(80)
@given(histories(), places)
def test_the_writers_of_a_value_are_those_whose_marks_it_bears(messages: list[Json], where: Where) -> None:
    messages = with_marks(applicable(messages))
    trail = trail_of(messages)
    for instance in views(messages):
        path = Path(where[0], where[1:])
        value, by_writer = trail.value(path, instance, END), trail.writers(path, instance, END)
        if value is ABSENT:
            continue
        assert owners(value) <= set(by_writer)
        for by in set(by_writer) - owners(value):  # of these it has null, or what is empty
            assert any(bears_no_mark(get(value, names)) for names in by_writer[by])


def walked(case: Case, order: list[int]) -> Drive:
    try:
        drive = Drive(validate_request(case.request), case.results)
    except InvalidRequest:
        reject()
    drive.finish_all(order)
    return drive


def trail_of_walk(drive: Drive) -> tuple[ProvenanceIndex, list[Json], list[str]]:
    """The trail of a walk, its context, and by message which Call wrote it (nothing for what was given)."""
    request = [m.raw for m in drive.prepared.request.context]
    appended = drive.walk.context.appended()
    wrote = [n.id for n, r in zip(drive.walk.nodes, drive.walk.calls, strict=True) for _ in r.written]
    record = RunRecord(
        request + appended, {n.tool.name: n.tool for n in drive.walk.nodes}, request, call_items(drive.walk.calls)
    )
    return ProvenanceIndex(record), request + appended, ["" for _ in request] + wrote


def value_at(trace: Trace) -> Json:
    assert "shortened" not in trace
    return trace.get("value", ABSENT)


def at_place(parameters: Json, at: str) -> Json:
    return get(parameters, tuple(re.findall(r"[^.\[\]]+", at)))


walks = st.one_of(cases(), collisions())


@many(80)
@given(walks, orders())
def test_the_references_of_a_call_lead_to_what_it_was_started_with(case: Case, order: list[int]) -> None:
    drive = walked(case, order)
    trail, context, wrote = trail_of_walk(drive)
    for index, id_ in enumerate(wrote):
        if not id_ or id_ not in drive.started:
            continue
        source = alone(trail, context, index)
        if source is None:
            continue
        parameters, scoped = drive.started[id_]
        followed = [v["path"] for r in source.get("reads", ()) for v in r["values"]]
        node = drive.node(id_)
        expected = [str(p) for r in node.reads for p in dict.fromkeys(r.paths)] + [str(p) for p in node.scopes]
        assert sorted(set(followed)) == sorted(set(expected))
        for reference in source.get("reads", ()):
            seen = {parse(v["path"]): value_at(v) for v in reference["values"]}
            if reference["parameter"] not in META:
                tree = parse_marked(reference["expression"])
                assert not isinstance(tree, str)
                assert evaluate(tree, seen.__getitem__) == at_place(parameters, reference["at"])
            elif reference["parameter"] == "_scopes":
                (path, value) = next(iter(seen.items()))
                held = {m.get("kind", m["type"]): m[m["type"]] for m in scoped}
                assert value is ABSENT or get(held[path.kind], path.names) == value


def alone(trail: ProvenanceIndex, context: list[Json], index: int) -> Trace | None:
    """The message as a source, asked for where it has just been written; None where it is nobody's part.

    It is none when it appended nothing, or merged nothing into what was there.
    """
    message = context[index]
    path = parse(message["_outputPath"])
    assert isinstance(path, Path)
    trace = trail.why(path, message.get("_instance"), index + 1, EVERYTHING)
    mine = [s for s in trace.get("sources", ()) if s["message"] == index]
    if not mine:
        return None
    if "again" in mine[0]:
        mine = [s for s in sources(trace) if start(trail, s) == start(trail, mine[0]) and "again" not in s]
    return mine[0]


@many(80)
@given(walks, orders())
def test_every_output_knows_its_call_and_what_ran_behind_it(case: Case, order: list[int]) -> None:
    drive = walked(case, order)
    trail, context, wrote = trail_of_walk(drive)
    for index, id_ in enumerate(wrote):
        if context[index]["type"] not in oracle.DATA_LIKE:
            continue
        facts = trail.authors.find(index).facts
        if not id_:
            assert (facts["origin"], facts["outside"], facts.get("call")) == (REQUEST, False, None)
            continue
        plan = [m for m in context[:index] if m["type"] == "plan"][-1]["plan"]
        # Of like Calls it may be known which one wrote: the others failed
        assert facts.get("id") in ([id_] if plan.count(context[index]["_call"]) == 1 else [id_, None])
        assert facts["plannedBy"] == REQUEST
        answered = "_output" in context[index]["_call"]
        assert facts["origin"] in ((REQUEST, MODEL, ENGINE) if answered else (ACTIVITY, ENGINE))
        assert facts["outside"] == (facts["origin"] != REQUEST)
        failure = drive.walk.calls[drive.rank(id_)].error
        assert "error" not in facts or failure is not None
        if failure is not None and "id" in facts:
            assert facts["error"] == failure["code"]


@many(80)
@given(walks, orders(), places, st.integers(1, 4), st.integers(1, 12))
def test_no_call_is_told_twice_and_what_is_outside_is_said(
    case: Case, order: list[int], where: Where, depth: int, most: int
) -> None:
    trail, *_ = trail_of_walk(walked(case, order))
    path = Path(where[0], where[1:])
    for instance in (None, *trail.instances):
        whole = trail.why(path, instance, limits=EVERYTHING)
        starts = [(start(trail, s), s.get("id", str(s["wrote"]))) for s in sources(whole) if "reads" in s]
        assert len(starts) == len(set(starts))
        assert not any("cut" in s for s in sources(whole))
        assert ("outside" in whole) == ("absent" not in whole)
        assert whole.get("outside", False) == any(s["outside"] for s in whole.get("sources", ()))
        assert "more" not in whole
        short = trail.why(path, instance, limits=Limits(depth, 3, most))
        assert len(list(sources(short))) <= most
        assert levels(short) <= depth
        assert [short.get(key) for key in ("value", "outside")] == [whole.get(key) for key in ("value", "outside")]
        assert len(short.get("sources", ())) + short.get("more", 0) == len(whole.get("sources", ()))
        assert json.dumps(short)


def levels(trace: Trace) -> int:
    listed = trace.get("sources", ())
    below = (levels(value) for s in listed for r in s.get("reads", ()) for value in r["values"])
    return (1 + max(below, default=0)) if listed else 0


def start(trail: ProvenanceIndex, source: Trace) -> int:
    """The first Message of the Call that wrote a source."""
    return trail.authors.find(source["message"]).start
