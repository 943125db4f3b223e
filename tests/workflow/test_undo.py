"""Runs that undo what they completed, through a real server: a ledger says what was undone, in which order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError

from acts.activities.shipped_tools import PLAN
from acts.client.client import Client
from acts.client.client_errors import ClientError
from acts.tree.identity import retry_id
from tests.crash.resets import reset, reset_points
from tests.workflow.agents import Agents, Saved, delegating
from tests.workflow.foreign import Foreign, call, came_to, decide, ended, failure, own, pending, result_of_failed, tool
from tests.workflow.tools import Gate

Json = Any
UNDO = {"_tool": "refund", "payment": "†result.id", "note": "of †{call.n}"}


@dataclass
class Bank:
    """``refunds`` are the payments that were refunded, in order, each with the ``_id``; those of ``stuck`` are not."""

    foreign: Foreign
    refunds: list[tuple[str, str]] = field(default_factory=list)
    stuck: set[str] = field(default_factory=set)
    broken: set[int] = field(default_factory=lambda: {0})
    gate: Gate = field(default_factory=Gate)

    def tools(self) -> list[Any]:
        @activity.defn
        async def pay(given: Json, _tool: Json, _context: Json) -> Json:
            if given["n"] in self.broken:
                raise ApplicationError("declined", type="declined", non_retryable=True)
            return {"id": f"†p{given['n']}"} if given["n"] != 13 else {}

        @activity.defn
        async def refund(given: Json, _tool: Json, _context: Json) -> Json:
            if given["payment"] in self.stuck:
                raise ApplicationError("the bank is closed", type="closed", non_retryable=True)
            assert given["note"] == f"of {given['payment'].removeprefix('†p')}"
            self.refunds.append((given["payment"], given["_id"]))
            return None

        return [pay, refund, self.gate.activity("gate")]

    @property
    def context(self) -> list[Json]:
        return [self.foreign.tool("pay", _undo=UNDO), self.foreign.tool("refund"), self.foreign.tool("gate")]

    def request(self, *calls: Json, context: tuple[Json, ...] = (), **config: Json) -> dict[str, Json]:
        return self.foreign.request(*calls, context=[*self.context, *context], **config)

    @property
    def undone(self) -> list[str]:
        return [payment for payment, _ in self.refunds]


@pytest.fixture
async def bank(foreign: Foreign) -> AsyncIterator[Bank]:
    own = Bank(foreign)
    async with foreign.serving(*own.tools()):
        yield own


def paid(*numbers: int) -> list[Json]:
    """Payments one after another; 0 fails."""
    return [call("pay", f"†state.p{n}", n=n, **({"after": f"†state.p{p}"} if p else {}))
            for p, n in zip((0, *numbers), numbers, strict=False)]  # fmt: skip


async def test_a_failed_run_undoes_in_reverse_order_what_completed_and_nobody_undoes_it_again(bank: Bank) -> None:
    bank.stuck = {"†p2"}
    each = call("pay", "†state.all", n="†item", _each=[4, 5])
    handle = await bank.foreign.start(bank.request(*paid(1, 2, 13, 3), each, *paid(0), onFailure="undo"))
    error = await failure(handle)
    (result,) = error.details
    assert bank.undone == ["†p5", "†p4", "†p3", "†p1"], "the others go on where one fails"
    assert result["undone"]["calls"] == 4
    reasons = [(e["call"], e["code"]) for e in result["undone"]["errors"]]
    assert reasons == [("3:pay", "UnresolvedReference"), ("4:refund", "closed")]
    assert "undone: 4 calls, and 2 not" in str(error)

    run = Client(bank.foreign.client).run(handle.id)
    assert (await run.undo()).id == (await run.undo()).id == f"{handle.id}/undo"
    bank.stuck = set()
    request = await handle_request(bank, f"{handle.id}/undo")
    again = await bank.foreign.start(resumed(request, f"{handle.id}/undo"))
    assert (await result_of_failed(again))["errors"][0]["call"] == "3:pay", "what has no value cannot be undone"
    assert bank.undone[-1] == "†p2"
    assert len(bank.refunds) == 5
    assert len({id_ for _, id_ in bank.refunds}) == 5


async def handle_request(bank: Bank, id_: str) -> dict[str, Json]:
    from acts.client.run_reader import RunReader

    request = await RunReader(bank.foreign.client, id_).request()
    assert isinstance(request, dict)
    return request


def resumed(request: dict[str, Json], id_: str) -> dict[str, Json]:
    return {**request, "config": {**request["config"], "resume": {"workflowId": id_}}}


async def test_a_failure_that_the_plan_deals_with_undoes_nothing(bank: Bank) -> None:
    dealt_with = call("pay", "†state.ok", n=0, _errorPath="†state.problem")
    handle = await bank.foreign.start(bank.request(*paid(1), dealt_with, onFailure="undo"))
    assert (await ended(handle))["status"] == "completed"
    assert bank.undone == []


async def test_a_retry_makes_anew_what_was_undone_and_keeps_what_was_not(bank: Bank) -> None:
    handle = await bank.foreign.start(bank.request(*paid(1, 2), *paid(0)))
    assert (await came_to(handle))["status"] == "failed"
    assert bank.undone == []
    client = Client(bank.foreign.client)
    bank.stuck = {"†p1"}
    undo = await client.run(handle.id).undo()
    assert (await undo.result()).status == "failed"
    assert bank.undone == ["†p2"]
    assert (await client.run(handle.id).undo()).id == undo.id
    bank.broken = set()
    request = {**bank.request(*paid(1, 2), *paid(0)), "config": {"resume": {"workflowId": handle.id}}}
    again = await ended(await bank.foreign.start(request))
    assert again["resumedFrom"]["calls"] == ["1:pay"]
    assert again["status"] == "completed"


async def test_a_run_that_was_retried_is_undone_by_the_retry_once_that_has_something(bank: Bank) -> None:
    first = await bank.foreign.start(bank.request(*paid(1), *paid(0)))
    assert (await came_to(first))["status"] == "failed"
    new_id = retry_id(first.id, str(first.result_run_id))
    raw = bank.request(*paid(1), *paid(0), resume={"workflowId": first.id})
    assert (await came_to(await bank.foreign.start(raw, id=new_id)))["status"] == "failed"
    client = Client(bank.foreign.client)
    with pytest.raises(ClientError, match="was retried"):
        await client.run(first.id).undo()
    assert (await (await client.run(new_id).undo()).result()).ok
    assert bank.undone == ["†p1"]


async def test_what_a_run_took_over_from_another_is_undone_under_one_id(bank: Bank) -> None:
    first = await bank.foreign.start(bank.request(*paid(1), *paid(0)))
    assert (await came_to(first))["status"] == "failed"
    request = bank.request(*paid(1), *paid(0), onFailure="undo", resume={"workflowId": first.id})
    second = await came_to(await bank.foreign.start(request))
    assert second["undone"]["calls"] == 1
    await (await Client(bank.foreign.client).run(first.id).undo()).result()
    assert bank.undone == ["†p1", "†p1"]
    assert len({id_ for _, id_ in bank.refunds}) == 1, "the bank does it once"


async def test_a_person_ends_a_run_and_has_it_undone(bank: Bank) -> None:
    asks = call("gate", "†state.gate", after="†state.p2")
    handle = await bank.foreign.start(bank.request(*paid(1, 2), asks, approve={"calls": ["gate", "refund"]}))
    (wait,) = await pending(handle)
    assert wait["call"] == "3:gate"
    await decide(handle, "undo", reason="the customer has gone", by="Ada")
    for _ in range(2):  # a Tool that asks still asks
        (wait,) = await pending(handle)
        assert wait["workflowId"] == f"{handle.id}/undo"
        await decide(handle, call=wait["call"])
    result = await ended(handle)
    assert (result["status"], result["undone"]["calls"]) == ("rejected", 2)
    assert bank.undone == ["†p2", "†p1"]


async def test_an_instance_that_fails_is_undone_by_itself(bank: Bank) -> None:
    plan = [call("pay", "†state.first", n="†state.n"), call("pay", "†state.last", n="†state.m", after="†state.first")]
    instances = (own("a", n=1, m=0), own("b", n=2, m=3))
    handle = await bank.foreign.start(bank.request(*plan, context=instances, onFailure="undo"))
    result = await ended(handle)
    undone = {"workflowId": f"{handle.id}/a/undo", "status": "completed", "calls": 1, "errors": []}
    assert (result["status"], result["undone"], result["instances"]["a"]["undone"]) == ("partial", undone, undone)
    assert "undone" not in result["instances"]["b"]
    assert bank.undone == ["†p1"]
    undo = await Client(bank.foreign.client).run(handle.id).undo()
    assert (await undo.result()).ok
    assert bank.undone == ["†p1", "†p3", "†p2"]


async def test_a_row_of_a_set_that_fails_is_undone_and_runs_again_with_new_ids(bank: Bank, sets_folder: Path) -> None:
    name = f"{bank.foreign.queue[-8:]}.jsonl"
    (sets_folder / name).write_text('{"id": "a", "n": 1, "m": 0}\n{"id": "b", "n": 2, "m": 3}\n')
    plan = [call("pay", "†state.first", n="†row.n"), call("pay", "†state.last", n="†row.m", after="†state.first")]
    rows = {"type": "data", "kind": "row", "_instances": {"source": name, "id": "id"}}
    handle = await bank.foreign.start(bank.request(*plan, context=(rows,), onFailure="undo"))
    assert (await ended(handle))["status"] == "partial"
    resume = {"workflowId": handle.id, "only": "failed"}
    await came_to(await bank.foreign.start(bank.request(*plan, context=(rows,), onFailure="undo", resume=resume)))
    assert bank.undone == ["†p1", "†p1"]
    assert len({id_ for _, id_ in bank.refunds}) == 2
    with pytest.raises(ClientError, match="of a set"):
        await Client(bank.foreign.client).run(handle.id).undo()


async def test_what_an_inner_plan_completed_is_undone_in_its_place(bank: Bank) -> None:
    inner = call("plan", "†state.inner", plan=[*paid(2, 3)], _each=[1, 2])
    failing = call("plan", "†state.bad", plan=[*paid(5), *paid(0)], input={"after": "†state.inner"})
    calls = [*paid(1), inner, failing]
    context = [*bank.context, {"type": "tool", "tool": PLAN}, {"type": "plan", "plan": calls}]
    request = {"config": {"onFailure": "undo"}, "context": context}
    result = await came_to(await bank.foreign.start(request))
    assert bank.undone == ["†p5", "†p3", "†p2", "†p3", "†p2", "†p1"]
    assert len({id_ for _, id_ in bank.refunds}) == len(bank.refunds) == result["undone"]["calls"]

    bank.refunds.clear()
    each = call("plan", "†state.inner", plan=[call("pay", "†state.p", n="†input.n")], input={"n": "†state.n"})
    calls = [each, call("pay", "†state.last", n="†state.m", after="†state.inner")]
    context = [*context[:-1], own("a", n=1, m=13), own("b", n=2, m=0), {"type": "plan", "plan": calls}]
    handle = await bank.foreign.start({"config": {"onFailure": "undo"}, "context": context})
    assert (await ended(handle))["status"] == "partial"
    assert bank.undone == ["†p2"]
    undo = await Client(bank.foreign.client).run(handle.id).undo()
    assert [error["call"] for error in (await undo.result()).errors] == ["2:pay"]
    assert bank.undone == ["†p2", "†p1"]


async def test_a_delegate_undoes_what_it_did_and_is_undone_as_one_call(bank: Bank, saved: Saved) -> None:
    config = {"onFailure": "undo"}
    failing = saved.walked(*paid(1), *paid(0), context=bank.context, config=config)
    done = saved.walked(call("pay", "†state.output", n=2), context=bank.context, config=config)
    tools = (delegating("fail", failing), delegating("buy", done, _undo={**UNDO, "note": "of 2"}))
    calls = [call("fail", "†state.x", _errorPath="†state.why"), call("buy", "†state.y"), *paid(0)]
    handle = await bank.foreign.start(bank.request(*calls, context=tools, **config))
    assert (await came_to(handle))["undone"]["calls"] == 1
    assert sorted(bank.undone) == ["†p1", "†p2"]


async def test_an_agent_ends_where_a_person_has_its_plan_undone(agents: Agents, bank: Bank) -> None:
    plan = {"calls": [*paid(2), call("gate", "†state.gate", after="†state.p2")]}
    handle = await agents.start({"calls": paid(1)}, plan, context=bank.context, approve={"calls": ["gate"]})
    await pending(handle)
    await decide(handle, "undo")
    error = await failure(handle)
    assert (error.type, bank.undone) == ("rejected", ["†p2", "†p1"])


async def test_an_agent_undoes_all_its_ticks_in_one_reverse_order(agents: Agents, bank: Bank) -> None:
    ticks = [{"calls": paid(1, 2)}, {"calls": paid(3)}, {"calls": paid(0)}]
    error = await agents.failure(*ticks, context=bank.context, maxTicks=3, onFailure="undo")
    (result,) = error.details
    assert bank.undone == ["†p3", "†p2", "†p1"]
    assert result["undone"]["status"] == "completed"


async def test_a_run_that_is_cancelled_while_it_undoes_leaves_the_rest_and_a_retry_undoes_it(bank: Bank) -> None:
    calls = [*paid(1), call("hold", "†state.hold", name="†state.p1.id"), *paid(0)]
    hold = tool("hold", activity="greet", _undo={"_tool": "gate"})
    handle = await bank.foreign.start(bank.request(*calls, context=(hold,), onFailure="undo"))
    await bank.gate.reached()
    await handle.cancel()
    assert (await Client(bank.foreign.client).run(handle.id).result()).status == "cancelled"
    assert bank.undone == []
    bank.gate.opened.set()
    undo = f"{handle.id}/undo"
    again = await bank.foreign.start(resumed(await handle_request(bank, undo), undo))
    assert (await ended(again))["status"] == "completed"
    assert bank.undone == ["†p1"]


async def test_after_a_reset_what_was_undone_is_undone_under_the_same_ids(bank: Bank) -> None:
    handle = await bank.foreign.start(bank.request(*paid(1, 2), *paid(0), onFailure="undo"))
    assert (await came_to(handle))["undone"]["calls"] == 2
    for point in await reset_points(handle):
        again = await reset(bank.foreign.client, handle.id, point, handle.result_run_id)
        assert (await came_to(again))["undone"] == {
            "workflowId": f"{handle.id}/undo", "status": "completed", "calls": 2, "errors": [],
        }  # fmt: skip
    assert len(set(bank.refunds)) == 2


async def test_what_has_nothing_that_undoes_it_says_so(bank: Bank) -> None:
    handle = await bank.foreign.start(bank.request(call("gate", "†state.g")))
    bank.gate.opened.set()
    await ended(handle)
    assert (await handle.describe()).status == WorkflowExecutionStatus.COMPLETED
    with pytest.raises(ClientError, match="_undo"):
        await Client(bank.foreign.client).run(handle.id).undo()


@pytest.mark.parametrize(
    ("undo", "words"),
    [
        ({"_tool": "refnd"}, 'unknown tool "refnd"'),
        ({"_tool": "refund", "payment": "†state.id"}, "it sees what the Call gave and was given"),
        ({"_tool": "refund", "_outputPath": "†state.x"}, "parameters, and nothing else"),
        ({"_tool": "refund", "payment": "†result..id"}, "_undo"),
        ({"_tool": "pay"}, "leads in a circle"),
        ("refund", "/properties/_undo"),
        ({"const": "refund"}, "is the Call that undoes one of it"),
    ],
)
async def test_a_tool_whose_undo_cannot_be_made_is_refused(bank: Bank, undo: Json, words: str) -> None:
    context = [bank.foreign.tool("pay", _undo=undo), tool("refund", activity="refund")]
    error = await bank.foreign.failure(*paid(1), context=context)
    assert error.type == "InvalidRequest"
    assert words in str(error)
