"""Commands of a run that take a permit each: they pass when there is one, and wait here when there is none.

Most Calls take their permit before they become commands (``PlanRun``), so few ever wait here: those that
had to wait for a budget first, and the requests of agents.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError
from acts.language.wire import CANCELLED
from acts.machines.events import (
    CallCompleted,
    CallDetached,
    CallFailed,
    ChildEnded,
    Event,
    ModelAnswered,
    ModelFailed,
    StartPostponed,
)
from acts.machines.run_commands import (
    AskOutput,
    AskSolution,
    StartActivity,
    StartBackground,
    StartDelegate,
    StartInstances,
    StartPlanRun,
)

if TYPE_CHECKING:
    from acts.machines.permits import Permits

_OF_CALLS: Final = (StartActivity, AskOutput, StartDelegate, StartInstances, StartBackground)
_CHILDREN: Final = (StartDelegate, StartInstances)
_ENDS: Final = (CallCompleted, CallFailed, CallDetached, StartPostponed)
_MODEL: Final = "the request of a tick"


class PermitGate:
    """``waiting`` are commands without a permit, by key, in order."""

    def __init__(self, permits: Permits) -> None:
        self._permits = permits
        self.waiting: dict[str, Any] = {}

    def admit(self, command: Any) -> Any | None:
        """The command, a child's with its lease; None while it waits."""
        if isinstance(command, StartPlanRun):
            return _with_input(command, {"lease": self._permits.hand_over(command.name)})
        key = _key(command)
        if key is None:
            return command
        if not self._permits.has(key) and (self.waiting or not self._permits.reserve(key)):
            self.waiting[key] = command
            return None
        return self._pass(key, command)

    def admit_waiting(self) -> list[Any]:
        """The commands that have a permit by now."""
        out = []
        while self.waiting:
            key, command = next(iter(self.waiting.items()))
            if not self._permits.reserve(key):
                break
            del self.waiting[key]
            out.append(self._pass(key, command))
        return out

    def _pass(self, key: str, command: Any) -> Any:
        if not isinstance(command, _CHILDREN):
            return command
        permits = self._permits
        keeper = permits.own if permits.is_keeper else permits.keeper
        below = {"permitKeeper": keeper, "keepsPermits": False}
        update = {"position": command.input.position.model_copy(update=below), "lease": permits.lease(key)}
        return _with_input(command, update)

    def record_end(self, event: Event) -> None:
        """What has ended gives its permit back; children do so by ``Permits.child_ended``."""
        if isinstance(event, _ENDS):  # a postponed one asks again
            self._permits.release(event.key)
        elif isinstance(event, (ModelAnswered, ModelFailed)):
            self._permits.release(_MODEL)

    def void_waiting(self) -> list[Event]:
        """The run is cancelled: nothing that waits starts. Returns how each Call ended."""
        commands, self.waiting = list(self.waiting.values()), {}
        return [event for command in commands if (event := _void(command)) is not None]


def _key(command: Any) -> str | None:
    if isinstance(command, _OF_CALLS):
        return command.node.key
    return _MODEL if isinstance(command, AskSolution) else None


def _with_input(command: Any, update: dict[str, Any]) -> Any:
    """A command that starts a child, with these fields of its input changed."""
    return replace(command, input=command.input.model_copy(update=update))


def _void(command: Any) -> Event | None:
    error = CallError(CANCELLED, "the call was cancelled before it was started")
    if isinstance(command, _CHILDREN):
        return ChildEnded(command.node.key, None, error, is_unstarted=True)
    return None if isinstance(command, AskSolution) else CallFailed(command.node.key, error)
