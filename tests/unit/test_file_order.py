"""The order of test files: each is there once, the short ones come last, and those that wait do not wait together."""

from __future__ import annotations

from pathlib import Path

from tests.file_order import LONG, PROCESSES, estimate_seconds, is_waiting, order_files

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("test_*.py"))


def test_each_file_is_there_once_and_the_processes_end_together() -> None:
    ordered = order_files(FILES)
    assert sorted(ordered) == FILES
    assert ordered == order_files(reversed(FILES))
    free_at = [0] * PROCESSES
    for file in ordered:
        free_at[free_at.index(min(free_at))] += estimate_seconds(file)
    assert max(free_at) - min(free_at) < 10


def test_of_the_files_that_wait_one_runs_at_a_time() -> None:
    free_at, waits_until = [0] * PROCESSES, 0
    for file in order_files(FILES):
        process = free_at.index(min(free_at))
        if is_waiting(file):
            assert free_at[process] >= waits_until, file.name
            waits_until = free_at[process] + estimate_seconds(file)
        free_at[process] += estimate_seconds(file)
    assert waits_until


def test_every_long_file_exists() -> None:
    assert LONG.keys() <= {file.name for file in FILES}
