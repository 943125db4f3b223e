"""Failures of a run, printed in full by ``acts run`` and ``acts show``."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from temporalio.client import Client, WorkflowFailureError

from cli.render.tables import MAX_FAILURES, failure_blocks, instances_table, print_outcome
from cli.runs.run_outcome import Outcome
from cli.text.preflight import EXAMPLES
from tests.cli.conftest import Acts, new_name

RULES: list[dict[str, Any]] = [
    {"type": "tool", "tool": "screenComment"},
    {"type": "plan", "plan": [{"_tool": "screenComment", "text": "†state.text"}]},
]

pytestmark = pytest.mark.usefixtures("wide_terminal")


def test_the_problems_of_an_instances_request_are_printed_in_full(acts: Acts, tmp_path: Path) -> None:
    batch = [
        *RULES, {"type": "state", "_instance": "a", "text": "A fine tram."},
        {"type": "state", "_instance": "b", "txt": "A fine bus."},
    ]  # fmt: skip
    (tmp_path / "batch.json").write_text(json.dumps({"context": batch}), "utf-8")
    name = new_name()
    done = acts("run", "batch.json", "--id", name)
    assert done.exit_code == 1
    for output in (done, acts("show", name)):
        assert "None" not in output.stdout + output.stderr
        assert "error: instance b: the request has 1 problem:" in output.stderr
        assert "\n  - [unknownReference] " in output.stderr
        assert "†state.text" in output.stderr
        assert "✗  b         failed     the request has 1 problem" in output.stdout


def test_a_failure_is_printed_in_full(acts: Acts, tmp_path: Path) -> None:
    long = "Atlantis" + "!" * 300
    done = acts("run", str(EXAMPLES / "weather" / "plan.yaml"), "-i", f"city={long}", "--id", new_name())
    assert done.exit_code == 1
    (block,) = [text for text in done.stderr.split("error: ") if "[unknown_city]" in text]
    assert block.startswith("call 1:askWeather: ")
    assert long in block


def delegating(folder: Path, **written: str) -> str:
    """A plan whose one Call goes to a missing delegate."""
    tool = {"properties": {"_delegate": {"const": "summarise"}, "_outputPath": {"type": "string"}}}
    context = [{"type": "tool", "tool": {"brief": tool}}, {"type": "plan", "plan": [{"_tool": "brief", **written}]}]
    (folder / "brief.json").write_text(json.dumps({"context": context}), "utf-8")
    return "brief.json"


def test_the_error_of_a_missing_delegate_suggests_a_similar_name(acts: Acts, tmp_path: Path) -> None:
    done = acts("run", delegating(tmp_path, _outputPath="†state.brief"))
    assert done.exit_code == 1
    assert 'did you mean "summarize"? there are: ' in done.stdout
    assert "call 1:brief: there is no delegate 'summarise': did you mean \"summarize\"? there are: " in done.stderr
    assert "; looked for summarise.json in " in done.stderr


async def test_the_failure_of_a_detached_run_has_its_reason(acts: Acts, client: Client, tmp_path: Path) -> None:
    name = new_name()
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
    blocks = [(b.where, b.head) for b in failure_blocks(Outcome("partial", {"errors": errors}))]
    assert blocks == [
        ("instance b", "the request has 1 problem:\n- x [InvalidRequest]"),
        ("call 1:pay of instance c", "no money [broke]"), ("call 2:pay", "no money [broke]"),
    ]  # fmt: skip
    screen = Console(file=io.StringIO(), width=120)
    screen.print(instances_table({"b": {"status": "failed", "errors": errors[:2]}}))
    assert "the request has 1 problem: - x; 1:pay: no money" in screen.file.getvalue()  # type: ignore[attr-defined]


def test_the_first_of_very_many_failures_are_listed_and_the_others_counted() -> None:
    errors = [{"call": f"{n}:x", "code": "c", "message": "m"} for n in range(MAX_FAILURES + 3)]
    blocks = failure_blocks(Outcome("failed", {"errors": errors}))
    assert (len(blocks), blocks[-1].head) == (MAX_FAILURES + 1, "… and 3 more failures; --json has all")
    assert len(failure_blocks(Outcome("failed", {"errors": errors[:MAX_FAILURES]}))) == MAX_FAILURES


def test_a_hundred_instances_take_a_screen_and_not_three(capsys: pytest.CaptureFixture[str]) -> None:
    instances = {f"c{n}": {"status": "completed", "errors": []} for n in range(100)}
    instances["c77"] = {"status": "failed", "errors": [{"call": "1:x", "code": "c", "message": "no money"}]}
    print_outcome(Outcome("partial", {"instances": instances, "state": {}}), "run")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 30
    assert any("c77" in line and "no money" in line for line in lines)
    assert "… and 81 more: 81 completed" in lines[-1]
