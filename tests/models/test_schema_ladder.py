"""The form in which a schema is sent: what fits, what is loosened, and what a rejection leads to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from activities.providers.interface import ModelError
from activities.providers.provider_keywords import Dialect
from activities.providers.schema_bridge import to_wire
from activities.providers.schema_ladder import SchemaLadder
from activities.providers.schema_size import LIMITS, SchemaSize, find_excess, measure_schema
from acts.planner.answer_schema import compose_solution_schema
from tests.models import rawserver
from tests.models.rawserver import RawServer, Reply
from tests.models.support import APIS, Api, ask
from tools.live_smoke import build_tools

COUNTS = (1, 5, 20, 50, 100)
TOO_COMPLEX = "The compiled grammar is too large"


def ladder(dialect: Dialect) -> SchemaLadder:
    return SchemaLadder(dialect, has_unenforced=dialect == "openai")


def solution_schema(count: int) -> Any:
    return compose_solution_schema(build_tools(count), None)


def loosened_call(name: str, **properties: Any) -> dict[str, Any]:
    """A Call as a model writes it where its Tool is loosened."""
    return {"_tool": name, "_more": json.dumps(properties)}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dialect", ["anthropic", "openai"])
def test_what_is_sent_first_is_within_the_limits_and_takes_calls_of_every_tool(dialect: Dialect, count: int) -> None:
    sent = ladder(dialect).choose("model", solution_schema(count))
    assert find_excess(measure_schema(sent.wire.schema), LIMITS[dialect]) is None
    assert sent.form == ("loosened" if dialect == "anthropic" and count >= 20 else "strict")
    for number in range(1, count + 1):
        name = f"tool_{number}"
        is_loose = f'"{name}"' in sent.words
        values = {"amount": 1.5, "note": "n", "labels": {"a": "b"}}
        call = {"_tool": name, **values}
        wire = loosened_call(name, **values) if is_loose else {**call, "labels": '{"a": "b"}'}
        back = sent.wire.from_wire({"calls": [wire], "output": None})["calls"][0]
        assert {k: v for k, v in back.items() if k in call} == call


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("dialect", "forms"),
    [
        ("anthropic", ["strict", "loosened", "words"]),
        ("openai", ["strict", "loosened", "unenforced", "words"]),
    ],
)
def test_a_schema_that_is_too_complex_goes_down_one_form_at_a_time(
    dialect: Dialect, forms: list[str], count: int
) -> None:
    steps, schema = ladder(dialect), solution_schema(count)
    sent = steps.choose("model", schema)
    path, sizes = [sent.form], [measure_schema(sent.wire.schema).grammar]
    while steps.reject("model", schema, sent, TOO_COMPLEX):
        sent = steps.choose("model", schema)
        path.append(sent.form)
        sizes += [measure_schema(sent.wire.schema).grammar] if sent.form == "loosened" else []
    assert [f for i, f in enumerate(path) if f not in path[:i]] == [f for f in forms if f in path]
    assert path[-1] == "words"
    assert sizes == sorted(sizes, reverse=True)
    assert "JSON" in sent.words
    assert steps.choose("model", schema) is sent
    assert steps.choose("another model", schema).form == path[0]


def test_the_largest_tools_are_loosened_first() -> None:
    tools = build_tools(20)
    large = build_tools(21)["tool_21"]
    large.schema["properties"].update({f"p{i}": {"type": "string"} for i in range(40)})
    sent = ladder("anthropic").choose("model", compose_solution_schema({**tools, "tool_21": large}, None))
    assert sent.form == "loosened"
    assert "tool_21" in sent.words


def test_a_schema_of_another_kind_is_not_tried_again_as_an_enforced_one() -> None:
    steps, schema = ladder("openai"), solution_schema(5)
    steps.reject("model", schema, steps.choose("model", schema), "Invalid schema: 'oneOf' is odd")
    assert steps.choose("model", schema).form == "unenforced"
    steps.reject("server", schema, steps.choose("server", schema), "json_schema is not supported")
    assert steps.choose("server", schema).form == "words"


@pytest.mark.parametrize(
    ("schema", "excess"),
    [
        ({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(25)}}, "optional properties"),
        ({"type": "object", "required": [f"p{i}" for i in range(17)],
          "properties": {f"p{i}": {"type": ["string", "null"]} for i in range(17)}}, "unions"),
        ({"type": "object", "required": [f"p{i}" for i in range(300)],
          "properties": {f"p{i}": {"type": "string"} for i in range(300)}}, "bytes of grammar"),
    ],
)  # fmt: skip
def test_anthropic_s_limits_are_measured(schema: dict[str, Any], excess: str) -> None:
    assert excess in str(find_excess(measure_schema(schema), LIMITS["anthropic"]))


@pytest.mark.parametrize(
    ("schema", "excess"),
    [
        ({"properties": {f"p{i}": {} for i in range(5_001)}}, "properties"),
        ({"properties": {"a": {"enum": [f"v{i}" for i in range(1_001)]}}}, "values of enums"),
        ({"properties": {"a": {"enum": [f"{'v' * 60}{i}" for i in range(251)]}}}, "characters of one enum"),
        ({"properties": {"a": {"const": "x" * 120_001}}}, "characters of names"),
    ],
)
def test_openai_s_limits_are_measured(schema: dict[str, Any], excess: str) -> None:
    assert excess in str(find_excess(measure_schema(schema), LIMITS["openai"]))


def test_depth_is_counted_within_a_definition() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(11):
        schema = {"type": "object", "properties": {"a": schema}}
    assert "levels" in str(find_excess(measure_schema(schema), LIMITS["openai"]))
    assert find_excess(measure_schema({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {}}}), LIMITS["openai"]) is None


def test_texts_for_readers_are_no_grammar() -> None:
    plain = {"type": "object", "properties": {"title": {"type": "string"}}}
    shown = {"type": "object", "title": "T", "properties": {"title": {"type": "string", "description": "x" * 9_000}}}
    assert measure_schema(shown).grammar == measure_schema(plain).grammar
    assert measure_schema(plain) != SchemaSize()


# -- the alternatives of a union ----------------------------------------------------------


def alternative(kind: str, *others: str) -> dict[str, Any]:
    properties: dict[str, Any] = {name: {"type": "string"} for name in others}
    properties["kind"] = {"const": kind}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@pytest.mark.parametrize("dialect", ["anthropic", "openai"])
def test_objects_of_a_union_begin_with_what_distinguishes_them(dialect: Dialect) -> None:
    union = {"anyOf": [alternative("a", "x"), alternative("b", "x", "y")]}
    schema = {"type": "object", "properties": {"u": union}, "required": ["u"], "additionalProperties": False}
    wire = to_wire(schema, dialect)
    branches = wire.schema["properties"]["u"]["anyOf"]
    assert [next(iter(branch["properties"])) for branch in branches] == ["kind", "kind"]
    value = {"u": {"kind": "b", "x": "1", "y": "2"}}
    assert wire.from_wire(value) == value


def test_objects_that_openai_could_not_distinguish_are_json_text() -> None:
    options = [{"type": "object", "properties": {"x": {"type": "string"}, n: {"type": "number"}}} for n in ("y", "z")]
    schema = {"type": "object", "properties": {"u": {"anyOf": options}}, "required": ["u"]}
    wire = to_wire(schema, "openai")
    assert wire.schema["properties"]["u"]["type"] == "string"
    assert wire.from_wire({"u": '{"x": "1", "z": 2}'}) == {"u": {"x": "1", "z": 2}}


# -- as requests --------------------------------------------------------------------------------


def claude_rejection(message: str, status: int = 400, kind: str = "invalid_request_error") -> Reply:
    return Reply(status=status, body={"type": "error", "error": {"type": kind, "message": message}})


async def test_a_500_after_minutes_of_compiling_leads_to_an_easier_form(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = APIS["anthropic"]
    monkeypatch.setattr("activities.providers.anthropic.COMPILE_SECONDS", 0.0)
    failure = claude_rejection("Internal server error", 500, "api_error")
    raw.reply_with(failure, api.reply(json.dumps({"calls": [], "output": None})))
    answer = await ask(api, schema=solution_schema(5))
    assert answer.form == "loosened"
    first, second = (len(json.dumps(api.strict_schema(request.body))) for request in raw.requests)
    assert second < first / 2 + 500


async def test_a_500_at_once_is_no_rejection(raw: RawServer) -> None:
    api = APIS["anthropic"]
    raw.reply_with(claude_rejection("Internal server error", 500, "api_error"))
    with pytest.raises(Exception, match="Internal server error"):
        await ask(api, schema=solution_schema(5))
    assert len(raw.requests) == 1


@pytest.mark.parametrize("name", ["chat", "responses"])
async def test_openai_gets_the_whole_schema_unenforced_and_then_in_the_input(
    raw: RawServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    api: Api = APIS[name]
    for key, value in api.env.items():
        monkeypatch.setenv(key, value)
    messages = ["Invalid schema for response_format: it is odd", "Invalid schema: json_schema is not supported"]
    raw.reply_with(*(Reply(status=400, body={"error": {"message": text}}) for text in messages))
    raw.reply_with(api.reply(json.dumps({"calls": [], "output": None})))
    answer = await ask(api, schema=solution_schema(1))
    assert answer.form == "words"
    formats = [
        r.body["text"]["format"] if name == "responses" else r.body["response_format"] for r in raw.requests
    ]  # fmt: skip
    assert [f["type"] for f in formats] == ["json_schema", "json_schema", "json_object"]
    sent = [f if name == "responses" else f["json_schema"] for f in formats[:2]]
    assert [f["strict"] for f in sent] == [True, False]
    shown = raw.body["input" if name == "responses" else "messages"]
    assert "JSON" in json.dumps(shown)
    assert "tool_1" in json.dumps(shown)
    assert name == "chat" or "tool_1" not in raw.body["instructions"]


async def test_a_loosened_tool_s_calls_are_streamed_in_the_form_of_the_original(raw: RawServer) -> None:
    received: list[Any] = []
    schema = solution_schema(100)
    sent = ladder("anthropic").choose("any", schema)
    name = next(f"tool_{i}" for i in range(100, 0, -1) if f'"tool_{i}"' in sent.words)
    text = json.dumps({"calls": [loosened_call(name, amount=2)], "output": None})
    raw.reply_with(Reply(events=rawserver.claude(text)))

    def receive(index: int, call: Any) -> None:
        received.append((index, call))

    api = APIS["anthropic"]
    answer = await ask(api, on_call=receive, schema=schema)  # type: ignore[arg-type] - any receiver
    assert received == [(0, {"_tool": name, "amount": 2})]
    assert answer.value["calls"] == [{"_tool": name, "amount": 2}]
    assert name in raw.body["system"][-1]["text"]


def test_a_schema_with_which_no_answer_could_be_checked_is_not_sent() -> None:
    large = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(20_000)}}
    with pytest.raises(ModelError, match="more than 20,000 subschemas: give it fewer tools") as refusal:
        ladder("openai").choose("model", large)
    assert (refusal.value.code, refusal.value.retryable) == ("tooComplex", False)
