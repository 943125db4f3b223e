"""The examples of scopes and delegates: what reaches whom, and what reaches nobody else."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from acts.delegates.definitions import read_definition
from acts.language.wire import AGENT
from tests.examples.running import (
    ROOT,
    ActsWorker,
    Handle,
    activities_of,
    below,
    children,
    finished,
    load,
    rows,
    start,
    states,
)
from tests.support import assert_eventually

BORIS, ALICE = "user_B", "user_A"
DEFINITIONS = sorted((ROOT / "examples").glob("*/delegates/*.json"))


def definition(path: str) -> Any:
    return json.loads((ROOT / "examples" / path).read_text("utf-8"))


async def messages(handle: Handle) -> list[Any]:
    """All the messages of a run's context."""
    found = await handle.query("context")
    assert isinstance(found, list)
    return found


def cause_of(failed: pytest.ExceptionInfo[WorkflowFailureError]) -> ApplicationError:
    assert isinstance(failed.value.cause, ApplicationError)
    return failed.value.cause


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda p: p.stem)
def test_every_definition_can_be_loaded_and_inherits_the_model(path: Path) -> None:
    content = path.read_bytes()
    found = read_definition(content, path.stem)
    assert "model" not in found.get("config", {})


async def test_recipient_with_a_scope_is_the_user_who_was_mentioned(client: Client, worker: ActsWorker) -> None:
    handle = await start(client, worker, load("examples/recipient/plan.yaml"))
    result = await finished(handle)
    assert states(result) == {"1:addressWelcome": "completed", "2:sendMessage": "completed"}
    assert result["state"]["welcome"] == {"recipientId": BORIS, "message": "Welcome, Boris!"}
    assert result["state"]["sent"]["recipientId"] == BORIS
    key = (await activities_of(client, handle))["2:sendMessage"].call["_id"]
    query = "SELECT recipient, text FROM messages WHERE call = ?"
    assert rows(worker.state, "recipient", query, key) == [(BORIS, "Welcome, Boris!")]


@pytest.mark.parametrize(
    ("decision", "sent_to"), [({"decision": "approve"}, BORIS), ({"decision": "reject", "reason": "No."}, "nobody")]
)
async def test_recipient_asked_waits_for_a_person_who_has_looked_at_the_scopes(
    client: Client, worker: ActsWorker, decision: dict[str, str], sent_to: str
) -> None:
    handle = await start(client, worker, load("examples/recipient/approval.yaml"), AGENT)

    async def waits() -> Any:
        return await handle.query("pending")

    (wait,) = await assert_eventually(waits)
    assert (wait["what"], wait["call"]) == ("scopes", "1:sendMessage")
    await handle.execute_update("decide", decision)
    assert (await finished(handle))["output"] == {"sentTo": sent_to}


async def test_speaker_bridges_parameters_that_do_not_fit(client: Client, worker: ActsWorker) -> None:
    handle = await start(client, worker, load("examples/speaker/plan.yaml"), AGENT)
    result = await finished(handle)
    assert result["output"] == {"sentTo": "u_123"}
    (planned,) = next(m["plan"] for m in result["context"] if m["type"] == "plan")
    assert planned == {"_tool": "sendMessage", "userId": "†input.newUser", "text": "Hello, world!"}
    child = below(client, handle, "plan-1", "1:sendMessage")
    found = await messages(child)
    expected = definition("speaker/delegates/speaker.json")["context"]
    given = {"userId": "u_123", "text": "Hello, world!"}
    assert found[:4] == [*expected, {"type": "input", "input": given, "schema": expected[-1]["schema"]}]
    delivered = (await activities_of(client, below(client, child, "plan-1")))["1:deliver"].call
    assert (delivered["recipientId"], delivered["messageBody"]) == ("u_123", "Hello, world!")
    query = "SELECT recipient, body FROM outbox WHERE call = ?"
    assert rows(worker.state, "speaker", query, delivered["_id"]) == [("u_123", "Hello, world!")]


async def test_speaker_resolved_upfront_shows_the_planner_what_it_takes(client: Client, worker: ActsWorker) -> None:
    handle = await start(client, worker, load("examples/speaker/upfront.yaml"), AGENT)
    result = await finished(handle)
    assert result["output"] == {"sentTo": "u_123"}
    assert (result["ticks"], result["errors"]) == (1, [])
    (tool,) = [m["tool"] for m in (await messages(handle)) if m["type"] == "tool"][1:]
    assert tool["required"] == ["recipientId", "messageBody"]
    assert set(tool["properties"]["_output"]["properties"]) == {"number", "recipientId"}
    child = below(client, handle, "plan-1", "1:sendMessage")
    given = next(m["input"] for m in await messages(child) if m["type"] == "input" and "input" in m)
    assert given == {"recipientId": "u_123", "messageBody": "Hello, world!"}


async def test_music_is_made_by_delegates_of_delegates_and_by_one_of_them_directly(
    client: Client, worker: ActsWorker
) -> None:
    handle = await start(client, worker, load("examples/music/plan.yaml"), AGENT)
    result = await finished(handle)
    assert (result["ticks"], result["usage"]["requests"], result["errors"]) == (1, 4, [])
    assert result["output"]["title"] == "Gull Point"
    plan, composer = below(client, handle, "plan-1"), below(client, handle, "plan-1", "1:compose")
    assert await children(client, plan) == {"1:compose": "Delegate", "2:designSound": "Delegate"}
    assert await children(client, composer) == {"plan-1": "Plan"}
    assert await children(client, below(client, composer, "plan-1")) == {"2:designSound": "Delegate"}
    record = Path(result["output"]["file"])
    assert record.is_relative_to(worker.state)
    with wave.open(str(record)) as file:
        seconds = round(file.getnframes() / file.getframerate(), 2)
    assert seconds == result["output"]["seconds"] == 14.17  # 17 beats, 72 of them a minute


async def test_music_goes_no_deeper_than_its_budget(client: Client, worker: ActsWorker) -> None:
    request = load("examples/music/plan.yaml")
    request["config"]["budget"]["depth"] = 1
    handle = await start(client, worker, request, AGENT)
    with pytest.raises(WorkflowFailureError) as failed:
        await finished(handle)
    (result,) = cause_of(failed).details
    assert states(result) == {"1:compose": "failed", "2:designSound": "completed", "3:mix": "skipped"}
    inside = await messages(below(client, handle, "plan-1", "1:compose"))
    (error,) = [m["data"]["error"] for m in inside if m["type"] == "error"]
    assert error["code"] == "LimitExceeded"
    assert "1 deep" in error["message"]


@pytest.mark.parametrize(
    ("inputs", "paid"), [({}, [21000, 21000, 19186]), ({"installment": 50000}, [50000, 10706])], ids=["given", "higher"]
)
async def test_loan_takes_a_turn_per_tick_until_it_is_paid_off(
    client: Client, worker: ActsWorker, inputs: dict[str, int], paid: list[int]
) -> None:
    request = load("examples/loan/plan.yaml")
    request["context"].append({"type": "input", "input": inputs})
    handle = await start(client, worker, request, AGENT)
    result = await finished(handle)
    turns = len(paid)
    assert result["output"] == {"months": turns, "paid": True}
    assert result["state"]["loan"] == {"month": turns, "balance": 0, "done": True}
    assert (result["ticks"], result["usage"]["requests"]) == (turns + 1, turns + 1)  # none for the turns themselves
    keys = []
    for tick in range(1, turns + 1):
        turn = below(client, handle, f"plan-{tick}", "1:payMonth")
        assert await children(client, turn) == {"plan": "Plan"}
        keys.append((await activities_of(client, below(client, turn, "plan")))["2:payInstallment"].call["_id"])
    query = "SELECT month, cents FROM installments WHERE call = ?"
    ledger = [rows(worker.state, "loan", query, key) for key in keys]
    assert ledger == [[(month, cents)] for month, cents in enumerate(paid, 1)]
