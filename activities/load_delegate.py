"""The activity that loads a delegate's definition, a saved Request. Temporal records its result.

    {"delegate": "<name | path | http(s) URL>", "sha256"?: "<expected hash, hex>"}
    → {"definition": {config?, context, schema?}, "sha256": "<hex of the bytes>",
       "source": "<path inside its folder, or the URL>"}

A failure is an ApplicationError whose type is the reason (``acts/language/wire.py``); only ``DelegateUnavailable`` is
retryable.

There is no cache. Reading a file again costs less than a tenth of a millisecond, a model request follows each load, and
an uncached definition is never out of date. Files are read and JSON is parsed in threads, so the worker's event loop is
not blocked.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.common import RawValue

from activities.heartbeat import heartbeat
from activities.json_result import ResultTooLarge, encode_result
from acts.language.values import Json, type_name
from acts.language.wire import (
    ANONYMOUS,
    DELEGATE_CHANGED,
    DELEGATE_REFUSED,
    DELEGATE_TOO_LARGE,
    LOAD_DELEGATE,
    MAX_PAYLOAD_BYTES,
)
from delegates.definition import read_definition
from delegates.definition_files import read_file
from delegates.load_errors import load_error, quote
from delegates.sources import PORTS, DelegateSources

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from delegates.web import Resolve

# At least two letters: one is the drive of a Windows path, and no scheme has one
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")


class Loader:
    """Loads from the sources that the worker's settings name. ``resolve``, ``tls`` and the deadline are for tests."""

    def __init__(
        self,
        sources: DelegateSources,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        deadline_seconds: float | None = None,
    ) -> None:
        self._sources = sources
        self._resolve = resolve
        self._tls = tls
        self._deadline_seconds = deadline_seconds

    def activity(self) -> Callable[..., Any]:
        """The activity ``acts.delegate``."""

        @activity.defn(name=LOAD_DELEGATE)
        async def load_delegate(request: Any) -> RawValue:
            async with heartbeat():
                result = await self.load(request)
            try:
                return encode_result(result)
            except ResultTooLarge as error:
                text = f'the delegate "{result["source"]}" takes {error.size:,} bytes to record'
                raise load_error(DELEGATE_TOO_LARGE, f"{text}; at most {MAX_PAYLOAD_BYTES:,} are allowed") from error

        return load_delegate

    async def load(self, request: Json) -> dict[str, Any]:
        """See the top of the file.

        Raises:
            ApplicationError: one of the ``Delegate…`` types.
        """
        name, expected = _read_load_request(request)
        data, source = await (self._fetch(name) if _is_url(name) else self._read_file(name))
        sha256 = hashlib.sha256(data).hexdigest()
        if expected not in (None, sha256):
            text = f'the delegate "{source}" has changed: sha256 {expected} was expected, and it is {sha256}'
            raise load_error(DELEGATE_CHANGED, text)
        definition = await asyncio.to_thread(read_definition, data, sha256, source)
        return {"definition": definition, "sha256": sha256, "source": source}

    async def _read_file(self, name: str) -> tuple[bytes, str]:
        return await asyncio.to_thread(read_file, self._sources.all_folders, name)

    async def _fetch(self, url: str) -> tuple[bytes, str]:
        web = await asyncio.to_thread(_import_web)
        if self._tls is None:
            self._tls = await asyncio.to_thread(web.httpx2.create_ssl_context)  # reads all certificates of the system
        deadline = web.DEADLINE_SECONDS if self._deadline_seconds is None else self._deadline_seconds
        resolve = self._resolve or web.system_addresses
        return await web.fetch(url, self._sources, resolve=resolve, tls=self._tls, deadline_seconds=deadline), url


def _import_web() -> Any:
    """The HTTP part, imported when a URL is first loaded: it takes a tenth of a second."""
    from delegates import web

    return web


def _read_load_request(request: Json) -> tuple[str, str | None]:
    """The delegate and the expected hash."""
    if not isinstance(request, dict):
        text = f'{LOAD_DELEGATE} takes {{"delegate", "sha256"?}}, not {type_name(request)}'
        raise load_error(DELEGATE_REFUSED, text)
    name, expected = request.get("delegate"), request.get("sha256")
    if not isinstance(name, str) or not name:
        actual = type_name(name) if name != "" else "an empty string"
        raise load_error(DELEGATE_REFUSED, f"a delegate is a name, a path or a URL, not {actual}")
    if name == ANONYMOUS:
        raise load_error(DELEGATE_REFUSED, f'"{ANONYMOUS}" has no definition to load: it is a delegate without one')
    if expected is not None and not (isinstance(expected, str) and _SHA256.fullmatch(expected)):
        raise load_error(DELEGATE_REFUSED, f"sha256 is 64 hex digits, not {quote(expected)}")
    return name, expected.lower() if expected else None


def _is_url(name: str) -> bool:
    """True for a URL of a scheme that is allowed; any other scheme is refused."""
    match = _SCHEME.match(name)
    if match is None:
        return False
    if match.group(1).lower() in PORTS:
        return True
    text = f"the delegate {quote(name)} has the scheme {quote(match.group(1))}; allowed: http, https"
    raise load_error(DELEGATE_REFUSED, f"{text}, or a name or path without any")
