"""The watchdog's process: what it writes down, and what the next worker makes of it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from worker_runtime.watchdog import SLOTS, TaskBoard
from worker_runtime.watchdog_process import MAX_RECORD, cpu_seconds, read_board, read_record, write_record


def test_the_board_names_the_tasks_that_run() -> None:
    board = TaskBoard()
    board.begin("workflow Plan 'a'", "run-1")
    me = threading.get_native_id()
    assert read_board(board.fileno()) == {me: {"name": "workflow Plan 'a'", "run": "run-1"}}
    board.begin("workflow Plan '" + "ü" * 1_000 + "', run run-2", "run-2 replay")
    assert read_board(board.fileno())[me]["name"].endswith("ü', run run-2")
    board.end()
    assert read_board(board.fileno()) == {}


def test_more_threads_than_slots_do_no_harm() -> None:
    board = TaskBoard()
    ready = threading.Barrier(SLOTS + 3)

    def begin() -> None:
        board.begin("workflow", "run")
        ready.wait(30)

    threads = [threading.Thread(target=begin) for _ in range(SLOTS + 2)]
    for thread in threads:
        thread.start()
    ready.wait(30)
    assert len(read_board(board.fileno())) == SLOTS
    for thread in threads:
        thread.join()


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


def test_the_time_of_a_thread_grows_while_it_computes() -> None:
    me = threading.get_native_id()
    start = cpu_seconds(os.getpid(), me)
    while cpu_seconds(os.getpid(), me) == start:
        pass
    assert cpu_seconds(os.getpid(), me) > start
