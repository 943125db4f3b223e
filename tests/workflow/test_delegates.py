"""Delegated Calls: clean rooms, what is handed in and out, trees, budgets."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from tests.support import assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.foreign import Foreign, Handle, call, ended, events, of_type, result_of_failed, tool
from tests.workflow.tools import Heart

Json = Any
TEXT = {"type": "string"}


class Saved:
    """Definitions in the folder that the engine's worker looks into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, definition: Json, name: str | None = None) -> str:
        name = name or f"d-{uuid.uuid4().hex[:8]}"
        path = self.folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(definition), "utf-8")
        return name


@pytest.fixture
def saved(delegates_folder: Path) -> Saved:
    return Saved(delegates_folder)


@pytest.fixture
def agents(foreign: Foreign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agents:
    monkeypatch.setenv("ACTS_SCRIPTS", str(tmp_path))
    return Agents(foreign, tmp_path)


def delegating(name: str, delegate: str, **properties: Json) -> dict[str, Json]:
    """A Tool with a delegate."""
    return tool(name, activity="", _delegate={"const": delegate}, **properties)


async def held(handle: Handle) -> str:
    """All of a history, to be searched."""
    return "".join(e.SerializeToString().decode("utf-8", "replace") for e in await events(handle))


SPEAKER = {
    "context": [
        {"type": "system", "message": "You send messages."},
        {
            "type": "input",
            "schema": {"type": "object", "properties": {"recipientId": TEXT, "messageBody": TEXT}},
        },
    ],
    "schema": {"type": "object", "properties": {"sent": TEXT}, "required": ["sent"]},
}


async def test_a_delegate_sees_its_definition_its_scopes_and_its_input_and_nothing_else(
    foreign: Foreign, agents: Agents, saved: Saved
) -> None:
    name = saved(SPEAKER)
    model = agents.script(
        ({"says": ["You send messages.", "u_123", "scoped-secret"]}, {"calls": [], "output": {"sent": "yes"}})
    )
    context = [
        delegating("send", name, userId=TEXT, text=TEXT),
        {"type": "system", "message": "hidden-instruction"},
        {"type": "state", "state": {"open": "scoped-secret", "closed": "planted-secret"}},
        {"type": "data", "kind": "vault", "data": {"key": "planted-vault"}},
        {"type": "state", "state": {"note": "planted-note"}},
    ]
    handle = await foreign.start(
        foreign.request(
            call("send", "†state.receipt", userId="u_123", text="Hello", _scopes=["†state.open"]),
            context=context, model=model,
        )
    )  # fmt: skip
    result = await ended(handle)
    assert result["state"]["receipt"] == {"sent": "yes"}
    assert result["usage"]["requests"] == 1
    child = foreign.client.get_workflow_handle(f"{handle.id}/1:send")
    assert (await child.describe()).workflow_type == "Delegate"
    inside = await held(child)
    assert "scoped-secret" in inside
    for secret in ("hidden-instruction", "planted-secret", "planted-vault", "planted-note"):
        assert secret not in inside
    messages = await child.query("context")
    assert messages[:2] == [SPEAKER["context"][0], SPEAKER["context"][1]]
    assert messages[2] == {"type": "state", "state": {"open": "scoped-secret"}}
    assert messages[3] == {
        "type": "input", "input": {"userId": "u_123", "text": "Hello"}, "schema": SPEAKER["context"][1]["schema"],
    }  # fmt: skip


async def test_anonymous_answers_a_latent_tool_in_a_clean_room(foreign: Foreign, agents: Agents) -> None:
    model = agents.script(
        ({"tool": "judge", "says": ["scoped"], "lacks": ["planted", "hidden"]}, {"text": '{"verdict": "good"}'})
    )
    output = {"type": "object", "properties": {"verdict": TEXT}, "required": ["verdict"]}
    context = [
        delegating("judge", "anonymous", text=TEXT, _output=output),
        {"type": "system", "message": "hidden"},
        {"type": "state", "state": {"shown": "scoped", "not": "planted"}},
    ]
    handle = await foreign.start(
        foreign.request(
            call("judge", "†state.verdict", text="fine", _scopes=["†state.shown"]), context=context, model=model
        )
    )
    result = await ended(handle)
    assert result["state"]["verdict"] == {"verdict": "good"}
    assert result["usage"]["requests"] == 1
    inside = await held(foreign.client.get_workflow_handle(f"{handle.id}/1:judge"))
    assert "planted" not in inside


@activity.defn
async def look(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    return {"type": "state", "state": {"right": {"call": call, "context": context}}}


async def test_anonymous_runs_an_explicit_tool_there(foreign: Foreign) -> None:
    made = tool("look", activity="look", options={"taskQueue": foreign.queue}, _delegate={"const": "anonymous"})
    context = [made, {"type": "state", "state": {"a": 1, "b": "planted"}}]
    async with foreign.serving(look):
        handle = await foreign.start(
            foreign.request(
                call("look", "†state.left || †state.right", value="††x", _scopes=["†state.a"]), context=context
            )
        )
        result = await ended(handle)
    seen = result["state"]["right"]
    assert seen["context"] == [{"type": "state", "state": {"a": 1}}]
    assert seen["call"]["value"] == "†x"
    assert seen["call"]["_id"]
    child = foreign.client.get_workflow_handle(f"{handle.id}/1:look")
    assert "planted" not in await held(child)


WALKED = {
    "context": [
        {"type": "plan", "run": True, "plan": [{"_tool": "bump", "n": "†input.n", "_outputPath": "†state.output"}]},
    ],
    "schema": {"type": "integer"},
}


@activity.defn
async def bump(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    return call["n"] + 1


async def test_a_definition_whose_plan_says_run_is_walked_as_it_stands(foreign: Foreign, saved: Saved) -> None:
    name = saved({**WALKED, "context": [foreign.tool("bump"), *WALKED["context"]]})
    calls = [
        call("inc", "†state.n", n="†state.n"),
        call("inc", "†state.n", n="†state.n"),
        call("inc", "†state.n", n="†state.n"),
    ]
    async with foreign.serving(bump):
        result = await foreign.run(*calls, context=[delegating("inc", name), {"type": "state", "n": 1}])
    assert result["state"] == {"n": 4}
    assert result["usage"]["requests"] == 0


async def test_delegates_may_be_nested_only_so_deep(foreign: Foreign, saved: Saved) -> None:
    name = f"self-{uuid.uuid4().hex[:6]}"
    saved({"context": [
        delegating("again", name),
        {"type": "plan", "run": True, "plan": [{"_tool": "again", "_outputPath": "†state.output"}]},
    ]}, name)  # fmt: skip
    handle = await foreign.start(
        foreign.request(call("again", "†state.n"), context=[delegating("again", name)], budget={"depth": 3})
    )
    result = await result_of_failed(handle)
    assert "3 deep" in result["errors"][0]["message"]


async def test_one_budget_holds_for_the_whole_tree(foreign: Foreign, agents: Agents, saved: Saved) -> None:
    inner = saved({"context": [{"type": "system", "message": "inner"}]})
    outer = saved({"context": [
        delegating("inner", inner),
        {"type": "plan", "run": True, "plan": [
            {"_tool": "inner", "_outputPath": f"†state.r{n}", "_errorPath": f"†state.e{n}"} for n in range(5)
        ]},
    ]})  # fmt: skip
    model = agents.script(({"says": ["inner"]}, {"calls": [], "output": "answered"}))
    calls = [call("outer", f"†state.o{n}") for n in range(4)]
    handle = await foreign.start(
        foreign.request(*calls, context=[delegating("outer", outer)], model=model, budget={"requests": 7})
    )
    result = await ended(handle)
    assert result["usage"]["requests"] == 7
    found = [v for o in result["state"].values() for v in o.values()]
    assert len([v for v in found if v == "answered"]) == 7
    assert {v["code"] for v in found if v != "answered"} == {"LimitExceeded"}


async def test_resolved_upfront_the_planner_sees_what_the_delegate_wants(
    foreign: Foreign, agents: Agents, saved: Saved
) -> None:
    definition = json.loads(json.dumps(SPEAKER))
    definition["context"][1]["schema"]["required"] = ["recipientId"]
    name = saved(definition)
    wrong = {"calls": [call("send", "†state.receipt", text="hi")], "output": None}
    right = {"calls": [call("send", "†state.receipt", recipientId="u1")], "output": "†state.receipt"}
    handle = await agents.start(
        ({"says": ["You send messages."]}, {"calls": [], "output": {"sent": "ok"}}),
        ({"tick": 1, "says": ["recipientId"]}, wrong), ({"tick": 2, "says": ["required"]}, right),
        context=[delegating("send", name)], resolve="upfront",
    )  # fmt: skip
    result = await ended(handle)
    assert result["output"] == {"sent": "ok"}
    assert result["ticks"] == 2
    (error,) = [m for m in result["context"] if m["type"] == "error"]
    assert error["data"]["error"]["code"] == "schemaMismatch"
    (loaded,) = [e for e in await of_type(handle, "ACTIVITY_TASK_SCHEDULED") if e.activity_type.name == "acts.delegate"]
    assert loaded is not None


async def test_a_definition_that_changed_since_it_was_resolved_cannot_slip_in(foreign: Foreign, saved: Saved) -> None:
    name = saved({**WALKED, "context": [foreign.tool("bump"), *WALKED["context"]]})
    evil = {"context": [{"type": "state", "output": 666}, {"type": "plan", "run": True, "plan": []}]}

    @activity.defn
    async def swap(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
        saved(evil, name)
        return 1

    calls = [call("swap", "†state.n"), call("inc", "†state.n", n="†state.n")]
    async with foreign.serving(bump, swap):
        handle = await foreign.start(
            foreign.request(*calls, context=[delegating("inc", name), foreign.tool("swap")], resolve="upfront")
        )
        result = await result_of_failed(handle)
    assert result["errors"][0]["code"] == "DelegateChanged"


async def test_a_delegate_in_an_instance_sees_only_its_instance(foreign: Foreign, agents: Agents, saved: Saved) -> None:
    name = saved({"context": [{"type": "system", "message": "You translate."}]})
    model = agents.script(
        ({"says": ["Привет"], "lacks": ["Bonjour"]}, {"calls": [], "output": "Hello-ru"}),
        ({"says": ["Bonjour"], "lacks": ["Привет"]}, {"calls": [], "output": "Hello-fr"}),
    )
    context = [
        tool("translate", activity="", _delegate=TEXT),
        {"type": "state", "_instance": "①", "text": "Привет"},
        {"type": "state", "_instance": "②", "text": "Bonjour"},
    ]
    calls = [call("translate", "†state.en", _delegate=name, _instance=i, _scopes=["state"]) for i in ("①", "②")]
    handle = await foreign.start(foreign.request(*calls, context=context, model=model))
    result = await ended(handle)
    assert {i: r["state"]["en"] for i, r in result["instances"].items()} == {"①": "Hello-ru", "②": "Hello-fr"}
    inside = await held(foreign.client.get_workflow_handle(f"{handle.id}/①/1:translate"))
    assert "Привет" in inside
    assert "Bonjour" not in inside


async def test_an_approval_inside_a_delegate_is_seen_and_given_at_the_root(foreign: Foreign, saved: Saved) -> None:
    name = saved({"config": {"approve": {"calls": True}},
                  **WALKED, "context": [foreign.tool("bump"), *WALKED["context"]]})  # fmt: skip
    async with foreign.serving(bump):
        handle = await foreign.start(foreign.request(call("inc", "†state.n", n=1), context=[delegating("inc", name)]))

        async def waits() -> Json:
            return await handle.query("pending")

        (wait,) = await assert_eventually(waits)
        assert wait["call"] == "1:bump"
        assert wait["workflowId"] == f"{handle.id}/1:inc/plan"
        await handle.execute_update("decide", {"decision": "approve", "call": "1:bump"})
        result = await ended(handle)
    assert result["state"]["n"] == 2


async def test_cancelling_reaches_down_the_tree(foreign: Foreign, saved: Saved) -> None:
    heart = Heart()
    made = {"context": [
        foreign.tool("beat", options={"heartbeat": "5s"}),
        {"type": "plan", "run": True, "plan": [{"_tool": "beat", "_outputPath": "†state.x"}]},
    ]}  # fmt: skip
    inner = saved(made)
    outer = saved({"context": [
        delegating("deep", inner),
        {"type": "plan", "run": True, "plan": [{"_tool": "deep", "_outputPath": "†state.x"}]},
    ]})  # fmt: skip
    async with foreign.serving(heart.activity()):
        handle = await foreign.start(foreign.request(call("top", "†state.x"), context=[delegating("top", outer)]))
        await asyncio.wait_for(heart.beating.wait(), 180)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await ended(handle)
        await asyncio.wait_for(heart.stopped.wait(), 180)
    found = await foreign.client.get_workflow_handle(f"{handle.id}/1:top/plan/1:deep").describe()
    assert found.status == WorkflowExecutionStatus.CANCELED
