"""The plan of a tick while its Solution is still being written: what of it can start, and when to pass it on.

Laws of this file: pure. It knows nothing of how Calls arrive or how the plan is walked. ``AgentRun`` feeds the
Calls that are complete in the model's answer, and sends what comes back to the run that walks the plan.

Theory of operation. The Calls of an answer arrive in order. The first ones that make a valid beginning of a plan
start a child; more Calls extend it. In the child a Call waits that a Call listed later could still change
(``ValidatedPlan.undecided``), so what starts is what the complete plan would start. When the answer is
complete and valid, the rest of its Calls follows and the plan is an ordinary one. When it is not, the plan
is what had started.

A beginning that is no valid plan passes nothing on: the rest of the answer is then judged as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import InvalidRequest
from acts.language.strict_json import json_size
from acts.language.wire import PLAN_EXTENSION
from acts.machines.budget import SendRecord
from acts.plan.planned_call import approval_needed
from acts.tree.signal_records import PlanExtension, StreamedCalls

if TYPE_CHECKING:
    from acts.language.values import Json
    from acts.machines.events import ChildEnded
    from acts.machines.loop import Loop
    from acts.plan.validate import ValidatedPlan

# Bytes of context that extensions may repeat beside their Calls: an answer never costs much more history than
# its plan would have cost in one piece
MAX_REPEATED_BYTES: Final = 64 * 1024
# Nobody is known to answer with more; each validation of a beginning costs as much as the Calls in it
MAX_STREAMED_CALLS: Final = 2_000


class StreamedPlan:
    """The Calls of one answer. ``passed_on`` is how many of them the child has, or will be sent.

    ``early_end`` is the end of a child that died before the answer was complete; ``is_over``: it is complete.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._calls: list[Json] = []
        self._attempt: int | None = None
        self._context: list[Json] = []
        self._repeated_bytes = 0
        self._is_stuck = False
        self.passed_on = 0
        self.early_end: ChildEnded | None = None
        self.is_over = False
        self._child: str | None = None
        self._unsent: list[PlanExtension] = []
        self._sent: list[PlanExtension] = []

    @property
    def has_started(self) -> bool:
        """True once a child walks the beginning of the plan."""
        return self.passed_on > 0

    @property
    def started_calls(self) -> list[Json]:
        """The Calls that the child has."""
        return self._calls[: self.passed_on]

    @property
    def received(self) -> int:
        """How many Calls have arrived."""
        return len(self._calls)

    def add(self, record: StreamedCalls, *, may_start: bool) -> dict[str, Any] | PlanExtension | None:
        """Take more Calls of the answer; those of another attempt at it, or after a gap, are of no use.

        Returns what is passed on: the first time the Request of the child, then an extension of its plan.
        """
        if self._attempt is None:
            self._attempt = record.attempt
        if record.attempt == self._attempt and record.first == len(self._calls):
            self._calls += record.calls
        return self._next_part() if may_start or self.has_started else None

    def send(self, extension: PlanExtension) -> list[SendRecord]:
        """Send an extension; a child that is being started gets it once it is there."""
        self._unsent.append(extension)
        return [] if self._child is None else self._send_rest(self._child)

    def child_started(self, workflow_id: str) -> list[SendRecord]:
        """The child runs under this id; one that was started again begins without any extension."""
        self._child, self._unsent, self._sent = workflow_id, [*self._sent, *self._unsent], []
        return self._send_rest(workflow_id)

    def _send_rest(self, workflow_id: str) -> list[SendRecord]:
        unsent, self._unsent = self._unsent, []
        self._sent += unsent
        return [SendRecord(workflow_id, PLAN_EXTENSION, extension) for extension in unsent]

    def child_ended(self, event: ChildEnded) -> None:
        """The child ended before the answer did: it died, or was never started."""
        self._is_stuck = True
        if event.is_unstarted:
            self.passed_on = 0
        else:
            self.early_end = event

    def _next_part(self) -> dict[str, Any] | PlanExtension | None:
        if self._is_stuck or self.passed_on == len(self._calls):
            return None
        prepared = self._validated_beginning()
        if prepared is None:
            self._is_stuck = True
            return None
        request = self._loop.streamed_request(prepared)
        if not self.has_started:
            self._pass_on(request)
            return request
        extension = self._extension(request, is_complete=False)
        size = json_size([m for m in extension.context if not isinstance(m, int)])
        if self._repeated_bytes + size > MAX_REPEATED_BYTES:
            self._is_stuck = True
            return None
        self._repeated_bytes += size
        self._pass_on(request)
        return extension

    def complete(self, request: dict[str, Any]) -> PlanExtension:
        """The last extension: ``request`` is that of the complete plan."""
        return self._extension(request, is_complete=True)

    def _validated_beginning(self) -> ValidatedPlan | None:
        if len(self._calls) > MAX_STREAMED_CALLS:
            return None
        try:
            prepared = self._loop.plans.validate_unread(self._calls, is_complete=False)
        except InvalidRequest:
            return None
        approve = self._loop.request.config.approve
        return None if any(approval_needed(node, approve) for node in prepared.nodes) else prepared

    def _pass_on(self, request: dict[str, Any]) -> None:
        self._context = request["context"][:-1]
        self.passed_on = len(self._calls)

    def _extension(self, request: dict[str, Any], *, is_complete: bool) -> PlanExtension:
        """The plan's new Calls and context; a message that the child has is named by its index there."""
        known: dict[int, list[int]] = {}
        for index, message in enumerate(self._context):
            known.setdefault(json_size(message), []).append(index)
        context: list[Any] = []
        for message in request["context"][:-1]:
            same = (i for i in known.get(json_size(message), ()) if self._context[i] == message)
            context.append(next(same, message))
        calls = request["context"][-1]["plan"][self.passed_on :]
        return PlanExtension(calls=tuple(calls), context=tuple(context), isComplete=is_complete)


def may_stream(loop: Loop) -> bool:
    """True when Calls may start while the model still writes: nothing is asked first, and no instances."""
    config = loop.request.config
    is_whole = config.step == "plan" and not loop.request.instances()
    return config.stream and loop.mode == "eager" and is_whole and not loop.asks_for_plan


def extended_request(request: dict[str, Any], extension: PlanExtension) -> dict[str, Any]:
    """The Request of a plan with an extension applied; the plan is its last message."""
    *context, plan = request["context"]
    messages = [context[m] if isinstance(m, int) else m for m in extension.context]
    return {**request, "context": [*messages, {**plan, "plan": [*plan["plan"], *extension.calls]}]}
