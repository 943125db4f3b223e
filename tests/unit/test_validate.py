"""Validation: every problem at once, each with its place; and whatever comes in, problems come out, never a crash."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from acts.language.errors import MAX_PROBLEMS_REPORTED, InvalidRequest, Problem, summary
from acts.plan.validate import MAX_CALLS, MAX_PARALLEL, validate, validate_request
from tests.cases import ROWS, Row, call, own, state, thought, tool
from tests.property.drive import NOW, identify
from tests.strategies import Case, cases, collisions


def request(*plan: Any, context: Any = (), config: Any = None, **tools: Any) -> dict[str, Any]:
    named = {
        c["_tool"]: tool(c["_tool"]) for c in plan if isinstance(c, dict) and isinstance(c.get("_tool"), str)
    } | tools
    out: dict[str, Any] = {
        "context": [{"type": "tool", "tool": named or {"t": {}}}, *context, {"type": "plan", "plan": list(plan)}]
    }
    return out if config is None else {**out, "config": config}


def fatal(raw: Any) -> list[Problem]:
    return [p for p in validate(raw) if p.fatal]


@pytest.mark.parametrize("case", ROWS, ids=lambda r: r["name"])
def test_every_row_is_valid(case: Row) -> None:
    assert fatal(case["request"]) == []


def test_all_problems_are_told_at_once() -> None:
    raw = request(
        call("a", "†state.a", x="†state.nothing"),
        {"_tool": "unknown"},
        call("b", "state.b", _foo=1),
        call("c", "†plan.x", y="†"),
        call("d", "†state.d", _instance="Z"),
        context=[{"type": "state", "schema": {"type": "strin"}}],
        config={"budget": {"calls": 3}},
    )
    del raw["context"][0]["tool"]["unknown"]
    assert {p.code for p in fatal(raw)} >= {
        *(
            "unknownTool",
            "invalidExpression",
            "forbiddenMeta",
            "forbiddenWrite",
            "unknownInstance",
            "invalidSchema",
            "limitExceeded",
        ),
    }


def test_a_request_that_does_not_validate_carries_each_problem_in_its_message_and_as_data() -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate_request(request(call("a", "†state.a", x="†state.b"), {"_tool": 5}, context=[state(c=1)]))
    error = caught.value
    details = error.to_json()
    assert json.loads(json.dumps(details)) == details
    for problem in details:
        assert set(problem) >= {"code", "message", "pointer"}
        assert problem["message"] in str(error)


# -- references ---------------------------------------------------------------------------

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
def test_a_reference_that_nothing_can_satisfy_is_told_with_what_is_there(
    text: str, context: list[dict[str, Any]], hint: str | None
) -> None:
    problems = fatal(request(call("t1", "†state.self", x=["", text]), call("t2", "†state.result"), context=context))
    assert [(p.code, p.call, p.pointer) for p in problems] == (
        [] if hint is None else [("unknownReference", "1:t1", f"/context/{len(context) + 1}/plan/0/x/1")]
    )
    assert hint is None or hint in str(problems[0].hint)


def test_with_missing_wait_an_unsatisfied_reference_is_a_warning() -> None:
    raw = request(call("t1", "†state.a", x="†input.late"), config={"missing": "wait"})
    assert [(p.code, p.fatal) for p in validate(raw)] == [("unknownReference", False)]


def test_a_scope_that_finds_nothing_is_no_problem() -> None:
    assert fatal(request(call("t1", "†state.a", _scopes=["nothing", "†state.nothing.at.all"]))) == []


# -- schemas -------------------------------------------------------------------------------

PARAMETERS: list[tuple[dict[str, Any], list[str]]] = [
    ({"n": 1}, []),
    ({"n": "†state.a"}, []),
    ({"n": "one"}, ["/n"]),
    ({"n": "††one"}, ["/n"]),
    ({}, [""]),
    ({"n": 1, "l": [{"k": 1}, {"k": "x"}, {"k": "†state.a"}]}, ["/l/1/k"]),
    ({"n": None}, []),
    ({"n": 1, "extra": "†state.a"}, [""]),
]


def test_an_unknown_parameter_is_answered_with_the_known_ones() -> None:
    schema = tool("t", city={"type": "string"}, days={"type": "integer"}) | {"additionalProperties": False}
    (problem,) = fatal(request(call("t", "†state.x", ctiy="Rome", days="†state.a"), context=[state(a=1)], t=schema))
    assert problem.message == 'tool "t": "ctiy" is not allowed; allowed: city, days; did you mean "city"?'


@pytest.mark.parametrize(("parameters", "pointers"), PARAMETERS, ids=str)
def test_parameters_are_checked_with_references_in_place(parameters: dict[str, Any], pointers: list[str]) -> None:
    schema = tool(
        "t",
        n={"type": "integer", "nullable": True},
        l={"type": "array", "items": {"type": "object", "properties": {"k": {"type": "integer"}}}},
    )
    schema |= {"required": ["_outputPath", "n"], "additionalProperties": False}
    problems = fatal(request(call("t", "†state.x", **parameters), context=[state(a=1)], t=schema))
    assert [(p.code, p.pointer) for p in problems] == [("schemaMismatch", f"/context/2/plan/0{at}") for at in pointers]


STATE_SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "closed": {"type": "object", "properties": {"x": {}}, "additionalProperties": False},
        "open": {"type": "object"},
        "ref": {"$ref": "#/$defs/item"},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "never": False,
        "any": True,
    },
    "additionalProperties": False,
    "$defs": {"item": {"type": "integer"}},
}

# path, may it be written, a value that fits there, one that does not (None: any fits)
STATE_WRITES: list[tuple[str, bool, Any, Any]] = [
    ("†state.n", True, 1, "x"),
    ("†state.n.x", False, None, None),
    ("†state.z", False, None, None),
    ("†state.closed.x", True, "any", None),
    ("†state.closed.y", False, None, None),
    ("†state.closed", True, {"x": 1}, {"y": 1}),
    ("†state.open.what.ever", True, 1, None),
    ("†state.never", False, None, None),
    ("†state.any.thing", True, 1, None),
    ("†state", True, {"n": 1}, {"z": 1}),
    ("†state.ref", True, 1, "x"),
    ("†state.items", True, [1], ["x"]),
    ("†data.z", True, 1, None),
]


@pytest.mark.parametrize(("path", "allowed", "good", "bad"), STATE_WRITES)
def test_a_write_that_the_schema_of_a_kind_forbids(path: str, allowed: bool, good: Any, bad: Any) -> None:  # noqa: FBT001
    raw = request(call("t", path), context=[{"type": "state", "schema": STATE_SCHEMA}])
    problems = fatal(raw)
    if not allowed:
        assert [(p.code, p.pointer) for p in problems] == [("forbiddenWrite", "/context/2/plan/0/_outputPath")]
        return
    assert problems == []
    for value, state_ in ((good, "completed"), (bad, "failed")):
        if value is None:
            continue
        from acts.machines.walk import Walk

        walk = Walk(validate_request(raw), identify)
        walk.begin(NOW)
        walk.completed(0, value, NOW)
        assert walk.runs[0].state == state_, value


def test_a_bad_schema_anywhere_is_told() -> None:
    raw = request(call("t", "†data.x"), context=[{"type": "state", "schema": {"type": "strin"}, "state": {}}])
    raw["schema"] = {"$ref": "http://127.0.0.1:9/x"}
    assert [(p.code, p.pointer) for p in fatal(raw)] == [
        ("invalidSchema", "/schema"),
        ("invalidSchema", "/context/1/schema"),
    ]


# -- plans -----------------------------------------------------------------------------------


def test_a_request_without_a_plan() -> None:
    assert [p.code for p in fatal({"context": []})] == ["noPlan"]


def test_the_latest_plan_is_the_one_that_is_checked() -> None:
    raw = request(call("t", "†state.x"))
    raw["context"].insert(1, {"type": "plan", "plan": [{"_tool": "unknown"}, 5]})
    assert fatal(raw) == []


# an unreadable Call, what another Call reads, the codes of all problems. The Tool `writer` fixes its _outputPath
UNREADABLE: list[tuple[Any, str, list[str]]] = [
    # what the Call would write is known: nobody else is to blame for it, and no other reference is excused by it
    ({"_tool": "unknown", "_outputPath": "†state.a"}, "†state.a", ["unknownTool"]),
    ({"_tool": "unknown", "_outputPath": "†state.a"}, "†state.b", ["unknownTool", "unknownReference"]),
    ({"_tool": "unknown", "_errorPath": "†state.a"}, "†state.a", ["unknownTool"]),
    ({"_tool": "unknown", "_errorPath": "†state.a"}, "†state.b", ["unknownTool", "unknownReference"]),
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
    # a misspelt Tool may be any of those that are known
    ({"_tool": "wrter"}, "†state.fixed", ["unknownTool"]),
    ({"_tool": "wrter"}, "†state.b", ["unknownTool", "unknownReference"]),
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


def test_an_unreadable_call_has_its_own_references_checked() -> None:
    raw = request(call("a", "†state.a", x="†state.none", y="†", _foo=1), {"_tool": "unknown", "x": "†state.none"})
    del raw["context"][0]["tool"]["unknown"]
    assert [(p.code, p.pointer.removeprefix("/context/1/plan/")) for p in fatal(raw)] == [
        ("forbiddenMeta", "0/_foo"),
        ("invalidExpression", "0/y"),
        ("unknownTool", "1/_tool"),
        ("unknownReference", "0/x"),
        ("unknownReference", "1/x"),
    ]


def test_a_call_whose_tool_could_not_be_read_may_write_anything() -> None:
    broken = {"properties": {"_outputPath": {"const": "†state.a"}, "x": {"type": "strin"}}}
    raw = request({"_tool": "broken"}, call("b", x="†state.a"), broken=broken)
    assert [p.code for p in fatal(raw)] == ["invalidTool", "unknownTool"]


def test_a_cycle_and_a_dangling_reference_are_reported_together() -> None:
    raw = request(call("a", "†state.a", x="†state.b"), call("b", "†state.b", x="†state.a", y="†state.none"))
    assert [(p.code, p.call) for p in fatal(raw)] == [("cycle", "1:a"), ("unknownReference", "2:b")]


# a reference, the context, what the plan's other Calls write, the hint
HINTS: list[tuple[str, list[dict[str, Any]], list[str], str]] = [
    ("†state.b", [state(a=1)], ["†data.x"], "†state has: a; the plan writes: †data.x"),
    (
        "†state.order.totl",
        [state(order={"id": 1})],
        ["†state.order.total", "†state.x"],
        'did you mean "†state.order.total"? †state.order has: id; the plan writes: †state.order.total',
    ),
    (
        "†state.ordr.id.first",
        [state(order={"id": 1})],
        ["†state.y"],
        'did you mean "†state.order.id.first"? †state has: order; the plan writes: †state.y',
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
    (
        "†state.r9",
        [],
        [f"†state.p{i}" for i in range(1, 8)] + ["†state.q9"],
        "kinds in the context: none; the plan writes: †state.q9, "
        + ", ".join(f"†state.p{i}" for i in range(1, 6))
        + ", … (8 in all)",
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
    assert [p.code for p in problems] == ["unknownReference"] * 3_000
    assert sum(p.hint is not None for p in problems) == MAX_PROBLEMS_REPORTED


def test_thoughts_and_models() -> None:
    latent = {"think": thought("think")}
    assert [p.code for p in fatal(request({"_tool": "think", "_outputPath": "†state.a"}, **latent))] == ["noModel"]
    raw = request({"_tool": "think", "_outputPath": "†state.a"}, config={"model": "scripted:x"}, **latent)
    assert fatal(raw) == []
    assert [(p.code, p.fatal) for p in validate(request({"_tool": "think"}, **latent))] == [("thought", False)]
    guess = request(
        call("a", "†state.a"), {"_tool": "think", "_outputPath": "†state.b", "_output": 1, "x": "†state.a"}, **latent
    )
    guess["config"] = {"model": "scripted:x"}
    assert [(p.code, p.call, p.fatal) for p in validate(guess)] == [("droppedOutput", "2:think", False)]


# -- templates and instances --------------------------------------------------------------------


def test_a_result_that_goes_nowhere_is_a_warning() -> None:
    meta = {"_activity": {"const": "ask"}, "_outputPath": {"type": "string"}}
    answers = {"properties": {**meta, "_output": {"type": "string"}}}
    silent = {"properties": meta}
    calls = [{"_tool": "answers"}, {"_tool": "silent"}]
    problems = validate(request(*calls, answers=answers, silent=silent))
    assert [(p.code, p.call, p.fatal) for p in problems] == [("droppedResult", "1:answers", False)]
    assert (
        validate(request(*calls, {"_tool": "answers", "_outputPath": "†state.x"}, answers=answers, silent=silent)) == []
    )


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


def test_a_template_whose_order_differs_between_instances_is_valid() -> None:
    raw = request(call("r", "†state.r", x="†state.v"), call("w", "†state.v"), context=[own("A", v=1), own("B", z=2)])
    assert fatal(raw) == []


def test_a_plan_that_names_an_instance_is_no_template() -> None:
    raw = request(
        call("one", "†state.r", x="†state.v", _instance="A"),
        call("two", "†state.g"),
        context=[own("A", v=1), own("B", z=2)],
    )
    assert fatal(raw) == []
    assert [n.instance for n in validate_request(raw).nodes] == ["A", None]


def test_a_global_call_cannot_read_what_only_an_instance_holds() -> None:
    raw = request(
        call("one", "†state.a", _instance="A"), call("two", "†state.r", x="†state.v"), context=[own("A", v=1)]
    )
    assert [(p.code, p.call) for p in fatal(raw)] == [("unknownReference", "2:two")]


@pytest.mark.parametrize("instance", ["Z", "a", "", 5, ["A"], {}])
def test_an_unknown_instance_is_told_with_the_known_ones(instance: Any) -> None:
    (problem,) = fatal(request(call("t", "†state.a", _instance=instance), context=[own("A", v=1), own("B", v=1)]))
    assert (problem.code, problem.pointer) == ("unknownInstance", "/context/3/plan/0/_instance")
    assert "known: A, B" in problem.message


REFERENCE_CODES = ("unknownReference", "cycle")

# A template is checked once per class of instances. What that must come to, worked out the slow way: each instance's
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


def test_a_template_is_ordered_once_for_instances_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """What 300 instances need is worked out for their two classes."""
    import acts.plan.validate

    ordered = []
    original = acts.plan.validate.order_calls
    monkeypatch.setattr(acts.plan.validate, "order_calls", lambda *a: ordered.append(a) or original(*a))
    plan = [call("r", "†state.r", x="†state.v || †state.w"), call("w", "†state.v")]
    raw = request(*plan, context=[own(f"i{i}", **({"v": i} if i % 3 else {"z": i})) for i in range(300)])
    assert fatal(raw) == []
    assert len(ordered) == 2


# -- limits ------------------------------------------------------------------------------------


def test_ten_thousand_calls_validate() -> None:
    plan = [call("t", f"†state.k{i}", x=f"†state.k{i - 1} || †state.start", y={"deep": [i]}) for i in range(10_000)]
    assert fatal(request(*plan, context=[state(start=0)])) == []


def test_more_calls_than_allowed_are_one_problem() -> None:
    problems = fatal(request(*([call("t", "†state.a")] * (MAX_CALLS + 1))))
    assert [p.code for p in problems] == ["limitExceeded"]
    assert str(MAX_CALLS) in problems[0].message
    assert [p.code for p in fatal(request(*([call("t")] * 3), config={"budget": {"calls": 2}}))] == ["limitExceeded"]


def test_too_much_at_once_is_lowered_with_a_warning() -> None:
    raw = request(call("t", "†state.a"), config={"maxParallel": MAX_PARALLEL + 1})
    assert [(p.code, p.fatal) for p in validate(raw)] == [("limitLowered", False)]
    assert validate_request(raw).max_parallel == MAX_PARALLEL


def test_ten_thousand_problems_make_a_message_that_can_be_sent() -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate_request(request(*(call("t", "†state..x" + "y" * 2000, **{"_z" * 500: 1}) for _ in range(5_000))))
    assert len(str(caught.value)) < 100_000
    assert len(caught.value.to_json()) == MAX_PROBLEMS_REPORTED
    assert len(json.dumps(caught.value.to_json())) < 400_000
    assert "more" in str(caught.value)


def test_errors_come_before_warnings_in_a_summary() -> None:
    problems = [Problem("w", "a warning", severity="warning"), Problem("e", "an error")]
    assert summary(problems).splitlines() == ["the request has 2 problems:", "- [e] an error", "- [w] a warning"]


@pytest.mark.parametrize(
    "call_",
    [
        call("t", "†state.a", x="(" * 10_000 + "†a" + ")" * 10_000),
        call("t", "†state.a", x="†" + "(" * 10_000),
        call("t", "†state.a", x="†state[" + "9" * 10_000 + "]"),
        call("t", "(" * 10_000 + "†state.a" + ")" * 10_000),
        call("t", "†state" + ".a" * 3_000),
        call("t", " && ".join("(†state.a || †state.b)" for _ in range(30))),
        call("t", "†state.a", **{"x" * 100_000: "†state.\u202e"}),
        call("t", "†state.\x00", _scopes=["†\x00"]),
        call("t", "†state.a", x="†state.a\x00"),
        call("t", '†state["\\ud800"]'),
        call("t", "†state.a", x='†state["\\ud800"] || †state["\\udc00"]'),
    ],
    ids=lambda c: str(c)[:60],
)
def test_a_hostile_call_ends_in_problems_that_can_be_sent_or_in_a_walk_whose_result_can(call_: dict[str, Any]) -> None:
    from acts.machines.walk import Walk

    raw = request(call_, context=[state(v=1)])
    problems = validate(raw)
    json.dumps([p.to_json() for p in problems], ensure_ascii=False).encode()
    if not any(p.fatal for p in problems):
        walk = Walk(validate_request(raw), identify)
        walk.begin(NOW)
        walk.completed(0, {"v": 1}, NOW)
        json.dumps(walk.appended(), ensure_ascii=False).encode()


# -- anything at all ----------------------------------------------------------------------------

weird = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1e308,
        "",
        "†",
        "††",
        "†state",
        "†state.a || ",
        "(",
        "\x00",
        [],
        {},
        [[]],
        {"": ""},
        {"_tool": "act"},
    ]
)
anything = st.recursive(
    weird,
    lambda v: (
        st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["type", "tool", "plan", "context", "a", "_tool"]), v)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(anything)
def test_anything_is_answered_with_problems(raw: Any) -> None:
    for value in (raw, {"context": raw}, {"context": [raw]}, {"config": raw, "context": []}):
        assert fatal(value)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(p for key, child in inner for p in places(child, (*at, key)))]


def replaced(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    if isinstance(value, dict):
        return {k: replaced(v, at[1:], new) if k == at[0] else v for k, v in value.items()}
    return [replaced(v, at[1:], new) if i == at[0] else v for i, v in enumerate(value)]


@settings(max_examples=100, deadline=None)
@given(st.one_of(cases(most_calls=3), collisions(most_calls=3)), st.data())
def test_a_request_with_one_part_replaced_is_answered_with_problems_or_walks(case: Case, data: st.DataObject) -> None:
    from acts.machines.walk import Walk

    at = data.draw(st.sampled_from(places(case.request)))
    raw = replaced(case.request, at, data.draw(weird))
    try:
        prepared = validate_request(raw)
    except InvalidRequest:
        return
    Walk(prepared, identify).begin(NOW)
