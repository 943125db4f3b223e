"""What a run wants done: typed commands. The driver performs them, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acts.language.wire import MAX_UNUSABLE_ANSWERS
from acts.machines.approval_effects import AnswerUpdate, CancelTimer, StartTimer
from acts.machines.budget import SendRecord
from acts.machines.queue_watch import CheckQueues

if TYPE_CHECKING:
    from acts.plan.planned_call import PlannedCall
    from acts.tree.records import BackgroundInput, ContextRef, DelegateInput, GrantedRequest, InstanceInput, PlanInput
    from acts.tree.set_records import BatchInput


@dataclass(frozen=True, slots=True)
class StartActivity:
    """Start the Activity of a Call with its three arguments: the Call, the Tool, the scoped context."""

    node: PlannedCall
    call: dict[str, Any]
    context: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class AskOutput:
    """Ask the model for the output of a latent Call, within a grant (None: nothing limits it)."""

    node: PlannedCall
    call: dict[str, Any]
    context: list[dict[str, Any]]
    source: ContextRef
    grant: GrantedRequest | None


@dataclass(frozen=True, slots=True)
class AskSolution:
    """Ask the model for the Solution of a tick; it is shown the first ``message_count`` messages.

    With ``streams`` each Call of the answer is reported as soon as it is complete. ``answers_left`` unusable answers
    end the run. ``least_cap`` is the least cap on the answer, in tokens, after one that was cut.
    """

    tick: int
    message_count: int
    grant: GrantedRequest | None
    streams: bool = False
    answers_left: int = MAX_UNUSABLE_ANSWERS
    least_cap: int | None = None


@dataclass(frozen=True, slots=True)
class StartDelegate:
    """Start the child that does a delegated Call."""

    node: PlannedCall
    input: DelegateInput


@dataclass(frozen=True, slots=True)
class StartInstances:
    """Start the child that walks some instances."""

    node: PlannedCall
    input: InstanceInput


@dataclass(frozen=True, slots=True)
class StartBackground:
    """Start a fire-and-forget Call as a run of its own."""

    node: PlannedCall
    input: BackgroundInput


@dataclass(frozen=True, slots=True)
class StartPlanRun:
    """Start the child that walks a plan, under ``<this run>/<name>``."""

    name: str
    label: str
    input: PlanInput


@dataclass(frozen=True, slots=True)
class StartBatch:
    """Start the child that walks a page of a set, under ``<this run>/<name>``. It has its permits already."""

    name: str
    label: str
    input: BatchInput


@dataclass(frozen=True, slots=True)
class StartSetActivity:
    """Start an activity of a set, by its name, with one JSON argument: ``SetActivityEnded`` follows."""

    key: str
    activity: str
    argument: dict[str, Any]
    label: str


@dataclass(frozen=True, slots=True)
class SignalChildren:
    """Pass a person's signal on to the children: all, those that walk instances, or the one of an instance.

    A child that is being started gets it once it is there.
    """

    signal: str
    payload: Any = None
    has_payload: bool = False
    instance: str | None = None
    instances_only: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over with this status: the driver flushes what is on its way and ends the workflow."""

    status: str


@dataclass(frozen=True, slots=True)
class RestartChild:
    """Start the child of this key again: it is gone, and its result does not come."""

    key: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End this run as superseded: the run ``run_id`` of its parent does its work now."""

    run_id: str


RunCommand = (
    StartActivity | AskOutput | AskSolution | StartDelegate | StartInstances | StartBackground
    | StartPlanRun | StartBatch | StartSetActivity | SignalChildren | SendRecord | CheckQueues | StartTimer
    | CancelTimer | AnswerUpdate | Finish | RestartChild | Stop
)  # fmt: skip
