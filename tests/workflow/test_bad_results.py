"""Whatever comes of an Activity: its Call ends in a clear error, and nothing else is touched by it.

Every test runs a good Call beside the bad one: what it completed must be in the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from tests.workflow.foreign import Foreign, Function, Handle, call, ended, events, result_of_failed, states, tool
from tests.workflow.tools import echo, refuse

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
    error, place = caught["calls"][1]["error"], {k: v for k, v in caught["calls"][1].items() if k == "place"}
    assert caught["context"][1]["data"] == {"problem": error}
    assert uncaught["errors"] == [{"call": "2:bad", **error, **place}]
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


async def test_a_result_that_cannot_be_recorded_fails_its_call_at_the_first_attempt(foreign: Foreign) -> None:
    async def bad(call: Json, tool: Json, context: Json) -> str:
        return "x" * 3_000_000

    error, attempts = await ends(foreign, bad)
    assert error["code"] == "PayloadsTooLarge"
    assert "size" in error["message"]
    assert attempts == [1]


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


async def test_a_call_that_may_wait_only_so_long_for_a_worker_times_out_and_names_the_queue(foreign: Foreign) -> None:
    lost = tool("lost", activity="lost", options={"taskQueue": "nobody-serves-this", "queueTimeout": "300ms"})
    async with foreign.serving(echo):
        request = foreign.request(call("lost", "†state.x"), GOOD, context=[lost, foreign.tool("echo")])
        result = await result_of_failed(await foreign.start(request))
    assert result["state"] == {"good": 1}
    message = "no worker took it from task queue 'nobody-serves-this' within 0.3 s (queueTimeout)"
    assert result["errors"] == [{"call": "1:lost", "code": "timeout", "message": message}]
