"""Runs beside each other: priorities and turns, tags, limits of an Activity, and what the operator allows a Request."""

from __future__ import annotations

import threading
import uuid
import warnings
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client

from acts.activities.registry import Registry
from acts.activities.run_setup import Caps
from acts.cli.dev.temporal_server import DevServer
from acts.worker import serve, settings
from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, call, ended, failure, of_type, own, tool
from tests.workflow.tools import echo

MANY = 3


class Door:
    """A Tool in a thread of the worker, which waits until the test opens it."""

    def __init__(self) -> None:
        self.opened, self._lock = threading.Event(), threading.Lock()
        self.arrived = self.inside = self.most = 0

    def activity(self, name: str) -> Any:
        @activity.defn(name=name)
        def wait(call: Any, tool: Any, context: Any) -> str:
            with self._lock:
                self.arrived, self.inside = self.arrived + 1, self.inside + 1
                self.most = max(self.most, self.inside)
            self.opened.wait(180)
            with self._lock:
                self.inside -= 1
            return "through"

        return wait

    async def reached(self, count: int) -> None:
        async def enough() -> bool:
            return self.arrived >= count

        await assert_eventually(enough, why=f"{count} calls run")


@asynccontextmanager
async def engine(server: DevServer, registry: Registry, **variables: Any) -> AsyncIterator[str]:
    """The worker as ``acts worker`` serves it, with these settings."""
    queue = f"fair-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setenv("TEMPORAL_ADDRESS", server.address)
        for name, value in variables.items():
            environment.setenv(f"ACTS_{name.upper()}", str(value))
        stack.enter_context(warnings.catch_warnings(action="ignore", category=UserWarning))  # fewer threads than slots
        own_settings = settings.Settings(task_queue=queue)
        executor = stack.enter_context(ThreadPoolExecutor(4))
        worker = serve.build(await serve.connect(), own_settings, registry, executor)
        for one in (worker, *serve.build_limited(worker, own_settings)):
            await stack.enter_async_context(one)
        yield queue


async def test_what_a_run_starts_has_its_priority_its_turn_and_its_tags(foreign: Foreign) -> None:
    tags = {"customer": "c-17", "team": "ops"}
    calls = [call("echo", "†state.a", value="†state.n")]
    async with foreign.serving(echo):
        plain = await foreign.start(
            foreign.request(*calls, context=[own("a", n=1), own("b", n=2)], tags=tags), id=f"fair-{uuid.uuid4().hex}"
        )
        first = await foreign.start(
            foreign.request(call("echo", "†state.a"), tags=tags, priority=1, fairness="customer")
        )
        await ended(plain)
        await ended(first)
    children = await of_type(plain, "START_CHILD_WORKFLOW_EXECUTION_INITIATED")
    assert [(c.priority.priority_key, c.priority.fairness_key) for c in children] == [(4, plain.id)] * 2
    below = await foreign.client.get_workflow_handle(f"{plain.id}/a").describe()
    priority = below.raw_description.workflow_execution_info.priority
    assert (priority.priority_key, priority.fairness_key) == (4, plain.id)
    assert list({k.name: v for k, v in below.typed_search_attributes}["ActsTags"]) == ["customer=c-17", "team=ops"]
    (scheduled,) = await of_type(first, "ACTIVITY_TASK_SCHEDULED")
    assert (scheduled.priority.priority_key, scheduled.priority.fairness_key) == (1, "customer=c-17")


@pytest.mark.parametrize("config", [{"fairness": "customer"}, {"priority": 6}, {"tags": {"a=b": "c"}}])
async def test_a_tag_a_turn_or_a_priority_that_cannot_be_is_refused(foreign: Foreign, config: dict[str, Any]) -> None:
    assert (await foreign.failure(call("echo"), **config)).type == "InvalidRequest"


async def test_calls_beyond_the_limit_of_their_activity_wait_and_hold_up_no_others(
    server: DevServer, plain_client: Client
) -> None:
    gate, echoed = Door(), Door()
    echoed.opened.set()
    registry = Registry({}, (gate.activity("refund"), echoed.activity("look")))
    tools = [tool("refund", activity="refund"), tool("look", activity="look")]
    async with engine(server, registry, tool_limits="refund=2") as queue:
        user = Foreign(plain_client, queue, queue)
        runs = [await user.start(user.request(call("refund", "†state.a"), context=tools[:1])) for _ in range(MANY)]

        async def all_are_scheduled() -> bool:
            return all([await of_type(run, "ACTIVITY_TASK_SCHEDULED") for run in runs])

        await assert_eventually(all_are_scheduled)
        await gate.reached(2)
        beside = await ended(await user.start(user.request(call("look", "†state.b"), context=tools[1:])))
        assert (beside["state"], gate.arrived) == ({"b": "through"}, 2)
        gate.opened.set()
        assert [(await ended(run))["status"] for run in runs] == ["completed"] * MANY
    assert gate.most == 2


async def test_a_request_gets_no_more_than_the_operator_allows(server: DevServer, plain_client: Client) -> None:
    gate = Door()
    registry = Registry({}, (gate.activity("refund"),))
    async with engine(server, registry, max_parallel=2) as queue:
        user = Foreign(plain_client, queue, queue)
        calls = [call("refund", f"†state.x{n}") for n in range(MANY)]
        run = await user.start(user.request(*calls, context=[tool("refund", activity="refund")], maxParallel=2_000))
        await gate.reached(2)
        assert len(await of_type(run, "ACTIVITY_TASK_SCHEDULED")) == 3, "one is that which asks for the caps"
        gate.opened.set()
        await ended(run)
    assert gate.most == 2


async def test_the_money_of_a_day_is_that_of_its_tag(server: DevServer, plain_client: Client) -> None:
    async with engine(server, Registry({}, ()), day_cost="100,customer=0") as queue:
        user = Foreign(plain_client, queue, queue)
        request = user.request(model="scripted:none", tags={"customer": "c-17"})
        error = await failure(await user.start(request))
        assert (error.type, "with the tag customer=c-17 are spent" in error.message) == ("BudgetExceeded", True)
        assert (await user.run(tags={"customer": "c-17"}))["status"] == "completed", "it has no model"
    assert await Caps(5, 2.0, "").look_up({}) == {"maxParallel": 5, "cost": 2.0}
