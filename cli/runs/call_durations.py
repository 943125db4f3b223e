"""How long the calls of a run took, by tool, as its history has it: retries and the wait for a worker included.

Laws of this file:
- an activity counts from its scheduling to its end, a delegate from its start to its end; a local activity leaves no
  such times;
- the runs that walk plans and instances below are read too, a bounded number of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from acts.language.wire import DELEGATE, INSTANCE, PLAN
from cli.runs import server

if TYPE_CHECKING:
    from temporalio.client import Client

MAX_RUNS: Final = 50  # of a batch, that many instances are sample enough
# ``c1/2:charge[0]``: the key of a call in the id of its activity or child
_KEY: Final = re.compile(r"(?:^|/)\d+:(?P<tool>[^/\[\]~]+)(?:\[\d+\])?(?:~[0-9a-f]+)?$")


async def read_durations(client: Client, workflow_id: str) -> dict[str, list[float]]:
    """The seconds that the calls of each tool took.

    Raises:
        CommandError: there is no such run.
    """
    out: dict[str, list[float]] = defaultdict(list)
    description = await server.for_run(
        workflow_id, client.get_workflow_handle(workflow_id).describe(rpc_timeout=server.RPC)
    )
    first = description.raw_description.workflow_execution_info.first_run_id or description.run_id
    pending = [(workflow_id, first)]
    for _ in range(MAX_RUNS):
        if not pending:
            break
        reading = _HistoryReading(out)
        pending += await reading.read(client, *pending.pop(0))
    return dict(out)


class _HistoryReading:
    """Reads one history into ``durations``."""

    def __init__(self, durations: dict[str, list[float]]) -> None:
        self._durations = durations
        self._begun: dict[int, tuple[str, float]] = {}  # by event: the tool, and when it began
        self._others: list[tuple[str, str]] = []

    async def read(self, client: Client, workflow_id: str, run_id: str) -> list[tuple[str, str]]:
        """Read it; the runs that follow it or walk parts of its plan."""
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        async for event in handle.fetch_history_events(rpc_timeout=server.RPC):
            self._take(event, workflow_id)
        return self._others

    def _take(self, event: Any, workflow_id: str) -> None:
        at = event.event_time.ToNanoseconds() / 1e9
        match event.WhichOneof("attributes"):
            case "activity_task_scheduled_event_attributes":
                self._begin(event.event_id, event.activity_task_scheduled_event_attributes.activity_id, at)
            case "activity_task_completed_event_attributes":
                self._end(event.activity_task_completed_event_attributes.scheduled_event_id, at)
            case "child_workflow_execution_started_event_attributes":
                self._take_child(event.child_workflow_execution_started_event_attributes, at)
            case "child_workflow_execution_completed_event_attributes":
                self._end(event.child_workflow_execution_completed_event_attributes.initiated_event_id, at)
            case "workflow_execution_continued_as_new_event_attributes":
                next_run = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
                self._others.append((workflow_id, next_run))

    def _take_child(self, child: Any, at: float) -> None:
        type_, execution = child.workflow_type.name, child.workflow_execution
        if type_ == DELEGATE:
            self._begin(child.initiated_event_id, execution.workflow_id, at)
        elif type_ in (PLAN, INSTANCE):
            self._others.append((execution.workflow_id, execution.run_id))

    def _begin(self, event_id: int, key: str, at: float) -> None:
        match = _KEY.search(key)
        if match is not None:
            self._begun[event_id] = (match["tool"], at)

    def _end(self, event_id: int, at: float) -> None:
        if event_id in self._begun:
            tool, began = self._begun.pop(event_id)
            self._durations[tool].append(max(0.0, at - began))
