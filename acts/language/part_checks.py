"""Checks of values with parts of one valid schema, made node by node as they are looked at.

For a schema that is translated part by part (``activities/providers``): compiling each part with all that it refers to
would take time that is quadratic in the schema. All references lead to ``#/$defs/…``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import TooComplex
from acts.language.patterns import PatternError, compile_pattern
from acts.language.schema_evaluation import Evaluation
from acts.language.schema_forms import LISTED, MAPPED, NESTED
from acts.language.schema_graph import Node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.language.values import Json
    from acts.language.work_meter import WorkMeter

_LOCAL: Final = "#/$defs/"
_SKIPPED: Final = ("$defs", "definitions")


class PartChecks:
    """``definitions`` are those that references lead to, by name."""

    def __init__(self, definitions: Mapping[str, Json]) -> None:
        self._definitions = definitions
        self._nodes: dict[int, tuple[Json, Node]] = {}  # by the id of the schema, which is held
        self._count = 0

    def fits(self, schema: Json, value: Json, meter: WorkMeter) -> bool:
        """True when a value fits a part of the schema, and where that part is no valid schema.

        False where it would take too long to say.
        """
        try:
            return not Evaluation(self._node(schema), meter, remembers=True).defects(value)
        except (TooComplex, RecursionError):
            return False
        except (PatternError, KeyError, TypeError, ValueError, AttributeError):
            return True

    def _node(self, schema: Json) -> Node:
        entry = self._nodes.get(id(schema))
        if entry is None:
            is_schema = isinstance(schema, (dict, bool))  # what is none allows everything
            node = Node(self._count, schema if is_schema else True, {}, self._expand)
            self._count += 1
            entry = self._nodes[id(schema)] = (schema, node)
        return entry[1]

    def _expand(self, node: Node) -> None:
        """Make the nodes that one leads to."""
        schema: Any = node.schema
        for key, argument in schema.items():
            if key in NESTED:
                node.sub[key] = self._node(argument)
            elif key in LISTED and isinstance(argument, list):
                node.sub[key] = [self._node(part) for part in argument]
            elif key in MAPPED and key not in _SKIPPED and isinstance(argument, dict):
                node.sub[key] = {name: self._node(part) for name, part in argument.items()}
            elif key in ("$ref", "$dynamicRef"):
                node.sub[key] = self._node(self._definitions.get(str(argument).removeprefix(_LOCAL), True))
            if key == "pattern":
                node.patterns[argument] = compile_pattern(argument)
            elif key == "patternProperties":
                node.patterns.update({text: compile_pattern(text) for text in argument})
