"""Latent Calls that begin together: one request writes the cache, the others wait until its answer begins."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from activities import cache_warming
from activities.cache_warming import send_warm
from activities.providers import select
from activities.providers.interface import ModelRequest, ModelResponse, ModelTurn, PromptBlock
from tests.models.rawserver import RawServer, Reply, chat, claude, responses
from tests.models.support import WIRE, model_request

SHARED = "What all of them share. " * 500
MODEL = "anthropic:claude-opus-5-5"


def latent(number: int, shared: str = SHARED, **fields: Any) -> ModelRequest:
    turn = ModelTurn("user", (PromptBlock(shared, is_cached=True), PromptBlock(f"call {number}")))
    return model_request(turns=(turn,), **fields)


class Sender:
    """Counts requests; each begins and ends when the test says so."""

    def __init__(self) -> None:
        self.sent: list[ModelRequest] = []
        self.end = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, request: ModelRequest) -> ModelResponse:
        self.sent.append(request)
        await self.end.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return ModelResponse("{}", {})

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_the_others_wait_until_the_first_answer_begins() -> None:
    sender = Sender()
    tasks = [asyncio.create_task(send_warm(MODEL, latent(i), sender)) for i in range(4)]
    await sender.settle()
    assert len(sender.sent) == 1
    begin = sender.sent[0].on_begin
    assert begin is not None
    begin()
    await sender.settle()
    assert len(sender.sent) == 4
    assert all(request.on_begin is None for request in sender.sent[1:])
    sender.end.set()
    await asyncio.gather(*tasks)
    await send_warm(MODEL, latent(9), sender)
    assert sender.sent[-1].on_begin is None, "the cache is warm"


@pytest.mark.parametrize(
    ("model", "one", "other"),
    [
        (MODEL, latent(1, "short"), latent(2, "short")),
        (MODEL, latent(1, "a" * 9_000), latent(2, "b" * 9_000)),
        (MODEL, latent(1), latent(2, schema={"type": "string"})),
        (MODEL, model_request(system=(), turns=(ModelTurn("user", (PromptBlock(SHARED),)),)), model_request()),
        ("openai:qwen3", latent(1), latent(2)),
        ("nonsense", latent(1), latent(2)),
    ],
)
async def test_requests_that_share_nothing_that_a_cache_keeps_do_not_wait(
    model: str, one: ModelRequest, other: ModelRequest
) -> None:
    sender = Sender()
    tasks = [asyncio.create_task(send_warm(model, request, sender)) for request in (one, other)]
    await sender.settle()
    assert len(sender.sent) == 2
    sender.end.set()
    await asyncio.gather(*tasks)


async def test_where_the_first_fails_the_others_go_on_and_another_is_the_first() -> None:
    sender = Sender()
    sender.error = RuntimeError("down")
    first = asyncio.create_task(send_warm(MODEL, latent(1), sender))
    await sender.settle()
    second = asyncio.create_task(send_warm(MODEL, latent(2), sender))
    sender.end.set()
    with pytest.raises(RuntimeError):
        await first
    assert (await second).text == "{}"
    await send_warm(MODEL, latent(3), sender)
    assert sender.sent[-1].on_begin is not None


async def test_a_first_request_that_is_cancelled_keeps_nobody_waiting() -> None:
    sender = Sender()
    first = asyncio.create_task(send_warm(MODEL, latent(1), sender))
    await sender.settle()
    second = asyncio.create_task(send_warm(MODEL, latent(2), sender))
    await sender.settle()
    first.cancel()
    await sender.settle()
    assert len(sender.sent) == 2
    sender.end.set()
    await second


async def test_nobody_waits_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_warming, "MAX_WAIT_SECONDS", 0.001)
    sent = asyncio.Event()

    async def answer(_: ModelRequest) -> ModelResponse:
        sent.set()
        return ModelResponse("{}", {})

    sender = Sender()  # its answer never begins
    first = asyncio.create_task(send_warm(MODEL, latent(1), sender))
    await sender.settle()
    await send_warm(MODEL, latent(2), answer)
    assert sent.is_set()
    assert not first.done()
    sender.end.set()
    await first


@pytest.mark.parametrize(
    ("model", "events"), [(MODEL, claude), ("openai:gpt-6-sol", responses), ("openai:gpt-6-sol", chat)]
)
async def test_the_adapters_say_when_an_answer_begins(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch, model: str, events: Any
) -> None:
    monkeypatch.setenv("ACTS_OPENAI_API", "responses" if events is responses else "chat")
    begun, hold = asyncio.Event(), asyncio.Event()
    stream = events(json.dumps(WIRE))
    raw.reply_with(Reply(events=stream, waits={len(stream) - 1: hold}))
    asking = asyncio.create_task(select.ask(model, latent(1, on_begin=begun.set)))
    await begun.wait()
    assert not asking.done()
    hold.set()
    await asking
