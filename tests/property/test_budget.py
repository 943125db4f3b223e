"""One budget for a tree of runs: asked late, answered out of order, by runs that delegate, die and start anew.

Whatever happens, no limit is overrun, nothing is refused that there was room for, nobody waits for ever, and what
was not used comes back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from acts.language.config import Budget
from acts.machines.budget import RequestSize
from acts.machines.commands import BudgetRefused, Finish, Granted, SendRecord
from acts.machines.events import Begin, CallEnded, CancelRequested, ChildEnded, Event, HoldChanged, PauseChanged
from acts.machines.run_machine import RunMachine
from acts.tree.records import BudgetAccount, GrantedRequest, TreePosition
from acts.tree.signal_records import BudgetGrant, BudgetReport, BudgetRequest
from tests.property.simulated_tree import ROOT, SETTINGS, BareRun, Message, PausedRaces, Tree

Json = Any
DOLLARS_PER_TOKEN = 0.25  # a power of two: sums are exact


@dataclass(frozen=True)
class Ask:
    """A person's plan asks: so many requests of a size."""

    keys: tuple[str, ...]
    size: RequestSize


@dataclass(frozen=True)
class AskCalls:
    key: str
    count: int


class SpendingRun(BareRun):
    """A run whose only work is to make requests, and to have children make them."""

    def __init__(self, own: str, position: TreePosition) -> None:
        super().__init__(own, position)
        self.asked: set[str] = set()
        self.sizes: dict[str, tuple[RequestSize, int]] = {}  # of what was asked: of a request, and Calls
        self.in_flight_requests: dict[str, GrantedRequest] = {}
        self.refused: list[str] = []
        self.may_end = False

    @property
    def in_flight(self) -> int:
        return len(self.in_flight_requests) + len(self.asked) + len(self.children)

    def react(self, event: Event, now: str) -> list[Any]:
        match event:
            case Ask() if not self.is_cancelling:
                self.asked.update(event.keys)
                self.sizes |= dict.fromkeys(event.keys, (event.size, 0))
                return list(self.budget.request(event.keys, event.size))
            case AskCalls() if not self.is_cancelling:
                self.asked.add(event.key)
                self.sizes[event.key] = (RequestSize(), event.count)
                return list(self.budget.request_calls(event.key, event.count))
            case CallEnded() if event.key in self.in_flight_requests:
                del self.in_flight_requests[event.key]
                return list(self.budget.settle(event.key, event.usage)) + self._end_if_over()
            case CancelRequested():
                self.is_cancelling = True
                self.asked.clear()
            case HoldChanged(False):
                return self._end_if_over()
            case ChildEnded():
                return self._end_if_over()
        return []

    def on_granted(self, effect: Granted, now: str) -> list[Any]:
        self.asked.remove(effect.key)
        if effect.request is not None:
            self.in_flight_requests[effect.key] = effect.request
        return self._end_if_over()

    def on_refused(self, effect: BudgetRefused, now: str) -> list[Any]:
        self.asked.remove(effect.key)
        self.refused.append(effect.reason)
        if self.position.is_root:
            assert_no_room(self, self.position.accounts, *self.sizes[effect.key], effect.reason)
        return self._end_if_over()

    def _end_if_over(self) -> list[Any]:
        if self.in_flight or not self.may_end or self.finished is not None:
            return []
        self.finished = "completed"
        return [Finish("completed")]

    def renewed(self) -> SpendingRun:
        carried = json.loads(json.dumps(self.common_snapshot()))
        new = SpendingRun(self.own, self.position)
        new.restore_common(carried["approvals"], carried["budget"])
        new.refused, new.may_end = self.refused, self.may_end
        return new


@dataclass
class Spent:
    """What was really spent within one account."""

    requests: int = 0
    tokens: int = 0
    cost: float = 0.0


class WatchedTree(Tree):
    """A tree in which each refusal is checked against what the ledger knows."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[tuple[str, int], BudgetRequest] = {}

    def has_work(self, id_: str) -> bool:
        machine = self.runs[id_].machine
        return isinstance(machine, SpendingRun) and bool(machine.in_flight_requests)

    def perform(self, id_: str, commands: list[Any]) -> None:
        super().perform(id_, commands)
        for command in commands:
            record = command.record if isinstance(command, SendRecord) else None
            if isinstance(record, BudgetRequest):
                self.requests[record.workflowId, record.id] = record
            if isinstance(record, BudgetGrant) and record.refused is not None:
                self._check_refusal(self.requests[command.workflow_id, record.id], record.refused)

    def _check_refusal(self, request: BudgetRequest, reason: str) -> None:
        size = RequestSize(least_tokens=request.leastTokens, least_cost=request.leastCost)
        assert_no_room(self.runs[ROOT].machine, request.accounts, size, request.calls, reason)


def assert_no_room(
    root: RunMachine, accounts: tuple[BudgetAccount, ...], size: RequestSize, calls: int, reason: str
) -> None:
    """A refusal is right: even if everything that is reserved came back unused, there would be no room."""
    ledger = root.budget.ledger
    assert ledger is not None
    for account in accounts:
        limits, used = account.limits, ledger._accounts[account.id].used
        tokens, cost = used.inputTokens + used.outputTokens, used.cost or 0.0
        if limits.requests is not None and used.requests >= limits.requests:
            return
        if limits.tokens is not None and tokens + max(1, size.least_tokens) > limits.tokens:
            return
        if limits.cost is not None and (cost >= limits.cost or cost + size.least_cost > limits.cost):
            return
        if limits.calls is not None and ledger._accounts[account.id].calls + calls > limits.calls:
            return
    raise AssertionError(f"refused, and there is room: {reason}")


sizes = st.builds(
    lambda least, more: RequestSize(least, least + more, least * DOLLARS_PER_TOKEN, (least + more) * DOLLARS_PER_TOKEN),
    st.integers(1, 20), st.integers(0, 60),
)  # fmt: skip
budgets = st.builds(
    Budget,
    requests=st.sampled_from([None, None, 0, 1, 2, 3, 5, 8]),
    tokens=st.sampled_from([None, None, 0, 10, 60, 100, 250]),
    cost=st.sampled_from([None, None, 0.0, 2.5, 15.0, 40.0]),
    calls=st.sampled_from([None, 0, 4, 10]),
)


class BudgetRaces(PausedRaces):
    """Runs ask, spend, delegate, end, die, and continue as new, while their messages are on their way."""

    def __init__(self) -> None:
        super().__init__(WatchedTree())
        self.count = 0
        self.spent: dict[str, Spent] = {}
        self.is_tainted = False  # a run died with requests in flight: what they cost is not known

    @initialize(budget=budgets, own=st.one_of(st.none(), budgets))
    def grow(self, budget: Budget, own: Budget | None) -> None:
        """A root and two delegates; the first may have a budget of its own."""
        root = TreePosition().with_budget(ROOT, budget)
        self.tree.start(SpendingRun(ROOT, root))
        for name in ("a", "b"):
            position = root.delegate(ROOT)
            if name == "a" and own is not None:
                position = position.with_budget(f"{ROOT}/a", own)
            self.tree.start(SpendingRun(f"{ROOT}/{name}", position), ROOT, name)
        self.tree.settle()

    def machine(self, id_: str) -> SpendingRun:
        machine = self.tree.runs[id_].machine
        assert isinstance(machine, SpendingRun)
        return machine

    def _key(self) -> str:
        self.count += 1
        return f"k{self.count}"

    # -- what runs do ---------------------------------------------------------------------------

    @rule(data=st.data(), count=st.integers(1, 4), size=sizes)
    def ask(self, data: st.DataObject, count: int, size: RequestSize) -> None:
        if ids := self._alive():
            keys = tuple(self._key() for _ in range(count))
            self.tree.runs[data.draw(st.sampled_from(ids))].inbox.append(Ask(keys, size))

    @rule(data=st.data(), count=st.integers(1, 5))
    def ask_for_calls(self, data: st.DataObject, count: int) -> None:
        if ids := self._alive():
            id_ = data.draw(st.sampled_from(ids))
            self.tree.runs[id_].inbox.append(AskCalls(self._key(), count))

    @rule(data=st.data(), turns=st.integers(0, 2), part=st.floats(0, 1))
    def end_a_request(self, data: st.DataObject, turns: int, part: float) -> None:
        """A request ends: it was not made, made once, or (where the grant has room) repaired in a second turn."""
        flying = [(i, key) for i in self.tree.runs for key in self.machine(i).in_flight_requests]
        flying = [(i, key) for i, key in flying if not any(_key_of(e) == key for e in self.tree.runs[i].inbox)]
        if flying:
            self._end_request(*data.draw(st.sampled_from(flying)), turns, part)

    def _end_request(self, id_: str, key: str, turns: int, part: float) -> None:
        grant = self.machine(id_).in_flight_requests[key]
        turns = min(turns, 2 if grant.mayRepair else 1)
        tokens = int(turns * grant.tokens * part)
        cost = min(tokens * DOLLARS_PER_TOKEN, turns * grant.cost)
        usage = {"requests": turns, "inputTokens": tokens, "cost": cost} if turns else None
        for account in self.machine(id_).position.accounts:
            spent = self.spent.setdefault(account.id, Spent())
            spent.requests += turns
            spent.tokens += tokens if turns else 0
            spent.cost += cost if turns else 0.0
        self.tree.runs[id_].inbox.append(CallEnded(key, None, usage=usage))

    @rule(data=st.data(), budget=st.one_of(st.none(), budgets), fails=st.booleans())
    def start_a_child(self, data: st.DataObject, budget: Budget | None, fails: bool) -> None:  # noqa: FBT001
        """A delegate may have a budget of its own, or end before its machine is there."""
        if ids := [i for i in self._alive() if not self.machine(i).may_end]:
            parent, key = data.draw(st.sampled_from(ids)), self._key()
            id_ = f"{parent}/{key}"
            position = self.machine(parent).position.delegate(parent)
            position = position if budget is None else position.with_budget(id_, budget)
            self.tree.start(SpendingRun(id_, position), parent, key)
            if fails:
                self.tree.end(id_, None)

    @rule(data=st.data())
    def end_a_run(self, data: st.DataObject) -> None:
        if ids := [i for i in self._alive() if i != ROOT]:
            id_ = data.draw(st.sampled_from(ids))
            self.machine(id_).may_end = True
            self.tree.runs[id_].inbox.append(HoldChanged(False))

    @rule(data=st.data(), one_in=st.integers(0, 3))
    def kill(self, data: st.DataObject, one_in: int) -> None:
        ids = [i for i in self.tree.runs if i != ROOT]
        if ids and one_in == 0:
            id_ = data.draw(st.sampled_from(ids))
            below = [i for i in self.tree.runs if i == id_ or id_ in self.machine(i).position.ancestors]
            self.is_tainted |= any(self.machine(i).in_flight_requests or self.machine(i).budget._settled for i in below)
            self.is_tainted |= any(m.record for line, ms in self.tree.lines.items() if line[0] in below for m in ms)
            self.tree.kill(id_)

    @rule(data=st.data(), one_in=st.integers(0, 3))
    def cancel(self, data: st.DataObject, one_in: int) -> None:
        ids = [i for i in self._alive() if i != ROOT]
        if ids and one_in == 0:
            id_ = data.draw(st.sampled_from(ids))
            for run in [i for i in self.tree.runs if i == id_ or id_ in self.machine(i).position.ancestors]:
                self.tree.runs[run].inbox.append(CancelRequested())

    @rule(data=st.data())
    def continue_as_new(self, data: st.DataObject) -> None:
        quiet = [i for i in self._alive() if self.tree.is_quiet(i) and self.machine(i).in_flight == 0]
        quiet = [i for i in quiet if not self.machine(i).has_not_begun]
        if quiet:
            run = self.tree.runs[data.draw(st.sampled_from(quiet))]
            assert isinstance(run.machine, SpendingRun)
            run.machine = run.machine.renewed()
            run.inbox.append(Begin())

    # -- the network ------------------------------------------------------------------------------

    @precondition(lambda self: self.tree.lines)
    @rule(data=st.data(), twice=st.booleans())
    def arrive(self, data: st.DataObject, twice: bool) -> None:  # noqa: FBT001
        line = data.draw(st.sampled_from(list(self.tree.lines)))
        message = self.tree.lines[line][0]
        if not message.arrived and twice and isinstance(message.record, BudgetReport) and not message.record.calls:
            again = Message(message.record, "again")
            self.tree.lines[line].insert(1, again)
        self.tree.arrive(line)

    # -- what holds -------------------------------------------------------------------------------

    @invariant()
    def no_limit_is_overrun(self) -> None:
        if self.is_tainted or ROOT not in self.tree.runs:
            return
        ledger = self.machine(ROOT).budget.ledger
        assert ledger is not None
        for id_, account in ledger._accounts.items():
            limits, spent = account.limits, self.spent.get(id_, Spent())
            assert limits.requests is None or spent.requests <= limits.requests
            assert limits.tokens is None or spent.tokens <= limits.tokens
            assert limits.cost is None or spent.cost <= limits.cost + 1e-9
            assert limits.calls is None or account.calls <= limits.calls

    @rule()
    def come_to_rest(self) -> None:
        self.tree.settle()
        self._check_nobody_waits_for_nothing()

    def _check_nobody_waits_for_nothing(self) -> None:
        """Everybody has an answer while nothing is in flight that could give something back."""
        if ROOT not in self.tree.runs:
            return
        holds = any(self.machine(i).in_flight_requests or self.machine(i)._held_answers for i in self.tree.runs)
        if not holds:
            assert [i for i in self.tree.runs if self.machine(i).asked] == []
            ledger = self.machine(ROOT).budget.ledger
            assert ledger is not None
            assert ledger._reservations == {}
            assert ledger._queue == []
            assert all((a.grants, a.reserved) == (0, (0, 0, 0)) for a in ledger._accounts.values())

    def teardown(self) -> None:
        if ROOT not in self.tree.runs:
            return
        for _ in range(1_000):
            self.tree.settle()
            for id_ in self._alive():
                self.tree.runs[id_].inbox.append(PauseChanged(False))
            self.tree.settle()
            flying = [(i, key) for i in self.tree.runs for key in self.machine(i).in_flight_requests]
            if flying:
                self._end_request(*flying[0], 1, 1.0)
            elif idle := [i for i in self.tree.runs if i != ROOT and not self.machine(i).may_end]:
                self.machine(idle[-1]).may_end = True
                self.tree.runs[idle[-1]].inbox.append(HoldChanged(False))
            else:
                break
        assert list(self.tree.runs) == [ROOT], "a run never ends"
        self._check_nobody_waits_for_nothing()
        self.no_limit_is_overrun()
        self._check_totals()

    def _check_totals(self) -> None:
        """The ledger knows what was spent, and nothing was refused before that."""
        ledger = self.machine(ROOT).budget.ledger
        assert ledger is not None
        if self.is_tainted:
            return
        for id_, spent in self.spent.items():
            used = ledger._accounts[id_].used
            assert (used.requests, used.inputTokens, used.cost) == (spent.requests, spent.tokens, spent.cost)


def _key_of(event: Event) -> str | None:
    return event.key if isinstance(event, CallEnded) else None


TestBudgetRaces = BudgetRaces.TestCase
TestBudgetRaces.settings = SETTINGS
