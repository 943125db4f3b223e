"""The children of a run: started under readable ids, signalled, and what they came to.

A signal for a child that is being started reaches it once it is there, and again if it is started again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import (
    ApplicationError,
    ChildWorkflowError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

from acts.language.errors import CallError, truncate
from acts.language.wire import ALREADY_STARTED, BACKGROUND, SUPERSEDED_RUN
from acts.plan.planned_call import MAX_LABEL
from acts.tree.child_ids import call_child_id, spare_child_id
from workflows.runtime.leftovers import replace_leftover
from workflows.runtime.payloads import decode_detail
from workflows.runtime.run_index import child_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from workflows.runtime.lifeline import Lifeline
    from workflows.runtime.outbox import Outbox, Target

    Handle = workflow.ChildWorkflowHandle[Any, Any]


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
    first = call_child_id(info.workflow_id, name)
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
