"""What a planned Call refers to: its expressions, templates and condition, each with its place.

Laws of this file: it reads the Call as a Message carries it, and takes nothing for granted: what cannot be parsed
is left out. Of a Call with ``_each`` it says where an element came from, as a path of the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from acts.language.errors import ExpressionError
from acts.language.expression_parser import is_text_template, parse, parse_condition
from acts.language.reference_uses import ELEMENT_KINDS, INDEX, ITEM, is_reference, parse_marked, scan
from acts.language.references import MARK, AnyOf, Expression, Path, TextTemplate, evaluate, operands, paths
from acts.language.tools import META, Tool
from acts.language.values import ABSENT, Json, Place, get

SCOPES: Final = "_scopes"
EACH: Final = "_each"
WHEN: Final = "_when"


@dataclass(frozen=True, slots=True)
class CallReference:
    """One expression of a Call: ``at`` is its place in the ``parameter``, like ``order.items[0]``."""

    parameter: str
    at: str
    text: str
    tree: Expression


def find_references(call: Mapping[str, Json], tool: Tool | None) -> Iterator[CallReference]:
    """The expressions of a Call: those of its parameters, of ``_each`` and ``_when``, then its scopes."""
    for key, value in call.items():
        if key not in META:
            yield from _in_value(key, value)
    each = _meta(call, tool, EACH)
    if isinstance(each, str):
        yield from _reference(EACH, EACH, each, parse)
    else:
        yield from _in_value(EACH, each)
    when = _meta(call, tool, WHEN)
    if isinstance(when, str):
        yield from _reference(WHEN, WHEN, when, parse_condition)
    scopes = _meta(call, tool, SCOPES)
    for scope in scopes if isinstance(scopes, list) else ():
        text = scope if not isinstance(scope, str) or scope.startswith(MARK) else MARK + scope
        if isinstance(text, str):
            yield from _reference(SCOPES, SCOPES, text, parse)


def _meta(call: Mapping[str, Json], tool: Tool | None, key: str) -> Json:
    return call.get(key, tool.consts.get(key) if tool is not None else None)


def _in_value(key: str, value: Json) -> Iterator[CallReference]:
    for at, text in scan(value, key):
        yield from _reference(key, _format_place(at), text, parse_marked)


def _reference(key: str, at: str, text: str, parser: Callable[[str], Any]) -> Iterator[CallReference]:
    try:
        tree = parser(text)
    except ExpressionError:
        return
    if not isinstance(tree, str):
        yield CallReference(key, at, text, tree)


def _format_place(at: Place) -> str:
    """``order.items[0]``"""
    return "".join(f"[{t}]" if isinstance(t, int) else f".{t}" for t in at).removeprefix(".")


class ElementPaths:
    """Where the elements of a Call came from: one of them, or where ``index`` is None, all.

    ``read`` reads the context as the Call did.
    """

    def __init__(
        self, call: Mapping[str, Json], tool: Tool | None, index: int | None, read: Callable[[Path], Json]
    ) -> None:
        self._each = _meta(call, tool, EACH)
        self._index, self._read = index, read

    def locate_list(self) -> tuple[Path, ...]:
        """Where the list was, or the one element of it."""
        return self.locate(Path(ITEM))

    def locate(self, path: Path) -> tuple[Path, ...]:
        """The paths of the context that a path of the Call leads to: itself, or where its element was."""
        if self._each is None or path.kind not in ELEMENT_KINDS:
            return (path,)
        if path.kind == INDEX:
            return ()
        if isinstance(self._each, list):
            return self._in_literal(path)
        own = () if self._index is None else (str(self._index),)
        return tuple(Path(p.kind, (*p.names, *own, *(path.names if own else ()))) for p in self._used(self._each))

    def _in_literal(self, path: Path) -> tuple[Path, ...]:
        """Of a literal list: where the reference leads that stands at the path, or above it."""
        value: Json = self._each[self._index] if self._index is not None and self._index < len(self._each) else None
        names = path.names
        while not isinstance(value, str) and names:
            value, names = get(value, names[:1]), names[1:]
        if not isinstance(value, str) or is_text_template(value):
            return ()
        return tuple(Path(p.kind, (*p.names, *names)) for p in self._used(value))

    def _used(self, text: str) -> list[Path]:
        """The paths that an expression took its value from."""
        references = _reference(EACH, EACH, text, parse) if is_reference(text) or text.startswith("(") else ()
        used = [path for reference in references for path in paths_used(reference.tree, self._read)]
        return [path for path in used if self._read(path) not in (ABSENT, None)]

    def value(self, path: Path) -> Json:
        """What a path of the Call yields, as far as the context shows it."""
        return next((self._read(located) for located in self.locate(path)), ABSENT)


def paths_used(tree: Expression, read: Callable[[Path], Json]) -> Iterator[Path]:
    """The paths that decide the value of an expression: none after the alternative that was taken."""
    if isinstance(tree, Path):
        yield tree
        return
    for term in operands(tree):
        yield from paths_used(term, read)
        if isinstance(tree, AnyOf) and evaluate(term, read) not in (ABSENT, None):
            return


def all_paths(tree: Expression) -> tuple[Path, ...]:
    """Every path of an expression, once."""
    parts = operands(tree) if isinstance(tree, TextTemplate) else (tree,)
    return tuple(dict.fromkeys(path for part in parts for path in paths(part)))
