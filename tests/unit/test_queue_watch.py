"""Task queues without a worker: who is asked when, which Calls wait there, and how it heals. A script per case."""

from __future__ import annotations

import pytest

from acts.machines.commands import CheckQueues
from acts.machines.run_machine import QueueWatch

BUSY, IDLE = True, False
CHECK = [CheckQueues(("near", "far"))]


def watch() -> QueueWatch:
    out = QueueWatch()
    out.queues = ("near", "far")
    return out


def test_a_run_whose_tools_name_no_other_queue_asks_nothing() -> None:
    nothing = QueueWatch()
    assert nothing.begin() == nothing.flush(is_busy=BUSY) == nothing.notes == []
    nothing.record_start("1:a", None)


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
    run.record_check(answer, "12:00")
    assert run.begin() == []  # it has been asked
    assert run.waiting_calls == set(waiting)
    assert [word for word in ("near", "far") if f'"{word}"' in "".join(run.notes)] == [
        q for q in ("near", "far") if answer.get(q) is False
    ]


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
