"""An edit of a plan that runs: taken, it gives what the edited plan gives; refused, it changes nothing."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, event, given, reject, settings
from hypothesis import strategies as st

from acts.language.errors import DecisionRefused, InvalidRequest
from acts.machines.call_state import SETTLED
from acts.plan.validate import ValidatedPlan, validate_request
from tests import oracle
from tests.property.drive import NOW, Drive, assert_equal_to_the_serial_run
from tests.strategies import (
    MOST_CALLS,
    Case,
    cases,
    collisions,
    held_places,
    methods,
    near,
    orders,
    output_text,
    outputs,
    parameters,
    render,
    results,
    values,
)

Json = Any


def without_instances(case: Case) -> Case:
    *context, last = [m for m in case.request["context"] if "_instance" not in m]
    plan = [{k: v for k, v in c.items() if k != "_instance"} for c in last["plan"]]
    return Case({**case.request, "context": [*context, {**last, "plan": plan}]}, case.results)


plans = st.one_of(cases(instances=False), collisions().map(without_instances))
many = settings(
    max_examples=int(os.environ.get("ACTS_EXAMPLES", "40")),
    deadline=None,  # a busy machine is not a slow engine
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@dataclass
class Edit:
    """New forms of Calls by position, how many are cut off at the end, and Calls that are added; and their results."""

    changed: dict[int, dict[str, Json]] = field(default_factory=dict)
    cut: int = 0
    added: list[dict[str, Json]] = field(default_factory=list)
    results: dict[int, Json] = field(default_factory=dict)


@st.composite
def calls(draw: st.DrawFn, case: Case) -> tuple[dict[str, Json], Json]:
    """A Call that meets the others, and what it returns."""
    pool = held_places(case.request["context"]) * 2
    for planned in case.request["context"][-1]["plan"]:
        texts = [planned[k] for k in ("_outputPath", "_errorPath") if k in planned]
        pool += [where for text in texts for where in oracle.paths(oracle.parse(text))]
    latent = "think" in case.request["context"][0]["tool"] and draw(st.integers(0, 5)) == 0
    call: dict[str, Json] = {"_tool": "think" if latent else "act"}
    options = draw(outputs())[:1] if latent else draw(st.one_of(outputs(), near(pool).map(lambda w: [[w]])))
    if latent or draw(st.integers(0, 9)):
        call["_outputPath"] = output_text(options)
        call["_outputMethod"] = draw(methods)
    if latent and draw(st.booleans()):
        call["_output"] = draw(st.sampled_from([0, {"a": 1}, [], "s"]))
    if not latent and draw(st.integers(0, 3)) == 0:
        call["_errorPath"] = render(draw(near(pool)))
    call.update(draw(parameters(pool)))
    if draw(st.integers(0, 3)) == 0:
        call["_scopes"] = [render(draw(near(pool)))]
    if latent:
        return call, draw(values)
    return call, draw(results(call, options if "_outputPath" in call else []))


@st.composite
def edits(draw: st.DrawFn, case: Case) -> Edit:
    """Of one Call, or of the plan."""
    count = len(case.request["context"][-1]["plan"])
    edit = Edit()
    whole = draw(st.booleans())
    for position in draw(st.sets(st.integers(0, count - 1), max_size=2 if whole else 1, min_size=0 if whole else 1)):
        edit.changed[position], edit.results[position] = draw(calls(case))
    if whole:
        edit.cut = draw(st.integers(0, 1))
        for _ in range(draw(st.integers(0, 2))):
            added, edit.results[count - edit.cut + len(edit.added)] = draw(calls(case))
            edit.added.append(added)
    return edit


@st.composite
def edited_cases(draw: st.DrawFn) -> tuple[Case, Edit]:
    case = draw(plans)
    return case, draw(edits(case))


def edited(case: Case, edit: Edit, config: dict[str, Json]) -> tuple[dict[str, Json], dict[str, Json]]:
    """The edited Request, and its results."""
    *context, last = case.request["context"]
    plan = [edit.changed.get(i, c) for i, c in enumerate(last["plan"])]
    plan = [*plan[: len(plan) - edit.cut], *edit.added]
    found = {f"{i + 1}:{c['_tool']}": edit.results.get(i) for i, c in enumerate(plan)}
    kept = {id_: r for id_, r in case.results.items() if int(id_.partition(":")[0]) - 1 not in edit.results}
    request = {**case.request, "config": config, "context": [*context, {**last, "plan": plan}]}
    return request, {**found, **kept}


def prepared(request: dict[str, Json]) -> ValidatedPlan:
    try:
        return validate_request(request)
    except InvalidRequest:
        reject()


def step(drive: Drive, order: list[int], *, approving: bool) -> bool:
    """Approve one Call, or let one report; False when there is neither."""
    waiting = [id_ for id_ in drive.walk.ids if drive.state(id_) == "awaiting"]
    if waiting and (approving or not drive.running):
        id_ = min(waiting, key=lambda id_: order.index(drive.node(id_).index % MOST_CALLS))
        drive.perform(drive.walk.decide(drive.rank(id_), "approve", "", NOW))
    elif drive.running:
        drive.finish(min(drive.running, key=lambda id_: order.index(drive.node(id_).index % MOST_CALLS)))
    else:
        return False
    return True


def to_the_end(drive: Drive, order: list[int]) -> None:
    while step(drive, order, approving=True):
        pass
    assert drive.walk.open == 0
    assert len(drive.over) == 1


def known(drive: Drive) -> dict[str, Json]:
    return {"seen": drive.seen(), "runs": copy.deepcopy(drive.walk.runs), "commands": list(drive.commands)}


def begun_calls(drive: Drive) -> dict[str, Json]:
    """What is known of each Call that has started or is settled."""
    walk = drive.walk
    return {
        n.id: (n.planned, r.state, r.error, r.outcome, r.written)
        for n, r in zip(walk.nodes, walk.runs, strict=True)
        if r.state in SETTLED or r.state == "running"
    }


approvals = st.sampled_from([{}, {"calls": True}, {"calls": True}, {"calls": ["act"]}, {"scopes": True}])


@many
@given(edited_cases(), orders(), st.lists(st.booleans(), max_size=MOST_CALLS), approvals, st.booleans())
def test_an_edit_gives_what_the_edited_plan_gives_or_changes_nothing(
    pair: tuple[Case, Edit],
    order: list[int],
    script: list[bool],
    approve: dict[str, Json],
    paused: bool,  # noqa: FBT001
) -> None:
    case, edit = pair
    config = {**case.request["config"], "approve": approve}
    request = {**case.request, "config": config}
    new_request, new_results = edited(case, edit, config)
    drive = Drive(prepared(request), case.results)
    new = prepared(new_request)
    for approving in script:
        step(drive, order, approving=approving)
    if paused:
        drive.perform(drive.walk.pause())
    before, started, log = known(drive), begun_calls(drive), dict(drive.started)
    running = list(drive.running)
    try:
        walk, commands = drive.walk.changed_plan(new, NOW)
    except DecisionRefused:
        event("refused")
        assert known(drive) == before
        drive.perform(drive.walk.resume())
        to_the_end(drive, order)
        assert_equal_to_the_serial_run(drive, oracle.run(request, case.results))
        return
    event(f"taken with {min(len(started), 3)} started")
    drive.walk, drive.prepared, drive.results, drive.over = walk, new, new_results, []
    after = begun_calls(drive)
    for id_, (planned, state, *_) in started.items():
        assert after[id_][0] == planned
        assert after[id_][1] == state or state == "running"
    assert drive.running == running
    drive.perform(commands)
    if paused:
        assert drive.running == running
    drive.perform(drive.walk.resume())
    to_the_end(drive, order)
    assert {id_: drive.started[id_] for id_ in log} == log
    assert_equal_to_the_serial_run(drive, oracle.run(new_request, new_results))


@many
@given(edited_cases(), orders(), st.lists(st.booleans(), max_size=MOST_CALLS))
def test_what_was_changed_is_confirmed_whatever_the_settings_are(
    pair: tuple[Case, Edit], order: list[int], script: list[bool]
) -> None:
    """An edit is not an approval: a Call that it brought in runs after somebody approved it."""
    case, edit = pair
    config = case.request["config"]
    new_request, new_results = edited(case, edit, config)
    drive = Drive(prepared({**case.request, "config": config}), case.results)
    new = prepared(new_request)
    for approving in script:
        step(drive, order, approving=approving)
    try:
        drive.walk, commands = drive.walk.changed_plan(new, NOW)
    except DecisionRefused:
        reject()
    drive.prepared, drive.results, drive.over, drive.asked = new, new_results, [], []
    drive.perform(commands)
    brought_in = {*edit.changed, *range(len(new.nodes) - len(edit.added), len(new.nodes))}
    old = dict(enumerate(case.request["context"][-1]["plan"]))
    brought_in = {i for i in brought_in if i < len(new.nodes) and new_request["context"][-1]["plan"][i] != old.get(i)}
    to_the_end(drive, order)
    for id_ in drive.started:
        if drive.node(id_).index in brought_in:
            assert id_ in drive.asked, f"{id_} ran and nobody was asked"


@many
@given(edited_cases(), orders(), st.lists(st.booleans(), max_size=MOST_CALLS), approvals)
def test_an_edited_plan_is_carried_over_as_it_is(
    pair: tuple[Case, Edit], order: list[int], script: list[bool], approve: dict[str, Json]
) -> None:
    """The walk of an edited plan becomes JSON at every quiet moment, and is taken up again."""
    case, edit = pair
    config = {**case.request["config"], "approve": approve}
    new_request, new_results = edited(case, edit, config)
    drive = Drive(prepared({**case.request, "config": config}), case.results)
    new = prepared(new_request)
    for approving in script:
        step(drive, order, approving=approving)
    try:
        drive.walk, commands = drive.walk.changed_plan(new, NOW)
    except DecisionRefused:
        reject()
    drive.prepared, drive.results, drive.over = new, new_results, []
    drive.perform(commands)
    going = True
    while going:
        if drive.walk.quiet and drive.walk.open:
            drive.carry_over()
        going = step(drive, order, approving=True)
    assert drive.walk.open == 0
    assert_equal_to_the_serial_run(drive, oracle.run(new_request, new_results))


@many
@given(plans, orders(), st.lists(st.booleans(), max_size=MOST_CALLS), approvals)
def test_an_edit_that_changes_nothing_is_taken_at_any_time(
    case: Case, order: list[int], script: list[bool], approve: dict[str, Json]
) -> None:
    request = {**case.request, "config": {**case.request["config"], "approve": approve}}
    drive = Drive(prepared(request), case.results)
    for approving in script:
        step(drive, order, approving=approving)
    asked = list(drive.asked)
    states = drive.seen()["states"]
    drive.walk, commands = drive.walk.changed_plan(validate_request(request), NOW)
    drive.over = []
    drive.perform(commands)
    assert drive.seen()["states"] == states
    assert set(drive.asked) == set(asked), "nobody is asked about anything new"
    to_the_end(drive, order)
    assert_equal_to_the_serial_run(drive, oracle.run(request, case.results))
