"""Messages that a person provides to a run: they wait until they can join its context, and go to its children at once.

Laws of this file: a message that the context refuses becomes a note; the run goes on without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acts.language.errors import CallError, InvalidRequest, truncate
from acts.language.wire import PROVIDE
from acts.machines.run_commands import SignalChildren

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from acts.language.messages import Data


class ProvidedMessages:
    """``messages`` have not joined the context yet."""

    def __init__(self) -> None:
        self.messages: list[Data] = []

    def add(self, messages: Iterable[Data]) -> None:
        """They have come."""
        self.messages += messages

    def join(self, provide: Callable[[Data], None], note: Callable[[str], None]) -> None:
        """Each joins the context by ``provide``, or is refused with a note."""
        for message in self.messages:
            try:
                provide(message)
            except (InvalidRequest, CallError) as error:
                note(f"a message was refused: {truncate(str(error), 200)}")
        self.messages.clear()


def provide_signal(message: Data) -> SignalChildren:
    """The command that passes a provided message on to the children."""
    return SignalChildren(PROVIDE, message.raw, has_payload=True)
