"""Permits of a tree, case by case: who gets what, what comes back, and how few messages that takes."""

from __future__ import annotations

from typing import Any

import pytest

from acts.machines.approval_effects import StartTimer
from acts.machines.budget import SendRecord
from acts.machines.permits import IDLE_TIMER, MAX_OPEN_CHILDREN, Permits
from acts.tree.permit_records import PermitGrant, PermitRequest, PermitReturn
from acts.tree.records import Accounting, PermitLease, TreePosition

ROOT, CHILD, GRANDCHILD = "r", "r/a", "r/a/b"


def root(limit: int = 10) -> Permits:
    return Permits(ROOT, TreePosition().with_limit(limit, None))


def below(
    lease: int, *, own: str = CHILD, limit: int = 10, own_limit: int | None = None, may_ask: bool = True
) -> Permits:
    ancestors = tuple(own.split("/")[:1]) if own == CHILD else (ROOT, CHILD)
    position = TreePosition(ancestors=ancestors, maxParallel=limit, permitKeeper=ROOT)
    leased = PermitLease(permits=lease, mayAsk=may_ask)
    return Permits(own, position.with_limit(own_limit or limit, leased), leased)


def records(effects: list[Any]) -> list[Any]:
    return [e.record for e in effects if isinstance(e, SendRecord)]


def ask(own: str, missing: int, held: int) -> PermitRequest:
    ancestors = (ROOT,) if own.count("/") == 1 else (ROOT, own.rsplit("/", 1)[0])
    return PermitRequest(workflowId=own, ancestors=ancestors, missing=missing, held=held)


def test_a_run_alone_takes_its_limit_and_says_nothing() -> None:
    run = root(3)
    assert [run.reserve(f"c{n}") for n in range(4)] == [True, True, True, False]
    assert run.flush(1, {}) == []
    run.release("c0")
    assert run.reserve("c3")
    assert run.flush(0, {}) == run.on_timer(0) == []


def test_a_lease_is_all_that_a_run_has_and_more_is_asked_for_once() -> None:
    run = below(1)
    assert run.reserve("c0")
    assert not run.reserve("c1")
    assert records(run.flush(5, {})) == [PermitRequest(workflowId=CHILD, ancestors=(ROOT,), missing=5, held=1)]
    assert run.flush(5, {}) == run.flush(9, {}) == []  # twice as much is not missing
    run.on_grant(PermitGrant(permits=4))
    assert run.usable == 4
    assert run.take_all() == 5


def test_what_is_not_used_returns_after_a_while_and_not_before() -> None:
    run = below(3)
    run.reserve("c0")
    (timer,) = run.flush(0, {})
    assert isinstance(timer, StartTimer)
    assert timer.name == IDLE_TIMER
    assert run.flush(0, {}) == []
    assert run.on_timer(2) == []  # there is use for them by now
    assert records(run.on_timer(0)) == [PermitReturn(workflowId=CHILD, ancestors=(ROOT,), permits=2)]
    assert run.take_all() == 1


def test_a_run_that_is_told_not_to_ask_asks_only_when_it_stands_still() -> None:
    run = below(1, may_ask=False)
    run.reserve("c0")
    assert run.flush(3, {}) == []
    run.release("c0")
    run.on_timer(0)
    assert len(records(run.flush(1, {}))) == 1


def test_runs_without_any_permit_come_first_and_the_keepers_own_calls_after_fair_shares() -> None:
    run = root(10)
    assert all(run.reserve(f"c{n}") for n in range(10))
    run.on_request(ask("r/x", 5, 1))
    run.on_request(ask("r/y", 1, 0))
    run.release("c0")
    assert not run.reserve("c10")
    (grant,) = run.flush(9, {})
    assert (grant.workflow_id, grant.record) == ("r/y", PermitGrant(permits=1))
    run.release("c1")
    run.release("c2")
    run.release("c3")  # a fair share of 10 is 5 for x and 5 for the keeper
    assert [(g.workflow_id, g.record.permits) for g in run.flush(9, {})] == [("r/x", 3)]


def test_a_keeper_with_calls_of_its_own_gives_no_more_than_fair_shares_and_else_everything() -> None:
    busy, idle = root(10), root(10)
    for run in (busy, idle):
        run.on_request(ask("r/x", 9, 1))
    assert [g.record.permits for g in busy.flush(100, {})] == [4]
    assert [g.record.permits for g in idle.flush(0, {})] == [9]


# -- children ------------------------------------------------------------------------

# limit, (instances of a child, Calls of one that may run at once), children: the first leases
LEASES: list[tuple[int, tuple[int, int], int, list[int]]] = [
    (100, (1, 1), 1_000, [1, 1, 1]),
    (100, (1, 5), 1_000, [1, 1, 1]),  # each has something to do with one; more would lie idle at its end
    (100, (100, 5), 200, [12, 12, 12]),
    (100, (1, 50), 3, [33, 33, 34]),
    (100, (1, 2), 3, [2, 2, 2]),
    (1, (100, 5), 200, [1]),
]


@pytest.mark.parametrize(("limit", "shape", "children", "expected"), LEASES)
def test_the_lease_of_a_child_depends_on_its_work_and_on_how_many_wait(
    limit: int, shape: tuple[int, int], children: int, expected: list[int]
) -> None:
    run, leases = root(limit), []
    for n in range(len(expected)):
        assert run.reserve_for_child(f"u{n}", shape[0], shape[0] * shape[1], children - n)
        leases.append(run.lease(f"u{n}").permits)
    assert leases == expected


def test_children_that_are_told_not_to_ask_share_what_is_free_once_all_have_started() -> None:
    run, ids = root(4), {"u0": "r/u0", "u1": "r/u1", "u2": "r/u2", "u3": "r/u3"}
    for n in range(4):
        assert run.reserve_for_child(f"u{n}", 1, 3, 6 - n)
    assert [run.lease(k).mayAsk for k in ids] == [False] * 4
    assert run.flush(2, ids) == []
    assert run.child_ended("u0", ids.pop("u0"), Accounting(permits=1)) == []
    assert run.child_ended("u1", ids.pop("u1"), Accounting(permits=1)) == []
    assert [(e.workflow_id, e.record.permits) for e in run.flush(0, ids)] == [("r/u2", 1), ("r/u3", 1)]
    assert run.flush(0, ids) == []  # once each


def test_a_share_that_arrives_too_late_is_free_again() -> None:
    run, ids = root(2), {"u0": "r/u0"}
    run.reserve_for_child("u0", 1, 3, 3)
    (share,) = run.flush(0, ids)
    run.child_ended("u0", "r/u0", Accounting(permits=1))
    assert run.total == 1
    run.on_lost(share.key)
    assert (run.free, run.total) == (2, 2)


def test_a_run_has_no_more_children_open_than_the_server_allows_even_if_all_wait_for_people() -> None:
    run = root(5)
    for n in range(MAX_OPEN_CHILDREN):
        assert run.reserve(f"d{n}")
        run.on_return(PermitReturn(workflowId=f"r/d{n}", ancestors=(ROOT,), permits=1))
    assert not run.reserve("another")


# -- losses --------------------------------------------------------------------------


def test_what_a_lost_child_and_the_runs_below_it_had_comes_free_once() -> None:
    run = root(10)
    run.reserve("a")
    run.on_request(ask(CHILD, 2, 1))
    run.on_request(ask(GRANDCHILD, 3, 1))
    (first, second) = run.flush(0, {})
    run.on_delivered(first.key)
    assert run.free == 4
    run.child_ended("a", CHILD, None)
    assert run.free == 10
    run.on_lost(second.key)
    run.on_return(PermitReturn(workflowId=GRANDCHILD, ancestors=(ROOT, CHILD), permits=4))
    assert (run.free, run.total) == (10, 10)


def test_a_run_that_is_no_keeper_reports_its_lost_child_and_counts_its_lease_no_more() -> None:
    keeper, parent = root(10), below(2)
    keeper.reserve("a", 2)
    parent.reserve("b", 2)
    # the child had returned its lease, since it waited for a person
    keeper.on_return(PermitReturn(workflowId=GRANDCHILD, ancestors=(ROOT, CHILD), permits=2))
    assert keeper.free == 10
    (report,) = records(parent.child_ended("b", GRANDCHILD, None))
    assert (parent.free, parent.total) == (0, 0)
    keeper.on_return(report)
    assert keeper.free == 10  # nothing comes free twice
    keeper.child_ended("a", CHILD, Accounting(permits=parent.take_all()))
    assert (keeper.free, keeper.total) == (10, 10)


def test_what_a_child_was_lent_that_is_gone_comes_free_when_it_starts_again_which_may_ask_as_the_first_did() -> None:
    run = root(4)
    run.reserve("a")
    run.on_request(ask(CHILD, 2, 1))
    run.on_request(ask(GRANDCHILD, 1, 1))
    (first, second) = run.flush(0, {})
    run.on_delivered(first.key)
    assert run.free == 0
    assert run.child_gone("a", CHILD) == []
    assert (run.free, run.total) == (3, 4)
    run.on_lost(second.key)
    assert (run.free, run.total) == (3, 4), "nothing comes free twice"
    run.on_request(ask(CHILD, 3, 1))
    assert [g.record.permits for g in run.flush(0, {})] == [3]
    run.child_ended("a", CHILD, Accounting(permits=4))
    assert (run.free, run.total) == (4, 4)


def test_a_child_that_starts_again_has_the_lease_of_the_first_and_not_its_share() -> None:
    run, ids = root(2), {"u0": "r/u0"}
    run.reserve_for_child("u0", 1, 3, 3)
    (share,) = run.flush(0, ids)
    run.on_delivered(share.key)
    assert run.free == 0
    run.child_gone("u0", ids.pop("u0"))
    assert (run.free, run.lease("u0")) == (1, PermitLease(permits=1, mayAsk=False))
    assert run.flush(0, ids) == [], "it is being started"
    assert [e.record.permits for e in run.flush(0, {"u0": "r/u0"})] == [1], "it gets one of its own"
    run.child_ended("u0", "r/u0", Accounting(permits=2))
    assert (run.free, run.total) == (2, 2)


def test_a_run_that_is_no_keeper_reports_a_child_that_starts_again() -> None:
    """The keeper had lent all it has to the first one: the second would wait for ever, or alone with its lease."""
    keeper, parent = root(1), below(0)
    keeper.on_request(ask(GRANDCHILD, 1, 0))
    (grant,) = keeper.flush(0, {})
    keeper.on_delivered(grant.key)
    parent.hand_over("b")
    (report,) = records(parent.child_gone("b", GRANDCHILD))
    again = ask(GRANDCHILD, 1, 0)
    for messages in ([again, report], [report, again]):  # they have no order
        for message in messages:
            (keeper.on_request if message is again else keeper.on_return)(message)
        assert [g.record.permits for g in keeper.flush(0, {})] == [1]
    assert (keeper.free, keeper.total) == (0, 1)


def test_a_child_that_never_ran_gives_its_lease_back_and_one_of_an_earlier_version_too() -> None:
    run = root(5)
    run.reserve("a", 2)
    assert run.child_ended("a", None, None) == []
    assert run.free == 5
    run.reserve("a", 2)
    run.child_ended("a", CHILD, Accounting())
    assert run.free == 5


# -- a smaller limit for a part ------------------------------------------------------------


def test_a_definition_with_a_smaller_limit_keeps_the_permits_of_its_part() -> None:
    run = below(1, own_limit=3)
    assert run.is_keeper
    run.reserve("c0")
    run.on_request(ask(GRANDCHILD, 8, 1))
    (request,) = records(run.flush(4, {}))
    assert request.missing == 2  # its part never has more than 3
    run.on_grant(PermitGrant(permits=2))
    assert run.total == 3


def test_a_lease_above_the_own_limit_is_not_used() -> None:
    run = below(5, own_limit=2)
    assert [run.reserve(f"c{n}") for n in range(3)] == [True, True, False]
