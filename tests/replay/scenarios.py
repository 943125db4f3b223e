"""What is recorded: plans and agents that stand alone. Each scenario gives the runs whose histories are kept.

Those of trees and batches are in ``trees.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.client import WorkflowExecution
from temporalio.exceptions import ApplicationError

from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, Handle, call, came_to, cancelled, failure, of_type, phase, state_of, tool
from tests.workflow.tools import Gate, echo, refuse

Json = Any
SCENARIOS: dict[str, Callable[[Foreign], Awaitable[list[Handle]]]] = {}
QUICK = {"retry": {"maxAttempts": 2, "initialInterval": "1ms"}}


def scenario(function: Callable[[Foreign], Awaitable[Handle | list[Handle]]]) -> Callable[..., Any]:
    async def run(user: Foreign) -> list[Handle]:
        found = await function(user)
        return found if isinstance(found, list) else [found]

    SCENARIOS[function.__name__] = run
    return function


async def plan(user: Foreign, name: str, *calls: dict[str, Json], **more: Json) -> Handle:
    return await user.start(user.request(*calls, **more), id=f"recorded/{name}")


@scenario
async def linear(user: Foreign) -> Handle:
    async with user.serving(echo):
        three = [call("echo", "†state.a", value="†input.n"), call("echo", "†state.b", value="†state.a")]
        three.append(call("echo", "†state.c", value={"all": ["†state"]}, _scopes=["state", "†input.n"]))
        handle = await plan(user, "linear", *three, context=[{"type": "input", "n": 1}])
        await came_to(handle)
    return handle


@scenario
async def choice(user: Foreign) -> Handle:
    async def weigh(call: Json, tool: Json, context: Json) -> Json:
        return {"type": "state", "state": {"heavy": 200}}

    async with user.serving(weigh, echo):
        rest = [
            call("echo", "†state.letter", value="†state.light"),
            call("echo", "†state.parcel", value="†state.heavy"),
        ]
        handle = await plan(user, "choice", call("weigh", "†state.light || †state.heavy"), *rest)
        await came_to(handle)
    return handle


@scenario
async def retries(user: Foreign) -> Handle:
    async def flaky(call: Json, tool: Json, context: Json) -> Json:
        raise ApplicationError("out of paper", {"tray": 2}, type="jam")

    async with user.serving(flaky, refuse, echo):
        handle = await plan(
            user,
            "retries",
            call("flaky", "†state.page", _errorPath="†state.problem"),
            call("echo", "†state.told", value="†state.problem.code"),
            call("refuse", "†state.x"),
            call("echo", "†state.y", value="†state.x"),
            context=[user.tool("flaky", options=QUICK)],
        )
        await came_to(handle)
    return handle


@scenario
async def timeout(user: Foreign) -> Handle:
    lost = tool("lost", activity="lost", options={"taskQueue": "nobody", "timeout": "50ms", "queueTimeout": "50ms"})
    handle = await plan(user, "timeout", call("lost", "†state.ok || †state.failed"), context=[lost])
    await came_to(handle)
    return handle


@scenario
async def join(user: Foreign) -> Handle:
    """Results arrive in an order that is neither that of the plan nor its reverse."""
    gates = [Gate() for _ in range(8)]
    async with user.serving(*[g.activity(f"wait{i}") for i, g in enumerate(gates)], echo):
        many = [call(f"wait{i}", "†state.list", value=i, _outputMethod="push") for i in range(8)]
        handle = await plan(user, "join", *many, call("echo", "†state.all", value="†state.list"), maxParallel=5)
        for count, i in enumerate([3, 0, 4, 2, 7, 1, 6, 5], 1):
            gates[i].opened.set()

            async def done(count: int = count) -> bool:
                return len(await of_type(handle, "ACTIVITY_TASK_COMPLETED")) >= count

            await assert_eventually(done)
        await came_to(handle)
    return handle


@scenario
async def left_behind(user: Foreign) -> list[Handle]:
    async with user.serving(echo, refuse):
        handle = await plan(
            user, "left_behind", call("echo", value=1), call("refuse"), call("echo", "†state.a", value=2)
        )
        await came_to(handle)
        child = user.client.get_workflow_handle("recorded/left_behind/1:echo")
        await child.result()
    return [handle, child]


@scenario
async def signals(user: Foreign) -> Handle:
    gate = Gate()
    async with user.serving(gate.activity(), echo):
        handle = await plan(
            user,
            "signals",
            call("wait", "†state.a", value=1),
            call("echo", "†state.b", value=["†state.a", "†input.name"]),
            missing="wait",
        )
        await gate.reached()
        await handle.signal("pause")
        await phase(handle, "paused")
        await handle.signal("provide", {"type": "nonsense"})
        gate.opened.set()
        await state_of(handle, "1:wait", "completed")
        await handle.signal("resume")
        await state_of(handle, "2:echo", "awaiting")
        await handle.signal("provide", {"type": "input", "name": "Ada"})
        await came_to(handle)
    return handle


@scenario
async def continued(user: Foreign) -> list[Handle]:
    """Enough calls for a new run on a server that suggests one early; a message and a pause are carried over."""
    async with user.serving(echo):
        chain = [call("echo", f"†state.n{i + 1}", value=f"†state.n{i}") for i in range(20)]
        last = call("echo", "†state.last", value=["†state.n20", "†input.name"])
        zero = {"type": "state", "n0": 0}
        handle = await plan(user, "continued", *chain, last, context=[zero], missing="wait")
        await handle.signal("provide", {"type": "input", "name": "Ada"})
        await came_to(handle)

    return await runs_of(user, "recorded/continued")


async def runs_of(user: Foreign, id_: str) -> list[Handle]:
    """All the runs of a workflow that continued as new, in order."""

    async def several() -> list[WorkflowExecution]:
        found = user.client.list_workflows(f"WorkflowId = '{id_}'")
        listed = sorted([r async for r in found], key=lambda r: r.start_time)
        return listed if len(listed) > 1 else []

    runs = await assert_eventually(several)
    return [user.client.get_workflow_handle(r.id, run_id=r.run_id) for r in runs]


@scenario
async def served(user: Foreign) -> Handle:
    """What the worker has is looked up, and one tool runs inside the workflow task."""
    context = [{"type": "tool", "tool": "greet"}, tool("count", activity="house.count", options={"local": True})]
    calls = [call("greet", "†state.hello", name="Ada"), call("count", "†state.n", items=[1, 2])]
    request = {"context": [*context, {"type": "plan", "plan": calls}]}
    handle = await user.start(request, id="recorded/served")
    await came_to(handle)
    return handle


@scenario
async def cancellation(user: Foreign) -> Handle:
    gate = Gate()
    async with user.serving(gate.activity(), echo):
        rest = [call("wait", "†state.b"), call("echo", "†state.c", value="†state.b")]
        handle = await plan(user, "cancellation", call("wait", "†state.a"), *rest)
        await gate.reached(2)
        await handle.cancel()
        await cancelled(handle)
        gate.opened.set()
    return handle


SUMMARIZE = tool("summarize", activity=None, text={"type": "string"})
REPLAN = [
    {"when": {"tick": 1}, "solution": {"calls": [call("refuse", "†state.a"), call("echo", "†state.b", value="word")]}},
    {"when": {"tick": 2, "says": ['"outcome":"failed"']}, "text": "not JSON"},
    {"when": {"tick": 3}, "solution": {
        "calls": [call("summarize", "†state.short", text="†state.b"), call("echo", "†state.c", value="†state.short")],
        "output": {"short": "†state.c"},
    }},
    {"when": {"tool": "summarize"}, "output": "w", "path": "†state.short"},
]  # fmt: skip
ANSWERS = {
    "replan": REPLAN,
    "many": [
        *[{"when": {"tick": i}, "solution": {"calls": [call("echo", f"†state.n{i}", value=i)]}} for i in range(1, 9)],
        {"when": {"tick": 9}, "solution": {"output": ["†state.n1", "†state.n8"]}},
    ],
    "proposes": [{"when": {"tick": 1}, "solution": {"calls": [call("echo", "†state.a", value=1)], "output": "†state"}}],
}


async def agent(user: Foreign, name: str, script: str) -> Handle:
    context = [user.tool("echo"), user.tool("refuse"), SUMMARIZE]
    request = {"config": {"model": f"scripted:{script}"}, "context": context}
    return await user.client.start_workflow("Agent", request, id=f"recorded/{name}", task_queue=user.engine)


@scenario
async def replanned(user: Foreign) -> list[Handle]:
    """A failed call, an answer that is no JSON, a latent call, an output that refers to it."""
    async with user.serving(echo, refuse):
        handle = await agent(user, "replanned", "replan")
        assert (await handle.result())["output"] == {"short": "w"}
    return [handle, *(user.client.get_workflow_handle(f"recorded/replanned/plan-{i}") for i in (1, 3))]


@scenario
async def renewed_agent(user: Foreign) -> list[Handle]:
    """Enough ticks for a new run on a server that suggests one early."""
    async with user.serving(echo):
        handle = await agent(user, "renewed_agent", "many")
        assert (await handle.result())["output"] == [1, 8]
    return await runs_of(user, "recorded/renewed_agent")


@scenario
async def refused(user: Foreign) -> Handle:
    handle = await plan(user, "refused", call("echo", "†state.a", value="†state.nothing"))
    await failure(handle)
    return handle


async def flooded(handle: Handle) -> None:
    """A run that waits gets more signals than one history has room for; it waits in the next one."""
    await phase(handle, "awaiting")
    for _ in range(20):
        await asyncio.gather(*[handle.signal("approve", {"version": 9}) for _ in range(3)])
        await handle.query("pending")


@scenario
async def renewed_waiting(user: Foreign) -> list[Handle]:
    """A plan that waits hands over to a new run; there it is edited, and approved by signal and by update."""
    async with user.serving(echo):
        request = user.request(call("echo", "†state.a", value=1), approve={"timeout": "1h", "calls": True})
        request["context"][-1]["mode"] = "lazy"
        handle = await user.start(request, id="recorded/renewed_waiting")
        await flooded(handle)
        await handle.execute_update("decide", {"decision": "edit", "plan": [call("echo", "†state.b", value=2)]})
        await handle.signal("approve", {"version": 2})
        await state_of(handle, "1:echo", "awaiting")
        await handle.execute_update("decide", {"decision": "approve", "call": "1:echo"})
        assert (await came_to(handle))["state"] == {"b": 2}
    return await runs_of(user, "recorded/renewed_waiting")


@scenario
async def renewed_proposal(user: Foreign) -> list[Handle]:
    async with user.serving(echo):
        lazy = {"type": "plan", "plan": [], "mode": "lazy"}
        request = {"config": {"model": "scripted:proposes"}, "context": [user.tool("echo"), lazy]}
        handle = await user.client.start_workflow(
            "Agent", request, id="recorded/renewed_proposal", task_queue=user.engine
        )
        await flooded(handle)
        await handle.execute_update("decide", {"decision": "approve"})
        assert (await handle.result())["output"] == {"a": 1}
    return await runs_of(user, "recorded/renewed_proposal")


# Those that need a server which suggests a new run early
RENEWED = [continued.__name__, renewed_agent.__name__, renewed_waiting.__name__, renewed_proposal.__name__]
