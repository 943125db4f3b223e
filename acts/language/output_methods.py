"""The output methods: how a result is added to what a path already holds. One row each.

Laws of this file: what every reader of a plan must know of a method. What it does to a value is in
``plan/context_log.py``; whose part of the value it leaves whose is in ``provenance/trace.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class OutputMethod:
    """``extends`` are the types of value that the method adds to; none: it replaces a value of any type.

    A method that ``grows`` lengthens a list or string, so an index into it depends on all of it. One that
    ``adds_element`` takes its value as one element of a list; any other needs a value of the type it extends.
    """

    extends: tuple[str, ...] = ()
    grows: bool = False
    adds_element: bool = False

    def fits(self, old: str, new: str) -> bool:
        """True when a value of the type ``new`` can be added to one of the type ``old``."""
        return old in self.extends and (self.adds_element or old == new)


OUTPUT_METHODS: Final = {
    "set": OutputMethod(),
    "merge": OutputMethod(extends=("object", "list")),
    "assign": OutputMethod(extends=("object",)),
    "push": OutputMethod(extends=("list",), grows=True, adds_element=True),
    "concat": OutputMethod(extends=("list", "string"), grows=True),
}
METHODS: Final = tuple(OUTPUT_METHODS)
GROWING_METHODS: Final = tuple(name for name, method in OUTPUT_METHODS.items() if method.grows)
# For people and models
METHODS_TEXT: Final = f"{METHODS[0]} (default), {', '.join(METHODS[1:-1])} or {METHODS[-1]}"
