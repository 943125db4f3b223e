"""Both SDKs against aimock, a fake of both APIs that shares no code with us. Skipped where it is not installed.

It sends neither cached nor reasoning tokens and enforces no schema: test_adapters.py covers those, and misbehaviour.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from activities.providers.interface import ModelError, ModelTurn, PromptBlock, TokenCounts
from tests.models.support import APIS, PLAN, WIRE, Api, CallRecorder, ask

COUNTS = {"input_tokens": 11, "output_tokens": 7, "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


@pytest.fixture(params=APIS.values(), ids=APIS.keys())
def api(request: pytest.FixtureRequest, aimock: Any, monkeypatch: pytest.MonkeyPatch) -> Api:
    selected: Api = request.param
    monkeypatch.setenv("ANTHROPIC_BASE_URL", aimock.base_url)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{aimock.base_url}/v1")
    for name, value in selected.env.items():
        monkeypatch.setenv(name, value)
    return selected


@pytest.fixture
def aimock(aimock_url_server: Any) -> Any:
    aimock_url_server.reset()
    return aimock_url_server


async def test_a_plan_is_streamed_call_by_call(aimock: Any, api: Api) -> None:
    aimock.on_message("do it", {"content": json.dumps(WIRE), "usage": COUNTS}, chunkSize=9)
    recorder = CallRecorder()
    answer = await ask(api, on_call=recorder)
    assert answer.value == PLAN
    assert recorder.calls == list(enumerate(PLAN["calls"]))
    assert (answer.tokens, answer.model) == (TokenCounts(11, 7), api.model)
    assert answer.cost is not None


async def test_system_and_user_arrive_where_the_provider_looks_for_them(aimock: Any, api: Api) -> None:
    aimock.on_system_message("rules", {"content": json.dumps(WIRE)}, user_message="state")
    assert (await ask(api, turns=(ModelTurn("user", (PromptBlock("state"),)),))).value == PLAN


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, "modelBadRequest", False),
        (401, "modelUnauthorized", False),
        (429, "modelRateLimit", True),
        (500, "modelUnavailable", True),
        (503, "modelOverloaded", True),
        (529, "modelOverloaded", True),
    ],
)
async def test_an_error_has_our_code_for_it(aimock: Any, api: Api, status: int, code: str, *, retryable: bool) -> None:
    aimock.next_error(status, {"message": "no luck"})
    with pytest.raises(ModelError) as caught:
        await ask(api)
    assert (caught.value.code, caught.value.retryable) == (code, retryable)
    assert "no luck" in caught.value.message


async def test_a_rate_limit_says_how_long_to_wait(aimock: Any, api: Api) -> None:
    aimock.on_message(
        "do it", {"error": {"message": "slow", "type": "rate_limit_error"}, "status": 429, "retryAfter": 7}
    )
    with pytest.raises(ModelError) as caught:
        await ask(api)
    assert (caught.value.code, caught.value.retryAfter) == ("modelRateLimit", 7.0)


async def test_a_truncated_answer_is_reported(aimock: Any, api: Api) -> None:
    aimock.on_message("do it", {"content": '{"calls": [', "finishReason": "length", "usage": COUNTS})
    with pytest.raises(ModelError) as caught:
        await ask(api)
    assert caught.value.code == "modelTruncated"


async def test_a_stream_that_breaks_off_is_reported(aimock: Any, api: Api) -> None:
    aimock.on_message("do it", {"content": json.dumps(WIRE)}, chunkSize=9, truncateAfterChunks=4)
    with pytest.raises(ModelError) as caught:
        await ask(api)
    # aimock may drop the connection before its headers are out
    assert caught.value.code in ("modelCut", "modelUnavailable")
    assert caught.value.retryable
