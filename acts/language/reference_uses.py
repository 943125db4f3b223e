"""Expressions and templates inside JSON values: where they are, and the value with each replaced; scopes of Calls.

Laws of this file: a string that holds no ``†`` is literal, and costs one search to know it. What is replaced is parsed
once, when its Call is read; what is put in its place is never read again.

A scope is a data-like kind or a path: the part of the context that a Call may see, an allow-list. A Call gets one
merged Message per kind in scope, in wrapped form, without provenance and without ``_instance``. A path gives the part
there and nothing beside it. A scope at which the context holds nothing gives nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.admission import Work
from acts.language.errors import ExpressionError, Problem, truncate
from acts.language.messages import DATA_TYPES
from acts.language.references import (
    MARK,
    OPENING,
    AllOf,
    AnyOf,
    Comparison,
    Expression,
    Literal,
    Path,
    TextTemplate,
    evaluate,
    is_text_template,
    operands,
    parse,
    parse_text_template,
    paths,
    unescape_inside,
)
from acts.language.values import ABSENT, UNKNOWN, UNKNOWN_TEXT, Json, Place, list_index, replace_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

# The kinds of the two paths that a Call with ``_each`` has for each of its elements
ITEM: Final = "item"
INDEX: Final = "index"
ELEMENT_KINDS: Final = frozenset({ITEM, INDEX})


def is_reference(value: Json) -> bool:
    """True for a string that is an expression (``†x``, neither ``††x`` nor a template)."""
    return isinstance(value, str) and value[:1] == MARK and value[1:2] != MARK and not is_text_template(value)


def parse_marked(text: str) -> Expression:
    """What a string with a ``†`` stands for: an expression, a template, or a literal text with its escapes replaced.

    Raises:
        ExpressionError: it is malformed.
    """
    if is_reference(text):
        return parse(text)
    if is_text_template(text):
        template = parse_text_template(text)
        if operands(template):
            return template
        text = unescape_inside("".join(map(str, template.parts)))
    else:  # ``††x`` is the string ``†x``, at the beginning of a text and inside it
        text = MARK + unescape_inside(text[2:]) if text.startswith(MARK * 2) else unescape_inside(text)
    return Literal(json.dumps(text))


def unread_value(text: str) -> Json:
    """The value of a planned string while nothing is read: UNKNOWN, UNKNOWN_TEXT, or its text."""
    if MARK not in text:
        return text
    if is_reference(text):
        return UNKNOWN
    try:
        tree = parse_marked(text)
    except ExpressionError:
        return UNKNOWN_TEXT
    return tree.value if isinstance(tree, Literal) else UNKNOWN_TEXT


# What looks like a path inside a text: a kind, a dot, and mostly names
_EMBEDDED: Final = re.compile(rf"(?<!{MARK}){MARK}([\w-]+)(?:(\.)((?:[\w-]+(?:\.[\w-]+)*)?))?")


def find_embedded(
    text: str, tree: Expression, kinds: Container[str], place: str, *, each: bool = False
) -> Problem | None:
    """The problem of a string that stands for ``tree`` and has what a reader would take for a reference in plain text.

    ``place`` is the pointer to it; ``each``: inside a Call with ``_each``.
    """
    parts: tuple[Any, ...] = tree.parts if isinstance(tree, TextTemplate) else ()
    if isinstance(tree, Literal):
        parts = (text[2:] if text.startswith(MARK * 2) else text,)
    for match in (match for part in parts if isinstance(part, str) for match in _EMBEDDED.finditer(part)):
        kind, dot, names = match.groups()
        if (dot and kind in kinds) or (each and kind in ELEMENT_KINDS):
            path = f"{kind}.{names}" if names else kind
            corrected = truncate(text.replace(MARK + path, f"{OPENING}{path}}}", 1), 200)
            hint = f'a template puts a value into a text: "{corrected}"; plain text is written {MARK}{MARK}{path}'
            return Problem(
                "embeddedReference", f"{MARK}{path} is inside a text, where nothing replaces it", place, hint=hint
            )
    return None


@dataclass(frozen=True, slots=True)
class ReferenceUse:
    """One expression, template, condition or escaped text inside a JSON value. ``at`` leads to it: keys and indexes.

    ``paths`` are those of the context: in a Call with ``_each``, all but ``†item`` and ``†index``.
    """

    at: Place
    text: str
    tree: Expression
    paths: tuple[Path, ...]
    is_of_element: bool = False

    @classmethod
    def of(cls, at: Place, text: str, tree: Expression, *, each: bool = False) -> ReferenceUse:
        """The use of a tree; ``each``: in the parameters of a Call with ``_each``."""
        every = paths(tree)
        own = tuple(path for path in every if path.kind not in ELEMENT_KINDS) if each else every
        return cls(at, text, tree, own, len(own) < len(every))

    def is_of_context(self, path: Path) -> bool:
        """True for one of ``paths``: the context yields it, not an element."""
        return not (self.is_of_element and path.kind in ELEMENT_KINDS)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The expressions that are read one by one: those of a template, else the tree itself."""
        return operands(self.tree) if isinstance(self.tree, TextTemplate) else (self.tree,)

    def absent_texts(self, read: Callable[[Path], Json]) -> list[str]:
        """What of a use that is absent to name: of a template the expressions that are, not the text around them."""
        if not isinstance(self.tree, TextTemplate):
            return [self.text]
        return [str(tree) for tree in self.expressions if evaluate(tree, read) is ABSENT]

    @property
    def needed_expressions(self) -> tuple[Expression, ...]:
        """The plain expressions that must yield something for a value, or for a condition that holds."""
        return tuple(term for tree in self.expressions for term in _needed_terms(tree))


def _needed_terms(tree: Expression) -> Iterator[Expression]:
    """The terms of a condition without which it cannot hold; a plain expression is its own."""
    if _is_plain(tree):
        yield tree
    elif isinstance(tree, AllOf) or (isinstance(tree, Comparison) and not tree.accepts_absence):
        for part in operands(tree):
            yield from _needed_terms(part)


def _is_plain(tree: Expression) -> bool:
    """True for an expression that is no condition."""
    return isinstance(tree, Path) or (isinstance(tree, (AnyOf, AllOf)) and all(map(_is_plain, tree.terms)))


def scan_marked(value: Json, *at: str | int) -> Iterator[tuple[Place, str]]:
    """Yield each string of ``value`` that contains ``†``, with its place."""
    if isinstance(value, str):
        if MARK in value:
            yield at, value
    elif isinstance(value, (dict, list)):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(child, (str, dict, list)):
                yield from scan_marked(child, *at, key)


def scan(value: Json, *at: str | int) -> Iterator[tuple[Place, str]]:
    """Each expression and template of ``value``, with its place."""
    return ((place, text) for place, text in scan_marked(value, *at) if is_reference(text) or is_text_template(text))


def resolve_references(
    value: Json, uses: Iterable[ReferenceUse], read: Callable[[Path], Json], work: Work | None = None
) -> tuple[Json, list[ReferenceUse]]:
    """``value`` with each of its ``uses`` replaced by what it yields, and the uses that are absent.

    What is absent keeps its text. ``value`` is not changed: what holds no replacement is shared with it.

    Raises:
        TooComplex: the texts or the values that are repeated in it are more than is allowed (see ``Work``).
    """
    work = work or Work()
    replacements: list[tuple[Place, Json]] = []
    missing = []
    present: set[int] = set()
    repeated = 0
    for use in uses:
        result = evaluate(use.tree, read, work)
        if result is ABSENT:
            missing.append(use)
            continue
        replacements.append((use.at, result))
        if id(result) in present:
            repeated = work.add_repeated(repeated, result)
        present.add(id(result))
    return replace_parts(value, replacements), missing


def scoped_context(
    scopes: Iterable[Path], read: Callable[[Path], Json], is_list: Callable[[Path], bool] | None = None
) -> list[dict[str, Any]]:
    """The Messages that a Call with these scopes gets; ``[]`` without scopes.

    ``is_list`` tells whether a value on the way to a scope is a list, where ``read`` must not be
    asked for it: a Call does not depend on what else is written there.
    """
    is_list = is_list or (lambda path: isinstance(read(path), list))
    values = {path: value for path in scopes if (value := read(path)) is not ABSENT}
    payloads: dict[str, Json] = dict.fromkeys((path.kind for path in values), ABSENT)
    for path, value in values.items():
        if not any(prefix in values for prefix in path.prefixes()):
            payloads[path.kind] = _place(payloads[path.kind], path, 0, value, is_list)
    return [wrap_message(kind, payload) for kind, payload in payloads.items()]


def wrap_message(kind: str, payload: Json) -> dict[str, Any]:
    """The Message of a kind in wrapped form; any other than the data-like types is ``data`` with ``kind``."""
    if kind in DATA_TYPES:
        return {"type": kind, kind: payload}
    return {"type": "data", "kind": kind, "data": payload}


def _place(payload: Json, path: Path, depth: int, value: Json, is_list: Callable[[Path], bool]) -> Json:
    """``payload`` with ``value`` at the names of a path from ``depth`` on; a list has null before its index.

    No scope is below another one, so every container on the way was made here, and is changed in place.
    """
    if depth == len(path.names):
        return value
    name = path.names[depth]
    index = list_index(name)
    if index is None or not is_list(Path(path.kind, path.names[:depth])):
        part = payload if isinstance(payload, dict) else {}
        part[name] = _place(part.get(name, ABSENT), path, depth + 1, value, is_list)
        return part
    items = payload if isinstance(payload, list) else []
    items.extend([None] * (index + 1 - len(items)))
    items[index] = _place(items[index], path, depth + 1, value, is_list)
    return items
