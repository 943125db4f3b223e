"""``†`` expressions: how they are parsed, what they yield, and where JSON values contain them.

    expression  = conjunction { "||" conjunction }
    conjunction = term { "&&" term }
    term        = path | "(" expression ")"
    path        = "†" kind { "." name | "[" digits "]" | "[" JSON-string "]" }

Every (sub)expression is absent, null, or a value. A value replaces its whole expression and is
never parsed again, so nothing that a Tool returns can become an expression. Where values come
from is not known here: readers pass a ``read`` function.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final, NoReturn

from acts.language.errors import ExpressionError
from acts.language.strict_json import DECODER
from acts.language.values import ABSENT, Json, Names, Place, is_unicode, replace_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MARK: Final = "†"

# Nobody writes so many by hand. The bounds keep the cost of a hostile string linear in its
# length: parentheses recurse, and ``(a||b)&&(c||d)&&…`` doubles its alternatives per term.
MAX_PARENTHESES: Final = 64
MAX_ALTERNATIVES: Final = 64
# Paths of one expression: its alternatives are compared with each other, path by path
MAX_PATHS: Final = 256
# A value at a path is nested as deep as the path is long, and JSON nests 100 deep at most
MAX_NAMES: Final = 60

_KIND = re.compile(r"[\w-]+")
_NAME = re.compile(r'[^.\[\]()|&"\s]+')
_DIGITS = re.compile(r"[0-9]{1,9}(?=\])")
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Path:
    """``†kind.name.name``. An index is a name of digits: ``.0`` and ``[0]`` are the same."""

    kind: str
    names: Names = ()

    def __str__(self) -> str:
        return _text(self.kind, self.names)

    def holds(self, other: Path) -> bool:
        """True when ``other`` is this path or below it."""
        return self.kind == other.kind and other.names[: len(self.names)] == self.names

    def overlaps(self, other: Path) -> bool:
        """True when one of the two is a prefix of the other."""
        return self.holds(other) or other.holds(self)


@lru_cache(maxsize=65536)
def _text(kind: str, names: Names) -> str:
    tail = "".join(f".{n}" if _NAME.fullmatch(n) else f"[{json.dumps(n, ensure_ascii=False)}]" for n in names)
    return f"{MARK}{kind}{tail}"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """``a || b``: the first that is a value."""

    terms: tuple[Expression, ...]

    def __str__(self) -> str:
        return " || ".join(str(t) for t in self.terms)


@dataclass(frozen=True, slots=True)
class AllOf:
    """``a && b``: the last, when all are values."""

    terms: tuple[Expression, ...]

    def __str__(self) -> str:
        return " && ".join(f"({t})" if isinstance(t, AnyOf) else str(t) for t in self.terms)


Expression = Path | AnyOf | AllOf


def is_reference(value: Json) -> bool:
    """True for a string that is an expression (``†x``, not ``††x``)."""
    return isinstance(value, str) and value[:1] == MARK and value[1:2] != MARK


def unescape(text: str) -> str:
    """``††x`` is the string ``†x``; any other string is itself."""
    return text[1:] if text.startswith(MARK * 2) else text


@lru_cache(maxsize=65536)
def parse(text: str) -> Expression:
    """The tree of an expression.

    Raises:
        ExpressionError: with the column of the fault.
    """
    parser = _Parser(text)
    tree = parser.any_of(0)
    parser.skip_space()
    if parser.at < len(text):
        parser.fail(f"unexpected {text[parser.at]!r}; an expression continues with ., [, || or &&")
    return tree


class _Parser:
    """A recursive-descent parser; ``at`` is the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, reason: str) -> NoReturn:
        raise ExpressionError(reason, self.at + 1)

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def accept(self, token: str) -> bool:
        """True when ``token`` comes next, after spaces; it is consumed."""
        self.skip_space()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def any_of(self, depth: int) -> Expression:
        terms = [self.all_of(depth)]
        while self.accept("||"):
            terms.append(self.all_of(depth))
        return terms[0] if len(terms) == 1 else AnyOf(tuple(terms))

    def all_of(self, depth: int) -> Expression:
        terms = [self.term(depth)]
        while self.accept("&&"):
            terms.append(self.term(depth))
        return terms[0] if len(terms) == 1 else AllOf(tuple(terms))

    def term(self, depth: int) -> Expression:
        if depth > MAX_PARENTHESES:
            self.fail(f"parentheses nest deeper than {MAX_PARENTHESES}")
        if self.accept("("):
            inner = self.any_of(depth + 1)
            if not self.accept(")"):
                self.fail("a parenthesis is not closed")
            return inner
        if not self.accept(MARK):
            rest = repr(self.text[self.at]) if self.at < len(self.text) else "the end"
            self.fail(f"expected a path like {MARK}state.name, found {rest}")
        return self.path()

    def path(self) -> Path:
        kind = _KIND.match(self.text, self.at)
        if not kind:
            self.fail(f"a kind (letters, digits, _ and -) must follow {MARK}")
        self.at = kind.end()
        names: list[str] = []
        while self.at < len(self.text) and self.text[self.at] in ".[":
            names.append(self.name() if self.text[self.at] == "." else self.bracket())
            if len(names) > MAX_NAMES:
                self.fail(f"a path has at most {MAX_NAMES} names")
        return Path(kind.group(), tuple(names))

    def name(self) -> str:
        self.at += 1
        name = _NAME.match(self.text, self.at)
        if not name:
            self.fail('a name must follow "."; names with special characters are written ["like this"]')
        self.at = name.end()
        return name.group()

    def bracket(self) -> str:
        self.at += 1
        digits = _DIGITS.match(self.text, self.at)
        if digits:
            self.at = digits.end() + 1
            return str(int(digits.group()))
        if not self.text.startswith('"', self.at):
            self.fail("brackets hold an index or a JSON string")
        try:
            name, end = DECODER.raw_decode(self.text, self.at)
        except ValueError:
            self.fail("the JSON string in brackets is not closed or not valid")
        if not is_unicode(name):
            self.fail("the name is not valid Unicode: it holds a lone surrogate")
        self.at = end
        if not self.text.startswith("]", self.at):
            self.fail("a bracket is not closed")
        self.at += 1
        return str(name)


def evaluate(tree: Expression, read: Callable[[Path], Json]) -> Json:
    """What the expression yields: ABSENT, None, or a value. ``read`` gives that of a path."""
    if isinstance(tree, Path):
        return read(tree)
    results = [evaluate(term, read) for term in tree.terms]
    if isinstance(tree, AnyOf):
        for result in results:
            if result is not ABSENT and result is not None:
                return result
        return None if any(r is None for r in results) else ABSENT
    if any(r is ABSENT for r in results):
        return ABSENT
    return None if any(r is None for r in results) else results[-1]


@lru_cache(maxsize=65536)
def paths(tree: Expression) -> tuple[Path, ...]:
    """Every path of the expression, left to right."""
    if isinstance(tree, Path):
        return (tree,)
    return tuple(p for term in tree.terms for p in paths(term))


@lru_cache(maxsize=65536)
def alternatives(tree: Expression) -> tuple[tuple[Path, ...], ...]:
    """The expression as alternatives of conjunctions, parentheses distributed.

    Raises:
        ExpressionError: when there are more than MAX_ALTERNATIVES, or MAX_PATHS in all.
    """
    if isinstance(tree, Path):
        return ((tree,),)
    if len(paths(tree)) > MAX_PATHS:
        raise ExpressionError(f"more than {MAX_PATHS} paths", 1)
    plain = [term for term in tree.terms if isinstance(term, Path)]
    if len(plain) == len(tree.terms):
        return (
            _bounded(iter([(path,) for path in plain])) if isinstance(tree, AnyOf) else (tuple(dict.fromkeys(plain)),)
        )
    if isinstance(tree, AnyOf):
        return _bounded(option for term in tree.terms for option in alternatives(term))
    options: tuple[tuple[Path, ...], ...] = ((),)
    for term in tree.terms:
        right = alternatives(term)
        options = _bounded(a + tuple(p for p in b if p not in a) for a in options for b in right)
    return options


def _bounded(options: Iterator[tuple[Path, ...]]) -> tuple[tuple[Path, ...], ...]:
    bounded = tuple(islice(options, MAX_ALTERNATIVES + 1))
    if len(bounded) > MAX_ALTERNATIVES:
        raise ExpressionError(f"more than {MAX_ALTERNATIVES} alternatives", 1)
    return bounded


def conjunction(paths_: Iterable[Path]) -> str:
    """The expression ``path && path …``, as text; empty without paths."""
    return " && ".join(map(str, paths_))


# -- references inside JSON values -------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReferenceUse:
    """One expression inside a JSON value. ``at`` leads to it: keys and indexes."""

    at: Place
    text: str
    tree: Expression
    paths: tuple[Path, ...]

    @classmethod
    def parse(cls, at: Place, text: str) -> ReferenceUse:
        """The use of an expression, parsed.

        Raises:
            ExpressionError: it is malformed.
        """
        tree = parse(text)
        return cls(at, text, tree, paths(tree))


Escape = tuple[Place, str]
"""The place of a ``††x`` inside a JSON value, and the ``†x`` that it stands for."""

_CONTAINERS_AND_TEXT: Final = (str, dict, list)


def scan_marked(value: Json, *at: str | int) -> Iterator[tuple[Place, str]]:
    """Each string of ``value`` that begins with ``†``, expression or escape, with its place."""
    if isinstance(value, str):
        if value[:1] == MARK:
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
    """Each expression of ``value``, with its place."""
    return ((place, text) for place, text in scan_marked(value, *at) if is_reference(text))


def contains_reference(value: Json) -> bool:
    """True when ``value`` contains an expression at any depth."""
    return next(scan(value), None) is not None


def resolve_references(
    value: Json, uses: Iterable[ReferenceUse], escapes: Iterable[Escape], read: Callable[[Path], Json]
) -> tuple[Json, list[ReferenceUse]]:
    """``value`` with every expression replaced by what it yields, and the uses that are absent.

    ``uses`` and ``escapes`` are all those of ``value``. An absent expression keeps its text.
    ``value`` is not changed: what holds no replacement is shared with it.
    """
    replacements: list[tuple[Place, Json]] = list(escapes)
    missing = []
    for use in uses:
        result = evaluate(use.tree, read)
        if result is ABSENT:
            missing.append(use)
        else:
            replacements.append((use.at, result))
    return replace_parts(value, replacements), missing


def resolve(value: Json, read: Callable[[Path], Json], missing: list[str]) -> Json:
    """Like ``resolve_references`` for a value whose expressions are not parsed yet.

    The texts of absent expressions are added to ``missing``.
    """
    marked = list(scan_marked(value))
    uses = [ReferenceUse.parse(at, text) for at, text in marked if is_reference(text)]
    escapes = [(at, unescape(text)) for at, text in marked if not is_reference(text)]
    result, absent = resolve_references(value, uses, escapes, read)
    missing.extend(use.text for use in absent)
    return result
