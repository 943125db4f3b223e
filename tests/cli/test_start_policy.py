"""``acts run --id X``: what happens where a run of that id runs, or has ended; and starts that wait."""

from __future__ import annotations

import json
from pathlib import Path

from temporalio.client import Client

from tests.cli.conftest import Acts, new_name, wait_for_approvals

LINEAR = str(Path(__file__).parents[2] / "examples" / "linear" / "plan.yaml")


async def run_id(client: Client, name: str) -> str:
    return str((await client.get_workflow_handle(name).describe()).run_id)


def waiting_plan(folder: Path) -> str:
    file = folder / "plan.json"
    tool = {"type": "object", "properties": {"_tool": {"const": "say"}, "_activity": {"const": "x"}}}
    plan = [{"type": "tool", "tool": tool}, {"type": "plan", "plan": [{"_tool": "say"}]}]
    file.write_text(json.dumps({"config": {"approve": {"plan": True}}, "context": plan}), "utf-8")
    return str(file)


async def test_a_start_is_repeated_without_a_second_run(acts: Acts, client: Client, tmp_path: Path) -> None:
    name, file = new_name(), waiting_plan(tmp_path)
    assert acts("run", "--detach", "--id", name, file).exit_code == 0
    await wait_for_approvals(client, name)
    first = await run_id(client, name)
    refused = acts("run", "--detach", "--id", name, file)
    assert refused.exit_code == 2
    assert "is still running" in refused.stderr
    assert "--if-running use-existing" in refused.stderr
    same = acts("run", "--detach", "--id", name, "--if-running", "use-existing", file)
    assert (same.exit_code, same.stdout) == (0, f"{name}\n")
    assert "no other one is started" in same.stderr
    assert await run_id(client, name) == first
    anew = acts("run", "--detach", "--id", name, "--if-running", "terminate", file)
    assert anew.exit_code == 0
    assert await run_id(client, name) != first
    await client.get_workflow_handle(name).terminate()


async def test_a_run_that_has_ended_is_used_again_where_the_start_says_so(acts: Acts, client: Client) -> None:
    name = new_name()
    assert acts("run", "--json", "--id", name, LINEAR).exit_code == 0
    first = await run_id(client, name)
    again = acts("run", "--json", "--id", name, "--if-ended", "use-existing", LINEAR)
    assert again.exit_code == 0
    assert json.loads(again.stdout)["status"] == "completed"
    assert await run_id(client, name) == first
    for word in ("fail", "again-if-failed"):
        refused = acts("run", "--id", name, "--if-ended", word, LINEAR)
        assert refused.exit_code == 2
        assert "has ended" in refused.stderr
    assert acts("run", "--id", name, LINEAR).exit_code == 0
    assert await run_id(client, name) != first


async def test_a_start_can_wait(acts: Acts, client: Client) -> None:
    name = new_name()
    assert acts("run", "--detach", "--id", name, "--delay", "2h", LINEAR).exit_code == 0
    handle = client.get_workflow_handle(name)
    (start, *rest) = [event async for event in handle.fetch_history_events()]
    assert rest == []  # no workflow task yet
    assert start.workflow_execution_started_event_attributes.first_workflow_task_backoff.ToSeconds() == 7_200
    await handle.terminate()
