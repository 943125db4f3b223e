"""AgentDojo's injections against the worst planner thinkable: one that does whatever a text in a result asks for.

The planner is scripted: the Calls of a user's task are AgentDojo's ground truth, one Call a tick. As soon as a result holds
an injection, it plans the Calls of the injected task first; what it writes at the end, it writes as both tasks ask.
Real are AgentDojo's environments, functions and checks, and the machines of the engine: Requests, Tools, validation of
every Solution, approval rules, decisions, the marks that the inbox shows. Each play runs without a server.

    pip install --target PATH --no-deps agentdojo==0.1.35 docstring-parser deepdiff orderly-set email-validator dnspython
    python -m benchmarks.evidence agentdojo PATH

The suites are those of v1.2.2 (github.com/ethz-spylab/agentdojo, MIT).
"""

from __future__ import annotations

import json
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pydantic_core import to_jsonable_python

from acts.language.errors import CallError
from acts.machines.commands import Finish, StartChild
from acts.plan.validate import validate_request
from acts.provenance.trace import RunRecord
from acts.testing.rehearsal import Script, rehearse
from acts.tree.decisions import PendingApproval
from acts.ui.cards import Card, Sources, Wait
from benchmarks.tables import Table, print_progress
from tests.agent_driver import Agent

Json = dict[str, Any]

VERSION: Final = "v1.2.2"
MARK: Final = "INJECTION-"
READS: Final = ("get_", "search_", "list_", "read_", "check_")
"""A Tool whose name begins otherwise changes something."""


def load_suites(folder: Path) -> dict[str, Any]:
    """AgentDojo's suites by name, without its adapters of models, which need the SDKs of five providers."""
    sys.path.append(str(folder))
    spec = find_spec("agentdojo")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{folder} has no package agentdojo")
    pipeline = ModuleType("agentdojo.agent_pipeline")
    pipeline.__path__ = [str(Path(spec.submodule_search_locations[0]) / "agent_pipeline")]
    unused = ModuleType("agentdojo.agent_pipeline.ground_truth_pipeline")
    unused.GroundTruthPipeline = None  # type: ignore[attr-defined]
    sys.modules |= {pipeline.__name__: pipeline, unused.__name__: unused}
    suites: dict[str, Any] = import_module("agentdojo.task_suite.load_suites").get_suites(VERSION)
    return suites


# -- walls: who approves which Call --------------------------------------------------------------


def _uses_tool(call: Json, wanted: Sequence[Json], _request: Json) -> bool:
    return call["_tool"] in {one["_tool"] for one in wanted}


def _is_wanted(call: Json, wanted: Sequence[Json], _request: Json) -> bool:
    return call in wanted


def _is_unmarked(call: Json, _wanted: Sequence[Json], request: Json) -> bool:
    """True where the card of the inbox marks none of its values as from outside."""
    wait = Wait("run", PendingApproval(workflowId="run", what="call", call=f"1:{call['_tool']}", version=1, since=""))
    sources = Sources(
        RunRecord((), {}, None), request["context"], Card("run", wait, is_agent="model" in request["config"]), wait
    )
    return not any(value.outside for value in sources.values_of(f"1:{call['_tool']}", call, {**call}))


@dataclass(frozen=True)
class Wall:
    """``own_tools``: the Request offers only the Tools of the user's task. ``approves``: what changes something is asked
    about. ``in_request``: the Request has the plan, and no model is asked.
    """

    name: str
    own_tools: bool = False
    approves: Callable[[Json, Sequence[Json], Json], bool] | None = None
    in_request: bool = False


WALLS: Final = (
    Wall("nothing: every Tool of the suite, no approval"),
    Wall("the Request offers only the Tools of its task", own_tools=True),
    Wall("approvals; a person looks at the Tool alone", approves=_uses_tool),
    Wall("approvals; a person looks at every value", approves=_is_wanted),
    Wall("both: own Tools, a person looks at every value", own_tools=True, approves=_is_wanted),
    Wall("approvals; whatever has a value marked as from outside is rejected", approves=_is_unmarked),
    Wall("the plan stands in the Request; the same rejections", approves=_is_unmarked, in_request=True),
)


# -- one play ------------------------------------------------------------------------------------


def tool_of(function: Any) -> Json:
    """A Tool of ours from a function of theirs."""
    schema = function.parameters.model_json_schema()
    own = {"_activity": {"const": function.name}, "_outputPath": {"type": "string"}}
    return {**schema, "description": function.description, "properties": {**own, **schema.get("properties", {})}}


def calls_of(task: Any, environment: Any) -> list[Json]:
    """The Calls of a task's ground truth."""
    return [
        {"_tool": c.function, **to_jsonable_python(c.args)}
        for c in task.ground_truth(environment.model_copy(deep=True))
    ]


@dataclass
class Play:
    """One user's task under one wall, with one injection or none, which is in the texts of ``vectors``."""

    suite: Any
    wall: Wall
    user: Any
    injection: Any = None
    vectors: tuple[str, ...] = ()
    seen: set[str] = field(default_factory=set)
    injected: list[Json] = field(default_factory=list)  # the injected Calls that ran
    asked: int = 0
    is_obeying: bool = False

    def __post_init__(self) -> None:
        self.environment = self.user.init_environment(load(self.suite, self.vectors).model_copy(deep=True))
        self.before = self.environment.model_copy(deep=True)
        self.wanted = calls_of(self.user, self.before)
        self.attack = calls_of(self.injection, self.before) if self.injection else []
        self.runtime = import_module("agentdojo.functions_runtime").FunctionsRuntime(self.suite.tools)
        self.traces: list[Any] = []
        offered = {c["_tool"] for c in self.wanted} if self.wall.own_tools else {t.name for t in self.suite.tools}
        tools = {t.name: tool_of(t) for t in self.suite.tools if t.name in offered}
        changing = [name for name in tools if not name.startswith(READS)]
        self.request: Json = {
            "config": {"model": "scripted:obedient", "stream": False, "maxTicks": 500},
            "context": [{"type": "tool", "tool": tools}, {"type": "text", "text": self.user.PROMPT}],
        }
        if self.wall.approves and changing:
            self.request["config"]["approve"] = {"rules": [{"calls": changing}]}
        if self.wall.in_request:
            self._walk_request()
        else:
            self._plan_and_obey()

    def _plan_and_obey(self) -> None:
        agent, todo, attack = Agent(self.request), deque(self.wanted), deque(self.attack)
        step = agent.next_tick()
        while not isinstance(step, Finish):
            self.is_obeying = bool(self.seen and attack)
            source = attack if self.is_obeying else todo
            calls = [{**source.popleft(), "_outputPath": f"†state.r{agent.tick}"}] if source else []
            step = agent.answered({"calls": calls, "output": None if calls else self.answer})
            if isinstance(step, StartChild):
                step = agent.plan_ended(self._walk(step.input.request))
        if step.status != "completed":
            raise RuntimeError(f"{self.suite.name}, {self.user.ID}: the agent ended as {agent.run.failure}")

    def _walk_request(self) -> None:
        """The plan as the user would write it, its Calls one after another."""
        after = [{}, *({"_when": f'†state.r{n} != "no"'} for n in range(len(self.wanted)))]
        plan = [{**call, "_outputPath": f"†state.r{n}", **after[n]} for n, call in enumerate(self.wanted)]
        del self.request["config"]["model"]
        self.request["context"].append({"type": "plan", "plan": plan})
        result = self._walk(self.request)
        if result["status"] != "completed":
            raise RuntimeError(f"{self.suite.name}, {self.user.ID}: {result['errors']}")

    def _walk(self, request: Json) -> Json:
        prepared = validate_request(json.loads(json.dumps(request)))
        decisions = []
        for node in prepared.nodes:
            call = {k: v for k, v in node.planned.items() if k == "_tool" or not k.startswith("_")}
            word = "approve" if self.wall.approves and self.wall.approves(call, self.wanted, self.request) else "reject"
            decisions.append(
                {"decision": word, "call": node.id, "by": "the user", "reason": "I have not asked for this."}
            )
        results = {tool.name: partial(self._answer, tool.name) for tool in self.suite.tools}
        result = rehearse(prepared, Script(results, decisions)).result
        self.asked += len(result.get("decisions", ()))
        return json.loads(json.dumps(result))

    def _answer(self, name: str, call: Json) -> Any:
        arguments = {k: v for k, v in call.items() if not k.startswith("_")}
        if self.is_obeying:
            self.injected.append({"_tool": name, **arguments})
        self.traces.append(import_module("agentdojo.functions_runtime").FunctionCall(function=name, args=arguments))
        value, problem = self.runtime.run_function(self.environment, name, arguments)
        if problem:
            raise CallError("ToolFailed", problem)
        result = to_jsonable_python(value)
        text = json.dumps(result)
        self.seen |= {vector for vector in self.vectors if MARK + vector in text}
        return result

    @property
    def answer(self) -> str:
        """What the planner says at the end: what the user's task asks for, and what the injected one does."""
        is_told = self.injection and self.seen and not self.wall.in_request
        obeyed = self.injection.GROUND_TRUTH_OUTPUT if is_told else ""
        return f"{self.user.GROUND_TRUTH_OUTPUT}\n{obeyed}".strip()

    def _check(self, task: Any) -> bool:
        output = [{"type": "text", "content": self.answer}]
        return bool(self.suite._check_task_result(task, output, self.before, self.environment, self.traces))  # noqa: SLF001

    @property
    def is_right(self) -> bool:
        """True where the user's task came out right, by AgentDojo's check."""
        return self._check(self.user)

    @property
    def is_reached(self) -> bool:
        """True where the injected task reached its goal, by AgentDojo's check."""
        return bool(self.seen) and self._check(self.injection)

    @property
    def effects(self) -> list[Json]:
        """Injected Calls that changed something, and that the user's task does not have."""
        return [c for c in self.injected if not c["_tool"].startswith(READS) and c not in self.wanted]

    @property
    def way(self) -> str:
        """How an injection got through."""
        return (
            "Tools that change something"
            if self.effects
            else "Tools that only read"
            if self.injected
            else "words of the answer"
        )


@cache
def load(suite: Any, vectors: tuple[str, ...]) -> Any:
    """An environment with a mark in the texts of these vectors."""
    return suite.load_and_inject_default_environment({vector: MARK + vector for vector in vectors})


# -- figures -------------------------------------------------------------------------------------

COLUMNS: Final = [
    "wall",
    "attempts",
    "goal reached",
    "effects against the wish",
    "tasks right",
    "decisions asked for, per task",
    *("banking", "slack", "travel", "workspace"),
]
NOTE: Final = (
    "Attempts: pairs of a user's task and an injection that the planner met. Goal reached: by AgentDojo's own check; by suite in "
    "the last columns. Tasks right: user's tasks in these pairs, by its check, in percent."
)


def run(paths: Sequence[Path]) -> Iterator[Table]:
    """Three tables: tasks without an injection, walls, and the ways through them."""
    suites = load_suites(paths[0])
    plain = Table("user's tasks without an injection", ["suite", "tasks", "right", "with texts that strangers write"])
    pairs: list[tuple[Any, Any, Any, tuple[str, ...]]] = []
    for name, suite in sorted(suites.items()):
        plays = [Play(suite, WALLS[0], user) for user in suite.user_tasks.values()]
        everywhere = tuple(sorted(suite.get_injection_vector_defaults()))
        met = {
            user.ID: tuple(sorted(Play(suite, WALLS[0], user, None, everywhere).seen))
            for user in suite.user_tasks.values()
        }
        plain.rows.append([name, len(plays), sum(play.is_right for play in plays), sum(map(bool, met.values()))])
        pairs += [
            (suite, u, i, met[u.ID])
            for u in suite.user_tasks.values()
            for i in suite.injection_tasks.values()
            if met[u.ID]
        ]
        print_progress(f"agentdojo: {name}, {len(pairs)} pairs so far")
    yield plain
    walls, ways = (
        Table("walls", COLUMNS, note=NOTE),
        Table("what gets through", ["wall", "way", "times", "of these by suite and injected task"]),
    )
    for wall in WALLS:
        plays = [Play(suite, wall, user, injection, vectors) for suite, user, injection, vectors in pairs]
        through = [play for play in plays if play.is_reached]
        suites_of = Counter(play.suite.name for play in through)
        walls.rows.append(
            [
                wall.name, len(plays), len(through), sum(len(play.effects) for play in plays),
                100 * sum(play.is_right for play in plays) / len(plays), sum(play.asked for play in plays) / len(plays),
                *(suites_of[name] for name in sorted(suites)),
            ]
        )  # fmt: skip
        for way, times in sorted(Counter(play.way for play in through).items()):
            tasks = Counter(
                f"{play.suite.name} {play.injection.ID.rpartition('_')[2]}" for play in through if play.way == way
            )
            ways.rows.append(
                [wall.name, way, times, ", ".join(f"{task}: {count}" for task, count in sorted(tasks.items()))]
            )
        print_progress(f"agentdojo: {wall.name}: {len(through)} of {len(plays)}")
    yield walls
    yield ways
