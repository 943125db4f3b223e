"""How a command fails: an exit code, and messages that name the cause and the remedy.

Laws of this file:
- an error of a person, a server or an environment is a ``CommandError``, never a traceback;
- nothing is printed here: ``cli.console`` prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1  # the run ended otherwise than completed: failed, partial, rejected, cancelled, …
EXIT_WRONG_INPUT: Final = 2  # typer exits with it too, for a wrong option
EXIT_NO_SERVER: Final = 3
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as shells report it


@dataclass(frozen=True)
class MessageBlock:
    """One message: a sentence, where it applies, and ``facts``, labelled lines below it."""

    head: str
    where: str = ""
    facts: Sequence[tuple[str, str]] = ()
    severity: str = "error"


class CommandError(Exception):
    """The command cannot do what was requested. ``blocks`` are printed, ``code`` is the exit code."""

    def __init__(self, *blocks: MessageBlock, code: int = EXIT_WRONG_INPUT) -> None:
        super().__init__("; ".join(b.head for b in blocks))
        self.blocks = blocks
        self.code = code


def message(head: str, *, where: str = "", hint: str = "", severity: str = "error") -> MessageBlock:
    """A message with at most one hint."""
    return MessageBlock(head, where, (("hint", hint),) if hint else (), severity)


def command_error(head: str, *, where: str = "", hint: str = "", code: int = EXIT_WRONG_INPUT) -> CommandError:
    """A ``CommandError`` of one message with at most one hint."""
    return CommandError(message(head, where=where, hint=hint), code=code)
