"""All three APIs against a server that sends scripted bytes: answers, request bodies, and every trap."""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from typing import Any

import pytest

from activities.providers.interface import ModelError, ModelTurn, PromptBlock, RepairTurn, TokenCounts
from activities.providers.openai import OpenAI
from tests.models.rawserver import RawServer, Reply
from tests.models.support import APIS, PLAN, SCHEMA, TEXT, WIRE, Api, CallRecorder, ask, error_of, model_request


@pytest.fixture(params=APIS.values(), ids=APIS.keys())
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Api:
    selected: Api = request.param
    for name, value in selected.env.items():
        monkeypatch.setenv(name, value)
    return selected


def openai(monkeypatch: pytest.MonkeyPatch, name: str) -> Api:
    monkeypatch.setenv("ACTS_OPENAI_API", name)
    return APIS[name]


# -- answers -----------------------------------------------------------------------


async def test_an_answer_comes_back_in_the_form_of_the_original_schema(raw: RawServer, api: Api) -> None:
    raw.reply_with(api.reply())
    answer = await ask(api)
    assert answer.value == PLAN
    assert json.loads(answer.text) == WIRE != PLAN
    assert answer.tokens == TokenCounts(inputTokens=11, outputTokens=7)
    assert answer.cost is not None
    assert answer.cost > 0
    assert answer.strict
    assert raw.requests[-1].path == api.path


async def test_calls_are_reported_as_they_arrive_in_the_form_of_the_original_schema(raw: RawServer, api: Api) -> None:
    raw.reply_with(api.reply())
    recorder = CallRecorder()
    await ask(api, on_call=recorder)
    assert recorder.calls == list(enumerate(PLAN["calls"]))


async def test_the_schema_is_sent_strict_and_the_same_bytes_each_time(raw: RawServer, api: Api) -> None:
    raw.reply_with(api.reply(), api.reply())
    adapter = api.build()
    await ask(api, adapter)
    first = json.dumps(api.strict_schema(raw.body))
    await ask(api, adapter)
    assert first == json.dumps(api.strict_schema(raw.body))
    sent = api.strict_schema(raw.body)
    assert sent is not None
    assert next(iter(sent["$defs"]["tool_refund"]["properties"])) == "_tool"
    assert all(d["additionalProperties"] is False for d in sent["$defs"].values() if d["type"] == "object")
    required = sent["$defs"]["tool_refund"]["required"]
    assert ("_outputPath" in required) == (api.name != "anthropic")


async def test_a_repair_turn_sends_the_answer_and_our_reply(raw: RawServer, api: Api) -> None:
    raw.reply_with(api.reply())
    await ask(api, repairs=(RepairTurn("{bad", "not JSON"),))
    sent = raw.body["input"] if api.name == "responses" else raw.body["messages"]
    assert [(m["role"], m["content"]) for m in sent[-2:]] == [("assistant", "{bad"), ("user", "not JSON")]


async def test_the_case_of_tools_and_choices_is_corrected(raw: RawServer, api: Api) -> None:
    text = TEXT.replace('"refund"', '"Refund"').replace('"High"', '"HIGH"')
    raw.reply_with(api.reply(text))
    assert (await ask(api)).value == PLAN


@pytest.mark.parametrize("frame", ["```json\n{}\n```", "Here it is:\n```\n{}\n```\nDone.", "<think>a {{b}}</think>{}"])
async def test_json_is_found_in_a_fence_between_sentences_and_after_thoughts(
    raw: RawServer, api: Api, frame: str
) -> None:
    text = frame.replace("{{", "\0").replace("}}", "\1").replace("{}", json.dumps(PLAN))
    raw.reply_with(api.reply(text.replace("\0", "{").replace("\1", "}")))
    assert (await ask(api)).value == PLAN


async def test_a_server_of_one_s_own_needs_no_key(raw: RawServer, api: Api) -> None:
    raw.reply_with(api.reply())
    await ask(api)
    assert raw.requests[-1].headers["authorization"] == "Bearer none"


async def test_of_several_messages_the_last_one_is_the_answer(raw: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Calls may have been reported before a later message replaces it; the answer is read once more as a whole."""
    api = openai(monkeypatch, "responses")
    events = api.stream(TEXT)
    first = [(name, event) for name, event in api.stream('{"calls": [{"_tool": "x"}]}', status=None) if "delta" in name]
    second = [(name, {**event, "output_index": 1} if "output_index" in event else event) for name, event in events[1:]]
    raw.reply_with(Reply(events=[events[0], *first, *second]))
    assert (await ask(api)).value == PLAN


# -- what only one API has -------------------------------------------------------


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


@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-4o", "gpt-oss:20b", "my-own"])
@pytest.mark.parametrize("name", ["responses", "chat"])
async def test_a_model_without_breakpoints_gets_none(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch, name: str, model: str
) -> None:
    api = openai(monkeypatch, name)
    raw.reply_with(api.reply())
    await api.build().ask(model_request(model=model, turns=conversation("c", "{1}", "d")))
    assert "breakpoint" not in json.dumps(raw.body)
    assert "prompt_cache_options" not in raw.body


async def test_a_server_that_rejects_breakpoints_gets_none_from_then_on(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, adapter = openai(monkeypatch, "chat"), OpenAI()
    text = "Unknown parameter: 'messages[1].content[0].prompt_cache_breakpoint'."
    raw.reply_with(Reply(body={"error": {"message": text}}, status=400), api.reply(), api.reply())
    await ask(api, adapter, turns=conversation("c"))
    await ask(api, adapter, turns=conversation("c"))
    assert ["breakpoint" in json.dumps(request.body) for request in raw.requests] == [True, False, False]


@pytest.mark.parametrize(("model", "is_in_words"), [("gpt-6-sol", False), ("openai/gpt-5.5", False), ("llama4", True)])
async def test_a_model_that_does_not_see_the_schema_gets_it_in_words_too(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch, model: str, *, is_in_words: bool
) -> None:
    api = openai(monkeypatch, "chat")
    raw.reply_with(api.reply())
    await api.build().ask(model_request(model=model))
    assert raw.body["response_format"]["json_schema"]["strict"]
    assert ('"const":"refund"' in raw.body["messages"][0]["content"]) == is_in_words


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
        (
            "responses",
            {"input_tokens_details": {"cached_tokens": 8}, "output_tokens_details": {"reasoning_tokens": 5}},
        ),
    ],
)
async def test_the_input_of_openai_includes_cached_tokens(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch, name: str, usage: dict[str, Any]
) -> None:
    api = openai(monkeypatch, name)
    raw.reply_with(api.reply(usage=usage))
    assert (await ask(api)).tokens == TokenCounts(11, 7, cachedTokens=8, reasoningTokens=5)


async def test_a_long_cache_key_is_hashed(raw: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    api = openai(monkeypatch, "responses")
    raw.reply_with(api.reply(), api.reply())
    await ask(api)
    assert raw.body["prompt_cache_key"] == "run-1"
    await ask(api, cache_key="r" * 900)
    assert len(raw.body["prompt_cache_key"]) == 64


async def test_commentary_is_not_the_answer(raw: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    api = openai(monkeypatch, "responses")
    raw.reply_with(api.reply(commentary='{"calls": [{"_tool": "note"}]}'))
    recorder = CallRecorder()
    answer = await ask(api, on_call=recorder)
    assert answer.value == PLAN
    assert recorder.calls[0][1] == PLAN["calls"][0]


@pytest.mark.parametrize(("name", "parameter"), [("chat", "max_tokens"), ("responses", "max_output_tokens")])
async def test_the_limit_of_the_answer_is_sent(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch, name: str, parameter: str
) -> None:
    api = openai(monkeypatch, name)
    raw.reply_with(api.reply())
    await ask(api, maxOutputTokens=99)
    assert raw.body[parameter] == 99


# -- what a provider rejects -----------------------------------------------------

REJECTIONS = {
    "anthropic": {"type": "error", "error": {"type": "invalid_request_error", "message": "Schema is too complex"}},
    "chat": {"error": {"type": "invalid_request_error", "message": "Invalid schema for response_format 'solution'"}},
    "responses": {"error": {"code": "invalid_json_schema", "message": "Invalid schema", "param": "text.format.schema"}},
}


async def test_a_rejected_schema_is_sent_in_words_from_then_on(raw: RawServer, api: Api) -> None:
    rejection = Reply(status=400, body=REJECTIONS[api.name])
    raw.reply_with(rejection, api.reply(json.dumps(PLAN)), api.reply(json.dumps(PLAN)))
    adapter = api.build()
    answer = await ask(api, adapter)
    assert (answer.value, answer.strict) == (PLAN, False)
    assert [api.strict_schema(r.body) is None for r in raw.requests] == [False, True]
    assert json.dumps(SCHEMA["$defs"]["tool_refund"], separators=(",", ":")) in json.dumps(raw.body).replace('\\"', '"')
    await ask(api, adapter)
    assert len(raw.requests) == 3
    raw.reply_with(api.reply())
    other = {**SCHEMA, "description": "another schema is sent as a strict one"}
    assert (await ask(api, adapter, schema=other)).strict


@pytest.mark.parametrize("name", ["chat", "responses"])
async def test_a_rejected_temperature_is_omitted_from_then_on(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    api = openai(monkeypatch, name)
    message = "Unsupported parameter: 'temperature' is not supported with this model."
    error = {"error": {"message": message, "type": "invalid_request_error", "param": "temperature"}}
    raw.reply_with(Reply(status=400, body=error), api.reply(), api.reply())
    adapter = api.build()
    await ask(api, adapter, temperature=0.2)
    await ask(api, adapter, temperature=0.2)
    assert ["temperature" in r.body for r in raw.requests] == [True, False, False]


async def test_a_server_without_json_mode_gets_the_schema_in_words_alone(raw: RawServer) -> None:
    api = APIS["chat"]
    rejection = Reply(status=400, body={"error": {"message": "response_format: Extra inputs are not permitted"}})
    raw.reply_with(rejection, rejection, api.reply(json.dumps(PLAN)))
    answer = await ask(api)
    assert (answer.value, answer.strict) == (PLAN, False)
    assert "response_format" not in raw.body


# -- errors -------------------------------------------------------------------


@pytest.mark.parametrize("number", ["1e999", "NaN", "-Infinity"])
async def test_a_number_that_json_cannot_hold_is_not_json(raw: RawServer, api: Api, number: str) -> None:
    error = await error_of(api, raw, api.reply(TEXT.replace("12.5", number)))
    assert (error.code, error.retryable) == ("modelNotJson", False)
    assert "is not a JSON number" in error.message


@pytest.mark.parametrize("end", ["clean", "abrupt"])
async def test_a_stream_that_ends_early_is_cut_and_retryable(raw: RawServer, api: Api, end: Any) -> None:
    reply = api.reply(TEXT[:60], **api.cut)
    reply.end = end
    error = await error_of(api, raw, reply)
    assert (error.code, error.retryable) == ("modelCut", True)
    assert error.text == TEXT[:60]


async def test_an_event_that_is_not_json_cuts_the_stream(raw: RawServer, api: Api) -> None:
    events = api.stream(TEXT)
    events[5] = (events[5][0], '{"half')
    error = await error_of(api, raw, Reply(events=events))
    assert (error.code, error.retryable) == ("modelCut", True)


async def test_a_truncated_answer_is_not_retryable(raw: RawServer, api: Api) -> None:
    error = await error_of(api, raw, api.reply(TEXT[:60], **api.truncated))
    assert (error.code, error.retryable) == ("modelTruncated", False)
    assert error.tokens == TokenCounts(11, 7)
    assert error.text == TEXT[:60]
    assert error.cost is not None


async def test_an_answer_that_is_not_json_carries_its_text(raw: RawServer, api: Api) -> None:
    error = await error_of(api, raw, api.reply("I would rather talk."))
    assert (error.code, error.retryable, error.text) == ("modelNotJson", False, "I would rather talk.")
    assert error.tokens == TokenCounts(11, 7)


async def test_a_refusal_has_its_reason(raw: RawServer, api: Api) -> None:
    refusal: dict[str, dict[str, Any]] = {
        "anthropic": {"stop": "refusal", "details": {"type": "refusal", "category": "bio", "explanation": None}},
        "chat": {"refusal": "not bio"},
        "responses": {"refusal": "not bio"},
    }
    error = await error_of(api, raw, api.reply("", **refusal[api.name]))
    assert (error.code, error.retryable) == ("modelRefused", False)
    assert "bio" in error.message


async def test_a_full_context_window_has_its_own_code(raw: RawServer) -> None:
    error = await error_of(APIS["anthropic"], raw, APIS["anthropic"].reply("{", stop="model_context_window_exceeded"))
    assert (error.code, error.retryable) == ("modelContextFull", False)


MID_STREAM = [
    ("anthropic", {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, "modelOverloaded", True),
    ("anthropic", {"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}, "modelRateLimit", True),
    ("anthropic", {"type": "error", "error": {"type": "api_error", "message": "x"}}, "modelUnavailable", True),
    ("anthropic", {"type": "error", "error": {"type": "billing_error", "message": "x"}}, "modelOutOfMoney", False),
    ("chat", {"error": {"message": "x", "type": "server_error"}}, "modelUnavailable", True),
    ("chat", {"error": {"message": "x", "code": 429}}, "modelRateLimit", True),
    ("chat", {"error": "x"}, "modelUnavailable", True),
    ("chat", {"error": {"message": "x", "code": "insufficient_quota"}}, "modelOutOfMoney", False),
    ("responses", {"type": "error", "code": "server_error", "message": "x"}, "modelUnavailable", True),
    ("responses", {"type": "error", "code": "rate_limit_exceeded", "message": "x"}, "modelRateLimit", True),
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


@pytest.mark.parametrize(
    ("more", "code", "retryable"),
    [
        ({"status": "failed", "error": {"code": "server_error", "message": "x"}}, "modelUnavailable", True),
        ({"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "x"}}, "modelRateLimit", True),
        ({"status": "failed", "error": {"code": "bio_policy", "message": "x"}}, "modelRefused", False),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "modelRefused", False),
        ({"status": "incomplete", "incomplete_details": None}, "modelTruncated", False),
    ],
)
async def test_a_failed_response_is_an_error_although_the_sdk_raises_nothing(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], code: str, *, retryable: bool
) -> None:
    api = openai(monkeypatch, "responses")
    error = await error_of(api, raw, api.reply(TEXT[:40], **more))
    assert (error.code, error.retryable) == (code, retryable)
    assert error.tokens == TokenCounts(11, 7)


STATUS = [
    (400, {"message": "bad"}, {}, "modelBadRequest", False, None),
    (400, {"message": "prompt is too long: 9 tokens > 8"}, {}, "modelContextFull", False, None),
    (400, {"message": "Your credit balance is too low to use the API"}, {}, "modelOutOfMoney", False, None),
    (401, {"message": "bad key"}, {}, "modelUnauthorized", False, None),
    (402, {"message": "pay"}, {}, "modelOutOfMoney", False, None),
    (403, {"message": "no"}, {}, "modelForbidden", False, None),
    (404, {"message": "no such model"}, {}, "modelUnknown", False, None),
    (404, {"message": "no such model", "type": "api_error"}, {}, "modelUnknown", False, None),
    (408, {"message": "slow"}, {}, "modelUnavailable", True, None),
    (409, {"message": "conflict"}, {}, "modelUnavailable", True, None),
    (413, {"message": "large"}, {}, "modelContextFull", False, None),
    (429, {"message": "slow down"}, {"retry-after": "7"}, "modelRateLimit", True, 7.0),
    (429, {"message": "slow down"}, {"retry-after-ms": "1500", "retry-after": "7"}, "modelRateLimit", True, 1.5),
    (429, {"message": "slow down"}, {"retry-after": "soon"}, "modelRateLimit", True, None),
    (429, {"message": "pay", "type": "insufficient_quota"}, {"x-should-retry": "true"}, "modelOutOfMoney", False, None),
    (429, {"message": "You exceeded your current quota"}, {}, "modelOutOfMoney", False, None),
    (500, {"message": "oh"}, {}, "modelUnavailable", True, None),
    (500, {"message": "oh"}, {"x-should-retry": "false", "retry-after": "3"}, "modelUnavailable", False, None),
    (400, {"message": "bad"}, {"x-should-retry": "true"}, "modelBadRequest", True, None),
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


async def test_the_spending_limit_of_anthropic_is_not_a_rate_limit(raw: RawServer) -> None:
    body = {"type": "rate_limit_error", "message": "x", "details": {"error_code": "enforced_spend_limit_reached"}}
    error = await error_of(APIS["anthropic"], raw, Reply(status=429, body={"type": "error", "error": body}))
    assert (error.code, error.retryable) == ("modelOutOfMoney", False)


async def test_a_retry_date_becomes_seconds(raw: RawServer, api: Api) -> None:
    date = email.utils.formatdate(time.time() + 3600, usegmt=True)
    error = await error_of(api, raw, Reply(status=429, body={"error": {"message": "x"}}, headers={"retry-after": date}))
    assert error.retryAfter is not None
    assert 3000 < error.retryAfter <= 3600


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


async def test_an_unknown_api_is_refused(raw: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_OPENAI_API", "soap")
    with pytest.raises(ModelError, match="allowed: chat, responses"):
        await ask(APIS["chat"])


async def test_cancelling_closes_the_connection(raw: RawServer, api: Api) -> None:
    pings: list[tuple[str | None, Any]] = [("ping", {"type": "ping"})] * 20 if api.name == "anthropic" else []
    raw.reply_with(Reply(events=[*api.stream(TEXT[:40], **api.cut), *pings], end="hang"))
    request = asyncio.create_task(ask(api))
    await raw.is_hanging.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await asyncio.wait_for(raw.client_closed.wait(), 10)
