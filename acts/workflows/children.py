"""The other runs of a tree as one run sees them: its children, the signals it sends, and what ends it from outside.

*Children* are started under readable ids, signalled, and awaited. A signal for one that is being started reaches it
once it is there, and again if it is started again.

*Signals* to another run arrive in the order in which they were sent. The server keeps no order among signals of one
workflow task: a pause and the resume after it could reach a child either way round. So the next is sent when the one
before has arrived. Large ones go in several tasks, since the message of one has at most 4 MiB.

*Resets.* Has this run been reset *before the point that it is at now*? The run id alone does not say so, since it
differs from the original one all through the history, and a replay of what came before the reset has to decide as it
was decided then. But each reset gives the SDK's random generator a new seed at its own place in history. So a seed that
is not the first one, which the core makes of the original run id, shows a reset.

*Leftovers.* The server ends a run that is reset without a word to the children that it started after the point of the
reset. They go on, and the new run starts the same work under the same ids. So the new run tells such a child that it
is superseded, waits until it has stopped whatever it does, and takes its id. Only a run of the same tree obeys: the
message carries the tree's token. Any other run keeps its id, and the new child gets another. A run that was not reset
itself may meet such a run too, when a run above or before it was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from temporalio import exceptions, workflow
from temporalio.common import RawValue, SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, is_cancelled_exception

from acts.language import wire
from acts.language.errors import CallError, heading, truncate
from acts.tree import search_attributes
from acts.tree.identity import child_id, spare_child_id
from acts.tree.signal_records import ChildReset, Superseded
from acts.workflows.payloads import MAX_TASK_BYTES, TaskRoom, encode_record, find_token, payload_bytes, recorded_bytes

Handle = workflow.ChildWorkflowHandle[Any, Any]
_Handle = Handle | None
Target = Handle | workflow.ExternalWorkflowHandle[Any]
Outcome = Callable[[BaseException | None], None]

ROOT: Final = SearchAttributeKey.for_keyword(search_attributes.ROOT)
TAGS: Final = SearchAttributeKey.for_keyword_list(search_attributes.TAGS)
# When to try the id of a leftover again. A run stops within a task of its own and one for each level below it: some 10
# ms each, and some seconds while workers start. 19 seconds in all: longer than the 10 or 15 s after which the server
# begins a workflow task again that died with its worker
_WAITS_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 6.4)
# … and of a run that was not reset: mostly, the id is that of a run of another tree, which does not stop
_FEW_WAITS: Final = 4
_MASK: Final = 2**64 - 1


def seed_of(run_id: str) -> int:
    """The first seed of a run with this ``original_execution_run_id``, and the seed after a reset to this run id.

    The arithmetic of the SDK's core: Rust's ``DefaultHasher``, which is SipHash-1-3 with keys of zero, over the UTF-8
    of the text and a byte 0xff. It cannot change: a run that is replayed would draw other numbers than before.
    """
    data = run_id.encode() + b"\xff"
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    # "somepseudorandomlygeneratedbytes": where SipHash begins
    a, b, c, d = 0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        a, b, c, d = _mix(a, b, c, d ^ word)
        a ^= word
    c ^= 0xFF
    for _ in range(3):
        a, b, c, d = _mix(a, b, c, d)
    return a ^ b ^ c ^ d


def _mix(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    """One round of SipHash."""
    a, c = (a + b) & _MASK, (c + d) & _MASK
    b, d = _turn(b, 13) ^ a, _turn(d, 16) ^ c
    a, c = (_turn(a, 32) + d) & _MASK, (c + b) & _MASK
    return a, _turn(b, 17) ^ c, _turn(c, 32), _turn(d, 21) ^ a


def _turn(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK


def exact_date(moment: datetime) -> str:
    """A date in microseconds, the server's own accuracy: such texts of one clock compare like the moments."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def cause_of(error: BaseException) -> BaseException:
    """What failed in an Activity or a child, without the SDK's envelopes; a local Activity's failure has none."""
    while isinstance(error, (ActivityError, ChildWorkflowError)) and error.__cause__ is not None:
        error = error.__cause__
    return error


class Lifeline:
    """What happens to one run from outside its work; the workflow object makes it before anything else.

    ``token`` is that of its tree, ``signals`` counts those received, ``noted_lineage`` belongs to the last reset that
    the driver has noted, ``superseded_by`` is the run that does its work now.
    """

    def __init__(self) -> None:
        self.token, self.signals = "", 0
        info = workflow.info()
        # Not the seed as of now: a reset at the first task has changed it
        self._first_seed = self.noted_lineage = seed_of(info.original_execution_run_id)
        self.lineage = workflow.random_seed()  # another one after each reset
        workflow.register_random_seed_callback(partial(setattr, self, "lineage"))
        self.started_at = exact_date(info.workflow_start_time)
        self.main_task: asyncio.Task[Any] | None = None
        self.superseded_by: str | None = None

    @property
    def is_repetition(self) -> bool:
        """True for a run that was reset or retried, or that continues one to which that may have happened."""
        info = workflow.info()
        is_next_of_cron = info.cron_schedule is not None and info.attempt == 1
        continues = info.continued_run_id is not None and not is_next_of_cron
        return self.lineage != self._first_seed or info.attempt > 1 or continues

    def supersede(self, run_id: str) -> None:
        """End this run: ``run_id``, a run of its parent, starts its work again."""
        if self.superseded_by is None and self.main_task is not None:
            self.superseded_by = run_id
            self.main_task.cancel()

    async def report_reset(self, start: RawValue) -> None:
        """Tell the run above of a reset that this run, started with ``start``, ended too early to note."""
        info = workflow.info()
        token = find_token(start)
        if self.noted_lineage == self.lineage or info.parent is None or token is None:
            return
        record = ChildReset(token=token, workflowId=info.workflow_id, firstRunId=info.first_execution_run_id)
        with contextlib.suppress(ApplicationError, CallError):  # the run above has ended, or it is no token of ours
            parent = workflow.get_external_workflow_handle(info.parent.workflow_id)
            await parent.signal(record.signal_name(), encode_record(record))

    def raise_ending(self, error: BaseException) -> None:
        """Raise how a superseded run ends, instead of as cancelled; nothing for every other error."""
        if self.superseded_by is not None and is_cancelled_exception(error):
            text = f"the run above was reset or retried; its run {self.superseded_by} starts this work again"
            raise ApplicationError(text, type=wire.SUPERSEDED_RUN, non_retryable=True) from None


class Outbox:
    """The signals that are on their way, in one line for each run."""

    def __init__(self, room: TaskRoom) -> None:
        self._room, self._turn = room, asyncio.Lock()
        self._lines: dict[str, deque[tuple[Target, str, tuple[RawValue, ...], Outcome]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def is_empty(self) -> bool:
        """True when everything has arrived."""
        return not self._lines

    def send(self, target: Target, signal: str, args: tuple[RawValue, ...], outcome: Outcome) -> None:
        """Signal one run. ``outcome`` is called with None when the signal has arrived, else with the error."""
        if target.id not in self._lines:
            self._lines[target.id] = deque()
            self._tasks[target.id] = asyncio.create_task(self._deliver(target.id))
        self._lines[target.id].append((target, signal, args, outcome))

    async def _deliver(self, id_: str) -> None:
        line = self._lines[id_]
        while line:
            target, signal, args, outcome = line.popleft()
            # A codec may keep a value just above the threshold from storage
            size = sum(max(recorded_bytes(n), min(n, wire.STORED_ABOVE_BYTES)) for n in map(payload_bytes, args))
            async with self._turn:  # who waits for room is served in order
                used = self._room.count_commands()
                if used and used + size > MAX_TASK_BYTES:
                    await workflow.sleep(timedelta(milliseconds=1), summary="large inputs go in several tasks")
                    self._room.count_commands()
                self._room.signals += size
            try:
                await target.signal(signal, args=list(args))
            except Exception as error:  # noqa: BLE001 - whoever sent it decides what it means
                outcome(error)
            else:
                outcome(None)
        del self._lines[id_], self._tasks[id_]


async def start_child(
    type_: str, name: str, arg: RawValue, label: str, lifeline: Lifeline, *,
    siblings: Iterable[tuple[str, str]] = (), **options: Any,
) -> Handle:  # fmt: skip
    """A child ``<this run>/<name>``; where that id is in use, with the start of the run's id behind it, or CallError.

    A run that is left from before a reset under that id ends first, but none of this run's own ``siblings``
    (type and name): an instance may be called as a Call is.
    """
    info = workflow.info()
    first = child_id(info.workflow_id, name)
    held = info.typed_search_attributes
    inherited: list[SearchAttributePair[Any]] = [
        SearchAttributePair(key, value) for key in (ROOT, TAGS) if (value := held.get(key)) is not None
    ]
    attributes = TypedSearchAttributes(inherited) if inherited else None

    async def start(id_: str) -> Handle | None:
        try:
            return await workflow.start_child_workflow(
                type_, arg, id=id_, result_type=RawValue, static_summary=heading(label),
                search_attributes=attributes, **options,
            )  # fmt: skip
        except exceptions.WorkflowAlreadyStartedError:
            return None

    handle = await start(first)
    if handle is None and not any(n == name and t != type_ for t, n in siblings):
        handle = await _replace_leftover(first, lifeline, start)
    # The run id of before a reset, since a replay must find the same; an earlier run may have that one, too
    handle = handle or await start(spare_child_id(first, info.original_execution_run_id))
    handle = handle or await start(spare_child_id(first, workflow.uuid4().hex))
    if handle is None:
        raise CallError(wire.ALREADY_STARTED, f"a run with the id {first} exists already")
    return handle


async def _replace_leftover(id_: str, lifeline: Lifeline, start: Callable[[str], Awaitable[_Handle]]) -> _Handle:
    """Stop the run of this id and start another in its place; None when it is not one of this tree, or does not end."""
    info = workflow.info()
    sent_at = exact_date(workflow.now())
    record = Superseded(token=lifeline.token, workflowId=info.workflow_id, runId=info.run_id, sentAt=sent_at)
    try:
        await workflow.get_external_workflow_handle(id_).signal(record.signal_name(), encode_record(record))
    except ApplicationError:
        return await start(id_)  # it has just ended
    for seconds in _WAITS_SECONDS if lifeline.is_repetition else _WAITS_SECONDS[:_FEW_WAITS]:
        await workflow.sleep(timedelta(seconds=seconds), summary=f"until the earlier {id_} has stopped")
        if (handle := await start(id_)) is not None:
            return handle
    return None


@dataclass(slots=True)
class _Child:
    """One child by its name; ``handle`` None while it is being started.

    ``signals`` are all that it is sent: one that is started again knows nothing of them, nor that it is paused.
    """

    handle: Handle | None = None
    signals: list[tuple[str, tuple[RawValue, ...]]] = field(default_factory=list)


class Children:
    """Those that run now, by type and name: an instance may be called as a Call is."""

    def __init__(self, outbox: Outbox, note: Callable[[str], None], lifeline: Lifeline) -> None:
        self._outbox, self._note, self._lifeline = outbox, note, lifeline
        self._running: dict[tuple[str, str], _Child] = {}

    def expect(self, type_: str, name: str) -> None:
        """This one is about to be started: what is signalled from now on reaches it."""
        former = self._running.get((type_, name))
        self._running[type_, name] = _Child(signals=[] if former is None else former.signals)

    def forget(self, type_: str, name: str) -> None:
        self._running.pop((type_, name), None)

    async def start_background(self, name: str, arg: RawValue, label: str) -> None:
        """A run of its own that outlives this one; returns once it is started."""
        handle = await start_child(
            wire.BACKGROUND, name, arg, label, self._lifeline, siblings=self._running,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
        )  # fmt: skip
        # Its failure is nobody's; asyncio would log it as lost
        handle.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    async def run(
        self, type_: str, name: str, arg: RawValue, label: str, started: Callable[[Handle, bool], None],
        seconds: float | None = None,
    ) -> RawValue:  # fmt: skip
        """Start a child that was expected, and wait for its result, at most for so many seconds.

        ``started`` is called with its handle, and True where a reset has been noted since it was to start. A child that
        another run of this one took with it is started again.
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
                    child = self._running[type_, name] = _Child(signals=child.signals)
                else:
                    return result
        finally:
            if self._running.get((type_, name)) is child:
                del self._running[type_, name]

    def signal(self, signal: str, *args: RawValue, type_: str | None = None, name: str | None = None) -> bool:
        """Signal all of them, those of one type, or the one of a name; False when there is none now."""
        chosen = [c for (t, n), c in self._running.items() if type_ in (None, t) and name in (None, n)]
        for child in chosen:
            child.signals.append((signal, args))
            if child.handle is not None:
                self.signal_one(child.handle, signal, *args)
        return bool(chosen)

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
    task, cause = asyncio.current_task(), cause_of(error)
    if task is not None and task.cancelling():
        return False
    is_superseded = isinstance(cause, ApplicationError) and cause.type == wire.SUPERSEDED_RUN
    return is_superseded or (was_reset and is_cancelled_exception(error))
