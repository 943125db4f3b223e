"""How the Calls that a walk starts become commands of its run: what stands behind each, and what it may spend.

A Call that begins with a request to a model waits here for its grant, where requests are limited; the
budget is asked once for all Calls that start together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.errors import CallError, EngineError
from acts.language.strict_json import json_size
from acts.language.wire import ANONYMOUS, BUDGET_SPENT, LIMIT_EXCEEDED
from acts.machines.call_state import SETTLED, CallState
from acts.machines.commands import CountElements
from acts.machines.request_size import MAX_NAMED_BYTES, ContextBytes, latent_request_size
from acts.machines.run_commands import AskOutput, StartActivity, StartBackground, StartDelegate, StartInstances
from acts.plan.planned_call import UNIT, PlannedCall
from acts.tree.batches import Batch, widest_instance
from acts.tree.delegation import build_delegate_input, depth_problem
from acts.tree.past_run import request_digest
from acts.tree.records import BackgroundInput, InstanceInput

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acts.machines.budget import BudgetRefused, Granted
    from acts.machines.commands import StartCall
    from acts.machines.ledger import RequestSize
    from acts.machines.plan_run import PlanRun
    from acts.plan.validate import ValidatedPlan


class CallStarts:
    """The Calls of one run on their way from the walk to their activities and children."""

    def __init__(self, run: PlanRun) -> None:
        self._run = run
        self._waiting: dict[str, StartCall | CountElements] = {}
        self._batch: tuple[ValidatedPlan, Batch] | None = None
        self._widest: tuple[ValidatedPlan, int] | None = None
        self._context_bytes = ContextBytes()

    @property
    def is_waiting(self) -> bool:
        """True while a Call waits for the answer of the budget."""
        return bool(self._waiting)

    @property
    def widest_instance(self) -> int:
        """How many Calls of one instance may run at once."""
        whole = self._run.whole_plan
        if self._widest is None or self._widest[0] is not whole:
            self._widest = (whole, widest_instance(whole))
        return self._widest[1]

    @property
    def has_room(self) -> bool:
        """False while as many Calls wait for their grant as may be in flight: more would only take memory."""
        return len(self._waiting) < self._run.permits.limit

    def start(self, commands: Iterable[StartCall], now: str) -> list[Any]:
        """The effects that start these Calls, or ask the budget first."""
        out: list[Any] = []
        asking: list[StartCall] = []
        for command in commands:
            if self._needs_grant(command.node):
                asking.append(command)
            else:
                out += self._start(command, None, now)
        return out + self._ask_budget(asking)

    def count_elements(self, command: CountElements) -> list[Any]:
        """Ask the budget whether a Call may be made for all of its elements: each counts as a Call."""
        self._waiting[command.node.key] = command
        return list(self._run.budget.request_calls(command.node.key, command.more))

    def granted(self, effect: Granted, now: str) -> list[Any]:
        """A Call has its request, or may be made for its elements: start it, unless it does not run any more."""
        command = self._waiting.pop(effect.key, None)
        walk = self._run.walk
        if isinstance(command, CountElements):
            return self._run.on_call(effect.key, lambda rank: walk.allow_elements(rank, now), now)
        row = walk.rows.get(effect.key)
        if command is None or row is None or walk.states.call(row).state != "running":
            return list(self._run.budget.settle(effect.key, None))
        return self._start(command, effect, now)

    def refused(self, effect: BudgetRefused, now: str) -> list[Any]:
        """A Call has no request. A delegate starts all the same: it may need none, and knows the answer if it does."""
        command = self._waiting.pop(effect.key, None)
        run = self._run
        if isinstance(command, CountElements):
            text = f"{effect.reason}, and each element of _each counts as a call"
            too_many = CallError(BUDGET_SPENT, text)
            return run.on_call(effect.key, lambda rank: run.walk.allow_elements(rank, now, too_many), now)
        if command is not None and command.node.kind == "delegate" and command.node.delegate != ANONYMOUS:
            return self._start_delegate(command, None, now, effect.reason)
        error = CallError(BUDGET_SPENT, f"{effect.reason}, and this call needs a request to a model")
        return run.on_call(effect.key, lambda rank: run.walk.failed(rank, error, now), now)

    def withdraw(self, key: str) -> None:
        """This Call does not start any more."""
        self._waiting.pop(key, None)

    def withdraw_all(self) -> list[str]:
        """None of the Calls that wait for a grant starts any more; returns their keys."""
        keys = list(self._waiting)
        self._waiting.clear()
        for key in keys:
            self._run.budget.withdraw(key)
        return keys

    def _needs_grant(self, node: PlannedCall) -> bool:
        """True for a Call that begins with a request to a model, where requests are limited."""
        if node.kind == "delegate":
            limited = self._run.budget.limits_requests or self._run.budget.limits_calls
            return limited if node.is_detached else self._run.budget.limits_requests and not node.runs_activity
        return node.kind == "latent" and self._run.budget.limits_requests

    def _ask_budget(self, commands: list[StartCall]) -> list[Any]:
        """Ask once for all Calls that start now."""
        out: list[Any] = []
        detached = [c for c in commands if c.node.is_detached]
        requests = [c for c in commands if not c.node.is_detached]
        self._waiting |= {c.node.key: c for c in commands}
        for command in commands:  # others may need the permit that a Call without a grant cannot use
            self._run.permits.release(command.node.key)
        for command in detached:
            out += self._run.budget.request_share(command.node.key, 1 + max(1, self._open_detached()))
        if requests:
            out += self._run.budget.request([c.node.key for c in requests], self._size(requests), self._open_latent())
        return out

    def _open_detached(self) -> int:
        pairs = zip(self._run.walk.nodes, self._run.walk.calls, strict=True)
        return sum(_open_detached(r) for n, r in pairs if n.is_detached and n.kind == "delegate")

    def _open_latent(self) -> int:
        """How many latent Calls may still need a request."""
        pairs = zip(self._run.walk.nodes, self._run.walk.calls, strict=True)
        return sum(_open_starts(r) for n, r in pairs if n.kind == "latent")

    def _size(self, commands: list[StartCall]) -> RequestSize:
        """The size of the largest of these requests."""
        largest = max(json_size([c.call, c.context, dict(c.node.tool.schema)]) for c in commands)
        context_bytes = self._context_bytes.count(self._run.walk.prepared.request.context)
        return latent_request_size(self._run.config, self._run.price, context_bytes + min(largest, MAX_NAMED_BYTES))

    def _start(self, command: StartCall, granted: Granted | None, now: str) -> list[Any]:
        node = command.node
        if node.kind == UNIT:
            return [StartInstances(node, self._instance_input(node))]
        if node.kind == "latent":
            grant = None if granted is None else granted.request
            return [AskOutput(node, command.call, command.context, self._run.setup.source, grant)]
        if node.kind == "delegate":
            return self._start_delegate(command, granted, now)
        if not node.is_detached:
            self._run.queue_watch.record_start(node.key, node.tool.options.taskQueue)
            return [StartActivity(node, command.call, command.context)]
        options = node.tool.options.model_dump(mode="json", exclude={"expected"})  # it is for forecasts alone
        own = BackgroundInput(
            label=node.label, activity=node.tool.activity, options=options, call=command.call,
            tool=dict(node.tool.schema), context=tuple(command.context), token=self._run.position.token,
            storesValues=self._run.position.storesValues,
        )  # fmt: skip
        return [StartBackground(node, own)]

    def _start_delegate(
        self, command: StartCall, granted: Granted | None, now: str, refusal: str | None = None
    ) -> list[Any]:
        node, run = command.node, self._run
        problem = depth_problem(run.position, node)
        if problem is not None:
            error = CallError(LIMIT_EXCEEDED, problem)
            settled = list(run.budget.settle(node.key, None))
            return settled + run.on_call(node.key, lambda rank: run.walk.failed(rank, error, now), now)
        config = {**(run.raw.get("config") or {}), "approve": run.setup.approve}
        identity = command.call["_id"]
        if node.is_detached:
            position = run.position.detached(identity)
        else:
            position = run.position.delegate(run.own, node.instance, identity)
        share = granted.share if granted is not None and granted.share else None
        own = build_delegate_input(
            command.call, command.context, node, config, position, run.setup.capabilities.pins, share
        )
        more: dict[str, Any] = {"grant": run.budget.hand_on(node.key), "refusal": refusal}
        own = own.model_copy(update={**more, "price": run.price if node.delegate == ANONYMOUS else None})
        if node.is_detached:
            background = BackgroundInput(
                label=node.label, delegate=own, token=position.token, storesValues=position.storesValues
            )
            return [StartBackground(node, background)]
        return [StartDelegate(node, own)]

    def digest_instance(self, instance: str) -> str:
        """The digest of what a child is started with for an instance."""
        return request_digest(self._request_of((instance,))[0])

    def _request_of(self, members: tuple[str, ...]) -> tuple[dict[str, Any], tuple[int, ...] | None]:
        whole = self._run.walk.prepared.unsplit
        if whole is None:
            raise EngineError("a unit of no batch")
        if self._batch is None or self._batch[0] is not whole:
            self._batch = (whole, Batch(whole, self._run.raw.get("config") or {}))
        return self._batch[1].request_for(members, self._run.walk.provided_data())

    def _instance_input(self, node: PlannedCall) -> InstanceInput:
        instance = node.members[0] if len(node.members) == 1 else None
        capabilities = self._run.setup.capabilities.model_copy(update={"tools": {}})
        request, places = self._request_of(node.members)
        return InstanceInput(
            request=request, instances=tuple(node.members), places=places, capabilities=capabilities,
            context=self._run.setup.source, position=self._run.position.child(self._run.own, instance),
            approve=self._run.setup.approve, part=True,
            resume=None if self._run.walk.past is None else self._run.walk.past.source_for(node.members),
        )  # fmt: skip


def _open_detached(call: CallState) -> int:
    """How many runs of its own a fire-and-forget Call may still start, those that are about to start included."""
    if call.elements is not None and call.stage not in SETTLED:
        return call.elements.unstarted + len(call.elements.running)
    return int(call.state not in SETTLED)


def _open_starts(call: CallState) -> int:
    """How often a Call may still be started."""
    if call.elements is not None and call.stage not in SETTLED:
        return call.elements.unstarted
    return int(call.state in ("pending", "ready", "awaiting"))
