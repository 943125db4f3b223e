"""Asks the server which task queues have workers: a local activity, so that the answer stands in history."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from acts.language.wire import QUEUES
from acts.machines.approvals import iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acts.machines.run_machine import RunMachine
    from acts.simulation.billable_actions import ActionCount

# Well above the activity's own limit of 2 s for each queue, all of which are asked at once
CHECK_SECONDS: Final = 10.0


def start_check(queues: Sequence[str]) -> workflow.ActivityHandle[dict[str, bool]]:
    """``{queue: has workers}``; a queue that the server says nothing of is left out."""
    return workflow.start_local_activity(
        QUEUES, {"queues": list(queues)}, result_type=dict, summary="which task queues have workers",
        start_to_close_timeout=timedelta(seconds=CHECK_SECONDS), retry_policy=RetryPolicy(maximum_attempts=1),
    )  # fmt: skip


async def watch_queues(run: RunMachine, actions: ActionCount, *, is_first_run: bool) -> None:
    """Have a run watch the task queues of its Tools; the first check is over before the run begins.

    A run that continues as new begins at once, and checks then: people may ask what it waits for.
    """
    info = workflow.info()
    queues = tuple(queue for queue in run.foreign_queues if queue != info.task_queue)
    if not queues:
        return
    run.queue_watch.queues = queues
    if is_first_run:
        has_workers = await _check(queues)
        actions.record_local_activity(info.get_current_history_length())
        run.queue_watch.record_check(has_workers, iso(workflow.now()))


async def _check(queues: Sequence[str]) -> dict[str, bool]:
    try:
        return await start_check(queues)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return {}
