"""Messages in all their forms, what is reported about what is no Message, and the part that a Call may see."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from acts.language.errors import InvalidRequest, Problem
from acts.language.messages import (
    Data,
    ErrorMessage,
    Instruction,
    PlanMessage,
    ToolMessage,
    parse_message,
    parse_request,
    scoped_context,
)
from acts.language.references import Path, parse
from acts.language.values import ABSENT, get

# message, kind, payload
DATA: list[tuple[dict[str, Any], str, Any]] = [
    ({"type": "state", "state": {"a": 1}}, "state", {"a": 1}),
    ({"type": "state", "a": 1}, "state", {"a": 1}),
    ({"type": "input", "input": {"a": 1}}, "input", {"a": 1}),
    ({"type": "input", "a": {"input": 1}}, "input", {"a": {"input": 1}}),
    ({"type": "data", "data": [1]}, "data", [1]),
    ({"type": "data", "kind": "user", "data": {"name": "Ada"}}, "user", {"name": "Ada"}),
    ({"type": "data", "kind": "user", "name": "Ada"}, "user", {"name": "Ada"}),
    ({"type": "data", "kind": "state", "data": {"a": 1}}, "state", {"a": 1}),
    ({"type": "state", "kind": "user", "state": {"a": 1}}, "user", {"a": 1}),
    # a message that has the key named like its type is the wrapped form
    ({"type": "state", "state": {"state": 2}}, "state", {"state": 2}),
    ({"type": "data", "kind": "user", "data": {}, "user": 1}, "user", {}),
    ({"type": "state", "data": {"a": 1}}, "state", {"data": {"a": 1}}),
    ({"type": "state", "state": None}, "state", None),
    ({"type": "state", "state": 5}, "state", 5),
    # the frame is not part of an inline payload
    ({"type": "data", "a": 1, "description": "d", "schema": {}, "_instance": "A"}, "data", {"a": 1}),
    ({"type": "data", "a": 1, "_call": {}, "_date": "d", "_outputMethod": "set"}, "data", {"a": 1}),
    ({"type": "state"}, "state", {}),
    ({"type": "state", "schema": {"type": "object"}}, "state", ABSENT),
    ({"type": "state", "schema": {"type": "object"}, "description": "d"}, "state", ABSENT),
    ({"type": "state", "schema": {"type": "object"}, "state": {}}, "state", {}),
]


@pytest.mark.parametrize(("raw", "kind", "payload"), DATA)
def test_both_forms_of_a_data_like_message_say_the_same(raw: dict[str, Any], kind: str, payload: Any) -> None:
    message = parse_message(raw)
    assert isinstance(message, Data)
    assert message.kind == kind
    assert message.payload is payload or message.payload == payload
    assert message.raw is raw


@pytest.mark.parametrize(
    ("raw", "type_", "text"),
    [
        ({"type": "system", "message": "m"}, "system", "m"),
        ({"type": "text", "text": "t"}, "text", "t"),
        ({"role": "user", "content": "c"}, "text", "c"),
        ({"role": "system", "content": "c"}, "system", "c"),
        ({"type": "text", "text": ""}, "text", ""),
    ],
)
def test_instructions(raw: dict[str, Any], type_: str, text: str) -> None:
    message = parse_message(raw)
    assert isinstance(message, Instruction)
    assert (message.type, message.text) == (type_, text)


def test_the_other_types() -> None:
    plan = parse_message({"type": "plan", "plan": [{"_tool": "a"}]})
    assert isinstance(plan, PlanMessage)
    assert (plan.calls, plan.mode, plan.run) == (({"_tool": "a"},), "eager", False)
    lazy = parse_message({"type": "plan", "mode": "lazy", "run": True})
    assert isinstance(lazy, PlanMessage)
    assert (lazy.calls, lazy.mode, lazy.run) == ((), "lazy", True)
    assert isinstance(parse_message({"type": "tool", "tool": "Tool.charge"}), ToolMessage)
    assert isinstance(parse_message({"type": "error", "data": {"call": "1:a", "error": {}}}), ErrorMessage)


# message, code, pointer below the message, what its text says
REFUSED: list[tuple[Any, str, str, str]] = [
    (
        {"type": "stat", "state": {}},
        "unknownMessageType",
        "/type",
        "known: system, text, data, input, state, tool, plan, error",
    ),
    ({"state": {}}, "unknownMessageType", "/type", "message 0 has no type"),
    ({"type": None}, "unknownMessageType", "/type", "message 0"),
    ("state", "invalidMessage", "", "not string"),
    ([], "invalidMessage", "", "not list"),
    ({"type": "text"}, "invalidMessage", "/text", "is a string"),
    ({"type": "system", "message": 5}, "invalidMessage", "/message", "is a string"),
    ({"role": "user", "content": [{"type": "text"}]}, "invalidMessage", "/content", "is a string"),
    ({"type": "data", "kind": "a.b", "data": 1}, "invalidMessage", "/kind", "letters, digits"),
    ({"type": "data", "kind": "a\n", "data": 1}, "invalidMessage", "/kind", "letters, digits"),
    ({"type": "state", "schema": "string"}, "invalidSchema", "/schema", "not string"),
    ({"type": "state", "_instance": ""}, "invalidMessage", "/_instance", "non-empty"),
    (
        {"type": "state", "_outputMethod": "append"},
        "invalidMessage",
        "/_outputMethod",
        "set, merge, assign, push, concat",
    ),
    ({"type": "state", "_outputMethod": ["set"]}, "invalidMessage", "/_outputMethod", "allowed"),
    ({"type": "state", "_outputPath": "†data.x"}, "invalidMessage", "/_outputPath", "†state"),
    ({"type": "state", "_outputPath": "†state.a || †state.b"}, "invalidMessage", "/_outputPath", "one path"),
    ({"type": "state", "_outputPath": "†state..a"}, "invalidMessage", "/_outputPath", "one path"),
    ({"type": "tool"}, "invalidTool", "/tool", "found nothing"),
    ({"type": "tool", "tool": ["a"]}, "invalidTool", "/tool", "found list"),
    ({"type": "plan", "plan": {}}, "invalidPlan", "/plan", "not object"),
    ({"type": "plan", "plan": [], "mode": "fast"}, "invalidPlan", "/mode", "eager, lazy"),
]


@pytest.mark.parametrize(("raw", "code", "pointer", "says"), REFUSED)
def test_what_is_no_message_is_refused_with_its_place(raw: Any, code: str, pointer: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_message(raw)
    (problem,) = [p for p in caught.value.problems if p.fatal]
    assert problem.code == code
    assert problem.pointer == f"/context/0{pointer}"
    assert says in problem.message


def problems_of(raw: Any) -> list[Problem]:
    with pytest.raises(InvalidRequest) as caught:
        parse_request(raw)
    return [p for p in caught.value.problems if p.fatal]


@pytest.mark.parametrize(
    "raw", [None, 5, "x", [], True, {"context": {}}, {"context": "x"}, {"contxt": []}, {"context": None}]
)
def test_what_is_no_request_is_refused(raw: Any) -> None:
    assert problems_of(raw)


def test_all_problems_of_shape_are_reported_at_once() -> None:
    problems = problems_of({"context": [{"type": "x"}, 5, {"type": "text"}], "extra": 1, "config": {"maxTick": 1}})
    assert [p.pointer for p in problems] == [
        "/extra",
        "/config/maxTick",
        "/context/0/type",
        "/context/1",
        "/context/2/text",
    ]
    assert 'did you mean "maxTicks"?' in str(problems[1].hint)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if depth % 2 else {"k": value}
    return value


@pytest.mark.parametrize(
    "value",
    [nested(10_000), float("nan"), float("-inf"), "\ud800", {"\ud800": 1}, {"k": ["\udc00"]}],
    ids=["deep objects", "nan", "inf", "surrogate", "key", "inside"],
)
@pytest.mark.parametrize(
    "place",
    [
        lambda v: v,
        lambda v: {"context": [v]},
        lambda v: {"context": [{"type": "state", "state": v}]},
        lambda v: {"context": [{"type": "tool", "tool": {"a": {"properties": {"x": v}}}}]},
        lambda v: {"context": [{"type": "plan", "plan": [{"_tool": "a", "x": v}]}]},
        lambda v: {"context": [], "config": {"model": v}},
    ],
    ids=["request", "message", "payload", "tool", "call", "model"],
)
def test_json_that_cannot_be_stored_is_refused_anywhere(place: Any, value: Any) -> None:
    (problem,) = problems_of(place(value))
    assert problem.code == "invalidJson"
    assert len(problem.text()) < 700
    problem.text().encode()


SETTINGS_REFUSED: list[tuple[Any, str]] = [
    ({"maxParallel": 0}, "/config/maxParallel"),
    ({"maxParallel": 1.5}, "/config/maxParallel"),
    ({"missing": "ignore"}, "/config/missing"),
    ({"approve": {"timeout": "soon"}}, "/config/approve/timeout"),
    ({"approve": {"timeout": "10 years"}}, "/config/approve/timeout"),
    ({"approve": {"calls": [1]}}, "/config/approve/calls"),
    ({"budget": {"cost": -1}}, "/config/budget/cost"),
    ({"temperature": -0.1}, "/config/temperature"),
    ([], "/config"),
    ("x", "/config"),
]


@pytest.mark.parametrize(("config", "pointer"), SETTINGS_REFUSED)
def test_a_setting_that_cannot_be_is_refused_with_its_place(config: Any, pointer: str) -> None:
    problems = problems_of({"config": config, "context": []})
    assert all(p.code == "invalidSetting" and p.pointer.startswith(pointer) for p in problems)


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("30s", 30), ("5m", 300), ("24h", 86_400), ("250ms", 0.25), ("1.5h", 5400), ("2d", 172_800), (12, 12), (0.5, 0.5)],
)
def test_durations(duration: Any, seconds: float) -> None:
    request = parse_request({"config": {"approve": {"timeout": duration}}, "context": []})
    assert request.config.approve.timeout == seconds


@pytest.mark.parametrize(
    ("request_", "hint"),
    [
        ({"contxt": []}, 'did you mean "context"?'),
        ({"nonsense": 1}, "a Request has config, context and schema"),
        ({"contxt": [], **{f"k{n}": 1 for n in range(100)}}, "a Request has config, context and schema"),
        ({"context": [{"typ": "tool", "tool": "x"}]}, 'is "typ" meant to be "type"?'),
        ({"context": [{"tool": "x"}]}, None),
    ],
)
def test_a_misspelt_key_gets_a_suggestion(request_: dict[str, Any], hint: str | None) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request(request_)
    assert hint in [p.hint for p in refused.value.problems]


CONTEXT: dict[str, Any] = {
    "state": {
        "user": {"name": "Ada", "age": 36, "card": {"number": "secret"}},
        "list": [{"n": 1, "secret": 1}, {"n": 2, "secret": 2}, {"n": 3, "secret": 3}],
        "map": {"0": {"n": 0}, "1": {"n": 1}},
        "null": None,
        "empty": {},
    },
    "input": {"q": 1},
    "limits": [500],
    "plainly": "text",
}

# scopes, the messages
SCOPED: list[tuple[list[str], list[dict[str, Any]]]] = [
    ([], []),
    (["†state"], [{"type": "state", "state": CONTEXT["state"]}]),
    (["†limits"], [{"type": "data", "kind": "limits", "data": [500]}]),
    (["†state.nothing", "†nothing"], []),
    (["†state.user.name.first"], []),
    (["†state.user.name"], [{"type": "state", "state": {"user": {"name": "Ada"}}}]),
    (
        ["†state.user.name", "†input", "†state.user.age"],
        [{"type": "state", "state": {"user": {"name": "Ada", "age": 36}}}, {"type": "input", "input": {"q": 1}}],
    ),
    (["†state.user", "†state.user.name"], [{"type": "state", "state": {"user": CONTEXT["state"]["user"]}}]),
    (["†state.user.name", "†state"], [{"type": "state", "state": CONTEXT["state"]}]),
    (["†state.null", "†state.empty"], [{"type": "state", "state": {"null": None, "empty": {}}}]),
    (["†state.list.1.n"], [{"type": "state", "state": {"list": [None, {"n": 2}]}}]),
    (["†state.list[2].n", "†state.list[0].n"], [{"type": "state", "state": {"list": [{"n": 1}, None, {"n": 3}]}}]),
    (["†state.list[1].n", "†state.list"], [{"type": "state", "state": {"list": CONTEXT["state"]["list"]}}]),
    (["†state.list[999999999]"], []),
    (["†state.map.1", "†state.map.0"], [{"type": "state", "state": {"map": {"1": {"n": 1}, "0": {"n": 0}}}}]),
    (["†limits[0]"], [{"type": "data", "kind": "limits", "data": [500]}]),
]


def read(path: Path) -> Any:
    return get(CONTEXT.get(path.kind, ABSENT), path.names)


def paths(scopes: list[str]) -> list[Path]:
    parsed = [parse(s) for s in scopes]
    assert all(isinstance(p, Path) for p in parsed)
    return parsed  # type: ignore[return-value]


@pytest.mark.parametrize(("scopes", "messages"), SCOPED, ids=lambda x: str(x)[:60])
def test_a_call_sees_what_its_scopes_name(scopes: list[str], messages: list[dict[str, Any]]) -> None:
    assert scoped_context(paths(scopes), read) == messages


def test_each_of_many_scopes_is_placed_once() -> None:
    count = 2_000
    context = {"list": list(range(count)), "map": {f"k{i}": i for i in range(count)}}
    calls = [0]

    def count_call(_frame: object, event: str, _argument: object) -> None:
        calls[0] += event == "call"

    scopes = [Path(kind, (name,)) for i in range(count) for kind, name in (("list", str(i)), ("map", f"k{i}"))]
    sys.setprofile(count_call)
    try:
        messages = scoped_context(scopes, lambda path: get(context[path.kind], path.names))
    finally:
        sys.setprofile(None)
    assert [m["data"] for m in messages] == [context["list"], context["map"]]
    assert calls[0] < 50 * count
