"""When a run continues as new: events and bytes in, holds, drains and stays out."""

from __future__ import annotations

import pytest

from acts.machines.lifetime import (
    DRAIN_BYTES,
    DRAIN_EVENTS,
    DRAIN_SECONDS,
    DRAIN_SIGNALS,
    END_BYTES,
    END_EVENTS,
    LAST_BYTES,
    LAST_EVENTS,
    LAST_SIGNALS,
    UNSEEN_RESULT_BYTES,
    HistorySize,
    Lifetime,
)

SHORT = HistorySize(100, 10_000, is_new_run_suggested=False)
SUGGESTED = HistorySize(5_000, 5_000_000, is_new_run_suggested=True)
LONG = HistorySize(DRAIN_EVENTS, 5_000_000, is_new_run_suggested=True)
BULKY = HistorySize(5_000, DRAIN_BYTES, is_new_run_suggested=True)


@pytest.mark.parametrize(
    ("history", "is_due"),
    [
        (SHORT, False),
        (SUGGESTED, True),
        (HistorySize(DRAIN_EVENTS - 1, 0, is_new_run_suggested=False), False),
        (HistorySize(DRAIN_EVENTS, 0, is_new_run_suggested=False), True),  # a server that suggests nothing
        (HistorySize(100, 0, is_new_run_suggested=False, signals=DRAIN_SIGNALS), True),
    ],
)
def test_a_new_run_is_due_when_the_server_suggests_it_or_the_history_is_long(
    history: HistorySize,
    is_due: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert Lifetime().is_due(history) is is_due


@pytest.mark.parametrize(
    ("history", "seconds"),
    [
        (SHORT, None),
        (SUGGESTED, None),  # a quiet moment will come by itself
        (LONG, DRAIN_SECONDS),
        (BULKY, DRAIN_SECONDS),
        (HistorySize(LAST_EVENTS, 0, is_new_run_suggested=True), 0.0),
        (HistorySize(5_000, LAST_BYTES, is_new_run_suggested=True), 0.0),
        (HistorySize(LAST_EVENTS - 1, LAST_BYTES - 1, is_new_run_suggested=True), DRAIN_SECONDS),
        (HistorySize(100, 0, is_new_run_suggested=False, signals=DRAIN_SIGNALS), DRAIN_SECONDS),
        (HistorySize(100, 0, is_new_run_suggested=False, signals=LAST_SIGNALS), 0.0),
        (HistorySize(100, DRAIN_BYTES, is_new_run_suggested=False), DRAIN_SECONDS),  # a server that suggests nothing
    ],
)
def test_a_long_history_is_drained_and_one_near_its_end_without_a_limit(
    history: HistorySize, seconds: float | None
) -> None:
    assert Lifetime().drain_seconds(history) == seconds


@pytest.mark.parametrize(
    ("history", "is_due"),
    [
        (SUGGESTED, False),
        (LONG, False),
        (HistorySize(100, 0, is_new_run_suggested=False, signals=DRAIN_SIGNALS), False),
        (HistorySize(LAST_EVENTS, 0, is_new_run_suggested=True), True),
        (HistorySize(100, LAST_BYTES, is_new_run_suggested=True), True),
        (HistorySize(100, 0, is_new_run_suggested=False, signals=LAST_SIGNALS), True),
    ],
)
def test_a_run_of_a_cron_which_continue_as_new_ends_stays_as_long_as_the_server_lets_it(
    history: HistorySize,
    is_due: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert Lifetime(is_cron=True).is_due(history) is is_due


def history(events: int = 100, bytes_: int = 10_000) -> HistorySize:
    return HistorySize(events, bytes_, is_new_run_suggested=False)


@pytest.mark.parametrize(
    ("at", "must_end"),
    [(history(END_EVENTS - 1, END_BYTES - 1), False), (history(END_EVENTS, 0), True), (history(0, END_BYTES), True)],
)
def test_a_run_ends_before_the_server_ends_it(
    at: HistorySize,
    must_end: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert Lifetime().must_end(at) is must_end


def test_the_limits_of_the_server_are_above_all_of_ours() -> None:
    assert LAST_EVENTS < END_EVENTS < 51_200
    assert LAST_BYTES < END_BYTES < 50 * 1024 * 1024 - 6_000_000
    assert 2_000 * UNSEEN_RESULT_BYTES < LAST_BYTES
