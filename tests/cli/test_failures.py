"""What failed in a run, told in full: by ``acts run`` as by ``acts show``."""

from __future__ import annotations

import io
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from temporalio.client import Client, WorkflowFailureError

from cli.render.tables import MAX_FAILURES, failure_blocks, instances_table
from cli.runs.run_outcome import Outcome
from cli.text.preflight import EXAMPLES
from tests.cli.conftest import Acts

RULES: list[dict[str, Any]] = [
    {"type": "tool", "tool": "screenComment"},
    {"type": "plan", "plan": [{"_tool": "screenComment", "text": "†state.text"}]},
]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for every line of a table, whoever runs the tests."""
    monkeypatch.setenv("COLUMNS", "250")


def test_the_request_of_an_instance_that_is_refused_is_told_whole(acts: Acts, tmp_path: Path) -> None:
    batch = [
        *RULES, {"type": "state", "_instance": "a", "text": "A fine tram."},
        {"type": "state", "_instance": "b", "txt": "A fine bus."},
    ]  # fmt: skip
    (tmp_path / "batch.json").write_text(json.dumps({"context": batch}), "utf-8")
    name = f"cli-{uuid.uuid4().hex[:8]}"
    done = acts("run", "batch.json", "--id", name)
    assert done.exit_code == 1
    for told in (done, acts("show", name)):
        assert "None" not in told.stdout + told.stderr
        assert "error: instance b: the request has 1 problem:" in told.stderr
        assert "\n  - [unknownReference] " in told.stderr
        assert "†state.text" in told.stderr
        assert "✗  b         failed     the request has 1 problem" in told.stdout


def test_a_failure_is_told_with_its_advice(acts: Acts, tmp_path: Path) -> None:
    long = "Atlantis" + "!" * 300
    done = acts("run", str(EXAMPLES / "weather" / "plan.yaml"), "-i", f"city={long}", "--id", f"cli-{uuid.uuid4()}")
    assert done.exit_code == 1
    (block,) = [text for text in done.stderr.split("error: ") if "[unknown_city]" in text]
    assert block.startswith("call 1:askWeather: ")
    assert long in block


def delegating(folder: Path, **written: str) -> str:
    """A plan whose one Call goes to a delegate that is not there."""
    tool = {"properties": {"_delegate": {"const": "summarise"}, "_outputPath": {"type": "string"}}}
    context = [{"type": "tool", "tool": {"brief": tool}}, {"type": "plan", "plan": [{"_tool": "brief", **written}]}]
    (folder / "brief.json").write_text(json.dumps({"context": context}), "utf-8")
    return "brief.json"


def test_a_delegate_that_is_not_there_is_told_with_the_one_that_was_meant(acts: Acts, tmp_path: Path) -> None:
    done = acts("run", delegating(tmp_path, _outputPath="†state.brief"))
    assert done.exit_code == 1
    assert 'did you mean "summarize"? there are: ' in done.stdout
    assert "call 1:brief: there is no delegate 'summarise': did you mean \"summarize\"? there are: " in done.stderr
    assert "; looked for summarise.json in " in done.stderr


async def test_of_a_run_that_nobody_waited_for_the_reason_is_told(acts: Acts, client: Client, tmp_path: Path) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    assert acts("run", delegating(tmp_path), "--id", name).exit_code == 0
    with pytest.raises(WorkflowFailureError):
        await client.get_workflow_handle(f"{name}/1:brief").result()
    shown = acts("show", f"{name}/1:brief").stdout
    assert "DelegateNotFound: there is no delegate 'summarise': did you mean" in shown
    assert "Child Workflow execution failed" not in shown


def test_an_error_of_a_whole_instance_has_no_call() -> None:
    errors = [
        {"call": None, "code": "InvalidRequest", "message": "the request has 1 problem:\n- x", "instance": "b"},
        {"call": "1:pay", "code": "broke", "message": "no money", "instance": "c"},
        {"call": "2:pay", "code": "broke", "message": "no money"}, {"code": "odd", "message": "said of nothing"},
        {"call": "3:pay", "code": "broke", "message": "errors reported to the model", "tick": 1},
    ]  # fmt: skip
    found = [(b.where, b.head) for b in failure_blocks(Outcome("partial", {"errors": errors}))]
    assert found == [
        ("instance b", "the request has 1 problem:\n- x [InvalidRequest]"),
        ("call 1:pay of instance c", "no money [broke]"), ("call 2:pay", "no money [broke]"),
    ]  # fmt: skip
    screen = Console(file=io.StringIO(), width=120)
    screen.print(instances_table({"b": {"status": "failed", "errors": errors[:2]}}))
    assert "the request has 1 problem: - x; 1:pay: no money" in screen.file.getvalue()  # type: ignore[attr-defined]


def test_of_very_many_failures_the_first_are_told_and_the_others_counted() -> None:
    errors = [{"call": f"{n}:x", "code": "c", "message": "m"} for n in range(MAX_FAILURES + 3)]
    found = failure_blocks(Outcome("failed", {"errors": errors}))
    assert (len(found), found[-1].head) == (MAX_FAILURES + 1, "… and 3 more failures; --json has all")
    assert len(failure_blocks(Outcome("failed", {"errors": errors[:MAX_FAILURES]}))) == MAX_FAILURES
