"""Tools that ship: what ``compute`` yields, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from acts.activities import shipped_tools
from acts.activities.plan_folders import read_plans
from acts.activities.registry import load
from acts.activities.shipped_tools import COMPUTE, FAILED, SHIPPED, compute, evaluate
from acts.language.errors import SettingsError
from acts.language.tools import read_tool
from acts.machines.commands import StartCall
from acts.machines.walk import Walk, date_of
from acts.plan.validate import validate, validate_request
from tests.property.drive import NOW, identify

ORDERS = [{"id": 1, "paid": True, "cents": 5}, {"id": 2, "paid": False, "cents": 7}]
VALUES: list[tuple[str, Any]] = [
    ("[o['id'] for o in orders if o['paid']]", [1]),
    ("sum(o['cents'] for o in orders) / len(orders)", 6.0),
    ("total = 0\nfor o in orders:\n    total += o['cents']\n{'total': total}", {"total": 12}),
    ("import json\njson.loads('[1, null]')", [1, None]),
    ("(1, 'a')", [1, "a"]),
    ("x = 1", None),
]
# what is written, a word of the failure
REFUSED: list[tuple[str, str]] = [
    ("while True: pass", "time limit"),
    ("x = [0]\nwhile True: x = x + x", "(memory|time) limit|timeout"),
    ("'a' * 10**10", "memory limit"),
    ("def f(n): return f(n + 1)\nf(0)", "recursion"),
    ("a = 1\nb = a / 0", "line 2"),
    ("y = 1\nx +", r"line 2\n    x \+[\s~]+SyntaxError: Expected an expression"),
    ("undefined", "'undefined' is not defined"),
    ("import socket", "No module named"),
    ("open('/etc/passwd').read()", "Permission denied"),
    ("import os\nos.environ['PATH']", "not supported"),
    ("import random\nrandom.random()", "not supported"),
    ("import datetime\ndatetime.datetime.now()", "not supported"),
    ("import time\ntime.sleep(5)", "not supported"),
    ("{1, 2}", "sorted"),
    ("{1: 2}", "keys"),
    ("float('nan')", "JSON"),
    ("10**5000", "digits"),
    ("x = [1]\nfor i in range(60): x = [x, x]\nx", "longer than"),
    ("x = 'a' * 1000000\n[x] * 1000", "longer than"),
]


async def run(code: str) -> Any:
    return await ActivityEnvironment().run(compute, {"_tool": "compute", "code": code, "orders": ORDERS}, {}, [])


@pytest.mark.parametrize(("code", "value"), VALUES)
async def test_the_last_expression_is_the_result(code: str, value: Any) -> None:
    assert await run(code) == value


@pytest.mark.parametrize(("code", "word"), REFUSED)
async def test_what_it_cannot_do_fails_once_with_the_reason(code: str, word: str) -> None:
    with pytest.raises(ApplicationError, match=word) as caught:
        await run(code)
    assert (caught.value.type, caught.value.non_retryable) == (FAILED, True)


async def test_a_process_that_was_ended_from_outside_is_replaced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Crash(Exception):
        pass

    def crash_once(code: str, names: dict[str, Any]) -> Any:
        monkeypatch.setattr(shipped_tools, "evaluate", evaluate)
        raise Crash("monty worker crashed while waiting for a reply (signal: 9 (SIGKILL))")

    monkeypatch.setattr(shipped_tools.monty, "MontyCrashedError", Crash)
    monkeypatch.setattr(shipped_tools, "evaluate", crash_once)
    assert await ActivityEnvironment().run(compute, {"_tool": "compute", "code": "1 + 1"}, COMPUTE, []) == 2


def test_a_worker_has_them_unless_its_settings_leave_them_out(tmp_path: Path) -> None:
    assert set(load((), (), shipped=None).tools) == set(SHIPPED)
    assert not load((), (), shipped="").tools
    assert load((), (), shipped="compute, plan").names == ["compute"]
    (tmp_path / "plan.json").write_text('{"context": [{"type": "plan", "plan": []}]}')
    assert "plan" in load((), (), plans=read_plans([tmp_path]), shipped=None).tools  # one of that name stops nobody
    with pytest.raises(SettingsError, match='names "comptue"; there are: compute'):
        load((), (), shipped="comptue")


@pytest.mark.parametrize(
    ("name", "kind"), [("compute", "activity"), ("plan", "delegate"), ("wait", "activity"), ("http", "activity")]
)
def test_a_shipped_tool_is_sound(name: str, kind: str) -> None:
    tool, problems = read_tool(name, SHIPPED[name], served=name == "compute")
    assert not problems
    assert tool is not None
    assert tool.call_kind(tool.consts.get("_delegate")) == kind


def ask(**more: Any) -> dict[str, Any]:
    return {"_tool": "ask", "_outputPath": "†state.x", **more}


UNTIL = {"until": "†state.x"}
# the Call, what is wrong with it: code and place
INNER: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"plan": [ask(of="†input.a")], "input": {"a": "†input.o"}}, []),
    ({"plan": [ask(of="†input.a.b")], "input": "†input.o"}, []),
    ({"plan": [ask(of="†user.name")], "_scopes": ["user"]}, []),
    ({"plan": [ask(of="†input.previous.x || 0")], **UNTIL, "repeat": {"max": 3, "every": "5m"}}, []),
    ({"plan": [ask(of="†input.previous.x")], **UNTIL, "repeat": {"max": 3}}, [("unknownReference", "plan/0/of")]),
    ({"plan": [ask(of="†input.o")]}, [("unknownReference", "plan/0/of")]),
    ({"plan": [ask(of="†state.here")]}, [("unknownReference", "plan/0/of")]),
    ({"plan": [{"_tool": "aks"}]}, [("unknownTool", "plan/0/_tool")]),
    ({"plan": [{"_tool": "plan", "plan": [{"_tool": "aks"}]}]}, [("unknownTool", "plan/0/plan/0/_tool")]),
    ({"plan": [ask()], "until": "†state.y"}, [("unknownReference", "until")]),
    ({"plan": [ask()], "until": "†state.x >"}, [("invalidExpression", "until")]),
    ({"plan": [ask()], "repeat": {"max": 3}}, [("schemaMismatch", "repeat")]),
    ({"plan": [ask()], **UNTIL, "repeat": {"max": 0}}, [("schemaMismatch", "repeat/max")]),
    ({"plan": "†state.plan"}, [("schemaMismatch", "plan")]),  # what a tool returns is never walked
    ({"plan": "refund"}, []),
]


@pytest.mark.parametrize(("more", "wrong"), INNER, ids=str)
def test_a_plan_inside_another_is_checked_with_it(more: dict[str, Any], wrong: list[tuple[str, str]]) -> None:
    tool = {"type": "object", "properties": {"_tool": {"const": "ask"}, "_activity": "ask", "_outputPath": True}}
    data = [{"type": "input", "input": {"o": {}}}, {"type": "state", "state": {"here": 1}}]
    data.append({"type": "data", "kind": "user", "data": {"name": "Ada"}})
    plan = {"type": "plan", "plan": [{"_tool": "plan", "_outputPath": "†state.out", **more}]}
    context = [*({"type": "tool", "tool": schema} for schema in (SHIPPED["plan"], tool)), *data, plan]
    problems = [(p.code, p.pointer.removeprefix("/context/5/plan/0/")) for p in validate({"context": context})]
    assert problems == wrong


# parameters of ``wait`` at noon, when it ends; None: it fails
ENDS: list[tuple[dict[str, Any], str | None]] = [
    ({"for": "90m"}, "2026-01-01T01:30:00.000Z"),
    ({"for": 0.25}, "2026-01-01T00:00:00.250Z"),
    ({"until": "2026-01-01T09:00:00+02:00"}, "2026-01-01T07:00:00.000Z"),
    ({"until": "2025-01-01T00:00:00Z"}, "2026-01-01T00:00:00.000Z"),  # it is past: the Call ends at once
    ({"until": "2026-02-30T00:00:00Z"}, None),
    ({"until": "2046-01-01T00:00:00Z"}, None),
    ({"for": "9999d"}, None),
]


@pytest.mark.parametrize(("parameters", "end"), ENDS, ids=str)
def test_a_wait_ends_at_its_time(parameters: dict[str, Any], end: str | None) -> None:
    walk = waits([parameters])
    assert not [c for c in walk.begin(NOW) if isinstance(c, StartCall)]
    if end is None:
        assert walk.calls[0].error is not None
        assert walk.calls[0].error["code"] == "SchemaMismatch"
        return
    assert walk.calls[0].until == end
    walk.wake(end)
    assert walk.context.log.state() == {"due0": end}


def test_a_tool_of_ones_own_that_waits_needs_a_zone_too() -> None:
    with pytest.raises(ValueError, match="no zone"):
        date_of("2026-06-01T00:00:00")


def test_ten_thousand_waits_have_one_timer_and_take_no_permit() -> None:
    walk = waits([{"for": f"{1 + index % 500}s"} for index in range(10_000)])
    walk.begin(NOW)
    assert (walk.running, walk.counts["running"]) == (0, 10_000)
    ends = 0
    while (due := walk.next_wake) is not None:
        walk.wake(due.isoformat())
        ends += 1
    assert ends == 500
    assert walk.status == "completed"


def test_what_waits_without_a_path_holds_the_end_of_the_plan_alone() -> None:
    walk = waits([{"for": "1h", "_outputPath": None}])
    walk.begin(NOW)
    assert [(call.state, call.node.is_detached) for call in walk.calls] == [("running", False)]
    assert walk.next_wake is not None
    walk.wake(walk.next_wake.isoformat())
    assert walk.status == "completed"


def waits(parameters: list[dict[str, Any]]) -> Walk:
    calls = [{"_tool": "wait", "_outputPath": f"†state.due{at}", **more} for at, more in enumerate(parameters)]
    calls = [{key: value for key, value in call.items() if value is not None} for call in calls]
    context = [{"type": "tool", "tool": SHIPPED["wait"]}, {"type": "plan", "plan": calls}]
    return Walk(validate_request({"context": context}), identify)
