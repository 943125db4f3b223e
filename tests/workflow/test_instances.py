"""One plan over many isolated contexts: children, views, failures that stay where they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError, CancelledError

from tests.support import assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.foreign import (
    Foreign,
    Handle,
    call,
    ended,
    events,
    of_type,
    result_of_failed,
    states,
)
from tests.workflow.tools import ONCE, Gate, echo

Json = Any


def own(id_: str, **state: Json) -> dict[str, Json]:
    return {"type": "state", "state": state, "_instance": id_}


async def upper(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    if call["value"] == "break":
        raise ApplicationError("it broke", type="broken", non_retryable=True)
    return str(call["value"]).upper()


async def see(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    """What an Activity is shown."""
    return context


TEMPLATE = (call("upper", "†state.big", value="†state.text"), call("echo", "†state.twice", value="†state.big"))


def texts(**more: str) -> list[Json]:
    return [own(i, text=t) for i, t in {"a": "one", "b": "two", **more}.items()]


async def children(handle: Handle) -> dict[str, str]:
    """The children of a run: id below it, and type."""
    found = await of_type(handle, "START_CHILD_WORKFLOW_EXECUTION_INITIATED")
    return {e.workflow_id.removeprefix(handle.id + "/"): e.workflow_type.name for e in found}


async def test_a_template_runs_in_a_child_for_each_instance(foreign: Foreign) -> None:
    async with foreign.serving(upper, echo):
        handle = await foreign.start(foreign.request(*TEMPLATE, context=[{"type": "state", "lang": "en"}, *texts()]))
        result = await ended(handle)
    assert await children(handle) == {"a": "Instance", "b": "Instance"}
    assert (result["status"], result["state"], result["calls"], result["errors"]) == (
        "completed", {"lang": "en"}, [], [],
    )  # fmt: skip
    assert result["instances"]["b"] == {
        "status": "completed",
        "state": {"lang": "en", "text": "two", "big": "TWO", "twice": "TWO"},
        "calls": [
            {"id": "1:upper", "tool": "upper", "state": "completed", "outputPath": "†state.big"},
            {"id": "2:echo", "tool": "echo", "state": "completed", "outputPath": "†state.twice"},
        ],
        "errors": [],
    }
    assert [(m["_instance"], m["state"]) for m in result["context"]] == [
        ("a", {"big": "ONE"}), ("a", {"twice": "ONE"}), ("b", {"big": "TWO"}), ("b", {"twice": "TWO"}),
    ]  # fmt: skip
    child = foreign.client.get_workflow_handle(f"{handle.id}/a")
    alone = await child.result()
    assert {k: alone[k] for k in ("status", "state", "calls", "errors")} == result["instances"]["a"]


async def test_a_failing_instance_does_not_touch_the_others(foreign: Foreign) -> None:
    tools = [foreign.tool("upper", options=ONCE)]
    async with foreign.serving(upper, echo):
        handle = await foreign.start(foreign.request(*TEMPLATE, context=[*tools, *texts(c="break")]))
        result = await ended(handle)
    assert result["status"] == "partial"
    assert {i: r["status"] for i, r in result["instances"].items()} == {
        "a": "completed", "b": "completed", "c": "failed",
    }  # fmt: skip
    assert result["errors"] == [{"call": "1:upper", "code": "broken", "message": "it broke", "instance": "c"}]
    assert states(result["instances"]["c"]) == {"1:upper": "failed", "2:echo": "skipped"}


async def test_when_all_instances_fail_the_workflow_fails_and_says_where(foreign: Foreign) -> None:
    context = [foreign.tool("upper", options=ONCE), own("x", text="break"), own("y", text="break")]
    async with foreign.serving(upper, echo):
        result = await result_of_failed(await foreign.start(foreign.request(*TEMPLATE, context=context)))
    assert result["status"] == "failed"
    assert [e["instance"] for e in result["errors"]] == ["x", "y"]


async def test_calls_run_where_they_are_aimed_and_the_rest_once(foreign: Foreign) -> None:
    calls = [
        call("upper", "†state.shout", value="common"),
        call("upper", "†state.big", value="†state.text", _instance="b"),
        call("echo", "†state.lang", value="†state.lang", _instance="a", _outputMethod="set"),
        call("echo", "†state.end", value="†state.big", _instance="b"),
    ]
    async with foreign.serving(upper, echo):
        handle = await foreign.start(foreign.request(*calls, context=[{"type": "state", "lang": "en"}, *texts()]))
        result = await ended(handle)
    assert await children(handle) == {"a": "Instance", "b": "Instance"}
    assert states(result) == {"1:upper": "completed"}
    assert states(result["instances"]["b"]) == {"2:upper": "completed", "4:echo": "completed"}
    assert result["state"] == {"lang": "en", "shout": "COMMON"}
    assert result["instances"]["b"]["state"] == {
        "lang": "en", "text": "two", "shout": "COMMON", "big": "TWO", "end": "TWO",
    }  # fmt: skip
    assert [(m.get("_instance"), m["_outputPath"]) for m in result["context"]] == [
        (None, "†state.shout"), ("b", "†state.big"), ("a", "†state.lang"), ("b", "†state.end"),
    ]  # fmt: skip


async def test_where_an_instance_needs_a_global_call_one_workflow_walks_them_all(foreign: Foreign) -> None:
    calls = [
        call("upper", "†state.greeting", value="hello"),
        call("echo", "†state.line", value="†state.greeting && †state.text", _instance="a"),
        call("echo", "†state.line", value="†state.greeting", _instance="b"),
    ]
    async with foreign.serving(upper, echo):
        handle = await foreign.start(foreign.request(*calls, context=texts()))
        result = await ended(handle)
    assert await children(handle) == {}
    assert {i: r["state"]["line"] for i, r in result["instances"].items()} == {"a": "one", "b": "HELLO"}
    assert states(result) == {"1:upper": "completed"}


@pytest.mark.parametrize("per_child", [2, 5])
async def test_one_child_may_carry_several_instances(foreign: Foreign, per_child: int) -> None:
    context = [foreign.tool("upper", options=ONCE), *texts(c="break", d="four", e="five")]
    async with foreign.serving(upper, echo):
        handle = await foreign.start(foreign.request(*TEMPLATE, context=context, instancesPerChild=per_child))
        result = await ended(handle)
    assert list(await children(handle)) == (["a", "c", "e"] if per_child == 2 else ["a"])
    assert {i: (r["status"], r["state"].get("twice")) for i, r in result["instances"].items()} == {
        "a": ("completed", "ONE"), "b": ("completed", "TWO"), "c": ("failed", None), "d": ("completed", "FOUR"),
        "e": ("completed", "FIVE"),
    }  # fmt: skip
    assert result["status"] == "partial"
    assert len({m["_instance"] for m in result["context"]}) == 4


ODD = ["①", "a/b", "with space", "😀", "1:upper", "plan-1", "x" * 900, "†state.text", "../up", "a.b[0]"]


async def test_ids_may_be_anything(foreign: Foreign) -> None:
    async with foreign.serving(upper, echo):
        handle = await foreign.start(foreign.request(*TEMPLATE, context=[own(i, text=i[:20]) for i in ODD]))
        result = await ended(handle)
    assert result["status"] == "completed"
    assert {i: r["state"]["twice"] for i, r in result["instances"].items()} == {i: i[:20].upper() for i in ODD}


async def test_nothing_of_another_instance_is_in_a_childs_history(foreign: Foreign) -> None:
    context = [own(i, text=f"secret of {i}", more={"deep": [f"treasure {i}"]}) for i in ("north", "south")]
    calls = [call("see", "†state.seen", _scopes=["state"]), call("echo", "†state.x", value="†state.text")]
    async with foreign.serving(see, echo):
        handle = await foreign.start(foreign.request(*calls, context=context))
        result = await ended(handle)
    assert result["instances"]["north"]["state"]["seen"] == [
        {"type": "state", "state": {"text": "secret of north", "more": {"deep": ["treasure north"]}}}
    ]
    for mine, other in (("north", "south"), ("south", "north")):
        held = "".join(e.SerializeToString().decode("utf-8", "replace") for e in await events(
            foreign.client.get_workflow_handle(f"{handle.id}/{mine}")))  # fmt: skip
        assert f"secret of {mine}" in held
        assert f"secret of {other}" not in held
        assert f"treasure {other}" not in held


async def test_global_data_that_no_call_needs_is_not_copied_into_every_child(foreign: Foreign) -> None:
    context = [{"type": "state", "book": "b" * 50_000, "lang": "en"}, *texts()]
    calls = [call("upper", "†state.big", value="†state.text"), call("echo", "†state.said", value="†state.lang")]
    async with foreign.serving(upper, echo):
        handle = await foreign.start(foreign.request(*calls, context=context))
        result = await ended(handle)
    held = b"".join(e.SerializeToString() for e in await events(foreign.client.get_workflow_handle(f"{handle.id}/a")))
    assert len(held) < 10_000
    assert result["instances"]["a"]["state"] == {
        "book": "b" * 50_000, "lang": "en", "text": "one", "big": "ONE", "said": "en",
    }  # fmt: skip


async def test_an_own_push_extends_a_global_list(foreign: Foreign) -> None:
    context = [{"type": "state", "list": [1]}, *texts()]
    calls = [
        call("echo", "†state.list", value=2, _outputMethod="push"),
        call("echo", "†state.seen", value="†state.list"),
    ]
    async with foreign.serving(echo):
        result = await foreign.run(*calls, context=context)
    assert result["state"] == {"list": [1]}
    assert result["instances"]["a"]["state"] == {"text": "one", "list": [1, 2], "seen": [1, 2]}


async def test_pausing_the_run_pauses_its_instances(foreign: Foreign) -> None:
    gate = Gate()
    calls = [call("wait", "†state.x", value="†state.text"), call("echo", "†state.y", value="†state.x")]
    async with foreign.serving(gate.activity(), echo):
        handle = await foreign.start(foreign.request(*calls, context=texts()))
        await gate.reached(2)
        await handle.signal("pause")
        child = foreign.client.get_workflow_handle(f"{handle.id}/a")
        from tests.support import assert_eventually

        async def paused() -> bool:
            return (await child.query("status"))["phase"] == "paused"

        await assert_eventually(paused)
        gate.opened.set()

        async def rests() -> bool:
            return states(await child.query("status"))["1:wait"] == "completed"

        await assert_eventually(rests)
        assert states(await child.query("status"))["2:echo"] in ("ready", "pending")
        await handle.signal("resume")
        assert (await ended(handle))["status"] == "completed"


async def test_what_is_provided_reaches_the_instance_that_waits_for_it(foreign: Foreign) -> None:
    calls = [call("echo", "†state.y", value="†input.answer")]
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(*calls, context=texts(), missing="wait"))
        await handle.signal("provide", {"type": "input", "input": {"answer": 1}, "_instance": "a"})
        await handle.signal("provide", {"type": "input", "input": {"answer": 2}, "_instance": "b"})
        result = await ended(handle)
    assert {i: r["state"]["y"] for i, r in result["instances"].items()} == {"a": 1, "b": 2}


async def test_cancelling_the_run_cancels_its_instances(foreign: Foreign) -> None:
    gate = Gate()
    async with foreign.serving(gate.activity()):
        handle = await foreign.start(foreign.request(call("wait", "†state.x"), context=texts()))
        await gate.reached(2)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as failed:
            await ended(handle)
        assert isinstance(failed.value.cause, CancelledError)
        child = await foreign.client.get_workflow_handle(f"{handle.id}/a").describe()
        assert child.status is not None
        assert child.status.name in ("CANCELED", "FAILED")


async def test_a_batch_that_is_too_large_for_one_result_says_where_the_rest_is(foreign: Foreign) -> None:
    context = [own(f"i{n}", text="x" * 20_000) for n in range(30)]
    async with foreign.serving(upper, echo):
        handle = await foreign.start(foreign.request(*TEMPLATE, context=context))
        result = await ended(handle)
    assert result["instances"]["i7"] == {"status": "completed"}
    assert "omitted" in result
    alone = await foreign.client.get_workflow_handle(f"{handle.id}/i7").result()
    assert alone["state"]["twice"] == "X" * 20_000
    assert (await handle.query("context", {"path": "†state.twice", "instance": "i7"}))["value"] == "X" * 20_000


# -- agents ------------------------------------------------------------------------


@pytest.fixture
def agents(foreign: Foreign, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Agents:
    monkeypatch.setenv("ACTS_SCRIPTS", str(tmp_path))
    return Agents(foreign, tmp_path)


async def test_an_agent_plans_a_whole_batch_in_one_request(foreign: Foreign, agents: Agents) -> None:
    comments = [own(f"c{n}", text=f"comment {n}") for n in range(30)]
    plan = {"calls": list(TEMPLATE), "output": {"done": True}}
    context = [foreign.tool("upper"), foreign.tool("echo"), *comments]
    async with foreign.serving(upper, echo):
        handle = await agents.start(plan, context=context)
        result = await ended(handle)
    assert (result["output"], result["ticks"], result["usage"]["requests"]) == ({"done": True}, 1, 1)
    assert result["instances"]["c12"]["state"] == {"text": "comment 12", "big": "COMMENT 12", "twice": "COMMENT 12"}
    assert len(result["calls"]) == 60
    assert json.dumps(result["context"]).count('"_instance"') == 60


async def test_an_instance_that_fails_goes_back_to_the_model_by_name(foreign: Foreign, agents: Agents) -> None:
    context = [foreign.tool("upper", options=ONCE), foreign.tool("echo"), *texts(c="break")]
    again = {"calls": [call("echo", "†state.big", value="mended", _instance="c")], "output": "ok"}
    async with foreign.serving(upper, echo):
        handle = await agents.start({"calls": list(TEMPLATE), "output": "ok"}, again, context=context)
        result = await ended(handle)
    assert (result["output"], result["ticks"]) == ("ok", 2)
    assert result["instances"]["c"]["state"]["big"] == "mended"
    assert result["instances"]["c"]["status"] == "completed"
    (error,) = [m for m in result["context"] if m["type"] == "error"]
    assert error["data"]["call"]["_instance"] == "c"
    assert error["data"]["error"]["code"] == "broken"


# -- decisions ---------------------------------------------------------------------


async def pending(handle: Handle, count: int) -> list[Json]:
    async def waits() -> Json:
        found = await handle.query("pending")
        return found if len(found) == count else None

    found: list[Json] = await assert_eventually(waits, why=f"{count} decisions wait")
    return found


async def test_a_template_is_approved_once_before_any_instance_starts(foreign: Foreign) -> None:
    request = foreign.request(*TEMPLATE, context=texts())
    request["context"][-1]["mode"] = "lazy"
    async with foreign.serving(upper, echo):
        handle = await foreign.start(request)
        (wait,) = await pending(handle, 1)
        assert wait["what"] == "plan"
        assert await children(handle) == {}
        await handle.execute_update("decide", {"decision": "approve"})
        result = await ended(handle)
    assert result["status"] == "completed"
    assert len(result["decisions"]) == 1


async def test_calls_inside_are_confirmed_one_by_one_at_the_root(foreign: Foreign) -> None:
    calls = [call("upper", "†state.big", value="†state.text", _instance=i) for i in ("a", "b", "c")]
    async with foreign.serving(upper):
        handle = await foreign.start(foreign.request(*calls, context=texts(c="three"), approve={"calls": True}))
        waits = await pending(handle, 3)
        assert {(w["instance"], w["call"]) for w in waits} == {("a", "1:upper"), ("b", "2:upper"), ("c", "3:upper")}
        told = await handle.query("status")
        assert (told["phase"], told["waits"]) == ("awaiting", 3)
        await handle.execute_update("decide", {"decision": "approve", "instance": "a"})
        await handle.signal("reject", {"instance": "b", "reason": "too loud", "by": "Ada"})
        edited = call("upper", "†state.big", value="edited", _instance="c")
        await handle.execute_update("decide", {"decision": "edit", "instance": "c", "call": "3:upper", "with": edited})

        async def version_two() -> Json:
            (wait,) = await handle.query("pending")
            return wait["version"] == 2

        await assert_eventually(version_two)
        await handle.execute_update("decide", {"decision": "approve", "instance": "c", "version": 2})
        result = await ended(handle)
    assert {i: r["status"] for i, r in result["instances"].items()} == {
        "a": "completed", "b": "rejected", "c": "completed",
    }  # fmt: skip
    assert result["instances"]["c"]["state"]["big"] == "EDITED"
    assert [(d["instance"], d["decision"]) for d in result["decisions"] if d["instance"] == "b"] == [("b", "reject")]
    assert result["status"] == "partial"


async def test_a_decision_that_several_instances_match_is_refused(foreign: Foreign) -> None:
    async with foreign.serving(upper, echo):
        handle = await foreign.start(foreign.request(*TEMPLATE, context=texts(), approve={"calls": ["upper"]}))
        await pending(handle, 2)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update("decide", {"decision": "approve", "call": "1:upper"})
        assert "2 waits are matched" in str(refused.value.cause)
        await handle.signal("approve", {"instance": "a"})
        await handle.signal("approve", {"instance": "b"})
        assert (await ended(handle))["status"] == "completed"
