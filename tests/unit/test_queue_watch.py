"""Task queues without a worker: who is asked when, which Calls wait there, and how it heals. A script per case."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.tools import read_tool
from acts.machines.approval_effects import StartTimer
from acts.machines.queue_watch import (
    FIRST_SECONDS,
    LAST_SECONDS,
    QUEUE_TIMER,
    CheckQueues,
    QueueWatch,
    foreign_queues,
)

BUSY, IDLE = True, False
CHECK = [CheckQueues(("near", "far"))]


def watch() -> QueueWatch:
    out = QueueWatch()
    out.queues = ("near", "far")
    return out


def timer(seconds: float) -> list[Any]:
    return [StartTimer(QUEUE_TIMER, seconds, QUEUE_TIMER)]


def test_a_run_whose_tools_name_no_other_queue_asks_nothing() -> None:
    nothing = QueueWatch()
    assert nothing.begin() == nothing.flush(is_busy=BUSY) == nothing.notes == []
    nothing.record_start("1:a", None)
    assert nothing.record_check({}, "12:00") == []


# What the server says at the first check, and the Calls that wait then, of 1:a (near) and 2:b (far) in flight
CHECKS: list[tuple[dict[str, bool], list[str]]] = [
    ({"near": True, "far": True}, []),
    ({"near": True, "far": False}, ["2:b"]),
    ({"near": False, "far": False}, ["1:a", "2:b"]),
    ({}, []),  # the server does not say
]


@pytest.mark.parametrize(("answer", "waiting"), CHECKS)
def test_the_first_check_tells_which_calls_no_worker_has_taken(answer: dict[str, bool], waiting: list[str]) -> None:
    run = watch()
    assert run.begin() == CHECK
    run.record_start("1:a", "near")
    run.record_start("2:b", "far")
    assert run.record_check(answer, "12:00") == waiting
    assert run.begin() == []  # it has been asked
    assert run.waiting_calls == set(waiting)
    assert [word for word in ("near", "far") if f'"{word}"' in "".join(run.notes)] == [
        q for q in ("near", "far") if answer.get(q) is False
    ]


def test_a_call_that_starts_where_nobody_polls_waits_until_a_check_shows_a_worker() -> None:
    run = watch()
    run.record_check({"near": True, "far": False}, "12:00")
    run.record_start("1:a", "near")
    run.record_start("2:b", "far")
    run.record_start("3:c", "far")
    assert run.waiting_calls == {"2:b", "3:c"}
    run.record_end("2:b")  # a worker came, took one, and may be gone
    assert run.waiting_calls == {"3:c"}
    assert run.notes
    assert run.record_check({"near": True, "far": True}, "12:01") == ["3:c"]
    assert run.waiting_calls == set()
    assert run.notes == []


def test_a_worker_that_is_lost_later_may_have_taken_what_is_in_flight() -> None:
    run = watch()
    run.record_check({"near": True, "far": True}, "12:00")
    run.record_start("2:b", "far")
    assert run.record_check({"near": True, "far": False}, "12:05") == []
    assert run.waiting_calls == set()
    assert '"far"' in run.notes[0]


def test_a_queue_that_the_server_says_nothing_of_stays_as_it_was() -> None:
    run = watch()
    run.record_check({"near": True, "far": False}, "12:00")
    run.record_check({}, "12:01")
    assert run.unserved_queues == {"far"}


def test_checks_become_rare_while_nothing_changes_and_frequent_when_something_does() -> None:
    run = watch()
    expected = FIRST_SECONDS
    for _ in range(12):
        assert run.flush(is_busy=BUSY) == timer(expected)
        assert run.flush(is_busy=BUSY) == []  # one timer at a time
        assert run.on_timer(is_busy=BUSY) == CHECK
        expected = min(2 * expected, LAST_SECONDS)
    run.record_check({"near": False}, "12:00")
    assert run.flush(is_busy=BUSY) == timer(FIRST_SECONDS)


def test_a_run_with_nothing_in_flight_asks_again_only_when_there_is() -> None:
    run = watch()
    assert run.flush(is_busy=IDLE) == []
    assert run.flush(is_busy=BUSY) != []
    assert run.on_timer(is_busy=IDLE) == []
    assert run.flush(is_busy=IDLE) == []
    assert run.flush(is_busy=BUSY) != []


def test_queues_of_activities_count_in_their_order_and_those_of_latent_and_local_tools_do_not() -> None:
    def tool(name: str, activity: str, **options: Any) -> Any:
        return read_tool(name, {"_tool": name, "_activity": activity, "_options": options})[0]

    tools = [
        tool("a", "a", taskQueue="far"), tool("b", "", taskQueue="latent"), tool("c", "c", taskQueue="near"),
        tool("d", "d", taskQueue="far"), tool("e", "e", taskQueue="x", local=True), tool("f", "f", timeout="1s"),
    ]  # fmt: skip
    assert foreign_queues(tools) == ("far", "near")


def test_a_call_that_workers_without_its_activity_took_waits_and_is_noted_until_it_ends_or_finds_one() -> None:
    run = watch()
    run.record_start("2:b", "far")
    for key in ("1:a", "2:b", "3:c"):
        run.record_miss(key, "nobody has it")
    assert run.waiting_calls == {"1:a", "2:b", "3:c"}
    assert run.notes == ["nobody has it"]
    run.record_check({"near": True, "far": True}, "12:00")
    assert run.waiting_calls == {"1:a", "2:b", "3:c"}
    run.record_miss("1:a", None)
    run.record_end("2:b")
    assert run.waiting_calls == {"3:c"}
    run.record_end("3:c")
    assert run.notes == []
