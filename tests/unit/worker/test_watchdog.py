"""The watchdog's process: what it writes down, and what the next worker makes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from acts.worker.watch import HIGH_SHARE, ROUND_SECONDS, MemoryWatch
from acts.worker.watchdog import MAX_RECORD, TaskBoard, is_stopped, read_board, read_record, write_record


def test_the_board_names_the_tasks_that_run() -> None:
    board = TaskBoard()
    board.begin("workflow Plan 'a'", "run-1")
    assert read_board(board.descriptor) == [{"name": "workflow Plan 'a'", "run": "run-1"}]
    board.begin("workflow Plan '" + "ü" * 1_000 + "', run run-2", "run-2")
    (task,) = read_board(board.descriptor)
    assert task["name"].endswith("ü', run run-2")
    board.end()
    assert read_board(board.descriptor) == []


def test_the_record_counts_and_keeps_the_newest(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    assert read_record(record) == {}
    for run in ("a", "b", "a"):
        write_record(record, run)
    assert read_record(record) == {"b": 1, "a": 2}
    for number in range(MAX_RECORD - 1):
        write_record(record, f"n{number}")
    assert len(read_record(record)) == MAX_RECORD
    assert read_record(record)["a"] == 2


def test_a_record_that_is_none_counts_for_nothing(tmp_path: Path) -> None:
    for text in ("", "[]", "{", '{"a": "b"}'):
        (tmp_path / "record").write_text(text)
        assert read_record(tmp_path / "record") == {}
    (tmp_path / "real").write_text('{"a": 2}')
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_record(tmp_path / "link") == {}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_worker_that_somebody_has_stopped_is_not_one_that_stands_still() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert not is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert is_stopped(process.pid)
        process.kill()
    assert not is_stopped(process.pid)


# -- the watch over memory: above the mark it gives up idle workflows, the longest idle first ------------


LIMIT = 1_000


class Cache:
    """A watch over ``count`` idle workflows, each of ten bytes."""

    def __init__(self, count: int, limit: int = LIMIT) -> None:
        self.size = 10 * count
        self.evicted: list[str] = []
        self.watch = MemoryWatch(limit, lambda: self.size)
        self.watch.evict = self.evict
        for number in range(count):
            self.watch.begin(f"run-{number}")
            self.watch.end(f"run-{number}", is_busy=False)

    def evict(self, run_id: str) -> None:
        self.evicted.append(run_id)
        self.watch.remove(run_id)
        self.size -= 10


def later(rounds: int) -> float:
    return time.monotonic() + 60 + rounds * ROUND_SECONDS


def test_the_workflow_that_has_been_idle_longest_is_known_by_its_ids() -> None:
    watch = MemoryWatch()
    watch.begin("busy", "first")
    assert watch.find_idle() == []
    for run_id in ("idle", "later"):
        watch.begin(run_id, "second")
        watch.end(run_id, is_busy=False)
    assert [(run.run_id, run.workflow_id) for run in watch.find_idle()] == [("idle", "second"), ("later", "second")]


def test_without_a_limit_nothing_is_measured_or_evicted() -> None:
    cache = Cache(1_000, limit=0)
    cache.watch.look(later(0))
    assert cache.evicted == []


def test_above_it_the_longest_idle_go_until_it_is_below() -> None:
    cache = Cache(100)
    for round_ in range(10):
        cache.watch.look(later(round_))
    assert cache.size <= LIMIT * HIGH_SHARE
    assert cache.evicted == [f"run-{number}" for number in range(len(cache.evicted))]
    assert len(cache.evicted) < 50


def test_a_workflow_that_computes_or_waits_for_a_local_activity_is_kept() -> None:
    cache = Cache(0)
    cache.size = 10 * LIMIT
    cache.watch.begin("computes")
    cache.watch.begin("local")
    cache.watch.end("local", is_busy=True)
    cache.watch.look(later(0))
    assert cache.evicted == []
    cache.watch.end("local", is_busy=False)
    cache.watch.look(later(1))
    assert cache.evicted == ["local"]
