"""What is recorded of trees and batches: delegates, instances, the budget they share, decisions that reach them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError

from tests.replay.scenarios import RENEWED, plan, scenario
from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, Handle, call, came_to, cancelled, phase, tool
from tests.workflow.tools import ONCE, Gate, Heart, echo, refuse

Json = Any
TEXT = {"type": "string"}
OPTIONS = {"taskQueue": "tools"}
ECHO = tool("echo", activity="echo", options=OPTIONS)
TALKS = 10  # requests of a delegate that hands over to new runs, on a server that suggests one after 50 events


def delegating(name: str, delegate: str, **properties: Json) -> dict[str, Json]:
    return tool(name, activity="", _delegate={"const": delegate}, **properties)


def walked(*calls: dict[str, Json], context: Sequence[Json] = (ECHO,), **more: Json) -> dict[str, Json]:
    return {"context": [*context, {"type": "plan", "run": True, "plan": list(calls)}], **more}


DEFINITIONS: dict[str, Json] = {
    "speaker": {
        "context": [
            {"type": "system", "message": "You speak."}, ECHO,
            {"type": "input", "schema": {
                "type": "object", "properties": {"recipientId": TEXT}, "required": ["recipientId"]}},
        ],
        "schema": {"type": "object", "properties": {"said": TEXT}, "required": ["said"]},
    },
    "same": walked(call("echo", "†state.output", value="†input.n"), schema={"type": "integer"}),
    "asked": walked(call("echo", "†state.output", value="†input.n"), config={"approve": {"calls": True}}),
    "inner": {"context": [{"type": "system", "message": "You are inside."}]},
    "outer": walked(
        *(call("inner", f"†state.r{i}", _errorPath=f"†state.e{i}") for i in range(3)),
        context=[delegating("inner", "inner")],
    ),
    "talker": {"context": [{"type": "system", "message": "You talk."}]},
    "beats": walked(
        call("beat", "†state.x"), context=[tool("beat", activity="beat", options={**OPTIONS, "heartbeat": "5s"})]
    ),
    "broken": {"context": {}},
}  # fmt: skip
SPEAKS = {
    "when": {"tick": 1, "says": ["You speak."]},
    "solution": {"calls": [call("echo", "†state.said", value="†input.text")], "output": {"said": "†state.said"}},
}
ANSWERS: dict[str, list[Json]] = {
    "tree": [
        SPEAKS,
        {"when": {"says": ["You are inside."]}, "solution": {"output": "answered"}},
        {"when": {"tool": "judge"}, "output": {"why": "rude"}, "path": "†state.bad"},
    ],
    "upfront": [
        SPEAKS,
        {"when": {"tick": 1}, "solution": {"calls": [call("send", "†state.r", text="hi")]}},
        {"when": {"tick": 2, "says": ["recipientId"]}, "solution": {
            "calls": [call("send", "†state.r", text="hi", recipientId="u1")], "output": "†state.r"}},
    ],
    "talk": [
        *[{"when": {"tick": i}, "solution": {"calls": [{"_tool": "nothing"}]}} for i in range(1, TALKS)],
        {"when": {"tick": TALKS}, "solution": {"output": "done"}},
    ],
    "batch": [
        {"when": {"tick": 1}, "solution": {"calls": [
            call("upper", "†state.big", value="†state.text"), call("echo", "†state.twice", value="†state.big")]}},
        {"when": {"tick": 2, "says": ["broken"]}, "solution": {
            "calls": [call("echo", "†state.big", value="mended", _instance="c")], "output": "ok"}},
    ],
}  # fmt: skip


def below(user: Foreign, root: Handle, *names: str) -> list[Handle]:
    return [root, *(user.client.get_workflow_handle(f"{root.id}/{name}") for name in names)]


async def runs_of(user: Foreign, id_: str) -> list[Handle]:
    """All the runs of an id that handed over, the last of which has completed."""
    ended = (WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.CONTINUED_AS_NEW)

    async def all_of_them() -> list[Handle]:
        found = [r async for r in user.client.list_workflows(f"WorkflowId = '{id_}'")]
        last = [r for r in found if r.status == ended[0]]
        if len(last) != 1 or len(found) < 2 or any(r.status not in ended for r in found):
            return []
        found.sort(key=lambda r: r.start_time)
        return [user.client.get_workflow_handle(id_, run_id=r.run_id) for r in found]

    return await assert_eventually(all_of_them)


@scenario
async def delegated(user: Foreign) -> list[Handle]:
    """An agent, a plan that is walked as it stands, and one that is none; what is behind each."""
    context = [
        delegating("send", "speaker", text=TEXT, recipientId=TEXT), delegating("inc", "same"),
        delegating("lost", "broken"), {"type": "state", "open": "hello", "closed": "hidden"},
    ]  # fmt: skip
    calls = [
        call("send", "†state.receipt", text="†state.open", recipientId="u1", _scopes=["†state.open"]),
        call("inc", "†state.n", n=1), call("lost", "†state.x", _errorPath="†state.problem"),
    ]  # fmt: skip
    async with user.serving(echo):
        handle = await plan(user, "delegated", *calls, context=context, model="scripted:tree")
        state = (await came_to(handle))["state"]
    assert (state["receipt"], state["n"], state["problem"]["code"]) == ({"said": "hello"}, 1, "DelegateInvalid")
    return below(user, handle, "1:send", "1:send/plan-1", "2:inc", "2:inc/plan", "3:lost")


@scenario
async def anonymous(user: Foreign) -> list[Handle]:
    """One latent Call that chooses between outcomes, one explicit, each in a room of its own."""
    explicit = tool("echo", activity="echo", options=OPTIONS, _delegate={"const": "anonymous"})
    context = [delegating("judge", "anonymous", text=TEXT), explicit, {"type": "state", "shown": "scoped", "not": "no"}]
    calls = [
        call("judge", "†state.good || †state.bad", text="it", _scopes=["†state.shown"]),
        call("echo", "†state.told", value="†state.bad", _scopes=["†state.shown"]),
    ]
    async with user.serving(echo):
        handle = await plan(user, "anonymous", *calls, context=context, model="scripted:tree")
        assert (await came_to(handle))["state"]["told"] == {"why": "rude"}
    return below(user, handle, "1:judge", "2:echo")


@scenario
async def detached(user: Foreign) -> list[Handle]:
    """A delegate that nothing waits for."""
    async with user.serving(echo):
        handle = await plan(user, "detached", call("inc", n=1), context=[delegating("inc", "same")])
        await came_to(handle)
        found = below(user, handle, "1:inc", "1:inc/delegate")
        await found[1].result()
    return found


@scenario
async def upfront(user: Foreign) -> list[Handle]:
    """The planner is told what the delegate takes, and is refused once for not minding it."""
    config = {"model": "scripted:upfront", "resolve": "upfront"}
    request = {"config": config, "context": [delegating("send", "speaker", text=TEXT)]}
    async with user.serving(echo):
        handle = await user.client.start_workflow("Agent", request, id="recorded/upfront", task_queue=user.engine)
        result = await came_to(handle)
    assert (result["output"], result["ticks"]) == ({"said": "hi"}, 2)
    return below(user, handle, "plan-2", "plan-2/1:send")


@scenario
async def tree_budget(user: Foreign) -> list[Handle]:
    """Three requests: one for an agent, which asks for its Calls too, two for three that ask side by side."""
    calls = [
        call("send", "†state.receipt", text="hi", recipientId="u1"), call("outer", "†state.o", after="†state.receipt"),
    ]  # fmt: skip
    context = [delegating("send", "speaker", text=TEXT, recipientId=TEXT), delegating("outer", "outer")]
    budget = {"requests": 3, "tokens": 1_000_000, "calls": 20}
    async with user.serving(echo):
        handle = await plan(user, "tree_budget", *calls, context=context, model="scripted:tree", budget=budget)
        result = await came_to(handle)
    assert sorted(k[0] for k in result["state"]["o"]) == ["e", "r", "r"]
    return below(user, handle, "1:send", "2:outer", "2:outer/plan", *(f"2:outer/plan/{i}:inner" for i in (1, 2, 3)))


@scenario
async def tree_waits(user: Foreign) -> list[Handle]:
    """Of two Calls inside delegates one is approved at the root, one rejected."""
    calls = [call("inc", "†state.a", n=1), call("inc", "†state.b", n=2, _errorPath="†state.problem")]
    async with user.serving(echo):
        handle = await plan(user, "tree_waits", *calls, context=[delegating("inc", "asked")])
        await waiting(handle, 2)
        first, second = (f"{handle.id}/{i}:inc/plan" for i in (1, 2))
        await handle.signal("approve", {"workflowId": first, "by": "Ada"})
        await handle.execute_update("decide", {"decision": "reject", "workflowId": second, "reason": "no", "by": "Bob"})
        assert (await came_to(handle))["state"]["a"] == 1
    return below(user, handle, "1:inc", "1:inc/plan", "2:inc", "2:inc/plan")


@scenario
async def tree_cancelled(user: Foreign) -> list[Handle]:
    heart = Heart()
    async with user.serving(heart.activity()):
        handle = await plan(user, "tree_cancelled", call("deep", "†state.x"), context=[delegating("deep", "beats")])
        await asyncio.wait_for(heart.beating.wait(), 180)
        await handle.cancel()
        await cancelled(handle)
    return below(user, handle, "1:deep", "1:deep/plan")


@scenario
async def tree_renewed(user: Foreign) -> list[Handle]:
    """A delegate that hands over to new runs, under a budget that is kept above."""
    context = [delegating("talk", "talker")]
    handle = await plan(
        user, "tree_renewed", call("talk", "†state.x"), context=context, model="scripted:talk", budget={"tokens": 10**6}
    )
    assert (await came_to(handle))["usage"]["requests"] == TALKS
    return [handle, *await runs_of(user, "recorded/tree_renewed/1:talk")]


def own(**texts: str) -> list[Json]:
    return [{"type": "state", "state": {"text": text}, "_instance": id_} for id_, text in texts.items()]


async def upper(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    if call["value"] == "break":
        raise ApplicationError("it broke", type="broken", non_retryable=True)
    return str(call["value"]).upper()


UPPER = tool("upper", activity="upper", options={**OPTIONS, **ONCE})
TEMPLATE = (call("upper", "†state.big", value="†state.text"), call("echo", "†state.twice", value="†state.big"))
THREE = own(a="one", b="two", c="break")


async def waiting(handle: Handle, count: int) -> None:
    async def enough() -> bool:
        return len(await handle.query("pending")) == count

    await assert_eventually(enough, why=f"{count} wait")


def statuses(result: dict[str, Json]) -> dict[str, str]:
    return {id_: item["status"] for id_, item in result["instances"].items()}


@scenario
async def template(user: Foreign) -> list[Handle]:
    """A child for each instance, one of which fails."""
    context = [UPPER, {"type": "state", "lang": "en"}, *THREE]
    async with user.serving(upper, echo):
        handle = await plan(user, "template", *TEMPLATE, context=context)
        assert statuses(await came_to(handle)) == {"a": "completed", "b": "completed", "c": "failed"}
    return below(user, handle, "a", "c")


@scenario
async def several(user: Foreign) -> list[Handle]:
    """Two instances to a child."""
    async with user.serving(upper, echo):
        handle = await plan(user, "several", *TEMPLATE, context=[UPPER, *THREE], instancesPerChild=2)
        assert statuses(await came_to(handle)) == {"a": "completed", "b": "completed", "c": "failed"}
    return below(user, handle, "a", "c")


@scenario
async def targeted(user: Foreign) -> list[Handle]:
    """Calls of instances, and one that is nobody's."""
    calls = [
        call("upper", "†state.shout", value="common"),
        call("upper", "†state.big", value="†state.text", _instance="b"),
        call("echo", "†state.said", value="†state.text", _instance="a"),
        call("echo", "†state.end", value="†state.big", _instance="b"),
    ]
    async with user.serving(upper, echo):
        handle = await plan(user, "targeted", *calls, context=[UPPER, *THREE[:2]])
        assert statuses(await came_to(handle)) == {"a": "completed", "b": "completed"}
    return below(user, handle, "a", "b")


@scenario
async def together(user: Foreign) -> Handle:
    """Instances need what a Call of nobody's writes: one workflow walks them all."""
    calls = [
        call("upper", "†state.greeting", value="hello"),
        call("echo", "†state.line", value="†state.greeting && †state.text", _instance="a"),
        call("echo", "†state.line", value="†state.greeting", _instance="b"),
    ]
    async with user.serving(upper, echo):
        handle = await plan(user, "together", *calls, context=[UPPER, *THREE[:2]])
        assert statuses(await came_to(handle)) == {"a": "completed", "b": "completed"}
    return handle


@scenario
async def batch_agent(user: Foreign) -> list[Handle]:
    """An agent over a batch mends the instance that failed."""
    request = {"config": {"model": "scripted:batch"}, "context": [UPPER, ECHO, *THREE]}
    async with user.serving(upper, echo):
        handle = await user.client.start_workflow("Agent", request, id="recorded/batch_agent", task_queue=user.engine)
        assert statuses(await came_to(handle)) == dict.fromkeys("abc", "completed")
    return below(user, handle, "plan-1", "plan-1/a", "plan-1/c", "plan-2", "plan-2/c")


@scenario
async def batch_steered(user: Foreign) -> list[Handle]:
    """Instances are paused, given what they wait for, and decided about, all at the root."""
    gate = Gate()
    calls = [
        call("wait", "†state.x", value="†state.text"), call("echo", "†state.y", value=["†state.x", "†input.name"]),
    ]  # fmt: skip
    context = [user.tool("wait"), ECHO, *THREE]
    config = {"missing": "wait", "approve": {"calls": ["echo"], "timeout": "1h"}}
    async with user.serving(gate.activity(), echo):
        handle = await plan(user, "batch_steered", *calls, context=context, **config)
        await gate.reached(3)
        await handle.signal("pause")
        await phase(user.client.get_workflow_handle(f"{handle.id}/a"), "paused")
        gate.opened.set()
        await handle.signal("resume")
        await handle.signal("provide", {"type": "input", "input": {"name": "Ada"}})
        await waiting(handle, 3)
        await handle.signal("approve", {"instance": "a", "by": "Ada"})
        await handle.signal("reject", {"instance": "b", "reason": "no", "by": "Bob"})
        await handle.execute_update("decide", {"decision": "approve", "instance": "c"})
        assert statuses(await came_to(handle)) == {"a": "completed", "b": "rejected", "c": "completed"}
    return below(user, handle, "a", "b")


@scenario
async def resumed(user: Foreign) -> list[Handle]:
    """A batch of which one instance failed is resumed: the others are taken over, and the Call of it that completed."""
    calls = [call("upper", "†state.x", value="†state.text"), call("check", "†state.y", value="†state.x")]
    refused = {"B"}

    async def check(call: Json, tool: Json, context: Json) -> Json:
        if call["value"] in refused:
            raise ApplicationError("not this one", type="refused", non_retryable=True)
        return call["value"]

    async with user.serving(upper, check):
        first = await plan(user, "resumed", *calls, context=[UPPER, *own(a="a", b="b", c="c")])
        assert statuses(await came_to(first)) == {"a": "completed", "b": "failed", "c": "completed"}
        refused.clear()
        context = [UPPER, *own(a="a", b="b", c="c")]
        second = await plan(user, "resumed-again", *calls, context=context, resume={"workflowId": first.id})
        assert statuses(await came_to(second)) == {"a": "completed", "b": "completed", "c": "completed"}
    return below(user, second, "b")


@scenario
async def batch_cancelled(user: Foreign) -> list[Handle]:
    gate = Gate()
    async with user.serving(gate.activity(), refuse):
        handle = await plan(user, "batch_cancelled", call("wait", "†state.x"), context=THREE)
        await gate.reached(3)
        await handle.cancel()
        await cancelled(handle)
        gate.opened.set()
    return below(user, handle, "a")


@scenario
async def batch_renewed(user: Foreign) -> list[Handle]:
    """A batch that goes on in new runs, a few instances at a time."""
    many = own(**{f"i{n}": f"text {n}" for n in range(12)})
    async with user.serving(upper, echo):
        handle = await plan(user, "batch_renewed", *TEMPLATE, context=[UPPER, *many], maxParallel=1)
        assert len(statuses(await came_to(handle))) == 12
    return await runs_of(user, handle.id)


@scenario
async def instance_renewed(user: Foreign) -> list[Handle]:
    chain = [call("echo", f"†state.n{i}", value=f"†state.n{i - 1}" if i else "†state.text") for i in range(20)]
    async with user.serving(echo):
        handle = await plan(user, "instance_renewed", *chain, context=THREE[:2])
        assert statuses(await came_to(handle)) == {"a": "completed", "b": "completed"}
    return await runs_of(user, f"{handle.id}/a")


RENEWED += [tree_renewed.__name__, batch_renewed.__name__, instance_renewed.__name__]


ROWS = "".join(f'{{"id": {n}}}\n' for n in range(1, 31)) + '{"id": 1}\nnot a row\n'


@scenario
async def set_of_rows(user: Foreign) -> list[Handle]:
    """Two Batches, one of them with rows that cannot be used."""
    async with user.serving(echo):
        rows = {"type": "data", "kind": "order", "_instances": {"source": "orders.jsonl", "id": "id"}}
        calls = [call("echo", "†state.a", value="†order.id"), call("echo", "†state.b", value="†state.a")]
        root = await plan(user, "set", *calls, context=[rows], results="out.jsonl", instancesPerChild=10)
        await came_to(root)
    return [
        root,
        *(user.client.get_workflow_handle(f"{root.id}/{name}") for name in ("batch-1", "batch-2", "batch-1/1")),
    ]
