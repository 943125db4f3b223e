"""A webhook that is told which decisions are pending or escalated, which runs failed, and which spend their budget.

Nothing of it is in a history, and no run knows of it: each round lists waits and failed runs, as ``acts pending``
and ``acts list`` do, and posts what is new since the last one, in one request. What a receiver has not taken (an answer
of 2xx) is sent again by the next round. A process that begins knows nothing and tells all that waits. So each notice is
sent at least once; the same one has the same ``id`` always, and a receiver drops what it has. No notice has a value of
a run: names, dates and ids alone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote as urlquote

from acts.client.client_errors import ClientError
from acts.client.run_reader import ROOTS, RunReader, iso_text, list_runs, quote, read_pending
from acts.language.config import Budget
from acts.language.errors import clean
from acts.tree.decisions import ESCALATED, WHO
from acts.tree.wire_format import digest

if TYPE_CHECKING:
    from temporalio.client import Client

Notice = dict[str, Any]

# Notices of one request: what is left follows in the next round. A line of text has some 200 characters
MAX_NOTICES: Final = 500
MAX_LINES: Final = 20
# Runs whose budgets are looked at in one round, the latest: a query each
MAX_BUDGETS: Final = 100
# Parts of a budget of which somebody is told
_PARTS: Final = (0.8, 1.0)
_POST_SECONDS: Final = 10.0
_OF_A_WAIT: Final = ("call", "instance", "what", "since", "deadline", WHO, ESCALATED)


@dataclass
class Notifier:
    """``link`` is the address of a run's page, with ``{run}`` in it; failures count that closed after ``since``."""

    client: Client
    url: str
    since: datetime
    secret: str = ""
    link: str = ""
    _posted: set[str] = field(default_factory=set)
    _is_complete: bool = True  # the last listing: what it lacks is over
    _budgets: dict[str, Budget] = field(default_factory=dict)  # by run id

    async def round(self) -> int:
        """Post what is new; returns how many notices. Raises ClientError: the server or the receiver is away."""
        notices = [notice async for notice in self._collect()]
        new = [notice for notice in notices if notice["id"] not in self._posted][:MAX_NOTICES]
        if new:
            await self._post(new)
        self._posted |= {notice["id"] for notice in new}
        if self._is_complete:
            self._posted &= {notice["id"] for notice in notices}
        return len(new)

    async def _collect(self) -> AsyncIterator[Notice]:
        report = await read_pending(client=self.client)
        self._is_complete = not (report.unanswered or report.unread)
        for run, waits in report.approvals:
            for wait in waits:
                about = {key: value for key, value in wait.to_json().items() if key in _OF_A_WAIT}
                key = [*wait.key, wait.version, wait.subject, wait.since]
                who = f" (for {', '.join(map(str, wait.about[WHO]))})" if WHO in wait.about else ""
                yield self._notice("waits", run, f"{wait} waits{who}", key, about)
                if steps := wait.about.get(ESCALATED):
                    yield self._notice("escalated", run, f"{wait} still waits{who}", [*key, steps], about)
        ends = f"ExecutionStatus IN ('Failed', 'TimedOut', 'Terminated') AND CloseTime >= {quote(iso_text(self.since))}"
        async for row in list_runs(self.client, f"{ROOTS} AND {ends}", 10 * MAX_NOTICES):
            yield self._notice("failed", row["id"], f"{row['id']} {row['phase']}", [row["runId"]], {})
        rows = [r async for r in list_runs(self.client, f"{ROOTS} AND ExecutionStatus = 'Running'", MAX_BUDGETS)]
        self._budgets = {r["runId"]: self._budgets[r["runId"]] for r in rows if r["runId"] in self._budgets}
        for row in rows:
            if "model" in row:
                async for notice in self._budget(row):
                    yield notice

    async def _budget(self, row: Mapping[str, Any]) -> AsyncIterator[Notice]:
        run = RunReader(self.client, row["id"], row["runId"])
        if row["runId"] not in self._budgets:
            self._budgets[row["runId"]] = Budget()
            with suppress(LookupError, TypeError, ValueError):  # no worker has judged it yet
                self._budgets[row["runId"]] = Budget.model_validate((await run.request())["config"]["budget"])
        budget = self._budgets[row["runId"]]
        if budget.requests is budget.tokens is budget.cost is None:
            return
        usage = (await run.status() or {}).get("usage") or {}
        tokens = usage.get("inputTokens", 0) + usage.get("outputTokens", 0)
        spent = {"requests": usage.get("requests", 0), "tokens": tokens, "cost": usage.get("cost") or 0}
        for name, amount in spent.items():
            limit = getattr(budget, name)
            for part in _PARTS if limit else ():
                if amount >= part * limit:
                    text = f"{row['id']} has spent {part:.0%} of its budget: {amount:g} of {limit:g} {name}"
                    yield self._notice("budget", row["id"], text, [row["runId"], name, part], {"part": part})

    def _notice(self, kind: str, run: str, text: str, key: list[Any], about: Mapping[str, Any]) -> Notice:
        notice = {"id": digest([kind, *key])[:32], "kind": kind, "run": run, "text": clean(text, 300), **about}
        return notice | ({"link": self.link.replace("{run}", urlquote(run, ""))} if self.link else {})

    async def _post(self, notices: list[Notice]) -> None:
        import httpx2  # a tenth of a second, for this alone

        lines = [f"{n['text']} {n.get('link', '')}".strip() for n in notices[:MAX_LINES]]
        lines += [f"… and {len(notices) - MAX_LINES} more"] if len(notices) > MAX_LINES else []
        body = json.dumps({"text": "\n".join(lines), "notices": notices}, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", **signature(self.secret, body, int(time.time()))}
        try:
            async with httpx2.AsyncClient(timeout=_POST_SECONDS, follow_redirects=False) as http:
                answer = await http.post(self.url, content=body, headers=headers)
        except httpx2.HTTPError as error:
            raise ClientError(f"the receiver of notices does not answer: {type(error).__name__}") from None
        if not answer.is_success:
            hint = "what it takes, it answers with 2xx; the rest is sent again"
            raise ClientError(f"the receiver of notices answers {answer.status_code}", hint)


def signature(secret: str, body: bytes, seconds: int) -> dict[str, str]:
    """The headers that prove who sent a body, and when: HMAC-SHA256 of ``<seconds>.<body>``; none without a secret."""
    if not secret:
        return {}
    value = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Acts-Timestamp": str(seconds), "Acts-Signature": f"sha256={value}"}
