"""Nothing of one instance is in the history of another, nor in what a model is shown about it."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.attacks.tree import Saved, Spy, delegating, leaks, own, secret, secrets_in, state, tree
from tests.support import assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.foreign import Foreign, Handle, call, came_to, ended, states, tool
from tests.workflow.tools import ONCE, echo

Json = Any
OBJECT = {"type": "object"}
SAY = {"context": [{"type": "system", "message": "You send."}]}
SENT = ({"says": ["You send."]}, {"calls": [], "output": "sent"})


def texts(*ids: str) -> list[Json]:
    return [own(i, text=secret(f"text-{i}"), hidden=secret(f"hidden-{i}")) for i in ids]


def about(found: set[str], id_: str) -> set[str]:
    """The secrets of one instance among those found."""
    return {s for s in found if s.rpartition("-")[2] == id_}


async def foreign_secrets(foreign: Foreign, root: Handle, spy: Spy, *ids: str) -> dict[str, set[str]]:
    """By run below an instance's own: what it has of the others."""
    out = {}
    for name, run in (await tree(foreign.client, root)).items():
        found = run.secrets | spy.secrets(run.id)
        for id_ in ids:
            if f"/{id_}/" in f"/{name}/":
                others = {s for other in ids if other != id_ for s in about(found, other)}
                if others:
                    out[name] = others
    return out


@pytest.mark.parametrize("per_child", [1, 2])
async def test_a_model_that_answers_for_one_instance_is_shown_no_other(
    foreign: Foreign, agents: Agents, spy: Spy, per_child: int
) -> None:
    context = [tool("judge", activity="", _output=OBJECT), state(common=secret("common")), *texts("a", "b")]
    model = agents.script(({"tool": "judge"}, {"text": '{"fine": true}'}))
    calls = [call("judge", "†state.all"), call("judge", "†state.some", _scopes=["†state.text"])]
    request = foreign.request(*calls, context=context, model=model, instancesPerChild=per_child)
    handle = await foreign.start(request)
    assert (await ended(handle))["status"] == "completed"
    shown = sorted(sorted(secrets_in(words)) for words in spy.words("judge"))
    assert shown == [
        ["common", "hidden-a", "text-a"], ["common", "hidden-b", "text-b"], ["text-a"], ["text-b"],
    ]  # fmt: skip
    if per_child == 1:
        assert await foreign_secrets(foreign, handle, spy, "a", "b") == {}


async def test_in_one_workflow_with_global_calls_each_instance_is_shown_its_own(
    foreign: Foreign, agents: Agents, saved: Saved, spy: Spy
) -> None:
    context = [
        tool("judge", activity="", _output=OBJECT), delegating("send", saved(SAY)), foreign.tool("echo"),
        state(common=secret("common")), *texts("a", "b"),
    ]  # fmt: skip
    model = agents.script(({"tool": "judge"}, {"text": '{"fine": true}'}), SENT)
    calls = [call("echo", "†state.greeting", value=secret("greeting"))]
    for i in ("a", "b"):
        calls += [
            call("judge", "†state.all", _instance=i, value="†state.greeting"),
            call("send", "†state.sent", _instance=i, value="†state.greeting", _scopes=["state"]),
            call("send", "†state.again", _instance=i, value="†state.sent", _scopes=["†state.hidden"]),
        ]
    calls.append(call("send", "†state.whole", value="†state.greeting", _scopes=["state"]))
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(*calls, context=context, model=model))
        result = await ended(handle)
    assert result["status"] == "completed"
    shown = sorted(sorted(secrets_in(words)) for words in spy.words("judge"))
    assert shown == [["common", "greeting", f"hidden-{i}", f"text-{i}"] for i in ("a", "b")]
    allowed: dict[str, set[str]] = {"8:send": {"greeting", "common"}}
    for i, at in (("a", 3), ("b", 6)):
        allowed[f"{i}/{at}:send"] = {"greeting", "common", f"text-{i}", f"hidden-{i}"}
        allowed[f"{i}/{at + 1}:send"] = {f"hidden-{i}"}
    found = await tree(foreign.client, handle)
    ids = {name.rpartition("/")[2]: name for name in found if name}
    assert await leaks(
        foreign.client, handle, {ids[name.rpartition("/")[2]]: what for name, what in allowed.items()}, spy
    ) == {}  # fmt: skip


async def test_an_agent_keeps_the_instances_of_its_batch_apart(
    foreign: Foreign, agents: Agents, saved: Saved, spy: Spy
) -> None:
    context = [
        delegating("send", saved(SAY)), foreign.tool("echo"), tool("judge", activity="", _output=OBJECT),
        {"type": "system", "message": secret("system")}, *texts("a", "b"),
    ]  # fmt: skip
    first = {"calls": [call("echo", "†state.copy", value="†state.text"),
                       call("send", "†state.sent", value="†state.copy", _scopes=["state"]),
                       call("judge", "†state.verdict", value="†state.sent")]}  # fmt: skip
    second = {"calls": [call("send", "†state.last", value=f"see {secret('last-a')}", _instance="a", _scopes=["state"]),
                        call("send", "†state.last", value=f"see {secret('last-b')}", _instance="b")],
              "output": "done"}  # fmt: skip
    async with foreign.serving(echo):
        handle = await agents.start(
            SENT, ({"tool": "judge"}, {"text": '{"fine": true}'}), ({"tick": 1}, first), ({"tick": 2}, second),
            context=context,
        )  # fmt: skip
        result = await ended(handle)
    assert (result["output"], result["ticks"]) == ("done", 2)
    assert await foreign_secrets(foreign, handle, spy, "a", "b") == {}
    rooms = {n: run for n, run in (await tree(foreign.client, handle)).items() if run.type == "Delegate"}
    assert sorted(rooms) == [
        "plan-1/a/2:send", "plan-1/b/2:send", "plan-2/a/1:send", "plan-2/b/2:send",
    ]  # fmt: skip
    assert rooms["plan-2/b/2:send"].secrets == {"last-b"}
    assert rooms["plan-1/a/2:send"].secrets == {"text-a", "hidden-a"}
    judged = [secrets_in(words) for words in spy.words("judge")]
    assert [len(about(s, "a")) > 0 and len(about(s, "b")) > 0 for s in judged] == [False, False]


async def test_what_is_provided_for_one_instance_is_not_in_another(foreign: Foreign, spy: Spy) -> None:
    calls = [call("echo", "†state.y", value="†input.answer")]
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(*calls, context=texts("a", "b"), missing="wait"))

        async def both() -> bool:
            return set(await tree(foreign.client, handle)) == {"", "a", "b"}

        await assert_eventually(both)
        for i in ("a", "b"):
            message = {"type": "input", "input": {"answer": secret(f"answer-{i}")}, "_instance": i}
            await handle.signal("provide", message)
        assert (await ended(handle))["status"] == "completed"
    assert await foreign_secrets(foreign, handle, spy, "a", "b") == {}


async def test_how_one_instance_failed_is_not_in_another(foreign: Foreign, spy: Spy) -> None:
    async def fail(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
        if call["value"] == secret("text-a"):
            raise ApplicationError(f"over {secret('failed-a')}", type="broken", non_retryable=True)
        return "fine"

    calls = [call("fail", "†state.x", value="†state.text"), call("fail", "†state.y", value="†state.x")]
    context = [foreign.tool("fail", options=ONCE), *texts("a", "b", "c")]
    async with foreign.serving(fail):
        handle = await foreign.start(foreign.request(*calls, context=context))
        result = await came_to(handle)
    assert {i: r["status"] for i, r in result["instances"].items()} == {
        "a": "failed", "b": "completed", "c": "completed",
    }  # fmt: skip
    assert await foreign_secrets(foreign, handle, spy, "a", "b", "c") == {}


async def test_a_definition_with_instances_of_its_own_has_none_of_its_parent(
    foreign: Foreign, saved: Saved, spy: Spy
) -> None:
    name = saved.walked(
        call("echo", "†state.output", value="†state.text"),
        context=[foreign.tool("echo"), own("x", text="inner x"), own("y", text="inner y")],
    )
    calls = [call("send", "†state.sent", value=1, _scopes=["state"])]
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(*calls, context=[delegating("send", name), *texts("a", "b", "c")]))
        result = await came_to(handle)
    assert result["status"] == "completed", result["errors"]
    assert await foreign_secrets(foreign, handle, spy, "a", "b", "c") == {}
    assert states(result["instances"]["c"]) == {"1:send": "completed"}
