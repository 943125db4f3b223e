"""The Loop of an agent as a state machine: answers and results in, what to do next out.

Each tick is one request to the model: it answers with a Solution, ``{calls, output}``;
the Calls are checked and walked as a plan of their own; what came of it joins the
context, and so do errors, which are the model's to deal with. The loop is over when an
output stands, or when a limit is reached.

Like ``walk`` it is plain data and knows no clock and no Temporal.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import DecisionRefused, EngineError, InvalidRequest, Problem, truncate
from acts.language.messages import Data, Message, Request, output_schema, parse_message
from acts.language.references import Expression, evaluate
from acts.language.schemas import Checker, checker, schema_defect
from acts.language.tools import Tool, read_tools
from acts.language.usage import Usage
from acts.language.values import ABSENT, MAX_DEPTH, Json, defect, pointer
from acts.language.wire import LIMIT_EXCEEDED, REJECTED, SCHEMA_MISMATCH, UNRESOLVED
from acts.machines.budget import BudgetGrant
from acts.plan.context_log import Log
from acts.plan.planned_call import approval_needed
from acts.plan.validate import ValidatedPlan, settings_problems_of, validate_plan
from acts.planner.solution import DEPTH_RESERVE, call_at, output_problems, resolve_output, shape_problems
from acts.tree.decisions import DECIDED
from acts.tree.plan_request import full_request, minimal_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from acts.plan.planned_call import PlannedCall

# What of a tick's errors a model is shown; more of them say nothing new
MAX_ERRORS_SHOWN: Final = 20
_FAILED: Final = ("failed", "rejected", "cancelled")


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask the model: tick ``tick``, the first ``upto`` messages of the context being what it is shown."""

    tick: int
    upto: int


@dataclass(frozen=True, slots=True)
class StartPlan:
    """Walk ``request`` as a plan of its own; ``ids`` are its Calls' ids in the Solution.

    It makes so many ``calls``, those of a template once for each instance.
    """

    tick: int
    request: dict[str, Any]
    ids: tuple[str, ...]
    calls: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The end: ``completed`` with an output, or ``failed`` at the limit that ``message`` names."""

    status: str
    message: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """A person approves the plan of this tick before any of it runs: ``approved``, ``rejected``, ``edited``."""

    tick: int


Next = AskModel | AwaitApproval | StartPlan | Finished


class Loop:
    """One agent. ``begin``, then feed each answer and each result; do what comes back.

    Raises:
        InvalidRequest: when the Request cannot be run, with every problem.
    """

    def __init__(self, request: Request, registry: Mapping[str, Json], served: Iterable[str]) -> None:
        problems = [*request.problems, *settings_problems_of(request)]
        found = read_tools(request, registry, frozenset(served).__contains__)
        problems.extend(found.problems)
        if request.config.model is None:
            hint = (
                'set config.model, e.g. "anthropic:…", "openai:…" or "scripted:…"; a plan without a planner is a Plan'
            )
            problems.append(Problem("noModel", "an agent needs a model to plan", "/config/model", hint=hint))
        self.output_schema = output_schema(request.schema)
        why = None if self.output_schema is None else schema_defect(self.output_schema)
        if why and not any(p.pointer == "/schema" for p in problems):
            problems.append(Problem("invalidSchema", why, "/schema"))
        self.log = Log(request.data())
        problems.extend(self.log.problems)
        if any(p.fatal for p in problems):
            raise InvalidRequest(problems)
        self.warnings = tuple(problems)
        self.request = request
        self.tools: Mapping[str, Tool] = found.by_name
        self.mode = request.plan.mode if request.plan is not None else "eager"
        self.given = len(request.context)
        self.tick = 0
        self.spent = Usage()
        self.lent = Usage()
        self.started = 0
        self.output: Json = None
        self.plan_tick = 0
        self.prepared: ValidatedPlan | None = None
        self.calls: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self._proposal: tuple[ValidatedPlan, list[Json]] | None = None
        self._wanted: Json = None
        self._planned: list[PlannedCall] = []
        self._open: list[dict[str, Any]] = []
        self._left_out = False
        self.instances: dict[str, dict[str, Any]] = {}

    # -- the loop --------------------------------------------------------------

    def next(self) -> AskModel | Finished:
        """The next tick, or the limit that allows none."""
        config = self.request.config
        if self.tick >= config.maxTicks:
            text = f"maxTicks {config.maxTicks} is reached and there is no output"
            return Finished(
                "failed", f"{text}: raise maxTicks, or see in the errors why no output stood", LIMIT_EXCEEDED
            )
        spent = self._gone.exhausted(config.budget)
        if spent is not None:
            return Finished("failed", f"{spent} and there is no output", LIMIT_EXCEEDED)
        self.tick += 1
        return AskModel(self.tick, len(self.request.context))

    @property
    def _gone(self) -> Usage:
        """What of the budget is gone: spent here and below, and given to runs that go on alone."""
        out = Usage()
        out.add(self.spent.to_json())
        out.add(self.lent.to_json())
        return out

    def grant(self) -> BudgetGrant:
        """What a request may still spend of this run's own budget; nothing else of it is in flight."""
        left = self._gone.left(self.request.config.budget, flying=1)
        repair = left.get("requests", 1) >= 1
        return BudgetGrant(None, {k: v for k, v in left.items() if k != "requests"}, repair)

    def begin(self) -> Next:
        """The first step: what was proposed when the loop was carried over still is; else the next tick."""
        return AwaitApproval(self.tick) if self.proposes else self.next()

    def untick(self) -> None:
        """Take back a ``next`` that was not acted on."""
        self.tick -= 1

    def answered(self, solution: Json) -> Next:
        """The model's Solution for this tick."""
        problems = list(shape_problems(solution))
        if problems:
            return self._refuse(problems, [])
        calls, self._wanted = solution.get("calls") or [], solution.get("output")
        problems = list(output_problems(self._wanted))
        if not calls:
            if problems:
                return self._refuse(problems, calls)
            return self._finish() or self.next()
        over = self._too_many(calls)
        if over:
            return Finished("failed", over, LIMIT_EXCEEDED)
        try:
            prepared = self._prepare(calls)
        except InvalidRequest as error:
            return self._refuse([*problems, *(p for p in error.problems if p.fatal)], calls)
        if problems:
            return self._refuse(problems, calls)
        self._proposal = (prepared, calls)
        self.prepared, self.plan_tick = prepared, self.tick
        return AwaitApproval(self.tick) if self.asks_for_plan else self.approved()

    # -- decisions about the plan of a tick ---------------------------------------

    @property
    def asks_for_plan(self) -> bool:
        """True when a person approves each plan: the default where the model only plans."""
        wanted = self.request.config.approve.plan
        return self.mode == "lazy" if wanted is None else wanted

    @property
    def proposes(self) -> bool:
        """True while a plan waits for a person."""
        return self._proposal is not None

    @property
    def proposed(self) -> list[Json]:
        """The Calls that are proposed."""
        return [] if self._proposal is None else self._proposal[1]

    def approved(self) -> Next:
        """Run what was proposed."""
        if self._proposal is None:
            raise EngineError("nothing is proposed")
        (prepared, calls), self._proposal = self._proposal, None
        return self._run(prepared, calls)

    def rejected(self, reason: str) -> Next:
        """Nothing of it runs; the model is told why and plans again."""
        calls, self._proposal = self.proposed, None
        self._append([{"type": "plan", "plan": calls, "mode": self.mode}])
        self._say([Problem(REJECTED, reason)], [])
        return self.next()

    def check_edit(self, calls: list[Json]) -> ValidatedPlan:
        """An edited proposal, validated.

        Raises:
            InvalidRequest: with every problem.
        """
        over = self._too_many(calls)
        if over:
            raise InvalidRequest([Problem("limitExceeded", over, "/calls")])
        return self._fit(calls)

    def _fit(self, calls: list[Json]) -> ValidatedPlan:
        broken = defect(calls, MAX_DEPTH - DEPTH_RESERVE)
        if broken:
            raise InvalidRequest([Problem("invalidSolution", broken[1], "/calls" + broken[0])])
        return self._prepare(calls)

    def check_walked(self, id_: str | None, with_: Json, plan: tuple[Json, ...] | None) -> None:
        """An edit of the plan that is being walked, validated as the plan was when it began.

        Raises:
            InvalidRequest: with every problem.
        """
        calls = [n.planned for n in self._planned] if plan is None else list(plan)
        if plan is None:
            number = (id_ or "").partition(":")[0]
            place = int(number) if number.isdecimal() else 0
            if not 0 < place <= len(calls):
                raise DecisionRefused(f"there is no call {id_} in the plan that is walked")
            calls[place - 1] = with_
        self._fit(calls)

    def _too_many(self, calls: list[Json]) -> str | None:
        limit = self.request.config.budget.calls
        wanted = self.request.calls_of(calls)
        if limit is None or self.started + wanted <= limit:
            return None
        text = f"the budget of {limit:,} calls does not allow the {wanted:,} that were planned"
        return f"{text}: {self.started} were made"

    def edited(self, calls: list[Json]) -> None:
        """Another plan is proposed instead; raises InvalidRequest."""
        self.prepared = self.check_edit(calls)
        self._proposal = (self.prepared, calls)

    def decision(self, record: Mapping[str, Any]) -> None:
        """Who decided what becomes part of the context, in place of the decision before.

        What is about an instance belongs to it: models of the others are not shown it.
        """
        told = {k: v for k, v in record.items() if k in DECIDED}
        message = {"type": "data", "kind": "decision", "data": told, "_outputPath": "†decision"}
        instance = record.get("instance")
        self._append([{**message, "_instance": instance} if instance in self.log.own else message])

    def unusable(self, code: str, message: str) -> Next:
        """The model's answer was no Solution, or none that can be run."""
        self._open = []
        return self._refuse([Problem(code, message)], [])

    def walked(self, result: Mapping[str, Any]) -> Next:
        """The plan of this tick has been walked; ``result`` is that of a Plan."""
        self.spent.add(result.get("usage"))
        self.lent.add(result.get("lent"))
        self.started += result.get("made", 0)
        self._append(result.get("context") or ())
        self._open = []
        failed = [f for call in result["calls"] if (f := self._walked_call(call)) is not None]
        for id_, item in (result.get("instances") or {}).items():
            failed += [f for call in item["calls"] if (f := self._walked_call(call, id_)) is not None]
            self._walked_instance(id_, item)
            if item["status"] != "completed" and not any(c["state"] in _FAILED for c in item["calls"]):
                why = item["errors"][0] if item["errors"] else {"code": item["status"], "message": item["status"]}
                failed.append({"call": {"_instance": id_}, "error": {k: why[k] for k in ("code", "message")}})
        self._append({"type": "error", "data": data} for data in failed[:MAX_ERRORS_SHOWN])
        if failed or self._wanted is None or self._left_out:
            return self.next()
        return self._finish() or self.next()

    def named(self, record: dict[str, Any]) -> dict[str, Any]:
        """A decision that was made in a tick's plan, with its Call's id in the whole plan."""
        node = None if "below" in record or record.get("call") is None else self._node_of(record["call"])
        return record if node is None else {**record, "call": node.id}

    def _node_of(self, id_: str) -> PlannedCall | None:
        """The Call that is walked under this id; None of one that a person has put there."""
        number, _, tool = id_.partition(":")
        place = int(number) - 1 if number.isdecimal() else len(self._planned)
        node = self._planned[place] if 0 <= place < len(self._planned) else None
        return node if node is not None and node.tool.name == tool else None

    def _walked_call(self, call: dict[str, Any], instance: str | None = None) -> dict[str, Any] | None:
        """Take note of one Call of a plan that was walked; its error, as the model is told of it."""
        node = self._node_of(call["id"])
        id_ = call["id"] if node is None else node.id
        where = {} if instance is None else {"instance": instance}
        self.calls.append({**call, "id": id_, "tick": self.tick, **where})
        if call["state"] not in _FAILED:
            return None
        error = call.get("error") or {"code": call["state"], "message": f"the call was {call['state']}"}
        self.errors.append({"call": id_, "tick": self.tick, **where, **error})
        planned = call.get("call") or ({"_tool": call["tool"]} if node is None else node.planned)
        return {"call": planned if instance is None else {**planned, "_instance": instance}, "error": error}

    def _walked_instance(self, id_: str, item: Mapping[str, Any]) -> None:
        """What an instance has come to so far."""
        known = self.instances.setdefault(id_, {"status": "", "calls": [], "errors": []})
        if item["calls"] or item["errors"] or not known["status"]:
            known["status"] = item["status"]
        known["calls"] += [{**c, "tick": self.tick} for c in item["calls"]]
        known["errors"] += [{**e, "tick": self.tick} for e in item["errors"]]

    def provide(self, message: Data) -> None:
        """A message from outside joins the context.

        Raises:
            InvalidRequest: it cannot be folded into it, or would not fit into the Request of a plan.
        """
        broken = defect(message.raw, MAX_DEPTH - DEPTH_RESERVE)
        if broken:
            raise InvalidRequest([Problem("invalidMessage", broken[1], broken[0])])
        if message.instance is not None and message.instance not in self.log.own:
            raise InvalidRequest([Problem("unknownInstance", f"unknown instance {message.instance!r}", "/_instance")])
        refused = self.log.layer(message.instance).take(message, set())
        if refused:
            raise InvalidRequest([Problem("invalidMessage", refused.message)])
        again = replace(message, index=len(self.request.context))
        self.request = replace(self.request, context=(*self.request.context, again))

    # -- parts -----------------------------------------------------------------

    def _prepare(self, calls: list[Json]) -> ValidatedPlan:
        plan = parse_message({"type": "plan", "plan": calls, "mode": self.mode}, len(self.request.context))
        config = self.request.config.model_copy(update={"budget": self.request.config.budget.model_copy(
            update={"calls": None})})  # fmt: skip
        request = replace(self.request, config=config, context=(*self.request.context, plan))
        return validate_plan(request, self.tools, self.log, ("calls",))

    def to_walk(self) -> tuple[ValidatedPlan, dict[str, Any]]:
        """What of the proposal would be walked, and the Request that it would be walked by."""
        if self._proposal is None:
            raise EngineError("nothing is proposed")
        prepared = self._proposal[0]
        nodes = self._next_nodes(prepared)
        part = prepared if len(nodes) == len(prepared.nodes) else self._prepare([n.planned for n in nodes])
        return part, self._handed(prepared, nodes, 0)

    def _next_nodes(self, prepared: ValidatedPlan) -> list[PlannedCall]:
        """All Calls of a plan as listed, or with ``step: call`` the first one that is to be run."""
        nodes = sorted(prepared.nodes, key=lambda n: n.index)
        if self.request.config.step == "call":  # in plan order the first is ready; a thought is none
            return [next((n for n in prepared.nodes if n.outcomes or n.kind != "latent"), nodes[0])]
        return nodes

    def _handed(self, prepared: ValidatedPlan, nodes: list[PlannedCall], made: int) -> dict[str, Any]:
        """The Request that these Calls are walked by; ``made`` of them count as started already."""
        whole = any(approval_needed(n, self.request.config.approve) for n in nodes)
        hand = full_request if whole else minimal_request
        return hand(prepared, self.log, nodes, self._child_config(made))

    def _run(self, prepared: ValidatedPlan, calls: list[Json]) -> StartPlan:
        """Hand the plan over: all of it, or with ``step: call`` the first Call that is to be run."""
        nodes = self._next_nodes(prepared)
        self._left_out = len(nodes) < len(prepared.nodes)
        self._planned = nodes
        made = self.request.calls_of([n.planned for n in nodes])
        self.started += made
        self._open = [{"id": n.id, "tool": n.tool.name, "state": "pending", "tick": self.tick} for n in nodes]
        request = self._handed(prepared, nodes, made)
        self._append([{"type": "plan", "plan": calls, "mode": self.mode}])
        return StartPlan(self.tick, request, tuple(n.id for n in nodes), made)

    def _child_config(self, made: int) -> dict[str, Any]:
        """The settings that the walk of a plan has a use for, with what is left of the budget.

        ``made`` of its Calls are counted already: of the rest, delegates may make some.
        """
        given = self.request.raw.get("config") or {}
        out = {k: v for k, v in given.items() if k not in ("maxTicks", "step", "budget", "approve")}
        budget = self.request.config.budget
        left = {k: max(0, v) for k, v in self._gone.left(budget).items()}
        if budget.calls is not None:
            left["calls"] = budget.calls - self.started + made
        return {**out, "approve": {**(given.get("approve") or {}), "plan": False}, "budget": left}

    def _finish(self) -> Finished | None:
        """The end, when the output stands; else an error message that says why it does not."""
        if self._wanted is None:
            problem = Problem("emptySolution", "the answer has neither calls nor an output: give one of them")
            self._say([problem], [])
            return None
        missing: list[str] = []
        output = resolve_output(self._wanted, lambda path: self.log.read(path, 0), missing)
        if missing:
            listed = ", ".join(dict.fromkeys(missing))
            self._say([Problem(UNRESOLVED, f"the output refers to {listed}, and nothing is there", "/output")], [])
            return None
        if output is None:
            self._say([Problem("emptySolution", "the output refers to null: that is no output", "/output")], [])
            return None
        defects = self._check.defects(output) if self._check is not None else []
        if defects:
            self._say(
                [Problem(SCHEMA_MISMATCH, f"the output: {why}", pointer("output", *at)) for at, why in defects], []
            )
            return None
        self.output = output
        return Finished("completed")

    @property
    def _check(self) -> Checker | None:
        return None if self.output_schema is None else checker(self.output_schema)

    def _refuse(self, problems: list[Problem], calls: list[Json]) -> AskModel | Finished:
        self._say(problems, calls)
        return self.next()

    def _say(self, problems: list[Problem], calls: list[Json]) -> None:
        """Problems as error messages for the model, each with the Call that it is about."""
        for problem in problems[:MAX_ERRORS_SHOWN]:
            error = {"code": problem.code, "message": truncate(problem.message)}
            error.update({k: v for k, v in (("pointer", problem.pointer), ("hint", problem.hint)) if v})
            call = call_at(problem.pointer, calls)
            self.errors.append({"call": problem.call, "tick": self.tick, **error})
            self._append([{"type": "error", "data": {"call": call, "error": error}}])
        more = len(problems) - MAX_ERRORS_SHOWN
        if more > 0:
            error = {"code": "moreProblems", "message": f"… and {more} more problems"}
            self._append([{"type": "error", "data": {"call": None, "error": error}}])

    def _append(self, raws: Iterable[Json]) -> None:
        """Messages join the context, and the log."""
        at = len(self.request.context)
        parsed: list[Message] = [parse_message(raw, at + i) for i, raw in enumerate(raws)]
        owned: set[int] = set()
        for message in parsed:
            if isinstance(message, Data):
                self.log.layer(message.instance, create=True).take(message, owned)
        self.request = replace(self.request, context=(*self.request.context, *parsed))

    # -- what can be seen ------------------------------------------------------

    def appended(self) -> list[Json]:
        """The messages that came after the Request's."""
        return [m.raw for m in self.request.context[self.given :]]

    def current(self) -> list[dict[str, Any]]:
        """Every Call so far, those of the plan that is being walked at the end."""
        return [*self.calls, *self._open]

    def walking(self) -> list[dict[str, Any]]:
        """The Calls of the latest plan, those of a template once for each instance that was walked."""
        return [c for c in self.current() if c["tick"] == self.plan_tick]

    def value(self, tree: Expression, instance: str | None = None) -> Json:
        """What an expression yields now."""
        return evaluate(tree, lambda path: self.log.read(path, 0, instance))

    def result(self, status: str) -> dict[str, Any]:
        """The result of an Agent."""
        more = {"instances": {i: self._instance(i, status) for i in ids}} if (ids := self.request.instances()) else {}
        return {
            "status": status, "output": self.output, "ticks": self.tick, "state": self._state(), **more,
            "calls": self.calls, "context": self.appended(), "errors": self.errors, "usage": self.spent.to_json(),
        }  # fmt: skip

    def _state(self, instance: str | None = None) -> Json:
        found = self.log.view("state", instance=instance)
        return {} if found is ABSENT else found

    def _instance(self, id_: str, status: str) -> dict[str, Any]:
        """The result of one instance: ``{status, state, calls, errors}``; ``status`` is that of the run."""
        known = self.instances.get(id_, {"status": status, "calls": [], "errors": []})
        return {
            "status": known["status"],
            "state": self._state(id_),
            "calls": known["calls"],
            "errors": known["errors"],
        }

    # -- carrying over ---------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The loop as JSON, between two ticks or while a plan is proposed."""
        waits = None if self._proposal is None else {"calls": self.proposed, "output": self._wanted}
        return {
            "context": self.appended(), "tick": self.tick, "spent": self.spent.to_json(), "started": self.started,
            "lent": self.lent.to_json(),
            "calls": self.calls, "errors": self.errors, "planTick": self.plan_tick, "instances": self.instances,
            "proposal": waits,
        }  # fmt: skip

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over a snapshot of the same Request."""
        self._append(data["context"])
        self.tick, self.started = data["tick"], data["started"]
        self.spent.add(data["spent"])
        self.lent.add(data.get("lent"))
        self.calls, self.errors = list(data["calls"]), list(data["errors"])
        self.plan_tick = data.get("planTick", 0)
        self.instances = dict(data.get("instances") or {})
        if self.plan_tick and self.request.plan is not None:  # for who asks for its picture
            with contextlib.suppress(InvalidRequest):
                self.prepared = self._prepare(list(self.request.plan.calls))
        waits = data.get("proposal")
        if waits is not None:
            self._wanted = waits["output"]
            self.edited(list(waits["calls"]))
