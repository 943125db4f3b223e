"""Who may decide in a tree of runs: asked once, when its root begins, and read from history ever after.

Only a root that a worker with ``ACTS_APPROVERS`` began asks. The marker of ``workflow.patched`` says so in the history,
before anything else: a replay asks if and only if the marker is there, whatever the environment of the worker is now.
So the histories of all other runs are as if this file did not exist.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow

from acts.language.wire import APPROVERS
from acts.tree.approvers import Approver

VARIABLE: Final = "ACTS_APPROVERS"
PATCH: Final = "acts-approvers"
# A small local file
_SECONDS: Final = 10.0


async def look_up_approvers() -> tuple[Approver, ...]:
    """The approvers of the tree of this run; none: decisions need no signature."""
    is_asked = workflow.unsafe.is_replaying() or bool(os.environ.get(VARIABLE))
    if not is_asked or not workflow.patched(PATCH):
        return ()
    answer: list[dict[str, Any]] = await workflow.execute_local_activity(
        APPROVERS, result_type=list, start_to_close_timeout=timedelta(seconds=_SECONDS), summary="who may decide",
    )  # fmt: skip
    return tuple(Approver.from_json(item) for item in answer)
