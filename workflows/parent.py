"""What a plan has done by children: delegated Calls, and the instances of a batch.

A child is handed all that it gets, and nothing else of its parent can be reached from
there. What it came to is an event of the walk, like that of any Call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError

from acts.language.config import Budget
from acts.language.errors import CallError, DecisionRefused, EngineError
from acts.language.messages import parse_request
from acts.language.wire import CANCELLED, DELEGATE, INSTANCE, LIMIT_EXCEEDED
from acts.machines.call_state import SETTLED
from acts.machines.instance_results import REPORT_KEYS
from acts.machines.walk import Walk
from acts.plan.planned_call import UNIT
from acts.plan.validate import validate_parsed
from acts.tree.batches import Batch, count_calls, keep_instance, needs_children, slim, split_into_children
from acts.tree.decisions import EDIT, INNER
from acts.tree.delegation import Place, build_delegate_input, too_deep
from workflows.children import child_ids, start_background
from workflows.dispatch import call_error
from workflows.handlers import PlanHandlers
from workflows.payloads import decode, detail, hand, handed, unpack
from workflows.purse import Purse
from workflows.requests import edited_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from temporalio.common import RawValue

    from acts.machines.commands import Command, StartCall
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan
    from acts.tree.decisions import Decision, PendingApproval


class Parent(PlanHandlers):
    """The part of ``Plan`` that is about its children."""

    def __init__(self) -> None:
        super().__init__()
        self._request: Any = None
        self._registry: dict[str, Any] = {}
        self._handed: dict[str, Any] = {}
        self._works_for: dict[str, str] = {}
        self._several: dict[str, None] = {}
        self._batch: Batch | None = None
        self._carriers: dict[str, str] = {}

    @property
    def _now_walking(self) -> Walk:
        if self._walk is None:
            raise EngineError("nothing is walked yet")
        return self._walk

    def _report_of(self, node: PlannedCall, what: Callable[..., list[Command]], *told: Any, **more: Any) -> None:
        """An event about a Call, which has its rank in the plan that is walked when it is handled."""

        def event(walk: Walk, now: str) -> list[Command]:
            rank = walk.ids.get(node.key)
            return [] if rank is None else what(walk, rank, *told, now, **more)

        self._inbox.append(event)

    def _handed_over(self, given: RawValue) -> Any:
        """What the run above handed over, or None."""
        return handed(given)

    def _take_place(self, prepared: ValidatedPlan, carried: Mapping[str, Any]) -> None:
        """Where this run stands in its tree, and who keeps the budget."""
        config = prepared.request.config
        self._place = Place.from_json(self._handed.get("tree")).within(config.budget)
        whole = self._handed.get("budget")
        self._purse = Purse(config.budget, self._place.bank, None if whole is None else Budget.model_validate(whole))
        self._purse.ledger.plan(count_calls(prepared))
        self._purse.ledger.restore(carried.get("ledger"))

    def _more_calls(self, prepared: ValidatedPlan) -> int:
        """How many Calls an edited plan makes beyond those of the plan that is walked."""
        before = self._now_walking.prepared
        return count_calls(prepared.whole or prepared) - count_calls(before.whole or before)

    def _allow_edit(self, prepared: ValidatedPlan) -> None:
        """Raises Refused for an edited plan that is beyond the budget, with what runs below have made already."""
        why = self._purse.ledger.too_many(self._more_calls(prepared))
        if why is not None:
            raise DecisionRefused(why)

    def _own_part(self, prepared: ValidatedPlan) -> ValidatedPlan:
        """What this run walks itself: all of a plan, or what children of its own do not."""
        self._batch = None
        part = split_into_children(prepared) if needs_children(prepared) else prepared
        self._carriers = {member: node.members[0] for node in part.nodes for member in node.members}
        return part

    @property
    def _takes_edits(self) -> bool:
        return len(self._handed.get("instances", ())) <= 1

    def _child_of(self, instance: str) -> str:
        return self._carriers.get(instance, instance)

    def _unit(self, node: PlannedCall) -> RawValue:
        """What the child that walks some instances is handed."""
        walk = self._now_walking
        whole = walk.prepared.whole
        if whole is None:
            raise EngineError("a unit of no batch")
        if self._batch is None:
            self._batch = Batch(whole, self._request.get("config") or {})
        source = self._asking.source
        return hand({
            **self._batch.handed(node.members, walk.provided_data()),
            "registry": {"tools": {}, "served": self._registry["served"], "pins": self._registry.get("pins", {})},
            "source": source.to_json(), "tree": {**self._place.to_json(), "bank": self._purse.keeper},
            "approve": self._asked_for(),
        })  # fmt: skip

    def _instance_below(self, workflow_id: str) -> str | None:
        return self._works_for.get(workflow_id)

    def _may_be_decided_below(self, wait: PendingApproval, decision: Decision) -> None:
        """An edit of a Call that a child walks for an instance is checked here; a delegate's plan is its own affair.

        So is that of a child whose plan was edited before: only it knows what became of it.
        """
        if decision.decision == EDIT and wait.workflow_id in self._several:
            raise DecisionRefused(
                "a child that walks several instances takes no edits: set instancesPerChild to 1 for that"
            )
        whole = self._walk.prepared.whole if self._walk is not None else None
        plan = whole.request.plan if whole is not None else None
        if decision.call_with is None or whole is None or plan is None:
            return
        if wait.version > 1 or wait.workflow_id not in self._works_for:
            return
        index = next((n.index for n in whole.nodes if n.id == decision.call and n.instance is not None), None)
        if index is not None:
            calls = list(plan.calls)
            calls[index] = keep_instance(calls[index], decision.call_with, wait.instance)
            request = edited_request(self._request, plan.index, calls)
            validate_parsed(parse_request(request), self._registry["tools"], self._registry["served"])

    def _asked_for(self) -> Any:
        """What people confirm, as whoever began all this asked for it: a part of a plan is walked without ``plan``."""
        config = self._request.get("config") or {}
        return self._handed["approve"] if "approve" in self._handed else config.get("approve")

    def _errand(self, command: StartCall) -> RawValue:
        """What the child that does a delegated Call is handed.

        Raises:
            CallError: it is too large, or would be too deep.
        """
        why = too_deep(self._place, command.node)
        if why is not None:
            raise CallError(LIMIT_EXCEEDED, why)
        config = {**(self._request.get("config") or {}), "approve": self._asked_for()}
        keeper = None if command.node.detached else self._purse.keeper
        return hand(build_delegate_input(command, config, self._place.below(keeper), self._registry.get("pins", {})))

    async def _child(self, node: PlannedCall, given: RawValue) -> RawValue | None:
        """Run what is behind a delegated Call, or walk a unit."""
        instance = node.members[0] if len(node.members) == 1 else node.instance
        if len(node.members) > 1:
            self._several.update(dict.fromkeys(child_ids(node.members[0])))
        if instance is not None:
            name = node.members[0] if node.members else node.key
            self._works_for.update(dict.fromkeys(child_ids(name), instance))
        if node.kind == UNIT:
            # Smaller than what was counted for the task: how small, depends on the build of zlib
            brief = hand(slim(handed(given)))
            return await self._children.run(INSTANCE, node.members[0], brief, node.label, ended=self._desk.forget)
        if node.detached:  # it outlives who keeps the budget: it gets a share of its own
            walk = self._now_walking
            still = sum(
                n.detached and n.kind == "delegate" and r.state not in SETTLED
                for n, r in zip(walk.nodes, walk.runs, strict=True)
            )
            share = await self._purse.share(1 + max(1, still))
            told = handed(given)
            await start_background(node, {"errand": {**told, "config": {**told["config"], **share}}})
            return None
        options = node.tool.options
        seconds = options.timeout if "timeout" in options.model_fields_set else None
        return await self._children.run(DELEGATE, node.key, given, node.label, seconds=seconds, ended=self._desk.forget)

    def _ended(self, node: PlannedCall, value: RawValue) -> None:
        """What a child came to becomes an event."""
        found = unpack(value) or decode(value)
        self._told_by(node, found)
        if node.kind == UNIT:
            self._report_of(node, Walk.unit_ended, instances_of(node, found))
        else:
            self._report_of(node, Walk.completed, found["output"], chosen=found.get("path"))

    def _told_by(self, node: PlannedCall, found: Any) -> None:
        """What a child says beside its result: what it spent, and who decided what there."""
        if not isinstance(found, dict):
            return
        self._asking.spent.add(found.get("usage"))
        self._desk.records += [_seen_from_above(node, record) for record in found.get("decisions") or ()]

    def _broke(self, node: PlannedCall, error: BaseException) -> None:
        """A child failed: what it came to is in the failure's details, if it says anything."""
        told = failed_with(error)
        self._told_by(node, told)
        failed = call_error(error, node.tool.options, workflow.info().task_queue)
        if node.kind == UNIT:
            self._report_of(node, Walk.unit_ended, instances_of(node, told, failed))
        else:
            self._report_of(node, Walk.failed, CallError(failed.code, failed.message))

    def _gone(self, node: PlannedCall, why: str) -> None:
        gone = CallError(CANCELLED, why)
        if node.kind == UNIT:
            self._report_of(node, Walk.unit_ended, instances_of(node, None, gone))
        else:
            self._report_of(node, Walk.failed, gone)


def _seen_from_above(node: PlannedCall, record: dict[str, Any]) -> dict[str, Any]:
    """A decision that was made in a child: of which instance of this run, or below which Call."""
    if node.members:
        return {"instance": node.members[0], **record}
    # Instances that a delegate has are none of ours, and it does not know for whom it works
    inner = {} if record.get("instance") is None else {INNER: record.get(INNER, record["instance"])}
    whose = {} if node.instance is None else {"instance": node.instance}
    return {**{k: v for k, v in record.items() if k != "instance"}, **inner, "below": node.id, **whose}


def failed_with(error: BaseException) -> Any:
    """What a run that failed said in its failure's details, or None."""
    cause: BaseException | None = error
    while isinstance(cause, (ActivityError, ChildWorkflowError)):
        cause = cause.__cause__
    return detail(cause.details[0]) if isinstance(cause, ApplicationError) and cause.details else None


def instances_of(node: PlannedCall, found: Any, failed: CallError | None = None) -> dict[str, Any]:
    """What each instance of a unit came to, by id; ``failed`` where the child said nothing."""
    if isinstance(found, dict) and isinstance(found.get("instances"), dict):
        return dict(found["instances"])
    if isinstance(found, dict) and "status" in found:
        return {node.members[0]: {k: found[k] for k in REPORT_KEYS if k in found}}
    why = failed or CallError("EngineError", "the child that walked it said nothing of it")
    error = {"call": None, "code": why.code, "message": why.message}
    status = "cancelled" if why.code == CANCELLED else "failed"
    nothing = {"status": status, "state": {}, "calls": [], "errors": [error], "written": []}
    return dict.fromkeys(node.members, nothing)
