"""What the Calls of a walked plan see, and what they wait for.

``WalkContext`` owns the log: the messages before the plan, those provided meanwhile, and what Calls wrote. Provided
messages precede the plan, whenever they arrive; one after which the writes of the Calls could not be applied is
refused and changes nothing. The writes of instances that batch children walk are in the log, too, as their children
report them. ``WriterProgress`` counts how far the writer chains of the plan (see ``graph``) have settled.

Laws of this file: it reads the states of Calls and never changes one. Every method of ``WriterProgress`` costs time in
proportion to the chains of one Call, not to the number of their writers.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from acts.language.admission import Work
from acts.language.errors import CallError, InvalidRequest, Problem, TooComplex, format_choices
from acts.language.messages import Data, scoped_context
from acts.language.references import Path, parse, paths
from acts.language.values import ABSENT, Json, get, pointer
from acts.language.wire import SCHEMA_MISMATCH, TOO_COMPLEX
from acts.machines.call_state import SETTLED, CallState
from acts.plan.calls import PlannedCall
from acts.plan.context_log import Log, appended_message, build_message
from acts.plan.graph import ChainFold, Graph, Wait, WriterChain
from acts.plan.validate import ValidatedPlan, is_template


class WalkContext:
    """The log of one walk. ``calls`` are the states of its Calls.

    ``calls_by_instance`` are the Calls of the unsplit plan with their ranks, by instance and id; those of a template
    under None, for every instance.
    """

    def __init__(self, prepared: ValidatedPlan, calls: Sequence[CallState], provided: Sequence[Data]) -> None:
        self._prepared, self._calls = prepared, calls
        self.calls_by_instance: dict[str | None, dict[str, tuple[int, PlannedCall]]] = {}
        if (unsplit := prepared.unsplit) is not None:
            template = is_template(unsplit.request, unsplit.nodes)
            for rank, node in enumerate(unsplit.nodes):
                self.calls_by_instance.setdefault(None if template else node.instance, {})[node.id] = (rank, node)
        self.provided = list(provided)
        self.log, _ = self._fold(self.provided)

    def provide(self, message: Data, work: Work | None = None) -> None:
        """Fold a message that arrived from outside into the context, before the plan.

        Where it may meet what Calls wrote, everything is folded again, and ``work`` counts that. Raises InvalidRequest:
        its instance is unknown, what Calls wrote cannot be applied after it, or it takes too long.
        """
        self.check_provided(message)
        log, conflict = self.log, None
        if log.meets_writes(message):
            try:
                steps = log.shared.effect_count + len(self._calls) + len(self.provided) + len(log.own)
                (work or Work()).steps.spend(2 * steps)
            except TooComplex as error:
                raise InvalidRequest([Problem(TOO_COMPLEX, str(error), "")]) from error
            log, conflict = self._fold([*self.provided, message])
        else:
            conflict = log.fold(message)
        if conflict:
            raise InvalidRequest([Problem("invalidMessage", conflict.message, "")])
        self.log = log
        self.provided.append(message)

    def check_provided(self, message: Data) -> None:
        """Raise InvalidRequest for a message whose instance is unknown, or which the schema of its kind forbids."""
        if message.instance is not None and message.instance not in self.log.own:
            text = f"unknown instance {message.instance!r}; known: {format_choices(self.log.own)}"
            raise InvalidRequest([Problem("unknownInstance", text, "/_instance")])
        path = message.path or Path(message.kind)
        check = self._prepared.kind_schemas.check_at(path) if message.method == "set" else None
        for at, why in (() if check is None else check.defects(message.payload))[:1]:
            text = f"the schema of {message.kind} does not allow it: {pointer(*at)} {why}"
            raise InvalidRequest([Problem(SCHEMA_MISMATCH, text, pointer(*at))])

    def _fold(self, provided: Sequence[Data]) -> tuple[Log, CallError | None]:
        """A log of everything, and the first reason why a part of it cannot be folded."""
        log = self._prepared.create_log()
        conflict = None
        for message in provided:
            conflict = conflict or log.fold(message)
        for call in self._calls:
            self.apply_child_report(call.value or {}, log)
            view = log.view_of(call.node.instance)
            for path, value, _ in call.written:
                conflict = conflict or view.find_conflict(path, call.node.method, value, call.rank)
                view.write(path, call.node.method, value, call.rank)
        return log, conflict

    def apply_child_report(self, report: Mapping[str, Any], log: Log | None = None) -> None:
        """Write what the instances of a batch child wrote, by id, when somebody asks for it.

        A message that was provided to all instances may be in the way of a write, which the child never saw so.
        Then the value is set that the child's state had.
        """
        log = log or self.log

        def replay(id_: str) -> None:
            view = log.view_of(id_)
            for rank, (_, _, method, path, value, _) in enumerate(self._writes_of(id_, report[id_])):
                if view.find_conflict(path, method, value, rank) is None:
                    view.write(path, method, value, rank)
                else:
                    in_state = get(report[id_]["state"], path.names) if path.kind == "state" else ABSENT
                    view.write(path, "set", value if in_state is ABSENT else in_state, rank)

        for id_ in report:
            log.postpone(id_, replay)

    def _writes_of(
        self, id_: str, report: Mapping[str, Any]
    ) -> Iterator[tuple[int, dict[str, Any], str, Path, Json, str]]:
        """What an instance's Calls wrote: rank in the unsplit plan, the Call as planned, method, path, value, date.

        They are in plan order: those that name the instance, or those of the template.
        """
        own = self.calls_by_instance.get(id_) or self.calls_by_instance.get(None, {})
        listed = sorted(own.values(), key=lambda ranked: ranked[1].index)
        for at, text, date, edited, *own_value in report["writes"]:
            rank, node = listed[min(at, len(listed) - 1)]  # an edited plan may have more Calls
            path = paths(parse(text))[0]
            value = own_value[0] if own_value else get(report["state"], path.names)
            method, planned = (edited["method"], edited["planned"]) if edited else (node.method, node.planned)
            yield rank, planned, method, path, value, date

    def instance_messages(self, id_: str, report: Mapping[str, Any]) -> Iterator[tuple[int, Json]]:
        """The messages that an instance's Calls appended, each with the rank of its Call in the unsplit plan."""
        for rank, planned, method, path, value, date in self._writes_of(id_, report):
            yield rank, build_message(planned, method, path, value, date, id_)

    def appended(self) -> list[dict[str, Any]]:
        own = (appended_message(call.node, *write) for call in self._calls for write in call.written)
        return [*(message.raw for message in self.provided), *own]

    def reader(self, rank: int) -> Callable[[Path], Json]:
        """Reads a path as the Call of ``rank`` sees it, all of whose dependencies have settled."""
        view = self.log.view_of(self._prepared.nodes[rank].instance)
        return lambda path: view.read(path, rank, settled=True)

    def scoped_messages(self, rank: int) -> list[dict[str, Any]]:
        """The part of the context that a Call may see, one message per kind; ``[]`` without scopes."""
        node = self._prepared.nodes[rank]
        if not node.scopes:
            return []
        view = self.log.view_of(node.instance)
        return scoped_context(node.scopes, self.reader(rank), lambda path: view.type_at(path, rank) == "list")


@dataclass(slots=True)
class _ChainProgress:
    """How many of a chain's first entries have settled, and which ranks wait for more of them."""

    entries: Sequence[int]
    settled: int = 0
    waiters: dict[int, list[int]] | None = None  # few chains have any: ten thousand empty dicts would cost time


class WriterProgress:
    """The waits of one walk. ``calls`` are the states of its Calls, by rank."""

    def __init__(self, graph: Graph, calls: Sequence[CallState]) -> None:
        self._graph, self._calls = graph, calls
        self._open_waits = [0] * len(calls)
        self._chains: dict[int, _ChainProgress] = {}
        self._chains_of: list[list[_ChainProgress]] = [[] for _ in calls]
        # By chain, the first rank that did not complete, and (at its path, or below it) the first that did not write
        self._first_incomplete = ChainFold(
            math.inf, lambda first, rank: first if calls[rank].stage == "completed" else min(first, rank)
        )
        self._first_unwritten: dict[int, ChainFold[float]] = {}
        for chain in (*graph.writers.exact.values(), *graph.writers.below.values()):
            progress = self._chains[id(chain)] = _ChainProgress(chain.entries)
            for rank in chain.entries:
                self._chains_of[rank].append(progress)
        for rank, call in enumerate(calls):
            if call.stage in SETTLED:
                deque(self.release_waiters(rank), maxlen=0)  # no Call waits yet
        for rank, call in enumerate(calls):
            if call.stage == "pending":
                self.await_writers(rank, graph.waits[rank])

    def is_waiting(self, rank: int) -> bool:
        return self._open_waits[rank] > 0

    def await_earlier_writers(self, rank: int, chains: Iterable[WriterChain]) -> None:
        """Let a Call wait for the writers of these chains that precede it in plan order."""
        self.await_writers(rank, ((chain, bisect.bisect_left(chain.entries, rank)) for chain in chains))

    def await_writers(self, rank: int, waits: Iterable[Wait]) -> None:
        for chain, count in waits:
            progress = self._chains[id(chain)]
            if progress.settled < count:
                progress.waiters = progress.waiters or {}
                progress.waiters.setdefault(count, []).append(rank)
                self._open_waits[rank] += 1

    def release_waiters(self, rank: int) -> Iterator[int]:
        """The Calls whose last wait ends because the Call of ``rank`` settled.

        A Call may settle between two of them: the chains advance over it then, too.
        """
        for progress in self._chains_of[rank]:
            entries = progress.entries
            while progress.settled < len(entries) and self._calls[entries[progress.settled]].stage in SETTLED:
                progress.settled += 1
                for waiter in progress.waiters.pop(progress.settled, ()) if progress.waiters else ():
                    self._open_waits[waiter] -= 1
                    if not self._open_waits[waiter]:
                        yield waiter

    def find_withholder(self, rank: int, paths: Sequence[Path]) -> CallState | None:
        """The dependency of a Call that did not complete, or took another outcome than one with these paths: the first
        of those that write there, else of all.
        """
        waits = self._graph.waits[rank]
        own = [wait for wait in waits if any(wait[0].path.overlaps(path) for path in paths)]
        incomplete, unwritten = self._first_incomplete_of, self._first_unwritten_at(rank, paths)
        first = next((one for one in (incomplete(own), unwritten, incomplete(waits)) if one < rank), None)
        return None if first is None else self._calls[int(first)]

    def _first_incomplete_of(self, waits: Iterable[Wait]) -> float:
        return min((self._first_incomplete.at(chain, count) for chain, count in waits), default=math.inf)

    def _first_unwritten_at(self, rank: int, paths: Iterable[Path]) -> float:
        """The first dependency of a Call that took another outcome than one with these paths."""
        writers, instance, first = self._graph.writers, self._graph.order[rank].instance, math.inf
        for path in paths:
            above = ((chain, chain.path.__eq__) for chain in writers.above(path, instance))
            below = ((chain, chain.path.holds) for chain in writers.at_or_below(path, instance))
            for chain, is_here in (*above, *below):
                start = ChainFold(math.inf, partial(self._fold_unwritten, is_here))
                fold = self._first_unwritten.setdefault(id(chain), start)
                first = min(first, fold.at(chain, bisect.bisect_left(chain.entries, rank)))
        return first

    def _fold_unwritten(self, is_here: Callable[[Path], bool], first: float, rank: int) -> float:
        call = self._calls[rank]
        if call.stage != "completed" or len(call.values) == len(call.node.writes):
            return first
        written = {path for path, _ in call.writes}
        leaves_it = any(is_here(path) for path in call.node.writes if path not in written)
        return min(first, rank) if leaves_it else first
