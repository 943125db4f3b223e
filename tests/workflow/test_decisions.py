"""Plans that wait for people: Calls decided one by one, and a rejection that an agent plans anew from."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from tests.workflow.agents import Agents
from tests.workflow.foreign import Foreign, Handle, call, decide, ended, pending, phase, states, tool
from tests.workflow.tools import Gate, echo

Json = Any


async def refusal(handle: Handle, **decision: Json) -> ApplicationError:
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await decide(handle, **decision)
    cause = refused.value.cause
    assert isinstance(cause, ApplicationError)
    return cause


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
        error = await refusal(handle, decision="reject", call="3:pay", by="Ada", reason="…")
        assert 'reason is still "…"' in str(error)  # a template that nobody has filled in
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
