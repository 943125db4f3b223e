"""Classes of instances for which a template has the same graph and the same problems.

Both depend on nothing but which of the paths that the Calls read have a value before the plan. For
most instances of a batch these are the same paths, so the template is checked once per class.

An instance differs from the shared context only where its own messages wrote. Only the paths that
overlap those places are read: the cost is linear in the messages, and does not multiply the number
of instances by the number of reads. Instances whose messages have the same shape, as the rows of a
table do, need one look for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acts.language.references import Path

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from acts.plan.context_log import Log, View


@dataclass(frozen=True, slots=True)
class InstanceClass:
    """Instances with values at the same paths before the plan: those in ``present``."""

    instances: tuple[str, ...]
    present: frozenset[Path]


def classify_instances(instances: Sequence[str], paths: Iterable[Path], log: Log) -> list[InstanceClass]:
    """The instances, in classes with values at the same of ``paths`` before the plan.

    Instances keep their order within a class; classes are in the order of their first instances.
    """
    index = _PathIndex(paths)
    shared = frozenset(path for path in index.paths if log.has_initially(path))
    classes: dict[frozenset[Path], list[str]] = {}
    by_shape: dict[Hashable, list[str]] = {}
    for instance in instances:
        shape = log.unfolded_shape(instance)
        alike = by_shape.get(shape) if shape is not None else None
        if alike is None:
            affected = index.affected_by(log.view_of(instance))
            differences = frozenset(p for p in affected if log.has_initially(p, instance) != (p in shared))
            alike = by_shape[shape] = classes.setdefault(differences, [])
        alike.append(instance)
    return [InstanceClass(tuple(members), shared ^ differences) for differences, members in classes.items()]


class _PathIndex:
    """Paths, and for each of their prefixes the paths at or below it."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = dict.fromkeys(paths)
        self._at_or_below: dict[Path, list[Path]] = {}
        for path in self.paths:
            for depth in range(len(path.names) + 1):
                self._at_or_below.setdefault(Path(path.kind, path.names[:depth]), []).append(path)

    def affected_by(self, view: View) -> set[Path]:
        """The paths at which what ``view`` wrote itself can make a difference before the plan."""
        affected: set[Path] = set()
        for place, hides_below in view.own_changes():
            above = (Path(place.kind, place.names[:depth]) for depth in range(len(place.names) + 1))
            affected.update(path for path in above if path in self.paths)
            if hides_below:
                affected.update(self._at_or_below.get(place, ()))
        return affected
