"""``acts list``, ``acts setup`` and ``acts --version``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from temporalio.client import Client

from acts.tree.search_attributes import MAX_TOOLS_BYTES, TYPES, tool_keywords
from cli.command_errors import CommandError
from cli.runs.run_list import PHASES, RunFilters
from tests.cli.conftest import Acts, new_name, run_acts, wait_for_approvals, wait_for_listing
from tests.cli.test_instances import SHARED, write_batch

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "clause"),
    [
        (RunFilters(), "ParentWorkflowId IS NULL"),
        (RunFilters(phases=("partial",)), "(ActsPhase = 'partial')"),
        (RunFilters(phases=("awaiting",)), "ActsPhase = 'awaiting' AND ExecutionStatus = 'Running'"),
        (RunFilters(phases=("failed",)), "ExecutionStatus = 'Failed'"),
        (RunFilters(phases=("terminated",)), "ExecutionStatus = 'Terminated'"),
        (RunFilters(is_waiting=True), "ActsWaiting > 0"),
        (RunFilters(tool="it's"), "ActsTools = 'it\\'s'"),
        (RunFilters(min_cost=0.5), "ActsCost >= 0.5"),
        (RunFilters(started_within=3600), "StartTime >= '2026-01-02T11:00:00Z'"),
        (RunFilters(older_than=86400), "StartTime <= '2026-01-01T12:00:00Z'"),
    ],
)
def test_filters_become_one_query(filters: RunFilters, clause: str) -> None:
    assert clause in filters.query(NOW)


def test_an_unknown_phase_is_refused_with_those_there_are() -> None:
    with pytest.raises(CommandError) as error:
        RunFilters(phases=("done",)).query(NOW)
    assert all(phase in str(error.value.blocks[0].facts) for phase in PHASES)


def test_the_names_of_many_tools_fit_one_value() -> None:
    names = tool_keywords(f"tool {n:04}" for n in range(2_000))
    assert names[:2] == ["tool 0000", "tool 0001"]
    assert sum(len(name) for name in names) < MAX_TOOLS_BYTES


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


def test_a_wrong_duration_and_a_wrong_phase_say_what_is_allowed(acts: Acts) -> None:
    assert "for example 30s, 2h or 7d" in acts("list", "--since", "yesterday").stderr
    assert "one of: planning, awaiting" in acts("list", "--phase", "done").stderr


def test_the_version_is_printed(tmp_path: Path) -> None:
    done = run_acts("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout.split()[0]) == (0, "acts")
