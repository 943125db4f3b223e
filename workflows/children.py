"""The children of a run: started under readable ids, told what they must know, reached when it ends."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import WorkflowAlreadyStartedError

from acts.language.errors import CallError, truncate
from acts.language.wire import BACKGROUND, INSTANCE
from workflows.dispatch import short_id
from workflows.payloads import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from acts.plan.planned_call import PlannedCall
    from workflows.post import Post, Told

    Handle = workflow.ChildWorkflowHandle[Any, Any]


def child_ids(name: str) -> tuple[str, str]:
    """The id of a child of this name, and the one that it gets where that is in use."""
    info = workflow.info()
    id_ = short_id(f"{info.workflow_id}/{name}")
    return id_, short_id(f"{id_}~{info.run_id[:8]}")


async def start_child(type_: str, name: str, args: Sequence[RawValue], label: str, **how: Any) -> Handle:
    """A child ``<this run>/<name>``; where that id is in use, with the start of the run's id behind it.

    Raises:
        CallError: both ids are in use.
    """
    ids = child_ids(name)
    for attempt in ids:
        try:
            return await workflow.start_child_workflow(
                type_, args=args, id=attempt, result_type=RawValue, static_summary=truncate(label, 200), **how
            )
        except WorkflowAlreadyStartedError:
            continue
    raise CallError("WorkflowAlreadyStarted", f"a run with the id {ids[0]} exists already")


async def start_background(node: PlannedCall, what: dict[str, Any], args: Sequence[RawValue] = ()) -> None:
    """A Call as a run of its own that outlives the plan; returns once it is started.

    ``args`` are the three of an Activity; the SDK reads types by their number, so that none are three of nothing.
    """
    label = node.label
    args = args or [encode(None)] * 3
    await start_child(
        BACKGROUND, node.key, [encode({**what, "summary": label}), *args], label,
        parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
    )  # fmt: skip


class Children:
    """Those that run now, by the id of their workflow."""

    def __init__(self, note: Callable[[str], None], post: Post) -> None:
        self._note, self._post = note, post
        self._live: dict[str, tuple[Handle, str]] = {}
        # By type too: an instance may be called as a Call is
        self._starting: dict[tuple[str, str], list[tuple[str, tuple[RawValue, ...]]]] = {}

    def __contains__(self, workflow_id: str) -> bool:
        # What a child says may be here before the word that it has started
        return workflow_id in self._live or any(workflow_id in child_ids(name) for _, name in self._starting)

    def expect(self, type_: str, name: str, told: Iterable[tuple[str, RawValue]] = ()) -> None:
        """One is about to be started: what is told to it from now on, and before that, reaches it once it is there."""
        self._starting[type_, name] = [(signal, (given,)) for signal, given in told]

    async def start(self, type_: str, name: str, given: RawValue, label: str, seconds: float | None = None) -> Handle:
        """See ``start_child``; ``seconds`` is how long it may take."""
        self._starting.setdefault((type_, name), [])
        try:
            handle = await start_child(
                type_, name, [given], label, parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
                execution_timeout=None if seconds is None else timedelta(seconds=seconds),
            )  # fmt: skip
        finally:
            told = self._starting.pop((type_, name))
        self._live[handle.id] = (handle, type_)
        await asyncio.gather(*(self.tell_one(handle, signal, *args) for signal, args in told))
        return handle

    async def run(
        self, type_: str, name: str, given: RawValue, label: str, *, seconds: float | None = None,
        ended: Callable[[str], None] = lambda _: None,
    ) -> RawValue:  # fmt: skip
        """Start a child and wait for its result; ``ended`` is told its id, however it ends."""
        handle = await self.start(type_, name, given, label, seconds)
        try:
            result: RawValue = await handle
        finally:
            self.forget(handle.id)
            ended(handle.id)
        return result

    def forget(self, workflow_id: str) -> None:
        """It has ended."""
        self._live.pop(workflow_id, None)

    async def tell(self, signal: str, *args: RawValue, type_: str | None = None) -> None:
        """Signal all of them, or those of one type; one that is being started is told once it is there."""
        for (found, _), told in self._starting.items():
            if type_ is None or found == type_:
                told.append((signal, args))
        handles = [h for h, found in self._live.values() if type_ is None or found == type_]
        await asyncio.gather(*(self.tell_one(handle, signal, *args) for handle in handles))

    async def tell_named(self, name: str, signal: str, *args: RawValue) -> bool:
        """Signal the child that was started for the instance of this name; False when there is none now."""
        if (INSTANCE, name) in self._starting:
            self._starting[INSTANCE, name].append((signal, args))
            return True
        found = next((self._live[i] for i in child_ids(name) if i in self._live), None)
        if found is not None:
            await self.tell_one(found[0], signal, *args)
        return found is not None

    async def tell_one(self, handle: Told, signal: str, *args: RawValue) -> None:
        """Signal one run."""
        try:
            await self._post.send(handle, signal, *args)
        except Exception as error:  # noqa: BLE001 - it has just ended: nothing is left to tell it
            self._note(f"{signal} came too late for {handle.id}: {truncate(str(error), 100)}")
