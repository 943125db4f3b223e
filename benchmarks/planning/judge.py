"""Whether an answer to a task is valid, and whether it is right: walked through the pure core, world by world.

No server and no model: the loop of an agent takes the answer, a walk makes its Calls, and the world of the task says
what they return; only the code of ``compute`` is evaluated, and the plan of a Call is walked as well. Calls that others
wait for are held back as long as anything else can run, so a plan that does not wait is found out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic_monty import MontyError

from acts.activities.shipped_tools import evaluate
from acts.language.config import Usage
from acts.language.errors import ActsError, CallError, InvalidRequest
from acts.language.messages import read_request
from acts.language.references import parse_condition
from acts.language.wire import INVALID_REQUEST, PLAN_FAILED, UNTIL_UNMET
from acts.machines.agent_run import AgentRun, AgentSetup
from acts.machines.call_state import SETTLED
from acts.machines.commands import AskHuman, AskSolution, Finish, StartCall, StartChild
from acts.machines.events import Begin, ChildEnded, Event, ModelEnded
from acts.machines.walk import Walk, date_of
from acts.plan.validate import validate_request
from acts.tree.child_requests import plan_log, plan_output
from acts.tree.records import Capabilities, TreePosition
from acts.views.results import build_result
from benchmarks.planning.task import NEVER, Effect, Fails, Has, InTurn, Json, Task, World

NOW = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Verdict:
    """``problems`` say why an answer is not valid, ``wrong`` why it is not right; ``again`` counts the worlds in which
    the task does not end with it, so that the model is asked once more.
    """

    problems: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    again: int = 0

    @property
    def is_valid(self) -> bool:
        return not self.problems

    @property
    def is_right(self) -> bool:
        return not self.problems and not self.wrong


def build_agent(task: Task) -> AgentRun:
    """The agent of a task, before the answer that is asked for."""
    request = read_request(task.request)
    agent = AgentRun("judged", AgentSetup(dict(request.raw), request, Capabilities(), TreePosition(), ""))
    _handle(agent, Begin())
    for earlier in task.earlier:
        step = _answer(agent, earlier.solution)
        if isinstance(step, AskSolution) and earlier.solution.get("tools"):
            continue
        if not isinstance(step, StartChild):
            raise TypeError(f"{task.id}: an earlier answer does not fit: {agent.results.errors}")
        _Play(task, World(earlier.results)).finish(agent, step)
    return agent


def _handle(agent: AgentRun, event: Event) -> Any:
    """What the agent wants done next."""
    return next(c for c in agent.handle(event, "") if isinstance(c, (AskSolution, StartChild, Finish)))


def _answer(agent: AgentRun, solution: Json) -> Any:
    return _handle(agent, ModelEnded({"solution": json.loads(json.dumps(solution)), "usage": {}}))


def judge(task: Task, answer: Json) -> Verdict:
    """The verdict on an answer: a Solution."""
    first = build_agent(task)
    before = len(first.results.errors)
    try:
        step = _answer(first, answer)
    except ActsError as error:
        return Verdict((str(error),))
    errors = [f"{e['code']}: {e['message']}" for e in first.results.errors[before:]]
    if isinstance(step, AskSolution) and errors:
        return Verdict(tuple(errors))
    missing = set(task.wanted) - set(first.context.known_tools(first.turns))
    if missing:
        return Verdict(wrong=(f"it does not ask for {', '.join(sorted(missing))}",))
    plays = [_Play(task, world) for world in task.worlds]
    wrong = [text for play in plays for text in _judge_world(task, play, answer)]
    return Verdict(wrong=tuple(dict.fromkeys(wrong)), again=sum(not play.is_ended for play in plays))


def _judge_world(task: Task, play: _Play, answer: Json) -> Iterable[str]:
    world = play.world
    if task.instances:
        for own in task.instances.values():
            play.walk_alone(own, answer)
    else:
        agent = build_agent(task)
        step = _answer(agent, answer)
        if isinstance(step, StartChild):
            step = play.finish(agent, step)
        play.is_ended = isinstance(step, Finish)
        yield from _judge_output(world, agent, step)
    yield from play.wrong
    yield from _compare(task, world, play.effects)
    if task.rounds is not None and play.rounds > task.rounds:
        yield f"it takes {play.rounds} rounds of calls, not {task.rounds}"


def _judge_output(world: World, agent: AgentRun, step: Any) -> Iterable[str]:
    if world.output is None:
        return
    output = agent.output if isinstance(step, Finish) else None
    fits = world.output(output) if callable(world.output) else output == world.output
    if not fits:
        yield f"the output is {json.dumps(output, ensure_ascii=False)}"


def _compare(task: Task, world: World, made: list[Effect]) -> Iterable[str]:
    """The effects that are missing, and those that should not have been."""
    rest = [e for e in made if e.tool in task.effect_tools]
    for expected in world.effects:
        match = next((e for e in rest if e.tool == expected.tool and _fits(expected.with_, e.with_)), None)
        if match is None:
            yield f"no call {expected.tool}({json.dumps(expected.with_, ensure_ascii=False, default=str)})"
        else:
            rest.remove(match)
    for extra in rest:
        yield f"a call too many: {extra.tool}({json.dumps(extra.with_, ensure_ascii=False)})"


def _fits(expected: dict[str, Json], actual: dict[str, Json]) -> bool:
    return all(v.fits(actual.get(k)) if isinstance(v, Has) else actual.get(k) == v for k, v in expected.items())


class _Play:
    """One walk in one world: ``effects`` are the Calls in the order of their starts."""

    def __init__(self, task: Task, world: World) -> None:
        self.task, self.world = task, world
        self.effects: list[Effect] = []
        self.wrong: list[str] = []
        self.rounds = 0
        self.is_ended = True
        self._done: set[str] = set()
        self._made: Counter[str] = Counter()
        self._now = NOW
        self._asleep: set[tuple[int, int]] = set()

    def finish(self, agent: AgentRun, step: StartChild) -> Any:
        """Walk the plan of a tick; the next step."""
        walk = self._walk(validate_request(step.input.request))
        report = json.loads(json.dumps(build_result(walk, Usage())))
        return _handle(agent, ChildEnded(step.name, report))

    def walk_alone(self, own: dict[str, Json], answer: Json) -> None:
        """Walk a template with the data of one instance."""
        request = self.task.request
        context = [m for m in request["context"] if "_instance" not in m and m.get("type") != "plan"]
        context += [{"type": "data", "kind": kind, "data": value} for kind, value in own.items()]
        plan = {"type": "plan", "plan": answer.get("calls") or []}
        self._walk(validate_request({"config": request["config"], "context": [*context, plan]}))

    def _walk(self, prepared: Any, until: str | None = None) -> Walk:
        walk = Walk(prepared, lambda node: f"run/{node.id}")
        walk.until = None if until is None else parse_condition(until)
        running = self._start(walk, walk.begin(self._now))
        held = {first for first, _ in self.world.before}
        while (running or walk.next_wake is not None) and not walk.is_reached:
            self.rounds += 1
            # What others should wait for ends last: whatever does not wait for it has started by then
            ready = [c for c in running if c.node.tool.name not in held] or list(running)
            for command in ready:
                running.remove(command)
            for command in ready:
                running += self._start(walk, self._end(walk, command))
                if walk.is_reached:
                    break
            if not ready and walk.next_wake is not None:
                self._now = walk.next_wake.isoformat()
                self._done.add("wait")
                running += self._start(walk, walk.wake(self._now))
        return walk

    def _start(self, walk: Walk, commands: Iterable[Any]) -> list[StartCall | AskHuman]:
        starts = [c for c in commands if isinstance(c, (StartCall, AskHuman))]
        for command in starts:
            parameters = {k: v for k, v in command.call.items() if not k.startswith("_")}
            self._note(command.node.tool.name, parameters)
        for call in walk.calls:
            if call.stage == "sleeping" and (id(walk), call.rank) not in self._asleep:
                self._asleep.add((id(walk), call.rank))
                self._note("wait", {"seconds": (date_of(call.until) - date_of(self._now)).total_seconds()})
        return starts

    def _note(self, name: str, parameters: dict[str, Json]) -> None:
        self.effects.append(Effect(name, parameters))
        for first, second in self.world.before:
            if name == second and first not in self._done:
                self.wrong.append(f"{second} starts before {first} has succeeded")

    def _end(self, walk: Walk, command: StartCall | AskHuman) -> Any:
        """What the walk does next: a Call ends, or never does."""
        key = command.node.key
        try:
            result = self._result(command)
        except CallError as error:
            is_lost = command.node.is_detached
            return walk.completed(key, None, self._now) if is_lost else walk.failed(key, error, self._now)
        if result is NEVER:
            return []
        self._done.add(command.node.tool.name)
        if isinstance(command, AskHuman):
            return walk.decide(key, "answer", "", self._now, json.loads(json.dumps(result)))
        return walk.completed(key, None if command.node.is_detached else json.loads(json.dumps(result)), self._now)

    def _result(self, command: StartCall | AskHuman) -> Json:
        """What a Call returns. Raises CallError."""
        name, call = command.node.tool.name, {k: v for k, v in command.call.items() if not k.startswith("_")}
        if name == "compute":
            try:
                return evaluate(call.pop("code"), call)
            except (MontyError, ValueError) as error:
                raise CallError("computeFailed", str(error)) from None
        if name == "plan":
            return self._inner(call, command)
        result = self.world.results.get(name)
        if isinstance(result, InTurn):
            result = result.results[min(self._made[name], len(result.results) - 1)]
        self._made[name] += 1
        if callable(result):
            result = result(call)
        if isinstance(result, Fails):
            raise CallError(result.code, result.message)
        return result

    def _inner(self, call: dict[str, Json], command: Any) -> Json:
        """What a plan of its own yields. Raises CallError."""
        tools = [{"type": "tool", "tool": tool} for tool in self.task.tools]
        repeat, own = call.get("repeat") or {}, dict(call.get("input") or {})
        for _ in range(repeat.get("max", 1)):
            context = [*tools, *getattr(command, "context", ()), {"type": "input", "input": own}]
            plan = {"type": "plan", "plan": call["plan"]}
            try:
                prepared = validate_request({"config": self.task.request["config"], "context": [*context, plan]})
            except InvalidRequest as error:
                raise CallError(INVALID_REQUEST, str(error)) from None
            walk = self._walk(prepared, call.get("until"))
            if not walk.is_reached and any(c.stage not in SETTLED for c in walk.calls):
                return NEVER
            report = json.loads(json.dumps(build_result(walk, Usage())))
            if not walk.is_reached and report["status"] != "completed":
                raise CallError(PLAN_FAILED, "; ".join(e["message"] for e in report["errors"]))
            log = plan_log(prepared.request.data(), report["context"])
            if walk.is_reached or "until" not in call:
                return plan_output(log)
            own["previous"] = log.state()
        raise CallError(UNTIL_UNMET, f"this does not hold: {call['until']}")
