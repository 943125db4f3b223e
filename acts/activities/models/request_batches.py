"""Requests that wait at the provider at half the price: Anthropic's Message Batches, and OpenAI's Batch API.

A request joins those that come within moments, of whatever run; all that is then kept of it is its ``BatchItem``. No
slot waits: each attempt of its activity asks whether the batch has ended. Of those that ask at about the same time one
makes a request, and reads the outcomes, for all.

Providers know no key by which a batch that is submitted twice would be one. What has been submitted and was not noted,
since the worker died in that moment, is submitted, and paid for, again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from acts.activities.models import select
from acts.activities.models.endpoints import Endpoint
from acts.activities.models.interface import BatchItem, ModelError, ModelRequest, ModelResponse
from acts.activities.models.schema import SentSchema
from acts.language import wire
from acts.language.config import BATCH_PRICE

# A hundred Calls that become ready together start within a second; each holds a slot meanwhile
WINDOW_SECONDS: Final = 2.0
# In memory at a time; far below what the providers take (50,000 requests, 200 MB)
MAX_BYTES: Final = 32 * 1024 * 1024
# Between two questions whether a batch has ended: the least, the most, and the part of its age. Most end within an hour
FIRST_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 300.0
PART_OF_AGE: Final = 1 / 8
# Providers end a batch after 24 h
MAX_AGE_SECONDS: Final = 26 * 3600.0
# What is known of a batch, with the outcomes that other workers may have read, is kept for so long
KEPT_SECONDS: Final = 4 * LONGEST_SECONDS
# What a server says that has no such path
_NO_PATH: Final = (404, 405, 501)


@dataclass
class _OpenBatch:
    """A batch that still takes requests; ``task`` submits it and returns its id."""

    key: Any
    bodies: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    task: asyncio.Task[str] | None = None

    async def submit(self, adapter: Any, endpoint: Endpoint, model: str) -> str:
        await asyncio.sleep(WINDOW_SECONDS)
        if _open.get(self.key) is self:
            del _open[self.key]
        try:
            with _reading_failures(adapter, endpoint, model):
                client = adapter.get_client(endpoint, model)
                return str(await adapter.create_batch(client, self.bodies)) if self.bodies else ""
        except ModelError as error:
            if (status := error.details.get("status")) not in _NO_PATH:
                raise
            text = f"{endpoint.name} ({model}): this server has no batches ({status}): leave out config.models.batch"
            raise ModelError("modelBadRequest", text, retryable=False) from None


@dataclass
class _KnownBatch:
    """What the last question, at ``asked_at`` (monotonic), came to: no ``outcomes``, or those that nobody has read."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked_at: float = float("-inf")
    outcomes: dict[str, Any] | None = None
    default: Any = None
    error: ModelError | None = None


_open: Final[dict[Any, _OpenBatch]] = {}
_batches: Final[dict[str, _KnownBatch]] = {}


async def submit(model: str, request: ModelRequest, name: str) -> BatchItem:
    """Submit a request with those that come within moments; ``name`` is its own. Raises ModelError."""
    adapter, endpoint, own = await select.find_adapter(model)
    _, body = await adapter.prepare(replace(request, model=own), None, endpoint)
    item, size = hashlib.sha256(name.encode()).hexdigest()[:40], len(json.dumps(body))
    key = asyncio.get_running_loop(), model
    batch = _open.get(key)
    if batch is None or batch.task is None or batch.size + size > MAX_BYTES:
        batch = _open[key] = _OpenBatch(key)
        batch.task = asyncio.create_task(batch.submit(adapter, endpoint, own))
    batch.bodies[item] = body
    batch.size += size
    try:
        id_ = await asyncio.shield(batch.task)
    except asyncio.CancelledError:
        batch.bodies.pop(item, None)
        raise
    except ModelError as error:
        raise replace(error) from None  # each has its own, with the pause before its next attempt
    return BatchItem(model, id_, item, time.time())


def waiting(item: BatchItem) -> ModelError:
    """The end of an attempt that waits: its pause, and what people read. After 26 hours it is final."""
    age = time.time() - item.since
    if age > MAX_AGE_SECONDS:
        return ModelError("modelTimeout", f"{item.model}: the batch {item.batch} did not end", retryable=False)
    pause = min(max(FIRST_SECONDS, age * PART_OF_AGE), LONGEST_SECONDS)
    text = f"{item.model}: the request waits in the batch {item.batch}"
    return ModelError(wire.BATCHED, text, retryable=True, retryAfter=pause)


async def check_ended(item: BatchItem) -> _KnownBatch:
    """What is known of a batch that has ended. Raises ModelError: it has not (``BATCHED``), or its provider does not
    say.
    """
    if (batch := _batches.get(item.batch)) is None:
        batch = _batches[item.batch] = _KnownBatch()
        asyncio.get_running_loop().call_later(KEPT_SECONDS, _batches.pop, item.batch, None)
    pause = waiting(item)
    async with batch.lock:
        now = time.monotonic()
        if batch.outcomes is None and now - batch.asked_at >= (pause.retryAfter or 0.0) / 2:
            batch.asked_at, batch.error = now, None
            try:
                batch.outcomes, batch.default = await _read(item) or (None, None)
            except ModelError as error:
                batch.error = error
    if batch.error is not None:
        raise replace(batch.error)
    if batch.outcomes is None:
        raise pause
    return batch


async def _read(item: BatchItem) -> tuple[dict[str, Any], Any] | None:
    adapter, endpoint, own = await select.find_adapter(item.model)
    with _reading_failures(adapter, endpoint, own):
        outcomes: tuple[dict[str, Any], Any] | None = await adapter.read_batch(
            adapter.get_client(endpoint, own), item.batch
        )
    return outcomes


def _reading_failures(adapter: Any, endpoint: Endpoint, model: str, stream: Any = None) -> AbstractContextManager[None]:
    from acts.activities.models import adapters  # it imports a client of HTTP

    # What is no request to a model has its failures by a bare stream, too
    bare = ModelRequest(model, (), (), schema=True), None, SentSchema("words", schema=True)
    return adapters.reading_failures(stream or adapters.ResponseStream(endpoint, *bare), adapter.sdk)


async def take_outcome(item: BatchItem) -> Any:
    """The provider's word on a request; None: it has none. Raises ModelError like ``check_ended``."""
    batch = await check_ended(item)
    outcomes, default = batch.outcomes or {}, batch.default
    if item.item not in outcomes and default is None:  # an attempt before, which was lost, took it
        outcomes, default = await _read(item) or ({}, None)
    return outcomes.pop(item.item, default)


async def read_answer(item: BatchItem, request: ModelRequest, outcome: Any) -> ModelResponse:
    """The answer to a request by its outcome. Raises ModelError: it failed, or there is none."""
    adapter, endpoint, own = await select.find_adapter(item.model)
    named = replace(request, model=own)

    async def read() -> ModelResponse:
        stream, _ = await adapter.prepare(named, None, endpoint)
        stream.price = BATCH_PRICE
        if outcome is None:
            raise stream.error("modelCut", f"the batch {item.batch} ended without it")
        with _reading_failures(adapter, endpoint, own, stream):
            adapter.read_outcome(stream, outcome)
        response: ModelResponse = stream.response()
        return response

    return await select.observe(item.model, endpoint.provider, named, read())
