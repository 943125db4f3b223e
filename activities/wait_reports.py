"""Tells a run, and the root of its tree, that it waits for a model: people see it in ``status`` and in the Web UI.

Laws of this file: a report is a hint; one that is lost costs nothing. It is a signal, which costs a few events. So
short waits are not reported, and of the requests of a run that wait at the same time one worker reports one.
"""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.service import RPCError

from acts.language.strict_json import write_json
from acts.language.wire import MODEL_WAIT
from acts.tree.instance_payload import TYPE_KEY
from acts.tree.signal_records import ModelWait
from telemetry import metrics

if TYPE_CHECKING:
    from temporalio.client import Client

# Seconds of a wait that somebody who looks would wonder about
LEAST_SECONDS: Final = 5.0
# Runs whose last report is remembered
_MAX_RUNS: Final = 1_000

_reported_until: Final[dict[tuple[str, str], float]] = {}


async def report_wait(request: dict[str, Any], model: str, reason: str, seconds: float) -> bool:
    """Report that the next attempt is in so many seconds; True where a report was made for it."""
    info = activity.info()
    now, key = time.time(), (info.workflow_run_id or "", model)
    if (meters := metrics.meters()) is not None:
        meters.add(metrics.MODEL_WAITS, model=model, reason=reason)
        meters.record(metrics.MODEL_WAIT_SECONDS, seconds, model=model)
    if seconds < LEAST_SECONDS:
        return False
    if _reported_until.get(key, 0.0) >= now + seconds / 2:
        return True
    _reported_until[key] = now + seconds
    while len(_reported_until) > _MAX_RUNS:
        del _reported_until[next(iter(_reported_until))]
    until = datetime.fromtimestamp(now + seconds, UTC).isoformat(timespec="seconds")
    await _send(request, {"model": model, "reason": reason, "seconds": round(seconds, 1), "nextTry": until})
    return True


async def report_end(request: dict[str, Any]) -> None:
    """Report that the wait is over; the run itself sees it by the result."""
    await _send(request, {"seconds": 0}, is_own=False)


async def _send(request: dict[str, Any], fields: dict[str, Any], *, is_own: bool = True) -> None:
    info, root = activity.info(), request.get("root")
    own = info.workflow_id or ""
    record = ModelWait(workflowId=own, token=request.get("token", ""), **fields)
    payload = Payload(
        metadata={"encoding": b"json/plain", TYPE_KEY: ModelWait.__name__.encode()}, data=write_json(record.to_json())
    )
    targets = [(own, info.workflow_run_id)] if is_own else []
    targets += [(root, None)] if root else []
    client: Client = activity.client()
    for id_, run_id in targets:
        with contextlib.suppress(RPCError):
            await client.get_workflow_handle(id_, run_id=run_id).signal(MODEL_WAIT, RawValue(payload))
