"""The ledger of a tree: its accounts, what is reserved for requests in flight, and who waits for room.

A definition with a budget of its own is a sub-account: a request counts in every account on the way from
the root to the run that makes it. When a budget has no room for a request, but some of it is reserved, the
ledger keeps the request and grants it when enough comes back. It refuses when nothing can come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acts.language.usage import Usage
from acts.tree.records import BudgetAccount, GrantedRequest, SettledRequest
from acts.tree.signal_records import BudgetGrant, BudgetRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.language.config import Budget


@dataclass(frozen=True, slots=True)
class RequestSize:
    """What one request may cost: ``least`` is the prompt and a short answer, ``most`` the prompt and the longest.

    Tokens, and US dollars at the model's price (0 where the price is unknown).
    """

    least_tokens: int = 0
    most_tokens: int = 0
    least_cost: float = 0.0
    most_cost: float = 0.0


@dataclass(slots=True)
class _Account:
    """One budget: what was used of it and what is reserved."""

    limits: Budget
    used: Usage = field(default_factory=Usage)
    calls: int = 0
    requests_granted: int = 0
    requests_reserved: int = 0  # with the repair turns that may follow
    tokens_reserved: int = 0
    cost_reserved: float = 0.0

    def refusal(self, size: RequestSize) -> str | None:
        """Why no request of this size fits even when everything that is reserved comes back unused, or None."""
        limits, used = self.limits, self.used
        if limits.requests is not None and used.requests >= limits.requests:
            return f"the budget of {limits.requests:,} requests is spent"
        if limits.tokens is not None:
            tokens = used.inputTokens + used.outputTokens
            if tokens >= limits.tokens:
                return f"the budget of {limits.tokens:,} tokens is spent"
            if limits.tokens - tokens < size.least_tokens:
                left = f"the budget of {limits.tokens:,} tokens has {limits.tokens - tokens:,} left"
                return f"{left}, and a request of about {size.least_tokens:,} does not fit"
        if limits.cost is not None:
            cost = used.cost or 0.0
            if cost >= limits.cost:
                return f"the budget of {limits.cost:,.6g} US dollars is spent"
            if limits.cost - cost < size.least_cost:
                left = f"the budget of {limits.cost:,.6g} US dollars has {limits.cost - cost:,.6g} left"
                return f"{left}, and a request of about {size.least_cost:,.6g} does not fit"
        return None

    def is_short_of(self, size: RequestSize) -> bool:
        """True when a request of this size, with the longest answer, does not fit beside what is reserved."""
        requests, tokens, cost = self.room()
        return requests < 1 or tokens < size.most_tokens or cost < size.most_cost

    def room(self) -> tuple[float, float, float]:
        """Requests, tokens and US dollars that are neither used nor reserved; infinite where nothing limits them."""
        limits, used, none = self.limits, self.used, float("inf")
        return (
            none if limits.requests is None else limits.requests - used.requests - self.requests_reserved,
            none if limits.tokens is None else limits.tokens - used.inputTokens - used.outputTokens
            - self.tokens_reserved,
            none if limits.cost is None else limits.cost - (used.cost or 0.0) - self.cost_reserved,
        )  # fmt: skip

    @property
    def is_idle(self) -> bool:
        """True when nothing is reserved: nothing can come back."""
        return self.requests_granted == 0

    def reserve(self, sign: int, requests: int, tokens: int, cost: float) -> None:
        """Reserve for one grant, or with ``sign`` -1 give back."""
        self.requests_granted += sign
        requests, tokens, cost = sign * requests, sign * tokens, sign * cost
        self.requests_reserved += requests
        self.tokens_reserved += tokens
        self.cost_reserved = 0.0 if self.is_idle else self.cost_reserved + cost


@dataclass(frozen=True, slots=True)
class _Reservation:
    owner: tuple[str, ...]  # the run that asked, and those above it
    accounts: tuple[str, ...]
    requests: int
    tokens: int
    cost: float


class Ledger:
    """All accounts of one tree. Account ids are workflow ids."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._reservations: dict[str, _Reservation] = {}
        self._released: dict[str, tuple[str, ...]] = {}  # accounts of what was reserved for runs that are gone
        self._queue: list[BudgetRequest] = []
        self._next = 0

    def answer(self, request: BudgetRequest) -> list[tuple[str, BudgetGrant]]:
        """The grants that follow from a request, with the run each is for; none while it has to wait."""
        self._open(request.accounts)
        out = self.settle(request.settled)
        ids = [account.id for account in request.accounts]
        if request.parts:
            return [*out, (request.workflowId, BudgetGrant(id=request.id, share=self._share(ids, request.parts)))]
        refusal = self.calls_refusal(ids, request.calls)
        if refusal is not None:
            return [*out, (request.workflowId, BudgetGrant(id=request.id, refused=refusal))]
        for id_ in ids:
            self._accounts[id_].calls += request.calls
        if not request.requests:
            return [*out, (request.workflowId, BudgetGrant(id=request.id))]
        # A run whose tree was reset asks again
        self._queue = [r for r in self._queue if (r.workflowId, r.id) != (request.workflowId, request.id)]
        self._queue.append(request)
        return [*out, *self._serve_queue()]

    def settle(self, settled: Iterable[SettledRequest]) -> list[tuple[str, BudgetGrant]]:
        """Take the usage of requests; returns the grants that became possible. A second report changes nothing."""
        changed = False
        for item in settled:
            reservation = self._reservations.pop(item.id, None)
            if reservation is None:
                for id_ in self._released.pop(item.id, ()):
                    self._accounts[id_].used.add(item.usage)
                continue
            changed = True
            for id_ in reservation.accounts:
                account = self._accounts[id_]
                account.reserve(-1, reservation.requests, reservation.tokens, reservation.cost)
                account.used.add(item.usage)
        return self._serve_queue() if changed else []

    def release(self, workflow_id: str) -> list[tuple[str, BudgetGrant]]:
        """Give back all that is reserved for a run that is gone and for those below it.

        What a run below it made all the same is counted when its report comes.
        """
        self._queue = [r for r in self._queue if workflow_id not in (*r.ancestors, r.workflowId)]
        lost = {id_: r.accounts for id_, r in self._reservations.items() if workflow_id in r.owner}
        out = self.settle([SettledRequest(id=id_) for id_ in lost])
        self._released |= lost
        return out

    def add_calls(self, accounts: Sequence[BudgetAccount], count: int) -> None:
        """Count Calls (or, after an edit, fewer of them)."""
        self._open(accounts)
        for account in accounts:
            self._accounts[account.id].calls += count

    def calls_refusal(self, ids: Iterable[str], count: int) -> str | None:
        """Why ``count`` more Calls are not allowed, or None."""
        for id_ in ids:
            account = self._accounts.get(id_)
            limit = account.limits.calls if account is not None else None
            if account is not None and limit is not None and count > 0 and account.calls + count > limit:
                text = f"the budget of {limit:,} calls does not allow {count:,} more"
                return f"{text}: {account.calls:,} were made or planned"
        return None

    def used_shares(self, id_: str) -> dict[str, float]:
        """What was used of each limit of an account on requests, by its name: 1.0 is all of it."""
        account = self._accounts.get(id_)
        if account is None:
            return {}
        limits, used = account.limits, account.used
        parts = {
            "requests": (used.requests, limits.requests),
            "tokens": (used.inputTokens + used.outputTokens, limits.tokens),
            "cost": (used.cost or 0.0, limits.cost),
        }  # fmt: skip
        return {name: amount / limit if limit else 1.0 for name, (amount, limit) in parts.items() if limit is not None}

    def _open(self, accounts: Iterable[BudgetAccount]) -> None:
        for account in accounts:
            self._accounts.setdefault(account.id, _Account(account.limits))

    def _serve_queue(self) -> list[tuple[str, BudgetGrant]]:
        """Grant what fits, in the order of asking.

        A request that waits for room in an account holds up those behind it that need the same account: else
        small requests could keep a large one waiting for ever.
        """
        out: list[tuple[str, BudgetGrant]] = []
        waiting: list[BudgetRequest] = []
        awaited: set[str] = set()
        for request in self._queue:
            if any(account.id in awaited for account in request.accounts):
                waiting.append(request)
                continue
            granted, refused, full = self._serve(request)
            awaited |= full
            if granted or refused is not None:
                grant = BudgetGrant(id=request.id, granted=tuple(granted), refused=refused)
                out.append((request.workflowId, grant))
            rest = request.requests - len(granted)
            if rest > 0 and refused is None:
                waiting.append(request.model_copy(update={"requests": rest, "settled": (), "calls": 0}))
        self._queue = waiting
        return out

    def _serve(self, request: BudgetRequest) -> tuple[list[GrantedRequest], str | None, set[str]]:
        """Grants, the refusal of the rest, or the accounts in which the rest waits for room."""
        granted: list[GrantedRequest] = []
        ids = [account.id for account in request.accounts]
        accounts = [self._accounts[id_] for id_ in ids]
        if not accounts:
            return granted, "the request names no budget", set()
        size = RequestSize(request.leastTokens, request.tokens, request.leastCost, request.cost)
        for left in range(request.requests, 0, -1):
            refusal = next((r for a in accounts if (r := a.refusal(size)) is not None), None)
            if refusal is not None:
                return granted, refusal, set()
            # What is in flight may give back enough
            full = {id_ for id_, a in zip(ids, accounts, strict=True) if a.is_short_of(size) and not a.is_idle}
            if full:
                return granted, None, full
            requests, tokens, cost = map(min, zip(*(account.room() for account in accounts), strict=True))
            # With nothing in flight the last of a budget goes to a shorter answer
            tokens_given = int(min(size.most_tokens, tokens))
            cost_given = min(size.most_cost, cost)
            repairs = requests >= left + 1 + request.others
            repairs = repairs and tokens >= 2 * tokens_given and cost >= 2 * cost_given
            grant = self._reserve(request, ids, tokens_given, cost_given, repairs=repairs)
            granted.append(grant)
        return granted, None, set()

    def _reserve(
        self, request: BudgetRequest, ids: list[str], tokens: int, cost: float, *, repairs: bool
    ) -> GrantedRequest:
        self._next += 1
        turns = 2 if repairs else 1
        grant = GrantedRequest(
            id=f"{request.workflowId}#{self._next}", tokens=tokens, cost=cost, mayRepair=repairs,
            tokensShort=request.tokens - tokens, costShort=request.cost - cost,
        )  # fmt: skip
        owner = (*request.ancestors, request.workflowId)
        self._reservations[grant.id] = _Reservation(owner, tuple(ids), turns, turns * tokens, turns * cost)
        for id_ in ids:
            self._accounts[id_].reserve(1, turns, turns * tokens, turns * cost)
        return grant

    def _share(self, ids: Sequence[str], parts: int) -> dict[str, Any]:
        """One of so many parts of what is left, for a run that outlives the tree; it counts as used."""
        out: dict[str, Any] = {}
        for name, unlimited in (("requests", True), ("tokens", True), ("cost", False), ("calls", True)):
            left = [n for id_ in ids if (n := self._left(id_, name)) is not None]
            if left:
                part = max(0, min(left)) / parts
                out[name] = -int(-part // 1) if unlimited else part
        lent = {"requests": out.get("requests", 0), "inputTokens": out.get("tokens", 0), "cost": out.get("cost", 0.0)}
        for id_ in ids:
            self._accounts[id_].used.add(lent)
            self._accounts[id_].calls += out.get("calls", 0)
        return out

    def _left(self, id_: str, name: str) -> float | None:
        account = self._accounts[id_]
        if getattr(account.limits, name) is None:
            return None
        if name == "calls":
            return (account.limits.calls or 0) - account.calls
        return dict(zip(("requests", "tokens", "cost"), account.room(), strict=True))[name]

    def snapshot(self) -> dict[str, Any]:
        """``{id: {limits, used, calls}}``: what the next run must know. Nothing is reserved at a quiet moment."""
        return {
            id_: {"limits": a.limits.model_dump(exclude_none=True), "used": a.used.to_json(), "calls": a.calls}
            for id_, a in self._accounts.items()
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over a snapshot."""
        for id_, item in data.items():
            account = BudgetAccount.from_json({"id": id_, "limits": item["limits"]})
            self._accounts[id_] = _Account(account.limits, calls=item["calls"])
            self._accounts[id_].used.add(item["used"])
