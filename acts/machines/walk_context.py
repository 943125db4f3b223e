"""The context of a plan that is walked: the messages before it, those provided meanwhile, and what its Calls wrote.

Laws of this file: it owns the log. Provided messages precede the plan, whenever they arrive; one after which
the writes of the Calls could not be applied is refused and changes nothing. The writes of instances that
batch children walk are in the log, too: the state of an instance can be read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.errors import CallError, InvalidRequest, Problem, TooComplex
from acts.language.evaluation_work import EvaluationWork
from acts.language.references import Expression, Path, evaluate
from acts.language.values import ABSENT, Json
from acts.language.wire import TOO_COMPLEX
from acts.machines.instance_results import calls_by_instance, replay_into_log
from acts.plan.context_log import END
from acts.plan.result_placement import appended_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acts.language.messages import Data
    from acts.machines.call_state import CallState
    from acts.plan.context_log import Log
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan


class WalkContext:
    """The log of one walk. ``calls`` are the states of its Calls, ``calls_by_instance`` those of the unsplit plan."""

    def __init__(self, prepared: ValidatedPlan, calls: Sequence[CallState], provided: Sequence[Data]) -> None:
        self._prepared = prepared
        self._calls = calls
        self.calls_by_instance = calls_by_instance(prepared.unsplit) if prepared.unsplit is not None else {}
        self.provided = list(provided)
        self.log, _ = self._fold(self.provided)

    def provide(self, message: Data, work: EvaluationWork | None = None) -> None:
        """Fold a message that arrived from outside into the context, before the plan.

        Where it meets what Calls wrote, everything is folded again, and ``work`` counts that.

        Raises:
            InvalidRequest: its instance is unknown, what Calls wrote cannot be applied after it, or it takes too long.
        """
        if message.instance is not None and message.instance not in self.log.own:
            raise InvalidRequest([Problem("unknownInstance", f"unknown instance {message.instance!r}", "/_instance")])
        is_judged, conflict = self.log.fold_late(message)
        log = self.log
        if not is_judged:
            try:
                steps = self.log.shared.effect_count + len(self._calls) + len(self.provided) + len(self.log.own)
                (work or EvaluationWork()).refolding.spend(steps)
            except TooComplex as error:
                raise InvalidRequest([Problem(TOO_COMPLEX, str(error), "")]) from error
            log, conflict = self._fold([*self.provided, message])
        if conflict:
            raise InvalidRequest([Problem("invalidMessage", conflict.message, "")])
        self.log = log
        self.provided.append(message)

    def as_of(self, provided: int) -> WalkContext:
        """The context without the messages that came after the first ``provided``."""
        if provided >= len(self.provided):
            return self
        return WalkContext(self._prepared, self._calls, self.provided[:provided])

    def node(self, rank: int) -> PlannedCall:
        """The Call of a rank."""
        return self._prepared.nodes[rank]

    def _fold(self, provided: Sequence[Data]) -> tuple[Log, CallError | None]:
        """A log of everything, and the first reason why a part of it cannot be folded."""
        log = self._prepared.create_log()
        conflict = None
        for message in provided:
            conflict = conflict or log.fold(message)
        for rank, (node, call) in enumerate(zip(self._prepared.nodes, self._calls, strict=True)):
            if call.value is not None:
                self._replay_instances(log, call.value)
            view = log.view_of(node.instance)
            for path, value, _ in call.written:
                conflict = conflict or view.find_conflict(path, node.method, value, rank)
                view.write(path, node.method, value, rank)
        return log, conflict

    def apply_child_report(self, report: Json) -> None:
        """Write what the instances of a batch child wrote; ``report`` is that of each instance, by id."""
        self._replay_instances(self.log, report)

    def _replay_instances(self, log: Log, report: Json) -> None:
        def replay(id_: str) -> None:
            replay_into_log(log, self.calls_by_instance, id_, report[id_])

        for id_ in report:
            log.postpone(id_, replay)

    def appended(self) -> list[dict[str, Any]]:
        """The messages that came after the Request's: provided ones, then outputs in plan order."""
        out = [message.raw for message in self.provided]
        for node, call in zip(self._prepared.nodes, self._calls, strict=True):
            out.extend(appended_message(node, path, value, date) for path, value, date in call.written)
        return out

    def reader(self, rank: int) -> Callable[[Path], Json]:
        """Reads a path as the Call of ``rank`` sees it, all of whose dependencies have settled."""
        view = self.log.view_of(self._prepared.nodes[rank].instance)
        return lambda path: view.read(path, rank, settled=True)

    def value(self, tree: Expression, instance: str | None) -> Json:
        """The value of an expression after everything that has been written."""
        return evaluate(tree, lambda path: self.log.read(path, END, instance))

    def state(self, instance: str | None) -> Json:
        """The view of the state kind: ``{}`` when there is none."""
        state = self.log.read_kind("state", instance=instance)
        return {} if state is ABSENT else state
