"""What ``make live-smoke`` prints, against a server that answers, rejects a setting, and fails."""

from __future__ import annotations

import json
import sys

import pytest

from tests.models.rawserver import RawServer, Reply, chat
from tools import live_smoke

PLAN = json.dumps({"calls": [{"_tool": "tool_1", "amount": 12.5, "note": "smoke"}], "output": None})


def answer(cached: int = 0) -> Reply:
    return Reply(events=chat(PLAN, usage={"prompt_tokens_details": {"cached_tokens": cached}}))


async def test_each_number_of_tools_the_cache_and_an_effort_have_a_row(raw: RawServer) -> None:
    raw.reply_with(answer(), answer(), answer(cached=9), answer())
    rows = await live_smoke.request_all(["openai:gpt-6-sol"], [1, 5])
    assert [row[1] for row in rows] == ["1", "5", "5 again", "1, effort low"]
    assert [(row[2], row[6], row[-1]) for row in rows] == [
        ("unenforced", "0", "ok"), ("unenforced", "0", "ok"), ("unenforced", "9", "ok"), ("unenforced", "0", "ok")
    ]  # fmt: skip
    assert raw.body["reasoning_effort"] == "low"
    assert all(0 <= float(row[3]) <= float(row[4]) for row in rows)


def test_without_a_key_nothing_is_requested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["live_smoke"])
    assert live_smoke.main() == 0
    assert "nothing was requested" in capsys.readouterr().out
