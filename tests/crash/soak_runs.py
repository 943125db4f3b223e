"""What the soak program runs: a seeded run of some kind, and what it must come to.

A random plan must come to what the serial oracle says. The other kinds are small trees whose results are known.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from acts.activities.shipped_tools import PLAN, WAIT_TOOL
from tests.crash.test_kill import OPTIONS, RETRY
from tests.oracle.serial_run import run as run_serially
from tests.workflow.foreign import call, tool

Json = Any
NAMES = "abcd"
METHODS = ("set", "push", "merge")
ADD = tool("add_one", activity="add_one", options=OPTIONS)
INPUT = {"type": "input", "zero": 0}


@dataclass(frozen=True)
class Scenario:
    """One run to start. ``calls`` is the number of its Calls that have an effect, in it and below it."""

    kind: str
    workflow: str
    request: Json
    calls: int
    state: Json
    states: dict[str, str] = field(default_factory=dict)
    instances: dict[str, Json] = field(default_factory=dict)

    def differs(self, result: Json) -> str | None:
        """How a result differs from what the run must come to, or None."""
        found = {i: item["state"] for i, item in result.get("instances", {}).items()}
        if (result["state"], found) != (self.state, self.instances):
            errors = [(e["call"], e["code"], e["message"]) for e in result["errors"]]
            return f"its state is {result['state']} {found}, not {self.state} {self.instances}; errors: {errors}"
        states = {c["id"]: c["state"] for c in result["calls"]}
        if self.states and states != self.states:
            return f"its calls are {states}, not {self.states}"
        return None


def delegating(name: str, delegate: str) -> Json:
    return tool(name, activity="", _delegate={"const": delegate})


def walked(*calls: Json, context: list[Json], **config: Json) -> Json:
    return {"config": config, "context": [*context, {"type": "plan", "run": True, "plan": list(calls)}]}


DEFINITIONS = {
    "inner": walked(
        call("add_one", "†state.x", value="†input.n"), call("add_one", "†state.output", value="†state.x"), context=[ADD]
    ),
    "outer": walked(
        call("inner", "†state.a", n="†input.n"), call("inner", "†state.b", n="†input.n"),
        call("inner", "†state.c", n="†state.b"), call("add_one", "†state.output", value="†state.c"),
        context=[ADD, delegating("inner", "inner")],
    ),
    "asking": walked(
        call("add_one", "†state.output", value="†input.n"), context=[ADD], approve={"calls": ["add_one"]}
    ),
}  # fmt: skip
ANSWERS = [
    {"when": {"tick": 1}, "solution": {"calls": [
        call("add_one", "†state.a", value="†input.zero"), call("inner", "†state.b", n="†state.a")]}},
    {"when": {"tick": 2}, "solution": {"calls": [call("add_one", "†state.c", value="†state.b")]}},
    {"when": {"tick": 3}, "solution": {"calls": [call("add_one", "†state.d", value="†state.c")], "output": "†state.d"}},
]  # fmt: skip


def write_files(folder: Path) -> dict[str, str]:
    """Definitions and scripts for the engine; returns the settings that name their folders."""
    out = {}
    for kind, files in (("delegates", DEFINITIONS), ("scripts", {"soak": {"answers": ANSWERS}})):
        (folder / kind).mkdir()
        for name, content in files.items():
            (folder / kind / f"{name}.json").write_text(json.dumps(content), "utf-8")
        out[f"ACTS_{kind.upper()}"] = str(folder / kind)
    return out


# -- the kinds -----------------------------------------------------------------------


def random_plan(random: Random, queue: str) -> Scenario:
    """Calls that read and write a few paths; some fail, with an error path or without."""
    foreign = {**OPTIONS, "taskQueue": f"{queue}-foreign"}
    tools = [tool("report", activity="report", options=OPTIONS), tool("other", activity="report", options=foreign)]
    tools.append(tool("local", activity="report", options={"local": True, "timeout": "10s", "retry": RETRY}))
    calls, results = [], {}
    for number in range(1, random.randint(4, 12) + 1):
        name, place = random.choice(["report", "report", "other", "local"]), random.choice(NAMES)
        reads = [f"†state.{random.choice(NAMES)} || †input.zero" for _ in range(random.randint(0, 2))]
        method, more = random.choice(METHODS), {}
        value: Json = {"n": number} if method == "merge" else number
        if random.random() < 0.2:
            more = {"fail": "no funds"}
            results[f"{number}:{name}"] = {"$fail": {"type": "declined", "message": "no funds"}}
            if random.random() < 0.7:
                more["_errorPath"] = f"†state.{place}Error"
        else:
            more = {"result": value}
            results[f"{number}:{name}"] = value
        calls.append(call(name, f"†state.{place}", reads=reads, _outputMethod=method, **more))
    config = {"maxParallel": random.choice([1, 3, 100])}
    request = {"config": config, "context": [*tools, INPUT, {"type": "plan", "plan": calls}]}
    outcome = run_serially(request, results)
    state = outcome.view("state")
    return Scenario(
        "plan", "Plan", request, len(outcome.started), state if isinstance(state, dict) else {}, outcome.states
    )


def agent(random: Random, queue: str) -> Scenario:
    request = {"config": {"model": "scripted:soak"}, "context": [ADD, delegating("inner", "inner"), INPUT]}
    return Scenario("agent", "Agent", request, 5, {"a": 1, "b": 3, "c": 4, "d": 5})


def tree(random: Random, queue: str) -> Scenario:
    branches = [call("outer", f"†state.{n}", n=i) for i, n in enumerate(NAMES[:2])]
    plan = [*branches, call("add_one", "†state.end", value="†state.b")]
    context = [ADD, delegating("outer", "outer"), {"type": "plan", "plan": plan}]
    config = random.choice([{}, {"maxParallel": 1}, {"maxParallel": 2}, {"budget": {"calls": 1_000}}])
    return Scenario("tree", "Plan", {"config": config, "context": context}, 15, {"a": 5, "b": 6, "end": 7})


def batch(random: Random, queue: str) -> Scenario:
    """Instances of which some wait for a person, one or several in a child."""
    count = random.randint(2, 6)
    data = [{"type": "state", "state": {"n": n}, "_instance": f"i{n}"} for n in range(count)]
    plan = [
        call("add_one", "†state.x", value="†state.n"), call("add_one", "†state.y", value="†state.x"),
        call("inner", "†state.z", n="†state.y"),
    ]  # fmt: skip
    approve = {"approve": {"calls": ["add_one"]}} if random.random() < 0.3 else {}
    config = {"instancesPerChild": random.choice([1, 2]), "maxParallel": random.choice([2, 100]), **approve}
    request = {"config": config, "context": [ADD, delegating("inner", "inner"), *data, {"type": "plan", "plan": plan}]}
    instances = {f"i{n}": {"n": n, "x": n + 1, "y": n + 2, "z": n + 4} for n in range(count)}
    return Scenario("batch", "Plan", request, 4 * count, {}, instances=instances)


def waiting(random: Random, queue: str) -> Scenario:
    """A plan and its Calls wait for a person, here and in a delegate."""
    plan = [
        call("add_one", "†state.a", value="†input.zero"), call("asking", "†state.b", n="†state.a"),
        call("add_one", "†state.c", value="†state.b"),
    ]  # fmt: skip
    config = {"approve": {"plan": random.random() < 0.5, "calls": ["add_one"]}}
    context = [ADD, delegating("asking", "asking"), INPUT, {"type": "plan", "plan": plan}]
    return Scenario("waiting", "Plan", {"config": config, "context": context}, 3, {"a": 1, "b": 2, "c": 3})


def background(random: Random, queue: str) -> Scenario:
    plan = [
        call("add_one", "†state.a", value="†input.zero"), call("add_one", value="†state.a"),
        call("inner", n="†state.a"), call("add_one", "†state.b", value="†state.a"),
    ]  # fmt: skip
    context = [ADD, delegating("inner", "inner"), INPUT, {"type": "plan", "plan": plan}]
    return Scenario("background", "Plan", {"context": context}, 5, {"a": 1, "b": 2})


def inner(random: Random, queue: str) -> Scenario:
    """Plans inside a plan: a pipeline for each element, one that waits, and one that is repeated."""
    steps = [call("add_one", "†state.x", value="†input.n"), call("add_one", "†state.output", value="†state.x")]
    late = [call("wait", "†state.due", **{"for": "1s"}), call("add_one", "†state.output", _when="†state.due", value=0)]
    turn = [call("add_one", "†state.n", value="†input.previous.n || 0")]
    plan = [
        call("plan", "†state.piped", _each=[0, 1, 2], input={"n": "†item"}, plan=steps),
        call("plan", "†state.late", plan=late),
        call("plan", "†state.counted", plan=turn, until="†state.n >= 3", repeat={"max": 5, "every": "300ms"}),
    ]
    shipped = [{"type": "tool", "tool": tool} for tool in (PLAN, WAIT_TOOL)]
    request = {"context": [ADD, *shipped, {"type": "plan", "plan": plan}]}
    return Scenario("inner", "Plan", request, 10, {"piped": [2, 3, 4], "late": 1, "counted": {"n": 3}})


KINDS: tuple[Callable[[Random, str], Scenario], ...] = (random_plan, agent, tree, batch, waiting, background, inner)
