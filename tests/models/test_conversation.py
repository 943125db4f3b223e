"""Whole requests of an agent as the real SDKs send them: each tick repeats the one before, byte by byte.

``tests/golden/request-*.json`` is the second request of an agent, for a person to read. To write them again, and the
prompts, see ``tests/unit/planner/test_prompt.py``.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from acts.activities import ask_model as module
from acts.activities.model_context import PromptContext
from tests.agent_driver import Agent
from tests.models.rawserver import RawServer
from tests.models.support import Api
from tests.unit.planner.test_prompt import FIRST, GOLDEN, RESULTS, agent_of, run_tick

Json = Any
TICKS: list[tuple[Json, dict[str, Json]]] = [
    (FIRST, RESULTS),
    ({"calls": [{"_tool": "refund"}], "output": None}, {}),
    ({"calls": [{"_tool": "judge", "_outputPath": "†state.receipt", "_output": {"why": "so"}}], "output": None}, {}),
    ({"calls": [], "output": {"done": "†state.none"}}, {}),
]


class Context:
    """A reader of the context of a agent, as it is now."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def read(self, _client: Any, _source: Any, turns: int) -> PromptContext:
        agent, request = self.agent, self.agent.request
        assert turns == len(agent.turns)
        return PromptContext(
            dict(agent.tools), request.schema, agent.mode, request.config.step, request.instances(),
            request.config.maxTicks, list(request.context), list(agent.turns),
        )  # fmt: skip


async def send_ticks(raw: RawServer, api: Api, monkeypatch: pytest.MonkeyPatch, count: int) -> list[dict[str, Json]]:
    """The bodies of the requests of so many ticks."""
    agent = agent_of()
    monkeypatch.setattr(module, "_contexts", Context(agent))
    provider = "anthropic" if api.name == "anthropic" else "openai"
    client: Any = object()
    for tick in range(1, count + 1):
        raw.reply_with(api.reply('{"calls": [], "output": null}'))
        source = {"workflowId": "run-1", "runId": "x", "messageCount": len(agent.request.context)}
        request = {"ask": "solution", "model": f"{provider}:{api.model}", "mayRepair": False, "tick": tick}
        await ActivityEnvironment(client).run(module.ask_model, {**request, "source": source})
        if tick <= len(TICKS):
            run_tick(agent, *TICKS[tick - 1])
    return [request.body for request in raw.requests]


def unmarked(body: Json) -> Json:
    """A request without its cache marks, which are no part of what is cached."""
    if isinstance(body, list):
        return [unmarked(item) for item in body]
    if isinstance(body, dict):
        return {k: unmarked(v) for k, v in body.items() if k != "cache_control"}
    return body


def turns_of(body: dict[str, Json]) -> list[Json]:
    return body["input"] if "input" in body else body["messages"]


async def test_each_request_begins_with_all_of_the_one_before(
    raw: RawServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [unmarked(body) for body in await send_ticks(raw, api, monkeypatch, 5)]
    for before, after in pairwise(bodies):
        old, new = json.dumps(turns_of(before)), json.dumps(turns_of(after))
        assert new.startswith(old.removesuffix("]"))
        assert len(turns_of(after)) == len(turns_of(before)) + 2
        rest = {k: v for k, v in before.items() if k not in ("input", "messages")}
        assert {k: v for k, v in after.items() if k not in ("input", "messages")} == rest


async def test_what_is_written_to_the_cache_is_read_from_it_by_the_next_request(
    raw: RawServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a request is marked, and the next one has a mark there too, a few blocks before its own end."""
    bodies = await send_ticks(raw, api, monkeypatch, 4)
    marks = []
    for body in bodies:
        blocks = [
            b for turn in turns_of(body) for b in (turn["content"] if isinstance(turn["content"], list) else [turn])
        ]
        marks.append([i for i, b in enumerate(blocks) if "cache_control" in b or "prompt_cache_breakpoint" in b])
        assert marks[-1][-1] == len(blocks) - 1
        assert json.dumps(body).count('"cache_control"') in (0, 2, 3)
    for before, after in pairwise(marks):
        assert before[-1] in after
        assert after[-1] - before[-1] == 2


async def test_a_request_is_word_for_word_its_golden_file(
    raw: RawServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (await send_ticks(raw, api, monkeypatch, 2))[-1]
    file = GOLDEN / f"request-{api.name}.json"
    text = json.dumps(body, ensure_ascii=False, indent=1) + "\n"
    if os.environ.get("TEST_REWRITE_GOLDEN"):
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8")
