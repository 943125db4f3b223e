"""Graphs and diffs of runs: batches, their instances, delegates, and Tools that only the worker knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Acts, new_name

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
    assert "<br/>#91;3 completed, 1 skipped#93;" in acts("graph", name, "--mermaid").stdout
    one = acts("graph", f"{name}/c2").stdout
    assert "– 2:publishComment →" in one
    assert "✓ 3:removeComment →" in one
