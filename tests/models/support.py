"""What the tests of the models share: a request, its answer in both forms, and the three APIs as a table."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from acts.activities.models import anthropic, openai
from acts.activities.models.endpoints import PROVIDERS, Endpoint
from acts.activities.models.interface import ModelError, ModelRequest, ModelResponse, ModelTurn, PromptBlock
from tests.models import rawserver
from tests.models.rawserver import RawServer, Reply

REFERENCE = {"type": "string", "pattern": "^†"}


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    """The definition of a Tool in a composed schema."""
    return {
        "type": "object",
        "properties": {"_tool": {"const": name}, **parameters, "_outputPath": {"type": "string"}},
        "required": ["_tool", *parameters],
        "additionalProperties": False,
    }


def solution(output: dict[str, Any] | None = None, **tools: dict[str, Any]) -> dict[str, Any]:
    """A composed schema, in the layout of acts/planner/answer_schema.py."""
    names = [f"tool_{name}" for name in tools]
    return {
        "type": "object",
        "properties": {
            "calls": {"type": "array", "items": {"anyOf": [{"$ref": f"#/$defs/{n}"} for n in names]}},
            "output": {"anyOf": [output or {"type": "string"}, {"type": "null"}]},
        },
        "required": ["calls", "output"],
        "additionalProperties": False,
        "$defs": {**dict(zip(names, tools.values(), strict=True)), "reference": REFERENCE},
    }


NUMBER = {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/reference"}]}
SCHEMA = solution(
    refund=tool("refund", amount=NUMBER),
    note=tool("note", level={"enum": ["Low", "High"]}, why={"type": "array", "items": {"type": "string"}}),
)
PLAN = {
    "calls": [
        {"_tool": "refund", "amount": 12.5, "_outputPath": "†state.refund"},
        {"_tool": "note", "level": "High", "why": ["late", "ä†"]},
    ],
    "output": None,
}
"""A Solution in our protocol's form, and …"""
WIRE = {"calls": [PLAN["calls"][0], {**PLAN["calls"][1], "_outputPath": None}], "output": None}
"""… as a model writes it that must name every property."""
TEXT = json.dumps(WIRE)


def model_request(**fields: Any) -> ModelRequest:
    defaults: dict[str, Any] = {
        "model": "claude-opus-5-5",
        "system": (PromptBlock("rules"), PromptBlock("tools", is_cached=True)),
        "turns": (ModelTurn("user", (PromptBlock("state"), PromptBlock("do it"))),),
        "schema": SCHEMA,
        "cache_key": "run-1",
    }
    return ModelRequest(**{**defaults, **fields})


@dataclass(frozen=True)
class Api:
    """One of the three APIs. ``stream`` makes its events; ``cut`` and ``truncated`` are arguments for these endings."""

    name: str
    ask: Callable[..., Awaitable[ModelResponse]]
    stream: Callable[..., list[tuple[str | None, Any]]]
    cut: dict[str, Any]
    truncated: dict[str, Any]
    model: str
    path: str
    env: dict[str, str]

    def reply(self, text: str = TEXT, **more: Any) -> Reply:
        return Reply(events=self.stream(text, **more))


APIS = {
    "anthropic": Api(
        "anthropic", anthropic.ask, rawserver.claude, {"stop": None}, {"stop": "max_tokens"}, "claude-opus-5-5",
        "/v1/messages", {},
    ),
    "chat": Api(
        "chat", openai.ask, rawserver.chat, {"finish": None}, {"finish": "length"}, "gpt-6-sol",
        "/v1/chat/completions", {},
    ),
    "responses": Api(
        "responses", openai.ask, rawserver.responses, {"status": None},
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "gpt-6-sol", "/v1/responses",
        {"ACTS_OPENAI_API": "responses"},
    ),
}  # fmt: skip


class CallRecorder:
    """A receiver of Calls that keeps them."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Any]] = []

    def __call__(self, index: int, call: Any) -> None:
        self.calls.append((index, call))


async def ask(
    api: Api, endpoint: Endpoint | None = None, on_call: CallRecorder | None = None, **fields: Any
) -> ModelResponse:
    own = PROVIDERS["anthropic" if api.name == "anthropic" else "openai"]
    return await api.ask(model_request(model=api.model, **fields), on_call or CallRecorder(), endpoint or own)


async def error_of(api: Api, raw: RawServer, *replies: Reply, **fields: Any) -> ModelError:
    """The error of a request that gets these replies."""
    raw.reply_with(*replies)
    with pytest.raises(ModelError) as caught:
        await ask(api, **fields)
    return caught.value
