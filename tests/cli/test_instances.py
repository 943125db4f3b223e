"""One instance of a batch on the command line, whichever run executes it; and messages to it that a run refuses."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.cli.conftest import ENGLISH, Acts, new_name, squeeze, start_waiting, wait_for_approvals

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
    for call in ("2:english", "3:english", "4:english", "5:english"):
        acts("approve", name, "--call", call)
    await client.get_workflow_handle(name).result()
    after = acts("show", name, "--instance", "c2").stdout
    assert f"✓ completed  {name} [c2]" in after
    assert "✓ 3:english completed †state.mine" in squeeze(after)
    assert " approved 3:english [c2] (version 1)" in after


def test_the_error_of_an_unknown_instance_lists_the_instances(acts: Acts, tmp_path: Path) -> None:
    name = new_name()
    assert acts("run", write_batch(tmp_path, SHARED), "--id", name).exit_code == 0
    done = acts("show", name, "--instance", "c11")
    assert done.exit_code == 2
    assert f'the run {name} has no instance "c11"' in done.stderr
    assert "it has: c1, c2, c3, c4" in done.stderr


def message(**more: Any) -> str:
    return json.dumps({"type": "state", "state": {"note": 1}, **more})


@pytest.mark.parametrize("plan", [SHARED, TEMPLATE], ids=["the run walks them", "children walk them"])
@pytest.mark.parametrize("key", ["_instance", "instance"])
async def test_a_message_for_an_unknown_instance_is_not_sent(
    acts: Acts, client: Client, tmp_path: Path, plan: list[Any], key: str
) -> None:
    name = await start_waiting(
        acts, client, write_batch(tmp_path, plan, approve={"calls": True}), 1 if plan is SHARED else 4
    )
    wrong = acts("provide", name, message(**{key: "c11"}))
    assert (wrong.exit_code, "has the message" in wrong.stderr) == (2, False)
    assert "unknown instance 'c11'; known: c1, c2, c3, c4" in wrong.stderr
    assert "notes" not in await client.get_workflow_handle(name).query("status")
    right = acts("provide", name, message(**{key: "c1"}))
    assert (right.exit_code, f"{name} has the message" in right.stderr) == (0, True)
    value = {"path": "†state.note", "instance": "c1"}
    assert (await client.get_workflow_handle(name).query("context", value))["value"] == 1
    await client.get_workflow_handle(name).cancel()


async def test_the_error_of_a_refused_message_is_the_runs_reason(acts: Acts, client: Client, tmp_path: Path) -> None:
    name = await start_waiting(acts, client, write_batch(tmp_path, SHARED, approve={"calls": True}), 1)
    onto_text = {"_instance": "c1", "_outputPath": "†state.name", "_outputMethod": "push", "state": {"name": 1}}
    for _ in range(2):
        wrong = acts("provide", name, message(**onto_text))
        assert wrong.exit_code == 2
        assert "the message:1: push of a number at †state.name" in wrong.stderr
    await client.get_workflow_handle(name).cancel()


def test_without_a_worker_a_message_is_sent_and_waits(
    acts: Acts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTS_TASK_QUEUE", f"nobody-{uuid.uuid4().hex[:8]}")
    monkeypatch.setattr("acts.client.run_reader.QUERY_TIMEOUT", timedelta(seconds=1))
    name = new_name()
    acts("run", write_batch(tmp_path, SHARED), "--detach", "--id", name)
    done = acts("provide", name, message(_instance="c11"))
    assert done.exit_code == 0
    assert "will get the message when a worker runs" in done.stderr
    acts("cancel", name)
