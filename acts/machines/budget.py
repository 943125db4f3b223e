"""The budget of a tree of runs: one ledger at the root, asked before each request to a model.

Laws of this file:

* the ledger is kept at the root and nowhere else; every other run asks it in one hop and holds a
  *grant* before it makes a request;
* a grant *reserves* what its request may cost (the prompt's estimated tokens and the cap on the
  answer), so requests in flight cannot overrun a budget together; what was not used comes back;
* several grants travel in one message, and so do several reports of what requests cost.

A definition with a budget of its own is a sub-account: a request counts in every account on the way
from the root to the run that makes it.

When a budget has no room for a request, but some of it is reserved for requests in flight, the ledger
keeps the request and grants it when enough comes back. It refuses when nothing can come back.

``Ledger`` decides; ``BudgetMachine`` is the same thing seen from one run, be it the root or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acts.language.wire import BUDGET_GRANT, BUDGET_REPORT, BUDGET_REQUEST
from acts.machines.ledger import Ledger, RequestSize
from acts.tree.records import GrantedRequest, SettledRequest, TreePosition
from acts.tree.signal_records import BudgetGrant, BudgetReport, BudgetRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.tree.records import Accounting
    from acts.tree.signal_records import TreeSignal


@dataclass(frozen=True, slots=True)
class Granted:
    """The purpose ``key`` has what it asked for; ``request`` is the grant, None where nothing limits requests."""

    key: str
    request: GrantedRequest | None = None
    share: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class BudgetRefused:
    """The purpose ``key`` is not allowed: ``reason`` names the limit."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class SendRecord:
    """Signal another run. ``key`` names the message where a failure to deliver it matters to the sender."""

    workflow_id: str
    signal: str
    record: TreeSignal
    key: str = ""


BudgetEffect = Granted | BudgetRefused | SendRecord


class BudgetMachine:
    """The budget as one run sees it: it asks the root, or is the root and keeps the ledger.

    ``own`` is the workflow id. Every method returns effects, in order. A ``key`` is a purpose of the
    run (a Call's key, a tick); it is answered once.
    """

    def __init__(self, own: str, position: TreePosition, advance: GrantedRequest | None = None) -> None:
        self.own, self.position = own, position
        self.ledger = Ledger() if position.is_root else None
        if self.ledger is not None:
            self.ledger.add_calls(position.accounts, 0)
        limits = [account.limits for account in position.accounts]
        self.limits_tokens = any(limit.tokens is not None for limit in limits)
        self.limits_cost = any(limit.cost is not None for limit in limits)
        self.limits_calls = any(limit.calls is not None for limit in limits)
        self.limits_requests = (
            self.limits_tokens or self.limits_cost or any(limit.requests is not None for limit in limits)
        )
        self._advance = advance
        self._first_refusal: str | None = None
        self._next = 0
        self._asked: dict[int, list[str]] = {}
        self._requests: dict[int, BudgetRequest] = {}  # as the root was sent them, until it has answered
        self._grants: dict[str, GrantedRequest] = {}
        self._handed_on: dict[str, str] = {}  # to children that may end without a word of it: the ids of grants
        self._settled: list[SettledRequest] = []
        self._calls_changed = 0
        self._reporting = False
        if any(account.id == own for account in position.accounts):
            self.return_advance()  # the run's own budget knows nothing of it

    # -- what the run asks for -----------------------------------------------------------

    def request(self, keys: Sequence[str], size: RequestSize, others: int = 0) -> list[BudgetEffect]:
        """Ask for one request per key; ``others`` requests of this run may follow."""
        if not self.limits_requests:
            return [Granted(key) for key in keys]
        keys = list(keys)
        out: list[BudgetEffect] = []
        if self._first_refusal is not None:
            reason, self._first_refusal = self._first_refusal, None
            return [BudgetRefused(key, reason) for key in keys]
        advance = self._fit_advance(size) if keys else None
        if advance is not None:
            self._grants[keys[0]] = advance
            out.append(Granted(keys.pop(0), advance))
        if not keys:
            return out
        return out + self._ask(
            keys, requests=len(keys), tokens=size.most_tokens, leastTokens=size.least_tokens, cost=size.most_cost,
            leastCost=size.least_cost, others=others,
        )  # fmt: skip

    def refuse_first(self, reason: str) -> None:
        """The root has refused the first request already, when the parent asked for it."""
        self._first_refusal = reason

    def _fit_advance(self, size: RequestSize) -> GrantedRequest | None:
        """The request that the run was started with, cut to this size; None where it is too small, and goes back."""
        advance = self._advance
        if advance is None:
            return None
        tokens_fit = not self.limits_tokens or size.least_tokens <= advance.tokens
        if not tokens_fit or (self.limits_cost and size.least_cost > advance.cost):
            self.return_advance()
            return None
        self._advance = None
        tokens_short = max(0, size.most_tokens - advance.tokens) if self.limits_tokens else 0
        cost_short = max(0.0, size.most_cost - advance.cost) if self.limits_cost else 0.0
        return advance.model_copy(update={"tokensShort": tokens_short, "costShort": cost_short})

    def request_calls(self, key: str, count: int) -> list[BudgetEffect]:
        """Ask for ``count`` Calls."""
        return self._ask([key], calls=count) if self.limits_calls else [Granted(key)]

    def request_share(self, key: str, parts: int) -> list[BudgetEffect]:
        """Ask for one part of what is left, for a run that outlives the tree."""
        if not self.position.accounts:
            return [Granted(key, share={})]
        return self._ask([key], parts=parts)

    def count_calls(self, count: int) -> None:
        """Count Calls that were allowed when the Request was validated, or that an edit added."""
        if not self.limits_calls or not count:
            return
        if self.ledger is not None:
            self.ledger.add_calls(self.position.accounts, count)
        else:
            self._calls_changed += count

    def calls_refusal(self, count: int) -> str | None:
        """Why ``count`` more Calls are beyond a budget that is kept here; None where the root has to be asked."""
        return None if self.ledger is None else self.ledger.calls_refusal((a.id for a in self.position.accounts), count)

    def _ask(self, keys: list[str], **what: Any) -> list[BudgetEffect]:
        self._next += 1
        self._asked[self._next] = keys
        request = BudgetRequest(
            workflowId=self.own, id=self._next, accounts=self.position.accounts, ancestors=self.position.ancestors,
            settled=tuple(self._settled), **what,
        )  # fmt: skip
        self._settled.clear()
        if self.ledger is not None:
            return self._deliver(self.ledger.answer(request))
        self._requests[request.id] = request.model_copy(update={"settled": ()})
        return [self._send(request)]

    def _send(self, request: BudgetRequest) -> SendRecord:
        return SendRecord(self.position.ancestors[0], BUDGET_REQUEST, request, key=f"budget/{request.id}")

    def ask_again(self) -> list[BudgetEffect]:
        """The root may not know what this run has asked for: it was reset. What it grants twice goes back."""
        self._requests = {id_: request for id_, request in self._requests.items() if self._asked.get(id_)}
        return [self._send(request) for request in self._requests.values()]

    # -- answers ----------------------------------------------------------------------------

    def on_grant(self, grant: BudgetGrant) -> list[BudgetEffect]:
        """The root answers; what nobody needs any more goes back."""
        keys = self._asked.get(grant.id, [])
        out: list[BudgetEffect] = []
        for item in grant.granted:
            if keys:
                self._grants[keys[0]] = item
                out.append(Granted(keys.pop(0), item))
            else:
                out += self.take([SettledRequest(id=item.id)])
        if grant.refused is not None:
            out += [BudgetRefused(key, grant.refused) for key in keys]
            keys.clear()
        elif not grant.granted:  # Calls, or a share
            out += [Granted(key, share=grant.share) for key in keys]
            keys.clear()
        if not keys:
            self._asked.pop(grant.id, None)
            self._requests.pop(grant.id, None)
        return out

    def root_is_gone(self, number: int) -> list[BudgetEffect]:
        """The request of this number did not reach the root: nothing more may be spent."""
        self._requests.pop(number, None)
        keys = self._asked.pop(number, [])
        text = f"the run that keeps the budget, {self.position.ancestors[0]}, has ended: nothing more may be spent"
        return [BudgetRefused(key, text) for key in keys]

    def withdraw(self, key: str) -> None:
        """The purpose is void, though it may still be granted."""
        for keys in self._asked.values():
            if key in keys:
                keys.remove(key)

    # -- what requests cost ---------------------------------------------------------------------

    def settle(self, key: str, usage: Mapping[str, Any] | None) -> list[BudgetEffect]:
        """The request of a purpose has ended; ``usage`` None: it was not made."""
        grant = self._grants.pop(key, None)
        return [] if grant is None else self.take([SettledRequest(id=grant.id, usage=dict(usage) if usage else None)])

    def hand_on(self, key: str) -> GrantedRequest | None:
        """Give a grant to the child that is started for this purpose, which settles it."""
        grant = self._grants.pop(key, None)
        if grant is not None:
            self._handed_on[key] = grant.id
        return grant

    def child_ended(self, key: str, accounting: Accounting | None) -> list[BudgetEffect]:
        """The child of this purpose has ended; None: it never started, or said nothing of the grant that it had."""
        id_ = self._handed_on.pop(key, None)
        if accounting is not None:
            return self.take(accounting.settled)
        return [] if id_ is None else self.take([SettledRequest(id=id_)])

    def take(self, settled: Iterable[SettledRequest]) -> list[BudgetEffect]:
        """Settle requests that were made here or by a child."""
        if self.ledger is not None:
            return self._deliver(self.ledger.settle(settled))
        self._settled += settled
        return []

    def return_advance(self) -> None:
        """This run makes no request of its own: the one that it was started with goes back."""
        if self._advance is not None:
            self._settled.append(SettledRequest(id=self._advance.id))
            self._advance = None

    def take_unreported(self) -> tuple[SettledRequest, ...]:
        """What the root has not heard of, for the result of this run: the run above reports it."""
        self.return_advance()
        out = tuple(self._settled)
        self._settled.clear()
        return out

    def flush(self) -> list[BudgetEffect]:
        """One report of everything that the root has not heard of; the next when this one has arrived."""
        if self.ledger is not None or self._reporting or not (self._settled or self._calls_changed):
            return []
        report = BudgetReport(
            workflowId=self.own, accounts=self.position.accounts, settled=tuple(self._settled),
            calls=self._calls_changed,
        )  # fmt: skip
        self._settled.clear()
        self._calls_changed = 0
        self._reporting = True
        return [SendRecord(self.position.ancestors[0], BUDGET_REPORT, report, key="report")]

    def report_delivered(self) -> None:
        """The last report has arrived, or cannot."""
        self._reporting = False

    # -- at the root ------------------------------------------------------------------------------

    def on_request(self, request: BudgetRequest) -> list[BudgetEffect]:
        """A run below asks."""
        return [] if self.ledger is None else self._deliver(self.ledger.answer(request))

    def on_report(self, report: BudgetReport) -> list[BudgetEffect]:
        """A run below says what its requests cost."""
        if self.ledger is None:
            return []
        self.ledger.add_calls(report.accounts, report.calls)
        return self._deliver(self.ledger.settle(report.settled))

    def release(self, workflow_id: str) -> list[BudgetEffect]:
        """A run below ended without a last word."""
        return [] if self.ledger is None else self._deliver(self.ledger.release(workflow_id))

    def _deliver(self, grants: Iterable[tuple[str, BudgetGrant]]) -> list[BudgetEffect]:
        out: list[BudgetEffect] = []
        for workflow_id, grant in grants:
            if workflow_id == self.own:
                out += self.on_grant(grant)
            else:
                out.append(SendRecord(workflow_id, BUDGET_GRANT, grant, key=f"grant/{workflow_id}"))
        return out

    # -- carrying over ------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """``{ledger?, settled?, advance?}``: what the next run must know, at a quiet moment."""
        out: dict[str, Any] = {}
        if self.ledger is not None and self.position.accounts:
            out["ledger"] = self.ledger.snapshot()
        elif self.ledger is not None and (accounts := self.ledger.snapshot()):
            out["ledger"] = accounts
        if self._settled:
            out["settled"] = [item.to_json() for item in self._settled]
        if self._advance is not None:
            out["advance"] = self._advance.to_json()
        return out

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over a snapshot."""
        if self.ledger is not None:
            self.ledger.restore(data.get("ledger") or {})
        self._settled = [SettledRequest.from_json(item) for item in data.get("settled", ())]
        if "advance" in data:
            self._advance = GrantedRequest.from_json(data["advance"])
