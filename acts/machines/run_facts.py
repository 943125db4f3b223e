"""What a run that resumes this one takes over: its Calls and instances as ``PastRun`` says them.

Laws of this file: it reads a run, at whatever point of it, and changes nothing. What a Call was started with is read
again from the context as of its place in plan order; messages that were provided after its start count as if they had
been there, as they do for the run that resumes this one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError, TooComplex
from acts.language.evaluation_work import EvaluationWork
from acts.language.values import Json
from acts.machines.instance_results import statuses
from acts.machines.past_calls import call_reads
from acts.machines.readiness import Assessment, scoped_messages
from acts.plan.element_reading import ElementReading, read_elements
from acts.plan.planned_call import UNIT, PlannedCall
from acts.tree.child_ids import instance_child_id
from acts.tree.past_run import PastCall, PastElement, PastInstance, PastRun, planned_digest, prompt_digest, reads_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from acts.machines.call_state import CallState
    from acts.machines.plan_run import PlanRun
    from acts.machines.walk import Walk

# Stages in which a Call has no result, though it may have been started
_OPEN: Final = ("running", "collecting", "applying", "failed", "cancelled")
_NOT_STARTED: Final = ("pending", "ready", "awaiting", "awaiting_input", "skipped", "rejected")
# What a child's id may have behind it where the first choice was in use
_SPARE: Final = re.compile(r"~[0-9a-f-]+")


def read_facts(run: PlanRun, run_id: str, events: int, children: Mapping[str, str]) -> PastRun:
    """What the run has done. ``children`` are the runs that it has started: run id by workflow id, in their order.

    ``run_id`` is that of the run, ``events`` how much of its history it has seen.
    """
    messages = [m.raw for m in run.walk.prepared.request.context]
    members = run.setup.instances
    calls = read_calls(run.walk, prompt_digest(messages, instances=True), members[0] if len(members) == 1 else None)
    whole = sorted(run.whole_plan.nodes, key=lambda node: node.index)
    return PastRun(
        workflowId=run.own, runId=run_id, events=events, plan=tuple(dict.fromkeys(node.id for node in whole)),
        prompt=prompt_digest(messages, instances=False), provided=tuple(run.walk.provided),
        calls=calls, instances=tuple(_instances(run, children)),
    )  # fmt: skip


def read_calls(walk: Walk, prompt: str, member: str | None = None) -> tuple[PastCall, ...]:
    """The Calls of a walk that have a result, or may have been started.

    ``prompt`` is the digest of what latent Calls are shown, ``member`` the instance of a run that walks only one.
    """
    return tuple(_Reader(walk, prompt, member).calls())


class _Reader:
    """Reads the Calls of one walk."""

    def __init__(self, walk: Walk, prompt: str, member: str | None) -> None:
        self._walk, self._prompt, self._member = walk, prompt, member

    def calls(self) -> Iterator[PastCall]:
        """See ``read_calls``."""
        literal = self._walk.prepared.literal_outputs  # the plan itself has their results
        for rank, (node, call) in enumerate(zip(self._walk.nodes, self._walk.calls, strict=True)):
            has_result = call.stage in ("completed", "detached") or call.effect is not None
            if node.kind != UNIT and rank not in literal and (has_result or call.stage in _OPEN):
                yield self._call(rank, node, call, has_result=has_result)

    def _call(self, rank: int, node: PlannedCall, call: CallState, *, has_result: bool) -> PastCall:
        assessment = self._read(rank, node)
        reads = ""
        if assessment is not None:
            reads = call_reads(node, assessment, scoped_messages(self._walk.context, rank), self._prompt)
        instance = node.instance if node.instance is not None else self._member
        fields: dict[str, Any] = {
            "call": node.id, "id": self._walk.identify(node), "planned": planned_digest(node), "reads": reads,
            "instance": instance,
        }  # fmt: skip
        if not has_result:
            return PastCall(state="open", elements=tuple(self._elements(node, call, assessment)), **fields)
        if call.stage == "detached":
            return PastCall(state="detached", **fields)
        written = [value for _, value in call.effect[0]] if call.effect else [value for _, value, _ in call.written]
        return PastCall(
            state="completed", outcome=call.outcome or 0, written=tuple(written), error=call.error, **fields
        )

    def _read(self, rank: int, node: PlannedCall) -> Assessment | None:
        """What the Call was started with; None where that cannot be read."""
        read, work = self._walk.context.reader(rank), EvaluationWork()
        try:
            if node.is_each:
                reading, missing = read_elements(node, read, scoped_messages(self._walk.context, rank), work)
                return None if missing else Assessment("", reading.call, reading=reading)
            call, missing = node.resolve(read, work)
        except (CallError, TooComplex):
            return None
        return None if missing else Assessment("", call)

    def _elements(self, node: PlannedCall, call: CallState, assessment: Assessment | None) -> Iterator[PastElement]:
        """The elements that have been started of a Call that has no result."""
        if call.elements is None:
            return
        details = (call.error or {}).get("details") or {}
        results = call.elements.results or details.get("results") or []
        errors = [*call.elements.errors, *(error["index"] for error in details.get("errors") or ())]
        unsettled = {*call.elements.running, *call.elements.postponed, *errors}
        for index in range(max(call.elements.started, len(results))):
            value = results[index] if index < len(results) else None
            element = node.element_node(index)
            # The result null of a cancelled Call's element looks like none
            is_done = (
                index < len(results) and index not in unsettled and (value is not None or call.stage != "cancelled")
            )
            state = "open" if not is_done else "detached" if node.is_detached else "completed"
            reads = self._element_reads(element, assessment and assessment.reading, index) if is_done else ""
            yield PastElement(index=index, state=state, id=self._walk.identify(element), reads=reads, value=value)

    def _element_reads(self, element: PlannedCall, reading: ElementReading | None, index: int) -> str:
        if reading is None or index >= len(reading.items):
            return ""
        try:
            return reads_digest(element, reading.resolve(index), reading.context, self._prompt, None)
        except (CallError, TooComplex):
            return ""


def _instances(run: PlanRun, children: Mapping[str, str]) -> Iterator[PastInstance]:
    """The instances of the run: those of its children with what these said of them."""
    walk = run.walk
    if run.setup.instances or not walk.prepared.request.instances():
        return
    states, seen = statuses(walk), dict[str, None]()
    for node, call in zip(walk.nodes, walk.calls, strict=True):
        for id_ in node.members:
            report = (call.value or {}).get(id_, {})
            status = str(report.get("status", call.state))
            child = None if call.stage in _NOT_STARTED else _child_of(run.own, node.members[0], children)
            seen[id_] = None
            yield PastInstance(
                id=id_, status=status, digest=run.digest_instance(id_), report=_kept_report(report, status),
                workflowId=child, runId=None if child is None else children.get(child),
            )  # fmt: skip
    for id_, status in states.items():
        if id_ not in seen:
            yield PastInstance(id=id_, status=status, digest="")


def _kept_report(report: Mapping[str, Json], status: str) -> dict[str, Any] | None:
    return {k: v for k, v in report.items() if k != "resumed"} if status == "completed" else None


def _child_of(own: str, first: str, children: Mapping[str, str]) -> str:
    """The workflow id of the child that walks the instances of which ``first`` is the first."""
    name = instance_child_id(own, first)
    names = [id_ for id_ in children if id_ == name or (id_.startswith(name) and _SPARE.fullmatch(id_[len(name) :]))]
    return names[-1] if names else name
