"""What the worker that answers ``status`` says of itself: which of its tools block.

Laws of this file: read by queries alone, never by a run: what a process does now is no part of any history. A run whose
tool blocks another worker learns nothing of it here; the log of that worker names the tool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockedTool:
    """An ``async def`` Tool that does not await, so that the event loop of the Tools stands still."""

    tool: str
    workflow_id: str
    seconds: float


class WorkerNotes:
    """``find_blocked_tools`` is set when the worker is built."""

    def __init__(self) -> None:
        self.find_blocked_tools: Callable[[], list[BlockedTool]] = list

    def notes_for(self, workflow_id: str) -> list[str]:
        """What a reader of this run should know; the ids of runs of other trees are not shown."""
        return [_note(blocked, workflow_id) for blocked in self.find_blocked_tools()]


def _note(blocked: BlockedTool, workflow_id: str) -> str:
    is_own = f"{blocked.workflow_id}/".startswith(f"{workflow_id}/")
    run = f"run {blocked.workflow_id}" if is_own else "another run"
    return (
        f'the tool "{blocked.tool}" of {run} has blocked the event loop of async tools for {blocked.seconds:.0f} s; '
        "others that run in that worker wait for it. Write it as a plain `def`, or await in it"
    )


WORKER_NOTES = WorkerNotes()
"""Those of this process, which serves one worker."""
