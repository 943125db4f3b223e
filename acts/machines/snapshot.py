"""How a walk goes on as another: in the next run of a workflow, or with an edited plan.

A snapshot is JSON, taken when nothing runs; restoring it gives the same walk. An edited
plan takes over what has started as it is, and is refused where it would change that, or
what something that has started has read.

WARNING: what is in ``snapshot`` must be enough for ``restore``; a new field of ``CallState``
that outlives a quiet moment belongs into both, and into ``adopt``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from acts.language.errors import DecisionRefused, EngineError
from acts.machines.call_state import SETTLED, CallState, ChainProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from acts.language.messages import Data
    from acts.language.references import Path
    from acts.language.values import Json
    from acts.machines.commands import Command
    from acts.plan.context_log import Log
    from acts.plan.planned_call import PlannedCall
    from acts.plan.result_placement import Writes
    from acts.plan.validate import ValidatedPlan


class Resumable:
    """The part of ``Walk`` that is about its own continuation."""

    nodes: tuple[PlannedCall, ...]
    runs: list[CallState]
    log: Log
    paused: bool
    draining: bool
    cancelling: bool
    running: int
    open: int
    provided: list[dict[str, Any]]
    _identify: Callable[[PlannedCall], str]
    _dry: bool
    _provided: list[Data]
    _delayed: list[tuple[int, int, Writes, str]]
    _progress: dict[int, ChainProgress]

    def __init__(self, prepared: ValidatedPlan, identify: Callable[[PlannedCall], str], *, dry: bool = False) -> None:
        raise NotImplementedError

    def begin(self, now: str) -> list[Command]:
        """Start walking."""
        raise NotImplementedError

    @property
    def quiet(self) -> bool:
        """True when nothing runs."""
        raise NotImplementedError

    def _move(self, rank: int, state: str) -> None:
        raise NotImplementedError

    def take_unit(self, log: Log, value: Json) -> None:
        """What instances wrote stands in their layers."""
        raise NotImplementedError

    # -- another plan ----------------------------------------------------------

    def changed_plan(self, prepared: ValidatedPlan, now: str) -> tuple[Self, list[Command]]:
        """The walk of an edited plan: what has started stays as it is, what was changed is confirmed anew.

        Raises:
            Refused: the edit touches a Call that has started, or what one has read.
        """
        same = self.check_change(prepared)
        new = self.anew(prepared)
        for rank, node in enumerate(new.nodes):
            old = same.get(node.index)
            if old is None:
                new.runs[rank].edited = True
            else:
                new.adopt(rank, self.runs[old], self.nodes[old])
        new.count_settled()
        return new, new.begin(now)

    def anew(self, prepared: ValidatedPlan) -> Self:
        """A walk of another plan that has not begun; what was provided is kept."""
        new = type(self)(prepared, self._identify, dry=self._dry)
        for message in self._provided:
            new.take_provided(message)
        new.paused, new.draining, new.cancelling = self.paused, self.draining, self.cancelling
        return new

    def check_change(self, prepared: ValidatedPlan) -> dict[int, int]:
        """The Calls that an edited plan leaves alone, by their place: their ranks here.

        Raises:
            Refused: as ``changed_plan``.
        """
        before = {n.index: rank for rank, n in enumerate(self.nodes)}
        kept = [n for n in prepared.nodes if n.index in before and self.nodes[before[n.index]].planned == n.planned]
        same = {n.index: before[n.index] for n in kept}
        for rank, node in enumerate(self.nodes):
            if self._started(rank) and node.index not in same:
                raise DecisionRefused(f"{node.id} has started and cannot be changed")
        if [same[n.index] for n in kept] != sorted(same.values()):
            raise DecisionRefused("the edit would change the order of calls that it leaves as they are")
        changed: list[Path] = []
        for node in prepared.nodes:
            if node.index not in same:
                changed.extend(node.writes)  # what it reads is what stands before its place, whenever that is
            elif self._started(same[node.index]):
                touched = [*node.writes, *(p for read in node.reads for p in read.paths), *node.scopes]
                if any(p.overlaps(q) for p in touched for q in changed):
                    raise DecisionRefused(f"{node.id} has started: the edit would change what it reads, or writes onto")
        return same

    def _started(self, rank: int) -> bool:
        return self.runs[rank].state in SETTLED or self.runs[rank].state == "running"

    def adopt(self, rank: int, old: CallState, was: PlannedCall) -> None:
        """Take over what is known of a Call that an edit left alone."""
        run, node = self.runs[rank], self.nodes[rank]
        run.approved, run.edited = old.approved, old.edited
        if old.state not in SETTLED and old.state != "running":
            return
        run.error, run.outcome, run.written, run.value = old.error, old.outcome, old.written, old.value
        if run.value is not None:
            self.take_unit(self.log, run.value)
        for path, value, _ in old.written:
            self.log.layer(was.instance).write(path, node.method, value, rank)
        if old.effect is not None and old.outcome is not None:
            self._delayed.append((rank, old.outcome, *old.effect))
            return
        self._move(rank, old.state)
        if old.state == "running":
            self.running += 1
        else:
            self.open -= 1

    def take_provided(self, message: Data) -> None:
        """A message that was provided, and taken, before."""
        self.log.layer(message.instance).take(message, set())
        self._provided.append(message)
        self.provided.append(message.raw)

    # -- carrying over ---------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The walk as JSON, at a quiet moment."""
        if not self.quiet:
            raise EngineError("a snapshot is taken when nothing runs")
        runs: dict[str, Any] = {}
        for rank, run in enumerate(self.runs):
            item: dict[str, Any] = {"s": run.state} if run.state in SETTLED else {}
            if run.error is not None:
                item["e"] = run.error
            if run.approved:
                item["a"] = True
            if run.edited:
                item["c"] = True
            if run.written:
                item["o"] = run.outcome
                item["w"] = [[value, date] for _, value, date in run.written]
            if run.effect is not None:  # a result that waits for its effect
                item["o"] = run.outcome
                item["p"] = [[value for _, value in run.effect[0]], run.effect[1]]
            if run.value is not None:
                item["v"] = run.value
            if item:
                runs[str(rank)] = item
        return {"runs": runs, "provided": self.provided, "paused": self.paused}

    def restore(self, data: Mapping[str, Any], parse: Callable[[Json], Data]) -> None:
        """Take over a snapshot of the same Request. Call ``begin`` afterwards."""
        for raw in data["provided"]:
            self.take_provided(parse(raw))
        self.paused = bool(data["paused"])
        for key, item in data["runs"].items():
            self._restore_run(int(key), item)
        self.count_settled()

    def count_settled(self) -> None:
        """Bring the chains up to what is settled already."""
        for progress in self._progress.values():
            while (
                progress.done < len(progress.chain.entries)
                and self.runs[progress.chain.entries[progress.done]].state in SETTLED
            ):
                progress.done += 1
                for _, rank in progress.waiters.pop(progress.done, ()):
                    self.runs[rank].waiting -= 1

    def _restore_run(self, rank: int, item: Mapping[str, Any]) -> None:
        node, run = self.nodes[rank], self.runs[rank]
        run.error, run.approved, run.edited = item.get("e"), item.get("a", False), item.get("c", False)
        if "s" in item:
            self._move(rank, item["s"])
            self.open -= 1
        if "v" in item:
            run.value = item["v"]
            self.take_unit(self.log, run.value)
        if "w" in item:
            run.outcome = item["o"]
            written = zip(node.outcomes[item["o"]], item["w"], strict=True)
            run.written = tuple((path, value, date) for path, (value, date) in written)
            for path, value, _ in run.written:
                self.log.layer(node.instance).write(path, node.method, value, rank)
        if "p" in item:
            values, date = item["p"]
            self._delayed.append((rank, item["o"], tuple(zip(node.outcomes[item["o"]], values, strict=True)), date))
