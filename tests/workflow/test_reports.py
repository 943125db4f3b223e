"""A run tells the one above what waits in it; where that does not hear, it is told again."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporalio import workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, Handle, call, ended, note_of, phase
from tests.workflow.test_decisions import decide, pending
from tests.workflow.tools import Gate, echo
from workflows import teller

Json = Any


@workflow.defn
class Above:
    """A user's workflow that starts a plan and leaves it alone; or, without one, hears what is reported to it."""

    def __init__(self) -> None:
        self._heard: list[Json] = []
        self._over = False

    @workflow.run
    async def run(self, below: str | None, request: Json, queue: str) -> None:
        if below is None:
            await workflow.wait_condition(lambda: self._over)
            return
        await workflow.start_child_workflow(
            "Plan", request, id=below, task_queue=queue, parent_close_policy=workflow.ParentClosePolicy.ABANDON
        )

    @workflow.signal
    async def waits(self, told: Json) -> None:
        self._heard.append([w["call"] for w in told["waits"]])

    @workflow.signal
    async def over(self) -> None:
        self._over = True

    @workflow.query
    def heard(self) -> list[Json]:
        return self._heard


@asynccontextmanager
async def above(user: Foreign, gate: Gate) -> AsyncIterator[None]:
    """A worker of that workflow, and of the Activities of its plan."""
    async with (
        user.serving(echo, gate.activity()),
        Worker(
            user.client, task_queue=f"{user.queue}-above", workflows=[Above],
            workflow_runner=UnsandboxedWorkflowRunner(),
        ),
    ):  # fmt: skip
        yield


async def nobody_heard(user: Foreign, gate: Gate) -> tuple[str, Handle]:
    """A plan of two Calls that wait, while the run that started it is over; and the id of that one."""
    id_ = f"{user.queue[:60]}/{uuid.uuid4().hex[:8]}"
    asked = [call("echo", f"†state.{name}", value="†state.go") for name in ("a", "b")]
    request = user.request(call("wait", "†state.go"), *asked, approve={"calls": ["echo"]})
    below = f"{id_}/below"
    await user.client.execute_workflow(
        "Above", args=[below, request, user.engine], id=id_, task_queue=f"{user.queue}-above"
    )
    handle = user.client.get_workflow_handle(below)
    gate.opened.set()
    await pending(handle, 2)
    assert "could not be told" in await note_of(handle, id_)
    return id_, handle


async def listener(user: Foreign, id_: str) -> Handle:
    """A run above with the id of the one that is over."""
    return await user.client.start_workflow("Above", args=[None, None, ""], id=id_, task_queue=f"{user.queue}-above")


async def heard(handle: Handle, wanted: list[Json]) -> None:
    async def found() -> bool:
        listed: list[Json] = await handle.query("heard")
        assert listed == wanted
        return True

    await assert_eventually(found)


async def finish(user: Foreign, below: Handle, listening: Handle, *calls: str) -> None:
    for name in calls:
        await decide(below, decision="approve", call=name)
    assert (await ended(below))["status"] == "completed"
    await listening.signal("over")


async def test_a_run_above_that_did_not_hear_is_told_again(foreign: Foreign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teller, "TELL_AGAIN_SECONDS", (0.05,) * 200)
    gate = Gate()
    async with above(foreign, gate):
        id_, below = await nobody_heard(foreign, gate)
        listening = await listener(foreign, id_)
        await heard(listening, [["2:echo", "3:echo"]])
        await finish(foreign, below, listening, "2:echo", "3:echo")


async def test_a_run_above_that_did_not_hear_is_told_of_the_next_change(
    foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teller, "TELL_AGAIN_SECONDS", ())
    gate = Gate()
    async with above(foreign, gate):
        id_, below = await nobody_heard(foreign, gate)
        listening = await listener(foreign, id_)
        await decide(below, decision="approve", call="2:echo")
        await heard(listening, [["3:echo"]])
        await finish(foreign, below, listening, "3:echo")


async def test_it_is_told_again_a_few_times_and_not_for_ever(foreign: Foreign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teller, "TELL_AGAIN_SECONDS", (0.01, 0.01))
    gate = Gate()
    async with above(foreign, gate):
        _, below = await nobody_heard(foreign, gate)

        async def notes() -> bool:
            found = (await below.query("status"))["notes"]
            return sum("could not be told" in n for n in found) == 3

        await assert_eventually(notes, why="the first time, and twice again")
        await below.signal("pause")  # something else happens
        await phase(below, "paused")
        assert await notes()
        await below.terminate()
