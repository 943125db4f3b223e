"""The context of an agent: its messages and the log that folds them, appended to and never changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import InvalidRequest, Problem, truncate
from acts.language.messages import Data, Message, Request
from acts.language.references import Expression, evaluate
from acts.language.request_reader import parse_message
from acts.language.values import ABSENT, MAX_DEPTH, Json, defect
from acts.plan.context_log import Log
from acts.planner.solution import DEPTH_RESERVE, call_at
from acts.tree.decisions import DECISION_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# What of a tick's errors a model is shown; more of them say nothing new
MAX_ERRORS_SHOWN: Final = 20


class AgentContext:
    """``request`` is the Request with everything that joined its context since."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.log = Log(request.data())
        self._own_count = len(request.context)

    def append(self, raws: Iterable[Json]) -> None:
        """Messages join the context, and the log."""
        start = len(self.request.context)
        parsed: list[Message] = [parse_message(raw, start + i) for i, raw in enumerate(raws)]
        for message in parsed:
            if isinstance(message, Data):
                self.log.fold(message)
        self.request = replace(self.request, context=(*self.request.context, *parsed))

    def append_problems(self, problems: Sequence[Problem], calls: list[Json]) -> list[dict[str, Any]]:
        """Problems join the context as error messages, each with the Call that it is about; returns what was shown."""
        shown: list[dict[str, Any]] = []
        for problem in problems[:MAX_ERRORS_SHOWN]:
            error: dict[str, Any] = {"code": problem.code, "message": truncate(problem.message)}
            error.update({k: v for k, v in (("pointer", problem.pointer), ("hint", problem.hint)) if v})
            shown.append({"call": problem.call, **error})
            self.append([{"type": "error", "data": {"call": call_at(problem.pointer, calls), "error": error}}])
        more = len(problems) - MAX_ERRORS_SHOWN
        if more > 0:
            error = {"code": "moreProblems", "message": f"… and {more} more problems"}
            self.append([{"type": "error", "data": {"call": None, "error": error}}])
        return shown

    def append_decision(self, record: Mapping[str, Any]) -> None:
        """Who decided what becomes part of the context, in place of the decision before.

        What is about an instance belongs to it: models of the others are not shown it.
        """
        data = {k: v for k, v in record.items() if k in DECISION_KEYS}
        message = {"type": "data", "kind": "decision", "data": data, "_outputPath": "†decision"}
        instance = record.get("instance")
        own = instance in self.log.own
        self.append([{**message, "_instance": instance} if own else message])

    def provide(self, message: Data) -> None:
        """A message from outside joins the context.

        Raises:
            InvalidRequest: it cannot be folded into it, or would not fit into the Request of a plan.
        """
        broken = defect(message.raw, MAX_DEPTH - DEPTH_RESERVE)
        if broken:
            raise InvalidRequest([Problem("invalidMessage", broken[1], broken[0])])
        if message.instance is not None and message.instance not in self.log.own:
            raise InvalidRequest([Problem("unknownInstance", f"unknown instance {message.instance!r}", "/_instance")])
        refused = self.log.fold(message)
        if refused:
            raise InvalidRequest([Problem("invalidMessage", refused.message)])
        again = replace(message, index=len(self.request.context))
        self.request = replace(self.request, context=(*self.request.context, again))

    def appended(self) -> list[Json]:
        """The messages that came after the Request's."""
        return [m.raw for m in self.request.context[self._own_count :]]

    def value(self, tree: Expression, instance: str | None = None) -> Json:
        """What an expression yields now."""
        return evaluate(tree, lambda path: self.log.read(path, 0, instance))

    def state(self, instance: str | None = None) -> Json:
        """The view of the state kind: ``{}`` when there is none."""
        view = self.log.read_kind("state", instance=instance)
        return {} if view is ABSENT else view
