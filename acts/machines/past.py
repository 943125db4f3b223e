"""What a run takes over from an earlier one: which Call is the same, is it unchanged, and which ``_id`` does it have.

Two questions are asked apart:

* Is it *the same Call*? ``align`` answers when a plan is loaded, by what is planned: a Call of the same JSON, first at
  its own place, else elsewhere in the list. A Call that was mended in its place is still the one that had no result.
* Is it *unchanged*? That is known only when everything it reads has settled: then it would start, and what it would
  be started with is compared with what it was started with. So a Call never keeps a result that rests on other
  values, whatever made them differ, and the walk ends as a serial run in which these Calls return what they returned.

A Call that is taken over never starts: no permit, no approval, no activity. One that had completed and has changed gets
a new ``_id``: an Activity that keeps to its ``_id`` would ignore the old one. One that had no result gets its old
``_id``, if the run keeps them: its effect may have been applied. Of a Call with ``_each`` that is unchanged and had no
result, the elements that had one keep it.

Laws of this file: it finds what can be taken over, and ``Walk`` takes it. ``read_calls`` reads a walk, at whatever
point of it, and changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from acts.language.admission import Work
from acts.language.config import KeepBefore, Resume
from acts.language.errors import CallError, InvalidRequest, Problem, TooComplex, format_choices, suggest
from acts.language.values import ABSENT, Json
from acts.machines.call_state import NOT_STARTED, SETTLED, CallState
from acts.machines.walk_context import WalkContext
from acts.plan.calls import UNIT, ElementReading, PlannedCall, read_elements
from acts.plan.validate import ValidatedPlan
from acts.tree.past_run import PastCall, PastRun, PastSource, PastState, planned_digest, prompt_digest, reads_digest


class PastCalls:
    """What an earlier run had done, for the walk of a run that resumes it.

    ``prompt`` is the digest of what latent Calls are shown here; None: something else than then. ``member`` is the
    instance of a run that walks only one. ``taken`` are the Calls and elements that were taken over: the ``_id`` of
    their Call, by key. ``digest_instance`` gives the digest of what a child would be started with for an instance.
    """

    def __init__(self, state: PastState, prompt: str | None, member: str | None = None) -> None:
        self._state, self.prompt, self._member = state, prompt, member
        self.taken = dict(state.taken)
        self.digest_instance: Callable[[str], str] | None = None
        self._allowed = None if state.calls is None else frozenset(state.calls)
        self._instances = {i.id: i for run in reversed(state.past) for i in reversed(run.instances)}
        self._same: dict[str, PastCall] = {}
        self.ids: dict[str, str] = {}  # the ``_id`` of each Call that had no result, by key

    @property
    def provided(self) -> list[Any]:
        """The messages that the earlier run was sent, as JSON. The children of a batch get theirs in their Request."""
        return [raw for run in self._state.past for raw in run.provided] if self._state.source else []

    def align(self, nodes: Sequence[PlannedCall]) -> None:
        calls = {(call.instance, call.call): call for run in self._state.past for call in run.calls}
        planned = {n.key: planned_digest(n) for n in nodes if n.kind != UNIT}
        same_id = {n.key: past for n in nodes if (past := calls.get((self._instance(n), n.id))) is not None}
        self._same = {key: past for key, past in same_id.items() if past.planned == planned.get(key)}
        used = set(map(attrgetter("instance", "call"), self._same.values()))
        others: dict[tuple[str | None, str], deque[PastCall]] = {}
        for name, past in calls.items():
            if name not in used:
                others.setdefault((past.instance, past.planned), deque()).append(past)
        for node in sorted(nodes, key=lambda n: n.index):
            equal = others.get((self._instance(node), planned.get(node.key, "")))
            if equal and node.key not in self._same:
                self._same[node.key] = equal.popleft()
        used = set(map(attrgetter("instance", "call"), self._same.values()))
        mended = {key: past for key, past in same_id.items() if (past.instance, past.call) not in used}
        self.ids = {key: past.id for key, past in {**mended, **self._same}.items() if past.state == "open"}

    def _instance(self, node: PlannedCall) -> str | None:
        return node.instance if node.instance is not None else self._member

    def identify(self, node: PlannedCall) -> str | None:
        """The ``_id`` that a Call or an element has from the earlier run; None: it gets one of its own."""
        if node.key in self.taken:
            return self.taken[node.key]
        if not self._state.keepsIds:
            return None
        if node.element is None:
            return self.ids.get(node.key)
        past = self._same.get(node.key.rpartition("[")[0])
        return None if past is None else past.open.get(node.element)

    def find_call(
        self, node: PlannedCall, call: Mapping[str, Any], reading: ElementReading | None,
        scoped_messages: Callable[[], list[Any]],
    ) -> PastCall | None:  # fmt: skip
        """The past of a Call that is about to start, if it is unchanged."""
        past = self._same.get(node.key)
        if past is None or (self._allowed is not None and node.id not in self._allowed):
            return None
        return past if past.reads == _digest_reads(node, call, reading, scoped_messages(), self.prompt) else None

    def find_report(self, node: PlannedCall) -> dict[str, Any] | None:
        """The report of a child on its instances, if all of them had completed and none has changed."""
        report = dict[str, Any]()
        for member in node.members:
            past = self._instances.get(member)
            if past is None or past.report is None or self.digest_instance is None:
                return None
            calls = [call["id"] for call in past.report["calls"]]
            is_allowed = self._allowed is None or self._allowed.issuperset(calls)
            if not is_allowed or past.digest != self.digest_instance(member):
                return None
            report[member] = {**past.report, "resumed": calls}
        return report

    def source_for(self, members: tuple[str, ...]) -> PastSource | None:
        """What the child that walks these instances takes over; None: it begins from nothing."""
        pasts = (self._instances[name] for name in members if name in self._instances)
        runs = tuple(dict.fromkeys((past.workflowId, past.runId) for past in pasts if past.workflowId is not None))
        own = self._state.model_dump(include={"calls", "keepsIds", "hasSamePrompt"})
        return PastSource(runs=runs, instances=members, **own) if runs else None

    def report(self, calls: Sequence[CallState], names: Sequence[str]) -> dict[str, Any]:
        """``{workflowId, runId, keep, ids, only?, calls, instances?}``: what was taken over, in plan order."""
        own = self.taken_calls(calls)
        out = {**self._state.source, "calls": own.get(None, [])}
        resumed = {name: part.get("resumed") for call in calls for name, part in (call.value or {}).items()}
        ids_by_name = {name: ids for name in names if (ids := resumed.get(name) or own.get(name))}
        return {**out, "instances": ids_by_name} if names else out

    def taken_calls(self, calls: Sequence[CallState]) -> dict[str | None, list[str]]:
        """The ids of the Calls and elements that were taken over, by instance; None: those of no instance."""
        out: dict[str | None, list[str]] = {}
        for call in calls:
            node, count = call.node, 0 if call.elements is None else call.elements.total
            ids = [node.id] if node.key in self.taken else []
            ids += [f"{node.id}[{i}]" for i in range(count) if f"{node.key}[{i}]" in self.taken]
            if ids:
                out.setdefault(self._instance(node), []).extend(ids)
        return out

    def to_state(self, calls: Sequence[CallState]) -> PastState:
        nodes = [call.node for call in calls if call.stage in SETTLED]
        settled = {(past.instance, past.call) for node in nodes if (past := self._same.get(node.key))}
        members = {member for node in nodes for member in node.members}
        runs = tuple(
            run.model_copy(update={
                "calls": tuple(c for c in run.calls if (c.instance, c.call) not in settled),
                "instances": tuple(i for i in run.instances if i.id not in members),
            })
            for run in self._state.past
        )  # fmt: skip
        return self._state.model_copy(update={"past": runs, "taken": dict(self.taken)})


def _digest_reads(
    node: PlannedCall, call: Mapping[str, Any], reading: ElementReading | None, context: list[Any], prompt: str | None
) -> str:
    """The digest of what a Call is about to be started with; of one with ``_each``, of all its elements."""
    more: Any = None
    if reading is not None:
        more = [reading.items, {str(path): value for path, value in reading.values.items() if value is not ABSENT}]
    return reads_digest(node, {k: v for k, v in call.items() if k != "_each"}, context, prompt or "-", more)


def read_calls(
    calls: Iterable[CallState], context: WalkContext, identify: Callable[[PlannedCall], str], prompt: str,
    member: str | None = None,
) -> tuple[PastCall, ...]:  # fmt: skip
    """The Calls that have a result, or may have been started.

    ``prompt`` is the digest of what latent Calls are shown, ``member`` the instance of a run that walks only one.
    """
    out: list[PastCall] = []
    without = (*NOT_STARTED, "skipped", "rejected")
    for call in (c for c in calls if c.stage not in without and c.node.kind != UNIT):
        node = call.node
        fields: dict[str, Any] = {"state": "detached"}
        if call.stage in ("completed", "applying"):
            fields = {"state": "completed", "outcome": call.outcome or 0, "written": call.values, "error": call.error}
        elif call.stage != "detached":
            results, unfinished = _read_results(call)
            identities = {index: identify(node.element_node(index)) for index in unfinished}
            fields = {"state": "open", "results": tuple(results), "open": identities}
        fields |= {"undo": call.undo} if call.undo else {}
        fields["instance"] = node.instance if node.instance is not None else member
        reads = _read_again(call, context, prompt)
        out.append(PastCall(call=node.id, id=identify(node), planned=planned_digest(node), reads=reads, **fields))
    return tuple(out)


def _read_again(call: CallState, context: WalkContext, prompt: str) -> str:
    node, read, reading = call.node, context.reader(call.rank), None
    scoped = context.scoped_messages(call.rank)
    try:
        if node.is_each:
            reading, missing = read_elements(node, read, scoped, Work())
            own = reading.call
        else:
            own, missing = node.resolve(read, Work())
    except (CallError, TooComplex):
        return ""
    return "" if missing else _digest_reads(node, own, reading, scoped, prompt)


def _read_results(call: CallState) -> tuple[list[Json], list[int]]:
    """The results of the elements that were started of a Call that has none itself, and which elements have none."""
    own = call.elements
    if own is None:
        return [], []
    details = (call.error or {}).get("details") or {}
    results = own.results or details.get("results") or [None] * own.started
    unfinished = {*own.running, *own.postponed, *own.errors, *(error["index"] for error in details.get("errors", ()))}
    if call.stage == "cancelled" or not (own.results or details):  # null says nothing then
        unfinished |= {index for index, value in enumerate(results) if value is None}
    return results, sorted(unfinished)


# -- how such a run begins --------------------------------------------------------------------------------


def past_of_root(resume: Resume, past: PastRun, prepared: ValidatedPlan) -> PastCalls:
    """What a run that a person started takes over. Raises InvalidRequest: neither plan has the Call of ``keep``."""
    keep = resume.keep
    calls = tuple(calls_before(keep.before, past, prepared)) if isinstance(keep, KeepBefore) else None
    state = PastState(
        source=describe_source(resume, past), past=(past,), calls=calls, keepsIds=resume.keeps_ids,
        hasSamePrompt=past.prompt == prompt_digest([m.raw for m in prepared.request.context], instances=False),
    )  # fmt: skip
    return past_of_state(state, prepared, ())


def describe_source(resume: Resume, past: PastRun) -> dict[str, Any]:
    """``{workflowId, runId, keep, ids, only?}``: how a result names the run that was resumed."""
    keep = {"before": resume.keep.before} if isinstance(resume.keep, KeepBefore) else resume.keep
    source = {"workflowId": past.workflowId, "runId": past.runId, "keep": keep}
    only = {} if resume.only is None else {"only": resume.only}
    return {**source, "ids": "same" if resume.keeps_ids else "new", **only}


def past_of_state(state: PastState, prepared: ValidatedPlan, instances: tuple[str, ...]) -> PastCalls:
    """What a run takes over, as ``state`` says: one that walks ``instances``, or (none) a run of a whole plan."""
    prompt = prompt_digest([m.raw for m in prepared.request.context], instances=True)
    member = instances[0] if len(instances) == 1 else None
    return PastCalls(state, prompt if state.hasSamePrompt or not instances else None, member)


def calls_before(call: str, past: PastRun, prepared: ValidatedPlan) -> list[str]:
    """The ids of the Calls before this one in plan order.

    The Call is one of the plan; else it is one of the earlier run's plan, and what has its place now counts. Raises
    InvalidRequest: it is neither.
    """
    ids = [node.id for node in prepared.nodes]
    if call not in ids and call in past.plan:
        number = call.partition(":")[0]
        call = next((id_ for id_ in ids if id_.partition(":")[0] == number), "")
        return ids[: ids.index(call)] if call else ids
    if call not in ids:
        text = f'keep.before names the call "{call}", which neither this plan nor that of {past.workflowId} has'
        hint = suggest(call, ids) or f"the calls of this plan: {format_choices(ids)}"
        raise InvalidRequest([Problem("unknownCall", text, "/config/resume/keep/before", hint=hint)])
    return ids[: ids.index(call)]


def keep_failed_instances(raw: dict[str, Any], past: PastRun) -> dict[str, Any]:
    """The Request with the instances that failed in the earlier run, and no others. Raises InvalidRequest: none of its
    instances has failed there.
    """
    failed = {None, *(item.id for item in past.instances if item.status == "failed")}
    context = []
    for message in filter(lambda message: _instance_of(message) in failed, raw.get("context") or ()):
        is_plan = isinstance(message, dict) and message.get("type") == "plan" and isinstance(message.get("plan"), list)
        own = {"plan": [call for call in message["plan"] if _instance_of(call) in failed]} if is_plan else {}
        context.append({**message, **own} if own else message)
    if all(_instance_of(message) is None for message in context):
        states = sorted({item.status for item in past.instances})
        statuses = f"its instances are {', '.join(states)}" if states else "it has no instances"
        text = f'only "failed": no instance of this request has failed in {past.workflowId}: {statuses}'
        hint = 'without "only", every instance that has not completed runs'
        raise InvalidRequest([Problem("invalidSetting", text, "/config/resume/only", hint=hint)])
    return {**raw, "context": context}


def _instance_of(message: Any) -> Any:
    return message.get("_instance") if isinstance(message, dict) else None
