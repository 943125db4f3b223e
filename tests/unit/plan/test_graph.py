"""Plan order, what each Call waits for, and cycles."""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import Any

import pytest

from acts.plan.validate import ValidatedPlan, validate, validate_request
from tests.cases import call, own, state, tool
from tests.property.drive import find_dependencies

# name, what each Call writes and reads ("writes < reads"; a name before ":" is its instance), context,
# plan order by position, dependencies of each position
GRAPHS: list[tuple[str, list[str], list[dict[str, Any]], list[int], dict[int, set[int]]]] = [
    ("nothing depends on anything", ["a", "b", "c"], [], [1, 2, 3], {}),
    ("a reader waits for its writer", ["a", "b < a"], [], [1, 2], {2: {1}}),
    ("forward", ["b < a", "a"], [], [2, 1], {1: {2}}),
    ("not forward: the context has it", ["b < a", "a"], [state(a=1)], [1, 2], {}),
    ("not forward: a part of it is written before", ["a.x", "b < a", "a.y"], [], [1, 2, 3], {2: {1}}),
    ("not forward: one alternative is in the context", ["b < a | c", "a"], [state(c=1)], [1, 2], {}),
    ("forward: no alternative has a value", ["b < a | c", "a", "c"], [], [2, 3, 1], {1: {2, 3}}),
    ("forward: half a conjunction has no value", ["b < a & c", "a"], [state(c=1)], [2, 1], {1: {2}}),
    (
        "forward: waits for later writers of all its paths",
        ["a", "b < a & c", "c", "a"],
        [],
        [1, 3, 4, 2],
        {2: {1, 3, 4}},
    ),
    (
        "pushed behind a later writer of what it need not wait for",
        ["d < c ; a", "a", "c"],
        [state(a=1)],
        [2, 3, 1],
        {1: {2, 3}},
    ),
    ("a part waits for the whole", ["a", "b < a.x.y"], [], [1, 2], {2: {1}}),
    ("the whole waits for the parts", ["a.x", "a.y.z", "b < a"], [], [1, 2, 3], {3: {1, 2}}),
    ("siblings do not meet", ["a.x", "b < a.xy ; z", "c < a.y ; z"], [state(z=1, a={"xy": 1, "y": 1})], [1, 2, 3], {}),
    ("read-modify-write does not wait for itself", ["a < a", "a < a"], [state(a=1)], [1, 2], {2: {1}}),
    ("read-modify-write, forward", ["a < a", "a"], [], [2, 1], {1: {2}}),
    ("read-modify-write, forward, of several", ["a < a", "a", "a"], [], [2, 3, 1], {1: {2, 3}}),
    ("no edge from a reader to a later writer", ["a", "b < a", "a"], [], [1, 2, 3], {2: {1}}),
    ("every writer before it, not only the last", ["a", "a", "b < a"], [], [1, 2, 3], {3: {1, 2}}),
    ("branches", ["a | b", "c < a", "d < b", "e < c | d"], [], [1, 2, 3, 4], {2: {1}, 3: {1}, 4: {2, 3}}),
    ("scopes wait for what is before", ["a", "b <> a", "a"], [], [1, 2, 3], {2: {1}}),
    ("scopes never look ahead", ["b <> a", "a"], [], [1, 2], {}),
    ("the lowest listed goes first", ["d < c", "b", "c < b", "a"], [], [2, 3, 1, 4], {3: {2}, 1: {3}}),
    ("an instance sees a global write", ["a", "A: b < a"], [own("A", z=1)], [1, 2], {2: {1}}),
    ("an instance sees its own", ["A: a", "A: b < a"], [own("A", z=1)], [1, 2], {2: {1}}),
    ("not another's", ["A: a", "B: b < a"], [own("A", z=1), own("B", a=1)], [1, 2], {}),
    ("a global call sees no instance", ["A: a", "b < a"], [own("A", z=1), state(a=1)], [1, 2], {}),
    ("forward in an instance", ["A: b < a", "B: a", "A: a"], [own("A", z=1), own("B", z=1)], [2, 3, 1], {1: {3}}),
]


def expression(text: str) -> str:
    return " ".join(f"†state.{word}" if word not in ("|", "&") else word * 2 for word in text.split())


def planned(position: int, text: str) -> dict[str, Any]:
    instance, _, rest = text.rpartition(": ")
    writes, scoped, reads = rest.partition(" <> ")
    more: dict[str, Any] = {"_instance": instance} if instance else {}
    if scoped:
        return call(f"t{position}", expression(writes), _scopes=[expression(reads)], **more)
    writes, _, reads = rest.partition(" < ")
    more |= {f"p{i}": expression(r) for i, r in enumerate(reads.split(" ; ")) if r}
    return call(f"t{position}", expression(writes), **more)


def request(calls: list[str], context: list[dict[str, Any]]) -> dict[str, Any]:
    plan = [planned(position, text) for position, text in enumerate(calls, 1)]
    tools = {c["_tool"]: tool(c["_tool"]) for c in plan}
    return {"context": [{"type": "tool", "tool": tools}, *context, {"type": "plan", "plan": plan}]}


@pytest.mark.parametrize(("calls", "context", "order", "depends"), [g[1:] for g in GRAPHS], ids=[g[0] for g in GRAPHS])
def test_order_and_dependencies(
    calls: list[str], context: list[dict[str, Any]], order: list[int], depends: dict[int, set[int]]
) -> None:
    graph = validate_request(request(calls, context)).graph
    assert [n.index + 1 for n in graph.order] == order
    dependencies = {
        n.index + 1: {graph.order[d].index + 1 for d in find_dependencies(graph, r)} for r, n in enumerate(graph.order)
    }
    assert {k: v for k, v in dependencies.items() if v} == depends


# calls, context, the Calls that the first cycle names
CYCLES: list[tuple[list[str], list[dict[str, Any]], list[str]]] = [
    (["a < b", "b < a"], [], ["1:t1", "2:t2"]),
    (["a < b", "b < a"], [state(a=1)], ["1:t1", "2:t2"]),
    (["z", "a < b ; z", "b < a", "c < a"], [], ["2:t2", "3:t3"]),
    (["a < b", "b < a", "c < d", "d < c"], [], ["1:t1", "2:t2"]),
    (["A: a < b", "A: b < a"], [own("A", z=1)], ["1:t1", "2:t2"]),
]


@pytest.mark.parametrize(("calls", "context", "named"), CYCLES, ids=str)
def test_a_cycle_names_the_calls_and_the_paths_that_close_it(
    calls: list[str], context: list[dict[str, Any]], named: list[str]
) -> None:
    (problem,) = [p for p in validate(request(calls, context)) if p.code == "cycle"]
    assert all(id_ in problem.message for id_ in named), problem.message
    assert "†state." in problem.message
    assert problem.pointer.startswith("/context/")


@pytest.mark.parametrize(
    ("calls", "context"),
    [
        (["a < a"], [state(a=1)]),
        (["a < b", "b < a"], [state(b=1)]),
        (["A: a < b", "B: b < a"], [own("A", b=1), own("B", a=1)]),
        (["a <> b", "b <> a"], []),
    ],
    ids=str,
)
def test_what_the_context_or_the_list_breaks_is_no_cycle(calls: list[str], context: list[dict[str, Any]]) -> None:
    assert [p for p in validate(request(calls, context)) if p.code == "cycle"] == []


def prepared(plan: list[dict[str, Any]], *context: dict[str, Any]) -> ValidatedPlan:
    tools = {c["_tool"]: tool(c["_tool"]) for c in plan}
    return validate_request({"context": [{"type": "tool", "tool": tools}, *context, {"type": "plan", "plan": plan}]})


def test_a_call_does_not_wait_for_a_write_that_the_next_one_replaces() -> None:
    graph = prepared([call("a", "†state.x"), call("b", "†state"), call("c", "†log.c", y="†state.y")]).graph
    assert find_dependencies(graph, 2) == {1}


def test_ten_thousand_readers_of_ten_thousand_writers_store_few_waits() -> None:
    """Written out as edges these would be a hundred million."""
    count = 5_000
    plan = [call("t", f"†state.k{i}") for i in range(count)]
    plan += [call("t", f"†log.r{i}", x="†state") for i in range(count)]
    graph = prepared(plan).graph
    assert sum(len(waits) for waits in graph.waits) <= 4 * count
    assert len(find_dependencies(graph, 2 * count - 1)) == count


def count_waits(monkeypatch: pytest.MonkeyPatch, calls: int) -> int:
    steps = 0
    original = TopologicalSorter.add

    def counted(*arguments: Any) -> None:
        nonlocal steps
        steps += 1
        original(*arguments)

    monkeypatch.setattr(TopologicalSorter, "add", counted)
    plan = [call("t", "†state.x", x="†state.x && †data.never") for _ in range(calls)]
    tools = {"type": "tool", "tool": tool("t")}
    problems = validate({"context": [tools, {"type": "plan", "plan": plan}]})
    assert [p for p in problems if p.fatal]
    return steps


def test_calls_that_all_look_ahead_over_each_other_cost_what_their_number_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is refused in the end; the way there must not be a way to stop the worker."""
    few, many = count_waits(monkeypatch, 25), count_waits(monkeypatch, 100)
    assert many <= 6 * few  # linear is 4 times as much, quadratic 16 times
