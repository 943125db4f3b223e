"""What a run does after it was reset: the runs below it may know more than it does, or may be gone.

A reset gives a run the history up to a point, and of what came later only the signals to the run that the reset started
from. If that was not the latest run, what the runs below said to the latest is lost, and the server has cancelled some
of them: their results do not come again.

So a run that was reset asks each run below it to say again what waits there and what it needs (``Resync``), and each
passes that on. A child that cannot be reached has ended: after ``GRACE_SECONDS``, in which its result may still come,
it is started again, and its Calls have the same ``_id``s. A run that is about to end still takes the message, and a
child may be started late; so it is sent again after some time.

It also says so to its parent, with the first run of its chain (``ChildReset``). A parent that has started another run
of that workflow id since waits in vain, since the server has ended that one without a word: it starts the child again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from acts.language.wire import CHILD_RESET, RESYNC, RUN_ENDED
from acts.machines.approvals import Approvals
from acts.machines.budget import BudgetMachine
from acts.machines.commands import CancelTimer, RestartChild, SendRecord, StartTimer
from acts.machines.events import ChildStarted
from acts.machines.permits import Permits
from acts.tree.signal_records import ChildReset, Resync, RunEnded

RESYNC_TIMER: Final = "look after the runs below again after a reset"
# A run that is cancelled ends within a second; while its worker is away, within minutes
RESYNC_SECONDS: Final = (2.0, 20.0, 300.0)
# A result that is on its way arrives within milliseconds, of a busy server within a second
GRACE_SECONDS: Final = 3.0
# The key of the message to the root that a run below has ended; what is behind it names the child to start again
ENDED: Final = "ended"
GONE: Final = "start again what is gone: "


class ResetRecovery:
    """Of one run. ``children`` are those that run now: workflow ids by key, as the run keeps them."""

    def __init__(
        self, approvals: Approvals, budget: BudgetMachine, permits: Permits, children: dict[str, str]
    ) -> None:  # fmt: skip
        self._approvals, self._budget, self._permits, self._children = approvals, budget, permits, children
        self._former: dict[str, str] = {}  # the children from before the reset
        self.first_runs: dict[str, str] = {}  # of each child, by key
        self._early_resets: set[str] = set()  # workflow ids
        self._to_parent: list[SendRecord] = []  # that this run was reset
        self._round = 0

    def on_child_started(self, event: ChildStarted, *, is_ending: bool) -> list[Any]:
        """A child has started. It may have ended before the server answered so: then it is asked.

        It was to start before a reset of this run, or an earlier run of its id was reset.
        """
        self.first_runs[event.key] = event.run_id
        is_in_doubt = event.is_of_before_reset or event.workflow_id in self._early_resets
        self._early_resets.discard(event.workflow_id)
        if not is_in_doubt or is_ending:
            return []
        self._former[event.key] = event.workflow_id
        self._round = 1
        timer = StartTimer(RESYNC_TIMER, RESYNC_SECONDS[0], RESYNC_TIMER)
        ask = SendRecord(event.workflow_id, RESYNC, Resync(), key=f"resync/{event.key}")
        return [ask, CancelTimer(RESYNC_TIMER), timer]

    def forget_run(self, workflow_id: str, key: str | None = None) -> list[Any]:
        """A run below ended without a last word: the root frees what it held. Then the child of ``key`` starts again.

        Not before, else the root forgets what the next run of this id has reported.
        """
        position = self._approvals.position
        if not position.is_root:
            message = SendRecord(position.ancestors[0], RUN_ENDED, RunEnded(workflowId=workflow_id))
            return [message if key is None else replace(message, key=f"{ENDED}/{key}")]
        again = [] if key is None else [RestartChild(key)]
        return [*self._approvals.forget(workflow_id), *self._budget.release(workflow_id), *again]

    def _replace_child(self, key: str) -> list[Any]:
        """A child is gone, and what it held with it."""
        workflow_id = self._children.pop(key)
        return [*self._permits.child_gone(workflow_id), *self.forget_run(workflow_id, key)]

    def on_child_reset(self, record: ChildReset) -> list[Any]:
        """A run below was reset. If this run waits for another one of its id, that is gone."""
        keys = [key for key, id_ in self._children.items() if id_ == record.workflowId]
        if not keys:
            self._early_resets.add(record.workflowId)  # of one that is just being started, or of none
        gone = [key for key in keys if self.first_runs[key] != record.firstRunId]
        return [effect for key in gone for effect in self._replace_child(key)]

    def on_reset(self, first_run_id: str, *, is_ending: bool = False) -> list[Any]:
        """This run was reset. Also one that ``is_ending`` says so to its parent, which may wait for another run."""
        position, own = self._approvals.position, self._approvals.own
        record = ChildReset(workflowId=own, firstRunId=first_run_id)
        self._to_parent = [] if position.parent is None else [SendRecord(position.parent, CHILD_RESET, record)]
        if is_ending:
            return self._to_parent
        self._permits.count_anew(self._children)
        self._former, self._round = dict(self._children), 0
        return [*self._to_parent, *self._say_again(), *self._ask()]

    def on_resync(self) -> list[Any]:
        below = (SendRecord(id_, RESYNC, Resync()) for id_ in self._children.values())
        return [*self._say_again(), *self._to_parent, *below]

    def on_lost(self, key: str) -> list[Any]:
        return [StartTimer(GONE + key, GRACE_SECONDS, GONE + key)] if self._is_kept(key) else []

    def on_timer(self, name: str) -> list[Any]:
        """A timer of this machine has fired: ``RESYNC_TIMER``, or one that begins with ``GONE``."""
        if name == RESYNC_TIMER:
            return self._ask()
        key = name.removeprefix(GONE)
        if not self._is_kept(key):
            return []
        del self._former[key]
        return self._replace_child(key)

    def _is_kept(self, key: str) -> bool:
        return key in self._former and self._former[key] == self._children.get(key)

    def _say_again(self) -> list[Any]:
        """What the root and the keeper of permits may not know of this run."""
        self._approvals.reports.restart()
        self._permits.ask_again()
        return self._budget.ask_again()

    def _ask(self) -> list[Any]:
        self._former = {key: id_ for key, id_ in self._former.items() if self._is_kept(key)}
        out: list[Any] = [SendRecord(id_, RESYNC, Resync(), key=f"resync/{key}") for key, id_ in self._former.items()]
        if out and self._round < len(RESYNC_SECONDS):
            out.append(StartTimer(RESYNC_TIMER, RESYNC_SECONDS[self._round], RESYNC_TIMER))
            self._round += 1
        return out
