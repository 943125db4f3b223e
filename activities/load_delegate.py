"""The activity that loads a saved Request for a delegate; Temporal records what it returns.

    {"delegate": "<name | path | http(s) URL>", "sha256"?: "<hex that the caller expects>"}
    → {"definition": {config?, context, schema?}, "sha256": "<hex of the bytes>",
       "source": "<path inside its folder, or the URL>"}

What cannot be loaded is an ApplicationError, its type saying why (``acts/language/wire.py``); only
``DelegateUnavailable`` is worth another attempt.

There is no cache. A file costs less than a tenth of a millisecond to read again, a model
request follows each load anyway, and what is not kept is never out of date. Files are read
and JSON is parsed in threads, so that the worker's event loop goes on.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from activities.heartbeat import heartbeat
from acts.language.values import Json, type_name
from acts.language.wire import ANONYMOUS, DELEGATE_CHANGED, DELEGATE_REFUSED, DELEGATE_TOO_LARGE, LOAD_DELEGATE
from delegates.definition import read_definition
from delegates.definition_files import read_file
from delegates.load_errors import failed, shown
from delegates.sources import PORTS, DelegateSources

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from delegates.web import Resolve

# What one payload may hold (2 MiB), less what wraps it. Numbers may grow as they are written again: 1e15 is one
MAX_RESULT_BYTES: Final = 2 * 1024 * 1024 - 64 * 1024

# Two letters at least: one is the drive of a Windows path, and no scheme has one
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")


class Loader:
    """Loads from the places that the settings name. ``resolve``, ``tls`` and the deadline are for tests."""

    def __init__(
        self,
        places: DelegateSources,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        deadline_seconds: float | None = None,
    ) -> None:
        self._places = places
        self._resolve = resolve
        self._tls = tls
        self._deadline_seconds = deadline_seconds

    def activity(self) -> Callable[..., Any]:
        """The activity ``acts.delegate``."""

        @activity.defn(name=LOAD_DELEGATE)
        async def load_delegate(asked: Any) -> RawValue:
            async with heartbeat():
                return _payload(await self.load(asked))

        return load_delegate

    async def load(self, asked: Json) -> dict[str, Any]:
        """See the top of the file.

        Raises:
            ApplicationError: one of the ``Delegate…`` types.
        """
        name, expected = _read(asked)
        data, source = await (self._fetched(name) if _is_url(name) else self._read_file(name))
        sha256 = hashlib.sha256(data).hexdigest()
        if expected not in (None, sha256):
            text = f'the delegate "{source}" has changed: sha256 {expected} was expected, and it is {sha256}'
            raise failed(DELEGATE_CHANGED, text)
        definition = await asyncio.to_thread(read_definition, data, sha256, source)
        return {"definition": definition, "sha256": sha256, "source": source}

    async def _read_file(self, name: str) -> tuple[bytes, str]:
        return await asyncio.to_thread(read_file, self._places.all_folders, name)

    async def _fetched(self, url: str) -> tuple[bytes, str]:
        web = await asyncio.to_thread(_web)
        if self._tls is None:
            self._tls = await asyncio.to_thread(web.httpx2.create_ssl_context)  # reads all certificates of the system
        deadline = web.DEADLINE_SECONDS if self._deadline_seconds is None else self._deadline_seconds
        resolve = self._resolve or web.system_addresses
        return await web.fetch(url, self._places, resolve=resolve, tls=self._tls, deadline_seconds=deadline), url


def _web() -> Any:
    """The part that speaks HTTP: imported when a URL is first loaded, since it takes a tenth of a second."""
    from delegates import web

    return web


def _read(asked: Json) -> tuple[str, str | None]:
    """The delegate and the expected hash."""
    if not isinstance(asked, dict):
        text = f'{LOAD_DELEGATE} is asked with {{"delegate", "sha256"?}}, not with {type_name(asked)}'
        raise failed(DELEGATE_REFUSED, text)
    name, expected = asked.get("delegate"), asked.get("sha256")
    if not isinstance(name, str) or not name:
        found = type_name(name) if name != "" else "an empty string"
        raise failed(DELEGATE_REFUSED, f"a delegate is a name, a path or a URL, not {found}")
    if name == ANONYMOUS:
        raise failed(DELEGATE_REFUSED, f'"{ANONYMOUS}" has no definition to load: it is a delegate without one')
    if expected is not None and not (isinstance(expected, str) and _SHA256.fullmatch(expected)):
        raise failed(DELEGATE_REFUSED, f"sha256 is 64 hex digits, not {shown(expected)}")
    return name, expected.lower() if expected else None


def _is_url(name: str) -> bool:
    """True for a URL that may be fetched; a scheme of another kind is refused."""
    found = _SCHEME.match(name)
    if found is None:
        return False
    if found.group(1).lower() in PORTS:
        return True
    text = f"the delegate {shown(name)} has the scheme {shown(found.group(1))}; allowed: http, https"
    raise failed(DELEGATE_REFUSED, f"{text}, or a name or path without any")


def _payload(result: dict[str, Any]) -> RawValue:
    """The result as Temporal records it: keys in the author's order, and letters as themselves.

    The SDK's converter would sort the keys of schemas, and write a letter of Cyrillic in six bytes.
    """
    data = json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()
    if len(data) > MAX_RESULT_BYTES:
        found = f'the delegate "{result["source"]}" takes {len(data):,} bytes to record'
        raise failed(DELEGATE_TOO_LARGE, f"{found}; at most {MAX_RESULT_BYTES:,} are allowed")
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))
