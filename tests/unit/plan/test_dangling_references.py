"""References that nothing can satisfy: which are reported, with which hints, and for which instances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from acts.language.errors import MAX_PROBLEMS_REPORTED, Problem
from acts.plan.validate import MAX_LACKING, validate
from tests.cases import call, own, state, tool
from tests.unit.plan.plan_requests import fatal, request

# parameter, context, hint of the problem (None: there is none)
SOURCES: list[tuple[str, list[dict[str, Any]], str | None]] = [
    ("†state.a", [state(a=1)], None),
    ("†state.a", [state(a=None)], None),
    ("†state.a.b", [state(a={"b": 0})], None),
    ("†state.b", [state(a=1)], "†state has: a"),
    ("†state.a.b", [state(a={"c": 1, "d": 2})], "†state.a has: c, d"),
    ("†state.l.5", [state(l=[1])], "†state.l is a list of 1"),
    ("†stat.a", [state(a=1), {"type": "data", "kind": "user", "data": {}}], "kinds in the context: state, user"),
    ("†state.a || †state.z", [state(a=1)], None),
    ("†state.y || †state.z", [state(a=1)], "†state has: a"),
    ("†state.a && †state.z", [state(a=1)], "†state has: a"),
    ("†state.a && †state.z || †state.a", [state(a=1)], None),
    ("†state.result", [], None),  # t2 writes it
    ("†state.result.deep.er", [], None),
    ("†state.result && †state.none", [], "kinds in the context: none"),
    ("†state.self", [], "kinds in the context: none"),  # only the reader itself writes it
    ("†input", [{"type": "input", "schema": {}}], "kinds in the context: none"),
    ("†input", [{"type": "input", "input": None}], None),
]


@pytest.mark.parametrize(("text", "context", "hint"), SOURCES)
def test_a_reference_that_nothing_can_satisfy_is_reported_with_a_hint(
    text: str, context: list[dict[str, Any]], hint: str | None
) -> None:
    problems = fatal(request(call("t1", "†state.self", x=["", text]), call("t2", "†state.result"), context=context))
    assert [(p.code, p.call, p.pointer) for p in problems] == (
        [] if hint is None else [("unknownReference", "1:t1", f"/context/{len(context) + 1}/plan/0/x/1")]
    )
    assert hint is None or hint in str(problems[0].hint)


# an unreadable Call, what another Call reads, the codes of all problems. The Tool `writer` fixes its _outputPath
UNREADABLE: list[tuple[Any, str, list[str]]] = [
    # what the Call would write is known: its readers are not at fault, and other references are checked
    ({"_tool": "unknown", "_outputPath": "†state.a"}, "†state.a", ["unknownTool"]),
    ({"_tool": "unknown", "_outputPath": "†state.a"}, "†state.b", ["unknownTool", "unknownReference"]),
    ({"_tool": "unknown", "_errorPath": "†state.a"}, "†state.a", ["unknownTool"]),
    ({"_tool": "unknown", "_errorPath": "†state.a"}, "†state.b", ["unknownTool"]),
    ({"_tool": "act", "_outputPath": "†state.a", "_foo": 1}, "†state.a", ["forbiddenMeta"]),
    ({"_tool": "act", "_outputPath": "†state.a", "_foo": 1}, "†state.b", ["forbiddenMeta", "unknownReference"]),
    ({"_tool": "act", "_outputPath": "†state.a", "x": "†"}, "†state.b", ["invalidExpression", "unknownReference"]),
    ({"_tool": "act", "_outputPath": "†state.a", "_instance": "Z"}, "†state.a", ["unknownInstance"]),
    ({"_tool": "act", "_outputPath": "†plan.x"}, "†state.b", ["forbiddenWrite", "unknownReference"]),
    ({"_tool": 5, "_outputPath": "†state.a"}, "†state.a", ["invalidCall"]),
    # its Tool does not allow the path, or fixes another one: it means one of the two
    ({"_tool": "writer", "_outputPath": "†state.b"}, "†state.b", ["forbiddenMeta"]),
    ({"_tool": "writer", "_outputPath": "†state.b"}, "†state.fixed", ["forbiddenMeta"]),
    ({"_tool": "writer", "_outputPath": "†state.b"}, "†state.c", ["forbiddenMeta", "unknownReference"]),
    # a misspelt Tool may be any of the defined ones, and one of them fixes a path
    ({"_tool": "wrter"}, "†state.fixed", ["unknownTool"]),
    # what it would write is unknown: it may be anything
    (5, "†state.a", ["invalidCall"]),
    ({"_tool": "act", "_outputPath": "state.a"}, "†state.b", ["invalidExpression"]),
    ({"_tool": "act", "_outputPath": 5}, "†state.b", ["forbiddenMeta"]),
    ({"_tool": "unknown", "_outputPath": "†"}, "†state.b", ["unknownTool", "invalidExpression"]),
    ({"_tool": "act", "_outputPath": "†state.a", "_errorPath": "†"}, "†state.b", ["invalidExpression"]),
]


@pytest.mark.parametrize(("unreadable", "reference", "codes"), UNREADABLE, ids=str)
def test_an_unreadable_call_hides_no_dangling_reference_and_causes_none(
    unreadable: Any, reference: str, codes: list[str]
) -> None:
    tools = {"act": tool("act"), "writer": tool("writer", _outputPath={"const": "†state.fixed"})}
    raw = {"context": [{"type": "tool", "tool": tools}, {"type": "plan"}]}
    for plan in ([unreadable, call("act", x=reference)], [call("act", x=reference), unreadable]):
        raw["context"][1]["plan"] = plan
        assert sorted(p.code for p in fatal(raw)) == sorted(codes)


# a reference, the context, what the plan's other Calls write, the hint
HINTS: list[tuple[str, list[dict[str, Any]], list[str], str]] = [
    ("†state.b", [state(a=1)], ["†data.x"], "†state has: a; the plan writes: †data.x"),
    (
        "†state.order.totl",
        [state(order={"id": 1})],
        ["†state.order.total", "†state.x"],
        'did you mean "†state.order.total"? †state.order has: id; the plan writes: †state.order.total, †state.x',
    ),
    (
        "†state.ordr.id.first",
        [state(order={"id": 1})],
        ["†state.y"],
        'did you mean "†state.order"? †state has: order; the plan writes: †state.y',
    ),
    (
        "†stat.total",
        [state(a=1)],
        ["†state.total"],
        'did you mean "†state.total"? kinds in the context: state; the plan writes: †state.total',
    ),
    (
        "†user.name",
        [],
        ["†usr.name"],
        'did you mean "†usr.name"? kinds in the context: none; the plan writes: †usr.name',
    ),
    ("†state.n.x", [state(n=None)], [], "†state.n is null"),
    ("†state.n.x", [state(n=[1, 2])], [], "†state.n is a list of 2"),
]


@pytest.mark.parametrize(("reference", "context", "writes", "hint"), HINTS)
def test_the_hint_of_a_dangling_reference_says_what_the_context_has_and_what_the_plan_writes(
    reference: str, context: list[dict[str, Any]], writes: list[str], hint: str
) -> None:
    calls = [call("t", "†state.self", x=reference), *(call("t", path) for path in writes)]
    (problem,) = fatal(request(*calls, context=context))
    assert problem.hint == hint


def test_many_dangling_references_cost_what_their_number_says() -> None:
    """Hints are written for as many as any report shows."""
    plan = [call("t", f"†state.k{i}", x=f"†state.none{i}") for i in range(3_000)]
    problems = fatal(request(*plan, context=[state(**{f"a{i}": 0 for i in range(3_000)})]))
    assert [p.code for p in problems] == ["unknownReference"] * MAX_LACKING
    assert sum(p.hint is not None for p in problems) == MAX_PROBLEMS_REPORTED


def test_a_template_is_checked_for_every_instance() -> None:
    raw = request(
        call("t", "†state.r", x="†state.only"), context=[own("A", only=1), own("B", other=2), own("C", other=3)]
    )
    assert fatal(raw) == []  # A can be walked; B and C fail by themselves
    (problem,) = [p for p in validate(raw) if p.code == "unknownReference"]
    assert (problem.severity, problem.instance) == ("warning", "B")
    assert problem.hint == "†state has: other"
    assert "2 of 3 instances: B, C" in problem.message
    (problem,) = fatal(request(call("t", "†state.r", x="†state.only"), context=[own("B", other=2), own("C", other=3)]))
    assert problem.code == "unknownReference"


REFERENCE_CODES = ("unknownReference", "cycle")

# A template is checked once per class of instances. The expected problems, computed the slow way: each instance's
# context, and a plan in which every Call names that instance.


def problems_one_by_one(raw: dict[str, Any]) -> dict[tuple[str, str], tuple[str, bool, str | None]]:
    """By code and place: the message and hint of the first instance that has a problem, and whether it is fatal."""
    instances = dict.fromkeys(m["_instance"] for m in raw["context"] if "_instance" in m)
    reports: dict[tuple[str, str], list[Problem]] = {}
    for instance in instances:
        plan = [{**c, "_instance": instance} for c in raw["context"][-1]["plan"]]
        for problem in validate({**raw, "context": [*raw["context"][:-1], {"type": "plan", "plan": plan}]}):
            if problem.code in REFERENCE_CODES:
                reports.setdefault((problem.code, problem.pointer), []).append(replace(problem, instance=instance))
    merged = {}
    for key, (first, *others) in reports.items():
        affected, text, is_fatal = [first, *others], first.message, first.fatal
        if len(affected) < len(instances) and first.code == "unknownReference":
            names = ", ".join(sorted(str(p.instance) for p in affected))
            text, is_fatal = f"{text}, in {len(affected)} of {len(instances)} instances: {names}", False
        merged[key] = (text, is_fatal, first.hint)
    return merged


PARTS = st.sampled_from([1, None, [1], {}, {"a": 1}, {"b": None}, {"a": {"b": 1}}, {"a": [2]}])
SPOTS = st.sampled_from(["†state", "†state.a", "†state.b", "†state.a.a", "†state.a.b", "†state.a.0", "†state.0"])
TEXTS = SPOTS | st.tuples(SPOTS, st.sampled_from([" || ", " && "]), SPOTS).map("".join)
MERGED = st.builds(lambda part: {"type": "state", "state": part}, PARTS)
WRITTEN = st.builds(
    lambda spot, part, method: {
        "type": "state",
        "state": nest(spot.split(".")[1:], part),
        "_outputPath": spot,
        "_outputMethod": method,
    },
    SPOTS.filter(lambda spot: spot.startswith("†state.")),
    PARTS,
    st.sampled_from(["set", "push", "concat", "merge"]),
)
CALLS = st.builds(
    lambda text, spot: call("t", x=text) if spot is None else call("t", spot, x=text), TEXTS, st.none() | SPOTS
)


def nest(names: list[str], value: Any) -> Any:
    for name in reversed(names):
        value = {name: value}
    return value


@settings(max_examples=300, deadline=None)
@example([state(a=[2])], [("A", state(a={"b": 1})), ("B", state(b=1))], [call("t", x="†state.a.0")])
@given(
    st.lists(MERGED, max_size=2),
    st.lists(st.tuples(st.sampled_from("ABCD"), MERGED | WRITTEN), min_size=2, max_size=8),
    st.lists(CALLS, min_size=1, max_size=4),
)
def test_a_template_has_the_problems_that_its_instances_have_one_by_one(
    shared: list[dict[str, Any]], owned: list[tuple[str, dict[str, Any]]], plan: list[dict[str, Any]]
) -> None:
    raw = request(*plan, context=[*shared, *({**message, "_instance": name} for name, message in owned)])
    problems = validate(raw)
    assume(not any(p.code == "invalidMessage" for p in problems))
    template = {(p.code, p.pointer): (p.message, p.fatal, p.hint) for p in problems if p.code in REFERENCE_CODES}
    assert template == problems_one_by_one(raw)
