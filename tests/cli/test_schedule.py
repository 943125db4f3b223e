"""``acts schedule``: runs by the clock, each with ids of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from cli.command_errors import CommandError
from cli.commands.schedule import OVERLAPS, Times, overlap_policy
from tests.cli.conftest import Acts, new_name
from tests.support import assert_eventually

Json = Any
LINEAR = Path(__file__).parents[2] / "examples" / "linear" / "plan.yaml"


@pytest.fixture
async def schedule(acts: Acts, client: Client) -> AsyncIterator[str]:
    """A schedule that the clock never starts during a test."""
    name = new_name()
    done = acts("schedule", "create", name, str(LINEAR), "--cron", "0 0 1 1 *", "--timezone", "Europe/Berlin")
    assert done.exit_code == 0, done.stderr
    assert f"schedule {name} starts" in done.stderr
    assert "12-31 23:00:00Z" in done.stderr  # midnight in Berlin
    yield name
    acts("schedule", "delete", "--yes", name)


async def runs_of(client: Client, schedule: str) -> list[tuple[str, str]]:
    """The workflow id and the run id of each start."""
    description = await client.get_schedule_handle(schedule).describe()
    actions: list[Json] = [result.action for result in description.info.recent_actions]
    return [(action.workflow_id, action.first_execution_run_id) for action in actions]


async def first_id(client: Client, run: tuple[str, str]) -> str:
    """The ``_id`` of the first Call that a run made."""
    async for event in client.get_workflow_handle(run[0], run_id=run[1]).fetch_history_events():
        if event.HasField("activity_task_scheduled_event_attributes"):
            call = json.loads(event.activity_task_scheduled_event_attributes.input.payloads[0].data)
            return str(call["_id"])
    raise AssertionError("it made no call")


async def test_each_start_of_a_schedule_is_a_run_whose_calls_have_ids_of_their_own(
    acts: Acts, client: Client, schedule: str
) -> None:
    ids: list[str] = []
    for count in (1, 2):
        assert acts("schedule", "trigger", schedule).exit_code == 0

        async def have_begun(count: int = count) -> list[tuple[str, str]]:
            runs = await runs_of(client, schedule)
            return runs if len(runs) == count else []

        *_, run = await assert_eventually(have_begun, why=f"start {count} is listed")
        assert run[0].startswith(f"{schedule}-20")  # the time of the start
        result: Json = await client.get_workflow_handle(run[0], run_id=run[1]).result()
        assert result["status"] == "completed"
        ids.append(await first_id(client, run))
    assert len(set(ids)) == 2


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
    twice = acts("schedule", "create", schedule, str(LINEAR), "--every", "1d", "--offset", "2h")
    assert twice.exit_code == 2
    assert "change it with --replace" in twice.stderr
    again = acts("schedule", "create", schedule, str(LINEAR), "--every", "1d", "--overlap", "buffer-one", "--replace")
    assert again.exit_code == 0
    described = await client.get_schedule_handle(schedule).describe()
    assert described.schedule.policy.overlap == overlap_policy("buffer-one")
    assert described.schedule.spec.cron_expressions == []
    assert acts("schedule", "delete", "--yes", schedule).exit_code == 0
    gone = acts("schedule", "pause", schedule)
    assert (gone.exit_code, f'there is no schedule "{schedule}"' in gone.stderr) == (2, True)


def test_a_request_with_problems_is_not_scheduled(acts: Acts, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"context": [{"type": "plan", "plan": [{"_tool": "nobody.has"}]}]}', "utf-8")
    done = acts("schedule", "create", "never", str(file), "--every", "1h")
    assert done.exit_code == 2
    assert "nobody.has" in done.stderr


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (Times(), "either --cron, or --every"),
        (Times(cron=("0 9 * * *",), every="1h"), "either --cron, or --every"),
        (Times(cron=("0 9 * * *",), offset="5m"), "--offset belongs to --every"),
        (Times(every="1h", offset="1h"), "--offset is shorter than --every"),
        (Times(every="soon"), "is no duration"),
    ],
)
def test_times_that_do_not_fit_together_are_refused(times: Times, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        times.spec()


def test_every_overlap_policy_has_a_name() -> None:
    from temporalio.client import ScheduleOverlapPolicy

    assert {overlap_policy(word) for word in OVERLAPS} == set(ScheduleOverlapPolicy)
    with pytest.raises(CommandError, match="is no policy"):
        overlap_policy("wait")
