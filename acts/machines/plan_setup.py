"""What a run of a plan knows before it begins, and its plan as an edit makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acts.language.errors import DecisionRefused, EngineError
from acts.language.request_reader import parse_request
from acts.language.wire import MAX_PAYLOAD_BYTES
from acts.plan.validate import ValidatedPlan, validate_parsed
from acts.tree.batches import expand_template, keep_instance, needs_children, split_into_children
from acts.tree.plan_request import edited_request
from acts.tree.records import Capabilities, ContextRef, InstanceInput, PermitLease, PlanInput, TreePosition

if TYPE_CHECKING:
    from acts.machines.past_calls import PastCalls
    from acts.tree.decisions import Decision


@dataclass(frozen=True, slots=True)
class PlanSetup:
    """What a run of a plan knows before it begins. ``input`` is None for a run that a person started.

    ``raw`` is its Request as JSON, ``source`` the run whose context a model is shown, ``lease`` its permits, ``past``
    what the run had done that this one resumes. With external storage a Request that is edited may have more bytes
    than without.
    """

    raw: dict[str, Any]
    prepared: ValidatedPlan
    capabilities: Capabilities
    position: TreePosition
    source: ContextRef
    input: PlanInput | None = None
    lease: PermitLease | None = None
    max_request_bytes: int = MAX_PAYLOAD_BYTES
    past: PastCalls | None = None

    @property
    def instances(self) -> tuple[str, ...]:
        """The instances that this run was started for."""
        return self.input.instances if isinstance(self.input, InstanceInput) else ()

    @property
    def places(self) -> tuple[int, ...] | None:
        """Where the Calls stand in the plan that they were taken from, or None."""
        return self.input.places if isinstance(self.input, InstanceInput) else None

    @property
    def approve(self) -> Any:
        """What the person asked to confirm who started the tree: ``plan`` does not hold for a part of a plan."""
        if self.input is not None and self.input.part:
            return self.input.approve
        return (self.raw.get("config") or {}).get("approve")

    def own_part(self, prepared: ValidatedPlan) -> ValidatedPlan:
        """What the run walks itself: all of a plan, or what children of its own do not."""
        if isinstance(self.input, InstanceInput):
            return expand_template(prepared, self.instances)
        return split_into_children(prepared) if needs_children(prepared) else prepared

    @property
    def takes_edits(self) -> bool:
        """False for a child of several instances: which of them an edit is for cannot be said."""
        return len(self.instances) <= 1


def validate_edit(setup: PlanSetup, raw: dict[str, Any], current: ValidatedPlan, decision: Decision) -> ValidatedPlan:
    """The plan as an edit makes it: ``raw`` is the Request that is walked, ``current`` its validated plan.

    Raises:
        InvalidRequest, DecisionRefused: the edit cannot be made, and why.
    """
    plan, places = current.request.plan, setup.places
    if plan is None:
        raise EngineError("a plan without a plan message")
    calls = list(decision.calls) if decision.calls is not None else list(plan.calls)
    if not setup.takes_edits:
        text = "this run walks several instances, and takes no edits: set instancesPerChild to 1 for that"
        raise DecisionRefused(text)
    if places is not None and decision.calls is not None:
        raise DecisionRefused("this run walks a part of a plan: one call of it can be edited, and no more")
    if decision.calls is None:
        node = next((n for n in (current.unsplit or current).nodes if n.id == decision.call), None)
        if node is None:
            raise DecisionRefused(f"there is no call {decision.call}")
        at = node.index if places is None else places.index(node.index)
        calls[at] = keep_instance(calls[at], decision.call_with, node.instance)
    request = edited_request(raw, plan.index, calls, setup.max_request_bytes)
    return validate_parsed(parse_request(request), setup.capabilities.tools, setup.capabilities.served, places)


def validate_extended(setup: PlanSetup, raw: dict[str, Any], *, is_complete: bool) -> ValidatedPlan:
    """A plan that is still being written, with more of its Calls.

    Raises:
        InvalidRequest: never for what an agent sends, which has validated it.
    """
    request = parse_request(raw)
    return validate_parsed(request, setup.capabilities.tools, setup.capabilities.served, is_complete=is_complete)
