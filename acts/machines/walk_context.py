"""The context of a plan that is walked: the messages before it, those provided meanwhile, and what its Calls wrote.

Laws of this file: it owns the log. Provided messages precede the plan, whenever they arrive; one after which
the writes of the Calls could not be applied is refused and changes nothing. The writes of instances that
batch children walk are in the log, too, as their children report them: the state of an instance can be read here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from acts.language.admission import Work
from acts.language.errors import CallError, InvalidRequest, Problem, TooComplex
from acts.language.messages import scoped_context
from acts.language.references import Expression, Path, evaluate, parse, paths
from acts.language.values import ABSENT, Json, get
from acts.language.wire import TOO_COMPLEX
from acts.plan.context_log import END, appended_message, build_message
from acts.plan.validate import ValidatedPlan, is_template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from acts.language.messages import Data
    from acts.machines.call_state import CallState
    from acts.plan.calls import PlannedCall
    from acts.plan.context_log import Log

    CallsByInstance = dict[str | None, dict[str, tuple[int, PlannedCall]]]


class _ReportedWrite(NamedTuple):
    """One write of an instance's Call: ``rank`` is that of the Call in the unsplit plan."""

    rank: int
    planned: Json
    method: str
    path: Path
    value: Json
    date: str


class WalkContext:
    """The log of one walk. ``calls`` are the states of its Calls, ``calls_by_instance`` those of the unsplit plan."""

    def __init__(self, prepared: ValidatedPlan, calls: Sequence[CallState], provided: Sequence[Data]) -> None:
        self._prepared, self._calls = prepared, calls
        self.calls_by_instance = {} if prepared.unsplit is None else _calls_by_instance(prepared.unsplit)
        self.provided = list(provided)
        self.log, _ = self._fold(self.provided)

    def provide(self, message: Data, work: Work | None = None) -> None:
        """Fold a message that arrived from outside into the context, before the plan.

        Where it may meet what Calls wrote, everything is folded again, and ``work`` counts that.

        Raises:
            InvalidRequest: its instance is unknown, what Calls wrote cannot be applied after it, or it takes too long.
        """
        if message.instance is not None and message.instance not in self.log.own:
            raise InvalidRequest([Problem("unknownInstance", f"unknown instance {message.instance!r}", "/_instance")])
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

    def as_of(self, provided: int) -> WalkContext:
        """The context without the messages that came after the first ``provided``."""
        is_same = provided >= len(self.provided)
        return self if is_same else WalkContext(self._prepared, self._calls, self.provided[:provided])

    def _fold(self, provided: Sequence[Data]) -> tuple[Log, CallError | None]:
        """A log of everything, and the first reason why a part of it cannot be folded."""
        log = self._prepared.create_log()
        conflict = None
        for message in provided:
            conflict = conflict or log.fold(message)
        for call in self._calls:
            self._replay_instances(log, call.value or {})
            view = log.view_of(call.node.instance)
            for path, value, _ in call.written:
                conflict = conflict or view.find_conflict(path, call.node.method, value, call.rank)
                view.write(path, call.node.method, value, call.rank)
        return log, conflict

    def apply_child_report(self, report: Json) -> None:
        """Write what the instances of a batch child wrote; ``report`` is that of each instance, by id."""
        self._replay_instances(self.log, report)

    def _replay_instances(self, log: Log, report: Mapping[str, Any]) -> None:
        """Write what instances wrote, when somebody asks for it.

        A message that was provided to all instances may be in the way of a write, which the child never saw so.
        Then the value is set that the child's state had.
        """

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

    def _writes_of(self, id_: str, report: Mapping[str, Any]) -> Iterator[_ReportedWrite]:
        """What an instance's Calls wrote, in plan order: those that name it, or those of the template."""
        own = self.calls_by_instance.get(id_) or self.calls_by_instance.get(None, {})
        listed = sorted(own.values(), key=lambda ranked: ranked[1].index)
        for at, text, date, edited, *own_value in report["writes"]:
            rank, node = listed[min(at, len(listed) - 1)]  # an edited plan may have more Calls
            path = _read_path(text)
            value = own_value[0] if own_value else get(report["state"], path.names)
            method, planned = (edited["method"], edited["planned"]) if edited else (node.method, node.planned)
            yield _ReportedWrite(rank, planned, method, path, value, date)

    def instance_messages(self, id_: str, report: Mapping[str, Any]) -> Iterator[tuple[int, Json]]:
        """The messages that an instance's Calls appended, each with the rank of its Call in the unsplit plan."""
        for write in self._writes_of(id_, report):
            message = build_message(write.planned, write.method, write.path, write.value, write.date, id_)
            yield write.rank, message

    def appended(self) -> list[dict[str, Any]]:
        """The messages that came after the Request's: provided ones, then outputs in plan order."""
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

    def value(self, tree: Expression, instance: str | None = None) -> Json:
        """The value of an expression after everything that has been written."""
        return evaluate(tree, lambda path: self.log.read(path, END, instance))

    def state(self, instance: str | None = None) -> Json:
        """The view of the state kind: ``{}`` when there is none."""
        state = self.log.read_kind("state", instance=instance)
        return {} if state is ABSENT else state


def _calls_by_instance(unsplit: ValidatedPlan) -> CallsByInstance:
    """The Calls of a plan with their ranks, by instance and id; those of a template under None, for every instance."""
    template = is_template(unsplit.request, unsplit.nodes)
    out: CallsByInstance = {}
    for rank, node in enumerate(unsplit.nodes):
        out.setdefault(None if template else node.instance, {})[node.id] = (rank, node)
    return out


@lru_cache(maxsize=1_000)  # those of one plan, in the reports of thousands of instances
def _read_path(text: str) -> Path:
    return paths(parse(text))[0]
