"""The children of a run: started under readable ids, signalled, and awaited.

A signal for a child that is being started reaches it once it is there, and again if it is started again.

*Leftovers.* The server ends a run that is reset without a word to the children that it started after the point of the
reset. They go on, and the new run starts the same work under the same ids. So the new run tells such a child that it
is superseded, waits until it has stopped whatever it does, and takes its id. Only a run of the same tree obeys: the
message carries the tree's token. Any other run keeps its id, and the new child gets another. A run that was not reset
itself may meet such a run too, when a run above or before it was.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import (
    ApplicationError,
    ChildWorkflowError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

from acts.language.errors import CallError, truncate
from acts.language.wire import ALREADY_STARTED, BACKGROUND, SUPERSEDED, SUPERSEDED_RUN
from acts.plan.calls import MAX_LABEL
from acts.tree.identity import child_id, spare_child_id
from acts.tree.signal_records import Superseded
from acts.workflows.lifeline import exact_date
from acts.workflows.observe import child_attributes
from acts.workflows.payloads import decode_detail, encode_record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from acts.workflows.lifeline import Lifeline
    from acts.workflows.signals import Outbox, Target

    Handle = workflow.ChildWorkflowHandle[Any, Any]

# When to try the id again. A run stops within a task of its own and one for each level below it: some 10 ms each, and
# some seconds while workers start. 19 seconds in all: longer than the 10 or 15 s after which the server begins a
# workflow task again that died with its worker
_WAITS_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 6.4)
# … and of a run that was not reset: mostly, the id is that of a run of another tree, which does not stop
_FEW_WAITS: Final = 4


async def replace_leftover(
    id_: str, lifeline: Lifeline, start: Callable[[str], Awaitable[Handle | None]]
) -> Handle | None:
    """Stop the run of this id and start another in its place; None when it is not one of this tree, or does not end."""
    info = workflow.info()
    sent_at = exact_date(workflow.now())
    record = Superseded(token=lifeline.token, workflowId=info.workflow_id, runId=info.run_id, sentAt=sent_at)
    try:
        await workflow.get_external_workflow_handle(id_).signal(SUPERSEDED, encode_record(record))
    except ApplicationError:
        return await start(id_)  # it has just ended
    for seconds in _WAITS_SECONDS if lifeline.is_repetition else _WAITS_SECONDS[:_FEW_WAITS]:
        await workflow.sleep(timedelta(seconds=seconds), summary=f"until the earlier {id_} has stopped")
        handle = await start(id_)
        if handle is not None:
            return handle
    return None


@dataclass(slots=True)
class _Child:
    """One child by its name; ``handle`` None while it is being started.

    ``signals`` are all that it is sent: one that is started again knows nothing of them, nor that it is paused.
    """

    type: str
    handle: Handle | None = None
    signals: list[tuple[str, tuple[RawValue, ...]]] = field(default_factory=list)


async def start_child(
    type_: str, name: str, arg: RawValue, label: str, lifeline: Lifeline, *,
    siblings: Iterable[tuple[str, str]] = (), **options: Any,
) -> Handle:  # fmt: skip
    """A child ``<this run>/<name>``; where that id is in use, with the start of the run's id behind it.

    A run that is left from before a reset under that id ends first, but none of this run's own ``siblings``
    (type and name): an instance may be called as a Call is.

    Raises:
        CallError: all ids are in use.
    """
    info = workflow.info()
    first = child_id(info.workflow_id, name)
    attributes = child_attributes()

    async def start(id_: str) -> Handle | None:
        try:
            return await workflow.start_child_workflow(
                type_, arg, id=id_, result_type=RawValue, static_summary=truncate(label, MAX_LABEL),
                search_attributes=attributes, **options,
            )  # fmt: skip
        except WorkflowAlreadyStartedError:
            return None

    handle = await start(first)
    if handle is None and not any(n == name and t != type_ for t, n in siblings):
        handle = await replace_leftover(first, lifeline, start)
    if handle is None:  # the run id of before a reset: a replay must find the same
        handle = await start(spare_child_id(first, info.original_execution_run_id))
    if handle is None:  # an earlier run may have that one too
        handle = await start(spare_child_id(first, workflow.uuid4().hex))
    if handle is None:
        raise CallError(ALREADY_STARTED, f"a run with the id {first} exists already")
    return handle


class Children:
    """Those that run now, by type and name: an instance may be called as a Call is."""

    def __init__(self, outbox: Outbox, note: Callable[[str], None], lifeline: Lifeline) -> None:
        self._outbox, self._note, self._lifeline = outbox, note, lifeline
        self._running: dict[tuple[str, str], _Child] = {}

    def expect(self, type_: str, name: str) -> None:
        """This one is about to be started: what is signalled from now on reaches it."""
        former = self._running.get((type_, name))
        self._running[type_, name] = _Child(type_, signals=[] if former is None else former.signals)

    async def start_background(self, name: str, arg: RawValue, label: str) -> None:
        """A run of its own that outlives this one; returns once it is started."""
        await start_child(
            BACKGROUND, name, arg, label, self._lifeline, siblings=self._running,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
        )  # fmt: skip

    def forget(self, type_: str, name: str) -> None:
        """This one is not started after all."""
        self._running.pop((type_, name), None)

    async def run(
        self, type_: str, name: str, arg: RawValue, label: str, started: Callable[[Handle, bool], None],
        seconds: float | None = None,
    ) -> RawValue:  # fmt: skip
        """Start a child that was expected, and wait for its result.

        ``started`` is called with its handle, and True where a reset has been noted since it was to start.
        ``seconds`` bounds how long it may take. A child that another run of this one took with it is started again.
        """
        child = self._running[type_, name]
        try:
            while True:
                lineage = self._lifeline.lineage  # before the start: a reset may come between it and its answer
                child.handle = await start_child(
                    type_, name, arg, label, self._lifeline, siblings=self._running,
                    parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
                    execution_timeout=None if seconds is None else timedelta(seconds=seconds),
                )  # fmt: skip
                started(child.handle, self._lifeline.noted_lineage != lineage)
                for signal, args in child.signals:
                    self.signal_one(child.handle, signal, *args)
                try:
                    result: RawValue = await child.handle
                except ChildWorkflowError as error:
                    is_replaced = self._running.get((type_, name)) is not child  # its end comes late: do not start two
                    was_reset = self._lifeline.lineage != lineage
                    if is_replaced or not _ended_with_other_run(error, was_reset=was_reset):
                        raise
                    child = self._running[type_, name] = _Child(type_, signals=child.signals)
                else:
                    return result
        finally:
            if self._running.get((type_, name)) is child:
                del self._running[type_, name]

    def signal_all(self, signal: str, *args: RawValue, type_: str | None = None) -> None:
        """Signal all of them, or those of one type."""
        for child in self._running.values():
            if type_ is None or child.type == type_:
                self._signal(child, signal, *args)

    def signal_named(self, type_: str, name: str, signal: str, *args: RawValue) -> bool:
        """Signal one; False when there is none of this name now."""
        child = self._running.get((type_, name))
        if child is not None:
            self._signal(child, signal, *args)
        return child is not None

    def _signal(self, child: _Child, signal: str, *args: RawValue) -> None:
        child.signals.append((signal, args))
        if child.handle is not None:
            self.signal_one(child.handle, signal, *args)

    def signal_one(self, target: Target, signal: str, *args: RawValue) -> None:
        """Signal a run; one that has just ended needs no signal any more."""

        def outcome(error: BaseException | None) -> None:
            if error is not None:
                self._note(f"{signal} came too late for {target.id}: {truncate(str(error), 100)}")

        self._outbox.send(target, signal, args, outcome)


def _ended_with_other_run(error: ChildWorkflowError, *, was_reset: bool) -> bool:
    """True for a child that was stopped, but not by this run; ``was_reset``: since it started the child.

    When a run is reset from one that is not its latest, the server ends the latest, and cancels its children: among
    them those that the new run still waits for. They may also have been superseded by it. A child that was superseded
    is never the outcome of its Call, even where this run was not reset: the child itself may have been, from a run
    that had been superseded, and the server has repeated that message.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        return False
    cause: BaseException | None = error
    while isinstance(cause, ChildWorkflowError):
        cause = cause.__cause__
    if isinstance(cause, ApplicationError) and cause.type == SUPERSEDED_RUN:
        return True
    return was_reset and is_cancelled_exception(error)


def failure_detail(error: BaseException) -> Any:
    """What a child that failed says of itself in its failure's first detail, or None."""
    cause: BaseException | None = error
    while isinstance(cause, ChildWorkflowError):
        cause = cause.__cause__
    return decode_detail(cause.details[0]) if isinstance(cause, ApplicationError) and cause.details else None
