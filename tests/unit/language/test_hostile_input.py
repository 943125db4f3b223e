"""Input that once took seconds, gigabytes or the whole worker: it is checked in a bounded number of steps, or refused.

No clock: a case that has no bound would not end here. Steps are counted where they are the point.
"""

from __future__ import annotations

from typing import Any

import pytest

from acts.activities.models.schema import choose_form, drop_nulls
from acts.language import schemas
from acts.language.admission import MAX_PATHS
from acts.language.errors import ExpressionError, Problem, TooComplex
from acts.language.messages import MAX_PROBLEMS_READ, read_request
from acts.language.references import alternatives, parse
from acts.language.schemas import Checker, clear_caches, judge_schema
from acts.language.wire import TOO_COMPLEX
from acts.plan.calls import MAX_ERRORS
from acts.plan.validate import validate, validate_request
from acts.planner.answer_schema import compose_solution_schema

EVIL = r"^([\w.-]+)+@example\.com$"
META = {"_outputPath": {"type": "string"}, "_errorPath": {"type": "string"}}


def tool(x: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**META, "x": x}, "_activity": "t", **more}


def request(*calls: dict[str, Any], tools: dict[str, Any] | None = None, mode: str = "eager") -> dict[str, Any]:
    context = [
        {"type": "state", "state": {"s": "text"}},
        {"type": "tool", "tool": tools or {"t": tool({})}},
        {"type": "plan", "plan": list(calls), "mode": mode},
    ]
    return {"context": context}


def codes(raw: Any) -> set[str]:
    return {p.code for p in validate(raw) if p.fatal}


def only_problem(raw: Any) -> Problem:
    (problem,) = (p for p in validate(raw) if p.fatal)
    return problem


@pytest.mark.parametrize("beside", [1, "†state.s"])
def test_a_pattern_that_makes_others_backtrack_for_ever_is_checked_and_explained(beside: Any) -> None:
    call = {"_tool": "t", "x": "a" * 40, "y": beside, "_outputPath": "†state.r"}
    problem = only_problem(request(call, tools={"t": tool({"pattern": EVIL})}))
    assert problem.code == "schemaMismatch"
    assert "does not match" in problem.message


@pytest.mark.parametrize(
    "pattern",
    ["(?=a)b", "(?<!a)b", r"(a)\1", "[a-", "(a{1,1000}){1,1000}", r"(\p{L}{1,99}){1,99}", "(((a{99}){99}){99}){99}"],
)
def test_a_pattern_without_a_bound_is_refused(pattern: str) -> None:
    problem = only_problem(request(tools={"t": tool({"pattern": pattern})}))
    assert (problem.code, problem.pointer) == ("invalidTool", "/context/1/tool/t")
    assert "/properties/x/pattern: the pattern" in problem.message
    assert "is not one that is checked in bounded time" in problem.message


def test_a_text_and_a_pattern_that_take_long_together_are_too_complex() -> None:
    check = Checker({"pattern": "[ab]*a[ab]{300}c"})
    assert check.defects("ab" * 1000)
    with pytest.raises(TooComplex, match="steps allowed"):
        check.defects("ab" * 500_000)


def doubling(levels: int, shape: Any) -> dict[str, Any]:
    defs = {f"d{i}": shape({"$ref": f"#/$defs/d{i + 1}"}) for i in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"type": "integer"}}}


IN_PLACE: list[Any] = [
    lambda ref: {"allOf": [ref, ref]},
    lambda ref: {"anyOf": [ref, {"not": ref}]},
    lambda ref: {"if": ref, "then": ref},
    lambda ref: {"dependentSchemas": {"a": ref, "b": ref}},
]


@pytest.mark.parametrize("shape", IN_PLACE)
def test_a_schema_that_doubles_for_one_value_is_too_complex(shape: Any) -> None:
    why = str(judge_schema(doubling(12, shape)).reason)
    assert "subschemas, $ref and allOf written out; at most 10,000 are allowed" in why
    assert judge_schema(doubling(8, shape)).reason is None
    schema = doubling(30, shape)
    assert "subschemas" in str(judge_schema(schema).reason)
    parameter = {**tool({"$ref": "#/$defs/d0"}), "$defs": schema["$defs"]}
    assert only_problem(request(tools={"t": parameter})).code == TOO_COMPLEX


BELOW: list[Any] = [
    lambda ref: {"allOf": [{"properties": {"a": ref}}, {"properties": {"a": ref}}]},
    lambda ref: {
        "anyOf": [{"properties": {"a": ref}, "required": ["x"]}, {"properties": {"a": ref}, "required": ["y"]}]
    },
    lambda ref: {"unevaluatedProperties": False, "allOf": [{"properties": {"a": ref}}, {"properties": {"a": ref}}]},
]


@pytest.mark.parametrize("shape", BELOW)
def test_a_schema_that_doubles_per_level_of_a_value_takes_shallow_values_and_refuses_deep_ones(shape: Any) -> None:
    schema = doubling(60, shape)
    assert judge_schema(schema).reason is None
    for depth in (3, 60):
        value: Any = "x"
        for _ in range(depth):
            value = {"a": value}
        if depth == 3:
            assert Checker(schema).defects(value) == [] or "anyOf" in str(schema)
        else:
            with pytest.raises(TooComplex, match="steps allowed"):
                Checker(schema).defects(value)


def test_a_chain_of_references_and_one_that_closes_are_refused() -> None:
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(5_000)}
    assert "follow each other" in str(judge_schema({"$ref": "#/$defs/d0", "$defs": {**chain, "d5000": {}}}).reason)
    for schema in ({"$ref": "#"}, {"allOf": [{"anyOf": [{"$ref": "#"}]}]}):
        assert "refers to itself" in str(judge_schema(schema).reason)


def test_a_schema_has_a_bounded_number_of_subschemas() -> None:
    why = judge_schema({"properties": {f"p{i}": {} for i in range(20_001)}}).reason
    assert "more than 20,000 subschemas" in str(why)


def test_many_long_numbers_that_must_be_unique_are_too_complex() -> None:
    """The library hashes them alike, and compares each pair."""
    with pytest.raises(TooComplex, match="steps allowed"):
        Checker({"uniqueItems": True}).defects([2**63 + i for i in range(20_000)])


LONG: list[tuple[Any, Any, bool]] = [
    ({"items": {"multipleOf": 1e-300}}, [1e300] * 60_000, True),
    ({"items": {"enum": [{"a": [i]} for i in range(2_000)]}}, [{"a": [1_999]}] * 20_000, True),
    ({"items": {"anyOf": [{"const": i} for i in range(5_000)]}}, [4_999] * 100_000, True),
    ({"patternProperties": {f"^x{i}": {} for i in range(2_000)}}, {f"y{i}": 0 for i in range(50_000)}, True),
    ({"items": {"enum": [10**300 + i for i in range(1_000)]}}, [10**300 + 5] * 5_000, True),
    ({"items": {"enum": list(range(250))}}, [249] * 100_000, False),
    ({"required": [f"k{i}" for i in range(10_000)]}, {f"k{i}": 0 for i in range(10_000)}, False),
]


@pytest.mark.parametrize(("schema", "value", "is_too_complex"), LONG, ids=lambda x: str(x)[:40])
def test_a_check_is_linear_or_too_complex(schema: Any, value: Any, is_too_complex: bool) -> None:  # noqa: FBT001
    assert judge_schema(schema).reason is None
    if is_too_complex:
        with pytest.raises(TooComplex, match="steps allowed"):
            Checker(schema).defects(value)
    else:
        assert Checker(schema).defects(value) == []


def test_compiled_schemas_have_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_caches()
    monkeypatch.setattr(schemas, "_COMPILED_BYTES", 100_000)
    every = [{"title": str(number), "maxLength": 5} for number in range(100)]
    judged = [schemas.judge_schema(schema) for schema in every]
    assert schemas.judge_schema(every[99]) is judged[99]
    assert schemas.judge_schema(every[0]) is not judged[0]
    clear_caches()


def test_an_expression_has_a_bounded_number_of_paths() -> None:
    text = " && ".join(["†state.s"] * 20_000)
    with pytest.raises(ExpressionError, match=f"more than {MAX_PATHS} paths"):
        alternatives(parse(text))
    call = {"_tool": "t", "x": text, "_outputPath": "†state.r"}
    assert only_problem(request(call)).code == "invalidExpression"
    assert alternatives(parse(" && ".join(["†state.s"] * MAX_PATHS)))


@pytest.mark.long
def test_twenty_thousand_calls_are_read_and_with_64_alternatives_each_they_are_too_complex() -> None:
    plain = [{"_tool": "t", "x": "†state.s", "_outputPath": f"†state.r{i}"} for i in range(20_000)]
    assert len(validate_request(request(*plain)).nodes) == 20_000
    wide = " || ".join(f"†state.o{i}" for i in range(64))
    problem = only_problem(request(*[{"_tool": "t", "_outputPath": wide}] * 20_000))
    assert problem.code == TOO_COMPLEX
    assert "1,000,000 steps allowed" in problem.message
    assert problem.call is not None


def test_errors_without_end_end() -> None:
    calls = [{"_tool": "nobody", "y" * 50: 1}] * 20_000
    assert len(validate(request(*calls))) <= MAX_ERRORS + 10
    messages = [{"type": "stat"}] * 50_000
    assert len(read_request({"context": messages}).problems) == MAX_PROBLEMS_READ
    warned = {"type": "state", "state": {}, **{f"k{i}": 1 for i in range(5_000)}}
    read = read_request({"context": [warned, {"type": "text", "text": "read all the same"}]})
    assert len(read.problems) == MAX_PROBLEMS_READ
    assert len(read.context) == 2


def test_five_thousand_tools_are_read_and_fifty_thousand_are_too_complex() -> None:
    small = tool({"type": "string"})
    assert codes(request(tools={f"t{i}": small for i in range(5_000)})) == set()
    problem = only_problem(request(tools={f"t{i}": {} for i in range(50_000)}))
    assert problem.code == TOO_COMPLEX
    assert "reading the tools" in problem.message


def test_a_schema_that_doubles_is_lowered_for_providers_and_answers_are_read() -> None:
    form = doubling(60, BELOW[0])
    tools = validate_request(request(tools={"t": {**tool({"$ref": "#/$defs/d0"}), "$defs": form["$defs"]}})).tools
    schema = compose_solution_schema(tools, None)
    value: Any = "x"
    for _ in range(60):
        value = {"a": value}
    answer = {"calls": [{"_tool": "t", "x": value, "_when": None}] * 50, "output": None}
    assert "_when" not in drop_nulls(answer, schema)["calls"][49]
    for dialect in ("openai", "anthropic"):
        assert choose_form(schema, dialect).schema
