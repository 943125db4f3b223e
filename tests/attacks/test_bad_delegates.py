"""Delegates that nobody would write on purpose: a clear error, or plain data, and never a run that hangs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.attacks.tree import OBJECT, TEXT, Saved, delegating, own, state
from tests.workflow.agents import Agents
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


# -- itself --------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [None, 0, 1])
async def test_a_delegate_that_delegates_to_itself_ends(foreign: Foreign, saved: Saved, depth: int | None) -> None:
    name = saved({"context": []})
    saved.walked(call("send", "†state.output"), context=[delegating("send", name)])
    saved({"context": [delegating("send", name),
                       {"type": "plan", "run": True, "plan": [call("send", "†state.output")]}]}, name)  # fmt: skip
    config = {} if depth is None else {"budget": {"depth": depth}}
    result = await one(foreign, delegating("send", name), **config)
    assert f"{8 if depth is None else depth} deep" in error_of(result)[1]


async def test_an_agent_that_delegates_to_itself_ends_with_an_error_and_its_budget(
    foreign: Foreign, agents: Agents, saved: Saved
) -> None:
    name = saved({"context": []})
    saved({"config": {"maxTicks": 2}, "context": [delegating("send", name)]}, name)
    model = agents.script(({}, {"calls": [call("send", "†state.x")], "output": None}))
    result = await one(foreign, delegating("send", name), model=model, budget={"requests": 20, "depth": 3})
    assert states(result) == {"1:send": "failed"}
    assert result["usage"]["requests"] <= 20


async def test_upfront_resolution_of_a_delegate_that_delegates_to_itself_ends(foreign: Foreign, saved: Saved) -> None:
    name = saved({"context": []})
    saved({"config": {"resolve": "upfront"}, "context": [
        delegating("send", name), {"type": "plan", "run": True, "plan": [call("send", "†state.output")]},
    ]}, name)  # fmt: skip
    result = await one(foreign, delegating("send", name), resolve="upfront", budget={"depth": 2})
    assert "2 deep" in error_of(result)[1]


# -- which delegate --------------------------------------------------------------------------


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


@pytest.mark.parametrize("value", [None, 1, True, ["anonymous"], {"const": "anonymous"}], ids=str)
async def test_a_delegate_that_is_no_name_is_refused(foreign: Foreign, value: Json) -> None:
    error = await foreign.failure(
        call("send", "†state.r", _delegate=value), context=[tool("send", activity="", _delegate=TEXT)]
    )
    assert error.type == "InvalidRequest"


async def test_an_empty_delegate_falls_to_the_activity_of_the_tool(foreign: Foreign) -> None:
    made = tool("send", activity="echo", options={"taskQueue": foreign.queue}, _delegate={"const": ""})
    async with foreign.serving(echo):
        result = await one(foreign, made, value=7)
    assert result["state"] == {"r": 7}


async def test_a_delegate_goes_before_an_activity(foreign: Foreign, saved: Saved) -> None:
    name = saved.walked(call("echo", "†state.output", value="of the delegate"), context=[foreign.tool("echo")])
    made = tool("send", activity="echo", options={"taskQueue": foreign.queue}, _delegate={"const": name})
    async with foreign.serving(echo):
        result = await one(foreign, made, value="of the activity")
    assert result["state"] == {"r": "of the delegate"}


# -- models, schemas, budgets ------------------------------------------------------------------


@pytest.mark.parametrize("room", ["planned", "latent inside", "anonymous"])
async def test_without_any_model_it_is_a_clear_error(foreign: Foreign, saved: Saved, room: str) -> None:
    think = tool("think", activity="", _output=OBJECT)
    made = {
        "planned": delegating("send", saved({"context": []})),
        "latent inside": delegating("send", saved.walked(call("think", "†state.output"), context=[think])),
        "anonymous": delegating("send", "anonymous", _output=OBJECT),
    }[room]
    handle = await foreign.start(foreign.request(call("send", "†state.r"), context=[made]))
    try:
        code, message = error_of(await came_to(handle))
    except AssertionError as refused:
        code, message = "InvalidRequest", str(refused)
    assert code == "InvalidRequest"
    assert "model" in message


async def test_output_that_breaks_the_schema_of_the_definition_never_arrives(
    foreign: Foreign, agents: Agents, saved: Saved
) -> None:
    name = saved({"config": {"maxTicks": 2}, "context": [], "schema": {"type": "object", "required": ["n"]}})
    model = agents.script(({}, {"calls": [], "output": {"m": 1}}))
    result = await one(foreign, delegating("send", name), model=model)
    assert (states(result), result["state"]) == ({"1:send": "failed"}, {})


async def test_output_that_breaks_the_schema_of_the_tool_never_arrives(foreign: Foreign, saved: Saved) -> None:
    name = saved.walked(call("echo", "†state.output", value="text"), context=[foreign.tool("echo")])
    made = delegating("send", name)
    made["tool"]["properties"]["_output"] = {"type": "integer"}
    async with foreign.serving(echo):
        result = await one(foreign, made)
    assert (error_of(result)[0], result["state"]) == ("SchemaMismatch", {})


@pytest.mark.parametrize("given", [{}, {"n": "text"}, {"n": 1, "more": 2}, {"n": None}], ids=str)
async def test_parameters_must_match_what_was_resolved_upfront(foreign: Foreign, saved: Saved, given: Json) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    name = saved.walked(
        call("echo", "†state.output", value="†input.n"),
        context=[foreign.tool("echo"), {"type": "input", "schema": schema}],
    )
    error = await foreign.failure(
        call("send", "†state.r", **given), context=[delegating("send", name)], resolve="upfront"
    )
    assert error.details[0][0]["code"] == "schemaMismatch"


async def test_references_are_checked_against_it_when_they_have_resolved(foreign: Foreign, saved: Saved) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    name = saved.walked(
        call("echo", "†state.output", value="†input.n"),
        context=[foreign.tool("echo"), {"type": "input", "schema": schema}],
    )
    async with foreign.serving(echo):
        result = await one(
            foreign, delegating("send", name), context=[state(n="text")], n="†state.n", resolve="upfront"
        )
    assert error_of(result)[0] == "SchemaMismatch"


@pytest.mark.parametrize("budget", [{"requests": 0}, {"tokens": 0}, {"calls": 0}, {"cost": 0}, {"depth": 0}], ids=str)
@pytest.mark.parametrize("room", ["planned", "anonymous"])
async def test_a_budget_of_nothing_is_an_error_and_asks_nobody(
    foreign: Foreign, agents: Agents, saved: Saved, budget: Json, room: str, spy: Any
) -> None:
    name = saved({"context": []}) if room == "planned" else "anonymous"
    model = agents.script(({}, {"text": '{"calls": [], "output": 1}'}))
    handle = await foreign.start(
        foreign.request(
            call("send", "†state.r"), context=[delegating("send", name, _output={})], model=model, budget=budget
        )
    )
    try:
        result = await came_to(handle)
    except AssertionError as refused:
        assert "InvalidRequest" in str(refused)  # noqa: PT017
    else:
        assert states(result) == {"1:send": "failed"}
    assert spy.shown == []


async def test_a_required_reason_does_not_keep_a_tool_out_of_an_anonymous_room(foreign: Foreign) -> None:
    made = tool("send", activity="echo", options={"taskQueue": foreign.queue}, _delegate={"const": "anonymous"})
    made["tool"]["required"] = ["_reasoningForCall", "_outputPath"]
    async with foreign.serving(echo):
        result = await one(foreign, made, value=7, _reasoningForCall="because")
    assert result["errors"] == []
    assert result["state"] == {"r": 7}


# -- sizes -------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("in_instance", [False, True])
async def test_what_is_in_scope_may_be_too_large_and_then_its_call_fails(
    foreign: Foreign,
    saved: Saved,
    in_instance: bool,  # noqa: FBT001 - a case
) -> None:
    async def grow(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
        return "x" * 1_000_000

    name = saved.walked(call("echo", "†state.output", value=1), context=[foreign.tool("echo")])
    calls = [
        *(call("grow", f"†state.s{n}") for n in range(3)),
        call("send", "†state.r", _scopes=["state"], _errorPath="†state.e"),
        call("send", "†state.fine", _scopes=["†state.nothing"]),
    ]
    more = [own("a", x=1)] if in_instance else []
    context = [delegating("send", name), foreign.tool("grow"), *more]
    async with foreign.serving(grow, echo):
        handle = await foreign.start(foreign.request(*calls, context=context))
        result = await ended(handle)
        where = {"instance": "a"} if in_instance else {}
        error = (await handle.query("context", {"path": "†state.e", **where}))["value"]
        fine = (await handle.query("context", {"path": "†state.fine", **where}))["value"]
    assert result["status"] == "completed"
    assert (error["code"], fine) == ("PayloadTooLarge", 1)
