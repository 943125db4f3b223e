"""What the elements of a Call with ``_each`` are made of, read once for all of them.

Laws of this file: it resolves and decides nothing else. When a list is read, and what becomes of an element,
is for the walk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acts.language.errors import CallError, TooComplex
from acts.language.evaluation_work import EvaluationWork
from acts.language.reference_uses import ITEM, resolve_references
from acts.language.references import Path, is_absent, paths
from acts.language.values import ABSENT, UNKNOWN, Json, get, type_name, with_article
from acts.language.wire import LIMIT_EXCEEDED, TOO_COMPLEX, UNRESOLVED, WRONG_KIND
from acts.plan.call_expressions import MAX_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from acts.language.reference_uses import ReferenceUse
    from acts.plan.planned_call import PlannedCall


@dataclass(frozen=True, slots=True)
class ElementReading:
    """What the elements of a Call are made of.

    ``items`` are the elements, ``call`` what they share, with the expressions of ``uses`` in place; ``values``
    are those of the context that these expressions read besides, and ``context`` what the Call's scopes show.
    ``is_known`` is False in a dry run that does not know the list: one unknown element stands for all.
    """

    items: list[Json]
    call: dict[str, Any]
    uses: tuple[ReferenceUse, ...] = ()
    values: dict[Path, Json] = field(default_factory=dict)
    context: list[dict[str, Any]] = field(default_factory=list)
    is_known: bool = True
    work: EvaluationWork = field(default_factory=EvaluationWork, compare=False)

    def resolve(self, index: int) -> dict[str, Any]:
        """The Call of one element.

        Raises:
            CallError: an expression yields nothing for it, or its texts are too long.
        """
        read = self._reader(index)
        try:
            call, missing = resolve_references(self.call, self.uses, (), read, self.work)
        except TooComplex as error:
            raise CallError(TOO_COMPLEX, str(error)) from error
        if missing:
            texts = ", ".join(dict.fromkeys(text for use in missing for text in use.absent_texts(read)))
            raise CallError(UNRESOLVED, f"there is no value at {texts}")
        return dict(call)

    def find_partly_missing(self) -> list[ReferenceUse]:
        """The expressions that yield nothing for some element and read a path that the context lacks.

        What an element alone lacks is the failure of that element.

        Raises:
            TooComplex: all elements of the plan have too many of them.
        """
        mixed = [use for use in self.uses if any(self.values[path] is ABSENT for path in use.paths)]
        self.work.element_reads.spend(len(self.items) * sum(len(paths(use.tree)) for use in mixed))
        readers = [self._reader(index) for index in range(len(self.items))] if mixed else []
        return [use for use in mixed if any(is_absent(use.tree, read) for read in readers)]

    def _reader(self, index: int) -> Callable[[Path], Json]:
        item = self.items[index]

        def read(path: Path) -> Json:
            if path in self.values:
                return self.values[path]
            return get(item if path.kind == ITEM else index, path.names)

        return read


def read_elements(
    node: PlannedCall, read: Callable[[Path], Json], context: list[dict[str, Any]], work: EvaluationWork
) -> tuple[ElementReading, list[ReferenceUse]]:
    """What the elements of a Call are made of, and the expressions that yield nothing for all of them.

    Raises:
        CallError: ``_each`` yields no list, or too long a one.
        TooComplex: texts, or values that are repeated, are more than is allowed.
    """
    items, missing = node.resolve_elements(read, work)
    own = tuple(use for use in node.parameter_uses if use.is_of_element)
    shared = [use for use in node.parameter_uses if not use.is_of_element]
    call, more = resolve_references(node.sent, shared, node.parameter_escapes, read, work)
    missing += more
    if missing:
        return ElementReading([], call), missing
    is_known = items is not UNKNOWN
    items = items if is_known else [UNKNOWN]
    if not isinstance(items, list):
        text = f"_each needs a list; {node.call['_each']} is {with_article(type_name(items))}"
        raise CallError(WRONG_KIND, text)
    if len(items) > MAX_ELEMENTS:
        raise CallError(LIMIT_EXCEEDED, f"_each has {len(items):,} elements; at most {MAX_ELEMENTS:,} are allowed")
    values = {path: read(path) for use in own for path in use.paths}
    return ElementReading(items, call, own, values, context, is_known, work), []
