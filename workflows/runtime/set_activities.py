"""The activities of a set: its survey, its pages, its results file. What they do is not known here.

A file that cannot be read or written now is waited for, without a limit: the activity says which failures are final.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy

from acts.language.config import Options
from acts.language.wire import (
    APPEND_RESULTS,
    CLOSE_PAGE,
    CREATE_RESULTS,
    NON_RETRYABLE_TYPES,
    READ_PAGE,
    SURVEY_SET,
)
from acts.machines.events import SetActivityEnded
from acts.machines.run_commands import StartSetActivity
from workflows.runtime.activity_calls import call_error
from workflows.runtime.payloads import decode, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    Handle = workflow.ActivityHandle[Any]

# One attempt: a survey reads about 50,000 rows a second, a page may have to be fetched together with the whole file,
# and an append waits for a lock of 20 s and for a disk
_SECONDS: Final[Mapping[str, float]] = {
    SURVEY_SET: 3600, READ_PAGE: 1800, CREATE_RESULTS: 60, APPEND_RESULTS: 60, CLOSE_PAGE: 1800,
}  # fmt: skip
# Five times the activities' own rhythm; a dead worker is missed after this long
HEARTBEAT_SECONDS: Final = 15.0
# A full disk is looked at again after 1, 2, 4 … 30 s, for as long as it takes
_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=30),
    maximum_attempts=0, non_retryable_error_types=list(NON_RETRYABLE_TYPES),
)  # fmt: skip


def start_set_activity(command: StartSetActivity) -> Handle:
    """Schedule it.

    Raises:
        CallError: its argument is too large to be recorded.
    """
    return workflow.start_activity(
        command.activity, encode(command.argument), result_type=RawValue, summary=command.label,
        start_to_close_timeout=timedelta(seconds=_SECONDS[command.activity]),
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_SECONDS), retry_policy=_RETRY,
    )  # fmt: skip


def set_activity_event(key: str, task: asyncio.Task[Any]) -> SetActivityEnded:
    """What it came to."""
    try:
        return SetActivityEnded(key, decode(task.result()))
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its failure is its outcome
        options = Options(heartbeat=HEARTBEAT_SECONDS)
        return SetActivityEnded(key, error=call_error(error, options, workflow.info().task_queue))


async def run_set_activity(activity: str, argument: dict[str, Any], label: str) -> Any:
    """Run one to its end, outside of a machine; returns its JSON."""
    return decode(await start_set_activity(StartSetActivity(activity, activity, argument, label)))
