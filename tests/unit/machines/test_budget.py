"""The ledger of a tree and the budget as one run sees it, case by case."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts.language.config import Budget, Config, ModelUse
from acts.machines.budget import BudgetMachine, Ledger, RequestSize, latent_request_size, request_size
from acts.machines.commands import BudgetRefused, Granted
from acts.tree.records import BudgetAccount, GrantedRequest, SettledRequest, TreePosition
from acts.tree.signal_records import BudgetGrant, BudgetRequest

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
        accounts: tuple[BudgetAccount, ...] = (), calls: int = 0,
    ) -> None:  # fmt: skip
        self._take(self.ledger.answer(BudgetRequest(
            workflowId=run, id=number, accounts=(self.root, *accounts), ancestors=(ROOT,), requests=count,
            tokens=size.most_tokens, leastTokens=size.least_tokens, cost=size.most_cost, leastCost=size.least_cost,
            calls=calls,
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


@pytest.mark.parametrize(
    ("limits", "size", "refusal"),
    [
        ({"requests": 0}, SMALL, "the budget of 0 requests is spent"),
        ({"tokens": 0}, SMALL, "the budget of 0 tokens is spent"),
        ({"tokens": 1}, RequestSize(1_010, 2_000),
         "the budget of 1 token has 1 left, and a request of about 1,010 does not fit"),
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


LIMITED = TreePosition(ancestors=(ROOT, "r/m")).model_copy(
    update={"accounts": (BudgetAccount(id=ROOT, limits=Budget(requests=9, tokens=1_000)),)}
)


def test_the_next_run_has_the_ledger_what_is_unreported_and_the_request_not_used_yet() -> None:
    machine = BudgetMachine("r/x", LIMITED)
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


def test_a_latent_call_in_a_batch_reserves_half_of_the_cost_and_a_planner_s_request_all_of_it() -> None:
    direct, batched = Config(model="openai:x"), Config(model="openai:x", models=ModelUse(batch=True))
    one, other = (latent_request_size(config, (0.1, 0.2), 1_000, [["call"]]) for config in (direct, batched))
    assert (one.most_tokens, one.least_cost, one.most_cost) == (
        other.most_tokens, 2 * other.least_cost, 2 * other.most_cost
    )  # fmt: skip
    assert request_size(direct, (0.1, 0.2), 1_000) == request_size(batched, (0.1, 0.2), 1_000)
