"""The pool of processes without a server: what ends a call, and what stays of it for the next one."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from worker_runtime.tool_processes import TOOL_PROCESS_ENDED, ToolProcesses, find_place


@activity.defn
def own_pid() -> int:
    return os.getpid()


@activity.defn
def beat(count: int) -> str:
    for number in range(count):
        activity.heartbeat(number, "x" * 100_000)
    return activity.info().activity_id


@activity.defn
def speak(call: dict[str, Any]) -> None:
    logging.getLogger("shop").warning("asked")


@activity.defn
def end(code: int) -> None:
    os._exit(code)


@activity.defn
def leave() -> None:
    sys.exit("for good")


@activity.defn
def lock() -> object:
    return threading.Lock()


class Tools:
    @activity.defn
    def method(self) -> None:
        """Bound to an object that no other process has."""


@pytest.fixture
def pool() -> Iterator[ToolProcesses]:
    found = ToolProcesses(1)
    yield found
    found.close()


def run(pool: ToolProcesses, function: Any, *args: Any) -> Any:
    return ActivityEnvironment().run(pool.wrap(function), *args)


def test_one_process_serves_one_call_after_the_other(pool: ToolProcesses) -> None:
    pids = {run(pool, own_pid) for _ in range(3)}
    assert len(pids) == 1
    assert os.getpid() not in pids


def test_a_log_line_of_a_tool_has_the_ids_of_its_call(pool: ToolProcesses, capfd: pytest.CaptureFixture[str]) -> None:
    run(pool, speak, {"_tool": "refund", "_instance": "a"})
    line = capfd.readouterr().err
    assert " WARNING asked  run=test runId=test-run call=test instance=a tool=refund\n" in line


def test_heartbeats_arrive_in_order_and_before_the_result(pool: ToolProcesses) -> None:
    environment, beats = ActivityEnvironment(), list[int]()
    environment.on_heartbeat = lambda number, _text: beats.append(number)
    assert environment.run(pool.wrap(beat), 20) == environment.info.activity_id
    assert beats == list(range(20))


def test_a_process_that_ends_fails_its_call_and_is_replaced(pool: ToolProcesses) -> None:
    with pytest.raises(ApplicationError, match="ended with code 3 while") as failure:
        run(pool, end, 3)
    assert failure.value.type == TOOL_PROCESS_ENDED
    assert not failure.value.non_retryable
    assert run(pool, own_pid)


@pytest.mark.parametrize(("function", "text"), [(leave, "for good"), (lock, "cannot be sent from the tool's process")])
def test_what_no_process_survives_elsewhere_is_a_failure(pool: ToolProcesses, function: Any, text: str) -> None:
    before = run(pool, own_pid)
    with pytest.raises(Exception, match=text):
        run(pool, function)
    assert run(pool, own_pid) == before


def test_a_heartbeat_that_cannot_be_passed_on_ends_the_process_with_its_call(pool: ToolProcesses) -> None:
    environment, before = ActivityEnvironment(), run(pool, own_pid)

    def refuse(*_: object) -> None:
        raise TimeoutError("the loop is closed")

    environment.on_heartbeat = refuse
    with pytest.raises(TimeoutError):
        environment.run(pool.wrap(beat), 1)
    assert run(pool, own_pid) != before


def test_only_a_function_that_another_process_finds_runs_there(pool: ToolProcesses) -> None:
    @activity.defn
    def inner() -> int:
        return os.getpid()

    assert find_place(own_pid) == (__name__, "own_pid")
    assert find_place(Tools().method) is None
    assert run(pool, inner) == os.getpid()
