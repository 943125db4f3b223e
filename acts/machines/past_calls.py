"""What a walk takes over from an earlier run: which Call is the same, is it unchanged, and which ``_id`` does it have.

Theory of operation. Two questions are asked apart:

* Is it *the same Call*? ``align`` answers when a plan is loaded, by what is planned: a Call of the same JSON, first at
  its own place, else elsewhere in the list. A Call that was mended in its place is still the one that had no result.
* Is it *unchanged*? That is known only when everything it reads has settled: then it would start, and what it would
  be started with is compared with what it was started with. So a Call never keeps a result that rests on other
  values, whatever made them differ, and the walk ends as a serial run in which these Calls return what they returned.

A Call that is taken over never starts: no permit, no approval, no activity. Its result is written by the same code as
a new one. One that had completed and has changed gets a new ``_id``: an Activity that keeps to its ``_id`` would ignore
the old one. One that had no result gets its old ``_id``, if the run keeps them: its effect may have been applied.

Laws of this file: what has been decided of a Call is in ``PastState``; the rest follows from the plan.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acts.language.errors import CallError
from acts.language.values import ABSENT
from acts.machines.call_outcomes import apply_child_report, apply_past_writes
from acts.machines.call_state import SETTLED
from acts.machines.readiness import check_writes, require_result, scoped_messages
from acts.plan.planned_call import UNIT
from acts.tree.past_run import PastSource, PastState, TakenCall, planned_digest, reads_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from acts.language.references import Path
    from acts.language.values import Json
    from acts.machines.readiness import Assessment
    from acts.machines.walk import Walk
    from acts.plan.planned_call import PlannedCall
    from acts.tree.past_run import PastCall, PastElement, PastInstance, PastRun


@dataclass(slots=True)
class PastCalls:
    """What an earlier run had done, for the walk of a run that resumes it.

    ``source`` is how the result names that run. ``runs`` are the earlier run, or those of its children that walked the
    instances of this one. ``allowed`` are the ids of the Calls that may be taken over (None: all). ``prompt`` is the
    digest of what latent Calls are shown here; None: something else than then. ``member`` is the instance of a run
    that walks only one. ``has_same_prompt``: what the root shows latent Calls of instances is unchanged. ``taken`` are
    the Calls and elements that were taken over: their ``_id`` by key. ``digest_instance`` gives the digest of what a
    child would be started with for an instance.
    """

    source: dict[str, Any]
    runs: tuple[PastRun, ...]
    allowed: frozenset[str] | None = None
    keeps_ids: bool = True
    prompt: str | None = None
    member: str | None = None
    has_same_prompt: bool = True
    taken: dict[str, str] = field(default_factory=dict)
    digest_instance: Callable[[str], str] | None = None
    _same: dict[str, PastCall] = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)
    _elements: dict[str, dict[int, PastElement]] = field(default_factory=dict)
    _instances: dict[str, PastInstance] | None = None

    @property
    def provided(self) -> list[Any]:
        """The messages that the earlier run was sent, as JSON. The children of a batch get theirs in their Request."""
        return [raw for run in self.runs for raw in run.provided] if self.source else []

    # -- which Call is which ----------------------------------------------------------------------

    def align(self, nodes: Sequence[PlannedCall]) -> None:
        """Find each Call of a plan in the earlier run."""
        self._same, self._ids, self._elements = {}, {}, {}
        at_place: dict[tuple[str | None, str], PastCall] = {}
        past: PastCall | None
        by_json: dict[tuple[str | None, str], deque[PastCall]] = {}
        for own in self._calls():
            at_place[own.instance, own.call] = own
            by_json.setdefault((own.instance, own.planned), deque()).append(own)
        planned = {n.key: planned_digest(n) for n in nodes if n.kind != UNIT}
        used = set[tuple[str | None, str]]()
        for node in nodes:
            past = at_place.get(self._place(node))
            if past is not None and past.planned == planned.get(node.key):
                self._match(node, past, used)
        for node in sorted(nodes, key=lambda n: n.index):
            if node.key in planned and node.key not in self._same:
                others = by_json.get((self._instance(node), planned[node.key]), deque())
                while others and (others[0].instance, others[0].call) in used:
                    others.popleft()
                if others:
                    self._match(node, others[0], used)
        for node in nodes:
            past = at_place.get(self._place(node))
            is_free = node.key not in self._same and self._place(node) not in used
            if past is not None and is_free and past.state == "open":
                self._ids[node.key] = past.id

    def _match(self, node: PlannedCall, past: PastCall, used: set[tuple[str | None, str]]) -> None:
        used.add((past.instance, past.call))
        self._same[node.key] = past
        if past.state == "open":
            self._ids[node.key] = past.id

    def _calls(self) -> Iterable[PastCall]:
        return (call for run in self.runs for call in run.calls)

    def _instance(self, node: PlannedCall) -> str | None:
        return node.instance if node.instance is not None else self.member

    def _place(self, node: PlannedCall) -> tuple[str | None, str]:
        return self._instance(node), node.id

    def identify(self, node: PlannedCall) -> str | None:
        """The ``_id`` that a Call or an element has from the earlier run; None: it gets one of its own."""
        if node.key in self.taken:
            return self.taken[node.key]
        if not self.keeps_ids:
            return None
        if node.element is None:
            return self._ids.get(node.key)
        element = self._element(node)
        return element.id if element is not None and element.state == "open" else None

    def _element(self, node: PlannedCall) -> PastElement | None:
        """An element as the earlier run left it, if that knew its Call and not all had completed."""
        key = _call_key(node)
        if key not in self._elements:
            past = self._same.get(key)
            self._elements[key] = {e.index: e for e in past.elements} if past is not None else {}
        return self._elements[key].get(node.element or 0)

    # -- what is taken over -----------------------------------------------------------------------

    def take_call(self, walk: Walk, rank: int, assessment: Assessment, now: str) -> bool:
        """Take over a Call that is about to start; False when it has to run. The walk has not moved it yet."""
        node = walk.nodes[rank]
        if node.kind == UNIT:
            return self._take_instances(walk, rank, now)
        past = self._same.get(node.key)
        if past is None or assessment.call is None or not self._allows(node) or past.state == "open":
            return False
        if past.reads != call_reads(walk.nodes[rank], assessment, scoped_messages(walk.context, rank), self.prompt):
            return False
        if past.state == "detached":
            return self._take_detached(walk, rank, past, now)
        writes: tuple[tuple[Path, Json], ...] = ()
        if past.written and past.outcome < len(node.outcomes):
            writes = tuple(zip(node.outcomes[past.outcome], past.written, strict=False))
        try:
            if past.error is None:
                check_writes(walk, node, writes)
        except CallError:  # the Tool takes other results now: it runs again, and may find that it has run
            if self.keeps_ids:
                self._ids[node.key] = assessment.call["_id"] = past.id
            return False
        walk.states.move(rank, "taken_over")
        self.taken[node.key] = past.id
        walk.calls[rank].error = past.error
        apply_past_writes(walk, rank, past.outcome, writes, now)
        return True

    def _take_detached(self, walk: Walk, rank: int, past: PastCall, now: str) -> bool:
        if not walk.nodes[rank].is_detached:
            return False
        self.taken[walk.nodes[rank].key] = past.id
        walk.settle(rank, "detached_before", now)
        return True

    def take_element(
        self, walk: Walk, node: PlannedCall, call: Mapping[str, Any], context: list[Any]
    ) -> PastElement | None:
        """What an element of a Call that runs again had come to, if it need not run; None: it has to."""
        past = self._same.get(_call_key(node))
        if past is None or not self._allows_id(past.call):
            return None
        element = self._element(node)
        if (
            element is None
            or element.state == "open"
            or element.reads != reads_digest(node, call, context, self.prompt or "-", None)
        ):
            return None
        if (element.state == "detached") != node.is_detached:
            return None
        try:
            if not node.is_detached:
                require_result(walk, node, element.value)
        except CallError:
            return None
        self.taken[node.key] = element.id
        return element

    def _allows(self, node: PlannedCall) -> bool:
        return self._allows_id(node.id)

    def _allows_id(self, call: str) -> bool:
        return self.allowed is None or call in self.allowed

    # -- instances that children walk -------------------------------------------------------------

    def _take_instances(self, walk: Walk, rank: int, now: str) -> bool:
        """Take over what a child came to, if all of its instances had completed and none has changed."""
        node, report = walk.nodes[rank], dict[str, Any]()
        for member in node.members:
            past = self.find_instance(member)
            if past is None or past.report is None or self.digest_instance is None:
                return False
            if not all(self._allows_id(call["id"]) for call in past.report["calls"]):
                return False
            if past.digest != self.digest_instance(member):
                return False
            report[member] = {**past.report, "resumed": [call["id"] for call in past.report["calls"]]}
        walk.states.move(rank, "taken_over")
        apply_child_report(walk, rank, report, now)
        return True

    def find_instance(self, name: str) -> PastInstance | None:
        """What the earlier run knew of an instance."""
        if self._instances is None:
            self._instances = {i.id: i for run in reversed(self.runs) for i in reversed(run.instances)}
        return self._instances.get(name)

    def source_for(self, members: tuple[str, ...]) -> PastSource | None:
        """What the child that walks these instances takes over; None: it begins from nothing."""
        known = [past for past in map(self.find_instance, members) if past is not None]
        runs = tuple(dict.fromkeys((past.workflowId, past.runId) for past in known if past.workflowId is not None))
        if not runs:
            return None
        return PastSource(
            runs=runs, instances=members, calls=None if self.allowed is None else tuple(sorted(self.allowed)),
            keepsIds=self.keeps_ids, hasSamePrompt=self.has_same_prompt,
        )  # fmt: skip

    # -- what people see --------------------------------------------------------------------------

    def report(self, walk: Walk) -> dict[str, Any]:
        """``{workflowId, runId, keep, ids, only?, calls, instances?}``: what was taken over, in plan order."""
        own = self.taken_calls(walk)
        out = {**self.source, "calls": own.get(None, [])}
        names = walk.prepared.request.instances()
        instances = {name: own.get(name, []) for name in names}
        for call in walk.calls:
            for name, report in (call.value or {}).items():
                instances[name] = report.get("resumed", [])
        taken = {name: calls for name, calls in instances.items() if calls}
        return {**out, "instances": taken} if names else out

    def taken_calls(self, walk: Walk) -> dict[str | None, list[str]]:
        """The ids of the Calls and elements that were taken over, by instance; None: those of no instance."""
        elements: dict[str, list[str]] = {}
        for key in self.taken:
            elements.setdefault(key.rpartition("[")[0], []).append(key[key.rfind("[") :])
        out: dict[str | None, list[str]] = {}
        for node in walk.nodes:
            if not node.members and (node.key in self.taken or node.key in elements):
                ids = [node.id] if node.key in self.taken else [f"{node.id}{at}" for at in elements[node.key]]
                out.setdefault(self._instance(node), []).extend(ids)
        return out

    # -- carrying over ----------------------------------------------------------------------------

    def to_state(self, walk: Walk) -> PastState:
        """What the next run needs: not what has settled."""
        rows = walk.rows
        settled = {
            (past.instance, past.call)
            for key, past in self._same.items()
            if key in rows and walk.states.call(rows[key]).stage in SETTLED
        }
        members = {m for n, c in zip(walk.nodes, walk.calls, strict=True) if c.stage in SETTLED for m in n.members}
        runs = tuple(
            run.model_copy(update={
                "calls": tuple(c for c in run.calls if (c.instance, c.call) not in settled),
                "instances": tuple(i for i in run.instances if i.id not in members),
            })
            for run in self.runs
        )  # fmt: skip
        return PastState(
            source=self.source, past=runs, calls=None if self.allowed is None else tuple(sorted(self.allowed)),
            keepsIds=self.keeps_ids, hasSamePrompt=self.has_same_prompt,
            taken=tuple(TakenCall(key=key, id=id_) for key, id_ in self.taken.items()),
        )  # fmt: skip


def call_reads(node: PlannedCall, assessment: Assessment, context: list[Any], prompt: str | None) -> str:
    """The digest of what a Call is about to be started with; of one with ``_each``, of all its elements."""
    reading = assessment.reading
    more: Any = None
    if reading is not None:
        more = [reading.items, {str(path): value for path, value in reading.values.items() if value is not ABSENT}]
    call = {k: v for k, v in (assessment.call or {}).items() if k != "_each"}
    return reads_digest(node, call, context, prompt or "-", more)


def _call_key(element: PlannedCall) -> str:
    """The key of the Call that an element is of."""
    return element.key.rpartition("[")[0]
