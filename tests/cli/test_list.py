"""``acts list``, ``acts setup`` and ``acts --version``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from acts.cli.console import CommandError
from acts.cli.runs.run_reader import PHASES, runs_query
from acts.tree.search_attributes import TYPES
from tests.cli.conftest import Acts, new_name, run_acts, wait_for_approvals, wait_for_listing
from tests.cli.test_instances import SHARED, write_batch

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "clause"),
    [
        ({}, "ParentWorkflowId IS NULL"),
        ({"phases": ("partial",)}, "(ActsPhase = 'partial')"),
        ({"phases": ("awaiting",)}, "ActsPhase = 'awaiting' AND ExecutionStatus = 'Running'"),
        ({"phases": ("failed",)}, "ExecutionStatus = 'Failed'"),
        ({"phases": ("terminated",)}, "ExecutionStatus = 'Terminated'"),
        ({"waiting": True}, "ActsWaiting > 0"),
        ({"tool": "it's"}, "ActsTools = 'it\\'s'"),
        ({"min_cost": 0.5}, "ActsCost >= 0.5"),
        ({"since": NOW}, "StartTime >= '2026-01-02T12:00:00Z'"),
        ({"older": NOW}, "StartTime <= '2026-01-02T12:00:00Z'"),
    ],
)
def test_filters_become_one_query(filters: dict[str, Any], clause: str) -> None:
    assert clause in runs_query(**filters)


def test_an_unknown_phase_is_refused_with_those_there_are() -> None:
    with pytest.raises(CommandError) as error:
        runs_query(["done"])
    assert all(phase in str(error.value.blocks[0].facts) for phase in PHASES)


async def test_a_run_that_waits_is_listed(acts: Acts, client: Client, tmp_path: Path) -> None:
    name = new_name()
    acts("run", write_batch(tmp_path, SHARED, approve={"calls": True}), "--detach", "--id", name)
    await wait_for_approvals(client, name)
    await wait_for_listing(client, name, "ActsWaiting = 1 AND ActsPhase = 'awaiting'")
    rows = json.loads(acts("list", "--waiting", "--json", "--limit", "1000").stdout)
    (row,) = [row for row in rows if row["id"] == name]
    assert (row["workflow"], row["phase"], row["waiting"]) == ("Plan", "awaiting", 1)
    assert name in acts("list", "--phase", "awaiting", "--since", "1h").stdout
    assert name not in acts("list", "--older", "1h").stdout
    await client.get_workflow_handle(name).cancel()


def test_a_namespace_is_prepared_once(acts: Acts) -> None:
    assert "has all search attributes" in acts("setup").stderr
    lines = acts("setup", "--show").stdout.splitlines()
    assert len(lines) == len(TYPES)


def test_the_version_is_printed(tmp_path: Path) -> None:
    done = run_acts("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout.split()[0]) == (0, "acts")
