"""What the machines want done: every command and effect of the house, plain data in one vocabulary.

A run applies what its walk, its approvals and its budget return, until only ``RunCommand`` is left, which
the driver performs in order. Nothing here decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, dataclass_transform

from acts.language.wire import MAX_UNUSABLE_ANSWERS

if TYPE_CHECKING:
    from acts.plan.calls import PlannedCall
    from acts.tree.decisions import Decision, PendingApproval
    from acts.tree.records import BackgroundInput, ContextRef, DelegateInput, GrantedRequest, InstanceInput, PlanInput
    from acts.tree.set_records import BatchInput
    from acts.tree.signal_records import DecisionAnswer, TreeSignal


@dataclass_transform(frozen_default=True)
class Effect:
    """Base of all commands and effects: each is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


# -- of a walk, for its run; the driver performs starts and the end --------------------------------------------------


class StartCall(Effect):
    """Start a Call, or an element of one; for the driver, its Activity with three arguments: Call, Tool, context.

    ``call`` has its references resolved; ``context`` are the messages that it may see.
    """

    node: PlannedCall
    call: dict[str, Any]
    context: list[dict[str, Any]]


class AskHuman(Effect):
    """Ask a human to decide about a Call (``what`` is ``call``), or about its ``scopes``. It may be asked again."""

    node: PlannedCall
    call: dict[str, Any]
    what: str = "call"


class CountElements(Effect):
    """A Call is made ``more`` times beyond the one that the plan lists: may it? ``Walk.allow_elements`` answers yes."""

    node: PlannedCall
    more: int


class Finish(Effect):
    """Every Call has settled; for the driver: flush what is on its way and end the workflow with this status."""

    status: str


Command = StartCall | AskHuman | CountElements | Finish

# -- of approvals, the budget and resets, for the run itself -------------------------------------------------------


class Decided(Effect):
    """A decision was taken; the run applies it at once. ``token`` is what its check returned."""

    wait: PendingApproval
    decision: Decision
    token: Any = None


class Note(Effect):
    """A remark for ``status`` and the page."""

    text: str


class Granted(Effect):
    """The purpose ``key`` has what it asked for; ``request`` is the grant, None where nothing limits requests."""

    key: str
    request: GrantedRequest | None = None
    share: dict[str, Any] | None = None


class BudgetRefused(Effect):
    """The purpose ``key`` is not allowed: ``reason`` names the limit."""

    key: str
    reason: str


# -- for the driver ------------------------------------------------------------------------------------------------


class AskOutput(Effect):
    """Ask the model for the output of a latent Call, within a grant (None: nothing limits it)."""

    node: PlannedCall
    call: dict[str, Any]
    context: list[dict[str, Any]]
    source: ContextRef
    grant: GrantedRequest | None


class AskSolution(Effect):
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


class StartChild(Effect):
    """Start the child ``<this run>/<name>``, a workflow of this type: what does the Call, or the unit, of ``node``.

    None: it walks the plan of a tick or of a definition, or a page of a set.
    """

    type: str
    name: str
    label: str
    input: DelegateInput | InstanceInput | PlanInput | BatchInput
    node: PlannedCall | None = None

    @property
    def key(self) -> str:
        """What its events name it by."""
        return self.name if self.node is None else self.node.key


class StartBackground(Effect):
    """Start a fire-and-forget Call as a run of its own."""

    node: PlannedCall
    input: BackgroundInput


class StartSetActivity(Effect):
    """Start an activity of a set, by its name, with one JSON argument: ``SetActivityEnded`` follows."""

    key: str
    activity: str
    argument: dict[str, Any]
    label: str


class SignalChildren(Effect):
    """Pass a person's signal on to the children: all, those that walk instances, or the one of an instance.

    A child that is being started gets it once it is there. ``payload`` None: the signal has none.
    """

    signal: str
    payload: Any = None
    instance: str | None = None
    instances_only: bool = False


class RestartChild(Effect):
    """Start the child of this key again: it is gone, and its result does not come."""

    key: str


class Stop(Effect):
    """End this run as superseded: the run ``run_id`` of its parent does its work now."""

    run_id: str


class SendRecord(Effect):
    """Signal another run. ``key`` names the message where a failure to deliver it matters to the sender."""

    workflow_id: str
    signal: str
    record: TreeSignal
    key: str = ""


class CheckQueues(Effect):
    """Ask the server who polls these task queues; the answer is a ``QueuesChecked``."""

    queues: tuple[str, ...]


class StartTimer(Effect):
    """Wake the run after so many seconds, with the timer's name."""

    name: str
    seconds: float
    summary: str


class CancelTimer(Effect):
    """Stop a timer."""

    name: str


class AnswerUpdate(Effect):
    """Answer the update of this id: None, or the problem that refuses it."""

    id: str
    problem: DecisionAnswer | None = None


RunCommand = (
    StartCall | AskOutput | AskSolution | StartChild | StartBackground
    | StartSetActivity | SignalChildren | SendRecord | CheckQueues | StartTimer
    | CancelTimer | AnswerUpdate | Finish | RestartChild | Stop
)  # fmt: skip
