"""Which stored values no run refers to any more, and their deletion.

Why it is safe
--------------
A value is deleted only where all of this holds:

1. *Nothing refers to it.* References are in the histories of the runs that the server still keeps, in the state of
   their pending Activities (heartbeats, failures), and in schedules. All of these are read, of every run of the
   namespace, open or closed: the server itself copies references (into the next run of a cron, a retry, a reset, what
   a schedule starts), so no date of a run bounds the age of what it refers to. Whatever looks like the SHA-256 of a
   stored value counts as a reference to it.
2. *Nobody has begun to refer to it lately.* A value is stored before the reference reaches the server, so what was used
   less than a grace period ago stays. Who stores a value that is there already marks it as used.
3. *Nobody begins to refer to it now.* A store deletes only what has not been used since the reading began
   (``ContentStore.delete``).

Where anything cannot be read, nothing is deleted. What is not covered: histories that were exported or archived, and
another namespace that refers to values of this one, which the engine never does.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflowservice.v1 import (
    DescribeScheduleRequest,
    DescribeWorkflowExecutionRequest,
    GetWorkflowExecutionHistoryRequest,
    ListSchedulesRequest,
    ListWorkflowExecutionsRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from connection.content_store import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.client import Client

    from connection.content_store import ContentStore, StoredContent

# Longer than a value waits for the reference to it: an Activity or a client whose server is away
DEFAULT_GRACE: Final = timedelta(days=1)
# Histories that are read at a time: more would be a load on a server that others work with
READERS: Final = 10
_PAGE: Final = 1_000
_DIGESTS: Final = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
# A reference that a codec has encoded (an option of later SDKs) hides what it refers to
_ENCODED_REFERENCE: Final = b"__temporal_external_storage_reference"
_RPC_TIMEOUT: Final = timedelta(seconds=30)
_RUNNING: Final = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING


@dataclass
class Inventory:
    """What is stored for a namespace, and what of it nothing refers to. Sizes are in bytes."""

    contents: list[StoredContent] = field(default_factory=list)
    unused: list[StoredContent] = field(default_factory=list)
    young: int = 0
    runs: int = 0
    schedules: int = 0

    @property
    def bytes(self) -> int:
        """The size of all."""
        return sum(content.size for content in self.contents)

    @property
    def unused_bytes(self) -> int:
        """The size of what can be deleted."""
        return sum(content.size for content in self.unused)


async def find_unused(
    client: Client, store: ContentStore, grace: timedelta = DEFAULT_GRACE,
    progress: Callable[[int], None] = lambda _runs: None,
) -> Inventory:  # fmt: skip
    """What nothing refers to and was not used for the grace period. ``progress`` is called with the runs read so far.

    Raises:
        StorageError: something cannot be read, so nothing is known. RPCError: the server does not answer.
    """
    cutoff = datetime.now(UTC) - grace
    contents = await asyncio.to_thread(lambda: list(store.list_contents(client.namespace)))
    old = [content for content in contents if content.last_use < cutoff]
    inventory = Inventory(contents, young=len(contents) - len(old))
    if not old:
        return inventory
    marks = _Marks({content.digest.encode() for content in old})
    # First the schedules: what one of them starts meanwhile is a run that is listed after it
    inventory.schedules = await _read_schedules(client, marks)
    inventory.runs = await _read_runs(client, marks, progress)
    inventory.unused = [content for content in old if content.digest.encode() not in marks.found]
    return inventory


async def delete_unused(store: ContentStore, inventory: Inventory, cutoff: datetime) -> Counter[str]:
    """Delete what is unused, unless it was used after ``cutoff``; how many were deleted, how many kept."""
    out = Counter[str]()

    def delete() -> None:
        for content in inventory.unused:
            out["deleted" if store.delete(content, cutoff) else "kept"] += 1
        out["leftovers"] = store.delete_leftovers(cutoff)

    await asyncio.to_thread(delete)
    return out


class _Marks:
    """The digests of candidates that were found in what the server keeps."""

    def __init__(self, candidates: set[bytes]) -> None:
        self._candidates = candidates
        self.found = set[bytes]()

    def add(self, data: bytes) -> None:
        """Mark what these bytes refer to."""
        if _ENCODED_REFERENCE in data:
            raise StorageError(
                "a history has references that a codec has encoded, which cannot be read here; nothing was deleted"
            )
        self.found.update(self._candidates.intersection(_DIGESTS.findall(data)))


async def _read_schedules(client: Client, marks: _Marks) -> int:
    count, token = 0, b""
    while True:
        request = ListSchedulesRequest(namespace=client.namespace, maximum_page_size=_PAGE, next_page_token=token)
        page = await client.workflow_service.list_schedules(request, retry=True, timeout=_RPC_TIMEOUT)
        for item in page.schedules:
            about = DescribeScheduleRequest(namespace=client.namespace, schedule_id=item.schedule_id)
            try:
                found = await client.workflow_service.describe_schedule(about, retry=True, timeout=_RPC_TIMEOUT)
            except RPCError as error:
                if error.status != RPCStatusCode.NOT_FOUND:  # deleted meanwhile
                    raise
                continue
            marks.add(found.SerializeToString())
            count += 1
        token = page.next_page_token
        if not token:
            return count


async def _read_runs(client: Client, marks: _Marks, progress: Callable[[int], None]) -> int:
    count, turns = 0, asyncio.Semaphore(READERS)

    async def read(execution: WorkflowExecution, *, is_open: bool) -> None:
        nonlocal count
        async with turns:
            await _read_run(client, execution, marks, is_open=is_open)
        count += 1
        progress(count)

    token = b""
    while True:
        request = ListWorkflowExecutionsRequest(namespace=client.namespace, page_size=_PAGE, next_page_token=token)
        page = await client.workflow_service.list_workflow_executions(request, retry=True, timeout=_RPC_TIMEOUT)
        await asyncio.gather(*[read(item.execution, is_open=item.status == _RUNNING) for item in page.executions])
        token = page.next_page_token
        if not token:
            return count


async def _read_run(client: Client, execution: WorkflowExecution, marks: _Marks, *, is_open: bool) -> None:
    """Mark what one run refers to; one that the server has deleted meanwhile refers to nothing."""
    try:
        if is_open:
            about = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
            described = await client.workflow_service.describe_workflow_execution(
                about, retry=True, timeout=_RPC_TIMEOUT
            )
            marks.add(described.SerializeToString())
        token = b""
        while True:
            request = GetWorkflowExecutionHistoryRequest(
                namespace=client.namespace, execution=execution, next_page_token=token
            )
            page = await client.workflow_service.get_workflow_execution_history(
                request, retry=True, timeout=_RPC_TIMEOUT
            )
            marks.add(page.SerializeToString())
            token = page.next_page_token
            if not token:
                return
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
