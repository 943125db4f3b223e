"""Calls that start while the model still writes: a provider's stream that waits for what its own Calls do.

Without streaming these runs would not end: the fake provider sends the rest of an answer only when an Activity of
its first Calls has run.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from tests.models.rawserver import RawServer, Reply, chat
from tests.workflow.conftest import delegates_folder, engine, foreign, plain_client, sets_folder  # noqa: F401 - fixtures
from tests.workflow.foreign import Foreign, call, ended, states

Json = Any
DONE = {"calls": [], "output": {"end": "it is over"}}
FIRST, SECOND = call("step", "†state.a", n=1), call("step", "†state.b", n="†state.a.n")


class Ledger:
    """The effects, and the word that as many as ``expected`` have happened."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.expected = 1
        self.happened = asyncio.Event()

    def activity(self) -> Any:
        async def step(call: dict[str, Json], tool: Json, context: Json) -> Json:
            self.effects[call["_id"]] += 1
            if self.effects.total() == self.expected:
                self.happened.set()
            return {"n": call["n"] + 1}

        return step


def streamed(ledger: Ledger, solution: Json, after: str, *, finish: str | None = "stop", refusal: str = "") -> Reply:
    """A solution that a model writes; what follows ``after`` comes only once a Call has had its effect.

    One that does not end well breaks off within its last Call.
    """
    text = json.dumps(solution)
    text = text if finish == "stop" and not refusal else text[: text.rindex("_outputPath")]
    place = text.index(after) + len(after)
    head, tail = chat(text[:place], finish=None), chat(text[place:], finish=finish, refusal=refusal)
    return Reply(events=[*head, *tail[1:]], waits={len(head): ledger.happened}, end="clean" if finish else "abrupt")


async def start(user: Foreign, **config: Json) -> Any:
    request = {
        "config": {"model": "openai:gpt-6-sol", **config},
        "context": [user.tool("step", n={"type": "integer"}), {"type": "text", "text": "Do it."}],
        "schema": {"type": "object", "properties": {"end": {"type": "string"}}, "required": ["end"]},
    }
    return await user.client.start_workflow("Agent", request, id=f"{user.queue}/agent", task_queue=user.engine)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def end_of(planned: Json) -> str:
    return json.dumps(planned)


async def test_a_call_starts_while_the_model_still_writes(foreign: Foreign, raw: RawServer, ledger: Ledger) -> None:
    third = call("step", "†state.c", n="†state.b.n")
    solution = {"calls": [FIRST, SECOND, third], "output": None}
    raw.reply_with(streamed(ledger, solution, end_of(FIRST)), Reply(events=chat(json.dumps(DONE))))
    async with foreign.serving(ledger.activity()):
        result = await ended(await start(foreign))
    assert result["state"] == {"a": {"n": 2}, "b": {"n": 3}, "c": {"n": 4}}
    assert states(result) == {"1:step": "completed", "2:step": "completed", "3:step": "completed"}
    assert set(ledger.effects.values()) == {1}
    assert (len(raw.requests), result["ticks"]) == (2, 2)
    assert result["output"] == {"end": "it is over"}


BROKEN: dict[str, tuple[dict[str, Json], dict[str, Json], str]] = {
    "breaks off within a call": ({"calls": [FIRST, SECOND], "output": None}, {"finish": None}, "modelCut"),
    "is too long": ({"calls": [FIRST, SECOND], "output": None}, {"finish": "length"}, "modelTruncated"),
    "turns out to be a refusal": ({"calls": [FIRST, SECOND], "output": None}, {"refusal": "No."}, "modelRefused"),
    "has an unknown tool in its second call": ({"calls": [FIRST, call("none", "†state.b")]}, {}, "unknownTool"),
    "has a third call that makes the second invalid": (
        {"calls": [FIRST, call("step", "†state.b", n="†state.c.n"), call("step", "†state.c", n="†state.b.n")]},
        {}, "cycle",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
async def test_what_had_started_stands_when_the_answer(
    name: str, foreign: Foreign, raw: RawServer, ledger: Ledger
) -> None:
    solution, ending, code = BROKEN[name]
    solution = {"output": None, **solution}
    raw.reply_with(streamed(ledger, solution, end_of(FIRST), **ending), Reply(events=chat(json.dumps(DONE))))
    async with foreign.serving(ledger.activity()):
        result = await ended(await start(foreign))
    assert result["state"] == {"a": {"n": 2}}
    assert states(result) == {"1:step": "completed"}
    assert list(ledger.effects.values()) == [1]
    assert [e["code"] for e in result["errors"]] == [code]
    assert result["output"] == {"end": "it is over"}
    shown = json.dumps(raw.requests[1].body, ensure_ascii=False)
    assert code in shown, "the model is told what was wrong"


async def test_without_streaming_nothing_starts_before_the_answer_is_complete(
    foreign: Foreign, raw: RawServer, ledger: Ledger
) -> None:
    text = json.dumps({"calls": [FIRST, SECOND], "output": {"end": "it is over"}})
    sent = asyncio.Event()
    events = chat(text)
    raw.reply_with(Reply(events=events, waits={len(events) - 1: sent}))
    async with foreign.serving(ledger.activity()):
        handle = await start(foreign, stream=False)
        status = await handle.query("status")
        assert status["calls"] == []
        sent.set()
        result = await ended(handle)
    assert len(ledger.effects) == 2
    assert result["ticks"] == 1
