"""Whether an answer to a task is valid, and whether it is right: walked through the pure core, world by world.

No server and no model: the loop of an agent takes the answer, a walk makes its Calls, and the world of the task says
what they return. Calls that others wait for are held back as long as anything else can run, so a plan that does not
wait is found out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from acts.language.config import Usage
from acts.language.errors import ActsError, CallError
from acts.language.messages import read_request
from acts.machines.agent_run import AgentRun, AgentSetup
from acts.machines.commands import AskSolution, Finish, StartCall, StartChild
from acts.machines.events import Begin, ChildEnded, Event, ModelEnded
from acts.machines.walk import Walk
from acts.plan.validate import validate_request
from acts.tree.records import Capabilities, TreePosition
from acts.views.results import build_result
from benchmarks.planning.task import Effect, Fails, Has, Json, Task, World

NOW = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Verdict:
    """``problems`` say why an answer is not valid, ``wrong`` why it is not right."""

    problems: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

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
    wrong = [text for world in task.worlds for text in _judge_world(task, world, answer)]
    return Verdict(wrong=tuple(dict.fromkeys(wrong)))


def _judge_world(task: Task, world: World, answer: Json) -> Iterable[str]:
    play = _Play(task, world)
    if task.instances:
        for own in task.instances.values():
            play.walk_alone(own, answer)
    else:
        agent = build_agent(task)
        step = _answer(agent, answer)
        if isinstance(step, StartChild):
            step = play.finish(agent, step)
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
        self._done: set[str] = set()

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

    def _walk(self, prepared: Any) -> Walk:
        walk = Walk(prepared, lambda node: f"run/{node.id}")
        running = self._start(walk.begin(NOW))
        held = {first for first, _ in self.world.before}
        while running:
            self.rounds += 1
            # What others should wait for ends last: whatever does not wait for it has started by then
            ready = [c for c in running if c.node.tool.name not in held] or list(running)
            for command in ready:
                running.remove(command)
            for command in ready:
                running += self._start(self._end(walk, command))
        return walk

    def _start(self, commands: Iterable[Any]) -> list[StartCall]:
        starts = [c for c in commands if isinstance(c, StartCall)]
        for command in starts:
            name = command.node.tool.name
            parameters = {k: v for k, v in command.call.items() if not k.startswith("_")}
            self.effects.append(Effect(name, parameters))
            for first, second in self.world.before:
                if name == second and first not in self._done:
                    self.wrong.append(f"{second} starts before {first} has succeeded")
        return starts

    def _end(self, walk: Walk, command: StartCall) -> Any:
        name = command.node.tool.name
        result = self.world.results.get(name)
        if callable(result):
            result = result({k: v for k, v in command.call.items() if not k.startswith("_")})
        if not isinstance(result, Fails):
            self._done.add(name)
        if command.node.is_detached:
            return walk.completed(command.node.key, None, NOW)
        if isinstance(result, Fails):
            return walk.failed(command.node.key, CallError(result.code, result.message), NOW)
        return walk.completed(command.node.key, json.loads(json.dumps(result)), NOW)
