"""Which stored values no run refers to any more, and their deletion.

A value is deleted only where all of this holds:

1. *Nothing refers to it*: no history of a run that the server still keeps, no pending Activity (heartbeats, failures),
   no schedule. All are read, of every run of the namespace, open or closed: the server itself copies references (into
   the next run of a cron, a retry, a reset), so no date of a run bounds the age of what it refers to. Whatever looks
   like the SHA-256 of a stored value counts as a reference to it.
2. *Nobody has begun to refer to it lately.* A value is stored before the reference reaches the server, so what was used
   less than a grace period ago stays.
3. *Nobody begins to refer to it now.* Only values of weeks that are over are deleted (``stores.py``).

4. *The storage is this namespace's alone.* Workers write the id of their namespace into it (``claim_storage``): servers
   whose namespaces have the same name do not delete each other's values.

Where anything cannot be read, nothing is deleted. Histories that were exported or archived are not covered.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeScheduleRequest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from acts.payloads.converter import driver_from_environment
from acts.payloads.stores import ContentStore, StorageError, StoredContent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from temporalio.client import Client

# Longer than a value waits for the reference to it: an Activity or a client whose server is away
DEFAULT_GRACE: Final = timedelta(days=1)
READERS: Final = 10  # histories at a time
_PAGE: Final = 1_000
_DIGESTS: Final = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
# A reference that a codec has encoded (an option of later SDKs) hides what it refers to
_ENCODED_REFERENCE: Final = "__temporal_external_storage_reference"
_RPC_TIMEOUT: Final = timedelta(seconds=30)


@dataclass
class Inventory:
    """What is stored for a namespace, and what of it nothing refers to. Sizes are in bytes."""

    contents: list[StoredContent] = field(default_factory=list)
    unused: list[StoredContent] = field(default_factory=list)
    young: int = 0
    runs: int = 0
    schedules: int = 0


async def claim_storage(client: Client) -> None:
    """Write into the storage of the environment, where there is one, that this client's namespace refers to it.

    What does not answer now leaves it to the first value that is stored, or unsaid, and then nothing is deleted.
    """
    driver = driver_from_environment()
    if driver is not None:
        with suppress(RPCError, StorageError):
            driver.users[client.namespace] = await _namespace_id(client)
            await asyncio.to_thread(driver.write_users)


async def _namespace_id(client: Client) -> str:
    request = DescribeNamespaceRequest(namespace=client.namespace)
    answer = await client.workflow_service.describe_namespace(request, retry=True, timeout=_RPC_TIMEOUT)
    return answer.namespace_info.id


async def find_objection(client: Client, store: ContentStore, inventory: Inventory) -> str:
    """Why the unused values of an inventory may be in use after all; "" where nothing speaks for it."""
    users, own = await asyncio.to_thread(store.users, client.namespace), await _namespace_id(client)
    place = f"{store.describe()} has {len(inventory.contents):,} values of a namespace {client.namespace!r}"
    if others := users - {own}:
        whose = f"with the id {', '.join(sorted(others))}: another server's; the id of this one is {own}"
    elif not users:
        whose = "whose id no worker has written there yet: restart one"
    else:
        whose = "" if inventory.runs or not inventory.unused else "which has no runs at all: is it the right server?"
    return f"{place} {whose}" if inventory.contents and whose else ""


def total_size(contents: Iterable[StoredContent]) -> int:
    return sum(content.size for content in contents)


async def find_unused(client: Client, store: ContentStore, grace: timedelta = DEFAULT_GRACE) -> Inventory:
    """What nothing refers to and was not used for the grace period. Raises StorageError: something cannot be read, so
    nothing is known. RPCError: the server does not answer.
    """
    cutoff = datetime.now(UTC) - grace
    contents = await asyncio.to_thread(lambda: list(store.list_contents(client.namespace)))
    old = [content for content in contents if content.last_use < cutoff]
    inventory = Inventory(contents, young=len(contents) - len(old))
    if not old:
        return inventory
    candidates, in_use = {content.digest.encode() for content in old}, set[bytes]()

    def mark(message: Message) -> None:
        data = message.SerializeToString()
        if _ENCODED_REFERENCE.encode() in data and has_encoded_reference(message):
            text = "a history has references that a codec has encoded, which cannot be read here; nothing was deleted"
            raise StorageError(text)
        in_use.update(candidates.intersection(_DIGESTS.findall(data)))

    # First the schedules: what one of them starts meanwhile is a run that is listed after it
    inventory.schedules = await _read_schedules(client, mark)
    inventory.runs = await _read_runs(client, mark)
    inventory.unused = [content for content in old if content.digest.encode() not in in_use]
    return inventory


def has_encoded_reference(message: Message) -> bool:
    """True where a payload, by its metadata, is a reference that cannot be read here; a value is never one."""
    return any(_ENCODED_REFERENCE in payload.metadata for payload in payloads_of(message))


def payloads_of(message: Message) -> Iterator[Payload]:
    """All payloads in a message of the server, such as an event."""
    if isinstance(message, Payload):
        yield message
        return
    for _, part in message.ListFields():
        several = part.values() if isinstance(part, Mapping) else part if isinstance(part, Iterable) else [part]
        for one in several:
            if isinstance(one, Message):
                yield from payloads_of(one)


async def delete_unused(store: ContentStore, inventory: Inventory, cutoff: datetime) -> None:
    """Delete what is unused, and what killed writers have left before ``cutoff``."""
    for content in inventory.unused:
        await asyncio.to_thread(store.delete, content)
    await asyncio.to_thread(store.delete_leftovers, cutoff)


async def _read_schedules(client: Client, mark: Callable[[Message], None]) -> int:
    ids = [schedule.id async for schedule in await client.list_schedules(page_size=_PAGE)]
    for id_ in ids:
        with _unless_deleted():
            request = DescribeScheduleRequest(namespace=client.namespace, schedule_id=id_)
            answer = await client.workflow_service.describe_schedule(request, retry=True, timeout=_RPC_TIMEOUT)
            mark(answer)
    return len(ids)


async def _read_runs(client: Client, mark: Callable[[Message], None]) -> int:
    runs = [(run.id, run.run_id, run.status) async for run in client.list_workflows(page_size=_PAGE)]
    turns = asyncio.Semaphore(READERS)

    async def read(id_: str, run_id: str, status: object) -> None:
        handle = client.get_workflow_handle(id_, run_id=run_id)
        async with turns:
            with _unless_deleted():
                if status == WorkflowExecutionStatus.RUNNING:
                    described = await handle.describe(rpc_timeout=_RPC_TIMEOUT)
                    mark(described.raw_description)
                async for event in handle.fetch_history_events(rpc_timeout=_RPC_TIMEOUT):
                    mark(event)

    await asyncio.gather(*[read(*run) for run in runs])
    return len(runs)


@contextmanager
def _unless_deleted() -> Iterator[None]:
    """What the server has deleted meanwhile refers to nothing."""
    try:
        yield
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
