"""How a run is started whose id may be in use: what to do while a run of this id runs, and after one has ended.

Temporal keeps ids unique among open runs. So a program that starts its runs under an id of its own, such as the number
of an order, may repeat a start after a lost answer, and no second run comes of it.

Laws of this file: it starts nothing; the defaults are Temporal's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from cli.command_errors import command_error

FAIL: Final = "fail"
USE_EXISTING: Final = "use-existing"
TERMINATE: Final = "terminate"
AGAIN: Final = "again"
AGAIN_IF_FAILED: Final = "again-if-failed"
# What to do while a run of the id runs
IF_RUNNING: Final = (FAIL, USE_EXISTING, TERMINATE)
# … and where one has ended
IF_ENDED: Final = (AGAIN, AGAIN_IF_FAILED, USE_EXISTING, FAIL)


@dataclass(frozen=True)
class StartPolicy:
    """``delay`` are seconds until the run begins; it is visible, and can be cancelled, until then."""

    if_running: str = FAIL
    if_ended: str = AGAIN
    delay: float | None = None

    def check(self) -> None:
        """Check the words and how they fit together.

        Raises:
            CommandError: one is unknown, or the server would refuse both together.
        """
        options = (("--if-running", self.if_running, IF_RUNNING), ("--if-ended", self.if_ended, IF_ENDED))
        for option, word, words in options:
            if word not in words:
                raise command_error(f"{word!r} is not allowed", where=option, hint=f"one of: {', '.join(words)}")
        if self.if_running == TERMINATE and self.if_ended in (USE_EXISTING, FAIL):
            text = f"--if-running terminate starts a run anew, --if-ended {self.if_ended} never does"
            raise command_error(text, hint="leave one of them out")

    def attaches(self, *, is_running: bool) -> bool:
        """True where an existing run of the id is used instead of a new one."""
        return (self.if_running if is_running else self.if_ended) == USE_EXISTING

    def start_options(self) -> dict[str, Any]:
        """Keyword arguments of the SDK's ``start_workflow``."""
        from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

        reuse = {
            AGAIN: WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            AGAIN_IF_FAILED: WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
        }
        # USE_EXISTING of the server would not say whether the run is new, so a refused start is looked up instead
        conflict = WorkflowIDConflictPolicy
        return {
            "id_reuse_policy": reuse.get(self.if_ended, WorkflowIDReusePolicy.REJECT_DUPLICATE),
            "id_conflict_policy": conflict.TERMINATE_EXISTING if self.if_running == TERMINATE else conflict.FAIL,
            "start_delay": None if self.delay is None else timedelta(seconds=self.delay),
        }
