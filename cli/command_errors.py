"""How a command ends badly: an exit code and one readable block.

Laws of this file:
- whatever a person or a machine around us did wrong ends as a ``CommandError``, never as a traceback;
- a block says where, what was found, what is allowed, and how to mend it;
- it prints nothing: ``cli.console`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DONE: Final = 0
PLAN_FAILED: Final = 1  # it ran and did not complete: failed, partial, rejected, cancelled, terminated, timed out
WRONG_INPUT: Final = 2  # also what typer exits with for a wrong option
NO_SERVER: Final = 3
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells have it


@dataclass(frozen=True)
class MessageBlock:
    """One finding. ``head`` is the sentence; ``facts`` are (label, text) lines below it."""

    head: str
    where: str = ""
    facts: Sequence[tuple[str, str]] = ()
    severity: str = "error"


class CommandError(Exception):
    """The command cannot do what was asked. ``blocks`` are printed, ``code`` is the exit code."""

    def __init__(self, *blocks: MessageBlock, code: int = WRONG_INPUT) -> None:
        super().__init__("; ".join(b.head for b in blocks))
        self.blocks = blocks
        self.code = code


def refuse(head: str, *, where: str = "", hint: str = "", code: int = WRONG_INPUT) -> CommandError:
    """A Refusal of one block with at most one hint."""
    return CommandError(MessageBlock(head, where, (("hint", hint),) if hint else ()), code=code)
