"""How many Activities, requests and delegates a tree of runs has in flight: permits, lent from its root.

Laws of this file:

* one *permit* is the right to have one Activity, request or delegate in flight. A tree has ``maxParallel`` of them;
* a run is started with a *lease* of permits, and brings back what it has when it ends: that costs no message. A
  delegate's lease is the permit of its Call, so a chain of delegates takes one permit, however deep it is;
* the *keeper* is the run that has all permits at first: the root, or the plan of its tick. A run that has more Calls
  to start than permits asks the keeper, in one hop, and gets a fair share. A run with permits that it does not use
  returns them after ``IDLE_SECONDS``: also its last one, while it waits for people or data. So nothing is sent per
  Call, and nobody waits for ever: a run without permits comes first, and those in use come free;
* while a run has more children to start than permits, it tells those that it starts not to ask, since there is
  nothing to give. When the last one has started, it shares what is free among them.

A definition with a smaller ``maxParallel`` of its own makes its run the keeper of the part below it; that keeper
asks the one above, up to its limit. What a run loses that is terminated, its parent or the keeper books back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.wire import PERMIT_GRANT, PERMIT_REQUEST, PERMIT_RETURN
from acts.machines.approval_effects import StartTimer
from acts.machines.budget import SendRecord
from acts.machines.permit_pool import PermitPool
from acts.tree.permit_records import PermitGrant, PermitRequest, PermitReturn
from acts.tree.records import PermitLease

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from acts.tree.records import Accounting, TreePosition

# The keys of messages begin so: a run hears what becomes of them
PERMITS: Final = "permits/"
IDLE_TIMER: Final = "return permits that are not used"
# Longer than the gaps between the Calls of a busy run, which would make it return and ask again; short beside the
# hours that a person may take
IDLE_SECONDS: Final = 5.0
# Of many instances that wait, each child that carries several gets at most this part of the permits: a few children
# with many Calls each take fewer events per Call than many children with one, and no straggler holds all permits
MOST_OF_ONE_CHILD: Final = 8
# The server allows 2,000 open children per run; those that wait for people hold no permit
MAX_OPEN_CHILDREN: Final = 1_000


class Permits:
    """The permits of one run. ``free`` are those that nothing uses; ``keeper`` is whom it asks, None for nobody."""

    def __init__(self, own: str, position: TreePosition, lease: PermitLease | None = None) -> None:
        self.own, self._ancestors = own, position.ancestors
        self.limit = position.maxParallel
        self.has_lease = lease is not None
        self.keeper = position.permitKeeper if lease is not None else None
        self.is_keeper = self.keeper is None or position.keepsPermits
        self.free = self.limit if lease is None else lease.permits
        self.pool = PermitPool(own)
        self._may_ask = lease is None or lease.mayAsk
        self._used: dict[str, int] = {}
        self._in_use = 0
        self._silent_children: dict[str, int] = {}  # by key: were told not to ask, and how many they could use
        self._shares: dict[str, int] = {}  # by key: what such a child was given later, beside its lease
        self._sent_to_children: dict[str, int] = {}  # by key: not acknowledged yet
        self._requested = 0
        self._has_timer = False

    # -- what the run may start --------------------------------------------------------------------

    @property
    def total(self) -> int:
        """All permits that this run answers for: its own, and those of the runs below it."""
        return self.free + self._in_use + self.pool.lent

    @property
    def usable(self) -> int:
        """How many permits the run's own Calls may take now."""
        return self.free - max(0, self.total - self.limit) - self.pool.reserved(self.limit)

    def has(self, key: str) -> bool:
        """True when something of this name is in flight, or may be."""
        return key in self._used

    def reserve(self, key: str, permits: int = 1) -> bool:
        """Take permits for a Call, a request or a child; False when there are not enough."""
        if self.usable < permits or len(self._used) >= max(self.limit, MAX_OPEN_CHILDREN):
            return False
        self._use(key, permits)
        return True

    def reserve_for_child(self, key: str, members: int, most: int, waiting: int) -> bool:
        """Take permits for a child that walks ``members`` instances and has use for ``most``.

        ``waiting`` children, this one included, are to be started.
        """
        usable = self.usable
        if usable <= 0 or len(self._used) >= max(self.limit, MAX_OPEN_CHILDREN):
            return False
        if waiting <= usable:
            permits = max(1, min(most, usable // waiting))
        else:
            permits = max(1, min(members, most, usable, self.limit // MOST_OF_ONE_CHILD))
            if permits < most:
                self._silent_children[key] = most
        self._use(key, permits)
        return True

    def lease(self, key: str) -> PermitLease:
        """The lease of the child of this name, which was reserved for it."""
        return PermitLease(permits=self._used[key], mayAsk=key not in self._silent_children)

    def hand_over(self, key: str) -> PermitLease:
        """The lease of the only child: all that is free."""
        self._use(key, self.free)
        return PermitLease(permits=self._used[key])

    def hand_over_more(self, key: str) -> int:
        """What has come free since the only child was started."""
        permits = self.free if key in self._used else 0
        self._use(key, permits)
        return permits

    def _use(self, key: str, permits: int) -> None:
        self._used[key] = self._used.get(key, 0) + permits
        self._in_use += permits
        self.free -= permits

    # -- what comes back -----------------------------------------------------------------------------

    def release(self, key: str) -> None:
        """A Call or a request has ended."""
        permits = self._used.pop(key, 0)
        self._silent_children.pop(key, None)
        self._shares.pop(key, None)
        self._in_use -= permits
        self.free += permits

    def child_gone(self, key: str, workflow_id: str) -> list[Any]:
        """A child is gone and starts again with the lease of the first: what both got beside it comes free."""
        share = self._shares.pop(key, 0)
        if share:
            self._silent_children[key] = self._used[key]
            self._use(key, -share)
        self._sent_to_children.pop(key, None)
        if not self.is_keeper:
            return [self._return(0, workflow_id, starts_again=True)]
        self.free += self.pool.reclaim_loans(workflow_id)
        return []

    def child_ended(
        self, key: str, workflow_id: str | None, accounting: Accounting | None, *, is_ending: bool = False
    ) -> list[Any]:
        """A child ended: with what it brings back, or (None) without a word; it may never have started.

        ``is_ending``: this run is cancelled, and what it has comes free when it ends.
        """
        lease = self._used.get(key, 0)
        self.release(key)
        if workflow_id is None or is_ending:
            return []
        if accounting is not None:
            self.pool.end_child(workflow_id)
            if accounting.permits is not None:  # a child of an earlier version has no lease
                self.free += accounting.permits - lease
            return []
        self._sent_to_children.pop(key, None)
        if self.is_keeper:
            self.free += self.pool.lose_run(workflow_id)
            return []
        self.free -= lease
        return [self._return(lease, workflow_id)]

    # -- messages ---------------------------------------------------------------------------------------

    def on_request(self, record: PermitRequest) -> None:
        """A run below asks for permits."""
        if self.is_keeper:
            self.pool.add_request(record)

    def on_return(self, record: PermitReturn) -> None:
        """A run below returns permits."""
        if self.is_keeper:
            self.free += self.pool.take_back(record)

    def add(self, permits: int) -> None:
        """The parent gives permits beside the lease."""
        self.free += permits

    def on_grant(self, record: PermitGrant) -> None:
        """The keeper, or the parent, gives permits."""
        self.free += record.permits
        self._requested = max(0, self._requested - record.permits)
        self._may_ask = True

    def on_delivered(self, key: str) -> None:
        """A grant has arrived."""
        kind, _, rest = key.removeprefix(PERMITS).partition("/")
        if kind == "child":
            self._sent_to_children.pop(rest, None)
        else:
            self.pool.confirm_grant(rest)

    def on_lost(self, key: str) -> None:
        """A grant or a request did not arrive, since the other run has ended."""
        kind, _, rest = key.removeprefix(PERMITS).partition("/")
        if kind == "child":
            permits = self._sent_to_children.pop(rest, 0)
            self.free += permits
            self._shares.pop(rest, None)
            if rest in self._used:
                self._used[rest] -= permits
                self._in_use -= permits
        elif kind == "grant":
            self.free += self.pool.lose_grant(rest)
        else:  # without a keeper the tree is about to end; nobody is to wait for that
            self._may_ask = False
            if self.total == 0:
                self.free = 1

    # -- after a reset ------------------------------------------------------------------------------

    def ask_again(self) -> None:
        """The keeper may not know what this run has asked for."""
        self._requested, self._may_ask = 0, True

    def count_anew(self, children: Iterable[str]) -> None:
        """This run was reset: what its children hold, it does not know.

        A keeper counts their permits as free: so many more than the limit may be in flight until they have ended,
        but nobody waits for permits that never come back.
        """
        if self.keeper is not None:
            return
        self.pool.forget_loans()
        self.pool.lost_runs.clear()
        self._shares.clear()
        for key in children:
            self._in_use -= self._used.get(key, 0)
            self._used[key] = 0
        self.free = self.limit - self._in_use

    # -- once per task ----------------------------------------------------------------------------------

    def flush(self, waiting: int, children: Mapping[str, str]) -> list[Any]:
        """Serve who asks, share what is free, and ask for what is missing. ``waiting`` Calls could start here.

        ``children`` has the workflow ids of the children that run, by key.
        """
        out: list[Any] = self._serve(waiting)
        if not waiting:
            out += self._share_with_children(children)
        waiting = waiting or sum(most - self._used[k] for k, most in self._silent_children.items() if k in children)
        missing = min(waiting + self.pool.missing, self.limit - self.total)
        if self.keeper is None:
            return out
        if missing > 0 and self.usable <= 0:
            return out + self._ask(missing)
        if self._is_idle(waiting) and not self._has_timer:
            self._has_timer = True
            out.append(StartTimer(IDLE_TIMER, IDLE_SECONDS, IDLE_TIMER))
        return out

    def on_timer(self, waiting: int) -> list[Any]:
        """Return what is not used."""
        self._has_timer = False
        if self.keeper is None or not self._is_idle(waiting):
            return []
        permits, self.free = self.free, 0
        return [self._return(permits)]

    def _is_idle(self, waiting: int) -> bool:
        return self.free > 0 and not waiting and not self.pool.missing

    def _serve(self, waiting: int) -> list[Any]:
        free = self.free - max(0, self.total - self.limit)
        grants = self.pool.grant(free, self.limit, is_keeper_busy=waiting > 0)
        self.free -= sum(grant.permits for grant in grants)
        return [
            SendRecord(g.workflow_id, PERMIT_GRANT, PermitGrant(permits=g.permits), key=f"{PERMITS}grant/{g.key}")
            for g in grants
        ]

    def _share_with_children(self, children: Mapping[str, str]) -> list[Any]:
        """All children have started: what is free goes to those that were told not to ask, and now may."""
        out: list[Any] = []
        for key, most in list(self._silent_children.items()):
            permits = min(most - self._used[key], -(-self.usable // len(self._silent_children)))
            if permits <= 0 or key not in children:
                continue
            del self._silent_children[key]
            self._use(key, permits)
            self._sent_to_children[key] = self._shares[key] = permits
            record = PermitGrant(permits=permits)
            out.append(SendRecord(children[key], PERMIT_GRANT, record, key=f"{PERMITS}child/{key}"))
        return out

    def _ask(self, missing: int) -> list[Any]:
        """Ask the keeper; again only when twice as much is missing, so that a burst of Calls takes few messages."""
        is_silent = not self._may_ask and self.total > 0
        if is_silent or missing < 2 * self._requested or self.keeper is None:
            return []
        self._requested = missing
        record = PermitRequest(workflowId=self.own, ancestors=self._ancestors, missing=missing, held=self.total)
        return [SendRecord(self.keeper, PERMIT_REQUEST, record, key=f"{PERMITS}request")]

    def _return(self, permits: int, gone_run: str | None = None, *, starts_again: bool = False) -> SendRecord:
        record = PermitReturn(
            workflowId=self.own, ancestors=self._ancestors, permits=permits, goneRun=gone_run, startsAgain=starts_again
        )
        return SendRecord(self.keeper or "", PERMIT_RETURN, record)

    # -- the end, and the next run -------------------------------------------------------------------------

    def take_all(self) -> int | None:
        """What the run brings back to its parent; None where it had no lease."""
        return self.total if self.has_lease else None

    def lease_of_next_run(self) -> PermitLease | None:
        """What the next run of this workflow begins with. At a quiet moment nothing is in use."""
        return PermitLease(permits=self.free, mayAsk=self._may_ask) if self.has_lease else None
