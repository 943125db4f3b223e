"""Every signal that a run takes, by its name; the JSON that people send to a run; and the line of signals that it
sends.

* All signals pass one dynamic handler. With a handler for each name the SDK would drop a signal with several arguments
  or an unknown encoding without a word, and keep one of an unknown name forever.
* The signals of people are described to the Web UI; those between the runs of a tree are not.
* A signal that makes no sense becomes a note. None fails the run or its task.
* Signals to another run arrive in the order in which they were sent. The server keeps no order among signals of one
  workflow task: a pause and the resume after it could reach a child either way round. So the next is sent when the one
  before has arrived.
* All that one task sends travels in one gRPC message of at most 4 MiB, and a run whose task sends more is terminated.
  So large signals go in several tasks: who has one waits for a timer that ends the task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.api.sdk.v1 import WorkflowInteractionDefinition

from acts.language import wire
from acts.language.errors import CallError, truncate
from acts.language.values import defect
from acts.tree import signal_records
from acts.workflows.payloads import MAX_TASK_BYTES, carried_bytes, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from temporalio.api.sdk.v1 import WorkflowMetadata
    from temporalio.common import RawValue

    Target = workflow.ChildWorkflowHandle[Any, Any] | workflow.ExternalWorkflowHandle[Any]
    Outcome = Callable[[BaseException | None], None]
    Message = tuple[Target, str, tuple[RawValue, ...], Outcome]


AIM: Final = 'No input needed; {"workflowId"?, "instance"?} names one run below.'
WHICH: Final = '"call"? names a call, "workflowId"? and "instance"? one of several; "version"? what you have seen'

# What people send, with what the Web UI says of it
PEOPLES_SIGNALS: Final[Mapping[str, str]] = {
    wire.APPROVE: f'Let it run: {{}} or {{"call": "2:refund", "by": "Ada", "note": "…"}}. {WHICH}.',
    wire.REJECT: f'Do not let it run: {{"reason": "…", "call": "2:refund", "by": "Ada"}}. {WHICH}.',
    wire.EDIT: f'Change: {{"plan": [calls]}} or {{"call": "2:refund", "with": {{call}}}}, then approve. {WHICH}.',
    wire.PAUSE: f"Start no more calls; what runs goes on. {AIM}",
    wire.RESUME: f"Go on after pause. {AIM}",
    wire.PROVIDE: 'Give a message that the run waits for: {"type": "input", "input": {"name": "value"}}',
}
# What the runs of a tree send each other
TREE_SIGNALS: Final[Mapping[str, type[signal_records.TreeSignal]]] = {
    wire.PENDING_CHANGED: signal_records.PendingChanged,
    wire.DECISION: signal_records.ForwardedDecision,
    wire.DECISION_ANSWER: signal_records.DecisionAnswer,
    wire.BUDGET_REQUEST: signal_records.BudgetRequest,
    wire.BUDGET_GRANT: signal_records.BudgetGrant,
    wire.BUDGET_REPORT: signal_records.BudgetReport,
    wire.PERMIT_REQUEST: signal_records.PermitRequest,
    wire.PERMIT_GRANT: signal_records.PermitGrant,
    wire.PERMIT_RETURN: signal_records.PermitReturn,
    wire.RUN_ENDED: signal_records.RunEnded,
    wire.CANCELLED_REPORT: signal_records.CancelledReport,
    wire.SUPERSEDED: signal_records.Superseded,
    wire.RESYNC: signal_records.Resync,
    wire.CHILD_RESET: signal_records.ChildReset,
    wire.STREAMED_CALLS: signal_records.StreamedCalls,
    wire.PLAN_EXTENSION: signal_records.PlanExtension,
    wire.MODEL_WAIT: signal_records.ModelWait,
}
# Queries that our own Activities make
_ENGINES_QUERIES: Final = (wire.PROMPT_CONTEXT, wire.STREAMED_CALLS)
# How alike a misspelt name must be to be recognised: `aprove` and `approve` are 0.92, `stop` and `provide` 0.36
_LIKENESS: Final = 0.7
# Characters of a name that a note shows; the server allows 1,000
_MAX_NAME: Final = 60


def read_input(value: RawValue) -> Any:
    """The JSON that a person sent with a signal or an update.

    Raises:
        CallError: it is none, or cannot be stored.
    """
    try:
        data = decode(value)
    except CallError as error:
        raise CallError(error.code, error.message.replace("the result", "the input")) from error
    problem = defect(data)
    if problem is not None:
        raise CallError(wire.NOT_JSON, f"the input cannot be stored: {truncate(problem[0], 60) or 'it'}: {problem[1]}")
    return data


def read_aim(value: RawValue) -> dict[str, Any]:
    """The run below that a signal names; empty where the signal holds anything else."""
    try:
        aim = read_input(value)
    except CallError:
        return {}
    return aim if isinstance(aim, dict) else {}


def unknown_signal(name: str) -> str:
    """The note about a signal that no run takes, with the name that was probably meant."""
    near = get_close_matches(name.lower()[:_MAX_NAME], PEOPLES_SIGNALS, n=1, cutoff=_LIKENESS)
    hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(PEOPLES_SIGNALS)}"
    return f'the signal "{truncate(name, _MAX_NAME)}" is unknown and was ignored; {hint}'


def describe_interactions(metadata: WorkflowMetadata, *, takes_signals: bool) -> None:
    """Make the Web UI offer what is for people: their signals, and no query of the engine's own."""
    definition = metadata.definition
    del definition.signal_definitions[:]
    for name, text in PEOPLES_SIGNALS.items() if takes_signals else ():
        definition.signal_definitions.append(WorkflowInteractionDefinition(name=name, description=text))
    offered = [query for query in definition.query_definitions if query.name not in _ENGINES_QUERIES]
    del definition.query_definitions[:]
    definition.query_definitions.extend(offered)


class TaskRoom:
    """The bytes of the commands of the current task of one run; who waits for room is served in order."""

    def __init__(self) -> None:
        self._task_events, self._task_bytes = -1, 0
        self._turn = asyncio.Lock()

    @property
    def used(self) -> int:
        """The bytes that the current task carries so far."""
        self.add(0)
        return self._task_bytes

    async def make(self, size: int) -> None:
        """Return when a command of ``size`` bytes fits into the current task."""
        async with self._turn:
            used = self.used
            if used and used + size > MAX_TASK_BYTES:
                await workflow.sleep(timedelta(milliseconds=1), summary="large inputs go in several tasks")
            self.add(size)

    def add(self, size: int) -> None:
        """Count a command of ``size`` bytes that the current task carries."""
        events = workflow.info().get_current_history_length()
        if events != self._task_events:
            self._task_events, self._task_bytes = events, 0
        self._task_bytes += size


class Outbox:
    """One line for each run that something is on its way to."""

    def __init__(self, room: TaskRoom) -> None:
        self._room = room
        self._lines: dict[str, deque[Message]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def is_empty(self) -> bool:
        """True when everything has arrived."""
        return not self._lines

    def send(self, target: Target, signal: str, args: tuple[RawValue, ...], outcome: Outcome) -> None:
        """Signal one run. ``outcome`` is called with None when the signal has arrived, else with the error."""
        line = self._lines.get(target.id)
        if line is None:
            line = self._lines[target.id] = deque()
            self._tasks[target.id] = asyncio.create_task(self._deliver(target.id))
        line.append((target, signal, args, outcome))

    async def _deliver(self, id_: str) -> None:
        line = self._lines[id_]
        while line:
            target, signal, args, outcome = line.popleft()
            await self._room.make(sum(map(carried_bytes, args)))
            try:
                await target.signal(signal, args=list(args))
            except Exception as error:  # noqa: BLE001 - whoever sent it decides what it means
                outcome(error)
            else:
                outcome(None)
        del self._lines[id_], self._tasks[id_]
