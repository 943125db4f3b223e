"""The report of a child on its instances, and the messages that the run above makes of it."""

from __future__ import annotations

import json
from typing import Any

from acts.language.errors import CallError
from acts.machines.plan_run import instance_report
from acts.machines.walk import Walk
from acts.machines.walk_context import WalkContext
from acts.plan.validate import ValidatedPlan, validate_request
from acts.tree.child_requests import expand_template, split_into_children
from tests.property.drive import data_message, identify

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
            walk.failed(walk.nodes[rank].key, value, date)
        else:
            walk.completed(walk.nodes[rank].key, value, date)
    return walk, json.loads(json.dumps(instance_report(walk, edited=edited)))["a"]


def context_above(prepared: ValidatedPlan, item: Json, *provided: Json) -> WalkContext:
    """The context of the run above, in which the report on instance ``a`` has arrived."""
    context = WalkContext(split_into_children(prepared), [], [data_message(raw) for raw in provided])
    context.apply_child_report({"a": item})
    return context


def messages_above(prepared: ValidatedPlan, item: Json) -> list[Json]:
    return [message for _, message in context_above(prepared, item).instance_messages("a", item)]


FIRST = "2026-01-01T00:00:01.250Z"


def test_a_child_with_an_edited_plan_reports_the_calls_as_planned() -> None:
    """The run above has the plan as it was before the edit, and uses no more of it than the number of its Calls."""
    before = template({"_outputPath": "†state.x"}, {"_outputPath": "†state.y"})
    after = template({"_outputPath": "†state.l", "_outputMethod": "push", "x": "†state.y"}, {"_outputPath": "†state.y"})
    walk, item = walk_to_report(after, (0, 1, FIRST), (1, 2, FIRST), edited=True)
    planned = [n.planned for n in after.nodes]
    assert item["writes"] == [
        [1, "†state.y", FIRST, {"method": "set", "planned": planned[0]}],
        [0, "†state.l", FIRST, {"method": "push", "planned": planned[1]}, 2],
    ]  # fmt: skip
    assert messages_above(before, item) == walk.context.appended()
    assert context_above(before, item).log.state("a") == {"text": "one", "y": 1, "l": [2]}


def test_a_message_provided_meanwhile_does_not_undo_what_an_instance_wrote() -> None:
    prepared = template({"_outputPath": "†state.l", "_outputMethod": "push"})
    _, item = walk_to_report(prepared, (0, 1, FIRST))
    provided = {"type": "state", "state": {"l": "text"}}
    assert context_above(prepared, item, provided).log.state("a") == {"text": "one", "l": [1]}
