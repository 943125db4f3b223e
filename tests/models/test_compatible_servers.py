"""Servers that imitate OpenAI: their errors, in the words that users report, and the quirks declared for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts.activities.models.endpoints import Endpoint, Quirks
from acts.activities.models.interface import ModelError, ModelTurn, PromptBlock
from tests.models.rawserver import RawServer, Reply
from tests.models.support import APIS, PLAN, ask

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


def proxied(reply: Reply) -> Reply:
    """As OpenRouter hands on the error of a provider."""
    metadata = {"raw": json.dumps(reply.body), "provider_name": "Behind"}
    return Reply(status=400, body={"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}})


def openai_like(message: str, status: int = 400, **more: Any) -> Reply:
    return Reply(status=status, body={"error": {"message": message, "type": "invalid_request_error", **more}})


@pytest.mark.parametrize(
    ("quirks", "absent", "present"),
    [
        ({"omit": ["max_tokens"]}, "max_tokens", "max_completion_tokens"),
        ({"omit": ["stream_options", "response_format"]}, "response_format", "messages"),
        ({"omit": ["prompt_cache_options"]}, "breakpoint", "prompt_cache_key"),
    ],
)
async def test_a_declared_quirk_leaves_a_field_out(
    raw: RawServer, quirks: dict[str, Any], absent: str, present: str
) -> None:
    raw.reply_with(CHAT.reply())
    endpoint = Endpoint(name="mine", provider="openai", url=f"{raw.url}/v1", quirks=Quirks(**quirks))
    turns = (ModelTurn("user", (PromptBlock("x", is_cached=True),)),)
    answer = await ask(CHAT, endpoint, maxOutputTokens=500, turns=turns)
    assert answer.value == PLAN
    assert absent not in json.dumps(raw.body)
    assert present in raw.body


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
        (Reply(status=500, body={}), "modelUnavailable", "500"),
        (mistral("stream_options"), "modelBadRequest", "stream_options; Extra inputs"),
        (proxied(gemini("Unknown name x")), "modelBadRequest", "Unknown name x; what a server does not take"),
    ],
)  # fmt: skip
async def test_an_error_says_what_the_server_said(raw: RawServer, reply: Reply, code: str, words: str) -> None:
    raw.reply_with(reply)
    with pytest.raises(ModelError) as caught:
        await ask(CHAT)
    assert (caught.value.code, words in caught.value.message) == (code, True), caught.value.message
    if code == "modelRateLimit" and reply.body == gemini(QUOTA, 429, RETRY).body:
        assert caught.value.retryAfter == 34.07
