"""Permits of a tree, case by case: who gets what, what comes back, and how few messages that takes."""

from __future__ import annotations

from typing import Any

import pytest

from acts.machines.commands import SendRecord
from acts.machines.permits import MAX_OPEN_CHILDREN, Permits
from acts.tree.records import Accounting, PermitLease, TreePosition
from acts.tree.signal_records import PermitGrant, PermitRequest, PermitReturn

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


def test_runs_without_any_permit_come_first_and_the_keepers_own_calls_after_fair_shares() -> None:
    run = root(10)
    assert all(run.reserve(f"c{n}") for n in range(10))
    run.on_request(ask("r/x", 5, 1))
    run.on_request(ask("r/y", 1, 0))
    run.release("c0")
    assert not run.reserve("c10")
    (grant,) = run.flush(9)
    assert (grant.workflow_id, grant.record) == ("r/y", PermitGrant(permits=1))
    run.release("c1")
    run.release("c2")
    run.release("c3")  # a fair share of 10 is 5 for x and 5 for the keeper
    assert [(g.workflow_id, g.record.permits) for g in run.flush(9)] == [("r/x", 3)]


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


def test_a_run_has_no_more_children_open_than_the_server_allows_even_if_all_wait_for_people() -> None:
    run = root(5)
    for n in range(MAX_OPEN_CHILDREN):
        assert run.reserve(f"d{n}")
        run.on_return(PermitReturn(workflowId=f"r/d{n}", ancestors=(ROOT,), permits=1))
    assert not run.reserve("another")


def test_a_run_that_is_no_keeper_reports_a_child_that_starts_again() -> None:
    """The keeper had lent all it has to the first one: the second would wait for ever, or alone with its lease."""
    keeper, parent = root(1), below(0)
    keeper.on_request(ask(GRANDCHILD, 1, 0))
    keeper.flush(0)
    parent.hand_over("b")
    (report,) = records(parent.child_gone(GRANDCHILD))
    again = ask(GRANDCHILD, 1, 0)
    for messages in ([again, report], [report, again]):  # they have no order
        for message in messages:
            (keeper.on_request if message is again else keeper.on_return)(message)
        assert [g.record.permits for g in keeper.flush(0)] == [1]
    assert (keeper.free, keeper.total) == (0, 1)


@pytest.mark.parametrize("permits", [0, 1, 2])
def test_the_only_child_of_a_run_with_a_smaller_limit_brings_back_what_it_got_or_gave_itself(permits: int) -> None:
    """The plan of a tick asks whom the agent would ask, also where the agent keeps the permits of its part."""
    agent = below(1, own_limit=2)
    assert agent.hand_over("plan-1") == 1
    agent.child_ended("plan-1", f"{CHILD}/plan-1", Accounting(permits=permits))
    assert (agent.take_all(), agent.free) == (permits, permits)
