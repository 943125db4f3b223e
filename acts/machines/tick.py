"""One tick of an agent: the plan of an answer that is still being written, and what came of a plan that was walked.

Laws of this file: pure. It knows nothing of how Calls arrive or how a plan is walked; ``AgentRun`` says when a plan
starts and what follows from its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import InvalidRequest
from acts.language.references import evaluate
from acts.language.strict_json import json_size
from acts.language.values import ABSENT, Json
from acts.language.wire import NOT_RUN, PLAN_EXTENSION
from acts.machines.commands import SendRecord
from acts.plan.calls import approval_needed
from acts.planner import turns
from acts.tree.signal_records import PlanExtension, StreamedCalls
from acts.tree.wire_format import canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.machines.agent_context import AgentContext
    from acts.machines.events import ChildEnded
    from acts.plan.calls import PlannedCall
    from acts.plan.context_log import Log
    from acts.plan.validate import ValidatedPlan

# Bytes of context that extensions may repeat beside their Calls: an answer never costs much more history than
# its plan would have cost in one piece
MAX_REPEATED_BYTES: Final = 64 * 1024
# Nobody is known to answer with more; each validation of a beginning costs as much as the Calls in it
MAX_STREAMED_CALLS: Final = 2_000
# Why a Call of an answer was not run
NOT_FIRST: Final = "only the first call of an answer is run; plan it again if it is still needed"
ANSWER_REFUSED: Final = "the answer that it was part of could not be used; calls that had started by then stand"
OUTPUT_WITHHELD: Final = {"output": "not taken, because a call failed or was not run"}

_FAILED: Final = ("failed", "rejected", "cancelled")


# -- an answer that is still being written ---------------------------------------------------------------------------


class StreamedPlan:
    """The Calls of one answer. ``passed_on`` is how many of them the child has, or will be sent.

    The Calls arrive in order. The first ones that make a valid beginning of a plan start a child; more Calls extend
    it. In the child a Call waits that a Call listed later could still change (``ValidatedPlan.undecided``), so what
    starts is what the complete plan would start. When the answer is complete and valid, the rest of its Calls follows
    and the plan is an ordinary one. When it is not, the plan is what had started. A beginning that is no valid plan
    passes nothing on: the rest of the answer is then judged as a whole.

    ``early_end`` is the end of a child that died before the answer was complete; ``is_over``: it is complete.
    """

    def __init__(self, context: AgentContext) -> None:
        self._agent = context
        self._calls: list[Json] = []
        self._attempt: int | None = None
        self._context: list[Json] = []
        self._repeated_bytes = 0
        self._is_stuck = False
        self.passed_on = 0
        self.early_end: ChildEnded | None = None
        self.is_over = False
        self._child: str | None = None
        self._extensions: list[PlanExtension] = []

    @property
    def has_started(self) -> bool:
        """True once a child walks the beginning of the plan."""
        return self.passed_on > 0

    @property
    def started_calls(self) -> list[Json]:
        """The Calls that the child has."""
        return self._calls[: self.passed_on]

    @property
    def received(self) -> int:
        """How many Calls have arrived."""
        return len(self._calls)

    def add(self, record: StreamedCalls, *, may_start: bool) -> ValidatedPlan | None:
        """Take more Calls of the answer; returns the beginning of the plan that can be walked now, if it has grown.

        Calls of another attempt at the answer, or after a gap, are of no use.
        """
        self._attempt = record.attempt if self._attempt is None else self._attempt
        if record.attempt == self._attempt and record.first == len(self._calls):
            self._calls += record.calls
        if self._is_stuck or self.passed_on == len(self._calls) or not (may_start or self.has_started):
            return None
        prepared = self._validate_beginning()
        self._is_stuck = prepared is None
        return prepared

    def _validate_beginning(self) -> ValidatedPlan | None:
        if len(self._calls) > MAX_STREAMED_CALLS:
            return None
        try:
            prepared = self._agent.validate(self._calls, is_complete=False)
        except InvalidRequest:
            return None
        approve = self._agent.request.config.approve
        return None if any(approval_needed(node, approve) for node in prepared.nodes) else prepared

    def begin(self, request: dict[str, Any]) -> None:
        """A child starts with the Request of the beginning."""
        self._context = request["context"][:-1]
        self.passed_on = len(self._calls)

    def extend(self, request: dict[str, Any]) -> list[SendRecord]:
        """The child gets a longer beginning; ``request`` is the one of all of it."""
        extension = self.extension(request, is_complete=False)
        self._repeated_bytes += json_size([m for m in extension.context if not isinstance(m, int)])
        if self._repeated_bytes > MAX_REPEATED_BYTES:
            self._is_stuck = True
            return []
        self.begin(request)
        return self.send(extension)

    def extension(self, request: dict[str, Any], *, is_complete: bool) -> PlanExtension:
        """The plan's new Calls and context; a message that the child has is named by its index there."""
        indexes = {canonical_json(message): index for index, message in enumerate(self._context)}
        context = tuple(indexes.get(canonical_json(message), message) for message in request["context"][:-1])
        calls = tuple(request["context"][-1]["plan"][self.passed_on :])
        return PlanExtension(calls=calls, context=context, isComplete=is_complete)

    def send(self, extension: PlanExtension) -> list[SendRecord]:
        """Send an extension; a child that is being started gets it once it is there."""
        self._extensions.append(extension)
        return [] if self._child is None else [SendRecord(self._child, PLAN_EXTENSION, extension)]

    def child_started(self, workflow_id: str) -> list[SendRecord]:
        """The child runs under this id; one that was started again begins without any extension."""
        self._child = workflow_id
        return [SendRecord(workflow_id, PLAN_EXTENSION, extension) for extension in self._extensions]

    def child_ended(self, event: ChildEnded) -> None:
        """The child ended before the answer did: it died, or was never started."""
        self._is_stuck = True
        if event.is_unstarted:
            self.passed_on = 0
        else:
            self.early_end = event


def extended_request(request: dict[str, Any], extension: PlanExtension) -> dict[str, Any]:
    """The Request of a plan with an extension applied; the plan is its last message."""
    *context, plan = request["context"]
    messages = [context[m] if isinstance(m, int) else m for m in extension.context]
    return {**request, "context": [*messages, {**plan, "plan": [*plan["plan"], *extension.calls]}]}


def started_part(result: Mapping[str, Any], prepared: ValidatedPlan | None) -> tuple[dict[str, Any], list[Json]]:
    """The result of a plan without the Calls that had not started when it was dropped, and the plan of the others."""
    calls = [call for call in result["calls"] if (call.get("error") or {}).get("code") != NOT_RUN]
    places = {int(call["id"].partition(":")[0]) - 1 for call in calls}
    plan = prepared.request.plan if prepared is not None else None
    planned = [call for i, call in enumerate(plan.calls if plan is not None else ()) if i in places]
    return {**result, "calls": calls}, planned


# -- what came of the plans ------------------------------------------------------------------------------------------


class TickResults:
    """``calls`` and ``errors`` of all ticks, ``instances`` by id; ``walking`` are the Calls of the plan under way."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self.instances: dict[str, dict[str, Any]] = {}
        self.walking: list[dict[str, Any]] = []
        self._nodes: Sequence[PlannedCall] = ()

    def begin(self, nodes: Sequence[PlannedCall], tick: int) -> None:
        """The plan of a tick is walked now: these of its Calls."""
        self._nodes = nodes
        self.walking = [{"id": n.id, "tool": n.tool.name, "state": "pending", "tick": tick} for n in nodes]

    def record(self, result: Mapping[str, Any], tick: int) -> list[dict[str, Any]]:
        """The plan of a tick has ended; returns its failures as the data of error messages."""
        self.walking = []
        details = {e["call"]: e["details"] for e in result.get("errors", ()) if "instance" not in e and "details" in e}
        failures = [self._record_call(call, tick, details=details.get(call["id"])) for call in result["calls"]]
        for id_, item in (result.get("instances") or {}).items():
            failures += [self._record_call(call, tick, id_) for call in item["calls"]]
            self._record_instance(id_, item, tick)
            if item["status"] != "completed" and not any(c["state"] in _FAILED for c in item["calls"]):
                cause = item["errors"][0] if item["errors"] else {"code": item["status"], "message": item["status"]}
                error = {k: cause[k] for k in ("code", "message")}
                failures.append({"call": {"_instance": id_}, "error": error})
        return [failure for failure in failures if failure is not None]

    def with_full_id(self, record: dict[str, Any]) -> dict[str, Any]:
        """A decision that was made in a tick's plan, with its Call's id in the whole Solution."""
        node = None if "below" in record or record.get("call") is None else self._node(record["call"])
        return record if node is None else {**record, "call": node.id}

    def _node(self, id_: str) -> PlannedCall | None:
        """The Call that is walked under this id; None of one that a person has put there."""
        number, _, tool = id_.partition(":")
        place = int(number) - 1 if number.isdecimal() else len(self._nodes)
        node = self._nodes[place] if 0 <= place < len(self._nodes) else None
        return node if node is not None and node.tool.name == tool else None

    def _record_call(
        self, call: dict[str, Any], tick: int, instance: str | None = None, details: Any = None
    ) -> dict[str, Any] | None:
        """Record one Call; returns its failure, as the model is shown it.

        ``details`` are those of the failure, of which the Call itself may show a part.
        """
        node = self._node(call["id"])
        id_ = call["id"] if node is None else node.id
        own = {} if instance is None else {"instance": instance}
        self.calls.append({**call, "id": id_, "tick": tick, **own})
        if call["state"] not in _FAILED:
            return None
        error = call.get("error") or {"code": call["state"], "message": f"the call was {call['state']}"}
        whole = {} if details is None else {"details": details}
        self.errors.append({"call": id_, "tick": tick, **own, **error, **whole})
        planned = call.get("call") or ({"_tool": call["tool"]} if node is None else node.planned)
        return {"call": planned if instance is None else {**planned, "_instance": instance}, "error": error}

    def _record_instance(self, id_: str, item: Mapping[str, Any], tick: int) -> None:
        """Add what an instance did in this tick."""
        total = self.instances.setdefault(id_, {"status": "", "calls": [], "errors": []})
        if item["calls"] or item["errors"] or not total["status"]:
            total["status"] = item["status"]
        total["calls"] += [{**c, "tick": tick} for c in item["calls"]]
        total["errors"] += [{**e, "tick": tick} for e in item["errors"]]


def describe_outcomes(
    items: Sequence[Mapping[str, Any]], failures: Sequence[Mapping[str, Any]], planned: Sequence[PlannedCall],
    log: Log, *, unrun_reason: str | None = None, answer: Sequence[Json] = (),
) -> tuple[dict[str, Any], ...]:  # fmt: skip
    """What came of a tick's plan, in the words of a turn: one outcome for each Call.

    ``items`` are those of its Calls, ``failures`` as the results list them, ``planned`` all Calls of the answer.
    ``unrun_reason`` says why the walk left some out, where it did. ``answer`` are the Calls of an answer that could not
    be used: the plan has only the first of them.
    """
    nodes = {node.id: node for node in sorted(planned, key=lambda n: n.index)}
    rest: list[dict[str, Any]] = []
    if unrun_reason is not None:
        walked = {item["id"] for item in items}
        ids = [*nodes, *turns.answer_ids(answer)[len(nodes) :]]
        unrun = {"outcome": turns.NOT_RUN, "reason": unrun_reason}
        rest = turns.join_equal([{"call": id_, **unrun} for id_ in ids if id_ not in walked])
    # An instance that failed without a Call of its own that did
    whole = [f for f in failures if set(f["call"]) == {"_instance"}]
    failed = [{**f["call"], "outcome": turns.FAILED, "error": f["error"]} for f in whole]
    listed = turns.call_outcomes(items, lambda item: _skip_reason(item, nodes.get(str(item["id"])), log))
    return (*listed, *rest, *failed)


def _skip_reason(item: Mapping[str, Any], node: PlannedCall | None, log: Log) -> str | None:
    """Why a Call was skipped: the references of its own that lead to no value now."""
    instance = item.get("instance")
    if node is None or (instance is not None and instance not in log.own):
        return None
    if node.kind == "latent" and not node.outcomes:
        return "it has neither an _output nor an _outputPath"
    absent = [u.text for u in node.reads if evaluate(u.tree, lambda path: log.read(path, 0, instance)) is ABSENT]
    return f"there is no value at {', '.join(dict.fromkeys(absent))}" if absent else None
