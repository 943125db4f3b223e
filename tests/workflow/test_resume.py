"""Runs that resume others, through a real server: a ledger says which effects were applied, and how often."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.exceptions import ApplicationError

from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, call, ended, failure, of_type, result_of_failed, tool
from tests.workflow.foreign import states as states_of

Json = Any
CALLS = 20
FAILING = 13


@dataclass
class Ledger:
    """The effects of the Tools, by ``_id``: an ``_id`` that is there is not applied again, as an API would do.

    ``broken`` are parameters for which the Tool applies its effect and then fails.
    """

    effects: dict[str, int] = field(default_factory=dict)
    attempts: list[tuple[str, int]] = field(default_factory=list)
    broken: set[int] = field(default_factory=set)

    def tools(self) -> list[Any]:
        @activity.defn(name="charge")
        async def charge(given: Json, _tool: Json, _context: Json) -> Json:
            return self.apply(given)

        @activity.defn(name="chargeAgain")
        async def charge_again(given: Json, _tool: Json, _context: Json) -> Json:
            return self.apply(given) + 1000

        return [charge, charge_again]

    def apply(self, given: Json) -> int:
        number = int(given["n"])
        self.attempts.append((given["_id"], number))
        self.effects.setdefault(given["_id"], number)
        if number in self.broken:
            raise ApplicationError("the card was declined", type="declined", non_retryable=True)
        return number

    def counts(self) -> Counter[int]:
        """How often each number was charged."""
        return Counter(self.effects.values())


def chain(tool: str = "charge", start: int = 1, stop: int = CALLS) -> list[Json]:
    """Calls that read one another's results."""
    return [
        call(tool, f"†state.c{n}", n=n, **({"after": f"†state.c{n - 1}"} if n > 1 else {}))
        for n in range(start, stop + 1)
    ]


@pytest.fixture
async def ledger(foreign: Foreign) -> Any:
    own = Ledger()
    async with foreign.serving(*own.tools()):
        yield own


async def failed_run(foreign: Foreign, ledger: Ledger) -> Any:
    """A run of 20 Calls that failed at the 13th, whose effect was applied all the same."""
    ledger.broken = {FAILING}
    handle = await foreign.start(foreign.request(*chain()))
    result = await result_of_failed(handle)
    assert states_of(result)["13:charge"] == "failed"
    assert ledger.counts() == dict.fromkeys(range(1, FAILING + 1), 1)
    ledger.broken = set()
    return handle


async def test_a_plan_that_failed_at_its_13th_call_is_retried_and_no_effect_is_applied_twice(
    foreign: Foreign, ledger: Ledger
) -> None:
    handle = await failed_run(foreign, ledger)
    before = len(ledger.attempts)
    second = await foreign.start(foreign.request(*chain(), resume={"workflowId": handle.id}))
    result = await ended(second)
    assert result["status"] == "completed"
    assert result["state"] == {f"c{n}": n for n in range(1, CALLS + 1)}
    assert ledger.counts() == dict.fromkeys(range(1, CALLS + 1), 1)
    assert [n for _, n in ledger.attempts[before:]] == list(range(FAILING, CALLS + 1))
    assert result["resumedFrom"] == {
        "workflowId": handle.id, "runId": handle.result_run_id, "keep": "completed", "ids": "same",
        "calls": [f"{n}:charge" for n in range(1, FAILING)],
    }  # fmt: skip
    assert len(result["context"]) == CALLS
    scheduled = [a.activity_id for a in await of_type(second, "ACTIVITY_TASK_SCHEDULED")]
    assert [a for a in scheduled if a.endswith("charge")] == [f"{n}:charge" for n in range(FAILING, CALLS + 1)]

    third = await foreign.run(*chain(), resume={"workflowId": second.id})  # what was taken over can be, again
    assert third["resumedFrom"]["calls"] == [f"{n}:charge" for n in range(1, CALLS + 1)]
    assert ledger.counts() == dict.fromkeys(range(1, CALLS + 1), 1)


async def test_a_mended_call_keeps_its_id_and_what_reads_a_changed_result_runs_with_a_new_one(
    foreign: Foreign, ledger: Ledger
) -> None:
    handle = await failed_run(foreign, ledger)
    ids = {n: id_ for id_, n in ledger.effects.items()}
    mended = chain()
    mended.insert(0, call("charge", "†state.first", n=100))
    mended[FAILING] = {**mended[FAILING], "currency": "EUR"}  # now the 14th of the list
    mended[11] = {**mended[11], "n": 1111, "_outputPath": "†state.c11"}  # the 11th had completed
    context = [foreign.tool("charge", currency={"type": "string"})]
    result = await foreign.run(*mended, context=context, resume={"workflowId": handle.id})
    assert result["resumedFrom"]["calls"] == [f"{n + 1}:charge" for n in range(1, 11)]
    again = dict(ledger.attempts[FAILING:])  # the first run made 13
    assert sorted(again.values()) == sorted([100, 1111, *range(12, CALLS + 1)])
    assert set(again) & {ids[n] for n in range(1, FAILING)} == set(), "an idempotent tool would ignore an old id"
    assert ledger.counts()[12] == 2, "it had completed, and reads another value now"


async def test_a_run_that_was_terminated_in_mid_call_is_resumed_with_the_same_id(
    foreign: Foreign, ledger: Ledger
) -> None:
    @activity.defn
    async def hang(given: Json, _tool: Json, _context: Json) -> Json:
        ledger.apply(given)
        if len([n for _, n in ledger.attempts if n == 2]) == 1:
            await activity.wait_for_cancelled()
        return given["n"]

    other = Foreign(foreign.client, foreign.engine, f"{foreign.queue}-hang")
    async with other.serving(hang, graceful_shutdown_timeout=timedelta(0)):
        plan = [call("charge", "†state.a", n=1), call("hang", "†state.b", n=2, after="†state.a")]
        tools = [other.tool("hang"), foreign.tool("charge")]
        handle = await foreign.start(foreign.request(*plan, context=tools))

        async def hangs() -> bool:
            return len(ledger.attempts) == 2

        await assert_eventually(hangs)
        await handle.terminate("the operator has had enough")
        result = await foreign.run(*plan, context=tools, resume={"workflowId": handle.id})
    assert result["state"] == {"a": 1, "b": 2}
    assert result["resumedFrom"]["calls"] == ["1:charge"]
    assert ledger.counts() == {1: 1, 2: 1}


async def test_what_a_run_had_of_instances_elements_and_messages_is_taken_over(
    foreign: Foreign, ledger: Ledger
) -> None:
    data = [{"type": "state", "n": n, "_instance": f"i{n}"} for n in range(1, 5)]
    plan = [
        call("charge", "†state.a", n="†state.n"),
        call("charge", "†state.b", n=50, after="†state.a", own="†state.n"),
    ]
    ledger.broken = {3}
    handle = await foreign.start(foreign.request(*plan, context=data))
    assert (await ended(handle))["status"] == "partial"
    ledger.broken = set()
    attempts = len(ledger.attempts)
    result = await foreign.run(*plan, context=data, resume={"workflowId": handle.id})
    assert result["status"] == "completed"
    assert [n for _, n in ledger.attempts[attempts:]] == [3, 50]
    assert ledger.counts() == {1: 1, 2: 1, 3: 1, 4: 1, 50: 4}
    both = ["1:charge", "2:charge"]
    assert result["resumedFrom"]["instances"] == {"i1": both, "i2": both, "i4": both}
    only = await foreign.run(*plan, context=data, resume={"workflowId": handle.id, "only": "failed"})
    assert {id_: item["status"] for id_, item in only["instances"].items()} == {"i3": "completed"}


async def test_local_calls_delegates_and_what_was_sent_off_are_taken_over(foreign: Foreign, ledger: Ledger) -> None:
    """The local Call draws at random: if it ran again, everything that reads it would have changed."""
    options = {"taskQueue": foreign.queue}
    context = [
        tool("draw", activity="noise", options={"local": True}),
        tool("look", activity="charge", options=options, _delegate={"const": "anonymous"}),
        tool("post", activity="charge", options=options),
    ]
    plan = [
        call("draw", "†state.token", n=8),
        call("look", "†state.seen", n=2, after="†state.token"),
        call("post", n=3, after="†state.seen"),
        call("charge", "†state.done", n=4, after="†{state.token}", _scopes=["state"]),
    ]
    ledger.broken = {4}
    handle = await foreign.start(foreign.request(*plan, context=context))
    before = await result_of_failed(handle)
    ledger.broken = set()
    result = await foreign.run(*plan, context=context, resume={"workflowId": handle.id})
    assert result["state"] == {**before["state"], "done": 4}
    assert result["resumedFrom"]["calls"] == ["1:draw", "2:look", "3:post"]

    async def all_charged() -> bool:
        return ledger.counts() == {2: 1, 3: 1, 4: 1}

    await assert_eventually(all_charged)


async def test_what_cannot_be_resumed_is_refused_readably(foreign: Foreign, ledger: Ledger) -> None:
    plan = chain(stop=1)
    error = await failure(await foreign.start(foreign.request(*plan, resume={"workflowId": "nobody"})))
    assert error.type == "ResumeRefused"
    assert 'there is no run "nobody" in the namespace' in error.message
    handle = await foreign.start(foreign.request(*plan))
    await ended(handle)
    resume = {"workflowId": handle.id, "keep": {"before": "9:refund"}}
    error = await failure(await foreign.start(foreign.request(*plan, resume=resume)))
    assert error.type == "InvalidRequest"
    assert "9:refund" in error.message
    error = await failure(
        await foreign.start(foreign.request(*plan, resume={"workflowId": handle.id, "only": "failed"}))
    )
    assert "it has no instances" in error.message
    agent = await foreign.client.start_workflow(
        "Agent", {"config": {"resume": {"workflowId": handle.id}, "model": "scripted:none"}, "context": []},
        id=f"{handle.id}-agent", task_queue=foreign.engine,
    )  # fmt: skip
    error = await failure(agent)
    assert error.type == "InvalidRequest"
    assert "/config/resume: an agent cannot resume another run" in error.message
