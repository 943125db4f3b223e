"""What this environment does not know of the worker is a warning; what no worker could make right is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acts.errors import Problem
from cli.failures import Refusal
from cli.known import EXAMPLES, judge, registry

TOOL = {
    "type": "object",
    "properties": {"_tool": {"const": "add"}, "_outputPath": {"type": "string"}, "n": {"type": "number"}},
}


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACTS_ACTIVITIES", raising=False)
    monkeypatch.delenv("ACTS_TOOLS", raising=False)


def request(*calls: Any, tool: Any = "add", **config: Any) -> dict[str, Any]:
    return {"config": config, "context": [{"type": "tool", "tool": tool}, {"type": "plan", "plan": list(calls)}]}


def codes(problems: list[Problem]) -> list[str]:
    return [f"{p.code}:{p.severity}" for p in problems]


CALL = {"_tool": "add", "n": 1, "_outputPath": "†state.x"}


def test_a_registered_tool_that_is_not_here_is_a_warning() -> None:
    assert codes(judge(request(CALL)).problems) == ["unseenTool:warning"]


def test_it_is_an_error_where_nothing_is_left_to_the_worker() -> None:
    assert [p.code for p in judge(request(CALL), strict=True).errors] == ["unknownTool", "unknownTool"]


def test_what_an_unseen_tool_may_write_can_be_read() -> None:
    found = judge(request({"_tool": "add", "n": "†state.total", "_outputPath": "†state.x"}))
    assert codes(found.problems) == ["unknownReference:warning", "unseenTool:warning"]


def test_a_call_of_an_unseen_tool_still_has_sound_expressions() -> None:
    assert [p.code for p in judge(request({"_tool": "add", "n": "†state."})).errors] == ["invalidExpression"]


def test_a_tool_whose_activity_may_be_served_is_no_latent_one_for_sure() -> None:
    found = judge(request(CALL, tool=TOOL))
    assert codes(found.problems) == ["noModel:warning"]
    assert "where the worker serves an Activity" in (found.problems[0].hint or "")
    assert [p.code for p in judge(request(CALL, tool=TOOL), strict=True).errors] == ["noModel"]


def test_an_unknown_tool_of_a_call_stays_an_error() -> None:
    assert [p.code for p in judge(request({"_tool": "nope"}, tool=TOOL)).errors] == ["unknownTool"]


def test_tools_of_the_environment_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "add.json").write_text(
        '{"properties": {"_tool": {"const": "add"}, "_activity": {"const": "add"}, "n": {"type": "number"}}}'
    )
    monkeypatch.setenv("ACTS_TOOLS", str(tmp_path))
    found = judge(request({"_tool": "add", "n": "x"}))
    assert [p.code for p in found.errors] == ["schemaMismatch"]


def test_an_environment_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_ACTIVITIES", "no_such_module_here")
    with pytest.raises(Refusal, match="no_such_module_here"):
        judge(request(CALL))


def test_nothing_is_loaded_for_a_request_that_leaves_nothing_to_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_ACTIVITIES", "no_such_module_here")
    fixed = {"properties": {**TOOL["properties"], "_activity": {"const": "add"}}}  # type: ignore[dict-item]
    assert judge(request(CALL, tool=fixed)).problems == []


def test_the_examples_are_checked_with_their_own_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_ACTIVITIES", "")
    tools, served = registry(str(EXAMPLES / "payment" / "plan.yaml"))
    assert "processPayment" in tools
    assert "processPayment" in served


@pytest.mark.parametrize(
    ("config", "calls", "agent"),
    [({"model": "scripted:x"}, [], True), ({}, [CALL], False), ({"model": "scripted:x"}, [CALL], False)],
)
def test_a_request_without_calls_is_for_an_agent(config: dict[str, Any], calls: list[Any], agent: bool) -> None:  # noqa: FBT001
    found = judge(request(*calls, tool=TOOL, **config))
    assert found.agent is agent
    assert found.errors == []


def test_an_agent_needs_no_plan_message_but_a_model() -> None:
    task = {"context": [{"type": "text", "text": "add 1 and 2"}]}
    assert [p.code for p in judge(task).errors] == ["noPlan"]
    assert judge({**task, "config": {"model": "scripted:x"}}).problems == []
