"""The watchdog's process: what it writes down, and what the next worker makes of it."""

from __future__ import annotations

from pathlib import Path

from acts.worker.watchdog import MAX_RECORD, TaskBoard, read_board, read_record, write_record


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
