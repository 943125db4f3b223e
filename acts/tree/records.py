"""What a run of a tree is started with, gives back, and carries into the next: each a record, frozen and versioned.

* what a child is started with: ``PlanInput``, ``InstanceInput``, ``DelegateInput``, ``BackgroundInput``;
* what every child gives back beside its result: ``Accounting``;
* what a run carries into the next one: ``PlanState``, ``AgentState``.

The signals between runs are in ``signal_records.py``; ``wire_format.py`` says what all have in common. This file knows
no Temporal: ``workflows/payloads.py`` puts records into payloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from acts.language.config import DEFAULT_PARALLEL, MAX_PARALLEL, Budget
from acts.tree.decisions import Approver
from acts.tree.past_run import PastSource, PastState
from acts.tree.wire_format import Record, VersionedRecord

# How deep delegates may call delegates, where no budget says otherwise
DEFAULT_DEPTH: Final = 8

# -- where a run stands in its tree --------------------------------------------------


class BudgetAccount(Record):
    """One budget of a tree: that of the root, or of a definition that sets its own. ``id`` is a workflow id."""

    id: str
    limits: Budget


class TreePosition(Record):
    """The place of a run below its root.

    ``ancestors`` are the workflow ids from the root down to the parent: empty at the root.
    ``instance`` is the instance that the root's plan walks on this branch. ``accounts`` are the
    budgets that hold here, the root's first. ``depth`` counts the delegates on the way. ``maxParallel`` is how many
    Calls may be in flight in this part of the tree, ``permitKeeper`` the run that is asked for permits (None: this run
    has them all), ``keepsPermits`` says that the runs below ask this one.
    ``identity`` is what the ``_id``s of this run's Calls derive from, ``token`` the secret of the tree
    (``tree/identity.py``); a root makes both when it starts. ``startedAt`` is when the run itself was started, by the
    server's clock in microseconds; a run that continues as new keeps it. ``storesValues``: the root began with external
    storage, so large values of the tree may travel as references. ``approvers``: who alone may decide, by signed
    decisions; none: whoever can send one.
    """

    ancestors: tuple[str, ...] = ()
    instance: str | None = None
    depth: int = 0
    maxDepth: int = DEFAULT_DEPTH
    accounts: tuple[BudgetAccount, ...] = ()
    maxParallel: int = DEFAULT_PARALLEL
    permitKeeper: str | None = None
    keepsPermits: bool = False
    identity: str = ""
    token: str = ""
    startedAt: str = ""
    storesValues: bool = False
    approvers: tuple[Approver, ...] = ()

    @property
    def parent(self) -> str | None:
        """The workflow id of the run that started this one; None at the root of a tree."""
        return self.ancestors[-1] if self.ancestors else None

    @property
    def is_root(self) -> bool:
        """True for a run that no other run of ours started, or that goes on alone."""
        return not self.ancestors

    def with_budget(self, workflow_id: str, budget: Budget) -> TreePosition:
        """The same place, with the run's own limits added to those that hold here already."""
        changes: dict[str, Any] = {}
        if budget.depth is not None:
            own = self.depth + budget.depth
            changes["maxDepth"] = own if self.depth == 0 else min(self.maxDepth, own)
        if any(n is not None for n in (budget.requests, budget.tokens, budget.cost, budget.calls)):
            changes["accounts"] = (*self.accounts, BudgetAccount(id=workflow_id, limits=budget))
        return self.model_copy(update=changes)

    def with_limit(self, max_parallel: int, lease: PermitLease | None) -> TreePosition:
        """The same place, with the run's own ``maxParallel``: that of its tree, or a smaller one for its part of it."""
        limit = min(max_parallel, MAX_PARALLEL)
        if lease is None:
            return self.model_copy(update={"maxParallel": limit})
        if limit >= self.maxParallel:
            return self
        return self.model_copy(update={"maxParallel": limit, "keepsPermits": True})

    def child(self, workflow_id: str, instance: str | None = None, identity: str | None = None) -> TreePosition:
        """The place of a child of this run that works on the same level of delegation.

        ``identity`` None: it walks a part of this run's plan.
        """
        changes: dict[str, Any] = {"ancestors": (*self.ancestors, workflow_id), "startedAt": ""}
        if self.instance is None and instance is not None:
            changes["instance"] = instance
        if identity is not None:
            changes["identity"] = identity
        return self.model_copy(update=changes)

    def delegate(self, workflow_id: str, instance: str | None = None, identity: str | None = None) -> TreePosition:
        """The place of a delegate of this run, one level deeper; ``identity`` is the ``_id`` of its Call."""
        return self.child(workflow_id, instance, identity).model_copy(update={"depth": self.depth + 1})

    def detached(self, identity: str = "") -> TreePosition:
        """The place of a delegate that outlives its tree: the root of a tree of its own, with the same token."""
        return TreePosition(
            depth=self.depth + 1, maxDepth=self.maxDepth, identity=identity, token=self.token,
            storesValues=self.storesValues,
            approvers=self.approvers,
        )  # fmt: skip


# -- what a child is started with ------------------------------------------------------


class Capabilities(Record):
    """What the worker served when the run began, and which definitions were pinned (name to SHA-256).

    ``price`` is what the run's model costs, in US dollars per token of input and of output.
    """

    tools: dict[str, Any] = {}
    served: tuple[str, ...] = ()
    pins: dict[str, str] = {}
    price: tuple[float, float] | None = None


class ContextRef(Record):
    """The run whose context a model is shown, and how many of its messages."""

    workflowId: str
    runId: str
    messageCount: int


class PermitLease(Record):
    """The permits that a run is started with; ``mayAsk`` False: none are free, it is given some when there are."""

    permits: int
    mayAsk: bool = True


class GrantedRequest(Record):
    """One request to a model that the ledger reserved: what it may cost. ``id`` names the reservation.

    ``tokensShort`` and ``costShort`` are what it lacks to the longest answer: the last of a budget goes to a
    shorter one. With ``mayRepair`` as much again is reserved for a second turn.
    """

    id: str
    tokens: int = 0
    cost: float = 0.0
    tokensShort: int = 0
    costShort: float = 0.0
    mayRepair: bool = False


class SettledRequest(Record):
    """What came of a granted request: its usage, or None when it was never made."""

    id: str
    usage: dict[str, Any] | None = None


class PlanInput(VersionedRecord):
    """What the run that walks the plan of a tick, or of a definition, is started with.

    ``capabilities`` None: it looks them up itself. ``approve`` is what the person asked for who
    started the tree; ``part`` says that ``request`` holds a part of the context only. ``settled`` are requests
    that the root has not heard of: this run reports them with its own. ``isGrowing``: the plan is the
    beginning of one that is still being written; each ``PlanExtension`` brings more of it.
    """

    request: dict[str, Any]
    position: TreePosition
    capabilities: Capabilities | None = None
    context: ContextRef | None = None
    approve: Any = None
    part: bool = False
    settled: tuple[SettledRequest, ...] = ()
    isGrowing: bool = False
    lease: PermitLease | None = None


class InstanceInput(PlanInput):
    """A ``PlanInput`` for some instances; ``places`` are those of the Calls in the plan that they were taken from.

    ``resume`` names the children of an earlier run that walked them, and what may be taken over from those.
    """

    instances: tuple[str, ...]
    places: tuple[int, ...] | None = None
    resume: PastSource | None = None


class AnonymousCall(Record):
    """The one Call of a delegate without a definition: its Tool, ``_id`` and outcomes."""

    tool: str
    toolSchema: dict[str, Any]
    served: bool
    id: str
    path: str


class DelegateInput(VersionedRecord):
    """What the child that does a delegated Call is started with, and nothing else of its parent.

    ``price`` is that of the model, where ``anonymous`` takes it over from its parent. ``lease`` is the permit of
    the Call.
    """

    delegate: str
    input: dict[str, Any]
    context: tuple[Any, ...]
    config: dict[str, Any]
    position: TreePosition
    sha256: str | None = None
    call: AnonymousCall | None = None
    price: tuple[float, float] | None = None
    lease: PermitLease | None = None


class BackgroundInput(VersionedRecord):
    """A fire-and-forget Call: an Activity with its three arguments, or a delegate. ``token`` is that of the tree.

    ``storesValues`` as in its ``TreePosition``.
    """

    label: str
    token: str = ""
    activity: str | None = None
    options: dict[str, Any] = {}
    call: dict[str, Any] = {}
    tool: dict[str, Any] = {}
    context: tuple[Any, ...] = ()
    delegate: DelegateInput | None = None
    storesValues: bool = False


# -- what a child gives back -------------------------------------------------------------


class Accounting(Record):
    """What a child's work adds to the run above, beside its result.

    ``settled`` are granted requests whose usage the root has not heard of. ``permits`` are what is left of its lease
    and of what it was granted besides; None: it had no lease.
    """

    settled: tuple[SettledRequest, ...] = ()
    permits: int | None = None


# -- what a run carries into the next ------------------------------------------------------


class ElementsRecord(Record):
    """The elements of a Call with ``_each`` at a moment when none runs; see ``machines/call_state.py``."""

    total: int
    provided: int = 0
    started: int = 0
    failed: int = 0
    cancelled: int = 0
    results: tuple[Any, ...] = ()
    errors: dict[int, dict[str, Any]] = {}
    postponed: tuple[int, ...] = ()


class CallRecord(Record):
    """One Call of a walk at a moment when none runs; the fields are those of ``CallState``."""

    stage: str = "pending"
    outcome: int | None = None
    values: tuple[Any, ...] = ()
    date: str = ""
    error: dict[str, Any] | None = None
    approved: bool = False
    edited: bool = False
    value: Any = None
    reason: str | None = None
    elements: ElementsRecord | None = None


class WalkState(Record):
    """A walk that continues in the next run of its workflow. ``calls`` are by rank, those to which something happened.

    ``provided`` are the messages that came from outside.
    """

    calls: dict[int, CallRecord] = {}
    provided: tuple[Any, ...] = ()
    isPaused: bool = False
    isGrowing: bool = False


class PlanState(VersionedRecord):
    """A plan that continues as new. ``input`` is what the run was started with, without its Request.

    ``past`` is what it still needs of the run that it resumes.
    """

    request: dict[str, Any]
    capabilities: Capabilities
    walk: WalkState
    approvals: dict[str, Any]
    budget: dict[str, Any]
    input: dict[str, Any] | None = None
    position: TreePosition | None = None
    usage: dict[str, Any] = {}
    version: int = 1
    isApproved: bool = True
    lease: PermitLease | None = None
    past: PastState | None = None


class UnusableAnswers(Record):
    """Answers of a model in a row that could not be used.

    ``cap`` is that of the request after a cut answer, in tokens: no later one is lower.
    """

    count: int = 0
    cap: int | None = None

    def added(self, unusable: Mapping[str, Any]) -> UnusableAnswers:
        """One more, as the model activity returns it."""
        cap = unusable.get("cap")
        count = self.count + unusable.get("answers", 1)
        return UnusableAnswers(count=count, cap=cap if isinstance(cap, int) else self.cap)


class Turn(Record):
    """One answer of a planner, and what came of it. ``at`` is the number of messages when it was requested.

    ``answer`` is the Solution as the planner wrote it. With ``hasPlan`` its calls are left out: they are those of the
    first plan message from ``at`` on. ``text`` is an answer that was no JSON. ``changed`` are the Calls that a person
    put in place of the answer's before anything ran.
    """

    at: int
    answer: Any = None
    hasPlan: bool = False
    text: str | None = None
    outcomes: tuple[dict[str, Any], ...] = ()
    problems: tuple[dict[str, Any], ...] = ()
    changed: tuple[Any, ...] = ()


class AgentProgress(Record):
    """What an agent has done: ``context`` are the messages that joined the Request's.

    ``turnAt`` and ``answer`` belong to the turn under way. ``proposal`` are the Calls that wait for a person, and
    ``wantedOutput`` is the output that came with them.
    """

    context: tuple[Any, ...] = ()
    tick: int = 0
    planTick: int = 0
    usage: dict[str, Any] = {}
    calls: tuple[dict[str, Any], ...] = ()
    errors: tuple[dict[str, Any], ...] = ()
    instances: dict[str, dict[str, Any]] = {}
    turns: tuple[Turn, ...] = ()
    turnAt: int = 0
    answer: Any = None
    unusable: UnusableAnswers = UnusableAnswers()
    proposal: tuple[Any, ...] | None = None
    wantedOutput: Any = None


class AgentState(VersionedRecord):
    """An agent that continues as new, between two ticks or while its plan waits for a person.

    ``definition`` and ``delegate`` are those of a delegate: where its definition came from, and its input.
    """

    request: dict[str, Any]
    capabilities: Capabilities
    position: TreePosition
    progress: AgentProgress
    approvals: dict[str, Any]
    budget: dict[str, Any]
    isPaused: bool = False
    version: int = 0
    provided: tuple[Any, ...] = ()
    definition: dict[str, str] = {}
    delegate: dict[str, Any] | None = None
    lease: PermitLease | None = None
