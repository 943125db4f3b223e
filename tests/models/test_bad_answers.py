"""Bad answers and bad days of all three APIs, through the real SDKs and the model activity."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from acts.activities import ask_model as module
from acts.activities.models import adapters
from tests.models import rawserver
from tests.models.rawserver import RawServer, Reply
from tests.models.sent_requests import defects_of_request
from tests.models.support import APIS, Api
from tests.models.test_ask_model import SOLUTION, contexts, latent_request, run, solution_request  # noqa: F401 - fixture

GOOD = json.dumps(SOLUTION)
LATENT = json.dumps({"output": "3", "path": "†state.sum"})


def model_of(api: Api) -> str:
    return f"{'anthropic' if api.name == 'anthropic' else 'openai'}:{api.model}"


def cap_of(body: dict[str, Any]) -> int | None:
    names = ("max_tokens", "max_output_tokens", "max_completion_tokens")
    return next((body[name] for name in names if name in body), None)


def error_reply(status: int, message: str, headers: dict[str, str] | None = None, **more: Any) -> Reply:
    body = {"type": "error", "error": {"message": message, **more}}
    return Reply(status=status, body=body, headers=headers or {})


async def asked(api: Api, **fields: Any) -> dict[str, Any]:
    return await run(solution_request(model=model_of(api), **fields))


async def failure(request: dict[str, Any]) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        await run(request)
    return caught.value


@pytest.mark.parametrize("fields", [{}, {"effort": "high", "temperature": 0.5, "maxOutputTokens": 9_000}])
async def test_what_is_sent_fits_the_types_of_the_sdk(raw: RawServer, api: Api, fields: dict[str, Any]) -> None:
    raw.reply_with(api.reply("no json"), api.reply(GOOD), api.reply(LATENT))
    await asked(api, **fields)
    await run(latent_request(model=model_of(api), **fields))
    assert len(raw.requests) == 3
    assert [defects_of_request(api.name, request.body) for request in raw.requests] == [[], [], []]
    efforts = [
        request.body.get("output_config", {}).get("effort")
        or request.body.get("reasoning", {}).get("effort")
        or request.body.get("reasoning_effort")
        for request in raw.requests
    ]
    assert efforts == [fields.get("effort")] * 3


BAD_TEXTS = {
    "no JSON": ("I would rather talk.", "Expecting value"),
    "an empty text": ("", "it is empty"),
    "a duplicate key": ('{"calls": [], "output": {"a": 1, "a": 2}}', 'the key "a" is twice'),
    "NaN": ('{"calls": [], "output": NaN}', "not a JSON number"),
    "two JSON objects": ('{"calls": [], "output": 1}\n{"calls": [], "output": 2}', "two JSON objects"),
}


@pytest.mark.parametrize("kind", BAD_TEXTS)
async def test_a_bad_text_gets_one_repair_turn_that_names_its_fault(raw: RawServer, api: Api, kind: str) -> None:
    text, fault = BAD_TEXTS[kind]
    raw.reply_with(api.reply(text), api.reply(GOOD))
    result = await asked(api)
    assert result["solution"] == SOLUTION
    assert fault in json.dumps(raw.body, ensure_ascii=False).replace('\\"', '"')
    assert result["usage"]["requests"] == 2


async def test_a_call_of_a_provider_s_tool_is_no_answer(raw: RawServer) -> None:
    delta = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "x", "arguments": "{}"}}]}
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": delta, "finish_reason": "tool_calls"}
    raw.reply_with(Reply(events=[(None, {**chunk, "choices": [choice]}), (None, "[DONE]")]), APIS["chat"].reply(GOOD))
    raw.reply_with(Reply(events=rawserver.claude("", stop="tool_use")), APIS["anthropic"].reply(GOOD))
    for name in ("chat", "anthropic"):
        assert (await asked(APIS[name]))["solution"] == SOLUTION
        assert "it called a tool of the provider" in json.dumps(raw.body)


async def test_an_answer_of_many_megabytes_is_not_read_to_its_end(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "MAX_ANSWER_CHARACTERS", 10_000)
    raw.reply_with(APIS["chat"].reply(json.dumps({"calls": [], "output": "x" * 20_000})))
    result = await asked(APIS["chat"])
    assert result["unusable"]["code"] == "PayloadTooLarge"
    assert "more than" in result["unusable"]["message"]


async def test_usage_that_is_missing_is_estimated(raw: RawServer) -> None:
    events = [e for e in rawserver.chat(GOOD) if not (isinstance(e[1], dict) and e[1].get("usage"))]
    raw.reply_with(Reply(events=events))
    result = await asked(APIS["chat"])
    assert result["usage"]["inputTokens"] > 100
    assert result["usage"]["outputTokens"] > 5
    assert "stated no usage" in result["notes"][0]


async def test_a_cut_answer_is_asked_for_again_with_a_higher_cap(raw: RawServer, api: Api) -> None:
    raw.reply_with(api.reply(GOOD[:20], **api.truncated), api.reply(GOOD[:30], **api.truncated), api.reply(GOOD))
    result = await asked(api, maxOutputTokens=1_000)
    assert result["solution"] == SOLUTION
    assert [cap_of(request.body) for request in raw.requests] == [1_000, 4_000, 16_000]
    assert result["usage"]["requests"] == 3
    messages = [request.body.get("messages") or request.body.get("input") for request in raw.requests]
    assert messages[0] == messages[1] == messages[2]


async def test_a_higher_cap_stays_within_what_is_reserved(raw: RawServer, api: Api) -> None:
    raw.reply_with(*[api.reply(GOOD[:20], **api.truncated)] * 2)
    await asked(api, maxOutputTokens=1_000, reserved={"tokens": 3_000})
    # Each reply states 18 tokens, 11 of them input
    assert [cap_of(request.body) for request in raw.requests][:2] == [1_000, 3_000 - 18 - 11]


GONE: dict[str, Reply] = {
    "modelRefused": Reply(),
    "modelUnauthorized": error_reply(401, "invalid x-api-key", type="authentication_error"),
    "modelOutOfMoney": error_reply(429, "You exceeded your current quota", code="insufficient_quota"),
    "modelUnknown": error_reply(404, "model: it was retired", type="not_found_error"),
    "modelRequestTooLarge": error_reply(
        429,
        "Request too large for m on tokens per min (TPM): Limit 30000, Requested 40000.",
        code="rate_limit_exceeded",
    ),
}
REFUSALS = {
    "anthropic": Reply(events=rawserver.claude("", stop="refusal", details={"category": "cyber"})),
    "chat": Reply(events=rawserver.chat("", refusal="I cannot help with that")),
    "responses": Reply(events=rawserver.responses("", refusal="I cannot help with that")),
}


def gone(api: Api, code: str) -> Reply:
    return REFUSALS[api.name] if code == "modelRefused" else GONE[code]


@pytest.mark.parametrize("code", GONE)
async def test_another_model_is_asked_instead(raw: RawServer, api: Api, code: str) -> None:
    raw.reply_with(gone(api, code), api.reply(GOOD))
    second = f"{model_of(api)}-2"
    result = await asked(api, fallbackModels=[second])
    assert result["solution"] == SOLUTION
    assert [r.body["model"] for r in raw.requests] == [api.model, f"{api.model}-2"]
    assert "was given up for another model" in result["notes"][0]


OUTAGES = {
    "modelOverloaded": error_reply(529, "Overloaded", {"retry-after": "40"}, type="overloaded_error"),
    "modelRateLimit": error_reply(429, "slow down", {"retry-after": "40"}, type="rate_limit_error"),
    "modelUnavailable": error_reply(500, "oops", {"retry-after": "40"}, type="api_error"),
}


@pytest.mark.parametrize("code", OUTAGES)
async def test_a_model_without_capacity_is_tried_again_when_it_says_so(raw: RawServer, api: Api, code: str) -> None:
    raw.reply_with(OUTAGES[code])
    error = await failure(solution_request(model=model_of(api)))
    assert (error.type, error.non_retryable) == (code, False)
    assert error.next_retry_delay is not None
    assert 40 <= error.next_retry_delay.total_seconds() <= 50
    again = await failure(solution_request(model=model_of(api)))
    assert (again.type, len(raw.requests)) == (code, 1)  # nothing is sent before that time


async def test_an_error_in_the_middle_of_a_stream_is_tried_again_and_its_usage_counts(raw: RawServer, api: Api) -> None:
    error: dict[str, Any] = {"type": "overloaded_error", "code": "server_error", "message": "busy"}
    event = {"type": "error", **error} if api.name == "responses" else {"type": "error", "error": error}
    last = ("error" if api.name != "chat" else None, event)
    raw.reply_with(Reply(events=[*api.stream(GOOD[:60], **api.cut), last]))
    failed = await failure(solution_request(model=model_of(api)))
    assert not failed.non_retryable
    usage = failed.details[0]["usage"]
    assert usage["requests"] == 1
    assert usage["outputTokens"] > 5


async def test_a_stream_that_stalls_ends_by_the_time_that_its_cap_allows(
    raw: RawServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    caps: list[int | None] = []

    def short(cap: int | None) -> float:
        caps.append(cap)
        return 0.3

    monkeypatch.setattr(module, "answer_seconds", short)
    reply = api.reply(GOOD[:60], **api.cut)
    reply.end = "hang"
    raw.reply_with(reply)
    error = await failure(solution_request(model=model_of(api), maxOutputTokens=5_000))
    assert (error.type, error.non_retryable, caps) == ("modelTimeout", False, [5_000])
    assert error.next_retry_delay is not None
