"""``†`` expressions as trees, and what they yield: values, conditions, templates.

An expression names values of the context; a condition (of ``_when``) also compares and negates them; a
template puts them into a text. Every (sub)expression is absent, null, or a value. A value replaces its
whole expression and is never parsed again, so nothing that a Tool returns can become an expression.

How text becomes a tree is for ``expression_parser``. Where values come from is not known here: readers
pass a ``read`` function.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import ExpressionError
from acts.language.evaluation_work import EvaluationWork
from acts.language.values import ABSENT, UNKNOWN, UNKNOWN_TEXT, Json, Names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
        quoted = (
            f".{n}" if _PLAIN_EVERYWHERE.fullmatch(n) else f"[{json.dumps(n, ensure_ascii=False)}]" for n in self.names
        )
        return f"{MARK}{self.kind}{''.join(quoted)}"

    def holds(self, other: Path) -> bool:
        """True when ``other`` is this path or below it."""
        return self.kind == other.kind and other.names[: len(self.names)] == self.names

    def overlaps(self, other: Path) -> bool:
        """True when one of the two is a prefix of the other."""
        return self.holds(other) or other.holds(self)


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


_ESCAPED_INSIDE: Final = re.compile(rf"{MARK}{MARK}(?=[\w-])")


def unescape_inside(text: str) -> str:
    """A text in which ``††x`` stands for a plain ``†x``; the beginning of a whole string is not read here."""
    return _ESCAPED_INSIDE.sub(MARK, text) if MARK * 2 in text else text


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


def evaluate(tree: Expression, read: Callable[[Path], Json], work: EvaluationWork | None = None) -> Json:
    """What the expression yields: ABSENT, None, or a value. ``read`` gives that of a path, ``work`` counts.

    Raises:
        TooComplex: a text or a comparison takes more than is allowed.
    """
    if isinstance(tree, Path):
        return read(tree)
    if isinstance(tree, TextTemplate):
        return _fill(tree, read, work or EvaluationWork())
    if isinstance(tree, Literal):
        return tree.value
    if isinstance(tree, (Not, Comparison)):
        return holds(tree, read, work)
    results = [evaluate(term, read, work) for term in tree.terms]
    if isinstance(tree, AnyOf):
        for result in results:
            if result is not ABSENT and result is not None:
                return result
        return None if any(r is None for r in results) else ABSENT
    if any(r is ABSENT for r in results):
        return ABSENT
    return None if any(r is None for r in results) else results[-1]


def is_absent(tree: Expression, read: Callable[[Path], Json]) -> bool:
    """True when the expression yields nothing. Of a template no text is made to know it."""
    terms = operands(tree) if isinstance(tree, TextTemplate) else (tree,)
    return any(evaluate(term, read) is ABSENT for term in terms)


def _fill(template: TextTemplate, read: Callable[[Path], Json], work: EvaluationWork) -> Json:
    """The text of a template, ABSENT when a part of it is, UNKNOWN_TEXT when a part cannot be known."""
    values = [unescape_inside(p) if isinstance(p, str) else evaluate(p, read, work) for p in template.parts]
    if any(value is ABSENT for value in values):
        return ABSENT
    texts: list[str] = []
    length = 0
    for value in values:
        text = _as_text(value, work)
        if text is UNKNOWN_TEXT:
            return UNKNOWN_TEXT
        length = work.add_text(length, len(text))
        texts.append(text)
    return "".join(texts)


def _as_text(value: Json, work: EvaluationWork) -> Any:
    """A value inside a text: strings as they are, null as nothing, anything else as compact JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return work.write_text(value) if isinstance(value, (dict, list)) else json.dumps(value)
    except TypeError:  # a part of it is UNKNOWN
        return UNKNOWN_TEXT


def holds(tree: Expression, read: Callable[[Path], Json], work: EvaluationWork | None = None) -> Any:
    """Whether a condition holds: True, False, or UNKNOWN where a dry run cannot say.

    An operand of ``!``, ``&&`` and ``||`` holds when it yields a value other than false. Raises as ``evaluate``.
    """
    work = work or EvaluationWork()
    if isinstance(tree, Not):
        term = holds(tree.term, read, work)
        return UNKNOWN if term is UNKNOWN else not term
    if isinstance(tree, (AnyOf, AllOf)):
        decisive = isinstance(tree, AnyOf)  # one operand that holds decides ``||``, one that does not ``&&``
        results = [holds(term, read, work) for term in tree.terms]
        if decisive in results:
            return decisive
        return UNKNOWN if UNKNOWN in results else not decisive
    if isinstance(tree, Comparison):
        return _compare(tree, _side(tree.left, read, work), _side(tree.right, read, work), work)
    value = evaluate(tree, read, work)
    return UNKNOWN if value is UNKNOWN else value is not ABSENT and value is not None and value is not False


def _side(tree: Expression, read: Callable[[Path], Json], work: EvaluationWork) -> Json:
    """A side of a comparison: what it yields, or whether it holds where it is a condition itself."""
    is_condition = any(isinstance(term, (Not, Comparison)) for term in operands(tree))
    return holds(tree, read, work) if is_condition else evaluate(tree, read, work)


def _compare(comparison: Comparison, left: Json, right: Json, work: EvaluationWork) -> Any:
    if comparison.accepts_absence:
        left, right = (None if side is ABSENT else side for side in (left, right))
    if left is ABSENT or right is ABSENT:
        return False
    if comparison.operator in ("==", "!="):
        are_equal = work.compare(left, right)
        return UNKNOWN if are_equal is None else are_equal is (comparison.operator == "==")
    if not (work.is_known(left) and work.is_known(right)):
        return UNKNOWN
    if not (_is_number(left) and _is_number(right)) and not (isinstance(left, str) and isinstance(right, str)):
        return False
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[comparison.operator]


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# -- the paths of a tree -------------------------------------------------------


def paths(tree: Expression) -> tuple[Path, ...]:
    """Every path of the expression, left to right."""
    if isinstance(tree, Path):
        return (tree,)
    collected: list[Path] = []
    pending: list[Expression] = [tree]
    while pending:
        part = _negated(pending.pop())
        if isinstance(part, Path):
            collected.append(part)
        else:
            pending.extend(reversed(operands(part)))
    return tuple(collected)


def _negated(tree: Expression) -> Expression:
    """What an expression negates, however often: it has the same paths."""
    while isinstance(tree, Not):
        tree = tree.term
    return tree


def is_provided(tree: Expression, has: Callable[[Path], bool]) -> bool:
    """True when ``has`` is true of every path of one alternative of the expression."""
    tree = _negated(tree)
    if isinstance(tree, Path):
        return has(tree)
    is_any = isinstance(tree, AnyOf)
    for term in operands(tree):  # no generators: an expression may have thousands of operands
        if is_provided(term, has) is is_any:
            return is_any
    return not is_any


def count_alternatives(tree: Expression) -> tuple[int, int]:
    """How many alternatives an expression has, and how many paths they list together, repeats included.

    Raises:
        ExpressionError: it has more than MAX_ALTERNATIVES, or MAX_PATHS.
    """
    if isinstance(tree, Path):
        return 1, 1
    if len(paths(tree)) > MAX_PATHS:
        raise ExpressionError(f"more than {MAX_PATHS} paths", 1)
    count, listed = _measure(tree)
    if count > MAX_ALTERNATIVES:
        raise ExpressionError(f"more than {MAX_ALTERNATIVES} alternatives", 1)
    return count, listed


def _measure(tree: Expression) -> tuple[int, int]:
    if isinstance(tree, Path):
        return 1, 1
    measures = [_measure(term) for term in operands(tree)]
    if isinstance(tree, AnyOf):
        return sum(count for count, _ in measures), sum(listed for _, listed in measures)
    count = math.prod(count for count, _ in measures)
    return count, sum(listed * (count // own) for own, listed in measures)


def alternatives(tree: Expression) -> tuple[tuple[Path, ...], ...]:
    """The expression as alternatives of conjunctions, parentheses distributed, no path twice in one.

    Raises:
        ExpressionError: when there are more than MAX_ALTERNATIVES, or MAX_PATHS in all.
    """
    count_alternatives(tree)
    return tuple(tuple(option) for option in _distribute(tree))


def _distribute(tree: Expression) -> list[dict[Path, None]]:
    if isinstance(tree, Path):
        return [{tree: None}]
    terms = operands(tree)
    if isinstance(tree, AnyOf):
        return [option for term in terms for option in _distribute(term)]
    options: list[dict[Path, None]] = [{}]
    for term in terms:
        right = _distribute(term)
        if len(right) == 1:
            for option in options:
                option.update(right[0])
        else:
            options = [{**a, **b} for a in options for b in right]
    return options


def conjunction(paths_: Iterable[Path]) -> str:
    """The expression ``path && path …``, as text; empty without paths."""
    return " && ".join(map(str, paths_))
