"""``†`` expressions as trees, and what they yield: values, conditions, templates.

An expression names values of the context; a condition (of ``_when``) also compares and negates them; a
template puts them into a text. Every (sub)expression is absent, null, or a value. A value replaces its
whole expression and is never parsed again, so nothing that a Tool returns can become an expression.

How text becomes a tree is for ``expression_parser``. Where values come from is not known here: readers
pass a ``read`` function.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import ExpressionError
from acts.language.values import ABSENT, UNKNOWN, UNKNOWN_TEXT, Json, Names, contains_unknown, is_equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MARK: Final = "†"

# ``(a||b)&&(c||d)&&…`` doubles its alternatives per term. Nobody writes so many by hand
MAX_ALTERNATIVES: Final = 64
# Paths of one expression: its alternatives are compared with each other, path by path
MAX_PATHS: Final = 256

# A name that a path may have without brackets and quotes; and one that may so in conditions and templates too
PLAIN_NAME: Final = re.compile(r'[^.\[\]()|&"\s]+')
_PLAIN_EVERYWHERE: Final = re.compile(r'[^.\[\]()|&"\s=!<>{}]+')


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
    quoted = (f".{n}" if _PLAIN_EVERYWHERE.fullmatch(n) else f"[{json.dumps(n, ensure_ascii=False)}]" for n in names)
    return f"{MARK}{kind}{''.join(quoted)}"


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


@dataclass(frozen=True, slots=True)
class Literal:
    """A JSON value in a condition. ``text`` is its JSON: equal texts are equal literals."""

    text: str

    @property
    def value(self) -> Json:
        """The value."""
        return json.loads(self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Not:
    """``!a``: true when ``a`` does not hold."""

    term: Expression

    def __str__(self) -> str:
        return f"!{_operand_text(self.term)}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """``a == b`` and its kin; ``operator`` is one of ``COMPARISONS``."""

    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"{_operand_text(self.left)} {self.operator} {_operand_text(self.right)}"

    @property
    def accepts_absence(self) -> bool:
        """True for ``== null``: the one comparison that holds of what is absent."""
        return self.operator == "==" and _NULL in (self.left, self.right)


@dataclass(frozen=True, slots=True)
class TextTemplate:
    """``Dear †{user.name}``: texts and expressions, in their order."""

    parts: tuple[str | Expression, ...]

    def __str__(self) -> str:
        return "".join(_escape(p) if isinstance(p, str) else f"{MARK}{{{p}}}" for p in self.parts)


Expression = Path | AnyOf | AllOf | Literal | Not | Comparison | TextTemplate

COMPARISONS: Final = ("==", "!=", "<=", ">=", "<", ">")  # the longer ones first, as a parser tries them
_NULL: Final = Literal("null")


def _operand_text(tree: Expression) -> str:
    return f"({tree})" if isinstance(tree, (AnyOf, AllOf, Comparison)) else str(tree)


def _escape(text: str) -> str:
    return text.replace(f"{MARK}{{", f"{MARK}{MARK}{{")


def operands(tree: Expression) -> tuple[Expression, ...]:
    """The expressions of which an expression is made, left to right."""
    if isinstance(tree, (AnyOf, AllOf)):
        return tree.terms
    if isinstance(tree, Not):
        return (tree.term,)
    if isinstance(tree, Comparison):
        return tree.left, tree.right
    return tuple(p for p in tree.parts if not isinstance(p, str)) if isinstance(tree, TextTemplate) else ()


# -- what a tree yields --------------------------------------------------------


def evaluate(tree: Expression, read: Callable[[Path], Json]) -> Json:
    """What the expression yields: ABSENT, None, or a value. ``read`` gives that of a path."""
    if isinstance(tree, Path):
        return read(tree)
    if isinstance(tree, TextTemplate):
        return _fill(tree, read)
    if isinstance(tree, Literal):
        return tree.value
    if isinstance(tree, (Not, Comparison)):
        return holds(tree, read)
    results = [evaluate(term, read) for term in tree.terms]
    if isinstance(tree, AnyOf):
        for result in results:
            if result is not ABSENT and result is not None:
                return result
        return None if any(r is None for r in results) else ABSENT
    if any(r is ABSENT for r in results):
        return ABSENT
    return None if any(r is None for r in results) else results[-1]


def _fill(template: TextTemplate, read: Callable[[Path], Json]) -> Json:
    """The text of a template, ABSENT when a part of it is, UNKNOWN_TEXT when a part cannot be known."""
    values = [part if isinstance(part, str) else evaluate(part, read) for part in template.parts]
    if any(value is ABSENT for value in values):
        return ABSENT
    texts = [_as_text(value) for value in values]
    return UNKNOWN_TEXT if any(text is UNKNOWN_TEXT for text in texts) else "".join(texts)


def _as_text(value: Json) -> Any:
    """A value inside a text: strings as they are, null as nothing, anything else as compact JSON.

    Keys are sorted: the order of keys has no meaning, and may differ between two ways to the same value.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    except TypeError:  # a part of it is UNKNOWN
        return UNKNOWN_TEXT


def holds(tree: Expression, read: Callable[[Path], Json]) -> Any:
    """Whether a condition holds: True, False, or UNKNOWN where a dry run cannot say.

    An operand of ``!``, ``&&`` and ``||`` holds when it yields a value other than false.
    """
    if isinstance(tree, Not):
        term = holds(tree.term, read)
        return UNKNOWN if term is UNKNOWN else not term
    if isinstance(tree, (AnyOf, AllOf)):
        decisive = isinstance(tree, AnyOf)  # one operand that holds decides ``||``, one that does not ``&&``
        results = [holds(term, read) for term in tree.terms]
        if decisive in results:
            return decisive
        return UNKNOWN if UNKNOWN in results else not decisive
    if isinstance(tree, Comparison):
        return _compare(tree, _side(tree.left, read), _side(tree.right, read))
    value = evaluate(tree, read)
    return UNKNOWN if value is UNKNOWN else value is not ABSENT and value is not None and value is not False


def _side(tree: Expression, read: Callable[[Path], Json]) -> Json:
    """A side of a comparison: what it yields, or whether it holds where it is a condition itself."""
    is_condition = any(isinstance(term, (Not, Comparison)) for term in operands(tree))
    return holds(tree, read) if is_condition else evaluate(tree, read)


def _compare(comparison: Comparison, left: Json, right: Json) -> Any:
    if comparison.accepts_absence:
        left, right = (None if side is ABSENT else side for side in (left, right))
    if left is ABSENT or right is ABSENT:
        return False
    if contains_unknown(left) or contains_unknown(right):
        return UNKNOWN
    if comparison.operator == "==":
        return is_equal(left, right)
    if comparison.operator == "!=":
        return not is_equal(left, right)
    if not (_is_number(left) and _is_number(right)) and not (isinstance(left, str) and isinstance(right, str)):
        return False
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[comparison.operator]


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# -- the paths of a tree -------------------------------------------------------


@lru_cache(maxsize=65536)
def paths(tree: Expression) -> tuple[Path, ...]:
    """Every path of the expression, left to right."""
    if isinstance(tree, Path):
        return (tree,)
    return tuple(p for term in operands(tree) for p in paths(term))


def is_provided(tree: Expression, has: Callable[[Path], bool]) -> bool:
    """True when ``has`` is true of every path of one alternative of the expression."""
    if isinstance(tree, Path):
        return has(tree)
    terms = (is_provided(term, has) for term in operands(tree))
    return any(terms) if isinstance(tree, AnyOf) else all(terms)


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
    terms = operands(tree)
    plain = [term for term in terms if isinstance(term, Path)]
    if len(plain) == len(terms):
        return _bounded((path,) for path in plain) if isinstance(tree, AnyOf) else (tuple(dict.fromkeys(plain)),)
    if isinstance(tree, AnyOf):
        return _bounded(option for term in terms for option in alternatives(term))
    options: tuple[tuple[Path, ...], ...] = ((),)
    for term in terms:
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
