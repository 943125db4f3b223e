"""Latent Calls that begin together: the first request alone writes the prompt cache, the others read what it wrote.

Requests that are sent at once all write what they share, each at 1.25 times its price; one that is sent when the answer
to the first begins reads it at a tenth (``benchmarks/cache.py`` has the figures). So requests that share a beginning
wait for the first of them: on this worker, and no longer than ``MAX_WAIT_SECONDS``. A beginning that is too short for a
cache, and a server that is not known to have one, is waited for by nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from activities.providers.interface import ModelError, ModelRequest, ModelResponse
from activities.providers.openai_turns import is_openai_model
from activities.providers.provider_keywords import compact_json
from activities.providers.select import find_model
from acts.planner.request_estimate import bytes_per_token

# A model begins to answer after some seconds; one that takes longer is not waited for
MAX_WAIT_SECONDS: Final = 20.0
# Entries live for five minutes after their last use
_WARM_SECONDS: Final = 240.0
# Providers cache nothing shorter than 512 to 4,096 tokens, by model: half of the models take this much
_MIN_TOKENS: Final = 2_048
_MAX_PREFIXES: Final = 1_000

Send = Callable[[ModelRequest], Awaitable[ModelResponse]]


@dataclass
class _Prefix:
    """A shared beginning: ``begun`` when an answer has begun, or the first request has failed."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    last_use: float = 0.0


_PREFIXES: Final[weakref.WeakKeyDictionary[Any, dict[bytes, _Prefix]]] = weakref.WeakKeyDictionary()


async def send_warm(model: str, request: ModelRequest, send: Send) -> ModelResponse:
    """The answer to a request that may share its beginning with others."""
    key = _key(model, request)
    if key is None:
        return await send(request)
    prefixes = _PREFIXES.setdefault(asyncio.get_running_loop(), {})
    prefix, now = prefixes.get(key), time.monotonic()
    if prefix is not None and (not prefix.begun.is_set() or now - prefix.last_use < _WARM_SECONDS):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(prefix.begun.wait(), MAX_WAIT_SECONDS)
        prefix.last_use = time.monotonic()
        return await send(request)
    prefix = prefixes[key] = _Prefix()
    while len(prefixes) > _MAX_PREFIXES:
        prefixes.pop(next(iter(prefixes)))
    return await _send_first(prefix, prefixes, key, replace(request, on_begin=prefix.begun.set), send)


async def _send_first(
    prefix: _Prefix, prefixes: dict[bytes, _Prefix], key: bytes, request: ModelRequest, send: Send
) -> ModelResponse:
    try:
        response = await send(request)
    except BaseException:
        if not prefix.begun.is_set() and prefixes.get(key) is prefix:
            del prefixes[key]  # it wrote nothing: of the next requests one is the first again
        raise
    finally:
        prefix.last_use = time.monotonic()
        prefix.begun.set()
    return response


def _key(model: str, request: ModelRequest) -> bytes | None:
    """What identifies the beginning that a cache would keep; None where there is none."""
    blocks = [block for turn in request.turns for block in turn.blocks]
    marked = [i for i, block in enumerate(blocks) if block.is_cached]
    if not marked:
        return None
    try:
        address = find_model(model)
    except ModelError:
        return None
    texts = [*(b.text for b in request.system), *(b.text for b in blocks[: marked[-1] + 1])]
    size = sum(len(text.encode(errors="replace")) for text in texts)
    has_cache = address.provider == "anthropic" or is_openai_model(address.name)
    if not has_cache or size < _MIN_TOKENS * bytes_per_token(model):
        return None
    # The schema comes before the texts: requests with different ones share nothing
    digest = hashlib.sha256(compact_json([model, request.schema]).encode(errors="replace"))
    for text in texts:
        digest.update(b"\0" + text.encode(errors="replace"))
    return digest.digest()
