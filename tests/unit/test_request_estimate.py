"""Estimates of a request: above what it uses, and not far above."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts.activities.models.schema import choose_form
from acts.language.messages import Instruction, ToolMessage
from acts.machines.budget import context_bytes
from acts.planner.answer_schema import compose_latent_schema, compose_solution_schema
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


def sent_bytes(prompt: Prompt, schema: Any) -> int:
    """The bytes of a request: its prompt, and the schema in the dialect that makes it longest."""
    return len(prompt.text.encode()) + max(json_bytes(choose_form(schema, d).schema) for d in ("anthropic", "openai"))


@pytest.mark.parametrize("name", PLANNERS)
def test_the_estimate_of_a_planner_s_request_is_at_least_its_size_and_at_most_twice_that(name: str) -> None:
    agent = PLANNERS[name]()
    schema = compose_solution_schema(
        agent.tools, agent.output_schema, mode=agent.mode, instances=agent.request.instances()
    )  # fmt: skip
    real = sent_bytes(planner(agent), schema)
    schemas = [*(tool.schema for tool in agent.tools.values()), agent.output_schema]
    shown = context_bytes(agent.request.context, agent.turns)
    shown -= sum(json_bytes(m.raw) for m in agent.request.context if isinstance(m, ToolMessage))
    assert real <= estimate_prompt_bytes(shown, json_bytes(schemas)) <= 2 * real


@pytest.mark.parametrize("name", LATENT)
def test_the_estimate_of_a_latent_call_s_request_is_at_least_its_size_and_at_most_twice_that(name: str) -> None:
    case = LATENT[name]()
    listed = (m for m in case.messages if m.raw.get("type") not in ("tool", "plan", "error"))
    messages = [{k: v for k, v in m.raw.items() if k not in ("_call", "_date")} for m in listed]
    if case.scoped is not None:
        messages = [*(m.raw for m in case.messages if isinstance(m, Instruction)), *case.scoped]
    call = {k: v for k, v in case.call.items() if k not in ("_id", "_outputPath")}
    real = sent_bytes(case.prompt(), compose_latent_schema(case.tool, case.paths)[0])
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
