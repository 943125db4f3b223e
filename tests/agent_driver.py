"""An agent without a server: what the model answers and what its plans yield go in, commands come out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from acts.language.config import Usage
from acts.language.errors import CallError
from acts.language.messages import Data, Request, parse_message, read_request
from acts.machines.agent_run import AgentRun, AgentSetup
from acts.machines.commands import AskSolution, Finish, StartChild
from acts.machines.events import Begin, ChildEnded, DecisionReceived, Event, HoldChanged, ModelEnded, Provided
from acts.plan.validate import validate_request
from acts.tree.records import AgentState, Capabilities, TreePosition
from acts.views.results import build_result
from acts.workflows.handlers import provided_message
from tests.property.drive import Drive

Json = Any
Command = AskSolution | StartChild | Finish | None
NOW = "2026-01-01T00:00:00.000Z"


class Agent:
    """One agent; whatever else is asked for is asked of its machine."""

    def __init__(
        self, request: Json, registry: Mapping[str, Json] | None = None, served: Iterable[str] = (),
        state: AgentState | None = None,
    ) -> None:  # fmt: skip
        self._parts = parsed, tools, names = (
            request if isinstance(request, Request) else read_request(request), dict(registry or {}), tuple(served)
        )  # fmt: skip
        position = TreePosition().with_budget("a", parsed.config.budget)
        capabilities = Capabilities(tools=tools, served=names)
        lease = None if state is None else state.lease
        self.run = AgentRun("a", AgentSetup(dict(parsed.raw), parsed, capabilities, position, "run", lease=lease))
        if state is not None:
            self.run.restore(state, [m for m in map(parse_message, state.provided) if isinstance(m, Data)])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run, name)

    @property
    def tools(self) -> Any:
        return self.run.context.tools

    @property
    def output_schema(self) -> Json:
        return self.run.context.output_schema

    @property
    def mode(self) -> str:
        return self.run.context.mode

    def handle(self, event: Event) -> Command:
        """The last of what the run wants done, in a task of its own; None while it waits for a person."""
        commands = self.run.handle(event, NOW)
        self.run.flush(NOW)
        steps = [c for c in commands if isinstance(c, (AskSolution, StartChild, Finish))]
        return steps[-1] if steps else None

    def next_tick(self) -> Command:
        return self.handle(Begin())

    def answered(self, solution: Json) -> Command:
        usage = {"requests": 1, "inputTokens": 10, "outputTokens": 5}
        return self.handle(ModelEnded({"solution": solution, "usage": usage}))

    def answered_badly(self, code: str, message: str, **more: Json) -> Command:
        return self.handle(ModelEnded({"unusable": {"code": code, "message": message, **more}, "usage": {}}))

    def plan_ended(self, result: Json, error: CallError | None = None) -> Command:
        return self.handle(ChildEnded(f"plan-{self.run.tick}", result, error))

    def walk(self, step: Command, results: Mapping[str, Json]) -> Command:
        """Walk the plan that was started, and hand in its result."""
        return self.plan_ended(walk_plan(step, results))

    def decide(self, word: str, **raw: Json) -> Command:
        return self.handle(DecisionReceived(raw, word))

    def provide(self, message: Json, *, is_urgent: bool = False) -> Command:
        return self.handle(Provided(provided_message(message), is_urgent=is_urgent))

    def hold(self) -> None:
        """The run is to continue as new before the next tick."""
        self.handle(HoldChanged(True))

    def renewed(self) -> Agent:
        """The next run of the same agent, which has not begun yet."""
        state = json.loads(json.dumps(self.run.snapshot().to_json()))
        return Agent(*self._parts, state=AgentState.from_json(state))


def walk_plan(step: Command, results: Mapping[str, Json]) -> Json:
    """The result of the ``Plan`` that an agent starts."""
    assert isinstance(step, StartChild), step
    drive = Drive(validate_request(json.loads(json.dumps(step.input.request))), dict(results))
    drive.finish_all()
    return json.loads(json.dumps(build_result(drive.walk, Usage())))
