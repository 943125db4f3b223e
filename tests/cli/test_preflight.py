"""A problem that depends on the worker is a warning; one that every worker reports is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acts.cli.console import CommandError
from acts.cli.text.preflight import EXAMPLES, load_registry, run_preflight
from acts.language.errors import Problem

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


def test_a_registered_tool_that_is_not_loaded_is_a_warning() -> None:
    assert codes(run_preflight(request(CALL)).problems) == ["unseenTool:warning"]
    unsure = run_preflight(request({**CALL, "n": "†input.n"}))  # what reads nothing may depend on that Tool
    assert codes(unsure.problems) == ["unknownReference:warning", "unseenTool:warning"]
    assert unsure.by_model == []


def test_a_tool_that_ships_is_known_everywhere() -> None:
    call = {"_tool": "compute", "code": "1", "_outputPath": "†state.x"}
    assert run_preflight(request(call, tool="compute")).problems == []
    assert codes(run_preflight(request({**call, "code": 1}, tool="compute")).problems) == ["schemaMismatch:error"]


def test_an_unknown_tool_of_a_call_is_an_error() -> None:
    assert [p.code for p in run_preflight(request({"_tool": "nope"}, tool=TOOL)).errors] == ["unknownTool"]


def test_tools_of_the_environment_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "add.json").write_text(
        '{"properties": {"_tool": {"const": "add"}, "_activity": {"const": "add"}, "n": {"type": "number"}}}'
    )
    monkeypatch.setenv("ACTS_TOOLS", str(tmp_path))
    preflight = run_preflight(request({"_tool": "add", "n": "x"}))
    assert [p.code for p in preflight.errors] == ["schemaMismatch"]


def test_a_call_that_no_outcome_reaches_is_a_warning_before_anything_runs() -> None:
    preflight = run_preflight(request(CALL, {**CALL, "_when": "false"}, tool={**TOOL, "_activity": "a"}))
    assert [(p.code, p.call, p.fatal) for p in preflight.problems] == [("unreachable", "2:add", False)]


@pytest.mark.parametrize(("own", "stops"), [({}, True), ({"_activity": ""}, False), ({"_activity": None}, False)])
def test_a_tool_that_nothing_answers_is_named_unless_it_says_that_a_model_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: dict[str, Any], *, stops: bool
) -> None:
    (tmp_path / "add.json").write_text(json.dumps({**TOOL, **own}), "utf-8")
    monkeypatch.setenv("ACTS_TOOLS", str(tmp_path))
    if stops:
        with pytest.raises(CommandError, match=f'nothing answers the tool "add" of {tmp_path}: decorate'):
            run_preflight(request(CALL))
    else:
        assert [p.code for p in run_preflight(request(CALL)).errors] == ["noModel"]


@pytest.mark.parametrize(
    ("own", "config", "by_model"),
    [({"_activity": ""}, {"model": "scripted:x"}, ["1:add"]), ({}, {"model": "scripted:x"}, ["1:add"]),
     ({"_activity": "a"}, {"model": "scripted:x"}, []), ({}, {}, [])],
)  # fmt: skip
def test_the_calls_that_a_model_answers_are_named(own: Any, config: Any, by_model: list[str]) -> None:
    preflight = run_preflight(request(CALL, tool={**TOOL, **own}, **config))
    assert preflight.errors == []
    assert preflight.by_model == by_model


def test_an_environment_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_ACTIVITIES", "no_such_module_here")
    with pytest.raises(CommandError, match="no_such_module_here"):
        run_preflight(request(CALL))


def test_the_examples_are_checked_with_their_own_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_ACTIVITIES", "")
    tools, served = load_registry(str(EXAMPLES / "payment" / "plan.yaml"))
    assert "processPayment" in tools
    assert "processPayment" in served


MODEL = {"model": "scripted:x"}
KINDS: list[tuple[dict[str, Any], list[Any], dict[str, Any], bool, str]] = [
    # config, calls, other keys of the Request; is it for an agent, and why
    ({}, [CALL], {}, False, ""),
    ({}, [], {}, False, ""),
    ({"maxTicks": 5}, [CALL], {"schema": {}}, False, ""),
    (MODEL, [CALL], {}, False, "its calls run unchanged; --agent shows them to scripted:x"),
    ({**MODEL, "budget": {"requests": 5}}, [CALL], {}, False, "its calls run unchanged"),
    (MODEL, [], {}, True, "no calls are given: scripted:x plans them"),
    (MODEL, [CALL], {"schema": {"type": "object"}}, True, "it has a schema, so its calls are shown to scripted:x"),
    ({**MODEL, "maxTicks": 5}, [CALL], {}, True, "it has maxTicks, so"),
    ({**MODEL, "step": "plan"}, [CALL], {"schema": {}}, True, "it has a schema and step, so"),
]


@pytest.mark.parametrize(("config", "calls", "more", "agent", "why"), KINDS)
def test_a_request_is_run_as_a_plan_or_an_agent(
    config: dict[str, Any],
    calls: list[Any],
    more: dict[str, Any],
    agent: bool,  # noqa: FBT001 - a column of the table
    why: str,
) -> None:
    preflight = run_preflight({**request(*calls, tool=TOOL, **config), **more})
    assert (preflight.agent, preflight.errors) == (agent, [])
    assert preflight.why.startswith(why)
    assert bool(preflight.why) is bool(why)


AGENT_PROBLEMS: list[tuple[dict[str, Any], str, str]] = [
    ({"schema": {"type": "objct"}}, "invalidSchema", "/schema"),
    ({"context": [{"type": "tool", "tool": {"x": {"properties": 5}}}]}, "invalidTool", "/context/0/tool/x"),
    ({"context": [{"type": "state", "state": {}, "schema": {"type": 5}}]}, "invalidSchema", "/context/0/schema"),
]


@pytest.mark.parametrize(("request_part", "code", "at"), AGENT_PROBLEMS, ids=[f"{c}-{a}" for _, c, a in AGENT_PROBLEMS])
def test_the_problems_of_an_agents_request_are_reported(request_part: dict[str, Any], code: str, at: str) -> None:
    preflight = [(p.code, p.pointer) for p in run_preflight({"config": MODEL, **request_part}).errors]
    assert preflight == [(code, at)]
