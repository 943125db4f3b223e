"""How many Activities, requests and delegates a tree of runs has in flight: permits, lent from its root.

Laws of this file:

* one *permit* is the right to have one Activity, request or delegate in flight. A tree has ``maxParallel`` of them;
* a run is started with a *lease* of permits, and brings back what it has when it ends: that costs no message. A
  delegate's lease is the permit of its Call, so a chain of delegates takes one permit, however deep it is;
* the *keeper* is the run that has all permits at first: the root, or the plan of its tick. A run that has more Calls
  to start than permits asks the keeper, in one hop, and gets a fair share. A run with nothing to start returns what it
  does not use, also its last one. So nothing is sent per Call, and nobody waits forever: a run without permits comes
  first, and those in use come free;
* while a run has more children to start than permits, it tells those that it starts to ask only when they have none.

A definition with a smaller ``maxParallel`` of its own makes its run the keeper of the part below it; that keeper
asks the one above, up to its limit. What a run loses that is terminated, its parent or the keeper books back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from acts.language.errors import CallError
from acts.language.wire import CANCELLED, PLAN
from acts.machines import commands, events
from acts.tree.records import Accounting, PermitLease, TreePosition
from acts.tree.signal_records import PermitGrant, PermitRequest, PermitReturn

# The keys of messages begin so: a run hears what becomes of them
PERMITS: Final = "permits/"
_GRANT: Final = f"{PERMITS}grant/"
# Of many instances that wait, each child that carries several gets at most this part of the permits: a few children
# with many Calls each take fewer events per Call than many children with one, and no straggler holds all permits
MOST_OF_ONE_CHILD: Final = 8
# The server allows 2,000 open children per run; those that wait for people hold no permit
MAX_OPEN_CHILDREN: Final = 1_000
_ENDS: Final = (events.CallEnded, events.CallDetached, events.StartPostponed)
_MODEL: Final = "the request of a tick"


@dataclass(slots=True)
class _Request:
    """A run that has Calls to start. ``path`` leads to it from below the keeper; ``held`` are its permits."""

    path: tuple[str, ...]
    missing: int
    held: int


@dataclass(slots=True)
class _Loan:
    """Permits that went to a run from the keeper, less those that came back (of its lease, too)."""

    path: tuple[str, ...]
    permits: int = 0


class Permits:
    """The permits of one run, and the commands that wait for one.

    ``total`` are those that this run answers for: its own, and those that a keeper has ``lent`` to runs below.
    ``keeper`` is the run that this one asks, None for nobody. ``waiting`` are commands without a permit, in order.
    """

    def __init__(self, own: str, position: TreePosition, lease: PermitLease | None = None) -> None:
        self.own, self._ancestors = own, position.ancestors
        self.limit = position.maxParallel
        self._has_lease = lease is not None
        self.keeper = position.permitKeeper if lease is not None else None
        self.is_keeper = self.keeper is None or position.keepsPermits
        self.total = self.limit if lease is None else lease.permits
        self.lent = 0
        self.waiting: dict[str, Any] = {}
        self._may_ask = lease is None or lease.mayAsk
        self._requested = 0
        self._holders: dict[str, int] = {}  # by the key of a Call or child
        self._in_use = 0
        self._children: set[str] = set()  # keys
        self._silent_children: set[str] = set()  # the keys of those that are told not to ask
        self._lends = self.is_keeper  # True where the children of this run ask it for permits
        # Of a keeper, by workflow id
        self._requests: dict[str, _Request] = {}
        self._loans: dict[str, _Loan] = {}
        self._lost_runs: set[str] = set()

    @property
    def free(self) -> int:
        """The permits that nothing uses; no more than the limit are of use."""
        return min(self.total, self.limit) - self._in_use - self.lent

    @property
    def usable(self) -> int:
        """How many permits the run's own Calls may take now; runs that ask come first, up to a fair share."""
        if not self._requests:
            return self.free
        return self.free - sum(max(0, min(r.missing, self._fair_share - r.held)) for r in self._requests.values())

    @property
    def _fair_share(self) -> int:
        return max(1, self.limit // (len(self._requests) + 1))

    def reserve(self, key: str, permits: int = 1) -> bool:
        """Take permits for a Call, a request or a child; False when there are not enough."""
        if self.usable < permits or len(self._holders) >= max(self.limit, MAX_OPEN_CHILDREN):
            return False
        self._use(key, permits)
        return True

    def reserve_for_child(self, key: str, members: int, most: int, waiting: int) -> bool:
        """Take permits for a child that walks ``members`` instances and has use for ``most``.

        ``waiting`` children, this one included, are to be started.
        """
        usable = self.usable
        if waiting <= usable:
            return self.reserve(key, max(1, min(most, usable // waiting)))
        permits = max(1, min(members, most, usable, self.limit // MOST_OF_ONE_CHILD))
        if not self.reserve(key, permits):
            return False
        if permits < most:
            self._silent_children.add(key)
        return True

    def lease(self, key: str) -> PermitLease:
        """The lease of the child of this name, which was reserved for it."""
        self._children.add(key)
        return PermitLease(permits=self._holders[key], mayAsk=key not in self._silent_children)

    def hand_over(self, key: str) -> int:
        """Give all that is free to the only child, which asks whom this run would ask; returns how many permits."""
        permits = self.free
        self._lends = self.keeper is None
        self._use(key, permits)
        return permits

    def _use(self, key: str, permits: int) -> None:
        self._holders[key] = self._holders.get(key, 0) + permits
        self._in_use += permits

    def admit(self, command: Any) -> Any | None:
        """The command, a child's with its lease; None while it waits."""
        if isinstance(command, commands.StartChild) and command.type == PLAN:
            self.hand_over(command.name)
            return replace(command, input=command.input.model_copy(update={"lease": self.lease(command.name)}))
        node = getattr(command, "node", None)  # of what starts a Call; a Batch has its permits already
        key = _MODEL if isinstance(command, commands.AskSolution) else node.key if node is not None else None
        if key is None:
            return command
        if key not in self._holders and (self.waiting or not self.reserve(key)):
            self.waiting[key] = command
            return None
        return self._with_lease(key, command)

    def admit_waiting(self) -> list[Any]:
        out = []
        while self.waiting and self.reserve(next(iter(self.waiting))):
            key = next(iter(self.waiting))
            out.append(self._with_lease(key, self.waiting.pop(key)))
        return out

    def void_waiting(self) -> list[events.Event]:
        """The run is cancelled: nothing that waits starts. Returns how each Call ended."""
        waiting, self.waiting = list(self.waiting.values()), {}
        error = CallError(CANCELLED, "the call was cancelled before it was started")
        return [
            events.ChildEnded(command.key, None, error, is_unstarted=True)
            if isinstance(command, commands.StartChild)
            else events.CallEnded(command.node.key, error=error)
            for command in waiting
            if not isinstance(command, commands.AskSolution)
        ]

    def _with_lease(self, key: str, command: Any) -> Any:
        if not isinstance(command, commands.StartChild):
            return command
        below = {"permitKeeper": self.own if self.is_keeper else self.keeper, "keepsPermits": False}
        position = command.input.position.model_copy(update=below)
        update = {"position": position, "lease": self.lease(key)}
        return replace(command, input=command.input.model_copy(update=update))

    def record_end(self, event: events.Event) -> None:
        """What has ended gives its permit back; children do so by ``child_ended``."""
        if isinstance(event, _ENDS):  # a postponed one asks again
            self.release(event.key)
        elif isinstance(event, events.ModelEnded):
            self.release(_MODEL)

    def release(self, key: str) -> None:
        self._in_use -= self._holders.pop(key, 0)
        self._silent_children.discard(key)
        self._children.discard(key)

    def child_gone(self, workflow_id: str) -> list[Any]:
        """A child is gone and starts again with the lease of the first: what was lent beside it comes free."""
        if not self._lends:
            return [self._return(0, workflow_id, starts_again=True)]
        self._reclaim(workflow_id)
        return []

    def child_ended(
        self, key: str, workflow_id: str | None, accounting: Accounting | None, *, is_ending: bool = False
    ) -> list[Any]:
        """A child ended: with what it brings back, or (None) without a word; it may never have started.

        ``is_ending``: this run is cancelled, and what it has comes free when it ends.
        """
        lease = self._holders.get(key, 0)
        self.release(key)
        if workflow_id is None or is_ending:
            return []
        if self._lends:  # all that the child had is from here
            self._forget(workflow_id, is_lost=accounting is None)
            return []
        self.total -= lease
        if accounting is None:
            return [self._return(lease, workflow_id)]
        self.total += accounting.permits or 0
        return []

    def on_request(self, record: PermitRequest) -> None:
        """A run below asks for permits; its latest request counts."""
        if path := self._path(record):
            self._requests.pop(record.workflowId, None)
            self._requests[record.workflowId] = _Request(path, record.missing, record.held)

    def on_return(self, record: PermitReturn) -> None:
        """A run below returns permits, or says that a child of its own is gone."""
        path = self._path(record)
        if not path:
            return
        self._lend(path, -record.permits)
        if record.goneRun is not None and record.startsAgain:
            self._reclaim(record.goneRun)
        elif record.goneRun is not None:
            self._forget(record.goneRun, is_lost=True)

    def on_grant(self, record: PermitGrant) -> None:
        self.total += record.permits
        self._requested = max(0, self._requested - record.permits)
        self._may_ask = True

    def on_lost(self, key: str) -> None:
        """A grant or a request did not arrive, since the other run has ended."""
        if key.startswith(_GRANT):
            permits, _, workflow_id = key.removeprefix(_GRANT).partition("/")
            if workflow_id in self._loans:
                self._lend(self._loans[workflow_id].path, -int(permits))
            return
        # Without a keeper the tree is about to end; nobody is to wait for that
        self._may_ask = False
        self.total = max(1, self.total)

    def _path(self, record: PermitRequest | PermitReturn) -> tuple[str, ...]:
        """The way from below the keeper to a run; empty for a run that is not below it, or is lost."""
        ids = (*record.ancestors, record.workflowId)
        path = ids[ids.index(self.own) + 1 :] if self.is_keeper and self.own in ids else ()
        return () if self._lost_runs.intersection(path) else path

    def _lend(self, path: tuple[str, ...], permits: int) -> None:
        self._loans.setdefault(path[-1], _Loan(path)).permits += permits
        self.lent += permits

    def _forget(self, workflow_id: str, *, is_lost: bool) -> None:
        """A run has ended. If it ended without a word, what the runs below it still say is void."""
        if is_lost:
            self._lost_runs.add(workflow_id)
        self._requests = {id_: r for id_, r in self._requests.items() if workflow_id not in r.path}
        self._reclaim(workflow_id)

    def _reclaim(self, workflow_id: str) -> None:
        """What was lent to a run and to those below it comes free."""
        for id_ in [id_ for id_, loan in self._loans.items() if workflow_id in loan.path]:
            self.lent -= self._loans.pop(id_).permits

    def _grant(self, *, is_busy: bool) -> list[Any]:
        """Lend what is free to the runs that ask: up to a fair share, or all if the keeper has no Calls to start.

        Runs without any permit come first, for they stand still.
        """
        if not self._requests:
            return []
        grants: Counter[str] = Counter()
        order = sorted(self._requests, key=lambda id_: self._requests[id_].held > 0)
        for share in (self._fair_share,) if is_busy else (self._fair_share, self.limit):
            for id_ in order:
                request = self._requests[id_]
                permits = max(0, min(request.missing, share - request.held, self.free))
                self._lend(request.path, permits)
                grants[id_] += permits
                request.missing -= permits
                request.held += permits
        self._requests = {id_: request for id_, request in self._requests.items() if request.missing}
        return [
            commands.SendRecord(id_, PermitGrant(permits=permits), key=f"{_GRANT}{permits}/{id_}")
            for id_, permits in grants.items()
            if permits
        ]

    def ask_again(self) -> None:
        """The keeper may not know what this run has asked for."""
        self._requested, self._may_ask = 0, True

    def count_anew(self, children: Iterable[str]) -> None:
        """This run was reset: what its children hold, it does not know.

        The first keeper counts their permits as free: so many more than the limit may be in flight until they have
        ended, but nobody waits for permits that never come back.
        """
        if self.keeper is not None:
            return
        self._requests, self._loans, self._lost_runs, self.lent = {}, {}, set(), 0
        for key in children:
            self._in_use -= self._holders.get(key, 0)
            self._holders[key] = 0

    def flush(self, waiting: int) -> list[Any]:
        """Serve who asks, ask for what is missing, return what is idle. ``waiting`` Calls could start here."""
        out = self._grant(is_busy=waiting > 0)
        if self.keeper is None:
            return out
        wanted = waiting + sum(request.missing for request in self._requests.values())
        missing = min(wanted, self.limit - self.total)
        if missing > 0 and self.usable <= 0:
            # A Call of its own gives its permit back; a child may wait for a person
            is_silent = not self._may_ask and len(self._holders) > len(self._children)
            if is_silent or self._requested:  # the keeper has not answered yet
                return out
            self._requested = missing
            record = PermitRequest(workflowId=self.own, ancestors=self._ancestors, missing=missing, held=self.total)
            return [*out, commands.SendRecord(self.keeper, record, key=f"{PERMITS}request")]
        calls_in_flight = len(self._holders) - len(self._children)
        if not wanted and self.free > calls_in_flight:
            out.append(self._return(self.free))
            self.total -= self.free
        return out

    def _return(self, permits: int, gone_run: str | None = None, *, starts_again: bool = False) -> commands.SendRecord:
        record = PermitReturn(
            workflowId=self.own, ancestors=self._ancestors, permits=permits, goneRun=gone_run, startsAgain=starts_again
        )
        return commands.SendRecord(self.keeper or "", record)

    def take_all(self) -> int | None:
        """What the run brings back to its parent; None where it had no lease."""
        return self.total if self._has_lease else None

    def lease_of_next_run(self) -> PermitLease | None:
        """What the next run of this workflow begins with. At a quiet moment nothing is in use."""
        return PermitLease(permits=self.total, mayAsk=self._may_ask) if self._has_lease else None
