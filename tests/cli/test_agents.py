"""Agents on the command line: what is started, what each tick shows, how the run ends."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from acts.cli.text.preflight import EXAMPLES
from acts.language.wire import STATUS
from tests.cli.conftest import Acts, new_name, squeeze
from tests.support import assert_eventually

REPLAN = str(EXAMPLES / "replan" / "plan.yaml")

GREET = {
    "type": "object",
    "properties": {"_activity": {"const": "isEnglish"}, "_outputPath": {"type": "string"}, "language": {}},
    "required": ["language"],
}
CALL = {"_tool": "greet", "language": "†input.language", "_outputPath": "†state.english"}

pytestmark = pytest.mark.usefixtures("wide_terminal")


def script(worker: dict[str, str], *answers: dict[str, Any]) -> str:
    """A model that gives these answers to the ticks 1, 2, …"""
    name = f"script-{uuid.uuid4().hex[:8]}"
    listed = [{"when": {"tick": i}, **answer} for i, answer in enumerate(answers, 1)]
    (Path(worker["ACTS_SCRIPTS"]) / f"{name}.json").write_text(json.dumps({"answers": listed}))
    return f"scripted:{name}"


def task(folder: Path, model: str, **config: Any) -> str:
    """A file with a task for an agent."""
    request = {"config": {"model": model, **config}, "context": [{"type": "tool", "tool": {"greet": GREET}}]}
    (folder / "task.json").write_text(json.dumps(request))
    return "task.json"


def test_a_file_without_calls_is_run_as_an_agent_and_shown_tick_by_tick(acts: Acts) -> None:
    done = acts("run", REPLAN)
    assert done.exit_code == 0, done.stderr
    assert "starting an Agent (no calls are given: scripted:replan/script plans them)" in done.stderr
    shown = squeeze(done.stdout)
    assert re.search(r"✓ completed replan-\w+ Agent [\d.]+ s 2 ticks", shown)
    assert "1 ✓ 1:processPayment completed †state.error card_declined: Your card was declined." in shown
    assert "\n – 2:confirmOrder skipped" in shown
    assert "\n2 ✓ 1:reportFailure completed †state.apology" in shown
    assert 'output\n{\n "status": "Failed"\n}' in shown
    assert re.search(r"usage 2 requests, [\d,]+ tokens in, \d+ out", shown)


async def test_a_running_agent_is_shown_with_the_live_calls_of_its_tick(
    acts: Acts, worker: dict[str, str], client: Client, tmp_path: Path
) -> None:
    name = new_name()
    model = script(worker, {"solution": {"calls": [CALL], "output": "†state.english"}})
    file = task(tmp_path, model, missing="wait")
    detached = acts("run", file, "--detach", "--id", name)
    assert (detached.exit_code, detached.stdout) == (0, f"{name}\n")

    async def is_awaiting() -> bool:
        try:
            answer = await client.get_workflow_handle(f"{name}/plan-1").query(STATUS)
        except RPCError:  # not started yet
            return False
        return bool(answer["calls"] and answer["calls"][0]["state"] == "awaiting")

    await assert_eventually(is_awaiting, why="the call of the first tick waits")
    shown = squeeze(acts("show", name).stdout)
    assert f"{name} Agent tick 1" in shown
    assert "1 ⏸ 1:greet awaiting waits for †input.language" in shown
    assert "usage 1 request, " in shown
    assert f"acts provide {name}" in shown
    (call,) = json.loads(acts("show", name, "--json").stdout)["progress"]["calls"]
    assert (call["id"], call["tick"], call["state"]) == ("1:greet", 1, "awaiting")
    drawn = acts("graph", name)
    assert "this run plans as it goes" in drawn.stderr
    assert "1:greet" in drawn.stdout

    acts("provide", name, json.dumps({"type": "input", "input": {"language": "en"}}))

    async def has_ended() -> bool:
        return (await client.get_workflow_handle(name).describe()).close_time is not None

    await assert_eventually(has_ended, why="the agent is over")
    answer = json.loads(acts("show", name, "--json").stdout)
    assert (answer["result"]["output"], answer["result"]["ticks"]) == (True, 1)
    child = acts("show", f"{name}/plan-1")
    assert "✓ completed" in child.stdout
    assert "✓ 1:greet" in acts("graph", f"{name}/plan-1").stdout
