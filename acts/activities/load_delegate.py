"""The activity that loads a delegate's definition, a saved Request. Temporal records its result.

    {"delegate": "<name | path | http(s) URL>", "sha256"?: "<expected hash, hex>"}
    → {"definition": {config?, context, schema?}, "sha256": "<hex of the bytes>",
       "source": "<path inside its folder, or the URL>"}

A failure is an ApplicationError whose type is the reason (``acts/language/wire.py``); only ``DelegateUnavailable`` is
retryable.

There is no cache: reading a file again costs less than a tenth of a millisecond, and a model request follows each load.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import re
from collections.abc import Callable
from typing import Any, Final

from temporalio import activity
from temporalio.common import RawValue

from acts.activities.engine_activities import ResultTooLarge, encode_result, heartbeat
from acts.delegates.definitions import load_error, read_definition, read_file
from acts.delegates.sources import PORTS, SHIPPED, DelegateSources, quote
from acts.language.wire import (
    DELEGATE_CHANGED,
    DELEGATE_REFUSED,
    DELEGATE_TOO_LARGE,
    LOAD_DELEGATE,
    MAX_PAYLOAD_BYTES,
)

# At least two letters: one is the drive of a Windows path, and no scheme has one
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


class Loader:
    """Loads from the sources that the worker's settings name. ``fetch_options`` are for tests (see ``web.fetch``)."""

    def __init__(self, sources: DelegateSources, **fetch_options: Any) -> None:
        self._sources, self._fetch_options = sources, fetch_options

    def activity(self) -> Callable[..., Any]:
        """The activity ``acts.delegate``."""

        @activity.defn(name=LOAD_DELEGATE)
        async def load_delegate(request: dict[str, Any]) -> RawValue:
            async with heartbeat():
                result = await self.load(request)
            try:
                return encode_result(result)
            except ResultTooLarge as error:
                text = f'the delegate "{result["source"]}" takes {error.size:,} bytes to record'
                raise load_error(DELEGATE_TOO_LARGE, f"{text}; at most {MAX_PAYLOAD_BYTES:,} are allowed") from error

        return load_delegate

    async def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """See the top of the file. Raises ApplicationError: one of the ``Delegate…`` types."""
        name, expected = request["delegate"], str(request.get("sha256") or "").lower()
        scheme = _SCHEME.match(name)
        if scheme is None:
            data, source = await asyncio.to_thread(read_file, (*self._sources.folders, SHIPPED), name)
        else:
            if scheme[1].lower() not in PORTS:
                text = f"the delegate {quote(name)} has the scheme {quote(scheme[1])}; allowed: http, https"
                raise load_error(DELEGATE_REFUSED, f"{text}, or a name or path without any")
            # The HTTP part is imported when a URL is first loaded: it takes a tenth of a second
            web = await asyncio.to_thread(importlib.import_module, "acts.delegates.web")
            data, source = await web.fetch(name, self._sources, **self._fetch_options), name
        sha256 = hashlib.sha256(data).hexdigest()
        if expected not in ("", sha256):
            text = f'the delegate "{source}" has changed: sha256 {quote(expected)} was expected, and it is {sha256}'
            raise load_error(DELEGATE_CHANGED, text)
        definition = await asyncio.to_thread(read_definition, data, source)
        return {"definition": definition, "sha256": sha256, "source": source}
