"""The walk, event by event. The rows of ``tests/cases.py`` hold small plans and their expected outcomes."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.errors import CallError
from acts.language.messages import parse_request
from acts.language.values import UNKNOWN, get
from tests import oracle
from tests.cases import ROWS, Row, call, row, state
from tests.property.drive import NOW, Drive, assert_equal_to_the_serial_run, begin


def orders(count: int) -> list[tuple[int, ...]]:
    """Every order of completion of a small plan; three of a larger one: as listed, reversed, mixed."""
    if count <= 4:
        return list(permutations(range(count)))
    return [
        tuple(range(count)),
        tuple(reversed(range(count))),
        tuple(sorted(range(count), key=lambda i: i * 7 % count)),
    ]


def write_of(message: dict[str, Any]) -> list[Any]:
    where = message["_outputPath"]
    names = tuple(where.split(".")[1:])
    return [where, message["_outputMethod"], get(message[message["type"]], names), message.get("_instance")]


def assert_as_expected(drive: Drive, expect: dict[str, Any]) -> None:
    walk = drive.walk
    assert drive.final_statuses == [expect["status"]]
    assert {n.id: r.state for n, r in zip(walk.nodes, walk.calls, strict=True)} == expect["states"]
    assert {n.id: r.error["code"] for n, r in zip(walk.nodes, walk.calls, strict=True) if r.error} == expect["errors"]
    if "state" in expect:
        assert walk.context.log.state() == expect["state"]
    for instance, view in expect.get("instances", {}).items():
        assert walk.context.log.state(instance) == view, instance
    for id_, parameters in expect.get("started", {}).items():
        assert drive.started[id_][0] == parameters, id_
    for id_, context in expect.get("sees", {}).items():
        assert drive.started[id_][1] == context, id_
    if "written" in expect:
        assert [write_of(m) for m in walk.context.appended()] == expect["written"]


@pytest.mark.parametrize("case", ROWS, ids=lambda r: r["name"])
def test_a_row_has_the_same_outcome_in_every_order(case: Row) -> None:
    expected = oracle.run(case["request"], case["results"])
    for order in orders(len(case["expect"]["states"])):
        drive = Drive(case["request"], case["results"])
        drive.finish_all(order)
        assert_as_expected(drive, case["expect"])
        assert_equal_to_the_serial_run(drive, expected)


def test_the_call_that_an_activity_gets_is_resolved_and_complete() -> None:
    case = row("", [call("a", "†state.a", x="†state.p", _scopes=["state"])], context=[state(p=1)])
    case["request"]["context"][0]["tool"]["a"]["properties"]["_errorPath"] = {"const": "†state.e"}
    drive = Drive(case["request"], {})
    (command,) = [c for c in drive.commands if hasattr(c, "call")]
    assert command.call == {
        "_tool": "a",
        "_outputPath": "†state.a",
        "_errorPath": "†state.e",
        "_scopes": ["state"],
        "x": 1,
        "_id": "run/1:a",
    }


@pytest.mark.parametrize("more", [{}, {"_errorPath": "†state.error"}, {"_each": [1]}])
def test_a_result_that_breaks_its_output_says_that_the_effect_may_have_happened(more: Any) -> None:
    plan = [call("a", "†state.a", **more), call("b", "†state.b", n="†state.error || †state.a")]
    case = row("", plan, results={"a": 7, "b": 1})
    case["request"]["context"][0]["tool"]["a"]["properties"]["_output"] = {"type": "string"}
    drive = Drive(case["request"], case["results"])
    drive.finish_all()
    error = drive.walk.calls[0].error or {}
    error = error["details"]["errors"][0] if "_each" in more else error
    assert error["code"] == "badResult"
    assert error["message"].endswith("the call ran, and its effect may have happened")
    assert [p["n"] for id_, (p, _) in drive.started.items() if id_ == "2:b"] == (
        [error] if "_errorPath" in more else []
    )


kinds = st.sampled_from(["state", "data", "input", "text", "", 5, None, ["state"], {}, "user"])
parts = st.recursive(
    st.sampled_from([None, 0, "", "†", "\x00", float("nan"), "\ud800", 10**400, UNKNOWN, {"a": 1}, {"b": 1}]),
    lambda v: (
        st.lists(v, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "0", "state", "data"]), v, max_size=2)
    ),
    max_leaves=4,
)
replies = parts | st.fixed_dictionaries(
    {"type": kinds}, optional={"kind": kinds, "state": parts, "data": parts, "schema": parts, "_instance": kinds}
)


@settings(max_examples=100, deadline=None)
@given(
    replies,
    st.sampled_from(["†state.a", "†state", "†state.a || †state.b", "†state.a && †user.b || †data", "†state.a.0"]),
    st.sampled_from(["set", "merge", "push"]),
    st.booleans(),
)
def test_whatever_an_activity_returns_settles_its_call_with_a_result_that_can_be_sent(
    reply: Any,
    path: str,
    method: str,
    caught: bool,  # noqa: FBT001
) -> None:
    drive = begin(call("a", path, method, **({"_errorPath": "†log.e"} if caught else {})), context=[state(a=[1])])
    drive.perform(drive.walk.completed(drive.walk.nodes[0].key, reply, NOW))
    assert len(drive.final_statuses) == 1
    assert drive.state("1:a") in ("completed", "failed")
    sent = json.dumps(
        [drive.walk.context.appended(), drive.walk.calls[0].error], ensure_ascii=False, allow_nan=False, default=repr
    )
    sent.encode()


@pytest.mark.parametrize("depth", [50, 90, *range(93, 102), 10_000])
def test_a_result_is_either_refused_or_can_stand_in_the_context_of_another_request(depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    drive = begin(call("a", "†state.deep.er.still"))
    drive.perform(drive.walk.completed(drive.walk.nodes[0].key, value, NOW))
    if drive.final_statuses == ["completed"]:
        parse_request({"context": drive.walk.context.appended()})
    else:
        assert drive.walk.calls[0].error is not None
        assert drive.walk.calls[0].error["code"] == "NotJson"


@pytest.mark.parametrize("key", ["", "3:c", "1:a[0]"])
@pytest.mark.parametrize("event", ["completed", "failed", "decide"])
def test_an_event_for_a_call_that_does_not_exist_changes_nothing(key: str, event: str) -> None:
    drive = begin(call("a", "†state.a"), call("b", "†state.b"))
    before = drive.observe()
    walk = drive.walk
    commands = {
        "completed": lambda: walk.completed(key, 1, NOW),
        "failed": lambda: walk.failed(key, CallError("x", "y"), NOW),
        "decide": lambda: walk.decide(key, "approve", "", NOW),
    }[event]()
    assert commands == []
    assert drive.observe() == before


def test_a_result_that_waits_for_a_call_not_yet_started_does_not_hold_up_a_drain() -> None:
    drive = begin(
        call("first", "†state.x"),
        call("later", "†state.l", x="†state.x"),
        call("push", "†state.l", "push"),
        results={"first": 1, "later": [0], "push": 5},
    )
    drive.perform(drive.walk.advance(NOW, draining=True))
    drive.finish("1:first")
    drive.finish("3:push")
    assert not drive.walk.running
    drive.carry_over()
    drive.finish_all()
    assert drive.walk.context.log.state()["l"] == [0, 5]
    assert list(drive.started) == ["1:first", "3:push", "2:later"]


def test_a_call_that_was_postponed_starts_again_in_its_turn_and_with_the_same_values() -> None:
    drive = Drive(row("two", [call("a", "†state.a", x=1), call("b", "†state.b")])["request"], {})
    drive.perform(drive.walk.advance(NOW, draining=True))
    first = drive.started.pop("1:a")
    drive.running.remove("1:a")
    drive.perform(drive.walk.postponed("1:a", NOW))
    assert drive.state("1:a") == "ready"
    assert "1:a" not in drive.started
    drive.perform(drive.walk.advance(NOW, draining=False))
    assert drive.started["1:a"] == first
    drive.finish_all()
    assert drive.final_statuses == ["completed"]


def test_a_walk_that_can_record_nothing_more_keeps_what_completed_and_fails_with_the_reason() -> None:
    plan = [call("a", "†state.a"), call("b", "†state.b"), call("c", "†state.c", x="†state.b")]
    made = row("four", [*plan, call("d", "†state.d", x="†state.a")], results={"a": 1})
    drive = Drive(made["request"], made["results"])
    drive.walk.postpones, drive.walk.work.task_steps = True, 1 << 60  # there is no time for d
    drive.finish("1:a")
    drive.perform(drive.walk.exhaust(CallError("LimitExceeded", "full"), NOW))
    assert drive.final_statuses == ["failed"]
    assert {id_: drive.state(id_) for id_ in ("1:a", "2:b", "3:c", "4:d")} == {
        "1:a": "completed", "2:b": "failed", "3:c": "skipped", "4:d": "skipped",
    }  # fmt: skip
    assert drive.walk.context.log.state() == {"a": 1}
    assert drive.walk.calls[drive.rank("2:b")].error == {"code": "LimitExceeded", "message": "full"}
    assert drive.walk.completed("2:b", 2, NOW) == []  # it comes too late


def test_people_are_asked_again_about_a_call_that_they_have_not_seen() -> None:
    drive = begin(call("a", "†state.a"), config={"approve": {"calls": True}})
    drive.perform(drive.walk.ask_again(["gone", "1:a"], NOW))
    assert drive.questions == ["1:a", "1:a"]
