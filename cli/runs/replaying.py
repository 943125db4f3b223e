"""Replays histories with the code of this checkout, as a worker does for a run that is not in its cache.

Laws of this file:
- the workflows, the converter and the interceptors are those of the worker (``worker.py``): a history that replays
  here replays there;
- nothing is sent to a server but requests for histories, and no activity runs;
- a history that cannot be replayed is a verdict with a reason, never an exception.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cli.command_errors import command_error
from cli.console import clean

if TYPE_CHECKING:
    from temporalio.client import WorkflowHistory

# Characters of a reason: the SDK's text names two events, ours names a call
MAX_REASON: Final = 2_000
# The SDK wraps the sentence that says which command does not fit into a dump of its failure
_SENTENCE: Final = re.compile(r'message: "((?:[^"\\]|\\.)*)"')
_CODE: Final = re.compile(r"^\[TMPRL\d+\] ")


@dataclass(frozen=True)
class ReplayVerdict:
    """What came of one history. ``error`` is None where it replays; ``events`` counts those that it has."""

    id: str
    run_id: str
    workflow: str
    events: int
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """``{id, runId, workflow, events, replays, error?}``"""
        row = {"id": self.id, "runId": self.run_id, "workflow": self.workflow, "events": self.events}
        return row | {"replays": self.error is None} | ({} if self.error is None else {"error": self.error})


async def replay_histories(histories: AsyncIterable[WorkflowHistory]) -> AsyncIterator[ReplayVerdict]:
    """Replay one history after the other; each is in memory only while it is replayed.

    Where no workflow task has begun, nothing was decided yet: such a history replays.
    """
    from temporalio.runtime import Runtime, TelemetryConfig

    import worker

    # A runtime without log lines: the verdict says what they would
    replayer = worker.build_replayer(Runtime(telemetry=TelemetryConfig(logging=None)))
    fresh: list[WorkflowHistory] = []

    async def begun() -> AsyncIterator[WorkflowHistory]:
        async for history in histories:
            if any(event.HasField("workflow_task_started_event_attributes") for event in history.events):
                yield history
            else:  # the replayer would wait for a task for ever
                fresh.append(history)

    with _without_sdk_logs():
        async with replayer.workflow_replay_iterator(begun()) as results:
            async for result in results:
                failure = result.replay_failure
                yield _verdict(result.history, None if failure is None else explain_failure(failure))
        for history in fresh:
            yield _verdict(history, None)


async def replay_one(history: WorkflowHistory) -> ReplayVerdict:
    """Replay one history."""

    async def single() -> AsyncIterator[WorkflowHistory]:
        yield history

    (verdict,) = [verdict async for verdict in replay_histories(single())]
    return verdict


def read_history(text: str, source: str) -> WorkflowHistory:
    """The history in a file: what ``temporal workflow show --output json`` or the Web UI's download gives.

    Raises:
        CommandError: it is none.
    """
    from temporalio.client import WorkflowHistory

    hint = "save one with: temporal workflow show -w ID --output json"
    try:
        data = json.loads(text)
        start = data["events"][0]["workflowExecutionStartedEventAttributes"]
        id_ = start.get("workflowId") or source
        return WorkflowHistory.from_json(id_, data)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise command_error(f"not a workflow history: {clean(what, 300)}", where=source, hint=hint) from None


def explain_failure(failure: BaseException) -> str:
    """Why a history does not replay: the SDK's sentence, without what it wraps it into."""
    text = str(failure) or type(failure).__name__
    sentence = _SENTENCE.search(text)
    if sentence is not None:
        text = re.sub(r"\\(.)", r"\1", sentence[1])
    return clean(_CODE.sub("", text), MAX_REASON)


def _verdict(history: WorkflowHistory, error: str | None) -> ReplayVerdict:
    start = history.events[0].workflow_execution_started_event_attributes
    return ReplayVerdict(
        history.workflow_id, start.original_execution_run_id, start.workflow_type.name, len(history.events), error
    )


@contextmanager
def _without_sdk_logs() -> Iterator[None]:
    """The SDK logs a traceback for each task that fails; the verdict says it in a line."""
    logger = logging.getLogger("temporalio")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
