"""A run knows whether it was reset before the point that it is at, also when its first task fails or is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from acts.workflows.children import Lifeline, seed_of

FIRST, SECOND = "8d2c58e1-5f0f-4f6b-9b71-5d3f4f1f8a01", "0b6f1c2e-77aa-4c51-8a3e-0f9f6f2d9c02"
BEGIN = {
    "workflowType": {"name": "Noting"}, "taskQueue": {"name": "q"}, "originalExecutionRunId": FIRST,
    "firstExecutionRunId": FIRST, "attempt": 1, "workflowTaskTimeout": "10s",
}  # fmt: skip
RESET = {"cause": "WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW", "baseRunId": FIRST, "newRunId": SECOND}

NOTED: list[tuple[bool, bool, int]] = []


@workflow.defn
class Noting:
    """Notes in each task whether it was reset by then, and whether that is news."""

    def __init__(self) -> None:
        self._lifeline = Lifeline()

    @workflow.run
    async def run(self) -> None:
        for _ in range(2):
            lifeline = self._lifeline
            NOTED.append((lifeline.is_repetition, lifeline.noted_lineage != lifeline.lineage, lifeline.lineage))
            await workflow.sleep(1)


def history(*first: tuple[str, Any], then: tuple[tuple[str, Any], ...] = ()) -> WorkflowHistory:
    """A run whose first task comes after the events ``first``; ``then`` come before the second."""
    task = ("WORKFLOW_TASK_SCHEDULED", {}), ("WORKFLOW_TASK_STARTED", {}), ("WORKFLOW_TASK_COMPLETED", {})
    lost = (*task[:2], *first) if first else ()
    events = [("WORKFLOW_EXECUTION_STARTED", BEGIN), *lost, *task]
    timer = len(events) + 1
    events.append(("TIMER_STARTED", {"timerId": "1", "startToFireTimeout": "1s"}))
    if then:
        events += [*task[:2], *then]
    events += [("TIMER_FIRED", {"timerId": "1", "startedEventId": str(timer)}), *task[:2]]
    return WorkflowHistory.from_json("w", {"events": [event(i, *e) for i, e in enumerate(events, 1)]})


def event(number: int, type_: str, attributes: dict[str, Any]) -> dict[str, Any]:
    first, *words = type_.lower().split("_")
    name = "".join([first, *(w.capitalize() for w in words), "EventAttributes"])
    time = f"2026-01-01T00:00:{number:02}Z"
    ids = {}
    if type_ == "WORKFLOW_TASK_STARTED":
        ids = {"scheduledEventId": str(number - 1)}
    elif type_ not in ("WORKFLOW_EXECUTION_STARTED", "WORKFLOW_TASK_SCHEDULED") and "TIMER" not in type_:
        ids = {"scheduledEventId": str(number - 2), "startedEventId": str(number - 1)}
    return {"eventId": str(number), "eventTime": time, "eventType": f"EVENT_TYPE_{type_}", name: attributes | ids}


NEVER, BEFORE = (False, False, seed_of(FIRST)), (True, True, seed_of(SECOND))
CASES = {
    "never reset": (history(), [NEVER, NEVER]),
    "its first task was lost with its worker": (history(("WORKFLOW_TASK_TIMED_OUT", {})), [NEVER, NEVER]),
    "reset at its first task": (history(("WORKFLOW_TASK_FAILED", RESET)), [BEFORE, BEFORE]),
    "reset later": (history(then=(("WORKFLOW_TASK_FAILED", RESET),)), [NEVER, BEFORE]),
    "reset later, its first task was lost": (
        history(("WORKFLOW_TASK_TIMED_OUT", {}), then=(("WORKFLOW_TASK_FAILED", RESET),)), [NEVER, BEFORE],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_run_knows_whether_it_was_reset_by_now(case: str) -> None:
    events, expected = CASES[case]
    NOTED.clear()
    replayer = Replayer(workflows=[Noting], workflow_runner=UnsandboxedWorkflowRunner())
    asyncio.run(replayer.replay_workflow(events, raise_on_replay_failure=False))
    assert expected == NOTED
