"""The forecast of time: bounds that hold for every greedy schedule, from durations that are declared or learned."""

from __future__ import annotations

import heapq
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.plan.validate import validate_request
from acts.simulation.simulate import schedule, simulate
from tests.property.drive import find_dependencies

Json = Any


def tool(name: str, expected: Json = None) -> Json:
    properties: Json = {"_tool": {"const": name}, "_activity": {"const": name}, "x": {}}
    properties |= {"_outputPath": {}, "_each": {}, "_options": {"const": {"expected": expected} if expected else {}}}
    return {"type": "tool", "tool": {"properties": properties}}


def request(*plan: Json, tools: Json, **config: Json) -> Json:
    messages = [tool(name, expected) for name, expected in tools.items()]
    messages += [{"type": "input", "input": {"list": [1, 2, 3, 4]}}, {"type": "plan", "plan": list(plan)}]
    return {"config": config, "context": messages}


def call(name: str, path: str, *reads: str, **more: Json) -> Json:
    return {"_tool": name, "_outputPath": path, "x": list(reads), **more}


CHAIN = (call("a", "†state.a"), call("b", "†state.b", "†state.a"))
BESIDE = (call("a", "†state.a"), call("b", "†state.b"))
EACH = (call("a", "†state.a", _each="†input.list"),)
BRANCH = (call("a", "†state.ok || †state.error"), call("b", "†state.b", "†state.ok"))


@pytest.mark.parametrize(
    ("plan", "tools", "config", "seconds"),
    [
        (CHAIN, {"a": "2s", "b": 3}, {}, {"min": 5, "max": 5}),
        (BESIDE, {"a": "2s", "b": 3}, {}, {"min": 3, "max": 3}),
        (BESIDE, {"a": "2s", "b": 3}, {"maxParallel": 1}, {"min": 5, "max": 5}),
        (CHAIN, {"a": {"min": 1, "max": "4s"}, "b": 3}, {}, {"min": 4, "max": 7}),
        (EACH, {"a": 2}, {}, {"min": 2, "max": 2}),
        (EACH, {"a": 2}, {"maxParallel": 2}, {"min": 4, "max": 5}),
        (BRANCH, {"a": 2, "b": 3}, {}, {"min": 2, "max": 5}),
        (CHAIN, {"a": 2, "b": None}, {}, {"min": 2, "max": 2}),
    ],
)
def test_the_time_of_a_plan(plan: tuple[Json, ...], tools: Json, config: Json, seconds: Json) -> None:
    simulation = simulate(request(*plan, tools=tools, **config))
    assert simulation["seconds"] == seconds
    assert simulation["withoutDuration"] == [name for name, expected in tools.items() if expected is None]
    assert ("seconds" in simulation["unforeseen"]) == (None in tools.values())


def test_the_critical_path_is_the_slowest_where_durations_are_known() -> None:
    plan = (*CHAIN, call("slow", "†state.c"))
    tools = {"a": 1, "b": 1, "slow": 10}
    assert simulate(request(*plan, tools=tools))["criticalPath"] == ["3:slow"]
    assert simulate(request(*plan, tools={**tools, "a": None}))["criticalPath"] == ["1:a", "2:b"]


def test_the_instances_of_a_template_share_the_permits() -> None:
    raw = request(*CHAIN, tools={"a": 1, "b": 1}, maxParallel=10)
    raw["context"] += [{"type": "state", "state": {}, "_instance": str(n)} for n in range(100)]
    assert simulate(raw)["seconds"] == {"min": 20, "max": 21.8}  # 200 s of work by ten, and a last chain of 2 s


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_greedy_schedule_is_within_the_bounds(data: st.DataObject) -> None:
    """Whatever the durations and the limit: the time of a run that starts what it can is within the bounds."""
    count = data.draw(st.integers(1, 9))
    plan = []
    for at in range(count):
        reads = data.draw(st.lists(st.integers(0, at - 1), max_size=3, unique=True)) if at else []
        plan.append(call("a", f"†state.s{at}", *(f"†state.s{n}" for n in reads)))
    graph = validate_request(request(*plan, tools={"a": 1})).graph
    limit = data.draw(st.integers(1, 4))
    starts = {
        rank: (data.draw(st.integers(0, 9)) / 2, data.draw(st.integers(0, 3)))
        for rank in range(count)
        if data.draw(st.integers(0, 4))
    }
    least, most, _ = schedule(graph, starts, limit)
    order = data.draw(st.permutations(range(count)))
    took = run_greedily(graph, starts, limit, order)
    assert least - 1e-9 <= took <= most + 1e-9


def run_greedily(graph: Any, starts: Json, limit: int, order: list[int]) -> float:
    """The time of a run that leaves no permit unused while a Call is ready; ``order`` breaks ties."""
    waits = {rank: find_dependencies(graph, rank) for rank in range(len(graph.order))}
    units = {rank: starts.get(rank, (0.0, 0))[1] for rank in waits}
    left, done, running, now = dict(units), set[int](), list[tuple[float, int]](), 0.0
    settled: dict[int, int] = dict.fromkeys(waits, 0)
    while len(done) < len(waits):
        progress = True
        while progress:
            progress = False
            for rank in order:
                if rank in done or not waits[rank] <= done:
                    continue
                while left[rank] and len(running) < limit:
                    left[rank] -= 1
                    heapq.heappush(running, (now + starts[rank][0], rank))
                    progress = True
                if settled[rank] == units[rank]:
                    done.add(rank)
                    progress = True
        if running:
            now, ended = heapq.heappop(running)
            settled[ended] += 1
    return now
