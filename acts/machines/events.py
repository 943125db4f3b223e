"""What happens to a run: typed events. The driver makes them of what Temporal brings, in the order of history.

The time comes beside each event, as an ISO date in UTC. A ``key`` names the Call that an event is
about by its key in the plan, not by its rank: an edit may have moved it meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acts.language.errors import CallError
    from acts.language.messages import Data
    from acts.tree.records import Accounting
    from acts.tree.signal_records import TreeSignal


@dataclass(frozen=True, slots=True)
class Begin:
    """The run begins, or goes on after continue-as-new."""


@dataclass(frozen=True, slots=True)
class CallCompleted:
    """An Activity, or the model for a latent Call, returned ``value``; ``chosen`` is the outcome that a model chose."""

    key: str
    value: Any
    chosen: int | None = None
    usage: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CallFailed:
    """What runs behind a Call failed, retries spent. ``usage`` is what a model's failure cost."""

    key: str
    error: CallError
    usage: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CallDetached:
    """A fire-and-forget Call was started durably."""

    key: str


@dataclass(frozen=True, slots=True)
class StartPostponed:
    """A Call that was to start did not: the history has no room for it."""

    key: str


@dataclass(frozen=True, slots=True)
class ChildStarted:
    """The child of a Call, or of a plan, runs under this id.

    ``is_of_before_reset``: it was to start before a reset that this run knows of. It may have ended since.
    ``run_id`` is that of its first run.
    """

    key: str
    workflow_id: str
    is_of_before_reset: bool = False
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """A child ended. ``report`` is what it says of itself, also when it failed; ``error`` is its failure.

    ``is_unstarted``: it never ran, since what it would be started with is too large. ``accounting`` is what the tree
    counts of its work, None where it ended without a word of that.
    """

    key: str
    report: dict[str, Any] | None
    error: CallError | None = None
    is_unstarted: bool = False
    accounting: Accounting | None = None


@dataclass(frozen=True, slots=True)
class SetActivityEnded:
    """An activity of a set (its survey, its results file) returned ``value``, or failed for good."""

    key: str
    value: Any = None
    error: CallError | None = None


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """The model answered the request for the Solution of a tick: ``{solution | unusable, usage}``."""

    answer: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """The model gave no answer, retries spent."""

    error: CallError
    usage: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class DecisionReceived:
    """A person decides: by the signal ``word``, or by the update of this id."""

    raw: Any
    word: str | None = None
    update: str | None = None


@dataclass(frozen=True, slots=True)
class Provided:
    """A message came from outside."""

    message: Data


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """Start nothing more."""


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """Go on."""


@dataclass(frozen=True, slots=True)
class StartsHeld:
    """Hold whatever would start next: a quiet moment is near."""


@dataclass(frozen=True, slots=True)
class StartsReleased:
    """Start what was held."""


@dataclass(frozen=True, slots=True)
class HistoryFull:
    """The history can take nothing more, and no other run can take over: the run ends with what it has."""

    reason: str


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The run is cancelled: nothing more starts, and the driver cancels what is in flight."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that the run started."""

    name: str


@dataclass(frozen=True, slots=True)
class QueuesChecked:
    """Which task queues have workers, as far as the server says."""

    has_workers: dict[str, bool]


@dataclass(frozen=True, slots=True)
class RunReset:
    """This run was reset: of what came after the point of the reset, not all has come again.

    ``first_run_id`` is that of the first run of its chain, which resets and continue-as-new keep.
    """

    first_run_id: str = ""


@dataclass(frozen=True, slots=True)
class RecordReceived:
    """Another run sent a record; whether it is one of this tree, its token says."""

    record: TreeSignal


@dataclass(frozen=True, slots=True)
class RecordDelivered:
    """A record that this run sent has arrived; ``key`` is that of the ``SendRecord``."""

    key: str


@dataclass(frozen=True, slots=True)
class RecordLost:
    """A record that this run sent did not arrive."""

    key: str
    reason: str = ""


Event = (
    Begin | CallCompleted | CallFailed | CallDetached | StartPostponed | ChildStarted | ChildEnded | SetActivityEnded
    | ModelAnswered | ModelFailed | DecisionReceived | Provided | PauseRequested | ResumeRequested | StartsHeld
    | StartsReleased | RunReset | CancelRequested | HistoryFull | TimerFired | QueuesChecked | RecordReceived
    | RecordDelivered | RecordLost
)  # fmt: skip
