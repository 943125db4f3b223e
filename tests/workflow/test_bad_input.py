"""Whatever starts a run or is signalled to it: it ends in a clear error, and never in a task retried for ever.

Every wait is bounded (``ended``); a run that retries its workflow task for ever fails its test.
"""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowQueryFailedError
from temporalio.common import RawValue

from tests.workflow.foreign import Foreign, call, ended, failure, note_of, of_type, result_of_failed, states, tool
from tests.workflow.tools import echo

Json = Any


def payload(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    """An argument as some other SDK, a codec or a mistake would send it."""
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


def deep(levels: int) -> bytes:
    return b'{"context":' + b"[" * levels + b"]" * levels + b"}"


PAYLOADS: dict[str, tuple[list[Json], str]] = {
    "nothing": ([], "without a Request"),
    "null": ([None], "not null"),
    "a string": (["plan"], "not string"),
    "a number": ([1], "not number"),
    "a list": ([[{"type": "plan"}]], "not list"),
    "bytes": ([b"\x00\xff"], "binary/plain, not JSON"),
    "an unknown encoding": ([payload(b"{}", b"binary/encrypted")], "binary/encrypted, not JSON"),
    "no encoding": ([RawValue(Payload(metadata={"mine": b"1"}, data=b"{}"))], "without an encoding"),
    "an encoding that is no text": ([payload(b"{}", b"\xff\xfe")], "not JSON"),
    "empty": ([payload(b"")], "not JSON"),
    "half of it": ([payload(b'{"context": [')], "not JSON"),
    "not UTF-8": ([payload(b'{"context": "\xff"}')], "not JSON"),
    "NaN": ([{"context": [{"type": "state", "a": float("nan")}]}], "NaN is not a JSON number"),
    "infinity": ([payload(b'{"context": [{"type": "state", "a": 1e999}]}')], "the number 1e999 is too large"),
    "a number of 5,000 digits": ([payload(b'{"a": ' + b"9" * 5000 + b"}")], "not JSON"),
    "10,000 levels": ([payload(deep(10_000))], "not JSON"),
    "900 levels": ([payload(deep(900))], "nested deeper"),
    "a lone surrogate": ([payload(rb'{"context": [{"type": "text", "text": "\ud800"}]}')], "lone surrogate"),
    "a lone surrogate in a key": ([payload(rb'{"context": [{"type": "state", "\udfff": 1}]}')], "lone surrogate"),
    "an unknown key": ([{"plan": []}], 'unknown key "plan"'),
    "no plan": ([{"context": []}], "no plan message"),
}


@pytest.mark.parametrize("name", PAYLOADS)
async def test_a_malformed_request_is_refused_with_what_was_found(foreign: Foreign, name: str) -> None:
    arguments, expected = PAYLOADS[name]
    error = await failure(await foreign.start(*arguments))
    assert error.type == "InvalidRequest"
    assert expected in error.message
    assert error.details[0][0]["code"]
    assert error.failure is not None
    assert not error.failure.stack_trace  # where in the engine that was found out helps nobody


ECHO = tool("echo", activity="echo", options={}, number={"type": "integer"})
STATE = {"type": "state", "state": {"list": [1], "n": 5, "a.b": {"c d": 1}}}


def with_plan(*calls: Json, tools: Json = ECHO, **config: Json) -> dict[str, Json]:
    return {"config": config, "context": [tools, STATE, {"type": "plan", "plan": list(calls)}]}


def with_tool(**options: Json) -> dict[str, Json]:
    return with_plan(call("echo", "†state.x"), tools=tool("echo", activity="echo", options=options))


CYCLE = [call("echo", "†state.p", value="†state.q"), call("echo", "†state.q", value="†state.p")]

REQUESTS: dict[str, tuple[Json, str, str]] = {
    "an unknown type": ({"context": [{"type": "sate", "a": 1}]}, "unknownMessageType", 'did you mean "state"?'),
    "an unknown tool": (with_plan({"_tool": "ehco"}), "unknownTool", 'unknown tool "ehco" in call 1; known: echo'),
    "a cycle": (with_plan(*CYCLE), "cycle", "1:echo reads †state.q, written by 2:echo; 2:echo reads †state.p"),
    "2 ** 40 alternatives": (
        with_plan(call("echo", " && ".join(f"(†state.a{i} || †state.b{i})" for i in range(40)))),
        "invalidExpression",
        "alternatives",
    ),
    "an output path of 5,000 names": (with_plan(call("echo", "†state" + ".a" * 5000)), "", "_outputPath"),
    "a name without end": (with_plan(tools={"type": "tool", "tool": {"x" * 300: {}}}), "invalidTool", "1 to 200"),
    "NUL in a name": (with_plan(tools={"type": "tool", "tool": {"a\0b": {}}}), "invalidTool", "printable"),
    "an unknown option": (with_tool(retries=3), "invalidSetting", 'unknown setting "retries"'),
    "a queue that is too long": (with_tool(taskQueue="ю" * 1000), "invalidSetting", "taskQueue"),
    "a queue of the server's own": (with_tool(taskQueue="/_sys/mine"), "invalidSetting", "taskQueue"),
    "no time": (with_tool(timeout=0), "invalidSetting", "a duration is"),
    "less time than Temporal knows": (with_tool(timeout=1e-9), "invalidSetting", "timeout"),
    "no attempts": (with_tool(retry={"maxAttempts": 0}), "invalidSetting", "maxAttempts"),
    "too many calls for the budget": (with_plan(call("echo"), budget={"calls": 0}), "limitExceeded", "budget allows 0"),
    "more calls than one plan takes": (with_plan(*[call("echo")] * 20_001), "limitExceeded", "at most 20000"),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_plan_that_cannot_be_walked_is_refused_before_anything_runs(foreign: Foreign, name: str) -> None:
    request, code, expected = REQUESTS[name]
    handle = await foreign.start(request)
    error = await failure(handle)
    assert error.type == "InvalidRequest", repr(error)
    codes = [p["code"] for p in error.details[0] if p.get("severity") != "warning"]
    assert (code in codes) if code else codes
    assert expected in error.message
    assert await of_type(handle, "ACTIVITY_TASK_SCHEDULED") == []


async def test_a_request_that_could_not_be_kept_is_refused(foreign: Foreign) -> None:
    error = await foreign.failure(context=[{"type": "text", "text": "x" * 2_050_000}])
    assert error.type == "InvalidRequest"
    assert "bytes" in error.message


async def test_a_value_of_the_wrong_type_fails_its_call_before_it_runs(foreign: Foreign) -> None:
    ran: list[str] = []

    async def strict(call: Json, tool: Json, context: Json) -> None:
        ran.append(call["_tool"])

    async with foreign.serving(strict, echo):
        handle = await foreign.start(
            foreign.request(
                call("echo", "†state.word", value="five"),
                call("strict", "†state.x", number="†state.word"),
                call("strict", "†state.y", number="†state.word", _errorPath="†state.problem"),
                call("echo", "†state.z", value=1),
                context=[foreign.tool("strict", number={"type": "integer"})],
            )
        )
        result = await result_of_failed(handle)
    assert ran == []
    assert list(states(result).values()) == ["completed", "failed", "completed", "completed"]
    assert result["errors"][0]["code"] == "SchemaMismatch"
    assert "/number" in result["errors"][0]["message"]
    assert result["state"]["problem"]["code"] == "SchemaMismatch"
    assert result["state"]["z"] == 1


SIGNALS: dict[str, tuple[str, list[Json], str]] = {
    "nothing": ("provide", [], "refused"),
    "bytes": ("provide", [b"\x00"], "binary/plain"),
    "an unknown encoding": ("provide", [payload(b"{}", b"binary/encrypted")], "binary/encrypted"),
    "half of it": ("provide", [payload(b'{"type":')], "not JSON"),
    "NaN": ("provide", [{"type": "input", "input": float("nan")}], "NaN"),
    "10,000 levels": ("provide", [payload(deep(10_000))], "not JSON"),
    "900 levels": ("provide", [payload(deep(900))], "nested deeper"),
    "a lone surrogate": ("provide", [payload(rb'{"type": "input", "input": "\ud800"}')], "lone surrogate"),
    "a string": ("provide", ["hello"], "not string"),
    "an unknown type": ("provide", [{"type": "inptu"}], "unknown type"),
    "a plan": ("provide", [{"type": "plan", "plan": []}], "cannot be provided"),
    "an unknown instance": ("provide", [{"type": "input", "a": 1, "_instance": "A"}], "unknown instance"),
}


@pytest.mark.parametrize("name", SIGNALS)
async def test_a_signal_that_cannot_be_read_is_noted_and_harms_nothing(foreign: Foreign, name: str) -> None:
    signal, arguments, expected = SIGNALS[name]
    async with foreign.serving(echo):
        handle = await foreign.start(
            foreign.request(
                call("echo", "†state.before", value=1), call("echo", "†state.x", value="†input.name"), missing="wait"
            )
        )
        await handle.signal(signal, args=arguments)
        assert expected in await note_of(handle, expected)
        await handle.signal("provide", {"type": "input", "name": "Ada"})
        assert (await ended(handle))["state"] == {"before": 1, "x": "Ada"}


@pytest.mark.parametrize(
    "page",
    [b"\0", "all", 7, {"offset": "one"}, {"offset": -3}, {"limit": None}, {"path": 5}, {"path": "†x", "instance": []}],
)
async def test_a_query_that_cannot_be_read_is_refused_or_answered_and_the_run_goes_on(
    foreign: Foreign, page: Json
) -> None:
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(call("echo", "†state.x", value="†input.name"), missing="wait"))
        try:
            found = await handle.query("context", page)
        except WorkflowQueryFailedError as error:
            found = str(error)
        assert isinstance(found, (str, list, dict)), "nothing before the run has read its Request"
        await handle.signal("provide", {"type": "input", "name": "Ada"})
        assert (await ended(handle))["state"] == {"x": "Ada"}
