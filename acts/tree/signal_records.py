"""The signals between runs of a tree: each a record, whose type names the signal.

Every one carries the token of its tree; a run takes only those of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from acts.tree.decisions import Decision, PendingApproval, WaitKey
from acts.tree.records import BudgetAccount, GrantedRequest, SettledRequest
from acts.tree.wire_format import VersionedRecord


class TreeSignal(VersionedRecord):
    """Base of the signals between the runs of one tree. ``token`` is that of the tree: without it, one is ignored."""

    token: str = ""

    @classmethod
    def signal_name(cls) -> str:
        return cls.__name__[0].lower() + cls.__name__[1:]


class SenderSignal(TreeSignal):
    """Base of the signals that name a run: the sender, where nothing else is said."""

    workflowId: str


class PendingChanged(SenderSignal):
    """To the root: what waits in the sender has changed."""

    ancestors: tuple[str, ...]
    opened: tuple[PendingApproval, ...] = ()
    closed: tuple[WaitKey, ...] = ()
    edited: tuple[WaitKey, ...] = ()  # since it opened
    isComplete: bool = False  # nothing waits there but what opened


class Told(TreeSignal):
    """To a child: what the run above was told, and may be: to pause, to resume, or that a message joins the context."""

    word: str  # pause, resume, or provide
    message: Any = None


class ForwardedDecision(TreeSignal):
    """A decision on its way: from the run that a person told to the root, or from the root to the run that waits."""

    id: str  # by which ``replyTo``, the run that owes the person an answer, knows it
    replyTo: str
    decision: Decision
    scope: str | None = None  # limits it to the runs at and below this one
    target: PendingApproval | None = None  # what the root found to be meant


class DecisionAnswer(TreeSignal):
    """The judgement of the run that waits: accepted, or the problem."""

    id: str
    type: str | None = None
    message: str = ""
    details: Any = None
    isOpen: bool = False  # it was carried out, and more approvals are needed


class BudgetRequest(SenderSignal):
    """To the root: may I make so many requests of this size, or so many more Calls?"""

    id: int
    accounts: tuple[BudgetAccount, ...]
    ancestors: tuple[str, ...] = ()
    requests: int = 0
    # What each request may take at most, and what it needs
    tokens: int = 0
    leastTokens: int = 0
    cost: float = 0.0
    leastCost: float = 0.0
    calls: int = 0
    parts: int = 0  # asks for one part of what is left, for a run that outlives the tree
    settled: tuple[SettledRequest, ...] = ()  # a report that travels along


class BudgetGrant(TreeSignal):
    """From the root: ``granted`` requests, or the limit that ``refused`` the rest of what was asked for."""

    id: int
    granted: tuple[GrantedRequest, ...] = ()
    refused: str | None = None
    share: dict[str, Any] | None = None


class BudgetReport(SenderSignal):
    """To the root: what granted requests cost, and by how many Calls an edit changed a plan."""

    accounts: tuple[BudgetAccount, ...] = ()
    settled: tuple[SettledRequest, ...] = ()
    calls: int = 0


class PermitRequest(SenderSignal):
    """To the keeper of permits: so many are lacking, beside the ``held`` ones, for Calls that could start."""

    ancestors: tuple[str, ...]
    missing: int
    held: int


class PermitGrant(TreeSignal):
    """From the keeper, or from the parent: permits to use, or to return."""

    permits: int


class PermitReturn(SenderSignal):
    """To the keeper: permits that the sender does not use, or that it had lent to ``goneRun``."""

    ancestors: tuple[str, ...]
    permits: int
    goneRun: str | None = None  # a child that ended without a word: what it and the runs below it had is free
    startsAgain: bool = False  # another run takes its place, under the same id


class StreamedCalls(TreeSignal):
    """From the model activity to its agent: Calls of an answer that is still being written."""

    tick: int
    attempt: int
    first: int  # the position of the first of them, from 0
    calls: tuple[Any, ...]


class PlanExtension(TreeSignal):
    """To the run that walks a growing plan: more of its Calls, and the context before them."""

    calls: tuple[Any, ...] = ()
    context: tuple[Any, ...] = ()  # a number is the message that the run has at that index
    isComplete: bool = False  # no more Calls follow
    dropped: str | None = None  # why the plan is only what has started: the rest of it is void
    permits: int = 0  # join its lease


class ModelWait(SenderSignal):
    """From the model activity: a run waits for a model."""

    seconds: float  # until the next try; 0: it waits no more
    model: str = ""
    reason: str = ""
    nextTry: str = ""  # ISO 8601, UTC


class RunEnded(SenderSignal):
    """To the root: a run ended without a last word; what waits there or is reserved for it is void."""


class CancelledReport(SenderSignal):
    """To the parent: what a cancelled child had done. A cancelled workflow has no result."""

    report: dict[str, Any]


class Resync(TreeSignal):
    """From a run that was reset to all below it: say again what waits there, and what it needs."""


class ChildReset(SenderSignal):
    """From a run that was reset to its parent.

    A parent that waits for another run of this workflow id waits in vain: the server has ended that one.
    """

    firstRunId: str  # of its chain


class Superseded(SenderSignal):
    """To a run that a reset or a retry left behind: the run ``runId`` of its parent starts its work again.

    The sender may have been reset itself before the message arrived: then it reaches the run that was started in the
    place of the leftover.
    """

    runId: str
    sentAt: str = ""  # the date of the task that sent it, in microseconds of the server's clock

    def is_about(self, parent: str | None, started_at: str) -> bool:
        """True for a run of this parent that was there when the message was sent.

        One that was started later is no leftover; nor is one of another parent, which has the id by chance: the id of
        an instance may be made of another one's and the name of a Call.
        """
        return parent in (None, self.workflowId) and (not self.sentAt or not started_at or started_at < self.sentAt)


TREE_SIGNALS: Final[Mapping[str, type[TreeSignal]]] = {
    type_.signal_name(): type_
    for type_ in (*TreeSignal.__subclasses__(), *SenderSignal.__subclasses__())
    if type_ is not SenderSignal
}
