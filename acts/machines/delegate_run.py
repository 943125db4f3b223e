"""What a delegate without a planner does: it has a definition's plan walked, or makes one Call.

``WalkedDelegate`` is behind a definition whose plan says ``run``; ``AnonymousDelegate`` behind the name
``anonymous``: one Call of one Tool, with nothing but its scopes and its input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.errors import CallError, TooComplex, truncate
from acts.language.messages import output_schema
from acts.language.schemas import checker
from acts.language.strict_json import json_size
from acts.language.values import pointer
from acts.language.wire import (
    BUDGET_SPENT,
    PAUSE,
    PLAN_FAILED,
    REJECT,
    RESUME,
    SCHEMA_MISMATCH,
    TOO_COMPLEX,
)
from acts.machines.events import (
    Begin,
    CallCompleted,
    CallFailed,
    CancelRequested,
    ChildEnded,
    Event,
    PauseRequested,
    Provided,
    ResumeRequested,
)
from acts.machines.provided_messages import provide_signal
from acts.machines.request_size import MAX_NAMED_BYTES, ContextBytes, latent_request_size
from acts.machines.run_commands import AskOutput, Finish, SignalChildren, StartActivity, StartPlanRun
from acts.machines.run_machine import RunMachine
from acts.tree.delegation import plan_output
from acts.tree.identity import part_identity
from acts.tree.records import PlanInput

if TYPE_CHECKING:
    from acts.language.config import Config
    from acts.language.messages import Data, Request
    from acts.machines.approval_effects import Decided
    from acts.machines.budget import BudgetRefused, Granted
    from acts.plan.validate import ValidatedPlan
    from acts.tree.records import Capabilities, ContextRef, DelegateInput, TreePosition

_PLAN: str = "plan"
# Failures of its plan that a delegate names in its own
MAX_FAILURES: int = 5


class DelegateMachine(RunMachine):
    """A delegate without a planner: ``result`` is what it came to, ``failure`` why it failed."""

    def __init__(self, own: str, own_input: DelegateInput, position: TreePosition, request: Request) -> None:
        super().__init__(own, position, own_input.grant, own_input.lease)
        self.request = request
        self.result: dict[str, Any] = {}
        self.failure: CallError | None = None
        self._is_paused = False
        self._begins_later = False

    @property
    def config(self) -> Config:
        """The settings of its Request."""
        return self.request.config

    @property
    def phase(self) -> str:
        """``running``, or how it ended."""
        return self.finished or ("cancelled" if self.is_cancelling else "running")

    @property
    def is_paused(self) -> bool:
        """True while nothing starts."""
        return self._is_paused

    @property
    def in_flight(self) -> int:
        """1 until it has ended."""
        return int(self.finished is None)

    @property
    def can_continue_as_new(self) -> bool:
        """False: its history stays short."""
        return False

    def begin(self) -> list[Any]:
        """Start what it does, or ask the budget for it."""
        raise NotImplementedError

    def react(self, event: Event, now: str) -> list[Any]:
        """The effects of an event; a paused delegate begins when it is resumed."""
        if isinstance(event, Begin):
            self._begins_later = self._is_paused
            return [] if self._is_paused else self.begin()
        if isinstance(event, PauseRequested):
            self._is_paused = True
            return [SignalChildren(PAUSE)]
        if isinstance(event, ResumeRequested):
            self._is_paused, begins = False, self._begins_later
            self._begins_later = False
            return [SignalChildren(RESUME), *(self.begin() if begins else ())]
        if isinstance(event, CancelRequested):
            self.is_cancelling, self._begins_later = True, False
        return []

    def on_decided(self, effect: Decided, now: str) -> list[Any]:
        """Nothing waits in such a run itself."""
        return []

    def on_history_full(self, error: CallError, now: str) -> list[Any]:
        """Nothing more can be recorded."""
        return self.fail(error)

    def complete(self, **result: Any) -> list[Any]:
        """It has come to an end."""
        self.result = {"status": "completed", **result}
        self.finished = "completed"
        return [Finish("completed")]

    def fail(self, error: CallError, **result: Any) -> list[Any]:
        """It has failed; ``result`` is what is known all the same."""
        self.result = {"status": "failed", **result}
        self.failure = error
        self.finished = "failed"
        return [Finish("failed")]


class WalkedDelegate(DelegateMachine):
    """Has the plan of a definition walked by a child, and yields ``state.output``, else the state."""

    def __init__(
        self, own: str, own_input: DelegateInput, position: TreePosition, request: Request, raw: dict[str, Any]
    ) -> None:
        super().__init__(own, own_input, position, request)
        self._raw, self._name = raw, own_input.delegate
        self._provided: list[Data] = []
        self._has_plan = False
        self.budget.return_advance()

    def begin(self) -> list[Any]:
        """Ask for the Calls of the plan."""
        plan = self.request.plan
        count = self.request.count_calls(plan.calls if plan is not None else ())
        return list(self.budget.request_calls(_PLAN, count))

    def react(self, event: Event, now: str) -> list[Any]:
        """The effects of an event; what is provided before the plan starts reaches it then."""
        if isinstance(event, ChildEnded):
            return self._plan_ended(event)
        if isinstance(event, Provided):
            if not self._has_plan:
                self._provided.append(event.message)
                return []
            return [provide_signal(event.message)]
        return super().react(event, now)

    def on_granted(self, effect: Granted, now: str) -> list[Any]:
        """Its Calls are allowed."""
        self._has_plan = True
        identity = part_identity(self.position.identity, _PLAN)
        own = PlanInput(request=self._raw, position=self.position.child(self.own, identity=identity))
        start = StartPlanRun(_PLAN, f"the plan of {truncate(self._name, 150)}", own)
        return [start, *map(provide_signal, self._provided)]

    def on_refused(self, effect: BudgetRefused, now: str) -> list[Any]:
        """The budget does not allow its Calls."""
        return self.fail(CallError(BUDGET_SPENT, effect.reason))

    def _plan_ended(self, event: ChildEnded) -> list[Any]:
        report = event.report or {}
        if self.is_cancelling:
            return []
        self.approvals.records += report.get("decisions") or ()
        if event.error is not None:
            return self.fail(CallError(event.error.code, event.error.message))
        errors = report["errors"]
        if report["status"] != "completed":
            lines = (f"{e['call']}: [{e['code']}] {truncate(str(e['message']), 300)}" for e in errors[:MAX_FAILURES])
            text = "; ".join(lines) or f"its plan was {report['status']}{self._reason()}"
            return self.fail(CallError(PLAN_FAILED, text), errors=errors)
        output = plan_output(self.request.data(), report["context"])
        schema = output_schema(self.request.schema)
        try:
            defects = [] if schema is None else checker(schema).defects(output)
        except TooComplex as error:
            return self.fail(CallError(TOO_COMPLEX, f"what the plan yields: {error}"))
        if defects:
            text = "; ".join(f"{pointer(*at) or 'it'}: {why}" for at, why in defects[:MAX_FAILURES])
            return self.fail(CallError(SCHEMA_MISMATCH, f"what the plan yields breaks the definition's schema: {text}"))
        return self.complete(output=output)

    def _reason(self) -> str:
        """Why a person rejected the plan, for the end of a sentence."""
        rejections = [
            r.get("reason") for r in self.approvals.records if (r.get("what"), r.get("decision")) == ("plan", REJECT)
        ]
        return f": {truncate(str(rejections[-1]), 300)}" if rejections and rejections[-1] else ""


class AnonymousDelegate(DelegateMachine):
    """Makes one Call; its result is the Activity's own, or the model's."""

    def __init__(
        self, own: str, own_input: DelegateInput, position: TreePosition, prepared: ValidatedPlan,
        capabilities: Capabilities, source: ContextRef,
    ) -> None:  # fmt: skip
        super().__init__(own, own_input, position, prepared.request)
        self.prepared = prepared
        self.price, self._source = capabilities.price, source
        self.node = prepared.nodes[0]
        id_ = own_input.call.id if own_input.call is not None else ""
        self._call = {**self.node.call, **own_input.input, "_id": id_}
        self._context = list(own_input.context)
        if self.node.kind != "latent":
            self.budget.return_advance()

    def begin(self) -> list[Any]:
        """Start the Activity, or ask for the request to the model."""
        if self.node.kind != "latent":
            return [StartActivity(self.node, self._call, self._context)]
        own = min(json_size([self._call, self._context, dict(self.node.tool.schema)]), MAX_NAMED_BYTES)
        own += ContextBytes().count(self.request.context)
        size = latent_request_size(self.config, self.price, own)
        return list(self.budget.request([self.node.key], size))

    def react(self, event: Event, now: str) -> list[Any]:
        """The effects of an event."""
        if isinstance(event, CallCompleted):
            return self._settle(event.usage) + self.complete(output=event.value, path=event.chosen)
        if isinstance(event, CallFailed):
            return self._settle(event.usage) + ([] if self.is_cancelling else self.fail(event.error))
        return super().react(event, now)

    def _settle(self, usage: dict[str, Any] | None) -> list[Any]:
        self.usage.add(usage)
        return list(self.budget.settle(self.node.key, usage))

    def on_granted(self, effect: Granted, now: str) -> list[Any]:
        """Its request is allowed."""
        return [AskOutput(self.node, self._call, self._context, self._source, effect.request)]

    def on_refused(self, effect: BudgetRefused, now: str) -> list[Any]:
        """The budget does not allow its request."""
        return self.fail(CallError(BUDGET_SPENT, f"{effect.reason}, and this call needs a request to a model"))
