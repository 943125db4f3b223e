"""What a run does after it was reset: the runs below it may know more than it does, or may be gone.

Theory of operation. A reset gives a run the history up to a point, and of what came later only the signals to the
run that the reset started from. If that was not the latest run, what the runs below said to the latest is lost, and
the server has cancelled some of them. Their results may have gone to the run that is no more, and do not come again.

So a run that was reset asks each run below it to say again what waits there and what it needs (``Resync``), and each
passes that on to those below. A child that cannot be reached has ended: after ``GRACE_SECONDS``, in which its result
may still come, it is started again, and its Calls have the same ``_id``s. A run that is about to end, since another
run started it, still takes the message; so it is sent again after some time.

Laws: no clock, no I/O; whether a run was reset, the driver says (``RunReset``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.wire import RESYNC
from acts.machines.approval_effects import StartTimer
from acts.machines.budget import SendRecord
from acts.machines.run_commands import RestartChild
from acts.tree.records import Resync

if TYPE_CHECKING:
    from collections.abc import Mapping

RESYNC_TIMER: Final = "look after the runs below again after a reset"
# A run that is cancelled ends within a second; while its worker is away, within minutes
RESYNC_SECONDS: Final = (5.0, 30.0, 300.0)
# A result that is on its way arrives within milliseconds
GRACE_SECONDS: Final = 5.0
_GONE: Final = "start again what is gone: "
_KEY: Final = "resync/"


class ResetRecovery:
    """Of one run: the children that it has from before its reset, by key, with their workflow ids."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        self._round = 0

    def begin(self, children: Mapping[str, str]) -> list[Any]:
        """The run was reset while these children ran."""
        self._kept, self._round = dict(children), 0
        return self._ask(children)

    def pass_on(self, children: Mapping[str, str]) -> list[Any]:
        """A run above was reset."""
        return [SendRecord(id_, RESYNC, Resync()) for id_ in children.values()]

    def on_lost(self, key: str, children: Mapping[str, str]) -> list[Any]:
        """The message of this key did not arrive."""
        child = key.removeprefix(_KEY)
        return [StartTimer(_GONE + child, GRACE_SECONDS, f"{_GONE}{child}")] if self._has(child, children) else []

    def on_timer(self, name: str, children: Mapping[str, str]) -> list[Any] | None:
        """A timer has fired; None for one that is not of this machine."""
        if name == RESYNC_TIMER:
            return self._ask(children)
        if not name.startswith(_GONE):
            return None
        child = name.removeprefix(_GONE)
        if not self._has(child, children):
            return []
        del self._kept[child]
        return [RestartChild(child)]

    def _has(self, child: str, children: Mapping[str, str]) -> bool:
        return child in self._kept and self._kept[child] == children.get(child)

    def _ask(self, children: Mapping[str, str]) -> list[Any]:
        self._kept = {key: id_ for key, id_ in self._kept.items() if children.get(key) == id_}
        out: list[Any] = [SendRecord(id_, RESYNC, Resync(), key=_KEY + key) for key, id_ in self._kept.items()]
        if out and self._round < len(RESYNC_SECONDS):
            out.append(StartTimer(RESYNC_TIMER, RESYNC_SECONDS[self._round], RESYNC_TIMER))
            self._round += 1
        return out
