"""The ledger of a tree and the budget as one run sees it, case by case."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts.language.config import Budget
from acts.machines.budget import BudgetEffect, BudgetMachine, BudgetRefused, Granted, SendRecord
from acts.machines.ledger import Ledger, RequestSize
from acts.tree.records import Accounting, BudgetAccount, GrantedRequest, SettledRequest, TreePosition
from acts.tree.signal_records import BudgetGrant, BudgetReport, BudgetRequest

Json = Any
ROOT = "r"
SMALL = RequestSize(10, 20)


def used(requests: int = 1, tokens: int = 0, cost: float = 0.0) -> Json:
    return {"requests": requests, "inputTokens": tokens, "outputTokens": 0, "cost": cost}


class Asked:
    """A ledger, and what became of each ask, by the number of the ask."""

    def __init__(self, **limits: Json) -> None:
        self.ledger = Ledger()
        self.root = BudgetAccount(id=ROOT, limits=Budget(**limits))
        self.grants: dict[int, list[GrantedRequest]] = {}
        self.refusals: dict[int, str] = {}
        self.order: list[int] = []

    def ask(
        self, number: int, count: int = 1, size: RequestSize = SMALL, *, run: str = "r/x",
        accounts: tuple[BudgetAccount, ...] = (), others: int = 0, calls: int = 0,
    ) -> None:  # fmt: skip
        self._take(self.ledger.answer(BudgetRequest(
            workflowId=run, id=number, accounts=(self.root, *accounts), ancestors=(ROOT,), requests=count,
            tokens=size.most_tokens, leastTokens=size.least_tokens, cost=size.most_cost, leastCost=size.least_cost,
            others=others, calls=calls,
        )))  # fmt: skip

    def end(self, number: int, usage: Json, *, which: int = 0) -> None:
        """A request of an ask ends."""
        grant = self.grants[number].pop(which)
        self._take(self.ledger.settle([SettledRequest(id=grant.id, usage=usage)]))

    def release(self, run: str) -> None:
        self._take(self.ledger.release(run))

    def _take(self, answers: list[tuple[str, BudgetGrant]]) -> None:
        for _, grant in answers:
            self.grants.setdefault(grant.id, []).extend(grant.granted)
            self.order += [grant.id] * len(grant.granted)
            if grant.refused is not None:
                self.refusals[grant.id] = grant.refused


# -- what fits, and what does not -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "size", "refusal"),
    [
        ({"requests": 0}, SMALL, "the budget of 0 requests is spent"),
        ({"tokens": 0}, SMALL, "the budget of 0 tokens is spent"),
        ({"cost": 0.0}, SMALL, "the budget of 0 US dollars is spent"),
        ({"tokens": 1_009}, RequestSize(1_010, 2_000),
         "the budget of 1,009 tokens has 1,009 left, and a request of about 1,010 does not fit"),
        ({"cost": 0.5}, RequestSize(1, 1, 0.6, 0.7),
         "the budget of 0.5 US dollars has 0.5 left, and a request of about 0.6 does not fit"),
    ],
)  # fmt: skip
def test_what_can_never_fit_is_refused_at_once_and_the_limit_named(
    limits: Json, size: RequestSize, refusal: str
) -> None:
    tree = Asked(**limits)
    tree.ask(1, size=size)
    assert tree.refusals == {1: refusal}


def test_an_ask_without_a_budget_is_refused() -> None:
    ((_, grant),) = Ledger().answer(BudgetRequest(workflowId="r/x", id=1, accounts=(), requests=1))
    assert grant.refused == "the request names no budget"


@pytest.mark.parametrize("budget", range(6))
@pytest.mark.parametrize("more", [0, 1, 3])
@pytest.mark.parametrize("is_together", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_a_budget_of_n_requests_allows_exactly_n(
    budget: int,
    more: int,
    is_together: bool,  # noqa: FBT001 - cases
    fails: bool,  # noqa: FBT001
) -> None:
    """However they are asked for, and though some hold room for a repair, or end without having been made."""
    tree = Asked(requests=budget)
    count = budget + more
    if is_together:
        tree.ask(1, count)
    else:
        for number in range(count):
            tree.ask(number)
    made = failures = 0
    while waiting := [n for n, grants in tree.grants.items() if grants]:
        if fails and failures < more:
            failures += 1
            tree.end(waiting[0], None)
        else:
            made += 1
            tree.end(waiting[0], used())
    assert made == budget
    assert len(tree.refusals) == (0 if count - failures == budget else 1 if is_together else count - budget - failures)


def test_room_for_a_repair_is_held_only_while_nobody_known_needs_it() -> None:
    tree = Asked(requests=3)
    tree.ask(0, others=2)
    assert [g.mayRepair for g in tree.grants[0]] == [False]
    tree.end(0, None)
    tree.ask(1, 2)
    assert [g.mayRepair for g in tree.grants[1]] == [True, False]
    tree.ask(2)
    assert 2 not in tree.grants
    tree.end(1, used(1))
    assert [g.mayRepair for g in tree.grants[2]] == [False]


def test_a_repair_that_was_made_counts() -> None:
    tree = Asked(requests=3)
    tree.ask(1)
    tree.end(1, used(2))
    tree.ask(2, 2)
    assert (len(tree.grants[2]), tree.refusals) == (1, {})
    tree.end(2, used(1))
    assert tree.refusals == {2: "the budget of 3 requests is spent"}


def test_a_grant_that_comes_back_unused_serves_the_next() -> None:
    tree = Asked(requests=1)
    tree.ask(1)
    tree.ask(2)
    assert (tree.grants.get(2), tree.refusals) == (None, {})
    tree.end(1, None)
    assert len(tree.grants[2]) == 1


def test_requests_in_flight_do_not_overrun_a_budget_together() -> None:
    tree = Asked(tokens=39)
    for number in (1, 2, 3):
        tree.ask(number)
    assert tree.order == [1]
    tree.end(1, used(1, 5))
    assert tree.order == [1, 2]
    tree.end(2, used(1, 20))
    assert [(g.tokens, g.tokensShort) for g in tree.grants[3]] == [(14, 6)]


def test_the_last_of_a_budget_goes_to_a_shorter_answer() -> None:
    tree = Asked(tokens=30, cost=3.0)
    tree.ask(1, size=RequestSize(10, 100, 1.0, 10.0))
    (grant,) = tree.grants[1]
    assert (grant.tokens, grant.tokensShort, grant.cost, grant.costShort) == (30, 70, 3.0, 7.0)
    assert not grant.mayRepair


# -- who waits for whom -----------------------------------------------------------------------------


def test_a_large_request_is_not_kept_waiting_by_small_ones_that_come_later() -> None:
    tree = Asked(tokens=100)
    tree.ask(0, size=RequestSize(10, 40))
    tree.ask(1, size=RequestSize(10, 90))
    for number in range(2, 6):
        tree.ask(number, size=RequestSize(1, 5), run=f"r/{number}")
    assert tree.order == [0]
    tree.end(0, used(1, 10))
    assert tree.order == [0, 1]
    tree.end(1, used(1, 10))
    assert tree.order == [0, 1, 2, 3, 4, 5]


def test_a_request_that_waits_in_its_own_budget_holds_up_no_other() -> None:
    own = BudgetAccount(id="r/x", limits=Budget(tokens=20))
    tree = Asked(tokens=1_000)
    tree.ask(1, 2, accounts=(own,))
    tree.ask(2, run="r/y")
    assert tree.order == [1, 2]
    tree.end(1, used(1, 5))
    assert tree.order == [1, 2, 1]  # what is left goes to a shorter answer


def test_a_request_that_nothing_in_its_own_budget_can_help_does_not_wait_for_others() -> None:
    own = BudgetAccount(id="r/x", limits=Budget(tokens=15))
    tree = Asked(tokens=1_000)
    tree.ask(1, run="r/y")  # in flight, elsewhere
    tree.ask(2, accounts=(own,))
    assert [(g.tokens, g.tokensShort) for g in tree.grants[2]] == [(15, 5)]


def test_asks_of_one_budget_are_served_in_their_order() -> None:
    tree = Asked(requests=8)
    for number in range(4):
        tree.ask(number, 3, run=f"r/{number}")
    while any(tree.grants.values()):
        tree.end(next(n for n, grants in tree.grants.items() if grants), None)
    assert tree.order == sorted(tree.order)


# -- runs that end without a word -------------------------------------------------------------------


def test_what_is_reserved_for_a_run_that_is_gone_and_those_below_it_comes_back() -> None:
    tree = Asked(requests=2)
    tree.ask(1, 2, run="r/x")
    tree.ask(2, run="r/x")
    tree.ask(3, run="r/y")
    tree.release("r/x")
    assert [(n, len(g)) for n, g in tree.grants.items()] == [(1, 2), (3, 1)]


def test_what_a_run_that_was_given_up_made_all_the_same_is_counted_once() -> None:
    tree = Asked(requests=2)
    tree.ask(1, run="r/x")
    tree.release("r/x")
    for _ in range(2):
        tree.end(1, used()) if tree.grants[1] else None
    tree.ask(2, 2)
    assert len(tree.grants[2]) == 1
    tree.end(2, used())
    assert tree.refusals == {2: "the budget of 2 requests is spent"}


def test_a_second_report_of_a_request_changes_nothing() -> None:
    tree = Asked(requests=3)
    tree.ask(1)
    (grant,) = tree.grants[1]
    report = SettledRequest(id=grant.id, usage=used())
    assert tree.ledger.settle([report, report]) == tree.ledger.settle([report]) == []
    tree.ask(2, 2)
    assert len(tree.grants[2]) == 2


# -- shares and Calls -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "parts", "share"),
    [
        ({"requests": 5}, 2, {"requests": 3}),
        ({"requests": 1}, 3, {"requests": 1}),
        ({"tokens": 100, "cost": 3.0}, 4, {"tokens": 25, "cost": 0.75}),
        ({"calls": 7}, 2, {"calls": 4}),
        ({"depth": 3}, 2, {}),
        ({"requests": 0}, 2, {"requests": 0}),
    ],
)
def test_a_run_that_outlives_its_tree_gets_a_part_of_what_is_left(limits: Json, parts: int, share: Json) -> None:
    ledger, account = Ledger(), BudgetAccount(id=ROOT, limits=Budget(**limits))
    request = BudgetRequest(workflowId="r/x", id=1, accounts=(account,), parts=parts)
    ((run, grant),) = ledger.answer(request)
    assert (run, grant.share) == ("r/x", share)
    before = ledger.snapshot()[ROOT]
    assert before["used"]["requests"] == share.get("requests", 0)
    assert before["calls"] == share.get("calls", 0)


@pytest.mark.parametrize(
    ("counts", "refused"),
    [([4, 1], None), ([5], None), ([6], "does not allow 6 more: 0 were"), ([4, 2], "does not allow 2 more: 4 were")],
)
def test_calls_are_counted_when_they_are_planned(counts: list[int], refused: str | None) -> None:
    tree = Asked(calls=5)
    for number, count in enumerate(counts):
        tree.ask(number, 0, calls=count)
    said = tree.refusals.get(len(counts) - 1)
    assert (refused in said if refused and said else said is refused) is True


# -- one run ----------------------------------------------------------------------------------------


LIMITED = TreePosition(ancestors=(ROOT, "r/m")).model_copy(
    update={"accounts": (BudgetAccount(id=ROOT, limits=Budget(requests=9, tokens=1_000)),)}
)
ADVANCE = GrantedRequest(id="r/m#1", tokens=50, mayRepair=True)


def sent(effects: list[BudgetEffect]) -> BudgetRequest:
    (effect,) = effects
    assert isinstance(effect, SendRecord)
    assert isinstance(effect.record, BudgetRequest)
    return effect.record


def report(machine: BudgetMachine) -> list[SettledRequest]:
    effects = machine.flush()
    if not effects:
        return []
    assert isinstance(effects[0], SendRecord)
    assert isinstance(effects[0].record, BudgetReport)
    return list(effects[0].record.settled)


def test_a_run_without_a_budget_asks_nobody() -> None:
    machine = BudgetMachine("r/x", TreePosition(ancestors=(ROOT,)))
    assert machine.request(["a", "b"], SMALL) == [Granted("a"), Granted("b")]
    assert machine.request_calls("c", 5) == [Granted("c")]
    assert machine.request_share("d", 2) == [Granted("d", share={})]
    assert machine.flush() == []


def test_the_root_asks_its_own_ledger() -> None:
    machine = BudgetMachine(ROOT, TreePosition().with_budget(ROOT, Budget(requests=1)))
    (granted,) = machine.request(["a", "b"], SMALL)
    assert isinstance(granted, Granted)
    assert machine.settle("a", used()) == [BudgetRefused("b", "the budget of 1 requests is spent")]


@pytest.mark.parametrize(
    ("size", "short"),
    [(RequestSize(10, 20), 0), (RequestSize(10, 50), 0), (RequestSize(50, 80), 30), (RequestSize(50, 32_000), 31_950)],
)
def test_the_request_that_a_run_is_started_with_is_used_first_and_cut_to_its_size(
    size: RequestSize, short: int
) -> None:
    """The parent knew the size of its Call, not that of the delegate's prompt and answer."""
    advance = ADVANCE.model_copy(update={"tokensShort": 7})
    machine = BudgetMachine("r/x", LIMITED, advance)
    first, second = machine.request(["a", "b"], size)
    assert first == Granted("a", advance.model_copy(update={"tokensShort": short}))
    assert isinstance(second, SendRecord)


def test_where_tokens_are_not_limited_no_answer_is_cut() -> None:
    accounts = (BudgetAccount(id=ROOT, limits=Budget(requests=9)),)
    machine = BudgetMachine("r/x", LIMITED.model_copy(update={"accounts": accounts}), ADVANCE)
    assert machine.request(["a"], RequestSize(60, 32_000)) == [Granted("a", ADVANCE)]


def test_a_request_that_is_too_small_goes_back_with_the_ask_for_another() -> None:
    machine = BudgetMachine("r/x", LIMITED, ADVANCE)
    request = sent(machine.request(["a"], RequestSize(51, 80)))
    assert request.settled == (SettledRequest(id=ADVANCE.id),)


def test_a_run_with_a_budget_of_its_own_asks_for_its_first_request_too() -> None:
    """What it was started with is reserved in the budgets above it only."""
    machine = BudgetMachine("r/x", LIMITED.with_budget("r/x", Budget(requests=1)), ADVANCE)
    request = sent(machine.request(["a"], SMALL))
    assert request.settled == (SettledRequest(id=ADVANCE.id),)
    assert [account.id for account in request.accounts] == [ROOT, "r/x"]


def test_grants_for_what_nobody_needs_any_more_go_back_however_late_they_come() -> None:
    machine = BudgetMachine("r/x", LIMITED)
    request = sent(machine.request(["a", "b", "c"], SMALL))
    machine.withdraw("b")
    grants = [GrantedRequest(id=f"r/x#{n}") for n in range(3)]
    first = machine.on_grant(BudgetGrant(id=request.id, granted=tuple(grants[:2])))
    assert first == [Granted("a", grants[0]), Granted("c", grants[1])]
    assert machine.on_grant(BudgetGrant(id=request.id, granted=(grants[2],))) == []
    assert report(machine) == [SettledRequest(id="r/x#2")]


def test_a_refusal_is_for_all_that_is_still_asked_for() -> None:
    machine = BudgetMachine("r/x", LIMITED)
    request = sent(machine.request(["a", "b", "c"], SMALL))
    machine.on_grant(BudgetGrant(id=request.id, granted=(GrantedRequest(id="r/x#1"),)))
    refused = machine.on_grant(BudgetGrant(id=request.id, refused="spent"))
    assert refused == [BudgetRefused("b", "spent"), BudgetRefused("c", "spent")]


def test_without_a_root_nothing_more_may_be_spent() -> None:
    machine = BudgetMachine("r/x", LIMITED)
    request = sent(machine.request(["a"], SMALL))
    (refused,) = machine.root_is_gone(request.id)
    assert isinstance(refused, BudgetRefused)
    assert "has ended" in refused.reason
    assert machine.root_is_gone(request.id) == []


@pytest.mark.parametrize(
    ("accounting", "reported"),
    [
        (Accounting(settled=(SettledRequest(id="g", usage=used()),)), [SettledRequest(id="g", usage=used())]),
        (Accounting(), []),  # it has reported by itself
        (None, [SettledRequest(id="g")]),  # it never started, or said nothing
    ],
)
def test_a_grant_that_was_handed_to_a_child_is_settled_whatever_becomes_of_the_child(
    accounting: Accounting | None, reported: list[SettledRequest]
) -> None:
    machine = BudgetMachine("r/x", LIMITED)
    request = sent(machine.request(["a"], SMALL))
    machine.on_grant(BudgetGrant(id=request.id, granted=(GrantedRequest(id="g"),)))
    assert machine.hand_on("a") == GrantedRequest(id="g")
    machine.child_ended("a", accounting)
    assert report(machine) == reported
    machine.report_delivered()
    machine.child_ended("a", None)
    assert report(machine) == []


def test_reports_travel_one_at_a_time_and_together() -> None:
    machine = BudgetMachine("r/x", LIMITED)
    first, *others = [SettledRequest(id=f"g{n}", usage=used()) for n in range(3)]
    machine.take([first])
    assert report(machine) == [first]
    machine.take(others)
    assert report(machine) == []
    machine.report_delivered()
    assert report(machine) == others


def test_the_result_of_a_run_says_what_no_report_said() -> None:
    machine = BudgetMachine("r/x", LIMITED, ADVANCE)
    machine.take([SettledRequest(id="g", usage=used())])
    assert machine.take_unreported() == (SettledRequest(id="g", usage=used()), SettledRequest(id=ADVANCE.id))
    assert machine.take_unreported() == ()


def test_the_next_run_has_the_ledger_what_is_unreported_and_the_request_not_used_yet() -> None:
    machine = BudgetMachine("r/x", LIMITED, ADVANCE)
    machine.take([SettledRequest(id="g", usage=used())])
    again = BudgetMachine("r/x", LIMITED)
    again.restore(json.loads(json.dumps(machine.snapshot())))
    assert again.take_unreported() == machine.take_unreported()

    root = BudgetMachine(ROOT, TreePosition().with_budget(ROOT, Budget(requests=2, calls=5)))
    root.count_calls(3)
    root.request(["a"], SMALL)
    root.settle("a", used())
    next_root = BudgetMachine(ROOT, root.position)
    next_root.restore(json.loads(json.dumps(root.snapshot())))
    for machine in (root, next_root):
        assert machine.calls_refusal(3) is not None
        (granted,) = machine.request(["b", "c"], SMALL)
        assert isinstance(granted, Granted)
        assert machine.settle("b", used()) == [BudgetRefused("c", "the budget of 2 requests is spent")]
