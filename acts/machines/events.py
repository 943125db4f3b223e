"""What happens to a run: typed events. The driver makes them of what Temporal brings, in the order of history.

The time comes beside each event, as an ISO date in UTC. A ``key`` names the Call that an event is
about by its key in the plan, not by its rank: an edit may have moved it meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, dataclass_transform

from acts.language.errors import CallError
from acts.language.messages import Data, Instruction
from acts.tree.records import Accounting
from acts.tree.signal_records import TreeSignal


@dataclass_transform(frozen_default=True)
class Frozen:
    """Base of all events, commands and effects: each is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class Event(Frozen):
    pass


class Begin(Event):
    """The run begins, or goes on after continue-as-new."""


class CallEnded(Event):
    """What runs behind a Call, or an activity of a set, returned ``value``, or failed with its retries spent."""

    key: str
    value: Any = None
    chosen: int | None = None  # the outcome that a model chose
    usage: dict[str, Any] | None = None  # what it cost
    error: CallError | None = None


class CallDetached(Event):  # A fire-and-forget Call was started durably
    key: str


class StartPostponed(Event):  # A Call that was to start did not: the history has no room for it
    key: str


class ChildStarted(Event):  # of a Call, or of a plan
    key: str
    workflow_id: str
    is_of_before_reset: bool = False  # it was to start before a reset that this run knows of: it may have ended since
    run_id: str = ""  # of its first run


class ChildEnded(Event):
    key: str
    report: dict[str, Any] | None  # what it says of itself, also when it failed
    error: CallError | None = None
    is_unstarted: bool = False  # it never ran, since what it would be started with is too large
    accounting: Accounting | None = None  # what the tree counts of its work; None: it ended without a word of that


class ModelEnded(Event):
    """The model answered the request for the Solution of a tick, ``{solution | unusable, usage}``, or did not."""

    answer: dict[str, Any] | None = None
    error: CallError | None = None
    usage: dict[str, Any] | None = None


class DecisionReceived(Event):  # A person decides: by the signal ``word``, or by the update of this id
    raw: Any
    word: str | None = None
    update: str | None = None


class Provided(Event):  # A message came from outside; one with words is for an agent
    message: Data | Instruction
    is_told: bool = False  # by the run above, which has judged it
    update: str | None = None  # the id of the update that brought it
    is_urgent: bool = False  # what has not started does not: an agent plans again at once


class Interrupted(Event):  # The agent above plans again: what has not started does not
    reason: str


class PauseChanged(Event):  # A person wants nothing more to start, or that it goes on
    is_paused: bool
    is_told: bool = False  # as of ``Provided``


class HoldChanged(Event):  # Whatever would start next is held, since a quiet moment is near; or is started
    is_held: bool


class HistoryFull(Event):
    """The history can take nothing more, and no other run can take over: the run ends with what it has."""

    reason: str


class CancelRequested(Event):
    """The run is cancelled: nothing more starts, and the driver cancels what is in flight."""


class TimerFired(Event):  # A timer that the run started
    name: str


class QueuesChecked(Event):  # Which task queues have workers, as far as the server says
    has_workers: dict[str, bool]


class RunReset(Event):
    """This run was reset: of what came after the point of the reset, not all has come again."""

    first_run_id: str = ""  # of its chain, which resets and continue-as-new keep
    lineage: str = ""  # another one after each reset


class RecordReceived(Event):  # Another run sent a record; whether it is one of this tree, its token says
    record: TreeSignal


class RecordEnded(Event):
    """A record that this run sent has arrived, or did not because of ``failure``; ``key`` is that of ``SendRecord``."""

    key: str
    failure: str | None = None
