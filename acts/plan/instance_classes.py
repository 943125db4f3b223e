"""Instances of a template that are alike: their own messages make the same references readable.

What a plan's graph and its problems depend on is which read paths hold something before the plan.
For most instances of a batch these are the same paths, so the template is checked once per class.

An instance can differ from the shared context only where its own messages wrote. Only the read
paths that overlap those places are looked at: the cost grows with the messages, and not with the
number of instances times the number of reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acts.language.references import Path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from acts.plan.context_log import Log, View


@dataclass(frozen=True, slots=True)
class InstanceClass:
    """Instances that agree on the paths that hold something before the plan: those in ``held``."""

    instances: tuple[str, ...]
    held: frozenset[Path]


def classify_instances(instances: Sequence[str], paths: Iterable[Path], log: Log) -> list[InstanceClass]:
    """The instances, in classes that agree on which of ``paths`` they hold before the plan.

    Instances keep their order within a class; classes are in the order of their first instances.
    """
    index = _PathIndex(paths)
    shared = frozenset(path for path in index.paths if log.has_initially(path))
    classes: dict[frozenset[Path], list[str]] = {}
    for instance in instances:
        affected = index.affected_by(log.layer(instance))
        differences = frozenset(p for p in affected if log.has_initially(p, instance) != (p in shared))
        classes.setdefault(differences, []).append(instance)
    return [InstanceClass(tuple(members), shared ^ differences) for differences, members in classes.items()]


class _PathIndex:
    """Paths by everything that is at or above them."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = dict.fromkeys(paths)
        self._at_or_below: dict[Path, list[Path]] = {}
        for path in self.paths:
            for depth in range(len(path.names) + 1):
                self._at_or_below.setdefault(Path(path.kind, path.names[:depth]), []).append(path)

    def affected_by(self, view: View) -> set[Path]:
        """The paths at which what ``view`` wrote itself can make a difference before the plan."""
        affected: set[Path] = set()
        for place, hides_below in view.initial_changes():
            above = (Path(place.kind, place.names[:depth]) for depth in range(len(place.names) + 1))
            affected.update(path for path in above if path in self.paths)
            if hides_below:
                affected.update(self._at_or_below.get(place, ()))
        return affected
