"""The activity ``acts.pastRun``: what an earlier run had done, for a run that resumes it.

The earlier run may have completed, failed, been cancelled or terminated, or still be there; the workers that ran it may
be gone. All that these have in common is a history, so it is replayed with the code of this worker, and the run that
results is read. Nothing is changed in it.
"""

from __future__ import annotations

import zlib
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.api.enums.v1 import ContinueAsNewInitiator
from temporalio.client import WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from acts.language.errors import truncate
from acts.language.strict_json import write_json
from acts.language.wire import (
    AGENT,
    INSTANCE,
    MAX_PAYLOAD_BYTES,
    MAX_STORED_BYTES,
    PAST_RUN,
    PLAN,
    RESUME_REFUSED,
    UNDO,
)
from acts.tree.identity import child_id, retry_id
from acts.tree.past_run import PastRow, PastRun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from temporalio.client import Client, WorkflowExecutionDescription

    # Takes a history, its run id and the runs that it has started (run id by workflow id); returns what the run had
    # done, None if it walks no plan, or why the history does not replay
    ReadHistory = Callable[[WorkflowHistory, str, Mapping[str, str]], Awaitable[PastRun | str | None]]

# Bytes in all: the history of the new run may have 50 MB, and its own work is to come. With external storage it has
# references, and a value may have more
MAX_BYTES: Final = 16 * 1024 * 1024
# A run that continued as new so often is followed; each has thousands of events
MAX_RUNS: Final = 10_000
_AGENT_HINT: Final = (
    "resume the plan of one of its ticks, `<run>/plan-<tick>`, as a Plan; or reset the agent (docs/repair.md)"
)


class PastRuns:
    """Reads earlier runs; ``read`` replays a history and reads what the run had done."""

    def __init__(self, read: ReadHistory) -> None:
        self._read = read

    @activity.defn(name=PAST_RUN)
    async def read_past_run(self, query: dict[str, Any]) -> bytes:
        return _pack(await self._past(query["workflowId"], query.get("runId")))

    async def _past(self, id_: str, run_id: str | None) -> PastRun:
        name, (history, run_id) = quote(id_), await _fetch_last(id_, run_id)
        type_ = history.events[0].workflow_execution_started_event_attributes.workflow_type.name
        if run_id == activity.info().workflow_run_id:
            raise refuse(f'{name} is this run itself: name an earlier one of this id with "runId"')
        if type_ == AGENT:
            raise refuse(f"{name} is an Agent, and a run of a plan cannot resume it: {_AGENT_HINT}")
        if type_ not in (PLAN, INSTANCE):
            raise refuse(f'{name} is a run of the type "{truncate(type_, 100)}"; a run of the type Plan can be resumed')
        past = (await self._replay(history, run_id)).without(await self._undone_in(history))
        if past.set is not None:  # whoever needs its rows asks for them
            past = past.model_copy(update={"set": past.set.model_copy(update={"rows": ()})})
        return past

    async def _undone_in(self, history: WorkflowHistory) -> frozenset[str]:
        """The ``_id``s of Calls that were undone: of the run, or of one above, by themselves or by `acts undo`. Raises
        ApplicationError: they are being undone.
        """
        start, client, undone = (
            history.events[0].workflow_execution_started_event_attributes,
            activity.client(),
            set[str](),
        )
        above = (start.parent_workflow_execution.workflow_id, start.root_workflow_execution.workflow_id)
        for id_ in filter(None, dict.fromkeys((history.workflow_id, *above))):
            own = child_id(id_, UNDO)
            while (info := await _describe(client, own)) is not None and info.workflow_type == PLAN:
                if info.start_time < history.events[0].event_time.ToDatetime(tzinfo=UTC):
                    break  # of an earlier run of this id
                if info.close_time is None:
                    raise refuse(f"{quote(id_)} is being undone by {quote(own)}: wait for its end")
                undone.update((await self._replay(*await _fetch_last(own, info.run_id))).undone)
                own = retry_id(own, info.run_id)
        return frozenset(undone)

    async def _replay(self, history: WorkflowHistory, run_id: str) -> PastRun:
        children: dict[str, str] = {}  # the runs that it has started, in their order
        for event in history.events:
            child = event.child_workflow_execution_started_event_attributes.workflow_execution
            if child.workflow_id:
                children.pop(child.workflow_id, None)
                children[child.workflow_id] = child.run_id
        past, name = await self._read(history, run_id, children), quote(history.workflow_id)
        if isinstance(past, str):
            text = f"{name} does not replay with the code of this worker: {truncate(past, 500)}"
            raise refuse(f"{text}\nstart the worker with the code that ran it, or start the plan anew")
        if past is None:
            raise refuse(f"{name} walks no plan")
        return past

    async def rows(self, id_: str, run_id: str) -> AsyncIterator[tuple[PastRow, ...]]:
        """The results of the rows of a run over a set without a results file, and of the runs that it continues. Raises
        ApplicationError: one of these runs is not there any more, or does not replay.
        """
        while run_id:
            history, _ = await _fetch(activity.client(), id_, run_id)
            past = await self._replay(history, run_id)
            yield () if past.set is None else past.set.rows
            start = history.events[0].workflow_execution_started_event_attributes
            is_continued = start.initiator == ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_WORKFLOW
            run_id = start.continued_execution_run_id if is_continued else ""


def _pack(past: PastRun) -> bytes:
    """The record as JSON, compressed: many Calls are alike. Raises ApplicationError: it is too large to be recorded."""
    data = write_json(past.to_json())
    packed, is_stored = zlib.compress(data), activity.client().data_converter.external_storage is not None
    if len(data) > (MAX_STORED_BYTES if is_stored else MAX_BYTES) or (
        len(packed) > MAX_PAYLOAD_BYTES and not is_stored
    ):
        hint = "keep large results outside and pass references, or reset that run instead"
        more = "" if is_stored else "; or give workers and clients an ACTS_STORAGE (docs/sizing.md)"
        text = f"what {quote(past.workflowId)} had done takes {len(data):,} bytes, {len(packed):,} of them compressed"
        raise refuse(f"{text}, too many to record: {hint}{more}")
    return packed


async def _fetch_last(id_: str, run_id: str | None) -> tuple[WorkflowHistory, str]:
    """As ``_fetch``, of the run as which that one continued in the end."""
    for _ in range(MAX_RUNS):
        history, own = await _fetch(activity.client(), id_, run_id)
        run_id = history.events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        if not run_id:
            return history, own
    raise refuse(f"{quote(id_)} has continued as new too often to be followed")


async def _describe(client: Client, id_: str) -> WorkflowExecutionDescription | None:
    try:
        return await client.get_workflow_handle(id_).describe()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return None


async def _fetch(client: Client, id_: str, run_id: str | None) -> tuple[WorkflowHistory, str]:
    """The history of a run, by default the latest of its id, and its run id."""
    try:
        own = run_id or (await client.get_workflow_handle(id_).describe()).run_id
        return await client.get_workflow_handle(id_, run_id=own).fetch_history(), own
    except RPCError as error:
        if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
            raise
        which = "" if run_id is None else f" with the run id {quote(run_id)}"
        text = f'there is no run {quote(id_)}{which} in the namespace "{client.namespace}"'
        hint = "the server keeps a run that has ended as long as the namespace's retention says"
        raise refuse(f"{text}; {hint}") from None


def refuse(message: str) -> ApplicationError:
    """The earlier run cannot be resumed: a further attempt would find the same."""
    return ApplicationError(message, type=RESUME_REFUSED, non_retryable=True)


def quote(text: str) -> str:
    return f'"{truncate(text, 200)}"'
