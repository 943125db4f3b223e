"""Estimates of a request: above what it uses, and not far above."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts.activities.models.schema import choose_form
from acts.language.config import Usage
from acts.language.messages import Instruction, ToolMessage, parse_message
from acts.machines.budget import context_bytes
from acts.planner.answer_schema import compose_latent_schema, compose_solution_schema
from acts.planner.prompt import Prompt
from acts.planner.request_estimate import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    Reservation,
    estimate_prompt_bytes,
    estimate_request,
)
from acts.tree.identity import MAX_ID_BYTES, call_identity, child_id, part_identity, root_identity, short_id, tree_token
from tests.unit.planner.test_prompt import LATENT, PLANNERS, planner


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
    ("media", "size", "tokens"),
    [("image/png", 300, 1_600), ("image/png", 4_000_000, 1_600), ("application/pdf", 1_200_000, 30_000)],
)
def test_a_file_counts_as_its_tokens_wherever_it_stands_and_not_as_its_base64(
    media: str, size: int, tokens: int
) -> None:
    file = {"media": media, "base64": "AAAA" * (size // 3)}
    for raw in ({"type": "data", "kind": "scan", **file}, {"type": "state", "state": {"scans": [{"of": file}]}}):
        assert tokens <= estimate_request("openai:x", context_bytes([parse_message(raw)]), 0, None).tokens < tokens + 50


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


Json = Any


def spent(**sums: Json) -> Usage:
    made = Usage()
    made.add(sums)
    return made


def test_sums_add_up_and_what_is_written_can_be_read_again() -> None:
    made = spent(requests=1, inputTokens=10, outputTokens=5, cachedTokens=4, reasoningTokens=2, cost=0.1)
    made.add(made.to_json())
    assert made.to_json() == {
        "requests": 2, "inputTokens": 20, "outputTokens": 10, "cachedTokens": 8, "reasoningTokens": 4, "cost": 0.2,
    }  # fmt: skip


def test_a_whole_number_of_dollars_is_written_without_a_point() -> None:
    assert str(spent(cost=2.0).to_json()["cost"]) == "2"
    assert str(Usage().to_json()["cost"]) == "0"


def test_one_unknown_price_makes_the_whole_cost_unknown() -> None:
    made = spent(cost=0.5)
    made.add({"requests": 1, "cost": None})
    made.add({"requests": 1, "cost": 0.5})
    assert (made.cost, made.requests, made.to_json()["cost"]) == (None, 2, None)
    again = Usage()
    again.add(made.to_json())
    assert again.cost is None


@pytest.mark.parametrize("given", [None, [], "usage", 5, {}, {"requests": "many"}, {"requests": None}])
def test_what_is_no_sum_counts_as_nothing(given: Json) -> None:
    made = Usage()
    made.add(given)
    assert made == Usage()


ROOT = root_identity("run", "6d1f")
names = st.text(st.sampled_from("ab/%2F:1~"), max_size=8)
calls = st.builds("{}:{}".format, st.integers(1, 3), st.text(st.sampled_from("ab/%:1"), min_size=1, max_size=6))


@given(st.lists(st.tuples(st.none() | names.filter(bool), calls), min_size=2, max_size=2, unique=True))
def test_two_calls_of_a_run_have_two_ids_whatever_their_instances_and_tools_are_called(
    pair: list[tuple[str | None, str]],
) -> None:
    one, other = (call_identity(ROOT, *who) for who in pair)
    assert one != other


def test_the_ids_of_different_runs_and_parts_differ() -> None:
    identities = [
        ROOT, root_identity("run", "6d20"), root_identity("other", "6d1f"),
        part_identity(ROOT, "plan-1"), part_identity(ROOT, "plan-2"),
        part_identity(part_identity(ROOT, "plan-1"), "plan-1"), call_identity(ROOT, None, "1:pay"),
        call_identity(call_identity(ROOT, None, "1:pay"), None, "1:pay"), call_identity(ROOT, "Ann", "1:pay"),
    ]  # fmt: skip
    for one, other in combinations(identities, 2):
        assert call_identity(one, None, "1:pay") != call_identity(other, None, "1:pay")


def test_an_id_does_not_change_between_versions() -> None:
    """A run that is reset after an update must give its Calls the ids that they had."""
    assert call_identity(ROOT, None, "1:pay") == "a0f63599-1a0d-590d-8dfa-2dc2566d5949"
    assert call_identity(part_identity(ROOT, "plan-1"), "Ann", "2:refund") == "4b31a3d9-5dd3-56f8-95a3-092814df193e"


def test_the_token_needs_the_request_and_the_identity() -> None:
    token = tree_token(ROOT, b"{}")
    assert len(token) == 32
    assert token == tree_token(ROOT, b"{}")
    assert token not in (tree_token(ROOT, b"{ }"), tree_token(ROOT + "x", b"{}"), tree_token(ROOT, b""))


@pytest.mark.parametrize("character", ["x", "é", "長", "😀"])
def test_an_id_that_is_too_long_ends_in_a_hash(character: str) -> None:
    ids = [short_id(f"run/{character * 900}{end}") for end in "ab"]
    assert ids[0] != ids[1]
    for id_ in ids:
        assert len(id_.encode()) <= MAX_ID_BYTES
        assert id_.startswith(f"run/{character}")
    assert short_id(ids[0]) == ids[0]


def test_the_id_of_a_child_is_below_its_parents_and_not_changed_at_the_limit() -> None:
    assert child_id("run", "1:shorten") == "run/1:shorten"
    assert short_id("x" * MAX_ID_BYTES) == "x" * MAX_ID_BYTES
