"""Messages that a run does not take are refused where they are sent."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.cli.conftest import Acts
from tests.cli.test_instances import SHARED, TEMPLATE, file, waiting


def message(**more: Any) -> str:
    return json.dumps({"type": "state", "state": {"note": 1}, **more})


@pytest.mark.parametrize("plan", [SHARED, TEMPLATE], ids=["the run walks them", "children walk them"])
@pytest.mark.parametrize("key", ["_instance", "instance"])
async def test_a_message_for_an_instance_that_is_not_there_is_not_sent(
    acts: Acts, client: Client, tmp_path: Path, plan: list[Any], key: str
) -> None:
    name = await waiting(acts, client, file(tmp_path, plan, approve={"calls": True}), 1 if plan is SHARED else 4)
    wrong = acts("provide", name, message(**{key: "c11"}))
    assert (wrong.exit_code, "has the message" in wrong.stderr) == (2, False)
    assert f'the run {name} has no instance "c11"' in wrong.stderr
    assert "did you mean c1? it has: c1, c2, c3, c4" in wrong.stderr
    assert "notes" not in await client.get_workflow_handle(name).query("status")
    right = acts("provide", name, message(**{key: "c1"}))
    assert (right.exit_code, f"{name} has the message" in right.stderr) == (0, True)
    value = {"path": "†state.note", "instance": "c1"}
    assert (await client.get_workflow_handle(name).query("context", value))["value"] == 1
    await client.get_workflow_handle(name).cancel()


async def test_a_message_that_the_run_refuses_ends_with_its_words(acts: Acts, client: Client, tmp_path: Path) -> None:
    name = await waiting(acts, client, file(tmp_path, SHARED, approve={"calls": True}), 1)
    onto_text = {"_instance": "c1", "_outputPath": "†state.name", "_outputMethod": "push", "state": {"name": 1}}
    for _ in range(2):
        wrong = acts("provide", name, message(**onto_text))
        assert wrong.exit_code == 2
        assert f"{name} refused the message: " in wrong.stderr
        assert f"acts show {name}" in wrong.stderr
    await client.get_workflow_handle(name).cancel()


def test_where_no_worker_answers_a_message_waits(acts: Acts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_TASK_QUEUE", f"nobody-{uuid.uuid4().hex[:8]}")
    name = f"cli-{uuid.uuid4().hex[:8]}"
    acts("run", file(tmp_path, SHARED), "--detach", "--id", name)
    done = acts("provide", name, message(_instance="c11"))
    assert done.exit_code == 0
    assert "will get the message when a worker runs" in done.stderr
    acts("cancel", name)
