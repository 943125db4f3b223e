"""The activity ``acts.pastRun``: what an earlier run had done, for a run that resumes it.

The earlier run may have completed, failed, been cancelled or terminated, or still be there; the workers that ran it may
be gone. All that these have in common is a history, so it is replayed with the code of this worker, and the run that
results is read. Nothing is changed in it.

A large answer comes in pages, each an activity of its own. A page says how much of the history was read, and the next
one reads as much: a run that is still there goes on meanwhile.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.api.enums.v1 import ContinueAsNewInitiator
from temporalio.client import WorkflowHistory
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.heartbeat import heartbeat
from activities.json_result import ResultTooLarge, encode_result
from acts.language.errors import truncate
from acts.language.strict_json import json_size
from acts.language.wire import AGENT, INSTANCE, MAX_PAYLOAD_BYTES, MAX_STORED_BYTES, PAST_RUN, PLAN, RESUME_REFUSED
from acts.tree.past_run import PastRow, PastRun
from acts.tree.wire_format import WIRE_VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from temporalio.api.history.v1 import HistoryEvent
    from temporalio.client import Client

    # Takes a history, its run id and the runs that it has started (run id by workflow id); returns what the run had
    # done, None if it walks no plan, or why the history does not replay
    ReadHistory = Callable[[WorkflowHistory, str, Mapping[str, str]], Awaitable[PastRun | str | None]]

# Bytes of a page, half of what one payload may hold
PAGE_BYTES: Final = 1024 * 1024
# A Call that takes a page so far beyond that begins the next one
_SPARE_BYTES: Final = 512 * 1024
# Bytes in all: the history of the new run may have 50 MB, and its own work is to come. With external storage it has
# references, and a value may have more
MAX_BYTES: Final = 16 * 1024 * 1024
# A run that continued as new so often is followed; each has thousands of events
MAX_RUNS: Final = 10_000
_RESUMED_TYPES: Final = (PLAN, INSTANCE)


class PastRuns:
    """Reads earlier runs; ``read`` replays a history and reads what the run had done."""

    def __init__(self, read: ReadHistory) -> None:
        self._read = read
        self._last: PastRun | None = None

    def activity(self) -> Callable[..., Any]:
        """The activity."""

        @activity.defn(name=PAST_RUN)
        async def read_past_run(query: dict[str, Any]) -> RawValue:
            async with heartbeat():
                past = await self._past(query)
            self._last = past
            page = page_of(past, query.get("offset", 0))
            self._last = past if page.next is not None else None
            limit = MAX_STORED_BYTES if _is_stored() else MAX_PAYLOAD_BYTES
            try:
                return encode_result(page.to_json(), limit)
            except ResultTooLarge as error:
                raise _too_large(f"one call of {_name(past.workflowId)}", error.size, limit) from None

        return read_past_run

    async def _past(self, query: Mapping[str, Any]) -> PastRun:
        id_, run_id, events = query["workflowId"], query.get("runId"), query.get("events")
        last = self._last
        if last is not None and (last.workflowId, last.runId, last.events) == (id_, run_id, events):
            return last
        history, run_id = await fetch_latest(activity.client(), id_, run_id)
        if events is not None:
            history = WorkflowHistory(id_, list(history.events[:events]))
        await _refuse_other_runs(activity.client(), history, run_id)
        past = await self._read(history, run_id, started_children(history.events))
        if isinstance(past, str):
            text = f"{_name(id_)} does not replay with the code of this worker: {truncate(past, 500)}"
            raise refuse(f"{text}\nstart the worker with the code that ran it, or start the plan anew")
        if past is None:
            raise refuse(f"{_name(id_)} walks no plan")
        if past.set is not None:  # whoever needs its rows asks for them
            past = past.model_copy(update={"set": past.set.model_copy(update={"rows": ()})})
        size, limit = json_size(past.to_json()), MAX_STORED_BYTES if _is_stored() else MAX_BYTES
        if size > limit:
            raise _too_large(_name(id_), size, limit)
        return past

    async def rows(self, id_: str, run_id: str) -> AsyncIterator[tuple[PastRow, ...]]:
        """What the rows of a run over a set without a results file came to, and those of the runs that it continues.

        Raises:
            ApplicationError: one of these runs is not there any more, or does not replay.
        """
        client, next_id = activity.client(), run_id
        while next_id:
            history = await _fetch_run(client, id_, next_id)
            past = await self._read(history, next_id, started_children(history.events))
            if not isinstance(past, PastRun) or past.set is None:
                why = truncate(past, 500) if isinstance(past, str) else "it walks no set"
                raise refuse(f"the run {next_id} of {_name(id_)} does not replay with the code of this worker: {why}")
            yield past.set.rows
            start = history.events[0].workflow_execution_started_event_attributes
            is_continued = start.initiator == ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_WORKFLOW
            next_id = start.continued_execution_run_id if is_continued else ""


async def _fetch_run(client: Client, id_: str, run_id: str) -> WorkflowHistory:
    try:
        return await client.get_workflow_handle(id_, run_id=run_id).fetch_history()
    except RPCError as error:
        if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
            raise
        text = f"the run {run_id} of {_name(id_)}, which had no results file, is not there any more"
        hint = "the server keeps it as long as the namespace's retention says; a file (config.results) stays"
        raise refuse(f"{text}, so nobody knows which of its rows completed: {hint}") from None


def page_of(past: PastRun, offset: int) -> PastRun:
    """The Calls and instances of a run from an entry on, as many as fit; Calls come first."""
    entries: list[Any] = [*past.calls, *past.instances]
    stop, room = offset, PAGE_BYTES - (json_size(list(past.provided)) if not offset else 0)
    while stop < len(entries):
        size = json_size(entries[stop].to_json())
        if stop > offset and (room <= 0 or size > room + _SPARE_BYTES):
            break
        room -= size
        stop += 1
    split = len(past.calls)
    changes: dict[str, Any] = {
        "calls": past.calls[offset:stop], "instances": past.instances[max(offset - split, 0) : max(stop - split, 0)],
        "next": stop if stop < len(entries) else None,
    }  # fmt: skip
    return past.model_copy(update=changes if not offset else {**changes, "provided": ()})


async def fetch_latest(client: Client, id_: str, run_id: str | None) -> tuple[WorkflowHistory, str]:
    """The history of a run, or of the one that it continued as, and its run id.

    Raises:
        ApplicationError: there is none.
    """
    for _ in range(MAX_RUNS):
        handle = client.get_workflow_handle(id_, run_id=run_id)
        try:
            if run_id is None:
                run_id = (await handle.describe()).run_id
                handle = client.get_workflow_handle(id_, run_id=run_id)
            history = await handle.fetch_history()
        except RPCError as error:
            if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise
            which = "" if run_id is None else f" with the run id {_name(run_id)}"
            text = f'there is no run {_name(id_)}{which} in the namespace "{client.namespace}"'
            raise refuse(
                f"{text}; the server keeps a run that has ended as long as the namespace's retention says"
            ) from None
        ending = history.events[-1].workflow_execution_continued_as_new_event_attributes
        if not ending.new_execution_run_id:
            return history, str(run_id)
        run_id = ending.new_execution_run_id
    raise refuse(f"{_name(id_)} has continued as new too often to be followed")


async def _refuse_other_runs(client: Client, history: WorkflowHistory, run_id: str) -> None:
    """Refuse a run that is not ours, of another kind, of a later version of the wire, or this one."""
    start = history.events[0].workflow_execution_started_event_attributes
    type_, name = start.workflow_type.name, _name(history.workflow_id)
    if run_id == activity.info().workflow_run_id:
        raise refuse(f'{name} is this run itself: name an earlier one of this id with "runId"')
    if type_ == AGENT:
        hint = (
            "resume the plan of one of its ticks, `<run>/plan-<tick>`, as a Plan; or reset the agent (docs/repair.md)"
        )
        raise refuse(f"{name} is an Agent, and a run of a plan cannot resume it: {hint}")
    if type_ not in _RESUMED_TYPES:
        raise refuse(f'{name} is a run of the type "{truncate(type_, 100)}"; a run of the type Plan can be resumed')
    inputs = await client.data_converter.decode(start.input.payloads[:1])
    version = _wire_version(inputs[0] if inputs else None)
    if version > WIRE_VERSION:
        text = f"{name} was started with version {version} of the wire; this worker reads up to {WIRE_VERSION}"
        raise refuse(f"{text}: update the worker")


def _wire_version(value: Any) -> int:
    """The version of the record that a run was started with; 0 for a Request."""
    if isinstance(value, bytes):  # what the run before carried over, compressed
        try:
            value = json.loads(zlib.decompress(value))
        except (ValueError, zlib.error):
            return 0
    version = value.get("v") if isinstance(value, dict) else None
    return version if isinstance(version, int) else 0


def started_children(events: Any) -> dict[str, str]:
    """The runs that a run has started: run id by workflow id, in their order."""
    out: dict[str, str] = {}
    event: HistoryEvent
    for event in events:
        child = event.child_workflow_execution_started_event_attributes.workflow_execution
        if child.workflow_id:
            out.pop(child.workflow_id, None)
            out[child.workflow_id] = child.run_id
    return out


def _is_stored() -> bool:
    """True where large results travel as references."""
    return activity.client().data_converter.external_storage is not None


def _too_large(name: str, size: int, limit: int) -> ApplicationError:
    hint = "keep large results outside and pass references, or reset that run instead"
    more = "" if _is_stored() else "; or give workers and clients an ACTS_STORAGE (docs/storage.md)"
    return refuse(f"what {name} had done takes {size:,} bytes to record; a run can take over {limit:,}: {hint}{more}")


def refuse(message: str) -> ApplicationError:
    """The earlier run cannot be resumed: a further attempt would find the same."""
    return ApplicationError(message, type=RESUME_REFUSED, non_retryable=True)


def _name(text: str) -> str:
    return f'"{truncate(text, 200)}"'
