"""What the machines want done: every command and effect of the house, plain data in one vocabulary.

A run applies what its walk, its approvals and its budget return, until only ``RunCommand`` is left, which
the driver performs in order. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from acts.language.config import Rule
from acts.language.wire import MAX_UNUSABLE_ANSWERS
from acts.machines.events import Frozen
from acts.plan.calls import PlannedCall
from acts.tree.decisions import Decision, PendingApproval
from acts.tree.records import BackgroundInput, ContextRef, DelegateInput, GrantedRequest, InstanceInput, PlanInput
from acts.tree.set_records import BatchInput
from acts.tree.signal_records import DecisionAnswer, TreeSignal

# -- of a walk, for its run; the driver performs starts and the end --------------------------------------------------


class StartCall(Frozen):  # or an element of one; for the driver, its Activity with Call, Tool and context
    node: PlannedCall
    call: dict[str, Any]  # with its references resolved
    context: list[dict[str, Any]]  # the messages that it may see


class AskHuman(Frozen):
    """Ask a human to decide about a Call. It may be asked again."""

    node: PlannedCall
    call: dict[str, Any]
    what: str = "call"  # or ``scopes``, ``answer``
    subject: dict[str, Any] = field(default_factory=dict)  # see ``tree/subjects.py``
    changes: Sequence[dict[str, Any]] = ()  # since a person was asked, or approved
    rule: Rule = Rule()


class CountElements(Frozen):
    """A Call is made ``more`` times beyond the one that the plan lists: may it? ``Walk.allow_elements`` answers yes."""

    node: PlannedCall
    more: int


class Finish(Frozen):
    """Every Call has settled; for the driver: flush what is on its way and end the workflow with this status."""

    status: str


class EndEarly(Frozen):  # The plan has come to what it was walked for: cancel what still runs
    pass


Command = StartCall | AskHuman | CountElements | EndEarly | Finish

# -- of approvals, the budget and resets, for the run itself -------------------------------------------------------


class Decided(Frozen):  # A decision was taken; the run applies it at once. ``token`` is what its check returned
    wait: PendingApproval
    decision: Decision
    token: Any = None


class Note(Frozen):  # A remark for ``status`` and the page
    text: str


class Granted(Frozen):
    """The purpose ``key`` has what it asked for; ``request`` is the grant, None where nothing limits requests."""

    key: str
    request: GrantedRequest | None = None
    share: dict[str, Any] | None = None


class BudgetRefused(Frozen):  # The purpose ``key`` is not allowed: ``reason`` names the limit
    key: str
    reason: str


# -- for the driver ------------------------------------------------------------------------------------------------


class AskOutput(Frozen):  # Ask the model for the output of a latent Call, within a grant (None: nothing limits it)
    node: PlannedCall
    call: dict[str, Any]
    context: list[dict[str, Any]]
    source: ContextRef
    grant: GrantedRequest | None


class AskSolution(Frozen):
    """Ask the model for the Solution of a tick."""

    tick: int
    message_count: int  # it is shown the first ones
    grant: GrantedRequest | None
    streams: bool = False  # each Call of the answer is reported as soon as it is complete
    answers_left: int = MAX_UNUSABLE_ANSWERS  # so many unusable answers end the run
    least_cap: int | None = None  # on the answer, in tokens, after one that was cut


class StartChild(Frozen):
    """Start the child ``<this run>/<name>``, a workflow of this type."""

    type: str
    name: str
    label: str
    input: DelegateInput | InstanceInput | PlanInput | BatchInput
    node: PlannedCall | None = None  # the Call or unit that it does; None: a whole plan, or a page of a set

    @property
    def key(self) -> str:
        """What its events name it by."""
        return self.name if self.node is None else self.node.key


class StartBackground(Frozen):  # Start a fire-and-forget Call as a run of its own
    node: PlannedCall
    input: BackgroundInput


class StartEngineActivity(Frozen):
    """Start an Activity of the engine, by its name, with one JSON argument: ``CallEnded`` follows."""

    key: str
    activity: str
    argument: dict[str, Any]
    label: str


class SignalChildren(Frozen):
    """Pass a person's signal on to the children; one that is being started gets it once it is there."""

    signal: str
    payload: Any = None  # None: the signal has none
    instance: str | None = None  # to the child that walks it alone
    instances_only: bool = False
    is_told: bool = False  # with the token of the tree: the run above has judged it


class RestartChild(Frozen):  # Start the child of this key again: it is gone, and its result does not come
    key: str


class Stop(Frozen):  # End this run as superseded: the run ``run_id`` of its parent does its work now
    run_id: str


class SendRecord(Frozen):
    """Signal another run. ``key`` names the message where a failure to deliver it matters to the sender."""

    workflow_id: str
    record: TreeSignal
    key: str = ""


class CheckQueues(Frozen):  # Ask the server who polls these task queues; the answer is a ``QueuesChecked``
    queues: tuple[str, ...]


class StartTimer(Frozen):  # Wake the run after so many seconds, with the timer's name
    name: str
    seconds: float
    summary: str


class CancelTimer(Frozen):  # Stop a timer
    name: str


class AnswerUpdate(Frozen):  # Answer the update of this id: None, or the problem that refuses it
    id: str
    problem: DecisionAnswer | None = None


RunCommand = (
    StartCall | AskOutput | AskSolution | StartChild | StartBackground
    | StartEngineActivity | SignalChildren | SendRecord | CheckQueues | StartTimer
    | CancelTimer | AnswerUpdate | EndEarly | Finish | RestartChild | Stop
)  # fmt: skip
