"""A Call against its Tool: what it may carry, what it reads and writes, and every objection with its place."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.errors import Problem
from acts.language.references import Path
from acts.language.values import ABSENT
from acts.plan.calls import PlannedCall
from acts.plan.validate import validate, validate_request

TEXT = {"type": "string"}
OPEN = {
    "properties": {
        "_activity": {"const": "x"},
        "_outputPath": TEXT,
        "_errorPath": TEXT,
        "_outputMethod": TEXT,
        "_scopes": {"type": "array"},
    }
}
STATE = {"type": "state", "state": {"v": 1}}


def request(call: Any, tool: Any = OPEN, **more: Any) -> dict[str, Any]:
    context = [{"type": "tool", "tool": {"a": tool}}, STATE, {"type": "plan", "plan": [call]}]
    return {"context": context, **more}


def node_of(call: dict[str, Any], tool: Any = OPEN) -> PlannedCall:
    (node,) = validate_request(request({"_tool": "a", **call}, tool)).nodes
    return node


def problems_of(call: Any, tool: Any = OPEN) -> list[Problem]:
    return validate(request({"_tool": "a", **call} if isinstance(call, dict) else call, tool))


# call, code, pointer below the call, what the message says
REFUSED: list[tuple[Any, str, str, str]] = [
    ("a", "invalidCall", "", "not string"),
    (None, "invalidCall", "", "not null"),
    ({"_tool": None}, "invalidCall", "/_tool", "not null"),
    ({"_tool": "b"}, "unknownTool", "/_tool", 'unknown tool "b" in call 1; known: a'),
    ({"_foo": 1}, "forbiddenMeta", "/_foo", "unknown meta-property"),
    ({"_delegate": "d"}, "forbiddenMeta", "/_delegate", "does not allow _delegate"),
    ({"_outputPath": 5}, "forbiddenMeta", "/_outputPath", "5 is not of type 'string'"),
    ({"_outputPath": "state.x"}, "invalidExpression", "/_outputPath", "column 1"),
    ({"_outputPath": "††x"}, "invalidExpression", "/_outputPath", "column"),
    ({"_outputPath": ""}, "invalidExpression", "/_outputPath", "column 1"),
    ({"_outputPath": '†state["a b"]'}, "invalidExpression", "/_outputPath", "without brackets"),
    ({"_outputPath": "†state.r.†{index}"}, "invalidExpression", "/_outputPath", "† inside a name"),
    ({"_errorPath": "†state.a†state.b"}, "invalidExpression", "/_errorPath", "† inside a name"),
    ({"_outputPath": "†plan"}, "forbiddenWrite", "/_outputPath", "plan messages"),
    ({"_outputPath": "†state.a || †error.x"}, "forbiddenWrite", "/_outputPath", "error messages"),
    (
        {"_outputPath": "†state.a", "_errorPath": "†state.b || †state.c"},
        "invalidExpression",
        "/_errorPath",
        "without ||",
    ),
    ({"_outputMethod": "append"}, "forbiddenMeta", "/_outputMethod", "set, merge, assign, push, concat"),
    ({"_scopes": "state"}, "forbiddenMeta", "/_scopes", "not of type 'array'"),
    ({"_scopes": [5]}, "invalidExpression", "/_scopes/0", "not number"),
    ({"_scopes": ["state", "†state."]}, "invalidExpression", "/_scopes/1", "column 8"),
    ({"_scopes": ["†state.a || †state.b"]}, "invalidExpression", "/_scopes/0", "one kind or path"),
    ({"x": {"deep": [0, "†state..v"]}}, "invalidExpression", "/x/deep/1", "column 8"),
    ({"a/b": {"c~d": "†"}}, "invalidExpression", "/a~1b/c~0d", "column 2"),
    ({"_instance": "Z"}, "unknownInstance", "/_instance", "known: none"),
    ({"_instance": 5}, "unknownInstance", "/_instance", "5"),
]


@pytest.mark.parametrize(("call", "code", "pointer", "says"), REFUSED, ids=lambda x: str(x)[:50])
def test_what_a_call_may_not_contain_is_refused_with_its_place(call: Any, code: str, pointer: str, says: str) -> None:
    fatal = [p for p in problems_of(call) if p.fatal]
    assert {p.pointer for p in fatal} == {f"/context/2/plan/0{pointer}"}
    assert fatal[0].code == code
    assert says in fatal[0].message
    named = call.get("_tool", "a") if isinstance(call, dict) else None
    assert fatal[0].call == (f"1:{named}" if isinstance(named, str) else "1")


@pytest.mark.parametrize("key", ["_activity", "_options"])
@pytest.mark.parametrize("value", ["evil", {"taskQueue": "evil"}, None, 5, "†state.v", "†"])
def test_a_call_does_not_decide_what_its_tool_runs(key: str, value: Any) -> None:
    plan = validate_request(request({"_tool": "a", key: value}))
    (node,) = plan.nodes
    assert node.tool.activity == "x"
    assert key not in node.call
    assert ("ignoredMeta", f"/context/2/plan/0/{key}") in [(p.code, p.pointer) for p in plan.warnings]
    assert node.planned == {"_tool": "a", key: value}


# schema of the meta-property in the Tool, value in the Call, is it allowed
VALUES: list[tuple[str, Any, Any, bool]] = [
    ("_outputPath", {"const": "†state.a"}, "†state.a", True),
    ("_outputPath", {"const": "†state.a"}, "†state.b", False),
    ("_outputPath", {"type": "string", "pattern": "^†state\\."}, "†state.x", True),
    ("_outputPath", {"type": "string", "pattern": "^†state\\."}, "†data.x", False),
    ("_scopes", {"type": "array", "items": {"enum": ["state"]}}, ["state"], True),
    ("_scopes", {"type": "array", "items": {"enum": ["state"]}}, ["input"], False),
    ("_scopes", {"const": []}, ["state"], False),
    ("_delegate", {"enum": ["a", "b"]}, "b", True),
    ("_delegate", {"enum": ["a", "b"]}, "c", False),
    ("_approval", {"const": True}, True, True),
    ("_approval", {"const": True}, False, False),
    ("_reasoningForCall", True, "because", True),
    ("_reasoningForCall", False, "because", False),
]


@pytest.mark.parametrize(("key", "schema", "value", "allowed"), VALUES, ids=str)
def test_a_call_may_only_carry_the_values_its_tool_allows(key: str, schema: Any, value: Any, allowed: bool) -> None:  # noqa: FBT001
    tool = {"properties": {"_activity": {"const": "x"}, key: schema}}
    fatal = [p for p in problems_of({key: value}, tool) if p.fatal]
    assert (fatal == []) is allowed
    assert all(p.code == "forbiddenMeta" and p.pointer.startswith(f"/context/2/plan/0/{key}") for p in fatal)


def test_a_constant_is_applied_to_every_call() -> None:
    tool = {
        "properties": {
            "_activity": {"const": "x"},
            "_outputPath": {"const": "†state.a && †log.a"},
            "_outputMethod": {"const": "push"},
            "_errorPath": {"const": "†state.e"},
            "_scopes": {"const": ["state"]},
        }
    }
    node = node_of({}, tool)
    assert [[str(p) for p in o] for o in node.outcomes] == [["†state.a", "†log.a"], ["†state.e"]]
    assert (node.method, node.error, node.result_outcome_count) == ("push", 1, 1)
    assert [str(p) for p in node.scopes] == ["†state"]
    assert node.planned == {"_tool": "a"}


@pytest.mark.parametrize("key", ["_outputPath", "_errorPath", "_outputMethod", "_scopes", "_reasoningForCall"])
def test_a_required_meta_property_must_be_present(key: str) -> None:
    tool = {"properties": {"_activity": {"const": "x"}, key: {"default": 1}}, "required": [key]}
    (problem,) = [p for p in problems_of({}, tool) if p.fatal]
    assert problem.pointer == f"/context/2/plan/0/{key}"
    assert key in problem.message


# _outputPath, _errorPath, outcomes, how many a result may choose from, which takes a failure
OUTCOMES: list[tuple[str | None, str | None, list[list[str]], int, int | None]] = [
    ("†state.a", None, [["†state.a"]], 1, None),
    ("†state", None, [["†state"]], 1, None),
    ("†state.error", None, [["†state.error"]], 1, None),
    ("†state.a && †log.error", None, [["†state.a", "†log.error"]], 1, None),
    ("†state.a || †state.error", None, [["†state.a"], ["†state.error"]], 2, 1),
    ("†state.a || †log.failure", None, [["†state.a"], ["†log.failure"]], 2, 1),
    ("†state.a || †log.chargeFailed", None, [["†state.a"], ["†log.chargeFailed"]], 2, 1),
    ("†state.a || †log.terror", None, [["†state.a"], ["†log.terror"]], 2, None),
    ("†state.a || †state.error.code", None, [["†state.a"], ["†state.error.code"]], 2, None),
    ("†state.a || †state.error && †log.x", None, [["†state.a"], ["†state.error", "†log.x"]], 2, None),
    ("†state.a || †log.x && †state.error", None, [["†state.a"], ["†log.x", "†state.error"]], 2, 1),
    ("†state.a", "†state.e", [["†state.a"], ["†state.e"]], 1, 1),
    ("†state.a || †state.error", "†state.e", [["†state.a"], ["†state.error"], ["†state.e"]], 2, 2),
    ("†state.a || †state.b", "†state.b", [["†state.a"], ["†state.b"]], 2, 1),
    ("†state.a || †state.b && †log.b", "†log.b && †state.b", [["†state.a"], ["†state.b", "†log.b"]], 2, 1),
    ("†state.a", "†state.a", [["†state.a"]], 1, 0),
    ("†state.a", "†state.e && †log.e", [["†state.a"], ["†state.e", "†log.e"]], 1, 1),
    ("(†state.a || †state.b) && †log.c", None, [["†state.a", "†log.c"], ["†state.b", "†log.c"]], 2, None),
    (None, "†state.e", [["†state.e"]], 0, 0),
    (None, None, [], 0, None),
]


@pytest.mark.parametrize(("output", "error", "outcomes", "choices", "failure"), OUTCOMES)
def test_outcomes(output: str | None, error: str | None, outcomes: Any, choices: int, failure: int | None) -> None:
    keys = {"_outputPath": output, "_errorPath": error}
    node = node_of({k: v for k, v in keys.items() if v is not None})
    assert [[str(p) for p in outcome] for outcome in node.outcomes] == outcomes
    assert (node.result_outcome_count, node.error) == (choices, failure)
    assert node.is_detached is (outcomes == [])


def test_reads_are_found_in_parameters_at_any_depth_and_nowhere_else() -> None:
    tool = {"properties": {**OPEN["properties"], "_reasoningForCall": True}}
    node = node_of(
        {"x": "†state.v", "y": [{"z": "†state.v || †state"}], "w": "††state", "_reasoningForCall": "†state.nothing"},
        tool,
    )
    assert [(r.at, r.text) for r in node.reads if r.paths] == [
        (("x",), "†state.v"),
        (("y", 0, "z"), "†state.v || †state"),
    ]
    assert node.parameters == {"x": "†state.v", "y": [{"z": "†state.v || †state"}], "w": "††state"}
    values = {Path("state", ("v",)): ABSENT, Path("state"): {"n": 1}}
    sent, missing = node.resolve(values.__getitem__)
    assert {**node.call, "x": "†state.v", "y": [{"z": {"n": 1}}], "w": "†state"} == sent
    assert [use.at for use in missing] == [("x",)]


LATENT = {"properties": {"_activity": {"const": ""}, "_outputPath": TEXT, "_output": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("call", "codes"),
    [
        ({"_outputPath": "†state.a", "_output": 5}, []),
        ({"_outputPath": "†state.a", "_output": "five"}, ["schemaMismatch"]),
        ({"_outputPath": "†state.a || †state.b", "_output": 5}, ["forbiddenMeta"]),
        ({"_outputPath": "†state.a"}, ["noModel"]),
        ({"_output": 5}, []),
    ],
)
def test_an_output_of_a_latent_call_is_checked(call: dict[str, Any], codes: list[str]) -> None:
    assert [p.code for p in problems_of(call, LATENT) if p.fatal] == codes


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ({"_outputPth": "†state.w"}, 'did you mean "_outputPath"?'),
        ({"_outputPath": "state.w"}, 'did you mean "†state.w"?'),
    ],
)
def test_a_misspelt_output_path_is_one_problem_whatever_reads_it(call: Any, hint: str) -> None:
    typed = {**OPEN["properties"], "_outputPath": {"type": "string", "pattern": "^†"}, "x": TEXT}
    tool = {"type": "object", "properties": typed, "additionalProperties": False}
    reader = {"_tool": "a", "x": "†state.w", "_outputPath": "†state.y"}
    raw = request({"_tool": "a", "x": "1", **call}, tool)
    raw["context"][-1]["plan"].append(reader)
    (problem,) = [p for p in validate(raw) if p.fatal]
    assert problem.hint == hint
