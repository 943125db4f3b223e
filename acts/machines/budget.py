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

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from acts.language.config import Budget, Config, Usage
from acts.language.messages import Data, Message
from acts.language.values import Json
from acts.machines.commands import BudgetRefused, Granted, SendRecord
from acts.planner import request_estimate
from acts.planner.notation import LARGE_VALUE_BYTES, shown_bytes
from acts.tree.records import BudgetAccount, GrantedRequest, SettledRequest, TreePosition, Turn
from acts.tree.signal_records import BudgetGrant, BudgetReport, BudgetRequest

Price = tuple[float, float]  # US dollars per token of input, and of output
Amounts = tuple[float, ...]  # of requests, tokens, and US dollars
_NOTHING: Final[Amounts] = (0, 0, 0.0)
_UNITS: Final = ("requests", "tokens", "US dollars")
# The shortest answer that is worth a request: a small Solution
LEAST_OUTPUT_TOKENS: Final = 256
# What a latent Call names is shown in part where it exceeds the model's window: a million tokens are some 4 MB
MAX_NAMED_BYTES: Final = 4 * 1024 * 1024


# -- what one request may cost -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestSize:
    """What one request may cost: ``least`` is the prompt and a short answer, ``most`` the prompt and the longest.

    Tokens, and US dollars at the model's price (0 where the price is unknown).
    """

    least_tokens: int = 0
    most_tokens: int = 0
    least_cost: float = 0.0
    most_cost: float = 0.0


def context_bytes(context: Iterable[Message], turns: Iterable[Turn] = ()) -> int:
    """The bytes of a context and of turns as a model is shown them, at most.

    Provenance, which is not shown, covers the tags of a message.
    """
    sizes = (shown_bytes(_apart(m), LARGE_VALUE_BYTES) if isinstance(m, Data) else shown_bytes(m.raw) for m in context)
    return int(sum(sizes) + sum(shown_bytes(turn.to_json()) for turn in turns))


def _apart(message: Data) -> Json:
    """A Message; a file that is its payload inline stands apart from the other keys."""
    if "media" not in message.raw or not isinstance(message.payload, dict):
        return message.raw
    return [{k: v for k, v in message.raw.items() if k not in message.payload}, message.payload]


def latent_request_size(
    config: Config, price: Price | None, context_bytes: int, calls: Iterable[Sequence[Json]]
) -> RequestSize:
    """The size of the largest of these requests of latent Calls: each is shown the context, and parts of its own."""
    largest = int(max(shown_bytes(call, MAX_NAMED_BYTES) for call in calls))
    prompt_bytes = request_estimate.estimate_prompt_bytes(context_bytes + largest, 0, latent=True)
    return request_size(config, latent_price(config, price), prompt_bytes)


def latent_price(config: Config, price: Price | None) -> Price | None:
    """The price of a latent Call's request, where ``price`` is that of the model."""
    part = config.models.price
    return None if price is None else (part * price[0], part * price[1])


def request_size(config: Config, price: Price | None, prompt_bytes: int, least_cap: int | None = None) -> RequestSize:
    """The size of a request; its cap is ``least_cap`` or more, where an answer before it was cut."""
    cap = _cap(config, least_cap)
    # Of the models that may be asked, the one that makes the most tokens of a text
    model = min(config.model_names, key=request_estimate.bytes_per_token, default="")
    least = request_estimate.estimate_request(model, prompt_bytes, min(cap, LEAST_OUTPUT_TOKENS), price)
    most = request_estimate.estimate_request(model, prompt_bytes, cap, price)
    return RequestSize(least.tokens, most.tokens, least.cost or 0.0, most.cost or 0.0)


def _cap(config: Config, least_cap: int | None) -> int:
    return max(config.maxOutputTokens or request_estimate.DEFAULT_MAX_OUTPUT_TOKENS, least_cap or 0)


def output_cap(config: Config, price: Price | None, grant: GrantedRequest, least_cap: int | None = None) -> int | None:
    """The cap on an answer within a grant, in tokens: that of the settings, or less where the grant is short.

    ``least_cap`` is that of the settings after an answer that was cut.
    """
    short = grant.tokensShort
    if grant.costShort and price is not None and price[1] > 0:
        short = max(short, math.ceil(grant.costShort / price[1]))
    if not short and least_cap is None:
        return config.maxOutputTokens
    return max(1, _cap(config, least_cap) - short)


# -- the ledger ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Account:
    """One budget: what was used of it, and what is reserved by its grants."""

    limits: Budget
    used: Usage = field(default_factory=Usage)
    calls: int = 0
    grants: int = 0
    reserved: Amounts = _NOTHING

    @property
    def left(self) -> Amounts:
        """What was not used; infinite where nothing limits it."""
        limits, used = self.limits, self.used
        return (
            inf if limits.requests is None else limits.requests - used.requests,
            inf if limits.tokens is None else limits.tokens - used.inputTokens - used.outputTokens,
            inf if limits.cost is None else limits.cost - (used.cost or 0.0),
        )

    @property
    def room(self) -> Amounts:
        return tuple(left - held for left, held in zip(self.left, self.reserved, strict=True))

    def refusal(self, least: Amounts) -> str | None:
        """Why no request of this size fits even when everything that is reserved comes back unused, or None."""
        limits = (self.limits.requests, self.limits.tokens, self.limits.cost)
        for unit, limit, left, size in zip(_UNITS, limits, self.left, least, strict=True):
            if limit is not None and left <= 0:
                return f"the budget of {_count(limit, unit)} is spent"
            if limit is not None and left < size:
                text = f"the budget of {_count(limit, unit)} has {_number(left)} left"
                return f"{text}, and a request of about {_number(size)} does not fit"
        return None

    def reserve(self, sign: int, amounts: Amounts) -> None:
        """Reserve for one grant, or with ``sign`` -1 give back."""
        self.grants += sign
        held = tuple(held + sign * more for held, more in zip(self.reserved, amounts, strict=True))
        self.reserved = held if self.grants else _NOTHING  # no dust of fractions


def _number(amount: float) -> str:
    return f"{amount:,}" if isinstance(amount, int) else f"{amount:,.6g}"


def _count(amount: float, unit: str) -> str:
    return f"{_number(amount)} {unit.removesuffix('s') if amount == 1 else unit}"


def _least(amounts: Iterable[Amounts]) -> Amounts:
    return tuple(map(min, zip(*amounts, strict=True)))


@dataclass(frozen=True, slots=True)
class _Reservation:
    owner: tuple[str, ...]  # the run that asked, and those above it
    accounts: tuple[str, ...]
    amounts: Amounts


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
        accounts = self._open(request.accounts)
        out = self.settle(request.settled)
        refusal = self.calls_refusal(request.accounts, request.calls)
        if refusal is None:
            for account in accounts:
                account.calls += request.calls
        if refusal is not None or not request.requests:
            share = _take_share(accounts, request.parts) if request.parts else None
            return [*out, (request.workflowId, BudgetGrant(id=request.id, refused=refusal, share=share))]
        # A run whose tree was reset asks again
        self._queue = [r for r in self._queue if (r.workflowId, r.id) != (request.workflowId, request.id)]
        self._queue.append(request)
        return [*out, *self._serve_queue()]

    def settle(self, settled: Iterable[SettledRequest]) -> list[tuple[str, BudgetGrant]]:
        """Take the usage of requests; returns the grants that became possible. A second report changes nothing."""
        has_room = False
        for item in settled:
            reservation = self._reservations.pop(item.id, None)
            ids = self._released.pop(item.id, ()) if reservation is None else reservation.accounts
            has_room |= reservation is not None
            for account in map(self._accounts.__getitem__, ids):
                account.used.add(item.usage)
                if reservation is not None:
                    account.reserve(-1, reservation.amounts)
        return self._serve_queue() if has_room else []

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
        for account in self._open(accounts):
            account.calls += count

    def calls_refusal(self, accounts: Sequence[BudgetAccount], count: int) -> str | None:
        """Why ``count`` more Calls are not allowed, or None."""
        for account in self._open(accounts):
            limit = account.limits.calls
            if limit is not None and 0 < count > limit - account.calls:
                text = f"the budget of {_count(limit, 'calls')} does not allow {count:,} more"
                return f"{text}: {account.calls:,} were made or planned"
        return None

    def used_shares(self, id_: str) -> dict[str, float]:
        """What was used of each limit of an account on requests, by its name: 1.0 is all of it."""
        if id_ not in self._accounts:
            return {}
        account = self._accounts[id_]
        shares = zip(("requests", "tokens", "cost"), account.left, strict=True)
        limits = {name: (getattr(account.limits, name), left) for name, left in shares if left < inf}
        return {name: (limit - left) / limit if limit else 1.0 for name, (limit, left) in limits.items()}

    def _open(self, accounts: Iterable[BudgetAccount]) -> list[_Account]:
        return [self._accounts.setdefault(account.id, _Account(account.limits)) for account in accounts]

    def _serve_queue(self) -> list[tuple[str, BudgetGrant]]:
        """Grant what fits, in the order of asking.

        A request that waits for room in an account holds up those behind it that need the same account: else
        small requests could keep a large one waiting forever.
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
        accounts = {account.id: self._accounts[account.id] for account in request.accounts}
        if not accounts:
            return granted, "the request names no budget", set()
        least: Amounts = (1, request.leastTokens, request.leastCost)
        most: Amounts = (1, request.tokens, request.cost)
        for left in range(request.requests, 0, -1):
            refusal = next((text for a in accounts.values() if (text := a.refusal(least)) is not None), None)
            if refusal is not None:
                return granted, refusal, set()
            # What is in flight may give back enough
            full = {id_ for id_, a in accounts.items() if a.grants and _least((a.room, most)) != most}
            if full:
                return granted, None, full
            # With nothing in flight the last of a budget goes to a shorter answer
            room = _least(account.room for account in accounts.values())
            granted.append(self._reserve(request, _least((room, most)), room, left))
        return granted, None, set()

    def _reserve(self, request: BudgetRequest, amounts: Amounts, room: Amounts, left: int) -> GrantedRequest:
        """Reserve these amounts for one of the ``left`` requests that are asked for; twice, if there is ``room``."""
        self._next += 1
        _, tokens, cost = amounts
        may_repair = room[0] >= left + 1 and room[1] >= 2 * tokens and room[2] >= 2 * cost
        turns = 2 if may_repair else 1
        grant = GrantedRequest(
            id=f"{request.workflowId}#{self._next}", tokens=int(tokens), cost=cost, mayRepair=may_repair,
            tokensShort=int(request.tokens - tokens), costShort=request.cost - cost,
        )  # fmt: skip
        ids = tuple(account.id for account in request.accounts)
        reserved = (turns, turns * tokens, turns * cost)
        self._reservations[grant.id] = _Reservation((*request.ancestors, request.workflowId), ids, reserved)
        for id_ in ids:
            self._accounts[id_].reserve(1, reserved)
        return grant

    def snapshot(self) -> dict[str, Any]:
        """``{id: {limits, used, calls}}``: what the next run must know. Nothing is reserved at a quiet moment."""
        return {
            id_: {"limits": a.limits.model_dump(exclude_none=True), "used": a.used.to_json(), "calls": a.calls}
            for id_, a in self._accounts.items()
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        for id_, item in data.items():
            account = BudgetAccount.from_json({"id": id_, "limits": item["limits"]})
            self._accounts[id_] = _Account(account.limits, calls=item["calls"])
            self._accounts[id_].used.add(item["used"])


def _take_share(accounts: Sequence[_Account], parts: int) -> dict[str, Any]:
    """One of so many parts of what is left, for a run that outlives the tree; it counts as used."""
    calls = (inf if a.limits.calls is None else a.limits.calls - a.calls for a in accounts)
    left = (*_least(account.room for account in accounts), min(calls))
    names = zip(("requests", "tokens", "cost", "calls"), left, strict=True)
    parts_left = {name: max(0, amount) / parts for name, amount in names if amount < inf}
    out: dict[str, Any] = {n: part if n == "cost" else math.ceil(part) for n, part in parts_left.items()}
    used = {"requests": out.get("requests", 0), "inputTokens": out.get("tokens", 0), "cost": out.get("cost", 0.0)}
    for account in accounts:
        account.used.add(used)
        account.calls += out.get("calls", 0)
    return out


class BudgetMachine:
    """The budget as one run sees it: it asks the root, or is the root and keeps the ledger.

    ``own`` is the workflow id. Every method returns effects, in order. A ``key`` is a purpose of the
    run (a Call's key, a tick); it is answered once.
    """

    def __init__(self, own: str, position: TreePosition) -> None:
        self.own, self.position = own, position
        self.ledger = Ledger() if position.is_root else None
        if self.ledger is not None:
            self.ledger.add_calls(position.accounts, 0)
        limits = [account.limits for account in position.accounts]
        self.limits_cost = any(limit.cost is not None for limit in limits)
        self.limits_calls = any(limit.calls is not None for limit in limits)
        of_requests = (n for limit in limits for n in (limit.requests, limit.tokens, limit.cost))
        self.limits_requests = any(n is not None for n in of_requests)
        self._next = 0
        # By number, with the purposes that are not answered yet
        self._open_requests: dict[int, tuple[BudgetRequest, list[str]]] = {}
        self._grants: dict[str, GrantedRequest] = {}
        self._settled: list[SettledRequest] = []
        self._calls_changed = 0
        self.is_reporting = False  # until the last report has arrived, or cannot

    def request(self, keys: Sequence[str], size: RequestSize) -> list[Any]:
        if not self.limits_requests:
            return [Granted(key) for key in keys]
        return self._ask(
            list(keys), requests=len(keys), tokens=size.most_tokens, leastTokens=size.least_tokens,
            cost=size.most_cost, leastCost=size.least_cost,
        )  # fmt: skip

    def request_calls(self, key: str, count: int) -> list[Any]:
        return self._ask([key], calls=count) if self.limits_calls else [Granted(key)]

    def request_share(self, key: str, parts: int) -> list[Any]:
        """Ask for one part of what is left, for a run that outlives the tree."""
        return self._ask([key], parts=parts) if self.position.accounts else [Granted(key, share={})]

    def count_calls(self, count: int) -> None:
        """Count Calls that were allowed when the Request was validated, or that an edit added."""
        if self.limits_calls and self.ledger is not None:
            self.ledger.add_calls(self.position.accounts, count)
        elif self.limits_calls:
            self._calls_changed += count

    def calls_refusal(self, count: int) -> str | None:
        """Why ``count`` more Calls are beyond a budget that is kept here; None where the root has to be asked."""
        return None if self.ledger is None else self.ledger.calls_refusal(self.position.accounts, count)

    def _ask(self, keys: list[str], **what: Any) -> list[Any]:
        self._next += 1
        request = BudgetRequest(
            workflowId=self.own, id=self._next, accounts=self.position.accounts, ancestors=self.position.ancestors,
            settled=tuple(self._settled), **what,
        )  # fmt: skip
        self._settled.clear()
        self._open_requests[request.id] = (request.model_copy(update={"settled": ()}), keys)
        return [self._send(request)] if self.ledger is None else self._deliver(self.ledger.answer(request))

    def _send(self, request: BudgetRequest) -> SendRecord:
        return SendRecord(self.position.ancestors[0], request, key=f"budget/{request.id}")

    def ask_again(self) -> list[Any]:
        """The root may not know what this run has asked for: it was reset. A grant that comes twice goes back."""
        return [] if self.ledger is not None else [self._send(request) for request, _ in self._open_requests.values()]

    def on_grant(self, grant: BudgetGrant) -> list[Any]:
        """The root answers; what nobody needs any more goes back."""
        _, keys = self._open_requests.get(grant.id, (None, []))
        out: list[Any] = []
        for item in grant.granted:
            if keys:
                self._grants[keys[0]] = item
                out.append(Granted(keys.pop(0), item))
            else:
                out += self.take([SettledRequest(id=item.id)])
        if grant.refused is not None:
            out += [BudgetRefused(key, grant.refused) for key in keys]
        elif not grant.granted:  # Calls, or a share
            out += [Granted(key, share=grant.share) for key in keys]
        if not keys or grant.refused is not None or not grant.granted:
            self._open_requests.pop(grant.id, None)
        return out

    def root_is_gone(self, number: int) -> list[Any]:
        """The request of this number did not reach the root: nothing more may be spent."""
        text = f"the run that keeps the budget, {self.position.ancestors[0]}, has ended: nothing more may be spent"
        return self.on_grant(BudgetGrant(id=number, refused=text))

    def settle(self, key: str, usage: Mapping[str, Any] | None) -> list[Any]:
        """The request of a purpose has ended; ``usage`` None: it was not made."""
        grant = self._grants.pop(key, None)
        return [] if grant is None else self.take([SettledRequest(id=grant.id, usage=dict(usage) if usage else None)])

    def take(self, settled: Iterable[SettledRequest]) -> list[Any]:
        if self.ledger is not None:
            return self._deliver(self.ledger.settle(settled))
        self._settled += settled
        return []

    def take_unreported(self) -> tuple[SettledRequest, ...]:
        """What the root has not heard of, for the result of this run: the run above reports it."""
        out, self._settled = tuple(self._settled), []
        return out

    def flush(self) -> list[Any]:
        """One report of everything that the root has not heard of; the next when this one has arrived."""
        if self.ledger is not None or self.is_reporting or not (self._settled or self._calls_changed):
            return []
        report = BudgetReport(
            workflowId=self.own, accounts=self.position.accounts, settled=tuple(self._settled),
            calls=self._calls_changed,
        )  # fmt: skip
        self._settled, self._calls_changed, self.is_reporting = [], 0, True
        return [SendRecord(self.position.ancestors[0], report, key="report")]

    def serve(self, record: BudgetRequest | BudgetReport) -> list[Any]:
        if self.ledger is None:
            return []
        if isinstance(record, BudgetRequest):
            return self._deliver(self.ledger.answer(record))
        self.ledger.add_calls(record.accounts, record.calls)
        return self._deliver(self.ledger.settle(record.settled))

    def release(self, workflow_id: str) -> list[Any]:
        return [] if self.ledger is None else self._deliver(self.ledger.release(workflow_id))

    def _deliver(self, grants: Iterable[tuple[str, BudgetGrant]]) -> list[Any]:
        out: list[Any] = []
        for workflow_id, grant in grants:
            if workflow_id == self.own:
                out += self.on_grant(grant)
            else:
                out.append(SendRecord(workflow_id, grant, key=f"grant/{workflow_id}"))
        return out

    def snapshot(self) -> dict[str, Any]:
        """``{ledger, settled}``: what the next run must know, at a quiet moment."""
        ledger = {} if self.ledger is None else self.ledger.snapshot()
        return {"ledger": ledger, "settled": [item.to_json() for item in self._settled]}

    def restore(self, data: Mapping[str, Any]) -> None:
        if self.ledger is not None:
            self.ledger.restore(data["ledger"])
        self._settled = [SettledRequest.from_json(item) for item in data["settled"]]
