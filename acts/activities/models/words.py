"""The words of models as they come, for those who listen in this process: no history ever has them.

The model activity says whose answer is being read; the adapters tell each piece. Where nobody listens, nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Final

# Takes the run that asks, the key of its request (of a tick or a Call), the message, and a piece of it; "" is its end
Listener = Callable[[str, str, str, str], None]
listeners: Final[set[Listener]] = set()
_numbers: Final = count(1)
_message: Final[ContextVar[tuple[str, str, str] | None]] = ContextVar("message", default=None)


@contextmanager
def reading_answer(run: str, key: str, attempt: int) -> Iterator[None]:
    """A block in which the answer to a request is read; each is a message of its own."""
    token = _message.set((run, key, f"{run}/{key}#{attempt}.{next(_numbers)}"))
    try:
        yield
    finally:
        tell("")
        _message.reset(token)


def tell(text: str) -> None:
    """Pass on a piece of the answer."""
    message = _message.get() if listeners else None
    if message is not None:
        for listener in tuple(listeners):
            listener(*message, text)
