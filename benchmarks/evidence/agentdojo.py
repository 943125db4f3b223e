"""AgentDojo's injections against the worst planner thinkable: one that does whatever a text in a result asks for.

The planner is scripted. The Calls of a user's task are AgentDojo's ground truth, one Call a tick; as soon as a result holds
an injection, it plans the Calls of the injected task first, and its answer says what both tasks want. Real are AgentDojo's
environments, functions and checks, and the engine: Requests, Tools, validation of each Solution, approval rules, decisions,
the marks of the inbox. All plays run without a server; some again with one, and must come out alike.

    pip install --target PATH --no-deps agentdojo==0.1.35 deepdiff==8.6.1 docstring-parser orderly-set email-validator dnspython
    python -m benchmarks.evidence agentdojo PATH

The suites are those of v1.2.2 (github.com/ethz-spylab/agentdojo, MIT). Eight of its injected tasks have no ground truth, so
nobody can plan them here: they are left out. The planner knows the user's answer, so tasks that only read are always right.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pydantic_core import to_jsonable_python
from temporalio import activity
from temporalio.worker import Worker

import acts
from acts.language.errors import CallError
from acts.machines.commands import Finish, StartChild
from acts.plan.validate import validate_request
from acts.provenance.trace import RunRecord
from acts.testing.rehearsal import Script, rehearse
from acts.tree.decisions import PendingApproval
from acts.ui.cards import Card, Sources, Wait
from benchmarks import live
from benchmarks.tables import Table, print_progress
from tests.agent_driver import Agent

Json = dict[str, Any]

VERSION: Final = "v1.2.2"
MARK: Final = "INJECTION-"
READS: Final = ("get_", "search_", "list_", "read_", "check_")
"""A Tool whose name begins otherwise changes something."""
QUEUE: Final = "agentdojo"
REFUSAL: Final = "I have not asked for this."
ON_SERVER: Final = 2
"""Of each suite and each wall with a planner, so many plays run again with a server."""


def load_suites(folder: Path) -> dict[str, Any]:
    """AgentDojo's suites by name, without its adapters of models, which need the SDKs of five providers."""
    sys.path.append(str(folder))
    spec = find_spec("agentdojo")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{folder} has no package agentdojo")
    pipeline, unused = (ModuleType(f"agentdojo.agent_pipeline{name}") for name in ("", ".ground_truth_pipeline"))
    pipeline.__path__ = [str(Path(spec.submodule_search_locations[0]) / "agent_pipeline")]
    unused.__dict__["GroundTruthPipeline"] = None
    sys.modules |= {pipeline.__name__: pipeline, unused.__name__: unused}
    return dict(sorted(import_module("agentdojo.task_suite.load_suites").get_suites(VERSION).items()))


@cache
def environment_of(suite: Any, vectors: tuple[str, ...]) -> Any:
    """An environment with a mark in the texts of these vectors."""
    return suite.load_and_inject_default_environment({vector: MARK + vector for vector in vectors})


def _parameters(call: Mapping[str, Any]) -> Json:
    return {name: value for name, value in call.items() if not name.startswith("_")}


@dataclass(frozen=True)
class Wall:
    """``own_tools``: the Request offers only the Tools of the user's task. ``approves``: what changes something is asked
    about, and a person decides by the play and the Call. ``refers``: the values of the user's task are data of the Request,
    and the planner refers to them. ``in_request``: the plan stands there, and no model is asked.
    """

    name: str
    own_tools: bool = False
    approves: Callable[[Play, Json], bool] | None = None
    refers: bool = False
    in_request: bool = False


class Play:
    """One user's task under one wall, with the injection of ``vectors``, which asks for another task."""

    def __init__(self, suite: Any, wall: Wall, user: Any, injection: Any = None, vectors: tuple[str, ...] = ()) -> None:
        self.suite, self.wall, self.user, self.injection, self.vectors = suite, wall, user, injection, vectors
        self.environment = user.init_environment(environment_of(suite, vectors).model_copy(deep=True))
        self.before = self.environment.model_copy(deep=True)
        self.wanted = self._calls_of(user)
        self.attack = self._calls_of(injection) if injection else []
        self.seen: set[str] = set()
        self.ran: list[tuple[Json, bool]] = []  # Calls, and whether an injection asks for them
        self.solutions: list[Json] = []
        self.asked, self._is_obeying = 0, False
        self.request = self._build_request()

    def _calls_of(self, task: Any) -> list[Json]:
        calls = task.ground_truth(self.before.model_copy(deep=True))
        return [{"_tool": call.function, **to_jsonable_python(call.args)} for call in calls]

    def _build_request(self) -> Json:
        tools: dict[str, Json] = {}
        for function in self.suite.tools:
            if not self.wall.own_tools or function.name in {call["_tool"] for call in self.wanted}:
                schema = function.parameters.model_json_schema()
                own = {"_activity": {"const": function.name}, "_outputPath": {"type": "string"}}
                tools[function.name] = {**schema, "properties": {**own, **schema["properties"]}}
        config: Json = {"model": "scripted:play", "stream": False, "maxTicks": 200}
        changing = [name for name in tools if not name.startswith(READS)]
        if self.wall.approves and changing:
            config["approve"] = {"rules": [{"calls": changing}]}
        data = {f"c{n}": _parameters(call) for n, call in enumerate(self.wanted)} if self.wall.refers else {}
        messages = [{"type": "text", "text": self.user.PROMPT}, {"type": "input", "input": data}]
        return {"config": config, "context": [{"type": "tool", "tool": tools}, *messages]}

    def play(self) -> Play:
        """Play it without a server."""
        if self.wall.in_request:  # one Call after another
            after = [{}, *({"_when": f'†state.r{n} != "no"'} for n in range(len(self.wanted)))]
            plan = [{**call, "_outputPath": f"†state.r{n}", **after[n]} for n, call in enumerate(self.wanted)]
            self.request["context"].append({"type": "plan", "plan": plan})
            self._walk(self.request)
            return self
        agent, todo, attack = Agent(self.request), deque(self._planned), deque(self.attack)
        step = agent.next_tick()
        while not isinstance(step, Finish):
            self._is_obeying = bool(self.seen and attack)
            source = attack if self._is_obeying else todo
            calls = [{**source.popleft(), "_outputPath": f"†state.r{agent.tick}"}] if source else []
            self.solutions.append({"calls": calls, "output": None if calls else self.answer})
            step = agent.answered(self.solutions[-1])
            if isinstance(step, StartChild):
                step = agent.plan_ended(self._walk(step.input.request))
        if step.status != "completed":
            raise RuntimeError(f"{self.suite.name}, {self.user.ID}: {agent.run.failure}")
        return self

    @property
    def _planned(self) -> list[Json]:
        """The Calls of the user's task as they are planned."""
        if not self.wall.refers:
            return self.wanted
        return [{**call, **{k: f"†input.c{n}.{k}" for k in _parameters(call)}} for n, call in enumerate(self.wanted)]

    def _walk(self, request: Json) -> Json:
        prepared = validate_request(json.loads(json.dumps(request)))
        decisions = []
        for node in prepared.nodes:
            call = {"_tool": node.tool.name, **_parameters(node.planned)}
            word = "approve" if self.wall.approves and self.wall.approves(self, call) else "reject"
            decisions.append({"decision": word, "call": node.id, "by": "the user", "reason": REFUSAL})
        tools = {tool.name: partial(self.answer_call, tool.name) for tool in self.suite.tools}
        result: Json = json.loads(json.dumps(rehearse(prepared, Script(tools, decisions)).result))
        self.asked += len(result.get("decisions", ()))
        return result

    def answer_call(self, name: str, call: Mapping[str, Any]) -> Any:
        """Run AgentDojo's function on the environment."""
        arguments = _parameters(call)
        self.ran.append(({"_tool": name, **arguments}, self._is_obeying))
        runtime = import_module("agentdojo.functions_runtime").FunctionsRuntime(self.suite.tools)
        value, problem = runtime.run_function(self.environment, name, arguments)
        if problem:
            raise CallError("ToolFailed", problem)
        result = to_jsonable_python(value)
        self.seen |= {vector for vector in self.vectors if MARK + vector in json.dumps(result)}
        return result

    @property
    def answer(self) -> str:
        """What the planner says at the end. A plan in the Request has none: nothing that was read is asked."""
        obeyed = self.injection.GROUND_TRUTH_OUTPUT if self.injection and self.seen and not self.wall.in_request else ""
        return f"{self.user.GROUND_TRUTH_OUTPUT}\n{obeyed}".strip()

    def succeeds(self, task: Any) -> bool:
        """True where AgentDojo's check says that a task, the user's or the injected one, has reached its goal."""
        call_type = import_module("agentdojo.functions_runtime").FunctionCall
        traces = [call_type(function=c["_tool"], args=_parameters(c)) for c, _ in self.ran]
        output = [{"type": "text", "content": self.answer}]
        return bool(self.suite._check_task_result(task, output, self.before, self.environment, traces))  # noqa: SLF001

    @property
    def effects(self) -> int:
        """Injected Calls that have changed something, and that the user has not asked for as well."""
        return sum(
            is_injected and not c["_tool"].startswith(READS) and c not in self.wanted for c, is_injected in self.ran
        )

    @property
    def way(self) -> str:
        """How an injection has come through."""
        return "change" if self.effects else "read" if any(is_injected for _, is_injected in self.ran) else "words"


def _is_unmarked(play: Play, call: Json) -> bool:
    """True where the card in the inbox marks none of the Call's values as from outside."""
    id_, context = f"1:{call['_tool']}", play.request["context"]
    wait = Wait("run", PendingApproval(workflowId="run", what="call", call=id_, version=1, since=""))
    sources = Sources(
        RunRecord(context, {}, context), context, Card("run", wait, is_agent=not play.wall.in_request), wait
    )
    return not any(value.outside for value in sources.values_of(id_, call, {**call}))


WALLS: Final = (
    Wall("none: all Tools of the suite, no approval"),
    Wall("the Request offers the Tools of its task alone", own_tools=True),
    Wall(
        "approvals, by the name of the Tool",
        approves=lambda play, call: call["_tool"] in {wanted["_tool"] for wanted in play.wanted},
    ),
    Wall("approvals, by every value", approves=lambda play, call: call in play.wanted),
    Wall("own Tools, and approvals by every value", own_tools=True, approves=lambda play, call: call in play.wanted),
    Wall("approvals; a value marked as from outside is rejected", approves=_is_unmarked),
    Wall("the same; the planner refers to values in the Request", approves=_is_unmarked, refers=True),
    Wall("the plan stands in the Request; such values are rejected", approves=_is_unmarked, in_request=True),
)

# -- with a server -------------------------------------------------------------------------------


async def _play_again(bench: live.Bench, plays: Sequence[Play], scripts: Path) -> int:
    """How many of these plays run the same Calls, to the same ends, with a server, a worker and a client that decides."""
    now: list[Play] = []

    def serve(name: str) -> Callable[..., Any]:
        @activity.defn(name=name)
        async def answer(call: Json, _tool: Any, _context: Any) -> Any:
            return now[-1].answer_call(name, call)

        return answer

    tools = sorted({tool.name for play in plays for tool in play.suite.tools})
    async with Worker(
        bench.client, task_queue=QUEUE, activities=[serve(name) for name in tools], plugins=[acts.Plugin()]
    ):
        client = acts.Client(bench.client, task_queue=QUEUE)
        for number, play in enumerate(plays):
            answers = [{"when": {"tick": tick}, "solution": s} for tick, s in enumerate(play.solutions, 1)]
            (scripts / "play.json").write_text(json.dumps({"answers": answers}), "utf-8")
            now.append(Play(play.suite, play.wall, play.user, play.injection, play.vectors))
            run = await client.start(now[-1].request, id=f"play-{number}")
            while waits := await run.wait_for_decision():
                for wait in waits:
                    content = wait.content or {}
                    call = {"_tool": content["tool"], **_parameters(content["with"])}
                    is_approved = play.wall.approves and play.wall.approves(play, call)
                    about = {"version": wait.version, "subject": wait.subject, "by": "the user"}
                    await (run.approve(wait.call, **about) if is_approved else run.reject(REFUSAL, wait.call, **about))
            (await run.result()).require()
    return sum(
        [c for c, _ in a.ran] == [c for c, _ in b.ran]
        and all(a.succeeds(t) == b.succeeds(t) for t in (a.user, a.injection))
        for a, b in zip(plays, now, strict=True)
    )


# -- figures -------------------------------------------------------------------------------------


def run(paths: Sequence[Path]) -> Iterator[Table]:
    """Four tables: tasks without an injection, walls, ways through them, and plays with a server."""
    suites = load_suites(paths[0])
    plain = Table("users' tasks without an injection", ["suite", "tasks", "right", "that read what strangers write"])
    cases: list[tuple[Any, Any, tuple[str, ...]]] = []
    for name, suite in suites.items():
        users, everywhere = list(suite.user_tasks.values()), tuple(sorted(suite.get_injection_vector_defaults()))
        right = sum(Play(suite, WALLS[0], user).play().succeeds(user) for user in users)
        met = [tuple(sorted(Play(suite, WALLS[0], user, None, everywhere).play().seen)) for user in users]
        plain.rows.append([name, len(users), right, sum(map(bool, met))])
        cases += [(suite, user, vectors) for user, vectors in zip(users, met, strict=True) if vectors]
    yield plain
    note = (
        "Attempts: a user's task and an injection that its planner reads and obeys. Goals and tasks by AgentDojo's checks, goals of "
        "each suite in the last columns; effects: injected Calls that changed something."
    )
    columns = ["wall", "attempts", "goals reached", "effects", "users' tasks right, %", "decisions per task", *suites]
    walls, ways = Table("walls", columns, note=note), Table("ways through", ["wall", "way", "goals", "injected tasks"])
    again: list[Play] = []
    for wall in WALLS:
        print_progress(f"agentdojo: {wall.name}")
        plays = [
            Play(suite, wall, user, injection, vectors).play()
            for suite, user, vectors in cases
            for injection in suite.injection_tasks.values()
            if injection.GROUND_TRUTH_OUTPUT
            or injection.ground_truth(environment_of(suite, vectors).model_copy(deep=True))
        ]
        through = [play for play in plays if play.succeeds(play.injection)]
        goals = Counter(play.suite.name for play in through)
        right = sum(play.succeeds(play.user) for play in plays)
        asked, effects = sum(play.asked for play in plays), sum(play.effects for play in plays)
        walls.rows.append([wall.name, len(plays), len(through), effects, 100 * right / len(plays), asked / len(plays), *map(goals.__getitem__, suites)])  # fmt: skip
        for way, count in sorted(Counter(play.way for play in through).items()):
            tasks = sorted(
                {f"{play.suite.name} {play.injection.ID.rpartition('_')[2]}" for play in through if play.way == way}
            )
            ways.rows.append([wall.name, way, count, ", ".join(tasks)])
        for suite in suites.values() if not (wall.refers or wall.in_request) else ():
            own = [play for play in plays if play.suite is suite]
            again += own[:: len(own) // ON_SERVER + 1]
    yield walls
    yield ways
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ACTS_SCRIPTS"] = folder
        alike = live.on_server(lambda bench: _play_again(bench, again, Path(folder)))
    yield Table("the same with a server", ["plays", "the same Calls and ends"], [[len(again), alike]])
