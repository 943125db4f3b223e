"""What a run signals: its children, by a person's word or its own, and other runs of the tree, by records.

It knows which run a signal is for and what becomes of a record, nothing of order and arrival (``outbox.py``), nor of
the names and shapes of signals (``signals.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio import workflow

from acts.language.errors import CallError, truncate
from acts.language.wire import INSTANCE, PROVIDE
from acts.machines.agent_run import AgentRun
from acts.machines.events import RecordDelivered, RecordLost
from workflows.runtime.payloads import encode, encode_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.common import RawValue

    from acts.machines.budget import SendRecord
    from acts.machines.events import Event
    from acts.machines.run_commands import SignalChildren
    from acts.machines.run_machine import RunMachine
    from workflows.runtime.children import Children
    from workflows.runtime.outbox import Outbox


class SignalSender:
    """The signals of one run; ``emit`` takes what became of a record."""

    def __init__(self, run: RunMachine, children: Children, outbox: Outbox, emit: Callable[[Event], None]) -> None:
        self._run, self._children, self._outbox, self._emit = run, children, outbox, emit

    def signal_children(self, command: SignalChildren) -> None:
        """Signal all children, all instances, or the child that walks one; note a payload that is too large."""
        try:
            args: list[RawValue] = [encode(command.payload)] if command.has_payload else []
        except CallError as error:
            self._run.note(f"{command.signal} was not passed on: {error.message}")
            return
        if command.instance is not None and command.instances_only:
            name = self._run.child_of_instance(command.instance)
            self._children.signal_named(INSTANCE, name, command.signal, *args)
        else:
            type_ = INSTANCE if command.instances_only else None
            self._children.signal_all(command.signal, *args, type_=type_)

    def signal_instance(self, name: str, signal: str, value: RawValue) -> bool:
        """Pass a person's signal on to the child that walks an instance, or through an agent's plan to it."""
        if isinstance(self._run, AgentRun):
            self._children.signal_all(signal, value)
            return True
        args = (value,) if signal == PROVIDE else ()
        return self._children.signal_named(INSTANCE, name, signal, *args)

    def send_record(self, command: SendRecord) -> None:
        """Send a record to a run of the tree; ``RecordDelivered`` or ``RecordLost`` follows."""

        def outcome(error: BaseException | None) -> None:
            if error is None:
                self._emit(RecordDelivered(command.key))
            else:
                self._emit(RecordLost(command.key, truncate(str(error), 200)))

        try:
            payload = encode_record(command.record)
        except CallError as error:
            self._emit(RecordLost(command.key, error.message))
            return
        target = workflow.get_external_workflow_handle(command.workflow_id)
        self._outbox.send(target, command.signal, (payload,), outcome)
