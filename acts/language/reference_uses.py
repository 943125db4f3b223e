"""Expressions and templates inside JSON values: where they are, and the value with each replaced.

Laws of this file: a string that holds no ``†`` is literal, and costs one search to know it. What is
replaced is parsed once, when its Call is read; what is put in its place is never read again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from acts.language.errors import Problem, truncate
from acts.language.evaluation_work import EvaluationWork
from acts.language.expression_parser import OPENING, has_expression, is_text_template, parse, parse_text_template
from acts.language.references import (
    MARK,
    AllOf,
    AnyOf,
    Comparison,
    Expression,
    Path,
    TextTemplate,
    evaluate,
    operands,
    paths,
    unescape_inside,
)
from acts.language.values import ABSENT, UNKNOWN, UNKNOWN_TEXT, Json, Place, replace_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

# The kinds of the two paths that a Call with ``_each`` has for each of its elements
ITEM: Final = "item"
INDEX: Final = "index"
ELEMENT_KINDS: Final = frozenset({ITEM, INDEX})


def is_reference(value: Json) -> bool:
    """True for a string that is an expression (``†x``, neither ``††x`` nor a template)."""
    return isinstance(value, str) and value[:1] == MARK and value[1:2] != MARK and not is_text_template(value)


def unescape(text: str) -> str:
    """``††x`` is the string ``†x``, at the beginning of a text and inside it; any other string is itself."""
    return MARK + unescape_inside(text[2:]) if text.startswith(MARK * 2) else unescape_inside(text)


# What looks like a path inside a text: a kind, a dot, and mostly names
_EMBEDDED: Final = re.compile(rf"(?<!{MARK}){MARK}([\w-]+)(?:(\.)((?:[\w-]+(?:\.[\w-]+)*)?))?")


@dataclass(frozen=True, slots=True)
class EmbeddedReference:
    """What looks like a reference inside a text: an error if there is such a kind. ``path`` is without its ``†``."""

    at: Place
    text: str
    path: str
    kind: str
    has_dot: bool

    def is_mistaken(self, kinds: Container[str], *, each: bool) -> bool:
        """True when a reader would take it for a reference; ``each``: inside a Call with ``_each``."""
        return (self.has_dot and self.kind in kinds) or (each and self.kind in ELEMENT_KINDS)

    def to_problem(self, place: str, call: str | None = None) -> Problem:
        """The problem of the text; ``place`` is the pointer to it."""
        path = f"{MARK}{self.path}"
        corrected = self.text.replace(path, f"{OPENING}{self.path}}}", 1)
        hint = f'a template puts a value into a text: "{truncate(corrected, 200)}"; plain text is written {MARK}{path}'
        return Problem("embeddedReference", f"{path} is inside a text, where nothing replaces it", place, call, hint)


def find_embedded(at: Place, text: str, tree: Expression | str) -> list[EmbeddedReference]:
    """What looks like a reference in the plain parts of a string that stands for ``tree``; each kind once."""
    if isinstance(tree, TextTemplate):
        parts = [part for part in tree.parts if isinstance(part, str)]
    elif isinstance(tree, str):
        parts = [text[2:] if text.startswith(MARK * 2) else text]
    else:
        parts = []
    matches: dict[tuple[str, bool], EmbeddedReference] = {}
    for match in (match for part in parts for match in _EMBEDDED.finditer(part)):
        kind, dot, names = match.groups()
        path = f"{kind}.{names}" if names else kind
        matches.setdefault((kind, bool(dot)), EmbeddedReference(at, text, path, kind, bool(dot)))
    return [*matches.values()]


def parse_marked(text: str) -> Expression | str:
    """What a string stands for: an expression, a template, or a text with its escapes replaced.

    Raises:
        ExpressionError: it is malformed.
    """
    if is_text_template(text):
        template = parse_text_template(text)
        has_expressions = any(not isinstance(part, str) for part in template.parts)
        return template if has_expressions else unescape_inside("".join(map(str, template.parts)))
    return parse(text) if is_reference(text) else unescape(text)


def unread_value(text: str) -> Json:
    """The value of a planned string while nothing is read: UNKNOWN, UNKNOWN_TEXT, or its text."""
    if MARK not in text:
        return text
    if is_reference(text):
        return UNKNOWN
    if has_expression(text):
        return UNKNOWN_TEXT
    literal = parse_marked(text)
    return literal if isinstance(literal, str) else UNKNOWN_TEXT


@dataclass(frozen=True, slots=True)
class ReferenceUse:
    """One expression, template or condition inside a JSON value. ``at`` leads to it: keys and indexes.

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
        if not each:
            return cls(at, text, tree, every)
        own = tuple(path for path in every if path.kind not in ELEMENT_KINDS)
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
        absent = [str(tree) for tree in self.expressions if evaluate(tree, read) is ABSENT]
        return absent if isinstance(self.tree, TextTemplate) and absent else [self.text]

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


Escape = tuple[Place, str]
"""The place of a text with escapes (``††x``) inside a JSON value, and the text that it stands for."""

_CONTAINERS_AND_TEXT: Final = (str, dict, list)


def scan_marked(value: Json, *at: str | int) -> Iterator[tuple[Place, str]]:
    """Each string of ``value`` that contains ``†``, with its place."""
    if isinstance(value, str):
        if MARK in value:
            yield at, value
    elif isinstance(value, dict):
        for key, child in value.items():
            if isinstance(child, _CONTAINERS_AND_TEXT):
                yield from scan_marked(child, *at, key)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            if isinstance(child, _CONTAINERS_AND_TEXT):
                yield from scan_marked(child, *at, index)


def scan(value: Json, *at: str | int) -> Iterator[tuple[Place, str]]:
    """Each expression and template of ``value``, with its place."""
    return ((place, text) for place, text in scan_marked(value, *at) if is_reference(text) or is_text_template(text))


def contains_reference(value: Json) -> bool:
    """True when ``value`` contains an expression or a template at any depth."""
    return next(scan(value), None) is not None


def resolve_references(
    value: Json,
    uses: Iterable[ReferenceUse],
    escapes: Iterable[Escape],
    read: Callable[[Path], Json],
    work: EvaluationWork | None = None,
) -> tuple[Json, list[ReferenceUse]]:
    """``value`` with every expression and template replaced by what it yields, and the uses that are absent.

    ``uses`` and ``escapes`` are those of ``value``. What is absent keeps its text. ``value`` is not
    changed: what holds no replacement is shared with it.

    Raises:
        TooComplex: the texts or the values that are repeated in it are more than is allowed (see ``EvaluationWork``).
    """
    work = work or EvaluationWork()
    replacements: list[tuple[Place, Json]] = list(escapes)
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


def resolve(value: Json, read: Callable[[Path], Json], missing: list[str]) -> Json:
    """Like ``resolve_references`` for a value whose expressions are not parsed yet.

    The texts of absent expressions are added to ``missing``.
    """
    uses: list[ReferenceUse] = []
    escapes: list[Escape] = []
    for at, text in scan_marked(value):
        tree = parse_marked(text)
        if not isinstance(tree, str):
            uses.append(ReferenceUse.of(at, text, tree))
        elif tree != text:
            escapes.append((at, tree))
    result, absent = resolve_references(value, uses, escapes, read)
    missing.extend(text for use in absent for text in use.absent_texts(read))
    return result
