"""Servers that imitate OpenAI, each rejecting what the real one does, in its own words (as users report them)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from activities.providers.error_bodies import ErrorBody, read_error_body
from activities.providers.interface import ModelError
from activities.providers.openai import OpenAI
from tests.models.rawserver import RawServer, Reply, chat
from tests.models.support import APIS, PLAN, TEXT, ask

CHAT = APIS["chat"]


def gemini(message: str, code: int = 400, *details: dict[str, Any]) -> Reply:
    error = {"code": code, "message": message, "status": "INVALID_ARGUMENT", "details": list(details)}
    return Reply(status=code, body=[{"error": error}])


def pydantic_defects(*fields: str) -> list[dict[str, Any]]:
    return [
        {"type": "extra_forbidden", "loc": ["body", *f.split(".")], "msg": "Extra inputs are not permitted", "input": 1}
        for f in fields
    ]


def mistral(*fields: str) -> Reply:
    message = {"detail": pydantic_defects(*fields)}
    return Reply(
        status=422, body={"object": "error", "message": message, "type": "invalid_request_error", "code": None}
    )


def fastapi(*fields: str) -> Reply:
    return Reply(status=422, body={"detail": pydantic_defects(*fields)})


def proxied(reply: Reply) -> Reply:
    """As OpenRouter hands on the error of a provider."""
    metadata = {"raw": json.dumps(reply.body), "provider_name": "Behind"}
    return Reply(status=400, body={"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}})


def openai_like(message: str, status: int = 400, **more: Any) -> Reply:
    return Reply(status=status, body={"error": {"message": message, "type": "invalid_request_error", **more}})


UNKNOWN = 'Invalid JSON payload received. Unknown name "{}": Cannot find field.'


@pytest.mark.parametrize(
    ("rejection", "field"),
    [
        (gemini(UNKNOWN.format("prompt_cache_key")), "prompt_cache_key"),
        (gemini(UNKNOWN.format("stream_options")), "stream_options"),
        (mistral("prompt_cache_key"), "prompt_cache_key"),
        (mistral("stream_options", "safe_prompt"), "stream_options"),
        (fastapi("prompt_cache_key"), "prompt_cache_key"),
        (proxied(fastapi("prompt_cache_key")), "prompt_cache_key"),
        (proxied(gemini(UNKNOWN.format("prompt_cache_key"))), "prompt_cache_key"),
        (openai_like("[{'type': 'extra_forbidden', 'loc': ('body', 'prompt_cache_key'), "
                     "'msg': 'Extra inputs are not permitted', 'input': 'x'}]"), "prompt_cache_key"),
        (openai_like("unknown field", param="prompt_cache_key"), "prompt_cache_key"),
        (Reply(status=400, body={"error": "json: unknown field `prompt_cache_key`"}), "prompt_cache_key"),
    ],
)  # fmt: skip
async def test_a_field_that_a_server_rejects_is_left_out_from_then_on_with_a_note(
    raw: RawServer, rejection: Reply, field: str
) -> None:
    raw.reply_with(rejection, CHAT.reply(), CHAT.reply())
    adapter = OpenAI()
    for _ in range(2):
        answer = await ask(CHAT, adapter)
        assert answer.value == PLAN
        assert answer.notes == (f"{field} was left out: openai rejects it",)
    assert [field in r.body for r in raw.requests] == [True, False, False]
    assert answer.form == "strict"


@pytest.mark.parametrize("nested", [mistral, fastapi])
async def test_strict_alone_is_left_out_where_a_server_does_not_know_it(raw: RawServer, nested: Any) -> None:
    raw.reply_with(nested("response_format.json_schema.strict"), CHAT.reply())
    answer = await ask(CHAT)
    assert answer.notes == ("strict was left out: openai rejects it",)
    assert set(raw.body["response_format"]["json_schema"]) == {"name", "schema"}


async def test_the_other_name_of_the_cap_is_used(raw: RawServer) -> None:
    raw.reply_with(mistral("max_tokens"), CHAT.reply())
    await ask(CHAT, maxOutputTokens=500)
    assert raw.body["max_completion_tokens"] == 500
    assert "max_tokens" not in raw.body


@pytest.mark.parametrize(
    ("rejection", "count", "form"),
    [
        # llama.cpp before and after it knew the format, llama-cpp-python, Gemini, a router
        (openai_like('response_format type must be one of "text" or "json_object", but got: json_schema', 500,
                     code=500), 1, "words"),
        (openai_like("Failed to initialize samplers: failed to parse grammar", code=400), 3, "words"),
        (openai_like("[{'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), "
                     "'msg': \"Input should be 'text' or 'json_object'\", 'input': 'json_schema'}]", 500), 1, "words"),
        (gemini("Invalid JSON payload received. Unknown name \"const\" at 'generation_config.response_schema': "
                "Cannot find field."), 1, "words"),
        (proxied(openai_like("Invalid schema for response_format 'solution': 'required' is required")), 1,
         "unenforced"),
    ],
)  # fmt: skip
async def test_a_schema_that_a_server_rejects_is_sent_in_an_easier_form_and_that_is_remembered(
    raw: RawServer, rejection: Reply, count: int, form: str
) -> None:
    answer = Reply(events=chat(json.dumps(PLAN) if form == "words" else TEXT))
    raw.reply_with(*[rejection] * count, answer, answer)
    adapter = OpenAI()
    for requests in (count + 1, count + 2):
        response = await ask(CHAT, adapter)
        assert (response.value, response.form) == (PLAN, form)
        assert len(raw.requests) == requests


@pytest.mark.parametrize(
    ("status", "message"),
    [(500, "response_format is not implemented"), (400, "'response_format.type' must be 'json_schema' or 'text'")],
)
async def test_a_server_that_takes_no_such_format_gets_the_schema_in_words_only(
    raw: RawServer, status: int, message: str
) -> None:
    refuse = Reply(status=status, body={"error": message})
    raw.reply_with(*[refuse] * 3, Reply(events=chat(json.dumps(PLAN))))
    answer = await ask(CHAT)
    assert (answer.value, answer.form) == (PLAN, "words")
    assert "response_format" not in raw.body


async def test_a_server_that_takes_only_texts_gets_no_breakpoints(raw: RawServer) -> None:
    message = "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string"
    raw.reply_with(Reply(status=400, body={"error": message}), CHAT.reply())
    from activities.providers.interface import ModelTurn, PromptBlock

    await ask(CHAT, turns=(ModelTurn("user", (PromptBlock("x", is_cached=True),)),))
    assert all(isinstance(m["content"], (str, list)) for m in raw.body["messages"])
    assert "prompt_cache" not in json.dumps(raw.body["messages"])


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        ('invalid reasoning value: "xhigh" (must be "high", "medium", "low", "max", or "none")', "high"),
        ('"qwen3" does not support thinking', None),
    ],
)
async def test_an_effort_that_ollama_does_not_know_is_replaced(raw: RawServer, message: str, sent: str | None) -> None:
    raw.reply_with(openai_like(message), CHAT.reply())
    answer = await ask(CHAT, effort="xhigh")
    assert raw.body.get("reasoning_effort") == sent
    assert len(answer.notes) == 1


# -- failures ----------------------------------------------------------------------


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}
INVALID_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
QUOTA = "You exceeded your current quota, please check your plan and billing details."


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (gemini(QUOTA, 429, RETRY), "modelRateLimit", "exceeded your current quota"),
        (gemini(QUOTA, 429), "modelOutOfMoney", "exceeded your current quota"),
        (gemini("API key not valid. Please pass a valid API key.", 400, INVALID_KEY), "modelUnauthorized", "not valid"),
        (gemini("The input token count (9) exceeds the maximum number of tokens allowed (8)."), "modelContextFull",
         "token count"),
        (Reply(status=401, body={"detail": "Unauthorized"}), "modelUnauthorized", "Unauthorized"),
        (Reply(status=400, body={"object": "error", "message": "Invalid model: x", "type": "invalid_model",
                                 "code": "1500"}), "modelUnknown", "Invalid model: x"),
        (openai_like("x/y is not a valid model ID", code=400), "modelUnknown", "x/y"),
        (proxied(Reply(body={"error": {"message": "Country not supported"}})), "modelBadRequest", "Country"),
        (Reply(status=429, body={"error": {"message": "Provider returned error", "code": 429,
                                           "metadata": {"raw": "m is temporarily rate-limited upstream"}}}),
         "modelRateLimit", "rate-limited upstream"),
        (openai_like("the request exceeds the available context size", type="exceed_context_size_error"),
         "modelContextFull", "context size"),
        (openai_like("This model's maximum context length is 8 tokens", 400, code=400), "modelContextFull", "8 tokens"),
        (Reply(status=404, body={"error": "model 'x' not found"}), "modelUnknown", "model 'x' not found"),
        (Reply(status=502, body="<html>Bad gateway</html>"), "modelUnavailable", "Bad gateway"),
        (Reply(status=500, body={}), "modelUnavailable", "500"),
    ],
)  # fmt: skip
async def test_an_error_says_what_the_server_said(raw: RawServer, reply: Reply, code: str, words: str) -> None:
    raw.reply_with(reply)
    with pytest.raises(ModelError) as caught:
        await ask(CHAT)
    assert (caught.value.code, words in caught.value.message) == (code, True), caught.value.message
    if code == "modelRateLimit" and reply.body == gemini(QUOTA, 429, RETRY).body:
        assert caught.value.retryAfter == 34.07


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"error": {"code": 502, "message": "Upstream failed"}, "choices": []}, "modelUnavailable"),
        ({"error": "out of memory"}, "modelUnavailable"),
        ({"error": {"code": 429, "message": "Provider returned error", "metadata": {"raw": "slow down"}}},
         "modelRateLimit"),
    ],
)  # fmt: skip
async def test_an_error_in_mid_stream_is_read_in_the_same_way(raw: RawServer, event: Any, code: str) -> None:
    raw.reply_with(Reply(events=[*chat(TEXT)[:3], (None, event)]))
    with pytest.raises(ModelError) as caught:
        await ask(CHAT)
    assert caught.value.code == code
    said = event["error"]
    words = said if isinstance(said, str) else said.get("metadata", {}).get("raw", said["message"])
    assert words in caught.value.message


@pytest.mark.parametrize(
    "body", [None, 3, [], {}, {"error": None}, {"error": True}, {"detail": []}, {"message": {"a": 1}}, [[[]]], ""]
)
def test_a_body_that_says_nothing_has_no_message(body: Any) -> None:
    assert read_error_body(body).message == ""


def test_errors_within_errors_end() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = {"error": deep}
    assert read_error_body(deep) == ErrorBody()
    assert read_error_body('{"error": ' * 100_000).message.startswith('{"error"')
