"""``acts.Client``: starts that may be repeated, one result for every end, decisions; in threads and workflows, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.worker import Worker

import acts
from tests.support import assert_eventually, free_port
from tests.workflow.foreign import RESULT_SECONDS, Foreign, call
from tests.workflow.tools import Gate, echo, refuse

Json = Any
Act = Callable[["acts.Run"], Awaitable[Any]]


@pytest.fixture
def user(foreign: Foreign) -> acts.Client:
    return acts.Client(foreign.client, task_queue=foreign.engine)


async def wait_and_approve(run: acts.Run) -> None:
    [approval] = await run.wait_for_decision()
    assert approval.content is not None
    await run.approve(by="Ada", version=approval.version)


async def reject(run: acts.Run) -> None:
    await run.wait_for_decision()
    await run.reject("too late")


async def cancel(run: acts.Run) -> None:
    await run.wait_for_decision()
    await run.cancel()


async def let_be(run: acts.Run) -> None:
    """The run needs nobody."""


@dataclass(frozen=True)
class End:
    """A plan of calls, what a person does, and what ``result`` says; ``code`` is that of the first error."""

    calls: list[dict[str, Json]]
    status: str
    code: str | None = None
    act: Act = let_be
    state: dict[str, Json] | None = None
    asks: bool = False


WORKS, FAILS = call("echo", "†state.a", value=1), call("refuse", "†state.b")
ENDS = {
    "completed": End([WORKS], "completed", state={"a": 1}),
    "failed": End([WORKS, FAILS], "failed", "declined", state={"a": 1}),
    "invalid": End([call("echo", "†state.a", value="†nobody.x")], "failed", "unknownReference"),
    "approved": End([WORKS], "completed", act=wait_and_approve, state={"a": 1}, asks=True),
    "rejected": End([WORKS], "rejected", "rejected", reject, asks=True),
    "cancelled": End([WORKS], "cancelled", "Cancelled", cancel, asks=True),
}


@pytest.mark.parametrize("name", ENDS)
async def test_there_is_one_object_for_every_end(name: str, user: acts.Client, foreign: Foreign) -> None:
    end = ENDS[name]
    async with foreign.serving(echo, refuse):
        request = foreign.request(*end.calls, **({"approve": {"plan": True}} if end.asks else {}))
        run = await user.start(request)
        await end.act(run)
        result = await run.result()
    assert (result.status, result.ok, result.id) == (end.status, end.status == "completed", run.id)
    assert result.state == (end.state or {})
    assert [error["code"] for error in result.errors][:1] == ([] if end.code is None else [end.code]), result
    assert result.cost == (0 if isinstance(result.raw, dict) else None)
    if result.ok:
        assert result.require() is result
        return
    with pytest.raises(acts.RunNotCompletedError, match=f"is {end.status}: .*{end.code}") as failed:
        result.require()
    assert failed.value.result is result


async def test_an_end_from_outside_is_a_result_and_so_is_none(user: acts.Client, foreign: Foreign) -> None:
    request = foreign.request(WORKS, approve={"plan": True})
    terminated = await user.start(request)
    await user.temporal.get_workflow_handle(terminated.id).terminate("by hand")
    late = await user.temporal.start_workflow(
        "Plan", request, id=f"{terminated.id}-late", task_queue=foreign.engine, run_timeout=timedelta(seconds=1)
    )
    waiting = await user.start(request)
    statuses = [
        (await terminated.result()).status, (await user.run(late.id).result()).status,
        (await waiting.result(timeout=0.01)).status,
    ]  # fmt: skip
    assert statuses == ["terminated", "timedOut", "running"]
    nobody = await user.run("nobody").result()
    assert nobody.status == "notFound"
    for name in (user.temporal.namespace, user.temporal.service_client.config.target_host):
        assert name in nobody.errors[0]["message"]
    with pytest.raises(acts.ClientError, match='no run "nobody" in the namespace'):
        await user.run("nobody").cancel()
    await waiting.cancel()
    assert await waiting.wait_for_decision() == []
    assert await waiting.pending() == []
    with pytest.raises(acts.ClientError, match="has ended"):
        await waiting.approve()


async def test_a_start_may_be_repeated_and_never_means_another_run(user: acts.Client, foreign: Foreign) -> None:
    async with foreign.serving(echo):
        request = foreign.request(call("echo", "†state.a", value="†input.n"))
        ids = {(await user.start(request, {"n": 1}, id=f"{foreign.queue}-7")).id for _ in range(3)}
        [id_] = ids
        assert (await user.run(id_).result()).state == {"a": 1}
        await user.start(request, {"n": 1}, id=id_)
        with pytest.raises(acts.ClientError, match="has ended, and was started with another request"):
            await user.start(request, {"n": 2}, id=id_)
        with pytest.raises(acts.ClientError, match="has ended"):
            await user.start(request, {"n": 1}, id=id_, if_ended="fail")
        again = await user.start(request, {"n": 2}, id=id_, if_ended="again")
        assert (await again.result()).state == {"a": 2}


async def test_an_edit_is_judged_by_the_run_and_waits_again(user: acts.Client, foreign: Foreign) -> None:
    async with foreign.serving(echo):
        run = await user.start(foreign.request(WORKS, approve={"calls": ["echo"]}))
        await run.wait_for_decision()
        with pytest.raises(acts.ClientError) as refused:
            await run.edit({"_tool": "ecko"}, "1:echo")
        assert [problem.code for problem in refused.value.problems] == ["unknownTool"]
        await run.edit({**WORKS, "value": 2}, "1:echo")
        [waits] = await run.wait_for_decision()
        with pytest.raises(acts.ClientError, match="version"):
            await run.approve(version=waits.version - 1)
        assert (run.id, waits.key) in [(id_, approval.key) for id_, approval in await user.pending(tool="echo")]
        await run.approve(waits.call)
        assert (await run.result()).state == {"a": 2}


async def test_progress_pause_and_messages(user: acts.Client, foreign: Foreign) -> None:
    gate = Gate()
    async with foreign.serving(gate.activity(), echo):
        steps = [call("wait", "†state.a"), call("echo", "†state.b", value="†guest.name", x="†state.a")]
        run = await user.start(foreign.request(*steps, missing="wait"))
        await gate.reached()
        assert (await run.status())["calls"][0]["state"] == "running"
        await run.pause()

        async def is_paused() -> bool:
            return (await run.status())["phase"] == "paused"

        await assert_eventually(is_paused, why="paused")
        await run.provide({"type": "data", "kind": "guest", "data": {"name": "Ada"}})
        gate.opened.set()
        await run.resume()
        assert (await run.result()).state == {"a": "through", "b": "Ada"}


async def test_events_are_the_same_while_a_run_goes_on_and_afterwards(foreign: Foreign, user: acts.Client) -> None:
    request = foreign.request(call("echo", "†state.a", value=1))
    async with foreign.serving(echo):
        run = await user.start(request)
        live = [event async for event in run.events()]
    ended = [event async for event in run.events(follow=False)]
    assert [event.offset for event in live] == [event.offset for event in ended]
    assert [event.type for event in ended if event.call] == ["callStarted", "callEnded"]

    def read() -> list[str]:
        with acts.SyncClient.connect(user.temporal.service_client.config.target_host) as client:
            return [event.offset for event in client.run(run.id).events(ended[0].offset)]

    assert await asyncio.to_thread(read) == [event.offset for event in ended[1:]]


async def test_threads_use_one_client_that_blocks(foreign: Foreign, user: acts.Client) -> None:
    address = user.temporal.service_client.config.target_host

    def work() -> list[Any]:
        with acts.SyncClient.connect(address, task_queue=foreign.engine) as client:
            run = client.start(foreign.request(WORKS, approve={"plan": True}), id=f"{foreign.queue}-sync")
            [approval] = run.wait_for_decision()
            run.approve(by="Bob", version=approval.version)
            return [run.result().state, client.run("nobody").result().status, client.pending(tool="no-such-tool")]

    async with foreign.serving(echo):
        assert await asyncio.to_thread(work) == [{"a": 1}, "notFound", []]


async def test_without_a_server_there_is_one_sentence(user: acts.Client) -> None:
    port = free_port()
    with pytest.raises(acts.ClientError, match=f"no Temporal server answers at 127.0.0.1:{port}") as error:
        await acts.Client.connect(f"127.0.0.1:{port}")
    assert error.value.is_unavailable


@workflow.defn
class Parent:
    """A user's own workflow, in the SDK's sandbox."""

    @workflow.run
    async def run(self, request: dict[str, Any], queue: str, values: dict[str, Any]) -> list[Any]:
        result = await acts.run_plan(request, values, task_queue=queue)
        return [result.status, result.state, [error["code"] for error in result.errors]]


async def test_a_workflow_runs_a_plan_as_its_child(foreign: Foreign, user: acts.Client) -> None:
    own = f"{foreign.queue}-own"
    async with foreign.serving(echo, refuse), Worker(foreign.client, task_queue=own, workflows=[Parent]):
        request = foreign.request(call("echo", "†state.a", value="†input.n"), FAILS)
        parent = await foreign.client.start_workflow(
            Parent.run, args=[request, foreign.engine, {"n": 3}], id=own, task_queue=own
        )
        assert await asyncio.wait_for(parent.result(), RESULT_SECONDS) == ["failed", {"a": 3}, ["declined"]]
