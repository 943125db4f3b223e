"""Delegates that nobody would write on purpose: a clear error, or plain data, and never a run that hangs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.attacks.tree import TEXT
from tests.workflow.agents import Agents, Saved, delegating
from tests.workflow.foreign import Foreign, call, came_to, ended, states, tool
from tests.workflow.tools import echo

Json = Any
THREE_MB = "x" * 3_000_000


async def one(
    foreign: Foreign, made: dict[str, Json], /, *, context: list[Json] | None = None, **more: Json
) -> dict[str, Json]:
    """A plan of one Call of the tool ``send``; whatever came of it."""
    config = {k: more.pop(k) for k in ("model", "budget", "resolve") if k in more}
    request = foreign.request(call("send", "†state.r", **more), context=[made, *(context or [])], **config)
    return await came_to(await foreign.start(request))


def error_of(result: dict[str, Json]) -> tuple[str, str]:
    (error,) = result["errors"]
    return error["code"], error["message"]


@pytest.mark.parametrize("depth", [None, 0])
async def test_a_delegate_that_delegates_to_itself_ends(foreign: Foreign, saved: Saved, depth: int | None) -> None:
    name = saved({"context": []})
    saved.walked(call("send", "†state.output"), context=[delegating("send", name)])
    saved({"context": [delegating("send", name),
                       {"type": "plan", "run": True, "plan": [call("send", "†state.output")]}]}, name)  # fmt: skip
    config = {} if depth is None else {"budget": {"depth": depth}}
    result = await one(foreign, delegating("send", name), **config)
    assert f"{8 if depth is None else depth} deep" in error_of(result)[1]


NAMES = [
    "nothing-of-that-name", "../secrets", "/etc/passwd", "a/../../b", "..", ".", "", " ", "file:///etc/passwd",
    "http://127.0.0.1:1/x.json", "http://169.254.169.254/latest", "ftp://x/y", "https://", "HTTP://localhost",
    "anonymous ", "Anonymous", "\u0000", "a\u0000b", "x" * 5000, "😀", "†state.name", "%2e%2e/x", "C:\\x", "~/x", "-",
    "*",
]  # fmt: skip


async def test_a_delegate_that_there_is_not_is_the_failure_of_its_call(foreign: Foreign) -> None:
    made = tool("send", activity="", _delegate=TEXT)

    async def came(name: str) -> dict[str, Json] | str:
        request = foreign.request(call("send", "†state.r", _delegate=name), context=[made], model="scripted:none")
        try:
            return await came_to(await foreign.start(request))
        except AssertionError as refused:  # refused as a whole: clear, too
            return str(refused)

    for name, result in zip(NAMES, await asyncio.gather(*map(came, NAMES)), strict=True):
        if isinstance(result, str):
            assert "InvalidRequest" in result, name
        else:
            assert states(result) == {"1:send": "failed"}, name
            assert "root:" not in str(result)


async def test_output_that_breaks_the_schema_of_the_definition_never_arrives(
    foreign: Foreign, agents: Agents, saved: Saved
) -> None:
    name = saved({"config": {"maxTicks": 2}, "context": [], "schema": {"type": "object", "required": ["n"]}})
    model = agents.script(({}, {"calls": [], "output": {"m": 1}}))
    result = await one(foreign, delegating("send", name), model=model)
    assert (states(result), result["state"]) == ({"1:send": "failed"}, {})


@pytest.mark.parametrize("room", [
    "planned",
    "walked", "anonymous",
])  # fmt: skip
async def test_what_a_delegate_brings_back_may_be_too_large_and_then_its_call_fails(
    foreign: Foreign, agents: Agents, saved: Saved, room: str
) -> None:
    async def grow(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
        return "x" * 1_200_000

    grown = [call("grow", "†state.a"), call("grow", "†state.b"), call("grow", "†state.c")]
    model = agents.script(({"tick": 1}, {"calls": grown, "output": ["†state.a", "†state.b", "†state.c"]}))
    made = {
        "planned": delegating("send", saved({"config": {"maxTicks": 1}, "context": [foreign.tool("grow")]})),
        "walked": delegating("send", saved.walked(*grown, context=[foreign.tool("grow")])),
        "anonymous": tool("send", activity="huge", options={"taskQueue": foreign.queue, "retry": {"maxAttempts": 1}},
                          _delegate={"const": "anonymous"}),
    }[room]  # fmt: skip

    async def huge(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
        return THREE_MB

    context = [foreign.tool("echo")]
    calls = [call("send", "†state.r", _errorPath="†state.e"), call("echo", "†state.after", value=1)]
    async with foreign.serving(grow, huge, echo):
        handle = await foreign.start(foreign.request(*calls, context=[made, *context], model=model))
        result = await ended(handle)
    assert result["state"]["after"] == 1
    assert result["state"]["e"]["code"] in ("PayloadTooLarge", "PayloadsTooLarge")
    assert result["usage"]["requests"] == (room == "planned")
