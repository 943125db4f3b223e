"""The signals between runs of a tree: each a record, once.

Every one carries the token of its tree; a run takes only those of its own.
"""

from __future__ import annotations

from typing import Any

from acts.tree.decisions import Decision, PendingApproval, WaitKey
from acts.tree.records import BudgetAccount, GrantedRequest, SettledRequest
from acts.tree.wire_format import VersionedRecord


class TreeSignal(VersionedRecord):
    """Base of the signals between the runs of one tree. ``token`` is that of the tree: without it, one is ignored."""

    token: str = ""


class PendingChanged(TreeSignal):
    """To the root: what waits in the sender has changed. ``ancestors`` are those of the sender.

    ``isComplete``: nothing waits there but what opened. ``edited`` is what was edited since it opened.
    """

    workflowId: str
    ancestors: tuple[str, ...]
    opened: tuple[PendingApproval, ...] = ()
    closed: tuple[WaitKey, ...] = ()
    edited: tuple[WaitKey, ...] = ()
    isComplete: bool = False


class ForwardedDecision(TreeSignal):
    """A decision on its way: from the run that a person told to the root, or from the root to the run that waits.

    ``scope`` limits it to the runs at and below one run. ``replyTo`` is the run that owes the person an
    answer, ``id`` how that run names the decision. ``target`` is what the root found to be meant.
    """

    id: str
    replyTo: str
    decision: Decision
    scope: str | None = None
    target: PendingApproval | None = None


class DecisionAnswer(TreeSignal):
    """The judgement of the run that waits: accepted, or the problem."""

    id: str
    type: str | None = None
    message: str = ""
    details: Any = None


class BudgetRequest(TreeSignal):
    """To the root: may I make so many requests of this size, or so many more Calls?

    ``tokens`` and ``cost`` are what each may take at most, ``leastTokens`` and ``leastCost`` what it needs.
    ``parts`` asks for one part of what is left, for a run that outlives the tree. ``settled`` is a report that
    travels along.
    """

    workflowId: str
    id: int
    accounts: tuple[BudgetAccount, ...]
    ancestors: tuple[str, ...] = ()
    requests: int = 0
    tokens: int = 0
    leastTokens: int = 0
    cost: float = 0.0
    leastCost: float = 0.0
    calls: int = 0
    parts: int = 0
    settled: tuple[SettledRequest, ...] = ()


class BudgetGrant(TreeSignal):
    """From the root: ``granted`` requests, or the limit that ``refused`` the rest of what was asked for."""

    id: int
    granted: tuple[GrantedRequest, ...] = ()
    refused: str | None = None
    share: dict[str, Any] | None = None


class BudgetReport(TreeSignal):
    """To the root: what granted requests cost, and by how many Calls an edit changed a plan."""

    workflowId: str
    accounts: tuple[BudgetAccount, ...] = ()
    settled: tuple[SettledRequest, ...] = ()
    calls: int = 0


class PermitRequest(TreeSignal):
    """To the keeper of permits (see ``machines/permits.py``).

    ``missing`` permits are lacking here, beside the ``held`` ones, for Calls that could start.
    """

    workflowId: str
    ancestors: tuple[str, ...]
    missing: int
    held: int


class PermitGrant(TreeSignal):
    """From the keeper, or from the parent: permits to use, or to return."""

    permits: int


class PermitReturn(TreeSignal):
    """To the keeper: ``permits`` that the sender does not use, or that it had lent to ``goneRun``.

    ``goneRun`` is a child of the sender that ended without a word: what it and the runs below it had is free.
    ``startsAgain``: another run takes its place, under the same id.
    """

    workflowId: str
    ancestors: tuple[str, ...]
    permits: int
    goneRun: str | None = None
    startsAgain: bool = False


class StreamedCalls(TreeSignal):
    """From the model activity to its agent: Calls of an answer that is still being written.

    ``first`` is the position of the first of them, from 0. ``attempt`` numbers the attempts at the answer.
    """

    tick: int
    attempt: int
    first: int
    calls: tuple[Any, ...]


class PlanExtension(TreeSignal):
    """To the run that walks a growing plan: more of its Calls, and the context before them.

    A number in ``context`` is the message that the run has at that index. ``isComplete``: no more Calls
    follow. ``dropped`` says why the plan is only what has started: the rest of it is void. ``permits`` join its lease.
    """

    calls: tuple[Any, ...] = ()
    context: tuple[Any, ...] = ()
    isComplete: bool = False
    dropped: str | None = None
    permits: int = 0


class ModelWait(TreeSignal):
    """From the model activity: the run ``workflowId`` waits for a model; ``seconds`` 0: it does so no more.

    ``nextTry`` is the time of the next attempt (ISO 8601, UTC), ``seconds`` that until then.
    """

    workflowId: str
    seconds: float
    model: str = ""
    reason: str = ""
    nextTry: str = ""


class RunEnded(TreeSignal):
    """To the root: a run ended without a last word; what waits there or is reserved for it is void."""

    workflowId: str


class CancelledReport(TreeSignal):
    """To the parent: what a cancelled child had done. A cancelled workflow has no result."""

    workflowId: str
    report: dict[str, Any]


class Resync(TreeSignal):
    """From a run that was reset to all below it: say again what waits there, and what it needs."""


class ChildReset(TreeSignal):
    """From a run that was reset to its parent. ``firstRunId`` is the first run of its chain.

    A parent that waits for another run of this workflow id waits in vain: the server has ended that one.
    """

    workflowId: str
    firstRunId: str


class Superseded(TreeSignal):
    """To a run that a reset or a retry left behind: the run ``runId`` of its parent starts its work again.

    ``sentAt`` is the date of the task that sent it, in microseconds of the server's clock. The sender may have been
    reset itself before the message arrived: then it reaches the run that was started in the place of the leftover.
    """

    workflowId: str
    runId: str
    sentAt: str = ""

    def is_about(self, parent: str | None, started_at: str) -> bool:
        """True for a run of this parent that was there when the message was sent.

        One that was started later is no leftover; nor is one of another parent, which has the id by chance: the id of
        an instance may be made of another one's and the name of a Call.
        """
        return parent in (None, self.workflowId) and (not self.sentAt or not started_at or started_at < self.sentAt)
