"""The order of test files for ``make test``: no process idles at the end, and those that wait do not wait together.

Laws of this file: it knows folders and estimates, no test; the order is the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

PROCESSES = 3  # as the Makefile has it
# Seconds of a file, by its folder, on two cores: a guess suffices, as it decides about the order alone
SECONDS = {
    "workflow": 7, "attacks": 9, "replay": 20, "property": 9, "examples": 8, "mcp": 6, "cli": 5,
    "storage": 4, "security": 4, "models": 3, "delegates": 2,
}  # fmt: skip
# Of what is killed: half of these seconds are waits for what died, in which others compute
WAITING_FOLDER, WAITING_SECONDS = "crash", 35
# Files much longer than the others of their folder, the longest first
LONG = {
    "test_browser.py": 70, "test_reset.py": 60, "test_dev.py": 60, "test_kill_waiting.py": 50,
    "test_kill_tree.py": 50, "test_renewal.py": 40, "test_stuck.py": 40, "test_limits.py": 40, "test_secrets.py": 35,
    "test_planted_values.py": 35, "test_pages.py": 30, "test_sets.py": 30, "test_worst_requests.py": 30,
    "test_hostile_signals.py": 25, "test_neighbours.py": 20, "test_kill_set.py": 20, "test_s3.py": 20,
    "test_hostile.py": 20, "test_runs.py": 20, "test_serve_mcp.py": 20, "test_rolling_workers.py": 16,
    "test_kill_agent.py": 15, "test_kill_resumed.py": 15, "test_kill.py": 15, "test_serial_equivalence.py": 15,
    "test_changed_plan.py": 15, "test_devserver.py": 15, "test_full_history.py": 15, "test_storage.py": 15,
    "test_instances.py": 14, "test_schema.py": 14, "test_approved_subjects.py": 14, "test_s3_runs.py": 12,
    "test_abort.py": 10,
}  # fmt: skip


def is_waiting(file: Path) -> bool:
    """True where a test mostly waits for processes that died."""
    return file.parent.name == WAITING_FOLDER


def estimate_seconds(file: Path) -> int:
    """How long a file takes, about."""
    usual = WAITING_SECONDS if is_waiting(file) else SECONDS.get(file.parent.name, 2)
    return LONG.get(file.name, usual)


def order_files(files: Iterable[Path]) -> list[Path]:
    """The longest first; of those that wait, one begins when the one before it has about ended."""
    by_length = sorted(files, key=lambda file: (-estimate_seconds(file), file.parent.name, file.name))
    waiting = [file for file in by_length if is_waiting(file)]
    others = [file for file in by_length if not is_waiting(file)]
    ordered: list[Path] = []
    free_at, waits_until = [0.0] * PROCESSES, 0.0
    while waiting or others:
        process = free_at.index(min(free_at))
        is_turn = bool(waiting) and (not others or free_at[process] >= waits_until)
        ordered.append((waiting if is_turn else others).pop(0))
        free_at[process] += estimate_seconds(ordered[-1])
        if is_turn:
            waits_until = free_at[process]
    return ordered
