"""What one start command sends, ready and measured, before anything is sent.

``tasks_in_flight`` and ``child_tasks`` prepare it; ``start_queue`` decides when it is sent, by its size. Nothing here
sends or waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from acts.machines.run_commands import (
    AskOutput,
    AskSolution,
    StartActivity,
    StartBackground,
    StartBatch,
    StartDelegate,
    StartInstances,
    StartPlanRun,
)
from workflows.runtime.payload_limits import payload_bytes, recorded_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.common import RawValue

StartCommand = (
    StartActivity
    | AskOutput
    | AskSolution
    | StartDelegate
    | StartInstances
    | StartBackground
    | StartPlanRun
    | StartBatch
)
# What a command and its event take beside their payloads: ids, types, a label, timeouts, a retry policy
COMMAND_BYTES: Final = 384


@dataclass(frozen=True, slots=True)
class Start:
    """What is ready to be sent. ``size`` is what it adds to the message of its workflow task, in bytes.

    ``source`` is what its result is expected to be like. A local one adds nothing before it ends. ``held`` are the
    bytes of large arguments, which stay in memory until the result is there.
    """

    source: str
    size: int
    send: Callable[[], None]
    is_local: bool = False
    held: int = 0


def command_bytes(arg: RawValue) -> int:
    """What a command with this argument adds to history."""
    return recorded_bytes(payload_bytes(arg)) + COMMAND_BYTES
