"""What the soak program runs: a seeded run of some kind, and what it must come to.

A random plan must come to what the serial oracle says. The other kinds are small trees whose results are known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from tests.crash.test_kill import OPTIONS
from tests.oracle import ABSENT, Outcome, call_of
from tests.property.drive import plain
from tests.strategies import Case, Saved, cases, definitions, draw_many, draw_plans
from tests.support import free_port
from tests.workflow.foreign import call, tool

Json = Any
NAMES = "abcd"
PLANS_AT_ONCE = 40  # drawn
SAVED = 12  # definitions, and as many that may name them
PLAYED = ("act", "undo", "alone")
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
    expected: Outcome | None = None
    undone: tuple[str, ...] = ()  # what was undone, in order, as JSON
    requests: int = 0  # of the Tool http

    def differs(self, result: Json) -> str | None:
        """How a result differs from what the run must come to, or None."""
        if self.expected is not None:
            found = differences(result, self.expected)
            return (
                f"{json.dumps(found)} of {json.dumps([self.request['config'], *self.request['context'][1:]])}"
                if found
                else None
            )
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
    out = {"ACTS_HTTP_PRIVATE_HOSTS": f"127.0.0.1:{http_port()}"}
    saved = {name: loaded["definition"] for name, loaded in library() if loaded is not None}
    contents = {"delegates": DEFINITIONS | saved, "plans": saved, "scripts": {"soak": {"answers": ANSWERS}}}
    for kind, files in contents.items():
        (folder / kind).mkdir()
        for name, content in files.items():
            (folder / kind / f"{name}.json").write_text(json.dumps(content), "utf-8")
        out[f"ACTS_{kind.upper()}"] = str(folder / kind)
    return out


@cache
def library() -> Saved:
    """What random plans may load."""

    def tell(names: str, loaded: list[Json]) -> list[tuple[str, Json]]:
        requests = [telling(one["definition"], one["results"]) for one in loaded]
        return [(f"{names}{n}", {**loaded[n], "definition": request}) for n, request in enumerate(requests)]

    first = tell("first", draw_many(definitions().filter(bool), SAVED, 1))
    return [*first, *tell("second", draw_many(definitions(first).filter(bool), SAVED, 2)), ("nowhere", None)]


@cache
def http_port() -> int:
    return free_port()


class Answers(BaseHTTPRequestHandler):
    """What the Tool ``http`` asks: it answers what it is told to, at times only the second time."""

    keys: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        (returns,) = parse_qs(urlsplit(self.path).query)["returns"]
        result = json.loads(returns)[""]
        result = result.get("$fail", {}).get("details", result)
        key, body = self.headers["Idempotency-Key"], json.dumps(result["json"]).encode()
        is_busy = key not in self.keys and key < "4"
        self.keys.add(key)
        self.send_response_only(503 if is_busy else result["status"])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def telling(request: Json, results: dict[str, Json]) -> Json:
    """The same plan, each Call of which says what it returns, for an Activity in another process."""

    def told(calls: list[Json], results: dict[str, Json]) -> list[Json]:
        out = []
        for at, one in enumerate(calls, 1):
            id_ = f"{at}:{one['_tool']}"
            own = {key[len(id_) :].strip("[]"): value for key, value in results.items() if call_of(key) == id_}
            returns, more = {"returns": json.dumps(own)}, dict[str, Json]()
            match one["_tool"]:
                case "act" | "alone":
                    more = {**returns, **({"at": "†index"} if "_each" in one else {})}
                case "http":
                    url = one["url"].replace("https://world.test", f"http://127.0.0.1:{http_port()}")
                    more = {"url": url, "query": returns}
                case "plan" if isinstance(one["plan"], list):
                    more = {"plan": told(one["plan"], results[id_])}
            out.append({**one, **more})
        return out

    tools, *data, plan = request["context"]
    plays = {"_activity": {"const": "play"}, "_options": {"const": OPTIONS}}
    named = {
        name: {**schema, "properties": {**schema["properties"], **(plays if name in PLAYED else {})}}
        for name, schema in tools["tool"].items()
    }
    return {**request, "context": [{**tools, "tool": named}, *data, {**plan, "plan": told(plan["plan"], results)}]}


@cache
def drawn(random: Random) -> Iterator[tuple[Case, Outcome]]:
    while True:
        long = cases(shipped=True, saved=library()).filter(lambda case: len(case.request["context"][-1]["plan"]) > 2)
        told = long.map(lambda case: Case(telling(case.request, case.results), case.results))
        yield from draw_plans(told, PLANS_AT_ONCE, random.getrandbits(32))


def random_plan(random: Random, queue: str) -> Scenario:
    """Everything that a plan can say, but for what only a model answers."""
    case, expected = next(drawn(random))
    options = {**OPTIONS, "taskQueue": f"{queue}-foreign"} if random.random() < 0.3 else OPTIONS
    case.request["context"][0]["tool"]["act"]["properties"]["_options"] = {"const": options}
    case.request["config"]["maxParallel"] = random.choice([1, 3, 100])
    undone = expected.undo if expected.failed and "onFailure" in case.request["config"] else []
    calls, requests = expected.starts_of("act", "alone") + len(undone), expected.starts_of("http")
    values = tuple(json.dumps(what, sort_keys=True) for _, what in undone)
    return Scenario("plan", "Plan", case.request, calls, None, expected=expected, undone=values, requests=requests)


def differences(result: Json, expected: Outcome) -> Json:
    """What of a result is not what the serial run came to: by name, both."""
    instances = result.get("instances", {})
    calls = {c["id"]: c for c in [*result["calls"], *(c for item in instances.values() for c in item["calls"])]}
    views = {None: result["state"], **{instance: item["state"] for instance, item in instances.items()}}
    found = {
        "states": {id_: c["state"] for id_, c in calls.items()},
        "paths": {id_: c.get("outputPath") for id_, c in calls.items()},
        "errors": {id_: plain(c["error"]) for id_, c in calls.items() if "error" in c},
        "context": plain(result["context"]),
        "views": plain(views),
    }
    states = {instance: expected.view("state", instance) for instance in views}
    wanted = {
        "states": expected.states,
        "paths": expected.paths,
        "errors": expected.errors,
        "context": expected.appended,
        "views": {instance: {} if state is ABSENT else state for instance, state in states.items()},
    }
    return {name: (found[name], wanted[name]) for name in found if found[name] != wanted[name]}


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


KINDS: tuple[Callable[[Random, str], Scenario], ...] = (random_plan, agent, tree, batch, waiting, background)
