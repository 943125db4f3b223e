"""When a run continues as new: events and bytes in, holds, drains and stays out."""

from __future__ import annotations

import pytest

from acts.machines.lifetime import (
    CALL_EVENTS,
    DRAIN_BYTES,
    DRAIN_EVENTS,
    DRAIN_SECONDS,
    DRAIN_SIGNALS,
    END_BYTES,
    END_EVENTS,
    LAST_BYTES,
    LAST_EVENTS,
    LAST_SIGNALS,
    MANY_SIGNALS,
    RETRY_BYTES,
    UNSEEN_RESULT_BYTES,
    ExpectedResults,
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
        (HistorySize(100, 0, is_new_run_suggested=False, signals=MANY_SIGNALS - 1), False),
        (HistorySize(100, 0, is_new_run_suggested=False, signals=MANY_SIGNALS), True),
    ],
)
def test_a_new_run_is_due_when_the_server_suggests_it_or_the_history_is_long(
    history: HistorySize,
    is_due: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert Lifetime().is_due(history) is is_due


@pytest.mark.parametrize(
    ("history", "in_flight", "just_ended", "holds"),
    [
        (SUGGESTED, 0, 0, True), (SUGGESTED, 1, 1, True), (SUGGESTED, 3, 5, True),
        (SUGGESTED, 1, 0, False), (SUGGESTED, 2, 1, False), (SHORT, 0, 0, False), (SHORT, 1, 1, False),
    ],
)  # fmt: skip
def test_starts_are_held_when_everything_in_flight_has_just_ended(
    history: HistorySize,
    in_flight: int,
    just_ended: int,
    holds: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert Lifetime().should_hold(history, in_flight, just_ended) is holds


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
        (HistorySize(100, 0, is_new_run_suggested=False, signals=MANY_SIGNALS), False),
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


def test_one_drain_at_a_time_and_nothing_is_held_besides() -> None:
    lifetime = Lifetime()
    assert lifetime.drain_seconds(LONG) == DRAIN_SECONDS
    assert lifetime.drain_seconds(LONG) is None
    assert not lifetime.should_hold(LONG, 0, 0)


@pytest.mark.parametrize(
    ("first", "soon", "later"),
    [
        (
            LONG,
            HistorySize(DRAIN_EVENTS + 10, 5_000_100, is_new_run_suggested=True),
            HistorySize(2 * DRAIN_EVENTS, 5_000_200, is_new_run_suggested=True),
        ),
        (
            BULKY,
            HistorySize(5_010, DRAIN_BYTES + 1_000, is_new_run_suggested=True),
            HistorySize(5_020, DRAIN_BYTES + RETRY_BYTES, is_new_run_suggested=True),
        ),
    ],
    ids=["by events", "by bytes"],
)
def test_a_drain_that_came_to_nothing_is_not_tried_again_at_once(
    first: HistorySize, soon: HistorySize, later: HistorySize
) -> None:
    lifetime = Lifetime()
    assert lifetime.drain_seconds(first) == DRAIN_SECONDS
    lifetime.end_drain()
    assert lifetime.drain_seconds(soon) is None
    assert lifetime.drain_seconds(later) == DRAIN_SECONDS


def test_quiet_moments_are_still_used_after_a_drain_that_came_to_nothing() -> None:
    lifetime = Lifetime()
    lifetime.drain_seconds(LONG)
    lifetime.end_drain()
    assert lifetime.should_hold(LONG, 1, 1)


def test_a_state_that_does_not_fit_keeps_the_run_until_its_history_has_grown() -> None:
    lifetime = Lifetime()
    lifetime.drain_seconds(LONG)
    lifetime.stay(LONG)
    grown = HistorySize(LONG.events + DRAIN_EVENTS // 3 - 1, 6_000_000, is_new_run_suggested=True)
    for history in (LONG, grown):
        assert not lifetime.is_due(history)
        assert not lifetime.should_hold(history, 0, 0)
        assert lifetime.drain_seconds(history) is None
    assert lifetime.is_due(HistorySize(grown.events + 1, grown.bytes, is_new_run_suggested=True))


# -- room ----------------------------------------------------------------------------


def history(events: int = 100, bytes_: int = 10_000) -> HistorySize:
    return HistorySize(events, bytes_, is_new_run_suggested=False)


@pytest.mark.parametrize(
    ("at", "new_bytes", "in_flight", "has_room"),
    [
        (history(), LAST_BYTES - 10_000, 0, True),
        (history(), LAST_BYTES - 9_999, 0, False),
        (history(LAST_EVENTS - CALL_EVENTS), 0, 0, True),
        (history(LAST_EVENTS - CALL_EVENTS), 0, 1, False),
    ],
)
def test_a_start_has_room_when_it_and_what_is_expected_fit(
    at: HistorySize,
    new_bytes: int,
    in_flight: int,
    has_room: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert Lifetime().has_room(at, new_bytes, in_flight) is has_room


def test_a_run_without_room_is_due_and_drains_until_it_is_quiet() -> None:
    lifetime = Lifetime()
    assert not lifetime.is_due(history())
    assert not lifetime.has_room(history(), LAST_BYTES, 3)
    assert lifetime.is_due(history())
    assert lifetime.drain_seconds(history()) == 0.0


def test_a_run_that_stays_may_use_more_and_ends_when_that_is_used_up() -> None:
    lifetime = Lifetime()
    assert not lifetime.has_room(history(), LAST_BYTES, 0)
    assert lifetime.stay(history())
    assert not lifetime.is_due(history())
    assert lifetime.has_room(history(), LAST_BYTES, 0)
    assert not lifetime.has_room(history(), END_BYTES, 0)
    assert lifetime.is_due(history())
    assert not lifetime.stay(history())


def test_a_state_that_does_not_fit_is_tried_again_when_the_history_has_grown_in_bytes() -> None:
    lifetime = Lifetime()
    lifetime.drain_seconds(BULKY)
    lifetime.stay(BULKY)
    assert not lifetime.is_due(HistorySize(BULKY.events, BULKY.bytes + 1, is_new_run_suggested=True))
    assert lifetime.is_due(HistorySize(BULKY.events, BULKY.bytes + RETRY_BYTES, is_new_run_suggested=True))


@pytest.mark.parametrize(
    ("at", "must_end"),
    [
        (history(END_EVENTS - 1, END_BYTES - 1), False),
        (history(END_EVENTS, 0), True),
        (history(0, END_BYTES), True),
    ],
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


def test_results_are_expected_to_be_like_those_that_came() -> None:
    expected = ExpectedResults()
    for _ in range(4):
        expected.started("a")
    expected.started("b")
    assert (expected.total, expected.in_flight) == (5 * UNSEEN_RESULT_BYTES, 5)
    expected.ended("a", 100)
    assert (expected.of("a"), expected.total) == (100, 300 + UNSEEN_RESULT_BYTES)
    expected.ended("a", 1_000_000)
    assert expected.of("a") == 1_000_000
    for size in (100,) * 98:
        expected.started("a")
        expected.ended("a", size)
    assert expected.of("a") == 2 * (1_000_000 + 99 * 100) // 100  # one that is large says little of the others
    expected.ended("b", None)  # a failure
    assert expected.of("b") == UNSEEN_RESULT_BYTES
    assert expected.in_flight == 2
