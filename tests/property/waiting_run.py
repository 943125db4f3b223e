"""A run whose only work is to wait for people: the smallest machine around ``Approvals``."""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from acts.language.config import Approve, Config
from acts.language.errors import InvalidRequest, Problem
from acts.machines.commands import Decided, Finish
from acts.machines.events import Begin, CancelRequested, ChildEnded, Event, HoldChanged
from acts.tree.decisions import LIKE, Decision, PendingApproval
from acts.tree.records import TreePosition
from tests.property.simulated_tree import BareRun

Json = Any
What = tuple[str, str | None]  # what, call
Place = tuple[str, str, str | None, str | None]  # workflow id, what, call, instance
PLAN: What = ("plan", None)


@dataclass(frozen=True)
class Taken:
    """A decision that a run took: about which opening of which wait, at which version of it."""

    place: Place
    opening: int
    decision: str
    version: int
    by: str | None
    opened_version: int
    approvers: tuple[str, ...] = ()  # those who have approved this wait, the last one too
    remembered: str | None = None


class WaitingRun(BareRun):
    """A run whose only work is to wait: for all of a stage, then for all of the next."""

    def __init__(self, own: str, position: TreePosition, stages: list[list[What]], approve: Approve) -> None:
        super().__init__(own, position)
        self.config = Config(approve=approve)
        self.stages, self.approve = stages, approve
        self.stage = 0
        self.version = 1
        self.left: list[What] = list(stages[0]) if stages else []
        self.openings: dict[What, list[int]] = defaultdict(list)  # the version of each
        self.log: list[Taken] = []
        self.may_end = False
        self.reopening: set[What] = set()

    @property
    def in_flight(self) -> int:
        return len(self.children)

    def react(self, event: Event, now: str) -> list[Any]:
        if isinstance(event, Begin):
            return [] if self.is_cancelling else self._open_all(self.left, now)
        if isinstance(event, CancelRequested):
            self.is_cancelling = True
            return list(self.approvals.close_all())
        return self._end_if_over() if isinstance(event, (ChildEnded, HoldChanged)) else []

    def place(self, what: What) -> Place:
        return (self.own, *what, self.position.instance)

    def _open_all(self, every: list[What], now: str) -> list[Any]:
        return [effect for what in list(every) for effect in self._open(what, now)]

    def _open(self, what: What, now: str) -> list[Any]:
        if what in self.reopening:
            self.reopening.remove(what)
        elif not any((w.what, w.call) == what for w in self.approvals.waits.own):
            self.openings[what].append(self.version)
        name, call = what
        return list(
            self.approvals.open(
                name,
                self.version,
                self.approve.plan_rule,
                now,
                call=call,
                instance=self.position.instance,
                about=None if call is None else {LIKE: call.partition(":")[2]},
            )
        )

    def check_decision(self, decision: Decision, wait: PendingApproval) -> Any:
        if decision.decision == "edit" and _tool(decision) == "bad":
            raise InvalidRequest([Problem("unknownTool", "there is no such tool", "/call")])
        return None

    def on_decided(self, effect: Decided, now: str) -> list[Any]:
        decision, wait = effect.decision, effect.wait
        what = (wait.what, wait.call)
        versions = self.openings[what]
        self.log.append(
            Taken(
                self.place(what), len(versions), decision.decision, wait.version, decision.by, versions[-1],
                (*wait.about.get("approvals", ()), str(decision.by)), decision.remembered,
            )
        )  # fmt: skip
        if decision.decision == "edit":
            return self._edit(wait, decision, now)
        self.left.remove(what)
        if self.left or self.stage + 1 >= len(self.stages):
            return self._end_if_over()
        self.stage += 1
        self.left = list(self.stages[self.stage])
        self.version += PLAN in self.left  # an agent's next proposal is a new version
        return self._open_all(self.left, now)

    def _edit(self, wait: PendingApproval, decision: Decision, now: str) -> list[Any]:
        """All that waits has another version; a Call may have become another one, which waits in its place."""
        self.version += 1
        out: list[Any] = []
        if wait.call is not None and _tool(decision) == "other":
            renamed = f"{wait.call.partition(':')[0]}:other{self.version}"
            self.left[self.left.index((wait.what, wait.call))] = (wait.what, renamed)
            out += self.approvals.close(wait)
            self.approvals.inherit_deadline(wait, [renamed])
        self.approvals.raise_version(self.version)
        return out + self._open_all(self.left, now)

    def _end_if_over(self) -> list[Any]:
        if self.left or self.children or self.finished is not None or not self.may_end:
            return []
        self.finished = "completed"
        return [Finish("completed")]

    def renewed(self) -> WaitingRun:
        """The same run after continue-as-new: all that crosses of the machines is JSON."""
        carried = json.loads(json.dumps(self.common_snapshot()))
        new = WaitingRun(self.own, self.position, self.stages, self.approve)
        new.restore_common(carried["approvals"], carried["budget"])
        for name in ("stage", "version", "left", "openings", "log", "may_end"):
            setattr(new, name, copy.deepcopy(getattr(self, name)))
        new.reopening = {(wait.what, wait.call) for wait in self.approvals.waits.own}
        return new


def _tool(decision: Decision) -> str | None:
    return decision.call_with.get("_tool") if isinstance(decision.call_with, dict) else None
