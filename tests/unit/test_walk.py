"""The walk, event by event. The rows of ``tests/cases.py`` hold small plans and their expected outcomes."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.errors import CallError, EngineError, InvalidRequest
from acts.language.request_reader import parse_request
from acts.language.values import UNKNOWN, get
from acts.plan.context_log import Log
from tests import oracle
from tests.cases import ROWS, Row, call, fails, row, state
from tests.property.drive import NOW, Drive, assert_equal_to_the_serial_run, begin, data_message, plain, views


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
        assert walk.state() == expect["state"]
    for instance, view in expect.get("instances", {}).items():
        assert walk.state(instance) == view, instance
    for id_, parameters in expect.get("started", {}).items():
        assert drive.started[id_][0] == parameters, id_
    for id_, context in expect.get("sees", {}).items():
        assert drive.started[id_][1] == context, id_
    if "written" in expect:
        assert [write_of(m) for m in walk.appended()] == expect["written"]


@pytest.mark.parametrize("case", ROWS, ids=lambda r: r["name"])
def test_a_row_has_the_same_outcome_in_every_order(case: Row) -> None:
    expected = oracle.run(case["request"], case["results"])
    for order in orders(len(case["expect"]["states"])):
        drive = Drive(case["request"], case["results"])
        drive.finish_all(order)
        assert_as_expected(drive, case["expect"])
        assert_equal_to_the_serial_run(drive, expected)


@pytest.mark.parametrize("case", ROWS, ids=lambda r: r["name"])
def test_the_context_of_a_row_folds_again_to_the_same_view(case: Row) -> None:
    drive = Drive(case["request"], case["results"])
    drive.finish_all()
    data = [m for m in case["request"]["context"] if m["type"] in oracle.DATA_LIKE]
    log = Log([data_message(m) for m in [*data, *drive.walk.appended()]])
    assert log.problems == []
    assert plain(views(log, drive.prepared)) == plain(drive.observe()["views"])


def test_rows_are_plain_json_with_names_of_their_own() -> None:
    assert json.loads(json.dumps(ROWS)) == ROWS
    names = [r["name"] for r in ROWS]
    assert len(set(names)) == len(names)
    for r in ROWS:
        tools = [c["_tool"] for c in r["request"]["context"][-1]["plan"]]
        assert len(set(tools)) == len(tools), r["name"]


# -- starting ------------------------------------------------------------------------


def test_all_ready_calls_start_at_once_in_plan_order() -> None:
    drive = begin(*(call(name, f"†state.{name}") for name in "cab"))
    assert list(drive.started) == ["1:c", "2:a", "3:b"]


def test_a_call_starts_when_its_own_dependencies_have_settled_not_when_a_wave_has() -> None:
    drive = begin(call("a", "†state.a"), call("b", "†state.b"), call("c", "†state.c", x="†state.a"), results={"a": 1})
    drive.finish("1:a")
    assert drive.running == ["2:b", "3:c"]


def test_max_parallel_holds_calls_back_in_plan_order() -> None:
    drive = begin(*(call(name, f"†state.{name}") for name in "abcd"), config={"maxParallel": 2})
    assert drive.running == ["1:a", "2:b"]
    assert [drive.state(i) for i in ("3:c", "4:d")] == ["ready", "ready"]
    drive.finish("2:b")
    assert drive.running == ["1:a", "3:c"]


def test_an_empty_plan_is_over_at_once() -> None:
    assert Drive({"context": [{"type": "plan", "plan": []}]}, {}).final_statuses == ["completed"]


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


def test_parameters_are_checked_strictly_before_anything_runs() -> None:
    case = row("", [call("a", "†state.a"), call("b", "†state.b", n="†state.a")], results={"a": "seven", "b": 1})
    case["request"]["context"][0]["tool"]["b"]["properties"]["n"] = {"type": "integer"}
    drive = Drive(case["request"], case["results"])
    drive.finish_all()
    assert "2:b" not in drive.started
    assert drive.walk.calls[1].error is not None
    assert drive.walk.calls[1].error["code"] == "SchemaMismatch"
    assert drive.final_statuses == ["failed"]


def test_a_result_that_breaks_its_output_schema_fails_the_call() -> None:
    case = row("", [call("a", "†state.a", _errorPath="†state.e")], results={"a": "seven"})
    case["request"]["context"][0]["tool"]["a"]["properties"]["_output"] = {"type": "integer"}
    drive = Drive(case["request"], case["results"])
    drive.finish_all()
    assert drive.walk.state()["e"]["code"] == "SchemaMismatch"
    assert "a" not in drive.walk.state()


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), "\ud800", {"\udfff": 1}, {"s": {1, 2}}, b"bytes"],
    ids=repr,
)
def test_a_result_that_is_not_json_fails_its_call_and_nothing_else(value: Any) -> None:
    drive = begin(call("a", "†state.a", _errorPath="†state.e"), call("b", "†state.b"), results={"b": 1})
    drive.running.remove("1:a")
    drive.perform(drive.walk.completed(drive.rank("1:a"), value, NOW))
    drive.finish_all()
    assert drive.walk.state()["e"]["code"] == "NotJson"
    assert drive.final_statuses == ["completed"]
    json.dumps(drive.walk.appended(), ensure_ascii=False, allow_nan=False).encode()


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
    drive.perform(drive.walk.completed(0, reply, NOW))
    assert len(drive.final_statuses) == 1
    assert drive.state("1:a") in ("completed", "failed")
    sent = json.dumps(
        [drive.walk.appended(), drive.walk.calls[0].error], ensure_ascii=False, allow_nan=False, default=repr
    )
    sent.encode()


@pytest.mark.parametrize("depth", [50, 90, *range(93, 102), 10_000])
def test_a_result_is_either_refused_or_can_stand_in_the_context_of_another_request(depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    drive = begin(call("a", "†state.deep.er.still"))
    drive.perform(drive.walk.completed(0, value, NOW))
    if drive.final_statuses == ["completed"]:
        parse_request({"context": drive.walk.appended()})
    else:
        assert drive.walk.calls[0].error is not None
        assert drive.walk.calls[0].error["code"] == "NotJson"


def test_paths_that_lie_in_each_other_are_refused_or_fold_again_alike() -> None:
    case = row("", [call("a", "†state.l && †state.l.x")], results={"a": [1]})
    try:
        drive = Drive(case["request"], case["results"])
    except InvalidRequest:
        return
    drive.finish_all()
    log = Log([data_message(m) for m in drive.walk.appended()])
    assert log.problems == []
    assert plain(views(log, drive.prepared)) == plain(drive.observe()["views"])


# -- events at the wrong time -------------------------------------------------------------


@pytest.mark.parametrize("rank", [-1, -2, 2, 10**9])
@pytest.mark.parametrize("event", ["completed", "failed", "detached", "decide"])
def test_an_event_for_a_call_that_does_not_exist_changes_nothing(rank: int, event: str) -> None:
    drive = begin(call("a", "†state.a"), call("b", "†state.b"))
    before = drive.observe()
    walk = drive.walk
    commands = {
        "completed": lambda: walk.completed(rank, 1, NOW),
        "failed": lambda: walk.failed(rank, CallError("x", "y"), NOW),
        "detached": lambda: walk.detached(rank, NOW),
        "decide": lambda: walk.decide(rank, "approve", "", NOW),
    }[event]()
    assert commands == []
    assert drive.observe() == before


def test_a_result_of_a_detached_call_is_dropped() -> None:
    drive = begin(call("a"), call("b", "†state.b"))
    drive.walk.detached(0, NOW)
    assert drive.walk.completed(0, {"late": 1}, NOW) == []
    assert drive.walk.failed(0, CallError("x", "late"), NOW) == []
    assert drive.state("1:a") == "detached"


def test_a_fire_and_forget_call_that_reports_a_value_does_not_break_the_walk() -> None:
    drive = begin(call("a"), call("b", "†state.b"), results={"b": 1})
    drive.running.remove("1:a")
    drive.perform(drive.walk.completed(0, {"unexpected": 1}, NOW))
    drive.finish_all()
    assert drive.walk.state() == {"b": 1}


# -- pause, drain, continue-as-new ---------------------------------------------------------


def test_a_paused_walk_takes_results_and_starts_nothing() -> None:
    drive = begin(call("a", "†state.a"), call("b", "†state.b", x="†state.a"), results={"a": 1, "b": 2})
    drive.perform(drive.walk.pause())
    drive.finish("1:a")
    assert drive.running == []
    assert drive.state("1:a") == "completed"
    drive.perform(drive.walk.resume(NOW))
    assert drive.running == ["2:b"]


def test_a_pause_is_carried_over() -> None:
    drive = begin(call("a", "†state.a"), call("b", "†state.b", x="†state.a"), results={"a": 1, "b": 2})
    drive.perform(drive.walk.pause())
    drive.finish("1:a")
    drive.carry_over()
    assert drive.running == []
    drive.perform(drive.walk.resume(NOW))
    drive.finish_all()
    assert drive.walk.state() == {"a": 1, "b": 2}


def test_a_snapshot_is_refused_while_something_runs() -> None:
    with pytest.raises(EngineError):
        begin(call("a", "†state.a")).walk.snapshot()


@pytest.mark.parametrize("failing", [0, 3])
def test_more_than_ten_calls_are_carried_over_in_plan_order(failing: int) -> None:
    """Ranks become keys of JSON; sorted as text, "10" comes before "9", and before the "3" that starts the list."""
    names = [f"t{i}" for i in range(12)]
    plan = [call(name, "†state.l", "push") for name in names]
    results = {n: fails() if i < failing else i for i, n in enumerate(names)} | {"end": 1}
    drive = begin(*plan, call("end", "†state.end", x="†state.l"), results=results)
    drive.perform(drive.walk.drain(NOW, on=True))
    drive.finish_all()
    drive.carry_over()
    drive.finish_all()
    assert drive.walk.state()["l"] == list(range(failing, 12))
    assert drive.started["13:end"][0] == {"x": list(range(failing, 12))}


def test_a_result_that_waits_for_a_call_not_yet_started_does_not_hold_up_a_drain() -> None:
    drive = begin(
        call("first", "†state.x"),
        call("later", "†state.l", x="†state.x"),
        call("push", "†state.l", "push"),
        results={"first": 1, "later": [0], "push": 5},
    )
    drive.perform(drive.walk.drain(NOW, on=True))
    drive.finish("1:first")
    drive.finish("3:push")
    assert drive.walk.quiet
    drive.carry_over()
    drive.finish_all()
    assert drive.walk.state()["l"] == [0, 5]
    assert list(drive.started) == ["1:first", "3:push", "2:later"]


# -- approvals ------------------------------------------------------------------------------


def test_an_approved_call_runs_and_a_rejected_one_does_not() -> None:
    drive = begin(
        call("a", "†state.a"),
        call("b", "†state.b"),
        call("c", "†state.c", x="†state.b"),
        config={"approve": {"calls": ["a", "b"]}},
        results={"a": 1},
    )
    assert drive.questions == ["1:a", "2:b"]
    assert drive.running == []
    drive.perform(drive.walk.decide(0, "approve", "", NOW))
    drive.perform(drive.walk.decide(1, "reject", "too dear", NOW))
    assert drive.running == ["1:a"]
    drive.finish_all()
    assert [drive.state(i) for i in ("1:a", "2:b", "3:c")] == ["completed", "rejected", "skipped"]
    assert drive.walk.calls[1].error == {"code": "rejected", "message": "too dear"}
    assert drive.final_statuses == ["rejected"]


def test_an_approval_is_carried_over() -> None:
    drive = begin(call("a", "†state.a"), config={"approve": {"calls": True}}, results={"a": 1})
    drive.perform(drive.walk.drain(NOW, on=True))
    drive.perform(drive.walk.decide(0, "approve", "", NOW))
    drive.carry_over()
    assert drive.questions == ["1:a"]
    assert drive.running == ["1:a"]


def test_a_wait_for_a_human_is_carried_over() -> None:
    drive = begin(call("a", "†state.a"), config={"approve": {"calls": True}}, results={"a": 1})
    drive.carry_over()
    assert drive.questions == ["1:a", "1:a"]
    drive.perform(drive.walk.decide(0, "approve", "", NOW))
    assert drive.running == ["1:a"]


# -- cancelling ------------------------------------------------------------------------------


def test_cancelling_settles_what_has_not_started_and_keeps_what_is_done() -> None:
    drive = begin(
        call("a", "†state.a"), call("b", "†state.b"), call("c", "†state.c", x="†state.b"), results={"a": 1, "b": 2}
    )
    drive.finish("1:a")
    drive.perform(drive.walk.cancel(NOW))
    assert [drive.state(i) for i in ("1:a", "2:b", "3:c")] == ["completed", "running", "cancelled"]
    drive.running.remove("2:b")
    drive.perform(drive.walk.failed(1, CallError("cancelled", "stopped"), NOW))
    assert drive.state("2:b") == "cancelled"
    assert drive.final_statuses == ["cancelled"]
    assert drive.walk.state() == {"a": 1}


# -- no room -------------------------------------------------------------------------


def test_a_call_that_was_postponed_starts_again_in_its_turn_and_with_the_same_values() -> None:
    drive = Drive(row("two", [call("a", "†state.a", x=1), call("b", "†state.b")])["request"], {})
    drive.perform(drive.walk.drain(NOW, on=True))
    first = drive.started.pop("1:a")
    drive.running.remove("1:a")
    drive.perform(drive.walk.postponed(drive.rank("1:a"), NOW))
    assert drive.state("1:a") == "ready"
    assert "1:a" not in drive.started
    drive.perform(drive.walk.drain(NOW, on=False))
    assert drive.started["1:a"] == first
    drive.finish_all()
    assert drive.final_statuses == ["completed"]


def test_a_walk_that_can_record_nothing_more_keeps_what_completed_and_fails_with_the_reason() -> None:
    plan = [call("a", "†state.a"), call("b", "†state.b"), call("c", "†state.c", x="†state.b")]
    made = row("three", plan, results={"a": 1})
    drive = Drive(made["request"], made["results"])
    drive.finish("1:a")
    drive.perform(drive.walk.exhaust(CallError("LimitExceeded", "full"), NOW))
    assert drive.final_statuses == ["failed"]
    assert {id_: drive.state(id_) for id_ in ("1:a", "2:b", "3:c")} == {
        "1:a": "completed", "2:b": "failed", "3:c": "skipped",
    }  # fmt: skip
    assert drive.walk.state() == {"a": 1}
    assert drive.walk.calls[drive.rank("2:b")].error == {"code": "LimitExceeded", "message": "full"}
    assert drive.walk.completed(drive.rank("2:b"), 2, NOW) == []  # it comes too late
