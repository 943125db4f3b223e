"""Whole agents through the real SDKs: on a real Temporal server, against the independent fake and the raw one."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.models.rawserver import RawServer, Reply
from tests.models.support import APIS, Api
from tests.workflow.conftest import delegates_folder, engine, foreign, plain_client, sets_folder  # noqa: F401 - fixtures
from tests.workflow.foreign import Foreign, call, ended, failure, tool

Json = Any
COUNTS = {"input_tokens": 11, "output_tokens": 7, "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
SCHEMA = {
    "type": "object", "properties": {"confirmation": {"type": "string"}, "note": {"type": "string"}},
    "required": ["confirmation"],
}  # fmt: skip
FIRST = {"calls": [call("refund", "†state.refund", amount="†input.amount")], "output": None}
LAST = {"calls": [], "output": {"confirmation": "†state.refund.id"}}


async def refund(call: dict[str, Json], tool: Json, context: Json) -> Json:
    return {"id": f"refund-{call['amount']}"}


def provider(api: Api) -> str:
    return "anthropic" if api.name == "anthropic" else "openai"


def on_the_wire(solution: Json, api: Api) -> str:
    """OpenAI sends every property, null for absent ones."""
    copy = json.loads(json.dumps(solution))
    if provider(api) == "openai":
        for one in copy["calls"]:
            one.setdefault("why", None)
        if copy["output"]:
            copy["output"].setdefault("note", None)
    return json.dumps(copy, ensure_ascii=False)


def request(api: Api, user: Foreign) -> Json:
    refund_tool = tool("refund", activity="refund", options={"taskQueue": user.queue})
    properties = {k: v for k, v in refund_tool["tool"]["properties"].items() if k in ("_tool", "_activity", "_options")}
    properties |= {"amount": {"type": "number"}, "why": {"type": "string"}, "_outputPath": {"type": "string"}}
    tool_ = {"type": "object", "properties": properties, "required": ["amount", "_outputPath"]}
    return {
        "config": {"model": f"{provider(api)}:{api.model}"},
        "context": [{"type": "tool", "tool": tool_}, {"type": "input", "input": {"amount": 50}}],
        "schema": SCHEMA,
    }


async def start(api: Api, user: Foreign) -> Any:
    id_ = f"agent-{uuid.uuid4().hex[:8]}"
    return await user.client.start_workflow("Agent", request(api, user), id=id_, task_queue=user.engine)


@pytest.fixture(params=APIS.values(), ids=APIS.keys())
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Api:
    selected: Api = request.param
    for name, value in selected.env.items():
        monkeypatch.setenv(name, value)
    return selected


async def test_an_agent_runs_through_the_sdk_against_an_independent_fake(
    api: Api,
    aimock_url_server: Any,
    foreign: Foreign,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    aimock = aimock_url_server
    aimock.reset()
    monkeypatch.setenv("ANTHROPIC_BASE_URL", aimock.base_url)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{aimock.base_url}/v1")
    aimock.on_message('"amount":50', {"content": on_the_wire(FIRST, api), "usage": COUNTS}, chunkSize=9)
    aimock.on_message("<outcomes>", {"content": on_the_wire(LAST, api), "usage": COUNTS}, chunkSize=5)
    async with foreign.serving(refund):
        result = await ended(await start(api, foreign))
    assert result["output"] == {"confirmation": "refund-50"}
    assert result["state"] == {"refund": {"id": "refund-50"}}
    usage = result["usage"]
    assert (usage["requests"], usage["inputTokens"], usage["outputTokens"]) == (2, 22, 14)


async def test_requests_that_break_off_are_repeated_and_the_agent_continues(
    api: Api,
    raw: RawServer,
    foreign: Foreign,
) -> None:
    soon = {"retry-after-ms": "10"}
    raw.reply_with(
        Reply(body={"error": {"type": "overloaded_error", "message": "busy"}}, status=529, headers=soon),
        api.reply(on_the_wire(FIRST, api)),
        api.reply(on_the_wire(LAST, api), **api.cut),
        api.reply(on_the_wire(LAST, api)),
    )
    async with foreign.serving(refund):
        result = await ended(await start(api, foreign))
    assert result["output"] == {"confirmation": "refund-50"}
    assert len(raw.requests) == 4
    assert result["usage"]["requests"] == 3  # the answer that broke off was paid for


async def test_each_prompt_begins_with_the_same_text_and_has_no_provenance(
    api: Api,
    raw: RawServer,
    foreign: Foreign,
) -> None:
    raw.reply_with(*(api.reply(on_the_wire(s, api)) for s in (FIRST, LAST)))
    async with foreign.serving(refund):
        await ended(await start(api, foreign))
    one, two = (json.dumps(r.body, ensure_ascii=False) for r in raw.requests)
    assert "refund-50" in two
    for hidden in ("_date", "_call", "_options", "_activity"):
        assert f'"{hidden}' not in one + two
    assert foreign.queue not in one + two
    assert raw.requests[0].body.get("system") == raw.requests[1].body.get("system")


async def test_a_failing_model_ends_the_run_and_says_what_to_do(
    api: Api,
    raw: RawServer,
    foreign: Foreign,
) -> None:
    raw.reply_with(Reply(body={"error": {"type": "authentication_error", "message": "invalid key"}}, status=401))
    error = await failure(await start(api, foreign))
    assert error.type == "modelUnauthorized"
    assert "invalid key" in str(error)
    assert error.details[0]["status"] == "failed"
