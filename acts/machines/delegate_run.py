"""What a delegate without a planner does: it has a definition's plan walked, or makes one Call.

``WalkedDelegate`` is behind a definition whose plan says ``run``; ``AnonymousDelegate`` behind the name
``anonymous``: one Call of one Tool, with nothing but its scopes and its input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language import wire
from acts.language.errors import CallError, TooComplex, truncate
from acts.language.messages import output_schema
from acts.language.schemas import Checker
from acts.language.values import pointer
from acts.machines import commands, events
from acts.machines.budget import context_bytes, latent_request_size
from acts.machines.run_machine import RunMachine
from acts.tree.child_requests import plan_output
from acts.tree.identity import part_identity
from acts.tree.records import PlanInput

if TYPE_CHECKING:
    from acts.language.messages import Data, Request
    from acts.plan.validate import ValidatedPlan
    from acts.tree.records import Capabilities, ContextRef, DelegateInput, TreePosition

_PLAN: Final = "plan"
# Failures of its plan that a delegate names in its own
MAX_FAILURES: Final = 5


class DelegateMachine(RunMachine):
    """A delegate without a planner: ``result`` is how it ended, ``failure`` why it failed."""

    def __init__(self, own: str, own_input: DelegateInput, position: TreePosition, request: Request) -> None:
        super().__init__(own, position, own_input.lease)
        self.request, self.config = request, request.config
        self.result: dict[str, Any] = {}
        self._begins_later = False

    @property
    def in_flight(self) -> int:
        """1 until it has ended."""
        return int(self.finished is None)

    def begin(self) -> list[Any]:
        """Start what it does, or ask the budget for it."""
        raise NotImplementedError

    def react(self, event: events.Event, now: str) -> list[Any]:
        """The effects of an event; a paused delegate begins when it is resumed."""
        match event:
            case events.Begin():
                self._begins_later = self.is_paused
                return [] if self.is_paused else self.begin()
            case events.ResumeRequested() if self._begins_later:
                self._begins_later = False
                return self.begin()
            case events.CancelRequested():
                self.is_cancelling, self._begins_later = True, False
        return []

    def on_refused(self, effect: commands.BudgetRefused, now: str) -> list[Any]:
        """The budget does not allow what it does."""
        return self.end(CallError(wire.BUDGET_SPENT, effect.reason))

    def on_history_full(self, error: CallError, now: str) -> list[Any]:
        """Nothing more can be recorded."""
        return self.end(error)

    def end(self, failure: CallError | None = None, **result: Any) -> list[Any]:
        """It has ended; ``result`` is what is known also of one that failed."""
        status = "completed" if failure is None else "failed"
        self.result, self.failure = {"status": status, **result}, failure
        return self.finish(status)


class WalkedDelegate(DelegateMachine):
    """Has the plan of a definition walked by a child, and yields ``state.output``, else the state."""

    def __init__(
        self, own: str, own_input: DelegateInput, position: TreePosition, request: Request, raw: dict[str, Any]
    ) -> None:
        super().__init__(own, own_input, position, request)
        self._raw, self._name = raw, own_input.delegate
        self._provided: list[Data] = []
        self._has_plan = False

    def begin(self) -> list[Any]:
        """Ask for the Calls of the plan."""
        plan = self.request.plan
        return self.budget.request_calls(_PLAN, self.request.count_calls(() if plan is None else plan.calls))

    def react(self, event: events.Event, now: str) -> list[Any]:
        """The effects of an event; what is provided before the plan starts reaches it then."""
        match event:
            case events.ChildEnded() if not self.is_cancelling:
                return self._plan_ended(event)
            case events.Provided(message) if self._has_plan:
                return [commands.SignalChildren(wire.PROVIDE, message.raw)]
            case events.Provided(message):
                self._provided.append(message)
                return []
        return super().react(event, now)

    def on_granted(self, effect: commands.Granted, now: str) -> list[Any]:
        """Its Calls are allowed."""
        self._has_plan = True
        identity = part_identity(self.position.identity, _PLAN)
        own = PlanInput(request=self._raw, position=self.position.child(self.own, identity=identity))
        start = commands.StartChild(wire.PLAN, _PLAN, f"the plan of {truncate(self._name, 150)}", own)
        return [start, *(commands.SignalChildren(wire.PROVIDE, message.raw) for message in self._provided)]

    def _plan_ended(self, event: events.ChildEnded) -> list[Any]:
        report = event.report or {}
        self.approvals.records += report.get("decisions") or ()
        if event.error is not None:
            return self.end(CallError(event.error.code, event.error.message))
        errors = report["errors"]
        if report["status"] != "completed":
            lines = (f"{e['call']}: [{e['code']}] {truncate(str(e['message']), 300)}" for e in errors[:MAX_FAILURES])
            text = "; ".join(lines) or f"its plan was {report['status']}"
            return self.end(CallError(wire.PLAN_FAILED, text), errors=errors)
        output = plan_output(self.request.data(), report["context"])
        schema = output_schema(self.request.schema)
        try:
            defects = [] if schema is None else Checker(schema).defects(output)
        except TooComplex as error:
            return self.end(CallError(wire.TOO_COMPLEX, f"what the plan yields: {error}"))
        if defects:
            text = "; ".join(f"{pointer(*at) or 'it'}: {why}" for at, why in defects[:MAX_FAILURES])
            return self.end(
                CallError(wire.SCHEMA_MISMATCH, f"what the plan yields breaks the definition's schema: {text}")
            )
        return self.end(output=output)


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

    def begin(self) -> list[Any]:
        """Start the Activity, or ask for the request to the model."""
        if self.node.kind != "latent":
            return [commands.StartCall(self.node, self._call, self._context)]
        shown = [self._call, self._context, dict(self.node.tool.schema)]
        size = latent_request_size(self.config, self.price, context_bytes(self.request.context), [shown])
        return self.budget.request([self.node.key], size)

    def react(self, event: events.Event, now: str) -> list[Any]:
        """The effects of an event."""
        match event:
            case events.CallEnded(value=value, chosen=chosen, usage=usage, error=None):
                return [*self._settle(usage), *self.end(output=value, path=chosen)]
            case events.CallEnded(error=error, usage=usage):
                return [*self._settle(usage), *(() if self.is_cancelling else self.end(error))]
        return super().react(event, now)

    def _settle(self, usage: dict[str, Any] | None) -> list[Any]:
        self.usage.add(usage)
        return self.budget.settle(self.node.key, usage)

    def on_granted(self, effect: commands.Granted, now: str) -> list[Any]:
        """Its request is allowed."""
        return [commands.AskOutput(self.node, self._call, self._context, self._source, effect.request)]
