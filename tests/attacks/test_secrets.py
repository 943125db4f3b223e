"""Secrets are planted in everything that a clean room is not given, and looked for in all that it recorded."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.attacks.tree import Spy, leaks, secret, state
from tests.workflow.agents import Agents, Saved, delegating
from tests.workflow.foreign import Foreign, call, came_to, ended, states, tool
from tests.workflow.tools import ONCE, echo

Json = Any


async def produce(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    return {"made": secret("result"), "go": "go"}


async def spill(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    """Fails, and says more than it should."""
    raise ApplicationError(f"it broke over {secret('failure')}", {"more": secret("detail")}, type="broken")


def planted(foreign: Foreign) -> list[Json]:
    """A context with a secret in every place that has one."""
    return [
        {"type": "system", "message": secret("system")},
        {"role": "user", "content": secret("text")},
        {"type": "data", "kind": "vault", "data": {"key": secret("vault")}, "description": secret("description"),
         "schema": {"description": secret("schema")}},
        {"type": "input", "input": {"asked": secret("input")}},
        {"type": "error", "data": {"call": {}, "error": {"message": secret("error")}}},
        tool("decoy", activity="decoy", options={"taskQueue": foreign.queue}, x={"description": secret("tool")}),
        foreign.tool("produce"), foreign.tool("spill", options=ONCE),
        state(order={"items": [secret("item0"), secret("item1")],
                     "buyer": {"name": secret("buyer"), "card": secret("card")}},
              note=secret("note"), **{"odd key": secret("odd")}),
    ]  # fmt: skip


IN_STATE = {"item0", "item1", "buyer", "card", "note", "odd", "result", "literal"}
SCOPES: dict[str, tuple[list[str] | None, set[str]]] = {
    "without scopes": (None, set()),
    "with an empty list of scopes": ([], set()),
    "with a kind": (["vault"], {"vault", "failure", "detail"}),
    "with the state": (["state"], IN_STATE),
    "with a path": (["†state.order.items"], {"item0", "item1"}),
    "with an index of a list": (["†state.order.items[1]"], {"item1"}),
    "with a key in brackets": (['†state["odd key"]'], {"odd"}),
    "with scopes that overlap": (
        ["†state.order.buyer.name", "†state.order.items[0]", "†state.order.buyer.name", "†state.order.items"],
        {"item0", "item1", "buyer"},
    ),
    "with scopes that find nothing": (["†state.order.nothing", "nowhere", "†state.note.x"], set()),
}
ROOMS = ("planner", "walked", "anonymous latent", "anonymous explicit")


def delegate(room: str, saved: Saved, foreign: Foreign) -> dict[str, Json]:
    """The tool ``send`` with one kind of clean room behind it."""
    peek = [foreign.tool("echo"), {"_tool": "echo", "value": "†input.value", "_outputPath": "†state.output"}]
    match room:
        case "planner":
            return delegating("send", saved({"context": [{"type": "system", "message": "You send."}]}))
        case "walked":
            return delegating("send", saved.walked(peek[1], context=peek[:1]))
        case "anonymous latent":
            return delegating("send", "anonymous", _output={"type": "object"})
        case "no room":
            return tool("send", activity="echo", options={"taskQueue": foreign.queue})
    return tool("send", activity="echo", options={"taskQueue": foreign.queue}, _delegate={"const": "anonymous"})


def plan(path: str | None, *scopes: list[str] | None) -> list[dict[str, Json]]:
    """Calls with something to hide, and a delegated one for each of the scopes: ``4:send``, ``5:send``, …"""
    return [
        call("produce", "†state.made", literal=secret("unseen"), _reasoningForCall=secret("why-it-was-made")),
        call("spill", "†vault.fine || †vault.failed", literal=secret("unseen-too")),
        call("echo", "†state.kept", value=secret("literal")),
        *(call(
            "send", None if path is None else f"{path}{n}", value=secret("param"),
            go="†state.made.go && †state.kept && †vault.failed.code", _reasoningForCall=secret("why"),
            **({} if named is None else {"_scopes": named}),
        ) for n, named in enumerate(scopes)),
    ]  # fmt: skip


def request(room: str, path: str | None, foreign: Foreign, agents: Agents, saved: Saved) -> dict[str, Json]:
    model = agents.script(
        ({"tool": "send"}, {"text": '{"sent": true}'}), ({"says": ["You send."]}, {"calls": [], "output": "sent"})
    )
    context = [*planted(foreign), foreign.tool("echo"), delegate(room, saved, foreign)]
    calls = plan(path, *(named for named, _ in SCOPES.values()))
    made = foreign.request(*calls, context=context, model=model, budget={"requests": 5000})
    return {**made, "schema": {"description": secret("output")}}


@pytest.mark.parametrize("room", ROOMS)
async def test_a_clean_room_has_what_it_was_given_and_nothing_beside_it(
    foreign: Foreign, agents: Agents, saved: Saved, spy: Spy, room: str
) -> None:
    async with foreign.serving(echo, produce, spill):
        handle = await foreign.start(request(room, "†archive.sent", foreign, agents, saved))
        result = await ended(handle)
    assert set(states(result).values()) == {"completed"}
    inside = {}
    for n, (_, within) in enumerate(SCOPES.values(), start=4):
        inside[f"{n}:send"] = {"param", *within}
        if room == "walked":
            inside[f"{n}:send/plan"] = {"param", *within}
    assert await leaks(foreign.client, handle, inside, spy) == {}


@pytest.mark.parametrize("room", ["planner", "walked", "anonymous latent", "anonymous explicit", "not found"])
async def test_a_clean_room_that_fails_has_no_more_than_one_that_does_not(
    foreign: Foreign, agents: Agents, saved: Saved, spy: Spy, room: str
) -> None:
    async def fail(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
        raise ApplicationError(f"over {secret('inside')}", type="broken", non_retryable=True)

    made = {
        "planner": lambda: delegating("send", saved({"config": {"maxTicks": 1}, "context": []})),
        "walked": lambda: delegating("send", saved.walked(call("fail", "†state.x"), context=[foreign.tool("fail")])),
        "anonymous latent": lambda: delegating("send", "anonymous", _output={"type": "integer"}),
        "anonymous explicit": lambda: tool("send", activity="fail", _delegate={"const": "anonymous"},
                                           options={"taskQueue": foreign.queue}),
        "not found": lambda: delegating("send", "there-is-none"),
    }[room]()  # fmt: skip
    model = agents.script(({}, {"text": f'"{secret("answer")}"'}))
    asked = foreign.request(
        *plan("†archive.sent", ["†state.order.items"]), context=[*planted(foreign), foreign.tool("echo"), made],
        model=model,
    )  # fmt: skip
    async with foreign.serving(echo, produce, spill, fail):
        handle = await foreign.start(asked)
        result = await came_to(handle)
    assert states(result)["4:send"] == "failed"
    may = {"param", "item0", "item1"}
    if room in ("walked", "anonymous explicit"):
        may |= {"inside"}
    inside = {"4:send": may}
    if room == "walked":
        inside["4:send/plan"] = may
    found = await leaks(foreign.client, handle, inside, spy)
    assert {name: what - {"answer"} for name, what in found.items() if what - {"answer"}} == {}


async def test_three_deep_each_room_has_only_what_the_one_above_handed_on(
    foreign: Foreign, agents: Agents, saved: Saved, spy: Spy
) -> None:
    third = saved({"context": [{"type": "system", "message": f"third {secret('in-third')}"}]})
    second = saved.walked(
        call("down", "†state.output", value="††plain", _scopes=["†state.order.items[1]"]),
        context=[delegating("down", third), {"type": "system", "message": secret("in-second")},
                 state(mine=secret("state-of-second"))],
    )  # fmt: skip
    first = saved.walked(
        call("down", "†state.output", value="†input.value", _scopes=["†state.order.items"]),
        context=[delegating("down", second), {"type": "system", "message": secret("in-first")},
                 state(mine=secret("state-of-first"))],
    )  # fmt: skip
    model = agents.script(({"says": ["third"]}, {"calls": [], "output": secret("answer")}))
    context = [*planted(foreign), foreign.tool("echo"), delegating("send", first)]
    asked = foreign.request(*plan("†archive.sent", ["†state.order", "†vault.key"]), context=context, model=model)
    async with foreign.serving(echo, produce, spill):
        handle = await foreign.start(asked)
        result = await ended(handle)
    assert set(states(result).values()) == {"completed"}
    given = {"param", "item0", "item1", "buyer", "card", "vault", "in-first", "state-of-first", "answer"}
    handed = {"param", "item0", "item1", "in-second", "state-of-second", "answer"}
    assert await leaks(foreign.client, handle, {
        "4:send": given, "4:send/plan": given, "4:send/plan/1:down": handed, "4:send/plan/1:down/plan": handed,
        "4:send/plan/1:down/plan/1:down": {"item1", "in-third", "answer"},
    }, spy) == {}  # fmt: skip
