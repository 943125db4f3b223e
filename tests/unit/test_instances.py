"""The report of a child on its instances, and the messages that the run above makes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts.language.errors import CallError
from acts.language.request_reader import parse_message
from acts.machines.instance_results import calls_by_instance, instance_messages, instance_report, replay_into_log
from acts.machines.walk import Walk
from acts.plan.validate import ValidatedPlan, validate_request
from acts.tree.batches import expand_template
from tests.property.drive import identify

Json = Any

TOOL = {"type": "tool", "tool": {"properties": {"_tool": {"const": "t"}, "_activity": {"const": "t"},
        "_outputPath": {"type": "string"}, "_outputMethod": {"type": "string"}, "x": True}}}  # fmt: skip


def template(*calls: Json) -> ValidatedPlan:
    own = {"type": "state", "state": {"text": "one"}, "_instance": "a"}
    plan = [{"_tool": "t", **call} for call in calls]
    return validate_request({"config": {}, "context": [TOOL, own, {"type": "plan", "plan": plan}]})


def walk_to_report(prepared: ValidatedPlan, *results: tuple[int, Json, str], edited: bool = False) -> tuple[Walk, Json]:
    """The walk of instance ``a``, whose Calls report ``(rank, result, date)`` in this order, and its report."""
    walk = Walk(expand_template(prepared, ["a"]), identify)
    walk.begin("2026-01-01T00:00:00.000Z")
    for rank, value, date in results:
        if isinstance(value, CallError):
            walk.failed(rank, value, date)
        else:
            walk.completed(rank, value, date)
    return walk, json.loads(json.dumps(instance_report(walk, edited=edited)))["a"]


FIRST = "2026-01-01T00:00:01.250Z"


@pytest.mark.parametrize(
    ("dates", "written"),
    [
        ((FIRST, FIRST), [FIRST, 0]),
        ((FIRST, "2026-01-01T00:00:02.000Z"), [FIRST, 750]),
        (("2026-01-01T00:00:02.000Z", FIRST), ["2026-01-01T00:00:02.000Z", -750]),
        ((FIRST, "2027-12-31T23:59:59.999Z"), [FIRST, 63_071_998_749]),
        ((FIRST, "2026-01-01T00:00:02Z"), [FIRST, "2026-01-01T00:00:02Z"]),  # not in the form of a walk's dates
        (("then", "now"), ["then", "now"]),
    ],
)
def test_dates_are_reported_as_milliseconds_and_restored(dates: tuple[str, str], written: list[Json]) -> None:
    prepared = template({"_outputPath": "†state.x"}, {"_outputPath": "†state.y"})
    walk, item = walk_to_report(prepared, *((rank, rank, date) for rank, date in enumerate(dates)))
    assert item["written"] == written
    messages = instance_messages(calls_by_instance(prepared), "a", item)
    assert [m for _, m in messages] == walk.appended()
    assert [m["_date"] for _, m in messages] == list(dates)


def test_values_that_the_state_does_not_show_are_reported() -> None:
    prepared = template(
        {"_outputPath": "†state.x"}, {"_outputPath": "†state.x"}, {"_outputPath": "†notes"}, {"_outputPath": "†state.z"}
    )
    why = CallError("broken", "it broke")
    walk, item = walk_to_report(prepared, (3, why, FIRST), (0, 1, FIRST), (1, 2, FIRST), (2, "n", FIRST))
    assert item["written"] == [[0, FIRST, [1]], 0, [0, 0, ["n"]], None]
    assert [m for _, m in instance_messages(calls_by_instance(prepared), "a", item)] == walk.appended()


def test_messages_come_in_plan_order_though_calls_are_listed_otherwise() -> None:
    prepared = template({"_outputPath": "†state.x", "x": "†state.y"}, {"_outputPath": "†state.y"})
    assert [n.index for n in prepared.nodes] == [1, 0]
    walk, item = walk_to_report(prepared, (0, 1, FIRST), (1, 2, FIRST))
    assert [c["id"] for c in item["calls"]] == ["1:t", "2:t"]
    messages = instance_messages(calls_by_instance(prepared), "a", item)
    assert [m["_outputPath"] for _, m in messages] == ["†state.y", "†state.x"]
    assert [m for _, m in messages] == walk.appended()


def test_a_child_with_an_edited_plan_reports_each_write_in_full() -> None:
    """The run above has the plan as it was before the edit, and uses no more of it than the number of its Calls."""
    before = template({"_outputPath": "†state.x"}, {"_outputPath": "†state.y"})
    after = template({"_outputPath": "†state.l", "_outputMethod": "push", "x": "†state.y"}, {"_outputPath": "†state.y"})
    walk, item = walk_to_report(after, (0, 1, FIRST), (1, 2, FIRST), edited=True)
    planned = [n.planned for n in after.nodes]
    assert item["made"] == [[1, "†state.y", "set", planned[0], FIRST], [0, "†state.l", "push", planned[1], FIRST, 2]]
    assert [m for _, m in instance_messages(calls_by_instance(before), "a", item)] == walk.appended()
    log = before.create_log()
    replay_into_log(log, calls_by_instance(before), "a", item)
    assert log.read_kind("state", instance="a") == {"text": "one", "y": 1, "l": [2]}


def test_a_message_provided_meanwhile_does_not_undo_what_an_instance_wrote() -> None:
    prepared = template({"_outputPath": "†state.l", "_outputMethod": "push"})
    _, item = walk_to_report(prepared, (0, 1, FIRST))
    log = prepared.create_log()
    assert log.fold(parse_message({"type": "state", "state": {"l": "text"}})) is None
    replay_into_log(log, calls_by_instance(prepared), "a", item)
    assert log.read_kind("state", instance="a") == {"text": "one", "l": [1]}
