"""The activity ``acts.model``: its repair turn and what is reserved for it, its results, and the price of a model."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from acts.activities import ask_model as module
from acts.activities import engine_activities
from acts.activities.model_context import PromptContext
from acts.activities.registry import Registry
from acts.language.messages import parse_message
from acts.language.tools import read_tool
from tests.models.rawserver import RawServer, Reply, chat

NO_JSON = "I would rather talk."
SOLUTION = {"output": "†state", "calls": [{"_tool": "sum", "b": 1, "a": "Да"}]}
TOOL, _ = read_tool("sum", {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "_output": True}})


class Contexts:
    """A reader that needs no run: each context is the same."""

    async def read(self, *_: Any) -> PromptContext:
        assert TOOL is not None
        return PromptContext({"sum": TOOL}, max_ticks=50, messages=[parse_message({"type": "text", "text": "Add."})])


@pytest.fixture(autouse=True)
def contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_contexts", Contexts())
    monkeypatch.setattr(module, "LEAST_SECONDS", math.inf)  # there is no run to report to


def solution_request(**fields: Any) -> dict[str, Any]:
    source = {"workflowId": "run-1", "runId": "x", "messageCount": 1}
    defaults = {"ask": "solution", "model": "openai:gpt-6-sol", "priced": False, "mayRepair": True, "tick": 1}
    return {**defaults, "source": source, **fields}


def latent_request(**fields: Any) -> dict[str, Any]:
    call = {"tool": "sum", "call": {"_tool": "sum"}, "paths": ["†state.sum"], "scoped": None}
    return solution_request(ask="output", **call, **fields)


async def run(request: dict[str, Any]) -> dict[str, Any]:
    client: Any = object()  # only the reader of contexts would use it
    result: RawValue = await ActivityEnvironment(client).run(module.ask_model, request)
    decoded: dict[str, Any] = json.loads(result.payload.data)
    return decoded


def reply(text: str) -> Reply:
    """18 tokens, at the price of gpt-6-sol."""
    return Reply(events=chat(text))


@pytest.mark.parametrize(
    ("fields", "requests"),
    [
        ({}, 2),
        ({"reserved": {"tokens": 36, "cost": 1.0}}, 2),
        ({"reserved": {"tokens": 35, "cost": 1.0}}, 1),
        ({"reserved": {"tokens": 36, "cost": 0.000_001}}, 1),
        ({"mayRepair": False}, 1),
    ],
)
async def test_a_repair_turn_is_made_where_it_is_allowed_and_stays_within_what_is_reserved(
    raw: RawServer, fields: dict[str, Any], requests: int
) -> None:
    raw.reply_with(reply(NO_JSON), reply(json.dumps(SOLUTION)))
    result = await run(solution_request(**fields))
    assert len(raw.requests) == result["usage"]["requests"] == requests
    assert ("solution" in result) == (requests == 2)
    assert result.get("unusable", {"code": "modelNotJson"})["code"] == "modelNotJson"


async def test_a_solution_is_recorded_as_the_model_wrote_it(raw: RawServer) -> None:
    raw.reply_with(reply(json.dumps(SOLUTION)))
    client: Any = object()
    result = await ActivityEnvironment(client).run(module.ask_model, solution_request())
    text = json.dumps(SOLUTION, ensure_ascii=False, separators=(",", ":"))
    assert result.payload.data.decode().startswith(f'{{"solution":{text},"usage":')


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (json.dumps({"calls": [], "output": "x" * 2_000}), "PayloadTooLarge"),
        ('{"calls": [], "output": "\\ud800"}', "modelNotJson"),
    ],
)
async def test_a_solution_that_cannot_be_recorded_is_reported_to_the_planner(
    raw: RawServer, text: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_activities, "MAX_PAYLOAD_BYTES", 1_000)
    raw.reply_with(reply(text))
    result = await run(solution_request())
    assert result["unusable"]["code"] == code
    assert result["usage"]["requests"] == 1


async def test_a_model_without_a_price_is_refused_where_the_budget_limits_the_cost(raw: RawServer) -> None:
    with pytest.raises(ApplicationError) as caught:
        await run(solution_request(model="openai:my-own-model", priced=True))
    assert caught.value.type == "noPrice"
    assert raw.requests == []
    raw.reply_with(reply(json.dumps(SOLUTION)))
    result = await run(solution_request(model="openai:my-own-model"))
    assert result["usage"]["cost"] is not None  # by the name that the server answers with


async def test_the_registry_answers_the_price_of_a_model_that_is_named() -> None:
    look_up = Registry({"sum": {}}, ()).look_up
    answer = await ActivityEnvironment().run(look_up, {"tools": ["sum"], "activities": [], "model": "openai:gpt-6-sol"})
    assert sorted(answer["price"]) == ["input", "output"]
    assert all(0 < value < 1e-3 for value in answer["price"].values())
    assert answer["tools"] == {"sum": {}}
