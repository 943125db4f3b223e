"""Estimates of a request: above what it uses, and not far above."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts.language.messages import Instruction, Message, ToolMessage
from acts.planner.prompt import Prompt
from acts.planner.request_estimate import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    Reservation,
    estimate_prompt_bytes,
    estimate_request,
)
from tests.unit.test_prompt import LATENT, PLANNERS, planner


def json_bytes(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def without_provenance(message: Message) -> dict[str, Any]:
    return {k: v for k, v in message.raw.items() if k not in ("_call", "_date")}


def prompt_bytes(prompt: Prompt) -> int:
    return sum(len(block.encode()) for block in (*prompt.system, *prompt.user))


@pytest.mark.parametrize("name", PLANNERS)
def test_the_estimate_of_a_planner_s_prompt_is_at_least_its_size_and_at_most_twice_that(name: str) -> None:
    loop = PLANNERS[name]()
    messages = [without_provenance(m) for m in loop.request.context if not isinstance(m, ToolMessage)]
    schemas = [*(tool.schema for tool in loop.tools.values()), loop.output_schema]
    real = prompt_bytes(planner(loop))
    assert real <= estimate_prompt_bytes(json_bytes(messages), json_bytes(schemas)) <= 2 * real


@pytest.mark.parametrize("name", LATENT)
def test_the_estimate_of_a_latent_call_s_prompt_is_at_least_its_size_and_at_most_twice_that(name: str) -> None:
    case = LATENT[name]()
    if case.scoped is None:
        messages = [without_provenance(m) for m in case.messages if m.raw.get("type") not in ("tool", "plan", "error")]
    else:
        messages = [*(m.raw for m in case.messages if isinstance(m, Instruction)), *case.scoped]
    call = {k: v for k, v in case.call.items() if k not in ("_id", "_outputPath")}
    real = prompt_bytes(case.prompt())
    estimate = estimate_prompt_bytes(json_bytes([*messages, call]), json_bytes(case.tool.schema), latent=True)
    assert real <= estimate <= 2 * real


@pytest.mark.parametrize(
    ("model", "bytes_", "cap", "price", "expected"),
    [
        ("anthropic:claude-opus-5-5", 2_700, 100, None, Reservation(1_100, None)),
        ("anthropic:claude-opus-5-5", 2_701, 100, None, Reservation(1_101, None)),
        ("openai:gpt-6-sol", 3_500, 100, (0.5, 2.0), Reservation(1_100, 700.0)),
        ("scripted:examples", 3_500, None, (0.0, 0.0), Reservation(1_000 + DEFAULT_MAX_OUTPUT_TOKENS, 0.0)),
        ("openai:claude", 0, 0, (1.0, 1.0), Reservation(0, 0.0)),
    ],
)
def test_a_request_uses_the_tokens_of_its_prompt_and_of_the_longest_answer(
    model: str, bytes_: int, cap: int | None, price: tuple[float, float] | None, expected: Reservation
) -> None:
    assert estimate_request(model, bytes_, cap, price) == expected


@given(bytes_=st.integers(0, 10**7), cap=st.integers(1, 10**6))
def test_a_repair_turn_sends_the_prompt_and_the_first_answer_and_answers_again(bytes_: int, cap: int) -> None:
    once = estimate_request("openai:x", bytes_, cap, (1.0, 0.0))
    twice = estimate_request("openai:x", bytes_, cap, (1.0, 0.0), may_repair=True)
    assert twice.tokens == 2 * once.tokens + cap
    assert twice.cost == 2 * (once.cost or 0) + cap
