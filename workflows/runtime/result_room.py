"""Whether the history of a run has room for a large result, asked by the worker that has the result.

The run cannot prevent it: by the time it learns that sixty Calls have returned 1.5 MB each, the server has
terminated it. So an Activity with a large result asks the server how large the history is, and fails its Call
where the result does not fit. Several worker processes may ask at the same time and overshoot by what they have
in hand; below the server's limit are 7 MB for that.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from acts.language.wire import MAX_PAYLOAD_BYTES, MAX_STORED_BYTES, RESULT_TOO_LARGE, STORED_ABOVE_BYTES
from acts.machines.lifetime import END_BYTES, UNSEEN_RESULT_BYTES

if TYPE_CHECKING:
    from temporalio.activity import Info
    from temporalio.client import Client

# A result that fits leaves the run below its own end
MAX_HISTORY_BYTES: Final = END_BYTES - 1_000_000
# A size is trusted for so long, as long as the history is less than half full
TRUST_SECONDS: Final = 1.0
_HINT: Final = "keep large data outside and return a reference to it"
_HINT_WITHOUT_STORAGE: Final = f"set ACTS_STORAGE for the worker and its clients, or {_HINT}"
# Runs whose sizes are remembered
MAX_RUNS: Final = 10_000


@dataclass(slots=True)
class _Run:
    """``bytes`` of a history as the server knew them at ``asked_at``, with the large results returned since."""

    bytes: int = 0
    asked_at: float = float("-inf")


class ResultRoom:
    """The sizes of the histories that this worker returns large results to."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        # Large values travel as references
        self._is_stored = client.data_converter.external_storage is not None

    async def require(self, info: Info, size: int) -> None:
        """Reserve room for a result of ``size`` bytes.

        Raises:
            ApplicationError: there is none, or the result does not fit into one payload.
        """
        if size <= UNSEEN_RESULT_BYTES or info.workflow_run_id is None:
            return
        limit, hint = (MAX_STORED_BYTES, _HINT) if self._is_stored else (MAX_PAYLOAD_BYTES, _HINT_WITHOUT_STORAGE)
        if size > limit:
            text = f"the result has {size:,} bytes; at most {limit:,} are recorded: {hint}"
            raise ApplicationError(text, type=RESULT_TOO_LARGE, non_retryable=True)
        if self._is_stored and size >= STORED_ABOVE_BYTES:
            return  # history has a reference
        run = self._runs.setdefault(info.workflow_run_id, _Run())
        self._runs.move_to_end(info.workflow_run_id)
        if len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        is_fresh = time.monotonic() - run.asked_at < TRUST_SECONDS
        if not (is_fresh and run.bytes + size <= MAX_HISTORY_BYTES // 2):
            now = await self._history_bytes(info)
            run.bytes = max(run.bytes, now)  # read after the wait: others have reserved meanwhile
            run.asked_at = time.monotonic()
        if run.bytes + size > MAX_HISTORY_BYTES:
            used = f"the history of the run has {run.bytes:,} of at most {MAX_HISTORY_BYTES:,}"
            text = f"the result has {size:,} bytes, and {used}"
            raise ApplicationError(f"{text}: {hint}", type=RESULT_TOO_LARGE, non_retryable=True)
        run.bytes += size

    async def _history_bytes(self, info: Info) -> int:
        """0 where the server does not answer: the result is worth more than the check."""
        try:
            handle = self._client.get_workflow_handle(str(info.workflow_id), run_id=info.workflow_run_id)
            described = await handle.describe()
        except RPCError:
            return 0
        return described.raw_description.workflow_execution_info.history_size_bytes
