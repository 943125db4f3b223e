"""What happens to a run from outside its work: it is reset or retried, another run takes over, signals come in.

Theory of operation: has this run been reset *before the point that it is at now*? The run id alone does not say so,
since it differs from the original one all through the history, and a replay of what came before the reset has to
decide as it was decided then. But each reset gives the SDK's random generator a new seed at its own place in history.
So a seed that is not the first one, which the core makes of the original run id, shows a reset.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.exceptions import ApplicationError, is_cancelled_exception

from acts.language.errors import CallError
from acts.language.wire import CHILD_RESET, SUPERSEDED_RUN
from acts.tree.signal_records import ChildReset
from acts.workflows.payloads import encode_record, find_token

if TYPE_CHECKING:
    from temporalio.common import RawValue


_MASK: Final = 2**64 - 1
# "somepseudorandomlygeneratedbytes": where SipHash begins
_START: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def seed_of(run_id: str) -> int:
    """The first seed of a run with this ``original_execution_run_id``, and the seed after a reset to this run id.

    The arithmetic of the SDK's core: Rust's ``DefaultHasher``, which is SipHash-1-3 with keys of zero, over the UTF-8
    of the text and a byte 0xff. It cannot change: a run that is replayed would draw other numbers than before.
    """
    data = run_id.encode() + b"\xff"
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    state = _START
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        a, b, c, d = _mix((*state[:3], state[3] ^ word))
        state = (a ^ word, b, c, d)
    state = (*state[:2], state[2] ^ 0xFF, state[3])
    for _ in range(3):
        state = _mix(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _mix(state: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """One round of SipHash."""
    a, b, c, d = state
    a, c = (a + b) & _MASK, (c + d) & _MASK
    b, d = _turn(b, 13) ^ a, _turn(d, 16) ^ c
    a, c = (_turn(a, 32) + d) & _MASK, (c + b) & _MASK
    b, d = _turn(b, 17) ^ c, _turn(d, 21) ^ a
    return a, b, _turn(c, 32), d


def _turn(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK


def exact_date(moment: datetime) -> str:
    """A date in microseconds, the server's own accuracy: such texts of one clock compare like the moments."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


class Lifeline:
    """Of one run. ``token`` is that of its tree, ``signals`` counts those that it has received, ``started_at`` is
    when this run of the workflow was started, ``noted_lineage`` belongs to the last reset that the driver has noted.

    The workflow object makes it before anything else.
    """

    def __init__(self) -> None:
        self.token = ""
        self.signals = 0
        info = workflow.info()
        # Not the seed as of now: a reset at the first task has changed it
        self._first_seed = self.noted_lineage = seed_of(info.original_execution_run_id)
        self.started_at = exact_date(info.workflow_start_time)
        self._main_task: asyncio.Task[Any] | None = None
        self._superseded_by: str | None = None

    @property
    def lineage(self) -> int:
        """A number that is another one after each reset."""
        return workflow.random_seed()

    @property
    def is_superseded(self) -> bool:
        """True when another run does the work of this one."""
        return self._superseded_by is not None

    @property
    def is_repetition(self) -> bool:
        """True for a run that was reset or retried, or that continues one to which that may have happened."""
        info = workflow.info()
        is_next_of_cron = info.cron_schedule is not None and info.attempt == 1
        continues = info.continued_run_id is not None and not is_next_of_cron
        return workflow.random_seed() != self._first_seed or info.attempt > 1 or continues

    def begin(self) -> None:
        """The current task is the run's main task."""
        self._main_task = asyncio.current_task()

    def supersede(self, run_id: str) -> None:
        """End this run: ``run_id``, a run of its parent, starts its work again."""
        if self._superseded_by is None and self._main_task is not None:
            self._superseded_by = run_id
            self._main_task.cancel()

    async def report_reset(self, start: RawValue) -> None:
        """Tell the run above of a reset that no driver has noted: this run ended before it had one.

        ``start`` is what it was started with: the token of its tree is in there.
        """
        info = workflow.info()
        if self.noted_lineage == self.lineage or info.parent is None:
            return
        token = find_token(start)
        if token is None:
            return
        record = ChildReset(token=token, workflowId=info.workflow_id, firstRunId=info.first_execution_run_id)
        with contextlib.suppress(ApplicationError, CallError):  # the run above has ended, or it is no token of ours
            parent = workflow.get_external_workflow_handle(info.parent.workflow_id)
            await parent.signal(CHILD_RESET, encode_record(record))

    def ending_of(self, error: BaseException) -> ApplicationError | None:
        """How a superseded run ends, instead of as cancelled; None for every other error."""
        if self._superseded_by is None or not (
            isinstance(error, asyncio.CancelledError) or is_cancelled_exception(error)
        ):
            return None
        text = f"the run above was reset or retried; its run {self._superseded_by} starts this work again"
        return ApplicationError(text, type=SUPERSEDED_RUN, non_retryable=True)
