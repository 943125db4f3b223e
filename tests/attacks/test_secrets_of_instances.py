"""Nothing of one instance is in the history of another, nor in what a model is shown about it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.attacks.tree import Spy, secret, secrets_in, state, tree
from tests.workflow.agents import Agents, Saved, delegating
from tests.workflow.foreign import Foreign, Handle, call, ended, own, tool
from tests.workflow.tools import echo

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
