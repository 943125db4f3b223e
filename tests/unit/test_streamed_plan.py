"""The plan of a tick while its answer is still being written: reports that come late, twice or broken."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.request_reader import read_request
from acts.machines.loop import Loop
from acts.machines.streamed_plan import StreamedPlan, extended_request
from acts.plan.context_log import Log
from acts.plan.validate import validate_plan, validate_request
from acts.tree.signal_records import PlanExtension, StreamedCalls
from tests.cases import call, tool
from tests.property.drive import Drive

Json = Any
A, B, C = call("step", "†state.a", x=1), call("step", "†state.b", x="†state.a"), call("step", "†state.c", x="†state.b")
CONTEXT = [{"type": "tool", "tool": tool("step")}, {"type": "state", "state": {"n": 1}}]


def loop(**config: Json) -> Loop:
    started = Loop(read_request({"config": {"model": "scripted:x", **config}, "context": CONTEXT}), {}, [])
    started.next_tick()
    return started


def report(first: int, *calls: Json, attempt: int = 1) -> StreamedCalls:
    return StreamedCalls(tick=1, attempt=attempt, first=first, calls=calls, token="t")  # noqa: S106 - no secret


def plan_of(request: Json) -> Json:
    return request["context"][-1]["plan"]


def begin(*calls: Json) -> tuple[StreamedPlan, dict[str, Json]]:
    """A plan of which these Calls have arrived, and the Request of its child."""
    streamed = StreamedPlan(loop())
    request = streamed.add(report(0, *calls), may_start=True)
    assert isinstance(request, dict)
    return streamed, request


def test_calls_extend_the_plan_as_they_arrive() -> None:
    streamed, request = begin(A)
    assert plan_of(request) == [A]
    extension = streamed.add(report(1, B, C), may_start=True)
    assert isinstance(extension, PlanExtension)
    assert extension.context == tuple(range(len(request["context"]) - 1)), "the child has all messages"
    assert plan_of(extended_request(request, extension)) == [A, B, C]
    assert not extension.isComplete
    assert streamed.started_calls == [A, B, C]


@pytest.mark.parametrize(
    "late",
    [report(0, A), report(0, A, B), report(0, B), report(2, C), report(1, B, attempt=2)],
    ids=["again", "again and more", "another first call", "after a gap", "of another attempt"],
)
def test_a_report_that_does_not_continue_the_answer_changes_nothing(late: StreamedCalls) -> None:
    streamed, _ = begin(A)
    assert streamed.add(late, may_start=True) is None
    assert streamed.started_calls == [A]
    extension = streamed.add(report(1, B), may_start=True)
    assert isinstance(extension, PlanExtension)
    assert extension.calls == (B,)


def test_a_call_that_the_answer_repeats_is_a_call_of_its_own() -> None:
    streamed, request = begin(A)
    extension = streamed.add(report(1, A, A), may_start=True)
    assert isinstance(extension, PlanExtension)
    assert plan_of(extended_request(request, extension)) == [A, A, A]


def test_a_call_that_makes_an_earlier_one_invalid_is_not_passed_on_and_nothing_after_it() -> None:
    second, third = call("step", "†state.c", x="†state.d"), call("step", "†state.d", x="†state.c")
    streamed, request = begin(A)
    extension = streamed.add(report(1, second), may_start=True)
    assert isinstance(extension, PlanExtension)
    drive = Drive(validate_request(request), {"1:step": 1}, growing=True)
    grown = read_request(extended_request(request, extension))
    drive.extend(validate_plan(grown, drive.prepared.tools, Log(grown.data()), ("context", 0), is_complete=False))
    drive.finish_all()
    assert list(drive.started) == ["1:step"], "the second waits: a call listed later may write what it reads"
    assert streamed.add(report(2, third), may_start=True) is None
    assert streamed.add(report(3, B), may_start=True) is None


@pytest.mark.parametrize("broken", [None, "step", [], {"_tool": "none"}, {"_tool": "step", "x": "†{"}])
def test_a_first_call_that_is_none_starts_nothing(broken: Json) -> None:
    streamed = StreamedPlan(loop())
    assert streamed.add(report(0, broken), may_start=True) is None
    assert not streamed.has_started


def test_nothing_starts_where_a_person_must_approve() -> None:
    streamed = StreamedPlan(loop(approve={"calls": ["step"]}))
    assert streamed.add(report(0, A), may_start=True) is None


def test_calls_that_may_not_start_yet_wait_for_the_next_report() -> None:
    streamed = StreamedPlan(loop())
    assert streamed.add(report(0, A), may_start=False) is None
    request = streamed.add(report(1, B), may_start=True)
    assert isinstance(request, dict)
    assert plan_of(request) == [A, B]


def test_an_extension_for_a_child_that_is_being_started_is_sent_when_it_is_there() -> None:
    streamed, _ = begin(A)
    extension = streamed.add(report(1, B), may_start=True)
    assert isinstance(extension, PlanExtension)
    assert streamed.send(extension) == []
    (sent,) = streamed.child_started("w/plan-1")
    assert (sent.workflow_id, sent.record) == ("w/plan-1", extension)
    (again,) = streamed.child_started("w/plan-1~2")
    assert (again.workflow_id, again.record) == ("w/plan-1~2", extension), (
        "a child that is started again has none of it"
    )
