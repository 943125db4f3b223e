"""One instance of a batch on the command line, whichever run executes it, while it runs and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.cli.conftest import Acts, new_name, squeeze, wait_for_approvals

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
