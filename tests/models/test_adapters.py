"""All three APIs against a server that sends scripted bytes: answers, request bodies, and every trap."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from acts.activities.models.interface import ModelError, ModelTurn, PromptBlock, TokenCounts
from tests.models.rawserver import RawServer, Reply
from tests.models.support import APIS, PLAN, TEXT, WIRE, Api, CallRecorder, ask, error_of, model_request


def openai(monkeypatch: pytest.MonkeyPatch, name: str) -> Api:
    monkeypatch.setenv("ACTS_OPENAI_API", name)
    return APIS[name]


async def test_a_null_that_stands_for_an_absent_property_is_dropped(raw: RawServer, api: Api) -> None:
    raw.reply_with(api.reply())
    answer = await ask(api)
    assert answer.value == PLAN
    assert json.loads(answer.text) == WIRE != PLAN
    assert answer.tokens == TokenCounts(inputTokens=11, outputTokens=7)
    assert answer.cost is not None
    assert answer.cost > 0
    assert answer.form == "strict"
    assert raw.requests[-1].path == api.path


async def test_calls_are_reported_as_they_arrive(raw: RawServer, api: Api) -> None:
    raw.reply_with(api.reply())
    recorder = CallRecorder()
    await ask(api, on_call=recorder)
    assert recorder.calls == list(enumerate(PLAN["calls"]))


async def test_a_repair_turn_sends_the_answer_and_our_reply(raw: RawServer, api: Api) -> None:
    raw.reply_with(api.reply())
    await ask(api, turns=model_request().with_repair("{bad", "not JSON").turns)
    sent = raw.body["input"] if api.name == "responses" else raw.body["messages"]
    assert [(m["role"], m["content"]) for m in sent[-2:]] == [("assistant", "{bad"), ("user", "not JSON")]


def conversation(*texts: str) -> tuple[ModelTurn, ...]:
    """Turns of one block, the user's first and each of the user's marked."""
    roles = ["user" if i % 2 == 0 else "assistant" for i in range(len(texts))]
    pairs = zip(roles, texts, strict=True)
    return tuple(ModelTurn(role, (PromptBlock(text, is_cached=role == "user"),)) for role, text in pairs)


async def test_anthropic_gets_a_mark_after_the_system_text_and_after_the_last_two_turns(raw: RawServer) -> None:
    api = APIS["anthropic"]
    raw.reply_with(api.reply())
    system = (PromptBlock("a"), PromptBlock("b", is_cached=True), PromptBlock(" ", is_cached=True))
    await ask(api, system=system, turns=conversation("c", "{1}", "d", "{2}", "e"), temperature=0.5)
    assert [(b["text"], "cache_control" in b) for b in raw.body["system"]] == [("a", False), ("b", True)]
    turns = raw.body["messages"]
    assert [(t["role"], t["content"]) for t in turns[1::2]] == [("assistant", "{1}"), ("assistant", "{2}")]
    blocks = [block for turn in turns[::2] for block in turn["content"]]
    assert [(b["text"], "cache_control" in b) for b in blocks] == [("c", False), ("d", True), ("e", True)]
    assert "temperature" not in raw.body
    assert raw.body["max_tokens"] == 32_000


MARK = {"mode": "explicit"}


async def test_openai_gets_a_breakpoint_after_every_turn_of_the_user_and_makes_none_of_its_own(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("responses", "chat"):
        api = openai(monkeypatch, name)
        raw.reply_with(api.reply())
        await ask(api, turns=conversation("c", "{1}", "d"))
        assert raw.body["prompt_cache_options"] == MARK
        sent = raw.body["input"] if name == "responses" else raw.body["messages"][1:]
        assert [part.get("prompt_cache_breakpoint") for turn in sent[::2] for part in turn["content"]] == [MARK, MARK]
        assert sent[1]["content"] == "{1}"
        assert sent[1].get("phase") == ("final_answer" if name == "responses" else None)


async def test_the_input_of_anthropic_is_the_sum_of_fresh_and_cached_tokens(raw: RawServer) -> None:
    usage = {
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 3},
    }
    raw.reply_with(APIS["anthropic"].reply(usage=usage, thinking="hm"))
    answer = await ask(APIS["anthropic"])
    assert answer.tokens == TokenCounts(161, 7, cachedTokens=100, cacheWriteTokens=50, reasoningTokens=3)
    assert answer.value == PLAN


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("chat", {"prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 5}}),
        ("responses", {"input_tokens_details": {"cached_tokens": 8}, "output_tokens_details": {"reasoning_tokens": 5}}),
    ],
)
async def test_the_input_of_openai_includes_cached_tokens(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch, name: str, usage: dict[str, Any]
) -> None:
    api = openai(monkeypatch, name)
    raw.reply_with(api.reply(usage=usage))
    assert (await ask(api)).tokens == TokenCounts(11, 7, cachedTokens=8, reasoningTokens=5)


@pytest.mark.parametrize("end", ["clean", "abrupt"])
async def test_a_stream_that_ends_early_is_cut_and_retryable(raw: RawServer, api: Api, end: Any) -> None:
    reply = api.reply(TEXT[:60], **api.cut)
    reply.end = end
    error = await error_of(api, raw, reply)
    assert (error.code, error.retryable) == ("modelCut", True)
    assert error.text == TEXT[:60]


async def test_a_refusal_has_its_reason(raw: RawServer, api: Api) -> None:
    refusal: dict[str, dict[str, Any]] = {
        "anthropic": {"stop": "refusal", "details": {"type": "refusal", "category": "bio", "explanation": None}},
        "chat": {"refusal": "not bio"},
        "responses": {"refusal": "not bio"},
    }
    error = await error_of(api, raw, api.reply("", **refusal[api.name]))
    assert (error.code, error.retryable) == ("modelRefused", False)
    assert "bio" in error.message


MID_STREAM = [
    ("anthropic", {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, "modelOverloaded", True),
    ("anthropic", {"type": "error", "error": {"type": "billing_error", "message": "x"}}, "modelOutOfMoney", False),
    ("chat", {"error": {"message": "x", "type": "server_error"}}, "modelUnavailable", True),
    ("chat", {"error": {"message": "x", "code": 429}}, "modelRateLimit", True),
    ("responses", {"type": "error", "code": "server_error", "message": "x"}, "modelUnavailable", True),
    ("responses", {"type": "error", "code": "insufficient_quota", "message": "x"}, "modelOutOfMoney", False),
]


@pytest.mark.parametrize(("name", "event", "code", "retryable"), MID_STREAM)
async def test_the_code_of_an_error_in_mid_stream_follows_its_type(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch, name: str, event: dict[str, Any], code: str, *, retryable: bool
) -> None:
    api = APIS[name]
    for key, value in api.env.items():
        monkeypatch.setenv(key, value)
    kind = None if name == "chat" else "error"
    error = await error_of(api, raw, Reply(events=[*api.stream(TEXT[:40], **api.cut), (kind, event)]))
    assert (error.code, error.retryable) == (code, retryable)
    assert error.text == TEXT[:40]


STATUS = [
    (400, {"message": "bad"}, {}, "modelBadRequest", False, None),
    (400, {"message": "prompt is too long: 9 tokens > 8"}, {}, "modelContextFull", False, None),
    (401, {"message": "bad key"}, {}, "modelUnauthorized", False, None),
    (402, {"message": "pay"}, {}, "modelOutOfMoney", False, None),
    (403, {"message": "no"}, {}, "modelForbidden", False, None),
    (404, {"message": "no such model"}, {}, "modelUnknown", False, None),
    (404, {"message": "no such model", "type": "api_error"}, {}, "modelUnknown", False, None),
    (413, {"message": "large"}, {}, "modelContextFull", False, None),
    (429, {"message": "slow down"}, {"retry-after": "7"}, "modelRateLimit", True, 7.0),
    (429, {"message": "slow down"}, {"retry-after-ms": "1500", "retry-after": "7"}, "modelRateLimit", True, 1.5),
    (429, {"message": "pay", "type": "insufficient_quota"}, {"x-should-retry": "true"}, "modelOutOfMoney", False, None),
    (500, {"message": "oh"}, {}, "modelUnavailable", True, None),
    (500, {"message": "oh"}, {"x-should-retry": "false", "retry-after": "3"}, "modelUnavailable", False, None),
    (503, {"message": "busy"}, {"retry-after": "2"}, "modelOverloaded", True, 2.0),
    (529, {"message": "busy", "type": "overloaded_error"}, {"retry-after": "2"}, "modelOverloaded", True, 2.0),
]


@pytest.mark.parametrize(("status", "error", "headers", "code", "retryable", "after"), STATUS)
async def test_the_code_of_an_http_error_follows_its_cause(
    raw: RawServer,
    api: Api,
    status: int,
    error: Any,
    headers: dict[str, str],
    code: str,
    after: Any,
    *,
    retryable: bool,
) -> None:
    caught = await error_of(api, raw, Reply(status=status, body={"type": "error", "error": error}, headers=headers))
    assert (caught.code, caught.retryable, caught.retryAfter) == (code, retryable, after)
    assert error["message"] in caught.message
    assert len(raw.requests) == 1  # the SDK's own retries are off


async def test_an_unreachable_server_is_retryable(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(ModelError) as caught:
        await ask(api)
    assert (caught.value.code, caught.value.retryable) == ("modelUnavailable", True)


async def test_a_missing_key_is_named(api: Api) -> None:
    with pytest.raises(ModelError, match=r"(ANTHROPIC|OPENAI)_API_KEY") as caught:
        await ask(api)
    assert (caught.value.code, caught.value.retryable) == ("modelNoKey", False)


async def test_cancelling_closes_the_connection(raw: RawServer, api: Api) -> None:
    pings: list[tuple[str | None, Any]] = [("ping", {"type": "ping"})] * 20 if api.name == "anthropic" else []
    raw.reply_with(Reply(events=[*api.stream(TEXT[:40], **api.cut), *pings], end="hang"))
    request = asyncio.create_task(ask(api))
    await raw.is_hanging.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await asyncio.wait_for(raw.client_closed.wait(), 10)
