"""The context log: folds of messages, reads as of a plan position, instances over the global view."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.messages import METHODS
from acts.language.references import Path, parse
from acts.language.values import ABSENT
from acts.plan.context_log import END, START, Log
from tests import oracle
from tests.cases import own, tool
from tests.property.drive import Drive, data_message
from tests.strategies import INSTANCES, MEETING_POINTS, objects, render, values


def log_of(*messages: dict[str, Any]) -> Log:
    return Log([data_message(m) for m in messages])


def path(text: str) -> Path:
    path = parse(text)
    assert isinstance(path, Path)
    return path


def written(text: str, value: Any, method: str = "set", **more: Any) -> dict[str, Any]:
    where = path(text)
    payload = value
    for name in reversed(where.names):
        payload = {name: payload}
    return {"type": "data", "kind": where.kind, "data": payload, "_outputPath": text, "_outputMethod": method, **more}


# messages, view of the state kind
FOLDS: list[tuple[list[dict[str, Any]], Any]] = [
    ([], ABSENT),
    ([{"type": "state"}], {}),
    ([{"type": "state", "schema": {}}], ABSENT),
    (
        [{"type": "state", "a": {"x": 1, "l": [1, 2]}}, {"type": "state", "state": {"a": {"l": [3]}}}],
        {"a": {"x": 1, "l": [3]}},
    ),
    ([{"type": "state", "a": 1}, {"type": "state", "state": [1]}], [1]),
    ([{"type": "state", "state": [1]}, {"type": "state", "a": 1}], {"a": 1}),
    ([{"type": "state", "a": 1}, {"type": "data", "a": 2}, {"type": "data", "kind": "user", "a": 3}], {"a": 1}),
    ([{"type": "state", "l": None}, written("†state.l", 1, "push")], {"l": [1]}),
    ([written("†state.a", 1), {"type": "state", "a": {"x": 2}}, written("†state.a.y", 3)], {"a": {"x": 2, "y": 3}}),
]


@pytest.mark.parametrize(("messages", "view"), FOLDS, ids=lambda x: str(x)[:80])
@pytest.mark.parametrize("instance", [None, "A"])
def test_messages_fold_oldest_to_newest(messages: list[dict[str, Any]], view: Any, instance: str | None) -> None:
    """In the global view, and the same for an instance that holds all of them itself."""
    before = copy.deepcopy(messages)
    target = {} if instance is None else {"_instance": instance}
    marker = {"type": "data", "kind": "marker", "data": 1, "_instance": "A"}
    log = log_of(marker, *({**m, **target} for m in messages))
    assert log.problems == []
    value = log.state(instance)
    assert value == ({} if view is ABSENT else view)
    assert messages == before
    if instance is not None:
        assert log.state() == {}


@pytest.mark.parametrize(
    "message",
    [
        written("†state.n", 1, "push"),
        written("†state.n", [1], "concat"),
        written("†state.n", {"a": 1}, "merge"),
        written("†state.l.x", 1),
        written("†state.l", "s", "concat"),
    ],
    ids=str,
)
def test_a_message_that_cannot_be_applied_is_a_problem_and_the_rest_counts(message: dict[str, Any]) -> None:
    log = log_of({"type": "state", "n": 1, "l": [1]}, message, written("†state.ok", 1))
    assert [p.code for p in log.problems] == ["invalidMessage"]
    assert log.state() == {"n": 1, "l": [1], "ok": 1}


def test_what_an_object_of_an_instance_replaces_is_in_nobodys_way() -> None:
    log = log_of({"type": "state", "l": [5]}, own("A", l={"q": 1}))
    assert log.view_of("A").find_conflict(path("†state.l.0"), "push", 1, START) is None


def test_a_read_as_of_a_position_sees_only_what_is_before_it() -> None:
    log = log_of({"type": "state", "a": 0, "l": [0]})
    a, items, whole = path("†state.a"), path("†state.l"), path("†state")
    log.shared.write(a, "set", 3, 3)
    log.shared.write(items, "push", 4, 4)
    log.shared.write(a, "set", 1, 1)
    log.shared.write(items, "push", 2, 2)
    assert [log.read(a, rank) for rank in range(6)] == [0, 0, 1, 1, 3, 3]
    assert [log.read(items, rank) for rank in range(6)] == [[0], [0], [0], [0, 2], [0, 2], [0, 2, 4]]
    assert log.read(whole, 3) == {"a": 1, "l": [0, 2]}
    assert log.read(whole, END) == {"a": 3, "l": [0, 2, 4]}
    assert log.read(path("†state.l.1"), END) == 2
    assert log.read(path("†state.l.1"), START) is ABSENT


def test_neither_what_was_read_nor_a_message_is_changed_by_messages_that_come_later() -> None:
    log = log_of({"type": "state", "l": [0], "o": {"a": {"b": 1}}}, {"type": "state", "who": "a", "_instance": "A"})
    raws: list[Any] = [{"o": {"a": {f"k{i}": {"n": i}}}, "l": [i], f"x{i}": {"y": i}} for i in range(6)]
    raws += [{"o": {"a": {f"k{i}": {"m": i}}}, f"x{i}": {"z": i}} for i in range(6)]
    before, reads = copy.deepcopy(raws), []
    for number, raw in enumerate(raws):
        assert log.fold(data_message({"type": "state", "state": raw})) is None
        if number % 3 == 0:
            names, instance = ("†state", "†state.o", "†state.o.a.k1")[number % 2], (None, "A")[number % 2]
            value = log.read(path(names), END, instance, settled=True)
            reads.append((value, copy.deepcopy(value)))
    assert raws == before
    assert all(value == copied for value, copied in reads)
    assert log.read(path("†state.o.a.k1"), END, "A") == {"n": 1, "m": 1}


def test_instances_are_layers_and_see_nothing_of_each_other() -> None:
    log = log_of(
        {"type": "state", "who": "all", "l": [0]},
        {"type": "state", "who": "a", "_instance": "A"},
        {"type": "state", "state": {"secret": 1}, "_instance": "B"},
        {"type": "state", "late": True},
    )
    assert log.state("A") == {"who": "a", "l": [0], "late": True}
    assert log.state("B") == {"who": "all", "l": [0], "late": True, "secret": 1}
    assert log.state() == {"who": "all", "l": [0], "late": True}
    with pytest.raises(KeyError):
        log.state("C")


def test_held_is_being_there_before_the_plan_null_included() -> None:
    log = log_of({"type": "state", "a": {"n": None}}, {"type": "state", "b": 1, "_instance": "A"})
    assert log.has_initially(path("†state.a.n"))
    assert not log.has_initially(path("†state.a.n.x"))
    assert not log.has_initially(path("†state.b"))
    assert log.has_initially(path("†state.b"), "A")
    log.shared.write(path("†state.c"), "set", 1, 1)
    assert not log.has_initially(path("†state.c"))


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages as a result's context holds them: roots first, then outputs, of the global view and of instances."""
    out: list[dict[str, Any]] = [{"type": "state", "state": draw(objects)}]
    for _ in range(draw(st.integers(0, 7))):
        where = draw(st.sampled_from(MEETING_POINTS))
        more = {"_instance": draw(st.sampled_from(INSTANCES))} if draw(st.booleans()) else {}
        if draw(st.integers(0, 3)) == 0:
            out.append({"type": "state", "state": draw(objects), **more})
        else:
            out.append(written(render(where), draw(values), draw(st.sampled_from(METHODS)), **more))
    return out


def applicable(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without the outputs that could not be applied at their position."""
    applied: list[dict[str, Any]] = []
    for message in messages:
        entry = oracle.entry(message)
        assert entry is not None
        if entry.names is not None:
            try:
                current = oracle.view(oracle.read_messages(applied), entry.kind, entry.instance)
                oracle.put(current, entry.names, entry.method, entry.payload, strict=True)
            except oracle.Refused:
                continue
        applied.append(message)
    return applied


@settings(max_examples=150, deadline=None)
@given(histories())
def test_every_place_reads_as_the_slow_fold_says(messages: list[dict[str, Any]]) -> None:
    messages = applicable(messages)
    instances = dict.fromkeys(m["_instance"] for m in messages if "_instance" in m)
    log, checked = log_of(*messages), Log([data_message(m) for m in messages], is_checked=True)
    assert log.problems == []
    assert log.own.keys() == checked.own.keys()
    entries = oracle.read_messages(messages)
    for instance in (None, *instances):
        view = oracle.view(entries, "state", instance)
        for where in MEETING_POINTS:
            expected = oracle.get(view, where[1:])
            for each in (log, checked):
                value = each.read(Path(where[0], where[1:]), END, instance)
                assert value is ABSENT if expected is oracle.ABSENT else value == expected, (where, instance)


def count_operations(run: Callable[[], None]) -> int:
    """How many lines of ``acts/`` are executed, and functions of it called."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "/acts/" not in frame.f_code.co_filename:
            return None
        count += event in ("line", "call")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def all_write_then_all_read(calls: int, write: dict[str, Any], read: dict[str, Any], *context: Any) -> Drive:
    """A plan of which the first half writes and the second half reads; ``{}`` in a text is the position in its half."""
    numbered = [json.loads(json.dumps(part).replace("{}", str(i))) for part in (write, read) for i in range(calls)]
    plan = [{"_tool": "t", **part} for part in numbered]
    context = ({"type": "tool", "tool": {"t": tool("t")}}, *context)
    return Drive({"context": [*context, {"type": "plan", "plan": plan}], "config": {"maxParallel": 2000}}, {})


READS: dict[str, tuple[dict[str, Any], dict[str, Any], list[Any]]] = {
    "the whole of many paths": ({"_outputPath": "†state.k{}"}, {"x": "†state"}, []),
    "the whole of many paths of an instance": (
        {"_outputPath": "†state.k{}", "_instance": "A"},
        {"x": "†state", "_instance": "A"},
        [own("A", id=1)],
    ),
    "an element that was not pushed": (
        {"_outputPath": "†state.l", "_outputMethod": "push"},
        {"x": "†state.l[9999]", "_outputPath": "†log.r{}"},
        [],
    ),
    "an outcome that was not taken": (
        {"_outputPath": "†state.l.k{} || †state.l.error", "_outputMethod": "set"},
        {"x": "†state.l.error", "_outputPath": "†log.r{}"},
        [],
    ),
}


@pytest.mark.parametrize("reads", READS)
def test_many_writes_and_many_reads_cost_what_their_number_says(reads: str) -> None:
    write, read, context = READS[reads]
    few, many = (
        count_operations(lambda n=n: all_write_then_all_read(n, write, read, *context).finish_all()) for n in (40, 160)
    )
    assert many <= 6 * few  # linear is 4 times as much, quadratic 16 times
