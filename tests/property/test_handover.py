"""What an agent hands to the plan of a tick is enough: walking that part gives what walking the whole gives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import event, example, given, reject
from hypothesis import strategies as st

from acts.language.errors import InvalidRequest
from acts.plan.validate import ValidatedPlan, validate_request
from acts.tree.child_requests import part_request
from tests.property.drive import Drive, many
from tests.strategies import MOST_CALLS, Case, cases, collisions, orders, render, tool
from tests.strategies import places as drawn_places

Json = Any
CHILD = {"model": "scripted:none"}


def without_instances(case: Case) -> Case:
    """The same plan in one context."""
    request = json.loads(json.dumps(case.request))
    kept = [m for m in request["context"] if "_instance" not in m]
    for call in kept[-1]["plan"]:
        call.pop("_instance", None)
    return Case({**request, "context": kept}, case.results)


def prepared_of(case: Case) -> ValidatedPlan:
    try:
        return validate_request(case.request)
    except InvalidRequest:
        reject()


def told(drive: Drive) -> dict[str, Json]:
    """All that an agent learns of a plan: states, outputs, errors, and the messages for its context."""
    seen = drive.observe()
    return {**{k: seen[k] for k in ("states", "paths", "errors", "appended")}, "started": drive.started}


def assert_the_part_gives_what_the_whole_gives(case: Case, order: list[int]) -> None:
    whole = prepared_of(case)
    part = json.loads(json.dumps(part_request(whole, whole.create_log(), whole.nodes, CHILD, is_editable=False)))
    drives = [Drive(whole, case.results), Drive(part, case.results)]
    for drive in drives:
        drive.finish_all(order)
    event(f"states: {sorted(set(drives[0].observe()['states'].values()))}")
    assert [n.id for n in drives[1].walk.nodes] == [n.id for n in drives[0].walk.nodes]
    assert told(drives[1]) == told(drives[0])


@st.composite
def nested(draw: st.DrawFn) -> Case:
    """Few places, deep values and lists on the way: what a frame must not change."""
    deep = st.sampled_from([
        None, "s", 3, [], [1], [{"a": [1]}, 2], {}, {"a": None}, {"a": {"b": [1, {"a": 2}]}}, {"a": [], "b": "t"},
        {"0": {"a": 1}}, {"a": "s"}, [[1], {"b": 2}], {"b": {"a": {"a": [0]}}},
    ])  # fmt: skip
    tails = st.lists(st.sampled_from(["a", "b", "0", "1"]), max_size=4).map(tuple)
    where = tails.map(lambda t: ("state", *t)) | drawn_places()
    plan, results = [], {}
    for position in range(draw(st.integers(1, 4))):
        method = draw(st.sampled_from(["set", "merge", "assign", "push", "concat"]))
        call: dict[str, Json] = {"_tool": "act", "_outputPath": render(draw(where)), "_outputMethod": method}
        if draw(st.booleans()):
            call["_outputPath"] += f" || {render(draw(where))}.error"
        if draw(st.booleans()):
            call["x"] = f"{render(draw(where))} || {render(draw(where))} || †data.z"
        if draw(st.booleans()):
            call["_scopes"] = [render(w) for w in draw(st.lists(where, min_size=1, max_size=3))]
        plan.append(call)
        fit = {"concat": st.sampled_from([[7], "t"]), "merge": deep, "assign": deep, "push": deep, "set": deep}
        failed = {"$fail": {"type": "Boom", "message": "it broke"}}
        results[f"{position + 1}:act"] = draw(fit[method]) if draw(st.integers(0, 5)) else failed
    context = [
        {"type": "data", "z": 0},
        *({"type": "state", "state": draw(deep)} for _ in range(draw(st.integers(0, 2)))),
    ]
    if draw(st.booleans()):
        context.append(
            {"type": "state", "schema": {"properties": {"a": draw(st.sampled_from([{}, {"type": "string"}]))}}}
        )
    tools = {"type": "tool", "tool": tool("act")}
    return Case({"config": {}, "context": [tools, *context, {"type": "plan", "plan": plan}]}, results)


@many(40)
@given(st.one_of(cases(instances=False), collisions().map(without_instances), nested()), orders())
def test_the_part_that_a_plan_reads_gives_what_the_whole_gives(case: Case, order: list[int]) -> None:
    assert_the_part_gives_what_the_whole_gives(case, order)


# A global Call writes what an instance's Call reads: what was global before must not be handed over as the instance's
OVERWRITTEN = Case(
    {
        "config": {"model": "scripted:none"},
        "context": [
            {"type": "tool", "tool": tool("act")},
            {"type": "state", "state": {"a": "old"}},
            {"type": "state", "state": {"own": 1}, "_instance": "A"},
            {
                "type": "plan",
                "plan": [
                    {"_tool": "act", "_outputPath": "†state.a"},
                    {"_tool": "act", "_outputPath": "†state.b", "x": "†state.a", "_instance": "A"},
                ],
            },
        ],
    },
    {"1:act": "new", "2:act": "read"},
)


@pytest.mark.long
@many(40)
@example(OVERWRITTEN, list(range(MOST_CALLS)))
@given(cases(instances=True), orders())
def test_with_instances_the_part_gives_what_the_whole_gives(case: Case, order: list[int]) -> None:
    assert_the_part_gives_what_the_whole_gives(case, order)
