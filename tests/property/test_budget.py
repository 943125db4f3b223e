"""One ledger for a whole tree: no budget is overrun, nothing waits for ever, and what is not used comes back."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from acts.language.config import Budget
from acts.machines.budget import BudgetMachine, BudgetRefused, Granted, SendRecord
from acts.machines.ledger import Ledger, RequestSize
from acts.tree.records import BudgetAccount, BudgetGrant, BudgetRequest, SettledRequest, TreePosition

RUNS = ("root", "root/a", "root/b", "root/a/c")
limits = st.one_of(st.none(), st.integers(0, 12))
budgets = st.builds(Budget, requests=limits, tokens=st.one_of(st.none(), st.integers(0, 4_000)))
asks = st.lists(
    st.tuples(
        st.sampled_from(RUNS), st.integers(1, 4), st.integers(1, 500), st.integers(0, 500), st.booleans(),
        st.integers(0, 3),
    ),
    max_size=12,
)  # fmt: skip


class Tree:
    """A ledger and the requests that it granted; ``used`` is what the model reported, by account."""

    def __init__(self, root: Budget, own: Budget) -> None:
        self.ledger = Ledger()
        self.budgets = {"root": root, "root/a": own}
        self.used = {id_: [0, 0] for id_ in self.budgets}
        self.wanted: dict[int, int] = {}
        self.granted: dict[str, tuple[tuple[str, ...], int]] = {}
        self.refused: dict[int, str] = {}
        self.accounts: dict[int, tuple[str, ...]] = {}

    def accounts_of(self, run: str) -> tuple[str, ...]:
        return tuple(id_ for id_ in self.budgets if run == id_ or run.startswith(f"{id_}/"))

    def ask(self, number: int, run: str, count: int, least: int, more: int, others: int) -> None:
        ids = self.accounts_of(run)
        self.wanted[number], self.accounts[number] = count, ids
        accounts = tuple(BudgetAccount(id=id_, limits=self.budgets[id_]) for id_ in ids)
        self.take(self.ledger.answer(BudgetRequest(
            workflowId=run, id=number, accounts=accounts, requests=count, tokens=least + more, leastTokens=least,
            others=others,
        )))  # fmt: skip

    def take(self, grants: list[tuple[str, BudgetGrant]]) -> None:
        for _, grant in grants:
            for item in grant.granted:
                self.wanted[grant.id] -= 1
                self.granted[item.id] = (self.accounts[grant.id], item.tokens)
            if grant.refused is not None:
                self.refused[grant.id] = grant.refused
                self.wanted[grant.id] = 0

    def end(self, id_: str, share: float) -> None:
        """A request ends, having used a share of what was reserved for it; a second report changes nothing."""
        ids, reserved = self.granted.pop(id_)
        tokens = int(reserved * share)
        for account in ids:
            self.used[account][0] += 1
            self.used[account][1] += tokens
        item = SettledRequest(id=id_, usage={"requests": 1, "inputTokens": tokens, "outputTokens": 0, "cost": 0})
        self.take(self.ledger.settle([item]))
        assert self.ledger.settle([item]) == []

    def check(self) -> None:
        for id_, budget in self.budgets.items():
            running = [reserved for ids, reserved in self.granted.values() if id_ in ids]
            assert budget.requests is None or self.used[id_][0] + len(running) <= budget.requests
            assert budget.tokens is None or self.used[id_][1] + sum(running) <= budget.tokens


@given(budgets, budgets, asks, st.lists(st.floats(0, 1), min_size=1, max_size=5), st.randoms())
def test_no_budget_is_overrun_and_every_request_is_answered(
    root: Budget,
    own: Budget,
    requests: list[tuple[str, int, int, int, bool, int]],
    shares: list[float],
    random: Random,
) -> None:
    tree = Tree(root, own)
    for number, (run, count, least, more, ends, others) in enumerate(requests):
        tree.ask(number, run, count, least, more, others)
        tree.check()
        if ends and tree.granted:
            tree.end(random.choice(sorted(tree.granted)), shares[number % len(shares)])
            tree.check()
    turn = 0
    while tree.granted:
        tree.end(random.choice(sorted(tree.granted)), shares[turn % len(shares)])
        tree.check()
        turn += 1
    assert not any(tree.wanted.values()), "with nothing in flight, every request was granted or refused"


@given(st.integers(0, 8), st.integers(1, 20))
def test_a_budget_of_requests_allows_exactly_so_many(limit: int, wanted: int) -> None:
    position = TreePosition().with_budget("root", Budget(requests=limit))
    machine = BudgetMachine("root", position)
    granted: list[str] = []
    refused: list[str] = []
    effects = machine.request([str(n) for n in range(wanted)], RequestSize())
    while effects:
        effect = effects.pop(0)
        assert not isinstance(effect, SendRecord)
        if isinstance(effect, Granted):
            granted.append(effect.key)
            effects += machine.settle(effect.key, {"requests": 1, "inputTokens": 1, "outputTokens": 1, "cost": 0})
        elif isinstance(effect, BudgetRefused):
            refused.append(effect.key)
    assert (len(granted), len(refused)) == (min(limit, wanted), max(0, wanted - limit))


@given(st.integers(1, 5))
def test_what_is_reserved_for_a_run_that_is_gone_comes_back(count: int) -> None:
    tree = Tree(Budget(requests=count), Budget())
    tree.ask(0, "root/b", count, 1, 1, 0)
    assert len(tree.granted) == count
    tree.take(tree.ledger.release("root/b"))
    tree.granted.clear()
    tree.ask(1, "root/a/c", count, 1, 1, 0)
    assert len(tree.granted) == count
