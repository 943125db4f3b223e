"""Calls that wait for data, by what they read: a message concerns only those that read what it changes.

Laws of this file: it finds Calls, and knows neither their states nor their values.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acts.language.messages import Data
    from acts.plan.planned_call import PlannedCall

    _Ranks = dict[int, None]


class WaitingCalls:
    """The ranks of Calls that wait, by kind and first name of the paths that they read, and by instance."""

    def __init__(self, waiting: Iterable[tuple[int, PlannedCall]]) -> None:
        self._readers: dict[str, dict[str | None, dict[str | None, _Ranks]]] = {}
        for rank, node in waiting:
            self.add(rank, node)

    def add(self, rank: int, node: PlannedCall) -> None:
        """A Call waits."""
        for path in (path for use in node.reads for path in use.paths):
            first = path.names[0] if path.names else None
            of_name = self._readers.setdefault(path.kind, {}).setdefault(first, {})
            of_name.setdefault(node.instance, {})[rank] = None

    def take_readers(self, message: Data) -> list[int]:
        """The Calls that read what a message changes, in plan order; those that wait on are added again."""
        of_kind = self._readers.get(message.kind, {})
        firsts = dict.fromkeys([*of_kind] if (names := _first_names(message)) is None else [None, *names])
        ranks = dict[int, None]()
        for first in firsts:
            of_name = of_kind.get(first, {})
            instances = [*of_name] if message.instance is None else [message.instance]
            ranks.update(dict.fromkeys(chain.from_iterable(of_name.pop(instance, ()) for instance in instances)))
        return sorted(ranks)


def _first_names(message: Data) -> Iterable[str] | None:
    """The names right below its kind at which a message changes something; None: it may be any."""
    if message.path is not None and message.path.names:
        return message.path.names[:1]
    return message.payload if message.path is None and isinstance(message.payload, dict) else None
