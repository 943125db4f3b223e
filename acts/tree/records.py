"""What a run of a tree is started with, gives back, asks a model, and carries into the next: frozen, versioned records.

The signals between runs are in ``signal_records.py``; ``wire_format.py`` says what all have in common. This file knows
no Temporal: ``workflows/payloads.py`` puts records into payloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel

from acts.language.config import DEFAULT_PARALLEL, DEFAULT_PATIENCE_SECONDS, MAX_PARALLEL, Budget, Rule, join_rules
from acts.language.values import Json
from acts.tree.decisions import Approver
from acts.tree.past_run import PastSource, PastState, UndoStep
from acts.tree.wire_format import Record, VersionedRecord

DEFAULT_DEPTH: Final = 8  # how deep delegates may call delegates, where no budget says otherwise


class BudgetAccount(Record):
    id: str  # a workflow id
    limits: Budget


class TreePosition(Record):
    """The place of a run below its root."""

    ancestors: tuple[str, ...] = ()  # workflow ids from the root down to the parent
    instance: str | None = None  # what the root's plan walks on this branch
    depth: int = 0  # delegates on the way
    maxDepth: int = DEFAULT_DEPTH
    accounts: tuple[BudgetAccount, ...] = ()  # the budgets that hold here, the root's first
    maxParallel: int = DEFAULT_PARALLEL  # Calls in flight in this part of the tree
    permitKeeper: str | None = None  # the run that is asked for permits; None: this run has them all
    keepsPermits: bool = False  # the runs below ask this one
    # What the ``_id``s of this run's Calls derive from, and the secret of the tree (``tree/identity.py``)
    identity: str = ""
    token: str = ""
    startedAt: str = ""  # by the server's clock in microseconds; kept by continue-as-new
    storesValues: bool = False  # the root began with external storage: large values may travel as references
    approvers: tuple[Approver, ...] = ()  # who alone may decide, signed; none: whoever can send a decision
    isGuarded: bool = False  # a person has approved what it works with: what is provided since then is asked about
    guard: Rule | None = None  # … by this rule; there before, where an edit took away what a stricter one asks about
    pins: dict[str, str] = {}  # SHA-256 of the definitions that this person has approved, by name

    @property
    def parent(self) -> str | None:
        return self.ancestors[-1] if self.ancestors else None

    @property
    def is_root(self) -> bool:
        """True for a run that no other run of ours started, or that goes on alone."""
        return not self.ancestors

    def with_budget(self, workflow_id: str, budget: Budget) -> TreePosition:
        changes: dict[str, Any] = {}
        if budget.depth is not None:
            own = self.depth + budget.depth
            changes["maxDepth"] = own if self.depth == 0 else min(self.maxDepth, own)
        if any(n is not None for n in (budget.requests, budget.tokens, budget.cost, budget.calls)):
            changes["accounts"] = (*self.accounts, BudgetAccount(id=workflow_id, limits=budget))
        return self.model_copy(update=changes)

    def guarded(self, rule: Rule) -> TreePosition:
        """A person has approved by this rule what the run works with."""
        joined = rule if self.guard is None else join_rules([self.guard, rule]) or self.guard
        return self.model_copy(update={"isGuarded": True, "guard": joined})

    def with_limit(self, max_parallel: int, lease: PermitLease | None) -> TreePosition:
        """Apply the run's own ``maxParallel``: that of its tree, or a smaller one for its part of it."""
        limit = min(max_parallel, MAX_PARALLEL)
        if lease is not None and limit >= self.maxParallel:
            return self
        return self.model_copy(update={"maxParallel": limit, "keepsPermits": self.keepsPermits or lease is not None})

    def child(self, workflow_id: str, instance: str | None = None, identity: str | None = None) -> TreePosition:
        """The place of a child on the same level of delegation; ``identity`` None: it walks a part of this run's plan.

        ``workflow_id`` is that of this run.
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
            storesValues=self.storesValues, approvers=self.approvers, isGuarded=self.isGuarded, guard=self.guard,
            pins=self.pins,
        )  # fmt: skip


# -- what a child is started with ------------------------------------------------------


class Capabilities(Record):
    """What the worker served when the run began."""

    tools: dict[str, Any] = {}
    served: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()  # what Tools of the worker have a person confirm: Activities, and tools of MCP servers
    pins: dict[str, str] = {}  # SHA-256 of pinned definitions, by name
    uses: dict[str, dict[str, str]] = {}  # … and of those that a pinned one names, and those name
    price: tuple[float, float] | None = None  # of the model: US dollars per token of input, of output


class ContextRef(Record):
    workflowId: str
    runId: str
    messageCount: int


class PermitLease(Record):
    """The permits that a run is started with; ``mayAsk`` False: none are free, it is given some when there are."""

    permits: int
    mayAsk: bool = True


class GrantedRequest(Record):
    """One request to a model that the ledger reserved: what it may cost."""

    id: str
    tokens: int = 0
    cost: float = 0.0
    # What it lacks to the longest answer: the last of a budget goes to a shorter one
    tokensShort: int = 0
    costShort: float = 0.0
    mayRepair: bool = False  # as much again is reserved for a second turn


class SettledRequest(Record):
    id: str
    usage: dict[str, Any] | None = None


class PlanInput(VersionedRecord):
    """What the run that walks the plan of a tick, or of a definition, is started with."""

    request: dict[str, Any]
    position: TreePosition
    capabilities: Capabilities | None = None  # None: it looks them up itself
    context: ContextRef | None = None
    approve: Any = None  # as the person asked for it who started the tree
    part: bool = False  # ``request`` holds a part of the context only
    settled: tuple[SettledRequest, ...] = ()  # the root has not heard of them; reported with the run's own
    isGrowing: bool = False  # the plan is still being written: each ``PlanExtension`` brings more of it
    undoes: bool = False  # it undoes what the run above has done
    lease: PermitLease | None = None
    until: str | None = None  # a condition: as soon as it holds, the run ends


class InstanceInput(PlanInput):
    instances: tuple[str, ...]
    places: tuple[int, ...] | None = None  # of the Calls in the plan that they were taken from
    resume: PastSource | None = None  # the children of an earlier run that walked these instances


class AnonymousCall(Record):
    """The one Call of a delegate without a definition: its Tool, ``_id`` and outcomes."""

    tool: str
    toolSchema: dict[str, Any]
    served: bool
    id: str
    path: str


class InnerPlan(Record):
    """What a Call of the Tool ``plan`` walks: the messages of a context, or a plan by name, with the Tools of its run.

    It is walked at most ``max`` times, until ``until`` holds; so many seconds lie between two of them.
    """

    tools: tuple[Any, ...]  # messages
    calls: tuple[Any, ...] | None = None  # None: it has a name
    capabilities: Capabilities | None = None
    until: str | None = None
    max: int | None = None
    every: float = 0.0


class DelegateInput(VersionedRecord):
    """What the child that does a delegated Call is started with, and nothing else of its parent."""

    delegate: str
    input: dict[str, Any]
    context: tuple[Any, ...]
    config: dict[str, Any]
    position: TreePosition
    sha256: str | None = None
    call: AnonymousCall | None = None
    plan: InnerPlan | None = None
    price: tuple[float, float] | None = None  # of the model, where ``anonymous`` takes it over from its parent
    lease: PermitLease | None = None  # the permit of the Call


class BackgroundInput(VersionedRecord):
    """A fire-and-forget Call: an Activity with its three arguments, or a delegate."""

    label: str
    token: str = ""
    activity: str | None = None
    options: dict[str, Any] = {}
    call: dict[str, Any] = {}
    tool: dict[str, Any] = {}
    context: tuple[Any, ...] = ()
    delegate: DelegateInput | None = None
    storesValues: bool = False


class Accounting(Record):
    """What a child's work adds to the run above, beside its result."""

    settled: tuple[SettledRequest, ...] = ()  # the root has not heard of their usage
    permits: int | None = None  # left of its lease and of later grants; None: it had no lease


# -- what a model is asked -----------------------------------------------------------------


class Reserved(BaseModel, frozen=True):
    """What all requests of a question may use; None: no limit. ``cost`` is in US dollars."""

    tokens: float | None = None
    cost: float | None = None


class ModelQuestion(BaseModel, frozen=True):
    """What the model activity is asked: for a Solution, or for the result of a latent Call."""

    ask: Literal["solution", "output"]
    model: str
    source: ContextRef  # its first messages are shown
    fallbackModels: tuple[str, ...] = ()
    patience: float = DEFAULT_PATIENCE_SECONDS
    effort: str | None = None
    temperature: float | None = None
    maxOutputTokens: int | None = None
    priced: bool = False  # the budget limits the cost: a model without a price is refused
    mayRepair: bool = True  # further requests may be made, within what is reserved for all
    answersLeft: int | None = None  # so many unusable answers end the run; None: the most that any may have
    reserved: Reserved = Reserved()
    token: str = ""
    root: str | None = None  # is told of waits
    # Of a Solution
    tick: int = 1
    streams: bool = False  # Calls are reported while the model writes
    # Of a latent Call; ``paths`` are its outcomes
    tool: str = ""
    call: dict[str, Any] = {}
    paths: tuple[str, ...] = ()
    scoped: Json = None
    batch: bool = False  # its request waits in a batch of the provider

    @property
    def is_planning(self) -> bool:
        return self.ask == "solution"


# -- what a run carries into the next ------------------------------------------------------


class ElementsRecord(Record):
    """The elements of a Call with ``_each`` at a moment when none runs; see ``machines/call_state.py``."""

    total: int
    provided: int = 0
    started: int = 0
    failed: int = 0
    cancelled: int = 0
    results: list[Any] = []
    errors: dict[int, dict[str, Any]] = {}
    postponed: list[int] = []
    running: dict[int, None] = {}  # that people are to answer
    is_held: bool = False


class CallRecord(Record):
    """One Call of a walk at a moment when none runs; the fields are those of ``CallState``."""

    stage: str = "pending"
    outcome: int | None = None
    values: tuple[Any, ...] = ()
    date: str = ""
    error: dict[str, Any] | None = None
    place: str | None = None
    approved: dict[str, Any] | None = None
    asked: dict[str, Any] | None = None
    rule: Rule | None = None
    edited: bool = False
    value: Any = None
    reason: str | None = None
    cause: str | None = None
    until: str | None = None
    elements: ElementsRecord | None = None
    undo: dict[int, tuple[UndoStep, ...]] = {}


class WalkState(Record):
    calls: dict[int, CallRecord] = {}  # by rank, those to which something happened
    provided: tuple[Any, ...] = ()  # messages that came from outside
    isPaused: bool = False
    isGrowing: bool = False


class RunState(VersionedRecord):
    """Base of what a run that continues as new hands on."""

    request: dict[str, Any]
    capabilities: Capabilities
    approvals: dict[str, Any]
    budget: dict[str, Any]
    lease: PermitLease | None = None


class PlanState(RunState):
    walk: WalkState
    input: dict[str, Any] | None = None  # what the run was started with, without its Request
    position: TreePosition | None = None
    usage: dict[str, Any] = {}
    version: int = 1
    isApproved: bool = True
    heldMessages: tuple[Any, ...] = ()  # that were provided since the plan was approved; a person decides about them
    past: PastState | None = None


class UnusableAnswers(Record):
    """Answers of a model in a row that could not be used."""

    count: int = 0
    cap: int | None = None  # tokens of the request after a cut answer: no later one is lower

    def added(self, unusable: Mapping[str, Any]) -> UnusableAnswers:
        cap = unusable.get("cap")
        count = self.count + unusable.get("answers", 1)
        return UnusableAnswers(count=count, cap=cap if isinstance(cap, int) else self.cap)


class Turn(Record):
    """One answer of a planner, and what came of it."""

    at: int  # messages when it was requested
    answer: Any = None  # the Solution as the planner wrote it
    hasPlan: bool = False  # its calls are left out: they are those of the first plan message from ``at`` on
    text: str | None = None  # an answer that was no JSON
    outcomes: tuple[dict[str, Any], ...] = ()
    problems: tuple[dict[str, Any], ...] = ()
    changed: tuple[Any, ...] = ()  # Calls that a person put in place of the answer's before anything ran


class AgentState(RunState):
    """An agent that continues as new, between two ticks or while its plan waits for a person."""

    position: TreePosition
    isPaused: bool = False
    version: int = 0
    provided: tuple[Any, ...] = ()
    definition: dict[str, str] = {}  # of a delegate: where its definition came from
    context: tuple[Any, ...] = ()  # messages that joined the Request's
    tick: int = 0
    planTick: int = 0
    undo: tuple[UndoStep, ...] = ()
    usage: dict[str, Any] = {}
    calls: tuple[dict[str, Any], ...] = ()
    errors: tuple[dict[str, Any], ...] = ()
    instances: dict[str, dict[str, Any]] = {}
    turns: tuple[Turn, ...] = ()
    # Of the turn under way
    turnAt: int = 0
    answer: Any = None
    unusable: UnusableAnswers = UnusableAnswers()
    # The Calls that wait for a person, and the output that came with them
    proposal: tuple[Any, ...] | None = None
    wantedOutput: Any = None
