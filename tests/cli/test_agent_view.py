"""The run of an agent as text, from its Request and its result alone."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.request_reader import parse_request
from cli.render.agent_view import print_ticks
from cli.render.tables import usage_text

CALL = {"_tool": "add", "n": "†input.n", "list": [1], "_outputPath": "†state.a && †state.b"}
SKIPPED = {"_tool": "log", "text": "x"}


def state_message(path: str, **state: Any) -> dict[str, Any]:
    return {"type": "state", "kind": "state", "state": state, "_call": CALL, "_outputPath": path, "_date": "…"}


RESULT = {
    "ticks": 3,
    "output": {"sum": 3},
    "context": [
        {"type": "error", "data": {"call": None, "error": {"code": "invalidSolution", "message": "no"}}},
        {"type": "plan", "plan": [CALL, SKIPPED], "mode": "eager"},
        state_message("†state.a", a=3),
        state_message("†state.b", b=3),
    ],
    "calls": [{"id": "1:add", "tool": "add", "state": "completed", "tick": 2, "outputPath": "†state.a"}],
    "errors": [{"call": None, "tick": 1, "code": "invalidSolution", "message": "\x1b[31mno"}],
}


def test_each_tick_lists_its_plan_and_the_outcome_of_its_calls(capsys: pytest.CaptureFixture[str]) -> None:
    context = [{"role": "user", "content": "add 1\nand 2"}, {"type": "input", "n": 2}, {"type": "state", "schema": {}}]
    print_ticks(parse_request({"context": context}), RESULT)
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "task      add 1 and 2",
        'input {"n": 2}',
        "tick 1    invalidSolution: �[31mno",
        "tick 2    plans  add(n: †input.n, list: [1]) → †state.a && †state.b",
        "plans  log(text: x)",
        "✓ 1:add → †state.a  3",
        "· 2:log is not run in this tick",
        "tick 3    no more calls: the answer",
        'output    {"sum": 3}',
    ]


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        ({"requests": 1, "inputTokens": 1200, "outputTokens": 5, "cost": 0}, "1 request, 1,200 tokens in, 5 out"),
        ({"requests": 2, "inputTokens": 9, "outputTokens": 5, "cachedTokens": 4, "cost": 0.01},
         "2 requests, 9 tokens in (4 cached), 5 out, 0.0100 USD"),
        ({"requests": 2, "inputTokens": 9, "outputTokens": 5, "cost": None},
         "2 requests, 9 tokens in, 5 out, price unknown"),
    ],
)  # fmt: skip
def test_the_usage_has_requests_tokens_and_the_price_if_known(usage: dict[str, Any], text: str) -> None:
    assert usage_text(usage) == text
