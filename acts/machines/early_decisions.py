"""Decisions that come before what they are about, and the memory that tells early from late.

A decision by signal may arrive before its wait opens; it is kept for the first wait that it fits. A
decision about something that has waited before is late, not early: it was sent twice, or lost a race.
Keeping it would approve the next thing that waits, which nobody has seen.

Laws: nothing here judges or answers a decision (``approvals`` does), and nothing knows the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.strict_json import json_size
from acts.language.wire import DECISION, EDIT
from acts.machines.budget import SendRecord
from acts.machines.decision_index import DecisionIndex
from acts.tree.decisions import Decision, PendingApproval, is_for, read_decision
from acts.tree.signal_records import ForwardedDecision

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Decisions that are kept at a time, and the bytes of their JSON: a flood of signals must not keep the state of a run
# from fitting into the next
MAX_EARLY: Final = 100
MAX_EARLY_BYTES: Final = 512 * 1024

_Seen = tuple[str, str | None, str | None]  # workflow id, call, instance


@dataclass(frozen=True, slots=True)
class ReceivedDecision:
    """A decision and where it came from.

    ``scope`` limits it to one run and those below. ``reply_to`` is the run that owes the person an answer
    (None: this run), ``id`` how that run names the decision: empty for a signal, which expects no answer.
    """

    decision: Decision
    scope: str | None = None
    reply_to: str | None = None
    id: str = ""

    def to_root(self, own: str, root: str) -> SendRecord:
        """The message that brings it to the root, which alone knows what else may be meant below ``own``."""
        raw = {**self.decision.raw, "decision": self.decision.decision}
        record = ForwardedDecision(id=self.id, replyTo=own, decision=raw, scope=own)
        return SendRecord(root, DECISION, record, key=f"decision/{self.id}")

    def to_waiting_run(self, own: str, wait: PendingApproval, id_: str) -> SendRecord:
        """The message that brings it from the root to the run that waits."""
        # It is about what the root knows to wait: an edit on its way must not be approved unseen
        version = wait.version if self.decision.version is None else self.decision.version
        raw = {**self.decision.raw, "decision": self.decision.decision, "version": version}
        record = ForwardedDecision(id=id_, replyTo=own, target=wait.to_json(), decision=raw)
        return SendRecord(wait.workflow_id, DECISION, record, key=f"decision/{id_}")


class EarlyDecisions:
    """The decisions that are kept, and what has waited so far. ``own`` is the workflow id of this run."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._kept: list[ReceivedDecision] = []
        self._kept_bytes = 0
        self._seen = DecisionIndex[_Seen, tuple[_Seen, tuple[str, ...]]]()  # with the ancestors of the run
        self._unseen: dict[_Seen, PendingApproval] = {}  # opened in this workflow task

    def remember(self, wait: PendingApproval, ancestors: Sequence[str] = ()) -> None:
        """This has waited: a decision about it that comes later is late."""
        self._see((wait.workflow_id, wait.call, wait.instance), tuple(ancestors))

    def _see(self, seen: _Seen, ancestors: tuple[str, ...]) -> None:
        self._seen.put(seen, (seen, ancestors), *seen)

    def add_unseen(self, wait: PendingApproval) -> None:
        """This has just opened: nobody can have seen it before the task ends."""
        self._unseen[wait.workflow_id, wait.call, wait.instance] = wait

    def is_unseen(self, wait: PendingApproval) -> bool:
        """True for what opened in this task."""
        return (wait.workflow_id, wait.call, wait.instance) in self._unseen

    def end_task(self) -> None:
        """From now on people see what has opened."""
        for wait in self._unseen.values():
            self.remember(wait)
        self._unseen.clear()

    def is_early(self, item: ReceivedDecision, waits: Iterable[PendingApproval]) -> bool:
        """True when a decision fits nothing that waits now or has waited before."""
        return not any(is_for(wait, item.decision) for wait in waits) and not any(
            self._could_mean(item, seen, ancestors) for seen, ancestors in self._seen.narrow(item.decision)
        )

    def _could_mean(self, item: ReceivedDecision, seen: _Seen, ancestors: tuple[str, ...]) -> bool:
        decision, (workflow_id, call, instance) = item.decision, seen
        if not self._is_in_scope(item.scope, workflow_id, ancestors):
            return False
        # A run within an instance does not always know that it is one: its id means it
        is_named = instance is None and decision.workflow_id == workflow_id
        edits_plan = call is None and decision.decision == EDIT  # one Call of a plan that waited
        return (
            decision.workflow_id in (None, workflow_id)
            and (edits_plan or decision.call in (None, call))
            and (is_named or decision.instance in (None, instance))
        )

    def _is_in_scope(self, scope: str | None, workflow_id: str, ancestors: Sequence[str]) -> bool:
        return scope in (None, self._own, workflow_id) or scope in ancestors

    def keep(self, item: ReceivedDecision) -> bool:
        """Keep a decision for its wait; False when there is no room for another one."""
        if len(self._kept) >= MAX_EARLY:
            return False
        size = self._kept_bytes + json_size(dict(item.decision.raw))
        if size > MAX_EARLY_BYTES:
            return False
        self._kept.append(item)
        self._kept_bytes = size
        return True

    def take(self, wait: PendingApproval, ancestors: Sequence[str] = ()) -> list[ReceivedDecision]:
        """The kept decisions about a wait that has just opened, oldest first; they are kept no longer."""
        items, rest = list[ReceivedDecision](), list[ReceivedDecision]()
        for item in self._kept:
            fits = is_for(wait, item.decision) and self._is_in_scope(item.scope, wait.workflow_id, ancestors)
            (items if fits else rest).append(item)
        if items:
            self._kept = rest
            self._kept_bytes = _count_bytes(rest)
        return items

    def snapshot(self) -> dict[str, Any]:
        """``{early, seen}``: what the next run must know."""
        return {
            "early": [
                {"decision": {**e.decision.raw, "decision": e.decision.decision}, "scope": e.scope,
                 "replyTo": e.reply_to}
                for e in self._kept
            ],
            "seen": [[*seen, list(ancestors)] for seen, ancestors in self._seen.values()],
        }  # fmt: skip

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over a snapshot."""
        self._kept = [
            ReceivedDecision(read_decision(item["decision"]), item["scope"], item["replyTo"]) for item in data["early"]
        ]
        self._kept_bytes = _count_bytes(self._kept)
        self._seen.clear()
        for id_, call, instance, ancestors in data["seen"]:
            self._see((id_, call, instance), tuple(ancestors))


def _count_bytes(items: Iterable[ReceivedDecision]) -> int:
    return sum(json_size(dict(item.decision.raw)) for item in items)
