"""An edit of a running plan: if accepted, the result is that of the edited plan; if refused, nothing changes."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import event, given, reject
from hypothesis import strategies as st

from acts.language.errors import DecisionRefused, InvalidRequest
from acts.language.messages import read_request
from acts.machines.call_state import SETTLED
from acts.plan.validate import ValidatedPlan, is_template, validate_parsed, validate_request
from tests import oracle
from tests.property.drive import NOW, Drive, assert_equal_to_the_serial_run, many
from tests.strategies import (
    INSTANCES,
    MOST_CALLS,
    Case,
    held_places,
    methods,
    near,
    orders,
    output_text,
    outputs,
    parameters,
    plans,
    render,
    results_of,
    tool,
    values,
)

Json = Any


@dataclass
class Edit:
    """What replaces Calls, by position; how many are cut off at the end; Calls to add; the results of all these."""

    changed: dict[int, dict[str, Json]] = field(default_factory=dict)
    cut: int = 0
    added: list[dict[str, Json]] = field(default_factory=list)
    results: dict[int, Json] = field(default_factory=dict)


@st.composite
def calls(draw: st.DrawFn, case: Case) -> tuple[dict[str, Json], Json]:
    """A Call whose paths overlap those of the others, and what it returns."""
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
    instances = [i for i in INSTANCES if any(m.get("_instance") == i for m in case.request["context"])]
    if instances and draw(st.booleans()):
        call["_instance"] = draw(st.sampled_from(instances))
    if draw(st.integers(0, 3)) == 0:
        call["_scopes"] = [render(draw(near(pool)))]
    if latent:
        return call, draw(values)
    return call, draw(results_of(call, options if "_outputPath" in call else []))


@st.composite
def edits(draw: st.DrawFn, case: Case) -> Edit:
    """An edit of one Call, or of the whole plan."""
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


def apply_edit(case: Case, edit: Edit, config: dict[str, Json]) -> tuple[dict[str, Json], dict[str, Json]]:
    """The edited Request, and the results of its Calls."""
    *context, last = case.request["context"]
    plan = [edit.changed.get(i, c) for i, c in enumerate(last["plan"])]
    plan = [*plan[: len(plan) - edit.cut], *edit.added]
    new_results = {f"{i + 1}:{c['_tool']}": edit.results.get(i) for i, c in enumerate(plan)}
    same_results = {id_: r for id_, r in case.results.items() if int(id_.partition(":")[0]) - 1 not in edit.results}
    request = {**case.request, "config": config, "context": [*context, {**last, "plan": plan}]}
    return request, {**new_results, **same_results}


def prepared(request: dict[str, Json]) -> ValidatedPlan:
    """The validated plan; invalid ones and templates are put aside."""
    try:
        plan = validate_request(request)
    except InvalidRequest:
        reject()
    if is_template(plan.request, plan.nodes):
        reject()
    return plan


def step(drive: Drive, order: list[int], *, approving: bool) -> bool:
    """Approve a Call or let one report; False when none awaits approval and none runs."""
    awaiting = [id_ for id_ in drive.walk.by_key if drive.state(id_) == "awaiting"]
    if awaiting and (approving or not drive.running):
        id_ = min(awaiting, key=lambda id_: order.index(drive.node(id_).index % MOST_CALLS))
        drive.perform(drive.walk.decide(id_, "approve", "", NOW))
    elif drive.running:
        drive.finish(min(drive.running, key=lambda id_: order.index(drive.node(id_).index % MOST_CALLS)))
    else:
        return False
    return True


def finish_plan(drive: Drive, order: list[int], *, carries_over: bool = False) -> None:
    """Walk to the end; ``carries_over``: continue as new at every quiet moment."""
    while True:
        if carries_over and not drive.walk.running and drive.open:
            drive.carry_over()
        if not step(drive, order, approving=True):
            break
    assert drive.open == 0
    assert len(drive.final_statuses) == 1


def everything(drive: Drive) -> dict[str, Json]:
    return {"observed": drive.observe(), "calls": copy.deepcopy(drive.walk.calls), "commands": list(drive.commands)}


def started_calls(drive: Drive) -> dict[str, Json]:
    walk = drive.walk
    return {
        n.id: (n.planned, r.state, r.error, r.outcome, r.written)
        for n, r in zip(walk.nodes, walk.calls, strict=True)
        if r.state in SETTLED or r.state == "running"
    }


approvals = st.sampled_from([{}, {"calls": True}, {"calls": True}, {"calls": ["act"]}, {"scopes": True}])


@many(25)
@given(edited_cases(), orders(), st.lists(st.booleans(), max_size=MOST_CALLS), approvals, st.booleans(), st.booleans())
def test_an_edit_gives_the_result_of_the_edited_plan_or_changes_nothing(
    pair: tuple[Case, Edit],
    order: list[int],
    script: list[bool],
    approve: dict[str, Json],
    paused: bool,  # noqa: FBT001
    carries_over: bool,  # noqa: FBT001
) -> None:
    case, edit = pair
    config = {**case.request["config"], "approve": approve}
    request = {**case.request, "config": config}
    new_request, new_results = apply_edit(case, edit, config)
    drive = Drive(prepared(request), case.results)
    new = prepared(new_request)
    for approving in script:
        step(drive, order, approving=approving)
    if paused:
        drive.perform(drive.walk.advance(NOW, paused=True))
    before, started, log = everything(drive), started_calls(drive), dict(drive.started)
    running = list(drive.running)
    try:
        drive.edit(new, new_results)
    except DecisionRefused:
        event("refused")
        assert everything(drive) == before
        drive.perform(drive.walk.advance(NOW, paused=False))
        finish_plan(drive, order)
        assert_equal_to_the_serial_run(drive, oracle.run(request, case.results))
        return
    event(f"accepted with {min(len(started), 3)} started")
    after = started_calls(drive)
    for id_, (planned, state, *_) in started.items():
        assert after[id_][0] == planned
        assert after[id_][1] == state or state == "running"
    if paused:
        assert drive.running == running
    drive.perform(drive.walk.advance(NOW, paused=False))
    finish_plan(drive, order, carries_over=carries_over)
    assert {id_: drive.started[id_] for id_ in log} == log
    assert_equal_to_the_serial_run(drive, oracle.run(new_request, new_results))


@pytest.mark.long
@many(25)
@given(edited_cases(), orders(), st.lists(st.booleans(), max_size=MOST_CALLS))
def test_a_call_that_an_edit_brings_in_runs_after_an_approval_whatever_the_settings_are(
    pair: tuple[Case, Edit], order: list[int], script: list[bool]
) -> None:
    case, edit = pair
    config = case.request["config"]
    new_request, new_results = apply_edit(case, edit, config)
    drive = Drive(prepared({**case.request, "config": config}), case.results)
    new = prepared(new_request)
    for approving in script:
        step(drive, order, approving=approving)
    drive.questions.clear()
    try:
        drive.edit(new, new_results)
    except DecisionRefused:
        reject()
    plan, new_plan = case.request["context"][-1]["plan"], new_request["context"][-1]["plan"]
    unchanged = [i for i, planned in enumerate(new_plan) if i < len(plan) and planned == plan[i]]
    finish_plan(drive, order)
    for id_ in drive.started:
        if drive.node(id_).index not in unchanged:
            assert oracle.call_of(id_) in drive.questions, f"{id_} ran and nobody was asked"


def test_an_edit_does_not_hide_what_an_instance_has_read() -> None:
    """The element was read of a list; an own write beside it, before the global one, would make that an object."""

    def plan(written: str) -> ValidatedPlan:
        calls = [("†state.q", None, {}), (written, "A", {"x": "†state.q"}), ("†state.a", None, {})]
        calls.append(("†state.z", "A", {"x": "†state.a.0"}))
        listed = [{"_tool": "act", "_outputPath": p, **({"_instance": i} if i else {}), **x} for p, i, x in calls]
        own = {"type": "state", "state": {}, "_instance": "A"}
        return prepared({"context": [{"type": "tool", "tool": tool("act")}, own, {"type": "plan", "plan": listed}]})

    drive = Drive(plan("†state.b"), {"3:act": [5]})
    drive.finish("3:act")
    assert "4:act" in drive.started
    with pytest.raises(DecisionRefused):
        drive.edit(plan("†state.a.x"), {})


def first_calls(request: dict[str, Json], count: int) -> dict[str, Json]:
    *context, last = request["context"]
    return {**request, "context": [*context, {**last, "plan": last["plan"][:count]}]}


def beginning(request: dict[str, Json], count: int) -> ValidatedPlan:
    """The first Calls of a plan that is still being written."""
    return validate_parsed(read_request(first_calls(request, count)), is_complete=False)


@many(25)
@given(plans, orders(), st.lists(st.sampled_from(["write", "step", "carry"])))
def test_a_plan_that_is_walked_while_it_is_written_ends_as_the_whole_plan_walked_from_the_start(
    case: Case, order: list[int], script: list[str]
) -> None:
    request = case.request
    whole = prepared(request)
    if whole.request.instances():
        reject()  # a plan over instances starts when it is complete
    if not whole.nodes:
        reject()
    drive = Drive(beginning(request, 1), case.results, growing=True)
    for written in range(2, len(whole.nodes) + 1):
        while (what := script.pop(0) if script else "write") != "write":
            if what == "step":
                step(drive, order, approving=False)
            elif not drive.walk.running:
                drive.carry_over()
        drive.extend(beginning(request, written))
    event(f"written with {min(len(drive.started), 3)} started")
    assert not drive.final_statuses, "the plan does not finish while it is written"
    drive.walk.growing = False
    drive.extend(whole)
    finish_plan(drive, order)
    assert_equal_to_the_serial_run(drive, oracle.run(request, case.results))


@many(25)
@given(plans, orders(), st.integers(1, 20), st.lists(st.just("step"), max_size=5))
def test_a_plan_that_is_never_finished_is_what_had_started(
    case: Case, order: list[int], written: int, steps: list[str]
) -> None:
    whole = prepared(case.request)
    if whole.request.instances():
        reject()
    drive = Drive(beginning(case.request, min(written, len(whole.nodes))), case.results, growing=True)
    for _ in steps:
        step(drive, order, approving=False)
    before = drive.observe()["states"]
    drive.perform(drive.walk.cancel(NOW, {"code": "notRun", "message": "it broke off"}))
    finish_plan(drive, order)
    assert len(drive.final_statuses) == 1
    for id_, state in drive.observe()["states"].items():
        assert (state == "cancelled") == (before[id_] in ("pending", "ready", "awaiting")), id_
