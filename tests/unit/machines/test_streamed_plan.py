"""The plan of a tick while its answer is still being written: reports that come late, twice or broken."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.messages import read_request
from acts.machines.agent_context import AgentContext, StreamedPlan
from acts.plan.context_log import Log
from acts.plan.validate import validate_plan, validate_request
from acts.tree.signal_records import PlanExtension, StreamedCalls
from tests.cases import call, tool
from tests.property.drive import Drive

Json = Any
A, B, C = call("step", "†state.a", x=1), call("step", "†state.b", x="†state.a"), call("step", "†state.c", x="†state.b")
CONTEXT = [{"type": "tool", "tool": tool("step")}, {"type": "state", "state": {"n": 1}}]


def context_of(**config: Json) -> AgentContext:
    return AgentContext(read_request({"config": {"model": "scripted:x", **config}, "context": CONTEXT}), {}, [])


def report(first: int, *calls: Json, attempt: int = 1) -> StreamedCalls:
    return StreamedCalls(tick=1, attempt=attempt, first=first, calls=calls, token="t")  # noqa: S106 - no secret


def extended_request(request: Json, extension: PlanExtension) -> Json:
    """As the run that walks the plan makes it."""
    *context, plan = request["context"]
    messages = [context[m] if isinstance(m, int) else m for m in extension.context]
    return {**request, "context": [*messages, {**plan, "plan": [*plan["plan"], *extension.calls]}]}


def plan_of(request: Json) -> Json:
    return request["context"][-1]["plan"]


class Streamed:
    """An answer that is being written, and the Request of its child."""

    def __init__(self, *calls: Json, **config: Json) -> None:
        self.context = context_of(**config)
        self.plan = StreamedPlan(self.context)
        self.request: Json = None
        self.plan.child_started("w/plan-1")
        self.add(0, *calls)

    def add(self, first: int, *calls: Json, attempt: int = 1, may_start: bool = True) -> PlanExtension | None:
        """More Calls arrive; what the child is sent."""
        prepared = self.plan.add(report(first, *calls, attempt=attempt), may_start=may_start)
        if prepared is None:
            return None
        request = self.context.plan_request(prepared, self.context.next_nodes(prepared))
        if self.plan.has_started:
            (sent,) = self.plan.extend(request)
            assert isinstance(sent.record, PlanExtension)
            return sent.record
        self.request = request
        self.plan.begin(request)
        return None


def test_calls_extend_the_plan_as_they_arrive() -> None:
    streamed = Streamed(A)
    assert plan_of(streamed.request) == [A]
    extension = streamed.add(1, B, C)
    assert isinstance(extension, PlanExtension)
    assert extension.context == tuple(range(len(streamed.request["context"]) - 1)), "the child has all messages"
    assert plan_of(extended_request(streamed.request, extension)) == [A, B, C]
    assert not extension.isComplete
    assert streamed.plan.started_calls == [A, B, C]


@pytest.mark.parametrize(
    "late", [(0, A), (0, A, B), (0, B), (2, C)], ids=["again", "again and more", "another first call", "after a gap"]
)
def test_a_report_that_does_not_continue_the_answer_changes_nothing(late: tuple[Json, ...]) -> None:
    streamed = Streamed(A)
    assert streamed.add(*late) is None
    assert streamed.add(1, B, attempt=2) is None
    assert streamed.plan.started_calls == [A]
    extension = streamed.add(1, B)
    assert isinstance(extension, PlanExtension)
    assert extension.calls == (B,)


def test_a_call_that_makes_an_earlier_one_invalid_is_not_passed_on_and_nothing_after_it() -> None:
    second, third = call("step", "†state.c", x="†state.d"), call("step", "†state.d", x="†state.c")
    streamed = Streamed(A)
    extension = streamed.add(1, second)
    assert isinstance(extension, PlanExtension)
    drive = Drive(validate_request(streamed.request), {"1:step": 1}, growing=True)
    grown = read_request(extended_request(streamed.request, extension))
    drive.extend(validate_plan(grown, drive.prepared.tools, Log(grown.data()), ("context", 0), is_complete=False))
    drive.finish_all()
    assert list(drive.started) == ["1:step"], "the second waits: a call listed later may write what it reads"
    assert streamed.add(2, third) is None
    assert streamed.add(3, B) is None


@pytest.mark.parametrize("broken", [None, "step", [], {"_tool": "none"}, {"_tool": "step", "x": "†{"}])
def test_a_first_call_that_is_none_starts_nothing(broken: Json) -> None:
    streamed = Streamed(broken)
    assert not streamed.plan.has_started


def test_nothing_starts_where_a_person_must_approve() -> None:
    assert not Streamed(A, approve={"calls": ["step"]}).plan.has_started


def test_calls_that_may_not_start_yet_wait_for_the_next_report() -> None:
    streamed = Streamed()
    assert streamed.add(0, A, may_start=False) is None
    assert not streamed.plan.has_started
    streamed.add(1, B)
    assert plan_of(streamed.request) == [A, B]
