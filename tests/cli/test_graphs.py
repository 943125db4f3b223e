"""Graphs and diffs of runs: batches, their instances, delegates, and Tools that only the worker knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from cli.commands.diff import instance_run_id
from cli.text.preflight import EXAMPLES
from tests.cli.conftest import Acts, new_name, wait_for_approvals

APPROVED_BATCH = str(EXAMPLES / "moderation" / "approval.yaml")
WEATHER = str(EXAMPLES / "weather" / "plan.yaml")
LOAN = str(EXAMPLES / "loan" / "plan.yaml")
GREETINGS = str(EXAMPLES / "greetings" / "plan.yaml")
TEXTS = {"c1": "The tram is quiet.", "c2": "You are a liar.", "c3": "Where is the stop?", "c4": "A roof, please."}


@pytest.fixture(autouse=True)
def tools_of_the_worker_alone(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line loads no Tools of the worker; and room for long lines."""
    assert acts
    monkeypatch.delenv("ACTS_ACTIVITIES")
    monkeypatch.setenv("COLUMNS", "200")


def write_batch(folder: Path, **config: Any) -> str:
    """A file with four comments to moderate, one of them rude."""
    tools = [{"type": "tool", "tool": f"{name}Comment"} for name in ("screen", "publish", "remove")]
    calls = [
        {"_tool": "screenComment", "text": "†state.text"},
        {"_tool": "publishComment", "comment": "†state.clean"},
        {"_tool": "removeComment", "comment": "†state.rude"},
    ]
    comments = [{"type": "state", "_instance": i, "author": "Ada", "text": text} for i, text in TEXTS.items()]
    context = [*tools, {"type": "plan", "plan": calls}, *comments]
    (folder / "batch.json").write_text(json.dumps({"config": config, "context": context}), "utf-8")
    return "batch.json"


def run_file(acts: Acts, request_file: str) -> str:
    name = new_name()
    done = acts("run", request_file, "--id", name)
    assert done.exit_code == 0, done.stderr
    return name


# -- graphs ------------------------------------------------------------------------


def test_the_graph_of_a_batch_counts_its_instances(acts: Acts, tmp_path: Path) -> None:
    name = run_file(acts, write_batch(tmp_path))
    drawn = acts("graph", name)
    assert (drawn.exit_code, drawn.stderr) == (0, "")
    assert "3 calls in 2 waves, for each of 4 instances\n" in drawn.stdout
    assert "✓ 1:screenComment → †state.clean" in drawn.stdout
    assert "✓ 2:publishComment [3 completed, 1 skipped]" in drawn.stdout
    assert "✓ 3:removeComment [3 skipped, 1 completed]" in drawn.stdout
    assert "<br/>3 completed, 1 skipped" in acts("graph", name, "--mermaid").stdout
    one = acts("graph", f"{name}/c2").stdout
    assert "– 2:publishComment →" in one
    assert "✓ 3:removeComment →" in one


def test_a_child_of_several_instances_draws_each_call_once(acts: Acts, tmp_path: Path) -> None:
    name = run_file(acts, write_batch(tmp_path, instancesPerChild=3))
    drawn = acts("graph", f"{name}/c1").stdout
    assert "3 calls in 2 waves, for each of 3 instances\n" in drawn
    assert "✓ 2:publishComment [2 completed, 1 skipped]" in drawn
    boxes = acts("graph", f"{name}/c1", "--mermaid").stdout
    assert boxes.count('["1:screenComment') == 1
    assert "not drawn" not in boxes
    assert "  class c1,c2,c3 completed\n" in boxes


def test_the_plan_of_an_agents_tick_has_the_states_of_its_instances(acts: Acts) -> None:
    name = run_file(acts, GREETINGS)
    for run in (name, f"{name}/plan-1"):
        drawn = acts("graph", run).stdout
        assert [drawn.count(f"✓ {i}:translate @{i_}") for i, i_ in enumerate("①②③", 1)] == [1, 1, 1]
    below = acts("graph", f"{name}/plan-1/①/1:translate")
    assert below.exit_code == 2
    assert "this run has ended, and had no plan" in below.stderr


def test_the_graph_of_a_delegate_with_a_fixed_plan_is_that_of_the_run_that_executes_it(acts: Acts) -> None:
    turn = f"{run_file(acts, LOAN)}/plan-1/1:payMonth"
    drawn = acts("graph", turn)
    assert drawn.exit_code == 0
    assert f"its plan is executed by {turn}/plan" in drawn.stderr
    assert "✓ 2:payInstallment → †state.output" in drawn.stdout
    compared = acts("diff", turn)
    assert compared.exit_code == 0
    assert "the plan has not changed" in compared.stderr


def test_without_a_worker_the_plan_of_the_request_is_drawn(
    acts: Acts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, many = run_file(acts, WEATHER), run_file(acts, write_batch(tmp_path))

    async def no_answer(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr("cli.runs.run_reader.RunReader.query", no_answer)
    drawn = acts("graph", plain)
    assert "no worker answers; the plan that the run was started with:" in drawn.stderr
    assert "– 3:bookMuseum" in drawn.stdout
    refused = acts("graph", many)
    assert refused.exit_code == 2
    assert "needs the tools publishComment, removeComment, screenComment, which only the worker knows" in refused.stderr
    assert "set ACTS_ACTIVITIES" in refused.stderr


async def test_the_graph_counts_running_instances(acts: Acts, client: Client) -> None:
    name = new_name()
    acts("run", APPROVED_BATCH, "--detach", "--id", name)
    await wait_for_approvals(client, name, 2)
    drawn = acts("graph", name).stdout
    assert "▶ 3:removeComment [3 skipped, 2 open]" in drawn
    await client.get_workflow_handle(name).terminate(reason="the test is over")
    assert "2 open" in acts("graph", name).stdout


# -- edits -------------------------------------------------------------------------


def check_diff(acts: Acts, name: str) -> None:
    """A batch and its instance c4, in which a call was edited."""
    diff = acts("diff", name).stderr
    assert f"the plan of the instance c4 was edited: acts diff {name}/c4\n" in diff
    assert "instance c2" not in diff
    shown = acts("diff", f"{name}/c4")
    assert shown.exit_code == 0
    assert "-  comment: †state.rude\n" in shown.stdout
    assert "+    why: manners\n" in shown.stdout
    assert "the plan has not changed" in acts("diff", f"{name}/c2").stderr


async def test_an_edit_inside_an_instance_is_named_and_shown(
    acts: Acts, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_name()
    acts("run", APPROVED_BATCH, "--detach", "--id", name)
    await wait_for_approvals(client, name, 2)
    assert "was edited" not in acts("diff", name).stderr
    call = {"_tool": "removeComment", "comment": {"text": "hello", "why": "manners"}}
    (tmp_path / "call.json").write_text(json.dumps(call), "utf-8")
    edited = acts("edit", name, "--instance", "c4", "--call", "3:removeComment", "--file", "call.json", "--yes")
    assert edited.exit_code == 0, edited.stderr
    check_diff(acts, name)

    async def no_approvals(_: Any) -> list[Any]:
        return []

    with monkeypatch.context() as patch:  # as after the approval, while the call still runs
        patch.setattr("cli.runs.run_reader.RunReader.pending", no_approvals)
        check_diff(acts, name)
    for run in ("c2", "c4"):
        assert acts("approve", name, "--workflow-id", f"{name}/{run}").exit_code == 0
    await client.get_workflow_handle(name).result()
    check_diff(acts, name)


def test_the_id_of_an_agents_instance_has_the_tick() -> None:
    record = {"decision": "edit", "call": "1:a", "instance": "c4", "version": 1}
    assert instance_run_id("run", record) == "run/c4"
    assert instance_run_id("run", {**record, "tick": 2}) == "run/plan-2/c4"
