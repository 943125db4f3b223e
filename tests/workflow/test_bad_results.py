"""Whatever comes of an Activity: its Call ends in a clear error, and nothing else is touched by it.

Every test runs a good Call beside the bad one: what it completed must be in the result.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from tests.workflow.foreign import (
    Foreign,
    Function,
    Handle,
    call,
    ended,
    events,
    result_of_failed,
    states,
    tool,
)
from tests.workflow.tools import ONCE, echo, refuse

Json = Any

GOOD = call("echo", "†state.good", value=1)


async def ends(foreign: Foreign, bad: Function, **options: Json) -> tuple[dict[str, Json], list[int]]:
    """The error a Call of this Activity ends with, and its attempts. It is taken by an error path, then by nobody."""

    @activity.defn(name="bad")
    async def served(call: Json, tool: Json, context: Json) -> Json:
        return await bad(call, tool, context)

    options = {"retry": {"maxAttempts": 2, "initialInterval": "1ms"}, **options}
    tools = [foreign.tool("bad", options=options)]
    async with foreign.serving(served, echo, refuse):
        run = await foreign.start(
            foreign.request(GOOD, call("bad", "†state.x", _errorPath="†data.problem"), context=tools)
        )
        caught = await ended(run)
        handle = await foreign.start(foreign.request(GOOD, call("bad", "†state.x"), context=tools))
        uncaught = await result_of_failed(handle)
    assert caught["state"] == uncaught["state"] == {"good": 1}
    assert states(caught) == {"1:echo": "completed", "2:bad": "completed"}
    assert states(uncaught) == {"1:echo": "completed", "2:bad": "failed"}
    error = caught["calls"][1]["error"]
    assert caught["context"][1]["data"] == {"problem": error}
    assert uncaught["errors"] == [{"call": "2:bad", **error}]
    return error, await attempts_of(run, "bad")


async def attempts_of(handle: Handle, activity_type: str) -> list[int]:
    """1, 2, … as the server counts them: a worker may begin with one after its time."""
    history = await events(handle)
    ids = {
        e.event_id for e in history if e.activity_task_scheduled_event_attributes.activity_type.name == activity_type
    }
    started = [e.activity_task_started_event_attributes for e in history]
    return list(range(1, 1 + max(s.attempt for s in started if s.scheduled_event_id in ids)))


def nested(levels: int) -> Json:
    value: Json = 1
    for _ in range(levels):
        value = [value]
    return value


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


RESULTS: dict[str, tuple[Callable[[], Json], str]] = {
    "bytes": (lambda: b"\x00\xff", "binary/plain, not JSON"),
    "an unknown encoding": (lambda: raw(b"{}", b"binary/encrypted"), "binary/encrypted, not JSON"),
    "half of it": (lambda: raw(b'{"a":'), "not JSON"),
    "not UTF-8": (lambda: raw(b'"\xff"'), "not JSON"),
    "NaN": (lambda: {"a": [float("nan")]}, "NaN is not a JSON number"),
    "infinity": (lambda: raw(b"[1e999]"), "the number 1e999 is too large"),
    "a lone surrogate": (lambda: {"a": "\ud800"}, "lone surrogate at /a"),
    "a lone surrogate in a key": (lambda: {"\ud800": 1}, "lone surrogate"),
    "101 levels": (lambda: nested(101), "nested deeper than"),
    "10,000 levels": (lambda: raw(b"[" * 10_000 + b"]" * 10_000), "not JSON"),
}


@pytest.mark.parametrize("name", RESULTS)
async def test_a_result_that_is_not_json_fails_its_call(foreign: Foreign, name: str) -> None:
    make, expected = RESULTS[name]

    async def bad(call: Json, tool: Json, context: Json) -> Json:
        return make()

    error, attempts = await ends(foreign, bad)
    assert error["code"] == "NotJson"
    assert expected in error["message"]
    assert attempts == [1]


async def test_a_result_of_90_levels_is_kept(foreign: Foreign) -> None:
    async def deep(call: Json, tool: Json, context: Json) -> Json:
        return nested(90)

    async with foreign.serving(deep, echo):
        result = await foreign.run(call("deep", "†state.a.b"), call("echo", "†data.x", value="†state.a.b[0]"))
    assert result["status"] == "completed"


async def test_a_result_that_cannot_be_recorded_fails_its_call_at_the_first_attempt(foreign: Foreign) -> None:
    async def bad(call: Json, tool: Json, context: Json) -> str:
        return "x" * 3_000_000

    error, attempts = await ends(foreign, bad)
    assert error["code"] == "PayloadsTooLarge"
    assert "size" in error["message"]
    assert attempts == [1]


async def test_a_result_that_breaks_the_declared_output_fails_its_call(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        result = await foreign.run(
            call("echo", "†state.x", value="five", _errorPath="†state.problem"),
            context=[foreign.tool("echo", _output={"type": "integer"})],
        )
    assert result["state"]["problem"]["code"] == "SchemaMismatch"
    assert "_output" in result["state"]["problem"]["message"]


async def test_an_activity_that_cannot_encode_its_result_says_so(foreign: Foreign) -> None:
    async def bad(call: Json, tool: Json, context: Json) -> Json:
        return object()

    error, attempts = await ends(foreign, bad)
    assert "object" in error["message"]
    assert attempts == [1, 2]


# -- failures ------------------------------------------------------------------------

FAILURES: dict[str, tuple[Callable[[], Exception], dict[str, Json]]] = {
    "of a type": (lambda: ApplicationError("no", type="declined"), {"code": "declined", "message": "no"}),
    "with a detail": (
        lambda: ApplicationError("no", {"a": 1}, type="declined"),
        {"code": "declined", "message": "no", "details": {"a": 1}},
    ),
    "with details": (
        lambda: ApplicationError("no", 1, "two", type="declined"),
        {"code": "declined", "message": "no", "details": [1, "two"]},
    ),
    "of no type": (lambda: ApplicationError("no"), {"code": "ApplicationError", "message": "no"}),
    "an exception": (lambda: KeyError("Ada"), {"code": "KeyError", "message": "'Ada'"}),
    "without a word": (RuntimeError, {"code": "RuntimeError"}),
    "NUL": (lambda: ApplicationError("a\0b", type="c\0d"), {"code": "c\0d", "message": "a\0b"}),
    "huge details": (
        lambda: ApplicationError("no", "x" * 100_000, type="declined"), {"code": "declined", "message": "no"}
    ),
    "a huge message": (lambda: ApplicationError("x" * 100_000, type="long"), {"code": "long"}),
    "details of an unknown encoding": (
        lambda: ApplicationError("no", raw(b"{}", b"binary/encrypted"), type="declined"),
        {"code": "declined", "message": "no"},
    ),
    "details that are not JSON": (
        lambda: ApplicationError("no", raw(b"{"), type="declined"), {"code": "declined", "message": "no"}
    ),
    "NaN in the details": (
        lambda: ApplicationError("no", float("nan"), type="declined"), {"code": "declined", "message": "no"}
    ),
    "a lone surrogate in the details": (
        lambda: ApplicationError("no", "\ud800", type="declined"), {"code": "declined", "message": "no"}
    ),
    "details of 10,000 levels": (
        lambda: ApplicationError("no", raw(b"[" * 10_000 + b"]" * 10_000), type="declined"),
        {"code": "declined", "message": "no"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_of_any_kind_becomes_a_code_and_a_message(foreign: Foreign, name: str) -> None:
    make, expected = FAILURES[name]

    async def bad(call: Json, tool: Json, context: Json) -> None:
        raise make()

    error, attempts = await ends(foreign, bad)
    assert {k: error.get(k) for k in expected} == expected
    assert set(error) <= {"code", "message", "details"}
    assert isinstance(error["code"], str)
    assert error["code"]
    assert len(json.dumps(error)) < 100_000
    assert attempts == [1, 2]


async def test_a_failure_that_cannot_be_recorded_fails_its_call_all_the_same(foreign: Foreign) -> None:
    async def bad(call: Json, tool: Json, context: Json) -> None:
        raise ApplicationError("no", "x" * 3_000_000, type="declined")

    error, attempts = await ends(foreign, bad)
    assert "exceed" in error["message"]  # the server has dropped what it was
    assert attempts == [1]


# -- time ----------------------------------------------------------------------------


async def test_a_call_that_may_wait_only_so_long_for_a_worker_times_out_and_names_the_queue(foreign: Foreign) -> None:
    lost = tool("lost", activity="lost", options={"taskQueue": "nobody-serves-this", "queueTimeout": "300ms"})
    async with foreign.serving(echo):
        request = foreign.request(call("lost", "†state.x"), GOOD, context=[lost, foreign.tool("echo")])
        result = await result_of_failed(await foreign.start(request))
    assert result["state"] == {"good": 1}
    message = "no worker took it from task queue 'nobody-serves-this' within 0.3 s (queueTimeout)"
    assert result["errors"] == [{"call": "1:lost", "code": "timeout", "message": message}]


async def test_an_activity_that_takes_too_long_times_out_after_its_attempts(foreign: Foreign) -> None:
    async def bad(call: Json, tool: Json, context: Json) -> None:
        await asyncio.Event().wait()

    error, attempts = await ends(foreign, bad, timeout="200ms")
    assert error == {"code": "timeout", "message": "an attempt took longer than 0.2 s"}
    assert attempts == [1, 2]


@pytest.mark.parametrize("last", [None, raw(b"{}", b"binary/encrypted")], ids=["at all", "that can be read"])
async def test_an_activity_that_never_heartbeats_times_out(foreign: Foreign, last: Json) -> None:
    async def bad(call: Json, tool: Json, context: Json) -> None:
        if last is not None:
            activity.heartbeat(last)
        await asyncio.Event().wait()

    error, attempts = await ends(foreign, bad, timeout="1h", heartbeat="200ms", **ONCE)
    assert error == {"code": "timeout", "message": "it sent no heartbeat for 0.2 s"}
    assert attempts == [1]


async def test_an_activity_that_its_queue_does_not_have_fails_after_a_while(foreign: Foreign) -> None:
    options = {"retry": {"maxAttempts": 2, "initialInterval": "1ms"}, "queueTimeout": "1s"}
    tools = [foreign.tool("lost", options=options)]
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(call("lost", "†state.x"), GOOD, context=tools))
        result = await result_of_failed(handle)
    assert result["state"] == {"good": 1}
    assert result["errors"][0]["code"] == "NotServed"
    assert "lost" in result["errors"][0]["message"]


async def test_a_local_activity_that_the_engine_does_not_have_fails_its_call(foreign: Foreign) -> None:
    options = {"local": True, "retry": {"maxAttempts": 1}, "queueTimeout": "1s"}
    async with foreign.serving(echo):
        handle = await foreign.start(
            foreign.request(call("lost", "†state.x"), GOOD, context=[tool("lost", activity="lost", options=options)])
        )
        result = await result_of_failed(handle)
    assert result["state"] == {"good": 1}
    assert result["errors"][0]["code"] == "NotServed"


# -- messages ------------------------------------------------------------------------

MESSAGES: dict[str, Json] = {
    "at two alternatives": {"type": "state", "state": {"x": 1, "y": 2}},
    "outside": {"type": "state", "state": {"x": 1, "z": 2}},
    "nothing": {"type": "state", "state": {}},
    "of another kind": {"type": "data", "kind": "user", "data": {"x": 1}},
}


@pytest.mark.parametrize("name", MESSAGES)
async def test_a_message_that_fits_no_one_outcome_fails_its_call(foreign: Foreign, name: str) -> None:
    async def answer(call: Json, tool: Json, context: Json) -> Json:
        return MESSAGES[name]

    async with foreign.serving(answer, echo):
        handle = await foreign.start(foreign.request(call("answer", "†state.x || †state.y"), GOOD))
        result = await result_of_failed(handle)
    assert result["state"] == {"good": 1}
    assert result["errors"][0]["code"] == "OutsideOutputPath"
    assert "†state.x || †state.y" in result["errors"][0]["message"]
