"""People intervene below a run, or a run is interrupted: what is then said to have come of it is all of the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from temporalio.service import RPCError

from tests.attacks.tree import state
from tests.support import PATIENCE, assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.foreign import Foreign, Handle, call, came_to, cancelled, decide, ended, own
from tests.workflow.tools import echo, noise, refuse

Json = Any
PAYS = {"approve": {"calls": ["pay"]}}
DECLINED = {"code": "declined", "message": "no funds", "details": {"balance": 3}}
SOON = PATIENCE
TWO = [own("a", text="a"), own("b", text="b")]
PAY, LATER = call("pay", "†state.x", value="†state.text"), call("echo", "†state.y", value="†state.x || †state.text")


async def see(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    return context


async def pay(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    if "bytes" in call:
        return noise(call["bytes"])
    return call.get("value", "paid")


async def waits(handle: Handle, **wanted: Json) -> dict[str, Json]:
    async def found() -> Json:
        fit = [w for w in await handle.query("pending") if wanted.items() <= w.items()]
        return fit[0] if len(fit) == 1 else None

    out: dict[str, Json] = await assert_eventually(found, within=SOON, why=f"{wanted} waits")
    return out


async def edit(handle: Handle, call_: str, with_: Json, **where: str) -> None:
    """One Call is edited at the root, which is told of the new version."""
    version = (await waits(handle, call=call_, **where))["version"]
    await decide(handle, "edit", call=call_, **where, **{"with": with_})
    named = f"{call_.partition(':')[0]}:{with_['_tool']}"
    await waits(handle, **{**where, "call": named, "version": version + 1})


async def approve(handle: Handle, *instances: str, **more: str) -> None:
    for instance in instances:
        await waits(handle, instance=instance, **more)
        await decide(handle, "approve", instance=instance, **more)


async def holds(handle: Handle, question: Callable[[Json], bool], query: str = "status", *given: Json) -> None:
    """The answer of a run, which may not have begun yet, becomes such that the question is answered with yes."""

    async def found() -> bool:
        try:
            return question(await handle.query(query, *given))
        except RPCError:
            return False

    await assert_eventually(found, within=SOON)


def below(foreign: Foreign, handle: Handle, name: str) -> Handle:
    return foreign.client.get_workflow_handle(f"{handle.id}/{name}")


def all_in(state_: str) -> Callable[[Json], bool]:
    return lambda status_: bool(status_["calls"]) and all(c["state"] == state_ for c in status_["calls"])


def wrote(result: Json) -> list[tuple[str | None, str]]:
    """Which instance wrote where, in the order of the context."""
    return [(m.get("_instance"), m["_outputPath"]) for m in result["context"] if "_call" in m]


async def after_edit(foreign: Foreign, with_: Json, *plan: Json, context: list[Json] = TWO) -> Json:
    """What comes of a plan whose first Call is edited in one instance, and approved in all."""
    async with foreign.serving(pay, echo, see, refuse):
        handle = await foreign.start(foreign.request(*plan, context=context, **PAYS))
        await edit(handle, "1:pay", with_, instance="a")
        await approve(handle, *dict.fromkeys(w["instance"] for w in await handle.query("pending")))
        return await came_to(handle)


_USER = {"type": "data", "kind": "user", "data": {"name": "Ada"}, "_instance": "a"}
_BOOK = state(book="b" * 5000, name="Ada", word="text")
_SEEN = [{k: _USER[k] for k in ("type", "kind", "data")}]


@pytest.mark.parametrize(("context", "changed", "truth"), [
    pytest.param([_USER], call("pay", "†state.x", value="†user.name || †state.text"), "Ada", id="own"),
    pytest.param([_BOOK], call("pay", "†state.x", value="†state.name || †state.text"), "Ada", id="all"),
    pytest.param([_USER], call("see", "†state.x", _scopes=["user"]), _SEEN, id="scopes"),
    pytest.param([], call("echo", "†state.x", value="†state.text"), "a", id="another tool"),
    ([], call("refuse", "†state.sorry", _errorPath="†state.x"), DECLINED),
    ([], call("pay", "†state.z && †state.x", value="both"), "both"),
    ([own("a", x=["own"])], call("pay", "†state.x", value=["more"], _outputMethod="concat"), ["own", "more"]),
])  # fmt: skip
async def test_an_edited_call_reads_and_writes_as_if_it_had_been_planned_so(
    foreign: Foreign, context: list[Json], changed: Json, truth: Json
) -> None:
    name = changed["_tool"]  # the plan has a Call of it, or only the Request has it
    plan = [PAY, *([call(name, "†state.o", _errorPath="†state.o")] if name in ("see", "refuse") else [])]
    tools = [foreign.tool(t) for t in ("see", "refuse", "echo")]
    result = await after_edit(foreign, changed, *plan, context=[*tools, *context, *TWO])
    assert [r["state"]["x"] for r in result["instances"].values()] == [truth, "b"]


ASKS = call("echo", "†state.y", value="†input.answer")
ANSWER = {"type": "input", "input": {"answer": 1}}


async def test_what_is_provided_reaches_each_instance_of_a_child(foreign: Foreign) -> None:
    handle = await foreign.start(foreign.request(ASKS, context=TWO, missing="wait", instancesPerChild=2))
    child = below(foreign, handle, "a")
    await holds(child, all_in("awaiting"))
    await handle.signal("provide", {**ANSWER, "_instance": "b"})
    asked = {"path": "†input.answer", "instance": "b"}
    await holds(child, lambda found: found.get("value") == 1, "context", asked)


async def test_the_planner_is_shown_the_call_that_failed(foreign: Foreign, agents: Agents) -> None:
    context, plan = [foreign.tool("refuse")], {"calls": [call("refuse", "†state.x", value="planned")]}
    changed = call("refuse", "†state.y", value="edited")
    async with foreign.serving(refuse):
        handle = await agents.start(plan, {"output": "over"}, context=context, approve={"calls": True})
        await edit(handle, "1:refuse", changed)
        await decide(handle, "approve")
        result = await ended(handle)
    assert [m["data"]["call"] for m in result["context"] if m["type"] == "error"] == [changed]


async def test_what_an_instance_had_done_is_known_after_the_run_was_cancelled(foreign: Foreign) -> None:
    async with foreign.serving(pay, echo):
        request = foreign.request(PAY, call("echo", "†state.y", value=1), context=TWO[:1], **PAYS)
        handle = await foreign.start(request)
        await holds(
            below(foreign, handle, "a"), lambda s: [c["state"] for c in s["calls"]] == ["awaiting", "completed"]
        )
        await handle.cancel()
        await cancelled(handle)
        found = await handle.query("context", {"path": "†state.y", "instance": "a"})
    assert found.get("value") == 1


# -- what delegates write, and where ------------------------------------------------
