"""The desk where a run's decisions are made: what waits, what was decided, until when.

One desk per run, of plans and agents alike. It matches decisions with waits, keeps those
that came too early, counts down deadlines with durable timers, and remembers who decided
what, when and why. What a decision *does* is the run's business: it is told of each one.

The waits of runs below are listed here as they report them, and decisions about them are
passed on, so that a person has to know the root alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow

from acts.language.errors import DecisionRefused, PlanError, truncate
from acts.tree.decisions import APPROVE, REJECT, Decision, PendingApproval, match_decision, read_decision
from workflows.teller import Key, Teller, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acts.language.config import Approve

# Decisions that came before their wait; a flood of them must not grow without end
MAX_KEPT: Final = 100
MAX_RECORDS: Final = 1_000
# … of which a status tells the latest
MAX_TOLD: Final = 100
ENGINE: Final = "onTimeout"


class Desk:
    """``decided`` is told of each decision that was taken, ``check`` may refuse one before it is."""

    def __init__(
        self,
        decided: Callable[[PendingApproval, Decision], None],
        check: Callable[[Decision], None],
        check_below: Callable[[PendingApproval, Decision], None],
        note: Callable[[str], None],
    ) -> None:
        self.records: list[dict[str, Any]] = []
        self.expired: str | None = None
        self._decided, self._check, self._check_below, self._note = decided, check, check_below, note
        self._waits: dict[tuple[str, str | None, str | None], PendingApproval] = {}
        self._timers: dict[tuple[str, str | None, str | None], asyncio.Task[None]] = {}
        self._below: dict[str, dict[Key, PendingApproval]] = {}
        self._kept: list[Decision] = []
        self._arrived: list[Decision] = []
        self.restoring = False
        self._since: dict[str, str] = {}
        self._seen: dict[tuple[str, str | None, str | None], int] = {}
        self.teller = Teller(self.all, note)

    # -- waits -----------------------------------------------------------------

    def open(
        self, what: str, version: int, approve: Approve, *, call: str | None = None, instance: str | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Wait for a decision; one that came early may settle it at once."""
        key = (what, call, instance)
        self.teller.changed()
        if key in self._waits:
            self._waits[key] = replace(self._waits[key], version=version)
            return
        self._saw(workflow.info().workflow_id, call, instance, version)
        began = self._since.pop(f"{what}/{call}/{instance}", None) or _text(workflow.now())
        deadline = None
        if approve.timeout is not None:
            ends = datetime.fromisoformat(began) + timedelta(seconds=approve.timeout)
            deadline = _text(ends)
            left = max(timedelta(milliseconds=1), ends - workflow.now())
            timer = asyncio.create_task(workflow.sleep(left, summary=f"decision about {call or 'the plan'}"))
            timer.add_done_callback(partial(self._expire, key, approve.onTimeout))
            self._timers[key] = timer
        self._waits[key] = PendingApproval(
            workflow.info().workflow_id, what, version, began, call, instance, deadline, about or {}
        )
        for early in list(self._kept):
            if key in self._waits and self._fits(self._waits[key], early):
                self._kept.remove(early)
                self._take(self._waits[key], early)

    def close(self) -> None:
        """Nothing waits any more."""
        for key in list(self._waits):
            self._close(key)

    def _close(self, key: tuple[str, str | None, str | None]) -> None:
        self._waits.pop(key, None)
        self.teller.changed()
        timer = self._timers.pop(key, None)
        if timer is not None and not timer.done():
            timer.cancel()

    def raise_version(self, version: int) -> None:
        """Another version waits now; the time that is left goes on."""
        for key, wait in list(self._waits.items()):
            self._waits[key] = replace(wait, version=version)
            self._saw(wait.workflow_id, wait.call, wait.instance, version)
        self.teller.changed()

    def _saw(self, workflow_id: str, call: str | None, instance: str | None, version: int) -> None:
        """Remember that this has waited: a decision that comes later is not one that came early."""
        key = (workflow_id, call, instance)
        self._seen[key] = max(version, self._seen.get(key, 0))

    def settle(self, call: str, instance: str | None) -> None:
        """A Call does not wait any more, whoever settled it."""
        for what in ("call", "scopes"):
            self._close((what, call, instance))

    def goes_on(self, wait: PendingApproval, calls: Sequence[str]) -> None:
        """The time for a decision goes on where an edit put another Call into the place of this one."""
        place = f"{str(wait.call).partition(':')[0]}:"
        for call in calls:
            if call.startswith(place):
                self._since |= {f"{what}/{call}/{wait.instance}": wait.since for what in ("call", "scopes")}

    def own(self) -> list[PendingApproval]:
        """What waits in this very run."""
        return list(self._waits.values())

    def all(self) -> list[PendingApproval]:
        """What waits here and in the runs below."""
        return [*self._waits.values(), *(w for waits in self._below.values() for w in waits.values())]

    @property
    def waiting_below(self) -> int:
        """How many of the runs right below say that something waits there."""
        return sum(bool(waits) for waits in self._below.values())

    # -- decisions -------------------------------------------------------------

    def judge(self, raw: Any, word: str | None = None) -> tuple[PendingApproval, Decision]:
        """The wait that a decision is for.

        Raises:
            Refused, InvalidRequest: it cannot be taken, and why.
        """
        decision = read_decision(raw, word)
        wait = match_decision(self.all(), decision)
        if wait.workflow_id == workflow.info().workflow_id:
            self._check(decision)
        else:
            self._check_below(wait, decision)
        return wait, decision

    def signalled(self, raw: Any, word: str) -> tuple[PendingApproval, Decision] | None:
        """A decision by signal: taken, kept for a wait that is still to come, or noted as refused.

        What is returned is for a run below, to be passed on.
        """
        try:
            decision = read_decision(raw, word)
            if self.restoring and len(self._arrived) < MAX_KEPT:
                self._arrived.append(decision)
                return None
            if self._is_early(decision) and len(self._kept) < MAX_KEPT:
                self._kept.append(decision)
                return None
            return self.take(raw, word)
        except PlanError as error:
            self._note(f"the signal {word} was refused: {truncate(str(error), 200)}")
            return None

    def _is_early(self, decision: Decision) -> bool:
        """True when it can only be for a wait that is still to come.

        What was said about something that has waited already (twice, or too late) must not
        approve the next thing that waits: nobody has seen that.
        """
        anything = replace(decision, version=None)
        if any(self._fits(w, anything) for w in self.all()):
            return False
        wanted = (decision.workflow_id, decision.call, decision.instance)
        return not any(all(w is None or w == k for w, k in zip(wanted, seen, strict=True)) for seen in self._seen)

    def take(self, raw: Any, word: str | None = None) -> tuple[PendingApproval, Decision] | None:
        """Take a decision; what is for a run below is returned, to be passed on.

        Raises:
            Refused, InvalidRequest: it cannot be taken, and why.
        """
        wait, decision = self.judge(raw, word)
        if wait.workflow_id != workflow.info().workflow_id:
            if decision.decision in (APPROVE, REJECT):  # decided, until the run below says otherwise
                for waits in self._below.values():
                    waits.pop(key_of(wait), None)
                self.teller.changed()
            return wait, decision
        self._take(wait, decision)
        return None

    def _take(self, wait: PendingApproval, decision: Decision) -> None:
        try:
            self._check(decision)
        except PlanError as error:
            self._note(f"the decision {decision.decision} was refused: {truncate(str(error), 200)}")
            return
        if len(self.records) < MAX_RECORDS:
            self.records.append(decision.record(wait, _text(workflow.now())))
        if decision.decision in (APPROVE, REJECT):
            self._close((wait.what, wait.call, wait.instance))
        self._decided(wait, decision)

    @staticmethod
    def _fits(wait: PendingApproval, decision: Decision) -> bool:
        try:
            match_decision([wait], decision)
        except DecisionRefused:
            return False
        return True

    def _expire(self, key: tuple[str, str | None, str | None], on_timeout: str, timer: asyncio.Task[None]) -> None:
        wait = self._waits.get(key)
        if timer.cancelled() or wait is None:
            return
        self._timers.pop(key, None)
        reason = "nobody decided in time"
        if on_timeout == "fail":
            self._close(key)
            self.expired = f"{reason}: {wait}"
            self._decided(wait, Decision("fail", by=ENGINE, reason=reason))
        else:
            self._take(wait, Decision(on_timeout, by=ENGINE, reason=reason))

    # -- runs below and above --------------------------------------------------

    def reported(self, raw: Any, instance: str | None = None) -> list[tuple[PendingApproval, Decision]]:
        """A run below says what waits there; early decisions that fit are returned, to be passed on.

        ``instance`` is the one that it works for.
        """
        try:
            waits = [PendingApproval.from_json(w) for w in raw["waits"]]
            gone = [PendingApproval.from_json({"version": 0, "since": "", **w}) for w in raw.get("gone", ())]
        except (KeyError, TypeError, AttributeError):
            return []
        waits, gone = ([w.inside(instance) for w in part] for part in (waits, gone))
        known = self._below.setdefault(raw["workflowId"], {})
        if "gone" not in raw:  # from a version that told all of them each time
            known.clear()
        for wait in gone:
            known.pop(key_of(wait), None)
        known.update({key_of(w): w for w in waits})
        if not known:
            del self._below[raw["workflowId"]]
        self.teller.changed()
        return [pair for wait in waits for pair in self._early(wait)]

    def _early(self, wait: PendingApproval) -> list[tuple[PendingApproval, Decision]]:
        """The decision that came before this wait, if there is one."""
        self._saw(wait.workflow_id, wait.call, wait.instance, wait.version)
        for early in self._kept:
            if self._fits(wait, early):
                self._kept.remove(early)
                return [(wait, early)]
        return []

    def forget(self, workflow_id: str) -> None:
        """A run below is over."""
        if self._below.pop(workflow_id, None) is not None:
            self.teller.changed()

    # -- carrying over ---------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """What a next run must know."""
        return {
            "records": self.records,
            "kept": [{**d.raw, "decision": d.decision} for d in (*self._kept, *self._arrived)],
            "since": {f"{w.what}/{w.call}/{w.instance}": w.since for w in self._waits.values()},
            "told": self.teller.snapshot(),
            "seen": [[*key, version] for key, version in self._seen.items()],
        }  # fmt: skip

    def restore(self, data: dict[str, Any] | None) -> None:
        """Take it over; the waits are opened again by who has them. None: from a version without decisions."""
        if data is None:
            return
        self.records = list(data["records"])
        # What came before this is known is judged when the waits are open again
        self._arrived, self.restoring = self._kept, True
        self._kept = [read_decision(raw) for raw in data["kept"]]
        self.teller.restore(data["told"])
        self._since = dict(data["since"])
        own = workflow.info().workflow_id
        for *key, version in data.get("seen", ()):  # before trees, a Call alone was the key
            workflow_id, call, instance = key if len(key) > 1 else (own, key[0], None)
            self._saw(workflow_id, call, instance, version)

    def restored(self) -> list[tuple[PendingApproval, Decision]]:
        """The waits of the run before are open again; what is for a run below is returned, to be passed on."""
        arrived, self._arrived, self.restoring = self._arrived, [], False
        found = [self.signalled(decision.raw, decision.decision) for decision in arrived]
        return [pair for pair in found if pair is not None]


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
