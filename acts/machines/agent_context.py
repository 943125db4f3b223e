"""What an agent works with: its context, the plan of an answer that is still being written, and what came of plans.

Laws of this file: pure. Messages are appended and never changed, and the same Calls in the same context make the same
plan. Nothing here knows how Calls arrive or how a plan is walked; ``AgentRun`` says when a plan starts and what follows
from its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acts.language.errors import InvalidRequest, Problem, format_choices
from acts.language.messages import Data, Instruction, Message, Request, output_schema, parse_message
from acts.language.references import evaluate
from acts.language.schemas import find_schema_problem
from acts.language.strict_json import json_size
from acts.language.tools import Tool, read_tools
from acts.language.values import ABSENT, MAX_DEPTH, Json, defect
from acts.language.wire import INVALID_SOLUTION, NOT_RUN
from acts.machines.commands import SendRecord
from acts.machines.events import ChildEnded
from acts.plan.calls import PlannedCall, find_rule
from acts.plan.context_log import Log
from acts.plan.validate import ValidatedPlan, set_refusal, settings_problems_of, undo_problems, validate_plan
from acts.planner import turns
from acts.planner.turns import DEPTH_RESERVE, call_at
from acts.tree.child_requests import part_request, without_plan
from acts.tree.decisions import DECISION_KEYS
from acts.tree.records import Turn
from acts.tree.signal_records import PlanExtension, StreamedCalls
from acts.tree.wire_format import canonical_json

# Settings of an agent that are none of its plans'
_NOT_FOR_PLANS: Final = ("maxTicks", "step", "tools", "budget", "approve", "onFailure")
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


class AgentContext:
    """``request`` is the Request with everything that joined its context since; ``warnings`` are its problems. Raises
    InvalidRequest: the Request cannot be run, with every problem.
    """

    def __init__(self, request: Request, registry: Mapping[str, Json], served: Iterable[str]) -> None:
        tools = read_tools(request, registry, frozenset(served).__contains__)
        self.request = request
        self.log = Log(request.data())
        self.output_schema = output_schema(request.schema)
        problems = [*_find_problems(request, tools.problems, self.output_schema), *self.log.problems]
        problems += [*undo_problems(tools.by_name, tools.by_name.values()), *set_refusal(request, "an agent")]
        if any(p.fatal for p in problems):
            raise InvalidRequest(problems)
        self.warnings = tuple(problems)
        self.tools: Mapping[str, Tool] = tools.by_name
        self.mode = request.mode
        self._own_count = len(request.context)

    def append(self, raws: Iterable[Json]) -> None:
        start = len(self.request.context)
        parsed: list[Message] = [parse_message(raw, start + i) for i, raw in enumerate(raws)]
        for message in parsed:
            if isinstance(message, Data):
                self.log.fold(message)
        self.request = replace(self.request, context=(*self.request.context, *parsed))

    def append_plan(self, calls: Sequence[Json]) -> None:
        self.append([self._plan_message(calls)])

    def append_problems(self, problems: Sequence[Problem], calls: Sequence[Json]) -> list[dict[str, Any]]:
        """Problems join the context as error messages, each with the Call that it is about; returns what was shown."""
        items = turns.problem_items(problems)
        for item in items:
            error = {key: value for key, value in item.items() if key != "call"}
            self.append([{"type": "error", "data": {"call": call_at(item.get("pointer", ""), calls), "error": error}}])
        return [item for item in items if item["code"] != turns.MORE_PROBLEMS]

    def append_decision(self, record: Mapping[str, Any]) -> None:
        """Who decided what becomes part of the context, in place of the decision before.

        What is about an instance belongs to it: models of the others are not shown it.
        """
        data = {k: v for k, v in record.items() if k in DECISION_KEYS}
        message = {"type": "data", "kind": "decision", "data": data, "_outputPath": "†decision"}
        instance = record.get("instance")
        own = instance in self.log.own
        self.append([{**message, "_instance": instance} if own else message])

    def provide(self, message: Data | Instruction) -> None:
        """A message from outside joins the context. Raises InvalidRequest: it cannot be folded into it, or would not
        fit into the Request of a plan.
        """
        self.check_provided(message)
        refused = self.log.fold(message) if isinstance(message, Data) else None
        if refused:
            raise InvalidRequest([Problem("invalidMessage", refused.message)])
        again = replace(message, index=len(self.request.context))
        self.request = replace(self.request, context=(*self.request.context, again))

    def check_provided(self, message: Data | Instruction) -> None:
        """Raise InvalidRequest for a message whose instance is unknown, or that is too deep."""
        broken = defect(message.raw, MAX_DEPTH - DEPTH_RESERVE)
        if broken:
            raise InvalidRequest([Problem("invalidMessage", broken[1], broken[0])])
        if isinstance(message, Data) and message.instance is not None and message.instance not in self.log.own:
            text = f"unknown instance {message.instance!r}; known: {format_choices(self.log.own)}"
            raise InvalidRequest([Problem("unknownInstance", text, "/_instance")])

    def known_tools(self, turns_before: Sequence[Turn]) -> Mapping[str, Tool]:
        """The Tools whose schemas the planner has been shown after these turns."""
        return turns.known_tools(self.tools, self.request.config.tools.search, turns_before)

    @property
    def count(self) -> int:
        return len(self.request.context)

    def appended(self) -> list[Json]:
        """The messages that came after the Request's."""
        return [m.raw for m in self.request.context[self._own_count :]]

    def validate(self, calls: list[Json], *, is_complete: bool = True) -> ValidatedPlan:
        """The plan of these Calls; one that is not complete is the beginning of a plan. Raises InvalidRequest: with
        every problem.
        """
        broken = defect(calls, MAX_DEPTH - DEPTH_RESERVE)
        if broken:
            raise InvalidRequest([Problem(INVALID_SOLUTION, broken[1], "/calls" + broken[0])])
        plan = parse_message(self._plan_message(calls), self.count)
        unlimited = self.request.config.budget.model_copy(update={"calls": None})
        config = self.request.config.model_copy(update={"budget": unlimited})
        request = replace(self.request, config=config, context=(*self.request.context, plan))
        return validate_plan(request, self.tools, self.log, ("calls",), is_complete=is_complete)

    def next_nodes(self, prepared: ValidatedPlan) -> list[PlannedCall]:
        """All Calls of a plan as listed, or with ``step: call`` the first one that is to be run."""
        nodes = sorted(prepared.nodes, key=lambda n: n.index)
        if self.request.config.step == "call":  # in plan order the first is ready; a thought is none
            return [next((n for n in prepared.nodes if n.outcomes or n.kind != "latent"), nodes[0])]
        return nodes

    def plan_request(self, prepared: ValidatedPlan, nodes: list[PlannedCall]) -> dict[str, Any]:
        """The Request that these Calls of a plan are walked by."""
        settings = self.request.raw.get("config") or {}
        own = {k: v for k, v in settings.items() if k not in _NOT_FOR_PLANS}
        config = {**own, "approve": without_plan(settings.get("approve"))}
        # A person may change a Call that waits into any that the agent could make
        is_editable = any(find_rule(n, self.request.config.approve) for n in nodes)
        return part_request(prepared, self.log, nodes, config, is_editable=is_editable)

    def _plan_message(self, calls: Sequence[Json]) -> dict[str, Any]:
        return {"type": "plan", "plan": calls, "mode": self.mode}


def _find_problems(request: Request, tool_problems: Iterable[Problem], schema: Json) -> list[Problem]:
    """What is wrong with the Request of an agent, apart from its context; ``schema`` is that of its output."""
    problems = [*request.problems, *settings_problems_of(request), *tool_problems]
    if request.config.model is None:
        models = '"anthropic:…", "openai:…", "scripted:…" or "ENDPOINT/…"'
        hint = f"set config.model, e.g. {models}; a plan without a planner is a Plan"
        problems.append(Problem("noModel", "an agent needs a model to plan", "/config/model", hint=hint))
    if schema is not None and not any(p.pointer == "/schema" for p in problems):
        problem = find_schema_problem(schema, ("schema",), "invalidSchema")
        problems.extend([problem] if problem is not None else [])
    return problems


class StreamedPlan:
    """The ``calls`` of one answer. ``passed_on`` is how many of them the child has, or will be sent.

    The Calls arrive in order. The first ones that make a valid beginning of a plan start a child; more Calls extend
    it. In the child a Call waits that a Call listed later could still change (``ValidatedPlan.undecided``), so what
    starts is what the complete plan would start. When the answer is complete and valid, the rest of its Calls follows
    and the plan is an ordinary one. When it is not, the plan is what had started. A beginning that is no valid plan
    passes nothing on: the rest of the answer is then judged as a whole.

    ``early_end`` is the end of a child that died before the answer was complete; ``is_over``: it is complete;
    ``is_stuck``: nothing more is passed on before that.
    """

    def __init__(self, context: AgentContext, *, is_stuck: bool = False) -> None:
        self._agent = context
        self.calls: list[Json] = []
        self._attempt: int | None = None
        self._context: list[Json] = []
        self._repeated_bytes = 0
        self.is_stuck = is_stuck
        self.passed_on = 0
        self.early_end: ChildEnded | None = None
        self.is_over = False
        self._child: str | None = None
        self._extensions: list[PlanExtension] = []

    @property
    def has_started(self) -> bool:
        return self.passed_on > 0

    @property
    def is_walked(self) -> bool:
        """True while a child walks the beginning of an answer that is not complete."""
        return self.has_started and not self.is_over

    @property
    def started_calls(self) -> list[Json]:
        return self.calls[: self.passed_on]

    def add(self, record: StreamedCalls, *, may_start: bool) -> ValidatedPlan | None:
        """Take more Calls of the answer; returns the beginning of the plan that can be walked now, if it has grown.

        Calls of another attempt at the answer, or after a gap, are of no use.
        """
        self._attempt = record.attempt if self._attempt is None else self._attempt
        if record.attempt == self._attempt and record.first == len(self.calls):
            self.calls += record.calls
        if self.is_stuck or self.passed_on == len(self.calls) or not (may_start or self.has_started):
            return None
        self.is_stuck = len(self.calls) > MAX_STREAMED_CALLS
        try:
            prepared = None if self.is_stuck else self._agent.validate(self.calls, is_complete=False)
        except InvalidRequest:
            prepared = None
        approve = self._agent.request.config.approve
        self.is_stuck = prepared is None or any(find_rule(node, approve) for node in prepared.nodes)
        return None if self.is_stuck else prepared

    def begin(self, request: dict[str, Any]) -> None:
        self._context = request["context"][:-1]
        self.passed_on = len(self.calls)

    def extend(self, request: dict[str, Any]) -> list[SendRecord]:
        """The child gets a longer beginning; ``request`` is the one of all of it."""
        extension = self.extension(request, is_complete=False)
        self._repeated_bytes += json_size([m for m in extension.context if not isinstance(m, int)])
        if self._repeated_bytes > MAX_REPEATED_BYTES:
            self.is_stuck = True
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
        return [] if self._child is None else [SendRecord(self._child, extension)]

    def child_started(self, workflow_id: str) -> list[SendRecord]:
        """The child runs under this id; one that was started again begins without any extension."""
        self._child = workflow_id
        return [SendRecord(workflow_id, extension) for extension in self._extensions]


def started_part(result: Mapping[str, Any], prepared: ValidatedPlan | None) -> tuple[dict[str, Any], list[Json]]:
    """The result of a plan without the Calls that had not started when it was dropped, and the plan of the others."""

    def started(calls: Iterable[Json]) -> list[Json]:
        return [call for call in calls if (call.get("error") or {}).get("code") != NOT_RUN]

    calls, instances = started(result["calls"]), dict[str, Any]()
    for id_, item in (result.get("instances") or {}).items():
        own = {"calls": started(item["calls"]), "errors": [e for e in item["errors"] if e["code"] != NOT_RUN]}
        instances[id_] = {**item, **own, "status": item["status"] if own["errors"] else "completed"}
    places = {int(call["id"].partition(":")[0]) - 1 for call in calls}
    planned = [] if prepared is None else [c for i, c in enumerate(prepared.request.calls) if i in places]
    return {**result, "calls": calls, **({"instances": instances} if instances else {})}, planned


class TickResults:
    """``calls`` and ``errors`` of all ticks, ``instances`` by id; ``walking`` are the Calls of the plan under way."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self.instances: dict[str, dict[str, Any]] = {}
        self.walking: list[dict[str, Any]] = []
        self._nodes: Sequence[PlannedCall] = ()

    def begin(self, nodes: Sequence[PlannedCall], tick: int) -> None:
        self._nodes = nodes
        self.walking = [{"id": n.id, "tool": n.tool.name, "state": "pending", "tick": tick} for n in nodes]

    def record(self, result: Mapping[str, Any], tick: int) -> list[dict[str, Any]]:
        """The plan of a tick has ended; returns its failures as the data of error messages."""
        self.walking = []
        details = {e["call"]: e["details"] for e in result.get("errors", ()) if "instance" not in e and "details" in e}
        failures = [self._record_call(call, tick, details=details.get(call["id"])) for call in result["calls"]]
        for id_, item in (result.get("instances") or {}).items():
            failures += [self._record_call(call, tick, id_) for call in item["calls"]]
            total = self.instances.setdefault(id_, {"status": "", "calls": [], "errors": []})
            if item["calls"] or item["errors"] or not total["status"]:
                total["status"] = item["status"]
            for key in ("calls", "errors"):
                total[key] += [{**listed, "tick": tick} for listed in item[key]]
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
