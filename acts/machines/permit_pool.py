"""What the keeper of permits knows of the runs below it: who asks for more, and what each got beside its lease.

A *permit* is the right to have one Activity, request or delegate in flight (see ``permits``). The keeper lends
permits in answer to requests and takes back what is returned. Both go straight between the keeper and the run;
the runs between them hand leases down, and pass on what their children bring back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acts.tree.permit_records import PermitRequest, PermitReturn


@dataclass(slots=True)
class _Request:
    """A run that has Calls to start. ``path`` leads to it from below the keeper; ``held`` are its permits."""

    path: tuple[str, ...]
    missing: int
    held: int


@dataclass(slots=True)
class _Loan:
    """The permits that went to a run from the keeper, less those that came back (of its lease, too)."""

    path: tuple[str, ...]
    permits: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """Permits for a run that asked; ``key`` names the message."""

    key: str
    workflow_id: str
    permits: int


class PermitPool:
    """Requests and loans by workflow id. ``own`` is the keeper, ``lent`` the sum of all loans."""

    def __init__(self, own: str) -> None:
        self.own = own
        self.lent = 0
        self.lost_runs: dict[str, None] = {}  # that ended without a word: what still comes from there is void
        self._requests: dict[str, _Request] = {}
        self._loans: dict[str, _Loan] = {}
        self._in_transit: dict[str, tuple[tuple[str, ...], int]] = {}
        self._next = 0

    # -- messages ---------------------------------------------------------------------------

    def add_request(self, record: PermitRequest) -> None:
        """A run asks; its latest request counts."""
        path = self._path((*record.ancestors, record.workflowId))
        if path is not None:
            self._requests.pop(record.workflowId, None)
            self._requests[record.workflowId] = _Request(path, record.missing, record.held)

    def take_back(self, record: PermitReturn) -> int:
        """Permits that a run returns, or that were the lease of a run below it which is gone; how many come free."""
        path = self._path((*record.ancestors, record.workflowId))
        if path is None:
            return 0
        self._lend(path, -record.permits)
        if record.goneRun is None:
            return record.permits
        take = self.reclaim_loans if record.startsAgain else self.lose_run
        return record.permits + take(record.goneRun)

    def confirm_grant(self, key: str) -> None:
        """A grant has arrived: its run brings it back, or is lost with it."""
        self._in_transit.pop(key, None)

    def lose_grant(self, key: str) -> int:
        """A grant did not arrive, since its run has ended; how many permits come free."""
        path, permits = self._in_transit.pop(key, ((), 0))
        if any(id_ in self.lost_runs for id_ in path):
            return 0  # they came free with the run
        if path and path[-1] in self._loans:
            self._lend(path, -permits)
        return permits

    def end_child(self, workflow_id: str) -> None:
        """A child of the keeper ended and brought back all that it and the runs below it had."""
        self._drop(workflow_id)

    def lose_run(self, workflow_id: str) -> int:
        """A run ended without a word; how many permits come free that were lent to it and to those below it."""
        self.lost_runs[workflow_id] = None
        return self._drop(workflow_id)

    def reclaim_loans(self, workflow_id: str) -> int:
        """A run is gone, and another starts under its id; how many permits come free that were lent to the first.

        What is asked for stays: it may be the second that asks.
        """
        for key in [key for key, (path, _) in self._in_transit.items() if workflow_id in path]:
            del self._in_transit[key]
        return self._drop_loans(workflow_id)

    def forget_loans(self) -> int:
        """Nobody knows any more who has which permits; how many were lent, to runs or on their way."""
        permits, self.lent = self.lent, 0
        self._requests.clear()
        self._loans.clear()
        self._in_transit.clear()
        return permits

    # -- who gets what ------------------------------------------------------------------------

    @property
    def missing(self) -> int:
        """How many permits are asked for."""
        return sum(request.missing for request in self._requests.values())

    def reserved(self, limit: int) -> int:
        """How many permits go to runs that ask before the keeper's own Calls: up to a fair share for each."""
        return sum(wish for _, wish in self._fair_wishes(limit))

    def grant(self, free: int, limit: int, *, is_keeper_busy: bool) -> list[Grant]:
        """Serve requests from ``free`` permits: up to a fair share, or all if the keeper has no Calls to start."""
        permits: dict[str, int] = {}
        free = self._serve(self._fair_wishes(limit), free, permits)
        if not is_keeper_busy:
            self._serve([(id_, request.missing) for id_, request in self._requests.items()], free, permits)
        return [self._send(id_, number) for id_, number in permits.items()]

    def _fair_wishes(self, limit: int) -> list[tuple[str, int]]:
        """What each request lacks to a fair share; runs without any permit come first, for they stand still."""
        if not self._requests:
            return []
        fair = max(1, limit // (len(self._requests) + 1))
        order = sorted(self._requests.items(), key=lambda item: item[1].held > 0)
        wishes = ((id_, min(request.missing, fair - request.held)) for id_, request in order)
        return [(id_, wish) for id_, wish in wishes if wish > 0]

    def _serve(self, wishes: list[tuple[str, int]], free: int, permits: dict[str, int]) -> int:
        """Lend what is free, in this order; returns what is left."""
        for id_, wish in wishes:
            number = min(wish, free)
            if number <= 0:
                break
            free -= number
            permits[id_] = permits.get(id_, 0) + number
            request = self._requests[id_]
            request.missing -= number
            request.held += number
            self._lend(request.path, number)
            if not request.missing:
                del self._requests[id_]
        return free

    def _send(self, workflow_id: str, permits: int) -> Grant:
        self._next += 1
        key = str(self._next)
        self._in_transit[key] = (self._loans[workflow_id].path, permits)
        return Grant(key, workflow_id, permits)

    # -- books ----------------------------------------------------------------------------------

    def _path(self, ids: tuple[str, ...]) -> tuple[str, ...] | None:
        """The way from below the keeper to a run; None for a run that is not below it, or is lost."""
        path = ids[ids.index(self.own) + 1 :] if self.own in ids else ()
        return path if path and not any(id_ in self.lost_runs for id_ in path) else None

    def _lend(self, path: tuple[str, ...], permits: int) -> None:
        self._loans.setdefault(path[-1], _Loan(path)).permits += permits
        self.lent += permits

    def _drop(self, workflow_id: str) -> int:
        """Forget what concerns a run and those below it; returns what was lent to them."""
        for id_ in [id_ for id_, request in self._requests.items() if workflow_id in request.path]:
            del self._requests[id_]
        return self._drop_loans(workflow_id)

    def _drop_loans(self, workflow_id: str) -> int:
        permits = 0
        for id_ in [id_ for id_, loan in self._loans.items() if workflow_id in loan.path]:
            permits += self._loans.pop(id_).permits
        self.lent -= permits
        return permits
