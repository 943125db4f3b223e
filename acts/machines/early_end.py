"""How a walk ends before all of its Calls are done: it is cancelled, its plan is dropped, or its history is full.

Laws of this file: its functions change a walk, and what has started stays as it is, except where nothing more can be
recorded. ``Walk`` returns the commands that follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.machines import elements
from acts.machines.call_state import NOT_STARTED, SETTLED

if TYPE_CHECKING:
    from acts.language.errors import CallError
    from acts.machines.walk import Walk


def cancel_unstarted(walk: Walk, now: str) -> None:
    """Cancel what has not started."""
    walk.ready.clear()
    for rank, call in enumerate(walk.calls):
        if call.stage in NOT_STARTED:
            walk.settle(rank, "cancelled", now)
        elif call.stage == "collecting":
            elements.report_if_settled(walk, rank, now)


def drop_unstarted(walk: Walk, error: dict[str, Any], now: str) -> None:
    """Cancel what has not started with this error. Nothing that waits for a dropped Call starts by that."""
    for rank, call in enumerate(walk.calls):
        if call.stage in NOT_STARTED:
            call.error = dict(error)
            walk.states.move(rank, "cancelled")
    walk.ready.clear(but_elements=True)
    for rank, call in enumerate(walk.calls):
        if call.stage == "cancelled" and call.error == error:
            walk.release_waiters(rank, now)


def exhaust(walk: Walk, error: CallError, now: str) -> None:
    """Let what has begun, or could begin, fail with this error; a result that waits for earlier writes is written."""
    walk.ready.clear()
    for rank, call in enumerate(walk.calls):
        if call.stage == "pending":
            walk.settle(rank, "skipped", now)
        elif call.stage not in (*SETTLED, "applying"):
            if call.stage == "collecting":
                elements.exhaust(walk, rank)
            call.error = error.to_json()
            walk.settle(rank, "exhausted", now)
