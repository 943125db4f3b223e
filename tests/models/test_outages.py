"""Agents whose model has no capacity, or answers nothing of use, on a real Temporal server through the real SDKs.

The seconds of the pauses are scaled down; the provider asks for none.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
from temporalio.client import Client

from acts.activities import patience
from acts.cli.dev.temporal_server import DevServer
from tests.models.rawserver import RawServer, Reply, chat
from tests.support import assert_eventually
from tests.workflow.conftest import delegates_folder, engine, engine_on, foreign, plain_client, sets_folder  # noqa: F401 - fixtures
from tests.workflow.foreign import Foreign, call, ended, failure, status

Json = Any
TICKS = 8
DONE = {"calls": [], "output": {"end": "over"}}
SCHEMA = {"type": "object", "properties": {"end": {"type": "string"}}, "required": ["end"]}
BUSY = {"error": {"type": "overloaded_error", "message": "busy"}}


def busy(seconds: str = "0", status: int = 529) -> Reply:
    return Reply(status=status, body=BUSY, headers={"retry-after": seconds})


def answer(solution: Json, **more: Any) -> Reply:
    return Reply(events=chat(json.dumps(solution), **more))


def cut(solution: Json) -> Reply:
    return Reply(events=chat(json.dumps(solution)[:20], finish="length"))


def step(number: int) -> Json:
    return {"calls": [call("step", f"†state.s{number}", n=number)], "output": None}


class Effects:
    """How often each step has had its effect."""

    def __init__(self) -> None:
        self.by_number: Counter[int] = Counter()

    def activity(self) -> Any:
        async def step(call: dict[str, Json], tool: Json, context: Json) -> Json:
            self.by_number[call["n"]] += 1
            return {"n": call["n"]}

        return step


@pytest.fixture
def effects() -> Effects:
    return Effects()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_SECONDS", 0.001)
    monkeypatch.setattr(patience, "LONGEST_SECONDS", 0.01)
    monkeypatch.setattr(patience, "LEAST_JITTER_SECONDS", 0.001)


async def start(user: Foreign, **config: Json) -> Any:
    request = {
        "config": {"model": "openai:gpt-6-sol", "stream": False, **config},
        "context": [user.tool("step", n={"type": "integer"}), {"type": "text", "text": "Do it."}],
        "schema": SCHEMA,
    }
    return await user.client.start_workflow("Agent", request, id=f"{user.queue}/agent", task_queue=user.engine)


async def test_an_outage_in_the_middle_of_an_agent_costs_no_request_and_no_effect_twice(
    foreign: Foreign, raw: RawServer, effects: Effects
) -> None:
    outage = [
        busy(),
        busy(status=503),
        busy(status=500),
        Reply(status=429, body=BUSY, headers={"retry-after": "0"}),
    ] * 2
    solutions = [answer(step(number)) for number in range(1, TICKS)]
    raw.reply_with(*solutions[:4], *outage, *solutions[4:], answer(DONE))
    async with foreign.serving(effects.activity()):
        result = await ended(await start(foreign))
    assert (result["status"], result["ticks"]) == ("completed", TICKS)
    assert effects.by_number == dict.fromkeys(range(1, TICKS), 1)
    assert len(raw.requests) == TICKS + len(outage)
    assert result["usage"]["requests"] == TICKS
    assert not raw.replies
    asked = [json.dumps(request.body) for request in raw.requests]
    assert len(set(asked[4:13])) == 1  # the same request each time
    assert len(set(asked)) == TICKS


async def test_a_wait_is_seen_in_the_status_and_in_the_web_ui(foreign: Foreign, raw: RawServer) -> None:
    raw.reply_with(busy("300"))  # and up to a quarter more; longer than any machine needs for what follows
    handle = await start(foreign)

    async def is_in_status() -> bool:
        notes = (await status(handle)).get("notes") or [""]
        shape = r"waiting for the model: overloaded, next try in 3\d\d s \(\d\d:\d\d:\d\d UTC\), openai:gpt-6-sol"
        return any(re.fullmatch(shape, note) for note in notes)

    async def is_pending() -> bool:
        (pending,) = (await handle.describe()).raw_description.pending_activities
        assert "busy" in pending.last_failure.message
        assert re.search(rb"next try in [56] min", pending.heartbeat_details.payloads[0].data)
        return bool(pending.attempt == 2)

    await assert_eventually(is_in_status)
    await assert_eventually(is_pending)
    await handle.terminate("the test is over")


async def test_a_wait_and_its_usage_outlive_the_worker(
    server: DevServer, plain_client: Client, task_queue: str, raw: RawServer
) -> None:
    queue = f"engine-{task_queue}"
    raw.reply_with(cut(DONE), busy("2"), answer(DONE))
    async with engine_on(server, queue):
        handle = await start(Foreign(plain_client, queue, task_queue))

        async def is_waiting() -> bool:
            pending = (await handle.describe()).raw_description.pending_activities
            return any(activity.attempt == 2 for activity in pending)

        await assert_eventually(is_waiting)
    async with engine_on(server, queue):
        result = await ended(handle)
    assert result["output"] == {"end": "over"}
    assert result["usage"]["requests"] == 2
    assert [request.body.get("max_tokens") for request in raw.requests] == [None, 32_000, 32_000]


async def test_three_unusable_answers_in_a_row_end_the_run_with_what_they_cost(
    foreign: Foreign, raw: RawServer, effects: Effects
) -> None:
    raw.reply_with(answer(step(1)), *(Reply(events=chat(text)) for text in ("", "no", "never", "too late")))
    async with foreign.serving(effects.activity()):
        error = await failure(await start(foreign))
    assert error.type == "modelNotJson"
    assert "3 answers of the model in a row could not be used; the last: " in str(error)
    result = error.details[0]
    assert result["usage"]["requests"] == len(raw.requests) == 4
    assert result["state"] == {"s1": {"n": 1}}
