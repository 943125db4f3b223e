"""Plans that wait for people: approved, rejected, edited, by signal and by update, in time and too late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from cli.runs.billed_actions import count_actions
from tests.support import assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.foreign import (
    Foreign,
    Handle,
    call,
    ended,
    failure,
    of_type,
    phase,
    result_of_failed,
    states,
    status,
    tool,
)
from tests.workflow.tools import Gate, echo, refuse

Json = Any
LAZY = {"mode": "lazy"}


async def pending(handle: Handle, count: int = 1) -> list[dict[str, Json]]:
    async def found() -> list[dict[str, Json]]:
        listed: list[dict[str, Json]] = await handle.query("pending")
        return listed if len(listed) == count else []

    result: list[dict[str, Json]] = await assert_eventually(found)
    return result


async def lazy(foreign: Foreign, *calls: dict[str, Json], **config: Json) -> Handle:
    request = foreign.request(*calls, **config)
    request["context"][-1] |= LAZY
    return await foreign.start(request)


async def decide(handle: Handle, **decision: Json) -> dict[str, Json]:
    found: dict[str, Json] = await handle.execute_update("decide", decision)
    return found


async def refusal(handle: Handle, **decision: Json) -> ApplicationError:
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await decide(handle, **decision)
    cause = refused.value.cause
    assert isinstance(cause, ApplicationError)
    return cause


# -- whole plans -------------------------------------------------------------------


async def test_a_lazy_plan_runs_when_it_is_approved(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        handle = await lazy(foreign, call("echo", "†state.a", value=1))
        (wait,) = await pending(handle)
        assert (wait["what"], wait["version"], wait["workflowId"]) == ("plan", 1, handle.id)
        assert (await status(handle))["phase"] == "awaiting"
        await decide(handle, decision="approve", by="Ada", reason="looks right", version=1)
        result = await ended(handle)
    assert result["state"] == {"a": 1}
    (record,) = result["decisions"]
    assert (record["what"], record["decision"], record["by"], record["reason"]) == (
        "plan", "approve", "Ada", "looks right",
    )  # fmt: skip
    assert await handle.query("pending") == []


async def test_a_rejected_plan_ends_rejected_and_nothing_ran(foreign: Foreign) -> None:
    handle = await lazy(foreign, call("echo", "†state.a", value=1))
    await pending(handle)
    await handle.signal("reject", {"reason": "too expensive", "by": "Ada"})
    result = await ended(handle)
    assert (result["status"], result["state"]) == ("rejected", {})
    assert result["decisions"][0]["reason"] == "too expensive"


async def test_a_signal_that_comes_before_the_wait_is_kept_for_it(foreign: Foreign) -> None:
    request = foreign.request(call("echo", "†state.a", value=1))
    request["context"][-1] |= LAZY
    async with foreign.serving(echo):
        handle = await foreign.start(request, start_signal="approve", start_signal_args=[{"by": "Ada"}])
        assert (await ended(handle))["state"] == {"a": 1}


async def test_an_edit_is_validated_and_waits_for_an_approval_of_its_own(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        handle = await lazy(foreign, call("echo", "†state.a", value=1))
        await pending(handle)
        error = await refusal(handle, decision="edit", plan=[call("nope", "†state.a")])
        assert (error.type, "unknownTool" in str(error)) == ("InvalidRequest", True)
        assert [p["code"] for p in error.details[0]] == ["unknownTool"]
        await decide(
            handle, decision="edit", plan=[call("echo", "†state.b", value=2), call("echo", "†state.c", value=3)]
        )
        (wait,) = await pending(handle)
        assert wait["version"] == 2
        assert len(await handle.query("plan")) == 2
        error = await refusal(handle, decision="approve", version=1)
        assert (error.type, "version 1" in str(error)) == ("DecisionRefused", True)
        await decide(handle, decision="approve", version=2)
        result = await ended(handle)
    assert result["state"] == {"b": 2, "c": 3}
    assert [d["decision"] for d in result["decisions"]] == ["edit", "approve"]


@pytest.mark.parametrize(("on_timeout", "status_"), [("reject", "rejected"), ("approve", "completed")])
async def test_a_deadline_decides_when_nobody_does(foreign: Foreign, on_timeout: str, status_: str) -> None:
    async with foreign.serving(echo):
        handle = await lazy(
            foreign, call("echo", "†state.a", value=1), approve={"timeout": "100ms", "onTimeout": on_timeout}
        )
        result = await ended(handle)
    assert result["status"] == status_
    assert result["decisions"][0]["by"] == "onTimeout"


async def test_a_deadline_may_fail_the_run(foreign: Foreign) -> None:
    handle = await lazy(foreign, call("echo", "†state.a", value=1), approve={"timeout": "100ms", "onTimeout": "fail"})
    error = await failure(handle)
    assert error.type == "ApprovalTimeout"
    assert error.details[0]["state"] == {}


async def test_a_lazy_plan_may_do_without(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        handle = await lazy(foreign, call("echo", "†state.a", value=1), approve={"plan": False})
        assert (await ended(handle))["state"] == {"a": 1}


# -- single calls ------------------------------------------------------------------


async def test_calls_wait_each_by_itself_while_the_rest_goes_on(foreign: Foreign) -> None:
    gate = Gate()
    plan = [
        call("echo", "†state.a", value=1), call("pay", "†state.b", value=2), call("pay", "†state.c", value=3),
        call("echo", "†state.d", value="†state.b"),
    ]  # fmt: skip
    context = [foreign.tool("echo"), tool("pay", activity="echo", options={"taskQueue": foreign.queue})]
    async with foreign.serving(echo, gate.activity()):
        handle = await foreign.start(foreign.request(*plan, context=context, approve={"calls": ["pay"]}))
        waits = await pending(handle, 2)
        assert [(w["what"], w["call"]) for w in waits] == [("call", "2:pay"), ("call", "3:pay")]
        error = await refusal(handle, decision="approve")
        assert "2 waits" in str(error)
        await handle.signal("approve", {"call": "2:pay", "by": "Ada"})
        await pending(handle, 1)
        await decide(handle, decision="reject", call="3:pay", reason="not this one")
        result = await ended(handle)
    assert states(result) == {
        "1:echo": "completed", "2:pay": "completed", "3:pay": "rejected", "4:echo": "completed",
    }  # fmt: skip
    assert result["status"] == "rejected"
    assert result["state"] == {"a": 1, "b": 2, "d": 2}
    assert result["errors"] == [{"call": "3:pay", "code": "rejected", "message": "not this one"}]


async def test_a_call_is_edited_and_confirmed_anew(foreign: Foreign) -> None:
    plan = [call("echo", "†state.a", value=1), call("echo", "†state.b", value="†state.a", _approval=True)]
    definition = foreign.tool("echo")
    definition["tool"]["properties"]["_approval"] = {"type": "boolean"}
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(*plan, context=[definition]))
        await pending(handle)
        error = await refusal(handle, decision="edit", call="1:echo", **{"with": call("echo", "†state.a", value=9)})
        assert "nothing that waits" in str(error)
        new = call("echo", "†state.b", value=["†state.a", 2])
        await decide(handle, decision="edit", call="2:echo", **{"with": new})
        (wait,) = await pending(handle)
        assert (wait["call"], wait["version"]) == ("2:echo", 2)
        await decide(handle, decision="approve", call="2:echo", version=2)
        result = await ended(handle)
    assert result["state"] == {"a": 1, "b": [1, 2]}


async def test_scopes_that_the_model_chose_are_confirmed(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        handle = await foreign.start(
            foreign.request(
                call("echo", "†state.a", value=1), call("echo", "†state.b", value=2, _scopes=["input"]),
                context=[foreign.tool("echo"), {"type": "input", "x": 1}], approve={"scopes": True},
            )
        )  # fmt: skip
        (wait,) = await pending(handle)
        assert (wait["what"], wait["call"]) == ("scopes", "2:echo")
        await handle.signal("approve")
        assert (await ended(handle))["state"] == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        ({"decision": "maybe"}, "allowed: approve, reject, edit"),
        ({"decision": "reject"}, "reason"),
        ({"decision": "approve", "call": "9:echo"}, "nothing that waits"),
        ({"decision": "approve", "workflowId": "other"}, "nothing that waits"),
        ({"decision": "approve", "nmae": "x"}, "unknown key nmae"),
        ({"decision": "approve", "plan": []}, "belong to the decision edit"),
        ({"decision": "edit"}, '"plan"'),
        ({"decision": "edit", "with": {"_tool": "echo"}}, "names it"),
        ({"decision": "approve", "version": "1"}, '"version" is a number'),
        ({"decision": "approve", "by": ["Ada"]}, '"by" is a string'),
    ],
)  # fmt: skip
async def test_a_decision_that_cannot_be_taken_is_refused_and_leaves_no_trace(
    foreign: Foreign, decision: Json, words: str
) -> None:
    handle = await lazy(foreign, call("echo", "†state.a", value=1))
    await pending(handle)
    error = await refusal(handle, **decision)
    assert words in str(error)
    assert await of_type(handle, "WORKFLOW_EXECUTION_UPDATE_ACCEPTED") == []
    await handle.signal("reject", {"reason": "over"})
    await ended(handle)


async def test_a_signal_that_cannot_be_understood_is_told_in_the_status(foreign: Foreign) -> None:
    handle = await lazy(foreign, call("echo", "†state.a", value=1))
    await pending(handle)
    await handle.signal("approve", ["what?"])

    async def noted() -> bool:
        return any("a decision is an object" in note for note in (await status(handle)).get("notes", []))

    await assert_eventually(noted)
    await phase(handle, "awaiting")
    await handle.cancel()


# -- agents ------------------------------------------------------------------------


@pytest.fixture
def agents(foreign: Foreign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agents:
    monkeypatch.setenv("ACTS_SCRIPTS", str(tmp_path))
    return Agents(foreign, tmp_path)


async def test_a_lazy_agent_replans_with_the_reason_of_a_rejection(agents: Agents, foreign: Foreign) -> None:
    async with foreign.serving(echo):
        handle = await agents.start(
            {"calls": [call("echo", "†state.a", value="dear")]},
            ({"tick": 2, "says": ['"outcome":"rejected"', "dear", "too dear for us"]},
             {"calls": [call("echo", "†state.a", value="cheap")]}),
            ({"tick": 3, "says": ["†decision", "fine"]}, {"output": "†state.a"}),
            context=[foreign.tool("echo"), {"type": "plan", "plan": [], "mode": "lazy"}],
        )  # fmt: skip
        (wait,) = await pending(handle)
        assert (wait["what"], wait["workflowId"]) == ("plan", handle.id)
        assert [c["value"] for c in (await handle.query("status"))["calls"]] == []
        await decide(handle, decision="reject", reason="too dear for us", by="Ada")
        await phase(handle, "awaiting")
        await pending(handle)
        await decide(handle, decision="edit", call="1:echo", **{"with": call("echo", "†state.a", value="cheaper")})
        assert [w["version"] for w in await pending(handle)] == [3]  # versions go on over the ticks
        await decide(handle, decision="approve", by="Bob", reason="fine")
        result = await ended(handle)
    assert result["output"] == "cheaper"
    assert [(d["decision"], d.get("by")) for d in result["decisions"]] == [
        ("reject", "Ada"), ("edit", None), ("approve", "Bob"),
    ]  # fmt: skip


async def test_a_call_of_an_agents_plan_is_decided_at_the_agent(agents: Agents, foreign: Foreign) -> None:
    async with foreign.serving(echo):
        handle = await agents.start(
            {"calls": [call("echo", "†state.a", value=1), call("echo", "†state.b", value=2)]},
            ({"tick": 2, "says": ["rejected", "not two"]}, {"output": "†state"}),
            context=[foreign.tool("echo")],
            approve={"calls": True},
        )
        waits = await pending(handle, 2)
        assert [(w["workflowId"], w["call"]) for w in waits] == [
            (f"{handle.id}/plan-1", "1:echo"), (f"{handle.id}/plan-1", "2:echo"),
        ]  # fmt: skip
        await decide(handle, decision="approve", call="1:echo", by="Ada")
        await handle.signal("reject", {"call": "2:echo", "reason": "not two"})
        result = await ended(handle)
    assert result["output"] == {"a": 1}
    assert sorted((d["call"], d["decision"], d["tick"]) for d in result["decisions"]) == [
        ("1:echo", "approve", 1), ("2:echo", "reject", 1),
    ]  # fmt: skip


# -- the forecast, and what came of it ----------------------------------------------


def actual(result: dict[str, Json]) -> dict[str, Json]:
    return {name: row["actual"] for name, row in result["forecast"].items()}


async def counted(handle: Handle) -> int | None:
    """The actions in the histories of a run, as the server has them.

    A worker that is slow ends a workflow task between two local activities, and no code of a workflow is told: then the
    server has one action more than the run can know of.
    """
    actions = await count_actions(handle._client, handle.id, (await handle.describe()).run_id)
    tasks: set[int] = set()
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
            break
        if event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED:
            tasks.add(event.marker_recorded_event_attributes.workflow_task_completed_event_id)
    return None if actions is None else actions - max(len(tasks) - 1, 0)


@pytest.mark.parametrize("how", ["update", "signal"])
async def test_a_plan_that_was_proposed_says_in_its_result_what_came_of_its_forecast(
    foreign: Foreign, how: str
) -> None:
    async with foreign.serving(echo):
        handle = await lazy(foreign, call("echo", "†state.a", value=1))
        await pending(handle)
        if how == "update":
            await decide(handle, decision="approve")
        else:
            await handle.signal("approve")
        result = await ended(handle)
    assert result["forecast"]["actions"]["expected"] == {"min": 4, "max": 10}
    assert 4 <= result["forecast"]["actions"]["actual"] <= 10
    assert actual(result) == {"calls": 1, "requests": 0, "tokens": 0, "cost": 0, "actions": await counted(handle)}


async def test_a_plan_that_nobody_was_asked_about_says_nothing_of_a_forecast(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        result = await foreign.run(call("echo", "†state.a", value=1))
    assert sorted(result) == ["calls", "context", "errors", "state", "status", "usage"]


async def test_what_ran_within_the_last_task_of_a_run_is_counted_too(foreign: Foreign) -> None:
    counts = [call("count", f"†state.n{i}", items=[i]) for i in range(3)]
    local = tool("count", activity="house.count", options={"local": True})
    request = {"context": [local, {"type": "plan", "plan": counts, **LAZY}]}
    handle = await foreign.start(request)
    await pending(handle)
    await handle.signal("approve")
    result = await ended(handle)
    assert actual(result)["actions"] == await counted(handle) <= result["forecast"]["actions"]["expected"]["max"]


async def test_a_plan_too_large_for_its_page_has_no_forecast(foreign: Foreign) -> None:
    handle = await lazy(foreign, *[call("echo", f"†state.a{i}", value=i) for i in range(151)])
    await pending(handle)
    await decide(handle, decision="reject", reason="too much")
    assert "forecast" not in await ended(handle)


async def test_the_forecast_is_that_of_the_plan_as_it_was_edited(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        handle = await lazy(foreign, call("echo", "†state.a", value=1))
        await pending(handle)
        two = [call("echo", "†state.a", value=1), call("echo", "†state.b", value=2)]
        await handle.signal("edit", {"plan": two})
        await handle.signal("approve", {"version": 2})
        result = await ended(handle)
    assert result["forecast"]["calls"] == {"expected": {"min": 2, "max": 2}, "actual": 2}


async def test_a_rejected_plan_came_to_nothing_of_its_forecast(foreign: Foreign) -> None:
    handle = await lazy(foreign, call("echo", "†state.a", value=1))
    await pending(handle)
    await handle.signal("reject", {"reason": "no"})
    result = await ended(handle)
    assert result["forecast"]["calls"] == {"expected": {"min": 1, "max": 1}, "actual": 0}


async def test_the_failure_of_a_proposed_plan_holds_it_too(foreign: Foreign) -> None:
    async with foreign.serving(refuse):
        handle = await lazy(foreign, call("refuse", "†state.a"))
        await pending(handle)
        await decide(handle, decision="approve")
        result = await result_of_failed(handle)
    assert actual(result)["calls"] == 1
    assert actual(result)["actions"] == await counted(handle)


async def test_the_plans_that_an_agent_proposed_are_added_up(agents: Agents, foreign: Foreign) -> None:
    async with foreign.serving(echo):
        handle = await agents.start(
            {"calls": [call("echo", "†state.no", value=1)]},
            {"calls": [call("echo", "†state.a", value=1), call("echo", "†state.b", value=2)]},
            {"calls": [call("echo", "†state.c", value="†state.a")], "output": "†state"},
            context=[foreign.tool("echo"), {"type": "plan", "plan": [], **LAZY}],
        )
        for number in (1, 2, 3):

            async def proposed(number: int = number) -> bool:
                return bool([w for w in await handle.query("pending") if w["version"] == number])

            await assert_eventually(proposed)
            await decide(handle, decision="reject" if number == 1 else "approve", reason="look again")
        result = await ended(handle)
    assert result["output"] == {"a": 1, "b": 2, "c": 1}
    assert result["forecast"]["calls"] == {"expected": {"min": 3, "max": 3}, "actual": 3}
    assert actual(result)["requests"] == 0  # those of planning are not foreseen
    plans = [foreign.client.get_workflow_handle(f"{handle.id}/plan-{tick}") for tick in (2, 3)]
    histories = [2 + (await counted(plan) or 0) for plan in plans]  # a child's start takes two
    assert actual(result)["actions"] == sum(histories)
    for plan, actions in zip(plans, histories, strict=True):
        assert (await plan.result())["forecast"]["actions"]["actual"] == actions


async def test_the_page_of_a_plan_that_waits_shows_what_it_would_do_and_what_to_send(foreign: Foreign) -> None:
    handle = await lazy(foreign, call("echo", "†state.a", value=1), call("echo", "†state.b", value="†state.a"))
    await pending(handle)
    page = (await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)).current_details
    assert "2 calls in 2 waves" in page
    assert '"decision": "approve",\n  "workflowId"' in page
    assert "2:echo" in page
    await handle.cancel()
