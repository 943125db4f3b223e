"""Tells the run above what waits here and below it: what has changed since it was told last.

A thousand instances that wait, one after another, are a thousand short reports, not a
thousand lists of all of them. A report that did not get through is told again.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow

from acts.language.wire import WAITS
from acts.tree.decisions import INNER, PendingApproval
from workflows.payloads import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# A run above that could not be told (so many signals came to it that the server took no more, or
# it was not there) is told again after so many seconds; after that, when something has changed
TELL_AGAIN_SECONDS: Final = (5.0, 60.0, 600.0)
# Waits in one report: some hundred bytes each
MOST_AT_ONCE: Final = 1_000

Key = tuple[str, str, str | None, str | None, str | None]


def key_of(wait: PendingApproval) -> Key:
    """What tells a wait from all others of a tree."""
    return (wait.workflow_id, wait.what, wait.call, wait.instance, wait.about.get(INNER))


class Teller:
    """``waits`` gives all that waits now, here and below; ``note`` takes what a person should know."""

    def __init__(self, waits: Callable[[], list[PendingApproval]], note: Callable[[str], None]) -> None:
        self._waits, self._note = waits, note
        self._told: dict[Key, PendingApproval] = {}
        self._heard: dict[Key, PendingApproval] = {}
        self._stale = False
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._telling = False

    def changed(self) -> None:
        """Something waits, or does not wait any more."""
        self._stale = True

    @property
    def due(self) -> bool:
        """True when the run above does not know yet what waits."""
        return self._stale and workflow.info().parent is not None

    def tell(self) -> None:
        """``report``, and do not wait for it."""
        self._task = asyncio.create_task(self.report())

    async def report(self) -> None:
        """Tell the run above, if something has changed; and again for a while, where it did not hear."""
        if await self._tell_all() or self._again:
            return
        self._again = True
        for seconds in TELL_AGAIN_SECONDS:
            await workflow.sleep(timedelta(seconds=seconds), summary="tell the run above again what waits")
            if await self._tell_all():
                break
        self._again = False

    async def _tell_all(self) -> bool:
        """One report after another: of two that are under way, the second may arrive first."""
        if self._telling:
            self._stale = True  # who is telling goes on
            return True
        self._telling = True
        try:
            heard = await self._tell()
            while heard and self._stale:
                heard = await self._tell()
        finally:
            self._telling = False
        return heard

    async def _tell(self) -> bool:
        """False when the run above does not know what waits here."""
        parent = workflow.info().parent
        self._stale = False
        now = {key_of(w): w for w in self._waits()}
        new = [w for k, w in now.items() if self._told.get(k) != w]
        gone = [w for k, w in self._told.items() if k not in now]
        if parent is None or not (new or gone):
            return True
        self._told = now  # at once: what changes meanwhile is told by itself
        handle = workflow.get_external_workflow_handle(parent.workflow_id)
        try:
            for at in range(0, max(len(new), len(gone)), MOST_AT_ONCE):
                part = slice(at, at + MOST_AT_ONCE)
                await handle.signal(WAITS, encode(_report(new[part], gone[part])))
        except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on
            self._note(f"{parent.workflow_id} could not be told of what waits here: {error}")
            self._unheard(new, gone)
            return False
        for wait in gone:
            self._heard.pop(key_of(wait), None)
        self._heard.update({key_of(w): w for w in new})
        return True

    def _unheard(self, new: Iterable[PendingApproval], gone: Iterable[PendingApproval]) -> None:
        for wait in new:
            if self._told.get(key_of(wait)) == wait:
                del self._told[key_of(wait)]
        for wait in gone:
            self._told.setdefault(key_of(wait), wait)

    def snapshot(self) -> list[dict[str, Any]]:
        """What the run above has heard, for the next run: a report on its way may be lost with the run that sent it."""
        return [w.to_json() for w in self._heard.values()]

    def restore(self, told: Iterable[dict[str, Any]]) -> None:
        """Take it over."""
        self._told = {key_of(w): w for w in map(PendingApproval.from_json, told)}
        self._heard = dict(self._told)
        self._stale = True


def _report(new: list[PendingApproval], gone: list[PendingApproval]) -> dict[str, Any]:
    """``{workflowId, waits: [those that are new or have changed], gone: [those that wait no more]}``."""
    keys = ("workflowId", "what", "call", "instance")
    ended = [{k: v for k, v in w.to_json().items() if k in keys} for w in gone]
    return {"workflowId": workflow.info().workflow_id, "waits": [w.to_json() for w in new], "gone": ended}
