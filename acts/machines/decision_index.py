"""What decisions may be about, found by the names that a decision gives.

Laws of this file: it narrows the choice and decides nothing (``tree/decisions`` does). Ten thousand decisions about ten
thousand Calls may come in one workflow task, so that no decision may be compared with all that waits.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

from acts.language.wire import EDIT

if TYPE_CHECKING:
    from collections.abc import Hashable, ItemsView, Iterable, ValuesView

    from acts.tree.decisions import Decision

Key = TypeVar("Key", bound="Hashable")
Item = TypeVar("Item")
_Group = tuple[str, str | None]


class DecisionIndex(Generic[Key, Item]):
    """Items by key, in the order in which they were added, and by run, Call and instance."""

    def __init__(self) -> None:
        self._items: dict[Key, Item] = {}
        self._groups_of: dict[Key, tuple[_Group, ...]] = {}
        self._groups: dict[_Group, dict[Key, Item]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: Key) -> Item | None:
        """The item of a key, or None."""
        return self._items.get(key)

    def items(self) -> ItemsView[Key, Item]:
        """Keys and items."""
        return self._items.items()

    def values(self) -> ValuesView[Item]:
        """All items."""
        return self._items.values()

    def put(self, key: Key, item: Item, workflow_id: str, call: str | None, instance: str | None) -> None:
        """Add an item, or replace that of the same key, run, Call and instance."""
        self._items[key] = item
        self._groups_of[key] = groups = (("run", workflow_id), ("call", call), ("instance", instance))
        for group in groups:
            self._groups.setdefault(group, {})[key] = item

    def pop(self, key: Key) -> Item | None:
        """Remove an item and return it."""
        for group in self._groups_of.pop(key, ()):
            self._groups[group].pop(key)
            if not self._groups[group]:
                del self._groups[group]
        return self._items.pop(key, None)

    def clear(self) -> None:
        """Remove all."""
        for own in (self._items, self._groups_of, self._groups):
            own.clear()

    def narrow(self, decision: Decision) -> Iterable[Item]:
        """The items that a decision may be about: all that fit it are among them."""
        choices: list[list[dict[Key, Item]]] = [[self._items]]
        if decision.workflow_id is not None:
            choices.append([self._group("run", decision.workflow_id)])
        elif decision.instance is not None:  # beside the id of a run, the instance need not be that of the item
            choices.append([self._group("instance", decision.instance)])
        if decision.call is not None:
            plans = [self._group("call", None)] if decision.decision == EDIT else []  # an edit of one Call of a plan
            choices.append([self._group("call", decision.call), *plans])
        best = min(choices, key=lambda groups: sum(map(len, groups)))
        return chain.from_iterable(group.values() for group in best)

    def _group(self, by: str, name: str | None) -> dict[Key, Item]:
        return self._groups.get((by, name), {})
