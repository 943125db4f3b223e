"""What is taken over from an earlier run, case by case; ``tests/property/test_resumed_plan.py`` has the promise."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language import wire
from acts.language.errors import CallError, InvalidRequest
from acts.language.messages import read_request
from acts.machines.past import PastCalls, calls_before, past_of_root
from acts.machines.walk import Walk
from acts.plan.calls import PlannedCall
from acts.plan.validate import ValidatedPlan, validate_request
from acts.tree.past_run import PastRun
from tests.property.drive import NOW, Drive

Json = Any
FAILS = {"$fail": {"type": "no", "message": "no"}}
CHAIN = [
    {"_tool": "charge", "n": 1, "_outputPath": "†state.a"},
    {"_tool": "charge", "n": "†state.a", "_outputPath": "†state.b"},
    {"_tool": "charge", "n": "†state.b", "_outputPath": "†state.c"},
]


def tool(**more: Json) -> dict[str, Json]:
    meta = {"_activity": {"const": "charge"}, "_outputPath": {"type": "string"}, "_scopes": {"type": "array"}}
    meta |= {"_reasoningForCall": {"type": "string"}}
    return {"type": "object", "properties": {**meta, "n": {"type": "integer"}, **more}}


def request(*plan: Json, charge: Json = None, context: Any = (), **config: Json) -> dict[str, Json]:
    tools = {"type": "tool", "tool": {"charge": charge or tool()}}
    return {"config": config, "context": [tools, *context, {"type": "plan", "plan": list(plan or CHAIN)}]}


def past_run(drive: Drive, **more: Json) -> PastRun:
    plan = tuple(n.id for n in drive.walk.nodes)
    return PastRun(workflowId="old", runId="r", plan=plan, calls=drive.walk.read_calls("-"), **more)


def first_run() -> Drive:
    """Two Calls completed, the third failed."""
    drive = Drive(request(), {"1:charge": 10, "2:charge": 20, "3:charge": FAILS})
    drive.finish_all()
    return drive


class Resumed:
    """The walk of a run that resumes another, and what it starts: ``_id`` by Call."""

    def __init__(self, raw: Json, past: PastRun, **resume: Json) -> None:
        prepared: ValidatedPlan = validate_request(raw)
        config = read_request({"config": {"resume": {"workflowId": "old", **resume}}, "context": []}).config
        assert config.resume is not None
        self.past: PastCalls = past_of_root(config.resume, past, prepared)
        self.walk = Walk(prepared, self.identify, past=self.past)
        commands = self.walk.begin(NOW)
        self.started = {c.node.id: c.call["_id"] for c in commands if hasattr(c, "context")}
        self.questions = [c.node.id for c in commands if hasattr(c, "what")]

    def identify(self, node: PlannedCall) -> str:
        return self.past.identify(node) or f"new/{node.id}"


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        ({"_reasoningForCall": "because"}, True),
        ({"n": 2}, False),
        ({"_outputPath": "†state.other"}, False),
        ({"_scopes": ["state"]}, False),
    ],
    ids=str,
)
def test_a_call_is_unchanged_if_its_json_is_but_for_what_is_for_people(change: Json, taken: bool) -> None:  # noqa: FBT001
    plan = [{**CHAIN[0], **change}, *CHAIN[1:]]
    resumed = Resumed(request(*plan, context=[{"type": "state", "a": 1, "b": 1}]), past_run(first_run()))
    assert ("1:charge" in resumed.past.taken) is taken
    assert resumed.started.get("1:charge", "new/1:charge") == "new/1:charge", "an old _id would be ignored"


@pytest.mark.parametrize(
    ("changed", "taken"),
    [
        (tool(_options={"const": {"timeout": "1h"}}), True),
        (tool(extra={"type": "string"}), True),
        (tool(_output={"type": "integer"}), True),
        (tool(_activity={"const": "chargeElsewhere"}), False),
    ],
    ids=["options", "parameters", "output", "activity"],
)
def test_of_a_tool_counts_what_answers_the_call(changed: Json, taken: bool) -> None:  # noqa: FBT001
    resumed = Resumed(request(charge=changed), past_run(first_run()))
    assert ("1:charge" in resumed.past.taken) is taken


def test_a_result_that_the_tool_does_not_return_any_more_is_not_taken_over_and_its_effect_not_repeated() -> None:
    resumed = Resumed(request(charge=tool(_output={"type": "string"})), past_run(first_run()))
    assert resumed.started == {"1:charge": "run/1:charge"}


def test_elements_that_nobody_waited_for_run_again_where_their_tool_has_an_output_path_now() -> None:
    plan, each = {"_tool": "charge", "_each": [1, 2], "n": "†item"}, {"_each": {"type": "array"}}
    drive = Drive(request(plan, charge=tool(**each)), {"1:charge[0]": None})
    drive.finish("1:charge[0]")
    drive.walk.failed("1:charge[1]", CallError("no", "it could not be started"), NOW)
    assert Resumed(request(plan, charge=tool(**each)), past_run(drive)).past.taken == {"1:charge[0]": "run/1:charge"}
    path = {"_outputPath": {"const": "†state.a"}}
    resumed = Resumed(request(plan, charge=tool(**each, **path)), past_run(drive))
    assert resumed.past.taken == {}
    assert set(resumed.started) == {"1:charge[0]", "1:charge[1]"}


def test_no_result_of_an_element_is_taken_over_that_the_tool_does_not_return_any_more() -> None:
    plan = {"_tool": "charge", "_each": [1, 2, 3], "n": "†item", "_outputPath": "†state.a"}
    each = {"_each": {"type": "array"}}
    drive = Drive(request(plan, charge=tool(**each)), {"1:charge[0]": 5, "1:charge[1]": "x", "1:charge[2]": FAILS})
    drive.finish_all()
    resumed = Resumed(request(plan, charge=tool(**each, _output={"type": "integer"})), past_run(drive))
    assert resumed.past.taken == {"1:charge[0]": "run/1:charge"}
    assert list(resumed.started) == ["1:charge[1]", "1:charge[2]"]


def test_a_call_that_was_cancelled_keeps_the_results_of_its_elements() -> None:
    plan, each = {**CHAIN[0], "_each": [1, 2], "n": "†item"}, tool(_each={"type": "array"})
    drive = Drive(request(plan, charge=each), {"1:charge[0]": 5})
    drive.finish("1:charge[0]")
    drive.walk.cancel(NOW)
    drive.walk.failed("1:charge[1]", CallError(wire.CANCELLED, ""), NOW)
    resumed = Resumed(request(plan, charge=each), past_run(drive))
    assert (resumed.past.taken, list(resumed.started)) == ({"1:charge[0]": "run/1:charge"}, ["1:charge[1]"])


def test_a_mended_call_keeps_its_id_and_a_fork_gives_new_ones() -> None:
    mended = [*CHAIN[:2], {**CHAIN[2], "n": 3}]
    assert Resumed(request(*mended), past_run(first_run())).started == {"3:charge": "run/3:charge"}
    assert Resumed(request(*mended), past_run(first_run()), ids="new").started == {"3:charge": "new/3:charge"}
    fork = Resumed(request(*mended), past_run(first_run()), keep={"before": "2:charge"})
    assert fork.past.report(fork.walk.calls, ()) == {
        "workflowId": "old", "runId": "r", "keep": {"before": "2:charge"}, "ids": "new", "calls": ["1:charge"]
    }  # fmt: skip
    assert fork.started == {"2:charge": "new/2:charge", "3:charge": "new/3:charge"}


def test_a_call_that_is_taken_over_is_not_confirmed_again() -> None:
    resumed = Resumed(request(approve={"calls": True}), past_run(first_run()))
    assert resumed.questions == ["3:charge"]


def test_the_call_at_the_place_counts_where_only_the_old_plan_has_the_one_that_keep_names() -> None:
    past = past_run(first_run())
    refund = {"type": "tool", "tool": {"refund": tool()}}
    other = validate_request(request(*CHAIN[:2], {**CHAIN[2], "_tool": "refund"}, context=[refund]))
    assert calls_before("3:charge", past, other) == ["1:charge", "2:charge"]
    assert calls_before("3:refund", past, other) == ["1:charge", "2:charge"]
    shorter = validate_request(request(*CHAIN[:2]))
    assert calls_before("3:charge", past, shorter) == ["1:charge", "2:charge"]
    with pytest.raises(InvalidRequest) as error:
        calls_before("9:charge", past, shorter)
    (problem,) = error.value.problems
    assert (problem.pointer, problem.call) == ("/config/resume/keep/before", None)
    assert '"9:charge"' in problem.message
