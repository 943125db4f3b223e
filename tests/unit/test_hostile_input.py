"""Input that once took seconds, gigabytes or the whole worker: it is checked in a bounded number of steps, or refused.

No clock: a case that has no bound would not end here. Steps are counted where they are the point.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from activities.providers.schema_bridge import to_wire
from acts.language import compiled_schema, schema_evaluation
from acts.language.byte_cache import ByteCache
from acts.language.compiled_schema import CompiledSchema, clear_caches
from acts.language.errors import ExpressionError, InvalidRequest, Problem, TooComplex, brief
from acts.language.expression_parser import parse
from acts.language.patterns import MAX_POSITIONS, PatternError, compile_pattern, count_positions
from acts.language.references import MAX_PATHS, alternatives
from acts.language.request_reader import MAX_PROBLEMS_READ, read_request
from acts.language.schemas import checker, schema_defect
from acts.language.strict_json import NestingError, read_json
from acts.language.values import MAX_DEPTH, UNKNOWN_TEXT, defect
from acts.language.wire import TOO_COMPLEX
from acts.language.work_meter import WorkMeter
from acts.plan import call_reader
from acts.plan.call_reader import MAX_ERRORS
from acts.plan.validate import validate, validate_request
from acts.planner.answer_schema import compose_solution_schema
from acts.simulation.simulate import simulate
from acts.views.approval_page import simulate_for_page

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


# -- patterns ------------------------------------------------------------------------


@pytest.mark.parametrize("beside", [1, "†state.s"])
def test_a_pattern_that_makes_others_backtrack_for_ever_is_checked_and_explained(beside: Any) -> None:
    call = {"_tool": "t", "x": "a" * 40, "y": beside, "_outputPath": "†state.r"}
    problem = only_problem(request(call, tools={"t": tool({"pattern": EVIL})}))
    assert problem.code == "schemaMismatch"
    assert "does not match" in problem.message


# pattern, a text that fits, one that does not
PATTERNS = [
    (r"^\p{L}+$", "élan", "x1"),
    (r"^\p{Script=Greek}+$", "αβ", "ab"),
    (r"^\d$", "7", "٣"),
    (r"^[^a]\w*$", "b_1", "ab"),
    (r"^(?<name>a|b){2}$", "ab", "abc"),
    (r"^\u00e9\/\-$", "é/-", "e/-"),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), PATTERNS)
def test_a_pattern_means_the_same_to_whoever_accepts_and_explains(pattern: str, good: str, bad: str) -> None:
    for schema, wrap in (
        ({"pattern": pattern}, lambda text: text),
        ({"properties": {"a": {"pattern": pattern}}}, lambda text: {"a": text, "b": "†state.x"}),
    ):
        assert schema_defect(schema) is None
        assert checker(schema).open_defects(wrap(good)) == []
        ((_, text),) = checker(schema).open_defects(wrap(bad))
        assert "does not match" in text


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)b", "look-around"),
        ("(?<!a)b", "look-around"),
        (r"(a)\1", "back-reference"),
        ("[a-", "not a regular expression"),
    ],
)
def test_a_pattern_that_the_engine_does_not_take_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    problem = only_problem(request(tools={"t": tool({"pattern": pattern})}))
    assert (problem.code, problem.pointer) == ("invalidTool", "/context/1/tool/t")
    assert "/properties/x/pattern" in problem.message
    assert reason in problem.message


@pytest.mark.parametrize("pattern", [r"(a{1,1000}){1,1000}", r"(\p{L}{1,99}){1,99}", "(((a{99}){99}){99}){99}"])
def test_a_pattern_that_stands_for_too_many_characters_is_too_complex(pattern: str) -> None:
    problem = only_problem(request(tools={"t": tool({"pattern": pattern})}))
    assert problem.code == TOO_COMPLEX
    assert f"{MAX_POSITIONS:,}" in problem.message or "bytes when it is compiled" in problem.message


POSITIONS = [
    ("abc", 3), ("a{3}", 3), ("a{2,5}b", 6), ("(ab|c){2}d", 7), ("[a-z{}]{4}", 4), (r"\p{L}+\d*", 2), (r"\{3\}", 3),
    ("a{3,}", 4), ("((a{9}){9}){9}", 729), ("", 1),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "positions"), POSITIONS)
def test_the_positions_of_a_pattern_are_counted_with_its_repetitions_written_out(pattern: str, positions: int) -> None:
    assert count_positions(pattern) == positions


def test_a_text_and_a_pattern_that_take_long_together_are_too_complex() -> None:
    check = checker({"pattern": "[ab]*a[ab]{300}c"})
    assert check.defects("ab" * 1000)
    with pytest.raises(TooComplex, match="steps allowed"):
        check.defects("ab" * 500_000)


def test_compiled_patterns_are_the_same_object_and_refusals_say_what_they_took() -> None:
    assert compile_pattern(EVIL) is compile_pattern(EVIL)
    with pytest.raises(PatternError) as caught:
        compile_pattern("a{99999}")
    assert caught.value.is_too_large


# -- schemas that double -----------------------------------------------------------


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
    why = str(schema_defect(doubling(12, shape)))
    assert "subschemas, $ref and allOf written out; at most 10,000 are allowed" in why
    assert schema_defect(doubling(8, shape)) is None
    schema = doubling(30, shape)
    assert "subschemas" in str(schema_defect(schema))
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
def test_a_schema_that_doubles_per_level_of_a_value_is_looked_at_once_per_part(shape: Any) -> None:
    schema = doubling(60, shape)
    assert schema_defect(schema) is None
    value: Any = "x"
    for _ in range(60):
        value = {"a": value}
    meter = WorkMeter("this test", 5_000)
    assert checker(schema).defects(value, meter)


def test_a_chain_of_references_and_one_that_closes_are_refused() -> None:
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(5_000)}
    assert "follow each other" in str(schema_defect({"$ref": "#/$defs/d0", "$defs": {**chain, "d5000": {}}}))
    for schema in ({"$ref": "#"}, {"allOf": [{"anyOf": [{"$ref": "#"}]}]}):
        assert "refers to itself" in str(schema_defect(schema))


def test_a_schema_has_a_bounded_number_of_subschemas() -> None:
    why = schema_defect({"properties": {f"p{i}": {} for i in range(20_001)}})
    assert "more than 20,000 subschemas" in str(why)


# -- keywords that compare everything with everything --------------------------------


@pytest.mark.parametrize(
    "items", [[{"a": i} for i in range(20_000)], [2**63 + i for i in range(20_000)], [[i] for i in range(20_000)]]
)
def test_unique_items_are_found_in_linear_time(items: list[Any]) -> None:
    meter = WorkMeter("this test", 100_000)
    assert checker({"uniqueItems": True}).defects(items, meter) == []
    ((_, text),) = checker({"uniqueItems": True}).defects([*items, items[7]], meter=WorkMeter("this test", 100_000))
    assert "twice" in text


UNIQUE: list[tuple[list[Any], bool]] = [
    ([1, True], True), ([1, 1.0], False), ([0, False, None, "", [], {}], True),
    ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
    ([[1, [2]], [1, [2.0]]], False), ([{"a": [True]}, {"a": [1]}], True), (["1", 1], True), ([], True),
]  # fmt: skip


@pytest.mark.parametrize(("items", "is_unique"), UNIQUE)
def test_items_are_equal_as_json_values_are(items: list[Any], is_unique: bool) -> None:  # noqa: FBT001
    assert (checker({"uniqueItems": True}).defects(items) == []) is is_unique


LONG: list[tuple[Any, Any, bool]] = [
    ({"items": {"multipleOf": 1e-300}}, [1e300] * 60_000, True),
    ({"items": {"enum": [{"a": [i]} for i in range(2_000)]}}, [{"a": [1_999]}] * 20_000, True),
    ({"items": {"anyOf": [{"const": i} for i in range(5_000)]}}, [4_999] * 100_000, True),
    ({"patternProperties": {f"^x{i}": {} for i in range(2_000)}}, {f"y{i}": 0 for i in range(50_000)}, True),
    ({"items": {"enum": [10**300 + i for i in range(1_000)]}}, [10**300 + 5] * 5_000, False),
    ({"items": {"enum": list(range(5_000))}}, [4_999] * 100_000, False),
    ({"required": [f"k{i}" for i in range(10_000)]}, {f"k{i}": 0 for i in range(10_000)}, False),
]


@pytest.mark.parametrize(("schema", "value", "is_too_complex"), LONG, ids=lambda x: str(x)[:40])
def test_a_check_is_linear_or_too_complex(schema: Any, value: Any, is_too_complex: bool) -> None:  # noqa: FBT001
    assert schema_defect(schema) is None
    if is_too_complex:
        with pytest.raises(TooComplex, match="250,000 steps allowed"):
            checker(schema).defects(value)
    else:
        assert checker(schema).defects(value) == []


# -- what was an error of the engine ---------------------------------------------------

MALFORMED: list[Any] = [
    {"anyOf": 5},
    {"properties": 7},
    {"$defs": {"a": {"allOf": "x"}}},
    {"$ref": "#/x", "x": {"anyOf": 5}},
    {"items": {"enum": 4}},
]


@pytest.mark.parametrize("schema", MALFORMED, ids=str)
def test_a_malformed_schema_is_a_problem_of_the_request(schema: Any) -> None:
    assert only_problem(request(tools={"t": tool(schema)})).code == "invalidTool"
    context = [*request()["context"], {"type": "state", "schema": schema}]
    assert codes({"context": context, "schema": schema}) == {"invalidSchema"}


@pytest.mark.parametrize("step", [0.01, 7, 1e-300])
def test_a_number_of_four_hundred_digits_is_refused_beside_multiple_of(step: float) -> None:
    long = {"_tool": "t", "x": 10**400, "_outputPath": "†state.r"}
    problem = only_problem(request(long, tools={"t": tool({"multipleOf": step})}))
    assert (problem.code, problem.pointer) == ("invalidJson", "/context/2/plan/0/x")
    assert isinstance(checker({"multipleOf": step}).defects(10**400 + 1), list)


MULTIPLES: list[tuple[Any, Any, bool]] = [
    (4.02, 0.01, True),
    (0.001, 0.01, False),
    (1e300, 7, False),
    (21, 7, True),
    (7.5, 2.5, True),
    (0, 3, True),
]


@pytest.mark.parametrize(("value", "step", "is_multiple"), MULTIPLES)
def test_multiples_are_those_of_the_decimal_numbers(value: Any, step: Any, is_multiple: bool) -> None:  # noqa: FBT001
    schema = {"properties": {"a": {"multipleOf": step}}}
    assert (checker(schema).defects({"a": value}) == []) is is_multiple
    assert (checker(schema).open_defects({"a": value, "b": "†state.x"}) == []) is is_multiple


# -- depth -------------------------------------------------------------------------------


def test_json_of_ten_thousand_levels_is_refused() -> None:
    with pytest.raises(NestingError):
        read_json("[" * 10_000 + "]" * 10_000)
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    found = defect(deep)
    assert found is not None
    assert f"deeper than {MAX_DEPTH} levels" in found[1]
    with pytest.raises(InvalidRequest, match="deeper than"):
        read_request({"context": deep})
    assert schema_defect({"not": {"items": deep}})


def test_a_value_as_deep_as_allowed_is_checked_with_a_schema_that_follows_it() -> None:
    schema = {"properties": {"a": {"$ref": "#"}}, "additionalProperties": False}
    value: Any = 1
    for _ in range(MAX_DEPTH - 2):
        value = {"a": value}
    assert checker(schema).defects(value) == []
    assert checker(schema).open_defects({"a": value, "b": "†state.x"})


# -- caches ------------------------------------------------------------------------------


@pytest.fixture
def empty_caches() -> Iterator[None]:
    clear_caches()
    yield
    clear_caches()


def test_schemas_that_differ_do_not_stay_in_memory(empty_caches: None) -> None:
    """A hundred schemas of 139 kB took 3.8 MB each, for as long as their Tools lived."""
    checks = []
    for number in range(40):
        schema = {
            "title": str(number),
            "properties": {f"p{i}": {"type": "string", "maxLength": 5} for i in range(3_000)},
        }
        checks.append(checker(schema))
        assert checks[-1].defects({"p1": "123456"})
    gc.collect()
    compiled = [item for item in gc.get_objects() if isinstance(item, CompiledSchema)]
    assert sum(item.size for item in compiled) <= compiled_schema._COMPILED_BYTES
    assert 1 < len(compiled) < len(checks)


def test_a_cache_holds_no_more_bytes_than_it_may() -> None:
    cache: ByteCache[int] = ByteCache(1_000)
    for key in range(1_000):
        cache.put(key, key, 40)
        if key:
            assert cache.get(1) == 1  # what is in use stays
    held = [key for key in range(1_000) if cache.get(key) is not None]
    assert {1, 999} <= set(held)
    assert len(held) * 40 <= 1_000 + 40
    assert cache.put("large", 5, 1_200) == 5
    assert [key for key in (*range(1_000), "large") if cache.get(key) is not None] == ["large"]
    cache.put("small", 6, 10)
    assert (cache.get("large"), cache.get("small")) == (None, 6)


def test_what_fits_into_a_cache_is_built_once_however_it_is_used() -> None:
    """Tools that the Calls of a plan use in turn."""
    cache: ByteCache[int] = ByteCache(1_000)
    built: list[int] = []
    for key in list(range(9)) * 100:
        cache.get_or_build(key, lambda key=key: (built.append(key) or key + 1, 110))
    assert built == list(range(9))


# -- plans -------------------------------------------------------------------------------


def test_an_expression_has_a_bounded_number_of_paths() -> None:
    text = " && ".join(["†state.s"] * 20_000)
    with pytest.raises(ExpressionError, match=f"more than {MAX_PATHS} paths"):
        alternatives(parse(text))
    call = {"_tool": "t", "x": text, "_outputPath": "†state.r"}
    assert only_problem(request(call)).code == "invalidExpression"
    assert alternatives(parse(" && ".join(["†state.s"] * MAX_PATHS)))


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


def test_the_looks_of_the_fast_library_at_the_parameters_of_a_plan_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter of 2,800 alternatives, in 18,000 Calls, took 5 s."""
    monkeypatch.setattr(call_reader, "MAX_PLAN_STEPS", 50_000)
    wide = {"t": tool({"oneOf": [{"const": number} for number in range(2_800)]})}
    calls = [{"_tool": "t", "x": 1, "_outputPath": f"†state.r{i}"} for i in range(300)]
    assert codes(request(*calls[:100], tools=wide)) == set()
    problem = only_problem(request(*calls, tools=wide))
    assert problem.code == TOO_COMPLEX
    assert "reading the calls of the plan" in problem.message


def test_a_large_value_is_checked_once_however_many_calls_and_outcomes_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty Calls that read 400 kB took 20 s on the page where a person approves them."""
    looks = 0
    visit = schema_evaluation.Evaluation.visit

    def count(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return visit(*arguments)

    monkeypatch.setattr(schema_evaluation.Evaluation, "visit", count)
    large = [{"n": i, "text": "x"} for i in range(10_000)]
    form = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}, "uniqueItems": True}}
    calls = [{"_tool": "t", "x": "†state.large", "_outputPath": f"†state.a{i} || †state.b{i}"} for i in range(60)]
    raw = request(*calls, tools={"t": tool(form)}, mode="lazy")
    raw["context"][0]["state"]["large"] = large
    page = simulate_for_page(validate_request(raw))
    assert page is not None
    assert len(page["calls"]) == 60
    assert looks < 5 * len(large)


def test_a_plan_of_many_alternatives_is_simulated_in_part_and_a_larger_one_is_left_off_the_page() -> None:
    def plan(names: str) -> dict[str, Any]:
        wide = [" || ".join(f"†state.c{c}o{i}{names}" for i in range(64)) for c in range(60)]
        return request(*[{"_tool": "t", "_outputPath": path} for path in wide])

    page = simulate_for_page(validate_request(plan("")))
    assert page is not None
    assert page["outcomes"]["truncated"] is True
    assert simulate_for_page(validate_request(plan(".n" * 20))) is None
    assert simulate(plan(".n" * 20))["outcomes"]["truncated"] is True


# -- models ------------------------------------------------------------------------------


def test_a_schema_that_doubles_is_translated_for_providers_and_answers_are_read() -> None:
    form = doubling(60, BELOW[0])
    tools = validate_request(request(tools={"t": {**tool({"$ref": "#/$defs/d0"}), "$defs": form["$defs"]}})).tools
    for dialect in ("openai", "anthropic"):
        wire = to_wire(compose_solution_schema(tools, None), dialect)
        value: Any = "x"
        for _ in range(60):
            value = {"a": value}
        answer = {"calls": [{"_tool": "t", "x": value}] * 50, "output": None}
        assert wire.from_wire(answer) is not None


# -- texts -------------------------------------------------------------------------------


def test_a_value_in_an_error_is_cut_without_writing_all_of_it() -> None:
    class Untouched(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            for index, item in enumerate(super().__iter__()):
                assert index < 100, "looked too far"
                yield item

    assert len(brief(Untouched([1] * 1_000_000))) == 80
    assert brief({"a": ["x", None]}) == "{'a': ['x', None]}"
    assert brief(UNKNOWN_TEXT) == "†…"
