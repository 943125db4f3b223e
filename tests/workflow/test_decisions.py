"""Plans that wait for people: approved, rejected, edited, by signal and by update, in time and too late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from tests.support import assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.foreign import (
    Foreign,
    Handle,
    call,
    ended,
    phase,
    states,
    status,
    tool,
)
from tests.workflow.tools import Gate, echo

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
