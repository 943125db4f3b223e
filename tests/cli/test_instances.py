"""One instance of a batch, looked at from the command line: whoever walks it, and whether it goes on or is over."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.cli.conftest import Acts
from tests.cli.test_decide import squeezed, waits
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
# A global Call writes what those of instances read: no child can walk them
SHARED = [
    {"_tool": "english", "language": "en", "_outputPath": "†state.shared"},
    *({"_tool": "english", "_instance": n, "language": "en", "note": "†state.shared", "_outputPath": "†state.mine"}
      for n in NAMES),
]  # fmt: skip


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for every line of a table, whoever runs the tests."""
    monkeypatch.setenv("COLUMNS", "250")


def file(folder: Path, plan: list[Any], **config: Any) -> str:
    context = [
        {"type": "tool", "tool": {"english": ENGLISH}}, {"type": "plan", "plan": plan},
        *({"type": "state", "_instance": n, "name": n, "language": "en"} for n in NAMES),
    ]  # fmt: skip
    (folder / "batch.json").write_text(json.dumps({"config": config, "context": context}), "utf-8")
    return "batch.json"


def new_name() -> str:
    return f"cli-{uuid.uuid4().hex[:8]}"


async def waiting(acts: Acts, client: Client, given: str, count: int) -> str:
    name = new_name()
    begun = acts("run", given, "--detach", "--id", name)
    assert begun.exit_code == 0, begun.stderr
    await waits(client, name, count)
    return name


async def all_waiting(client: Client, run: str, call: str) -> list[Any]:
    """The waits of a Call, once it waits in every instance."""

    async def look() -> list[Any]:
        found = [w for w in await client.get_workflow_handle(run).query("pending") if w["call"] == call]
        return found if len(found) == len(NAMES) else []

    found: list[Any] = await assert_eventually(look, why=f"{call} waits in every instance")
    return found


async def test_an_instance_that_the_run_itself_walks_is_shown_while_it_goes_on_and_after(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    name = await waiting(acts, client, file(tmp_path, SHARED, approve={"calls": True}), 1)
    acts("approve", name)
    await waits(client, name, 4)
    shown = acts("show", name, "--instance", "c2").stdout
    assert f"{name} [c2]" in shown
    assert "⏸ 3:english awaiting" in squeezed(shown)
    assert "2:english" not in shown
    assert '"name": "c2"' in shown
    assert f"acts approve {name} --call 3:english" in shown
    there = acts("show", f"{name}/c1")
    assert there.exit_code == 2
    assert f'there is no run "{name}/c1"' in there.stderr
    assert f"that is an instance: acts show {name} --instance c1" in there.stderr
    for call in ("2:english", "3:english", "4:english", "5:english"):
        acts("approve", name, "--call", call)
    await client.get_workflow_handle(name).result()
    over = acts("show", name, "--instance", "c2").stdout
    assert f"✓ completed  {name} [c2]" in over
    assert "✓ 3:english completed †state.mine" in squeezed(over)
    assert " approved 3:english [c2] (version 1)" in over
    assert f"acts show {name} --instance c1" in acts("show", f"{name}/c1").stderr


async def test_an_instance_that_shares_a_child_is_shown_while_it_goes_on_and_after(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    given = file(tmp_path, TEMPLATE, approve={"calls": True}, instancesPerChild=3)
    name = await waiting(acts, client, given, 4)
    shown = acts("show", name, "--instance", "c3").stdout
    assert f"{name} [c3]  in {name}/c1" in shown
    assert "⏸ 1:english awaiting" in squeezed(shown)
    assert (shown.count("acts approve"), shown.count("acts edit")) == (1, 0)
    assert squeezed(acts("show", name).stdout).count("acts edit") == 1  # c4 has a child of its own
    assert '"name": "c3"' in shown
    assert f"acts show {name} --instance c2" in acts("show", f"{name}/c2").stderr
    found = json.loads(acts("show", name, "--instance", "c2", "--json").stdout)
    assert (found["id"], found["instance"]["id"], found["instance"]["run"]) == (name, "c2", f"{name}/c1")
    assert [c["state"] for c in found["instance"]["calls"]] == ["awaiting", "pending"]

    for call in ("1:english", "2:english"):
        for wait in await all_waiting(client, name, call):
            decided = acts(
                "approve", name, "-c", call, "--instance", wait["instance"], "--workflow-id", wait["workflowId"]
            )
            assert decided.exit_code == 0, decided.stderr
    await client.get_workflow_handle(name).result()
    assert acts("show", f"{name}/c1").stdout.count("acts show") == 1
    for run in (name, f"{name}/c1"):
        over = squeezed(acts("show", run, "--instance", "c2").stdout)
        assert f"✓ completed {run} [c2]" in over
        assert "✓ 2:english completed †state.last" in over
        assert '"last": false' in over
    assert f"one of them: acts show {name} --instance c1" in acts("show", name).stdout


async def test_an_instance_with_a_child_of_its_own_is_shown_by_its_batch(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    name = await waiting(acts, client, file(tmp_path, TEMPLATE, approve={"calls": True}, maxParallel=2), 2)
    acts("approve", name, "--instance", "c1", "--workflow-id", f"{name}/c1", "--call", "1:english")
    assert f"{name} [c2]  in {name}/c2" in acts("show", name, "--instance", "c2").stdout
    later = acts("show", name, "--instance", "c4")
    assert f"ready  {name} [c4]" in later.stdout
    await client.get_workflow_handle(name).cancel()


def test_an_instance_that_is_not_there_is_refused_with_those_that_are(acts: Acts, tmp_path: Path) -> None:
    name = new_name()
    assert acts("run", file(tmp_path, SHARED), "--id", name).exit_code == 0
    done = acts("show", name, "--instance", "c11")
    assert done.exit_code == 2
    assert f'the run {name} has no instance "c11"' in done.stderr
    assert "did you mean c1? it has: c1, c2, c3, c4" in done.stderr
    nothing = acts("show", f"{name}/x")
    assert (nothing.exit_code, "that is an instance" in nothing.stderr) == (2, False)


async def test_of_a_batch_that_was_cancelled_the_instances_are_shown(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    given = file(tmp_path, TEMPLATE, approve={"calls": True})
    name = await waiting(acts, client, given, 4)
    assert acts("cancel", name).exit_code == 0

    async def look() -> bool:
        return (await client.get_workflow_handle(name).describe()).close_time is not None

    await assert_eventually(look, why="the batch is over")
    shown = squeezed(acts("show", name).stdout)
    assert "⊘ cancelled" in shown
    for instance in NAMES:
        assert f"⊘ {instance} cancelled" in shown
    one = squeezed(acts("show", name, "--instance", "c2").stdout)
    assert f"⊘ cancelled {name} [c2]" in one
    assert "⊘ 1:english cancelled" in one


async def test_an_instance_of_an_agents_plan_is_shown_by_the_agent(
    acts: Acts, worker: dict[str, str], client: Client, tmp_path: Path
) -> None:
    script = f"script-{uuid.uuid4().hex[:8]}"
    answers = [{"when": {"tick": 1}, "solution": {"calls": TEMPLATE}}, {"when": {"tick": 2}, "solution": {"output": 1}}]
    (Path(worker["ACTS_SCRIPTS"]) / f"{script}.json").write_text(json.dumps({"answers": answers}), "utf-8")
    given = file(tmp_path, [], model=f"scripted:{script}", approve={"calls": True}, instancesPerChild=2)
    name = await waiting(acts, client, given, 4)
    assert f"{name} [c2]  in {name}/plan-1/c1" in acts("show", name, "--instance", "c2").stdout
    assert f"acts show {name}/plan-1 --instance c2" in acts("show", f"{name}/plan-1/c2").stderr
    for call in ("1:english", "2:english"):
        for wait in await all_waiting(client, name, call):
            acts("approve", name, "-c", call, "--instance", wait["instance"], "--workflow-id", wait["workflowId"])
    await client.get_workflow_handle(name).result()
    for run in (name, f"{name}/plan-1"):
        over = acts("show", run, "--instance", "c2").stdout
        assert f"✓ completed  {run} [c2]" in over
        assert '"last": false' in over
