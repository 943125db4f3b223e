"""One instance of a batch on the command line, whichever run executes it, while it runs and after."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.cli.conftest import Acts, new_name, squeeze, wait_for_approvals
from tests.support import assert_eventually

ENGLISH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "_activity": {"const": "isEnglish"}, "_outputPath": {"type": "string"}, "language": {"type": "string"},
        "note": {},
    },
}  # fmt: skip
NAMES = ("c1", "c2", "c3", "c4")
TEMPLATE = [
    {"_tool": "english", "language": "†state.language", "_outputPath": "†state.english"},
    {"_tool": "english", "language": "fr", "note": "†state.english", "_outputPath": "†state.last"},
]
# A global Call writes what those of instances read: no child can execute them
SHARED = [
    {"_tool": "english", "language": "en", "_outputPath": "†state.shared"},
    *({"_tool": "english", "_instance": n, "language": "en", "note": "†state.shared", "_outputPath": "†state.mine"}
      for n in NAMES),
]  # fmt: skip

pytestmark = pytest.mark.usefixtures("wide_terminal")


def write_batch(folder: Path, plan: list[Any], **config: Any) -> str:
    context = [
        {"type": "tool", "tool": {"english": ENGLISH}}, {"type": "plan", "plan": plan},
        *({"type": "state", "_instance": n, "name": n, "language": "en"} for n in NAMES),
    ]  # fmt: skip
    (folder / "batch.json").write_text(json.dumps({"config": config, "context": context}), "utf-8")
    return "batch.json"


async def start_waiting(acts: Acts, client: Client, request_file: str, count: int) -> str:
    name = new_name()
    detached = acts("run", request_file, "--detach", "--id", name)
    assert detached.exit_code == 0, detached.stderr
    await wait_for_approvals(client, name, count)
    return name


async def wait_in_all_instances(client: Client, run: str, call: str) -> list[Any]:
    """The approvals of a Call, once it waits in every instance."""

    async def look() -> list[Any]:
        answer = [w for w in await client.get_workflow_handle(run).query("pending") if w["call"] == call]
        return answer if len(answer) == len(NAMES) else []

    answer: list[Any] = await assert_eventually(look, why=f"{call} waits in every instance")
    return answer


async def test_an_instance_that_the_run_itself_executes_is_shown_while_it_runs_and_after(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    name = await start_waiting(acts, client, write_batch(tmp_path, SHARED, approve={"calls": True}), 1)
    acts("approve", name)
    await wait_for_approvals(client, name, 4)
    shown = acts("show", name, "--instance", "c2").stdout
    assert f"{name} [c2]" in shown
    assert "⏸ 3:english awaiting" in squeeze(shown)
    assert "2:english" not in shown
    assert '"name": "c2"' in shown
    assert f"acts approve {name} --call 3:english" in shown
    missing = acts("show", f"{name}/c1")
    assert missing.exit_code == 2
    assert f'there is no run "{name}/c1"' in missing.stderr
    assert f"that is an instance: acts show {name} --instance c1" in missing.stderr
    for call in ("2:english", "3:english", "4:english", "5:english"):
        acts("approve", name, "--call", call)
    await client.get_workflow_handle(name).result()
    after = acts("show", name, "--instance", "c2").stdout
    assert f"✓ completed  {name} [c2]" in after
    assert "✓ 3:english completed †state.mine" in squeeze(after)
    assert " approved 3:english [c2] (version 1)" in after
    assert f"acts show {name} --instance c1" in acts("show", f"{name}/c1").stderr


async def test_an_instance_in_a_shared_child_is_shown_while_it_runs_and_after(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    request_file = write_batch(tmp_path, TEMPLATE, approve={"calls": True}, instancesPerChild=3)
    name = await start_waiting(acts, client, request_file, 4)
    shown = acts("show", name, "--instance", "c3").stdout
    assert f"{name} [c3]  in {name}/c1" in shown
    assert "⏸ 1:english awaiting" in squeeze(shown)
    assert (shown.count("acts approve"), shown.count("acts edit")) == (1, 0)
    assert squeeze(acts("show", name).stdout).count("acts edit") == 1  # c4 has a child of its own
    assert '"name": "c3"' in shown
    assert f"acts show {name} --instance c2" in acts("show", f"{name}/c2").stderr
    answer = json.loads(acts("show", name, "--instance", "c2", "--json").stdout)
    assert (answer["id"], answer["instance"]["id"], answer["instance"]["run"]) == (name, "c2", f"{name}/c1")
    assert [c["state"] for c in answer["instance"]["calls"]] == ["awaiting", "pending"]

    for call in ("1:english", "2:english"):
        for wait in await wait_in_all_instances(client, name, call):
            decided = acts(
                "approve", name, "-c", call, "--instance", wait["instance"], "--workflow-id", wait["workflowId"]
            )
            assert decided.exit_code == 0, decided.stderr
    await client.get_workflow_handle(name).result()
    assert acts("show", f"{name}/c1").stdout.count("acts show") == 1
    for run in (name, f"{name}/c1"):
        after = squeeze(acts("show", run, "--instance", "c2").stdout)
        assert f"✓ completed {run} [c2]" in after
        assert "✓ 2:english completed †state.last" in after
        assert '"last": false' in after
    assert f"one of them: acts show {name} --instance c1" in acts("show", name).stdout


async def test_an_instance_with_a_child_of_its_own_is_shown_by_the_batch(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    name = await start_waiting(acts, client, write_batch(tmp_path, TEMPLATE, approve={"calls": True}, maxParallel=2), 2)
    acts("approve", name, "--instance", "c1", "--workflow-id", f"{name}/c1", "--call", "1:english")
    assert f"{name} [c2]  in {name}/c2" in acts("show", name, "--instance", "c2").stdout
    later = acts("show", name, "--instance", "c4")
    assert f"ready  {name} [c4]" in later.stdout
    await client.get_workflow_handle(name).cancel()


def test_the_error_of_an_unknown_instance_lists_the_instances(acts: Acts, tmp_path: Path) -> None:
    name = new_name()
    assert acts("run", write_batch(tmp_path, SHARED), "--id", name).exit_code == 0
    done = acts("show", name, "--instance", "c11")
    assert done.exit_code == 2
    assert f'the run {name} has no instance "c11"' in done.stderr
    assert "did you mean c1? it has: c1, c2, c3, c4" in done.stderr
    nothing = acts("show", f"{name}/x")
    assert (nothing.exit_code, "that is an instance" in nothing.stderr) == (2, False)


async def test_the_instances_of_a_cancelled_batch_are_shown(acts: Acts, client: Client, tmp_path: Path) -> None:
    request_file = write_batch(tmp_path, TEMPLATE, approve={"calls": True})
    name = await start_waiting(acts, client, request_file, 4)
    assert acts("cancel", name).exit_code == 0

    async def look() -> bool:
        return (await client.get_workflow_handle(name).describe()).close_time is not None

    await assert_eventually(look, why="the batch is over")
    shown = squeeze(acts("show", name).stdout)
    assert "⊘ cancelled" in shown
    for instance in NAMES:
        assert f"⊘ {instance} cancelled" in shown
    one = squeeze(acts("show", name, "--instance", "c2").stdout)
    assert f"⊘ cancelled {name} [c2]" in one
    assert "⊘ 1:english cancelled" in one


async def test_an_instance_of_an_agents_plan_is_shown_by_the_agent(
    acts: Acts, worker: dict[str, str], client: Client, tmp_path: Path
) -> None:
    script = f"script-{uuid.uuid4().hex[:8]}"
    answers = [{"when": {"tick": 1}, "solution": {"calls": TEMPLATE}}, {"when": {"tick": 2}, "solution": {"output": 1}}]
    (Path(worker["ACTS_SCRIPTS"]) / f"{script}.json").write_text(json.dumps({"answers": answers}), "utf-8")
    request_file = write_batch(tmp_path, [], model=f"scripted:{script}", approve={"calls": True}, instancesPerChild=2)
    name = await start_waiting(acts, client, request_file, 4)
    assert f"{name} [c2]  in {name}/plan-1/c1" in acts("show", name, "--instance", "c2").stdout
    assert f"acts show {name}/plan-1 --instance c2" in acts("show", f"{name}/plan-1/c2").stderr
    for call in ("1:english", "2:english"):
        for wait in await wait_in_all_instances(client, name, call):
            acts("approve", name, "-c", call, "--instance", wait["instance"], "--workflow-id", wait["workflowId"])
    await client.get_workflow_handle(name).result()
    for run in (name, f"{name}/plan-1"):
        after = acts("show", run, "--instance", "c2").stdout
        assert f"✓ completed  {run} [c2]" in after
        assert '"last": false' in after
