"""``acts schedule``: runs by the clock, each with ids of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, ScheduleOverlapPolicy

from tests.cli.conftest import Acts, new_name
from tests.support import assert_eventually

Json = Any
PAYMENT = Path(__file__).parents[2] / "examples" / "payment" / "plan.yaml"


@pytest.fixture
async def schedule(acts: Acts, client: Client) -> AsyncIterator[str]:
    """A schedule that the clock never starts during a test."""
    name = new_name()
    done = acts("schedule", "create", name, str(PAYMENT), "--cron", "0 0 1 1 *", "--timezone", "Europe/Berlin")
    assert done.exit_code == 0, done.stderr
    assert f"schedule {name} starts" in done.stderr
    assert "12-31 23:00:00Z" in done.stderr  # midnight in Berlin
    yield name
    acts("schedule", "delete", "--yes", name)


async def test_each_start_of_a_schedule_is_a_run_of_its_own(acts: Acts, client: Client, schedule: str) -> None:
    async def starts() -> list[Json]:
        actions = (await client.get_schedule_handle(schedule).describe()).info.recent_actions
        return [result.action for result in actions]

    assert acts("schedule", "trigger", schedule).exit_code == 0
    (action,) = await assert_eventually(starts, why="the start is listed")
    assert action.workflow_id.startswith(f"{schedule}-20")  # the time of the start
    result: Json = await client.get_workflow_handle(action.workflow_id).result()
    assert result["status"] == "completed"


async def test_a_schedule_is_listed_paused_resumed_replaced_and_deleted(
    acts: Acts, client: Client, schedule: str
) -> None:
    async def listed() -> Json:
        rows = json.loads(acts("schedule", "list", "--json").stdout)
        return next((row for row in rows if row["id"] == schedule), None)

    async def is_paused() -> bool:
        row = await listed()
        return bool(row and row["paused"])

    assert (await assert_eventually(listed, why="the server lists it"))["workflow"] == "Plan"
    assert acts("schedule", "pause", schedule, "--note", "a holiday").exit_code == 0
    await assert_eventually(is_paused, why="the list has the pause")
    assert schedule in acts("schedule", "list").stdout
    assert acts("schedule", "resume", schedule).exit_code == 0
    twice = acts("schedule", "create", schedule, str(PAYMENT), "--every", "1d")
    assert twice.exit_code == 2
    assert "change it with --replace" in twice.stderr
    again = acts("schedule", "create", schedule, str(PAYMENT), "--every", "1d", "--overlap", "buffer-one", "--replace")
    assert again.exit_code == 0
    described = await client.get_schedule_handle(schedule).describe()
    assert described.schedule.policy.overlap == ScheduleOverlapPolicy.BUFFER_ONE
    assert described.schedule.spec.cron_expressions == []
    assert acts("schedule", "delete", "--yes", schedule).exit_code == 0
    gone = acts("schedule", "delete", "--yes", schedule)
    assert (gone.exit_code, f'there is no schedule "{schedule}"' in gone.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "either --cron, or --every"),
        (["--cron", "0 9 * * *", "--every", "1h"], "either --cron, or --every"),
        (["--every", "soon"], "is no duration"),
        # what can only work once
        (["--every", "1d", "--set", "a.csv", "--results", "out.jsonl"], "--results 'out-{run}.jsonl'"),
        (["--every", "1h", "--set", "a.csv", "--results", "o-{date}.jsonl"], "--results 'o-{run}.jsonl'"),
    ],
)
def test_times_and_names_that_do_not_fit_together_are_refused(acts: Acts, options: list[str], words: str) -> None:
    done = acts("schedule", "create", new_name(), str(PAYMENT), *options)
    assert done.exit_code == 2
    assert words in done.stderr
